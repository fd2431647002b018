//! If programs make ordinary files, they destroy no part of a log.

use std::fs;
use std::path::Path;

use crate::common::connector::Connector;
use crate::common::overwriting::{self, copy_subfiles};
use crate::common::readers::corpus;
use crate::common::unclosed::Log;

fn tried(file: &Path, modes: &str) -> Option<Vec<String>> {
    let connector = Connector::new();
    let python = connector.passing_python()?;
    Some(overwriting::tried(&python, file, modes))
}

const READ_ONLY: &str = "this is a log, which HDF5 programs can only read";

#[test]
fn a_log_of_one_file_is_replaced_or_deleted_where_the_program_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.h5");
    fs::copy(corpus().join("tiny.log.h5"), &path).unwrap();
    let Some(told) = tried(&path, "r+ a x w") else {
        return;
    };
    for (line, mode) in told.iter().zip(["r+", "a"]) {
        assert!(
            line.starts_with(&format!("tiny.h5 {mode} OSError: ")),
            "{line}"
        );
        assert!(line.contains(READ_ONLY), "{line}");
    }
    assert!(
        told[2].starts_with("tiny.h5 x FileExistsError: "),
        "{told:?}"
    );
    assert_eq!(told[3..], ["tiny.h5 w written", "tiny.h5 delete gone"]);
}

#[test]
fn a_log_with_other_files_stays_until_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    copy_subfiles(dir.path());
    std::os::unix::fs::symlink(at("sub.h5"), at("link.h5")).unwrap();
    for file in [at("link.h5"), at("sub.h5")] {
        assert!(at("sub.h5").exists() && at("sub.h5.subfiles").exists());
        let Some(told) = tried(&file, "r+ a x w") else {
            return;
        };
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(told[3].contains("is part of it"), "{told:?}");
        // A delete of a link deletes only the link. A delete of a log deletes all its files.
        assert!(told[4].ends_with(" delete gone"), "{told:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// An unclosed log is replaced only by another log, if the program makes logs. It is deleted with its journal, unless
/// a job writes it.
#[test]
fn a_log_that_is_not_closed_stays_until_it_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::usual(&dir.path().join("unclosed.h5"));
    let job = fs::OpenOptions::new()
        .write(true)
        .open(log.journal_path())
        .unwrap();
    rustix::fs::flock(&job, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let Some(told) = tried(&log.path(), "x w") else {
        return;
    };
    assert!(told[0].contains(" x FileExistsError: "), "{told:?}");
    for (line, reason) in told[1..].iter().zip(["is part of it", "a job writes it"]) {
        assert!(line.contains(reason), "{line}");
    }
    assert!(log.path().exists() && log.journal_path().exists());
    drop(job);
    let told = tried(&log.path(), "").unwrap();
    assert!(told[0].ends_with(" delete gone"), "{told:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// An open file is not truncated, as in native HDF5.
#[test]
fn a_log_that_is_open_is_not_replaced() {
    let connector = Connector::new();
    let Some(python) = connector.passing_python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.h5");
    let link = dir.path().join("link.h5");
    fs::copy(corpus().join("tiny.log.h5"), &path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let code = "
import h5py, sys
path, link = sys.argv[1:]
with h5py.File(path) as f, h5py.File(link) as g:
    for other in (path, link):
        try:
            h5py.File(other, 'w')
        except OSError as e:
            print(e)
    print(h5py.h5g.get_objinfo(f.id).fileno == h5py.h5g.get_objinfo(g.id).fileno)
# The file stays open as long as its objects.
fapl = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
file = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY, fapl)
dataset = h5py.h5d.open(file, b'r')
file.close()
try:
    h5py.File(path, 'w')
except OSError as e:
    print(e)
print(dataset.shape)
del dataset
h5py.File(path, 'w').close()
";
    let refused =
        "Unable to synchronously create file (unable to truncate a file which is already open)\n";
    let told = python.run(code, &[&path, &link]);
    assert_eq!(
        told,
        [refused, refused, "True\n", refused, "(2, 10)\n"].concat()
    );
}
