//! Opens of growing logs: each flush makes a new state.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::common::people::ALICE;
use crate::common::unclosed::Log;

/// The job flushes 500 times a second.
const PERIOD: Duration = Duration::from_millis(2);
/// Flushes after which the job continues with another file, because a scan reads all of them.
const FLUSHES_PER_FILE: usize = 500;
const READERS: usize = 4;
/// The content of each flush, before its number.
const MARK: &[u8] = b"flush ";

#[test]
fn opens_of_a_log_that_grows_do_not_fail() {
    open_while_it_grows(400);
}

#[test]
#[ignore = "takes minutes"]
fn ten_thousand_opens_of_a_log_that_grows_do_not_fail() {
    open_while_it_grows(10_000);
}

/// Readers open the log of a job in a loop, this often in total.
fn open_while_it_grows(opens: usize) {
    let Some(arena) = Arena::new() else { return };
    let (job, left) = (Job::default(), AtomicUsize::new(opens));
    let failures = Mutex::new(Vec::new());
    let mut log = begin(&arena.source(ALICE).join(Job::name(0)));
    write(&mut log, 0);
    arena.give(ALICE);
    let name = format!("{opens} opens of logs at 500 flushes a second");
    let rate = arena.attack_on_time(&name, |attack| {
        thread::scope(|scope| {
            let writer = scope.spawn(|| job.run(&arena.source(ALICE), log));
            attack.together(READERS, |_| {
                let failed = job.read(&arena.shown(ALICE), &left);
                failures.lock().unwrap().extend(failed);
            });
            job.ended.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        })
    });
    let failures = failures.into_inner().unwrap();
    println!(
        "{rate:.0} flushes a second, {} of {opens} opens failed",
        failures.len()
    );
    assert!(
        failures.is_empty(),
        "{} failed, first: {}",
        failures.len(),
        failures[0]
    );
    assert!(rate > 250.0, "{rate} flushes a second are no attack");
}

/// A job that writes one log after another.
#[derive(Default)]
struct Job {
    /// Number of the last flush over all files.
    flushed: AtomicUsize,
    ended: AtomicBool,
}

impl Job {
    /// The file with this flush.
    fn name(flush: usize) -> String {
        format!("log-{}.h5", flush / FLUSHES_PER_FILE)
    }

    /// Flushes until told to end. Returns the flushes per second.
    fn run(&self, dir: &Path, mut log: Log) -> f64 {
        let start = Instant::now();
        for number in 1.. {
            if self.ended.load(Ordering::Relaxed) {
                return f64::from(number) / start.elapsed().as_secs_f64();
            }
            let flush = number as usize;
            if flush.is_multiple_of(FLUSHES_PER_FILE) {
                log = begin(&dir.join(Self::name(flush)));
            }
            write(&mut log, flush);
            self.flushed.store(flush, Ordering::Release);
            thread::sleep((PERIOD * number).saturating_sub(start.elapsed()));
        }
        unreachable!("numbers do not run out")
    }

    /// Opens and reads the log until no opens are left. Returns the errors.
    fn read(&self, dir: &Path, left: &AtomicUsize) -> Vec<String> {
        let mut failures = Vec::new();
        let mut last = 0;
        let take = |left: usize| left.checked_sub(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        while left.fetch_update(set, fetch, take).is_ok() {
            let before = self.flushed.load(Ordering::Acquire);
            match fs::read(dir.join(Self::name(before))) {
                Ok(bytes) => {
                    let shown = shown_flush(&bytes);
                    if shown < last.max(before) {
                        failures.push(format!("flush {shown} after {last}, of {before}"));
                    }
                    last = shown;
                }
                Err(error) => failures.push(error.to_string()),
            }
        }
        failures
    }
}

fn begin(path: &Path) -> Log {
    let mut log = Log::begin(path);
    log.extend(MARK.len() as u64 + 8);
    log
}

/// Overwrites the elements with the number of the flush.
fn write(log: &mut Log, number: usize) {
    let text = [MARK, format!("{number:08}").as_bytes()].concat();
    log.extent(0, &[(0, &text)]);
    log.flush();
}

fn shown_flush(bytes: &[u8]) -> usize {
    let at = bytes.windows(MARK.len()).position(|w| w == MARK).unwrap() + MARK.len();
    std::str::from_utf8(&bytes[at..at + 8])
        .unwrap()
        .parse()
        .unwrap()
}
