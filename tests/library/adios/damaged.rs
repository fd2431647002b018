//! Directories with random damage. A scan and the reads end soon, in bounded memory, for any bytes. Every value shown
//! is the one in the bytes.
//!
//! ADIOS2 has no checksums, so damage may yield another number. The permitted results depend on the place of the
//! damage, according to the sound directory:
//!
//! | damage | permitted result |
//! |---|---|
//! | a file is shorter, or gone | values as before. Others are errors, or are left out with a diagnostic |
//! | bytes of elements | these elements have the other bytes, and all else is as before |
//! | bytes of a block with an operator | the variable is an error in this step, or another value; all else is as before |
//! | bytes of data outside of all blocks | no change |
//! | the metadata of a step: its part of `md.0`, its record in `md.idx` | anything of this step; other steps as before, as far as they are there |
//! | metadata of all steps: the head of `md.idx`, maps of writers, `mmd.0` | anything |
//!
//! `H5LOGFS_TEST_CASES` sets the number of damaged directories, `H5LOGFS_TEST_SEED` the first one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::header::{Header, Version};
use h5logfs_adios::model::{File, Kind, Place, Step, Type, Variable};
use h5logfs_common::error::Error;
use h5logfs_log::Tables;
use h5logfs_log::adios::DatasetSource;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::snapshot::{Content, Snapshot};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};

use super::{INDEX, cases, directory, scan_at};
use crate::common::amount::{either, first_seed, told};
use crate::common::damaged::Log;
use crate::common::mutation::mutant;
use crate::common::numbers::Numbers;
use crate::fuzz_regressions::measured;
use crate::fuzz_regressions::targets::memory;
use h5logfs_log::journal::ShownFlush;

/// Largest number of bytes of a variable read in a step: damage may enlarge it to any size.
const MOST_BYTES: u64 = 1 << 20;
/// Upper bound of a file's length, which keeps a case to some milliseconds.
const LONGEST: usize = 50_000;
/// Value of each memory limit.
const MEMORY: u64 = 32 << 20;
/// Time limit for a directory that takes a moment when it is sound.
const MOST_TIME: Duration = Duration::from_secs(20);

/// A variable, or a block of a local one, in a step, or in all steps of a flattened directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    variable: Arc<str>,
    block: Option<u64>,
    steps: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    datatype: String,
    shape: Vec<u64>,
    /// The elements; `None` if they are unreadable.
    elements: Option<Vec<u8>>,
}

/// A reader's view of a directory.
struct Seen {
    values: BTreeMap<Key, Value>,
    image: Vec<u8>,
    /// Whether a diagnostic says that something is missing, or may still come.
    is_told: bool,
}

/// Reads all of a directory.
fn see(dir: &Path) -> Result<Seen, Error> {
    let snapshot = scan_at(dir, ShownFlush::Newest)?;
    snapshot.check().unwrap();
    let mut seen = Seen {
        values: BTreeMap::new(),
        image: snapshot.image.to_vec(),
        is_told: snapshot.has_losses() || snapshot.journal.is_some(),
    };
    let budget = Budget::new(MemoryLimits::each(MEMORY));
    memory::count(&budget.task(None));
    let view = View::open(&SourceDir::open(dir)?, snapshot, Arc::new(budget), None)?;
    let mut begin = vec![0; (view.len()).min(MOST_BYTES) as usize];
    // If this read fails, the elements below show the failure again.
    let _ = view.read_at(0, &mut begin);
    for number in 0..view.snapshot().datasets.len() {
        let of = source(view.snapshot(), number).clone();
        if of.has_steps {
            for (row, step) in (0..).zip(of.steps.iter()) {
                seen.add(&view, number, &of, Some(row), vec![step]);
            }
        } else {
            seen.add(&view, number, &of, None, of.steps.iter().collect());
        }
    }
    Ok(seen)
}

/// The source of a dataset's elements.
fn source(snapshot: &Snapshot, number: usize) -> &DatasetSource {
    let Content::Logged { id, .. } = snapshot.datasets[number].content else {
        panic!("a dataset that is not logged");
    };
    let Tables::Adios(tables) = &snapshot.log else {
        panic!("another layout");
    };
    &tables.datasets[id as usize]
}

impl Seen {
    fn add(
        &mut self,
        view: &View,
        number: usize,
        of: &DatasetSource,
        row: Option<u64>,
        steps: Vec<u64>,
    ) {
        let dataset = &view.snapshot().datasets[number];
        let mut bounds = Bounds {
            start: vec![0; dataset.dims.len()],
            end: dataset.dims.clone(),
        };
        if let Some(row) = row {
            (bounds.start[0], bounds.end[0]) = (row, row + 1);
        }
        let shape = bounds.end[usize::from(row.is_some())..].to_vec();
        let len = shape.iter().try_fold(dataset.element_size, |len, side| {
            len.checked_mul(*side).filter(|len| *len <= MOST_BYTES)
        });
        let read = |len: u64| {
            let mut out = vec![0xaa; len as usize];
            let task = view.task(None);
            let read = task.retry(|| {
                view.hyperslabs(&task, number)?
                    .read(&task, &bounds, &mut out)
            });
            read.is_ok().then_some(out)
        };
        let value = Value {
            datatype: dataset.datatype.clone(),
            shape,
            elements: len.and_then(read),
        };
        let key = Key {
            variable: Arc::clone(&of.variable),
            block: of.block,
            steps,
        };
        let before = self.values.insert(key, value);
        assert!(before.is_none(), "{} is shown twice", of.variable);
    }
}

/// A sound directory and its content.
struct Sound {
    log: Log,
    seen: Seen,
    /// Steps by number.
    steps: HashMap<u64, Step>,
    /// Places of the metadata of each step.
    sections: Vec<Section>,
}

/// The places of a step's metadata in `md.idx` and in `md.0`.
struct Section {
    step: u64,
    index: Range<u64>,
    metadata: Range<u64>,
}

/// All differences from the sound directory.
#[derive(Default)]
struct Damage {
    /// Some files are shorter.
    is_cut: bool,
    /// `md.idx` is shorter: the steps past its end are unknown.
    is_index_cut: bool,
    /// Any result is permitted.
    is_everywhere: bool,
    /// Steps for which any result is permitted.
    steps: BTreeSet<u64>,
    /// Offsets of changed bytes in each `data.N`.
    data: BTreeMap<u32, BTreeSet<u64>>,
}

impl Damage {
    /// Whether bytes of a block are changed.
    fn is_in(&self, place: &Place) -> bool {
        let File::Data(number) = place.file else {
            return false;
        };
        let range = place.offset..place.offset + place.len;
        let bytes = self.data.get(&number);
        bytes.is_some_and(|bytes| bytes.range(range).next().is_some())
    }

    fn is_of_data_alone(&self) -> bool {
        !self.is_cut && !self.is_everywhere && self.steps.is_empty()
    }
}

fn file<'a>(log: &'a Log, name: &str) -> Option<&'a [u8]> {
    let mut files = log.files.iter();
    let found = files.find(|(other, _)| other == name)?;
    Some(&found.1)
}

fn number_of(name: &str) -> Option<u32> {
    name.strip_prefix("data.")?.parse().ok()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The sections, by 3.1 and 4.1 of the format page. All directories here are little-endian.
fn sections(index: &[u8], version: Version) -> Vec<Section> {
    let mut found = Vec::new();
    let mut at = Header::LEN;
    while at + 64 <= index.len() && version == Version::Bp4 {
        let number = |n: usize| u64_at(index, at + 8 * n);
        found.push(Section {
            step: (number(0) - 1).max(found.last().map_or(0, |s: &Section| s.step + 1)),
            index: at as u64..at as u64 + 64,
            metadata: number(2)..number(5),
        });
        at += 64;
    }
    while at + 9 <= index.len() && version == Version::Bp5 {
        let end = at + 9 + u64_at(index, at + 1) as usize;
        if index[at] == b's' && end <= index.len() {
            let (begin, len) = (u64_at(index, at + 9), u64_at(index, at + 17));
            found.push(Section {
                step: found.len() as u64,
                index: at as u64..end as u64,
                metadata: begin..begin + len,
            });
        }
        at = end;
    }
    found
}

impl Sound {
    fn new(name: &str) -> Self {
        let log = Log::of_dir(name, &directory(name), INDEX);
        let formats = file(&log, "mmd.0");
        let files = Files {
            index: &file(&log, INDEX).unwrap(),
            metadata: &file(&log, "md.0").unwrap(),
            formats: formats.as_ref().map(|bytes| bytes as _),
        };
        let of = Directory::open(files).unwrap();
        let step = |number: usize| (number as u64, of.step(files, number, &|_| true).unwrap());
        let sound = Sound {
            seen: see(&directory(name)).unwrap(),
            steps: of.numbers().map(step).collect(),
            sections: sections(&log.files[0].1, of.version()),
            log,
        };
        // The test itself is checked: it must accept the sound values.
        for (key, value) in &sound.seen.values {
            let expected = sound.elements(key, value, &sound.log);
            let is_same = expected.is_none_or(|expected| Some(expected) == value.elements);
            assert!(is_same, "{name}: {key:?}");
        }
        sound
    }

    fn variables<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Variable> {
        let steps = key.steps.iter().filter_map(|step| self.steps.get(step));
        let variables = steps.flat_map(|step| &step.variables);
        variables.filter(|variable| *variable.name == *key.variable)
    }

    /// The blocks of a key, each with its variable and its index there.
    fn blocks<'a>(&'a self, key: &'a Key) -> Vec<(&'a Variable, usize)> {
        let of = |variable: &'a Variable| (0..variable.blocks.len()).map(move |n| (variable, n));
        let all = self.variables(key).flat_map(of);
        match key.block {
            Some(block) => all.skip(block as usize).take(1).collect(),
            None => all.collect(),
        }
    }

    /// The elements of a variable, if the data are those of `log` and everything else is sound. `None` where an
    /// operator made the bytes, or bytes are missing.
    fn elements(&self, key: &Key, value: &Value, log: &Log) -> Option<Vec<u8>> {
        let blocks = self.blocks(key);
        let ty = &self.variables(key).next()?.ty;
        let (size, shown) = (ty.size() as usize, ty.shown_size() as usize);
        let count: u64 = value.shape.iter().product();
        let mut elements = vec![0; count as usize * shown];
        for (variable, number) in blocks {
            let block = &variable.blocks[number];
            if block.has_operator {
                return None;
            }
            let name = match block.place.file {
                File::Metadata => "md.0".to_owned(),
                File::Data(number) => format!("data.{number}"),
            };
            let begin = block.place.offset as usize;
            let stored = file(log, &name)?.get(begin..begin + block.place.len as usize)?;
            let (start, count) = match variable.kind {
                Kind::LocalValue => (vec![number as u64], vec![1]),
                _ => (
                    variable.start(number).to_vec(),
                    variable.count(number).to_vec(),
                ),
            };
            for (n, element) in stored.chunks_exact(size).enumerate() {
                let at = place(&start, &count, &value.shape, n as u64) as usize;
                // The padding after a struct's members is dropped.
                elements[at * shown..][..shown].copy_from_slice(&element[..shown]);
            }
            if *ty == Type::LongDouble && variable.rank == 0 {
                // A number has ten bytes; the rest is padding.
                let padding = elements.chunks_exact_mut(shown).flat_map(|n| &mut n[10..]);
                padding.for_each(|byte| *byte = 0);
            }
        }
        Some(elements)
    }

    /// The damage in a copy of the directory.
    fn damage(&self, bad: &Log) -> Damage {
        let mut damage = Damage::default();
        for (name, sound) in &self.log.files {
            let bytes = file(bad, name).unwrap_or_default();
            damage.is_cut |= bytes.len() < sound.len();
            damage.is_index_cut |= name == INDEX && bytes.len() < sound.len();
            // Bytes past the end differ, too.
            let others = (0..sound.len().max(bytes.len()))
                .filter(|at| bytes.get(*at) != sound.get(*at) && *at < bytes.len());
            for at in others.map(|at| at as u64) {
                match name.as_str() {
                    INDEX => damage.add(at, &self.sections, |section| &section.index, true),
                    "md.0" => damage.add(at, &self.sections, |section| &section.metadata, false),
                    "mmd.0" => damage.is_everywhere = true,
                    data => {
                        let number = number_of(data).unwrap();
                        damage.data.entry(number).or_default().insert(at);
                    }
                }
            }
        }
        damage
    }

    /// The results that are not permitted.
    fn wrong(&self, damage: &Damage, bad: &Log, seen: &Seen) -> Vec<String> {
        let mut wrong = Vec::new();
        if damage.is_everywhere {
            return wrong;
        }
        let is_free = |key: &Key| key.steps.iter().any(|step| damage.steps.contains(step));
        let judged = seen.values.iter().filter(|(key, _)| !is_free(key));
        for (key, value) in judged {
            if let Err(reason) = self.judge(key, value, damage, bad) {
                wrong.push(format!("{key:?}: {reason}"));
            }
        }
        let missing = self.seen.values.keys();
        let mut missing = missing.filter(|key| !seen.values.contains_key(key) && !is_free(key));
        if damage.is_of_data_alone() {
            wrong.extend(missing.map(|key| format!("{key:?} is missing")));
            if seen.image != self.seen.image {
                wrong.push("another image".to_owned());
            }
        } else if !damage.is_index_cut
            && !seen.is_told
            && let Some(key) = missing.next()
        {
            wrong.push(format!("nothing says that {key:?} is missing"));
        }
        wrong
    }

    fn judge(&self, key: &Key, value: &Value, damage: &Damage, bad: &Log) -> Result<(), String> {
        let blocks = self.blocks(key);
        let Some(variable) = self.variables(key).next() else {
            return Err("nothing was put there".to_owned());
        };
        let shape = match (variable.kind, blocks.first()) {
            (Kind::LocalValue, _) => vec![variable.blocks.len() as u64],
            (Kind::LocalArray, Some((_, first))) => variable.count(*first).to_vec(),
            (Kind::LocalArray, None) => return Err("there is no such block".to_owned()),
            _ => variable.shape.clone(),
        };
        if value.shape != shape {
            return Err(format!("its shape is {:?}", value.shape));
        }
        let is_in = |(variable, number): &(&Variable, usize)| {
            let block = &variable.blocks[*number];
            block.has_operator && damage.is_in(&block.place)
        };
        if blocks.iter().any(is_in) {
            return Ok(());
        }
        let sound = self.seen.values.get(key);
        if sound.is_some_and(|sound| sound.datatype != value.datatype) {
            return Err(format!("its elements are {}", value.datatype));
        }
        let expected = self.elements(key, value, bad);
        let expected = expected.or_else(|| sound?.elements.clone());
        match &value.elements {
            None if damage.is_cut => Ok(()),
            None => Err("it cannot be read".to_owned()),
            Some(elements) if Some(elements) == expected.as_ref() => Ok(()),
            Some(_) => Err("other elements".to_owned()),
        }
    }
}

impl Damage {
    /// Adds a damaged byte of metadata. The byte belongs to a step or to none. With `is_of_all`, a byte of no step
    /// concerns all.
    fn add(
        &mut self,
        at: u64,
        sections: &[Section],
        range: impl Fn(&Section) -> &Range<u64>,
        is_of_all: bool,
    ) {
        let mut own = sections
            .iter()
            .filter(|section| range(section).contains(&at));
        match own.next() {
            Some(section) => drop(self.steps.insert(section.step)),
            None => self.is_everywhere |= is_of_all,
        }
    }
}

/// The index in an array, in row-major order, of the `n`th element of a box.
fn place(start: &[u64], count: &[u64], shape: &[u64], mut n: u64) -> u64 {
    let (mut at, mut stride) = (0, 1);
    for d in (0..shape.len()).rev() {
        at += (start[d] + n % count[d]) * stride;
        n /= count[d];
        stride *= shape[d];
    }
    at
}

/// Results of all directories.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    /// Number of values that changed or disappeared.
    others: usize,
    /// Number of cases in which nothing was compared.
    everywhere: usize,
    longest: Duration,
    wrong: Vec<String>,
}

#[test]
fn damage_is_an_error_or_what_the_bytes_say() {
    let mut names = cases();
    names.retain(|name| {
        let log = Log::of_dir(name, &directory(name), INDEX);
        log.files.iter().all(|(_, bytes)| bytes.len() < LONGEST)
    });
    let sound: Vec<Sound> = names.iter().map(|name| Sound::new(name)).collect();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(300, 10_000));
    let first = first_seed();
    let mut tally = Tally::default();
    for case in 0..count {
        let mut random = Numbers(first.wrapping_mul(1 << 20).wrapping_add(case));
        let sound = &sound[random.index(sound.len())];
        let bad = mutant(&sound.log, &mut random);
        tally.add(sound, &bad, case);
    }
    let Tally {
        refused,
        others,
        everywhere,
        longest,
        wrong,
    } = tally;
    eprintln!(
        "{count} damaged copies of {} directories: {refused} are refused as a whole, {others} show something else than \
         before, {everywhere} may show anything; {longest:?} at most",
        sound.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(longest < MOST_TIME);
}

impl Tally {
    fn add(&mut self, sound: &Sound, bad: &Log, case: u64) {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        bad.lay_out(dir.path());
        let damage = sound.damage(bad);
        let begin = Instant::now();
        let seen = measured(|| see(dir.path()));
        self.longest = self.longest.max(begin.elapsed());
        self.everywhere += usize::from(damage.is_everywhere);
        let found = match seen {
            Ok(seen) => {
                self.others += usize::from(seen.values != sound.seen.values);
                sound.wrong(&damage, bad, &seen)
            }
            Err(error) => {
                self.refused += 1;
                let is_refused = damage.is_of_data_alone();
                Vec::from_iter(is_refused.then(|| error.to_string()))
            }
        };
        let name = &sound.log.name;
        let told = found
            .iter()
            .take(3)
            .map(|text| format!("{name} (case {case}): {text}"));
        self.wrong.extend(told);
        let _ = fs::remove_dir_all(dir.path());
    }
}
