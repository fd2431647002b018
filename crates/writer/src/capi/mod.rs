//! The C interface of the writer, for C, C++ and Fortran: the functions that
//! `include/h5logfs_writer.h` declares.
//!
//! cbindgen makes the header from the doc comments and signatures here. They are therefore written for readers of C, and
//! public names are spelled as in C. `tests/writer/capi.rs` checks that the header is up to date.
//!
//! The code trusts a caller no more than C forces it to: it looks up handles in a `registry`, checks pointers for NULL, and
//! checks sizes against each other. `status::to_status` turns errors and panics into a code and a message.
//!
//! A thread acquires the right to call MPI (`environment::MpiGuard`) before it locks a file. The
//! registry is locked only for a moment, and never while a thread waits for a file.

// Public names are those of C. The docs of each function and the head of the header say in C's terms
// what the caller must ensure.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

pub mod append;
pub mod dataset;
mod environment;
pub mod file;
mod input;
pub mod memory;
pub mod options;
mod registry;
pub mod status;
pub mod types;
pub mod write;
