//! Logs that are directories: the names by which programs open them, and that no program changes them, with the driver or
//! the connector.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::common::people::{copy, corpus};
use crate::common::readers::project;
use crate::errors::with_a_plug_in;

/// The content by each name, and the outcome of each way to change it.
const TRY: &str = "
import os, sys
import h5py
sys.path.insert(0, sys.argv[1])
import libhdf5
os.chdir(sys.argv[2])
def told(act):
    try:
        return act()
    except OSError as e:
        return ' '.join(str(e).split())
def read(name):
    with h5py.File(name, 'r') as f:
        return sorted(f)
def write(name, mode):
    with h5py.File(name, mode) as f:
        f['new'] = 1
    return 'written'
def delete(name):
    if libhdf5.lib.H5Fdelete(name.encode(), 0) < 0:
        raise OSError(libhdf5.errors()[0])
    return 'deleted'
for name in ('run.bp', 'run.bp/', 'run.bp/md.idx', 'run.bp.h5'):
    print(name, 'r', told(lambda: read(name)))
for name in ('run.bp', 'run.bp/', 'run.bp/md.idx'):
    for mode in ('r+', 'a', 'x', 'w'):
        print(name, mode, told(lambda: write(name, mode)))
    print(name, 'delete', told(lambda: delete(name)))
print('run.bp/data.0 w', told(lambda: write('run.bp/data.0', 'w')))
print('run.bp.h5 r+', told(lambda: write('run.bp.h5', 'r+')))
print('run.bp.h5 w', told(lambda: write('run.bp.h5', 'w')))
print('run.bp.h5 r', told(lambda: read('run.bp.h5')))
print('run.bp.h5 delete', told(lambda: delete('run.bp.h5')))
";

#[test]
fn a_log_directory_is_read_by_each_of_its_names_and_never_changed() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run.bp");
    copy(&corpus("corpus-adios/b5_steps.bp"), &run);
    let before = contents(&run);
    let tools = project().join("tests/tools");
    with_a_plug_in(|python| {
        // The connector makes no logs.
        let python = python.with_variables(vec![("H5LOGFS_MATCH", "".into())]);
        check(&python.run(TRY, &[&tools, dir.path()]));
        assert!(contents(&run) == before);
    });
}

fn check(told: &str) {
    let lines: Vec<&str> = told.lines().collect();
    let (names, rest) = lines.split_at(4);
    let read = names[0].strip_prefix("run.bp r ").unwrap();
    assert!(read.starts_with("['"), "{told}");
    assert!(names.iter().all(|line| line.ends_with(read)), "{told}");
    let (changes, ending) = rest.split_at(16);
    for line in changes {
        let is_refused = [
            "this is a log",
            "is a directory of ADIOS2",
            // A creation that replaces nothing, with the connector.
            "File exists",
            "Is a directory",
        ];
        assert!(
            is_refused.iter().any(|words| line.contains(words)),
            "{told}"
        );
    }
    assert!(
        ending[0].starts_with("run.bp.h5 r+ ") && ending[0].contains("this is a log"),
        "{told}"
    );
    // The name is free for an ordinary file.
    let own = [
        "run.bp.h5 w written",
        "run.bp.h5 r ['new']",
        "run.bp.h5 delete deleted",
    ];
    assert_eq!(ending[1..], own, "{told}");
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    files
}

/// The content by each name of SCORPIO's directories, and the outcome of each way to change them.
const TRY_SCORPIO: &str = "
import os, sys
import h5py
sys.path.insert(0, sys.argv[1])
import libhdf5
os.chdir(sys.argv[2])
def told(act):
    try:
        return act()
    except OSError as e:
        return ' '.join(str(e).split())
def read(name):
    with h5py.File(name, 'r') as f:
        return sorted(f)
def write(name, mode):
    with h5py.File(name, mode) as f:
        f['new'] = 1
    return 'written'
for name in ('link.nc', 'moved.nc', 'none.nc'):
    for ending in ('', '.bp', '.bp/', '.bp/md.idx', '.bp.h5'):
        print('read', name + ending, told(lambda: read(name + ending)))
for mode in ('r+', 'a', 'x', 'w'):
    print('change', 'link.nc', mode, told(lambda: write('link.nc', mode)))
print('free', told(lambda: write('none.nc', 'w')), told(lambda: read('none.nc')))
";

#[test]
fn a_directory_of_scorpio_is_read_by_the_name_that_was_meant_and_never_changed() {
    let tools = project().join("tests/tools");
    with_a_plug_in(|python| {
        // The connector makes no logs, or one of each new file.
        for python in [
            python.with_variables(vec![("H5LOGFS_MATCH", "".into())]),
            python.with_variables(Vec::new()),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            for name in ["link.nc.bp", "moved.nc.bp", "none.nc.bp"] {
                copy(&corpus("corpus-scorpio/basic_r1.nc.bp"), &at(name));
            }
            symlink("link.nc.bp/md.0", at("link.nc")).unwrap();
            symlink("run/moved.nc.bp/md.0", at("moved.nc")).unwrap();
            let directories = ["link.nc.bp", "moved.nc.bp", "none.nc.bp"].map(at);
            let before = directories.each_ref().map(|path| contents(path));
            check_scorpio(&python.run(TRY_SCORPIO, &[&tools, dir.path()]));
            assert!(directories.each_ref().map(|path| contents(path)) == before);
            assert!(at("link.nc").is_symlink());
        }
    });
}

fn check_scorpio(told: &str) {
    let of = |kind: &str| {
        let lines = told.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    let read = of("read ");
    let content = read[0].strip_prefix("link.nc ").unwrap();
    assert!(content.starts_with("['") && read.len() == 15, "{told}");
    assert!(read.iter().all(|line| line.ends_with(content)), "{told}");
    let changes = of("change ");
    assert_eq!(changes.len(), 4);
    for line in changes {
        let words = ["this is a log", "is a directory of ADIOS2", "File exists"];
        assert!(words.iter().any(|words| line.contains(words)), "{told}");
    }
    assert_eq!(of("free "), ["written ['new']"], "{told}");
}
