//! Chunks made ahead of a reader who goes through the chunk grid in order.
//!
//! Each dataset has a small table of the readers that it has at the moment ([`Streams`]); where one of
//! them goes on by the same step, the chunks that it will want next are made by a few threads of the
//! budget ([`Pool`]), and are in the cache when it comes. So records are inflated in parallel for a
//! single reader. What goes wrong there is not told: the reader will meet it.

mod pool;
mod streams;

use std::sync::{OnceLock, Weak};

use parking_lot::Mutex;

use super::View;
pub(super) use pool::Pool;
use streams::Streams;

use crate::snapshot::Content;

/// The most that is made ahead of one reader, in bytes, unless one chunk is larger.
const MOST_BYTES: u64 = 16 << 20;
/// The share of `cache_size` that is used for it at most.
const SHARE: u64 = 4;

/// The readers of each dataset of a view.
#[derive(Debug)]
pub(super) struct Readers {
    /// `None` where nothing can be made ahead.
    datasets: Vec<OnceLock<Option<Box<Mutex<Streams>>>>>,
    view: Weak<View>,
}

impl Readers {
    pub fn new(datasets: usize, view: Weak<View>) -> Self {
        Readers {
            datasets: (0..datasets).map(|_| OnceLock::new()).collect(),
            view,
        }
    }

    /// Memory held for `datasets` datasets before any is read, in bytes.
    pub fn bytes(datasets: usize) -> usize {
        datasets * size_of::<OnceLock<Option<Box<Mutex<Streams>>>>>()
    }
}

/// A chunk that may be made ahead.
#[derive(Debug, Clone)]
struct Job {
    view: Weak<View>,
    generation: u64,
    dataset: usize,
    chunk: u64,
}

impl View {
    /// Told of each chunk that a reader takes from the cache, has what will come next made.
    pub(super) fn look_ahead(&self, number: usize, chunk: u64) {
        let streams = self.readers.datasets.get(number);
        let streams = streams.and_then(|s| s.get_or_init(|| self.streams(number)).as_ref());
        let Some(ahead) = streams.and_then(|s| s.lock().ask(chunk)) else {
            return;
        };
        let job = |chunk| Job {
            view: Weak::clone(&self.readers.view),
            generation: self.generation,
            dataset: number,
            chunk,
        };
        let missing = |chunk: &u64| !self.has_chunk(number, *chunk);
        let jobs = ahead.filter(missing).map(job);
        self.budget.ahead().push(&job(chunk), jobs);
    }

    fn streams(&self, number: usize) -> Option<Box<Mutex<Streams>>> {
        let place = &self.map.datasets[number];
        if !matches!(
            self.snapshot.datasets[number].content,
            Content::Logged { .. }
        ) {
            return None;
        }
        let chunk = place.raw.max(place.stored).max(1);
        let share = self.budget.limits().cache_size / SHARE;
        let most = share.min(MOST_BYTES.max(chunk)) / chunk;
        let streams = Streams::new(place.grid.steps(), place.grid.len(), most);
        (most > 0).then(|| Box::new(Mutex::new(streams)))
    }
}

impl Job {
    fn is_same(&self, other: &Job) -> bool {
        (self.generation, self.dataset, self.chunk)
            == (other.generation, other.dataset, other.chunk)
    }

    fn run(&self) {
        if let Some(view) = self.view.upgrade() {
            view.make_ahead(self.dataset, self.chunk);
        }
    }
}
