//! A selection cut into parts, each of which is read at once.
//!
//! Along each dimension, a group is a run of neighbouring positions of the selection whose indices lie in one cell. A
//! part is one group per dimension, and is read as the box around its elements. Where chunks have filters, or
//! blocks an operator, cells are whole chunks, so that each chunk is decoded once. Cells have about [`PART`] or
//! [`LARGE_PART`] bytes.

use std::ops::Range;

use super::selection::Axis;
use h5logfs_log::boxes::Bounds;

/// Bytes of a part. It is large enough that the overhead of a part hardly counts, and small enough that parts keep
/// all threads busy and stay in their caches.
const PART: u64 = 1 << 20;

/// Bytes of a part where records are small and in no order. Every part then reads much of the log that the others
/// read, too.
const LARGE_PART: u64 = 32 << 20;

/// Unused bytes that are read rather than split a read in two.
pub(crate) const GAP: u64 = 16 << 10;

/// The properties of a dataset that determine the parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout<'a> {
    /// Extent of the dataset.
    pub dims: &'a [u64],
    /// Sides of a chunk, or of the extent where there are no chunks.
    pub chunk: &'a [u64],
    /// Whether any read of a chunk has to decode all of it.
    pub is_whole: bool,
    /// Whether most records are much smaller than a part.
    pub has_small_records: bool,
    /// Bytes of an element.
    pub element: u64,
}

/// Neighbouring positions of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// Positions in the selection, and so in the array.
    pub positions: Range<u64>,
    /// The smallest range that contains the indices of these positions. The indices ascend.
    pub indices: Range<u64>,
}

impl Group {
    /// Number of positions.
    pub fn len(&self) -> u64 {
        self.positions.end - self.positions.start
    }

    /// Whether every index of the range is selected.
    pub fn is_dense(&self) -> bool {
        self.indices.end - self.indices.start == self.len()
    }
}

/// The parts of a selection, numbered in the row-major order of their groups.
#[derive(Debug)]
pub(crate) struct Parts {
    groups: Vec<Vec<Group>>,
    len: u64,
}

/// A part: one group per dimension.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub groups: Vec<&'a Group>,
}

impl Parts {
    /// The parts of a selection that fits the dataset, for `threads` threads.
    pub fn new(layout: Layout<'_>, axes: &[Axis], threads: usize) -> Self {
        let sides = cell(layout, axes, part_size(layout, axes, threads));
        let mut groups: Vec<Vec<Group>> = Vec::with_capacity(axes.len());
        // Bytes between neighbours along a dimension, in boxes as wide as the selection's.
        let mut step = layout.element;
        for d in (0..axes.len()).rev() {
            let gap = if layout.is_whole {
                layout.chunk[d]
            } else {
                GAP / step.max(1)
            };
            let of_axis = grouped(&axes[d], sides[d], gap);
            let widest = of_axis
                .iter()
                .map(|g| g.indices.end - g.indices.start)
                .max();
            step = step.saturating_mul(widest.unwrap_or(1));
            groups.push(of_axis);
        }
        groups.reverse();
        let len = groups
            .iter()
            .fold(1u64, |n, g| n.saturating_mul(g.len() as u64));
        Parts { groups, len }
    }

    /// Number of parts.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The part with a number.
    pub fn part(&self, mut number: u64) -> Part<'_> {
        let mut groups = Vec::with_capacity(self.groups.len());
        for of_axis in self.groups.iter().rev() {
            let count = of_axis.len() as u64;
            groups.push(&of_axis[(number % count) as usize]);
            number /= count;
        }
        groups.reverse();
        Part { groups }
    }

    /// Whether each part is contiguous in the array, and the parts follow each other there.
    pub fn are_in_order(&self) -> bool {
        let Some(last) = self.groups.iter().rposition(|of_axis| of_axis.len() > 1) else {
            return true;
        };
        self.groups[..last]
            .iter()
            .flatten()
            .all(|group| group.len() == 1)
    }
}

impl Part<'_> {
    /// The box around the elements.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            start: self.groups.iter().map(|g| g.indices.start).collect(),
            end: self.groups.iter().map(|g| g.indices.end).collect(),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.groups.iter().map(|g| g.len()).product()
    }

    /// Whether every element of the box is selected.
    pub fn is_dense(&self) -> bool {
        self.groups.iter().all(|g| g.is_dense())
    }
}

/// Bytes of a part. Where parts are large, there are as many for each thread.
fn part_size(layout: Layout<'_>, axes: &[Axis], threads: usize) -> u64 {
    if layout.is_whole || !layout.has_small_records {
        return PART;
    }
    let sides = axes.iter().map(Axis::len);
    let all = sides.fold(layout.element, u64::saturating_mul);
    let shares = (threads as u64).max(1);
    let parts = all.div_ceil(LARGE_PART).checked_next_multiple_of(shares);
    (all / parts.unwrap_or(1).max(1)).clamp(PART, LARGE_PART)
}

/// Sides of a cell of about `part` bytes.
fn cell(layout: Layout<'_>, axes: &[Axis], part: u64) -> Vec<u64> {
    let mut sides = layout.chunk.to_vec();
    let bytes = |sides: &[u64]| {
        sides
            .iter()
            .fold(layout.element, |n, side| n.saturating_mul(*side))
    };
    // A chunk that must be decoded is never cut. Others are, along the first dimensions.
    if !layout.is_whole {
        for d in 0..sides.len() {
            let rest = bytes(&sides) / sides[d].max(1);
            let most = (part / rest.max(1)).max(1);
            sides[d] = sides[d].min(most);
        }
    }
    // Small chunks are read several at once, along the last dimensions first.
    for d in (0..sides.len()).rev() {
        // The selection limits the number of chunks along this dimension.
        let wanted = (axes[d].len()).min(layout.dims[d]).max(1);
        let most = (part / bytes(&sides).max(1)).max(1);
        let times = wanted.div_ceil(sides[d].max(1)).min(most);
        sides[d] = sides[d].saturating_mul(times);
        if times < wanted.div_ceil(layout.chunk[d].max(1)) {
            break;
        }
    }
    sides
}

/// The groups of an axis: positions with ascending indices, in one cell, with gaps of less than `gap` indices.
fn grouped(axis: &Axis, side: u64, gap: u64) -> Vec<Group> {
    match axis {
        Axis::Range { start, count, step } if *step <= gap.max(1) => {
            grouped_range(*start, *count, *step, side.max(1))
        }
        _ => grouped_one_by_one(axis, side.max(1), gap),
    }
}

fn grouped_range(start: u64, count: u64, step: u64, side: u64) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut position = 0;
    while position < count {
        let first = start + position * step;
        // The positions before the next cell.
        let next = (first / side + 1).saturating_mul(side);
        let here = (next - first).div_ceil(step).min(count - position);
        groups.push(Group {
            positions: position..position + here,
            indices: first..first + (here - 1) * step + 1,
        });
        position += here;
    }
    groups
}

fn grouped_one_by_one(axis: &Axis, side: u64, gap: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for position in 0..axis.len() {
        let index = axis.at(position);
        match groups.last_mut() {
            Some(last)
                if index >= last.indices.end
                    && index - last.indices.end < gap
                    && index / side == last.indices.start / side =>
            {
                last.positions.end += 1;
                last.indices.end = index + 1;
            }
            _ => groups.push(Group {
                positions: position..position + 1,
                indices: index..index + 1,
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axis() -> impl Strategy<Value = (u64, Axis)> {
        let range = (0u64..50, 1u64..40, 1u64..20).prop_map(|(start, count, step)| {
            (start + count * step, Axis::Range { start, count, step })
        });
        let list = prop::collection::vec(0u64..300, 1..40).prop_map(|list| (300, Axis::List(list)));
        prop_oneof![range, list]
    }

    proptest! {
        #[test]
        fn each_position_is_in_one_group_with_its_index(
            (_, axis) in axis(), side in 1u64..60, gap in 0u64..30,
        ) {
            let mut next = 0;
            for group in grouped(&axis, side, gap) {
                prop_assert_eq!(group.positions.start, next);
                next = group.positions.end;
                let indices: Vec<u64> = group.positions.clone().map(|p| axis.at(p)).collect();
                prop_assert!(indices.is_sorted());
                prop_assert_eq!(group.indices.clone(), indices[0]..indices[indices.len() - 1] + 1);
                prop_assert_eq!(indices[0] / side, indices[indices.len() - 1] / side);
            }
            prop_assert_eq!(next, axis.len());
        }

        #[test]
        fn parts_tile_the_array(axes in prop::collection::vec(axis(), 1..4), chunk in 1u64..50, filtered: bool, small: bool) {
            let dims: Vec<u64> = axes.iter().map(|(side, _)| *side).collect();
            let axes: Vec<Axis> = axes.into_iter().map(|(_, axis)| axis).collect();
            let chunk = vec![chunk; dims.len()];
            let layout = Layout { dims: &dims, chunk: &chunk, is_whole: filtered, has_small_records: small, element: 1 << 10 };
            let parts = Parts::new(layout, &axes, 2);
            let all: u64 = axes.iter().map(Axis::len).product();
            prop_assert_eq!((0..parts.len()).map(|n| parts.part(n).len()).sum::<u64>(), all);
            if parts.are_in_order() {
                let shape: Vec<u64> = axes.iter().map(Axis::len).collect();
                let mut next = 0;
                for number in 0..parts.len() {
                    let part = parts.part(number);
                    let at = part.groups.iter().zip(&shape).fold(0, |n, (g, s)| n * s + g.positions.start);
                    prop_assert_eq!(at, next);
                    next += part.len();
                }
            }
        }
    }

    #[test]
    fn parts_are_chunks_or_some_of_them() {
        let layout = |chunk, is_whole| Layout {
            dims: &[1000, 1000],
            chunk,
            is_whole,
            has_small_records: true,
            element: 8,
        };
        let all = [Axis::range(0, 1000), Axis::range(0, 1000)];
        // Rows of small chunks, up to 1 MiB.
        assert_eq!(cell(layout(&[10, 10], true), &all, PART), [130, 1000]);
        assert_eq!(cell(layout(&[1000, 1000], true), &all, PART), [1000, 1000]);
        assert_eq!(cell(layout(&[1000, 1000], false), &all, PART), [131, 1000]);
        assert_eq!(cell(layout(&[1000, 1], true), &all, PART), [1000, 131]);
        // The whole selection is less than one large part per thread.
        assert_eq!(part_size(layout(&[10, 10], false), &all, 1), 8_000_000);
        assert_eq!(part_size(layout(&[10, 10], false), &all, 2), 4_000_000);
        assert_eq!(part_size(layout(&[10, 10], false), &all, 8), PART);
        assert_eq!(part_size(layout(&[10, 10], true), &all, 1), PART);
        let one = [Axis::range(7, 1), Axis::range(0, 1000)];
        assert_eq!(cell(layout(&[10, 10], true), &one, PART), [10, 1000]);
    }
}
