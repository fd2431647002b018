//! Views of logs that have grown since they were looked up.
//!
//! Between a look-up and the open that follows, a job may flush once more, and another reader may have the log scanned
//! again. The open still gets the view of its look-up: the bytes of an unclosed log stay where they are.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use h5logfs_view::View;
use h5logfs_view::cache::Generation;

/// An open follows its look-up at once, unless the machine is very busy.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most views. Each holds its files open.
const MOST_VIEWS: usize = 256;

#[derive(Debug, Default)]
pub struct Superseded {
    /// The oldest first, each with the time when it was superseded.
    views: Mutex<VecDeque<(Instant, Arc<View>)>>,
}

impl Superseded {
    pub fn keep(&self, view: Arc<View>) {
        let mut views = self.views.lock();
        let mut gone = remove_expired(&mut views);
        gone.extend(
            (views.len() >= MOST_VIEWS)
                .then(|| views.pop_front())
                .flatten(),
        );
        views.push_back((Instant::now(), view));
        // Views are dropped without the lock.
        drop(views);
    }

    pub fn find(&self, generation: Generation) -> Option<Arc<View>> {
        let mut views = self.views.lock();
        let _gone = remove_expired(&mut views);
        let mut newest_first = views.iter().rev();
        let found = newest_first.find(|(_, view)| view.generation() == generation);
        let found = found.map(|(_, view)| Arc::clone(view));
        drop(views);
        found
    }

    /// Drops the views for which `is_gone` holds.
    pub fn remove(&self, is_gone: impl Fn(&View) -> bool) {
        let mut views = self.views.lock();
        let (gone, kept) = views.drain(..).partition(|(_, view)| is_gone(view));
        *views = kept;
        drop(views);
        let _: VecDeque<(Instant, Arc<View>)> = gone;
    }
}

fn remove_expired(views: &mut VecDeque<(Instant, Arc<View>)>) -> Vec<(Instant, Arc<View>)> {
    let kept = views.partition_point(|(since, _)| since.elapsed() > LIFETIME);
    views.drain(..kept).collect()
}
