//! The output of `h5logfs inspect`.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::common::PROGRAM;
use crate::common::encoder::*;
use crate::common::people::corpus;

fn inspect(options: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("inspect").args(options).args(files);
    command.output().unwrap()
}

/// The output, with file names instead of full paths.
fn printed(options: &[&str], files: &[&Path]) -> String {
    let output = inspect(options, files);
    assert!(output.status.success(), "{output:?}");
    let mut text = String::from_utf8(output.stdout).unwrap();
    for file in files {
        let dir = file.parent().unwrap().canonicalize().unwrap();
        text = text.replace(&format!("{}/", dir.display()), "");
    }
    text
}

/// Steps of a series: a complete row, one that is partly written, and one that is not written.
fn steps() -> LogFile {
    let mut steps = Dataset::new("steps", 0, Type::U8, &[5, 4]).chunked(&[2, 4]);
    steps.max[0] = None;
    let row = Dataset::new("row", 1, Type::U8, &[3]);
    let step = |at, count| Entry::one(0, &[at, 0], &[1, count], vec![1; count as usize]);
    let entries = vec![
        step(0, 4),
        step(1, 4),
        step(3, 1),
        step(4, 4),
        Entry::one(1, &[0], &[3], vec![1; 3]),
    ];
    LogFile::with(vec![steps, row], entries)
}

#[test]
fn a_summary_stands_before_a_line_for_each_dataset() {
    let expected = "\
nd.log.h5: Log VOL log
  as HDF5: 38304 bytes, 2488 of them metadata
  5 logged datasets, 0 incomplete; 20 records, 20 blocks, 7136 bytes logged
DATASET  TYPE  SHAPE         CHUNK         FILTERS  RECORDS    LOGGED  COVERED
/cols    f64   {12, 40}      {12, 40}      -              4  3.75 KiB  100.0 %
/d1      i32   {64}          {64}          -              4     256 B  100.0 %
/d2      i32   {16, 10}      {16, 10}      -              4     640 B  100.0 %
/d3      i32   {8, 6, 5}     {8, 6, 5}     -              4     960 B  100.0 %
/d4      i32   {4, 5, 3, 6}  {4, 5, 3, 6}  -              4  1.41 KiB  100.0 %
";
    assert_eq!(printed(&[], &[&corpus("corpus/nd.log.h5")]), expected);
}

#[test]
fn a_tree_has_the_groups() {
    let text = printed(&["--tree"], &[&corpus("corpus/groups_attrs.log.h5")]);
    let names: Vec<&str> = text.lines().skip(4).collect();
    let expected = [
        "/",
        "├── g1/",
        "│   ├── byname",
        "│   └── g2/",
        "│       ├── bypath",
        "│       └── deep/",
        "│           └── inner",
        "└── top",
    ];
    for (name, expected) in names.iter().zip(expected) {
        assert!(name.starts_with(expected), "{expected}\n{text}");
    }
    assert_eq!(names.len(), expected.len(), "{text}");
}

#[test]
fn what_is_not_wholly_written_is_told_by_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steps.h5");
    steps().write(&path);
    let expected = "\
steps.h5: 1 of 2 logged datasets incomplete
/steps [5, 4]: 65.0 % covered; along dimension 0:
  2: nothing written
  3: 25.0 % written
";
    assert_eq!(printed(&["--incomplete"], &[&path]), expected);

    let found: Value =
        serde_json::from_str(&printed(&["--incomplete", "--json"], &[&path])).unwrap();
    let gap = |at, covered| json!({"first": at, "last": at, "covered": covered});
    let steps = &found["incomplete"][0];
    assert_eq!(
        (&found["logged"], &steps["name"]),
        (&json!(2), &json!("/steps"))
    );
    assert_eq!(steps["gaps"], json!([gap(2, 0.0), gap(3, 0.25)]));

    let said = printed(&[], &[&path]);
    assert!(said.contains("2 logged datasets, 1 incomplete"), "{said}");
}

/// A damaged log can declare any number of gaps.
#[test]
fn the_first_of_very_many_gaps_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("row.h5");
    let row = Dataset::new("row", 0, Type::U8, &[3000]);
    let every_second = (0..1500).map(|n| (vec![2 * n], vec![1])).collect();
    let entry = Entry::many(0, every_second, vec![1; 1500]);
    LogFile::with(vec![row], vec![entry]).write(&path);
    let said = printed(&["--incomplete"], &[&path]);
    assert!(said.contains("/row [3000]: in part; along"), "{said}");
    assert!(
        said.contains("  1999: nothing written\n  and more"),
        "{said}"
    );
    assert!(!said.contains("2001"), "{said}");
}

/// If entries are lost, elements that seem unwritten may have been written.
#[test]
fn what_may_have_been_written_is_told() {
    let said = printed(&["--incomplete"], &[&corpus("corpus/bad_nsel.log.h5")]);
    assert!(said.contains("/a [4, 10]: 0.0 % covered"), "{said}");
    assert!(said.contains("  fault: _md_0: section 0"), "{said}");
}

#[test]
fn several_files_are_shown_and_one_that_cannot_be_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (log, none) = (dir.path().join("steps.h5"), dir.path().join("none.h5"));
    steps().write(&log);
    let good = corpus("corpus/nd.log.h5");

    let output = inspect(&[], &[&none, &log, &good]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success());
    assert_eq!(said.matches(": Log VOL log").count(), 2, "{said}");
    assert!(said.contains("\n\n"), "{said}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none.h5"));

    let all: Value = serde_json::from_str(&printed(&["--json"], &[&log, &good])).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let one: Value = serde_json::from_str(&printed(&["--json"], &[&log])).unwrap();
    assert_eq!(one, all[0]);
    let output = inspect(&["--map", "/row"], &[&log, &good]);
    assert!(!output.status.success() && output.stdout.is_empty());
}
