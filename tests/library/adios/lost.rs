//! Directories that have lost some of their data: all else is read as before, and the rest is an error that says why.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, FileType, mknodat};

use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::{File, Kind, Place, Variable};
use h5logfs_catalog::Catalog;
use h5logfs_common::diagnostic::Severity;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::journal::ShownFlush;
use h5logfs_log::snapshot::{Content, Snapshot};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::{Tables, adios::DatasetSource};
use h5logfs_scan::InProcess;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use h5logfs_view::index::store::Store;

use super::{copy, directory, scan, scan_at, told};
use crate::common::PROGRAM;
use crate::common::clock::settle;
use crate::common::people::{ALICE, BOB, can_be_others, set_mode};

/// Value of each memory limit.
const MEMORY: u64 = 32 << 20;

fn view(directory: &Path) -> Arc<View> {
    let snapshot = scan(directory);
    snapshot.check().unwrap();
    let budget = Budget::new(MemoryLimits::each(MEMORY));
    View::open(
        &SourceDir::open(directory).unwrap(),
        snapshot,
        Arc::new(budget),
        None,
    )
    .unwrap()
}

/// Datasets by path, with their sources.
fn datasets(view: &View) -> BTreeMap<String, (usize, DatasetSource)> {
    let Tables::Adios(tables) = &view.snapshot().log else {
        panic!("another layout");
    };
    let all = view.snapshot().datasets.iter().enumerate();
    let of = all.map(|(number, dataset)| match dataset.content {
        Content::Logged { id, .. } => (
            dataset.name.clone(),
            (number, tables.datasets[id as usize].clone()),
        ),
        _ => panic!("{} is not logged", dataset.name),
    });
    of.collect()
}

fn read(view: &View, number: usize, bounds: &Bounds) -> Result<Vec<u8>, String> {
    let size = view.snapshot().datasets[number].element_size;
    let mut out = vec![0xaa; (bounds.count().product::<u64>() * size) as usize];
    let task = view.task(None);
    let read = task.retry(|| {
        view.hyperslabs(&task, number)?
            .read(&task, bounds, &mut out)
    });
    read.map(|()| out).map_err(|error| error.to_string())
}

/// The variables of all steps of a sound directory.
fn steps(of: &Path) -> Vec<Vec<Variable>> {
    let read = |name| fs::read(of.join(name)).unwrap();
    let (index, metadata) = (read("md.idx"), read("md.0"));
    let formats = fs::read(of.join("mmd.0")).ok();
    let files = Files {
        index: &index,
        metadata: &metadata,
        formats: formats.as_ref().map(|bytes| bytes as _),
    };
    let directory = Directory::open(files).unwrap();
    let step = |number| directory.step(files, number, &|_| true).unwrap().variables;
    (0..directory.steps()).map(step).collect()
}

/// A block of a dataset: its step, its box in that step, and the place of its bytes.
struct Shown {
    step: u64,
    start: Vec<u64>,
    count: Vec<u64>,
    place: Place,
}

impl Shown {
    /// The box in a dataset.
    fn bounds(&self, of: &DatasetSource) -> Bounds {
        let row = of.has_steps.then(|| of.steps.position(self.step).unwrap());
        let start: Vec<u64> = row.into_iter().chain(self.start.iter().copied()).collect();
        let count = row.map(|_| 1).into_iter().chain(self.count.iter().copied());
        let end = start
            .iter()
            .zip(count)
            .map(|(start, count)| start + count)
            .collect();
        Bounds { start, end }
    }
}

fn blocks(of: &DatasetSource, steps: &[Vec<Variable>]) -> Vec<Shown> {
    let mut found = Vec::new();
    for step in of.steps.iter() {
        let mut variables = steps[step as usize].iter();
        let variable = variables
            .find(|variable| variable.name == of.variable)
            .unwrap();
        for (number, block) in variable.blocks.iter().enumerate() {
            if of.block.is_some_and(|own| own != number as u64) {
                continue;
            }
            let (start, count) = match variable.kind {
                Kind::LocalValue => (vec![number as u64], vec![1]),
                Kind::LocalArray => (vec![0; variable.rank], variable.count(number).to_vec()),
                _ => (
                    variable.start(number).to_vec(),
                    variable.count(number).to_vec(),
                ),
            };
            let place = block.place;
            found.push(Shown {
                step,
                start,
                count,
                place,
            });
        }
    }
    found
}

/// Compares what is left of the directory called `name` at `left` with all of it. `len` is the number of bytes of the file
/// `data.lost` that can be read there, and `reason` why there are no more. Returns the number of blocks that can be read, and
/// of those that cannot.
fn compare(name: &str, left: &Path, (lost, len): (u32, u64), reason: &str) -> (usize, usize) {
    let reason = format!("data.{lost} {reason}");
    let (sound, left) = (view(&directory(name)), view(left));
    let steps = steps(&directory(name));
    let (all, shown) = (datasets(&sound), datasets(&left));
    let (mut readable, mut unreadable) = (0, 0);
    for (path, (number, of)) in &shown {
        let (whole, of_whole) = &all[path];
        for block in blocks(of, &steps) {
            let is_lost = block.place.file == File::Data(lost) && block.place.end() > Some(len);
            match read(&left, *number, &block.bounds(of)) {
                Ok(got) if !is_lost => {
                    let expected = read(&sound, *whole, &block.bounds(of_whole));
                    assert_eq!(Ok(got), expected, "{name}: {path}");
                    readable += 1;
                }
                Err(error) if is_lost => {
                    assert!(
                        error.contains(path.as_str()) && error.contains("writer"),
                        "{error}"
                    );
                    assert!(error.contains(&reason), "{error}");
                    unreadable += 1;
                }
                other => panic!(
                    "{name}: {path} in step {}, {:?}: {other:?}",
                    block.step, block.place
                ),
            }
        }
    }
    (readable, unreadable)
}

/// What can be at the place of a lost file, and what is said of it.
const INSTEAD: [(Option<FileType>, &str); 5] = [
    (None, "is not there"),
    (
        Some(FileType::Directory),
        "is a directory, not a regular file",
    ),
    (Some(FileType::Fifo), "is a FIFO, not a regular file"),
    (Some(FileType::Socket), "is a socket, not a regular file"),
    (
        Some(FileType::Symlink),
        "is a symbolic link, which is not followed",
    ),
];

/// Puts something else in the place of a file; its bytes are then at `PATH.away`.
fn replace(path: &Path, by: Option<FileType>) {
    let mut away = path.as_os_str().to_owned();
    away.push(".away");
    let away = Path::new(&away);
    fs::rename(path, away).unwrap();
    match by {
        None => {}
        Some(FileType::Directory) => fs::create_dir(path).unwrap(),
        Some(FileType::Symlink) => symlink(away.file_name().unwrap(), path).unwrap(),
        Some(other) => mknodat(CWD, path, other, 0o644.into(), 0).unwrap(),
    }
}

/// Runs a program on a directory. Returns what it prints.
fn printed(mut program: Command, arguments: &[&str], of: &Path) -> String {
    let output = program.args(arguments).arg(of).output().unwrap();
    [output.stdout, output.stderr]
        .map(|said| String::from_utf8_lossy(&said).into_owned())
        .concat()
}

#[test]
fn all_but_the_blocks_of_a_lost_file_is_read() {
    for name in ["b4_mpi_agg2", "b5_mpi_agg2"] {
        for (instead, reason) in INSTEAD {
            let copy = copy(name);
            replace(&copy.path().join("data.1"), instead);
            let (readable, unreadable) = compare(name, copy.path(), (1, 0), reason);
            assert!(
                readable > 20 && unreadable > 20,
                "{name}: {readable} {unreadable}"
            );
            let snapshot = scan(copy.path());
            let lost = told(&snapshot, Severity::Lost);
            let words = format!("data.1 {reason}: ");
            assert!(lost[0].starts_with(&words), "{lost:?}");
            assert!(incomplete(&snapshot).contains(&words));
            for command in ["check", "inspect"] {
                let said = printed(Command::new(PROGRAM), &[command], copy.path());
                assert!(said.contains(&words), "{command}: {said}");
            }
        }
    }
}

/// The attribute of the root that says what is missing. The image has it as it is.
fn incomplete(snapshot: &Snapshot) -> String {
    assert!(snapshot.has_unreadable);
    String::from_utf8_lossy(&snapshot.image).into_owned()
}

#[test]
fn a_file_that_may_not_be_read_is_lost() {
    if !can_be_others() {
        return;
    }
    let copy = copy("b5_mpi_agg2");
    for (path, mode) in [("", 0o755), ("data.1", 0o600)] {
        set_mode(&copy.path().join(path), mode);
    }
    let alice = || ALICE.command(PROGRAM);
    for command in ["check", "inspect"] {
        let said = printed(alice(), &[command], copy.path());
        let words = "data.1 cannot be opened: Permission denied";
        assert!(said.contains(words), "{command}: {said}");
    }
    set_mode(&copy.path().join("data.1"), 0o644);
    for path in ["", "md.idx"] {
        ALICE.owns(&copy.path().join(path), 0o755);
    }
    BOB.owns(&copy.path().join("data.1"), 0o644);
    let said = printed(alice(), &["check"], copy.path());
    let words = "data.1 does not belong to the log: user 61102 owns it";
    assert!(said.contains(words), "{said}");
}

#[test]
fn metadata_that_are_no_regular_file_are_named() {
    let refused = |copy: &Path| scan_at(copy, ShownFlush::Newest).map_err(|e| e.to_string());
    let fifo = |name, file| {
        let copy = copy(name);
        let path = copy.path().join(file);
        let _ = fs::remove_file(&path);
        mknodat(CWD, path, FileType::Fifo, 0o644.into(), 0).unwrap();
        refused(copy.path())
    };
    for (name, file, what) in [
        ("b4_steps", "md.0", "it has the metadata of all 4 steps"),
        ("b5_steps", "md.0", "it has the metadata of all 4 steps"),
        (
            "b5_steps",
            "mmd.0",
            "it has the formats of the metadata of all 4 steps",
        ),
    ] {
        let error = fifo(name, file).unwrap_err();
        let words = format!("{file} is a FIFO, not a regular file: {what}");
        assert!(error.contains(&words), "{name}: {error}");
    }
    // BP4 needs no such file.
    assert_eq!(fifo("b4_steps", "mmd.0").unwrap().diagnostics, []);
}

/// A catalog keeps no scan of a directory that lacks a file, because nothing else changes when the file comes.
#[test]
fn a_file_that_comes_back_is_seen() {
    let copy = copy("b5_mpi_agg2");
    let run = copy.path().join("run.bp");
    fs::create_dir(&run).unwrap();
    for entry in fs::read_dir(copy.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::rename(entry.path(), run.join(entry.file_name())).unwrap();
        }
    }
    let kept = tempfile::tempdir().unwrap();
    let look = || {
        let store = Store::open(&kept.path().join("kept"), 64 << 20).unwrap();
        let catalog = Catalog::new(
            SourceDir::open(copy.path()).unwrap(),
            MemoryLimits::each(MEMORY),
            InProcess::default(),
        );
        let catalog = catalog.with_store(Arc::new(store));
        let view = catalog.open(Path::new("run.bp/md.idx")).unwrap();
        (view.snapshot().has_losses(), catalog.scans())
    };
    let away = copy.path().join("away");
    fs::rename(run.join("data.1"), &away).unwrap();
    settle(copy.path());
    assert_eq!([look(), look()], [(true, 1), (true, 1)]);
    fs::rename(&away, run.join("data.1")).unwrap();
    settle(copy.path());
    assert_eq!([look(), look()], [(false, 1), (false, 0)]);
}

#[test]
fn data_in_an_object_store_are_told() {
    let copy = copy("b5_steps");
    fs::remove_file(copy.path().join("data.0")).unwrap();
    fs::write(copy.path().join("s3.json"), "{}").unwrap();
    let lost = told(&scan(copy.path()), Severity::Lost);
    assert!(
        lost[0].contains("object store") && lost[0].contains("ADIOS2"),
        "{lost:?}"
    );
}

/// The cut is in the middle of a step's blocks.
#[test]
fn all_but_the_blocks_behind_a_cut_is_read() {
    for name in ["b4_steps", "b5_steps"] {
        let copy = copy(name);
        let all = steps(&directory(name));
        let mut shared = all
            .iter()
            .flatten()
            .filter(|variable| variable.blocks.len() > 1);
        let len = shared.nth(1).unwrap().blocks[0].place.end().unwrap();
        let data = OpenOptions::new()
            .write(true)
            .open(copy.path().join("data.0"))
            .unwrap();
        data.set_len(len).unwrap();
        let snapshot = scan(copy.path());
        assert!(snapshot.has_unreadable);
        let mut datasets = snapshot.datasets.iter();
        let rho = datasets.find(|dataset| dataset.name == "/fields/rho");
        assert_eq!(rho.unwrap().dims[0], 2, "{name}");
        let (_, unreadable) = compare(name, copy.path(), (0, len), "ends at byte");
        assert_eq!(unreadable, 2, "{name}");
    }
}
