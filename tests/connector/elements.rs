//! The answers of the connector about written and unwritten elements.

use crate::common::connector::Connector;

fn run(program: &str) {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    python.run(program, &[dir.path()]);
}

/// Reads written data from the log file itself, at the reported places.
const PLACES: &str = "
import os, sys, zlib
import h5py, numpy as np
os.chdir(sys.argv[1])
def at(offset, size):
    with open('log.h5', 'rb') as f:
        f.seek(offset)
        return f.read(size)
image = np.arange(64, dtype='i4').reshape(8, 8)
with h5py.File('log.h5', 'w') as f:
    f['whole'] = np.arange(1000.)
    f['scalar'] = 7
    rewritten = f.create_dataset('rewritten', data=np.arange(10))
    rewritten[3] = 0
    assert rewritten.id.get_offset() is None
    assert f.create_dataset('empty', (10,), 'f4').id.get_offset() is None
    row = f.create_dataset('row', data=np.arange(12), chunks=(5,))
    tiles = f.create_dataset('tiles', data=image, chunks=(4, 4), compression='gzip', shuffle=True)
    places = {
        'whole': (f['whole'].id.get_offset(), f['whole'][:].tobytes()),
        'scalar': (f['scalar'].id.get_offset(), np.int64(7).tobytes()),
    }
    info = [row.id.get_chunk_info(n) for n in range(3)]
    assert [i.chunk_offset for i in info] == [(0,), (5,), None] and [i.size for i in info] == [40] * 3
    places['row'] = (info[1].byte_offset, np.arange(5, 10).tobytes())
    # A file of HDF5 has all of a chunk.
    assert info[2].byte_offset is None
    assert row.id.get_offset() is None
    told = []
    tiles.id.chunk_iter(told.append)
    assert told == [tiles.id.get_chunk_info(n) for n in range(4)]
    for tile in told:
        stored = at(tile.byte_offset, tile.size)
        assert stored == tiles.id.read_direct_chunk(tile.chunk_offset)[1]
        y, x = tile.chunk_offset
        raw = np.frombuffer(zlib.decompress(stored), 'u1').reshape(4, -1).T.tobytes()
        assert raw == image[y:y + 4, x:x + 4].tobytes()
        places[tile.chunk_offset] = (tile.byte_offset, stored)
    f['more'] = np.zeros(5)
    for offset, elements in places.values():
        assert at(offset, len(elements)) == elements
    f.flush()
    assert f['whole'].id.get_offset() == places['whole'][0]
for offset, elements in places.values():
    assert at(offset, len(elements)) == elements
";

#[test]
fn what_lies_in_one_piece_has_a_place_in_the_log_file() {
    run(PLACES);
}

/// Unwritten elements of datasets whose fill value is never used.
const NEVER_FILLED: &str = "
import os, sys
import h5py, numpy as np
os.chdir(sys.argv[1])
def check(f):
    for name in ('contiguous', 'chunked', 'deflated'):
        want = np.zeros(10, 'f4')
        want[3] = 1
        assert np.array_equal(f[name][:10], want), (name, f[name][:10])
        assert (f[name][10:] == 0).all()
        assert f[name].fillvalue == 4 and f[name].id.get_create_plist().get_fill_time() == h5py.h5d.FILL_TIME_NEVER
        assert (f[name + ' unwritten'][:] == 0).all()
    assert (f['filled'][:] == 4).all()
with h5py.File('log.h5', 'w') as f:
    for name, options in (('contiguous', {}), ('chunked', {'chunks': (5,)}), ('deflated', {'chunks': (5,), 'compression': 'gzip'})):
        for suffix in ('', ' unwritten'):
            f.create_dataset(name + suffix, (20,), 'f4', fillvalue=4, fill_time='never', **options)
        f[name][3] = 1
    f.create_dataset('filled', (20,), 'f4', fillvalue=4)
    check(f)
    f.flush()
    check(f)
for mode in ('r', 'r+', 'r'):
    with h5py.File('log.h5', mode) as f:
        check(f)
";

#[test]
fn what_is_never_filled_is_zeros() {
    run(NEVER_FILLED);
}
