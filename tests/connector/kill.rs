//! HDF5 programs under the connector whose processes are all killed at once, at random instants: what was acknowledged as
//! flushed is there, and nothing else. They close their file now and then, and open it again to append; so the file has
//! been closed already, or is just being closed or opened.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::killed::{Places, RANKS, Shown, Victim};
use crate::common::mpirun::{Job, cases, first_seed};
use crate::common::numbers::Numbers;
use crate::common::readers::Python;

/// A job of `tests/c/connector/flushes.c`. It loads what lies in `connector`.
fn start(
    connector: &Connector,
    hdf5: &Hdf5,
    flushes: u64,
    cycle: u64,
    small_buffer: bool,
) -> Victim {
    let places = Places::new();
    let mut mpirun = Command::new("mpirun");
    mpirun
        .args(["-n", &RANKS.to_string()])
        .arg(hdf5.compiled("connector", "flushes"))
        .args([&places.log(), places.notes.path()])
        .args([flushes, cycle].map(|number| number.to_string()));
    mpirun.envs(connector.used());
    if small_buffer {
        // Less than a rank writes between two flushes.
        mpirun.env("H5LOGFS_BUFFER_LIMIT", "64K");
    }
    Victim {
        job: Job::launch(mpirun),
        places,
    }
}

fn shown(python: &Python, file: &Path) -> Shown {
    let output = python.tool("flushes.py").arg(file).output().unwrap();
    Shown::by(&output)
}

/// One kill, and what follows it. Returns what happened, in a line.
fn kill_once(seed: u64, hdf5: &Hdf5, python: &Python) -> String {
    let mut numbers = Numbers(seed);
    let flushes = 10 + numbers.below(40);
    let cycle = 1 + numbers.below(8);
    let flush = 1 + numbers.below(flushes);
    let closed = (flush / cycle * cycle).max(cycle.min(flushes));
    let connector = Connector::new();
    let mut victim = start(&connector, hdf5, flushes, cycle, seed.is_multiple_of(3));
    // Close and append are short: they are aimed at.
    let (point, most) = match seed % 6 {
        0 => ("ready".to_owned(), 20_000),
        1 => ("ready".to_owned(), 400_000),
        2 => (format!("closing {closed}"), 40_000),
        3 => (format!("closed {closed}"), 10_000),
        _ => (flush.to_string(), 6_000),
    };
    let mut ranks = victim.ranks();
    victim.wait_for(&point);
    let delay = Duration::from_micros(numbers.below(most));
    thread::sleep(delay);
    victim.kill(&mut ranks, numbers.below(u64::from(RANKS)));

    let places = &victim.places;
    let acknowledged = places.acknowledged();
    let shown = shown(python, &places.log());
    let about = format!(
        "seed {seed}: killed {delay:?} after {point}, {acknowledged} of {flushes} acknowledged, {shown:?}"
    );
    match shown {
        Shown::Flush(shown) => {
            assert!(
                (acknowledged..=acknowledged + 1).contains(&shown),
                "{about}"
            );
            let (good, said) = places.h5logfs("check");
            assert!(good, "{about}: {said}");
        }
        Shown::Nothing => assert_eq!(acknowledged, 0, "{about}"),
    }
    recover(places, shown, python, &about);
    about
}

/// After the recovery a log is an ordinary one, and shows the same.
fn recover(places: &Places, before: Shown, python: &Python, about: &str) {
    let (good, said) = places.h5logfs("recover");
    // What was not made completely may lack what a recovery needs.
    assert!(good || before == Shown::Nothing, "{about}: {said}");
    if good {
        let now = shown(python, &places.log());
        let empty = before == Shown::Nothing && now == Shown::Flush(0);
        assert!(now == before || empty, "{about}; recovered, then {now:?}");
    }
}

#[test]
fn killed_programs_leave_what_they_flushed() {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let first = first_seed();
    for seed in first..first + cases(12) as u64 {
        eprintln!("{}", kill_once(seed, hdf5, &python));
    }
}
