//! Three opinions on what a cache should keep. Each is a cache of the same capacity that holds keys
//! only, and sees all that is asked.

use std::hash::Hash;

use super::queue::{Queue, weight};

/// What is asked: some of an entry's bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Bytes of the entry.
    pub size: u64,
    /// How many of them are handed out now.
    pub bytes: u64,
}

pub(super) trait Expert<K>: std::fmt::Debug + Send {
    /// Says whether it has the entry. If not, it takes it, and adds the keys that had to leave to
    /// `fallen`. An entry weighs no more than the capacity.
    fn ask(&mut self, key: &K, asked: Asked, fallen: &mut Vec<K>) -> bool;
}

/// An entry of which as many bytes were handed out as it has leaves first: whoever reads a dataset
/// once does not come back for it, while one that was read in part is wanted again when the reader
/// comes by on the other side of it. The first to be finished leaves first; among the others the
/// first to arrive. This is the idea of HDF5's chunk cache with `rdcc_w0` = 1.
#[derive(Debug)]
pub(super) struct Finished<K: Hash + Eq> {
    capacity: u64,
    /// With the bytes handed out.
    begun: Queue<K, u64>,
    finished: Queue<K, ()>,
}

impl<K: Hash + Eq> Finished<K> {
    pub fn new(capacity: u64) -> Self {
        Finished {
            capacity,
            begun: Queue::new(),
            finished: Queue::new(),
        }
    }
}

impl<K: Hash + Eq + Clone + std::fmt::Debug + Send> Expert<K> for Finished<K> {
    fn ask(&mut self, key: &K, asked: Asked, fallen: &mut Vec<K>) -> bool {
        if self.finished.contains(key) {
            return true;
        }
        let had = self.begun.contains(key);
        if !had {
            let room = self.capacity.saturating_sub(weight(asked.size));
            while self.begun.weight() + self.finished.weight() > room {
                let finished = self.finished.take_oldest().map(|(key, ..)| key);
                let left = finished.or_else(|| self.begun.take_oldest().map(|(key, ..)| key));
                fallen.extend(left);
            }
            self.begun.put(key.clone(), asked.size, 0);
        }
        if let Some(handed_out) = self.begun.peek_mut(key) {
            *handed_out = handed_out.saturating_add(asked.bytes);
            if *handed_out >= asked.size {
                self.begun.take(key);
                self.finished.put(key.clone(), asked.size, ());
            }
        }
        had
    }
}

/// What has not been used for the longest leaves first: best where what a reader goes back to fits.
#[derive(Debug)]
pub(super) struct Recent<K: Hash + Eq> {
    capacity: u64,
    used: Queue<K, ()>,
}

impl<K: Hash + Eq> Recent<K> {
    pub fn new(capacity: u64) -> Self {
        Recent {
            capacity,
            used: Queue::new(),
        }
    }
}

impl<K: Hash + Eq + Clone + std::fmt::Debug + Send> Expert<K> for Recent<K> {
    fn ask(&mut self, key: &K, asked: Asked, fallen: &mut Vec<K>) -> bool {
        if self.used.touch(key).is_some() {
            return true;
        }
        let room = self.capacity.saturating_sub(weight(asked.size));
        while self.used.weight() > room {
            fallen.extend(self.used.take_oldest().map(|(key, ..)| key));
        }
        self.used.put(key.clone(), asked.size, ());
        false
    }
}

/// What is used again and again stays, and what passes by once flows past it: best where readers go
/// round in more than fits, and beside those who read all of a large dataset. An entry becomes a
/// steady one when it is used again sooner than the steady entry that has waited for the longest
/// (as in LIRS); entries that have left are remembered to tell.
#[derive(Debug)]
pub(super) struct Reused<K: Hash + Eq> {
    capacity: u64,
    /// With the time of the last use, as in `gone`.
    steady: Queue<K, u64>,
    passing: Queue<K, Passing>,
    gone: Queue<K, u64>,
    /// Counts what was asked.
    clock: u64,
}

#[derive(Debug, Clone, Copy)]
struct Passing {
    used: u64,
    /// In this use: pieces of a chunk that follow each other are one use of it.
    handed_out: u64,
}

impl<K: Hash + Eq + Clone> Reused<K> {
    /// How much more is remembered of what has left than fits into the cache.
    const MEMORY: u64 = 4;

    pub fn new(capacity: u64) -> Self {
        Reused {
            capacity,
            steady: Queue::new(),
            passing: Queue::new(),
            gone: Queue::new(),
            clock: 0,
        }
    }

    /// Most that steady entries weigh: a tenth is left for what passes by.
    fn steady_room(&self) -> u64 {
        self.capacity - self.capacity / 10
    }

    fn make_room(&mut self, weight: u64, fallen: &mut Vec<K>) {
        let room = self.capacity.saturating_sub(weight);
        while self.steady.weight() + self.passing.weight() > room {
            let passing = self.passing.take_oldest();
            let passing = passing.map(|(key, size, entry)| (key, size, entry.used));
            let Some((key, size, used)) = passing.or_else(|| self.steady.take_oldest()) else {
                return;
            };
            fallen.push(key.clone());
            self.gone.put(key, size, used);
        }
        while self.gone.weight() > self.capacity.saturating_mul(Self::MEMORY) {
            self.gone.take_oldest();
        }
    }

    /// Places an entry that is used again, for the first time since `last`.
    fn place(&mut self, key: K, asked: Asked, last: u64) {
        let room = self.steady_room().saturating_sub(weight(asked.size));
        while self.steady.weight() > room && self.steady.oldest().is_some_and(|used| *used < last) {
            if let Some((key, size, used)) = self.steady.take_oldest() {
                let entry = Passing {
                    used,
                    handed_out: size,
                };
                self.passing.put(key, size, entry);
            }
        }
        match self.steady.weight() <= room {
            true => self.steady.put(key, asked.size, self.clock),
            false => self.pass(key, asked, 0),
        }
    }

    fn pass(&mut self, key: K, asked: Asked, before: u64) {
        let entry = Passing {
            used: self.clock,
            handed_out: asked.bytes.saturating_add(before),
        };
        self.passing.put(key, asked.size, entry);
    }
}

impl<K: Hash + Eq + Clone + std::fmt::Debug + Send> Expert<K> for Reused<K> {
    fn ask(&mut self, key: &K, asked: Asked, fallen: &mut Vec<K>) -> bool {
        self.clock += 1;
        if let Some(used) = self.steady.touch(key) {
            *used = self.clock;
            return true;
        }
        if let Some((size, entry)) = self.passing.take(key) {
            match entry.handed_out >= size {
                true => self.place(key.clone(), asked, entry.used),
                false => self.pass(key.clone(), asked, entry.handed_out),
            }
            return true;
        }
        let before = self.gone.take(key);
        self.make_room(weight(asked.size), fallen);
        match before {
            Some((_, last)) => self.place(key.clone(), asked, last),
            None => self.pass(key.clone(), asked, 0),
        }
        false
    }
}
