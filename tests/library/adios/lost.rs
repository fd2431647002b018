//! Directories that have lost some of their data: all else is read as before, and the rest is an error that says why.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::{File, Kind, Place, Variable};
use h5logfs_common::diagnostic::Severity;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::snapshot::Content;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::{Tables, adios::DatasetSource};
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};

use super::{copy, directory, scan, told};
use crate::common::PROGRAM;

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

/// Compares what is left of the directory called `name` at `left` with all of it. `len` is the length of the file `data.lost`
/// there. Returns the number of blocks that can be read, and of those that cannot.
fn compare(name: &str, left: &Path, lost: u32, len: u64) -> (usize, usize) {
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
                    let reasons = ["ends at byte", "is not there"];
                    let mut reasons = reasons
                        .map(|reason| format!("data.{lost} {reason}"))
                        .into_iter();
                    assert!(reasons.any(|reason| error.contains(&reason)), "{error}");
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

#[test]
fn all_but_the_blocks_of_a_lost_file_is_read() {
    for name in ["b4_mpi_agg2", "b5_mpi_agg2"] {
        let copy = copy(name);
        fs::remove_file(copy.path().join("data.1")).unwrap();
        let (readable, unreadable) = compare(name, copy.path(), 1, 0);
        assert!(
            readable > 20 && unreadable > 20,
            "{name}: {readable} {unreadable}"
        );
        let lost = told(&scan(copy.path()), Severity::Lost);
        assert!(lost[0].starts_with("data.1 is not there: "), "{lost:?}");
        let mut check = Command::new(PROGRAM);
        let output = check.arg("check").arg(copy.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            !output.status.success() && said.contains("data.1 is not there: "),
            "{said}"
        );
    }
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
        let (_, unreadable) = compare(name, copy.path(), 0, len);
        assert_eq!(unreadable, 2, "{name}");
    }
}
