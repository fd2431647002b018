//! What the writer asks of MPI, counted by MPI's own interface for profiles, against the formula of `docs/scaling.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::mpirun::{Job, Mpi, program};
use crate::common::once::{once, shared_dir};
use crate::common::readers::project;

/// Numbers of the parts of `tests/programs/scaling.rs`.
const CREATION: u32 = 1;
const WRITES: u32 = 2;
const FLUSH: u32 = 3;
const CLOSE: u32 = 4;

const FLUSHES: u64 = 3;

/// Calls and bytes by the name of the call.
type Calls = BTreeMap<String, (u64, u64)>;

/// The library that counts.
fn counting() -> PathBuf {
    let dir = shared_dir("counting");
    let source = project().join("tests/c/counting.c");
    let library = dir.join("counting.so");
    once(&dir, &[&source], || {
        let mut mpicc = Command::new(Mpi::of_build().command("mpicc"));
        mpicc.args(["-O2", "-shared", "-fPIC"]).arg(&source);
        assert!(mpicc.arg("-o").arg(&library).status().unwrap().success());
    });
    library
}

/// What each rank asked of MPI in each part of a job: each call of a part by itself.
fn counted(ranks: u32, path: &Path) -> BTreeMap<(u32, u32), Vec<Calls>> {
    let with_library = format!(
        "LD_PRELOAD=\"{} $LD_PRELOAD\" exec \"$@\"",
        counting().display()
    );
    let mut mpirun = Mpi::of_build().run(ranks, Path::new("/bin/sh"));
    mpirun.args(["-c", &with_library, "sh"]);
    mpirun.arg(program("writer-scaling")).arg(path);
    mpirun.args(["5", "20", &FLUSHES.to_string(), "shared"]);
    let said = Job::launch(mpirun).succeed();
    let mut counted: BTreeMap<(u32, u32), Vec<Calls>> = BTreeMap::new();
    for line in said.lines().filter_map(|line| line.strip_prefix("calls ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [part, rank, name, calls, bytes] = words[..] else {
            panic!("{line}");
        };
        let parts = counted.entry((part.parse().unwrap(), rank.parse().unwrap()));
        let parts = parts.or_default();
        let figures = (calls.parse().unwrap(), bytes.parse().unwrap());
        // A part that comes again begins with a name that is there already.
        if parts.last().is_none_or(|calls| calls.contains_key(name)) {
            parts.push(Calls::new());
        }
        parts.last_mut().unwrap().insert(name.to_owned(), figures);
    }
    counted
}

fn calls<const N: usize>(expected: [(&str, u64, u64); N]) -> Calls {
    let calls = expected.into_iter();
    calls
        .map(|(name, calls, bytes)| (name.to_owned(), (calls, bytes)))
        .collect()
}

/// Checks a job of so many ranks.
fn check(ranks: u32) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let counted = counted(ranks, &path);
    let of = |part, rank| counted.get(&(part, rank)).cloned().unwrap_or_default();
    // The three texts that the ranks compare and share: lengths and bytes.
    let texts = |created: &Calls| created["Bcast"].1;
    let first = of(CREATION, 0).remove(0);
    for rank in 0..ranks {
        let created = of(CREATION, rank).remove(0);
        let expected = [
            ("Allreduce", 6, 6 * 24),
            ("Bcast", 3, texts(&first)),
            ("Comm_dup", 1, 0),
            ("Comm_split", 1, 0),
        ];
        assert_eq!(created, calls(expected), "creation, rank {rank} of {ranks}");
        assert!(
            of(WRITES, rank).is_empty(),
            "writes, rank {rank} of {ranks}"
        );

        let flush = [("Exscan", 1, 8), ("Allreduce", 1, 40), ("Bcast", 1, 1)];
        let flushes = of(FLUSH, rank);
        assert_eq!(flushes.len() as u64, FLUSHES);
        for made in flushes {
            assert_eq!(made, calls(flush), "flush, rank {rank} of {ranks}");
        }

        // A flush; then place, length and steps of the table, the lengths of its sections, and three agreements.
        let close = [
            ("Exscan", 2, 8 + 8),
            ("Allreduce", 6, 40 + 8 + 8 + 3 * 24),
            ("Bcast", 1, 1),
            (
                "Gather",
                1,
                if rank == 0 { 8 * u64::from(ranks) } else { 8 },
            ),
            ("Ibarrier", 3, 0),
            ("Comm_free", 2, 0),
        ];
        let closed = of(CLOSE, rank).remove(0);
        assert_eq!(closed, calls(close), "close, rank {rank} of {ranks}");
    }
    assert!(fs::metadata(path).unwrap().len() > 0);
}

#[test]
fn calls_of_mpi_do_not_grow_with_the_ranks() {
    for ranks in [2, 3, 8] {
        check(ranks);
    }
}

/// More ranks than a machine has cores for.
#[test]
#[ignore = "make test-cluster"]
fn calls_of_mpi_do_not_grow_with_many_ranks() {
    for ranks in [16, 32, 64] {
        check(ranks);
    }
}
