//! The test suites of h5py, h5netcdf and PyTables: outcomes with the connector equal those without it, and those of h5py
//! with the file driver, too.

use std::collections::BTreeSet;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::readers::Python;
use crate::common::suite::{
    Outcomes, count, differing, outcomes, outcomes_of, outcomes_of_modules,
};

const REFERENCES: &str = "a copy that follows references is refused";
const LAYOUT: &str = "a log has a layout of its own";
const IDENTIFIER: &str = "each log has an identifier of its own";
const SIZE: &str = "the test writes 128 bytes as an unfiltered chunk of 64";

/// Tests that fail when new files become logs, with the reason. docs/limits.md tells users about them.
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

const CHUNKED: &str =
    "a dataset that was written is chunked in a closed log, also if the program made it contiguous";
const PYFIVE: &str = "pyfive reads files without libhdf5, so it sees no log";
const OLD_NCDUMP: &str = "Debian's ncdump has a libhdf5 without VOL connectors";
const FILTERED: &str = "a filter of the program's own is not applied";
const SIZES: &str = "a log has another size than an HDF5 file, and gets it at a flush";
const DESCRIPTOR: &str = "a log that is read has no descriptor of its HDF5 file";
const MASKS: &str =
    "a log keeps elements and no masks, and only chunks in one piece have an address";
const IN_MEMORY: &str = "a log is not opened for changes that stay in memory";

const H5NETCDF: &[(&str, &str)] = &[
    ("pyfive", PYFIVE),
    ("::test_roundtrip_local[", CHUNKED),
    ("::test_write_compression_as_zlib[", CHUNKED),
    ("::test_is_classic", OLD_NCDUMP),
];

/// Modules of PyTables where logs differ, and some more.
const MODULES: &[&str] = &[
    "tables.tests.test_array",
    "tables.tests.test_basics",
    "tables.tests.test_carray",
    "tables.tests.test_create",
    "tables.tests.test_direct_chunk",
    "tables.tests.test_vlarray",
];

const PYTABLES: &[(&str, &str)] = &[
    ("test_array.Basic", CHUNKED),
    ("test_basics.FilePropertyTestCase.test_get_filesize", SIZES),
    (".test19_fileno", DESCRIPTOR),
    ("test_carray.SizeOnDiskInMemoryPropertyTestCase", SIZES),
    ("CoreDriverNoBackingStoreTestCase.test_open", IN_MEMORY),
    (".test_chunk_info_aligned", MASKS),
    (".test_chunk_info_unaligned", MASKS),
    (".test_read_chunk", MASKS),
    (".test_write_chunk_filtermask", MASKS),
    (".test_write_chunk_missing", MASKS),
    ("ComprTestCase.test01_read", FILTERED),
];

/// A minute for each plug-in: run by `make test-h5py`.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_come_out_as_without_a_plug_in() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let Some(without) = Python::new() else { return };
    let without = outcomes(&without);
    for with in [connector.passing_python(), driver.python()] {
        let with = outcomes(&with.unwrap());
        let differing = differing(&with, &without);
        assert!(differing.is_empty(), "{}", differing.join("\n"));
        eprintln!("{}", count(&with));
    }
}

/// Three minutes.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_pass_with_logs_but_for_those_with_a_reason() {
    let connector = Connector::new();
    if let (Some(with), Some(without)) = (connector.python(), Python::new()) {
        check_known(&outcomes(&with), &outcomes(&without), FAIL_WITH_LOGS);
    }
}

/// Three minutes.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5netcdf_pass_with_logs_but_for_those_with_a_reason() {
    let connector = Connector::new();
    if let (Some(with), Some(without)) = (connector.python(), Python::new()) {
        let outcomes = |python| outcomes_of(python, "h5netcdf", 300);
        check_known(&outcomes(&with), &outcomes(&without), H5NETCDF);
    }
}

/// A quarter of an hour.
#[test]
#[ignore = "takes long"]
fn the_tests_of_pytables_pass_with_logs_but_for_those_with_a_reason() {
    let connector = Connector::new();
    if let Some(without) = Python::tables() {
        let with = without.with_variables(connector.used());
        let outcomes = |python| outcomes_of_modules(python, MODULES, 1000);
        check_known(&outcomes(&with), &outcomes(&without), PYTABLES);
    }
}

/// Fails where tests fail only with logs and are unknown. A known test is named by a part of its name.
fn check_known(with: &Outcomes, without: &Outcomes, known: &[(&str, &str)]) {
    let failing = |outcomes: &Outcomes| -> BTreeSet<String> {
        let failing = outcomes.iter().filter(|(_, outcome)| is_failure(outcome));
        failing.map(|(test, _)| test.clone()).collect()
    };
    let (with_logs, natively) = (failing(with), failing(without));
    let new: Vec<&String> = with_logs.difference(&natively).collect();
    let is_known = |test: &str| known.iter().any(|(part, _)| test.contains(part));
    let unknown: Vec<_> = new.iter().filter(|test| !is_known(test)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    for (part, reason) in known {
        eprintln!("{part}: {reason}");
        if !new.iter().any(|test| test.contains(part)) {
            eprintln!("{part} passes now");
        }
    }
    eprintln!("{}", count(with));
}

fn is_failure(outcome: &str) -> bool {
    ["FAILED", "ERROR"].contains(&outcome)
}
