//! Faults under a job on several nodes: all faults that `tests/writer` tests on one node.

use crate::common::jobs::faults;

const NODES: u32 = 2;

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_full_disk() {
    faults::a_full_disk(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_full_disk_with_subfiles() {
    faults::a_full_disk_with_subfiles(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_rank_that_may_write_no_further() {
    faults::a_rank_that_may_write_no_further(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_rank_whose_disk_fails() {
    faults::a_rank_whose_disk_fails(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn files_that_are_in_the_way() {
    faults::files_that_are_in_the_way(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn programs_that_are_wrong() {
    faults::programs_that_are_wrong(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn definitions_that_differ() {
    faults::definitions_that_differ(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn several_files_at_once() {
    faults::several_files_at_once(NODES);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn closes_that_fail() {
    faults::closes_that_fail(NODES);
}
