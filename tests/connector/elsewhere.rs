//! Logs whose links and virtual datasets lead to other files.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::common::connector::Connector;
use crate::common::readers::Python;

/// Makes two source logs, a plain file, and a log that refers to them. Reads it in the session that makes it, in one
/// that appends, and afterwards.
const PROGRAM: &str = "
import os, sys
import h5py, numpy as np
os.chdir(sys.argv[1])
for n in (0, 1):
    with h5py.File(f'source{n}.h5', 'w') as f:
        f['part/values'] = np.arange(6) + 10 * n
with h5py.File('plain.dat', 'w') as f:
    f['values'] = np.arange(3)
def check(f):
    assert np.array_equal(f['all'][:], [np.arange(6), np.arange(6) + 10]), f['all'][:]
    assert np.array_equal(f['log/values'][:], np.arange(6)), f['log/values'][:]
    assert np.array_equal(f['plain'][:], np.arange(3)), f['plain'][:]
    assert np.array_equal(f['own'][:], np.ones(4)), f['own'][:]
layout = h5py.VirtualLayout(shape=(2, 6), dtype=int)
for n in (0, 1):
    layout[n] = h5py.VirtualSource(f'source{n}.h5', 'part/values', shape=(6,))
with h5py.File('main.h5', 'w', libver=sys.argv[2]) as f:
    f.create_virtual_dataset('all', layout, fillvalue=-1)
    f['log'] = h5py.ExternalLink('source0.h5', 'part')
    f['plain'] = h5py.ExternalLink('plain.dat', 'values')
    f['own'] = np.ones(4)
    check(f)
    f.flush()
    f['plain'][0] = 0
with h5py.File('main.h5', 'r') as f:
    check(f)
with h5py.File('main.h5', 'r+') as f:
    f['more'] = 1
    check(f)
with h5py.File('main.h5', 'r') as f:
    check(f)
    assert f['more'][()] == 1
";

/// A log being written refers to a closed log, a plain file and another log being written.
const CHANGES: &str = "
import os, sys
import h5py, numpy as np
os.chdir(sys.argv[1])
for name in ('closed.h5', 'plain.dat'):
    with h5py.File(name, 'w') as f:
        f['part/values'] = np.arange(6)
def refused(act):
    try:
        act()
    except (OSError, RuntimeError, ValueError, KeyError) as e:
        assert 'is read-only through the link' in str(e), e
    else:
        raise AssertionError('it is not refused')
f = h5py.File('main.h5', 'w')
g = h5py.File('open.h5', 'w')
g['part/values'] = np.arange(6)
f['closed'] = h5py.ExternalLink('closed.h5', 'part')
f['plain'] = h5py.ExternalLink('plain.dat', 'part')
f['open'] = h5py.ExternalLink('open.h5', 'part')
f['x'] = 1
for change in (
    lambda: f['closed/values'].write_direct(np.zeros(6, int)),
    lambda: f['closed'].attrs.create('x', 1),
    lambda: f.create_group('closed/a/b'),
    lambda: f['closed'].create_group('a'),
    lambda: f.create_dataset('closed/new', data=[1]),
    lambda: f['closed'].create_dataset('new', data=[1], maxshape=(None,)),
    lambda: f.__setitem__('closed/type', np.dtype('f8')),
    lambda: f.__setitem__('closed/soft', h5py.SoftLink('/a')),
    lambda: f.__setitem__('closed/hard', f['closed/values']),
    lambda: f.__delitem__('closed/values'),
    lambda: f.move('closed/values', 'closed/others'),
    lambda: f.copy('x', f['closed'], 'copy'),
    lambda: h5py.h5a.delete(f.id, b'a', obj_name=b'closed/values'),
):
    refused(change)
for name in ('plain', 'open'):
    f[name + '/values'][0] = 50
    f[name].attrs['a'] = 1
    f.create_group(name + '/a/b')
    f.create_dataset(name + '/new', data=[1, 2])
    f[name].create_dataset('other', data=[3], maxshape=(None,))
    f.copy('x', f[name], 'copy')
    assert os.path.basename(f[name].file.filename) == {'plain': 'plain.dat', 'open': 'open.h5'}[name]
def check(part):
    assert np.array_equal(part['values'][:], [50, 1, 2, 3, 4, 5]), part['values'][:]
    assert np.array_equal(part['new'][:], [1, 2]), part['new'][:]
    assert np.array_equal(part['other'][:], [3]) and part['copy'][()] == 1
    assert sorted(part) == ['a', 'copy', 'new', 'other', 'values'] and part.attrs['a'] == 1
check(g['part'])
# An object that a link has led to keeps its log open.
kept = f['open/values']
g.close()
kept[5] = 55
kept[5] = 5
del kept
check(f['open'])
refused(lambda: f['open/values'].write_direct(np.zeros(6, int)))
f.close()
for name in ('plain.dat', 'open.h5'):
    with h5py.File(name, 'r') as f:
        check(f['part'])
with h5py.File('closed.h5', 'r') as f:
    assert list(f['part']) == ['values'] and np.array_equal(f['part/values'][:], np.arange(6))
assert sorted(os.listdir()) == ['closed.h5', 'main.h5', 'open.h5', 'plain.dat']
for mode, locking in (('r', True), ('r+', 'best-effort')):
    with h5py.File('main.h5', mode, locking=locking) as f:
        used = {True: (1, 0), 'best-effort': (1, 1)}[locking]
        assert f['open'].file.id.get_access_plist().get_file_locking() == used
        check(f['open'])
    with h5py.File('main.h5', mode, locking=locking) as f:
        for name in ('plain', 'open'):
            part = f.get(name, elink_locking=False)
            assert part.file.id.get_access_plist().get_file_locking() == (0, 0)
            assert part.file.driver == 'sec2'
            check(part)
";

/// Virtual datasets of logged datasets in the same log and in another one, while these are written.
const SOURCES: &str = "
import os, sys
import h5py, numpy as np
os.chdir(sys.argv[1])
f = h5py.File('main.h5', 'w', libver='latest')
g = h5py.File('other.h5', 'w')
f['own'] = np.arange(6)
g['part/values'] = np.arange(6) + 10
grows = f.create_dataset('grows', (2, 3), 'i8', maxshape=(None, 3), chunks=(1, 3), fillvalue=-1)
grows[...] = 7
text = g.create_dataset('text', (4,), h5py.string_dtype())
text[:] = ['a', 'b', 'c', 'd']
layout = h5py.VirtualLayout((4, 6), 'i8')
layout[0] = h5py.VirtualSource('.', 'own', (6,))
layout[1] = h5py.VirtualSource('main.h5', 'own', (6,))
layout[2] = h5py.VirtualSource('other.h5', 'part/values', (6,))
f.create_virtual_dataset('all', layout, fillvalue=-5)
layout = h5py.VirtualLayout((2, 3), 'i8', maxshape=(None, 3))
layout[:h5py.UNLIMITED, :] = h5py.VirtualSource(grows)[:h5py.UNLIMITED, :]
f.create_virtual_dataset('grown', layout, fillvalue=-6)
with h5py.File('closed.h5', 'w') as closed:
    closed.create_dataset('values', (5, 10), 'i8', maxshape=(5, None), fillvalue=1)
layout = h5py.VirtualLayout((5, 10), 'i8', maxshape=(5, 20))
values = h5py.VirtualSource('closed.h5', 'values', (5, 10), maxshape=(5, None))
layout[:, :h5py.UNLIMITED] = values[:, :h5py.UNLIMITED]
f.create_virtual_dataset('limited', layout)
layout = h5py.VirtualLayout((4,), h5py.string_dtype())
layout[:] = h5py.VirtualSource(text)
f.create_virtual_dataset('texts', layout)
def check(f, own=np.arange(6), other=np.arange(6) + 10):
    want = np.array([own, own, other, np.full(6, -5)])
    assert np.array_equal(f['all'][...], want), f['all'][...]
    assert np.array_equal(f['all'][1:3, ::2], want[1:3, ::2])
    assert list(f['texts'].asstr()[:]) == ['a', 'b', 'c', 'd']
check(f)
assert f['grown'].shape == (2, 3) and (f['grown'][...] == 7).all()
all_of_it = f['all']
own = np.arange(6)
for n in range(10):
    own[n % 6] = 100 + n
    f['own'][n % 6] = 100 + n
    assert np.array_equal(all_of_it[0], own)
check(f, own)
g['part/values'][1] = 50
other = np.arange(6) + 10
other[1] = 50
check(f, own, other)
grows.resize(5, axis=0)
grown = f['grown']
assert grown.shape == (5, 3) and (grown[2:] == -1).all()
grows[4] = 9
assert (grown[4] == 9).all() and (grown[:2] == 7).all()
limited = f['limited']
for length in 15, 20:
    with h5py.File('closed.h5', 'r+') as closed:
        closed['values'].resize(length, axis=1)
        closed['values'][:, -5:] = length
    got = np.zeros((5, length), 'i8')
    limited.id.read(h5py.h5s.ALL, h5py.h5s.ALL, got)
    assert limited.id.get_space().shape == (5, length), limited.id.get_space().shape
    assert list(got[4, ::5]) == [1, 1, 15, 20][:length // 5], got
try:
    f['all'][0, 0] = 1
except OSError as e:
    assert 'write to these' in str(e), e
else:
    raise AssertionError('it is not refused')
# A log that is read, and one that a link leads to, have a source that is written.
f.close()
g.close()
f = h5py.File('main.h5', 'r')
check(f, own, other)
d = f['all']
g = h5py.File('other.h5', 'r+')
check(f, own, other)
g['part/values'][2] = 51
other[2] = 51
check(f, own, other)
assert np.array_equal(d[2], other)
h = h5py.File('link.h5', 'w')
h['main'] = h5py.ExternalLink('main.h5', '/')
check(h['main'], own, other)
f.close()
check(h['main'], own, other)
g['part/values'][3] = 52
other[3] = 52
check(h['main'], own, other)
g.close()
h.close()
with h5py.File('main.h5') as f:
    check(f, own, other)
    assert f['grown'].shape == (5, 3) and (f['grown'][4] == 9).all()
";

#[test]
fn virtual_datasets_show_what_was_written_to_their_sources() {
    run(SOURCES, &[]);
}

#[test]
fn what_is_changed_behind_a_link_is_changed_or_refused() {
    run(CHANGES, &[]);
}

/// Runs a program under the connector in a directory, which is returned. `None` without an interpreter.
fn run(program: &str, arguments: &[&str]) -> Option<TempDir> {
    let connector = Connector::new();
    let mut variables = connector.used();
    variables.push(("H5LOGFS_MATCH", "*.h5".into()));
    let python = Python::new()?.with_variables(variables);
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec![dir.path()];
    all.extend(arguments.iter().map(Path::new));
    python.run(program, &all);
    Some(dir)
}

fn leads_to_other_files(format: &str) {
    let Some(dir) = run(PROGRAM, &[format]) else {
        return;
    };
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // The in-memory file is nowhere, and the logs are closed.
    assert_eq!(names, ["main.h5", "plain.dat", "source0.h5", "source1.h5"]);
}

#[test]
fn links_and_virtual_datasets_of_a_log_show_what_is_in_logs_and_in_plain_files() {
    leads_to_other_files("earliest");
}

#[test]
fn a_log_in_the_newest_format_closes_with_its_virtual_datasets() {
    leads_to_other_files("latest");
}
