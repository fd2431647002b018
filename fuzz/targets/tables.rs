//! Checks of the tables of a log, and of the indexes made from them.

use std::cell::LazyCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use h5logfs_log::boxes::Bounds;
use h5logfs_log::model::{Block, Record, Selections, StoredBytes};
use h5logfs_log::records::RecordList;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::{Logged, Tables};
use h5logfs_view::index::DatasetIndex;
use h5logfs_view::index::saved::IndexInputs;
use h5logfs_view::index::store::{FileState, Store, StoreEntry, StoreKey};

use super::memory;
use super::test_dir::{MEMORY, TestDir};

/// Number of elements of the largest dataset that is compared. The next one is the largest number of steps for it.
const MOST_ELEMENTS: u64 = 1024;
const MOST_STEPS: usize = 1 << 16;
/// The directory of the store.
pub const STORE: &str = "store";
/// Largest number of lines of an answer.
const MOST_ANSWERS: usize = 1 << 9;

/// Reads the tables, and checks the records and the index of each dataset.
pub fn check_tables(tables: &Tables, sources: &[SourceFile], datasets: &[Logged<'_>]) {
    if tables.check(sources.len()).is_err() {
        return;
    }
    let layout = tables.layout();
    layout.tilings(sources);
    let task = &memory::task(MEMORY);
    let Ok(table) = layout.read_tables(task, sources, datasets) else {
        return;
    };
    table.bytes();
    let selections = Selections::default();
    // All datasets share one store, because making directories takes longer than everything else.
    let store: LazyCell<_> = LazyCell::new(|| {
        let test_dir = TestDir::new();
        (empty_store(&test_dir), test_dir)
    });
    for (number, dataset) in datasets.iter().enumerate() {
        let inputs = IndexInputs {
            number,
            strip: None,
            dataset,
            sources,
        };
        let found = table.records(task, sources, dataset, &selections);
        let index = DatasetIndex::build(task, table.as_ref(), inputs, &selections);
        let (Ok(found), Ok(index)) = (found, index) else {
            continue;
        };
        if let Ok((_, Some(early))) = layout.read_tables_for(task, sources, datasets, Some(dataset))
        {
            assert!(found.diagnostics.is_empty() && early.diagnostics.is_empty());
            let [early, found] = [&early, &found].map(|found| told(&found.records));
            assert!(early.eq(found), "the walk finds other records");
        }
        compare(&found.records, &index, dataset.dims);
        check_saved(&index, inputs, &store.0);
    }
}

/// The records of a list as text.
fn told(records: &RecordList) -> impl Iterator<Item = String> {
    records.map(|record| format!("{record:?}"))
}

/// Checks that the index finds the same record for each element as a pass through all records.
fn compare(records: &RecordList, index: &DatasetIndex, dims: &[u64]) {
    let all = whole(dims);
    let Some((mut first, mut second)) = Canvas::new(dims).zip(Canvas::new(dims)) else {
        return;
    };
    let by_records = || {
        let mut cells = Vec::new();
        for number in (0..records.len()).rev() {
            first.add_all(&records.get(number, &mut cells), &all)?;
        }
        match records.base() {
            Some(base) => base.visit_back(&all, |record| first.add_all(record, &all)),
            None => ControlFlow::Continue(()),
        }
    };
    let complete = { by_records }().is_continue();
    let complete = index
        .visit_back(&all, |record| second.add_all(record, &all))
        .is_continue()
        && complete;
    if complete {
        assert!(
            first.owners == second.owners,
            "the index finds other records"
        );
        assert_eq!(
            index.is_touched(&all),
            second.owners.iter().any(Option::is_some)
        );
    }
}

fn whole(dims: &[u64]) -> Bounds {
    Bounds {
        start: vec![0; dims.len()],
        end: dims.to_vec(),
    }
}

/// The owner of each element: the stored bytes of a record, and the index of the element there.
struct Canvas<'a> {
    dims: &'a [u64],
    owners: Vec<Option<(StoredBytes, u64)>>,
    steps: usize,
}

impl<'a> Canvas<'a> {
    fn new(dims: &'a [u64]) -> Option<Self> {
        let elements = dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
        (elements <= MOST_ELEMENTS).then(|| Canvas {
            dims,
            owners: vec![None; elements as usize],
            steps: 0,
        })
    }

    /// Adds a record that is older than all records added so far.
    fn add_all(&mut self, record: &Record<'_>, all: &Bounds) -> ControlFlow<()> {
        self.step()?;
        // `visit_back` is only for records that overlap.
        if record.bounds().intersection(all).is_none() {
            return ControlFlow::Continue(());
        }
        record.visit_back(all, |block| self.add(record.stored, &block, all))
    }

    fn step(&mut self) -> ControlFlow<()> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn add(&mut self, stored: StoredBytes, block: &Block<'_>, all: &Bounds) -> ControlFlow<()> {
        let Some(common) = block.bounds().intersection(all) else {
            panic!("a block outside of the query");
        };
        let mut index = common.start.clone();
        loop {
            self.step()?;
            let sides = index.iter().zip(self.dims);
            let at = sides.fold(0, |at, (i, dim)| at * dim + i) as usize;
            let sides = index.iter().zip(block.start).zip(block.count);
            let within = sides.fold(0u64, |at, ((i, start), count)| {
                at.wrapping_mul(*count).wrapping_add(i - start)
            });
            self.owners[at].get_or_insert((stored, block.elements_before.wrapping_add(within)));
            let next = (0..index.len()).rposition(|d| index[d] + 1 < common.end[d]);
            let Some(d) = next else {
                return ControlFlow::Continue(());
            };
            index[d] += 1;
            index[d + 1..].copy_from_slice(&common.start[d + 1..]);
        }
    }
}

/// The answer of an index about a part of a dataset, in up to [`MOST_ANSWERS`] lines.
pub fn answers(index: &DatasetIndex, query: &Bounds) -> Vec<String> {
    let mut answer: Vec<String> = index.diagnostics().iter().map(|d| d.to_string()).collect();
    let _ = index.visit_back(query, |record| {
        let how = (record.stored, record.conversion, record.fault);
        answer.push(format!("{how:?}"));
        record.visit_back(query, |block| {
            answer.push(format!("{} {}", block.bounds(), block.elements_before));
            if answer.len() < MOST_ANSWERS {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    });
    answer.push(index.is_touched(query).to_string());
    answer
}

/// The whole of a dataset, and its middle.
pub fn queries(dims: &[u64]) -> [Bounds; 2] {
    let sides = || dims.iter();
    let middle = Bounds {
        start: sides().map(|d| d / 3).collect(),
        end: sides().map(|d| d - d / 3).collect(),
    };
    [whole(dims), middle]
}

/// An empty entry of a new store.
pub fn empty_store(test_dir: &TestDir) -> StoreEntry {
    let dir = test_dir.path().join(STORE);
    let store = Store::open(&dir, 64 << 20).expect("a new directory");
    Arc::new(store).entry(&StoreKey {
        main: FileState {
            identity: Identity::default(),
            changed: (0, 0),
        },
        name: b"log.h5".to_vec(),
        settings: String::new(),
    })
}

/// Checks that a saved index gives the same answers after it was loaded.
pub fn check_saved(index: &DatasetIndex, inputs: IndexInputs<'_>, entry: &StoreEntry) {
    // The budget is larger than any index of a target, so that every index is saved.
    let task = &memory::task(2 * MEMORY);
    index.save(task, entry, inputs);
    let loaded = DatasetIndex::load(task, entry, inputs, &Selections::default());
    let loaded = loaded.expect("an index that was saved");
    for query in queries(inputs.dataset.dims) {
        assert_eq!(answers(index, &query), answers(&loaded, &query));
    }
}
