//! Random programs of the writer, on several nodes.

use crate::common::amount::cases;
use crate::common::jobs::random::{Mode, programs_on};
use crate::common::nodes::Place;

fn on_nodes(nodes: u32, ranks: u32, number: usize, mode: Mode) {
    if let Some(place) = Place::of(nodes) {
        programs_on(&place, ranks, number, mode);
    }
}

#[test]
fn random_programs_on_two_nodes() {
    on_nodes(2, 3, 2, Mode::Usual);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn random_programs_on_four_nodes() {
    on_nodes(4, 7, cases(24), Mode::Usual);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn random_programs_on_two_full_nodes() {
    on_nodes(2, 4, cases(24), Mode::Usual);
}

/// Flushed data is there although no rank finished.
#[test]
#[ignore = "takes long: make test-cluster"]
fn a_job_that_kills_itself_leaves_its_flushes() {
    on_nodes(3, 4, 20, Mode::Abort);
}
