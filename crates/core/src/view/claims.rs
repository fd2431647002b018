//! Which elements of a chunk are decided already: records are looked at from the last to the first, so
//! that what a later one wrote is not read from an earlier one.

/// A bit for each element of a chunk, in row-major order.
pub struct Claims {
    words: Vec<u64>,
    /// Elements of the dataset that nobody has claimed.
    left: u64,
}

impl Claims {
    /// `elements`: of the chunk; `inside`: those of them that belong to the dataset.
    pub fn new(elements: u64, inside: u64) -> Self {
        Claims {
            words: vec![0; elements.div_ceil(64) as usize],
            left: inside,
        }
    }

    /// Elements of the dataset that are free still.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Claims the elements from `start` to before `end`, and shows `free` those stretches of them that
    /// were free.
    pub fn claim(&mut self, start: u64, end: u64, mut free: impl FnMut(u64, u64)) {
        // Where a free stretch began that goes on.
        let mut from = None;
        let mut at = start;
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            let mask = u64::MAX >> (64 - count) << bit;
            let word = &mut self.words[(at / 64) as usize];
            let taken = *word & mask;
            *word |= mask;
            self.left = self
                .left
                .saturating_sub(count - u64::from(taken.count_ones()));
            if taken == 0 {
                from.get_or_insert(at);
            } else {
                self.left_of_word(taken, at - bit, (at, at + count), &mut from, &mut free);
            }
            at += count;
        }
        if let Some(from) = from {
            free(from, end);
        }
    }

    /// The stretches of one word, some bits of which were `taken`. `first`: the element of its lowest bit.
    fn left_of_word(
        &self,
        taken: u64,
        first: u64,
        (start, end): (u64, u64),
        from: &mut Option<u64>,
        free: &mut impl FnMut(u64, u64),
    ) {
        let mut at = start;
        while at < end {
            let rest = taken >> (at - first);
            match rest & 1 {
                0 => {
                    from.get_or_insert(at);
                    at += u64::from(rest.trailing_zeros());
                }
                _ => {
                    if let Some(from) = from.take() {
                        free(from, at);
                    }
                    at += u64::from(rest.trailing_ones());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_element_is_free_once(claims in prop::collection::vec((0u64..500, 0u64..200), 0..40)) {
            let mut model = vec![false; 700];
            let mut tested = Claims::new(700, 700);
            for (start, len) in claims {
                let wanted: Vec<u64> = (start..start + len).filter(|e| !model[*e as usize]).collect();
                let mut got = Vec::new();
                let mut stretches = 0;
                tested.claim(start, start + len, |from, to| {
                    assert!(from < to);
                    stretches += 1;
                    got.extend(from..to);
                });
                let gaps = wanted.windows(2).filter(|w| w[1] != w[0] + 1).count();
                prop_assert_eq!(stretches, if wanted.is_empty() { 0 } else { gaps + 1 });
                prop_assert_eq!(got, wanted);
                (start..start + len).for_each(|e| model[e as usize] = true);
                prop_assert_eq!(tested.left(), model.iter().filter(|m| !**m).count() as u64);
            }
        }
    }
}
