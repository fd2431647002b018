//! Covered elements of a dataset, as ranges in row-major order. Blocks in disjoint ranges do not overlap.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch: first element to last element.
#[derive(Debug, Default)]
pub(crate) struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Whether a range contains none of the covered elements.
    pub fn is_apart(&self, first: u64, last: u64) -> bool {
        let before = self.0.range(..=last).next_back();
        before.is_none_or(|(_, end)| *end < first)
    }

    /// Adds a range, which may overlap others.
    pub fn add(&mut self, mut first: u64, mut last: u64) {
        while let Some((begin, end)) = self.0.range(..=last.saturating_add(1)).next_back() {
            let (begin, end) = (*begin, *end);
            if end.saturating_add(1) < first {
                break;
            }
            first = first.min(begin);
            last = last.max(end);
            self.0.remove(&begin);
        }
        self.0.insert(first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut covered = Covered::default();
        for (first, last) in [(10, 19), (30, 39), (20, 29), (50, 50), (0, u64::MAX)] {
            covered.add(first, last);
        }
        assert_eq!(covered.0.into_iter().collect::<Vec<_>>(), [(0, u64::MAX)]);
    }

    proptest! {
        #[test]
        fn elements_are_covered_once_added(ranges in prop::collection::vec((0u64..60, 0u64..8), 1..30)) {
            let mut covered = Covered::default();
            let mut elements = [false; 70];
            for (first, more) in ranges {
                let range = first as usize..=(first + more) as usize;
                let is_apart = !elements[range.clone()].contains(&true);
                prop_assert_eq!(covered.is_apart(first, first + more), is_apart);
                covered.add(first, first + more);
                elements[range].fill(true);
                let all: u64 = covered.0.iter().map(|(first, last)| last - first + 1).sum();
                prop_assert_eq!(all, elements.iter().filter(|is| **is).count() as u64);
            }
        }
    }
}
