//! The objects of a log as HDF5 objects, without libhdf5.
//!
//! * [`defined`]: the metadata image of what a program defines.
//! * [`closed`]: what a log is closed with, made of its metadata image.

#![deny(missing_docs)]

pub mod closed;
pub mod defined;

type Result<T> = std::result::Result<T, h5logfs_common::fault::Fault>;
