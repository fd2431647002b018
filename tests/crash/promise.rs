//! The content that a log must show after a crash, given the reports that programs have had.

use super::common::element::ANOTHER;
use super::history::{History, Operation};

/// The reports of programs, one per line:
///
/// | line | meaning |
/// |---|---|
/// | `make N` | a log is made that begins with flush N, beside or in place of an existing one |
/// | `made` | the log is made, and replaces the existing one; a power failure may restore the old one until the next `synced` |
/// | `may N` | flush N has begun |
/// | `kept N` | flush N is done: killed processes do not undo it |
/// | `synced N` | flush N is on the disk: a power failure does not undo it, either |
/// | `risk` | from now on a program writes the log without syncing |
/// | `drop N` | flushes after N are about to be dropped |
/// | `dropped N` | the flushes after N are dropped, whatever happens |
/// | `take` | unflushed data is about to be included |
///
/// Flushes of a log that another log replaces count from 0 on, those of the other log from [`ANOTHER`] on, and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Promise {
    logs: Vec<Log>,
    includes_unflushed: bool,
}

/// A log that may exist after the crash.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Log {
    /// The first flush that killed processes cannot undo.
    kept: Option<u64>,
    /// The first flush that a power failure cannot undo.
    synced: Option<u64>,
    most: u64,
    /// Whether another log has replaced it.
    is_replaced: bool,
}

impl Promise {
    /// The promises at the time of operation `end`.
    pub fn at(history: &History, end: usize) -> Self {
        let mut promise = Promise::default();
        for done in &history.0[..end] {
            if let Operation::Say(line) = done {
                promise.hear(line);
            }
        }
        promise
    }

    fn hear(&mut self, line: &str) {
        let (what, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: u64 = number.parse().unwrap();
        if what == "take" {
            self.includes_unflushed = true;
            return;
        }
        let logs = &mut self.logs;
        if what == "make" {
            // A power failure may lose a log that is being replaced, because no synced name leads to it.
            logs.iter_mut().for_each(|log| log.synced = None);
            return logs.push(Log {
                kept: None,
                synced: None,
                most: number,
                is_replaced: false,
            });
        }
        let (log, others) = logs.split_last_mut().expect("a log that was made");
        match what {
            "made" => {
                log.kept = Some(log.most);
                others.iter_mut().for_each(|log| log.is_replaced = true);
            }
            "may" => log.most = number,
            "kept" => log.kept = Some(number),
            "synced" => {
                (log.kept, log.synced) = (Some(number), Some(number));
                logs.drain(..logs.len() - 1);
            }
            "risk" => log.synced = None,
            "drop" => {
                log.kept = log.kept.map(|kept| kept.min(number));
                log.synced = log.synced.map(|synced| synced.min(number));
            }
            "dropped" => {
                *log = Log {
                    kept: Some(number),
                    synced: Some(number),
                    most: number,
                    is_replaced: false,
                };
            }
            _ => panic!("{line:?} is no promise"),
        }
    }

    fn floors(&self, is_of_kill: bool) -> impl Iterator<Item = (Option<u64>, u64)> {
        let logs = self.logs.iter();
        let logs = logs.filter(move |log| !(is_of_kill && log.is_replaced));
        logs.map(move |log| (if is_of_kill { log.kept } else { log.synced }, log.most))
    }

    /// Whether unflushed data may be shown as well.
    pub fn includes_unflushed(&self) -> bool {
        self.includes_unflushed
    }

    /// Whether some log must be there.
    pub fn binds(&self, is_of_kill: bool) -> bool {
        self.floors(is_of_kill).any(|(floor, _)| floor.is_some())
    }

    /// Whether a log may be in the state of this flush. A log without flushes shows nothing that distinguishes it
    /// from another.
    pub fn allows(&self, is_of_kill: bool, flush: u64) -> bool {
        self.floors(is_of_kill).any(|(floor, most)| {
            let first = most / ANOTHER * ANOTHER;
            let least = floor.unwrap_or(first);
            (least..=most).contains(&flush) || flush == 0 && least == first
        })
    }

    /// The last flush whose elements must be right.
    pub fn certain(&self, is_of_kill: bool) -> u64 {
        self.floors(is_of_kill)
            .filter_map(|(floor, _)| floor)
            .max()
            .unwrap_or(0)
    }
}
