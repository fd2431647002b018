//! Which entries are kept.
//!
//! No single rule does well for all who read arrays in chunks:
//!
//! * Who reads a dataset once, from end to end, needs nothing kept; least of all what was handed out
//!   completely. So HDF5's chunk cache lets that go first (`rdcc_w0`), and keeps what was read in part.
//! * Who moves a window by less than its side comes back to chunks that were handed out completely.
//!   Where they fit, the least recently used should leave, and HDF5's rule reads them anew each time.
//! * Who goes round in more than fits gets nothing from either rule, but something from one that holds
//!   on to a part. So does who uses some chunks again and again while another reader passes through a
//!   large dataset.
//!
//! So there are three *experts*, one for each, which simulate a cache of the same capacity, on keys
//! alone. The cache counts the bytes that each would have had to make, and follows the one that had to
//! make the least: it lets go of an entry that this one does not have any more. Scores fade, so that a
//! reader who begins something else finds another expert; and an expert has to be better by a margin,
//! for a change costs. Where nothing was missing for a while, all of what is asked fits, and the cache
//! follows the expert that holds on to it: a pass through a large dataset will not push it out.
//!
//! How many bytes were handed out is counted, not which: of a slice that is asked again and again the
//! count reaches the size of its chunk, too, and what is asked after that counts as another use.

use std::hash::Hash;

use lru::LruCache;

use super::experts::{Asked, Expert, Finished, Recent, Reused};
use super::queue::{Queue, weight};

const EXPERTS: usize = 3;
/// Whose place in the list of experts is that of [`Reused`].
const REUSED: usize = 2;

/// Values of type `V`, weighed in bytes.
#[derive(Debug)]
pub(super) struct Policy<K: Hash + Eq, V> {
    capacity: u64,
    kept: Queue<K, V>,
    experts: [Box<dyn Expert<K>>; EXPERTS],
    /// What is kept although the expert has let it go.
    outside: [LruCache<K, ()>; EXPERTS],
    /// Bytes that each expert would have had to make, of late.
    made: [u64; EXPERTS],
    followed: usize,
    /// Bytes asked since the scores last faded.
    asked: u64,
    /// Bytes asked since something was missing.
    quiet: u64,
    /// For what falls out of an expert; empty between calls.
    fallen: Vec<K>,
}

impl<K, V> Policy<K, V>
where
    K: Hash + Eq + Clone + std::fmt::Debug + Send + 'static,
    V: Clone,
{
    /// `capacity` in bytes.
    pub fn new(capacity: u64) -> Self {
        Policy {
            capacity,
            kept: Queue::new(),
            experts: [
                Box::new(Finished::new(capacity)),
                Box::new(Recent::new(capacity)),
                Box::new(Reused::new(capacity)),
            ],
            outside: std::array::from_fn(|_| LruCache::unbounded()),
            made: [0; EXPERTS],
            followed: 0,
            asked: 0,
            quiet: 0,
            fallen: Vec::new(),
        }
    }

    /// The same without entries, and with nothing learned.
    pub fn emptied(&self) -> Self {
        Policy::new(self.capacity)
    }

    /// Bytes in use.
    pub fn weight(&self) -> u64 {
        self.kept.weight()
    }

    pub fn contains(&self, key: &K) -> bool {
        self.kept.contains(key)
    }

    /// An entry of which some bytes, as `asked` says of it, are handed out now.
    pub fn get(&mut self, key: &K, asked: impl FnOnce(&V) -> Asked) -> Option<V> {
        let value = self.kept.touch(key)?.clone();
        let asked = asked(&value);
        self.quiet = self.quiet.saturating_add(asked.bytes);
        self.learn(key, asked, true);
        Some(value)
    }

    /// Keeps what was missing. What is larger than the capacity is not kept. An entry that was made
    /// `ahead` of its reader was not missed by anybody.
    pub fn insert(&mut self, key: K, value: V, asked: Asked, ahead: bool) {
        let weight = weight(asked.size);
        if weight > self.capacity || self.kept.contains(&key) {
            return;
        }
        if !ahead {
            self.quiet = 0;
        }
        self.learn(&key, asked, !ahead);
        while self.kept.weight() > self.capacity - weight {
            self.let_one_go();
        }
        self.kept.put(key, asked.size, value);
    }

    fn let_one_go(&mut self) {
        let outsider = self.outside[self.followed].pop_lru().map(|(key, ())| key);
        if let Some(key) = &outsider {
            self.kept.take(key);
        }
        // The expert holds no more than the capacity, so there always is an outsider; should there
        // be none, the budget matters more.
        let gone = outsider.or_else(|| self.kept.take_oldest().map(|(key, ..)| key));
        for outside in &mut self.outside {
            gone.as_ref().and_then(|key| outside.pop(key));
        }
    }

    /// Shows the experts what is asked.
    fn learn(&mut self, key: &K, asked: Asked, counts: bool) {
        for (n, expert) in self.experts.iter_mut().enumerate() {
            if !expert.ask(key, asked, &mut self.fallen) {
                self.outside[n].pop(key);
                if counts {
                    self.made[n] = self.made[n].saturating_add(weight(asked.size));
                }
            }
            for key in self.fallen.drain(..) {
                if self.kept.contains(&key) {
                    self.outside[n].put(key, ());
                }
            }
        }
        self.choose(asked.bytes);
    }

    fn choose(&mut self, bytes: u64) {
        /// After that many times the capacity scores count half.
        const FADES: u64 = 32;
        /// After that many times the capacity without anything missing, all that is asked fits.
        const QUIET: u64 = 2;
        /// An expert has to be better by this part of the capacity.
        const MARGIN: u64 = 12;
        self.asked = self.asked.saturating_add(bytes);
        if self.asked > self.capacity.saturating_mul(FADES) {
            self.asked = 0;
            self.made = self.made.map(|score| score / 2);
        }
        if self.quiet > self.capacity.saturating_mul(QUIET) {
            self.made = [0; EXPERTS];
            self.followed = REUSED;
        }
        let margin = self.capacity / MARGIN;
        let best = self.made.iter().enumerate().min_by_key(|(_, made)| **made);
        if let Some((best, made)) = best
            && made.saturating_add(margin) < self.made[self.followed]
        {
            self.followed = best;
        }
    }
}

#[cfg(test)]
mod tests;
