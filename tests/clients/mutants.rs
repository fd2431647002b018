//! Logs of the corpus, of jobs and of settled files, with random damage, read in all ways. Any file gets an answer or
//! an error soon, in bounded memory.
//!
//! `H5LOGFS_TEST_CASES` sets the number of damaged logs, `H5LOGFS_TEST_SEED` the first one. Messages have the number
//! of the case, and equal seeds give equal logs.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::common::amount::{either, first_seed, told};
use crate::common::damaged::Log;
use crate::common::metadata_image::{ImageLog, Made};
use crate::common::mutation::mutant;
use crate::common::names_in;
use crate::common::numbers::Numbers;
use crate::common::people::copy;
use crate::common::readers::{Python, corpus, project};
use crate::common::settled::settle;
use crate::common::unclosed;
use crate::everybody::{Everybody, Found, Loaded};

/// Logs read at a time.
const AT_ONCE: usize = 2;

/// All logs to be damaged.
fn logs(python: &Python) -> Vec<Log> {
    let mut logs = Log::every();
    logs.push(made("not closed", |log, _| drop(unclosed::Log::usual(log))));
    let metadata_image = |log: &Path, dir: &Path| Made::by(python, dir, "latest").log(log).unlock();
    logs.push(made("of an HDF5 program", metadata_image));
    logs.push(made("in subfiles", |log, dir| {
        let made = Made::by(python, dir, "earliest");
        made.fill(ImageLog::with_subfiles(log, 2)).unlock();
    }));
    logs.push(made("settled", |log, _| {
        std::fs::copy(corpus().join("tiny.log.h5"), log).unwrap();
        settle(log).unwrap();
    }));
    logs.extend(directories());
    logs
}

/// ADIOS2 directories: of both versions, with operators, in several files, and one of openPMD.
fn directories() -> impl Iterator<Item = Log> {
    let names = [
        "b4_steps",
        "b4_mpi_agg2",
        "b5_steps",
        "b5_local",
        "b5_bzip2",
        "b5_mpi_agg2",
        "openpmd_b5_blosc",
    ];
    names.into_iter().map(|name| {
        let dir = tempfile::tempdir().unwrap();
        let from = project().join(format!("tests/corpus-adios/{name}.bp"));
        copy(&from, &dir.path().join("run.bp"));
        Log::of_dir(name, dir.path(), "run.bp/md.idx")
    })
}

/// The SCORPIO directories. Their names end otherwise than those that the library gives, so that a mount shows them under these.
fn scorpio_directories() -> Vec<Log> {
    let corpus = project().join("tests/corpus-scorpio");
    let mut names = names_in(&corpus);
    names.retain(|name| name.ends_with(".nc.bp"));
    let log = |name: &String| {
        let dir = tempfile::tempdir().unwrap();
        copy(&corpus.join(name), &dir.path().join("run.bp"));
        Log::of_dir(name, dir.path(), "run.bp/md.idx")
    };
    names.iter().map(log).collect()
}

/// A log made by `make`, which gets a directory for other files.
fn made(name: &str, make: impl FnOnce(&Path, &Path)) -> Log {
    let [dir, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    make(&dir.path().join("log.h5"), other.path());
    Log::of_dir(name, dir.path(), "log.h5")
}

#[test]
fn random_damage_is_an_answer_or_an_error_soon() {
    let (Some(loaded), Some(python)) = (Loaded::new(), Python::new()) else {
        return;
    };
    damage(&loaded, &logs(&python), either(24, 2000));
}

#[test]
fn random_damage_to_scorpio_directories_is_an_answer_or_an_error_soon() {
    let Some(loaded) = Loaded::new() else { return };
    damage(&loaded, &scorpio_directories(), either(12, 3000));
}

/// Reads so many damaged copies of these logs in all ways, unless the environment gives another number.
fn damage(loaded: &Loaded, logs: &[Log], usual: usize) {
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(usual);
    let first = first_seed();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found::default());
    let read_some = || {
        let mut everybody = Everybody::new(loaded);
        loop {
            let case = next.fetch_add(1, Ordering::Relaxed);
            if case >= count {
                break;
            }
            let mut random = Numbers(first.wrapping_mul(1 << 20).wrapping_add(case as u64));
            let log = &logs[random.index(logs.len())];
            let mut mutant = mutant(log, &mut random);
            mutant.name = format!("{} (case {case})", log.name);
            everybody.read(&mutant, case);
        }
        let mut all = found.lock().unwrap();
        *all = std::mem::take(&mut *all).with(everybody.found);
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(read_some);
        }
    });
    eprintln!("{count} damaged logs of {}", logs.len());
    found.into_inner().unwrap().check();
}
