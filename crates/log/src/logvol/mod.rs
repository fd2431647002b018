//! The layout of the HDF5 Log VOL connector (`docs/formats/logvol.md`, whose section numbers this directory cites).
//!
//! * `entries` walks the metadata-log datasets `_md_N`. `table` does so once per file, and keeps the places of the
//!   entries.
//! * `selection` decodes the blocks of an entry, in all encodings.
//! * `decode` turns the entries of a dataset into records, in the order in which they apply.
//! * `own_blocks` does the same for simple entries during the walk of `table`.
//! * `extent` reads what a rank of our writer adds in a flush.
//! * `loose` finds data that no flush covers.
//! * `origins` tells which rank wrote which data, and in which flush.
//! * `growing` is the table of a growing log.
//! * `tiles` finds out during a scan whether records tile their datasets.
//! * `remains` describes a file that the connector never closed.
//! * `check` checks a snapshot's places in these tables.

mod check;
mod decode;
mod entries;
pub mod extent;
pub mod flags;
mod growing;
pub mod loose;
pub mod names;
mod origins;
mod own_blocks;
pub mod remains;
mod selection;
mod table;
mod tiles;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::front::FRONT;
use super::model::Selections;
use super::origins::Origins;
use super::source_file::SourceFile;
use super::tiling::Tilings;
use super::window::{Piece, TableBytes};
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::Logged;
use decode::Decoder;
pub use entries::table_head;
pub use growing::GrowingTable;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use table::EntryTable;

/// Name of the root attribute that makes a file a log (section 1).
pub const MARK: &str = "_int_att";

/// The name under which a log stores a name of the user (section 1.3).
pub fn escaped(name: &[u8]) -> Cow<'_, [u8]> {
    match name {
        [b'_', ..] => [b"_", name].concat().into(),
        _ => name.into(),
    }
}

/// Config bit: the log has subfiles.
pub const SUBFILED: i64 = 0x200;

/// Config bit: the coordinates of several blocks are encoded.
pub const ENCODED: i32 = 0x002;
/// Config bit: entries share selections.
pub const SHARED: i32 = 0x008;

/// Config bit: writes to one dataset are merged into one entry (section 6.6).
const MERGED: i32 = 0x001;

/// A contiguous dataset below `/_LOG` in one source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDataset {
    /// Number of the source file.
    pub source: u16,
    /// The N of `_md_N` or `_ld_N`.
    pub number: u32,
    /// Offset in the file.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl LogDataset {
    /// Whether the `len` bytes at `offset` of the file lie in this dataset.
    fn holds(&self, offset: u64, len: u64) -> bool {
        let (start, end) = (self.offset, self.offset.saturating_add(self.len));
        offset >= start && offset.checked_add(len).is_some_and(|e| e <= end)
    }
}

/// The entries of one rank in an unclosed log. They become the rank's section of the table
/// (`docs/formats/journal.md`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Number of the source file.
    pub source: u16,
    /// The rank that wrote the entries.
    pub rank: u32,
    /// Pieces of the section. Each holds whole entries.
    pub pieces: Vec<Piece>,
}

impl Section {
    /// Appends entries of a rank to its section in a source file.
    pub fn add(
        sections: &mut Vec<Self>,
        source: u16,
        rank: u32,
        pieces: impl Iterator<Item = Piece>,
    ) {
        let is_own = |section: &&mut Section| (section.source, section.rank) == (source, rank);
        match sections.iter_mut().find(is_own) {
            Some(own) => own.pieces.extend(pieces),
            None => sections.push(Section {
                source,
                rank,
                pieces: pieces.collect(),
            }),
        }
    }
}

/// The places of the record tables and of the data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Element 3 of `_int_att`.
    pub config: i32,
    /// Number of IDs ever assigned to datasets, according to the log.
    pub ids: u32,
    /// The `_md_N`, by source file and number.
    pub metadata: Vec<LogDataset>,
    /// The sections of an unclosed log, which has no `_md_N`.
    pub sections: Vec<Section>,
    /// The `_ld_N`, by source file and offset.
    pub data: Vec<LogDataset>,
    /// Parts of the tables that the scan could not follow:
    /// [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity).
    pub diagnostics: Vec<Diagnostic>,
}

impl Tables {
    /// The source file of a table, or of a section of an unclosed log. Its data are in the same file.
    fn source_of(&self, table: u32) -> u16 {
        let at = table as usize;
        let closed = self.metadata.get(at).map(|table| table.source);
        let open = self.sections.get(at).map(|section| section.source);
        closed.or(open).unwrap_or(0)
    }

    /// The `_ld_N` that holds these bytes of a source file (section 3).
    fn data_log(&self, source: u16, offset: i64, len: i64) -> Option<&LogDataset> {
        let (offset, len) = (u64::try_from(offset).ok()?, u64::try_from(len).ok()?);
        let after = self
            .data
            .partition_point(|e| (e.source, e.offset) <= (source, offset));
        let log = self.data.get(after.checked_sub(1)?)?;
        (log.source == source && log.holds(offset, len)).then_some(log)
    }
}

impl Tables {
    /// The tables of a log that our writers have closed, read from the extents of its data files. The closed tables are
    /// copies of these. `None` if they cannot be read after an append to the log.
    fn in_extents(
        &self,
        task: &Task,
        sources: &[SourceFile],
    ) -> Result<Option<Reserved<Self>>, Fault> {
        let end = |source: u16| sources.get(usize::from(source))?.lasting_end();
        let lasts = |data: &LogDataset| {
            let data_end = data.offset.checked_add(data.len);
            data.offset == FRONT && data_end.is_some() && data_end == end(data.source)
        };
        let has_data = |table: &LogDataset| {
            let mut data = self.data.iter();
            data.any(|data| data.source == table.source)
        };
        if !self.data.iter().all(lasts) || !self.metadata.iter().all(has_data) {
            return Ok(None);
        }
        let mut reservation = task.reservation();
        let mut sections = Vec::new();
        for data in &self.data {
            let file = &sources[usize::from(data.source)];
            let range = data.offset..data.offset + data.len;
            let found = extent::sections_in(task, file, range, &mut reservation)?;
            let section = |(rank, pieces)| Section {
                source: data.source,
                rank,
                pieces,
            };
            sections.extend(found.into_iter().map(section));
        }
        let tables = Tables {
            config: self.config,
            ids: self.ids,
            metadata: Vec::new(),
            sections,
            data: self.data.clone(),
            diagnostics: self.diagnostics.clone(),
        };
        Ok(Some(Reserved::new(tables, reservation)))
    }
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "Log VOL"
    }

    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        let (table, _) = self.read_tables_for(task, sources, datasets, None)?;
        Ok(table)
    }

    fn read_tables_for(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
        wanted: Option<&Logged<'_>>,
    ) -> Result<(Box<dyn RecordTable>, Option<DatasetRecords>), Fault> {
        let ranks = datasets.iter().map(|d| (d.id, d.dims.len())).collect();
        let merged = self.config & MERGED != 0;
        let (entries, records) = EntryTable::read(task, sources, self, &ranks, merged, wanted)?;
        let table = LogVolTable {
            tables: self.clone(),
            entries,
        };
        let records = records.map(|records| DatasetRecords {
            records,
            diagnostics: Vec::new(),
            decoded: 0,
        });
        Ok((Box::new(table), records))
    }

    fn tables_len(&self, _: &[SourceFile]) -> u64 {
        self.entry_bytes()
    }

    fn after_append(
        &self,
        task: &Task,
        sources: &[SourceFile],
    ) -> Result<Option<Reserved<Box<dyn Layout>>>, Fault> {
        let found = self.in_extents(task, sources)?;
        Ok(found.map(|found| {
            let (tables, reservation) = found.into_parts();
            Reserved::new(Box::new(tables) as Box<dyn Layout>, reservation)
        }))
    }

    fn tilings(&self, sources: &[SourceFile]) -> Tilings {
        tiles::find(sources, self)
    }

    fn origins(&self, task: &Task, sources: &[SourceFile]) -> Origins {
        self.find_origins(task, sources)
    }
}

#[derive(Debug)]
struct LogVolTable {
    tables: Tables,
    entries: EntryTable,
}

impl RecordTable for LogVolTable {
    fn diagnostics(&self) -> &[Diagnostic] {
        &self.entries.diagnostics
    }

    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> Result<DatasetRecords, Fault> {
        let decoder = Decoder {
            task,
            tables: &self.tables,
            entries: &self.entries,
            sources: TableBytes::Files(sources),
            dataset,
            selections,
        };
        decoder.records()
    }

    fn entries(&self) -> usize {
        self.entries.len()
    }

    fn bytes(&self) -> usize {
        self.entries.bytes()
    }

    fn release_share(&self) {
        self.entries.release_share();
    }
}
