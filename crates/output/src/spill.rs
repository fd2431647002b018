//! Extents that a rank writes on its own, before the flush: its buffer was full.
//!
//! They count with the next flush. A rank with its own data file spills there, after the last flush. Ranks that share the
//! file each spill into a file of their own. The flush then assigns each rank its place in the data file, and moves the
//! extents there. The spill file has a name, so that its content is found if the job is killed. It is made when it is needed,
//! is empty after each flush, and is removed when the log is closed.
//!
//! Ranks that spill much can spill into the shared data file ([`Spill::share`]). They take their places one after the other,
//! under a lock of that file, and none waits for another one's data. But each flush then begins with a reduction, so that all
//! ranks learn how far the file is used. The lock works on one node only.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::held::log_of;
use h5logfs_log::journal::{HeldFile, parent};
use h5logfs_log::logvol::extent::move_extent;
use h5logfs_log::rights::limit;

use crate::extent::{has_locks, take_place, write_all};
use crate::late::when_there;
use crate::ranks::Ranks;

/// The place of a rank's spilled extents.
enum Place {
    /// Into the data file, which no other rank writes.
    Alone,
    /// Into the data file, under its lock.
    Locked,
    /// A file of this rank, which holds extents one after the other from its first byte on.
    Aside(Aside),
}

/// A file of one rank alone.
struct Aside {
    path: PathBuf,
    /// `None` until it is needed.
    file: Option<HeldFile>,
}

impl Aside {
    /// Makes the file, in its directory. The directory must belong to this user: another owner could remove the file.
    fn create(&mut self) -> io::Result<()> {
        let dir = parent(&self.path);
        match DirBuilder::new().mode(0o777).create(dir) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        // Another rank may have made it, and this node may see new names late.
        let found = when_there(|| dir.symlink_metadata())?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            let reason = format!("{} is not a directory of this user", dir.display());
            return Err(io::Error::other(Fault::Refused(reason)));
        }
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let created = when_there(|| options.open(&self.path));
        let created = created.and_then(|file| {
            // Users who may not read the log may not read its spilled data.
            if let Some(log) = log_of(&self.path) {
                limit(&file, &log)?;
            }
            HeldFile::new(file, self.path.clone())
        });
        let about =
            |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()));
        self.file = Some(created.map_err(about)?);
        Ok(())
    }

    /// Removes the file, and the directory if it was the last one.
    fn remove(self) {
        let Some(file) = self.file else {
            return;
        };
        let removed = file.check_name();
        if let Err(e) = removed.and_then(|()| std::fs::remove_file(&self.path)) {
            log::warn!("{}: {e}", self.path.display());
        }
        // Other ranks may have files there.
        let _ = std::fs::remove_dir(parent(&self.path));
    }
}

/// Extents that a rank has spilled since the last flush.
pub(crate) struct Spill {
    /// The data file.
    data: Arc<File>,
    place: Place,
    /// Whether spilling is stopped: after a failed flush, until one is complete.
    stopped: bool,
    extents: Vec<Range<u64>>,
    /// Space whose write failed, with the headers that turn it into gaps.
    gaps: Vec<(u64, Vec<u8>)>,
    /// End of all places of this rank.
    end: u64,
}

impl Spill {
    /// Spills for a data file that these ranks share, which this rank has opened as `data`. `aside`: path of a spill file for
    /// this rank alone, if it needs one.
    pub fn new(aside: PathBuf, data: &Arc<File>, ranks: &Ranks) -> Self {
        Spill {
            data: Arc::clone(data),
            place: if ranks.size() > 1 {
                Place::Aside(Aside {
                    path: aside,
                    file: None,
                })
            } else {
                Place::Alone
            },
            stopped: false,
            extents: Vec::new(),
            gaps: Vec::new(),
            end: 0,
        }
    }

    /// Lets these ranks, which share the data file, spill into it, if they run on one node and its file system has locks.
    /// Collective.
    pub fn share(&mut self, ranks: &Ranks) {
        if ranks.size() > 1 && ranks.are_on_one_node() && has_locks(&self.data) {
            self.place = Place::Locked;
        }
    }

    /// Whether this rank spills into the data file.
    pub fn is_in_place(&self) -> bool {
        !matches!(self.place, Place::Aside(_))
    }

    /// Whether other ranks spill into the data file, too. The same on all of them.
    pub fn is_locked(&self) -> bool {
        matches!(self.place, Place::Locked)
    }

    /// The spill file of this rank, if its extents wait there.
    pub fn own(&self) -> Option<&File> {
        match &self.place {
            Place::Aside(aside) => aside.file.as_ref().map(HeldFile::file),
            Place::Alone | Place::Locked => None,
        }
    }

    /// End of all that this rank has spilled into the data file; 0 without any.
    pub fn end(&self) -> u64 {
        if self.is_in_place() { self.end } else { 0 }
    }

    /// Bytes that the flush must move into the data file.
    pub fn waiting(&self) -> u64 {
        if self.is_in_place() { 0 } else { self.end }
    }

    pub fn extents(&self) -> &[Range<u64>] {
        &self.extents
    }

    /// Reserves `len` bytes of the file, whose last flush ends at `flushed`.
    pub fn place(&mut self, flushed: u64, len: u64) -> io::Result<u64> {
        if self.stopped {
            let reason = "a full buffer has to wait for a flush here";
            return Err(io::Error::other(Fault::Refused(reason.into())));
        }
        let offset = match &mut self.place {
            Place::Alone => flushed.max(self.end),
            Place::Locked => take_place(&self.data, flushed, len)?,
            Place::Aside(aside) => {
                if aside.file.is_none() {
                    aside.create()?;
                }
                self.end
            }
        };
        self.end = offset + len;
        Ok(offset)
    }

    /// Writes an extent at its place. After a failure the place becomes a gap: an extent with the header `gap`.
    pub fn write(&mut self, offset: u64, pieces: &[&[u8]], gap: &[u8]) -> io::Result<()> {
        let file = self.own().unwrap_or(&self.data);
        match write_all(file, pieces, offset) {
            Ok(end) => {
                self.extents.push(offset..end);
                Ok(())
            }
            Err(e) if !self.is_in_place() => {
                // The next extent takes this place.
                self.end = offset;
                Err(e)
            }
            Err(e) => {
                self.gaps.push((offset, gap.to_vec()));
                Err(e)
            }
        }
    }

    /// Copies the waiting extents into the data file, from `offset` on.
    pub fn move_to(&self, offset: u64) -> io::Result<()> {
        let Some(own) = self.own() else {
            return Ok(());
        };
        self.extents.iter().try_for_each(|extent| {
            move_extent(own, extent.start, &self.data, extent.start + offset)
        })
    }

    /// Turns places whose write failed into gaps. Otherwise the extents after them could not be found.
    pub fn close_gaps(&mut self) -> io::Result<()> {
        while let Some((offset, header)) = self.gaps.last() {
            self.data.write_all_at(header, *offset)?;
            // The file must reach to the end of the gap.
            if self.data.metadata()?.len() < self.end {
                self.data.set_len(self.end)?;
            }
            self.gaps.pop();
        }
        Ok(())
    }

    /// Cuts the data file off at `end`, after all that was spilled into it.
    pub fn cut(&self, end: u64) -> io::Result<()> {
        if self.data.metadata()?.len() > end {
            self.data.set_len(end)?;
        }
        Ok(())
    }

    /// Stops spilling until the next flush is complete.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn set_committed(&mut self) {
        if self.waiting() > 0
            && let Some(Err(e)) = self.own().map(|own| own.set_len(0))
        {
            // The next extents overwrite it.
            log::warn!("the space of spilled data is not free: {e}");
        }
        self.extents.clear();
        self.stopped = false;
        self.end = 0;
    }

    /// Ends spilling. All is flushed, and the log is closed, or is about to be.
    pub fn close(self) {
        if let Place::Aside(aside) = self.place
            && self.extents.is_empty()
        {
            aside.remove();
        }
    }
}
