//! Random log files, compared with a naive model of their content. The comparison covers the view's chunks, and the
//! datasets that libhdf5 reads from the view's bytes. `H5LOGFS_TEST_CASES` sets the number of cases.

use std::path::Path;
use std::{fmt, fs};

use crate::common::amount::properties;
use crate::common::compacted;
use crate::common::encoder::filter::{self, Filter};
use crate::common::encoder::raw;
use crate::common::encoder::*;
use crate::common::settled::{settle, unsettle};
use crate::common::ways::{Ways, numbers};
use h5logfs_common::error::Error;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use proptest::prelude::*;

/// Cases of a whole run.
const CASES: u32 = 1500;
/// Cases of logs that are compacted.
const COMPACTED: u32 = 150;
/// Cases of settled logs, which are written to several times.
const SETTLED: u32 = 300;
/// Cases of crowded logs, which are large.
const CROWDED: u32 = 60;
const MOST_DIMS: usize = 5;
/// ID of the first deleted dataset.
const DELETED: i32 = 90;

#[derive(Clone)]
struct Recipe {
    user_block: bool,
    latest: bool,
    reversed: bool,
    /// Number of subfiles; 0 for none.
    subfiles: usize,
    datasets: Vec<DatasetRecipe>,
    writes: Vec<WriteRecipe>,
    /// Ranges of the view to read, as fractions of its length.
    reads: Vec<(u32, u32)>,
    /// Blocks of the datasets to read.
    slabs: Vec<[(u16, u16); MOST_DIMS]>,
}

#[derive(Debug, Clone)]
struct DatasetRecipe {
    datatype: Type,
    dims: Vec<u64>,
    /// The excess of each maximum extent over the extent.
    room: Vec<Room>,
    /// Sides of the recorded chunk shape, where they fit.
    chunk: Option<Vec<u64>>,
    filters: Option<Vec<i32>>,
    fill: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Room {
    None,
    Some(u64),
    Unlimited,
}

#[derive(Debug, Clone)]
struct WriteRecipe {
    dataset: usize,
    /// The entry belongs to a deleted dataset of the same rank.
    deleted: bool,
    flush: usize,
    table: usize,
    process: usize,
    place: u32,
    shape: ShapeRecipe,
    record: Option<u64>,
    spelling: SpellingRecipe,
    filtered: bool,
    /// Number of different byte values.
    alphabet: u64,
    seed: u64,
}

#[derive(Debug, Clone)]
enum ShapeRecipe {
    Blocks(Vec<[(u16, u16); MOST_DIMS]>),
    /// This many blocks of a few elements each.
    Scattered(usize),
    /// A block that is one chunk of the recorded shape.
    Chunk(u64),
    Everything,
}

#[derive(Debug, Clone, Copy)]
enum SpellingRecipe {
    Plain,
    /// Blocks encoded with an extent that was larger by this number.
    Encoded(u64),
    Deflated(Deflated),
    Shared(usize),
}

fn dims() -> impl Strategy<Value = Vec<u64>> {
    let side = |most: u64| prop_oneof![1 => Just(0u64), 24 => 1..=most];
    prop_oneof![
        1 => Just(Vec::new()),
        3 => prop::collection::vec(side(60), 1),
        4 => prop::collection::vec(side(14), 2),
        3 => prop::collection::vec(side(7), 3),
        1 => prop::collection::vec(side(5), 4),
        1 => prop::collection::vec(side(4), 5),
    ]
}

fn dataset() -> impl Strategy<Value = DatasetRecipe> {
    let room = prop_oneof![
        3 => Just(Room::None),
        1 => (1u64..4).prop_map(Room::Some),
        2 => Just(Room::Unlimited),
    ];
    let filters = Just(vec![filter::DEFLATE, filter::SHUFFLE, filter::FLETCHER32])
        .prop_shuffle()
        .prop_flat_map(|ids| (0..=ids.len()).prop_map(move |n| ids[..n].to_vec()));
    (
        prop::sample::select(&Type::ALL[..]),
        dims(),
        prop::collection::vec(room, MOST_DIMS),
        prop::option::of(prop::collection::vec(1u64..20, MOST_DIMS)),
        prop::option::of(filters),
        prop::option::of(any::<u8>()),
    )
        .prop_map(
            |(datatype, dims, room, chunk, filters, fill)| DatasetRecipe {
                datatype,
                dims,
                room,
                chunk,
                filters,
                fill,
            },
        )
}

fn write() -> impl Strategy<Value = WriteRecipe> {
    let block = || prop::array::uniform5(any::<(u16, u16)>());
    let shape = prop_oneof![
        6 => prop::collection::vec(block(), 1..5).prop_map(ShapeRecipe::Blocks),
        2 => any::<u64>().prop_map(ShapeRecipe::Chunk),
        1 => Just(ShapeRecipe::Everything),
    ];
    let deflated = prop::sample::select(&[Deflated::Not, Deflated::AfterCount, Deflated::Whole]);
    let spelling = prop_oneof![
        3 => Just(SpellingRecipe::Plain),
        3 => (0u64..3).prop_map(SpellingRecipe::Encoded),
        1 => deflated.prop_map(SpellingRecipe::Deflated),
        3 => any::<usize>().prop_map(SpellingRecipe::Shared),
    ];
    (
        (any::<usize>(), prop::bool::weighted(0.1)),
        (0usize..3, 0usize..2, 0usize..3, 0u32..2),
        shape,
        prop::option::weighted(0.3, any::<u64>()),
        spelling,
        any::<bool>(),
        prop::sample::select(&[2u64, 3, 256]),
        any::<u64>(),
    )
        .prop_map(
            |(
                (dataset, deleted),
                (flush, table, process, place),
                shape,
                record,
                spelling,
                filtered,
                alphabet,
                seed,
            )| WriteRecipe {
                dataset,
                deleted,
                flush,
                table,
                process,
                place,
                shape,
                record,
                spelling,
                filtered,
                alphabet,
                seed,
            },
        )
}

fn recipe() -> impl Strategy<Value = Recipe> {
    (
        (any::<bool>(), any::<bool>(), any::<bool>()),
        prop_oneof![3 => Just(0usize), 1 => 1usize..4],
        prop::collection::vec(dataset(), 1..4),
        prop::collection::vec(write(), 0..16),
        prop::collection::vec(any::<(u32, u32)>(), 8),
        prop::collection::vec(prop::array::uniform5(any::<(u16, u16)>()), 4),
    )
        .prop_map(
            |((user_block, latest, reversed), subfiles, datasets, writes, reads, slabs)| Recipe {
                user_block,
                latest,
                reversed,
                subfiles,
                datasets,
                writes,
                reads,
                slabs,
            },
        )
}

/// A log with crowds of entries and blocks, some of them without data, and the way of reading it.
#[derive(Clone)]
struct Crowded {
    recipe: Recipe,
    /// Number of entries with small blocks, and of blocks in one entry.
    entries: usize,
    blocks: usize,
    /// Share of entries without data: one in this many.
    lost: Option<usize>,
    seed: u64,
}

fn crowded() -> impl Strategy<Value = Crowded> {
    let entries = prop_oneof![4 => 0usize..20, 2 => 100usize..300, 1 => 2050usize..2600];
    let blocks = prop_oneof![3 => 1usize..20, 2 => 100usize..400, 1 => 2050usize..5000];
    let lost = prop::option::weighted(0.3, 2usize..40);
    (recipe(), entries, blocks, lost, any::<u64>()).prop_map(
        |(recipe, entries, blocks, lost, seed)| Crowded {
            recipe,
            entries,
            blocks,
            lost,
            seed,
        },
    )
}

impl Crowded {
    fn make(&self) -> LogFile {
        let mut recipe = self.recipe.clone();
        let mut random = numbers(self.seed);
        let mut write = |number| WriteRecipe {
            dataset: random() as usize,
            deleted: false,
            flush: random() as usize % 3,
            table: random() as usize % 2,
            process: random() as usize % 3,
            place: random() as u32 % 2,
            shape: ShapeRecipe::Scattered(number),
            record: random().is_multiple_of(3).then_some(random()),
            spelling: match random() % 8 {
                0 => SpellingRecipe::Shared(random() as usize),
                1 | 2 => SpellingRecipe::Encoded(0),
                _ => SpellingRecipe::Plain,
            },
            filtered: random().is_multiple_of(3),
            alphabet: [2, 256][random() as usize % 2],
            seed: random(),
        };
        let few = (0..self.entries).map(|n| write(1 + n % 2));
        recipe.writes.extend(few.collect::<Vec<_>>());
        recipe.writes.push(write(self.blocks));
        recipe.writes.push(write(1 + self.blocks / 2));
        // Each entry may be the last one, so that early entries apply last in some cases.
        let turn = random() as usize % recipe.writes.len();
        recipe.writes.rotate_left(turn);
        let mut file = recipe.make();
        for entry in entries_of(&mut file) {
            let lost = self.lost.is_some_and(|n| random().is_multiple_of(n as u64));
            if lost && !entry.data.is_empty() {
                entry.claims = Some((1 << 40, entry.data.len() as i64));
            }
        }
        file
    }
}

fn entries_of(file: &mut LogFile) -> impl Iterator<Item = &mut Entry> {
    let sections = file
        .logs
        .iter_mut()
        .flat_map(|log| &mut log.tables)
        .flatten();
    sections.flatten()
}

impl fmt::Debug for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crowded {
            entries,
            blocks,
            lost,
            seed,
            ..
        } = self;
        write!(
            f,
            "{entries} entries, {blocks} blocks, lost {lost:?}, seed {seed}, "
        )?;
        self.recipe.fmt(f)
    }
}

/// The resulting log file in one line, for failures.
impl fmt::Debug for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{:?}", self.make()))
    }
}

// --- from the recipe to a log file ---------------------------------------------------------------

impl DatasetRecipe {
    fn make(&self, number: usize) -> Dataset {
        let rank = self.dims.len();
        let mut dataset = Dataset::new(
            &format!("d{number}"),
            number as i32,
            self.datatype,
            &self.dims,
        );
        dataset.max = self
            .dims
            .iter()
            .zip(&self.room)
            .map(|(dim, room)| match room {
                Room::None => Some(*dim),
                Room::Some(more) => Some(dim + more),
                Room::Unlimited => None,
            })
            .collect();
        let size = dataset.datatype.size();
        dataset.fill = self
            .fill
            .map(|seed| (0..size).map(|i| seed.wrapping_mul(i as u8 + 1)).collect());
        // libhdf5 refuses a chunk larger than a dataset that cannot grow.
        let fits = |(side, max): (&u64, &Option<u64>)| (*side).min(max.unwrap_or(u64::MAX).max(1));
        dataset.chunk = self
            .chunk
            .as_ref()
            .map(|chunk| chunk.iter().zip(&dataset.max).map(fits).collect());
        let filter = |id: &i32| match *id {
            filter::DEFLATE => Filter::deflate(6),
            filter::SHUFFLE => Filter::shuffle(size),
            _ => Filter::fletcher32(),
        };
        if rank > 0 {
            dataset.filters = self
                .filters
                .as_ref()
                .map(|ids| ids.iter().map(filter).collect());
        }
        dataset
    }
}

impl Recipe {
    fn make(&self) -> LogFile {
        let datasets: Vec<Dataset> = self
            .datasets
            .iter()
            .enumerate()
            .map(|(number, recipe)| recipe.make(number))
            .collect();
        let mut file = LogFile::new(datasets);
        file.latest = self.latest;
        file.reversed = self.reversed;
        file.subfiled = self.subfiles > 0;
        if self.user_block {
            file.user_block = vec![0x55; 512];
        }
        file.logs = vec![
            Log {
                tables: vec![vec![Vec::new(); 3]; 2],
            };
            self.subfiles.max(1)
        ];
        for write in &self.writes {
            let log = (write.seed as usize) % file.logs.len();
            let section = &file.logs[log].tables[write.table][write.process];
            let entry = write.make(&file.datasets, section);
            file.logs[log].tables[write.table][write.process].push(entry);
        }
        file
    }
}

impl WriteRecipe {
    fn make(&self, datasets: &[Dataset], section: &[Entry]) -> Entry {
        let dataset = &datasets[self.dataset % datasets.len()];
        let rank = dataset.dims.len();
        let mut entry = Entry::many(dataset.id, Vec::new(), Vec::new()).flush(self.flush);
        entry.place = self.place;
        if rank > 0 {
            entry.record = self.record.map(|r| (r % (dataset.dims[0] + 2)) as i64);
        }
        self.select(dataset, section, &mut entry);
        let mut whole = section.to_vec();
        whole.push(entry.clone());
        let blocks = meant_blocks(&whole, section.len());
        let elements: u64 = blocks.iter().map(block_elements).sum();
        let raw = self.bytes(elements as usize * dataset.datatype.size());
        entry.data = self.stored(dataset, raw, &entry);
        if self.deleted {
            entry.dataset = DELETED + dataset.id;
        }
        entry
    }

    /// Chooses the blocks of an entry, and their encoding.
    fn select(&self, dataset: &Dataset, section: &[Entry], entry: &mut Entry) {
        let skip = usize::from(entry.record.is_some());
        let dims = &dataset.dims[skip..];
        if dataset.dims.is_empty() {
            entry.blocks = vec![(Vec::new(), Vec::new())];
            entry.spelling = Spelling::One;
            return;
        }
        let encodable = dims.len() >= 2 && dims.iter().all(|d| *d > 0);
        match self.spelling {
            SpellingRecipe::Shared(choice) => {
                let same_rank = |e: &Entry| {
                    let spelled = !matches!(e.spelling, Spelling::Shared { .. });
                    let covers = e.blocks[0].0.len() + usize::from(e.record.is_some());
                    // See `many_blocks_without_coordinates`.
                    let single = e.blocks.len() == 1 || dataset.dims.len() > 1;
                    spelled && single && covers == dataset.dims.len()
                };
                let targets: Vec<usize> = (0..section.len())
                    .filter(|n| same_rank(&section[*n]))
                    .collect();
                if !targets.is_empty() {
                    let target = targets[choice % targets.len()];
                    entry.spelling = Spelling::Shared { target };
                    entry.blocks = section[target].blocks.clone();
                    return;
                }
                entry.blocks = self.blocks(dataset, dims, false);
            }
            SpellingRecipe::Encoded(grown) if encodable => {
                let extent: Vec<u64> = dims.iter().map(|d| d + grown).collect();
                entry.blocks = self.blocks(dataset, &extent, true);
                entry.spelling = Spelling::Encoded { extent };
                return;
            }
            SpellingRecipe::Deflated(form) => {
                let extent = encodable.then(|| dims.to_vec());
                entry.blocks = self.blocks(dataset, dims, encodable);
                entry.spelling = Spelling::Deflated { extent, form };
                return;
            }
            _ => entry.blocks = self.blocks(dataset, dims, false),
        }
        if entry.blocks.len() == 1 {
            entry.spelling = Spelling::One;
        }
    }

    /// The blocks of a write. With `inside`, none is empty or leaves `dims`.
    fn blocks(&self, dataset: &Dataset, dims: &[u64], inside: bool) -> Vec<Block> {
        let skip = dataset.dims.len() - dims.len();
        let one = |numbers: &[(u16, u16); MOST_DIMS]| -> Block {
            let side = |(dim, (s, c)): (&u64, &(u16, u16))| {
                let (s, c) = (u64::from(*s), u64::from(*c));
                if inside {
                    let start = s % dim;
                    (start, 1 + c % (dim - start))
                } else {
                    (s % (dim + 3), c % (dim + 2))
                }
            };
            dims.iter().zip(numbers).map(side).unzip()
        };
        match (&self.shape, &dataset.chunk) {
            // A single block of single elements is enough; `many_blocks_without_coordinates` has several.
            (ShapeRecipe::Blocks(blocks), _) if dims.is_empty() => vec![one(&blocks[0])],
            (ShapeRecipe::Blocks(blocks), _) => blocks.iter().map(one).collect(),
            (ShapeRecipe::Scattered(_), _) if dims.is_empty() => vec![one(&[(0, 0); MOST_DIMS])],
            (ShapeRecipe::Scattered(number), _) => self.scattered(*number, dims),
            (ShapeRecipe::Chunk(number), Some(chunk)) if !inside => {
                let sides = chunk[skip..].iter().zip(dims);
                let start = sides.map(|(c, d)| number % d.div_ceil(*c).max(1) * c);
                vec![(start.collect(), chunk[skip..].to_vec())]
            }
            _ => vec![(vec![0; dims.len()], dims.to_vec())],
        }
    }

    /// Up to three elements along each dimension, inside of `dims` unless these have no elements.
    fn scattered(&self, number: usize, dims: &[u64]) -> Vec<Block> {
        let mut random = numbers(self.seed);
        let mut side = |dim: &u64| {
            let start = random() % (*dim).max(1);
            (
                start,
                1 + random() % 3.min(dim.saturating_sub(start).max(1)),
            )
        };
        (0..number)
            .map(|_| dims.iter().map(&mut side).unzip())
            .collect()
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut state = self.seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 32) % self.alphabet) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// The stored form of an entry's data; raw where sizes could not distinguish the forms.
    fn stored(&self, dataset: &Dataset, raw: Vec<u8>, entry: &Entry) -> Vec<u8> {
        if !self.filtered || raw.is_empty() {
            return raw;
        }
        let stored = match &dataset.filters {
            Some(filters) => filter::apply(filters, &raw),
            None => filter::deflate(&raw),
        };
        let multi_block = !matches!(entry.spelling, Spelling::One);
        // Section 6.2: the size of raw data tells whether counts mean empty blocks.
        let ambiguous = multi_block && stored.len() % dataset.datatype.size() == 0;
        if stored.len() == raw.len() || ambiguous {
            raw
        } else {
            stored
        }
    }
}

// --- the properties ------------------------------------------------------------------------------

fn check(recipe: &Recipe) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let file = recipe.make();
    file.write(&path);
    let view = open_view(&path).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let exported = dir.path().join("view.h5");
    export(&view, &exported);
    for dataset in &file.datasets {
        let contents = file.contents(dataset);
        let number = number_of(&view, &format!("/{}", dataset.name));
        let by_chunks = read_by_chunks(&view, number);
        let by_chunks = by_chunks.map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert!(by_chunks == contents, "{}: by its chunks", dataset.name);
        let followed = follow_references(&view, number);
        followed.map_err(|e| TestCaseError::fail(e.to_string()))?;
        check_with_libhdf5(recipe, dataset, &contents, &exported)?;
    }
    check_reads(recipe, &view)
}

/// In the compact file, with the filters of the log and with others, libhdf5 reads the same datasets. The bytes do
/// not depend on the number of threads.
fn check_compacted(recipe: &Recipe) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log.h5"), dir.path().join("out.h5"));
    let file = recipe.make();
    file.write(&log);
    let write = |filters: Option<Vec<_>>| -> Result<(), String> {
        let source = compacted::source(&log, filters, false)?;
        compacted::write(&source, &out, 1)?;
        let bytes = fs::read(&out).unwrap();
        compacted::write(&source, &out, 3)?;
        let is_same = bytes == fs::read(&out).unwrap();
        is_same
            .then_some(())
            .ok_or_else(|| "three threads write other bytes than one".into())
    };
    write(None).map_err(TestCaseError::fail)?;
    for dataset in &file.datasets {
        check_with_libhdf5(recipe, dataset, &file.contents(dataset), &out)?;
    }
    let chosen = recipe.datasets.iter().find_map(|d| d.filters.clone());
    let chosen = chosen.unwrap_or_else(|| vec![filter::DEFLATE]);
    let filter = |id: &i32| h5logfs_hdf5_format::filters::Filter {
        id: *id,
        flags: u32::from(*id != filter::FLETCHER32),
        values: if *id == filter::DEFLATE {
            vec![1]
        } else {
            Vec::new()
        },
    };
    write(Some(chosen.iter().map(filter).collect())).map_err(TestCaseError::fail)?;
    let open = raw::open_file(&out);
    for dataset in &file.datasets {
        let shown = raw::open(&open, &dataset.name);
        if !dataset.dims.is_empty() {
            prop_assert_eq!(raw::filter_ids(&shown), chosen.clone());
        }
        prop_assert!(
            raw::read(&shown) == file.contents(dataset),
            "{}: with other filters",
            dataset.name
        );
    }
    Ok(())
}

/// A settled log has the content of the log. A write to one dataset changes no other dataset. The log can be restored
/// as long as nothing was written.
fn check_settled(recipe: &Recipe) -> Result<(), TestCaseError> {
    let failed = |e: Error| TestCaseError::fail(e.to_string());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let file = recipe.make();
    file.write(&path);
    let log = fs::read(&path).unwrap();
    if recipe.subfiles > 0 {
        let refused = settle(&path).unwrap_err().to_string();
        prop_assert!(refused.contains("lie in other files"), "{refused}");
        prop_assert!(fs::read(&path).unwrap() == log);
        return Ok(());
    }
    settle(&path).map_err(failed)?;
    for dataset in &file.datasets {
        check_with_libhdf5(recipe, dataset, &file.contents(dataset), &path)?;
    }
    unsettle(&path).map_err(failed)?;
    prop_assert!(fs::read(&path).unwrap() == log, "undone");
    settle(&path).map_err(failed)?;
    let mut contents: Vec<_> = file.datasets.iter().map(|d| file.contents(d)).collect();
    for (number, dataset) in file.datasets.iter().enumerate() {
        let opened = raw::open_file_to_change(&path);
        let other: Vec<u8> = contents[number].iter().map(|byte| !byte).collect();
        if !other.is_empty() {
            raw::write(&raw::open(&opened, &dataset.name), &other);
        }
        contents[number] = other;
        drop(opened);
        for (dataset, contents) in file.datasets.iter().zip(&contents) {
            check_with_libhdf5(recipe, dataset, contents, &path)?;
        }
    }
    Ok(())
}

fn check_with_libhdf5(
    recipe: &Recipe,
    dataset: &Dataset,
    contents: &[u8],
    exported: &Path,
) -> Result<(), TestCaseError> {
    let file = raw::open_file(exported);
    let shown = raw::open(&file, &dataset.name);
    let (dims, max) = raw::extent(&raw::dataset_space(&shown));
    let wanted: Vec<u64> = dataset.max.iter().map(|m| m.unwrap_or(u64::MAX)).collect();
    prop_assert_eq!(&dims, &dataset.dims);
    prop_assert_eq!(max, wanted);
    prop_assert!(raw::same_type(
        &raw::dataset_type(&shown),
        &dataset.datatype.create()
    ));
    if !dims.is_empty() {
        let chunk = raw::chunk_shape(&shown);
        prop_assert_eq!(chunk.clone(), dataset.chunk.clone().unwrap_or(chunk));
    }
    let filters = dataset.filters.iter().flatten().map(|f| f.id);
    prop_assert_eq!(raw::filter_ids(&shown), filters.collect::<Vec<_>>());
    prop_assert!(
        raw::read(&shown) == contents,
        "{}: by libhdf5",
        dataset.name
    );
    if dims.is_empty() || dataset.elements() == 0 {
        return Ok(());
    }
    let size = dataset.datatype.size();
    for slab in &recipe.slabs {
        let side = |(dim, (s, c)): (&u64, &(u16, u16))| {
            let start = u64::from(*s) % dim;
            (start, 1 + u64::from(*c) % (dim - start))
        };
        let (start, count): Block = dims.iter().zip(slab).map(side).unzip();
        let mut wanted = Vec::new();
        for at in coordinates(&count) {
            let place = at.iter().zip(&start).zip(&dims);
            let linear = place.fold(0, |n, ((a, s), d)| n * d + a + s) as usize;
            wanted.extend_from_slice(&contents[linear * size..(linear + 1) * size]);
        }
        let got = raw::read_block(&shown, &start, &count);
        prop_assert!(got == wanted, "{} {start:?} {count:?}", dataset.name);
    }
    Ok(())
}

/// Reads of any range agree with the whole.
fn check_reads(recipe: &Recipe, view: &View) -> Result<(), TestCaseError> {
    let whole = read_whole(view).unwrap();
    let len = whole.len() as u64;
    for (at, count) in &recipe.reads {
        // Up to an eighth past the end.
        let at = (u64::from(*at) * (len + len / 8)) >> 32;
        let count = (u64::from(*count) * (len / 2)) >> 32;
        let mut bytes = vec![0x5a; count as usize];
        let read = view.read_at(at, &mut bytes).unwrap();
        let start = at.min(len) as usize;
        let end = (at + count).clamp(start as u64, len) as usize;
        prop_assert_eq!(read, end - start);
        prop_assert!(bytes[..read] == whole[start..end], "{count} bytes at {at}");
    }
    Ok(())
}

/// A byte for each element of a dataset: 1 where its data is lost. A lost record may have been the last one.
fn lost_elements(file: &LogFile, dataset: &Dataset) -> Vec<u8> {
    let mut file = file.clone();
    let mut plain = dataset.clone();
    (plain.datatype, plain.fill, plain.filters) = (Type::U8, None, None);
    for log in &mut file.logs {
        for section in log.tables.iter_mut().flatten() {
            let whole = section.clone();
            for (number, entry) in section.iter_mut().enumerate() {
                let blocks = meant_blocks(&whole, number);
                let elements: u64 = blocks.iter().map(block_elements).sum();
                let is_lost = u8::from(entry.claims.is_some());
                entry.data = vec![is_lost; elements as usize];
                if is_lost == 1 {
                    entry.flush = 1000;
                }
            }
        }
    }
    file.contents(&plain)
}

/// Each chunk has the elements that the log records, or fails where it needs lost data.
fn check_chunks(file: &LogFile, view: &View, how: &str) -> Result<(), TestCaseError> {
    for dataset in &file.datasets {
        let contents = file.contents(dataset);
        let lost = lost_elements(file, dataset);
        let number = number_of(view, &format!("/{}", dataset.name));
        let size = dataset.datatype.size();
        let filters = filters_of(view, number);
        let grid = view.grid(number);
        for chunk in 0..grid.len() {
            let bounds = grid.bounds(chunk);
            let count: Vec<u64> = bounds.count().collect();
            let inside: Vec<(u64, u64)> = coordinates(&count)
                .map(|at| {
                    let whole = at.iter().zip(&bounds.start).zip(&dataset.dims);
                    let of_dataset = whole.fold(0, |n, ((a, s), d)| n * d + a + s);
                    let of_chunk = at.iter().zip(&grid.chunk).fold(0, |n, (a, c)| n * c + a);
                    (of_dataset, of_chunk)
                })
                .collect();
            let is_lost = inside.iter().any(|(at, _)| lost[*at as usize] == 1);
            let stored = match view.chunks().stored(ChunkId::new(number, chunk)) {
                Ok(stored) => stored,
                Err(e) => {
                    prop_assert!(is_lost, "{how}: {e}");
                    continue;
                }
            };
            prop_assert!(
                !is_lost,
                "{how}: {} chunk {chunk} has what is lost",
                dataset.name
            );
            let raw = filter::try_undo(&filters, &stored).unwrap();
            for (at, to) in inside {
                let (at, to) = (at as usize * size, to as usize * size);
                prop_assert!(
                    raw[to..to + size] == contents[at..at + size],
                    "{how}: {} chunk {chunk}, byte {to}",
                    dataset.name
                );
            }
        }
    }
    Ok(())
}

fn check_ways(crowded: &Crowded) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let file = crowded.make();
    file.write(&path);
    let check = |view: &View, how: &str| {
        let checked = check_chunks(&file, view, how);
        checked.map_err(|e| e.to_string())
    };
    let checked = Ways::of(path).check(crowded.seed, check);
    checked.map_err(TestCaseError::fail)
}

proptest! {
    #![proptest_config(properties(CASES))]

    #[test]
    fn a_view_holds_what_the_log_says(recipe in recipe()) {
        check(&recipe)?;
    }
}

proptest! {
    #![proptest_config(properties(COMPACTED))]

    #[test]
    fn an_ordinary_file_holds_what_the_log_says(recipe in recipe()) {
        check_compacted(&recipe)?;
    }
}

proptest! {
    #![proptest_config(properties(CROWDED))]

    /// Large and small caches, several readers, a kept index.
    #[test]
    fn however_it_is_read(crowded in crowded()) {
        check_ways(&crowded)?;
    }
}

proptest! {
    #![proptest_config(properties(SETTLED))]

    #[test]
    fn a_settled_log_is_an_ordinary_file(recipe in recipe()) {
        check_settled(&recipe)?;
    }
}

/// A multi-block write may hit one element several times: the last one counts.
#[test]
fn many_blocks_without_coordinates() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let block = || (Vec::new(), Vec::new());
    // The view numbers datasets by name.
    let scalar = Dataset::new("a scalar", 0, Type::U8, &[]);
    let mut row = Dataset::new("row", 1, Type::U8, &[4]);
    row.max = vec![None];
    let entries = vec![
        Entry::many(0, vec![block(), block()], vec![1, 2]),
        Entry::many(1, vec![block(), block(), block()], vec![3, 4, 5]).record(2),
    ];
    let file = LogFile::with(vec![scalar, row], entries);
    file.write(&path);
    let view = open_view(&path).unwrap();
    for (number, wanted) in [(0, vec![2]), (1, vec![0, 0, 5, 0])] {
        assert_eq!(file.contents(&file.datasets[number]), wanted);
        assert_eq!(read_by_chunks(&view, number).unwrap(), wanted);
    }
}
