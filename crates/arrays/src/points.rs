//! Single elements in any order. Points of one cell are read as one box, so a chunk is decoded once for all of them.

use super::parts::Layout;
use super::reading::{Reading, Source, Work};
use h5logfs_common::error::Result;
use h5logfs_common::fault::Shortage;
use h5logfs_log::boxes::Bounds;

/// Bytes of a row read at once for points in unfiltered chunks.
const ROW: u64 = 4 << 10;

/// Fills `out` with elements of a source of rank 1 or more. The points lie in the extent.
pub(crate) fn read(
    source: &impl Source,
    rank: usize,
    coordinates: &[u64],
    reading: Reading<'_>,
    out: &mut [u8],
) -> Result<()> {
    let layout = source.layout();
    let element = layout.element as usize;
    let cell = cell(layout);
    let point = |number: &usize| &coordinates[number * rank..(number + 1) * rank];
    let cell_of = |number: &usize| point(number).iter().zip(&cell).map(|(at, side)| at / side);
    let by_cell = |a: &usize, b: &usize| cell_of(a).cmp(cell_of(b));
    let task = source.task();
    let failed = |shortage: Shortage| source.failed(shortage.into());
    let mut reservation = task.reservation();
    let mut order: Vec<usize> = Vec::new();
    let count = coordinates.len() / rank;
    reservation.make_room(&mut order, count).map_err(failed)?;
    order.extend(0..count);
    if !order.is_sorted_by(|a, b| by_cell(a, b).is_le()) {
        order.sort_by(by_cell);
    }
    let mut sorted: Vec<u8> = reservation.filled(out.len()).map_err(failed)?;
    let boxes: Vec<&[usize]> = order.chunk_by(|a, b| by_cell(a, b).is_eq()).collect();
    let work = Work::new(source, reading);
    let len = |number: u64| (boxes[number as usize].len() * element) as u64;
    work.each_in_order(boxes.len() as u64, &mut sorted, len, |task, number, out| {
        let points = boxes[number as usize];
        let bounds = around(points.iter().map(point), rank);
        let sides: Vec<u64> = bounds.count().collect();
        work.with_box(task, &bounds, |all| {
            for (to, number) in out.chunks_exact_mut(element).zip(points) {
                let within = point(number).iter().zip(&bounds.start).zip(&sides);
                let at = within.fold(0, |n, ((at, start), side)| n * side + (at - start));
                let at = at as usize * element;
                to.copy_from_slice(&all[at..at + element]);
            }
        })
    })?;
    for (from, number) in sorted.chunks_exact(element).zip(&order) {
        out[number * element..(number + 1) * element].copy_from_slice(from);
    }
    Ok(())
}

/// Sides of the cells: a chunk that must be decoded, else a piece of a row.
fn cell(layout: Layout<'_>) -> Vec<u64> {
    if layout.is_whole {
        return layout.chunk.to_vec();
    }
    let mut sides = vec![1; layout.dims.len()];
    if let Some(last) = sides.last_mut() {
        *last = (ROW / layout.element).max(1);
    }
    sides
}

/// The smallest box that contains the points.
fn around<'a>(points: impl Iterator<Item = &'a [u64]>, rank: usize) -> Bounds {
    let mut bounds = Bounds {
        start: vec![u64::MAX; rank],
        end: vec![0; rank],
    };
    for point in points {
        let sides = bounds.start.iter_mut().zip(&mut bounds.end);
        for (at, (start, end)) in point.iter().zip(sides) {
            *start = (*start).min(*at);
            *end = (*end).max(at + 1);
        }
    }
    bounds
}
