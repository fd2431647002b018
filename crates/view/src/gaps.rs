//! Gaps of a dataset: indices along a dimension where elements were not written.

use std::ops::{ControlFlow, Range};

use super::resolve::{ElementCount, Part, Run};
use super::{ChunkId, View};
use crate::index::DatasetIndex;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::boxes::Bounds;

/// Neighbouring indices of one dimension. At each of them, records wrote the same number of elements, but not all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The indices along the dimension.
    pub indices: Range<u64>,
    /// Number of elements that were written at each index, and can be read.
    pub written: u64,
    /// Number of elements that were written at each index, and are lost.
    pub lost: u64,
}

/// A callback that gets the gaps in ascending order, until it breaks off.
type See<'a> = dyn FnMut(Gap) -> ControlFlow<()> + 'a;

/// The search behind [`Inspection::gaps`](super::Inspection::gaps).
pub(super) fn find(
    view: &View,
    number: usize,
    dimension: usize,
    see: &mut dyn FnMut(Gap) -> ControlFlow<()>,
) -> Result<()> {
    let task = view.task(None);
    let index = view.indexes().of_dataset(&task, number)?;
    let across = view.grid(number).across(dimension);
    let mut last: Option<Gap> = None;
    let mut join = |gap: Gap| {
        if let Some(last) = &mut last
            && last.indices.end == gap.indices.start
            && (last.written, last.lost) == (gap.written, gap.lost)
        {
            last.indices.end = gap.indices.end;
            return ControlFlow::Continue(());
        }
        last.replace(gap)
            .map_or(ControlFlow::Continue(()), &mut *see)
    };
    let slabs = Slabs {
        view,
        task: &task,
        index: &index,
        number,
        dimension,
    };
    if slabs.walk(0..across, &mut join)?.is_continue() {
        let _ = last.map(see);
    }
    Ok(())
}

/// The chunks of a dataset in slabs across one dimension, each one chunk thick.
struct Slabs<'a> {
    view: &'a View,
    task: &'a Task,
    index: &'a DatasetIndex,
    number: usize,
    dimension: usize,
}

impl Slabs<'_> {
    /// Looks at the slabs of a range. Slabs that no record touches are passed over together, since there may be far too
    /// many to look at each.
    fn walk(&self, slabs: Range<u64>, see: &mut See<'_>) -> Result<ControlFlow<()>> {
        let Some(bounds) = self.bounds(&slabs) else {
            return Ok(ControlFlow::Continue(()));
        };
        if self.index.base_covers(&bounds) {
            return Ok(ControlFlow::Continue(()));
        }
        if !self.index.is_touched(&bounds) {
            let indices = bounds.start[self.dimension]..bounds.end[self.dimension];
            return Ok(see(Gap {
                indices,
                written: 0,
                lost: 0,
            }));
        }
        if slabs.end - slabs.start == 1 {
            return self.slab(&bounds, see);
        }
        let middle = slabs.start + (slabs.end - slabs.start) / 2;
        match self.walk(slabs.start..middle, see)? {
            ControlFlow::Continue(()) => self.walk(middle..slabs.end, see),
            stop => Ok(stop),
        }
    }

    /// The elements of these slabs; `None` where there are none.
    fn bounds(&self, slabs: &Range<u64>) -> Option<Bounds> {
        let grid = self.view.grid(self.number);
        let side = grid.chunk[self.dimension];
        let mut bounds = Bounds {
            start: vec![0; grid.dims.len()],
            end: grid.dims.clone(),
        };
        bounds.start[self.dimension] = slabs.start * side;
        let end = &mut bounds.end[self.dimension];
        *end = (slabs.end * side).min(*end);
        let is_empty = bounds.count().any(|side| side == 0);
        (!is_empty).then_some(bounds)
    }

    /// Counts the written elements at each index of one slab.
    fn slab(&self, slab: &Bounds, see: &mut See<'_>) -> Result<ControlFlow<()>> {
        let view = self.view;
        let grid = view.grid(self.number);
        let first = slab.start[self.dimension];
        let each = size_of::<ElementCount>() as u64;
        let bytes = (slab.end[self.dimension] - first).saturating_mul(each);
        let reserved = self.task.reserve(bytes);
        let _memory =
            reserved.map_err(|reason| view.bad_data(self.number, slab.to_string(), reason))?;
        let mut counts = vec![ElementCount::default(); bytes as usize / size_of::<ElementCount>()];
        let touched = |chunk: &Bounds| {
            slab.intersection(chunk)
                .is_some_and(|common| self.index.is_touched(&common))
        };
        for chunk in grid.matching(0, touched) {
            let id = ChunkId::new(self.number, chunk);
            let counted = self.chunk(id, &mut counts);
            counted.map_err(|fault| view.bad_chunk(id, fault))?;
        }
        let others = slab
            .count()
            .enumerate()
            .filter(|(d, _)| *d != self.dimension);
        let all = others.fold(1u64, |all, (_, side)| all.saturating_mul(side));
        let incomplete = (first..)
            .zip(counts)
            .filter(|(_, count)| count.written < all);
        for (index, ElementCount { written, lost }) in incomplete {
            let indices = index..index + 1;
            let gap = Gap {
                indices,
                written,
                lost,
            };
            if see(gap).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Adds the elements of a chunk to the counts of their indices.
    fn chunk(&self, id: ChunkId, counts: &mut [ElementCount]) -> Result<(), Fault> {
        self.task.check()?;
        let resolver = self.view.chunks().resolver(self.index, id);
        let bounds = &resolver.bounds;
        if let Some(part) = resolver.if_covered(|record, _| Part::of(record)) {
            let thick = bounds.end[self.dimension] - bounds.start[self.dimension];
            let each = bounds.count().product::<u64>() / thick;
            counts.iter_mut().for_each(|count| count.add(part, each));
            return Ok(());
        }
        let grid = &resolver.place.grid;
        let limit = self.view.budget.limits().cache_size;
        if grid.elements() > limit {
            return Err(format!("it has more elements than cache_size, {limit}").into());
        }
        let inner = grid.chunk[self.dimension + 1..].iter().product();
        let side = grid.chunk[self.dimension];
        let counted = resolver.runs(self.task, |record, _, run| {
            along(run, inner, side, |index, elements| {
                if let Some(count) = counts.get_mut(index as usize) {
                    count.add(Part::of(record), elements);
                }
            });
            Ok(())
        });
        counted.map(drop)
    }
}

/// Passes each index along a dimension to `see`, with the number of the run's elements there. The dimension has the
/// length `side` in the chunk, and a step along it is `inner` elements.
fn along(run: Run, inner: u64, side: u64, mut see: impl FnMut(u64, u64)) {
    let mut at = run.in_chunk;
    let end = at + run.len;
    while at < end {
        let row = at / inner;
        let next = end.min((row + 1) * inner);
        see(row % side, next - at);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_of_a_run_are_counted_at_their_indices(
            chunk in prop::collection::vec(1u64..5, 1..4),
            dimension in 0usize..4,
            (from, len) in (0u64..64, 0u64..64),
        ) {
            let elements: u64 = chunk.iter().product();
            let in_chunk = from % elements;
            let run = Run { in_record: 0, in_chunk, len: len.min(elements - in_chunk) };
            let dimension = dimension % chunk.len();
            let inner: u64 = chunk[dimension + 1..].iter().product();
            let side = chunk[dimension];
            let (mut found, mut wanted) = (vec![0; side as usize], vec![0; side as usize]);
            along(run, inner, side, |index, elements| found[index as usize] += elements);
            for element in in_chunk..in_chunk + run.len {
                wanted[(element / inner % side) as usize] += 1;
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
