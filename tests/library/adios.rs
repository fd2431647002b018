//! The view of ADIOS2 directories.

mod damaged;
mod lost;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use h5logfs_catalog::direct::{self, OpenLog, Opened, Options};
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Error;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::PROGRAM;
use crate::common::encoder::read_whole;
use crate::common::readers::project;

/// The file that stands for a directory in a scan.
const INDEX: &str = "md.idx";

fn corpus() -> PathBuf {
    project().join("tests/corpus-adios")
}

/// The names of all directories.
fn cases() -> Vec<String> {
    let entries = fs::read_dir(corpus()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter_map(|name| name.strip_suffix(".bp").map(str::to_owned));
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    names
}

fn directory(name: &str) -> PathBuf {
    corpus().join(format!("{name}.bp"))
}

fn scan_at(directory: &Path, shown_flush: ShownFlush) -> Result<Snapshot, Error> {
    let (dir, relative) = SourceDir::of_file(&directory.join(INDEX)).unwrap();
    let settings = Settings {
        shown_flush,
        ..Settings::default()
    };
    h5logfs_scan::scan(ScanRequest::alone(&dir, &relative, &settings))
}

fn scan(directory: &Path) -> Snapshot {
    scan_at(directory, ShownFlush::Newest).unwrap()
}

fn told(snapshot: &Snapshot, severity: Severity) -> Vec<String> {
    let found = snapshot.diagnostics.iter();
    let found = found.filter(|diagnostic| diagnostic.severity == severity);
    found.map(ToString::to_string).collect()
}

/// A writable copy of a directory.
fn copy(name: &str) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory(name)).unwrap() {
        let from = entry.unwrap();
        fs::write(
            copy.path().join(from.file_name()),
            fs::read(from.path()).unwrap(),
        )
        .unwrap();
    }
    copy
}

/// A kernel may have cached bytes of an earlier scan.
#[test]
fn each_scan_makes_the_same_image() {
    for name in cases() {
        let [one, other] = [(); 2].map(|()| scan(&directory(&name)));
        assert!(one.image == other.image, "{name}");
    }
}

#[test]
fn a_directory_that_was_not_closed_shows_its_complete_steps() {
    for name in ["b4_crash", "b5_crash"] {
        let snapshot = scan(&directory(name));
        assert_eq!((snapshot.flushes, snapshot.newest), (3, 3), "{name}");
        assert!(snapshot.journal.is_some() && snapshot.sources.iter().all(|s| s.grows));
        let notes = told(&snapshot, Severity::Note);
        assert!(notes[0].contains("3 complete steps"), "{notes:?}");
        assert_eq!(told(&snapshot, Severity::Lost), Vec::<String>::new());
        snapshot.check().unwrap();
    }
}

#[test]
fn ls_tells_whether_a_writer_has_closed_a_directory() {
    let run = |name| {
        let mut ls = Command::new(PROGRAM);
        let output = ls.args(["ls", "--json"]).arg(directory(name)).output();
        let rows: Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        rows[0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        ["b5_crash", "b4_crash", "b5_steps"].map(run),
        ["unclosed", "unclosed", "closed"]
    );
}

#[test]
fn what_is_missing_is_told() {
    let expected = [
        (
            "b5_cut_data",
            &[
                "data.0 ends at byte 3416: 9 blocks of 1 variable in 3 steps from 1 to 3 cannot be read",
                "variable fields/rho: 3 steps from 1 to 3",
            ][..],
        ),
        ("b5_cut_md", &["step 3 and those after it"]),
    ];
    for (name, words) in expected {
        let lost = told(&scan(&directory(name)), Severity::Lost);
        let are_all = lost
            .iter()
            .zip(words)
            .all(|(lost, words)| lost.contains(words));
        assert!(lost.len() == words.len() && are_all, "{name}: {lost:?}");
    }
}

#[test]
fn without_its_data_a_directory_has_what_its_metadata_have() {
    let copy = copy("b5_steps");
    fs::remove_file(copy.path().join("data.0")).unwrap();
    let snapshot = scan(copy.path());
    let names: Vec<&str> = snapshot.datasets.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["/iteration", "/time", "/version"]);
    let lost = told(&snapshot, Severity::Lost);
    let words = "data.0 is not there: 13 blocks of 2 variables in 4 steps from 0 to 3";
    assert!(lost.len() == 3 && lost[0].contains(words), "{lost:?}");
    for (file, reason) in [
        (
            "mmd.0",
            "mmd.0 is not there: it has the formats of the metadata of all 4 steps",
        ),
        (
            "md.0",
            "md.0 is not there: it has the metadata of all 4 steps",
        ),
    ] {
        fs::remove_file(copy.path().join(file)).unwrap();
        let error = scan_at(copy.path(), ShownFlush::Newest).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn a_step_is_a_state_of_its_directory() {
    let rho = |shown_flush| {
        let snapshot = scan_at(&directory("b5_steps"), shown_flush).unwrap();
        let mut datasets = snapshot.datasets.into_iter();
        datasets
            .find(|dataset| dataset.name == "/fields/rho")
            .unwrap()
            .dims
    };
    assert_eq!(rho(ShownFlush::Flush(1)), [5, 3]);
    assert_eq!(rho(ShownFlush::Flush(2)), [2, 5, 3]);
    assert_eq!(rho(ShownFlush::Newest), [4, 5, 3]);
    for shown_flush in [ShownFlush::Flush(5), ShownFlush::Time(0)] {
        let error = scan_at(&directory("b5_steps"), shown_flush).unwrap_err();
        assert!(matches!(error, Error::NoFlush { .. }), "{error}");
    }
}

fn open(index: &Path) -> OpenLog {
    let mut options = Options::parse("".as_ref()).unwrap();
    options.scans.program = PROGRAM.into();
    match direct::open(index, &options).unwrap() {
        Opened::Log(log) => log,
        Opened::Plain => panic!("{}: no log", index.display()),
    }
}

/// End of the second step in a BP5 index.
fn end_of_two_steps(index: &[u8]) -> usize {
    let (mut at, mut steps) = (64, 0);
    while steps < 2 {
        steps += usize::from(index[at] == b's');
        let len = u64::from_le_bytes(index[at + 1..][..8].try_into().unwrap());
        at += 9 + len as usize;
    }
    at
}

#[test]
fn what_was_opened_stays_readable_while_the_directory_grows() {
    /// Offset of the byte that says whether a writer has the directory open.
    const ACTIVE: usize = 39;
    let copy = copy("b5_steps");
    let path = copy.path().join(INDEX);
    let whole = fs::read(&path).unwrap();
    let end = end_of_two_steps(&whole);
    let mut begun = whole[..end].to_vec();
    begun[ACTIVE] = 1;
    fs::write(&path, begun).unwrap();
    let before = open(&path);
    assert_eq!(before.view().snapshot().flushes, 2);
    // The writer continues, and closes it.
    let index = OpenOptions::new().write(true).open(&path).unwrap();
    index.write_all_at(&whole[end..], end as u64).unwrap();
    index.write_all_at(&[0], ACTIVE as u64).unwrap();
    read_whole(before.view()).unwrap();
    let after = open(&path);
    let snapshot = after.view().snapshot();
    assert!(snapshot.journal.is_none());
    assert_eq!((snapshot.flushes, snapshot.newest), (0, 4));
    read_whole(after.view()).unwrap();
}

/// Begins of stored bytes by operators that are not supported: nothing of such a library, only what ADIOS2 puts in front
/// of its output.
#[test]
fn a_block_of_an_unsupported_operator_says_what_can_read_it() {
    /// The begin of the second block of `/c/a`, in its first step.
    const BLOCK: u64 = 0x80;
    let shape = [
        &1_u64.to_le_bytes()[..],
        &14_u64.to_le_bytes(),
        &10_u32.to_le_bytes(),
    ]
    .concat();
    let texts = |texts: &[&str]| {
        let texts = texts
            .iter()
            .flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat());
        texts.collect::<Vec<u8>>()
    };
    let plugin = texts(&["PluginLibrary", "EncryptionOperator", "PluginName", "p"]);
    let pressio = texts(&["compressor_id", "sz3"]);
    for (parts, words) in [
        (
            [&[6, 2, 0, 0][..], &shape, &[2, 1, 12, 0]],
            &[
                "operator sz (version 2.1.12.0)",
                "ADIOS2 can, if it was built with SZ",
            ][..],
        ),
        (
            [&[3, 1, 0, 0], &shape, &[1, 5, 2]],
            &["operator mgard (version 1.5.2)", "built with MGARD"],
        ),
        (
            [
                &[2, 1, 0, 0],
                &shape,
                &[&[0, 99, 4, 1], &pressio[..]].concat(),
            ],
            &[
                "libpressio (version 0.99.4, compressor_id = sz3)",
                "built with libpressio",
            ],
        ),
        (
            [&[53, 1, 0, 0], &[2], &plugin],
            &[
                "plugin (PluginLibrary = EncryptionOperator, PluginName = p)",
                "encrypted",
                "key",
            ],
        ),
        (
            [&[99, 1, 0, 0], &[], &[]],
            &["operator number 99", "not known"],
        ),
        ([&[127, 9, 0, 0], &[], &[]], &["operator null", "version 9"]),
        ([&[7, 2, 0, 0], &[], &[]], &["operator zfp", "version 2"]),
    ] {
        let copy = copy("b5_opnull");
        let data = OpenOptions::new()
            .write(true)
            .open(copy.path().join("data.0"))
            .unwrap();
        data.write_all_at(&parts.concat(), BLOCK).unwrap();
        let log = open(&copy.path().join(INDEX));
        let view = log.view();
        let number = |name| {
            view.snapshot()
                .datasets
                .iter()
                .position(|d| d.name == name)
                .unwrap()
        };
        let read = |name, row: u64| {
            let dataset = &view.snapshot().datasets[number(name)];
            let mut bounds = Bounds {
                start: vec![0; dataset.dims.len()],
                end: dataset.dims.clone(),
            };
            (bounds.start[0], bounds.end[0]) = (row, row + 1);
            let len = bounds.end[1..].iter().product::<u64>() * dataset.element_size;
            let mut out = vec![0; len as usize];
            let task = view.task(None);
            task.retry(|| {
                view.hyperslabs(&task, number(name))?
                    .read(&task, &bounds, &mut out)
            })
        };
        let error = read("/c/a", 0).unwrap_err().to_string();
        for word in words.iter().chain(&["dataset /c/a"]) {
            assert!(error.contains(word), "{error}: no {word}");
        }
        // It is an error of that block alone.
        read("/c/a", 1).unwrap();
        read("/c/plain", 0).unwrap();
    }
}
