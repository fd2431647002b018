//! What scans without an outcome have cost, by the owner of the files.
//!
//! Each of them may take its whole time, and whoever lists a directory waits for all files in it. So an owner has
//! a budget for such scans; when it is spent, his files that are not known yet are refused for a while.
//! Those of others are not.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Losses are forgotten after this.
const WINDOW: Duration = Duration::from_secs(600);

/// Scans that may go on to the end of their time in one window, for each owner.
const MOST: u32 = 4;

#[derive(Debug)]
pub struct Losses {
    most: Duration,
    by_owner: Mutex<HashMap<u32, Lost>>,
}

#[derive(Debug)]
struct Lost {
    since: Instant,
    time: Duration,
}

impl Losses {
    /// `cpu`: processor time of one scan.
    pub fn new(cpu: Duration) -> Self {
        Losses {
            most: cpu.saturating_mul(MOST),
            by_owner: Mutex::default(),
        }
    }

    /// A scan of a file of `owner` has died after `took`.
    pub fn add(&self, owner: u32, took: Duration, now: Instant) {
        let mut by_owner = self.by_owner.lock();
        by_owner.retain(|_, lost| now.duration_since(lost.since) < WINDOW);
        let lost = by_owner.entry(owner).or_insert(Lost {
            since: now,
            time: Duration::ZERO,
        });
        lost.time += took;
    }

    /// Why no scan of a file of `owner` is begun now, if so.
    pub fn refusal(&self, owner: u32, now: Instant) -> Option<String> {
        let by_owner = self.by_owner.lock();
        let lost = by_owner.get(&owner).filter(|lost| lost.time >= self.most)?;
        let left = WINDOW.checked_sub(now.duration_since(lost.since))?;
        Some(format!(
            "scans of files of user {owner} have died after {} s in all: none is begun for {} s",
            lost.time.as_secs(),
            left.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_spent_his_time_waits_for_the_next_window() {
        let losses = Losses::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for n in 0..4 {
            assert_eq!(losses.refusal(7, at(n)), None);
            losses.add(7, Duration::from_secs(10), at(n));
        }
        assert!(losses.refusal(7, at(5)).unwrap().contains("user 7"));
        assert_eq!(losses.refusal(8, at(5)), None);
        assert!(losses.refusal(7, at(599)).is_some());
        assert_eq!(losses.refusal(7, at(601)), None);
        losses.add(7, Duration::from_secs(10), at(601));
        assert_eq!(losses.refusal(7, at(602)), None);
        // Whoever was quick to die has cost little.
        for n in 0..1000 {
            losses.add(9, Duration::from_millis(10), at(603 + n / 100));
        }
        assert_eq!(losses.refusal(9, at(620)), None);
    }
}
