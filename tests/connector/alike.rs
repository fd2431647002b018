//! C programs that treat logs as others treat files, with the same answers.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::pnetcdf::h5logfs;
use crate::common::readers::said;

/// The output of a program on a new file, which is a log with the connector.
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
    let Some(hdf5) = Hdf5::find() else { return };
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

/// A program can make links that no other program understands. They hide nothing else, in any state of the log.
#[test]
fn a_broken_link_costs_nothing_but_itself() {
    let Some(hdf5) = Hdf5::find() else { return };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let program = hdf5.compiled("connector", "links");
    let journal = |name: &str| dir.path().join(format!("{name}.h5logfs-journal"));
    for (name, end) in [("closed.h5", "close"), ("left.h5", "leave")] {
        let log = dir.path().join(name);
        succeed(
            Command::new(&program)
                .envs(connector.used())
                .args([log.as_os_str(), end.as_ref()]),
        );
        let is_left = journal(name).exists();
        assert_eq!(is_left, end == "leave");
        check(&connector, &log, is_left);
        if is_left {
            let recovered = h5logfs(&["recover"], &[&log]);
            assert!(recovered.status.success(), "{}", said(&recovered));
            check_told(&said(&recovered));
            assert!(!journal(name).exists());
            check(&connector, &log, false);
        }
        fs::remove_file(&log).unwrap();
    }
}

/// The reports about the links, if the log has them.
fn check_told(told: &str) {
    for link in [
        "few/broken",
        "many/cut off",
        "ordered/dull",
        "ordered/of a kind",
    ] {
        assert!(told.contains(&format!("link /{link} ")), "{link}: {told}");
    }
}

/// Everything except such links is readable from the log, and from an export of it.
fn check(connector: &Connector, log: &Path, has_links: bool) {
    let inspected = h5logfs(&["inspect"], &[log]);
    assert!(inspected.status.success(), "{}", said(&inspected));
    if has_links {
        check_told(&said(&inspected));
    }
    let exported = log.with_extension("exported");
    let done = h5logfs(&["export"], &[log, &exported]);
    assert!(done.status.success(), "{}", said(&done));
    let Some(python) = connector.python() else {
        return;
    };
    let code = "
import sys, h5py
for path in sys.argv[1:]:
    with h5py.File(path) as f:
        for name, further in ('few', 0), ('many', 30), ('ordered', 30):
            g = f[name]
            names = ['before', 'external', 'soft', 'zone', 'zuletzt'] + ['x%d' % i for i in range(further)]
            assert sorted(g) == sorted(names), (path, list(g))
            assert [g['before'][()], g['zone/deep'][()], g['zuletzt'][()]] == [1, 2, 3]
            assert all(g['x%d' % i][()] == i for i in range(further))
            link = g.get('external', getlink=True)
            assert (link.filename, link.path) == ('elsewhere.h5', '/x')
";
    python.run(code, &[log, &exported]);
    fs::remove_file(exported).unwrap();
}
