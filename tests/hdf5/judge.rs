//! All types and properties of HDF5, with HDF5 2.0 and 2.2 as judges. `judge.txt` lists answers about a log that
//! differ from those about a plain file, in each way of opening it. `tests/tools/judge.py` describes the cases.
//!
//! `make test` tries a tenth of the cases, another one each day, `make test-hdf5` all of them. A difference that is
//! not in the table fails. A row of the table without a difference is reported, so that the table is corrected.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::common::amount::{is_whole, part};
use super::common::connector::Connector;
use super::common::readers::{Python, project, said};

const HEAD: &str = "\
# What programs with HDF5 2.0 and 2.2 are told of a log otherwise than of a plain file with the same objects: in the program that makes
# it, and once it is closed, through the connector, through the file driver, and as the file that `settle=yes` makes; and of one that is
# not closed, through the driver. \"same\": nothing. docs/limits.md says why. CONTRIBUTING.md tells how to write this table anew.
#
# Where h5logfs is linked to an older HDF5 than 2, it does not know the types that came later.
";

/// Differing answers by case and way.
type Cells = BTreeMap<(String, String), BTreeSet<String>>;

fn table() -> PathBuf {
    project().join("tests/hdf5/judge.txt")
}

/// The cells of a table.
fn cells(text: &str) -> Cells {
    let mut cells = Cells::new();
    let mut case = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line
            .strip_prefix("    ")
            .and_then(|line| line.split_once(' '))
        {
            Some((way, told)) => {
                let told = told.trim().split(", ").filter(|part| *part != "same");
                let key = (case.to_owned(), way.to_owned());
                cells.insert(key, told.map(str::to_owned).collect());
            }
            None => case = line,
        }
    }
    cells
}

fn judge(python: &Python, library: &Path) -> (Cells, String) {
    let connector = Connector::new();
    let tool = |arguments: &[&str]| {
        let mut command = python.tool("judge.py");
        command.envs(connector.known()).args(arguments);
        // Libraries in wheels find their neighbours by this.
        command.env("LD_LIBRARY_PATH", library.parent().unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = tool(&["list", ""]);
    let all: Vec<&str> = listed.lines().collect();
    let is_all = is_whole() || std::env::var_os("H5LOGFS_TEST_HDF5_2").is_some();
    let cases = if is_all { all } else { part(all, 10) };
    let dir = tempfile::tempdir().unwrap();
    let (library, dir) = (library.to_str().unwrap(), dir.path().to_str().unwrap());
    let text = tool(&[&[library, dir], cases.as_slice()].concat());
    (cells(&text), text)
}

/// Checks that the libhdf5 in a Python module judges as the table says.
fn check(module: &str) {
    let Some(python) = Python::new() else { return };
    let library = python.library_of(module);
    let (found, text) = judge(&python, &library);
    if std::env::var_os("H5LOGFS_TEST_WRITE_HDF5").is_some() {
        fs::write(table(), format!("{HEAD}\n{text}")).unwrap();
        return;
    }
    let expected = cells(&fs::read_to_string(table()).unwrap());
    let mut worse = Vec::new();
    for (key @ (case, way), told) in &found {
        let known = expected
            .get(key)
            .unwrap_or_else(|| panic!("{case}, {way} is not in the table"));
        let more: Vec<_> = told.difference(known).collect();
        if !more.is_empty() {
            worse.push(format!("{case}, {way}: {more:?}"));
        }
        let less: Vec<_> = known.difference(told).collect();
        if !less.is_empty() {
            eprintln!("{case}, {way}: better than in the table: {less:?} are told alike");
        }
    }
    assert!(
        !found.is_empty() && worse.is_empty(),
        "{}:\n{}",
        library.display(),
        worse.join("\n")
    );
}

#[test]
fn of_h5py() {
    check("h5py");
}

#[test]
fn of_netcdf4() {
    check("netCDF4");
}
