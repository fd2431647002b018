//! The table of expected results, `expected.txt`: each command, followed by a line for each way of running it and the
//! names of failing tests.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use super::common::readers::project;
use super::report::{End, Report};

const HEAD: &str = "\
# What comes of the tests of HDF5 1.14, in each way of running them: natively, through HDF5's own connector that passes all on,
# through the file driver h5logfs, and through the VOL connector h5logfs. A result may only get better. CONTRIBUTING.md tells how
# to write this table anew, docs/limits.md why logs differ.
#
# The connector does not run programs that are about the inside of libhdf5, which take the native file out of its identifier. A
# way without a result was not run yet. \"2.2\" stands before programs that are built with HDF5 2.2.
#
#   way           ended    passed  failed  skipped
";

/// Width of the column before the result.
const WAY: usize = 14;

/// A line for each way of running a command.
struct Row {
    command: String,
    way: String,
    expected: Report,
}

pub struct Table {
    rows: Vec<Row>,
}

impl Table {
    fn path() -> PathBuf {
        project().join("tests/hdf5/expected.txt")
    }

    pub fn read() -> Self {
        Table::parse(&fs::read_to_string(Table::path()).unwrap())
    }

    fn parse(text: &str) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        let mut command = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(test) = line.strip_prefix("        ") {
                let row = rows.last_mut();
                row.unwrap_or_else(|| panic!("no way before: {line}"))
                    .expected
                    .failing
                    .insert(test.to_owned());
            } else if let Some(row) = line.strip_prefix("    ") {
                let expected = result(row);
                let (way, expected) = expected.unwrap_or_else(|| panic!("no result: {line}"));
                rows.push(Row {
                    command: command.to_owned(),
                    way: way.to_owned(),
                    expected,
                });
            } else if !line.is_empty() {
                command = line;
            }
        }
        Table { rows }
    }

    /// The commands of a way, with their results.
    pub fn of(self, way: &str) -> Vec<(String, Report)> {
        let rows = self.rows.into_iter().filter(|row| row.way == way);
        rows.map(|row| (row.command, row.expected)).collect()
    }

    /// Writes the result of a command in one way. Other ways are tested at the same time.
    pub fn replace(command: &str, way: &str, report: Report) {
        let file = File::open(Table::path()).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let mut table = Table::read();
        let is_it = |row: &&mut Row| row.way == way && row.command == command;
        table.rows.iter_mut().find(is_it).unwrap().expected = report;
        fs::write(Table::path(), table.text()).unwrap();
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        let mut last = "";
        for row in &self.rows {
            if row.command != last {
                last = &row.command;
                writeln!(text, "\n{last}").unwrap();
            }
            let is_known = row.expected != Report::unknown();
            let result = if is_known {
                row.expected.row()
            } else {
                String::new()
            };
            let line = format!("    {:<WAY$}{result}", row.way);
            writeln!(text, "{}", line.trim_end()).unwrap();
            for test in &row.expected.failing {
                writeln!(text, "        {test}").unwrap();
            }
        }
        text
    }
}

/// The way and the result in a row. Without a result any other is better.
fn result(row: &str) -> Option<(&str, Report)> {
    let words: Vec<&str> = row.split_whitespace().collect();
    let mut report = Report::unknown();
    match words[..] {
        [_] => {}
        [_, end, passed, failed, skipped] => {
            report.end = End::parse(end)?;
            report.passed = passed.parse().ok()?;
            report.failed = failed.parse().ok()?;
            report.skipped = skipped.parse().ok()?;
        }
        _ => return None,
    }
    Some((words[0], report))
}

#[test]
fn the_table_is_as_it_would_be_written() {
    let text = fs::read_to_string(Table::path()).unwrap();
    assert!(
        Table::parse(&text).text() == text,
        "it is written otherwise"
    );
}
