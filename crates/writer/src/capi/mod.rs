//! The C face of the writer: what `include/h5logfs_writer.h` declares, for C, C++ and Fortran.
//!
//! The header is made from the documentation and the signatures here (`tests/writer/capi.rs` checks that it
//! is up to date), so they are written for readers of C, and public names are spelled as in C.
//!
//! Nothing that a caller passes is trusted further than C forces us to: handles are looked up in a
//! [`registry`], pointers are checked for NULL, sizes against each other. Errors and panics end in
//! [`status::answer`], as a code and a message.
//!
//! A thread that makes MPI calls takes its turn ([`environment::Turn`]) before it locks a file; the
//! registry is locked for a moment only, and never while a file is waited for.

// The names are those of C. What a caller has to see to is said in C's terms with each function and at
// the head of the header.
#![allow(non_camel_case_types, clippy::missing_safety_doc)]

pub mod dataset;
mod environment;
pub mod file;
mod input;
pub mod options;
mod registry;
pub mod status;
pub mod types;
pub mod write;
