//! Programs ported to the Log VOL, with `libh5logfs_vol_api`: their files with the connector equal those without it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::each_variant;
use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::make::built_vol_api;
use crate::common::mpirun::Job;
use crate::common::nodes::Place;
use crate::common::once::{once, shared_dir};
use crate::common::readers::project;
use crate::common::twice::{Twice, Variable, by_ranks, command_by_ranks};

/// The library as installed: under the names for linking and loading. Plug-ins are beside it.
fn installed() -> PathBuf {
    let dir = shared_dir("vol-api");
    let library = built_vol_api();
    once(&dir, &[&library], || {
        for name in ["libh5logfs_vol_api.so", "libh5logfs_vol_api.so.0"] {
            symlink(&library, dir.join(name)).unwrap();
        }
    });
    dir
}

/// The headers of the library, and the link flags of a program that uses it.
fn linking() -> ([PathBuf; 2], Vec<String>) {
    let include = project().join("include");
    let headers = ["h5logfs_vol_api.h", "h5logfs/H5VL_log.h"].map(|name| include.join(name));
    let directories = [
        format!("-I{}", include.display()),
        format!("-I{}/h5logfs", include.display()),
        format!("-L{}", installed().display()),
    ];
    let libraries = ["-lh5logfs_vol_api", "-lhdf5"].map(str::to_owned);
    (headers, directories.into_iter().chain(libraries).collect())
}

/// The program, and the variable by which it finds the library.
fn program() -> Option<(PathBuf, Variable)> {
    let hdf5 = Hdf5::find()?;
    let (headers, flags) = linking();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = hdf5.compiled_with("ported", &headers, &flags);
    Some((program, ("LD_LIBRARY_PATH", installed().into())))
}

/// The program's results without the connector, and with it.
#[test]
fn lists_of_blocks() {
    let Some((program, library)) = program() else {
        return;
    };
    each_variant(&[1, 2], |ranks| {
        let twice = Twice::new();
        twice.run(|dir, variables| {
            let file = dir.join("file.h5").to_str().unwrap().to_owned();
            let variables = [variables, std::slice::from_ref(&library)].concat();
            by_ranks(&Place::Here, *ranks, &program, &[file], &variables);
        });
        twice.compare();
    });
}

/// A forked child writes lists of blocks to its parent's log, and is refused.
#[test]
fn lists_of_blocks_of_a_child_are_refused() {
    let Some(hdf5) = Hdf5::find() else { return };
    let c = project().join("tests/c");
    let (headers, mut flags) = linking();
    flags.push("-DLISTS".to_owned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let sources = [c.join("connector/forks.c"), c.join("check.h")];
    let sources = [&headers[..], &sources].concat();
    let program = hdf5.compiled_sources("forks-of-lists", &sources, &flags);
    let connector = Connector::new();
    for (when, what) in [
        ("first", "write"),
        ("after", "grandchild"),
        ("later", "exit"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&program);
        command.envs(connector.used());
        command.env("LD_LIBRARY_PATH", installed());
        command.arg(dir.path().join("file.h5"));
        succeed(command.args(["append", when, what]));
    }
}

/// A program that registers the connector itself, and sets subfiles in a list, without variables.
#[test]
fn a_program_registers_the_connector() {
    let Some((program, library)) = program() else {
        return;
    };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.h5");
    let arguments = [file.to_str().unwrap().to_owned(), "register".to_owned()];
    let mut variables: Vec<(&'static str, OsString)> = connector.known();
    variables.push(library);
    by_ranks(&Place::Here, 2, &program, &arguments, &variables);
    let subfiles = dir.path().join("file.h5.subfiles");
    assert_eq!(fs::read_dir(subfiles).unwrap().count(), 1);
    let inspected = succeed(Command::new(PROGRAM).arg("inspect").arg(&file));
    assert!(inspected.contains("Log VOL"), "{inspected}");
}

/// The program of `make bench-connector` compiles and works, by unions of hyperslabs and by lists.
#[test]
fn the_program_of_the_benchmark() {
    let Some(hdf5) = Hdf5::find() else { return };
    let bench = project().join("benches/connector");
    let (headers, mut flags) = linking();
    let patterns = bench.join("e3sm.txt");
    flags.push(format!("-DPATTERNS=\"{}\"", patterns.display()));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let sources = [&headers[..], &[bench.join("hdf5.c")]].concat();
    let program = hdf5.compiled_sources("bench-connector", &sources, &flags);
    let connector = Connector::new();
    let mut variables: Vec<(&'static str, OsString)> = connector.used();
    variables.push(("LD_LIBRARY_PATH", installed().into()));
    for how in [&["G", "2"][..], &["G", "2", "lists"], &["reopen", "2"]] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file.h5");
        let mut command = command_by_ranks(&Place::Here, 2, &program, &variables);
        command.arg(&file).args(how);
        let said = Job::launch(command).succeed();
        let is_number = |word: &str| word.parse::<f64>().is_ok();
        let has_figures = |line: &str| {
            let words = line.split_whitespace();
            words.clone().count() == 6 && words.clone().all(is_number)
        };
        assert!(said.lines().any(has_figures), "{said}");
        let inspected = succeed(Command::new(PROGRAM).arg("inspect").arg(&file));
        assert!(inspected.contains("Log VOL"), "{inspected}");
    }
}
