//! Ordinary HDF5 files made of logs. It uses neither libhdf5 nor MPI: the scan has made the metadata, and what is missing
//! of an ordinary file is chunks and the indexes of them.
//!
//! * [`compact`]: the file of a log that has only what was written, in compressed chunks.
//! * [`chunk_index`]: the index of the chunks that a dataset has.
//! * [`index_reader`]: reads such an index.
//! * [`error`]: what can go wrong.
//! * [`settle`]: a log becomes an ordinary file where it is.

#![deny(missing_docs)]

pub mod chunk_index;
pub mod compact;
pub mod error;
pub mod index_reader;
pub mod settle;
