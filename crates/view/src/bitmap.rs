//! A bitmap of the elements of a chunk that the records seen so far cover. Records are visited from the last to the
//! first, so that no element is read from a record if a later one wrote it.

use std::ops::Range;

use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// A bit for each element of a chunk, in row-major order. The bit is set if a record covers the element.
pub struct CoverageBitmap {
    words: Vec<u64>,
    /// Number of uncovered elements within the dataset's edge.
    missing: u64,
    _reservation: Reservation,
}

impl CoverageBitmap {
    /// `elements` is the number of elements of the chunk, and `in_dataset` that of its elements within the dataset's
    /// edge. Fails where there is no memory for so many bits.
    pub fn new(task: &Task, elements: u64, in_dataset: u64) -> Result<Self, Fault> {
        let mut reservation = task.reservation();
        Ok(CoverageBitmap {
            words: reservation.filled(elements.div_ceil(64) as usize)?,
            missing: in_dataset,
            _reservation: reservation,
        })
    }

    /// Number of elements of the dataset that no record covers yet.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Passes start and end of each uncovered run to `found`. The chunk has `elements` elements.
    pub fn gaps(&self, elements: u64, mut found: impl FnMut(u64, u64)) {
        let mut run_start = None;
        for (number, covered) in self.words.iter().enumerate() {
            let first = number as u64 * 64;
            match *covered {
                0 => _ = run_start.get_or_insert(first),
                _ => {
                    let word = first..elements.min(first + 64);
                    uncovered_in_word(*covered, first, word, &mut run_start, &mut found);
                }
            }
        }
        if let Some(start) = run_start {
            found(start, elements);
        }
    }

    /// Marks the elements from `start` to before `end` as covered. Passes start and end of each run among them that was
    /// uncovered to `added`.
    #[inline]
    pub fn cover(&mut self, start: u64, end: u64, mut added: impl FnMut(u64, u64)) {
        if self.cover_few(start, end) {
            return added(start, end);
        }
        self.cover_any(start, end, added);
    }

    /// Covers elements that lie in one word or two, if none was covered before. Otherwise changes nothing and returns
    /// `false`.
    #[inline]
    fn cover_few(&mut self, start: u64, end: u64) -> bool {
        let first = (start / 64) as usize;
        let (bit, len) = (start % 64, end.saturating_sub(start));
        if !(1..=64).contains(&len) {
            return false;
        }
        let all = u64::MAX >> (64 - len);
        // The highest bits of `all` continue in the next word.
        let (low, high) = (all << bit, all.checked_shr(64 - bit as u32).unwrap_or(0));
        if self.words[first] & low != 0 {
            return false;
        }
        if high != 0 {
            let next = &mut self.words[first + 1];
            if *next & high != 0 {
                return false;
            }
            *next |= high;
        }
        self.words[first] |= low;
        self.missing = self.missing.saturating_sub(len);
        true
    }

    fn cover_any(&mut self, start: u64, end: u64, mut added: impl FnMut(u64, u64)) {
        // Start of an uncovered run that may continue in the next word.
        let mut run_start = None;
        let mut at = start;
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            let mask = u64::MAX >> (64 - count) << bit;
            let word = &mut self.words[(at / 64) as usize];
            let covered = *word & mask;
            *word |= mask;
            let new = count - u64::from(covered.count_ones());
            self.missing = self.missing.saturating_sub(new);
            if covered == 0 {
                run_start.get_or_insert(at);
            } else {
                let bits = at..at + count;
                uncovered_in_word(covered, at - bit, bits, &mut run_start, &mut added);
            }
            at += count;
        }
        if let Some(start) = run_start {
            added(start, end);
        }
    }
}

/// Passes on the uncovered runs among the elements `range` of one word. `covered` has the bits that were set, and
/// `first` is the element of the lowest bit.
fn uncovered_in_word(
    covered: u64,
    first: u64,
    range: Range<u64>,
    run_start: &mut Option<u64>,
    added: &mut impl FnMut(u64, u64),
) {
    let mut at = range.start;
    while at < range.end {
        let rest = covered >> (at - first);
        if rest & 1 == 0 {
            run_start.get_or_insert(at);
            at += u64::from(rest.trailing_zeros());
        } else {
            if let Some(start) = run_start.take() {
                added(start, at);
            }
            at += u64::from(rest.trailing_ones());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_element_is_added_once(ranges in prop::collection::vec((0u64..500, 0u64..200), 0..40)) {
            let mut model = vec![false; 700];
            let mut tested = CoverageBitmap::new(&Task::unlimited(), 700, 700).unwrap();
            for (start, len) in ranges {
                let wanted: Vec<u64> = (start..start + len).filter(|e| !model[*e as usize]).collect();
                let mut got = Vec::new();
                let mut runs = 0;
                tested.cover(start, start + len, |from, to| {
                    assert!(from < to);
                    runs += 1;
                    got.extend(from..to);
                });
                let gaps = wanted.windows(2).filter(|w| w[1] != w[0] + 1).count();
                prop_assert_eq!(runs, if wanted.is_empty() { 0 } else { gaps + 1 });
                prop_assert_eq!(got, wanted);
                (start..start + len).for_each(|e| model[e as usize] = true);
                prop_assert_eq!(tested.missing(), model.iter().filter(|m| !**m).count() as u64);
                let (mut left, mut runs) = (Vec::new(), 0);
                tested.gaps(700, |from, to| {
                    runs += 1;
                    left.extend(from..to);
                });
                let missing: Vec<u64> = (0..700).filter(|e| !model[*e as usize]).collect();
                prop_assert_eq!(runs, missing.chunk_by(|a, b| a + 1 == *b).count());
                prop_assert_eq!(left, missing);
            }
        }
    }
}
