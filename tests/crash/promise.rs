//! What a log has to show after a crash, as far as programs have been told.

use super::common::element::ANOTHER;
use super::history::{History, Operation};

/// What the programs have said, each in a line:
///
/// | line | meaning |
/// |---|---|
/// | `make N` | a log is made that begins with flush N, beside or in place of one that is there |
/// | `made` | it is made, and replaces what was there; a loss of power may bring that back until the next `synced` |
/// | `may N` | flush N is on its way |
/// | `kept N` | flush N is done: killed processes do not take it back |
/// | `synced N` | nor does a loss of power |
/// | `risk` | the log is written from now on by who forces nothing to the disk |
/// | `drop N` | what follows flush N is about to be dropped |
/// | `dropped N` | it is dropped, whatever happens |
/// | `take` | what no flush covers is about to be taken in |
///
/// Flushes of a log that another one replaces count from 0 on, those of that one from [`ANOTHER`] on, and so on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Promise {
    logs: Vec<Log>,
    takes_in: bool,
}

/// One of the logs that may be there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Log {
    /// The first flush that processes that are killed cannot take back.
    kept: Option<u64>,
    /// The same for a loss of power.
    synced: Option<u64>,
    most: u64,
    /// Another log has taken its place.
    is_replaced: bool,
}

impl Promise {
    /// What holds at a moment.
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
            self.takes_in = true;
            return;
        }
        let logs = &mut self.logs;
        if what == "make" {
            // What is to be replaced may be lost with the power: it has no name that a sync would hold.
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

    /// Whether what no flush covers may be there, too.
    pub fn takes_in(&self) -> bool {
        self.takes_in
    }

    /// Whether some log must be there.
    pub fn binds(&self, is_of_kill: bool) -> bool {
        self.floors(is_of_kill).any(|(floor, _)| floor.is_some())
    }

    /// Whether a log may be as this flush left it. Without a flush it shows nothing by which one could tell it from another.
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
