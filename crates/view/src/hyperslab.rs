//! Hyperslabs of datasets, put together in the caller's memory, without a canonical file around them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::View;
use super::assemble::{copy_run, fill};
use super::map::Placement;
use super::pieces::{Pieces, read_elements};
use super::resolve::{BoxRecords, InPlace, Overlap};
use crate::grid::ChunkId;
use crate::index::saved::Strip;
use crate::index::{DatasetIndex, SMALL_BLOCK};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::boxes::{Bounds, Order};
use h5logfs_log::model::{Block, Encoding, Record, StoredBytes};
use h5logfs_log::snapshot::{Content, Dataset};

/// The elements of one dataset, for reads of boxes. Threads share them.
pub struct Hyperslabs<'a> {
    view: &'a View,
    number: usize,
    records: Records,
}

/// The records of a dataset.
enum Records {
    /// The dataset was not logged.
    None,
    /// Records in one index.
    All(Arc<DatasetIndex>),
    /// Records in the indexes of strips of this many rows.
    Strips(u64),
}

impl<'a> Hyperslabs<'a> {
    /// Opens the elements of dataset `number`. Fails where they cannot be read at all. The caller calls
    /// [`Indexes::keep`] after its read, or in parallel.
    pub(super) fn open(view: &'a View, task: &Task, number: usize) -> Result<Self> {
        let everywhere = |fault: Fault| view.bad_data(number, "all of it".into(), fault);
        let records = match &view.snapshot.datasets[number].content {
            Content::Unreadable(reason) => return Err(everywhere(reason.as_str().into())),
            Content::Extent { .. } => Records::None,
            Content::Logged { .. } => match view.indexes().strip_rows(number) {
                Some(rows) => Records::Strips(rows),
                None => {
                    let index = view.indexes().first(task, number)?;
                    index.check().map_err(everywhere)?;
                    Records::All(index)
                }
            },
        };
        Ok(Hyperslabs {
            view,
            number,
            records,
        })
    }
}

/// The time that small boxes of a dataset may take before they are read from chunks. In tests it is over with the first one.
const LONG_ON_BOXES: Duration = if cfg!(debug_assertions) {
    Duration::ZERO
} else {
    Duration::from_millis(50)
};

impl Hyperslabs<'_> {
    /// Whether the records are small. If they also lie in no order, each box reads all of the log that its neighbours
    /// read, too. Fewer boxes then read less.
    pub fn has_small_records(&self) -> bool {
        // Boxes of more rows than a strip read no less.
        let Records::All(index) = &self.records else {
            return false;
        };
        let dataset = &self.view.snapshot.datasets[self.number];
        let sides = dataset.dims.iter();
        let bytes = sides.fold(dataset.element_size, |n, side| n.saturating_mul(*side));
        bytes / SMALL_BLOCK < index.len() as u64 || index.is_scattered(bytes)
    }

    /// Whether records have to be decoded whole, whatever is read of them. The first one stands for all: a writer gives
    /// a dataset an operator, or none.
    pub fn has_encoded_records(&self) -> bool {
        let Records::All(index) = &self.records else {
            return false;
        };
        let dims = &self.view.snapshot.datasets[self.number].dims;
        let all = Bounds {
            start: vec![0; dims.len()],
            end: dims.clone(),
        };
        let first = index.visit(&all, Order::Any, |record| {
            ControlFlow::Break(matches!(
                record.stored.encoding,
                Encoding::Operator | Encoding::Part
            ))
        });
        first == ControlFlow::Break(true)
    }

    /// Fills `out` with the elements of a box, in row-major order and in the datatype of the file. `out` has the length
    /// of these elements, and may have any content after a failure. Fails where one of the elements cannot be read, and
    /// where the box lies outside the extent.
    ///
    /// Only data that other boxes need are cached: records that went through filters and lie partly in the box. Call
    /// this in [`Task::retry`].
    pub fn read(&self, task: &Task, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        let Hyperslabs { view, number, .. } = *self;
        let dataset = &view.snapshot.datasets[number];
        let failed = |fault: Fault| self.bad_box(wanted, fault);
        check(dataset, wanted, out).map_err(failed)?;
        let sides: Vec<u64> = wanted.count().collect();
        if sides.contains(&0) {
            return Ok(());
        }
        let _running = view.running(task);
        match (&self.records, &dataset.content) {
            (Records::All(index), _) => self.put(task, index, wanted, &sides, out),
            (Records::Strips(rows), _) => self.read_strips(task, *rows, wanted, out),
            (Records::None, Content::Extent { source, offset, .. }) => {
                let place = (*source, *offset);
                self.copy_of_extent(task, dataset, place, wanted, &sides, out)
                    .map_err(failed)?;
                view.check_unchanged([usize::from(*source)])
            }
            (Records::None, _) => Err(failed("it has no elements that can be read".into())),
        }
    }

    /// Fills `out` strip by strip. The elements of a strip follow each other in `out`.
    fn read_strips(&self, task: &Task, rows: u64, wanted: &Bounds, out: &mut [u8]) -> Result<()> {
        let Hyperslabs { view, number, .. } = *self;
        let mut part = wanted.clone();
        let all = wanted.end[0] - wanted.start[0];
        let row = out.len() / usize::try_from(all).unwrap_or(usize::MAX);
        let mut rest = out;
        while part.start[0] < wanted.end[0] {
            let strip = Strip::with(part.start[0], rows);
            part.end[0] = strip.end().min(wanted.end[0]);
            let own = (part.end[0] - part.start[0]) as usize * row;
            let (own, behind) = std::mem::take(&mut rest).split_at_mut(own);
            let index = view.indexes().of_strip(task, number, strip)?;
            let failed = |fault: Fault| self.bad_box(&part, fault);
            index.check().map_err(failed)?;
            let sides: Vec<u64> = part.count().collect();
            self.put(task, &index, &part, &sides, own)?;
            part.start[0] = part.end[0];
            rest = behind;
        }
        Ok(())
    }

    /// Copies a box of a dataset that was never logged and lies at an offset of a source.
    fn copy_of_extent(
        &self,
        task: &Task,
        dataset: &Dataset,
        (source, offset): (u16, u64),
        wanted: &Bounds,
        sides: &[u64],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let start = vec![0; dataset.dims.len()];
        let all = Block {
            start: &start,
            count: &dataset.dims,
            elements_before: 0,
        };
        let record = Record {
            start: &start,
            count: &dataset.dims,
            selection: None,
            has_lead: false,
            stored: StoredBytes {
                source,
                offset,
                len: 0,
                encoding: Encoding::Raw,
            },
            conversion: None,
            part: None,
            fault: None,
        };
        let mut pieces = Pieces::new(task, &self.view.sources, dataset.element_size);
        let mut added = Ok(());
        Overlap::new(sides, wanted).runs(&all, |run| {
            added = pieces.add(&record, run, out);
            added.is_ok()
        });
        added.and_then(|()| pieces.copy(out))
    }

    /// Puts a box of a logged dataset together: with one read where its elements follow each other in the log, or else
    /// as a chunk.
    fn put(
        &self,
        task: &Task,
        index: &DatasetIndex,
        wanted: &Bounds,
        sides: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        let dataset = &self.view.snapshot.datasets[self.number];
        let failed = |fault: Fault| self.bad_box(wanted, fault);
        let indexes = [index];
        let records = BoxRecords {
            indexes: &indexes,
            bounds: wanted,
            sides,
        };
        if let Some(elements) = in_place(dataset, &records) {
            let file = &self.view.sources[usize::from(elements.source)];
            let (at, conversion) = (elements.offset, elements.conversion);
            let read = read_elements(file, at, conversion, out, &mut Vec::new());
            read.map_err(|e| failed(e.into()))?;
            return file.check_unchanged();
        }
        let has_copies = self.is_scattered(dataset, index);
        if has_copies && self.put_from_copies(wanted, sides, out) {
            return Ok(());
        }
        let is_small = self.is_small(dataset, out.len());
        if is_small && self.is_better_from_chunks() {
            if self.put_from_chunks(task, wanted, sides, out) {
                return Ok(());
            }
            self.view.ahead().forget_boxes(self.number);
        }
        let begun = Instant::now();
        let decoded = |record: &Record<'_>| {
            self.view
                .chunks()
                .decoded(task, self.number, record, wanted)
        };
        let sources = self
            .view
            .chunks()
            .assembly(task, dataset, &decoded)
            .fill_box(&records, out);
        self.view.check_unchanged(sources.map_err(failed)?)?;
        if has_copies {
            self.keep_copies(task, dataset, wanted, out);
        }
        if is_small {
            self.view.ahead().on_boxes(self.number, begun.elapsed());
        }
        Ok(())
    }

    /// Whether chunks of the dataset are worth to be kept: small blocks lie in no order, so each box reads most of the log.
    fn is_scattered(&self, dataset: &Dataset, index: &DatasetIndex) -> bool {
        let grid = self.view.grid(self.number);
        let bytes = self.view.map.datasets[self.number]
            .raw
            .saturating_mul(grid.len());
        dataset.filters.is_empty() && grid.is_split_once() && index.is_scattered(bytes)
    }

    /// Puts a box together from copies of chunks. Returns whether all of them are there.
    fn put_from_copies(&self, wanted: &Bounds, sides: &[u64], out: &mut [u8]) -> bool {
        let (dataset, place) = self.view.dataset(self.number);
        let copies = self.view.budget.copies();
        let key = |number| (self.view.generation, ChunkId::new(self.number, number));
        let mut overlap = Overlap::new(sides, wanted);
        let is_there = |number| copies.contains(&key(number));
        place.grid.touched(wanted).all(is_there)
            && place.grid.touched(wanted).all(|number| {
                let copied = copies.with(&key(number), |chunk| {
                    copy_from_chunk(
                        chunk,
                        place,
                        number,
                        dataset.element_size,
                        &mut overlap,
                        out,
                    )
                });
                copied == Some(true)
            })
    }

    /// Keeps copies of the chunks in a box of whole rows.
    fn keep_copies(&self, task: &Task, dataset: &Dataset, wanted: &Bounds, out: &[u8]) {
        let place = &self.view.map.datasets[self.number];
        let (dims, chunk) = (&dataset.dims, &place.grid.chunk);
        let is_whole =
            |d: usize| wanted.start[d] == 0 && wanted.end[d] == dims[d] && chunk[d] == dims[d];
        let rows = wanted.count().next().unwrap_or(0) as usize;
        if rows == 0 || !(1..dims.len()).all(is_whole) {
            return;
        }
        let row = out.len() / rows;
        for number in place.grid.touched(wanted) {
            let own = place.grid.bounds(number);
            let first = own.start[0].checked_sub(wanted.start[0]);
            let bytes = first.and_then(|first| {
                let end = own.end[0] - wanted.start[0];
                out.get(first as usize * row..end as usize * row)
            });
            // The box may have a part of its first and of its last chunk.
            if let Some(bytes) = bytes {
                self.keep_chunk(task, dataset, ChunkId::new(self.number, number), bytes);
            }
        }
    }

    /// Keeps a copy of a chunk with these elements. The last chunk of a dataset may go past its edge.
    fn keep_chunk(&self, task: &Task, dataset: &Dataset, id: ChunkId, bytes: &[u8]) {
        let (budget, key) = (&self.view.budget, (self.view.generation, id));
        let raw = self.view.map.datasets[self.number].raw as usize;
        if bytes.len() == raw {
            budget.keep_copy(key, bytes);
            return;
        }
        let Ok(whole) = budget.scratch().chunk(task, raw) else {
            return;
        };
        let (mut whole, _reserved) = whole.into_parts();
        let (elements, padding) = whole.split_at_mut(bytes.len());
        elements.copy_from_slice(bytes);
        fill(padding, &dataset.fill);
        budget.keep_copy(key, &whole);
    }

    /// Whether a box of so many bytes is a small part of a chunk, in a dataset whose chunks all fit into the cache as they are.
    fn is_small(&self, dataset: &Dataset, bytes: usize) -> bool {
        let place = &self.view.map.datasets[self.number];
        let all = place.grid.len().checked_mul(place.raw);
        let most = self.view.budget.limits().cache_size / 2;
        dataset.filters.is_empty()
            && (bytes as u64) < place.raw / 4
            && all.is_some_and(|all| all <= most)
    }

    /// Whether small boxes took so long that chunks are worth their making. Boxes that come may then lie in the same chunks.
    fn is_better_from_chunks(&self) -> bool {
        self.view.ahead().on_boxes(self.number, Duration::ZERO) > LONG_ON_BOXES
    }

    /// Puts a box together from chunks, which stay in the cache. Returns whether this was possible: elements beside the box may
    /// be unreadable.
    fn put_from_chunks(&self, task: &Task, wanted: &Bounds, sides: &[u64], out: &mut [u8]) -> bool {
        let (dataset, place) = self.view.dataset(self.number);
        let mut overlap = Overlap::new(sides, wanted);
        place.grid.touched(wanted).all(|number| {
            let id = ChunkId::new(self.number, number);
            let Ok(chunk) = self.view.chunks().cached(task, id, None) else {
                return false;
            };
            copy_from_chunk(
                &chunk,
                place,
                number,
                dataset.element_size,
                &mut overlap,
                out,
            )
        })
    }

    fn bad_box(&self, wanted: &Bounds, fault: Fault) -> Error {
        let grid = self.view.grid(self.number);
        let chunk = |at: &[u64]| -> Vec<u64> {
            at.iter()
                .zip(&grid.chunk)
                .map(|(at, side)| at / side)
                .collect()
        };
        let last: Vec<u64> = wanted.end.iter().map(|end| end.saturating_sub(1)).collect();
        let (first, last) = (chunk(&wanted.start), chunk(&last));
        let place = if first == last {
            format!("chunk {first:?}")
        } else {
            format!("chunks {first:?} to {last:?}")
        };
        self.view.bad_data(self.number, place, fault)
    }
}

/// Copies the elements of a chunk that are in a box. Returns whether the bytes are those of a chunk.
fn copy_from_chunk(
    chunk: &[u8],
    place: &Placement,
    number: u64,
    element: u64,
    overlap: &mut Overlap<'_>,
    out: &mut [u8],
) -> bool {
    let block = Block {
        start: &place.grid.origin(number),
        count: &place.grid.chunk,
        elements_before: 0,
    };
    let mut copied = Ok(());
    overlap.runs(&block, |run| {
        copied = copy_run(chunk, out, run, element);
        copied.is_ok()
    });
    copied.is_ok()
}

/// The place of a box whose elements all follow each other in the log.
fn in_place(dataset: &Dataset, records: &BoxRecords<'_>) -> Option<InPlace> {
    // Object references and faults are left to the code that puts boxes together.
    if !dataset.references.is_empty() {
        return None;
    }
    let found = records.if_covered(|record, block| {
        let is_plain = matches!(record.stored.encoding, Encoding::Raw | Encoding::Converted);
        let is_plain = is_plain && record.fault.is_none();
        is_plain.then(|| records.in_place(record, block, dataset.element_size))
    });
    found.flatten().flatten()
}

/// Fails where a box lies outside the dataset, or its elements do not have the length of `out`.
fn check(dataset: &Dataset, wanted: &Bounds, out: &[u8]) -> Result<(), Fault> {
    let sides = wanted.start.iter().zip(&wanted.end).zip(&dataset.dims);
    let is_inside = wanted.start.len() == dataset.dims.len()
        && wanted.end.len() == dataset.dims.len()
        && sides
            .clone()
            .all(|((start, end), side)| start <= end && end <= side);
    if !is_inside {
        return Err(format!("{wanted} of an extent of {:?}", dataset.dims).into());
    }
    let bytes = wanted
        .count()
        .try_fold(dataset.element_size, u64::checked_mul);
    if bytes == Some(out.len() as u64) {
        return Ok(());
    }
    Err(format!("{wanted} in a buffer of {} bytes", out.len()).into())
}
