//! The last lists of blocks that a program selected. A program writes hundreds of variables with one decomposition,
//! step after step. A known list is compared, but neither checked nor stored again. Later stages refer to it by its
//! number.

use crate::error::FaultResult;
use crate::selection::{Blocks, Selection};

/// The most known lists.
const MOST: usize = 4;
/// The most numbers (starts and counts) in all known lists.
const MOST_NUMBERS: usize = 1 << 20;

/// The last lists of blocks, and the present selection.
#[derive(Debug, Default)]
pub struct Lists {
    /// The present selection, if it is not known. Its memory is reused.
    other: Blocks,
    /// Whether the present selection is the first known list.
    is_known: bool,
    /// Known lists, the last one first.
    known: Vec<Known>,
}

/// A list of several blocks.
#[derive(Debug)]
struct Known {
    blocks: Blocks,
    /// Start in the first dimension.
    low: u64,
    /// End in each dimension.
    ends: Vec<u64>,
}

/// The place of a list in the first dimension.
struct Place {
    /// Start of its first block.
    first: u64,
    /// Start and end of all blocks.
    low: u64,
    end: u64,
}

impl Lists {
    /// The blocks of the present selection.
    pub fn blocks(&self) -> &Blocks {
        match self.known.first() {
            Some(known) if self.is_known => &known.blocks,
            _ => &self.other,
        }
    }

    /// Lists the blocks of a selection: see [`Blocks::set`].
    pub fn set(&mut self, selection: &Selection<'_>, dims: &[u64]) -> FaultResult<&Blocks> {
        if let Selection::Blocks { starts, counts } = *selection {
            self.is_known = find(&mut self.known, |known| {
                known.has(starts, counts, dims.len())
            });
            if self.is_known && self.known[0].is_within(dims) {
                return Ok(self.blocks());
            }
        }
        self.is_known = false;
        self.other.set(selection, dims)?;
        self.make_known();
        Ok(self.blocks())
    }

    /// Lists `number` blocks whose starts and counts are in separate arrays. A block that continues the row of the previous
    /// block is joined to it; an empty one is left out. Fails if a block exceeds the extent `dims`.
    pub fn set_rows<'a>(
        &mut self,
        number: usize,
        block: impl Fn(usize) -> (&'a [u64], &'a [u64]),
        dims: &[u64],
    ) -> FaultResult<&Blocks> {
        self.is_known = find(&mut self.known, |known| known.has_rows(number, &block));
        if self.is_known && self.known[0].is_within(dims) {
            return Ok(self.blocks());
        }
        self.is_known = false;
        self.other.clear(dims.len());
        for number in 0..number {
            let (start, count) = block(number);
            self.other.add(start, count, dims)?;
        }
        self.make_known();
        Ok(self.blocks())
    }

    /// Makes several blocks the present selection, and gives them a number. Returns other blocks as they are.
    pub fn of<'a>(&'a mut self, blocks: &'a Blocks) -> &'a Blocks {
        if !can_be_known(blocks) {
            return blocks;
        }
        self.is_known = true;
        if !self.finds(blocks) {
            self.remember(blocks.clone());
        }
        self.blocks()
    }

    /// Looks up the present selection among the known lists, or remembers it if it has several blocks.
    fn make_known(&mut self) {
        if !can_be_known(&self.other) {
            return;
        }
        let blocks = std::mem::take(&mut self.other);
        self.is_known = true;
        if self.finds(&blocks) {
            self.other = blocks;
        } else {
            self.remember(blocks);
        }
    }

    fn finds(&mut self, blocks: &Blocks) -> bool {
        let Blocks {
            starts,
            counts,
            rank,
            ..
        } = blocks;
        find(&mut self.known, |known| known.has(starts, counts, *rank))
    }

    /// Remembers blocks as the first list, and forgets the oldest ones.
    fn remember(&mut self, blocks: Blocks) {
        self.known.insert(0, Known::of(blocks));
        let mut total = 0;
        let kept = self.known.iter().enumerate().take_while(|(at, known)| {
            total += 2 * known.blocks.starts.len();
            *at == 0 || (*at < MOST && total <= MOST_NUMBERS)
        });
        let kept = kept.count();
        // The next list reuses its memory.
        if let Some(last) = self.known.drain(kept..).next() {
            self.other = last.blocks;
        }
    }
}

/// Whether there are several blocks, with coordinates.
fn can_be_known(blocks: &Blocks) -> bool {
    blocks.number > 1 && blocks.rank > 0
}

impl Known {
    fn of(mut blocks: Blocks) -> Self {
        blocks.give_number();
        let (mut low, mut ends) = (u64::MAX, vec![0; blocks.rank]);
        for block in 0..blocks.number {
            let (start, count) = (blocks.start(block), blocks.count(block));
            low = low.min(start[0]);
            for (end, (start, count)) in ends.iter_mut().zip(start.iter().zip(count)) {
                *end = (*end).max(start + count);
            }
        }
        Known { blocks, low, ends }
    }

    fn is_within(&self, dims: &[u64]) -> bool {
        self.ends.iter().zip(dims).all(|(end, dim)| end <= dim)
    }

    /// The place of a list with these starts and counts, if it differs at most in the first dimension.
    fn has(&self, starts: &[u64], counts: &[u64], rank: usize) -> Option<Place> {
        let blocks = &self.blocks;
        if blocks.rank != rank || blocks.starts.len() != starts.len() || blocks.counts != counts {
            return None;
        }
        if blocks.starts == starts {
            return self.place(starts[0]);
        }
        let by = starts[0].wrapping_sub(blocks.starts[0]);
        let mut rows = starts
            .chunks_exact(rank)
            .zip(blocks.starts.chunks_exact(rank));
        let is_same = by != 0
            && rows.all(|(now, before)| {
                now[0].wrapping_sub(before[0]) == by && now[1..].iter().eq(&before[1..])
            });
        is_same.then(|| self.place(starts[0]))?
    }

    /// The place of a list of blocks given to [`Blocks::add`], as `has` finds it. Parts of a row form one block of the list.
    fn has_rows<'a>(
        &self,
        number: usize,
        block: &impl Fn(usize) -> (&'a [u64], &'a [u64]),
    ) -> Option<Place> {
        let blocks = &self.blocks;
        let (rank, last) = (blocks.rank, blocks.rank - 1);
        if number < blocks.number {
            return None;
        }
        let first = block(0).0.first().copied()?;
        let by = first.wrapping_sub(blocks.starts[0]);
        let starts = blocks.starts.chunks_exact(rank);
        let mut rows = starts.zip(blocks.counts.chunks_exact(rank));
        let mut row = rows.next();
        // Elements of the row seen so far.
        let mut taken = 0;
        for number in 0..number {
            let ((start, count), (row_start, row_count)) = (block(number), row?);
            if start.len() != rank || count.len() != rank {
                return None;
            }
            let mut is_same = true;
            for d in 0..rank {
                let by = if d == 0 { by } else { 0 };
                let taken = if d == last { taken } else { 0 };
                is_same &= start[d].wrapping_sub(by) == row_start[d].wrapping_add(taken);
                is_same &= d == last || count[d] == row_count[d];
            }
            let left = row_count[last] - taken;
            let is_part = count[last] != row_count[last];
            let is_row = || row_count[..last].iter().all(|side| *side == 1);
            if !is_same || count[last] > left || (is_part && !is_row()) {
                return None;
            }
            taken += count[last];
            if taken == row_count[last] {
                taken = 0;
                row = rows.next();
            }
        }
        (row.is_none() && taken == 0).then(|| self.place(first))?
    }

    /// The place of the list if its first block begins at `first`. `None`: impossible.
    fn place(&self, first: u64) -> Option<Place> {
        let by = i128::from(first) - i128::from(self.blocks.starts[0]);
        let moved = |index: u64| (i128::from(index) + by).try_into().ok();
        Some(Place {
            first,
            low: moved(self.low)?,
            end: moved(self.ends[0])?,
        })
    }
}

/// Makes the list with a place the first one, and moves it there. Returns whether there is one.
fn find(known: &mut [Known], place: impl Fn(&Known) -> Option<Place>) -> bool {
    let mut places = known.iter().map(place).enumerate();
    let Some((at, Some(place))) = places.find(|(_, place)| place.is_some()) else {
        return false;
    };
    known[..=at].rotate_right(1);
    let found = &mut known[0];
    found.blocks.move_to(place.first);
    (found.low, found.ends[0]) = (place.low, place.end);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn blocks_of(
        lists: &mut Lists,
        starts: &[u64],
        counts: &[u64],
        dims: &[u64],
    ) -> Option<Blocks> {
        let listed = lists.set(&Selection::Blocks { starts, counts }, dims);
        listed.ok().cloned()
    }

    fn number(lists: &mut Lists, starts: &[u64], dims: &[u64]) -> Option<u64> {
        let counts = vec![1; starts.len()];
        blocks_of(lists, starts, &counts, dims)?
            .list
            .map(|list| list.number)
    }

    /// The next record has the same list, for any order of variables. Other blocks or extents have another list.
    #[test]
    fn a_decomposition_is_known_in_each_record() {
        let mut lists = Lists::default();
        let first = number(&mut lists, &[3, 1, 3, 5], &[9, 9]);
        let other = number(&mut lists, &[2, 1, 2, 6], &[9, 9]);
        assert!(first.is_some() && other.is_some() && first != other);
        assert_eq!(number(&mut lists, &[7, 1, 7, 5], &[9, 9]), first);
        assert_eq!(number(&mut lists, &[0, 1, 0, 6], &[9, 9]), other);
        assert_eq!(number(&mut lists, &[8, 1, 8, 5], &[9, 9]), first);
        assert_eq!(number(&mut lists, &[9, 1, 9, 5], &[9, 9]), None);
        assert_eq!(number(&mut lists, &[8, 1, 8, 5], &[9, 5]), None);
        // A start below 0 counts as one beyond all others.
        assert_eq!(number(&mut lists, &[0, 5, u64::MAX, 1], &[9, 9]), None);
        assert!(number(&mut lists, &[1, 5, 0, 1], &[9, 9]).is_some());
        assert_eq!(number(&mut lists, &[0, 5, u64::MAX, 1], &[9, 9]), None);
        assert_eq!(number(&mut lists, &[3, 1], &[9, 9]), None);
        for shift in 0..2 * MOST as u64 {
            number(&mut lists, &[0, shift, 0, 50], &[1, 99]);
        }
        assert_eq!(lists.known.len(), MOST);
        let many: Vec<u64> = (0..MOST_NUMBERS as u64).map(|n| 2 * n).collect();
        assert!(number(&mut lists, &many, &[u64::MAX]).is_some());
        assert_eq!(lists.known.len(), 1);
    }

    /// Checks that blocks with the same number differ at most in their first index.
    fn check_numbers(seen: &mut Vec<Blocks>, blocks: &Blocks) {
        let same = seen
            .iter()
            .find(|known| known.list.is_some() && known.list == blocks.list);
        if let Some(same) = same {
            let mut moved = same.clone();
            moved.move_to(blocks.starts[0]);
            assert_eq!(&moved, blocks);
        }
        seen.push(blocks.clone());
    }

    proptest! {
        /// Remembered lists have no effect on the result: lists equal those made without memory, valid or not.
        #[test]
        fn lists_are_those_that_were_given(
            rank in 0usize..3,
            given in proptest::collection::vec((0usize..4, 0u64..4, proptest::collection::vec((0u64..6, 0u64..3), 9)), 1..20),
        ) {
            let dims = &[7, 5][..rank];
            // Only `row_lists` joins the parts of a row.
            let (mut lists, mut row_lists) = (Lists::default(), Lists::default());
            let mut seen = Vec::new();
            for (number, record, sides) in &given {
                let (starts, counts): (Vec<u64>, Vec<u64>) = sides[..number * rank].iter().copied().unzip();
                let mut starts = starts;
                starts.iter_mut().step_by(rank.max(1)).for_each(|start| *start = start.wrapping_add(*record).wrapping_sub(2));
                let mut wanted = Blocks::default();
                let selection = Selection::Blocks { starts: &starts, counts: &counts };
                let is_good = wanted.set(&selection, dims);
                let found = lists.set(&selection, dims).cloned();
                prop_assert_eq!(is_good.as_ref().err().map(ToString::to_string), found.as_ref().err().map(ToString::to_string));
                if let Ok(found) = found {
                    check_numbers(&mut seen, &found);
                    prop_assert_eq!(&Blocks { list: None, ..found }, &wanted);
                }
                let row = |block: usize| (&starts[block * rank..][..rank], &counts[block * rank..][..rank]);
                wanted.clear(rank);
                let is_good = (0..*number).try_for_each(|block| wanted.add(row(block).0, row(block).1, dims));
                let found = row_lists.set_rows(*number, row, dims).cloned();
                prop_assert_eq!(is_good.as_ref().err().map(ToString::to_string), found.as_ref().err().map(ToString::to_string));
                if let Ok(found) = found {
                    check_numbers(&mut seen, &found);
                    prop_assert_eq!(&Blocks { list: None, ..found }, &wanted);
                }
            }
        }
    }
}
