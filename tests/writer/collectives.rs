//! The writer's MPI calls, counted by MPI's profiling interface, compared with the formula of `docs/scaling.md`.

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
const OPENING: u32 = 5;
const CLOSE_AGAIN: u32 = 6;

const FLUSHES: u64 = 3;

/// Extents that a close distributes at once after an append, in a test build.
const AT_ONCE: u64 = 16;

/// Bytes of a broadcast of a short message.
const TOLD: u64 = 4008;

/// A job with a number of ranks.
struct Counted {
    ranks: u64,
    /// Subfiles; 0 for none.
    subfiles: u64,
    /// Datasets to which rows are appended.
    appends: u64,
}

/// Number of calls and bytes by name of the call.
type Calls = BTreeMap<String, (u64, u64)>;

/// The counting library.
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

/// The MPI calls of each rank in each part of a job, by part and rank: each call of a part separately.
type Parts = BTreeMap<(u32, u64), Vec<Calls>>;

fn calls<const N: usize>(expected: [(&str, u64, u64); N]) -> Calls {
    let calls = expected.into_iter().filter(|(_, number, _)| *number > 0);
    calls
        .map(|(name, calls, bytes)| (name.to_owned(), (calls, bytes)))
        .collect()
}

impl Counted {
    fn run(&self, path: &Path) -> Parts {
        let with_library = format!(
            "LD_PRELOAD=\"{} $LD_PRELOAD\" exec \"$@\"",
            counting().display()
        );
        let mut mpirun = Mpi::of_build().run(self.ranks as u32, Path::new("/bin/sh"));
        mpirun.args(["-c", &with_library, "sh"]);
        mpirun.arg(program("writer-scaling")).arg(path);
        mpirun.args(["5", "20", &FLUSHES.to_string(), "shared", "again"]);
        mpirun.arg(format!("subfiles={}", self.subfiles));
        mpirun.arg(format!("appends={}", self.appends));
        let said = Job::launch(mpirun).succeed();
        let mut counted = Parts::new();
        for line in said.lines().filter_map(|line| line.strip_prefix("calls ")) {
            let words: Vec<&str> = line.split(' ').collect();
            let [part, rank, name, calls, bytes] = words[..] else {
                panic!("{line}");
            };
            let parts = counted.entry((part.parse().unwrap(), rank.parse().unwrap()));
            let parts = parts.or_default();
            let figures = (calls.parse().unwrap(), bytes.parse().unwrap());
            // A repeated part begins with a name that is already there.
            if parts.last().is_none_or(|calls| calls.contains_key(name)) {
                parts.push(Calls::new());
            }
            parts.last_mut().unwrap().insert(name.to_owned(), figures);
        }
        counted
    }

    /// Number of data files.
    fn files(&self) -> u64 {
        self.subfiles.max(1)
    }

    /// The ranks that share a data file with this one.
    fn sharing(&self, rank: u64) -> Vec<u64> {
        let file = |rank: u64| rank * self.files() / self.ranks;
        let sharing = (0..self.ranks).filter(|other| file(*other) == file(rank));
        sharing.collect()
    }

    /// 1 if this rank shares its data file with others. All run on one node, so each writes to it before the flush.
    fn is_sharing(&self, rank: u64) -> u64 {
        u64::from(self.sharing(rank).len() > 1)
    }

    /// The creation or reopening of a log, with these agreements, and these bytes in broadcasts: of the identifier or
    /// the log's content, and of path and options.
    fn opening(&self, rank: u64, agreements: u64, bytes: u64) -> Calls {
        let splits = u64::from(self.subfiles > 1);
        // Whether all run on one node, and the ranks that share a data file.
        let nodes = splits + self.is_sharing(rank);
        calls([
            (
                "Allreduce",
                agreements + nodes,
                // Whether a data file lies on NFS, and the inode number of the journal.
                agreements * 24 + 2 * 8 + 16 * nodes,
            ),
            ("Bcast", 2, bytes),
            ("Comm_dup", 1, 0),
            ("Comm_split", splits, 0),
        ])
    }

    /// A flush in which `counted` datasets of rows are counted from the beginning. Counting restarts with each second
    /// flush.
    fn flush(&self, rank: u64, counted: u64) -> Calls {
        let shares = self.is_sharing(rank);
        let mut all = [0; 4];
        for counted in counted..=self.appends {
            let scans = 1 + u64::from(counted > 0);
            let agreed = self.agreed(counted) + 8 * shares;
            let round = [scans, 8 + 8 * counted, 1 + shares, agreed];
            all.iter_mut().zip(round).for_each(|(sum, n)| *sum += n);
        }
        let [scans, scanned, reductions, reduced] = all;
        calls([
            ("Exscan", scans, scanned),
            ("Allreduce", reductions, reduced),
            ("Bcast", 1, 1),
        ])
    }

    /// Bytes of the reduction of a flush.
    fn agreed(&self, counted: u64) -> u64 {
        8 * (4 + self.files() + counted)
    }

    /// A flush; then the length of the table, in one file the entries of all ranks, and two agreements. In several
    /// files place and steps of the table, the lengths of its sections, and three agreements.
    fn close(&self, rank: u64) -> Calls {
        let sharing = self.sharing(rank);
        let is_first = sharing[0] == rank;
        let gathered = if is_first {
            8 * sharing.len() as u64
        } else {
            8
        };
        let (rows, shares) = (u64::from(self.appends > 0), self.is_sharing(rank));
        let agreed = self.agreed(self.appends) + 8 * shares;
        if self.subfiles == 0 {
            return calls([
                ("Exscan", 1 + rows, 8 + 8 * self.appends),
                ("Allreduce", 4 + shares, agreed + 8 + 2 * 24),
                ("Bcast", 1, 1),
                ("Gather", 1, gathered),
                ("Gatherv", 1, 0),
                ("Ibarrier", 2, 0),
                ("Comm_free", 1, 0),
            ]);
        }
        calls([
            ("Exscan", 2 + rows, 8 + 8 + 8 * self.appends),
            ("Allreduce", 6 + shares, agreed + 8 + 8 + 3 * 24),
            ("Bcast", 1, 1),
            ("Gather", 1, gathered),
            ("Ibarrier", 3, 0),
            ("Comm_free", 1 + u64::from(self.subfiles > 1), 0),
        ])
    }

    /// A close after an append. In one file as [`Counted::close`], and whether all entries are few. In several files
    /// a flush; then the steps of the table, the numbers of the ranks and the lengths of their entries, the first
    /// rank's findings, the places of the entries, the entries of earlier jobs, and three agreements.
    fn close_again(&self, rank: u64) -> Calls {
        if self.subfiles == 0 {
            let mut calls = self.close(rank);
            calls.insert("Bcast".into(), (2, 2));
            return calls;
        }
        let sharing = self.sharing(rank);
        let (number, is_first) = (sharing.len() as u64, sharing[0] == rank);
        let gathered = if is_first { 2 * 8 * number } else { 2 * 8 };
        let earlier = FLUSHES * number;
        let turns = earlier.div_ceil(AT_ONCE);
        let (rows, shares) = (u64::from(self.appends > 0), self.is_sharing(rank));
        let agreed = self.agreed(self.appends) + 8 * shares;
        calls([
            ("Exscan", 1 + rows, 8 + 8 * self.appends),
            ("Allreduce", 5 + shares, agreed + 8 + 3 * 24),
            ("Gather", 2, gathered),
            (
                "Bcast",
                1 + 1 + 1 + turns + 1,
                1 + 1 + TOLD * (1 + turns + 1),
            ),
            ("Ibarrier", 4, 0),
            ("Comm_free", 1 + u64::from(self.subfiles > 1), 0),
        ])
    }

    fn check(&self) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.h5");
        let counted = self.run(&path);
        let of = |part, rank| counted.get(&(part, rank)).cloned().unwrap_or_default();
        let Counted {
            ranks,
            subfiles,
            appends,
        } = self;
        let job = format!("{ranks} ranks, {subfiles} subfiles, {appends} datasets of rows");
        for rank in 0..*ranks {
            let created = self.opening(rank, 6, 16 + TOLD);
            let opened = self.opening(rank, 3, 2 * TOLD);
            assert_eq!(
                of(CREATION, rank)[0],
                created,
                "creation, rank {rank}: {job}"
            );
            assert!(of(WRITES, rank).is_empty(), "writes, rank {rank}: {job}");
            let flushes = of(FLUSH, rank);
            assert_eq!(flushes.len() as u64, 2 * FLUSHES);
            for (number, made) in (0..).zip(flushes) {
                // The first flush of each job finds out which datasets get rows.
                let counted = if number % FLUSHES == 0 { 0 } else { *appends };
                assert_eq!(made, self.flush(rank, counted), "flush, rank {rank}: {job}");
            }
            let closed = of(CLOSE, rank).remove(0);
            assert_eq!(closed, self.close(rank), "close, rank {rank}: {job}");
            assert_eq!(of(OPENING, rank)[0], opened, "opening, rank {rank}: {job}");
            let closed = of(CLOSE_AGAIN, rank).remove(0);
            let expected = self.close_again(rank);
            assert_eq!(closed, expected, "second close, rank {rank}: {job}");
        }
        assert!(fs::metadata(path).unwrap().len() > 0);
    }
}

fn check(ranks: u64) {
    for (subfiles, appends) in [(0, 0), (2, 3)] {
        let job = Counted {
            ranks,
            subfiles,
            appends,
        };
        job.check();
    }
}

#[test]
fn calls_of_mpi_do_not_grow_with_the_ranks() {
    for ranks in [2, 3, 8] {
        check(ranks);
    }
}

/// More ranks than a machine has cores.
#[test]
#[ignore = "make test-cluster"]
fn calls_of_mpi_do_not_grow_with_many_ranks() {
    for ranks in [16, 32, 64] {
        check(ranks);
    }
}
