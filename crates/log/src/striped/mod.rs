//! One HDF5 file in several parts: striped over subfiles (`docs/formats/hdf5-subfiling.md`), or cut into the members
//! of a family.
//!
//! Such files have no records. [`Flat`] maps their bytes to the parts.
//!
//! * [`names`] parses the names of the parts.
//! * [`config`] and [`driver_info`] read how a file is striped.
//! * [`subfiles`] finds the subfiles of a file, [`family`] the members of a family.
//! * [`lone`] distinguishes a stub without subfiles from a file that has all its bytes.

pub mod config;
pub mod driver_info;
pub mod family;
pub mod lone;
pub mod names;
pub mod subfiles;

use serde::{Deserialize, Serialize};

use crate::flat::Flat;
use crate::hdf5_bytes::Hdf5;
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::Logged;
use crate::model::Selections;
use crate::signature::find_signature;
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use driver_info::Driver;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::{Superblock, Window};

/// The division of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Striped over subfiles.
    Subfiling,
    /// Cut into the members of a family.
    Family,
    /// Not divided.
    Whole,
    /// Split or multi file. Its members have addresses that no flat file has.
    Multi,
}

/// The reason why a file of [`Kind::Multi`] is refused.
pub const MULTI: &str = "a part of a split or multi file, whose raw data begin at address 2^63-1 or behind it, so that it \
     cannot be shown as one file: read it with HDF5's split or multi driver";

/// The places of a divided file's bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tables {
    /// The division of the file.
    pub kind: Kind,
    /// The places of the bytes.
    pub flat: Flat,
}

/// A file and its members.
#[derive(Debug)]
pub struct FileAndMembers {
    /// The places of the bytes. Source 0 is the file itself.
    pub tables: Tables,
    /// The other sources.
    pub members: Vec<(SourcePath, SourceFile)>,
    /// Diagnostics for the user.
    pub diagnostics: Vec<Diagnostic>,
}

/// The driver of an HDF5 file, as the file states it.
pub fn driver(file: &SourceFile) -> Result<Driver> {
    let Some(base) = find_signature(file)? else {
        return Ok(Driver::None);
    };
    let bytes = Window::new(Hdf5 { source: file, base });
    let superblock = Superblock::read(&bytes);
    Ok(superblock.map_or(Driver::None, |found| driver_info::driver(&found, &bytes)))
}

/// Whether a file is a stub, judged by its contents. libhdf5 may open a stub, and then reads zeros in place of data.
pub fn is_stub(file: &SourceFile) -> Result<bool> {
    let is_of_driver = matches!(driver(file)?, Driver::Subfiling(_));
    Ok(is_of_driver && !lone::is_whole(file)?)
}

impl Tables {
    /// Fails with the reason if the tables contradict themselves, in a log of `sources` sources.
    pub(super) fn check(&self, sources: usize) -> Result<(), Fault> {
        self.flat.check(sources)
    }
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Subfiling => "HDF5 subfiling",
            Kind::Family => "HDF5 family",
            Kind::Whole => "HDF5",
            Kind::Multi => "HDF5 multi",
        }
    }

    fn flat(&self) -> Option<&Flat> {
        Some(&self.flat)
    }

    fn read_tables(
        &self,
        _: &Task,
        _: &[SourceFile],
        _: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        Ok(Box::new(NoRecords))
    }

    fn tables_len(&self, _: &[SourceFile]) -> u64 {
        0
    }

    fn tilings(&self, _: &[SourceFile]) -> Tilings {
        Tilings::default()
    }
}

/// The record table of a file without records.
#[derive(Debug)]
struct NoRecords;

impl RecordTable for NoRecords {
    fn diagnostics(&self) -> &[Diagnostic] {
        &[]
    }

    fn records(
        &self,
        task: &Task,
        _: &[SourceFile],
        dataset: &Logged<'_>,
        _: &Selections,
    ) -> Result<DatasetRecords, Fault> {
        DatasetRecords::none(task, dataset.dims.len())
    }

    fn entries(&self) -> usize {
        0
    }

    fn bytes(&self) -> usize {
        0
    }

    fn release_share(&self) {}
}
