//! Files of an earlier build (`tests/corpus-own`): this one recovers them and appends to them. `clients/table.rs` reads
//! them in all ways.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::amount::each_variant;
use crate::common::cases::{Case, Cases, Way, own_corpus};
use crate::common::clock::settle;
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::mpirun::{Job, program};
use crate::common::pnetcdf::h5logfs;
use crate::common::readers::{Python, said};

/// Fails where a log does not show what its case means.
#[track_caller]
fn check(cases: &Cases, when: &str) {
    let outcomes = cases.read(Way::Driver, &cases.all);
    for (path, difference) in outcomes.unwrap_or_default() {
        assert_eq!(difference, "", "{path}, {when}");
    }
}

fn at(cases: &Cases, case: &Case) -> PathBuf {
    cases.dir.path().join(&case.path)
}

#[track_caller]
fn recover(cases: &Cases) {
    for case in &cases.all {
        let output = h5logfs(&["recover"], &[&at(cases, case)]);
        let words = if case.path.contains("killed") {
            "recovered"
        } else {
            "already closed"
        };
        let told = said(&output);
        assert!(output.status.success() && told.contains(words), "{told}");
    }
}

#[test]
fn logs_of_an_earlier_build_are_recovered_and_appended_to() {
    let connector = Connector::serial();
    let Some(python) = Python::new() else { return };
    each_variant(&["append at once", "recover first"], |way| {
        let cases = Cases::of_own();
        check(&cases, "as it is");
        if *way == "recover first" {
            recover(&cases);
            check(&cases, "recovered");
        }
        let with_connector = python.with_variables(connector.used());
        for case in &cases.all {
            let path = at(&cases, case);
            if case.path.contains("writer") {
                append_by_the_writer(&path);
            } else {
                append_by_a_program(&with_connector, &python, &path);
            }
        }
    });
}

/// Continues `writer-pattern` up to flush 7; the close is one more.
fn append_by_the_writer(log: &Path) {
    let notes = tempfile::tempdir().unwrap();
    let paths = [log, notes.path()].map(|path| path.to_str().unwrap());
    let arguments = [&paths[..], &["7", "0", "1", "append"]].concat();
    Job::start(2, &program("writer-pattern"), &arguments).succeed();
    let driver = Driver::new();
    let mut tool = driver.python().unwrap().tool("pattern.py");
    let output = tool.arg(log).arg("2").output().unwrap();
    assert_eq!(said(&output), "8\n", "{}", log.display());
}

/// Does the same to the log with the connector, and to the expected file without it.
fn append_by_a_program(connector: &Python, plain: &Python, log: &Path) {
    let code = "
import h5py, sys
with h5py.File(sys.argv[1], 'a') as f:
    t = f['air/temperature']
    t.resize(6, axis=0)
    t[3:6] = 7
    f['zipped'][1] = 9
    f['more'] = [1.5, 2.5]
    f.attrs['step'] = 5
";
    let expected = log.with_extension("expected");
    fs::copy(own_corpus().join("connector.expected.h5"), &expected).unwrap();
    plain.run(code, &[&expected]);
    connector.run(code, &[log]);
    let driver = Driver::new();
    let reader = driver.python().unwrap();
    reader.same(log, &expected).unwrap();
}

/// A kept item of another version is made anew, wherever it lies.
#[test]
fn what_an_earlier_build_has_kept_is_not_taken() {
    let driver = Driver::new();
    let Some(python) = driver.python() else {
        return;
    };
    let cases = Cases::of_own();
    let kept = cases.dir.path().join("kept");
    let config = format!("index_dir={}", kept.display());
    let reader = python.with_variables(vec![("HDF5_DRIVER_CONFIG", config.into())]);
    let log = cases.dir.path().join("own/writer.h5");
    // The scan of a file that has just changed is not kept.
    settle(log.parent().unwrap());
    let shown = || {
        let mut tool = reader.tool("pattern.py");
        said(&tool.arg(&log).arg("2").output().unwrap())
    };
    assert_eq!(shown(), "6\n");
    let entries: Vec<_> = fs::read_dir(&kept).unwrap().flatten().collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    let item = entries[0].path().join("scan");
    let (now, earlier) = (
        fs::read(&item).unwrap(),
        fs::read(own_corpus().join("kept-scan")).unwrap(),
    );
    assert!(now != earlier && earlier.starts_with(&now[..8]));
    fs::write(&item, &earlier).unwrap();
    assert_eq!(shown(), "6\n");
    assert!(
        fs::read(&item).unwrap() == now,
        "the item was not made anew"
    );
}
