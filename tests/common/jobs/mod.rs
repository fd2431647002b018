//! Jobs with faults and kills, on this machine (`tests/writer`, `tests/connector`) or on several nodes
//! (`tests/cluster`).

pub mod compact;
pub mod faults;
pub mod hdf5;
pub mod kill;
pub mod random;
pub mod steps;
