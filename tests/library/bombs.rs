//! Files whose numbers demand much more memory than there is. Each is refused for this reason, and all memory
//! allocated until then was reserved.

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use h5logfs_catalog::Catalog;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::{Commit, Header, Journal, Line, path_of};
use h5logfs_log::logvol::{self, LogDataset};
use h5logfs_log::model::Selections;
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::{Logged, Tables};
use h5logfs_scan::InProcess;
use h5logfs_view::cache::MemoryLimits;
use h5logfs_view::index::DatasetIndex;
use h5logfs_view::index::saved::IndexInputs;
use h5logfs_view::index::store::{FileState, Store, StoreKey};

use crate::common::clock::settle;
use crate::common::encoder::{BUDGET, Dataset, Entry, LogFile, Type, read_whole, scan_file};
use crate::fuzz_regressions::measured;
use crate::fuzz_regressions::targets::memory::task;

const LIMIT: u64 = 8 << 20;

#[track_caller]
fn assert_no_memory<T: Debug, E: ToString>(outcome: Result<T, E>) {
    let refused = outcome.map_err(|e| e.to_string()).unwrap_err();
    assert!(refused.contains("no memory for"), "{refused}");
}

/// A closed log whose front has the mark of a file, with the journal of another file beside it.
fn with_journal(path: &Path, flushes: u64) {
    let len = 4 * FRONT;
    let dataset = Dataset::new("a", 0, Type::U8, &[len]);
    let entry = Entry::one(0, &[0], &[len], vec![0; len as usize]);
    LogFile::with(vec![dataset], vec![entry]).write(path);
    let mut log = fs::read(path).unwrap();
    let bytes = &mut log[..FRONT as usize];
    assert!(bytes.ends_with(&[0; 32]), "other bytes than those of /a");
    FileId([1; 16]).mark(bytes);
    fs::write(path, log).unwrap();
    let header = Header::new(&FileId([2; 16]), 1, 0, 0);
    let mut journal = Journal::create(&path_of(path), &header, false).unwrap();
    let commit = |flush| {
        let ends = vec![FRONT];
        Line::Commit(Commit::new(flush, ends))
    };
    let lines: Vec<Line> = (1..=flushes).map(commit).collect();
    journal.append_lines(&lines, false).unwrap();
}

#[test]
fn of_a_journal_only_scans_read_more_than_the_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fs::create_dir(&run).unwrap();
    with_journal(&run.join("log.h5"), 400_000);
    settle(&run);
    let store = Arc::new(Store::open(&dir.path().join("kept"), 64 << 20).unwrap());
    let view = || {
        let dir = SourceDir::open(&run).unwrap();
        let catalog = Catalog::new(dir, MemoryLimits::each(BUDGET), InProcess::default());
        let catalog = catalog.with_store(Arc::clone(&store));
        (catalog.open(Path::new("log.h5")).unwrap(), catalog.scans())
    };
    let (first, scans) = view();
    assert_eq!(scans, 1);
    let (kept, scans) = measured(view);
    assert_eq!(scans, 0);
    assert_eq!(read_whole(&kept).unwrap(), read_whole(&first).unwrap());
}

#[test]
fn snapshots_that_are_larger_than_their_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    LogFile::new(vec![Dataset::new("a", 0, Type::U8, &[1])]).write(&path);
    let mut snapshot = scan_file(&path).unwrap();
    snapshot.addresses = vec![(0, 0); 4 << 20];
    let bytes = snapshot.to_bytes().unwrap();
    assert!(snapshot.bytes() > 6 * bytes.len());
    drop(snapshot);
    assert_no_memory(measured(|| {
        Snapshot::from_bytes(&task(2 * LIMIT), &bytes).map(|snapshot| snapshot.bytes())
    }));
}

#[test]
fn kept_items_that_are_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(&dir.path().join("kept"), 2 * BUDGET).unwrap());
    let entry = store.entry(&StoreKey {
        main: FileState {
            identity: Identity::default(),
            changed: (0, 0),
        },
        name: b"log.h5".to_vec(),
        settings: String::new(),
    });
    entry.put("scan", &vec![7; BUDGET as usize]);
    let get = |limit: u64| {
        measured(|| {
            let task = &task(limit);
            let len = entry.get(task, "scan").map(|item| item.len() as u64);
            task.finish().map(|()| len)
        })
    };
    assert_no_memory(get(LIMIT));
    assert_eq!(get(2 * BUDGET), Ok(Some(BUDGET)));
}

/// Each entry logs bytes that the data lacks.
#[test]
fn tables_with_a_fault_in_each_entry() {
    const ENTRIES: u64 = 500_000;
    let dir = tempfile::tempdir().unwrap();
    // One section and its end.
    let mut table = [1, 16 + 44 * ENTRIES].map(u64::to_le_bytes).concat();
    for number in 0..ENTRIES {
        table.extend([44i32, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        let numbers = [i64::MAX as u64 - number, 1, number, 1];
        table.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    }
    fs::write(dir.path().join("log.h5"), &table).unwrap();
    let source_dir = SourceDir::open(dir.path()).unwrap();
    let sources = [SourceFile::open(&source_dir, Path::new("log.h5")).unwrap()];
    let tables = Tables::LogVol(logvol::Tables {
        metadata: vec![LogDataset {
            source: 0,
            number: 0,
            offset: 0,
            len: table.len() as u64,
        }],
        ..logvol::Tables::default()
    });
    drop(table);
    let dataset = Logged {
        id: 0,
        dims: &[ENTRIES],
        element_size: 1,
        filtered: false,
    };
    let build = |limit: u64| {
        let task = &task(limit);
        let table = tables
            .layout()
            .read_tables(task, &sources, std::slice::from_ref(&dataset));
        let table = table.map_err(|e| e.to_string())?;
        let inputs = IndexInputs {
            number: 0,
            strip: None,
            dataset: &dataset,
            sources: &sources,
        };
        let index = DatasetIndex::build(task, table.as_ref(), inputs, &Selections::default());
        index
            .map(|index| index.bytes() as u64)
            .map_err(|e| e.to_string())
    };
    assert_no_memory(measured(|| build(LIMIT)));
    assert_no_memory(measured(|| build(LIMIT)));
    assert!(measured(|| build(32 * LIMIT)).unwrap() > LIMIT);
}
