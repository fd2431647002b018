//! The chunk grid of one dataset. Chunks are numbered in row-major order.

use std::ops::Range;

use h5logfs_log::boxes::Bounds;

/// The chunk that a search looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The chunk with the least number.
    First,
    /// The chunk with the greatest number.
    Last,
}

/// One chunk of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkId {
    /// Number of the dataset in the snapshot.
    pub dataset: usize,
    /// Number of the chunk in the grid of the dataset.
    pub number: u64,
}

impl ChunkId {
    /// Chunk `number` of a dataset.
    pub fn new(dataset: usize, number: u64) -> Self {
        ChunkId { dataset, number }
    }
}

/// The chunks of one dataset. Shapes count elements. A scalar is a grid of rank 0 with one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Shape of the dataset.
    pub dims: Vec<u64>,
    /// Shape of a chunk.
    pub chunk: Vec<u64>,
    /// Number of chunks along each dimension.
    across: Vec<u64>,
    len: u64,
}

/// A part of a chunk whose elements follow each other in the chunk's memory.
#[derive(Debug, Clone)]
pub struct Band {
    /// The elements that belong to the dataset.
    pub bounds: Bounds,
    /// Sides in memory.
    pub sides: Vec<u64>,
}

impl Grid {
    /// The grid of a dataset of shape `dims` in chunks of shape `chunk`. `None` where the ranks differ, a side of
    /// the chunk is zero, or chunks or elements cannot be counted in 64 bits.
    pub fn new(dims: &[u64], chunk: &[u64]) -> Option<Self> {
        if dims.len() != chunk.len() || chunk.contains(&0) {
            return None;
        }
        let across: Vec<u64> = dims
            .iter()
            .zip(chunk)
            .map(|(d, c)| d.div_ceil(*c))
            .collect();
        let len = across.iter().try_fold(1u64, |n, a| n.checked_mul(*a))?;
        chunk.iter().try_fold(1u64, |n, c| n.checked_mul(*c))?;
        // The first element of a chunk, and the end of the last one, must have coordinates.
        let ends = across.iter().zip(chunk).map(|(a, c)| a.checked_mul(*c));
        ends.collect::<Option<Vec<_>>>()?;
        Some(Grid {
            dims: dims.to_vec(),
            chunk: chunk.to_vec(),
            across,
            len,
        })
    }

    /// Differences between the numbers of neighbouring chunks, by dimension.
    pub fn steps(&self) -> Vec<u64> {
        let mut steps = vec![1u64; self.across.len()];
        for d in (1..steps.len()).rev() {
            // Only a grid without chunks saturates here.
            steps[d - 1] = steps[d].saturating_mul(self.across[d]);
        }
        steps
    }

    /// Number of chunks along a dimension.
    pub fn across(&self, dimension: usize) -> u64 {
        self.across[dimension]
    }

    /// Number of chunks.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether only the first dimension has several chunks. Chunks that follow each other then make a box, whose elements are those
    /// of one chunk after the other.
    pub fn is_split_once(&self) -> bool {
        self.across.iter().skip(1).all(|across| *across == 1)
    }

    /// Number of elements in one chunk, including those past the dataset's edge.
    pub fn elements(&self) -> u64 {
        self.chunk.iter().product()
    }

    /// Position of a chunk in the grid.
    pub fn position(&self, mut number: u64) -> Vec<u64> {
        let mut position = vec![0; self.across.len()];
        for (p, across) in position.iter_mut().zip(&self.across).rev() {
            // Messages about a dataset without chunks ask for a position too.
            let across = (*across).max(1);
            *p = number % across;
            number /= across;
        }
        position
    }

    /// The inverse of [`Grid::position`].
    fn number(&self, position: &[u64]) -> u64 {
        let sides = position.iter().zip(&self.across);
        sides.fold(0, |number, (p, across)| number * across + p)
    }

    /// A chunk in at most `count` bands, which follow each other in its memory. The last one has the elements past the dataset's
    /// edge.
    pub fn bands(&self, number: u64, count: u64) -> Vec<Band> {
        let whole = Band {
            bounds: self.bounds(number),
            sides: self.chunk.clone(),
        };
        let Some(along) = self.chunk.iter().position(|side| *side > 1) else {
            return vec![whole];
        };
        let (start, end) = (whole.bounds.start[along], whole.bounds.end[along]);
        let count = count.clamp(1, (end - start).max(1));
        let each = (end - start) / count;
        let band = |number: u64| {
            let mut band = whole.clone();
            band.bounds.start[along] += each * number;
            if number + 1 < count {
                band.bounds.end[along] = band.bounds.start[along] + each;
                band.sides[along] = each;
            } else {
                band.sides[along] -= each * number;
            }
            band
        };
        (0..count).map(band).collect()
    }

    /// Numbers of the chunks that have elements of a box, which has some and lies within the dataset.
    pub fn touched(&self, wanted: &Bounds) -> impl Iterator<Item = u64> {
        let first = wanted.start.iter().zip(&self.chunk);
        let first: Vec<u64> = first.map(|(start, side)| start / side).collect();
        let last = wanted.end.iter().zip(&self.chunk);
        let last: Vec<u64> = last.map(|(end, side)| (end - 1) / side).collect();
        let mut next = Some(first.clone());
        std::iter::from_fn(move || {
            let mut at = next.take()?;
            let number = self.number(&at);
            for d in (0..at.len()).rev() {
                if at[d] < last[d] {
                    at[d] += 1;
                    next = Some(at);
                    break;
                }
                at[d] = first[d];
            }
            Some(number)
        })
    }

    /// The number of the chunk whose first element has these coordinates; `None` where no chunk begins there.
    pub fn number_at(&self, origin: &[u64]) -> Option<u64> {
        if origin.len() != self.chunk.len() {
            return None;
        }
        let sides = origin.iter().zip(&self.chunk);
        let is_first = sides.clone().all(|(o, c)| o.is_multiple_of(*c));
        let position: Vec<u64> = sides.map(|(o, c)| o / c).collect();
        let is_there = position.iter().zip(&self.across).all(|(p, a)| p < a);
        (is_first && is_there).then(|| self.number(&position))
    }

    /// The first or the last chunk in a range of numbers that `wanted` accepts. `wanted` is also called for boxes of
    /// many chunks, and must accept each box with a chunk that it accepts. The chunks of a rejected box are skipped at
    /// once, since there may be far too many to look at each.
    pub fn find(
        &self,
        among: &Range<u64>,
        end: End,
        wanted: &mut impl FnMut(&Bounds) -> bool,
    ) -> Option<u64> {
        match self.len {
            0 => None,
            _ => self.find_in(
                vec![0; self.across.len()],
                self.across.clone(),
                (among, end),
                wanted,
            ),
        }
    }

    /// The numbers of all chunks from `from` on that `wanted` accepts, in ascending order. `wanted` is also called for
    /// boxes of many chunks, and must accept each box with a chunk that it accepts.
    pub fn matching(
        &self,
        mut from: u64,
        mut wanted: impl FnMut(&Bounds) -> bool,
    ) -> impl Iterator<Item = u64> {
        std::iter::from_fn(move || {
            let chunk = self.find(&(from..self.len), End::First, &mut wanted)?;
            from = chunk + 1;
            Some(chunk)
        })
    }

    /// [`Grid::find`] among the chunks at positions from `low` to before `high`. Their numbers have no gaps, because
    /// only the first side that is longer than one is ever cut.
    fn find_in(
        &self,
        low: Vec<u64>,
        high: Vec<u64>,
        (among, end): (&Range<u64>, End),
        wanted: &mut impl FnMut(&Bounds) -> bool,
    ) -> Option<u64> {
        let last: Vec<u64> = high.iter().map(|h| h - 1).collect();
        if self.number(&last) < among.start || self.number(&low) >= among.end {
            return None;
        }
        let (start, ends) = (self.origin_of(&low), self.origin_of(&high));
        let bounds_end = ends
            .iter()
            .zip(&self.dims)
            .map(|(e, d)| *e.min(d))
            .collect();
        if !wanted(&Bounds {
            start,
            end: bounds_end,
        }) {
            return None;
        }
        let Some(cut) = (0..low.len()).find(|d| high[*d] - low[*d] > 1) else {
            return Some(self.number(&low));
        };
        let middle = low[cut] + (high[cut] - low[cut]) / 2;
        let (mut first_high, mut second_low) = (high.clone(), low.clone());
        first_high[cut] = middle;
        second_low[cut] = middle;
        let (first, second) = ((low, first_high), (second_low, high));
        let (one, other) = match end {
            End::First => (first, second),
            End::Last => (second, first),
        };
        self.find_in(one.0, one.1, (among, end), wanted)
            .or_else(|| self.find_in(other.0, other.1, (among, end), wanted))
    }

    /// Coordinates of the first element of the chunk at a position.
    fn origin_of(&self, position: &[u64]) -> Vec<u64> {
        position
            .iter()
            .zip(&self.chunk)
            .map(|(p, c)| p * c)
            .collect()
    }

    /// Coordinates of a chunk's first element.
    pub fn origin(&self, number: u64) -> Vec<u64> {
        self.origin_of(&self.position(number))
    }

    /// The elements of a chunk that belong to the dataset.
    pub fn bounds(&self, number: u64) -> Bounds {
        let start = self.origin(number);
        let sides = self.chunk.iter().zip(&self.dims);
        let end = start.iter().zip(sides).map(|(s, (c, d))| (s + c).min(*d));
        Bounds {
            end: end.collect(),
            start,
        }
    }

    /// Whether no part of the chunk lies past the dataset's edge.
    pub fn is_whole(&self, bounds: &Bounds) -> bool {
        bounds.count().eq(self.chunk.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbered_row_major_and_clipped() {
        let grid = Grid::new(&[5, 7], &[2, 3]).unwrap();
        assert_eq!(grid.len(), 9);
        assert_eq!(grid.origin(5), [2, 6]);
        assert!((0..9).all(|number| grid.number_at(&grid.origin(number)) == Some(number)));
        for nowhere in [&[2, 5][..], &[6, 0], &[2]] {
            assert_eq!(grid.number_at(nowhere), None);
        }
        let bounds = grid.bounds(8);
        assert_eq!(
            (bounds.start.clone(), bounds.end.clone()),
            (vec![4, 6], vec![5, 7])
        );
        assert!(!grid.is_whole(&bounds));
        assert!(grid.is_whole(&grid.bounds(0)));
        assert_eq!(grid.steps(), [3, 1]);
        assert_eq!(Grid::new(&[], &[]).unwrap().len(), 1);
        let empty = Grid::new(&[0, 4], &[1, 4]).unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.position(0), [0, 0]);
    }

    #[test]
    fn bands_follow_each_other_in_a_chunk() {
        let grids = [
            Grid::new(&[5, 7], &[2, 3]).unwrap(),
            Grid::new(&[5, 7], &[1, 5]).unwrap(),
            Grid::new(&[2], &[9]).unwrap(),
            Grid::new(&[3, 4], &[1, 1]).unwrap(),
            Grid::new(&[], &[]).unwrap(),
        ];
        for (grid, count) in grids.iter().flat_map(|grid| (1..5).map(move |n| (grid, n))) {
            for number in 0..grid.len() {
                let chunk = grid.bounds(number);
                let elements = |bounds: &Bounds| bounds.count().product::<u64>();
                let (mut in_memory, mut of_dataset) = (0, 0);
                for band in grid.bands(number, count) {
                    // The place of its first element in the chunk.
                    let from_start = band.bounds.start.iter().zip(&chunk.start);
                    let place = from_start
                        .zip(&grid.chunk)
                        .fold(0, |n, ((at, start), side)| n * side + at - start);
                    assert_eq!(place, in_memory);
                    assert!(chunk.contains(&band.bounds));
                    in_memory += band.sides.iter().product::<u64>();
                    of_dataset += elements(&band.bounds);
                }
                assert_eq!((in_memory, of_dataset), (grid.elements(), elements(&chunk)));
            }
        }
    }

    #[test]
    fn a_box_touches_the_chunks_that_have_elements_of_it() {
        let grid = Grid::new(&[5, 7], &[2, 3]).unwrap();
        let touched = |start: [u64; 2], end: [u64; 2]| -> Vec<u64> {
            let (start, end) = (start.to_vec(), end.to_vec());
            grid.touched(&Bounds { start, end }).collect()
        };
        assert_eq!(touched([1, 2], [3, 4]), [0, 1, 3, 4]);
        assert_eq!(touched([2, 3], [4, 6]), [4]);
        assert_eq!(touched([0, 0], [5, 7]), (0..9).collect::<Vec<_>>());
        let scalar = Grid::new(&[], &[]).unwrap();
        let all = Bounds {
            start: vec![],
            end: vec![],
        };
        assert_eq!(scalar.touched(&all).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_chunk_among_very_many_is_found() {
        let grid = Grid::new(&[1 << 40, 7, 5], &[1, 2, 5]).unwrap();
        let there = Bounds {
            start: vec![1 << 35, 5, 0],
            end: vec![(1 << 35) + 1, 6, 1],
        };
        let mut asked = 0;
        let mut wanted = |b: &Bounds| {
            asked += 1;
            b.intersection(&there).is_some()
        };
        let all = 0..grid.len();
        let number = grid.find(&all, End::First, &mut wanted).unwrap();
        assert_eq!(grid.position(number), [1 << 35, 2, 0]);
        assert_eq!(grid.find(&all, End::Last, &mut wanted), Some(number));
        let mut find = |among: Range<u64>, end| grid.find(&among, end, &mut wanted);
        assert_eq!(find(number..all.end, End::First), Some(number));
        assert_eq!(find(number + 1..all.end, End::First), None);
        assert_eq!(find(0..number + 1, End::Last), Some(number));
        assert_eq!(find(0..number, End::Last), None);
        assert!(asked < 1000, "{asked}");
        let grid = Grid::new(&[5, 7], &[2, 3]).unwrap();
        for number in 0..9 {
            let first = grid.find(&(number..9), End::First, &mut |_| true);
            let last = grid.find(&(0..number + 1), End::Last, &mut |_| true);
            assert_eq!((first, last), (Some(number), Some(number)));
        }
        let scalar = Grid::new(&[], &[]).unwrap();
        assert_eq!(scalar.find(&(0..1), End::First, &mut |_| true), Some(0));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert!(Grid::new(&[4], &[0]).is_none());
        assert!(Grid::new(&[1 << 40, 1 << 40], &[1, 1]).is_none());
        assert!(Grid::new(&[u64::MAX], &[u64::MAX - 1]).is_none());
    }
}
