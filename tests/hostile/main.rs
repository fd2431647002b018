//! Attacks of one user of a shared mount on another. Each test attacks a mount of root with `allow_other` and the
//! default caches, while another user reads. `arena` tells how to add one.

#[path = "../common/mod.rs"]
mod common;

mod arena;
mod companions;
mod identity;
mod listings;
mod memory;
mod noise;
mod opens;
mod reads;
mod rights;
mod scans;
mod terminal;
