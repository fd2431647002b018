//! From the entries of one dataset to its records.

use super::chain::Place;
use super::entry::{Covered, DATA_HEADER, Entry, NO_FILTER, Order, ZLIB};
use super::table::EntryTable;
use super::{DATA_LOG, METADATA_LOG};
use crate::log::deflate::largest_inflated;
use crate::log::model::{Encoding, Selection, Selections, Stored};
use crate::log::records::RecordList;
use crate::log::source::SourceFile;
use crate::log::window::Window;
use crate::log::{DatasetRecords, Logged};

/// Bytes of points that are read at once.
const STEP: u64 = 1 << 20;
/// The most bytes of points that one entry may have.
const MOST_POINTS: u64 = 2 << 30;

/// What the decoding of a dataset needs.
pub(super) struct Decoder<'a> {
    pub metadata: &'a SourceFile,
    pub data: &'a SourceFile,
    /// Which source that is.
    pub data_number: u16,
    pub entries: &'a EntryTable,
    pub dataset: &'a Logged<'a>,
    pub selections: &'a Selections,
}

/// Where the bytes of an entry lie, or why they cannot be had.
type Found = (Stored, Option<String>);

impl Decoder<'_> {
    /// `anchor`: position of the dataset's anchor.
    pub fn records(&self, anchor: usize) -> DatasetRecords {
        let entries = &self.entries.by_anchor[anchor];
        let places = &entries.places;
        let mut found = DatasetRecords {
            records: RecordList::new(self.dataset.dims.len(), places.len()),
            faults: entries.fault.iter().cloned().collect(),
            decoded: 0,
        };
        let mut window = Window::over(self.metadata);
        for place in places {
            if let Err(reason) = self.add(place, &mut window, &mut found) {
                found.faults.push(named(place.at, &reason));
            }
        }
        found.records.put_in_order();
        found
    }

    /// Adds the record of an entry. Fails where it cannot be said what it covers.
    fn add(
        &self,
        place: &Place,
        window: &mut Window<'_>,
        found: &mut DatasetRecords,
    ) -> Result<(), String> {
        let rank = self.dataset.dims.len();
        let entry = Entry::read(window, place.at, |_| Some(rank as u64))?;
        let list = &mut found.records;
        let fault = match entry.covered {
            Covered::Subarray => {
                let sides = self.block(&entry, window.bytes(entry.coordinates, entry.len)?)?;
                let (start, count) = sides.split_at(rank);
                let elements = product(count)?;
                if elements == 0 {
                    return Ok(());
                }
                let (stored, fault) = self.stored(&entry, elements)?;
                list.push_block(stored, entry.at, start, count);
                fault
            }
            Covered::Points(0) => return Ok(()),
            Covered::Points(number) => {
                let (stored, fault) = self.stored(&entry, number)?;
                let selection = match self.selections.get(entry.at) {
                    Some(known) => known,
                    None => {
                        let points = self.points(&entry, number)?;
                        let (kept, is_new) = self.selections.keep(entry.at, points);
                        found.decoded += if is_new { kept.bytes() } else { 0 };
                        kept
                    }
                };
                list.push_selection(stored, entry.at, (entry.at, selection), None);
                fault
            }
        };
        if let Some(reason) = fault {
            list.spoil_last(named(entry.at, &reason));
        }
        Ok(())
    }

    /// Starts and counts of a block, inside the dataset.
    fn block(&self, entry: &Entry, bytes: &[u8]) -> Result<Vec<u64>, String> {
        let sides = numbers(entry.order, bytes)?;
        let rank = self.dataset.dims.len();
        for (d, dim) in self.dataset.dims.iter().enumerate() {
            let (start, count) = (sides[d], sides[rank + d]);
            if start.checked_add(count).is_none_or(|end| end > *dim) {
                return Err(format!(
                    "{count} from {start} on are outside of dimension {d}, which has {dim}"
                ));
            }
        }
        Ok(sides)
    }

    /// The points of an entry, inside the dataset.
    fn points(&self, entry: &Entry, number: u64) -> Result<Selection, String> {
        let dims = self.dataset.dims;
        let rank = dims.len();
        if entry.len > MOST_POINTS {
            return Err(format!("{number} points are more than can be held"));
        }
        // Read step by step: the log may be longer than what is there of it.
        let mut coordinates = Vec::new();
        let mut step = Vec::new();
        let mut done = 0;
        while done < entry.len {
            step.resize(STEP.min(entry.len - done) as usize, 0);
            self.metadata
                .read_exact_at(&mut step, entry.coordinates + done)
                .map_err(|e| e.to_string())?;
            coordinates.extend(numbers(entry.order, &step)?);
            done += step.len() as u64;
        }
        for point in coordinates.chunks_exact(rank.max(1)) {
            if point.iter().zip(dims).any(|(at, dim)| at >= dim) {
                return Err(format!("the point {point:?} is outside of {dims:?}"));
            }
        }
        let number = usize::try_from(number).map_err(|e| e.to_string())?;
        Selection::new(rank, number, |p, d| coordinates[p * rank + d], |_, _| 1)
    }

    /// Where the bytes of so many elements lie.
    fn stored(&self, entry: &Entry, elements: u64) -> Result<Found, String> {
        let raw = elements.checked_mul(self.dataset.element);
        let raw = raw.ok_or("more bytes than can be counted")?;
        let log = self.data.len();
        let offset = u64::try_from(entry.data).unwrap_or(0);
        let to_next = self.entries.end_of_data(offset, self.data);
        let to_next = to_next.saturating_sub(offset);
        let left = log.saturating_sub(offset);
        let (encoding, len) = match entry.filter {
            ZLIB => (Encoding::DeflateStream, to_next.min(largest_deflated(raw))),
            _ => (Encoding::Raw, raw),
        };
        let fault = match entry.filter {
            _ if entry.data < DATA_HEADER as i64 => {
                Some(format!("its data at {} of /{DATA_LOG}", entry.data))
            }
            NO_FILTER if raw > left => Some(format!(
                "its data ({raw} bytes at {offset}) end past /{DATA_LOG}, which has {log} bytes"
            )),
            ZLIB if raw > largest_inflated(left) => Some(format!(
                "{left} bytes at {offset} of /{DATA_LOG} cannot hold {raw} bytes"
            )),
            NO_FILTER | ZLIB => None,
            other => Some(format!("unknown filter {other}")),
        };
        let stored = Stored {
            source: self.data_number,
            offset,
            len,
            encoding,
        };
        Ok((stored, fault))
    }
}

fn named(at: u64, reason: &str) -> String {
    format!("/{METADATA_LOG}: entry at byte {at}: {reason}")
}

/// The most bytes that zlib makes of so many.
fn largest_deflated(raw: u64) -> u64 {
    raw.saturating_add(raw >> 10).saturating_add(64)
}

/// Coordinates, none of which is negative.
fn numbers(order: Order, bytes: &[u8]) -> Result<Vec<u64>, String> {
    let number = |bytes: &[u8]| {
        let number = order.i64_at(bytes, 0);
        u64::try_from(number).map_err(|_| format!("a coordinate of {number}"))
    };
    bytes.chunks_exact(8).map(number).collect()
}

fn product(counts: &[u64]) -> Result<u64, String> {
    if counts.contains(&0) {
        return Ok(0);
    }
    let product = counts.iter().try_fold(1u64, |n, c| n.checked_mul(*c));
    product.ok_or_else(|| "more elements than can be counted".into())
}
