//! The whole corpus, damaged: each file cut at any place, or with a flipped bit, mounted or opened by the file
//! driver, and read completely by h5py. The daemon, or the process with the driver, must survive in bounded memory,
//! and every read returns what was there, or an error.
//!
//! Neither layout has checksums over data or tables, and HDF5 has none over most of its structures. So a flipped bit
//! may change the meaning, and the new meaning is shown. What must hold depends on the place of the damage, according
//! to the good log's own tables and records:
//!
//! | damage | what readers may see besides errors |
//! |---|---|
//! | a bit of plain data in a record | only elements that this byte decides differ; no errors |
//! | a bit of deflated data | only elements of this record differ (a stream as long as its data looks like plain data) |
//! | an unused bit of the log | no difference and no error |
//! | a bit of a table | elements may differ; names, attributes, types and shapes do not (except the number of netCDF records) |
//! | another bit of an HDF5 file | no difference, unless libhdf5 sees one in the log itself, or cannot read it |
//! | a bit of the header of a netCDF file | no difference, unless the header reads differently |
//! | an HDF5 file, subfile or data log cut off | no difference |
//! | a metadata log cut off | its writes have no effect; the scan and an attribute of the root report the loss |
//! | a netCDF file cut off | bytes in it are zeros, as bytes that were not written yet |
//!
//! `H5LOGFS_TEST_CASES` sets the number of flipped bits per log, each in its own copy; a quarter as many copies are
//! cut. `H5LOGFS_TEST_SEED` decides which bits, and which quarter of the logs `make test` takes. `H5LOGFS_TEST_ONLY`
//! selects logs whose names contain it.
//!
//! netCDF logs shared by several processes are left out: they are sparse files of 16 MiB and more.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use h5logfs_log::Tables;
use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::logvol::LogDataset;
use h5logfs_log::model::{Block, Encoding, Record, StoredBytes};
use h5logfs_log::netcdf::header::Header;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::amount::{first_seed, part, told};
use super::answering::{Answering, most_memory};
use super::driver::Driver;
use super::numbers::Numbers;
use super::pnetcdf::{Case, copy_logs};
use super::readers::{Python, corpus, project};
use super::{Mounted, is_running};

/// Default number of flipped bits.
const FLIPS: usize = 4;
/// A metadata log whose number of entries looks like the mark of an unknown number: missing entries go unnoticed.
const NOT_COUNTED: &str = "exactly-cdf1-np1";
/// Memory of a reader besides the view, in KiB: Python, numpy, and two whole logs.
const READER_MEMORY: u64 = 256 << 10;
/// Time limit for reading one file.
const PATIENCE: Duration = Duration::from_secs(20);
/// The daemon's limits for chunks and for indexes, in MiB.
const LIMIT: u64 = 64;
/// Limit of the daemon's memory in KiB: both limits; without accounting, the chunk that our only reader waits for and
/// two made ahead, each at most as large as a limit; libhdf5's objects from some hundred KB of metadata; and the
/// program itself. Trusting a size in a file would exceed this by far.
const MOST_MEMORY: u64 = (5 * LIMIT + 64) << 10;

// --- logs ----------------------------------------------------------------------------------------

/// A good log: its files by path. Programs open the first.
#[derive(Clone)]
pub struct Log {
    pub name: String,
    pub files: Vec<(String, Vec<u8>)>,
}

impl Log {
    /// All files below a directory.
    pub fn of_dir(name: &str, dir: &Path, first: &str) -> Log {
        let mut files = Vec::new();
        let mut dirs = vec![PathBuf::new()];
        while let Some(below) = dirs.pop() {
            for entry in fs::read_dir(dir.join(&below)).unwrap().flatten() {
                let path = below.join(entry.file_name());
                if entry.path().is_dir() {
                    dirs.push(path);
                    continue;
                }
                let bytes = fs::read(entry.path()).unwrap();
                files.push((path.to_str().unwrap().to_owned(), bytes));
            }
        }
        files.sort_by_key(|(path, _)| (path != first, path.clone()));
        Log {
            name: name.to_owned(),
            files,
        }
    }

    fn hdf5(path: &Path) -> Log {
        let dir = tempfile::tempdir().unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::copy(path, dir.path().join(name)).unwrap();
        let subfiles = format!("{name}.subfiles");
        if let Ok(all) = fs::read_dir(path.with_file_name(&subfiles)) {
            fs::create_dir(dir.path().join(&subfiles)).unwrap();
            for entry in all.flatten() {
                let to = dir.path().join(&subfiles).join(entry.file_name());
                fs::copy(entry.path(), to).unwrap();
            }
        }
        Log::of_dir(name, dir.path(), name)
    }

    fn netcdf(case: &Case) -> Log {
        let dir = tempfile::tempdir().unwrap();
        copy_logs(case.file("file.nc").parent().unwrap(), dir.path());
        Log::of_dir(&case.name, dir.path(), "file.nc")
    }

    /// All logs except large ones.
    pub fn every() -> Vec<Log> {
        let dirs = [corpus(), project().join("fuzz/samples")];
        let files = dirs.iter().flat_map(|f| fs::read_dir(f).unwrap());
        let mut paths: Vec<PathBuf> = files.flatten().map(|f| f.path()).collect();
        paths.retain(|path| path.to_str().unwrap().ends_with(".log.h5"));
        paths.sort();
        let hdf5 = paths.iter().map(|path| Log::hdf5(path));
        let netcdf = Case::all();
        let netcdf = netcdf.iter().filter(|c| !c.name.starts_with("shared"));
        let mut logs: Vec<Log> = hdf5.chain(netcdf.map(Log::netcdf)).collect();
        // An empty file cannot be damaged.
        logs.retain(|log| log.files.iter().any(|(_, bytes)| !bytes.is_empty()));
        if let Ok(only) = std::env::var("H5LOGFS_TEST_ONLY") {
            logs.retain(|log| log.name.contains(&only));
        }
        logs
    }

    /// The logs of one run.
    fn all() -> Vec<Log> {
        match std::env::var_os("H5LOGFS_TEST_ONLY") {
            Some(_) => Log::every(),
            None => part(Log::every(), 4),
        }
    }

    /// The path that programs open.
    pub fn path(&self) -> &str {
        let first = &self.files[0].0;
        first.strip_suffix("/md.idx").unwrap_or(first)
    }

    fn is_netcdf(&self) -> bool {
        self.files[0].0.ends_with(".nc")
    }

    pub fn lay_out(&self, dir: &Path) {
        for (path, bytes) in &self.files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    fn damaged(&self, damage: Damage) -> Log {
        let mut files = self.files.clone();
        let bytes = &mut files[damage.file].1;
        match damage.kind {
            Kind::Cut => bytes.truncate(damage.at),
            Kind::Flip(bit) => bytes[damage.at] ^= 1 << bit,
        }
        Log {
            name: self.name.clone(),
            files,
        }
    }

    /// The seed of its damage. It does not depend on other logs.
    fn seed(&self) -> u64 {
        let mix = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(u64::from(byte));
        self.name.bytes().fold(first_seed(), mix)
    }
}

#[derive(Debug, Clone, Copy)]
struct Damage {
    file: usize,
    at: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cut,
    Flip(u8),
}

/// Damage at random bytes, all equally likely.
fn damages(log: &Log, flips: usize) -> Vec<Damage> {
    let mut random = Numbers(log.seed());
    let total = log.files.iter().map(|(_, bytes)| bytes.len()).sum();
    let damage = |number: usize| {
        let mut at = random.index(total);
        let mut file = 0;
        while at >= log.files[file].1.len() {
            at -= log.files[file].1.len();
            file += 1;
        }
        let kind = if number < flips {
            Kind::Flip(random.index(8) as u8)
        } else {
            Kind::Cut
        };
        Damage { file, at, kind }
    };
    (0..flips + flips.div_ceil(4)).map(damage).collect()
}

// --- what lies where -----------------------------------------------------------------------------

/// Source, offset and length of the stored bytes of a record.
type Placed = (u16, u64, u64);

fn placed(stored: &StoredBytes) -> Placed {
    (stored.source, stored.offset, stored.len)
}

/// For each element of a dataset the record that decides it, and the element in that record.
type Owners = Vec<Option<(StoredBytes, u64)>>;

/// Content of the good log; empty where it is not readable.
struct Map {
    view: Option<Arc<View>>,
    /// Owners by dataset.
    owners: Vec<Owners>,
    /// Place of each record's bytes: dataset, place, and bytes of an element.
    stored: BTreeSet<(usize, Placed, u64)>,
}

impl Map {
    fn of(log: &Log, dir: &Path) -> Map {
        let view = open(log, dir).ok();
        let mut map = Map {
            view: view.clone(),
            owners: Vec::new(),
            stored: BTreeSet::new(),
        };
        if let Some(view) = view {
            (0..view.snapshot().datasets.len()).for_each(|number| map.add(&view, number));
        }
        map
    }

    fn add(&mut self, view: &View, number: usize) {
        let dataset = &view.snapshot().datasets[number];
        let all = Bounds {
            start: vec![0; dataset.dims.len()],
            end: dataset.dims.clone(),
        };
        let mut owners = vec![None; dataset.elements().unwrap() as usize];
        if let Ok(index) = view.indexes().of(number)
            && !owners.is_empty()
        {
            let _ = index.visit_back(&all, |record| {
                record.visit_back(&all, |block| {
                    own(&mut owners, &all, record, &block);
                    ControlFlow::<()>::Continue(())
                })
            });
        }
        self.owners.push(owners);
        let mut put = |record: &Record<'_>| {
            let converted = record.conversion.map(|c| c.stored_size() as u64);
            let element = converted.unwrap_or(dataset.element_size);
            self.stored
                .insert((number, placed(&record.stored), element));
            ControlFlow::<()>::Continue(())
        };
        if let Ok(found) = view.indexes().records(number) {
            let _ = found.records.map(&mut put).try_for_each(|done| done);
            if let Some(base) = found.records.base() {
                let _ = base.visit_back(&all, put);
            }
        }
    }
}

fn own(owners: &mut Owners, all: &Bounds, record: &Record<'_>, block: &Block<'_>) {
    let Some(common) = block.bounds().intersection(all) else {
        return;
    };
    let mut index = common.start.clone();
    loop {
        let place = |sides: &[u64], start: &[u64]| {
            let steps = index.iter().zip(start).zip(sides);
            steps.fold(0, |at, ((i, start), side)| at * side + (i - start))
        };
        let at = place(&all.end, &all.start) as usize;
        let within = block.elements_before + place(block.count, block.start);
        owners[at].get_or_insert((record.stored, within));
        let Some(d) = (0..index.len()).rposition(|d| index[d] + 1 < common.end[d]) else {
            return;
        };
        index[d] += 1;
        index[d + 1..].copy_from_slice(&common.start[d + 1..]);
    }
}

fn open(log: &Log, dir: &Path) -> h5logfs_common::error::Result<Arc<View>> {
    let dir = SourceDir::open(dir)?;
    let settings = Settings {
        without_logs: true,
        ..Settings::default()
    };
    let snapshot = scan(ScanRequest::alone(
        &dir,
        Path::new(&log.files[0].0),
        &settings,
    ))?;
    let budget = Budget::new(MemoryLimits::each(LIMIT << 20));
    View::open(&dir, snapshot, Arc::new(budget), None)
}

/// The region of a damaged byte.
#[derive(Debug, PartialEq, Eq)]
enum Region {
    /// Data of records. Lists the elements that may differ, by dataset.
    Data {
        elements: BTreeMap<usize, BTreeSet<u64>>,
        raw: bool,
    },
    /// A part of the log that no record uses.
    Unused,
    Table,
    /// Everything else.
    Structure,
}

impl Region {
    /// Whether all elements listed in a difference are in the region.
    fn has(&self, view: &View, difference: &Value, list: &str) -> bool {
        let mut datasets = view.snapshot().datasets.iter();
        let number = datasets.position(|d| difference["object"] == d.name);
        let own = match (self, number) {
            (Region::Data { elements, .. }, Some(number)) => elements.get(&number),
            _ => None,
        };
        let mut listed = numbers(&difference[list]).into_iter();
        listed.all(|n| own.is_some_and(|own| own.contains(&n)))
    }
}

impl Map {
    fn region(&self, log: &Log, damage: Damage) -> Region {
        let Some(view) = &self.view else {
            return Region::Structure;
        };
        let snapshot = view.snapshot();
        let path = log.files[damage.file].0.as_str();
        let sources = snapshot.sources.iter().zip(0u16..);
        let places: Vec<(u16, u64)> = sources
            .filter(|(source, _)| source.place.path.as_os_str() == path)
            .filter_map(|(source, number)| {
                Some((number, in_source(&source.arrangement, damage.at as u64)?))
            })
            .collect();
        let mut places_of = places.iter();
        let data = self.data(&places);
        let other = || places_of.find_map(|(source, at)| region_of(&snapshot.log, *source, *at));
        data.or_else(other).unwrap_or(Region::Structure)
    }

    /// The region of a byte that records use; `None` where none does.
    fn data(&self, places: &[(u16, u64)]) -> Option<Region> {
        let mut elements: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
        let (mut has_record, mut raw) = (false, true);
        for (dataset, (source, offset, len), size) in &self.stored {
            let has = |(of, at): &&(u16, u64)| of == source && (*offset..offset + len).contains(at);
            let Some((_, at)) = places.iter().find(has) else {
                continue;
            };
            has_record = true;
            let number = (at - offset) / size;
            for (element, owner) in self.owners[*dataset].iter().enumerate() {
                let Some((stored, own)) =
                    owner.filter(|(s, _)| placed(s) == (*source, *offset, *len))
                else {
                    continue;
                };
                let is_plain = matches!(stored.encoding, Encoding::Raw | Encoding::Converted);
                if !is_plain || own == number {
                    elements.entry(*dataset).or_default().insert(element as u64);
                    raw &= is_plain;
                }
            }
        }
        has_record.then_some(Region::Data { elements, raw })
    }
}

fn in_source(arrangement: &Arrangement, at: u64) -> Option<u64> {
    match arrangement {
        Arrangement::Whole | Arrangement::ZerosAfter => Some(at),
        Arrangement::Blocks {
            block,
            at: blocks,
            len,
        } => {
            let has = |(_, begin): &&(u64, u64)| (*begin..begin + block).contains(&at);
            let found = blocks.iter().find(has);
            let place = found.map(|(number, begin)| number * block + (at - begin));
            place.filter(|place| place < len)
        }
        Arrangement::Striped { .. } => None,
    }
}

/// The region of a byte that no record uses.
fn region_of(tables: &Tables, source: u16, at: u64) -> Option<Region> {
    match tables {
        Tables::LogVol(tables) => {
            let has =
                |e: &&LogDataset| e.source == source && (e.offset..e.offset + e.len).contains(&at);
            let table = tables.metadata.iter().find(has).map(|_| Region::Table);
            table.or(tables.data.iter().find(has).map(|_| Region::Unused))
        }
        Tables::Classic(tables) if source == tables.metadata => Some(Region::Table),
        // 16 bytes of magic and numbers precede the data.
        Tables::Classic(tables) if source == tables.data && at >= 16 => Some(Region::Unused),
        Tables::Classic(_) => None,
        Tables::Netcdf(_) if source == 0 => None,
        Tables::Netcdf(tables) if tables.logs.iter().any(|log| log.metadata == source) => {
            Some(Region::Table)
        }
        // Magic bytes.
        Tables::Netcdf(_) if at < 8 => Some(Region::Table),
        Tables::Netcdf(_) => Some(Region::Unused),
        // Striped files have no records.
        Tables::Striped(_) => None,
        // No sample is an ADIOS2 directory or a set of files.
        Tables::Adios(_) | Tables::Scorpio(_) | Tables::Tiles(_) => None,
    }
}

// --- reading -------------------------------------------------------------------------------------

/// How the reader opens logs.
pub enum Way {
    /// Through a mount.
    Mount,
    /// By the file driver, in the reader's process.
    Driver(Driver),
}

impl Way {
    fn is_mount(&self) -> bool {
        matches!(self, Way::Mount)
    }

    /// Memory limit of the process with the views, in KiB.
    fn most_memory(&self) -> u64 {
        match self {
            Way::Mount => MOST_MEMORY,
            Way::Driver(_) => MOST_MEMORY + READER_MEMORY,
        }
    }
}

/// A reader, and the daemon that serves it.
struct Session {
    mounted: Option<Mounted>,
    reader: Answering,
}

fn reader(python: &Python) -> Answering {
    Answering::new(python.tool("damaged.py"))
}

/// The differences; fails where the reader died or had to be killed.
fn ask(reader: &mut Answering, question: &Value) -> Result<Vec<Value>, String> {
    let answer = reader.ask(&question.to_string(), PATIENCE)?;
    Ok(serde_json::from_str(&answer).unwrap())
}

impl Session {
    fn new(way: &Way, python: &Python, source: &Path) -> Session {
        let options =
            format!("cache_size={LIMIT}M,index_memory={LIMIT}M,netcdf=hdf5,index_dir=none");
        let (mounted, reader) = match way {
            Way::Mount => (Some(Mounted::new(source, &options)), reader(python)),
            Way::Driver(driver) => {
                let mut variables = driver.used();
                variables.push(("HDF5_DRIVER_CONFIG", options.into()));
                (None, reader(&python.with_variables(variables)))
            }
        };
        Session { mounted, reader }
    }

    /// The reader's path of a file below the source.
    fn path(&self, source: &Path, file: &Path) -> PathBuf {
        let below = file.strip_prefix(source).unwrap();
        match &self.mounted {
            Some(mounted) => mounted.join(below),
            None => file.to_owned(),
        }
    }

    fn is_there(&self) -> bool {
        self.mounted.as_ref().is_none_or(|m| is_running(m.daemon))
    }

    /// Peak memory of the process with the views in KiB; `None` where it is gone.
    fn memory(&self) -> Option<u64> {
        most_memory(match &self.mounted {
            Some(mounted) => mounted.daemon.as_raw_pid() as u32,
            None => self.reader.process(),
        })
    }
}

// --- the test ------------------------------------------------------------------------------------

/// Results of all cases.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    failed: usize,
    differs: usize,
    /// The file has another meaning to programs that know its format: nothing was compared.
    not_judged: usize,
    /// Cases in which the process with the views died, hung, or took too much memory. It was replaced.
    lost: Vec<String>,
    /// Cases in which the reader died or hung.
    readers: Vec<String>,
    wrong: Vec<String>,
    memory: u64,
}

struct Run<'a> {
    way: &'a Way,
    /// Reads through h5logfs.
    python: &'a Python,
    /// Reads the logs directly.
    native: &'a Python,
    source: TempDir,
    session: Option<Session>,
    tally: Tally,
}

/// A damaged copy of a log.
struct Copy<'a> {
    log: &'a Log,
    map: &'a Map,
    damage: Damage,
    region: Region,
    bad: Log,
    dir: PathBuf,
}

impl Copy<'_> {
    fn name(&self) -> String {
        let Damage { file, at, kind } = self.damage;
        let (file, _) = &self.log.files[file];
        format!("{}: {file} {kind:?} at {at}", self.log.name)
    }

    /// The damaged file.
    fn path(&self) -> &str {
        &self.log.files[self.damage.file].0
    }

    fn good_dir(&self) -> PathBuf {
        self.dir.with_file_name("good")
    }
}

impl Run<'_> {
    fn log(&mut self, log: &Log, damages: &[Damage]) {
        let own = self.source.path().join(&log.name);
        log.lay_out(&own.join("good"));
        let map = Map::of(log, &own.join("good"));
        for (number, damage) in damages.iter().enumerate() {
            let copy = Copy {
                log,
                map: &map,
                damage: *damage,
                region: map.region(log, *damage),
                bad: log.damaged(*damage),
                dir: own.join(number.to_string()),
            };
            copy.bad.lay_out(&copy.dir);
            self.one(&copy);
            fs::remove_dir_all(&copy.dir).unwrap();
        }
        fs::remove_dir_all(&own).unwrap();
    }

    fn one(&mut self, copy: &Copy<'_>) {
        let source = self.source.path();
        let make = || Session::new(self.way, self.python, source);
        let session = self.session.get_or_insert_with(make);
        let first = |dir: &Path| session.path(source, &dir.join(&copy.log.files[0].0));
        let (good, bad) = (first(&copy.good_dir()), first(&copy.dir));
        let answer = ask(&mut session.reader, &json!({"good": good, "bad": bad}));
        let is_there = session.is_there();
        let memory = session.memory().unwrap_or(0);
        if memory > self.way.most_memory() {
            self.session = None;
            return self.lose(copy, format!("{memory} KiB were taken"));
        }
        self.tally.memory = self.tally.memory.max(memory);
        match answer {
            Ok(mut differences) if is_there => {
                let number = differences.len();
                differences.retain(|d| d["what"] != "incomplete");
                let has_attribute = differences.len() < number;
                self.count(&differences);
                let judged = self.judge(copy, &differences);
                let judged = judged
                    .and_then(|()| expect_attribute_of_losses(copy, has_attribute, &differences));
                if let Err(reason) = judged {
                    let wrong = format!("{}: {reason}", copy.name());
                    self.tally.wrong.push(wrong);
                }
            }
            // A hanging daemon makes all its readers hang.
            Err(said) if is_there && self.way.is_mount() && self.serves(&good) => {
                self.session = None;
                let what = format!("{} ({:?}): {said}", copy.name(), copy.region);
                self.tally.readers.push(what);
            }
            _ => {
                self.session = None;
                self.lose(copy, "the process with the views died, or hangs".into());
            }
        }
    }

    fn serves(&mut self, good: &Path) -> bool {
        let question = json!({"good": good, "bad": good});
        ask(&mut reader(self.python), &question).is_ok()
    }

    fn count(&mut self, differences: &[Value]) {
        let tally = &mut self.tally;
        match differences.iter().all(|d| d["what"] == "failed") {
            true if differences.is_empty() => tally.equal += 1,
            true => tally.failed += 1,
            false => tally.differs += 1,
        }
    }

    /// The process with the views has misbehaved.
    fn lose(&mut self, copy: &Copy<'_>, what: String) {
        let what = format!("{} ({:?}): {what}", copy.name(), copy.region);
        self.tally.wrong.push(what.clone());
        self.tally.lost.push(what);
    }

    /// Whether readers may see these differences. Fails with those that they may not.
    fn judge(&mut self, copy: &Copy<'_>, differences: &[Value]) -> Result<(), String> {
        let Some(view) = &copy.map.view else {
            return Ok(());
        };
        let region = &copy.region;
        let only = |allowed: &dyn Fn(&str, &Value) -> bool| {
            let may = |d: &&Value| allowed(d["what"].as_str().unwrap_or_default(), d);
            match differences.iter().find(|d| !may(d)) {
                Some(d) => Err(format!("{region:?}: {}", shortened(d))),
                None => Ok(()),
            }
        };
        let netcdf = copy.log.is_netcdf();
        match (copy.damage.kind, region) {
            (Kind::Cut, region) if netcdf && copy.damage.file == 0 => {
                // Except the one element that the cut divides.
                only(&|what, d| {
                    what == "failed" || (what == "data" && region.has(view, d, "values"))
                })
            }
            (Kind::Cut, _) if netcdf && copy.path().ends_with(".meta") => {
                only(&|what, _| ["failed", "data", "shape"].contains(&what))?;
                expect_loss_is_told(copy, differences)?;
                expect_own(copy, view, differences)
            }
            (Kind::Cut, _) => only(&|what, _| what == "failed"),
            (_, Region::Data { elements, raw }) => only(&|what, d| match what {
                "data" => region.has(view, d, "elements"),
                "failed" => {
                    let mut own = elements
                        .keys()
                        .map(|number| &view.snapshot().datasets[*number]);
                    !raw && own.any(|dataset| d["object"] == dataset.name)
                }
                _ => false,
            }),
            (_, Region::Unused) => only(&|_, _| false),
            (_, Region::Table) => {
                only(&|what, _| ["failed", "data"].contains(&what) || (netcdf && what == "shape"))
            }
            (_, Region::Structure) => {
                let allowed = only(&|what, _| what == "failed");
                if allowed.is_err() && self.is_another(copy) {
                    self.tally.not_judged += 1;
                    return Ok(());
                }
                allowed
            }
        }
    }

    /// Whether the damaged file has another meaning to programs that know its format.
    fn is_another(&mut self, copy: &Copy<'_>) -> bool {
        let path = copy.path();
        let (good, bad) = (copy.good_dir(), &copy.dir);
        if copy.log.is_netcdf() {
            return header(bad, path) != header(&good, path);
        }
        let question = json!({"good": good.join(path), "bad": bad.join(path), "native": true});
        // libhdf5 may crash or hang on the file: then it is unreadable.
        let answer = ask(&mut reader(self.native), &question);
        answer.is_err() || answer.is_ok_and(|differences| !differences.is_empty())
    }
}

/// If readers see that entries are missing, the scan must have said so.
fn expect_loss_is_told(copy: &Copy<'_>, differences: &[Value]) -> Result<(), String> {
    let is_seen = differences.iter().any(|d| d["what"] != "failed");
    let is_told = || {
        let view = open(&copy.bad, &copy.dir);
        view.is_ok_and(|view| view.snapshot().has_losses())
    };
    if is_seen && copy.log.name != NOT_COUNTED && !is_told() {
        Err("nothing says that something is lost".into())
    } else {
        Ok(())
    }
}

/// The root has the attribute about losses exactly if the scan knows of losses.
fn expect_attribute_of_losses(
    copy: &Copy<'_>,
    has_attribute: bool,
    differences: &[Value],
) -> Result<(), String> {
    let is_root = |d: &Value| d["object"] == "/" && d["what"] == "failed";
    if copy.map.view.is_none() || differences.iter().any(is_root) {
        return Ok(());
    }
    let view = open(&copy.bad, &copy.dir);
    if view.is_ok_and(|view| view.snapshot().has_losses()) == has_attribute {
        Ok(())
    } else {
        Err(format!("attribute of losses: {has_attribute}"))
    }
}

/// Only elements written by the damaged metadata log may differ.
fn expect_own(copy: &Copy<'_>, view: &View, differences: &[Value]) -> Result<(), String> {
    let snapshot = view.snapshot();
    let Tables::Netcdf(tables) = &snapshot.log else {
        return Ok(());
    };
    let is_it = |source: u16| {
        let place = &snapshot.sources[usize::from(source)].place;
        place.path.as_os_str() == copy.path()
    };
    let logs = tables.logs.iter().filter(|log| is_it(log.metadata));
    let data: Vec<u16> = logs.filter_map(|log| log.data).collect();
    for difference in differences.iter().filter(|d| d["what"] == "data") {
        let mut datasets = snapshot.datasets.iter();
        let number = datasets.position(|d| difference["object"] == d.name);
        let owners = &copy.map.owners[number.ok_or("data of no dataset")?];
        let is_own = |n: &u64| owners[*n as usize].is_some_and(|(s, _)| data.contains(&s.source));
        if !numbers(&difference["elements"]).iter().all(is_own) {
            return Err(format!("others wrote this: {}", shortened(difference)));
        }
    }
    Ok(())
}

fn header(dir: &Path, path: &str) -> Option<Header> {
    let dir = SourceDir::open(dir).unwrap();
    Header::read(&SourceFile::open(&dir, Path::new(path)).ok()?).ok()
}

fn numbers(list: &Value) -> Vec<u64> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_u64).collect()
}

fn shortened(difference: &Value) -> String {
    difference.to_string().chars().take(300).collect()
}

/// Damages all logs. `python` reads them, and `native` reads the logs directly. Fails with all faults at the end.
pub fn damage_is_an_error_or_not_seen(way: &Way, python: &Python, native: &Python) {
    let mut run = Run {
        way,
        python,
        native,
        source: tempfile::tempdir().unwrap(),
        session: None,
        tally: Tally::default(),
    };
    let flips = told("H5LOGFS_TEST_CASES").unwrap_or(FLIPS);
    for log in &Log::all() {
        run.log(log, &damages(log, flips));
    }
    let Tally {
        equal,
        failed,
        differs,
        not_judged,
        lost,
        readers,
        wrong,
        memory,
    } = &run.tally;
    eprintln!(
        "{equal} as before, {failed} with errors, {differs} with other contents, {not_judged} of them files that say \
         other things themselves; {} processes with views and {} other readers lost; {memory} KiB at most",
        lost.len(),
        readers.len()
    );
    for line in lost.iter().chain(readers) {
        eprintln!("{line}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // If it was more, this is among the faults.
    assert!(*memory > 0, "the memory was not measured");
}
