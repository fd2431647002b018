//! Refusals to several ranks, and failures on one of them. All ranks get the error, none waits, and the log continues.

use std::fs;

use crate::common::connector::Connector;
use crate::common::hosts::Hdf5;
use crate::common::mpirun::{Job, Mpi};

const UNLOGGED: &str = "log.h5: dataset /texts: several ranks cannot write its elements";
const NOT_ATOMIC: &str = "log.h5: a log has no atomic mode";
const FULL: &str = "log.h5: flush failed on rank LAST: ";
const DEGREE: &str = "again.h5: open failed on rank LAST: ";
const OTHERWISE: &str = "again.h5: some ranks find a log there";

/// Actions of `tests/c/connector/refusals.c`, and the messages to its last rank and to the others.
const TOLD: &[(&str, &str, &str)] = &[
    ("texts of all", UNLOGGED, UNLOGGED),
    ("texts of one", UNLOGGED, "done"),
    ("atomicity", NOT_ATOMIC, NOT_ATOMIC),
    (
        "wrong on one",
        "dataset /plain: 3 elements are selected",
        "done",
    ),
    ("collective", "done", "done"),
    ("collective but for one", "done", "done"),
    ("flush", "done", "done"),
    ("second", "done", "done"),
    ("flush with a full disk on one", FULL, FULL),
    ("flush again", "done", "done"),
    ("extent with a full disk on one", FULL, FULL),
    ("extent again", "done", "done"),
    ("third", "done", "done"),
    ("open otherwise on one", DEGREE, DEGREE),
    ("open without descriptors on one", OTHERWISE, OTHERWISE),
    ("open again", "done", "done"),
    ("close with a full disk on one", FULL, FULL),
];

fn ranks_are_told(ranks: u32) {
    let connector = Connector::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), connector.python()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut mpirun = Mpi::of_build().run(ranks, &hdf5.compiled("connector", "refusals"));
    mpirun.arg(dir.path()).envs(connector.used());
    let said = Job::launch(mpirun).succeed();
    let last = (ranks - 1).to_string();
    for (what, to_last, to_others) in TOLD {
        for rank in 0..ranks {
            let expected = if rank == ranks - 1 {
                to_last
            } else {
                to_others
            };
            let begin = format!("{what}, rank {rank}: ");
            let line = said.lines().find_map(|line| line.strip_prefix(&begin));
            let expected = expected.replace("LAST", &last);
            assert!(
                line.is_some_and(|line| line.contains(&expected)),
                "{begin}{expected}: {said}"
            );
        }
    }
    let code = "
import sys
import h5py
with h5py.File(sys.argv[1]) as f:
    assert len(f['texts']) == 2
    part = len(f['plain']) // int(sys.argv[2])
    for name, number in ('plain', 3), ('filtered', 1):
        assert list(f[name][::part]) == [number * 1000000 + i for i in range(0, len(f[name]), part)], name
";
    python.run(
        code,
        &[&dir.path().join("log.h5"), ranks.to_string().as_ref()],
    );
}

#[test]
fn two_ranks_are_told_what_is_refused() {
    ranks_are_told(2);
}

#[test]
fn four_ranks_are_told_what_is_refused() {
    ranks_are_told(4);
}

#[test]
fn ranks_delete_logs_together() {
    let connector = Connector::new();
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "deletes");
    for options in ["h5logfs subfiles=2", "h5logfs"] {
        let dir = tempfile::tempdir().unwrap();
        let mut mpirun = Mpi::of_build().run(4, &program);
        mpirun.arg(dir.path()).envs(connector.used_as(options));
        Job::launch(mpirun).succeed();
        let left = fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 0, "{options}");
    }
}
