//! Programs under mpirun: each rank opens the logs by itself.

use std::path::Path;
use std::process::Command;

use crate::common::clock::settle;
use crate::common::hosts::{Hdf5, Stage};
use crate::common::mpirun::{Job, Mpi};
use crate::common::readers::Python;

const RANKS: u32 = 4;
const LOGS: usize = 3;

/// Runs a host on several ranks. They share an index directory, so each log is scanned once.
#[track_caller]
fn run(host: &Command, arguments: &[&str]) {
    let mut stage = Stage::new();
    let logs = stage.logs(LOGS);
    // No index of a log just written is kept.
    settle(stage.path());
    stage.count_starts();
    let mut mpirun = Mpi::of_build().run(RANKS, Path::new(host.get_program()));
    mpirun.args(host.get_args());
    mpirun.args(arguments).arg(&stage.expected).args(logs);
    mpirun.envs(stage.environment());
    let printed = Job::launch(mpirun).succeed();
    assert_eq!(printed, "");
    assert_eq!(stage.starts(), LOGS);
}

#[test]
fn ranks_read_their_shares() {
    if let Some(hdf5) = Hdf5::find() {
        run(&Command::new(hdf5.program("share")), &[]);
    }
}

#[test]
fn ranks_of_h5py_read_their_shares() {
    if let Some(python) = Python::new() {
        run(&python.tool("hosts.py"), &["rank"]);
    }
}
