//! Memory of past states of logs: record tables, indexes, chunks. Only a program that still has such a state open uses
//! it. The budget bounds this memory. But below a daemon whose logs change all the time, past states would fill the
//! whole budget.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use h5logfs_view::View;
use h5logfs_view::cache::{Budget, Generation};

#[derive(Debug)]
pub struct Outdated {
    budget: Arc<Budget>,
    /// Past states that may still take memory, and their views.
    states: Mutex<Vec<(Generation, Weak<View>)>>,
}

impl Outdated {
    pub fn new(budget: Arc<Budget>) -> Self {
        Outdated {
            budget,
            states: Mutex::default(),
        }
    }

    /// Adds a past state and its view.
    pub fn add(&self, generation: Generation, view: Weak<View>) {
        self.states.lock().push((generation, view));
    }

    /// Drops the memory of past states whose views are gone. This walks through everything that is kept, so it is
    /// done once in a while, for all states together.
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
