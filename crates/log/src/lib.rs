//! The layouts of logs, and their other data on disk: journals, snapshots, messages of scans.
//!
//! A [`Snapshot`](snapshot::Snapshot) holds the places of the parts of one log. A [`Layout`] reads its record tables;
//! code above the layouts works with any layout. The crate needs neither libhdf5 nor FUSE nor MPI. This root only names
//! modules, and re-exports the items that other crates use most. No module uses the root.
//!
//! | module | contents |
//! |---|---|
//! | [`layout`] | the interface of a layout, and the records that it finds |
//! | [`tables`] | the supported layouts |
//! | [`logvol`], [`classic`], [`netcdf`], [`adios`], [`scorpio`], [`tiles`] | the layouts |
//! | [`striped`], [`flat`] | HDF5 files in several parts, which have no records |
//! | [`plain`] | the test whether an HDF5 file is certainly no log |
//! | [`model`], [`records`], [`conversion`], [`part`], [`numbers`], [`base`], [`origins`] | records of all layouts |
//! | [`source_file`], [`source_dir`], [`log_files`], [`ownership`] | the files of a log, and the rules for their owners |
//! | [`recognition`], [`signature`] | the kind of a file, from a few of its bytes |
//! | [`part_names`] | names of files that belong to a log |
//! | [`own_parts`] | proof that a file is part of a log, before it is removed or renamed |
//! | [`rights`] | access rights of a file that replaces another one, or lies beside it |
//! | [`log_dir`] | logs that are directories, known by the index in them |
//! | [`walk`] | look-up of paths by root, where other users may change names |
//! | [`arrangement`], [`window`], [`file_id`], [`front_bytes`], [`front`], [`descriptors`] | the bytes of these files |
//! | [`lasting`], [`settled`] | the parts of a file that stay when it changes |
//! | [`journal`] | the form of a log that is not closed |
//! | [`snapshot`] | the result of the scan of one log file, as plain data |
//! | [`scan`] | definitions that client and server of a scan share |
//! | [`hdf5_bytes`], [`stored`] | a source file as the bytes of an HDF5 file, which `h5logfs-hdf5-format` reads; the storage of its datasets |
//! | [`boxes`] | many hyperslabs in little memory |
//!
//! A module uses only modules after it in this order: `scan`, `snapshot`, `recognition`, `part_names`, `tables`,
//! `journal`, then the layouts and all others. `layout` is below the layouts.

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
pub mod not_regular;
pub mod numbers;
mod on_demand;
pub mod open_files;
pub mod origins;
pub mod own_parts;
pub mod ownership;
pub mod part;
pub mod part_names;
pub mod plain;
pub mod recognition;
pub mod records;
pub mod rights;
pub mod scan;
pub mod scorpio;
pub mod settled;
pub mod signature;
pub mod snapshot;
pub mod source_dir;
pub mod source_file;
pub mod stored;
pub mod striped;
pub mod tables;
pub mod tiles;
pub mod tiling;
pub mod walk;
pub mod window;

/// Decodes blocks of [`Encoding::Operator`](model::Encoding::Operator).
pub use h5logfs_adios::operator;
pub use layout::{DatasetRecords, Layout, RecordTable};
/// The entries of a log that this process writes. The writer has one layout.
pub use logvol::GrowingTable;
pub use model::Logged;
pub use recognition::carries_mark;
pub use signature::find_signature;
pub use tables::Tables;
