//! What of a write becomes one record: all of it, unless readers are better served by several.

use std::borrow::Cow;

use super::selection::Blocks;
use h5logfs_core::filters;
use h5logfs_core::journal::definition::DatasetLayout;

/// Bytes of one record at most. The layout's own tools count them in 32 bits.
const RECORD: u64 = 1 << 30;

/// Blocks of one record at most: its entry has 2 GiB at most, at the largest rank too.
const BLOCKS: usize = 1 << 20;

/// Hands out the records of a write, in their order: blocks, and the bytes as they are stored.
/// `bytes`: of all blocks, in the file's form.
pub(super) fn records<'d>(
    layout: &DatasetLayout,
    blocks: &Blocks,
    bytes: Cow<'d, [u8]>,
    emit: &mut dyn FnMut(&Blocks, Cow<'d, [u8]>),
) {
    if blocks.elements == 0 {
        return;
    }
    if blocks.number > BLOCKS {
        return groups(layout, blocks, &bytes, emit);
    }
    if layout.filters.is_empty() {
        return match bytes {
            bytes if bytes.len() as u64 <= RECORD => emit(blocks, bytes),
            Cow::Borrowed(bytes) => split(layout, blocks, bytes, &mut |b, part| {
                emit(b, Cow::Borrowed(part));
            }),
            Cow::Owned(bytes) => split(layout, blocks, &bytes, &mut |b, part| {
                emit(b, Cow::Owned(part.to_vec()));
            }),
        };
    }
    let mut filtered = |blocks: &Blocks, raw: &[u8]| {
        // Equal sizes mean raw bytes to a reader, and so do bytes that do not get fewer.
        let stored = match filters::compress(raw, &layout.filters) {
            Ok(stored) if stored.len() < raw.len() => stored,
            _ => raw.to_vec(),
        };
        emit(blocks, Cow::Owned(stored));
    };
    let element = u64::from(layout.datatype.size());
    let chunk = layout.chunk.as_deref().unwrap_or_default();
    let chunk_bytes = chunk.iter().product::<u64>() * element;
    if bytes.len() as u64 <= chunk_bytes && (blocks.number > 1 || in_one_chunk(blocks, chunk)) {
        return filtered(blocks, &bytes);
    }
    // Who reads one chunk shall not have to inflate all that was written at once; and what is a chunk
    // as it lies can be handed on as it lies.
    let mut at = 0;
    for block in 0..blocks.number {
        let (start, count) = (blocks.start(block), blocks.count(block));
        let len = (count.iter().product::<u64>() * element) as usize;
        let data = &bytes[at..at + len];
        by_chunk(
            chunk,
            (start, count),
            (data, element as usize),
            &mut filtered,
        );
        at += len;
    }
}

/// The records of very many blocks, some of them at a time.
fn groups<'d>(
    layout: &DatasetLayout,
    blocks: &Blocks,
    bytes: &[u8],
    emit: &mut dyn FnMut(&Blocks, Cow<'d, [u8]>),
) {
    let element = layout.datatype.size() as usize;
    let coordinates = BLOCKS * blocks.rank;
    let starts = blocks.starts.chunks(coordinates);
    let mut rest = bytes;
    for (starts, counts) in starts.zip(blocks.counts.chunks(coordinates)) {
        let elements = counts
            .chunks_exact(blocks.rank)
            .map(|count| count.iter().product::<u64>())
            .sum::<u64>();
        let group = Blocks {
            rank: blocks.rank,
            number: starts.len() / blocks.rank,
            starts: starts.to_vec(),
            counts: counts.to_vec(),
            elements,
        };
        let (part, after) = rest.split_at(elements as usize * element);
        records(layout, &group, Cow::Owned(part.to_vec()), emit);
        rest = after;
    }
}

fn in_one_chunk(blocks: &Blocks, chunk: &[u64]) -> bool {
    let ends = blocks
        .starts
        .iter()
        .zip(&blocks.counts)
        .map(|(s, c)| s + c - 1);
    let mut places = blocks.starts.iter().zip(ends).zip(chunk);
    places.all(|((start, end), side)| start / side == end / side)
}

/// Cuts raw blocks into records that are not too large: block by block, then into rows.
fn split<'b>(
    layout: &DatasetLayout,
    blocks: &Blocks,
    bytes: &'b [u8],
    emit: &mut dyn FnMut(&Blocks, &'b [u8]),
) {
    let element = u64::from(layout.datatype.size());
    let mut rest = bytes;
    for block in 0..blocks.number {
        let (start, count) = (blocks.start(block), blocks.count(block));
        let len = (count.iter().product::<u64>() * element) as usize;
        let (data, after) = rest.split_at(len);
        rest = after;
        by_rows((start, count), data, element, emit);
    }
}

/// Parts of a block that are contiguous in its data, as large as they may be.
fn by_rows<'b>(
    (start, count): (&[u64], &[u64]),
    data: &'b [u8],
    element: u64,
    emit: &mut dyn FnMut(&Blocks, &'b [u8]),
) {
    if data.len() as u64 <= RECORD {
        return emit(&Blocks::one(start, count), data);
    }
    // The first dimension with more than one row is cut. An element is smaller than a record, but
    // for one that could not be cut at all.
    let Some(d) = count.iter().position(|c| *c > 1) else {
        return emit(&Blocks::one(start, count), data);
    };
    let row = count[d + 1..].iter().product::<u64>() * element;
    let rows = (RECORD / row).max(1);
    let (mut start, mut count, end) = (start.to_vec(), count.to_vec(), start[d] + count[d]);
    let mut rest = data;
    while start[d] < end {
        count[d] = rows.min(end - start[d]);
        let (part, after) = rest.split_at((count[d] * row) as usize);
        by_rows((&start, &count), part, element, emit);
        rest = after;
        start[d] += count[d];
    }
}

/// The parts of a block in the chunks that it touches, each gathered from its data.
fn by_chunk(
    chunk: &[u64],
    (start, count): (&[u64], &[u64]),
    (data, element): (&[u8], usize),
    emit: &mut dyn FnMut(&Blocks, &[u8]),
) {
    let rank = start.len();
    let end: Vec<u64> = (0..rank).map(|d| start[d] + count[d]).collect();
    let first: Vec<u64> = (0..rank).map(|d| start[d] / chunk[d]).collect();
    let last: Vec<u64> = (0..rank).map(|d| (end[d] - 1) / chunk[d]).collect();
    let mut cell = first.clone();
    let mut part = Vec::new();
    loop {
        let low: Vec<u64> = (0..rank)
            .map(|d| start[d].max(cell[d] * chunk[d]))
            .collect();
        let size: Vec<u64> = (0..rank)
            .map(|d| end[d].min((cell[d] + 1) * chunk[d]) - low[d])
            .collect();
        part.clear();
        gather(&low, &size, (start, count), (data, element), &mut part);
        emit(&Blocks::one(&low, &size), &part);
        let Some(d) = (0..rank).rev().find(|d| cell[*d] < last[*d]) else {
            return;
        };
        cell[d] += 1;
        cell[d + 1..].copy_from_slice(&first[d + 1..]);
    }
}

/// Appends the elements of a box, row by row, from the data of the block around it.
fn gather(
    low: &[u64],
    size: &[u64],
    (start, count): (&[u64], &[u64]),
    (data, element): (&[u8], usize),
    out: &mut Vec<u8>,
) {
    let rank = low.len();
    let Some(last) = rank.checked_sub(1) else {
        return out.extend_from_slice(data);
    };
    let row = size[last] as usize * element;
    let mut at = vec![0; rank];
    loop {
        let place = (0..rank).fold(0, |place, d| place * count[d] + (low[d] + at[d] - start[d]));
        let from = place as usize * element;
        out.extend_from_slice(&data[from..from + row]);
        let Some(d) = (0..last).rev().find(|d| at[*d] + 1 < size[*d]) else {
            return;
        };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_core::journal::datatype::Datatype;
    use h5logfs_core::snapshot::{DEFLATE, Filter};

    fn layout(chunk: &[u64], filters: Vec<Filter>) -> DatasetLayout {
        DatasetLayout {
            datatype: Datatype::integer(2, false),
            dims: vec![100; chunk.len()],
            max_dims: vec![Some(100); chunk.len()],
            chunk: Some(chunk.to_vec()),
            filters,
            fill: Vec::new(),
        }
    }

    fn deflate() -> Vec<Filter> {
        vec![Filter {
            id: DEFLATE,
            flags: 1,
            values: vec![6],
        }]
    }

    fn listed(layout: &DatasetLayout, blocks: &Blocks, bytes: &[u8]) -> Vec<(Blocks, Vec<u8>)> {
        let mut found = Vec::new();
        records(layout, blocks, Cow::Borrowed(bytes), &mut |b, stored| {
            found.push((b.clone(), stored.into_owned()));
        });
        found
    }

    #[test]
    fn filtered_blocks_are_cut_at_the_chunk_grid() {
        let layout = layout(&[4, 4], deflate());
        let block = Blocks::one(&[2, 3], &[5, 6]);
        let values: Vec<u16> = (0..30).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let found = listed(&layout, &block, &bytes);
        let boxes: Vec<_> = found
            .iter()
            .map(|(b, _)| (&b.starts[..], &b.counts[..]))
            .collect();
        let wanted: [(&[u64], &[u64]); 6] = [
            (&[2, 3], &[2, 1]),
            (&[2, 4], &[2, 4]),
            (&[2, 8], &[2, 1]),
            (&[4, 3], &[3, 1]),
            (&[4, 4], &[3, 4]),
            (&[4, 8], &[3, 1]),
        ];
        assert_eq!(boxes, wanted);
        // Too small to deflate: raw, which readers know by the size.
        let values: Vec<u8> = [1u16, 2, 3, 4, 7, 8, 9, 10]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        assert_eq!(found[1].1, values);
    }

    #[test]
    fn what_lies_in_one_chunk_or_is_small_stays_whole() {
        let zeros = [0; 2 * 64];
        let stays = |chunk: &[u64], blocks: &Blocks| {
            let bytes = &zeros[..2 * blocks.elements as usize];
            listed(&layout(chunk, deflate()), blocks, bytes).len() == 1
        };
        assert!(stays(&[8, 8], &Blocks::one(&[8, 0], &[8, 8])));
        assert!(!stays(&[8, 8], &Blocks::one(&[7, 0], &[8, 8])));
        let scattered = Blocks {
            rank: 2,
            number: 2,
            starts: vec![0, 0, 50, 50],
            counts: vec![1, 1, 1, 1],
            elements: 2,
        };
        assert!(stays(&[8, 8], &scattered));
    }
}
