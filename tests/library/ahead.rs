//! Chunks made ahead of sequential readers.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::encoder::*;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

const CHUNK: usize = 4096;
const CHUNKS: usize = 256;

/// A lock for these tests, which count threads of the process. With `cargo test`, threads of other tests may exist
/// for a while.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Fixture {
    _dir: TempDir,
    path: PathBuf,
    contents: Vec<u8>,
}

/// A dataset with two records a chunk, so that chunks must be assembled. The first record of chunk `bad` lies outside
/// of the log.
fn log_file(bad: Option<usize>) -> Fixture {
    const HALF: usize = CHUNK / 2;
    let dataset = Dataset::new("a", 0, Type::U8, &[(CHUNK * CHUNKS) as u64]);
    let dataset = dataset.chunked(&[CHUNK as u64]);
    let contents: Vec<u8> = (0..CHUNK * CHUNKS).map(|i| (i * 31 / 7) as u8).collect();
    let records = contents.chunks(HALF).enumerate().map(|(n, data)| {
        let start = [(n * HALF) as u64];
        let entry = Entry::one(0, &start, &[HALF as u64], data.to_vec());
        if bad.is_some_and(|bad| 2 * bad == n) {
            entry.claiming(1 << 40, HALF as i64)
        } else {
            entry
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    LogFile::with(vec![dataset], records.collect()).write(&path);
    Fixture {
        _dir: dir,
        path,
        contents,
    }
}

impl Fixture {
    fn open(&self, cache_size: u64) -> (Arc<View>, Arc<Budget>) {
        let limits = MemoryLimits {
            cache_size,
            index_memory: 16 << 20,
        };
        self.open_with(Budget::new(limits))
    }

    fn open_with(&self, budget: Budget) -> (Arc<View>, Arc<Budget>) {
        let budget = Arc::new(budget);
        let (dir, _) = SourceDir::of_file(&self.path).unwrap();
        let snapshot = scan_file(&self.path).unwrap();
        let view = View::open(&dir, snapshot, Arc::clone(&budget), None).unwrap();
        (view, budget)
    }

    /// Reads a chunk from the canonical file, in two pieces as a kernel might.
    fn read(&self, view: &View, chunk: usize) -> h5logfs_common::error::Result<()> {
        let (offset, stored) = view
            .inspection()
            .chunk_place(ChunkId::new(0, chunk as u64))
            .unwrap();
        assert_eq!(stored, CHUNK as u64);
        let mut bytes = vec![0; CHUNK];
        let (first, second) = bytes.split_at_mut(CHUNK / 2);
        view.read_at(offset, first)?;
        view.read_at(offset + CHUNK as u64 / 2, second)?;
        assert_eq!(bytes, self.contents[chunk * CHUNK..][..CHUNK]);
        Ok(())
    }
}

#[track_caller]
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Number of this process's threads that make chunks ahead.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "read-ahead").count()
}

#[test]
fn what_comes_next_is_made_ahead_and_nothing_twice() {
    let _alone = alone();
    let log = log_file(None);
    let (view, budget) = log.open(64 << 20);
    for chunk in 0..3 {
        log.read(&view, chunk).unwrap();
    }
    wait_until("nothing is made ahead", || budget.counts().ahead > 0);
    for chunk in 3..CHUNKS {
        log.read(&view, chunk).unwrap();
    }
    let counts = budget.counts();
    assert_eq!(counts.ahead + counts.misses, CHUNKS as u64, "{counts:?}");
    assert_eq!(counts.hits, CHUNKS as u64 + counts.ahead, "{counts:?}");
    assert!(view.log_bytes_read() >= (CHUNK * CHUNKS) as u64);
}

#[test]
fn without_threads_a_read_makes_what_comes_next_and_nothing_twice() {
    let _alone = alone();
    let log = log_file(Some(200));
    let (view, budget) = log.open_with(Budget::new(MemoryLimits::each(64 << 20)).without_threads());
    for chunk in (0..CHUNKS).filter(|chunk| *chunk != 200) {
        log.read(&view, chunk).unwrap();
        assert_eq!(threads(), 0);
    }
    log.read(&view, 200).unwrap_err();
    let counts = budget.counts();
    assert_eq!(
        counts.ahead + counts.misses,
        CHUNKS as u64 - 1,
        "{counts:?}"
    );
    // A single core gains nothing.
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    assert_eq!(counts.ahead > 0, cores > 1, "{counts:?}");
}

#[test]
fn many_readers_in_a_small_cache_get_what_the_log_says() {
    let _alone = alone();
    let log = log_file(None);
    let (view, budget) = log.open(32 * CHUNK as u64);
    thread::scope(|scope| {
        for reader in 0..6 {
            let (view, log) = (&view, &log);
            scope.spawn(move || {
                for step in 0..CHUNKS {
                    let chunk = (step + reader * CHUNKS / 6) % CHUNKS;
                    let chunk = match reader % 2 {
                        0 => chunk,
                        _ => CHUNKS - 1 - chunk,
                    };
                    log.read(view, chunk).unwrap();
                }
            });
        }
    });
    assert!(budget.counts().ahead > 0);
    assert!(budget.used() <= budget.limits().cache_size + budget.limits().index_memory);
}

#[test]
fn readers_without_an_order_have_nothing_made_ahead() {
    let _alone = alone();
    let log = log_file(None);
    let (view, budget) = log.open(64 << 20);
    for chunk in [200, 17, 5, 90, 23, 160, 40, 250, 121] {
        log.read(&view, chunk).unwrap();
    }
    wait_until("a thread has been started", || threads() == 0);
    assert_eq!(budget.counts().ahead, 0);
    assert_eq!(budget.counts().misses, 9);
}

#[test]
fn what_goes_wrong_ahead_is_told_to_who_reads_it() {
    let _alone = alone();
    let log = log_file(Some(5));
    let (view, budget) = log.open(64 << 20);
    for chunk in 0..5 {
        log.read(&view, chunk).unwrap();
    }
    wait_until("nothing is made ahead", || budget.counts().ahead > 0);
    log.read(&view, 5).unwrap_err();
    log.read(&view, 5).unwrap_err();
    log.read(&view, 6).unwrap();
}

#[test]
fn threads_end_with_the_budget_and_views_go_when_nobody_has_them() {
    let _alone = alone();
    let log = log_file(None);
    for _ in 0..20 {
        let (view, budget) = log.open(64 << 20);
        for chunk in 0..8 {
            log.read(&view, chunk).unwrap();
        }
        let gone = (Arc::downgrade(&view), Arc::downgrade(&budget));
        drop((view, budget));
        wait_until("the view stays", || gone.0.upgrade().is_none());
        wait_until("the budget stays", || gone.1.upgrade().is_none());
    }
    wait_until("a thread stays", || threads() == 0);
}

#[test]
fn a_chunk_that_cannot_be_made_for_a_reader_is_not_tried_twice() {
    let _alone = alone();
    let log = log_file(Some(1));
    let (view, budget) = log.open_with(Budget::new(MemoryLimits::each(16 << 20)).without_threads());
    let (offset, _) = view.inspection().chunk_place(ChunkId::new(0, 1)).unwrap();
    let task = view.task(None).for_keeper();
    let failed = view.read_for(&task, offset, &mut [0; CHUNK]).unwrap_err();
    assert!(
        failed.to_string().contains("dataset /a: chunk [1]"),
        "{failed}"
    );
    assert_eq!(budget.stats().chunk_time.count(), 1);
}
