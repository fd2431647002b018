//! The example of the library that lists and prints datasets.

use std::ffi::OsStr;
use std::path::Path;

use h5logfs_catalog::workers::Limits;

use crate::common::PROGRAM;

#[allow(dead_code)]
#[path = "../../crates/catalog/examples/read_dataset.rs"]
mod example;

fn output(dataset: Option<&str>) -> String {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/convert.log.h5");
    let limits = Limits {
        program: PROGRAM.into(),
        ..Limits::default()
    };
    let mut out = Vec::new();
    example::run(&log, dataset.map(OsStr::new), limits, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_example_lists_and_prints_datasets() {
    let list = output(None);
    assert!(list.contains("/f64_to_f32: f32 [10, 8]\n"), "{list}");
    let chunks = output(Some("/f64_to_f32"));
    assert!(
        chunks.starts_with("chunk [0, 0]:\n-7 -4.6875 -2.375 "),
        "{chunks}"
    );
    assert_eq!(chunks.split_whitespace().count(), 3 + 10 * 8);
    let bytes = output(Some("/i32_to_wide"));
    assert_eq!(bytes.split_whitespace().count(), 3 + 10 * 8 * 8);
}
