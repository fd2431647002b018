//! `h5logfs doctor` finds what prevents a program from making logs.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::connector::Connector;
use crate::common::readers::Python;

/// The lines about a libhdf5 in an environment, and whether none was bad.
fn lines(library: &PathBuf, variables: Vec<(&'static str, OsString)>) -> (Vec<String>, bool) {
    let mut doctor = Command::new(PROGRAM);
    // `doctor` would report the tests' own variables as unknown.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let doctor = doctor.arg("doctor").arg(library).env_clear();
    // A given variable replaces this one.
    let output = doctor.env("PATH", path).envs(variables).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (
        text.lines().map(str::to_owned).collect(),
        output.status.success(),
    )
}

#[track_caller]
fn assert_line(lines: &[String], begin: &str, words: &[&str]) {
    let has =
        |line: &&String| line.starts_with(begin) && words.iter().all(|word| line.contains(word));
    assert!(
        lines.iter().any(|line| has(&line)),
        "no {begin} {words:?} in {lines:#?}"
    );
}

#[test]
fn what_is_wrong_is_found() {
    let Some(python) = Python::new() else { return };
    let (connector, library) = (Connector::new(), python.library_of("h5py"));
    let name = library.display().to_string();
    let (good, _) = lines(&library, connector.used_as("h5logfs fsync=flush"));
    for what in ["VOL connector", "file driver"] {
        assert_line(&good, "good: ", &[&name, "HDF5 2.", "loads the", what]);
    }
    assert_line(
        &good,
        "good: HDF5_VOL_CONNECTOR=",
        &["fsync=flush", "accepts it"],
    );
    let of_hdf5 = |line: &&String| line.starts_with("bad: ") && !line.contains("fuse");
    assert_eq!(good.iter().find(of_hdf5), None);

    let mut misspelt = connector.used_as("h5logfs buffer_limt=1M");
    misspelt.push(("H5LOGFS_FSYNK", "none".into()));
    misspelt.push(("H5LOGFS_FSYNC", "often".into()));
    let (bad, is_good) = lines(&library, misspelt);
    assert!(!is_good);
    assert_line(
        &bad,
        "bad: HDF5_VOL_CONNECTOR=",
        &["unknown option buffer_limt: expected one of"],
    );
    assert_line(&bad, "bad: H5LOGFS_FSYNK=none", &["unknown option fsynk"]);
    assert_line(
        &bad,
        "bad: H5LOGFS_FSYNC=often",
        &["expected none, close or flush"],
    );

    let empty = tempfile::tempdir().unwrap();
    let mut nowhere = connector.used();
    nowhere.retain(|(name, _)| *name != "HDF5_PLUGIN_PATH");
    nowhere.push(("HDF5_PLUGIN_PATH", empty.path().into()));
    let (bad, is_good) = lines(&library, nowhere);
    assert!(!is_good);
    assert_line(
        &bad,
        "bad: no directory of HDF5_PLUGIN_PATH has the VOL connector",
        &[],
    );
    assert_line(&bad, "bad: ", &[&name, "does not load the VOL connector"]);

    let (bad, _) = lines(&library, connector.used_as("h5logf"));
    assert_line(
        &bad,
        "bad: HDF5_VOL_CONNECTOR names the connector h5logf",
        &["did you mean h5logfs?"],
    );

    let mut mistyped = connector.used();
    mistyped.push(("HDF5_VOL_CONECTOR", "h5logfs".into()));
    mistyped.push(("HDF5_ROOT", "/usr".into()));
    let (bad, is_good) = lines(&library, mistyped);
    assert!(!is_good && !bad.iter().any(|line| line.contains("HDF5_ROOT")));
    assert_line(
        &bad,
        "bad: HDF5_VOL_CONECTOR is set",
        &["did you mean HDF5_VOL_CONNECTOR?"],
    );

    // A plug-in that cannot be loaded.
    fs::write(empty.path().join("libh5logfs_connector.so"), "no library").unwrap();
    let mut broken = connector.used();
    broken.retain(|(name, _)| *name != "HDF5_PLUGIN_PATH");
    broken.push(("HDF5_PLUGIN_PATH", empty.path().into()));
    let (bad, _) = lines(&library, broken);
    assert_line(
        &bad,
        "bad: ",
        &["libh5logfs_connector.so", "cannot be loaded"],
    );
}

/// Plug-ins that were moved start the program in PATH.
#[test]
fn a_program_that_plugins_do_not_find_is_told() {
    let Some(python) = Python::new() else { return };
    let library = python.library_of("h5py");
    let (plugins, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(plugins.path().join("libh5logfs_connector.so"), "elsewhere").unwrap();
    let found = || {
        let variables = vec![
            ("HDF5_VOL_CONNECTOR", "h5logfs".into()),
            ("HDF5_PLUGIN_PATH", plugins.path().into()),
            ("PATH", bin.path().into()),
        ];
        lines(&library, variables).0
    };
    let advice = format!("set H5LOGFS_PROGRAM={PROGRAM}");
    assert_line(
        &found(),
        "bad: h5logfs is not in PATH",
        &["libh5logfs_connector.so", &advice],
    );
    let program = bin.path().join("h5logfs");
    symlink(PROGRAM, &program).unwrap();
    let name = program.display().to_string();
    let lines = found();
    assert_line(&lines, "good: PATH leads to", &[&name]);
    let of_plugin = ["libh5logfs_connector.so, is of the same release"];
    assert_line(&lines, &format!("good: {name}, for "), &of_plugin);
    fs::remove_file(&program).unwrap();
    symlink("/bin/echo", &program).unwrap();
    assert_line(&found(), "bad: ", &[&name, ", not h5logfs"]);
}
