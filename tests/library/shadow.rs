//! Logs that an HDF5 program defines itself: what is shown of them before and after they are closed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::PROGRAM;
use crate::common::readers::{Python, said};
use crate::common::shadow::Made;

fn run(arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    let (name, further) = arguments.split_first().unwrap();
    command.arg(name).arg(path).args(further).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str], path: &Path) -> String {
    let output = run(arguments, path);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// The canonical file.
#[track_caller]
fn export(log: &Path, name: &str) -> PathBuf {
    let out = log.with_file_name(name);
    succeeds(&["export", out.to_str().unwrap()], log);
    out
}

#[test]
fn what_a_program_defines_is_shown_and_closed() {
    for python in Python::all() {
        for format in ["earliest", "v110", "large"] {
            let dir = tempfile::tempdir().unwrap();
            let made = Made::by(&python, dir.path(), format);
            let log = dir.path().join("log.h5");
            drop(made.log(&log));
            let unclosed = export(&log, "unclosed.h5");
            let same = |got| {
                python.same_with(&[], got, &made.native)?;
                // Made in another second.
                let shadow = dir.path().join("shadow.h5");
                python.same_with(&["--whole", "--no-data"], got, &shadow)
            };
            same(&unclosed).unwrap();
            let said = succeeds(&["recover"], &log);
            assert!(
                said.contains("recovered 2 flushes of 14 datasets"),
                "{said}"
            );
            let closed = export(&log, "closed.h5");
            same(&closed).unwrap();
            // Those of other formats differ in versions of messages, and in where a large dataset lies.
            let bytes = |path: &Path| fs::read(path).unwrap();
            let is_same = format != "earliest" || bytes(&unclosed) == bytes(&closed);
            assert!(is_same, "{}, {format}", python.name);
        }
    }
}
