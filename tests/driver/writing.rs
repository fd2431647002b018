//! Logs are read-only, and a program that makes a new file destroys no part of a log.

use std::fs;
use std::path::Path;

use crate::common::driver::Driver;
use crate::common::overwriting::{self, copy_subfiles};
use crate::common::pnetcdf;
use crate::common::readers::corpus;
use crate::common::unclosed::Log;

fn tried(file: &Path) -> Option<Vec<String>> {
    let driver = Driver::new();
    let python = driver.python()?;
    Some(overwriting::tried(&python, file, "r+ a x w"))
}

const READ_ONLY: &str = "this is a log, which HDF5 programs can only read: open it for reading, or make an HDF5 file of \
                         it with `h5logfs export`";

#[test]
fn a_log_of_one_file_is_replaced_or_deleted_where_the_program_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.h5");
    fs::copy(corpus().join("tiny.log.h5"), &path).unwrap();
    let Some(lines) = tried(&path) else { return };
    assert_eq!(
        lines[0],
        format!("tiny.h5 r+ OSError: Unable to synchronously open file (tiny.h5: {READ_ONLY})")
    );
    for (line, mode) in lines[1..3].iter().zip(["a", "x"]) {
        let begin = format!("tiny.h5 {mode} FileExistsError: ");
        assert!(
            line.starts_with(&begin) && line.contains(READ_ONLY),
            "{line}"
        );
    }
    assert_eq!(lines[3..], ["tiny.h5 w written", "tiny.h5 delete gone"]);
}

#[test]
fn a_log_with_other_files_and_one_that_is_not_closed_stay_until_they_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Subfiles.
    copy_subfiles(dir.path());
    // The logs of a burst buffer, a journal, and a log that has lost its journal.
    let netcdf = pnetcdf::case("rand-cdf5-np4").lay_out(dir.path());
    let netcdf_dir = netcdf.parent().unwrap().to_owned();
    let files_of_netcdf = || fs::read_dir(&netcdf_dir).unwrap().count();
    let before = files_of_netcdf();
    let unclosed = Log::usual(&at("unclosed.h5"));
    let lost = Log::usual(&at("lost.h5"));
    fs::remove_file(lost.journal_path()).unwrap();
    // A delete through a link deletes only the link.
    let link = at("link.h5");
    std::os::unix::fs::symlink(at("sub.h5"), &link).unwrap();
    let files = [
        (link.clone(), true),
        (at("sub.h5"), true),
        (netcdf, false),
        (unclosed.path(), true),
        (lost.path(), false),
    ];
    for (file, is_deleted) in &files {
        let Some(lines) = tried(file) else { return };
        assert_eq!(lines.len(), 5, "{lines:?}");
        // libhdf5 opens a file before it deletes it: a file that cannot be opened stays.
        let reasons = [
            "is part of it",
            "a log that was not closed",
            "its journal lost.h5.h5logfs-journal is not there",
        ];
        let kept = if *is_deleted {
            &lines[3..4]
        } else {
            &lines[3..]
        };
        for line in kept {
            assert!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
        }
        assert_eq!(lines[4].ends_with(" delete gone"), *is_deleted, "{lines:?}");
        assert_eq!(file.exists(), !is_deleted);
        assert!(*file != link || at("sub.h5").exists());
    }
    // Nothing remains of the deleted logs.
    for gone in [at("sub.h5.subfiles"), unclosed.journal_path()] {
        assert!(!gone.exists(), "{}", gone.display());
    }
    assert_eq!(files_of_netcdf(), before);
}

/// An open file is not truncated, as with the default driver.
#[test]
fn a_log_that_is_open_is_not_replaced() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tiny.h5");
    fs::copy(corpus().join("tiny.log.h5"), &path).unwrap();
    let code = "
import h5py, sys
with h5py.File(sys.argv[1]) as f, h5py.File(sys.argv[1]) as g:
    for mode in ('w', 'r+'):
        try:
            h5py.File(sys.argv[1], mode)
        except OSError as e:
            print(e)
    print(f['r'].shape == g['r'].shape, h5py.h5g.get_objinfo(f.id).fileno == h5py.h5g.get_objinfo(g.id).fileno)
    f['r'][...]
";
    let expected = "Unable to synchronously create file (unable to truncate a file which is already open)\n\
                    Unable to synchronously open file (file is already open for read-only)\nTrue True\n";
    assert_eq!(python.run(code, &[&path]), expected);
}
