//! All ends of a program other than closing its file: the table "What is there after which end" of the user guide.

use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};

use crate::common::amount::{first_seed, part};
use crate::common::jobs::faults::Disk;
use crate::common::jobs::steps::{Library, Running, Stage, Way, now};
use crate::common::{wait_long_until, wait_until};

/// Seconds between flushes.
const EVERY: f64 = 0.2;

/// Number of steps before the end: some flushes have happened.
const STEPS: usize = 50;

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A batch system sends SIGTERM, and later SIGKILL: a time limit, or `scancel`.
    Cancelled,
    /// The system kills a rank to reclaim memory.
    OutOfMemory,
    /// The program ends itself: see `tests/c/steps/main.c`.
    Own(&'static str),
}

const ENDS: [(Way, End); 9] = [
    (Way::parallel(Library::Hdf5), End::Cancelled),
    (Way::alone(Library::H5py), End::Cancelled),
    (Way::parallel(Library::Hdf5), End::OutOfMemory),
    (Way::parallel(Library::Hdf5), End::Own("abort")),
    (Way::parallel(Library::Hdf5), End::Own("crash")),
    (Way::parallel(Library::Hdf5), End::Own("exit")),
    (Way::parallel(Library::Hdf5), End::Own("finalize")),
    (Way::parallel(Library::Hdf5), End::Own("_exit")),
    (Way::alone(Library::H5py), End::Own("exit")),
];

impl End {
    /// Ends a program that has written some steps. Returns the time.
    fn come(self, running: &mut Running) -> f64 {
        let at = now();
        match self {
            End::Cancelled => {
                send(running, Signal::TERM);
                std::thread::sleep(Duration::from_millis(100));
                send(running, Signal::KILL);
            }
            End::OutOfMemory => {
                let rank = first_seed() as usize % running.ranks.len();
                let _ = pidfd_send_signal(&running.ranks[rank].handle, Signal::KILL);
            }
            End::Own(_) => {}
        }
        at
    }
}

fn send(running: &Running, signal: Signal) {
    for rank in &running.ranks {
        // The process may have ended.
        let _ = pidfd_send_signal(&rank.handle, signal);
    }
}

fn wait_for_end(running: &mut Running) {
    wait_long_until("the processes are gone", || {
        running.ranks.iter().all(|rank| rank.has_ended())
    });
    running.victim.job.wait_for_killed();
}

/// Old data survive any end of the ranks.
#[test]
fn ranks_that_come_to_any_end_lose_little() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stage) = Stage::at(dir.path()) else {
        return;
    };
    for (way, end) in part(ENDS.into(), 3) {
        let about = format!("{way:?}, {end:?}");
        let own = match end {
            End::Own(how) => Some((how, STEPS)),
            _ => None,
        };
        let Some(mut running) = stage.start(way, own, EVERY, "") else {
            return;
        };
        if own.is_none() {
            wait_until("steps are written", || running.steps() >= STEPS);
        }
        let at = end.come(&mut running);
        wait_for_end(&mut running);
        let last = running.last_step();
        let at = if own.is_some() { last } else { at.min(last) };
        let left = running.judge(&stage, at, &about);
        eprintln!("{about}: {left:?}");
        if matches!(end, End::Own("exit" | "finalize")) {
            assert_eq!(left.whole, running.steps(), "{about}: all is there");
        }
    }
}

/// The program continues while its buffer has room. Then a write fails, and the program ends itself.
#[test]
fn ranks_whose_disk_is_full_have_what_was_flushed_before() {
    let Some(disk) = Disk::new() else { return };
    let Some(stage) = Stage::at(disk.dir.path()) else {
        return;
    };
    let way = Way::parallel(Library::Hdf5);
    let Some(mut running) = stage.start(way, None, EVERY, ";buffer_limit=128K") else {
        return;
    };
    wait_until("steps are written", || running.steps() >= STEPS);
    disk.fill(0);
    let full = now();
    wait_for_end(&mut running);
    let left = running.judge(&stage, full, "full disk");
    eprintln!("{left:?}: {}", running.victim.job.said());
}
