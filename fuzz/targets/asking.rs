//! Tables of a log, and all that can be asked of what they say.

use std::ops::ControlFlow;
use std::sync::Arc;

use h5logfs_core::boxes::Bounds;
use h5logfs_core::index::DatasetIndex;
use h5logfs_core::index::saved::IndexInputs;
use h5logfs_core::index::store::{FileState, Store, StoreEntry, StoreKey};
use h5logfs_core::log::model::{Block, Record, Selections, StoredBytes};
use h5logfs_core::log::records::RecordList;
use h5logfs_core::log::source_file::{Identity, SourceFile};
use h5logfs_core::log::{Logged, Tables};

use super::site::Site;

/// Elements of a dataset that are told apart, and steps that are made for it.
const MOST_ELEMENTS: u64 = 1024;
const MOST_STEPS: usize = 1 << 16;
/// Blocks that are compared.
const MOST_ANSWERS: usize = 1 << 9;

/// Reads the tables, and asks for the records of each dataset.
pub fn look(tables: &Tables, sources: &[SourceFile], datasets: &[Logged<'_>]) {
    if tables.check(sources.len()).is_err() {
        return;
    }
    let layout = tables.layout();
    layout.tilings(sources);
    let Ok(table) = layout.read_tables(sources, datasets) else {
        return;
    };
    table.bytes();
    let selections = Selections::default();
    for (number, dataset) in datasets.iter().enumerate() {
        let found = table.records(sources, dataset, &selections);
        let index = DatasetIndex::build(table.as_ref(), sources, dataset, &selections);
        let (Ok(found), Ok(index)) = (found, index) else {
            continue;
        };
        compare(&found.records, &index, dataset.dims);
        let about = IndexInputs {
            number,
            dataset,
            sources,
        };
        keep(&index, about);
    }
}

/// The index decides each element as those do who go through all records.
fn compare(records: &RecordList, index: &DatasetIndex, dims: &[u64]) {
    let all = whole(dims);
    let Some((mut first, mut second)) = Canvas::new(dims).zip(Canvas::new(dims)) else {
        return;
    };
    let by_records = || {
        for number in (0..records.len()).rev() {
            first.add_all(&records.get(number), &all)?;
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
        assert!(first.owners == second.owners, "the index decides otherwise");
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

/// Which record has the last word on each element, and which of its elements that is.
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

    /// Adds a record below those that are there.
    fn add_all(&mut self, record: &Record<'_>, all: &Bounds) -> ControlFlow<()> {
        self.step()?;
        // Others are not to be asked.
        if record.bounds().intersection(all).is_none() {
            return ControlFlow::Continue(());
        }
        record.visit_back(all, |block| self.add(record.stored, &block, all))
    }

    fn step(&mut self) -> ControlFlow<()> {
        self.steps += 1;
        match self.steps > MOST_STEPS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn add(&mut self, stored: StoredBytes, block: &Block<'_>, all: &Bounds) -> ControlFlow<()> {
        let Some(common) = block.bounds().intersection(all) else {
            panic!("a block outside of what was asked for");
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

/// What an index says of a part of a dataset, or of as much of it as is worth comparing.
pub fn answers(index: &DatasetIndex, query: &Bounds) -> Vec<String> {
    let mut said: Vec<String> = index.diagnostics().iter().map(|d| d.to_string()).collect();
    let _ = index.visit_back(query, |record| {
        let how = (record.stored, record.conversion, record.fault);
        said.push(format!("{how:?}"));
        record.visit_back(query, |block| {
            said.push(format!("{} {}", block.bounds(), block.elements_before));
            match said.len() < MOST_ANSWERS {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    });
    said.push(index.is_touched(query).to_string());
    said
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

/// A place to keep things, in which there is nothing.
pub fn empty_store(site: &Site) -> StoreEntry {
    let dir = site.path().join("kept");
    let store = Store::open(&dir, 64 << 20).expect("a directory of our own");
    Arc::new(store).entry(&StoreKey {
        main: FileState {
            identity: Identity::default(),
            changed: (0, 0),
        },
        name: b"log.h5".to_vec(),
        settings: String::new(),
    })
}

/// What is kept of an index, and read again, answers as it does.
pub fn keep(index: &DatasetIndex, about: IndexInputs<'_>) {
    let site = Site::new();
    let log = empty_store(&site);
    index.save(&log, about);
    let again = DatasetIndex::load(&log, about, &Selections::default());
    let again = again.expect("an index that was kept");
    for query in queries(about.dataset.dims) {
        assert_eq!(answers(index, &query), answers(&again, &query));
    }
}
