//! Random programs of the writer, on several numbers of ranks. `tests/cluster` has them on several nodes.
//!
//! `H5LOGFS_TEST_CASES` sets the number of programs for each number of ranks, `H5LOGFS_TEST_SEED` the
//! first of them.

use std::fs;

use crate::common::Mounted;
use crate::common::amount::{cases, each_variant};
use crate::common::jobs::random::{Mode, programs_on};
use crate::common::mpirun::{Job, program};
use crate::common::nodes::Place;
use crate::common::readers::Python;

#[test]
fn random_programs_on_some_ranks() {
    each_variant(&[1, 2, 3, 4, 7], |ranks| {
        programs_on(&Place::Here, *ranks, cases(8), Mode::Usual);
    });
}

/// Flushed data is there although no rank finished.
#[test]
fn a_job_that_kills_itself_leaves_its_flushes() {
    programs_on(&Place::Here, 4, cases(20), Mode::Abort);
}

/// A flush of more bytes than MPI can count, lent and copied. It needs twice as many bytes of memory, and as many on
/// disk.
#[test]
#[ignore = "make test-all"]
fn more_than_two_gibibytes_in_one_flush() {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !has_memory(6 << 20) {
        return;
    }
    let bytes: u64 = (2 << 30) + (300 << 20) + 12_345;
    for manner in ["lent", "copied"] {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("large.h5");
        let arguments = [log.to_str().unwrap(), &bytes.to_string(), manner];
        Job::start(1, &program("writer-large"), &arguments).succeed();
        let mounted = Mounted::new(dir.path(), "");
        let read = "import sys, h5py, numpy as np
with h5py.File(sys.argv[1]) as f:
    data, mib = f['data'], 1 << 20
    assert f['tail'][()].tolist() == [0]
    wanted = (np.arange(mib) % 251).astype('u1')
    for number in range(-(-len(data) // mib)):
        wanted[:8] = np.array([number], '<u8').view('u1')
        got = data[number * mib:(number + 1) * mib]
        assert (got == wanted[:len(got)]).all(), number
    print(len(data))";
        let read = python.run(read, &[&mounted.join("large.h5")]);
        assert_eq!(read.trim(), bytes.to_string());
    }
}

/// Whether this much memory, in KiB, is free; prints if not.
fn has_memory(needed: u64) -> bool {
    let all = fs::read_to_string("/proc/meminfo").unwrap();
    let line = all
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let free: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    if free < needed {
        eprintln!("skipped: {free} KiB of memory are free, and {needed} are needed");
    }
    free >= needed
}
