//! Extents that a rank writes on its own, before the flush: its buffer was full.
//!
//! They lie in the rank's data file, behind the last flush, and count with the next one. Ranks that share a data file
//! take their places in it one after the other, under a lock of that file, and none waits for another one's data. The
//! lock of a file tells on one node only; where the ranks of several nodes share a data file, none of them spills there.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::ranks::Ranks;

/// What a rank has spilled since the last flush.
#[derive(Default)]
pub(crate) struct Spill {
    /// `None`: this rank does not spill.
    file: Option<File>,
    /// Other ranks write to the file.
    is_shared: bool,
    /// After a flush that failed, until one is complete.
    stopped: bool,
    extents: Vec<Range<u64>>,
    /// Space that could not be written, and the headers that make gaps of it.
    gaps: Vec<(u64, Vec<u8>)>,
    /// Behind all places of this rank.
    end: u64,
}

impl Spill {
    /// For a data file that these ranks share. Collective.
    pub fn open(path: &Path, data_path: &Path, ranks: &Ranks) -> Result<Self, String> {
        let is_shared = ranks.size() > 1;
        if is_shared && ranks.nodes() > 1 {
            log::info!(
                "{}: ranks of several nodes share a data file, so full buffers wait for a flush",
                path.display()
            );
            return Ok(Spill::default());
        }
        let opened = OpenOptions::new().read(true).write(true).open(data_path);
        Ok(Spill {
            file: Some(opened.map_err(|e| format!("{}: {e}", data_path.display()))?),
            is_shared,
            ..Spill::default()
        })
    }

    /// Whether a rank of the data file may spill. The same on all of them.
    pub fn is_allowed(&self) -> bool {
        self.file.is_some()
    }

    /// Behind all that this rank has spilled; 0 without any.
    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn extents(&self) -> &[Range<u64>] {
        &self.extents
    }

    /// Takes `len` bytes of the file, whose last flush ends at `flushed`.
    pub fn place(&mut self, flushed: u64, len: u64) -> io::Result<u64> {
        let Some(file) = self.file.as_ref().filter(|_| !self.stopped) else {
            return Err(io::Error::other(
                "a full buffer has to wait for a flush here",
            ));
        };
        let offset = if self.is_shared {
            flock(file, FlockOperation::LockExclusive)?;
            let placed = take(file, flushed, len);
            flock(file, FlockOperation::Unlock)?;
            placed?
        } else {
            flushed.max(self.end)
        };
        self.end = offset + len;
        Ok(offset)
    }

    /// Writes an extent at its place. Where that fails, the place becomes a gap: an extent with the header `gap`.
    pub fn write(&mut self, offset: u64, pieces: &[&[u8]], gap: &[u8]) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Err(io::Error::other("it has no place in the file"));
        };
        match write_all(file, pieces, offset) {
            Ok(end) => {
                self.extents.push(offset..end);
                Ok(())
            }
            Err(e) => {
                self.gaps.push((offset, gap.to_vec()));
                Err(e)
            }
        }
    }

    /// Makes gaps of the places that could not be written. Without that, what follows them cannot be found.
    pub fn close_gaps(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        while let Some((offset, header)) = self.gaps.last() {
            file.write_all_at(header, *offset)?;
            // The file has to reach to the end of the gap.
            if file.metadata()?.len() < self.end {
                file.set_len(self.end)?;
            }
            self.gaps.pop();
        }
        Ok(())
    }

    /// Cuts the file off at `end`, behind all that was spilled.
    pub fn cut(&self, end: u64) -> io::Result<()> {
        match &self.file {
            Some(file) if file.metadata()?.len() > end => file.set_len(end),
            _ => Ok(()),
        }
    }

    /// Lets nothing more be spilled before the next flush is complete.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn set_committed(&mut self) {
        self.extents.clear();
        self.stopped = false;
        self.end = 0;
    }
}

/// Writes pieces one behind the other, and returns where they end. One system call, unless the system takes less at once.
fn write_all(file: &File, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut done = rustix::io::pwritev(file, &slices, offset)? as u64;
    let mut at = offset;
    for piece in pieces {
        let skip = done.min(piece.len() as u64);
        file.write_all_at(&piece[skip as usize..], at + skip)?;
        done -= skip;
        at += piece.len() as u64;
    }
    Ok(at)
}

/// Takes `len` bytes behind the end of a locked file.
fn take(file: &File, flushed: u64, len: u64) -> io::Result<u64> {
    let offset = file.metadata()?.len().max(flushed);
    let end = offset.checked_add(len);
    let end = end.ok_or_else(|| io::Error::other("the file would have more than 2^63 bytes"))?;
    file.set_len(end)?;
    Ok(offset)
}
