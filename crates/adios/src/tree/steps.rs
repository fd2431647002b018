//! Numbers of steps, stored in few bytes where they are regular.

use serde::{Deserialize, Serialize};

/// Numbers of steps, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(u64, u64, u64)>", try_from = "Vec<(u64, u64, u64)>")]
pub struct Steps {
    runs: Vec<Run>,
}

/// Steps at equal distances.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    first: u64,
    /// Difference between steps; 1 for a single step.
    distance: u64,
    count: u64,
    /// Number of steps before this run.
    before: u64,
}

/// First step, distance and length of each run.
impl From<Steps> for Vec<(u64, u64, u64)> {
    fn from(steps: Steps) -> Self {
        let of_run = |run: &Run| (run.first, run.distance, run.count);
        steps.runs.iter().map(of_run).collect()
    }
}

/// Fails where the steps do not ascend.
impl TryFrom<Vec<(u64, u64, u64)>> for Steps {
    type Error = &'static str;

    fn try_from(runs: Vec<(u64, u64, u64)>) -> Result<Self, Self::Error> {
        let mut steps = Steps {
            runs: Vec::with_capacity(runs.len()),
        };
        let mut last = None;
        for (first, distance, count) in runs {
            let before = steps.len();
            let end = count
                .checked_sub(1)
                .and_then(|more| more.checked_mul(distance)?.checked_add(first));
            if distance == 0
                || end.is_none()
                || last >= Some(first)
                || before.checked_add(count).is_none()
            {
                return Err("steps that do not ascend");
            }
            last = end;
            steps.runs.push(Run {
                first,
                distance,
                count,
                before,
            });
        }
        Ok(steps)
    }
}

impl Run {
    fn get(&self, index: u64) -> u64 {
        self.first + index * self.distance
    }

    fn last(&self) -> u64 {
        self.get(self.count - 1)
    }
}

impl Steps {
    /// Appends a step. Ignores one that is not after all others.
    pub fn push(&mut self, step: u64) {
        let before = self.len();
        if self.last() >= Some(step) {
            return;
        }
        if let Some(run) = self.runs.last_mut()
            && let Some(distance) = step.checked_sub(run.last())
            && (run.count == 1 || run.distance == distance)
        {
            run.distance = distance;
            run.count += 1;
            return;
        }
        self.runs.push(Run {
            first: step,
            distance: 1,
            count: 1,
            before,
        });
    }

    /// Whether there are few runs, so that a copy is cheap.
    pub(super) fn is_regular(&self) -> bool {
        const FEW: usize = 8;
        self.runs.len() <= FEW
    }

    /// Number of steps.
    pub fn len(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.before + run.count)
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The step at an index.
    pub fn get(&self, index: u64) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.before <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let within = index - run.before;
        (within < run.count).then(|| run.get(within))
    }

    /// The index of a step; `None` if it is absent.
    pub fn position(&self, step: u64) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.first <= step);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let past = step - run.first;
        let is_there = step <= run.last() && past.is_multiple_of(run.distance);
        is_there.then(|| run.before + past / run.distance)
    }

    /// All steps, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let of_run = |run: &Run| {
            let run = run.clone();
            (0..run.count).map(move |index| run.get(index))
        };
        self.runs.iter().flat_map(of_run)
    }

    /// The last step.
    pub fn last(&self) -> Option<u64> {
        self.runs.last().map(Run::last)
    }
}

impl FromIterator<u64> for Steps {
    fn from_iter<T: IntoIterator<Item = u64>>(steps: T) -> Self {
        let mut all = Steps::default();
        steps.into_iter().for_each(|step| all.push(step));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_that_do_not_ascend_are_refused() {
        for runs in [
            vec![(0, 0, 1)],
            vec![(0, 1, 0)],
            vec![(0, 1, 4), (3, 1, 1)],
            vec![(1, u64::MAX, 2)],
            vec![(0, 1, u64::MAX), (u64::MAX, 1, 1)],
        ] {
            assert!(Steps::try_from(runs.clone()).is_err(), "{runs:?}");
        }
    }

    proptest! {
        #[test]
        fn equal_a_list(distances in proptest::collection::vec(1u64..4, 0..40), first in 0u64..3) {
            let mut list = Vec::new();
            let mut next = first;
            for distance in distances {
                list.push(next);
                next += distance;
            }
            let steps: Steps = list.iter().copied().collect();
            prop_assert_eq!(steps.len(), list.len() as u64);
            prop_assert_eq!(steps.iter().collect::<Vec<_>>(), list.clone());
            let runs: Vec<(u64, u64, u64)> = steps.clone().into();
            prop_assert_eq!(Steps::try_from(runs), Ok(steps.clone()));
            prop_assert_eq!(steps.last(), list.last().copied());
            for index in 0..=list.len() {
                prop_assert_eq!(steps.get(index as u64), list.get(index).copied());
            }
            for step in 0..next + 2 {
                let there = list.iter().position(|s| *s == step).map(|p| p as u64);
                prop_assert_eq!(steps.position(step), there);
            }
        }
    }

    #[test]
    fn regular_steps_are_one_run() {
        let steps: Steps = (0..1000).map(|n| 10 * n + 3).collect();
        assert_eq!(steps.runs.len(), 1);
    }
}
