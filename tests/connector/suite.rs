//! The tests of h5py itself, which come with it: they pass and fail with the connector as they do without.

use std::collections::BTreeSet;

use crate::common::connector::Connector;
use crate::common::readers::Python;
use crate::common::suite::{Outcomes, count, differing, outcomes};

const REFERENCES: &str = "a copy that follows references is refused";
const LAYOUT: &str = "a log has a layout of its own";
const IDENTIFIER: &str = "each log has an identifier of its own";
const SIZE: &str = "the test writes 128 bytes as an unfiltered chunk of 64";

/// Tests that fail where new files become logs, each with its reason. What users are told of them is in docs/limits.md.
const FAIL_WITH_LOGS: &[(&str, &str)] = &[
    ("tests/test_file.py::test_reproducible_file", IDENTIFIER),
    (
        "tests/test_file2.py::TestFileMetaBlockSize::test_file_create_with_meta_block_size_512",
        LAYOUT,
    ),
    (
        "tests/test_file_alignment.py::TestFileAlignment::test_alignment_set_above_threshold",
        LAYOUT,
    ),
    ("tests/test_group.py::TestCopy::test_copy_refs", REFERENCES),
    (
        "tests/test_h5d_direct_chunk.py::TestReadDirectChunk::test_read_uncompressed_offsets",
        SIZE,
    ),
];

/// A minute: run by `make test-h5py`.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_come_out_as_without_the_connector() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.passing_python(), Python::new()) else {
        return;
    };
    let (with, without) = (outcomes(&with), outcomes(&without));
    let differing = differing(&with, &without);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    eprintln!("{}", count(&with));
}

/// Three minutes.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_pass_with_logs_but_for_those_with_a_reason() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.python(), Python::new()) else {
        return;
    };
    let (with, without) = (outcomes(&with), outcomes(&without));
    let known: BTreeSet<&str> = FAIL_WITH_LOGS.iter().map(|(test, _)| *test).collect();
    let failing = |outcomes: &Outcomes| -> BTreeSet<String> {
        let failing = outcomes.iter().filter(|(_, outcome)| is_failure(outcome));
        failing.map(|(test, _)| test.clone()).collect()
    };
    let (with_logs, natively) = (failing(&with), failing(&without));
    let new: Vec<&String> = with_logs.difference(&natively).collect();
    let is_known = |test: &str| known.iter().any(|known| test.ends_with(known));
    let unknown: Vec<_> = new.iter().filter(|test| !is_known(test)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    for (known, reason) in FAIL_WITH_LOGS {
        eprintln!("{known}: {reason}");
        if !new.iter().any(|test| test.ends_with(known)) {
            eprintln!("{known} passes now");
        }
    }
    eprintln!("{}", count(&with));
}

fn is_failure(outcome: &str) -> bool {
    ["FAILED", "ERROR"].contains(&outcome)
}
