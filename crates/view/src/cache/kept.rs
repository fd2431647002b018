//! Chunks that a reader got in its own memory, kept for its next read of them.
//!
//! A chunk of this kind is made in the memory of its reader, and copied here. The copies follow each other in large
//! pieces of memory, because the system gives these several times as fast as memory for one chunk after the other.
//! The oldest piece goes first, with all its chunks.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::Generation;
use crate::grid::ChunkId;
use h5logfs_common::buffers::LargePages;
use h5logfs_common::fault::Shortage;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// Bytes of the first piece of a view: those of a large page.
const FIRST_PIECE: usize = if cfg!(debug_assertions) {
    1 << 15
} else {
    2 << 20
};
/// Bytes of its other pieces.
pub(super) const PIECE: usize = 2 * FIRST_PIECE;

type Key = (Generation, ChunkId);

/// Copies of chunks. Threads share them; a thread waits for others only while they copy a chunk.
#[derive(Debug, Default)]
pub(crate) struct KeptChunks {
    pieces: RwLock<Pieces>,
    hits: AtomicU64,
}

#[derive(Debug, Default)]
struct Pieces {
    /// The pieces, oldest first. Those of views that were forgotten are gone.
    list: VecDeque<Option<Piece>>,
    /// Number of the first one in the list, since the first of all was made.
    first: u64,
    places: HashMap<Key, Place, RandomState>,
}

/// Memory for chunks of one view.
#[derive(Debug)]
struct Piece {
    view: Generation,
    bytes: LargePages,
    used: usize,
    keys: Vec<Key>,
    _reservation: Reservation,
}

/// The place of a chunk.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Number of its piece.
    piece: u64,
    start: usize,
    len: usize,
}

impl Piece {
    fn new(task: &Task, view: Generation, len: usize) -> Result<Self, Shortage> {
        let reservation = task.reserve(len as u64)?;
        reservation.release_share();
        Ok(Piece {
            view,
            bytes: LargePages::zeroed(len)?,
            used: 0,
            keys: Vec::new(),
            _reservation: reservation,
        })
    }
}

impl Pieces {
    fn bytes_of(&self, key: &Key) -> Option<&[u8]> {
        let place = self.places.get(key)?;
        let at = place.piece.checked_sub(self.first)?;
        let piece = self.list.get(usize::try_from(at).ok()?)?.as_ref()?;
        piece.bytes.get(place.start..place.start + place.len)
    }

    /// The place in the list of the last piece of a view.
    fn last_of(&self, view: Generation) -> Option<usize> {
        let is_own = |piece: &Option<Piece>| piece.as_ref().is_some_and(|piece| piece.view == view);
        self.list.iter().rposition(is_own)
    }

    /// Copies a chunk into the last piece of its view. Returns whether it has room.
    fn put(&mut self, key: Key, chunk: &[u8]) -> bool {
        let Some(at) = self.last_of(key.0) else {
            return false;
        };
        let Some(piece) = &mut self.list[at] else {
            return false;
        };
        let place = Place {
            piece: self.first + at as u64,
            start: piece.used,
            len: chunk.len(),
        };
        let Some(room) = piece.bytes.get_mut(place.start..place.start + place.len) else {
            return false;
        };
        room.copy_from_slice(chunk);
        piece.used += chunk.len();
        piece.keys.push(key);
        self.places.insert(key, place);
        true
    }

    /// Takes the oldest piece out, and forgets its chunks.
    fn take_oldest(&mut self) -> Option<Piece> {
        loop {
            let piece = self.list.pop_front()?;
            let number = self.first;
            self.first += 1;
            let Some(piece) = piece else {
                continue;
            };
            for key in &piece.keys {
                // The chunk may be in a later piece, too.
                if self
                    .places
                    .get(key)
                    .is_some_and(|place| place.piece == number)
                {
                    self.places.remove(key);
                }
            }
            return Some(piece);
        }
    }

    fn weight(&self) -> u64 {
        let pieces = self.list.iter().flatten();
        pieces.map(|piece| piece.bytes.len() as u64).sum()
    }
}

impl KeptChunks {
    /// Copies bytes of a chunk, from `offset` on, into `buf`. Returns their number; `None` where the chunk is not kept.
    pub fn read(&self, key: &Key, offset: usize, buf: &mut [u8]) -> Option<usize> {
        let read = self.with(key, |chunk| {
            let chunk = chunk.get(offset..)?;
            let len = chunk.len().min(buf.len());
            buf[..len].copy_from_slice(&chunk[..len]);
            Some(len)
        });
        read.flatten()
    }

    /// Passes a chunk to `take`, and returns what this returns; `None` where the chunk is not kept. Nobody keeps a chunk meanwhile.
    pub fn with<T>(&self, key: &Key, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let pieces = self.pieces.read();
        let taken = take(pieces.bytes_of(key)?);
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(taken)
    }

    pub fn contains(&self, key: &Key) -> bool {
        self.pieces.read().bytes_of(key).is_some()
    }

    /// Number of reads that found their chunk.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Bytes of all pieces.
    pub fn weight(&self) -> u64 {
        self.pieces.read().weight()
    }

    /// Keeps a chunk if that takes at most `most` bytes in all. The memory of a new piece is that of `task`. Returns whether the
    /// chunk is kept.
    pub fn keep(&self, task: &Task, key: Key, chunk: &[u8], most: u64) -> bool {
        if self.put(key, chunk) {
            return true;
        }
        let (weight, is_first) = {
            let pieces = self.pieces.read();
            (pieces.weight(), pieces.last_of(key.0).is_none())
        };
        let len = if is_first && chunk.len() <= FIRST_PIECE {
            FIRST_PIECE
        } else {
            PIECE
        };
        if chunk.len() > len || weight + len as u64 > most {
            return false;
        }
        // To make room for the new piece, the memory may take an old one from here, so no lock is held.
        let Ok(piece) = Piece::new(task, key.0, len) else {
            return false;
        };
        let mut pieces = self.pieces.write();
        if pieces.put(key, chunk) {
            return true;
        }
        pieces.list.push_back(Some(piece));
        pieces.put(key, chunk)
    }

    fn put(&self, key: Key, chunk: &[u8]) -> bool {
        let mut pieces = self.pieces.write();
        pieces.bytes_of(&key).is_some() || pieces.put(key, chunk)
    }

    /// Drops the oldest piece. Returns whether there was one.
    pub fn evict_one(&self) -> bool {
        let oldest = self.pieces.write().take_oldest();
        oldest.is_some()
    }

    /// Drops the oldest pieces until they weigh at most `most` bytes.
    pub fn shrink_to(&self, most: u64) {
        while self.weight() > most && self.evict_one() {}
    }

    /// Forgets the chunks of the views that `is_meant` accepts.
    pub fn remove_all(&self, is_meant: impl Fn(Generation) -> bool) {
        let mut pieces = self.pieces.write();
        pieces.places.retain(|key, _| !is_meant(key.0));
        let mut gone = Vec::new();
        for piece in &mut pieces.list {
            if piece.as_ref().is_some_and(|piece| is_meant(piece.view)) {
                gone.extend(piece.take());
            }
        }
        while let Some(None) = pieces.list.front() {
            pieces.list.pop_front();
            pieces.first += 1;
        }
        drop(pieces);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_common::memory::Memory;

    fn key(number: u64) -> Key {
        (1, ChunkId::new(0, number))
    }

    fn read(kept: &KeptChunks, number: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; PIECE];
        let len = kept.read(&key(number), 0, &mut bytes)?;
        bytes.truncate(len);
        Some(bytes)
    }

    #[test]
    fn chunks_are_kept_as_far_as_memory_goes_and_the_oldest_go_first() {
        let most = (FIRST_PIECE + PIECE) as u64;
        let memory = Memory::new(2 * most, None);
        let (task, kept) = (Task::new(&memory, Some(1)), KeptChunks::default());
        let chunk = |number: u64| vec![number as u8; FIRST_PIECE / 2];
        for number in 0..9 {
            let is_kept = kept.keep(&task, key(number), &chunk(number), most);
            assert_eq!(is_kept, number < 6);
        }
        // A third piece would be too much.
        let there: Vec<u64> = (0..9)
            .filter(|number| kept.contains(&key(*number)))
            .collect();
        assert_eq!(there, [0, 1, 2, 3, 4, 5]);
        assert_eq!((kept.weight(), memory.used()), (most, most));
        assert!((0..6).all(|number| read(&kept, number) == Some(chunk(number))));
        let mut some = [0; 4];
        assert_eq!(kept.read(&key(3), FIRST_PIECE / 2 - 2, &mut some), Some(2));
        assert_eq!((some, kept.hits()), ([3, 3, 0, 0], 7));
        assert!(kept.evict_one());
        assert_eq!(read(&kept, 1), None);
        assert_eq!(read(&kept, 2), Some(chunk(2)));
        assert!(kept.keep(&task, key(0), &chunk(0), u64::MAX));
        assert_eq!(read(&kept, 0), Some(chunk(0)));
        // There is no room for a chunk that is larger than a piece.
        assert!(!kept.keep(&task, key(7), &vec![0; PIECE + 1], u64::MAX));
        assert_eq!(read(&kept, 7), None);
        kept.shrink_to(0);
        assert_eq!((kept.weight(), memory.used(), read(&kept, 0)), (0, 0, None));
        // Memory that others have is no error.
        let _others = Task::new(&memory, None).reserve(2 * most).unwrap();
        assert!(!kept.keep(&task, key(0), &chunk(0), u64::MAX));
        assert_eq!((kept.weight(), read(&kept, 0)), (0, None));
    }

    #[test]
    fn the_memory_of_a_view_that_is_forgotten_is_free() {
        let (task, kept) = (Task::unlimited(), KeptChunks::default());
        let of = |view: Generation| (view, ChunkId::new(0, 0));
        for view in 1..4 {
            assert!(kept.keep(&task, of(view), &[view as u8; 10], u64::MAX));
        }
        kept.remove_all(|view| view == 2);
        let there = |view| kept.with(&of(view), |chunk| chunk[9]);
        assert_eq!([1, 2, 3].map(there), [Some(1), None, Some(3)]);
        assert_eq!(kept.weight(), 2 * FIRST_PIECE as u64);
        assert!(kept.evict_one());
        assert_eq!([1, 2, 3].map(there), [None, None, Some(3)]);
        assert!(kept.keep(&task, of(2), &[2; 10], u64::MAX));
        assert_eq!([2, 3].map(there), [Some(2), Some(3)]);
        kept.remove_all(|_| true);
        assert_eq!((kept.weight(), there(3)), (0, None));
    }
}
