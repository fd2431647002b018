//! Views of logs that have grown since they were looked up.
//!
//! Between a look-up and the open that follows, a job may flush once more, and another reader may have the log scanned
//! again. The open still gets the view of its look-up: the bytes of an unclosed log stay where they are.
//!
//! Such a view lies in the budget, like every view that no program has open. So the budget bounds its memory and its
//! descriptors, and drops it where others need them. The list here holds only the generations of these views. After a
//! few seconds nobody asks for them any more, which the budget cannot know.

use std::collections::VecDeque;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use h5logfs_view::View;
use h5logfs_view::cache::{Budget, Generation};

/// An open follows its look-up at once, unless the machine is very busy.
const LIFETIME: Duration = Duration::from_secs(10);
/// The most views in the list.
const MOST: usize = 256;

#[derive(Debug)]
pub struct Superseded(Arc<Shared>);

/// State that is shared with the thread that drops views.
#[derive(Debug)]
struct Shared {
    budget: Arc<Budget>,
    lifetime: Duration,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    /// Views in the list, the oldest first.
    views: VecDeque<OutOfDate>,
    /// Whether a thread runs that drops views.
    has_thread: bool,
}

/// A view that was superseded.
#[derive(Debug)]
struct OutOfDate {
    since: Instant,
    generation: Generation,
    /// Path of its log.
    relative: PathBuf,
}

impl Superseded {
    pub fn new(budget: Arc<Budget>) -> Self {
        Superseded::with(budget, LIFETIME)
    }

    fn with(budget: Arc<Budget>, lifetime: Duration) -> Self {
        Superseded(Arc::new(Shared {
            budget,
            lifetime,
            list: Mutex::default(),
        }))
    }

    /// Keeps the view of the log at `relative` in the budget, for a while.
    pub fn keep(&self, relative: &Path, view: &Arc<View>) {
        self.0.budget.keep_view(view);
        let mut list = self.0.list.lock();
        list.views.push_back(OutOfDate {
            since: Instant::now(),
            generation: view.generation(),
            relative: relative.to_owned(),
        });
        let oldest = (list.views.len() > MOST).then(|| list.views.pop_front());
        let has_thread = mem::replace(&mut list.has_thread, true);
        drop(list);
        self.0.drop_views(oldest.flatten());
        if !has_thread {
            self.0.start_thread();
        }
    }

    /// Drops the views of the log at `relative`.
    pub fn forget(&self, relative: &Path) {
        let mut list = self.0.list.lock();
        let views = mem::take(&mut list.views);
        let (gone, kept) = views
            .into_iter()
            .partition(|view| view.relative == relative);
        list.views = kept;
        drop(list);
        let gone: VecDeque<OutOfDate> = gone;
        self.0.drop_views(gone);
    }

    /// Drops the views of all logs.
    pub fn clear(&self) {
        let gone = mem::take(&mut self.0.list.lock().views);
        self.0.drop_views(gone);
    }
}

impl Shared {
    /// Drops views. The caller must not hold the lock of the list, because this closes files.
    fn drop_views(&self, gone: impl IntoIterator<Item = OutOfDate>) {
        for view in gone {
            self.budget.drop_view(view.generation);
        }
    }

    /// Starts a thread that drops views when their time is over, and ends with the last one.
    fn start_thread(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let drop_expired = move || {
            while let Some(rest) = weak.upgrade().and_then(|shared| shared.drop_expired()) {
                thread::sleep(rest);
            }
        };
        let thread = thread::Builder::new().name("superseded".into());
        if let Err(e) = thread.spawn(drop_expired) {
            log::warn!("cannot start the thread that drops views of earlier flushes: {e}");
            self.list.lock().has_thread = false;
        }
    }

    /// Drops views whose time is over. Returns how long the thread may rest. `None` where no view is left: the thread
    /// then ends.
    fn drop_expired(&self) -> Option<Duration> {
        let mut list = self.list.lock();
        let is_over = |view: &OutOfDate| view.since.elapsed() >= self.lifetime;
        let expired = list.views.partition_point(is_over);
        let gone: Vec<OutOfDate> = list.views.drain(..expired).collect();
        let oldest = list.views.front().map(|view| view.since.elapsed());
        list.has_thread = oldest.is_some();
        drop(list);
        self.drop_views(gone);
        // A busy job supersedes many views a second. A minimal rest drops several at once.
        let rest = |age: Duration| self.lifetime.saturating_sub(age).max(self.lifetime / 10);
        oldest.map(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Weak;

    use h5logfs_log::snapshot::{Snapshot, Source};
    use h5logfs_log::source_dir::{SourceDir, SourcePath};
    use h5logfs_log::source_file::SourceFile;
    use h5logfs_view::cache::MemoryLimits;

    use super::*;

    /// The files of a log.
    const FILES: usize = 2;

    /// A view of a log of several files without datasets, with a generation of its own.
    fn view(budget: &Arc<Budget>) -> Arc<View> {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..FILES).map(|number| format!("log.{number}")).collect();
        for name in &names {
            fs::write(dir.path().join(name), [7; 96]).unwrap();
        }
        let dir = SourceDir::open(dir.path()).unwrap();
        let source = |name: &String| {
            let file = SourceFile::open(&dir, name.as_ref()).unwrap();
            Source::whole(SourcePath::below(name.as_str()), file.identity())
        };
        let snapshot = Snapshot {
            image: vec![0; 96],
            sources: names.iter().map(source).collect(),
            ..Snapshot::default()
        };
        View::open(&dir, snapshot, Arc::clone(budget), None).unwrap()
    }

    fn alive(views: &[Weak<View>]) -> usize {
        views.iter().filter(|view| view.strong_count() > 0).count()
    }

    #[test]
    fn the_budget_bounds_views_that_were_superseded() {
        let limits = MemoryLimits::each(16 << 10);
        let budget = Arc::new(Budget::new(limits));
        let superseded = Superseded::new(Arc::clone(&budget));
        let log = Path::new("log.0");
        let mut views = Vec::new();
        for _ in 0..100 {
            let view = view(&budget);
            superseded.keep(log, &view);
            views.push(Arc::downgrade(&view));
        }
        assert!(budget.used() <= limits.index_memory);
        let kept = alive(&views);
        assert!(0 < kept && kept < 50, "{kept}");
        // The newest ones stay.
        let newest = views[99].upgrade().unwrap();
        assert!(budget.view(newest.generation()).is_some());
        drop(newest);
        superseded.forget(Path::new("other"));
        assert_eq!(alive(&views), kept);
        superseded.forget(log);
        assert_eq!(alive(&views), 0);
    }

    #[test]
    fn views_go_without_a_further_call() {
        let budget = Arc::new(Budget::new(MemoryLimits::each(1 << 20)));
        let lifetime = Duration::from_millis(20);
        let superseded = Superseded::with(Arc::clone(&budget), lifetime);
        // The thread ends with the last view, and another one begins with the next.
        for _ in 0..2 {
            let views = [view(&budget), view(&budget)];
            let start = Instant::now();
            for view in &views {
                superseded.keep(Path::new("log.0"), view);
            }
            let views = views.map(|view| Arc::downgrade(&view));
            while alive(&views) > 0 || superseded.0.list.lock().has_thread {
                assert!(start.elapsed() < Duration::from_secs(60));
                thread::yield_now();
            }
            assert!(start.elapsed() >= lifetime);
        }
    }
}
