//! What is kept of states of logs that are past: record tables, indexes, chunks. Nobody asks for it any more, but a program that has such
//! a state open. The limits of the budget would bound it, but a daemon below which logs change all the time would take all that they
//! allow.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use h5logfs_view::View;
use h5logfs_view::cache::{Budget, Generation};

#[derive(Debug)]
pub struct Outdated {
    budget: Arc<Budget>,
    /// Those of which something may be kept, and their views.
    states: Mutex<Vec<(Generation, Weak<View>)>>,
}

impl Outdated {
    pub fn new(budget: Arc<Budget>) -> Self {
        Outdated {
            budget,
            states: Mutex::default(),
        }
    }

    /// A state is past. `view`: its view.
    pub fn add(&self, generation: Generation, view: Weak<View>) {
        self.states.lock().push((generation, view));
    }

    /// Drops what is kept of those whose views are gone. This looks through all that is kept, so it is done once in a while for all of
    /// them.
    pub fn forget(&self) {
        let mut states = self.states.lock();
        if states.is_empty() {
            return;
        }
        let mut gone = HashSet::new();
        states.retain(|(generation, view)| {
            let is_in_use = view.strong_count() > 0;
            if !is_in_use {
                gone.insert(*generation);
            }
            is_in_use
        });
        drop(states);
        if !gone.is_empty() {
            self.budget.forget_all(&gone);
        }
    }
}
