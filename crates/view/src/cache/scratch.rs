//! Memory that goes from one piece of work to the next: for bytes that are read before they move, and for chunks that are made
//! before their readers ask.
//!
//! The system takes longer to give and to clear new memory than to copy into it what lies in the kernel.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use h5logfs_common::buffers::LargePages;
use h5logfs_common::fault::Shortage;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::task::Task;

/// The most pieces that are kept: one for each thread that works at a time.
const MOST: usize = 16;
/// The largest piece that is kept, in bytes.
const LARGEST: usize = 4 << 20;
/// The smallest chunk whose memory is worth to be kept.
const LEAST_CHUNK: usize = if cfg!(debug_assertions) {
    1 << 10
} else {
    128 << 10
};
/// Memory for bytes that move has a multiple of so many bytes: those of a large page.
const UNIT: usize = if cfg!(debug_assertions) {
    4 << 10
} else {
    2 << 20
};

/// Memory that no work uses at the moment. It counts for no user.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Moves take elements from many places at a time, so a processor has more of them at hand in large pages.
    moving: Pieces<LargePages>,
    chunks: Pieces<Vec<u8>>,
}

/// Pieces of memory of any content, each with its reservation.
#[derive(Debug)]
struct Pieces<T>(Mutex<Vec<(T, Reservation)>>);

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces(Mutex::default())
    }
}

/// Scratch memory in use. It goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    of: &'a Pieces<LargePages>,
    piece: Option<(LargePages, Reservation)>,
    len: usize,
}

impl<T: Deref<Target = [u8]>> Pieces<T> {
    /// A piece of at least `len` bytes, or else one made with a new reservation.
    fn take(
        &self,
        task: &Task,
        len: usize,
        new: impl FnOnce(&mut Reservation) -> Result<T, Shortage>,
    ) -> Result<(T, Reservation), Shortage> {
        let large_enough = {
            let mut kept = self.0.lock();
            let found = kept.iter().rposition(|(bytes, _)| bytes.len() >= len);
            // A piece that is too small would never go.
            found
                .map(|at| kept.swap_remove(at))
                .ok_or_else(|| kept.pop())
        };
        match large_enough {
            Ok(piece) => Ok(piece),
            Err(too_small) => {
                drop(too_small);
                let mut reservation = task.reservation();
                Ok((new(&mut reservation)?, reservation))
            }
        }
    }

    fn put(&self, piece: (T, Reservation)) {
        piece.1.release_share();
        let mut kept = self.0.lock();
        if kept.len() < MOST && piece.0.len() <= LARGEST {
            kept.push(piece);
        }
    }

    fn drop_one(&self) -> bool {
        let piece = self.0.lock().pop();
        piece.is_some()
    }

    fn bytes(&self) -> u64 {
        let kept = self.0.lock();
        kept.iter()
            .map(|(_, reservation)| reservation.bytes())
            .sum()
    }
}

impl Scratch {
    /// `len` bytes of any content.
    pub fn take(&self, task: &Task, len: usize) -> Result<Lent<'_>, Shortage> {
        let piece = self.moving.take(task, len, |reservation| {
            let all = len.checked_next_multiple_of(UNIT).unwrap_or(len);
            reservation.grow(all as u64)?;
            LargePages::zeroed(all)
        });
        Ok(Lent {
            of: &self.moving,
            piece: Some(piece?),
            len,
        })
    }

    /// Memory of any content for a chunk of `len` bytes.
    pub fn chunk(&self, task: &Task, len: usize) -> Result<Reserved<Vec<u8>>, Shortage> {
        let new = |reservation: &mut Reservation| reservation.filled(len);
        let (mut bytes, reservation) = if len < LEAST_CHUNK {
            let mut reservation = task.reservation();
            (new(&mut reservation)?, reservation)
        } else {
            self.chunks.take(task, len, new)?
        };
        bytes.truncate(len);
        Ok(Reserved::new(bytes, reservation))
    }

    /// Takes the memory of a chunk that nobody needs any more.
    pub fn give_back(&self, chunk: Reserved<Vec<u8>>) {
        let (bytes, reservation) = chunk.into_parts();
        if bytes.len() >= LEAST_CHUNK {
            self.chunks.put((bytes, reservation));
        }
    }

    /// Gives a piece back to the system. Returns whether there was one.
    pub fn drop_one(&self) -> bool {
        self.chunks.drop_one() || self.moving.drop_one()
    }

    /// Bytes that are kept now.
    pub fn bytes(&self) -> u64 {
        self.chunks.bytes() + self.moving.bytes()
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let piece = self.piece.as_ref();
        piece.map_or(&[], |(bytes, _)| &bytes[..self.len])
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let piece = self.piece.as_mut();
        piece.map_or(&mut [], |(bytes, _)| &mut bytes[..self.len])
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.of.put(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_common::memory::Memory;

    #[test]
    fn memory_goes_from_work_to_work_and_counts_for_no_user_between() {
        let memory = Memory::new(10 * UNIT as u64, None);
        let task = Task::new(&memory, Some(7));
        let scratch = Scratch::default();
        let used = || (memory.used() as usize, scratch.bytes() as usize);
        {
            let mut lent = scratch.take(&task, 3 * UNIT + 1).unwrap();
            assert_eq!(lent.len(), 3 * UNIT + 1);
            lent.fill(9);
            // A user may have half of the memory.
            assert!(task.reserve(UNIT as u64 + 1).is_err());
        }
        assert_eq!(used(), (4 * UNIT, 4 * UNIT));
        {
            let lent = scratch.take(&task, 2 * UNIT).unwrap();
            assert!(lent.iter().eq([9; 2 * UNIT].iter()));
            assert_eq!(used(), (4 * UNIT, 0));
            assert!(task.reserve(5 * UNIT as u64).is_ok());
        }
        // A piece that is too small goes.
        drop(scratch.take(&task, 5 * UNIT).unwrap());
        assert_eq!(used(), (5 * UNIT, 5 * UNIT));
        assert!(scratch.drop_one() && !scratch.drop_one());
        assert_eq!(used(), (0, 0));
    }

    #[test]
    fn the_memory_of_a_chunk_serves_for_others_that_are_no_larger() {
        let (task, scratch) = (Task::unlimited(), Scratch::default());
        let chunk = |len: usize| {
            let chunk = scratch.chunk(&task, len).unwrap();
            assert_eq!(chunk.len(), len);
            chunk
        };
        let first = chunk(3 * LEAST_CHUNK);
        let place = first.as_ptr();
        scratch.give_back(first);
        let second = chunk(2 * LEAST_CHUNK);
        assert_eq!(second.as_ptr(), place);
        scratch.give_back(second);
        scratch.give_back(chunk(LEAST_CHUNK - 1));
        // The memory of a small chunk is not worth a place.
        assert!(scratch.drop_one() && !scratch.drop_one());
    }
}
