//! Jobs on several nodes whose processes are all killed at once.

use crate::common::jobs::kill::kill_at_random;
use crate::common::nodes::Place;

fn kill(nodes: u32, subfiles: u32, sessions: bool, offset: u64) {
    if let Some(place) = Place::of(nodes) {
        kill_at_random(&place, subfiles, sessions, offset);
    }
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_ranks_leave_what_they_flushed() {
    kill(2, 0, false, 50_000);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_ranks_leave_what_they_flushed_in_subfiles() {
    kill(4, 3, false, 60_000);
}

/// A killed append loses no earlier data.
#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_ranks_leave_what_they_appended_to() {
    kill(2, 0, true, 70_000);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_ranks_leave_what_they_appended_to_in_subfiles() {
    kill(4, 3, true, 80_000);
}
