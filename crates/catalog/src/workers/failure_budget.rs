//! Budgets for scans that die, one for each owner of files.
//!
//! A scan that dies may have taken all its time, and a listing waits for all files of a directory. So each owner has a
//! budget for such scans. When the budget is spent, new files of that owner are refused for some time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time after which the budget of an owner is full again.
const WINDOW: Duration = Duration::from_secs(600);

/// The budget of an owner, in scans that take all their processor time.
const MAX_SCANS: u32 = 4;

#[derive(Debug)]
pub struct FailureBudget {
    /// Limit of the processor time of one scan.
    cpu: Duration,
    by_owner: Mutex<HashMap<u32, Spent>>,
}

#[derive(Debug)]
struct Spent {
    since: Instant,
    time: Duration,
}

impl FailureBudget {
    /// `cpu` limits the processor time of one scan.
    pub fn new(cpu: Duration) -> Self {
        FailureBudget {
            cpu,
            by_owner: Mutex::default(),
        }
    }

    /// Counts a scan of a file of `owner` that died after `took`. It costs at most the limit of its processor time. On
    /// a busy machine a scan lasts much longer, and one bad file must not cost its owner the whole budget.
    pub fn add(&self, owner: u32, took: Duration, now: Instant) {
        let mut by_owner = self.by_owner.lock();
        by_owner.retain(|_, spent| now.duration_since(spent.since) < WINDOW);
        let spent = by_owner.entry(owner).or_insert(Spent {
            since: now,
            time: Duration::ZERO,
        });
        spent.time += took.min(self.cpu);
    }

    /// The reason for refusing files of `owner` now, if the budget is spent.
    pub fn refusal(&self, owner: u32, now: Instant) -> Option<String> {
        let by_owner = self.by_owner.lock();
        let spent = by_owner
            .get(&owner)
            .filter(|spent| spent.time >= self.cpu.saturating_mul(MAX_SCANS))?;
        let left = WINDOW.checked_sub(now.duration_since(spent.since))?;
        Some(format!(
            "scans of files of user {owner} failed after {} s in all: no more of them start for {} s",
            spent.time.as_secs(),
            left.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_whose_budget_is_spent_waits_for_the_next_window() {
        let budget = FailureBudget::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for n in 0..4 {
            assert_eq!(budget.refusal(7, at(n)), None);
            budget.add(7, Duration::from_secs(10), at(n));
        }
        assert!(budget.refusal(7, at(5)).unwrap().contains("user 7"));
        assert_eq!(budget.refusal(8, at(5)), None);
        assert!(budget.refusal(7, at(599)).is_some());
        assert_eq!(budget.refusal(7, at(601)), None);
        budget.add(7, Duration::from_secs(10), at(601));
        assert_eq!(budget.refusal(7, at(602)), None);
        // A scan that waits for a processor counts as one.
        budget.add(10, Duration::from_secs(1000), at(603));
        assert_eq!(budget.refusal(10, at(604)), None);
        // Scans that die at once cost little.
        for n in 0..1000 {
            budget.add(9, Duration::from_millis(10), at(603 + n / 100));
        }
        assert_eq!(budget.refusal(9, at(620)), None);
    }
}
