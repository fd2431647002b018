//! The output of a program, and its end.
//!
//! Most programs print `Testing`, the test, and ` PASSED`, `*FAILED*` or ` -SKIP-`; error messages may come between.
//! `testhdf5` and `testphdf5` end at the first failure, or count errors without such a line, so each of their tests
//! is run separately.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The end of a program. Greater ones are worse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    #[default]
    Well,
    /// The program reported a failure.
    Badly,
    Killed(i32),
    /// The program was killed because it took too long.
    Late,
}

impl End {
    pub fn of(status: ExitStatus) -> Self {
        match status.signal() {
            _ if status.success() => End::Well,
            None => End::Badly,
            Some(signal) => End::Killed(signal),
        }
    }

    /// Parses an end.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "well" => Some(End::Well),
            "badly" => Some(End::Badly),
            "late" => Some(End::Late),
            _ => Some(End::Killed(text.strip_prefix("signal")?.parse().ok()?)),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            End::Well => f.pad("well"),
            End::Badly => f.pad("badly"),
            End::Killed(signal) => f.pad(&format!("signal{signal}")),
            End::Late => f.pad("late"),
        }
    }
}

/// The results of a program's tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub end: End,
    pub passed: usize,
    pub skipped: usize,
    pub failed: usize,
    /// Names of failed tests. Several tests may share one.
    pub failing: BTreeSet<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

impl Outcome {
    fn in_line(line: &str) -> Option<Self> {
        if line.contains("*FAILED*") {
            Some(Outcome::Failed)
        } else if line.ends_with(" PASSED") {
            Some(Outcome::Passed)
        } else if line.ends_with(" -SKIP-") {
            Some(Outcome::Skipped)
        } else {
            None
        }
    }
}

impl Report {
    /// A report worse than any other.
    pub fn unknown() -> Self {
        Report {
            end: End::Late,
            ..Report::default()
        }
    }

    /// Adds the output of a program.
    pub fn add(&mut self, end: End, said: &str) {
        self.end = self.end.max(end);
        let mut open: Option<&str> = None;
        for line in said.lines().map(str::trim_end) {
            if let Some(text) = line.trim_start().strip_prefix("Testing ") {
                open = Some(text);
            }
            let outcome = Outcome::in_line(line);
            match (open, outcome) {
                (Some(test), Some(outcome)) => self.count(&name(test), outcome),
                // The outcome of a test with parts, which come before it. A failure may be printed twice.
                (None, Some(Outcome::Passed)) => self.passed += 1,
                (None, Some(Outcome::Skipped)) => self.skipped += 1,
                _ => {}
            }
            open = open.filter(|_| outcome.is_none());
        }
        // The test that was running at the end.
        if let (Some(test), true) = (open, end != End::Well) {
            self.count(&name(test), Outcome::Failed);
        }
    }

    /// Adds a test that was run separately.
    pub fn add_whole(&mut self, test: &str, end: End, said: &str) {
        self.end = self.end.max(end);
        let outcome = match end {
            End::Well if said.contains("-SKIP-") => Outcome::Skipped,
            End::Well => Outcome::Passed,
            _ => Outcome::Failed,
        };
        self.count(test, outcome);
    }

    fn count(&mut self, test: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped => self.skipped += 1,
            Outcome::Failed => {
                self.failed += 1;
                self.failing.insert(test.to_owned());
            }
        }
    }

    /// The row in the table, without names.
    pub fn row(&self) -> String {
        let Report {
            end,
            passed,
            skipped,
            failed,
            ..
        } = self;
        format!("{end:<9}{passed:>6}{failed:>8}{skipped:>9}")
    }

    /// Results worse than expected.
    pub fn worse_than(&self, expected: &Report) -> Vec<String> {
        let mut worse = Vec::new();
        if self.end > expected.end {
            worse.push(format!("ended {}, not {}", self.end, expected.end));
        }
        if self.passed < expected.passed {
            worse.push(format!("{} passed, not {}", self.passed, expected.passed));
        }
        let new = self.failing.difference(&expected.failing);
        worse.extend(new.map(|test| format!("failed: {test}")));
        worse
    }

    /// Results better than expected.
    pub fn better_than(&self, expected: &Report) -> Vec<String> {
        let mut better = Vec::new();
        if self.end < expected.end {
            better.push(format!("ended {}, not {}", self.end, expected.end));
        }
        if self.passed > expected.passed {
            better.push(format!("{} passed, not {}", self.passed, expected.passed));
        }
        let gone = expected.failing.difference(&self.failing);
        better.extend(gone.map(|test| format!("does not fail: {test}")));
        better
    }
}

/// The name of a test: the text after `Testing`, without the outcome.
fn name(text: &str) -> String {
    let text = ["*FAILED*", " PASSED", " -SKIP-"]
        .iter()
        .fold(text, |text, outcome| text.trim_end_matches(outcome));
    // An error message may follow in the same line, after padding.
    let text = text.split("HDF5-DIAG:").next().unwrap_or(text);
    let text = text.trim_start();
    let text = text.split("  ").next().unwrap_or(text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The tests that a program lists with `-help`. Other ranks may print in between.
pub fn listed(help: &str) -> Vec<String> {
    let mut lines = help
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("----"));
    lines.next();
    let names = lines.take_while(|line| !line.trim().is_empty());
    names
        .filter(|line| !line.starts_with("MPI-process "))
        .filter_map(|line| Some(line.split_whitespace().next()?.to_owned()))
        .collect()
}

#[test]
fn reports_are_what_programs_print() {
    let said = "Testing one                 PASSED\n\
        Testing several\n\
        \x20 Testing a part            HDF5-DIAG: Error detected\n  #000: somewhere\n*FAILED*\n\
        \x20  at file.c:1 in main()...\n\
        \x20 Testing another part     -SKIP-\n\
        Testing the end          program: file.c:2: Assertion failed";
    let mut report = Report::default();
    report.add(End::Killed(6), said);
    assert_eq!((report.passed, report.skipped, report.failed), (1, 1, 2));
    assert_eq!(
        report.failing,
        ["a part", "the end"].map(str::to_owned).into()
    );
    let help = "Usage\n\n            Name Description\n            ---- -----------\n          config what\nMPI-process 3. hostname=node\n            heap more\n\n\n";
    assert_eq!(listed(help), ["config", "heap"]);
}
