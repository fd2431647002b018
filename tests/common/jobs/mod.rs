//! Jobs to which things happen, on this machine (`tests/writer`) or on several nodes (`tests/cluster`).

pub mod compact;
pub mod faults;
pub mod kill;
pub mod random;
