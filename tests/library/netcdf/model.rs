//! Random netCDF classic files with random burst-buffer logs, compared with a naive model of their content. The
//! comparison covers the view's chunks, and the view of the whole file by netCDF programs. Further cases have damage.
//! `H5LOGFS_TEST_CASES` sets the number of cases, `H5LOGFS_TEST_SEED` the first seed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::amount::{cases, first_seed};
use crate::common::burst::log::{
    Channel, Entry, Generation, Job, Memory, Request, STRIPE, Value, complete, header_len,
};
use crate::common::burst::model::Model;
use crate::common::burst::random::job;
use crate::common::burst::{Classic, Type, Variable};
use crate::common::encoder::{BUDGET, export, follow_references, read_by_chunks};
use crate::common::numbers::Numbers;
use crate::common::pnetcdf::compare;
use crate::common::readers::{Python, said};
use crate::common::ways::Ways;
use h5logfs_common::diagnostic::Severity;
use h5logfs_common::error::Result;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

const NAME: &str = "run_1.nc";
/// Number of bytes read at once from a file with an arbitrary header.
const MOST: u64 = 16 << 20;

// --- a job on disk -------------------------------------------------------------------------------

struct Written {
    dir: TempDir,
    /// Metadata logs and data logs.
    logs: Vec<(PathBuf, PathBuf)>,
    /// The path in the headers of the logs.
    path: String,
    settings: Settings,
}

impl Written {
    /// Logs beside the file, or in another directory.
    fn new(job: &Job, numbers: &mut Numbers) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("bb")).unwrap();
        let mut settings = Settings::default();
        let mut logs = root.clone();
        let mut path = root.join(NAME).to_str().unwrap().to_owned();
        match numbers.below(4) {
            0 => {
                logs = root.join("bb");
                let dir = logs.to_str().unwrap().as_bytes();
                settings.set("burst_dir", dir).unwrap();
            }
            // The files have moved since the job wrote the path.
            1 => path = format!("/{}/{NAME}", "long/".repeat(numbers.below(20) as usize)),
            _ => {}
        }
        let logs = job.write(&root, NAME, &logs, &path);
        Written {
            dir,
            logs,
            path,
            settings,
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    fn open(&self) -> Result<Arc<View>> {
        let (dir, name) = SourceDir::of_file(&self.file())?;
        let dir = dir.with_further(&self.settings.log_dirs)?;
        let snapshot = scan(ScanRequest::alone(&dir, &name, &self.settings))?;
        let budget = Arc::new(Budget::new(MemoryLimits::each(BUDGET)));
        View::open(&dir, snapshot, budget, None)
    }
}

// --- a view and the model ------------------------------------------------------------------------

/// A variable with the name of a dimension other than its first one has another name (9.3).
fn shown_name(classic: &Classic, variable: &Variable) -> String {
    let mut dimensions = classic.dimensions.iter();
    let of_dimension = dimensions.position(|(name, _)| *name == variable.name);
    if of_dimension.is_none_or(|n| variable.dimensions.first() == Some(&n)) {
        format!("/{}", variable.name)
    } else {
        format!("/_nc4_non_coord_{}", variable.name)
    }
}

/// Checks a variable, and returns its fault, if any. An error is no fault where data are lost.
fn check_variable(
    view: &View,
    model: &Model,
    variable: &Variable,
    may_fail: bool,
) -> Option<String> {
    let name = shown_name(&model.classic, variable);
    let datasets = &view.snapshot().datasets;
    let Some(number) = datasets.iter().position(|d| d.name == name) else {
        return Some(format!("there is no dataset {name}"));
    };
    let (dataset, extent) = (&datasets[number], model.extent(variable));
    if dataset.dims != extent {
        return Some(format!("{name} is {:?}, expected {extent:?}", dataset.dims));
    }
    let is_record = model.classic.is_record(variable);
    let limits = extent.iter().enumerate();
    let limits: Vec<_> = limits
        .map(|(n, len)| (n > 0 || !is_record).then_some(*len))
        .collect();
    if dataset.max_dims != limits {
        return Some(format!(
            "{name} is at most {:?}, expected {limits:?}",
            dataset.max_dims
        ));
    }
    let contents = match read_by_chunks(view, number) {
        Ok(contents) => contents,
        Err(_) if may_fail => return None,
        Err(e) => return Some(format!("{name}: {e}")),
    };
    if let Err(e) = follow_references(view, number) {
        return Some(format!("{name} by references: {e}"));
    }
    let expected = model.contents(variable);
    let different = contents.iter().zip(&expected).position(|(a, b)| a != b);
    let size = variable.kind.size();
    different.map(|at| at / size * size).map(|at| {
        let element = |bytes: &[u8]| bytes[at..at + size].to_vec();
        format!(
            "element {} of {name} {extent:?}, a {:?}, is {:x?}, expected {:x?} (little endian)",
            at / size,
            variable.kind,
            element(&contents),
            element(&expected)
        )
    })
}

fn check_view(view: &View, model: &Model, may_fail: bool) -> Vec<String> {
    let variables = model.classic.variables.iter();
    variables
        .filter_map(|v| check_variable(view, model, v, may_fail))
        .collect()
}

/// The job of a seed, its meaning, and its place.
fn case(seed: u64) -> (Job, Model, Written, Numbers) {
    let mut numbers = Numbers(seed);
    let job = job(&mut numbers);
    let model = Model::of(&job);
    let written = Written::new(&job, &mut numbers);
    (job, model, written, numbers)
}

/// The content of all logs, for messages about failures.
fn described(job: &Job) -> String {
    let mut text = format!("{:?}\n", job.classic);
    for generation in &job.generations {
        let Generation {
            number,
            age,
            big_endian,
            ..
        } = generation;
        text += &format!("generation {number}, age {age}, big endian {big_endian}\n");
        for (node, channels) in generation.nodes.iter().enumerate() {
            for channel in channels {
                text += &format!("  node {node}: {channel:?}\n");
            }
        }
    }
    text
}

/// Tries many seeds. Reports those that fail, with details of the first.
fn try_seeds(usual: usize, check: impl Fn(u64) -> std::result::Result<(), String>) {
    let first = first_seed();
    let seeds = first..first + cases(usual) as u64;
    let failures: Vec<(u64, String)> = seeds
        .filter_map(|seed| check(seed).err().map(|e| (seed, e)))
        .collect();
    let said: Vec<String> = failures
        .iter()
        .map(|(seed, e)| format!("seed {seed}: {e}"))
        .collect();
    if let Some((seed, _)) = failures.first() {
        let mut numbers = Numbers(*seed);
        eprintln!("seed {seed}: {}", described(&job(&mut numbers)));
    }
    assert!(said.is_empty(), "{}", said.join("\n"));
}

fn told(differences: Vec<String>) -> std::result::Result<(), String> {
    if differences.is_empty() {
        Ok(())
    } else {
        Err(differences.join("\n  "))
    }
}

// --- sound ones ----------------------------------------------------------------------------------

#[test]
fn a_view_holds_what_file_and_logs_say() {
    try_seeds(300, |seed| {
        let (_, model, written, _) = case(seed);
        let view = written.open().map_err(|e| e.to_string())?;
        let layout = view.snapshot().log.layout().name();
        if layout != "PnetCDF burst buffer" {
            return Err(format!("the layout is {layout}"));
        }
        told(check_view(&view, &model, false))
    });
}

/// Reads with large and small caches, several readers, and a kept index.
#[test]
fn netcdf_however_it_is_read() {
    try_seeds(60, |seed| {
        let (_, model, written, _) = case(seed);
        let ways = Ways {
            path: written.file(),
            settings: written.settings.clone(),
        };
        ways.check(seed, |view, how| {
            let said = told(check_view(view, &model, false));
            said.map_err(|e| format!("{how}: {e}"))
        })
    });
}

/// A snapshot may come from a file or from another process.
#[test]
fn netcdf_snapshots_with_no_sense_make_no_panic() {
    try_seeds(4, |seed| {
        let (_, _, written, _) = case(seed);
        let ways = Ways {
            path: written.file(),
            settings: written.settings.clone(),
        };
        ways.damage_snapshot()
    });
}

/// Checks that all programs read the same from all files.
fn expect_same(python: &Python, jobs: &[Json]) {
    let output = compare(python, "netcdf4,ncdump,xarray,h5netcdf", jobs);
    assert!(output.status.success(), "{}", said(&output));
}

/// The ways of `nclogs.py` in which a file reads differently from HDF5 than from a classic file: variables with the
/// name of a dimension and another shape, dimensions that occur twice, and nccopy declaring non-ASCII text as ASCII.
fn ways_that_fail(classic: &Classic, is_by_nccopy: bool) -> &'static [&'static str] {
    let has_own_shape = |variable: &Variable| {
        let mut seen = variable.dimensions.clone();
        seen.sort_unstable();
        seen.dedup();
        let mut dimensions = classic.dimensions.iter();
        let of = dimensions.position(|(name, _)| *name == variable.name);
        seen.len() == variable.dimensions.len() && of.is_none_or(|n| variable.dimensions == [n])
    };
    let variables = &classic.variables;
    let attributes = variables.iter().flat_map(|v| &v.attributes);
    let mut attributes = attributes.chain(&classic.attributes);
    if !variables.iter().all(has_own_shape) {
        return &["xarray", "h5netcdf"];
    }
    if is_by_nccopy && attributes.any(|a| a.kind == Type::Char && !a.values.is_ascii()) {
        &["xarray"]
    } else {
        &[]
    }
}

fn comparison(seed: u64, model: &Model, dir: &Path, is_by_nccopy: bool) -> Json {
    let expected = dir.join(format!("{seed}.expected.nc"));
    fs::write(&expected, &model.bytes).unwrap();
    json!({
        "name": format!("seed {seed}"),
        "got": dir.join(format!("{seed}.nc")),
        "expected": expected,
        "expect": "same",
        "without": ways_that_fail(&model.classic, is_by_nccopy),
    })
}

/// The model writes the file that PnetCDF would have written.
#[test]
fn netcdf_programs_see_what_the_model_would_have_written() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let first = first_seed();
    let jobs = (first..first + cases(60) as u64).map(|seed| {
        let (_, model, written, _) = case(seed);
        let job = comparison(seed, &model, dir.path(), false);
        match written.open() {
            Ok(view) => export(&view, Path::new(job["got"].as_str().unwrap())),
            Err(e) => eprintln!("seed {seed}: {e}"),
        }
        job
    });
    expect_same(&python, &jobs.collect::<Vec<_>>());
}

/// The model's files are checked themselves: nccopy's result is the same to all programs.
#[test]
fn the_files_of_the_model_are_sound() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let first = first_seed();
    let jobs = (first..first + cases(60) as u64).map(|seed| {
        let (_, model, ..) = case(seed);
        let job = comparison(seed, &model, dir.path(), true);
        let mut nccopy = std::process::Command::new("nccopy");
        nccopy.args(["-k", "nc4"]);
        let paths = ["expected", "got"].map(|which| job[which].as_str().unwrap());
        let output = nccopy.args(paths).output().unwrap();
        assert!(output.status.success(), "seed {seed}: {}", said(&output));
        job
    });
    expect_same(&python, &jobs.collect::<Vec<_>>());
}

// --- shared logs of more than one stripe ---------------------------------------------------------

/// Both logs of three channels exceed their first stripes of 8 MiB, one by entries and one by data.
#[test]
fn shared_logs_of_many_stripes() {
    // Elements have 8 bytes, because the model examines each of them.
    let whole = STRIPE / 8 + 20_000;
    let mut classic = Classic {
        version: 5,
        dimensions: vec![("many".into(), whole)],
        attributes: Vec::new(),
        variables: Vec::new(),
        records: Some(0),
    };
    for name in ["by entries", "by data", "small"] {
        classic.variables.push(Variable {
            name: name.into(),
            dimensions: vec![0],
            attributes: Vec::new(),
            kind: Type::UInt64,
            begin: 0,
        });
    }
    classic.place(|| 0);
    let entry = |variable, start, len: u64| Entry {
        variable,
        request: Request::Vara,
        pieces: vec![vec![(start, len, 1)]],
        memory: Memory::ULongLong,
        values: (start..start + len)
            .map(|n| Value::Integer(i128::from(n * 7 % 251 + variable as u64)))
            .collect(),
    };
    // An entry of one dimension has 64 bytes.
    let many = STRIPE / 64 + 50;
    let channels = vec![
        Channel::new(0, (0..many).map(|n| entry(0, n * 3 % whole, 1)).collect()),
        Channel::new(
            2,
            vec![entry(1, 5, whole - 10), entry(1, STRIPE / 8 - 8, 16)],
        ),
        Channel::new(5, vec![entry(2, whole - 7, 7)]),
    ];
    let others = [1, 3, 4].map(|rank| vec![Channel::new(rank, vec![entry(2, rank * 10, 9)])]);
    let nodes = [vec![channels], others.to_vec()].concat();
    let job = Job {
        base: classic.header(classic.records),
        classic,
        generations: vec![Generation {
            number: 0,
            age: 1000,
            big_endian: false,
            nodes,
        }],
    };
    let written = Written::new(&job, &mut Numbers(first_seed()));
    let view = written.open().unwrap();
    let differences = check_view(&view, &Model::of(&job), false);
    assert!(differences.is_empty(), "{differences:#?}");
}

/// No process wrote the rest of a variable to the disk, so the rest is a hole.
#[test]
fn what_the_file_does_not_have_is_a_hole() {
    let mut classic = Classic {
        version: 5,
        dimensions: vec![("rows".into(), 1 << 30), ("columns".into(), 1 << 10)],
        attributes: Vec::new(),
        variables: Vec::new(),
        records: Some(0),
    };
    classic.variables.push(Variable {
        name: "v".into(),
        dimensions: vec![0, 1],
        attributes: Vec::new(),
        kind: Type::UByte,
        begin: 0,
    });
    classic.place(|| 0);
    let begin = classic.variables[0].begin as usize;
    let mut base = classic.header(classic.records);
    base.resize(begin + 2500, 7);
    let job = Job {
        base,
        classic,
        generations: Vec::new(),
    };
    let mut written = Written::new(&job, &mut Numbers(1));
    written.settings.set("netcdf", b"hdf5").unwrap();
    let view = written.open().unwrap();
    let (at, stored) = view.inspection().chunk_place(ChunkId::new(0, 0)).unwrap();
    let mut first = vec![1; 4096];
    view.read_at(at, &mut first).unwrap();
    assert!(first[..2500].iter().all(|b| *b == 7));
    assert!(first[2500..].iter().all(|b| *b == 0));
    let rest = view.holes().segment_at(at + stored).unwrap();
    assert!(rest.is_hole);
    assert_eq!(rest.range.end, view.len());
}

/// The number of entries equals the number of bytes in the header. A fresh log has this count, too (2.2, rule 3).
#[test]
fn as_many_entries_as_the_header_has_bytes() {
    for more in [0, 1] {
        let (mut job, _, _, mut numbers) = case(more);
        let written = Written::new(&job, &mut numbers);
        let entry = |n: u64| Entry {
            variable: 0,
            request: Request::Vara,
            pieces: vec![vec![(n, 1, 1)]],
            memory: Memory::Int,
            values: vec![Value::Integer(i128::from(n) - 50)],
        };
        job.classic.dimensions = vec![("t".into(), 0)];
        job.classic.variables.truncate(1);
        let variable = &mut job.classic.variables[0];
        (variable.dimensions, variable.kind) = (vec![0], Type::Int);
        (variable.name, variable.attributes) = ("v".into(), Vec::new());
        job.classic.records = Some(0);
        job.classic.place(|| 0);
        job.base = job.classic.header(Some(0));
        let number = header_len(&written.path) as u64;
        let entries = (0..number + more).map(entry).collect();
        job.generations.truncate(1);
        job.generations[0].nodes = vec![vec![Channel::new(0, entries)]];
        for (metadata, data) in &written.logs {
            fs::remove_file(metadata).unwrap();
            fs::remove_file(data).unwrap();
        }
        let beside = written.logs[0].0.parent().unwrap();
        job.write(written.dir.path(), NAME, beside, &written.path);
        let view = written.open().unwrap();
        let differences = check_view(&view, &Model::of(&job), false);
        assert!(
            differences.is_empty(),
            "{number} entries and {more}: {differences:#?}"
        );
    }
}

// --- damage --------------------------------------------------------------------------------------

fn cut(file: &Path, len: u64) {
    let file = File::options().write(true).open(file).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_len(len).unwrap();
    file.set_modified(modified).unwrap();
}

/// A log that no other process shares, by generation and node.
fn unshared(job: &Job, numbers: &mut Numbers) -> Option<(usize, usize)> {
    let generations = job.generations.iter().enumerate();
    let all = generations.flat_map(|(g, generation)| {
        let nodes = generation.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.len() == 1)
            .map(move |(n, _)| (g, n))
    });
    let all: Vec<_> = all.collect();
    (!all.is_empty()).then(|| numbers.pick(&all))
}

fn files_of<'a>(
    written: &'a Written,
    job: &Job,
    (generation, node): (usize, usize),
) -> &'a (PathBuf, PathBuf) {
    let before = job.generations[..generation].iter();
    let before: usize = before.map(|g| g.nodes.len()).sum();
    &written.logs[before + node]
}

fn has_faults(view: &View) -> bool {
    let datasets = view.snapshot().datasets.iter().enumerate();
    let mut logged = datasets.filter(|(_, dataset)| dataset.logged().is_some());
    logged.any(|(number, _)| {
        view.indexes()
            .of(number)
            .map_or(true, |index| !index.diagnostics().is_empty())
    })
}

/// The view shows the remaining entries, or nothing.
#[test]
fn a_metadata_log_that_was_cut() {
    try_seeds(300, |seed| {
        let (mut job, _, written, mut numbers) = case(seed);
        let Some(place) = unshared(&job, &mut numbers) else {
            return Ok(());
        };
        let before = written.open().map_err(|e| e.to_string())?;
        let before = &before.snapshot().diagnostics;
        let (metadata, _) = files_of(&written, &job, place);
        let len = numbers.below(metadata.metadata().unwrap().len());
        cut(metadata, len);
        let is_headless = len < header_len(&written.path) as u64;
        let channel = &mut job.generations[place.0].nodes[place.1][0];
        let left = complete(channel, &written.path, len);
        let is_less = left < channel.entries.len();
        channel.entries.truncate(left);
        let model = Model::of(&job);
        let about = |text| format!("{text}, cut at {len}: {}", metadata.display());
        let view = match written.open() {
            Ok(view) => view,
            Err(_) if is_headless => return Ok(()),
            Err(e) => return Err(about(e.to_string())),
        };
        let mut differences = check_view(&view, &model, is_headless);
        let mut losses = view.snapshot().diagnostics.iter();
        let is_told = losses.any(|d| d.severity == Severity::Lost && !before.contains(d));
        if (is_headless || is_less) && !is_told && !has_faults(&view) {
            differences.push("nothing tells of the entries that are missing".into());
        }
        told(differences).map_err(about)
    });
}

/// Variables with lost data are unchanged or unreadable; the others are unchanged.
#[test]
fn a_data_log_that_was_cut() {
    try_seeds(300, |seed| {
        let (job, model, written, mut numbers) = case(seed);
        let Some(place) = unshared(&job, &mut numbers) else {
            return Ok(());
        };
        let (_, data) = files_of(&written, &job, place);
        let len = numbers.below(data.metadata().unwrap().len());
        cut(data, len);
        let about = |text| format!("{text}, cut at {len}: {}", data.display());
        let mut end = 8;
        let mut losers = Vec::new();
        for entry in &job.generations[place.0].nodes[place.1][0].entries {
            end += (entry.values.len() * entry.memory.size()) as u64;
            if end > len && !entry.values.is_empty() {
                losers.push(entry.variable);
            }
        }
        let view = match written.open() {
            Ok(view) => view,
            // A file without the magic number is no data log.
            Err(_) if len < 8 => return Ok(()),
            Err(e) => return Err(about(e.to_string())),
        };
        let variables = model.classic.variables.iter().enumerate();
        let differences = variables.filter_map(|(number, variable)| {
            let may_fail = losers.contains(&number) || len < 8;
            check_variable(&view, &model, variable, may_fail)
        });
        told(differences.collect()).map_err(about)
    });
}

/// Reads all readable parts of an arbitrary file. The reads may fail, but must not panic or hang.
fn read_all(view: &View) {
    for number in 0..view.snapshot().datasets.len() {
        let dataset = &view.snapshot().datasets[number];
        let bytes = dataset
            .elements()
            .and_then(|n| n.checked_mul(dataset.element_size));
        let grid = view.grid(number);
        if bytes.is_some_and(|bytes| bytes <= MOST) {
            let _ = read_by_chunks(view, number);
        } else if !grid.is_empty() {
            for chunk in [0, grid.len() / 2, grid.len() - 1] {
                let _ = view.chunks().stored(ChunkId::new(number, chunk));
            }
        }
    }
    let mut front = vec![0; view.len().min(MOST) as usize];
    let _ = view.read_at(0, &mut front);
}

fn flip(file: &Path, numbers: &mut Numbers, within: u64) {
    let mut bytes = fs::read(file).unwrap();
    let end = within.min(bytes.len() as u64);
    if end == 0 {
        return;
    }
    for _ in 0..numbers.within(1, 3) {
        let at = numbers.below(end) as usize;
        match numbers.below(3) {
            0 => bytes[at] ^= 1 << numbers.below(8),
            1 => bytes[at] = numbers.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            // A whole number.
            _ => {
                let at = at & !7;
                let numbers = [u64::MAX, i64::MAX as u64, 1 << 40, 1 << 31].map(u64::to_le_bytes);
                let end = bytes.len().min(at + 8);
                bytes[at..end].copy_from_slice(&numbers[at / 8 % 4][..end - at]);
            }
        }
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn damaged_metadata_logs_and_headers_do_no_harm() {
    try_seeds(200, |seed| {
        let (job, _, written, mut numbers) = case(seed);
        let Some(place) = unshared(&job, &mut numbers) else {
            return Ok(());
        };
        written
            .open()
            .map_err(|e| format!("before it is damaged: {e}"))?;
        for _ in 0..4 {
            if numbers.one_in(2) {
                let header = job.classic.header(job.classic.records).len() as u64;
                flip(&written.file(), &mut numbers, header);
            } else {
                let (metadata, _) = files_of(&written, &job, place);
                flip(metadata, &mut numbers, u64::MAX);
            }
            // A panic of the reading thread fails this test.
            if let Ok(view) = written.open() {
                read_all(&view);
            }
        }
        Ok(())
    });
}
