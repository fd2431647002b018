//! The elements of a selection in row-major order. This order pairs the elements of a source with those of a virtual
//! dataset.

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Picked, Steps, UNLIMITED};
use h5logfs_log::boxes::Bounds;

type Result<T> = std::result::Result<T, Fault>;

/// Selected elements, numbered from 0 in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walk {
    /// All combinations of the indices of each dimension.
    Grid(Vec<Indices>),
    /// Blocks that do not overlap.
    Blocks(Vec<Bounds>),
}

/// Ascending indices along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Indices {
    start: u64,
    stride: u64,
    /// Number of contiguous indices in a block.
    block: u64,
    /// Number of indices.
    pub len: u64,
}

impl Indices {
    /// All indices below `side`.
    pub fn below_side(side: u64) -> Self {
        Indices {
            start: 0,
            stride: side.max(1),
            block: side.max(1),
            len: side,
        }
    }

    /// The indices of regular steps, limited to those below `side`.
    fn of(steps: Steps, side: u64) -> Self {
        let Steps {
            start,
            stride,
            count,
            block,
        } = steps;
        // Blocks without gaps are merged into one.
        let is_one = count == 1 || block == UNLIMITED || stride <= block;
        let all = count.saturating_mul(block);
        let indices = Indices {
            start,
            stride: if is_one { u64::MAX } else { stride },
            block: if is_one { all } else { block },
            len: all,
        };
        Indices {
            len: indices.before(side),
            ..indices
        }
    }

    /// The index at a valid position.
    pub fn at(&self, position: u64) -> u64 {
        let (number, within) = (position / self.block, position % self.block);
        // A single block has number 0.
        let behind = number.saturating_mul(self.stride).saturating_add(within);
        self.start.saturating_add(behind)
    }

    /// Number of indices before `index`.
    pub fn before(&self, index: u64) -> u64 {
        let Some(behind) = index.checked_sub(self.start) else {
            return 0;
        };
        let (number, within) = (behind / self.stride, behind % self.stride);
        let whole = number.saturating_mul(self.block);
        whole.saturating_add(within.min(self.block)).min(self.len)
    }

    /// Number of contiguous indices from a position on.
    pub fn run(&self, position: u64) -> u64 {
        (self.block - position % self.block).min(self.len - position)
    }

    /// The distance of neighbouring indices, if it is constant.
    pub fn step(&self) -> Option<u64> {
        match self.block {
            block if block >= self.len => Some(1),
            1 => Some(self.stride),
            _ => None,
        }
    }

    /// The end of the last index.
    fn end(&self) -> u64 {
        match self.len.checked_sub(1) {
            Some(last) => self.at(last).saturating_add(1),
            None => 0,
        }
    }
}

/// The elements of a selection in a dataset of these dimensions. An unlimited selection ends at the edge of the
/// dataset. Any other selection fails where it goes past the edge.
pub fn walk(picked: &Picked, dims: &[u64]) -> Result<Walk> {
    let other_rank = |rank: usize| -> Fault {
        format!("a selection of rank {rank} in {dims:?} elements").into()
    };
    let past = || Fault::from(format!("a selection that goes past {dims:?} elements"));
    match picked {
        Picked::Nothing => Ok(Walk::Blocks(Vec::new())),
        Picked::All => Ok(Walk::Grid(
            dims.iter().map(|side| Indices::below_side(*side)).collect(),
        )),
        Picked::Regular(steps) => {
            if steps.len() != dims.len() {
                return Err(other_rank(steps.len()));
            }
            let along = steps.iter().zip(dims).map(|(steps, side)| {
                let found = Indices::of(*steps, *side);
                let is_whole =
                    steps.has_no_end() || steps.count.checked_mul(steps.block) == Some(found.len);
                if is_whole { Ok(found) } else { Err(past()) }
            });
            Ok(Walk::Grid(along.collect::<Result<_>>()?))
        }
        Picked::Blocks(blocks) => {
            let blocks = blocks.iter().map(|(first, last)| {
                if first.len() != dims.len() {
                    return Err(other_rank(first.len()));
                }
                if last.iter().zip(dims).any(|(last, side)| last >= side) {
                    return Err(past());
                }
                Ok(Bounds {
                    start: first.clone(),
                    end: last.iter().map(|last| last + 1).collect(),
                })
            });
            Ok(Walk::Blocks(blocks.collect::<Result<_>>()?))
        }
    }
}

impl Walk {
    /// The first `slices` slices of an unlimited selection.
    pub fn of_slices(steps: &[Steps], slices: u64) -> Self {
        let along = steps.iter().map(|steps| {
            let mut found = Indices::of(*steps, u64::MAX);
            if steps.has_no_end() {
                found.len = slices;
            }
            found
        });
        Walk::Grid(along.collect())
    }

    /// Number of elements. Fails on overflow.
    pub fn len(&self) -> Result<u64> {
        let counted = match self {
            Walk::Grid(along) => along.iter().try_fold(1u64, |n, one| n.checked_mul(one.len)),
            Walk::Blocks(blocks) => blocks.iter().try_fold(0u64, |sum, block| {
                let len = block.count().try_fold(1u64, u64::checked_mul)?;
                sum.checked_add(len)
            }),
        };
        Ok(counted.ok_or("a selection of more elements than can be counted")?)
    }

    /// The smallest box that contains all elements; `None` if there are none.
    pub fn bounds(&self) -> Option<Bounds> {
        match self {
            Walk::Grid(along) => {
                if along.iter().any(|one| one.len == 0) {
                    return None;
                }
                Some(Bounds {
                    start: along.iter().map(|one| one.at(0)).collect(),
                    end: along.iter().map(Indices::end).collect(),
                })
            }
            Walk::Blocks(blocks) => {
                let mut blocks = blocks.iter();
                let first = blocks.next()?.clone();
                Some(blocks.fold(first, |mut all, block| {
                    for d in 0..all.start.len() {
                        all.start[d] = all.start[d].min(block.start[d]);
                        all.end[d] = all.end[d].max(block.end[d]);
                    }
                    all
                }))
            }
        }
    }

    /// The number of a selected element.
    pub fn number(&self, element: &[u64]) -> u64 {
        match self {
            Walk::Grid(along) => along
                .iter()
                .zip(element)
                .fold(0, |n, (one, at)| n * one.len + one.before(*at)),
            Walk::Blocks(blocks) => {
                let before = blocks.iter().map(|block| before_in(block, element));
                before.sum()
            }
        }
    }

    /// The element with a number, and the number of selected elements that follow it in its row.
    pub fn element(&self, number: u64) -> (Vec<u64>, u64) {
        match self {
            Walk::Grid(along) => {
                let (mut rest, mut positions) = (number, vec![0; along.len()]);
                for (position, one) in positions.iter_mut().zip(along).rev() {
                    *position = rest % one.len;
                    rest /= one.len;
                }
                let run = along.last().zip(positions.last());
                let run = run.map_or(1, |(one, position)| one.run(*position));
                let element = along.iter().zip(&positions).map(|(one, at)| one.at(*at));
                (element.collect(), run)
            }
            Walk::Blocks(blocks) => {
                let rank = blocks.first().map_or(0, Bounds::rank);
                let mut element = vec![0; rank];
                for d in 0..rank {
                    // Binary search for the last index along this dimension with no more than `number` elements
                    // before it.
                    let (mut low, mut high) = (
                        0,
                        blocks.iter().map(|block| block.end[d]).max().unwrap_or(0),
                    );
                    while low < high {
                        let middle = low + (high - low).div_ceil(2);
                        element[d] = middle;
                        if self.number(&element) <= number {
                            low = middle;
                        } else {
                            high = middle - 1;
                        }
                    }
                    element[d] = low;
                }
                let has = |block: &&Bounds| {
                    let mut along = element.iter().zip(&block.start).zip(&block.end);
                    along.all(|((at, start), end)| (start..end).contains(&at))
                };
                let block = blocks.iter().find(has);
                let run = block.and_then(|block| Some(block.end.last()? - element.last()?));
                (element, run.unwrap_or(1))
            }
        }
    }

    /// Passes on the rows of the elements that lie in a box: the first element, and the length of the run.
    pub fn each_row(
        &self,
        wanted: &Bounds,
        see: &mut dyn FnMut(&[u64], u64) -> Result<()>,
    ) -> Result<()> {
        match self {
            Walk::Grid(along) => {
                let ranges = along.iter().zip(&wanted.start).zip(&wanted.end);
                let ranges =
                    ranges.map(|((one, start), end)| (one.before(*start), one.before(*end)));
                let ranges: Vec<(u64, u64)> = ranges.collect();
                if ranges.iter().any(|(first, end)| first >= end) {
                    return Ok(());
                }
                rows_of_grid(along, &ranges, see)
            }
            Walk::Blocks(blocks) => {
                for part in blocks.iter().filter_map(|block| block.intersection(wanted)) {
                    let sides = part.count().map(Indices::below_side);
                    let sides: Vec<Indices> = sides.collect();
                    let ranges: Vec<(u64, u64)> = sides.iter().map(|side| (0, side.len)).collect();
                    rows_of_grid(&sides, &ranges, &mut |at, len| {
                        let at = at.iter().zip(&part.start).map(|(at, start)| at + start);
                        see(&at.collect::<Vec<_>>(), len)
                    })?;
                }
                Ok(())
            }
        }
    }
}

/// Passes on the rows of the elements at these positions.
fn rows_of_grid(
    along: &[Indices],
    ranges: &[(u64, u64)],
    see: &mut dyn FnMut(&[u64], u64) -> Result<()>,
) -> Result<()> {
    let Some(last) = along.len().checked_sub(1) else {
        return see(&[], 1);
    };
    let mut positions: Vec<u64> = ranges.iter().map(|(first, _)| *first).collect();
    loop {
        let element = |positions: &[u64]| -> Vec<u64> {
            along
                .iter()
                .zip(positions)
                .map(|(one, at)| one.at(*at))
                .collect()
        };
        while positions[last] < ranges[last].1 {
            let left = ranges[last].1 - positions[last];
            let run = along[last].run(positions[last]).min(left);
            see(&element(&positions), run)?;
            positions[last] += run;
        }
        positions[last] = ranges[last].0;
        let Some(d) = (0..last).rev().find(|d| positions[*d] + 1 < ranges[*d].1) else {
            return Ok(());
        };
        positions[d] += 1;
        for behind in d + 1..last {
            positions[behind] = ranges[behind].0;
        }
    }
}

/// Number of elements of a block that precede an element in row-major order.
fn before_in(block: &Bounds, element: &[u64]) -> u64 {
    let mut row: u64 = block.count().product();
    let mut before = 0;
    for ((start, end), at) in block.start.iter().zip(&block.end).zip(element) {
        row /= end - start;
        if at >= end {
            return before + (end - start) * row;
        }
        let Some(behind) = at.checked_sub(*start) else {
            return before;
        };
        before += behind * row;
    }
    before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps() -> impl Strategy<Value = Steps> {
        (0u64..4, 1u64..5, 1u64..4, 0u64..3).prop_map(|(start, count, block, gap)| Steps {
            start,
            stride: block + gap,
            count,
            block,
        })
    }

    /// A selection in two or three dimensions, and the sides of its dataset.
    fn selection() -> impl Strategy<Value = (Picked, Vec<u64>)> {
        let regular = prop::collection::vec((steps(), 0u64..3), 1..4).prop_map(|along| {
            let side = |(steps, more): &(Steps, u64)| {
                steps.start + (steps.count - 1) * steps.stride + steps.block + more
            };
            let dims = along.iter().map(side).collect();
            (
                Picked::Regular(along.into_iter().map(|(steps, _)| steps).collect()),
                dims,
            )
        });
        // Blocks of a grid, which do not overlap.
        let blocks = prop::collection::btree_set((0u64..3, 0u64..3), 0..6).prop_map(|places| {
            let block = |(y, x): (u64, u64)| (vec![y * 4, x * 5], vec![y * 4 + y, x * 5 + 1 + x]);
            (
                Picked::Blocks(places.into_iter().map(block).collect()),
                vec![12, 16],
            )
        });
        prop_oneof![2 => regular, 1 => blocks]
    }

    /// All elements in row-major order.
    fn all(picked: &Picked, dims: &[u64]) -> Vec<Vec<u64>> {
        let mut at = vec![0; dims.len()];
        let mut found = Vec::new();
        loop {
            let has = match picked {
                Picked::Regular(along) => along.iter().zip(&at).all(|(steps, at)| {
                    (0..steps.count).any(|number| {
                        let start = steps.start + number * steps.stride;
                        (start..start + steps.block).contains(at)
                    })
                }),
                Picked::Blocks(blocks) => blocks.iter().any(|(first, last)| {
                    let mut along = at.iter().zip(first).zip(last);
                    along.all(|((at, first), last)| (first..=last).contains(&at))
                }),
                _ => true,
            };
            if has {
                found.push(at.clone());
            }
            if !h5logfs_log::boxes::rows::next(&mut at, dims) {
                return found;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn elements_and_numbers_belong_together((picked, dims) in selection(), corner in any::<[u64; 6]>()) {
            let (walk, wanted) = (walk(&picked, &dims).unwrap(), all(&picked, &dims));
            prop_assert_eq!(walk.len().unwrap(), wanted.len() as u64);
            for (number, element) in (0..).zip(&wanted) {
                prop_assert_eq!(walk.number(element), number);
                let (found, run) = walk.element(number);
                prop_assert_eq!(&found, element);
                for behind in 1..run {
                    let mut next = element.clone();
                    *next.last_mut().unwrap() += behind;
                    prop_assert_eq!(&wanted[(number + behind) as usize], &next);
                }
            }
            let start: Vec<u64> = dims.iter().zip(corner).map(|(side, at)| at % side).collect();
            let ends = dims.iter().zip(&start).zip(&corner[3..]);
            let end = ends.map(|((side, start), more)| start + 1 + more % (side - start)).collect();
            let part = Bounds { start, end };
            let mut rows = Vec::new();
            walk.each_row(&part, &mut |first, len| {
                for behind in 0..len {
                    let mut element = first.to_vec();
                    *element.last_mut().unwrap() += behind;
                    rows.push(element);
                }
                Ok(())
            }).unwrap();
            rows.sort();
            let is_in = |element: &&Vec<u64>| {
                let mut along = element.iter().zip(&part.start).zip(&part.end);
                along.all(|((at, start), end)| (start..end).contains(&at))
            };
            let expected: Vec<Vec<u64>> = wanted.iter().filter(is_in).cloned().collect();
            prop_assert_eq!(rows, expected);
        }
    }

    #[test]
    fn what_goes_on_for_ever_ends_with_its_dataset() {
        let for_ever = |count, block| Steps {
            start: 2,
            stride: 3,
            count,
            block,
        };
        let len = |steps, side| {
            let found = walk(&Picked::Regular(vec![steps]), &[side]);
            found.and_then(|walk| walk.len())
        };
        for (side, count) in [(0, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 3), (100, 66)] {
            assert_eq!(len(for_ever(UNLIMITED, 2), side), Ok(count), "{side}");
        }
        assert_eq!(len(for_ever(1, UNLIMITED), 10), Ok(8));
        assert!(len(for_ever(2, 2), 6).is_err());
        let slices = Walk::of_slices(&[for_ever(UNLIMITED, 2)], 5);
        assert_eq!(slices.bounds().unwrap().end, [9]);
        assert_eq!(slices.element(4), (vec![8], 1));
    }
}
