//! Programs of C that do to logs what others do to files, and are told the same.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::hosts::Hdf5;
use crate::common::readers::said;

/// What a program prints on a file of its own: with the connector, the file is a log.
fn printed(program: &Path, is_log: bool) -> String {
    let (dir, connector) = (tempfile::tempdir().unwrap(), Connector::new());
    let (mut program, file) = (Command::new(program), dir.path().join("a.h5"));
    program.arg(&file);
    if is_log {
        program.envs(connector.used());
    }
    let output = program.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let bytes = fs::read(&file).unwrap();
    let has_mark = bytes.windows(8).any(|bytes| bytes == b"_int_att");
    assert_eq!(has_mark, is_log, "the connector is not used");
    String::from_utf8(output.stdout).unwrap()
}

fn tells_the_same(name: &str, lines: usize) {
    let Some(hdf5) = Hdf5::find() else {
        return;
    };
    let program = hdf5.compiled("connector", name);
    let (of_a_log, of_a_file) = (printed(&program, true), printed(&program, false));
    assert!(of_a_file.lines().count() >= lines, "{of_a_file}");
    let both = of_a_log.lines().zip(of_a_file.lines());
    let differing: Vec<_> = both.filter(|(log, file)| log != file).collect();
    assert!(differing.is_empty(), "a log, a file: {differing:#?}");
    assert_eq!(of_a_log.lines().count(), of_a_file.lines().count());
}

/// Types, selections, buffers and lists of all kinds: what HDF5 refuses is refused.
#[test]
fn a_transfer_with_wrong_arguments_is_refused() {
    tells_the_same("arguments", 500);
}

#[test]
fn the_objects_that_are_open_are_those_of_the_program() {
    tells_the_same("counts", 13);
}
