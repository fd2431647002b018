//! The plan for the chunks of a log: which of them stay in place, and which are appended.
//!
//! A chunk stays in place if the log has its bytes in one piece, in the form that the file needs, and no other chunk
//! uses any of them, because libhdf5 writes a chunk back to its place. For the same reason a chunk that crosses the
//! edge of its dataset does not stay: the bytes after its last element belong to something else.

use std::ops::Range;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Shortage;
use h5logfs_common::memory::Reservation;
use h5logfs_hdf5_format::SUPERBLOCK;
use h5logfs_hdf5_format::filters;
use h5logfs_log::snapshot::{Content, Storage};
use h5logfs_view::{ChunkReference, Form, View};

use h5logfs_hdf5_format::btree::{StoredChunk, StoredIndex};

/// The address of a chunk that is not appended yet.
const NONE_YET: u64 = u64::MAX;

/// The plan for the chunks of all datasets.
#[derive(Debug)]
pub struct Plan {
    /// One plan per dataset, in the order of the view.
    pub datasets: Vec<DatasetPlan>,
    /// The reservation of the lists' memory.
    _reservation: Reservation,
}

/// The plan for the chunks of one dataset. Unwritten chunks are not stored.
#[derive(Debug)]
pub struct DatasetPlan {
    /// The chunks in ascending order.
    pub(super) chunks: Vec<StoredChunk>,
    /// Number of chunks that stay in place.
    pub in_place: u64,
    /// Number of chunks that are appended.
    pub appended: u64,
    /// Upper bound of the appended chunks' bytes: their compressed size is known only afterwards.
    pub appended_bytes: u64,
    /// Bytes of the chunk index.
    pub index_bytes: u64,
}

impl DatasetPlan {
    /// The chunks to append. Appending gives them addresses.
    pub(super) fn missing(&mut self) -> impl Iterator<Item = &mut StoredChunk> {
        let chunks = self.chunks.iter_mut();
        chunks.filter(|chunk| chunk.address == NONE_YET)
    }
}

/// The bytes of a chunk in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    start: u64,
    end: u64,
    dataset: u32,
    /// Index of the chunk in the dataset's plan.
    chunk: u32,
}

impl Plan {
    /// Examines all chunks of a log that is a single file. Fails where some elements cannot be read, as far as this
    /// is known without reading them.
    pub fn new(view: &View) -> Result<Self> {
        let no_memory = |shortage: Shortage| Error::of(view.path(), shortage);
        let task = view.budget().task(None);
        let mut reservation = task.reservation();
        let mut pieces = Vec::new();
        let count = view.snapshot().datasets.len();
        let mut datasets = Vec::new();
        reservation
            .make_room(&mut datasets, count)
            .map_err(no_memory)?;
        for number in 0..count {
            let chunks = chunks(view, number, &mut reservation, &mut pieces)?;
            datasets.push(DatasetPlan {
                chunks,
                in_place: 0,
                appended: 0,
                appended_bytes: 0,
                index_bytes: 0,
            });
        }
        let superblock_end = view.snapshot().user_block + SUPERBLOCK as u64;
        for loser in shared(&mut pieces, superblock_end) {
            let chunk = &mut datasets[loser.dataset as usize].chunks[loser.chunk as usize];
            chunk.address = NONE_YET;
        }
        for (number, dataset) in datasets.iter_mut().enumerate() {
            count_up(view, number, dataset)?;
        }
        view.references().check_sources()?;
        Ok(Plan {
            datasets,
            _reservation: reservation,
        })
    }

    /// Number of chunks that stay in place.
    pub fn in_place(&self) -> u64 {
        self.datasets.iter().map(|dataset| dataset.in_place).sum()
    }

    /// Number of chunks that are appended.
    pub fn appended(&self) -> u64 {
        self.datasets.iter().map(|dataset| dataset.appended).sum()
    }

    /// Upper bound of the bytes of appended chunks and chunk indexes.
    pub fn bytes(&self) -> u64 {
        let of = |dataset: &DatasetPlan| dataset.appended_bytes + dataset.index_bytes;
        self.datasets.iter().map(of).sum()
    }
}

/// The written chunks of a dataset, each with its place in the log if it may stay there. Adds these places to
/// `pieces`.
fn chunks(
    view: &View,
    number: usize,
    reservation: &mut Reservation,
    pieces: &mut Vec<Piece>,
) -> Result<Vec<StoredChunk>> {
    let no_memory = |shortage: Shortage| Error::of(view.path(), shortage);
    let dataset = &view.snapshot().datasets[number];
    let raw = chunk_bytes(view, number);
    let mut chunks = Vec::new();
    for placed in view.references().of(number)? {
        let (chunk, reference) = placed?;
        let place = reference.and_then(|found| usable(view, number, chunk, found));
        if let Some(range) = &place {
            let too_many = |_| Error::of(view.path(), "more than 2^32 chunks");
            let piece = Piece {
                start: range.start,
                end: range.end,
                dataset: u32::try_from(number).map_err(too_many)?,
                chunk: u32::try_from(chunks.len()).map_err(too_many)?,
            };
            reservation.push(pieces, piece).map_err(no_memory)?;
        }
        let size = place.as_ref().map_or(raw, |place| place.end - place.start);
        let user_block = view.snapshot().user_block;
        let stored = StoredChunk {
            number: chunk,
            address: place.map_or(NONE_YET, |place| place.start - user_block),
            // Only the index uses the size, and a dataset in one piece has no index.
            size: u32::try_from(size).unwrap_or(u32::MAX),
            filter_mask: filters::mask(&dataset.filters),
        };
        reservation.push(&mut chunks, stored).map_err(no_memory)?;
    }
    Ok(chunks)
}

/// The place of a chunk's bytes; `None` where the chunk itself rules out that they stay there.
fn usable(view: &View, number: usize, chunk: u64, found: ChunkReference) -> Option<Range<u64>> {
    let dataset = &view.snapshot().datasets[number];
    let is_as_needed = match found.form {
        Form::Elements => dataset.filters.is_empty() && is_whole(view, number, chunk),
        Form::Filtered => true,
        Form::Swapped | Form::Deflated => false,
    };
    let is_chunked = matches!(dataset.storage, Storage::Chunked(_));
    let has_size = !is_chunked || u32::try_from(found.len).is_ok();
    let end = found.offset.checked_add(found.len)?;
    let is_behind = found.offset >= view.snapshot().user_block;
    (is_as_needed && has_size && is_behind).then_some(found.offset..end)
}

/// Whether the chunk lies completely within the extent of the dataset.
fn is_whole(view: &View, number: usize, chunk: u64) -> bool {
    let grid = view.grid(number);
    grid.is_whole(&grid.bounds(chunk))
}

/// Bytes of an unfiltered chunk.
fn chunk_bytes(view: &View, number: usize) -> u64 {
    // The view has checked that this does not overflow.
    view.grid(number).elements() * view.snapshot().datasets[number].element_size
}

/// The pieces that overlap one that stays, or begin before `from`.
fn shared(pieces: &mut [Piece], from: u64) -> Vec<Piece> {
    pieces.sort_unstable();
    let mut end = from;
    let mut losers = Vec::new();
    for piece in pieces {
        if piece.start < end {
            losers.push(*piece);
        } else {
            end = piece.end;
        }
    }
    losers
}

/// Fills the counts of a dataset's plan. Fails where it cannot be stored.
fn count_up(view: &View, number: usize, plan: &mut DatasetPlan) -> Result<()> {
    let dataset = &view.snapshot().datasets[number];
    let refused = |reason: &str| {
        let reason = format!("dataset {}: {reason}", dataset.name);
        Err(Error::of(view.path(), reason))
    };
    plan.appended = plan.missing().count() as u64;
    plan.in_place = plan.chunks.len() as u64 - plan.appended;
    if plan.appended > 0 && matches!(dataset.content, Content::Extent { .. }) {
        return refused("it shares bytes with another dataset, so it cannot stay where it lies");
    }
    let raw = chunk_bytes(view, number);
    let most = match dataset.filters.as_slice() {
        [] => Some(raw),
        // Another compressor may expand incompressible bytes somewhat more than ours.
        filters => filters::stored_size(raw, filters).and_then(|n| n.checked_add(raw / 1024)),
    };
    let appended = most.and_then(|most| most.checked_mul(plan.appended));
    let index = match dataset.storage {
        Storage::Contiguous => Some(0),
        Storage::Chunked(_) => {
            let grid = view.grid(number);
            let origin = |chunk| grid.origin(chunk);
            let index = StoredIndex::new(&grid.chunk, dataset.element_size, &plan.chunks, origin);
            index.map(|index| index.len())
        }
    };
    match (appended, index) {
        (Some(appended), Some(index)) if appended.checked_add(index).is_some() => {
            (plan.appended_bytes, plan.index_bytes) = (appended, index);
            Ok(())
        }
        _ => refused("its chunks are more than a file can hold"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(chunk: u32, start: u64, end: u64) -> Piece {
        Piece {
            start,
            end,
            dataset: 0,
            chunk,
        }
    }

    #[test]
    fn pieces_beside_each_other_share_nothing() {
        let mut pieces = [piece(0, 200, 300), piece(1, 96, 200), piece(2, 300, 301)];
        assert_eq!(shared(&mut pieces, 96), []);
        assert_eq!(shared(&mut pieces, 97), [piece(1, 96, 200)]);
    }

    #[test]
    fn one_of_two_chunks_with_the_same_bytes_stays() {
        let mut pieces = [piece(0, 100, 200), piece(1, 100, 200), piece(2, 150, 250)];
        assert_eq!(
            shared(&mut pieces, 0),
            [piece(1, 100, 200), piece(2, 150, 250)]
        );
    }

    proptest! {
        #[test]
        fn no_two_pieces_that_stay_share_a_byte(
            ranges in prop::collection::vec((0u64..200, 1u64..20), 0..50),
            from in 0u64..100,
        ) {
            let number = |(n, (start, len)): (usize, (u64, u64))| piece(n as u32, start, start + len);
            let mut pieces: Vec<_> = ranges.into_iter().enumerate().map(number).collect();
            let losers = shared(&mut pieces, from);
            let mut used = vec![false; 300];
            for piece in pieces.iter().filter(|piece| !losers.contains(piece)) {
                prop_assert!(piece.start >= from);
                for byte in piece.start..piece.end {
                    prop_assert!(!std::mem::replace(&mut used[byte as usize], true));
                }
            }
            // No chunk loses its place without need.
            for loser in &losers {
                let touches = |byte: u64| byte < from || used[byte as usize];
                prop_assert!((loser.start..loser.end).any(touches));
            }
        }
    }
}
