//! Log layouts, and what there is beside them on disk: journals, snapshots, messages of scans.
//!
//! A [`Snapshot`](snapshot::Snapshot) says where the parts of one log lie. A [`Layout`] reads its record tables; nothing
//! above the layouts knows which one it is. The crate needs neither libhdf5 nor FUSE nor MPI. This root only names modules
//! and gives on what other crates use most; no module uses it.
//!
//! | module | contents |
//! |---|---|
//! | [`layout`] | what a layout does, and the records that it finds |
//! | [`tables`] | the layouts that there are |
//! | [`logvol`], [`classic`], [`netcdf`], [`adios`] | the layouts |
//! | [`striped`], [`flat`] | HDF5 files in several parts, which have no records |
//! | [`plain`] | whether an HDF5 file is certainly no log |
//! | [`model`], [`records`], [`conversion`], [`numbers`], [`base`], [`origins`] | records, whatever the layout |
//! | [`source_file`], [`source_dir`], [`log_files`], [`ownership`] | the files of a log, and whose files count |
//! | [`recognition`], [`signature`] | what a file may be, by a few of its bytes |
//! | [`part_names`] | which files belong to a log by their names |
//! | [`own_parts`] | what proves that a file is part of a log, before it is removed or renamed |
//! | [`rights`] | who may read a file that takes the place of another one, or lies beside it |
//! | [`log_dir`] | logs that are directories, known by the index in them |
//! | [`walk`] | paths on which other users may change names, for root |
//! | [`arrangement`], [`window`], [`file_id`], [`front_bytes`], [`front`], [`descriptors`] | bytes in them |
//! | [`lasting`], [`settled`] | what of a file stays when it changes |
//! | [`journal`] | the form of a log that is not closed |
//! | [`snapshot`] | what the scan of one log file found, as plain data |
//! | [`scan`] | what client and server of a scan share |
//! | [`hdf5_bytes`] | HDF5 files on disk as bytes that `h5logfs_hdf5_format` reads |
//! | [`boxes`] | many hyperslabs in little memory |
//!
//! Modules use what stands below them: `scan`, `snapshot`, `recognition`, `part_names`, `tables`, `journal`, then
//! the layouts and all others. `layout` is below the layouts.

#![deny(missing_docs)]

pub mod adios;
pub mod arrangement;
pub mod base;
pub mod boxes;
pub mod classic;
mod column;
pub mod conversion;
mod counters;
pub mod descriptors;
pub mod file_id;
pub mod flat;
pub mod front;
pub mod front_bytes;
pub mod hdf5_bytes;
pub mod journal;
pub mod lasting;
pub mod lattice;
pub mod layout;
pub mod log_dir;
pub mod log_files;
pub mod logvol;
pub mod model;
pub mod netcdf;
pub mod numbers;
pub mod origins;
pub mod own_parts;
pub mod ownership;
pub mod part_names;
pub mod plain;
pub mod recognition;
pub mod records;
pub mod rights;
pub mod scan;
pub mod settled;
pub mod signature;
pub mod snapshot;
pub mod source_dir;
pub mod source_file;
pub mod striped;
pub mod tables;
pub mod tiling;
pub mod walk;
pub mod window;

/// Decodes blocks of [`Encoding::Operator`](model::Encoding::Operator).
pub use h5logfs_adios::operator;
pub use layout::{DatasetRecords, Layout, RecordTable};
/// The entries of a log that this process writes. It has one layout.
pub use logvol::GrowingTable;
pub use model::Logged;
pub use recognition::carries_mark;
pub use signature::find_signature;
pub use tables::Tables;
