//! The selections that entries of a section spell out. Later entries share them.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Largest number of selections: as many as a table of 2^18 places holds. This limits the memory of programs that never
/// repeat a selection.
const MOST: usize = 7 << 15;
/// Largest selection that is copied, in bytes; and most bytes of all copies, with the overhead of the allocator.
const LONGEST_COPY: usize = 1 << 10;
const MOST_COPIED: usize = 8 << 20;
const ALLOCATED: usize = 16;

/// Selections by the hashes of their flags and bytes.
#[derive(Debug)]
pub(crate) struct Selections {
    by_hash: HashMap<u64, Known, FixedState>,
    /// Bytes of all copies.
    copied: usize,
}

/// A selection that an entry spells out.
#[derive(Debug)]
pub(crate) struct Known {
    /// Position of the entry in the section.
    pub at: usize,
    /// The flags of the entry.
    pub flag: i32,
    /// Size of the selection in bytes.
    pub len: usize,
    /// Copy of the selection. `None`: it must be read from the entry.
    pub copy: Option<Box<[u8]>>,
}

impl Selections {
    pub fn new() -> Self {
        Selections {
            by_hash: HashMap::with_hasher(FixedState::default()),
            copied: 0,
        }
    }

    pub fn hash(&self, flag: i32, selection: &[u8]) -> u64 {
        self.by_hash.hasher().hash_one((flag, selection))
    }

    /// A selection with this hash, which may be the same one.
    pub fn get(&self, hash: u64) -> Option<&Known> {
        self.by_hash.get(&hash)
    }

    /// Adds the selection of the entry at `at`. With `copy` it can be compared after its entry has left the memory, without
    /// reading it again.
    pub fn add(&mut self, hash: u64, at: usize, flag: i32, selection: &[u8], copy: bool) {
        if self.by_hash.len() >= MOST {
            return;
        }
        let cost = selection.len() + ALLOCATED;
        let copy = copy && selection.len() <= LONGEST_COPY && self.copied + cost <= MOST_COPIED;
        self.copied += if copy { cost } else { 0 };
        let known = Known {
            at,
            flag,
            len: selection.len(),
            copy: copy.then(|| selection.into()),
        };
        let replaced = self.by_hash.insert(hash, known);
        self.copied -= replaced.map_or(0, |known| known.cost());
    }

    /// Forgets the selections of the entries from byte `len` of the section on.
    pub fn truncate(&mut self, len: usize) {
        self.by_hash.retain(|_, known| known.at < len);
        self.copied = self.by_hash.values().map(Known::cost).sum();
    }

    pub fn clear(&mut self) {
        self.by_hash.clear();
        self.copied = 0;
    }
}

impl Known {
    /// Bytes of the copy.
    fn cost(&self) -> usize {
        self.copy.as_ref().map_or(0, |copy| copy.len() + ALLOCATED)
    }
}
