//! Jobs on several nodes, which are namespaces of this machine (`tests/common/nodes.rs`), and many readers on several
//! nodes. Only root can make nodes.
//!
//! Tests of more than a few seconds are ignored by default: `make test-cluster` runs them.

#[path = "../common/mod.rs"]
mod common;

mod compact;
mod connector;
mod deaths;
mod disks;
mod distributed;
mod faults;
mod kill;
mod network;
mod nfs;
mod random;
mod readers;
mod subfiles;
