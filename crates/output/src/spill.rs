//! Extents that a rank writes on its own, before the flush: its buffer was full.
//!
//! They lie in the rank's data file, behind the last flush, and count with the next one. Ranks that share a data file
//! take their places in it one after the other, under a lock of that file, and none waits for another one's data.
//!
//! The lock of a file tells on one node only. Where the ranks of several nodes share a data file, each rank spills into a
//! file of its own, which has no name. The flush moves the extents from there into the data file, where each rank knows its
//! place then.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use h5logfs_log::logvol::extent::{ExtentHeader, crc32};
use rustix::fs::{FlockOperation, flock};

use crate::entries::shift_offsets;
use crate::ranks::Ranks;

/// Bytes that are moved at once.
const MOVED: u64 = 4 << 20;

/// What a rank has spilled since the last flush.
#[derive(Default)]
pub(crate) struct Spill {
    /// The data file. `None`: this rank does not spill.
    data: Option<Arc<File>>,
    /// Other ranks write to the data file.
    is_shared: bool,
    /// The file of this rank alone, where it has one. It holds extents one behind the other, from its first byte on.
    own: Option<File>,
    /// After a flush that failed, until one is complete.
    stopped: bool,
    extents: Vec<Range<u64>>,
    /// Space that could not be written, and the headers that make gaps of it.
    gaps: Vec<(u64, Vec<u8>)>,
    /// Behind all places of this rank.
    end: u64,
}

impl Spill {
    /// For a data file that these ranks share, which this rank has opened as `data`. Collective.
    pub fn open(data_path: &Path, data: Arc<File>, ranks: &Ranks) -> Result<Self, String> {
        let is_shared = ranks.size() > 1;
        let about = |e: io::Error| format!("{}: {e}", data_path.display());
        let own = if is_shared && ranks.node().of > 1 {
            let dir = data_path.parent().filter(|dir| *dir != Path::new(""));
            let made = tempfile::tempfile_in(dir.unwrap_or(Path::new(".")));
            Some(made.map_err(about)?)
        } else {
            None
        };
        Ok(Spill {
            data: Some(data),
            is_shared,
            own,
            ..Spill::default()
        })
    }

    /// Whether a rank of the data file may spill. The same on all of them.
    pub fn is_allowed(&self) -> bool {
        self.data.is_some()
    }

    /// The file of this rank alone, where its extents wait for the flush.
    pub fn own(&self) -> Option<&File> {
        self.own.as_ref()
    }

    /// Behind all that this rank has spilled into the data file; 0 without any.
    pub fn end(&self) -> u64 {
        self.own.as_ref().map_or(self.end, |_| 0)
    }

    /// Bytes that the flush has to move into the data file.
    pub fn waiting(&self) -> u64 {
        self.own.as_ref().map_or(0, |_| self.end)
    }

    pub fn extents(&self) -> &[Range<u64>] {
        &self.extents
    }

    /// Takes `len` bytes of the file, whose last flush ends at `flushed`.
    pub fn place(&mut self, flushed: u64, len: u64) -> io::Result<u64> {
        let Some(file) = self.data.as_ref().filter(|_| !self.stopped) else {
            return Err(io::Error::other(
                "a full buffer has to wait for a flush here",
            ));
        };
        let offset = if self.own.is_some() {
            self.end
        } else if self.is_shared {
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
        let Some(file) = self.own.as_ref().or(self.data.as_deref()) else {
            return Err(io::Error::other("it has no place in the file"));
        };
        match write_all(file, pieces, offset) {
            Ok(end) => {
                self.extents.push(offset..end);
                Ok(())
            }
            Err(e) if self.own.is_some() => {
                // The next extent takes its place.
                self.end = offset;
                Err(e)
            }
            Err(e) => {
                self.gaps.push((offset, gap.to_vec()));
                Err(e)
            }
        }
    }

    /// Copies what waits into the data file, from `offset` on.
    pub fn move_to(&self, offset: u64) -> io::Result<()> {
        let (Some(own), Some(data)) = (&self.own, &self.data) else {
            return Ok(());
        };
        for extent in &self.extents {
            move_extent(own, extent, data, offset)?;
        }
        Ok(())
    }

    /// Makes gaps of the places that could not be written. Without that, what follows them cannot be found.
    pub fn close_gaps(&mut self) -> io::Result<()> {
        let Some(file) = &self.data else {
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
        match &self.data {
            Some(file) if file.metadata()?.len() > end => file.set_len(end),
            _ => Ok(()),
        }
    }

    /// Lets nothing more be spilled before the next flush is complete.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn set_committed(&mut self) {
        if self.waiting() > 0
            && let Some(Err(e)) = self.own.as_ref().map(|own| own.set_len(0))
        {
            // What comes next is written over it.
            log::warn!("the space of what was spilled is not free: {e}");
        }
        self.extents.clear();
        self.stopped = false;
        self.end = 0;
    }
}

/// Copies one extent of a file into another one, where its first byte is as much further behind as `by`.
fn move_extent(from: &File, extent: &Range<u64>, to: &File, by: u64) -> io::Result<()> {
    let mut bytes = [0; ExtentHeader::SIZE as usize];
    from.read_exact_at(&mut bytes, extent.start)?;
    let header = ExtentHeader::from_bytes(&bytes);
    let mut header = header.ok_or_else(|| io::Error::other("what was spilled has changed"))?;
    let mut entries = vec![0; header.entries as usize];
    let mut at = extent.start + ExtentHeader::SIZE;
    from.read_exact_at(&mut entries, at)?;
    shift_offsets(&mut entries, by);
    header.entries_crc = crc32(&entries);
    write_all(to, &[&header.to_bytes(), &entries], extent.start + by)?;
    at += header.entries;
    let mut data = vec![0; MOVED.min(extent.end - at) as usize];
    while at < extent.end {
        let piece = MOVED.min(extent.end - at) as usize;
        from.read_exact_at(&mut data[..piece], at)?;
        to.write_all_at(&data[..piece], at + by)?;
        at += piece as u64;
    }
    Ok(())
}

/// Writes pieces one behind the other, and returns where they end. One system call, unless the system takes less at once.
pub(crate) fn write_all(file: &File, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
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
