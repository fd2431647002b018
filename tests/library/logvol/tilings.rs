//! Datasets that their records tile, or nearly do: their chunk shapes, and their content, which does not depend on
//! the shape. `H5LOGFS_TEST_CASES` sets the number of cases.

use std::path::Path;
use std::sync::Arc;

use crate::common::amount::properties;
use crate::common::encoder::*;
use h5logfs_log::scan::shape::choose as choose_chunk;
use h5logfs_log::scan::{Chunking, ScanRequest};
use h5logfs_log::snapshot::Storage;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use proptest::prelude::*;

/// Cases of a whole run.
const CASES: u32 = 120;

/// The smallest tile that becomes a chunk, in bytes.
const SMALLEST_TILE: u64 = 64 << 10;
const SHORTEST_RUN: u64 = 256;

#[derive(Debug, Clone)]
struct Recipe {
    datatype: Type,
    tile: Vec<u64>,
    dims: Vec<u64>,
    unlimited: bool,
    /// The tiles written, in order; some of them several times.
    cells: Vec<CellRecipe>,
    /// An entry to bend, and how.
    bend: Option<(Bend, usize)>,
    latest: bool,
}

#[derive(Debug, Clone, Copy)]
struct CellRecipe {
    cell: u32,
    process: usize,
    /// The block is given by a record number, if the tile is one index of the first dimension.
    by_record: bool,
    /// Shares the selection of an earlier entry, if one fits.
    shared: bool,
    /// The second dataset gets the same block by a shared selection.
    twice: bool,
    seed: u64,
}

/// A deviation of one entry from the tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bend {
    /// Begins later in a dimension, by this much.
    Shifted(usize, u64),
    /// Ends one element early.
    Short(usize),
    /// Encoded as several blocks, although it is one.
    Many,
    /// Has no elements, which is no deviation.
    Empty,
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let datatype = prop::sample::select(&[Type::F64, Type::Compound, Type::Padded][..]);
    let cell = (
        any::<u32>(),
        0usize..2,
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.3),
        any::<u64>(),
    );
    let cell = cell.prop_map(
        |(cell, process, by_record, shared, twice, seed)| CellRecipe {
            cell,
            process,
            by_record,
            shared,
            twice,
            seed,
        },
    );
    let bend = prop_oneof![
        2 => (0usize..3, 1u64..100).prop_map(|(d, by)| Bend::Shifted(d, by)),
        2 => (0usize..3).prop_map(Bend::Short),
        1 => Just(Bend::Many),
        1 => Just(Bend::Empty),
    ];
    (
        datatype,
        (1usize..4, any::<bool>(), 30u64..90),
        prop::collection::vec((1u64..4, prop_oneof![Just(0u64), 1u64..100]), 3),
        any::<bool>(),
        prop::collection::vec(cell, 1..14),
        prop::option::weighted(0.5, (bend, any::<usize>())),
        any::<bool>(),
    )
        .prop_map(
            |(datatype, (rank, flat, last), grid, unlimited, cells, bend, latest)| {
                let tile = tile(datatype, rank, flat, last);
                let sides = tile.iter().zip(&grid);
                // Whole tiles, and a part of one, in percent.
                let dims = sides.map(|(side, (n, more))| side * n + side * more / 100);
                Recipe {
                    dims: dims.collect(),
                    datatype,
                    tile,
                    unlimited,
                    cells,
                    bend,
                    latest,
                }
            },
        )
}

/// A tile just large enough to become a chunk. `flat` has one index of the first dimension.
fn tile(datatype: Type, rank: usize, flat: bool, last: u64) -> Vec<u64> {
    let elements = SMALLEST_TILE.div_ceil(datatype.size() as u64);
    match (rank, flat) {
        (1, _) => vec![elements + last],
        (2, true) => vec![1, elements + last],
        (2, false) => vec![elements.div_ceil(last), last],
        (_, true) => vec![1, elements.div_ceil(last), last],
        (_, false) => vec![3, elements.div_ceil(3 * last), last],
    }
}

impl Recipe {
    fn make(&self) -> LogFile {
        let mut first = Dataset::new("first", 0, self.datatype, &self.dims);
        if self.unlimited {
            first.max[0] = None;
        }
        let mut second = Dataset::new("second", 1, self.datatype, &self.dims);
        second.max = first.max.clone();
        let mut sections = vec![Section::new(); 2];
        for (number, recipe) in self.cells.iter().enumerate() {
            self.write(number, recipe, &mut sections[recipe.process]);
        }
        let mut file = LogFile::new(vec![first, second]);
        file.latest = self.latest;
        file.logs[0].tables = vec![sections];
        file
    }

    fn write(&self, number: usize, recipe: &CellRecipe, section: &mut Section) {
        let (start, count) = self.block(number, recipe.cell);
        let elements: u64 = count.iter().product();
        let bytes = |seed| bytes(seed, elements as usize * self.datatype.size());
        let by_record = recipe.by_record && start.len() > 1 && count[0] == 1;
        let rest = usize::from(by_record);
        let mut entry = Entry::one(0, &start[rest..], &count[rest..], bytes(recipe.seed));
        entry.record = by_record.then_some(start[0] as i64);
        if self.bend_of(number) == Some(Bend::Many) {
            entry.spelling = Spelling::Many;
        } else if recipe.shared
            && let Some(target) = sharable(section, &entry)
        {
            entry.spelling = Spelling::Shared { target };
            entry.blocks = section[target].blocks.clone();
        }
        let target = match entry.spelling {
            Spelling::Shared { target } => target,
            _ => section.len(),
        };
        let again = (recipe.twice && elements > 0).then(|| {
            let mut again = entry.clone();
            again.dataset = 1;
            again.data = bytes(!recipe.seed);
            if section.get(target).is_some_and(|t| t.record.is_some())
                && recipe.seed.is_multiple_of(2)
            {
                // The record number of the entry with the block counts.
                again.record = None;
            }
            again.spelled(Spelling::Shared { target })
        });
        section.push(entry);
        section.extend(again);
    }

    fn bend_of(&self, number: usize) -> Option<Bend> {
        let (bend, bent) = self.bend?;
        (bent % self.cells.len() == number).then_some(bend)
    }

    fn block(&self, number: usize, cell: u32) -> Block {
        let mut cell = u64::from(cell);
        let (mut start, mut count) = (Vec::new(), Vec::new());
        for (side, dim) in self.tile.iter().zip(&self.dims) {
            let cells = dim.div_ceil(*side);
            start.push(cell % cells * side);
            cell /= cells;
            count.push((*side).min(dim - start[start.len() - 1]));
        }
        let rank = start.len();
        match self.bend_of(number) {
            Some(Bend::Shifted(d, by)) => start[d % rank] += by,
            Some(Bend::Short(d)) => count[d % rank] -= 1,
            Some(Bend::Empty) => count[rank - 1] = 0,
            _ => {}
        }
        (start, count)
    }
}

/// An earlier entry with the same block, or one that a record number makes equal.
fn sharable(section: &Section, entry: &Entry) -> Option<usize> {
    let (start, count) = &entry.blocks[0];
    section.iter().position(|earlier| {
        let (there, extent) = &earlier.blocks[0];
        let dropped = usize::from(earlier.record.is_none() && entry.record.is_some());
        let same = there[dropped.min(there.len())..] == start[..]
            && extent[dropped.min(extent.len())..] == count[..];
        // An entry without a record number gets the number of the other entry.
        let other_lead = entry.record.is_none() && earlier.record.is_some();
        earlier.spelling == Spelling::One && same && !other_lead
    })
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The chunk shape that a dataset must get, according to its entries.
fn wanted_chunk(file: &LogFile, dataset: &Dataset) -> Vec<u64> {
    let element = dataset.datatype.size() as u64;
    let usual = || choose_chunk(&dataset.dims, &dataset.max, element);
    let sections = file.logs[0].tables.iter().flatten();
    let numbered = sections.flat_map(|s| (0..s.len()).map(move |n| (s, n)));
    let mut blocks: Vec<Block> = Vec::new();
    for (section, number) in numbered.filter(|(s, n)| s[*n].dataset == dataset.id) {
        let spelling = |n: usize| &section[n].spelling;
        let speller = match spelling(number) {
            Spelling::Shared { target } => *target,
            _ => number,
        };
        if *spelling(speller) != Spelling::One {
            return usual();
        }
        blocks.extend(meant_blocks(section, number));
    }
    blocks.retain(|b| block_elements(b) > 0);
    let longest = |d: usize| blocks.iter().map(|(_, count)| count[d]).max();
    let tile: Option<Vec<u64>> = (0..dataset.dims.len()).map(longest).collect();
    let Some(tile) = tile else {
        return usual();
    };
    let is_tile = |(start, count): &Block| {
        (0..tile.len()).all(|d| {
            let reaches_edge = start[d] + count[d] == dataset.dims[d];
            start[d] % tile[d] == 0 && (count[d] == tile[d] || reaches_edge)
        })
    };
    let inside = tile.iter().zip(&dataset.dims).all(|(t, d)| t <= d);
    let whole_rows = (1..tile.len())
        .rev()
        .take_while(|d| tile[*d] == dataset.dims[*d])
        .count();
    let run: u64 = tile.iter().rev().take(whole_rows + 1).product();
    let large = tile.iter().product::<u64>() * element >= SMALLEST_TILE;
    if inside && large && run * element >= SHORTEST_RUN && blocks.iter().all(is_tile) {
        tile
    } else {
        usual()
    }
}

fn open_with(path: &Path, chunking: Chunking) -> Arc<View> {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let snapshot = scan(ScanRequest::alone(&dir, &name, &chunking.into())).unwrap();
    let budget = Arc::new(Budget::new(MemoryLimits::each(BUDGET)));
    View::open(&dir, snapshot, budget, None).unwrap()
}

fn chunk_of(view: &View, number: usize) -> Vec<u64> {
    match &view.snapshot().datasets[number].storage {
        Storage::Chunked(chunk) => chunk.clone(),
        Storage::Contiguous => panic!("not chunked"),
    }
}

fn check(recipe: &Recipe) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let file = recipe.make();
    file.write(&path);
    for chunking in [Chunking::Auto, Chunking::Size(20_000)] {
        let view = open_with(&path, chunking);
        let exported = dir.path().join("view.h5");
        export(&view, &exported);
        let shown = raw::open_file(&exported);
        for (number, dataset) in file.datasets.iter().enumerate() {
            let chunk = chunk_of(&view, number);
            let element = dataset.datatype.size() as u64;
            match chunking {
                Chunking::Auto => prop_assert_eq!(&chunk, &wanted_chunk(&file, dataset)),
                Chunking::Size(most) => {
                    let bytes = chunk.iter().product::<u64>() * element;
                    prop_assert!(bytes <= most, "{bytes} bytes");
                }
            }
            let dataset_shown = raw::open(&shown, &dataset.name);
            prop_assert_eq!(raw::chunk_shape(&dataset_shown), chunk);
            let contents = file.contents(dataset);
            prop_assert!(read_by_chunks(&view, number).unwrap() == contents);
            follow_references(&view, number).unwrap();
            prop_assert!(raw::read(&dataset_shown) == contents, "by libhdf5");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(properties(CASES))]

    #[test]
    fn tiles_are_chunks_and_contents_stay(recipe in recipe()) {
        check(&recipe)?;
    }
}

/// A dataset of 5 tiles of 3 × 4000 doubles, the last one cut by the edge.
fn tiled() -> LogFile {
    let dataset = Dataset::new("d", 0, Type::F64, &[14, 4000]);
    let entries = (0..5).map(|n| {
        let rows = if n < 4 { 3 } else { 2 };
        let data = bytes(n, rows as usize * 4000 * 8);
        Entry::one(0, &[3 * n, 0], &[rows, 4000], data)
    });
    LogFile::with(vec![dataset], entries.collect())
}

/// Chunk shape of a file of [`tiled`] after a change.
fn chunk_after(change: impl FnOnce(&mut LogFile)) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let mut file = tiled();
    change(&mut file);
    file.write(&path);
    chunk_of(&open_with(&path, Chunking::Auto), 0)
}

#[test]
fn what_was_recorded_wins() {
    assert_eq!(chunk_after(|_| {}), [3, 4000]);
    let record = |file: &mut LogFile| file.datasets[0].chunk = Some(vec![2, 1000]);
    assert_eq!(chunk_after(record), [2, 1000]);
}

#[test]
fn damaged_tables_tell_of_no_tiles() {
    let body = |bytes: &[u8]| Spelling::Bytes {
        flags: 0,
        body: bytes.to_vec(),
    };
    // An entry of no dataset is harmless, even a meaningless one.
    let strange = |file: &mut LogFile| {
        let entry = Entry::one(7, &[0], &[1], Vec::new()).spelled(body(&[1; 11]));
        file.logs[0].tables[0][0].insert(0, entry);
    };
    assert_eq!(chunk_after(strange), [3, 4000]);
    let shared_with_itself = |file: &mut LogFile| {
        let section = &mut file.logs[0].tables[0][0];
        let target = section.len();
        let entry = Entry::one(0, &[0, 0], &[3, 4000], Vec::new());
        section.push(entry.spelled(Spelling::Shared { target }));
    };
    assert_eq!(chunk_after(shared_with_itself), [14, 4000]);
    let unknown_flags = |file: &mut LogFile| {
        let entry = Entry::one(7, &[0], &[1], Vec::new()).spelled(Spelling::Bytes {
            flags: 0x400,
            body: vec![0; 16],
        });
        file.logs[0].tables[0][0].push(entry);
    };
    assert_eq!(chunk_after(unknown_flags), [14, 4000]);
}

/// Programs see the tiles, and the same elements with every option.
#[test]
fn clients_read_tiles() {
    use crate::common::readers::Python;
    use crate::common::{Mounted, User, can_mount};

    let pythons = Python::all();
    if !can_mount(User::Caller) {
        return;
    }
    let (source, expected) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = tiled();
    file.write(&source.path().join("log.h5"));
    let contents = expected.path().join("contents");
    std::fs::write(&contents, file.contents(&file.datasets[0])).unwrap();
    let code = "
import h5py, numpy, sys
d = h5py.File(sys.argv[1], 'r')['d']
whole = numpy.fromfile(sys.argv[2], '<f8').reshape(d.shape)
same = lambda *part: d[part].tobytes() == whole[part].tobytes()
s = numpy.s_
print(d.chunks, same(), same(s[2:4], s[10:20]), same(s[13], s[:]), same(s[:], s[3999]))
";
    let cases = [
        ("", "(3, 4000)"),
        ("chunk=auto", "(3, 4000)"),
        ("chunk=64K", "(2, 4000)"),
        ("chunk=1M", "(14, 4000)"),
    ];
    for (options, chunk) in cases {
        let mounted = Mounted::new(source.path(), options);
        for python in &pythons {
            let seen = python.run(code, &[&mounted.join("log.h5"), &contents]);
            assert_eq!(seen, format!("{chunk} True True True True\n"), "{options}");
        }
    }
}

#[test]
fn an_export_has_the_chunks_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log.h5"), dir.path().join("out.h5"));
    tiled().write(&log);
    let export = |chunk: &str| {
        let mut command = std::process::Command::new(crate::common::PROGRAM);
        command.args(["export", "--force", "--chunk", chunk]);
        command.args([&log, &out]).output().unwrap()
    };
    for (chunk, wanted) in [("auto", [3, 4000]), ("64K", [2, 4000])] {
        assert!(export(chunk).status.success());
        let shown = raw::open_file(&out);
        assert_eq!(raw::chunk_shape(&raw::open(&shown, "d")), wanted);
    }
    let refused = export("1K");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("from 4K to 1G"),
        "{said}"
    );
}
