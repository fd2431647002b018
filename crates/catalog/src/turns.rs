//! One thread at a time does something about a path; others that want to wait.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

/// The paths that somebody is at.
#[derive(Debug, Default)]
pub struct Turns {
    busy: Mutex<HashSet<PathBuf>>,
    changed: Condvar,
}

/// The right to be at a path, until this goes.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    path: &'a Path,
}

impl Turns {
    /// Waits until nobody else is at `path`.
    pub fn take<'a>(&'a self, path: &'a Path) -> Turn<'a> {
        let mut busy = self.busy.lock();
        while busy.contains(path) {
            self.changed.wait(&mut busy);
        }
        busy.insert(path.to_owned());
        Turn { turns: self, path }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.busy.lock().remove(self.path);
        // Those who wait may wait for several paths.
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_path_has_one_thread_and_others_have_theirs() {
        let turns = Turns::default();
        let elsewhere = turns.take(Path::new("b"));
        let there = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let _turn = turns.take(Path::new("a"));
                        assert_eq!(there.fetch_add(1, Ordering::SeqCst), 0);
                        thread::yield_now();
                        there.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        drop(elsewhere);
        assert!(turns.busy.lock().is_empty());
    }
}
