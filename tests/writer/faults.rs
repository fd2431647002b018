//! Faults under a job on one node. `tests/cluster` has them on several.

use crate::common::jobs::faults;

#[test]
fn a_full_disk() {
    faults::a_full_disk(0);
}

#[test]
fn a_full_disk_with_subfiles() {
    faults::a_full_disk_with_subfiles(0);
}

#[test]
fn a_rank_that_may_write_no_further() {
    faults::a_rank_that_may_write_no_further(0);
}

#[test]
fn a_rank_whose_disk_fails() {
    faults::a_rank_whose_disk_fails(0);
}

#[test]
fn files_that_are_in_the_way() {
    faults::files_that_are_in_the_way(0);
}

#[test]
fn programs_that_are_wrong() {
    faults::programs_that_are_wrong(0);
}

#[test]
fn flushes_that_are_not_asked_for() {
    faults::flushes_that_are_not_asked_for();
}

#[test]
fn definitions_that_differ() {
    faults::definitions_that_differ(0);
}

#[test]
fn several_files_at_once() {
    faults::several_files_at_once(0);
}

#[test]
fn closes_that_fail() {
    faults::closes_that_fail(0);
}
