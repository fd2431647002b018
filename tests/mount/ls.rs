//! `h5logfs ls`: the files listed, and their descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::common::amount::either;
use crate::common::people::{copy, corpus};
use crate::common::readers::said;
use crate::common::unclosed::Log;
use crate::common::{Mounted, PROGRAM, User, can_mount, messages};

fn ls(dir: &Path, arguments: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    let program = program.arg("ls").args(arguments).current_dir(dir);
    program.output().unwrap()
}

/// Path and state of the listed logs, in order.
fn listed(dir: &Path, arguments: &[&str]) -> Vec<(String, String)> {
    let output = ls(dir, &[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", said(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let pair = |row: &Value| (text(row, "path"), text(row, "state"));
    rows.iter().map(pair).collect()
}

fn pairs<const N: usize>(rows: [(&str, &str); N]) -> Vec<(String, String)> {
    rows.map(|(path, state)| (path.to_owned(), state.to_owned()))
        .into()
}

#[test]
fn logs_are_listed_with_their_states_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["below", "linked"] {
        fs::create_dir(at(name)).unwrap();
    }
    for (from, to) in [
        ("corpus/fill.log.h5", "closed.h5"),
        ("corpus/fill.expected.h5", "plain.h5"),
        ("corpus/subfile.log.h5", "below/subfile.log.h5"),
        (
            "corpus/subfile.log.h5.subfiles",
            "below/subfile.log.h5.subfiles",
        ),
        ("corpus-pnetcdf/records-cdf1-np1/file.nc", "file.nc"),
        (
            "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.meta",
            "file.nc_0_0.meta",
        ),
        (
            "corpus-pnetcdf/records-cdf1-np1/file.nc_0_0.data",
            "file.nc_0_0.data",
        ),
    ] {
        copy(&corpus(from), &at(to));
    }
    fs::write(at("text"), "a text\n").unwrap();
    let whole = fs::read(at("closed.h5")).unwrap();
    fs::write(at("cut.h5"), &whole[..whole.len() / 2]).unwrap();
    std::os::unix::fs::symlink(at("below"), at("linked/below")).unwrap();
    let (_dead, alive) = (Log::usual(&at("dead.h5")), Log::usual(&at("alive.h5")));
    let journal = File::open(alive.journal_path()).unwrap();
    flock(&journal, FlockOperation::LockExclusive).unwrap();

    let here = [
        ("alive.h5", "running"),
        ("closed.h5", "closed"),
        ("cut.h5", "unreadable"),
        ("dead.h5", "left"),
        ("file.nc", "unclosed"),
    ];
    assert_eq!(listed(dir.path(), &[]), pairs(here));
    let below = ("below/subfile.log.h5", "closed");
    let all = [here[0], below, here[1], here[2], here[3], here[4]];
    assert_eq!(listed(dir.path(), &["-r"]), pairs(all));
    let by_state = [here[2], here[3], here[0], here[4], here[1]];
    assert_eq!(listed(dir.path(), &["--sort", "state"]), pairs(by_state));
    let mut turned = here;
    turned.reverse();
    assert_eq!(listed(dir.path(), &["--reverse"]), pairs(turned));

    // Other files are told where they are named, and are no faults.
    let files = [
        ("dead.h5", "left"),
        ("plain.h5", "plain_hdf5"),
        ("text", "no_log"),
    ];
    let named = ["text", "plain.h5", "dead.h5"];
    assert_eq!(listed(dir.path(), &named), pairs(files));
    // A link named by the user is followed, and keeps its name.
    std::os::unix::fs::symlink(at("dead.h5"), at("linked/last.h5")).unwrap();
    let named = [("closed.h5", "closed"), ("linked/last.h5", "left")];
    assert_eq!(
        listed(dir.path(), &["linked/last.h5", "closed.h5"]),
        pairs(named)
    );
    let output = ls(dir.path(), &["none", "closed.h5"]);
    let (text, words) = (
        String::from_utf8_lossy(&output.stdout),
        "none: No such file",
    );
    assert!(!output.status.success() && said(&output).contains(words));
    assert!(text.contains("closed.h5"), "{text}");
}

/// A directory that has files of a log, but no index, is not nothing.
#[test]
fn a_directory_without_its_index_is_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["empty.bp", "none.bp", "no_metadata.bp", "good.bp"] {
        copy(&corpus("corpus-adios/b5_steps.bp"), &at(name));
    }
    fs::write(at("empty.bp/md.idx"), "").unwrap();
    fs::remove_file(at("none.bp/md.idx")).unwrap();
    fs::remove_file(at("no_metadata.bp/md.0")).unwrap();
    // Another program may have such a name.
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/data.0"), "").unwrap();
    let expected = [
        ("empty.bp", "unreadable"),
        ("good.bp", "closed"),
        ("no_metadata.bp", "unreadable"),
        ("none.bp", "unreadable"),
    ];
    let names: Vec<&str> = expected.iter().map(|(name, _)| *name).collect();
    assert_eq!(listed(dir.path(), &[]), pairs(expected));
    assert_eq!(listed(dir.path(), &names), pairs(expected));
    let words = [
        "md.idx, has no bytes",
        "without its index",
        "md.0 is not there",
    ];
    for (arguments, count) in [(&["."][..], "3 of 4"), (&names, "3 of 4")] {
        let mut check = Command::new(PROGRAM);
        let check = check.arg("check").args(arguments).current_dir(dir.path());
        let output = check.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(words.iter().all(|words| said.contains(words)), "{said}");
        assert!(
            said.contains(&format!("{count} files have faults")),
            "{said}"
        );
    }
}

/// The table agrees with `inspect` and the file system.
#[test]
fn the_table_tells_of_size_coverage_and_flush() {
    let dir = tempfile::tempdir().unwrap();
    copy(&corpus("corpus/fill.log.h5"), &dir.path().join("closed.h5"));
    let log = Log::usual(&dir.path().join("log.h5"));
    let output = ls(dir.path(), &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines[0],
        [
            "STATE", "LAYOUT", "DATASETS", "SIZE", "COVERED", "WRITTEN", "FILE"
        ]
    );
    let closed = &lines[1];
    assert_eq!(
        closed[..7],
        ["closed", "Log", "VOL", "9", "64.03", "KiB", "13.1"]
    );
    let left = &lines[2];
    assert_eq!(left[..2], ["left", "unclosed"]);
    assert!(text.contains("flush 2, "), "{text}");

    let output = ls(dir.path(), &["--json", "log.h5"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["flush"], 2);
    let written = fs::metadata(log.journal_path())
        .unwrap()
        .modified()
        .unwrap();
    let told: String = rows[0]["written"].as_str().unwrap().into();
    let seconds = Command::new("date").args(["+%s", "-d", &told]).output();
    let seconds = String::from_utf8(seconds.unwrap().stdout).unwrap();
    let since = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(seconds.trim(), since.as_secs().to_string());
}

/// A kind of file: how it is made, and its description.
struct Kind {
    name: &'static str,
    make: fn(&Path),
    /// The state; none for a file that is not listed.
    state: Option<&'static str>,
    layout: Option<&'static str>,
    datasets: Option<u64>,
    covered: Option<f64>,
    flush: Option<u64>,
    /// Words of its fault.
    fault: Option<&'static str>,
}

impl Kind {
    /// A file in `corpus`, of the Log VOL connector.
    const fn closed(name: &'static str, make: fn(&Path), datasets: u64, covered: f64) -> Self {
        Kind {
            name,
            make,
            state: Some("closed"),
            layout: Some("Log VOL"),
            datasets: Some(datasets),
            covered: Some(covered),
            flush: None,
            fault: None,
        }
    }

    const fn unclosed(name: &'static str, state: &'static str) -> Self {
        let log = Kind::closed(name, |at| drop(Log::usual(at)), 1, 1.0);
        Kind {
            state: Some(state),
            flush: Some(2),
            ..log
        }
    }

    const fn unlisted(name: &'static str, make: fn(&Path)) -> Self {
        Kind {
            state: None,
            ..Kind::closed(name, make, 0, 0.0)
        }
    }

    /// The state of its job according to `inspect`.
    fn job_state(&self) -> Option<&'static str> {
        match self.state {
            Some("running") => Some("running"),
            Some("left") => Some("ended"),
            _ => None,
        }
    }

    /// Checks the JSON line of the file; other tests compare time and size.
    fn assert_told(&self, row: &Value) {
        let text = |name: &str| row[name].as_str();
        let about = &row["path"];
        assert_eq!(text("state"), self.state, "{about}");
        assert_eq!(text("layout"), self.layout, "{about}");
        assert_eq!(row["datasets"].as_u64(), self.datasets, "{about}");
        assert_eq!(row["flush"].as_u64(), self.flush, "{about}");
        let covered = row["covered"].as_f64();
        assert_eq!(covered.is_some(), self.covered.is_some(), "{about}");
        let wrong = covered.unwrap_or(0.0) - self.covered.unwrap_or(0.0);
        assert!(wrong.abs() < 0.001, "{about}: {covered:?}");
        assert_eq!(text("fault").is_some(), self.fault.is_some(), "{about}");
        let has_words = text("fault")
            .unwrap_or("")
            .contains(self.fault.unwrap_or(""));
        assert!(has_words, "{about}: {:?}", row["fault"]);
        assert_eq!(row["canonical_bytes"].is_u64(), self.layout.is_some());
        assert_eq!(text("written").is_some(), self.layout.is_some());
    }
}

fn copied(name: &str, at: &Path) {
    fs::copy(corpus(name), at).unwrap();
}

const KINDS: [Kind; 10] = [
    Kind::closed("fill", |at| copied("corpus/fill.log.h5", at), 9, 0.131),
    Kind::closed("nd", |at| copied("corpus/nd.log.h5", at), 5, 1.0),
    Kind::closed("tiny", |at| copied("corpus/tiny.log.h5", at), 2, 0.2),
    Kind::closed("subfile", subfiled, 5, 0.601),
    Kind {
        state: Some("unclosed"),
        layout: Some("PnetCDF burst buffer"),
        ..Kind::closed("netcdf", netcdf, 4, 0.844)
    },
    Kind::unclosed("alive", "running"),
    Kind::unclosed("dead", "left"),
    Kind {
        // Half of what was written is lost.
        fault: Some("elements cannot be read"),
        ..Kind::closed("bad", |at| copied("corpus/bad_foff.log.h5", at), 2, 0.1)
    },
    Kind {
        state: Some("unreadable"),
        layout: None,
        datasets: None,
        covered: None,
        fault: Some("truncated file"),
        ..Kind::closed("cut", cut, 0, 0.0)
    },
    Kind::unlisted("plain", |at| copied("corpus/fill.expected.h5", at)),
];

fn subfiled(at: &Path) {
    copied("corpus/subfile.log.h5", at);
    let subfiles = format!("{}.subfiles", at.display());
    fs::create_dir(&subfiles).unwrap();
    let own = at.file_name().unwrap().to_str().unwrap();
    for number in [0, 1] {
        let from = format!("corpus/subfile.log.h5.subfiles/subfile.log.h5.{number}");
        copied(&from, &Path::new(&subfiles).join(format!("{own}.{number}")));
    }
}

fn netcdf(at: &Path) {
    for end in ["", "_0_0.meta", "_0_0.data"] {
        let from = format!("corpus-pnetcdf/records-cdf1-np1/file.nc{end}");
        let to = format!("{}{end}", at.display());
        copied(&from, Path::new(&to));
    }
}

fn cut(at: &Path) {
    let whole = fs::read(corpus("corpus/fill.log.h5")).unwrap();
    fs::write(at, &whole[..whole.len() / 2]).unwrap();
}

/// Logs of all states in nested directories. A job writes one of them all the time, and others hold the locks of
/// theirs.
#[test]
fn many_logs_are_told_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = BTreeMap::new();
    let mut locks = Vec::new();
    for number in 0..either(300, 1000) {
        let kind = &KINDS[number % KINDS.len()];
        let below = format!("run{:02}/step{}", number / 100, number % 3);
        fs::create_dir_all(dir.path().join(&below)).unwrap();
        let name = format!("{below}/{number:04}-{}", kind.name);
        let path = dir.path().join(&name);
        (kind.make)(&path);
        if kind.state == Some("running") {
            let journal = File::open(format!("{}.h5logfs-journal", path.display())).unwrap();
            flock(&journal, FlockOperation::LockExclusive).unwrap();
            locks.push(journal);
        }
        expected.insert(name, kind);
    }
    expected.retain(|_, kind| kind.state.is_some());
    let (written, done) = (dir.path().join("live.h5"), AtomicBool::new(false));
    let mut live = Log::begin(&written);
    let journal = File::open(live.journal_path()).unwrap();
    flock(&journal, FlockOperation::LockExclusive).unwrap();
    thread::scope(|scope| {
        // The job ends even after a failed assertion.
        let _ended = Ended(&done);
        scope.spawn(|| {
            for step in 0..100_000 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                // A computation step.
                thread::sleep(Duration::from_millis(5));
                live.extend(step + 1);
                live.extent(0, &[(step, b"x")]);
                live.flush();
            }
        });
        tells_of_all(dir.path(), &expected);
        inspects_all(dir.path(), &expected);
    });
}

/// Signals the end when it is dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn tells_of_all(dir: &Path, expected: &BTreeMap<String, &Kind>) {
    let output = ls(dir, &["-r", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let paths: Vec<&str> = rows
        .iter()
        .map(|row| row["path"].as_str().unwrap())
        .collect();
    let live = "live.h5".to_owned();
    let all: BTreeSet<&str> = expected.keys().chain([&live]).map(String::as_str).collect();
    assert!(paths.iter().eq(all.iter()), "{paths:?}");
    for row in &rows {
        match expected.get(row["path"].as_str().unwrap()) {
            Some(kind) => kind.assert_told(row),
            None => assert_eq!(row["state"], "running", "{row}"),
        }
    }

    let table = ls(dir, &["-r", "--sort", "state"]);
    assert!(table.status.success(), "{}", said(&table));
    let table = String::from_utf8(table.stdout).unwrap();
    let lines = table.lines().skip(1);
    let mut lines = lines.filter(|line| !line.contains("that no flush covers"));
    for (state, words) in [
        ("unreadable", "unreadable"),
        ("left", "left unclosed"),
        ("running", "being written"),
        ("unclosed", "not closed"),
        ("closed", "closed"),
    ] {
        let of_kinds = expected
            .iter()
            .filter(|(_, kind)| kind.state == Some(state));
        let mut names: BTreeSet<&str> = of_kinds.map(|(name, _)| name.as_str()).collect();
        if state == "running" {
            names.insert(&live);
        }
        for name in names {
            let line = lines.next().unwrap();
            assert!(
                line.starts_with(words) && line.ends_with(name),
                "{name}: {line}"
            );
            let fault = expected.get(name).and_then(|kind| kind.fault);
            if let Some(fault) = fault {
                assert!(lines.next().unwrap().contains(fault), "{line}");
            }
        }
    }
    assert_eq!(lines.next(), None);
}

/// Unreadable files are reported as errors at the end.
fn inspects_all(dir: &Path, expected: &BTreeMap<String, &Kind>) {
    let mut program = Command::new(PROGRAM);
    program.args(["inspect", "--json"]).args(expected.keys());
    let output = program.current_dir(dir).output().unwrap();
    let told = messages(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    let (bad, good): (Vec<_>, Vec<_>) =
        expected.iter().partition(|(_, kind)| kind.layout.is_none());
    assert_eq!(told.lines().count(), bad.len(), "{told}");
    for ((name, _), line) in bad.iter().zip(told.lines()) {
        assert!(line.contains(name.as_str()), "{name}: {line}");
    }
    let reports: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(reports.len(), good.len());
    for ((name, kind), report) in good.iter().zip(&reports) {
        let file = report["file"].as_str().unwrap();
        assert!(file.ends_with(name.as_str()), "{name}: {file}");
        assert_eq!(report["layout"].as_str(), kind.layout, "{name}");
        let datasets = report["datasets"].as_array().unwrap().len();
        assert_eq!(Some(datasets as u64), kind.datasets, "{name}");
        assert_eq!(
            report["unclosed"]["state"].as_str(),
            kind.job_state(),
            "{name}"
        );
    }
}

#[test]
fn elements_that_cannot_be_read_are_told() {
    let dir = tempfile::tempdir().unwrap();
    copy(
        &corpus("corpus/bad_foff.log.h5"),
        &dir.path().join("bad.h5"),
    );
    let output = ls(dir.path(), &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("elements cannot be read"));
}

#[test]
fn a_mount_has_no_logs() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&corpus("corpus/fill.log.h5"), &dir.path().join("closed.h5"));
    let mounted = Mounted::new(dir.path(), "");
    let output = ls(dir.path(), &[mounted.join("").to_str().unwrap()]);
    let words = dir.path().to_str().unwrap();
    assert!(!output.status.success() && said(&output).contains(words));
}
