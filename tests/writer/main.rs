//! The writer under `mpirun`: its output, its behaviour under faults, and its C interface.

#[path = "../common/mod.rs"]
mod common;

/// The program for MPI jobs.
const COMPACT_MPI: &str = env!("CARGO_BIN_EXE_h5logfs-compact-mpi");

mod builders;
mod capi;
mod collectives;
mod compact;
mod creation;
mod earlier;
mod examples;
mod faults;
mod followers;
mod kill;
mod memory;
mod other_mpi;
mod port;
mod power;
mod random;
mod regular;
mod reopening;
mod samples;
mod settling;
