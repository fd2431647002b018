//! Ordinary HDF5 files made from logs. The crate uses neither libhdf5 nor MPI: the scan has made the metadata; only
//! chunks and their indexes are missing.
//!
//! * [`compact`]: a new file with only what was written, in compressed chunks.
//! * [`error`]: the errors.
//! * [`settle`]: turns a log into an ordinary file in place.

#![deny(missing_docs)]

pub mod compact;
pub mod error;
pub mod settle;
