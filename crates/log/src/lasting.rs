//! The part of a closed log that stays in its place when a program opens the log again: its extents. An append writes
//! after the extents, over the table and the objects, and replaces the front (`docs/formats/journal.md`, section 2.6).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;

use crate::file_id::{FileId, MARK_END as FRONT};
use crate::front_bytes::{CloseSeal, begins_unclosed};

/// Largest number of reads of a front that a program may be writing at this moment.
const ATTEMPTS: usize = 100;

/// The part of a file that stays.
#[derive(Debug, Clone, Copy)]
pub struct Lasting {
    id: FileId,
    /// The end of the extents, from the seal of the close.
    end: u64,
}

/// The extents of a file, as its front describes them.
enum Front {
    /// The extents end at this offset or further on.
    Closed(u64),
    /// The log is not closed. Its extents only grow.
    Unclosed,
}

impl Lasting {
    /// The lasting part of a closed file of our writers. `None` for any other file, and for one that an earlier version
    /// closed.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        if FileId::of(file)?.is_none() {
            return Ok(None);
        }
        Ok(match Self::look(file)? {
            Some((id, Front::Closed(end))) => Some(Lasting { id, end }),
            _ => None,
        })
    }

    /// The end of the extents.
    pub fn end(self) -> u64 {
        self.end
    }

    /// Whether all of these bytes of the file stay.
    pub fn has(self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        offset >= FRONT && end.is_some_and(|end| end <= self.end)
    }

    /// Whether a file still has the extents: it is the same log, closed or not, and at least as long. A settled log is
    /// not recognized here.
    pub fn is_in(self, file: &File) -> io::Result<bool> {
        for _ in 0..ATTEMPTS {
            match Self::look(file)? {
                Some((id, front)) => {
                    let end = match front {
                        Front::Closed(end) => end,
                        Front::Unclosed => file.metadata()?.len(),
                    };
                    return Ok(id == self.id && end >= self.end);
                }
                None => thread::yield_now(),
            }
        }
        Ok(false)
    }

    /// `None` where the front is incomplete, or not one of our writers'.
    fn look(file: &File) -> io::Result<Option<(FileId, Front)>> {
        let mut front = vec![0; FRONT as usize];
        match file.read_exact_at(&mut front, 0) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        Ok(FileId::in_front(&front).zip(Front::of(&front)))
    }
}

impl Front {
    fn of(front: &[u8]) -> Option<Self> {
        if begins_unclosed(front) {
            return Some(Front::Unclosed);
        }
        let seal = CloseSeal::of(front).ok()??;
        let is_whole = seal.is_of(front) && seal.closed.end >= FRONT;
        is_whole.then_some(Front::Closed(seal.closed.end))
    }
}
