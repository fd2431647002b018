//! Log layouts, and what there is beside them on disk: journals, file metadata, filters, snapshots, messages of scans.
//!
//! A [`Snapshot`](snapshot::Snapshot) says where the parts of one log lie. A [`Layout`] reads its record tables; nothing
//! above the layouts knows which one it is. The crate needs neither libhdf5 nor FUSE nor MPI.
//!
//! | module | contents |
//! |---|---|
//! | [`logvol`], [`classic`], [`netcdf`], [`adios`] | the layouts |
//! | [`striped`], [`flat`] | HDF5 files in several parts, which have no records |
//! | [`plain`] | whether an HDF5 file is certainly no log |
//! | [`model`], [`records`], [`conversion`], [`numbers`], [`base`], [`origins`] | records, whatever the layout |
//! | [`source_file`], [`source_dir`], [`log_files`], [`ownership`] | the files of a log, and whose files count |
//! | [`own_parts`] | what proves that a file is part of a log, before it is removed or renamed |
//! | [`rights`] | who may read a file that takes the place of another one, or lies beside it |
//! | [`log_dir`] | logs that are directories, known by the index in them |
//! | [`walk`] | paths on which other users may change names, for root |
//! | [`arrangement`], [`window`], [`file_id`], [`front_bytes`], [`front`], [`descriptors`] | bytes in them |
//! | [`lasting`], [`settled`] | what of a file stays when it changes |
//! | [`journal`] | the form of a log that is not closed |
//! | [`snapshot`] | what the scan of one log file found, as plain data |
//! | [`scan`] | what client and server of a scan share |
//! | [`image`], [`btree`], [`filters`] | structures of HDF5 files |
//! | [`boxes`] | many hyperslabs in little memory |
//!
//! Modules use what stands below them: `scan`, `snapshot`, `journal`, `filters`, then the layouts and all others.

#![deny(missing_docs)]

pub mod adios;
pub mod arrangement;
pub mod base;
pub mod boxes;
pub mod btree;
pub mod classic;
mod column;
pub mod conversion;
mod counters;
pub mod deflate;
pub mod descriptors;
pub mod file_id;
pub mod filters;
pub mod flat;
pub mod front;
pub mod front_bytes;
pub mod image;
pub mod journal;
pub mod lasting;
pub mod lattice;
pub mod log_dir;
pub mod log_files;
pub mod logvol;
pub mod model;
pub mod netcdf;
pub mod numbers;
pub mod origins;
pub mod own_parts;
pub mod ownership;
pub mod plain;
pub mod records;
pub mod rights;
pub mod scan;
pub mod settled;
pub mod snapshot;
pub mod source_dir;
pub mod source_file;
pub mod striped;
mod szip;
pub mod tiling;
pub mod walk;
pub mod window;

use std::fmt::Debug;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use flat::Flat;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use model::Selections;
use origins::Origins;
use records::RecordList;
use source_file::SourceFile;
use tiling::Tilings;

use h5logfs_common::task::Task;

/// Decodes blocks of [`Encoding::Operator`](model::Encoding::Operator).
pub use h5logfs_adios::operator;
/// The entries of a log that this process writes. It has one layout.
pub use logvol::GrowingTable;

/// Where a log keeps its record tables and its data: what the scan found, one variant a layout.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Tables {
    /// The layout of the HDF5 Log VOL connector (`docs/formats/logvol.md`).
    LogVol(logvol::Tables),
    /// The classic layout (`docs/formats/logvol-classic.md`).
    Classic(classic::Tables),
    /// netCDF files with burst-buffer logs (`docs/formats/pnetcdf-burst-buffer.md`).
    Netcdf(netcdf::Tables),
    /// One HDF5 file in several (`docs/formats/hdf5-subfiling.md`).
    Striped(striped::Tables),
    /// ADIOS2 directories (`docs/formats/adios-bp.md`).
    Adios(adios::Tables),
}

impl Default for Tables {
    fn default() -> Self {
        Tables::LogVol(logvol::Tables::default())
    }
}

impl Tables {
    /// The code that reads this layout.
    pub fn layout(&self) -> &dyn Layout {
        match self {
            Tables::LogVol(tables) => tables,
            Tables::Classic(tables) => tables,
            Tables::Netcdf(tables) => tables,
            Tables::Striped(tables) => tables,
            Tables::Adios(tables) => tables,
        }
    }

    /// Fails with the reason where it names source files that do not exist, of so many, or bytes that no file
    /// has.
    pub fn check(&self, sources: usize) -> std::result::Result<(), Fault> {
        match self {
            Tables::LogVol(tables) => tables.check(sources),
            Tables::Classic(tables) => tables.check(sources),
            Tables::Netcdf(tables) => tables.check(sources),
            Tables::Striped(tables) => tables.check(sources),
            Tables::Adios(tables) => tables.check(sources),
        }
    }
}

/// What a layout has to know of a logged dataset to decode its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The layout's own number of the dataset.
    pub id: i64,
    /// Current extent.
    pub dims: &'a [u64],
    /// Size of one element in bytes.
    pub element_size: u64,
    /// The log records the dataset's filters: stored bytes of another size than the raw ones are filtered.
    pub filtered: bool,
}

/// A way to lay out a log.
pub trait Layout {
    /// As `h5logfs inspect` names it.
    fn name(&self) -> &'static str;

    /// Where the bytes of the canonical file lie, of a layout that has them as they are. There are no records then.
    fn flat(&self) -> Option<&Flat> {
        None
    }

    /// Reads the record tables. Cost and memory grow with the number of entries, not of their blocks.
    /// Damage is not an error here: see [`RecordTable::diagnostics`].
    ///
    /// Fails where the files cannot be read, where there is no memory, and where `task` stops.
    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault>;

    /// The same, with the records of the dataset `wanted`, if there is one, as [`RecordTable::records`] has them, where they can be
    /// had on the way.
    fn read_tables_for(
        &self,
        task: &Task,
        sources: &[SourceFile],
        datasets: &[Logged<'_>],
        _wanted: Option<&Logged<'_>>,
    ) -> Result<(Box<dyn RecordTable>, Option<DatasetRecords>), Fault> {
        Ok((self.read_tables(task, sources, datasets)?, None))
    }

    /// How many rows along its first dimension a *strip* of a dataset has: the records of some rows can be had without those of
    /// others, and none lies in two rows. `None`: there are no strips. `dataset`: the layout's own number of it.
    fn strip(&self, _dataset: i64) -> Option<u64> {
        None
    }

    /// Bytes of the record tables in their files.
    fn tables_len(&self, sources: &[SourceFile]) -> u64;

    /// The same log, with its record tables where an append to the closed log leaves them; `None` where it leaves none of them.
    fn after_append(&self, _: &Task, _: &[SourceFile]) -> Result<Option<Reserved<Tables>>, Fault> {
        Ok(None)
    }

    /// How the records of each dataset may tile it. This walks through the tables once.
    fn tilings(&self, sources: &[SourceFile]) -> Tilings;

    /// Which process wrote which data, and in which flush, as far as the log tells. This may walk through the tables
    /// once.
    fn origins(&self, _: &Task, _: &[SourceFile]) -> Origins {
        Origins::default()
    }
}

/// The entries of a log, by dataset.
pub trait RecordTable: Send + Sync + Debug {
    /// What is wrong with the tables. [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity) is damage that
    /// may hide entries of any dataset: no element of the log can be read then.
    fn diagnostics(&self) -> &[Diagnostic];

    /// Decodes the records of one dataset. `selections`: those of the log that are in use already. Fails
    /// as [`Layout::read_tables`] does.
    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> Result<DatasetRecords, Fault>;

    /// The same of some rows of a dataset that has [strips](Layout::strip). There may be others among them.
    fn records_of_rows(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
        _rows: Range<u64>,
    ) -> Result<DatasetRecords, Fault> {
        self.records(task, sources, dataset, selections)
    }

    /// Number of entries of all datasets, also of those that cover nothing or cannot be decoded.
    fn entries(&self) -> usize;

    /// Memory held, in bytes.
    fn bytes(&self) -> usize;

    /// From now on its memory counts for no user, because a cache keeps it.
    fn release_share(&self);
}

/// All records of one dataset.
#[derive(Debug)]
pub struct DatasetRecords {
    /// In the order in which they apply. Later ones override earlier ones.
    pub records: RecordList,
    /// Of [`Severity::Unreadable`](h5logfs_common::diagnostic::Severity): entries whose selection is unknown. They
    /// may concern any element of the dataset.
    pub diagnostics: Vec<Diagnostic>,
    /// Bytes of selections that no other dataset had decoded before.
    pub decoded: usize,
}

/// Diagnostics of one dataset that are kept. One is enough to make it unreadable; the others are for a person to read.
const MOST_DIAGNOSTICS: usize = 100;

impl DatasetRecords {
    /// No records of a dataset of this rank.
    pub fn none(task: &Task, rank: usize) -> Result<Self, Fault> {
        Ok(DatasetRecords {
            records: RecordList::new(task, rank, 0)?,
            diagnostics: Vec::new(),
            decoded: 0,
        })
    }

    /// Adds a diagnostic, unless there are many already.
    pub fn add_diagnostic(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < MOST_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        }
    }
}

/// Looks for an HDF5 signature at byte 0, 512, 1024, 2048, … (HDF5 File Format Specification,
/// II.A). Reads a few bytes per place, never the file.
pub fn find_signature(file: &SourceFile) -> Result<Option<u64>> {
    let mut at = 0;
    while at + HDF5_SIGNATURE.len() as u64 <= file.len() {
        let mut bytes = [0; HDF5_SIGNATURE.len()];
        file.read_exact_at(&mut bytes, at)?;
        if bytes == HDF5_SIGNATURE {
            return Ok(Some(at));
        }
        at = if at == 0 { 512 } else { at * 2 };
    }
    Ok(None)
}

const HDF5_SIGNATURE: [u8; 8] = *b"\x89HDF\r\n\x1a\n";

/// The marks of each layout: names all of which are in the metadata of such a file.
const MARKS: &[&[&str]] = &[&[logvol::MARK], &[classic::METADATA_LOG, classic::DATA_LOG]];

/// Bytes searched for a layout's marks in a file that libhdf5 cannot open.
const MARK_WINDOW: u64 = 1 << 20;

/// Whether a damaged HDF5 file carries the marks of a log layout near its signature. The daemon refuses such a
/// file, and passes any other damaged file through.
pub fn carries_mark(file: &SourceFile, signature: u64) -> Result<bool> {
    let left = file.len().saturating_sub(signature);
    let mut front = vec![0; left.min(MARK_WINDOW) as usize];
    file.read_exact_at(&mut front, signature)?;
    let has = |mark: &&str| front.windows(mark.len()).any(|w| w == mark.as_bytes());
    Ok(MARKS.iter().any(|marks| marks.iter().all(has)))
}
