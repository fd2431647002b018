//! Queries about a log being written, and files that do not become logs.

use std::process::Command;

use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::pnetcdf::h5logfs;

/// Runs code in an empty directory. `is_log(path)` tells whether a file is a log.
fn run(code: &str) {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let head = "
import os, sys
import h5py
os.chdir(sys.argv[1])
def is_log(path):
    return b'_int_att' in open(path, 'rb').read() or os.path.exists(path + '.h5logfs-journal')
";
    python.run(&format!("{head}{code}"), &[dir.path()]);
}

#[test]
fn what_is_asked_of_the_file_is_answered_for_the_log() {
    run("
with h5py.File('a.h5', 'w') as f:
    f['x'] = list(range(100_000))
    f.flush()
    assert f.id.get_filesize() == os.path.getsize('a.h5') >= 800_000
    descriptor = f.id.get_vfd_handle()
    assert os.fstat(descriptor).st_ino == os.stat('a.h5').st_ino
    assert descriptor == f.id.get_vfd_handle()
    assert not f.swmr_mode
    f.swmr_mode = True
    assert f.swmr_mode
    f['x'][0] = 7
assert is_log('a.h5')
assert h5py.File('a.h5')['x'][0] == 7
");
}

/// Many attributes are stored outside of the object's header, if the file's format allows that.
#[test]
fn very_many_attributes_of_an_object_are_listed_in_their_order() {
    run("
for form in [None, 'latest']:
    for track in [False, True]:
        names = [f'attribute {7919 * number % 600}' for number in range(600)]
        with h5py.File('a.h5', 'w', libver=form, track_order=track) as f:
            attrs = f.create_dataset('x', data=[1, 2], track_order=track).attrs
            for number, name in enumerate(names):
                attrs[name] = number
        assert is_log('a.h5')
        with h5py.File('a.h5') as f:
            attrs = f['x'].attrs
            assert list(attrs) == (names if track else sorted(names)), (form, track)
            assert all(attrs[name] == number for number, name in enumerate(names))
");
}

#[test]
fn an_error_names_the_dataset() {
    run("
with h5py.File('a.h5', 'w') as f:
    x = f.create_dataset('group/x', (4,), 'i4', chunks=(4,))
    try:
        x.id.write_direct_chunk((0,), bytes(3))
        sys.exit('no error')
    except OSError as e:
        assert 'a.h5: dataset /group/x: ' in str(e), e
");
}

#[test]
fn any_place_in_a_chunk_asks_for_that_chunk() {
    run("
with h5py.File('a.h5', 'w') as f:
    x = f.create_dataset('x', (10,), 'i4', chunks=(4,), maxshape=(None,))
    x[:2] = 1
    sizes = [x.id.get_chunk_info_by_coord((at,)).size for at in (0, 3, 4, 12, 100)]
    assert sizes == [16, 16, 0, 0, 0], sizes
");
}

#[test]
fn files_with_pages_or_a_strategy_for_free_space_are_plain() {
    run("
with h5py.File('pages.h5', 'w', fs_strategy='page', page_buf_size=1 << 14) as f:
    f['x'] = [1, 2]
with h5py.File('kept.h5', 'w', fs_persist=True, fs_strategy='fsm') as f:
    f['x'] = [1, 2]
with h5py.File('usual.h5', 'w', alignment_threshold=1, alignment_interval=4096) as f:
    f['x'] = [1, 2]
assert [is_log(name) for name in ('pages.h5', 'kept.h5', 'usual.h5')] == [False, False, True]
");
}

#[test]
fn a_file_is_opened_again_with_the_same_locking() {
    run("
with h5py.File('a.h5', 'w', locking=True) as f:
    h5py.File('a.h5', 'r+', locking=True).close()
    try:
        h5py.File('a.h5', 'r+', locking=False)
        sys.exit('no error')
    except OSError as e:
        assert 'locking' in str(e), e
");
}

/// h5py requests `H5F_CLOSE_STRONG`.
#[test]
fn a_file_is_opened_again_with_the_same_close_degree() {
    run("
from h5py import h5f, h5p
def access(degree):
    plist = h5p.create(h5p.FILE_ACCESS)
    plist.set_fclose_degree(degree)
    return plist
def opens(degree):
    try:
        h5f.open(b'a.h5', h5f.ACC_RDWR, access(degree)).close()
        return True
    except OSError as e:
        assert 'close degree' in str(e), e
        return False
degrees = h5f.CLOSE_DEFAULT, h5f.CLOSE_WEAK, h5f.CLOSE_SEMI, h5f.CLOSE_STRONG
for first, same in (h5f.CLOSE_STRONG, degrees[3:]), (h5f.CLOSE_DEFAULT, degrees[:2]), (h5f.CLOSE_WEAK, degrees[:2]):
    file = h5f.create(b'a.h5', fapl=access(first))
    assert file.get_access_plist().get_fclose_degree() == same[-1]
    for degree in degrees:
        assert opens(degree) == (degree in same), (first, degree)
    file.close()
    assert is_log('a.h5')
");
}

#[test]
fn a_file_with_open_objects_is_not_closed_where_the_program_wants_that() {
    run("
from h5py import h5d, h5f, h5p, h5s, h5t
access = h5p.create(h5p.FILE_ACCESS)
access.set_fclose_degree(h5f.CLOSE_SEMI)
file = h5f.create(b'a.h5', fapl=access)
again = h5f.open(b'a.h5', h5f.ACC_RDWR, access)
x = h5d.create(file, b'x', h5t.NATIVE_INT32, h5s.create_simple((3,)))
try:
    file.close()
    sys.exit('no error')
except RuntimeError as e:
    assert 'objects still open' in str(e), e
again.close()
h5py.h5i.dec_ref(x)
file.close()
assert is_log('a.h5') and not os.path.exists('a.h5.h5logfs-journal')
");
}

#[test]
fn files_that_a_program_leaves_open_are_closed_at_its_end() {
    let Some(hdf5) = Hdf5::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [log, plain] = ["a.log.h5", "b.h5"].map(|name| dir.path().join(name));
    let connector = Connector::new();
    let mut program = Command::new(hdf5.compiled("connector", "left"));
    program.envs(connector.used_as("h5logfs match=*.log.h5"));
    succeed(program.args([&log, &plain]));
    let journal = dir.path().join("a.log.h5.h5logfs-journal");
    assert!(!journal.exists());
    let Some(python) = connector.python() else {
        return;
    };
    let read = "
import sys, h5py
for name in sys.argv[1:]:
    with h5py.File(name) as f:
        assert list(f['values']) == [1, 2, 3], name
    assert (b'_int_att' in open(name, 'rb').read()) == name.endswith('.log.h5'), name
";
    python.run(read, &[&log, &plain]);
}

#[test]
fn a_strong_close_closes_the_log_with_its_file() {
    run("
from h5py import h5d, h5f, h5p, h5s, h5t
import numpy as np
def left_open(degree):
    name = f'{degree}.h5'
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_fclose_degree(degree)
    file = h5f.create(name.encode(), fapl=access)
    again = h5f.open(name.encode(), h5f.ACC_RDWR, access)
    x = h5d.create(file, b'x', h5t.NATIVE_INT32, h5s.create_simple((3,)))
    x.write(h5s.ALL, h5s.ALL, np.array([1, 2, 3], 'i4'))
    again.close()
    assert os.path.exists(name + '.h5logfs-journal')
    h5py.h5i.dec_ref(file)
    return name, x
weak, x = left_open(h5f.CLOSE_WEAK)
assert os.path.exists(weak + '.h5logfs-journal')
x.write(h5s.ALL, h5s.ALL, np.array([4, 5, 6], 'i4'))
h5py.h5i.dec_ref(x)
assert not os.path.exists(weak + '.h5logfs-journal')
assert list(h5py.File(weak)['x']) == [4, 5, 6]
strong, x = left_open(h5f.CLOSE_STRONG)
assert not os.path.exists(strong + '.h5logfs-journal')
assert not x.valid
with h5py.File(strong, 'r+') as f:
    f['y'] = 7
with h5py.File(strong) as f:
    assert list(f['x']) == [1, 2, 3] and f['y'][()] == 7
");
}

/// h5py has LZF, but the program that closes the log does not.
#[test]
fn a_filter_of_the_program_does_not_hide_elements_that_are_not_logged() {
    run("
with h5py.File('a.h5', 'w') as f:
    f.create_dataset('text', data=['one', 'two'], dtype=h5py.string_dtype(), chunks=(2,), compression='lzf', shuffle=True)
    f.create_dataset('numbers', data=[1, 2], chunks=(2,), compression='lzf')
    assert list(f['text'].asstr()) == ['one', 'two']
assert is_log('a.h5') and not os.path.exists('a.h5.h5logfs-journal')
with h5py.File('a.h5') as f:
    assert list(f['text'].asstr()) == ['one', 'two']
    assert list(f['numbers']) == [1, 2]
");
}

#[test]
fn changes_that_are_to_stay_in_memory_do_not_go_to_a_log() {
    run("
with h5py.File('a.h5', 'w') as f:
    f['x'] = [1, 2]
before = open('a.h5', 'rb').read()
try:
    h5py.File('a.h5', 'r+', driver='core', backing_store=False)
    sys.exit('no error')
except OSError as e:
    assert 'stay in memory' in str(e), e
assert open('a.h5', 'rb').read() == before
with h5py.File('a.h5', driver='core', backing_store=False) as f:
    assert list(f['x']) == [1, 2]
with h5py.File('a.h5', 'a', driver='core') as f:
    f['y'] = 3
assert h5py.File('a.h5')['y'][()] == 3
");
}

/// Data that `H5Ocopy` puts into the table of shared messages is nowhere else, and a closed log has no such table.
#[test]
fn a_file_whose_objects_share_messages_is_closed_and_opened() {
    let Some(hdf5) = Hdf5::find() else { return };
    let (dir, connector) = (tempfile::tempdir().unwrap(), Connector::new());
    let mut program = Command::new(hdf5.compiled("connector", "shared"));
    succeed(program.envs(connector.used()).arg(dir.path()));
}

/// Debian's libhdf5 does not know these references. Unreadable objects are missing and reported; all else is shown.
#[test]
fn what_only_a_later_libhdf5_can_read_does_not_hide_the_rest() {
    let Some(hdf5) = Hdf5::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.h5");
    let mut program = Command::new(hdf5.compiled("connector", "references"));
    let connector = Connector::new();
    program.envs(connector.used()).arg(&log);
    succeed(&mut program);
    let inspected = h5logfs(&["inspect"], &[&log]);
    let printed = String::from_utf8_lossy(&inspected.stdout);
    assert!(inspected.status.success(), "{inspected:?}");
    assert!(printed.contains("/x       i32   {4}"), "{printed}");
    let journal = dir.path().join("a.h5.h5logfs-journal");
    assert_eq!(
        journal.exists(),
        printed.contains("missing: /refs: the object cannot be read here: "),
        "{printed}"
    );
    assert_eq!(
        journal.exists(),
        printed.contains("missing: /x: its attributes cannot be read here: "),
        "{printed}"
    );
}
