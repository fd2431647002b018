//! Reads the objects of an HDF5 file from its bytes, without libhdf5: links, attributes, datatypes, and the properties
//! of datasets. Also makes the metadata image of definitions ([`defined`]), and the metadata of a closed log
//! ([`closed`]). Sections are those of the HDF5 File Format Specification 3.0.
//!
//! * [`defined`]: the metadata image of what a program defines.
//! * [`closed`]: what a log is closed with, made of its metadata image.

#![deny(missing_docs)]

pub mod closed;
pub mod defined;

type Result<T> = std::result::Result<T, h5logfs_common::fault::Fault>;
