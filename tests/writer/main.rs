//! The writer, under `mpirun`: what it writes, what it survives, and its interface for C.

#[path = "../common/mod.rs"]
mod common;

mod capi;
mod creation;
mod examples;
mod faults;
mod kill;
mod memory;
mod other_mpi;
mod port;
mod random;
mod reopening;
mod samples;
