//! Real directories of `tests/corpus-adios`, from files to records.

use std::path::Path;
use std::sync::Arc;

use super::{DatasetSource, METADATA, MOST_STRIPS, Parts, STRIP, Tables, is_index, strip_of};
use crate::layout::{DatasetRecords, Layout};
use crate::model::Logged;
use crate::source_dir::SourceDir;
use crate::source_file::SourceFile;
use h5logfs_common::task::Task;

/// A directory with the datasets under test.
struct Opened {
    sources: Vec<SourceFile>,
    tables: Tables,
}

impl Opened {
    fn of(name: &str, data: &[u32], datasets: Vec<DatasetSource>) -> Self {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus-adios");
        let dir = SourceDir::open(&corpus.join(name)).unwrap();
        let names = ["md.idx", "md.0", "mmd.0"].map(str::to_owned);
        let names = names
            .into_iter()
            .chain(data.iter().map(|n| super::names::data(*n)));
        let sources = names.map(|name| SourceFile::open(&dir, Path::new(&name)).unwrap());
        let opened = Opened {
            sources: sources.collect(),
            tables: Tables {
                parts: Parts {
                    formats: Some(2),
                    data: data.iter().copied().zip(3..).collect(),
                    ..Parts::default()
                },
                datasets,
                ..Tables::default()
            },
        };
        assert_eq!(opened.tables.check(opened.sources.len()), Ok(()));
        opened
    }

    fn records(&self, id: i64, element_size: u64, dims: &[u64]) -> DatasetRecords {
        let task = Task::unlimited();
        let table = self.tables.read_tables(&task, &self.sources, &[]).unwrap();
        let logged = Logged {
            id,
            dims,
            element_size,
            filtered: false,
        };
        let found = table.records(&task, &self.sources, &logged, &Default::default());
        found.unwrap()
    }

    /// Source, offset and box of each record. All must be readable.
    fn places(
        &self,
        id: i64,
        element_size: u64,
        dims: &[u64],
    ) -> Vec<(u16, u64, Vec<u64>, Vec<u64>)> {
        let found = self.records(id, element_size, dims);
        assert_eq!(found.diagnostics, []);
        assert_eq!(found.records.faults().len(), 0);
        let place = |record: &crate::model::Record<'_>| {
            assert_eq!(record.stored.len, record.elements() * element_size);
            let (start, count) = (record.start.to_vec(), record.count.to_vec());
            (record.stored.source, record.stored.offset, start, count)
        };
        found.records.map(place).collect()
    }
}

fn dataset(variable: &str, steps: std::ops::Range<u64>) -> DatasetSource {
    DatasetSource {
        variable: variable.into(),
        steps: Arc::new(steps.collect()),
        has_steps: true,
        block: None,
    }
}

/// A directory with three flushes in each of two steps.
fn flushes(datasets: Vec<DatasetSource>) -> Opened {
    Opened::of("b5_flush.bp", &[0], datasets)
}

#[test]
fn blocks_of_steps_are_records() {
    let block = DatasetSource {
        block: Some(1),
        ..dataset("l", 0..2)
    };
    let only = DatasetSource {
        has_steps: false,
        ..dataset("s", 1..2)
    };
    let opened = flushes(vec![dataset("a", 0..2), block, dataset("s", 0..2), only]);
    let offsets = (0..2).flat_map(|step| [0, 512, 1024].map(|at| (step, at)));
    let expected: Vec<_> = offsets
        .map(|(step, at)| {
            (
                3,
                1536 * step + at,
                vec![step, at / 512 * 3, 0],
                vec![1, 3, 6],
            )
        })
        .collect();
    assert_eq!(opened.places(0, 8, &[2, 9, 6]), expected);
    let block = [
        (3, 656, vec![0, 0], vec![1, 3]),
        (3, 2192, vec![1, 0], vec![1, 3]),
    ];
    assert_eq!(opened.places(1, 4, &[2, 3]), block);
    let values = [
        (METADATA, 240, vec![0], vec![1]),
        (METADATA, 752, vec![1], vec![1]),
    ];
    assert_eq!(opened.places(2, 4, &[2]), values);
    assert_eq!(opened.places(3, 4, &[]), [(METADATA, 752, vec![], vec![])]);
}

#[test]
fn a_step_of_its_own_is_a_row_of_its_own() {
    let opened = flushes(vec![dataset("a", 1..2)]);
    let places = opened.places(0, 8, &[1, 9, 6]);
    assert_eq!(places[0], (3, 1536, vec![0, 0, 0], vec![1, 3, 6]));
}

#[test]
fn steps_that_are_flattened_are_one() {
    let x = DatasetSource {
        has_steps: false,
        ..dataset("x", 0..3)
    };
    let opened = Opened::of("b5_flatten.bp", &[0], vec![x]);
    let expected = [0, 1, 2].map(|step| (3, 4096 * step, vec![2 * step, 0], vec![2, 3]));
    assert_eq!(opened.places(0, 8, &[6, 3]), expected);
    // Block numbers of local arrays count through all steps.
    let block = DatasetSource {
        has_steps: false,
        block: Some(4),
        ..dataset("l", 0..2)
    };
    let expected = [(3, 2192, vec![0], vec![3])];
    assert_eq!(flushes(vec![block]).places(0, 4, &[3]), expected);
}

#[test]
fn what_is_not_as_the_scan_saw_it_cannot_be_read() {
    let opened = flushes(vec![
        dataset("a", 0..3),
        dataset("b", 0..2),
        dataset("a", 0..2),
    ]);
    let reason = |id, size, dims: &[u64]| opened.records(id, size, dims).diagnostics[0].to_string();
    assert_eq!(
        reason(0, 8, &[3, 9, 6]),
        "variable \"a\" in step 2: there are 2 complete steps"
    );
    assert_eq!(
        reason(1, 8, &[2]),
        "variable \"b\" in step 0: no longer exists"
    );
    assert!(reason(2, 4, &[2, 9, 6]).ends_with("its elements have 8 bytes"));
    assert!(reason(2, 8, &[2, 9]).ends_with("it has 3 dimensions"));
    assert!(reason(3, 8, &[2]).contains("comes from no variable"));
}

#[test]
fn blocks_whose_bytes_are_not_there_are_spoilt() {
    let lost = |opened: &Opened| -> Vec<String> {
        let found = opened.records(0, 8, &[2, 9, 6]);
        assert_eq!((found.records.len(), found.diagnostics.len()), (6, 0));
        let faults = found.records.map(|record| record.fault.map(str::to_owned));
        faults.flatten().collect()
    };
    let mut opened = flushes(vec![dataset("a", 0..2)]);
    opened.sources[3].set_len(1536 + 512 + 143).unwrap();
    let reasons = lost(&opened);
    assert_eq!(reasons.len(), 2);
    assert!(
        reasons[0].starts_with("the block of writer 0 in step 1: "),
        "{reasons:?}"
    );
    assert!(
        reasons[0].contains("data.0 ends at byte 2191"),
        "{reasons:?}"
    );
    opened.tables.parts.data.clear();
    assert_eq!(lost(&opened).len(), 6);
}

#[test]
fn strips_have_the_records_of_their_rows() {
    let mut opened = flushes(vec![dataset("a", 0..2)]);
    opened.tables.strip = 1;
    assert_eq!(opened.tables.strip(0), Some(1));
    let task = Task::unlimited();
    let (dims, selections) = ([2, 9, 6], Default::default());
    let logged = Logged {
        id: 0,
        dims: &dims,
        element_size: 8,
        filtered: false,
    };
    let table = opened.tables.read_tables(&task, &opened.sources, &[]);
    let table = table.unwrap();
    let places = |found: DatasetRecords| -> Vec<_> {
        assert_eq!(found.diagnostics, []);
        let place = |record: &crate::model::Record<'_>| (record.start.to_vec(), record.stored);
        found.records.map(place).collect()
    };
    let rows = |rows| {
        let found = table.records_of_rows(&task, &opened.sources, &logged, &selections, rows);
        places(found.unwrap())
    };
    let all = places(opened.records(0, 8, &dims));
    let (first, second) = (rows(0..1), rows(1..2));
    assert!(first.iter().all(|(start, _)| start[0] == 0) && !first.is_empty());
    assert_eq!([first, second].concat(), all);
    assert_eq!(rows(2..3), []);
}

#[test]
fn directories_with_much_metadata_have_strips() {
    assert_eq!(strip_of(10, 0), 10);
    assert_eq!(strip_of(10, STRIP), 10);
    assert_eq!(strip_of(10, 2 * STRIP), 5);
    assert_eq!(strip_of(1000, u64::MAX), 1000_u64.div_ceil(MOST_STRIPS));
    assert_eq!(strip_of(0, 0), 0);
}

#[test]
fn blocks_may_tile_a_dataset() {
    let opened = flushes(vec![dataset("a", 0..2), dataset("a", 0..1)]);
    let tilings = opened.tables.tilings(&opened.sources);
    assert!(!tilings.has_unreadable);
    let tile = |id: i64, dims: &[u64]| tilings.by_dataset[&id].tile(dims);
    assert_eq!(tile(0, &[2, 9, 6]), Some(vec![1, 3, 6]));
    assert_eq!(tile(1, &[1, 9, 6]), Some(vec![1, 3, 6]));
    assert!(!tilings.by_dataset[&0].is_encoded());
}

/// Such a tile is decoded whole.
#[test]
fn blocks_of_an_operator_are_known_as_such() {
    let opened = Opened::of(
        "b5_opnull.bp",
        &[0],
        vec![dataset("c/a", 0..2), dataset("c/plain", 0..2)],
    );
    let tilings = opened.tables.tilings(&opened.sources);
    let is_encoded = |id: i64| tilings.by_dataset[&id].is_encoded();
    assert_eq!([0, 1].map(is_encoded), [true, false]);
}

#[test]
fn writers_are_ranks_and_steps_are_flushes() {
    let opened = Opened::of("b5_mpi_agg2.bp", &[0, 1], Vec::new());
    let origins = opened.tables.origins(&Task::unlimited(), &opened.sources);
    assert!(origins.diagnostics.is_empty());
    let timeline = origins.timeline(100, 100);
    assert_eq!(timeline.known_ranks, 4);
    let steps: Vec<_> = timeline
        .flushes
        .iter()
        .flatten()
        .map(|(first, _)| *first)
        .collect();
    assert!(steps.iter().copied().eq(0..steps.len() as u64) && steps.len() > 1);
}

#[test]
fn an_index_is_known_by_its_name_and_its_first_bytes() {
    let opened = flushes(Vec::new());
    let is_index = |name: &str, source: usize| is_index(Path::new(name), &opened.sources[source]);
    assert!(is_index("a/md.idx", 0).unwrap());
    assert!(!is_index("a/index", 0).unwrap());
    assert!(!is_index("a/md.idx", 1).unwrap());
}
