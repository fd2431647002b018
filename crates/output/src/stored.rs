//! Splits writes into records. A write becomes one record, unless several are better for readers.

use std::borrow::Cow;

use crate::selection::Blocks;
use h5logfs_common::parallel;
use h5logfs_hdf5_format::filters::{self, Filter};

/// Largest record in bytes. The tools of the layout count its bytes in 32 bits.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// The most blocks of a record. This keeps entries below 2 GiB, even with 32 dimensions.
const MAX_RECORD_BLOCKS: usize = 1 << 20;

/// Bytes of chunks that each thread compresses at once. For fewer, a thread costs more than it saves.
const AT_ONCE: usize = 1 << 20;
const LEAST: usize = 64 << 10;

/// The stored form of a dataset's elements.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// Size of one element in the file, in bytes.
    pub element: u64,
    /// Chunk shape. A dataset without filters needs none.
    pub chunk: Option<&'a [u64]>,
    /// The filters of a chunk.
    pub filters: &'a [Filter],
}

/// A block of a dataset.
#[derive(Clone, Copy)]
struct Block<'a> {
    start: &'a [u64],
    count: &'a [u64],
}

/// The elements of a block, row-major.
#[derive(Clone, Copy)]
struct Elements<'a> {
    bytes: &'a [u8],
    /// Size of one element in bytes.
    size: usize,
}

/// Whether a write of `bytes` bytes becomes one record with the bytes as they are.
pub fn is_one_record(form: Form<'_>, blocks: &Blocks, bytes: u64) -> bool {
    form.filters.is_empty()
        && blocks.elements > 0
        && blocks.number <= MAX_RECORD_BLOCKS
        && bytes <= MAX_RECORD_BYTES
}

/// Calls `emit` with the blocks and the stored bytes of each record of a write, in order. `bytes` are the elements of all
/// blocks, without padding. `threads` threads compress chunks.
pub fn records<'d>(
    form: Form<'_>,
    threads: u32,
    blocks: &Blocks,
    bytes: Cow<'d, [u8]>,
    emit: &mut dyn FnMut(&Blocks, Cow<'d, [u8]>),
) {
    if blocks.elements == 0 {
        return;
    }
    if blocks.number > MAX_RECORD_BLOCKS {
        return records_in_groups(form, threads, blocks, &bytes, emit);
    }
    if is_one_record(form, blocks, bytes.len() as u64) {
        return emit(blocks, bytes);
    }
    if form.filters.is_empty() {
        return match bytes {
            Cow::Borrowed(bytes) => split_at_blocks(form, blocks, bytes, &mut |b, part| {
                emit(b, Cow::Borrowed(part));
            }),
            Cow::Owned(bytes) => split_at_blocks(form, blocks, &bytes, &mut |b, part| {
                emit(b, Cow::Owned(part.to_vec()));
            }),
        };
    }
    let mut filtered = Filtered {
        filters: form.filters,
        threads: threads as usize,
        waiting: Vec::new(),
        bytes: 0,
        emit,
    };
    let element = form.element;
    let chunk = form.chunk.unwrap_or_default();
    let chunk_bytes = chunk.iter().product::<u64>() * element;
    if bytes.len() as u64 <= chunk_bytes && (blocks.number > 1 || in_one_chunk(blocks, chunk)) {
        return filtered.store_one(blocks, &bytes);
    }
    // Each chunk becomes a record. A reader of one chunk need not inflate the whole write, and can pass on a record
    // that is exactly one chunk.
    let mut rest = &bytes[..];
    for number in 0..blocks.number {
        let block = Block::of(blocks, number);
        let (part, after) = rest.split_at((block.elements() * element) as usize);
        rest = after;
        let elements = Elements {
            bytes: part,
            size: element as usize,
        };
        split_at_chunks(chunk, block, elements, &mut |blocks, raw| {
            filtered.add(blocks, raw);
        });
    }
    filtered.store_all();
}

/// Compresses chunks, with several threads if enabled, and emits them in order.
struct Filtered<'f, 'e, 'd> {
    filters: &'f [Filter],
    threads: usize,
    waiting: Vec<Chunk>,
    /// Raw bytes of the waiting chunks.
    bytes: usize,
    emit: &'e mut dyn FnMut(&Blocks, Cow<'d, [u8]>),
}

/// The part of a write in one chunk.
struct Chunk {
    blocks: Blocks,
    /// Raw bytes, later stored bytes.
    bytes: Vec<u8>,
}

impl Filtered<'_, '_, '_> {
    fn add(&mut self, blocks: &Blocks, raw: &[u8]) {
        if self.threads <= 1 {
            return self.store_one(blocks, raw);
        }
        self.bytes += raw.len();
        self.waiting.push(Chunk {
            blocks: blocks.clone(),
            bytes: raw.to_vec(),
        });
        if self.waiting.len() >= self.threads && self.bytes >= self.threads * AT_ONCE {
            self.store_all();
        }
    }

    fn store_one(&mut self, blocks: &Blocks, raw: &[u8]) {
        (self.emit)(blocks, Cow::Owned(compressed(self.filters, raw)));
    }

    fn store_all(&mut self) {
        let threads = if self.bytes < LEAST { 1 } else { self.threads };
        parallel::fill(threads, &mut self.waiting, |_, chunks| {
            for chunk in chunks {
                chunk.bytes = compressed(self.filters, &chunk.bytes);
            }
        });
        self.bytes = 0;
        for chunk in self.waiting.drain(..) {
            (self.emit)(&chunk.blocks, Cow::Owned(chunk.bytes));
        }
    }
}

/// The stored form of raw bytes. Readers take stored bytes of the full size for raw ones.
fn compressed(filters: &[Filter], raw: &[u8]) -> Vec<u8> {
    match filters::compress(raw, filters) {
        Ok(stored) if stored.len() < raw.len() => stored,
        _ => raw.to_vec(),
    }
}

impl<'a> Block<'a> {
    fn of(blocks: &'a Blocks, number: usize) -> Self {
        Block {
            start: blocks.start(number),
            count: blocks.count(number),
        }
    }

    fn elements(&self) -> u64 {
        self.count.iter().product()
    }
}

/// The records of a write with very many blocks, group by group.
fn records_in_groups<'d>(
    form: Form<'_>,
    threads: u32,
    blocks: &Blocks,
    bytes: &[u8],
    emit: &mut dyn FnMut(&Blocks, Cow<'d, [u8]>),
) {
    let element = form.element as usize;
    let coordinates = MAX_RECORD_BLOCKS * blocks.rank;
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
            list: None,
        };
        let (part, after) = rest.split_at(elements as usize * element);
        records(form, threads, &group, Cow::Owned(part.to_vec()), emit);
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

/// Splits raw data into records that are not too large, of one or more blocks.
fn split_at_blocks<'b>(
    form: Form<'_>,
    blocks: &Blocks,
    bytes: &'b [u8],
    emit: &mut dyn FnMut(&Blocks, &'b [u8]),
) {
    let element = form.element;
    let mut rest = bytes;
    for number in 0..blocks.number {
        let block = Block::of(blocks, number);
        let (data, after) = rest.split_at((block.elements() * element) as usize);
        rest = after;
        split_at_rows(block, data, element, emit);
    }
}

/// Splits a block into parts that are contiguous in its data, as large as a record may be.
fn split_at_rows<'b>(
    block: Block<'_>,
    data: &'b [u8],
    element: u64,
    emit: &mut dyn FnMut(&Blocks, &'b [u8]),
) {
    let Block { start, count } = block;
    if data.len() as u64 <= MAX_RECORD_BYTES {
        return emit(&Blocks::one(start, count), data);
    }
    // Cut the first dimension with more than one row. A single element cannot be cut.
    let Some(d) = count.iter().position(|c| *c > 1) else {
        return emit(&Blocks::one(start, count), data);
    };
    let row = count[d + 1..].iter().product::<u64>() * element;
    let rows = (MAX_RECORD_BYTES / row).max(1);
    let (mut start, mut count, end) = (start.to_vec(), count.to_vec(), start[d] + count[d]);
    let mut rest = data;
    while start[d] < end {
        count[d] = rows.min(end - start[d]);
        let (part, after) = rest.split_at((count[d] * row) as usize);
        let block = Block {
            start: &start,
            count: &count,
        };
        split_at_rows(block, part, element, emit);
        rest = after;
        start[d] += count[d];
    }
}

/// Splits a block into its parts in the chunks that it touches.
fn split_at_chunks(
    chunk: &[u64],
    block: Block<'_>,
    elements: Elements<'_>,
    emit: &mut dyn FnMut(&Blocks, &[u8]),
) {
    let Block { start, count } = block;
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
        let inner = Block {
            start: &low,
            count: &size,
        };
        gather(inner, block, elements, &mut part);
        emit(&Blocks::one(&low, &size), &part);
        let Some(d) = (0..rank).rev().find(|d| cell[*d] < last[*d]) else {
            return;
        };
        cell[d] += 1;
        cell[d + 1..].copy_from_slice(&first[d + 1..]);
    }
}

/// Appends the elements of the block `inner`, row by row. `elements` are those of the enclosing block `outer`.
fn gather(inner: Block<'_>, outer: Block<'_>, elements: Elements<'_>, out: &mut Vec<u8>) {
    let Elements { bytes, size } = elements;
    let rank = inner.start.len();
    let Some(last) = rank.checked_sub(1) else {
        return out.extend_from_slice(bytes);
    };
    let row = inner.count[last] as usize * size;
    let mut at = vec![0; rank];
    loop {
        let index = (0..rank).fold(0, |index, d| {
            index * outer.count[d] + (inner.start[d] + at[d] - outer.start[d])
        });
        let from = index as usize * size;
        out.extend_from_slice(&bytes[from..from + row]);
        let Some(d) = (0..last).rev().find(|d| at[*d] + 1 < inner.count[*d]) else {
            return;
        };
        at[d] += 1;
        at[d + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_hdf5_format::filters::DEFLATE;

    fn form<'a>(chunk: &'a [u64], filters: &'a [Filter]) -> Form<'a> {
        Form {
            element: 2,
            chunk: Some(chunk),
            filters,
        }
    }

    fn deflate() -> Vec<Filter> {
        vec![Filter {
            id: DEFLATE,
            flags: 1,
            values: vec![6],
        }]
    }

    fn listed(form: Form<'_>, blocks: &Blocks, bytes: &[u8]) -> Vec<(Blocks, Vec<u8>)> {
        by_threads(form, 1, blocks, bytes)
    }

    fn by_threads(
        form: Form<'_>,
        threads: u32,
        blocks: &Blocks,
        bytes: &[u8],
    ) -> Vec<(Blocks, Vec<u8>)> {
        let mut found = Vec::new();
        records(
            form,
            threads,
            blocks,
            Cow::Borrowed(bytes),
            &mut |b, stored| {
                found.push((b.clone(), stored.into_owned()));
            },
        );
        found
    }

    #[test]
    fn filtered_blocks_are_cut_at_the_chunk_grid() {
        let deflate = deflate();
        let form = form(&[4, 4], &deflate);
        let block = Blocks::one(&[2, 3], &[5, 6]);
        let values: Vec<u16> = (0..30).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let found = listed(form, &block, &bytes);
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
        // The chunk is too small to deflate, so it is raw. Readers know by the size.
        let values: Vec<u8> = [1u16, 2, 3, 4, 7, 8, 9, 10]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        assert_eq!(found[1].1, values);
    }

    #[test]
    fn several_threads_store_the_same() {
        let deflate = deflate();
        let form = form(&[64, 64], &deflate);
        for (start, count) in [
            ([0, 0], [2000, 1100]),
            ([7, 3], [500, 70]),
            ([0, 1], [3, 70]),
        ] {
            let block = Blocks::one(&start, &count);
            let values = (0..block.elements).map(|i| (i * i / 700) as u16);
            let bytes: Vec<u8> = values.flat_map(|v| v.to_le_bytes()).collect();
            let alone = listed(form, &block, &bytes);
            assert!(alone.len() > 1);
            for threads in [0, 2, 3, 7] {
                assert_eq!(by_threads(form, threads, &block, &bytes), alone);
            }
        }
    }

    #[test]
    fn what_lies_in_one_chunk_or_is_small_stays_whole() {
        let zeros = [0; 2 * 64];
        let stays = |chunk: &[u64], blocks: &Blocks| {
            let bytes = &zeros[..2 * blocks.elements as usize];
            listed(form(chunk, &deflate()), blocks, bytes).len() == 1
        };
        assert!(stays(&[8, 8], &Blocks::one(&[8, 0], &[8, 8])));
        assert!(!stays(&[8, 8], &Blocks::one(&[7, 0], &[8, 8])));
        let scattered = Blocks {
            rank: 2,
            number: 2,
            starts: vec![0, 0, 50, 50],
            counts: vec![1, 1, 1, 1],
            elements: 2,
            list: None,
        };
        assert!(stays(&[8, 8], &scattered));
    }
}
