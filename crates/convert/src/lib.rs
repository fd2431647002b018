//! Ordinary HDF5 files made of logs. It uses neither libhdf5 nor MPI: the scan has made the metadata, and what is missing
//! of an ordinary file is chunks and the indexes of them.
//!
//! * [`chunk_index`]: the index of the chunks that a dataset has.

#![deny(missing_docs)]

pub mod chunk_index;
