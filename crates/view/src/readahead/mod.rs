//! Read-ahead: chunks are made before a reader that goes through the chunk grid in order asks for them.
//!
//! Each dataset has a small table of the streams of reads that it sees at the moment ([`Streams`]). Where a stream goes
//! on by the same step, a few threads of the budget ([`Pool`]) make the chunks that it will ask for next, and put them
//! into the cache. So records are inflated in parallel for a single reader. Errors are dropped here, because the reader
//! will meet them.
//!
//! A budget may have no threads. The next chunks then wait until the reader needs one that is missing. The read makes
//! that chunk and the waiting ones ([`Batch`]) in threads of its own, which end with the read. Or these threads make bands of one
//! chunk.

mod pool;
mod streams;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::View;
use super::grid::ChunkId;
use super::index::DatasetIndex;
pub(super) use pool::Pool;
use streams::Streams;

use h5logfs_common::parallel;
use h5logfs_common::task::Task;
use h5logfs_log::snapshot::Content;

/// The most bytes that are made ahead of one reader, unless one chunk is larger.
const MAX_BYTES: u64 = 16 << 20;
/// The same where each chunk reads much of what the others read.
const MAX_IN_ROWS: u64 = 64 << 20;
/// Number of chunks that are made ahead there at first.
const FIRST_IN_ROWS: u64 = 8;
/// Divisor of `cache_size`. Read-ahead uses at most the quotient.
const CACHE_PARTS: u64 = 4;

/// The least time that the next chunks take to be made, for threads to be worth their start. They take about as long as the last
/// one did. In tests chunks are small.
const WORTH_THREADS: Duration = if cfg!(debug_assertions) {
    Duration::ZERO
} else {
    Duration::from_millis(2)
};
/// The least time that a chunk takes, for a waiting thread to be worth its call.
const WORTH_A_CALL: Duration = if cfg!(debug_assertions) {
    Duration::ZERO
} else {
    Duration::from_micros(100)
};

/// The least processor time of a chunk, for several threads to put it together. A thread takes about 50 µs to start and end.
const WORTH_BANDS: Duration = if cfg!(debug_assertions) {
    Duration::ZERO
} else {
    Duration::from_micros(300)
};

/// The least elements of such a chunk. A smaller one takes long only where its plan is made, and bands have plans of their own.
const LEAST_IN_BANDS: u64 = if cfg!(debug_assertions) { 1 } else { 1 << 17 };

/// Longest time to make one chunk. The reader may be gone by then. If not, it makes the chunk itself.
const LONGEST: Duration = Duration::from_secs(5);

/// The streams of reads of each dataset of a view.
#[derive(Debug)]
pub(super) struct Readers {
    /// The streams by number of the dataset, each made at its first read. `None` where nothing can be made ahead.
    datasets: Vec<OnceLock<Option<Box<Mutex<Readings>>>>>,
    /// The processor time in nanoseconds of the last chunk that a reader made.
    last_took: AtomicU64,
    view: Weak<View>,
}

/// The reads of one dataset.
#[derive(Debug)]
struct Readings {
    streams: Streams,
    /// Chunks to be made ahead that wait for a read, if there are no threads for them.
    waiting: Vec<u64>,
    /// The most chunks that may wait. Beyond that, the oldest are dropped.
    most: usize,
    /// The processor time of the last chunk that its reader made.
    last_took: Duration,
    /// The time that boxes smaller than chunks took to be put together.
    on_boxes: Duration,
}

impl Readings {
    fn wait_with(&mut self, chunks: impl Iterator<Item = u64>) {
        self.waiting.extend(chunks);
        let too_many = self.waiting.len().saturating_sub(self.most);
        self.waiting.drain(..too_many);
    }
}

/// Chunks that one read makes at once: the one that the reader asks for, and those that come next.
#[derive(Debug)]
pub(super) struct Batch {
    dataset: usize,
    /// Numbers of the chunks that come next.
    next: Vec<u64>,
    /// Chunks that follow each other are made at once.
    in_rows: bool,
    /// Number of threads that put the reader's chunk together.
    shares: usize,
}

impl Readers {
    pub fn new(datasets: usize, view: Weak<View>) -> Self {
        Readers {
            datasets: (0..datasets).map(|_| OnceLock::new()).collect(),
            last_took: AtomicU64::new(0),
            view,
        }
    }

    /// Bytes of memory for the table of `datasets` datasets before any is read.
    pub fn bytes(datasets: usize) -> usize {
        datasets * size_of::<OnceLock<Option<Box<Mutex<Readings>>>>>()
    }
}

/// A chunk to make ahead.
#[derive(Debug, Clone)]
struct Job {
    view: Weak<View>,
    generation: u64,
    id: ChunkId,
    /// The user for whom the chunk is made.
    user: Option<u32>,
}

/// The read-ahead of a view.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ahead<'a> {
    view: &'a View,
}

impl<'a> Ahead<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Ahead { view }
    }

    /// Has the next chunks made. Call this for each chunk that a reader takes from the cache.
    pub(super) fn follow(self, task: &Task, id: ChunkId) {
        let Some(mut readings) = self.readings(id.dataset) else {
            return;
        };
        let Some(ahead) = readings.streams.next_after(id.number) else {
            return;
        };
        let other = |number| ChunkId { number, ..id };
        let ahead = ahead.filter(|chunk| !self.view.chunks().has(other(*chunk)));
        let pool = self.view.budget.ahead();
        let Some(pool) = pool.filter(|_| !self.is_made_in_rows(id.dataset)) else {
            readings.wait_with(ahead);
            return;
        };
        if readings.last_took < WORTH_A_CALL {
            return;
        }
        drop(readings);
        let job = |chunk| Job {
            view: Weak::clone(&self.view.readers.view),
            generation: self.view.generation,
            id: other(chunk),
            user: task.user(),
        };
        let jobs = ahead.map(job);
        pool.push(&job(id.number), jobs);
    }

    /// The chunks that are worth making with `id`, which is missing. Empty where threads make them, on one core, where they are made
    /// faster than a thread starts, and where several threads put the reader's chunk together. `in_buffer`: it is made in the
    /// reader's memory.
    pub(super) fn batch(self, id: ChunkId, in_buffer: bool) -> Batch {
        let in_rows = self.is_made_in_rows(id.dataset);
        let mut batch = Batch {
            dataset: id.dataset,
            next: Vec::new(),
            in_rows,
            shares: 1,
        };
        if !in_rows && self.budget_has_threads() {
            return batch;
        }
        let shares = parallel::shares();
        if in_buffer && !in_rows && self.is_made_in_bands(id.dataset) {
            batch.shares = shares;
            return batch;
        }
        if in_rows || shares > 1 {
            batch.next = self.next(id);
        }
        batch
    }

    /// The chunks that wait for `id` to be read, if they take long enough.
    fn next(self, id: ChunkId) -> Vec<u64> {
        let Some(mut readings) = self.readings(id.dataset) else {
            return Vec::new();
        };
        let mut next = std::mem::take(&mut readings.waiting);
        let each = readings.last_took;
        drop(readings);
        let is_missing = |number| {
            let other = ChunkId { number, ..id };
            !self.view.chunks().has(other) && !self.view.chunks().was_given_before(other)
        };
        next.retain(|other| *other != id.number && is_missing(*other));
        let all = each.saturating_mul(u32::try_from(next.len()).unwrap_or(u32::MAX));
        if all < WORTH_THREADS
            && let Some(mut readings) = self.readings(id.dataset).filter(|_| !next.is_empty())
        {
            readings.wait_with(next.drain(..));
        }
        next
    }

    fn budget_has_threads(self) -> bool {
        self.view.budget.ahead().is_some()
    }

    /// Whether several threads put a chunk of dataset `number` together: its blocks are scattered, and take long enough. A chunk
    /// that is made in its reader's memory is not copied, as one is that is made ahead.
    fn is_made_in_bands(self, number: usize) -> bool {
        self.view.grid(number).elements() >= LEAST_IN_BANDS
            && self.last_took(number) >= WORTH_BANDS
            && self
                .known_index(number)
                .is_some_and(|index| index.has_selections())
    }

    fn known_index(self, number: usize) -> Option<Arc<DatasetIndex>> {
        self.view
            .budget
            .known_index(self.view.generation, number as u32)
    }

    /// Whether chunks of dataset `number` that follow each other are best made at once: each of them reads much of what the others
    /// read.
    fn is_made_in_rows(self, number: usize) -> bool {
        let (dataset, place) = self.view.dataset(number);
        let bytes = place.raw.saturating_mul(place.grid.len());
        dataset.filters.is_empty()
            && place.grid.is_split_once()
            && self
                .known_index(number)
                .is_some_and(|index| index.is_scattered(bytes))
    }

    /// Notes that a reader has made a chunk of dataset `number` in this processor time.
    fn took(self, number: usize, time: Duration) {
        if let Some(mut readings) = self.readings(number) {
            readings.last_took = time;
        }
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.view.readers.last_took.store(time, Ordering::Relaxed);
    }

    /// The processor time of the last chunk of dataset `number` that a reader made. Before the first one, that of another dataset:
    /// variables of a model are often written alike.
    fn last_took(self, number: usize) -> Duration {
        let own = self.readings(number).map(|readings| readings.last_took);
        own.filter(|time| !time.is_zero()).unwrap_or_else(|| {
            Duration::from_nanos(self.view.readers.last_took.load(Ordering::Relaxed))
        })
    }

    /// Forgets the time that small boxes of dataset `number` took.
    pub(super) fn forget_boxes(self, number: usize) {
        if let Some(mut readings) = self.readings(number) {
            readings.on_boxes = Duration::ZERO;
        }
    }

    /// Adds to the time that small boxes of dataset `number` took. Returns all of it.
    pub(super) fn on_boxes(self, number: usize, more: Duration) -> Duration {
        let Some(mut readings) = self.readings(number) else {
            return Duration::ZERO;
        };
        readings.on_boxes = readings.on_boxes.saturating_add(more);
        readings.on_boxes
    }

    fn readings(self, number: usize) -> Option<MutexGuard<'a, Readings>> {
        let readings = self.view.readers.datasets.get(number)?;
        let readings = readings.get_or_init(|| self.new_readings(number));
        readings.as_ref().map(|readings| readings.lock())
    }

    fn new_readings(self, number: usize) -> Option<Box<Mutex<Readings>>> {
        let place = &self.view.map.datasets[number];
        if !matches!(
            self.view.snapshot.datasets[number].content,
            Content::Logged { .. }
        ) {
            return None;
        }
        let chunk = place.raw.max(place.stored).max(1);
        let share = self.view.budget.limits().cache_size / CACHE_PARTS;
        let (bytes, first) = if self.is_made_in_rows(number) {
            (MAX_IN_ROWS, FIRST_IN_ROWS)
        } else {
            (MAX_BYTES, 1)
        };
        let most = share.min(bytes.max(chunk)) / chunk;
        let streams = Streams::new(place.grid.steps(), place.grid.len(), most);
        let readings = Readings {
            streams: streams.beginning_with(first),
            waiting: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            last_took: Duration::ZERO,
            on_boxes: Duration::ZERO,
        };
        (most > 0).then(|| Box::new(Mutex::new(readings)))
    }
}

impl Batch {
    /// Number of threads that put the reader's chunk together.
    pub fn shares(&self) -> usize {
        self.shares
    }

    /// Returns the outcome of `make`. Meanwhile other threads make the next chunks.
    pub fn make<T>(&self, view: &View, user: Option<u32>, make: impl FnOnce() -> T) -> T {
        let make = || {
            let begun = Instant::now();
            let made = make();
            let processor_time = begun.elapsed().saturating_mul(self.shares as u32);
            view.ahead().took(self.dataset, processor_time);
            made
        };
        if self.next.is_empty() {
            return make();
        }
        let shares = parallel::shares().min(self.next.len() + 1);
        let ahead = |share: usize| {
            // The first share already has the chunk of the reader.
            let first = (share + shares - 1) % shares;
            let task = view.budget.task(user).for_at_most(LONGEST);
            let id = |number| ChunkId::new(self.dataset, number);
            if self.in_rows {
                let all = self.next.len();
                let own = &self.next[first * all / shares..(first + 1) * all / shares];
                for row in own.chunk_by(|one, next| one + 1 == *next) {
                    let count = row.len() as u64;
                    view.chunks().prefetch_row(&task, id(row[0]), count);
                }
                return;
            }
            for chunk in self.next.iter().skip(first).step_by(shares) {
                view.chunks().prefetch(&task, id(*chunk));
            }
        };
        parallel::along(shares, ahead, || {
            let made = make();
            ahead(0);
            made
        })
    }
}

impl Job {
    fn is_same(&self, other: &Job) -> bool {
        (self.generation, self.id) == (other.generation, other.id)
    }

    /// Whether both jobs make chunks of the same dataset.
    fn is_beside(&self, other: &Job) -> bool {
        (self.generation, self.id.dataset) == (other.generation, other.id.dataset)
    }

    /// Makes the chunk. Returns whether that took too long.
    fn run(&self) -> bool {
        let Some(view) = self.view.upgrade() else {
            return false;
        };
        let task = view.budget.task(self.user).for_at_most(LONGEST);
        view.chunks().prefetch(&task, self.id);
        task.stopped().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_chunks_that_wait_too_long_the_oldest_go() {
        let mut readings = Readings {
            streams: Streams::new(vec![1], 100, 4),
            waiting: Vec::new(),
            most: 4,
            last_took: Duration::ZERO,
            on_boxes: Duration::ZERO,
        };
        for pass in 0..50 {
            readings.wait_with(2 * pass..2 * pass + 2);
            assert!(readings.waiting.len() <= 4);
        }
        assert_eq!(readings.waiting, [96, 97, 98, 99]);
    }
}
