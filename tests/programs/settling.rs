//! Closes with the option `settle`: the resulting file, and logs that cannot be settled.

use std::fs::File;
use std::path::Path;

use h5logfs_writer::{Error, Options, Result, Selection, Subfiles};
use mpi::traits::*;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Job, Rows, ignore_file_size_signal, with_subfiles};

fn settling() -> Options {
    Options {
        settle: true,
        ..Options::default()
    }
}

/// Checks that all ranks get the same error, and the writer is closed.
#[track_caller]
fn not_settled(job: &Job, rows: &mut Rows<'_>, closed: Result<()>, words: &str) {
    let error = closed.expect_err("a log that is not settled");
    job.agreed(&error);
    let file = rows.file.path().to_owned();
    let said = error.to_string();
    let later = format!("`h5logfs settle {}` can be run later", file.display());
    assert!(matches!(error, Error::NotSettled { .. }), "{error:?}");
    assert!(said.contains(words) && said.ends_with(&later), "{said}");
    assert_eq!(rows.file.close(), Err(Error::Closed { file }));
}

fn len(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

pub fn run(job: &Job) {
    // SAFETY: the handler is the system's own.
    unsafe { ignore_file_size_signal() };
    settled(job);
    refused_write(job);
    locked(job);
    without_memory(job);
    without_space(job);
    subfiles(job);
}

fn settled(job: &Job) {
    let mut rows = filled(job, "settled.h5", settling());
    rows.fill();
    rows.file.close().unwrap();
    // The file is no log any more.
    let opened = job.open("settled.h5");
    job.failed(opened, "open", Some(0), "`h5logfs settle --undo` makes one");
    // A reopened log is settled at its second close.
    let mut rows = filled(job, "twice.h5", Options::default());
    rows.file.close().unwrap();
    let mut rows = job.open_with("twice.h5", settling()).unwrap();
    rows.fill();
    rows.file.close().unwrap();
    job.pause("settled");
}

/// The close reports missing data as without the option.
fn refused_write(job: &Job) {
    let mut rows = filled(job, "refused.h5", settling());
    rows.fill();
    refuse_one(job, &mut rows);
    job.refused(rows.file.close(), 1, "/rows");
    job.pause("refused");
}

/// A program has the log open, as its lock shows.
fn locked(job: &Job) {
    let lock = |rows: &Rows<'_>| {
        let file = File::open(rows.file.path()).unwrap();
        flock(&file, FlockOperation::LockShared).unwrap();
        file
    };
    let mut rows = filled(job, "locked.h5", settling());
    let locked = lock(&rows);
    let closed = rows.file.close();
    not_settled(job, &mut rows, closed, "another program has it open");
    drop(locked);
    // A refused write, and another failure.
    let mut rows = filled(job, "both.h5", settling());
    let locked = lock(&rows);
    refuse_one(job, &mut rows);
    job.refused(rows.file.close(), 1, "Besides, ");
    drop(locked);
    job.pause("locked");
}

/// Rank 1 makes a write that is refused.
fn refuse_one(job: &Job, rows: &mut Rows<'_>) {
    if job.rank == 1 {
        let written = rows.file.write(rows.rows, Selection::All, &[0u64; 1]);
        assert!(matches!(written, Err(Error::Write { .. })));
    }
}

fn filled<'j>(job: &'j Job, name: &str, options: Options) -> Rows<'j> {
    let mut rows = job.create(name, options).unwrap();
    rows.fill_and_flush();
    rows
}

/// The log's tables must fit into memory.
fn without_memory(job: &Job) {
    let options = Options {
        settle_memory: 100,
        ..settling()
    };
    let mut rows = filled(job, "large.h5", options);
    let closed = rows.file.close();
    not_settled(job, &mut rows, closed, "index_memory");
    job.pause("memory");
}

/// The first rank may make files no longer than the log.
fn without_space(job: &Job) {
    let mut rows = filled(job, "as-long.h5", Options::default());
    rows.file.close().unwrap();
    let log = len(rows.file.path());
    for more in [0, 100, 1000] {
        let mut rows = filled(job, &format!("full-{more}.h5"), settling());
        let limit = getrlimit(Resource::Fsize);
        if job.rank == 0 {
            let current = Some(log + more);
            setrlimit(Resource::Fsize, Rlimit { current, ..limit }).unwrap();
        }
        let closed = rows.file.close();
        setrlimit(Resource::Fsize, limit).unwrap();
        not_settled(job, &mut rows, closed, "File too large");
        assert_eq!(len(rows.file.path()), log, "{more}");
        job.world.barrier();
    }
    job.pause("full");
}

/// Logs with subfiles cannot be settled, which is reported before anything is written.
fn subfiles(job: &Job) {
    for subfiles in [Subfiles::Number(2), Subfiles::PerNode] {
        let options = Options {
            settle: true,
            ..with_subfiles(subfiles)
        };
        let created = job.create("parts.h5", options);
        let words = "its data lie in other files";
        job.failed(created, "create", Some(0), words);
        let mut rows = filled(job, "parts.h5", with_subfiles(subfiles));
        rows.file.close().unwrap();
        let opened = job.open_with("parts.h5", settling());
        job.failed(opened, "open", Some(0), words);
        job.pause(&format!("{subfiles:?}"));
    }
}
