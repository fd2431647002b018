//! Chunks that went to readers who keep what they get, and were not kept here. One that is asked for again was dropped
//! there: then it is worth a place in the cache.

use lru::LruCache;
use parking_lot::Mutex;

use super::too_long::Part;

/// How many are remembered.
const MOST: usize = 4096;

#[derive(Debug)]
pub(crate) struct Given(Mutex<LruCache<Part, ()>>);

impl Default for Given {
    fn default() -> Self {
        // It grows as it fills.
        Given(Mutex::new(LruCache::unbounded()))
    }
}

impl Given {
    /// Whether this chunk is given for the first time, as far as is remembered.
    pub fn is_first(&self, part: Part) -> bool {
        let mut known = self.0.lock();
        let is_first = known.put(part, ()).is_none();
        if known.len() > MOST {
            known.pop_lru();
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered() {
        let part = |dataset| Part {
            generation: 1,
            dataset,
            chunk: Some(0),
        };
        let given = Given::default();
        assert!((0..=MOST).all(|number| given.is_first(part(number))));
        assert!(!given.is_first(part(1)) && given.is_first(part(0)));
        // That one took the place of another.
        assert!(given.is_first(part(2)));
    }
}
