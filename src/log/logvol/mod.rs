//! The layout of the HDF5 Log VOL connector (`docs/formats/logvol.md`; section numbers in this
//! folder are those of that page).
//!
//! * [`table`] walks the metadata-log datasets and finds the entries: cheap, once per file.
//! * [`selection`] decodes the blocks of one entry, in all their spellings.
//! * this file joins them to records in the order in which they apply (section 7).

pub mod flags;
pub mod names;
mod selection;
mod table;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::deflate::largest_inflated;
use super::model::{Encoding, Record, Selection};
use super::source::SourceFile;
use super::{DatasetRecords, Layout, Logged, RecordTable};
use crate::error::Result;
use selection::{Blocks, Spelling};
use table::{Entry, EntryTable};

/// Name of the root attribute that makes a file a log (section 1).
pub const MARK: &str = "_int_att";

/// Config bit: the log lies in subfiles.
pub const SUBFILED: i64 = 0x200;

/// Config bits of a writer that encodes the coordinates of several blocks, and that shares selections
/// among entries.
pub const ENCODED: i32 = 0x002;
pub const SHARED: i32 = 0x008;

/// Config bit: writes to one dataset are merged to one entry (section 6.6).
const MERGED: i32 = 0x001;

/// A contiguous dataset below `/_LOG` in one source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Which source file.
    pub source: u16,
    /// The N of `_md_N` or `_ld_N`.
    pub number: u32,
    /// From byte 0 of the file.
    pub offset: u64,
    pub len: u64,
}

impl Extent {
    /// Whether `len` bytes from `offset` lie inside.
    fn holds(&self, offset: u64, len: u64) -> bool {
        let (start, end) = (self.offset, self.offset.saturating_add(self.len));
        offset >= start && offset.checked_add(len).is_some_and(|e| e <= end)
    }
}

/// Where the entries lie that one rank wrote to a log that is not closed yet: what will be its section
/// of the table (`docs/formats/journal.md`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Which source file.
    pub source: u16,
    pub rank: u32,
    /// Whole entries each; together, in this order, they are the section.
    pub pieces: Vec<Piece>,
}

/// Bytes of a source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub offset: u64,
    pub len: u64,
}

/// Where the record tables and the data lie.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Element 3 of `_int_att`.
    pub config: i32,
    /// The `_md_N`, by source file and number.
    pub metadata: Vec<Extent>,
    /// Instead of these, where the log is not closed: its sections.
    pub sections: Vec<Section>,
    /// The `_ld_N`, by source file and offset.
    pub data: Vec<Extent>,
    /// Tables, or parts of them, that are known to be lost.
    pub faults: Vec<String>,
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "Log VOL"
    }

    fn read_tables(
        &self,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>> {
        let ranks = datasets.iter().map(|d| (d.id, d.dims.len())).collect();
        let merged = self.config & MERGED != 0;
        Ok(Box::new(LogVolTable {
            tables: self.clone(),
            entries: EntryTable::read(sources, self, &ranks, merged)?,
            selections: Mutex::default(),
            one_element: Arc::new(Selection::without_coordinates(1)),
        }))
    }
}

/// What a decoded selection depends on: the entry that spells it out, the dimensions that the
/// spelling covers, and which reading of it was taken.
type SelectionKey = (u32, usize, Spelling);

#[derive(Debug)]
struct LogVolTable {
    tables: Tables,
    entries: EntryTable,
    /// Selections in use by the index of some dataset; entries share them, across datasets too.
    selections: Mutex<HashMap<SelectionKey, Weak<Selection>>>,
    /// The selection of a scalar, and of a single element along a record dimension.
    one_element: Arc<Selection>,
}

impl RecordTable for LogVolTable {
    fn faults(&self) -> &[String] {
        &self.entries.faults
    }

    fn records(&self, sources: &[SourceFile], dataset: &Logged<'_>) -> Result<DatasetRecords> {
        let mut found = DatasetRecords::default();
        let mut ordered = Vec::new();
        for &number in self.entries.of_dataset(dataset.id) {
            let entry = &self.entries.entries[number as usize];
            match self.record(sources, dataset, entry, &mut found.decoded) {
                Ok(Some((order, record))) => ordered.push((order, record)),
                Ok(None) => {}
                Err(reason) => found
                    .faults
                    .push(format!("{}: {reason}", self.place(entry))),
            }
        }
        // Section 7: neither the order in the table nor the rank counts, but the flush, then the offset.
        ordered.sort_by_key(|(order, _)| *order);
        found.records = ordered.into_iter().map(|(_, record)| record).collect();
        if !dataset.filtered {
            distrust_equal_sizes(&mut found.records);
        }
        Ok(found)
    }

    fn bytes(&self) -> usize {
        self.entries.bytes()
    }
}

/// Source file, flush, offset.
type Order = (u16, u32, u64);

impl LogVolTable {
    fn place(&self, entry: &Entry) -> String {
        match self.tables.metadata.get(entry.table as usize) {
            Some(md) => {
                let at = entry.position - md.offset;
                format!("entry at byte {at} of _md_{}", md.number)
            }
            None => format!("entry at byte {} of the file", entry.position),
        }
    }

    /// `None` where the entry has no elements.
    fn record(
        &self,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        entry: &Entry,
        decoded: &mut usize,
    ) -> Result<Option<(Order, Record)>, String> {
        let target_number = entry
            .target
            .ok_or("shares the selection of no earlier entry")?;
        let target = &self.entries.entries[target_number as usize];
        let lead = entry.record.or(target.record);
        let lead = lead
            .map(|r| u64::try_from(r).map_err(|_| format!("record number {r} is negative")))
            .transpose()?;
        let selection = match self.selection(sources, dataset, entry, target_number, lead, decoded)
        {
            Ok(selection) => selection,
            // Blocks of a dataset without elements cannot be told apart, and need not be.
            Err(_) if entry.data_size == 0 => return Ok(None),
            Err(reason) => return Err(reason),
        };
        let raw = selection
            .elements()
            .checked_mul(dataset.element)
            .ok_or("more bytes than can be counted")?;
        if raw == 0 {
            return Ok(None);
        }
        let source = entry.source;
        let mut record = Record {
            selection,
            lead,
            source,
            offset: entry.data_offset as u64,
            stored: entry.data_size as u64,
            encoding: encoding(dataset, raw, entry.data_size as u64),
            fault: None,
        };
        let flush = match self.data_flush(source, entry) {
            Ok(flush) => flush,
            Err(reason) => {
                record.fault = Some(format!("{}: {reason}", self.place(entry)).into());
                0
            }
        };
        if record.fault.is_none()
            && record.encoding != Encoding::Raw
            && raw > largest_inflated(record.stored)
        {
            let reason = format!("{} stored bytes cannot hold {raw} bytes", record.stored);
            record.fault = Some(format!("{}: {reason}", self.place(entry)).into());
        }
        Ok(Some(((source, flush, record.offset), record)))
    }

    /// The N of the `_ld_N` in which the entry's data lie (sections 3 and 12).
    fn data_flush(&self, source: u16, entry: &Entry) -> Result<u32, String> {
        let range = u64::try_from(entry.data_offset)
            .ok()
            .zip(u64::try_from(entry.data_size).ok());
        range
            .and_then(|(offset, len)| {
                let data = &self.tables.data;
                let after = data.partition_point(|e| (e.source, e.offset) <= (source, offset));
                let extent = data.get(after.checked_sub(1)?)?;
                (extent.source == source && extent.holds(offset, len)).then_some(extent.number)
            })
            .ok_or_else(|| {
                format!(
                    "its data ({} bytes at {}) lie in no _ld dataset",
                    entry.data_size, entry.data_offset
                )
            })
    }

    /// The selection of `entry`, spelled out in the body of entry `target` (section 6).
    fn selection(
        &self,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        entry: &Entry,
        target: u32,
        lead: Option<u64>,
        decoded: &mut usize,
    ) -> Result<Arc<Selection>, String> {
        let rank = dataset.dims.len();
        let wanted = rank - usize::from(lead.is_some() && rank > 0);
        if lead.is_some() && rank == 0 {
            return Err("a record number for a scalar dataset".into());
        }
        let spelled = &self.entries.entries[target as usize];
        if wanted == 0 && !spelled.has_count() {
            // One element, and nothing that could be spelled out: all such entries share one.
            return Ok(Arc::clone(&self.one_element));
        }
        let fits = |s: &Selection| {
            s.elements().checked_mul(dataset.element) == u64::try_from(entry.data_size).ok()
        };
        let known = |spelling| {
            let key = (target, wanted, spelling);
            self.selections.lock().get(&key).and_then(Weak::upgrade)
        };
        // Only of encoded and of merged blocks is there more than one way to read them.
        let merged = self.tables.config & MERGED != 0;
        if let Some(selection) = known(Spelling::Usual)
            && (fits(&selection) || !(merged || spelled.is_encoded()))
        {
            return Ok(selection);
        }

        let body = spelled
            .read_body(&sources[usize::from(spelled.source)])
            .map_err(|e| e.to_string())?;
        let own_rank = rank - usize::from(spelled.record.is_some() && rank > 0);
        let mut blocks = Blocks::parse(spelled, &body, own_rank, merged)?;
        blocks.choose(dataset, entry.data_size, own_rank - wanted)?;
        let spelling = blocks.spelling();
        if let Some(selection) = known(spelling) {
            return Ok(selection);
        }
        let selection = Arc::new(blocks.selection(own_rank - wanted)?);
        *decoded += selection.bytes();
        let key = (target, wanted, spelling);
        self.selections
            .lock()
            .insert(key, Arc::downgrade(&selection));
        Ok(selection)
    }
}

/// Section 9: only the sizes tell whether bytes were filtered.
fn encoding(dataset: &Logged<'_>, raw: u64, stored: u64) -> Encoding {
    match (raw == stored, dataset.filtered) {
        (true, _) => Encoding::Raw,
        (false, true) => Encoding::Pipeline,
        (false, false) => Encoding::Deflate,
    }
}

/// Section 9: a deflated record can be as long as its raw bytes by chance; only where others of the
/// dataset are deflated has that to be tried.
fn distrust_equal_sizes(records: &mut [Record]) {
    if records.iter().any(|r| r.encoding == Encoding::Deflate) {
        for record in records.iter_mut() {
            if record.encoding == Encoding::Raw {
                record.encoding = Encoding::RawOrDeflate;
            }
        }
    }
}
