//! The files that hold log bytes: their identities, and reads of their bytes with `pread`.

use std::fmt::Debug;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};

use super::arrangement::Arrangement;
use super::counters::ReadCounter;
use super::file_id::FileId;
use super::lasting::Lasting;
use super::on_demand::OnDemand;
use super::settled::is_settled;
use super::settled::state::SettledState;
use super::source_dir::{SourceDir, SourcePath};
use h5logfs_common::error::{Error, Result, is_stale};
use h5logfs_common::fault::Fault;
use h5logfs_common::held_file::HeldFile;
use h5logfs_common::stats::Stats;

/// Identifies a file in one state: files of the same identity have the same bytes and the same owner, which decides to
/// which log they belong (see [`ownership`](super::ownership)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification, in seconds and nanoseconds.
    pub modified: (i64, i64),
    /// The user who owns it.
    pub owner: u32,
}

impl Identity {
    /// Whether it is the same file, in whatever state.
    pub fn is_same_file(&self, other: Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether the file whose identity is `now` still has this owner and these bytes. A job may append to a file that
    /// `grows`, so only its first `size` bytes count.
    pub fn is_still(&self, now: Identity, grows: bool) -> bool {
        self.owner == now.owner && self.has_bytes_in(now, grows)
    }

    /// Whether the file still has these bytes. The owner does not count: a program that has a file open reads on when
    /// its owner changes.
    fn has_bytes_in(&self, now: Identity, grows: bool) -> bool {
        let same_file = self.is_same_file(now);
        let is_unchanged = same_file && (self.size, self.modified) == (now.size, now.modified);
        is_unchanged || (grows && same_file && self.size <= now.size)
    }
}

/// Device, inode number, and the time of birth where the file system records it.
pub type Individual = (u64, u64, Option<SystemTime>);

/// Identifies a file in all its states. A removed file whose inode number was used again is another one.
pub fn individual(file: &Metadata) -> Individual {
    (file.dev(), file.ino(), file.created().ok())
}

impl From<&Metadata> for Identity {
    fn from(m: &Metadata) -> Self {
        Identity {
            device: m.dev(),
            inode: m.ino(),
            size: m.size(),
            modified: (m.mtime(), m.mtime_nsec()),
            owner: m.uid(),
        }
    }
}

impl From<&Stat> for Identity {
    // The types of the fields of `Stat` differ from one processor to the next.
    #[allow(clippy::unnecessary_cast)]
    fn from(stat: &Stat) -> Self {
        Identity {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            owner: stat.st_uid,
        }
    }
}

/// Compares data of a file with their checksums before they are used.
pub trait Guard: Debug + Send + Sync {
    /// Fails where these bytes of `file` do not match their checksums.
    fn check(&self, file: &SourceFile, offset: u64, len: u64) -> Result<(), Fault>;
}

/// One file that holds log bytes, open for reading, in the state in which the scan saw it. A file that
/// holds several logs is one `SourceFile` for each of them.
///
/// A file server may forget the open file (ESTALE), for example when it restarts. The file is then opened again by its
/// name, and must be the same file.
#[derive(Debug)]
pub struct SourceFile {
    file: Opened,
    path: PathBuf,
    origin: Option<Origin>,
    identity: Identity,
    on_disk: u64,
    grows: bool,
    /// Identifier of a file that grows. Another file with the same inode number may have grown, too.
    id: Option<FileId>,
    /// The part of a closed file that stays in its place when the log is opened again.
    lasting: Option<Lasting>,
    arrangement: Arrangement,
    guard: Option<Arc<dyn Guard>>,
    read: ReadCounter,
}

/// An open file, or one that is opened when it is read.
#[derive(Debug)]
enum Opened {
    Held(HeldFile),
    OnDemand(OnDemand),
}

/// The place at which a file was opened.
#[derive(Debug)]
struct Origin {
    dir: SourceDir,
    relative: PathBuf,
}

/// Bytes of a file on the disk. Holes do not count.
pub fn bytes_on_disk(found: &Metadata) -> u64 {
    found.len().min(found.blocks().saturating_mul(512))
}

impl SourceFile {
    /// The file at `relative` below `dir`.
    pub fn open(dir: &SourceDir, relative: &Path) -> Result<Self> {
        let path = dir.full_path(relative);
        let file = dir.open_file(relative);
        let file = file.and_then(|file| Self::new(file, path.clone()));
        let file = file.map_err(|e| Error::io(path, e))?;
        Ok(file.opened_at(dir, relative))
    }

    /// The source for an open file; `path` is its path as a user knows it.
    pub fn new(file: File, path: PathBuf) -> io::Result<Self> {
        let found = file.metadata()?;
        let opened = Opened::Held(HeldFile::new(file)?);
        let file = Self::of(opened, path, Identity::from(&found));
        Ok(SourceFile {
            on_disk: bytes_on_disk(&found),
            ..file
        })
    }

    fn of(file: Opened, path: PathBuf, identity: Identity) -> Self {
        SourceFile {
            file,
            path,
            origin: None,
            identity,
            on_disk: identity.size,
            grows: false,
            id: None,
            lasting: None,
            arrangement: Arrangement::Whole,
            guard: None,
            read: ReadCounter::default(),
        }
    }

    /// The file at `place` below `dir`, in this state, which is opened when it is read. It has no descriptor of its own. Reads
    /// fail with [`Error::Changed`] where it is not in this state. Its owner belongs to the state, so the check of the scan
    /// whether the file belongs to the log holds.
    pub fn on_demand(dir: &SourceDir, place: &SourcePath, identity: Identity) -> Result<Self> {
        let dir = dir.of(place).map_err(|e| Error::io(&place.path, e))?;
        let file = OnDemand::new(dir.alone(), place.path.clone());
        let path = dir.full_path(&place.path);
        Ok(Self::of(Opened::OnDemand(file), path, identity))
    }

    /// Lets the file be closed while others are read more. It is opened again when it is read, and must then be in the
    /// same state. A file of which no place is known stays open.
    pub fn closed_between_reads(self) -> Self {
        let file = match (self.file, &self.origin) {
            (Opened::Held(file), Some(Origin { dir, relative })) => {
                Opened::OnDemand(OnDemand::of_open(dir.alone(), relative.clone(), file))
            }
            (file, _) => file,
        };
        SourceFile { file, ..self }
    }

    /// Closes the descriptors of the file and of its directory until they are needed again. A file that is not
    /// [closed between reads](SourceFile::closed_between_reads) stays open.
    pub fn release(&self) {
        if let Opened::OnDemand(file) = &self.file {
            file.release();
        }
    }

    /// Records that the file was opened at `relative` below `dir`. It may be opened there again.
    pub(super) fn opened_at(self, dir: &SourceDir, relative: &Path) -> Self {
        let origin = Origin {
            dir: dir.alone(),
            relative: relative.to_owned(),
        };
        SourceFile {
            origin: Some(origin),
            ..self
        }
    }

    /// The file at `place`, below `dir` or one of its further directories.
    pub fn open_at(dir: &SourceDir, place: &SourcePath) -> Result<Self> {
        match dir.of(place) {
            Ok(dir) => Self::open(dir, &place.path),
            Err(e) => Err(Error::io(&place.path, e)),
        }
    }

    /// A second descriptor of the file, for code that takes files.
    pub fn to_file(&self) -> io::Result<File> {
        let clone = |file: &File| file.try_clone();
        match &self.file {
            Opened::Held(file) => clone(file),
            Opened::OnDemand(file) => {
                let open = file.open(|file| self.is_same(file))?;
                clone(&*open.ok_or(io::ErrorKind::NotFound)?)
            }
        }
    }

    /// The descriptor of the file; `None` for a file that is opened when it is read.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.file {
            Opened::Held(file) => Some(file.as_fd()),
            Opened::OnDemand(_) => None,
        }
    }

    /// Counts all reads of the file in `stats`, too.
    pub fn counted_in(self, stats: Arc<Stats>) -> Self {
        SourceFile {
            read: ReadCounter::with_stats(stats),
            ..self
        }
    }

    /// Sets the arrangement of the bytes. Fails where the file cannot have it.
    pub fn arranged(mut self, arrangement: Arrangement) -> Result<Self> {
        let checked = arrangement.check();
        let checked = checked.and_then(|()| arrangement.check_in(self.identity.size));
        checked.map_err(|e| Error::of(&self.path, e))?;
        self.arrangement = arrangement;
        Ok(self)
    }

    /// Adds a guard. Data are read only after `guard` has compared them with their checksums.
    pub fn guarded_by(self, guard: Arc<dyn Guard>) -> Self {
        SourceFile {
            guard: Some(guard),
            ..self
        }
    }

    /// Allows reads of a closed log of our writers after a program opens it again and appends to it. Its extents can be
    /// read for as long as they stay in their place. All other bytes must be those of the file as it was opened.
    pub fn with_lasting(self) -> Result<Self> {
        let found = self.with_file(Lasting::of)?;
        // The front counts only if it was read in the state in which the file was opened.
        let lasting = found.filter(|_| !self.grows && self.is_as_opened().unwrap_or(false));
        Ok(SourceFile { lasting, ..self })
    }

    /// The end of the extents that can be read after an append; `None` where nothing can.
    pub fn lasting_end(&self) -> Option<u64> {
        self.lasting.map(|lasting| lasting.end())
    }

    /// Whether the file is in the state in which it was opened. No byte has changed then, as far as the state tells.
    pub fn is_as_opened(&self) -> Result<bool> {
        let now = Identity::from(&self.metadata()?);
        Ok(self.identity.has_bytes_in(now, false))
    }

    /// The identifier of a file that our writer made; `None` for other files.
    pub fn file_id(&self) -> Result<Option<FileId>> {
        self.with_file(FileId::of)
    }

    /// The bytes of the file that belong to the source.
    pub fn arrangement(&self) -> &Arrangement {
        &self.arrangement
    }

    /// Limits the source to the first `len` bytes of the file. No writer changes them any more, but a job may append to
    /// the file. Fails where the file is shorter.
    pub fn first_bytes(mut self, len: u64) -> Result<Self> {
        self.set_len(len)?;
        Ok(self)
    }

    /// Sets the limit of [`SourceFile::first_bytes`].
    pub fn set_len(&mut self, len: u64) -> Result<()> {
        // The file may have grown since it was opened, before the journal was read.
        if self.identity.size < len {
            self.identity = Identity::from(&self.metadata()?);
        }
        if self.identity.size < len {
            let reason = format!(
                "it has {} bytes, where the journal speaks of {len}",
                self.identity.size
            );
            return Err(Error::of(&self.path, reason));
        }
        if self.origin.is_some() {
            self.id = self.file_id()?;
        }
        self.identity.size = len;
        self.grows = true;
        Ok(())
    }

    /// Path of the file as a user knows it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a job may append to the file.
    pub fn grows(&self) -> bool {
        self.grows
    }

    /// Identity of the file as it was opened.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Bytes read from the file so far, by all threads.
    pub fn bytes_read(&self) -> u64 {
        self.read.bytes()
    }

    /// Bytes of the source when it was opened, without the zeros after its end.
    pub fn len(&self) -> u64 {
        self.arrangement.len(self.identity.size)
    }

    /// Bytes on the disk when the file was opened.
    pub fn bytes_on_disk(&self) -> u64 {
        self.on_disk
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `fstat` of the file now.
    pub fn metadata(&self) -> Result<Metadata> {
        self.with_file(File::metadata)
    }

    /// The state of the file now. A file that is opened when it is read need not be open.
    fn identity_now(&self) -> Result<Identity> {
        match &self.file {
            Opened::Held(_) => Ok(Identity::from(&self.metadata()?)),
            Opened::OnDemand(file) => file.identity().map_err(|e| Error::io(&self.path, e)),
        }
    }

    /// Whether the file has no name left, as far as this node knows. Asks no file server.
    pub fn is_unlinked(&self) -> bool {
        match &self.file {
            Opened::Held(file) => file.is_unlinked(),
            Opened::OnDemand(file) => file.is_unlinked(),
        }
    }

    /// Calls `act` with the open file, and once more if the file had to be opened again.
    pub fn with_file<T>(&self, mut act: impl FnMut(&File) -> io::Result<T>) -> Result<T> {
        let outcome = match &self.file {
            Opened::Held(file) => match act(file) {
                Err(e) if is_stale(&e) => {
                    self.reopen(file, e)?;
                    act(file)
                }
                outcome => outcome,
            },
            Opened::OnDemand(file) => match self.act_on(file, &mut act)? {
                Err(e) if is_stale(&e) => {
                    file.close();
                    self.act_on(file, &mut act)?
                }
                outcome => outcome,
            },
        };
        outcome.map_err(|e| Error::io(&self.path, e))
    }

    fn act_on<T>(
        &self,
        file: &OnDemand,
        act: &mut impl FnMut(&File) -> io::Result<T>,
    ) -> Result<io::Result<T>> {
        let opened = file.open(|file| self.is_same(file));
        let opened = opened.map_err(|e| Error::io(&self.path, e))?;
        let opened = opened.ok_or_else(|| self.changed())?;
        Ok(act(&opened))
    }

    /// Opens the file again after the error `stale`. Fails with this error where the file no longer exists. Fails with
    /// [`Error::Changed`] where another file has its name, or where its bytes have changed.
    fn reopen(&self, file: &HeldFile, stale: io::Error) -> Result<()> {
        let again = |origin: &Origin| origin.dir.open_file(&origin.relative).ok();
        let Some(again) = self.origin.as_ref().and_then(again) else {
            return Err(Error::io(&self.path, stale));
        };
        let is_same = self.is_same(&again);
        if !is_same.map_err(|e| Error::io(&self.path, e))? {
            return Err(self.changed());
        }
        log::debug!("{}: stale, opened again", self.path.display());
        let replaced = file.replace_by(again);
        replaced.map_err(|_| Error::io(&self.path, stale))
    }

    /// Whether `again` is this file, with these bytes.
    fn is_same(&self, again: &File) -> io::Result<bool> {
        let now = Identity::from(&again.metadata()?);
        let is_still = self.identity.is_still(now, self.grows);
        if let Some(lasting) = self.lasting.filter(|_| !is_still) {
            let is_own = self.identity.is_same_file(now) && self.identity.owner == now.owner;
            return Ok(is_own && lasting.is_in(again)? && !is_settled(again, now.size)?);
        }
        let has_id = !self.grows || self.id.is_some() && FileId::of(again)? == self.id;
        Ok(is_still && has_id)
    }

    fn changed(&self) -> Error {
        Error::Changed {
            path: self.path.clone(),
        }
    }

    /// Fails with [`Error::Changed`] where the file no longer has the bytes that the snapshot describes. This finds a
    /// longer file that was copied into it, too. The error says so where the file grew because it was settled. If the
    /// extents of a closed file [stay](SourceFile::with_lasting) in their place, only they count: all other bytes are
    /// compared as they are read.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = self.identity_now()?;
        let is_unchanged = self.identity.has_bytes_in(now, self.grows);
        let may_last = self.lasting.is_some() && self.identity.is_same_file(now);
        if !is_unchanged && !may_last {
            return Err(self.changed());
        }
        if is_unchanged && (!self.grows || now.modified == self.identity.modified) {
            return Ok(());
        }
        if self.is_settled()? {
            let reason =
                "it was settled since it was opened, and is no longer a log: open it again";
            return Err(Error::of(&self.path, reason));
        }
        // Another file may have been copied into this one.
        let is_own = match self.lasting {
            Some(lasting) => self.with_file(|file| lasting.is_in(file))?,
            None => self.id.is_none() || self.file_id()? == self.id,
        };
        if is_own { Ok(()) } else { Err(self.changed()) }
    }

    /// The settled state of the file, whose signature is at `signature`; `None` where it is no settled log.
    pub fn settled_state(&self, signature: u64) -> Result<Option<SettledState>> {
        self.with_file(|file| SettledState::of(file, file.metadata()?.len(), signature))
    }

    /// Whether the file was a log and is settled now: an ordinary HDF5 file.
    pub fn is_settled(&self) -> Result<bool> {
        self.with_file(|file| is_settled(file, file.metadata()?.len()))
    }

    /// Number of bytes from `offset` on that are contiguous in the file. More may follow after them.
    pub fn contiguous(&self, offset: u64) -> u64 {
        self.arrangement.locate(offset).map_or(0, |(_, left)| left)
    }

    /// The file offset of `len` bytes at `offset`. `None` where the source has fewer bytes, or where they are not
    /// contiguous in the file.
    pub fn one_piece(&self, offset: u64, len: u64) -> Option<u64> {
        let (place, contiguous) = self.arrangement.locate(offset)?;
        let end = place.checked_add(len)?;
        (len <= contiguous && end <= self.identity.size).then_some(place)
    }

    /// Whether the source has `len` bytes at `offset`. This does not read the file.
    pub fn has(&self, offset: u64, len: u64) -> bool {
        let end = offset.checked_add(len);
        end.is_some_and(|end| end <= self.len()) && self.arrangement.has(offset, len)
    }

    /// Fills `buf` from `offset`. Fails where the source has fewer bytes.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match &self.arrangement {
            Arrangement::Whole => self.read_file(buf, offset),
            Arrangement::ZerosAfter => {
                let there = self.len().saturating_sub(offset).min(buf.len() as u64);
                let (there, after) = buf.split_at_mut(there as usize);
                after.fill(0);
                if there.is_empty() {
                    return Ok(());
                }
                self.read_file(there, offset)
            }
            arrangement => self.read_blocks(arrangement, buf, offset),
        }
    }

    /// Reads bytes of the record tables as [`SourceFile::read_exact_at`] does. In a file with a guard these are
    /// entries, which have checksums of their own, so the guard is not asked.
    pub(super) fn read_table_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match &self.guard {
            None => self.read_exact_at(buf, offset),
            Some(_) => self.read_unguarded(buf, offset),
        }
    }

    fn read_blocks(&self, arrangement: &Arrangement, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let Some((place, left)) = arrangement.locate(at) else {
                let reason = format!("it has no bytes at {at}, of those that lie in blocks");
                let missing = io::Error::new(io::ErrorKind::UnexpectedEof, reason);
                return Err(Error::io(&self.path, missing));
            };
            let end = buf.len().min(done.saturating_add(left as usize));
            self.read_file(&mut buf[done..end], place)?;
            done = end;
        }
        Ok(())
    }

    /// Fills `buf` from `offset` in the file, without regard to the arrangement. All reads of data end here, so this is
    /// the one place that asks the guard.
    pub fn read_file(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if let Some(guard) = &self.guard {
            let checked = guard.check(self, offset, buf.len() as u64);
            checked.map_err(|reason| Error::of(&self.path, reason))?;
        }
        self.read_unguarded(buf, offset)
    }

    /// Reads as [`SourceFile::read_file`] does, but without the guard. For headers and entries of extents, which have
    /// checksums of their own; the caller or the scan has compared them.
    pub fn read_unguarded(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read.add(buf.len());
        let read = self.with_file(|file| {
            file.read_exact_at(buf, offset).map_err(|e| match e.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(
                    e.kind(),
                    format!("the file ends before {} bytes from {offset}", buf.len()),
                ),
                _ => e,
            })
        });
        let is_lasting = |lasting: &Lasting| lasting.has(offset, buf.len() as u64);
        match &self.lasting {
            // The state is compared after the read. Only then does it tell which state was read, or why nothing was.
            Some(lasting) if !is_lasting(lasting) && !self.is_as_opened()? => Err(self.changed()),
            _ => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(len: u64) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
        std::fs::write(dir.path().join("file"), &bytes).unwrap();
        (dir, bytes)
    }

    fn arranged(dir: &tempfile::TempDir, arrangement: Arrangement) -> SourceFile {
        let held = SourceDir::open(dir.path()).unwrap();
        let file = SourceFile::open(&held, Path::new("file")).unwrap();
        file.arranged(arrangement).unwrap()
    }

    fn read(source: &SourceFile, offset: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0xff; len];
        let read = source.read_exact_at(&mut bytes, offset);
        read.ok().map(|()| bytes)
    }

    #[test]
    fn channels_of_a_striped_file_are_all_of_it() {
        for len in [0, 1, 4, 5, 11, 12, 13, 24, 25, 29] {
            let (dir, bytes) = numbered(len);
            let mut channels = Vec::new();
            for channel in 0..3 {
                let source = arranged(
                    &dir,
                    Arrangement::Striped {
                        block: 4,
                        channel,
                        channels: 3,
                    },
                );
                let all = source.len();
                let own = read(&source, 0, all as usize).unwrap();
                assert_eq!(read(&source, all, 1), None);
                if all > 5 {
                    assert_eq!(read(&source, 3, 3).unwrap(), own[3..6]);
                }
                channels.push(own.into_iter());
            }
            let mut whole = Vec::new();
            while whole.len() < bytes.len() {
                let number = whole.len() / 4 % 3;
                whole.extend(channels[number].by_ref().take(4));
            }
            assert_eq!(whole, bytes);
            assert!(channels.iter_mut().all(|rest| rest.next().is_none()));
        }
    }

    #[test]
    fn a_file_that_was_closed_is_opened_again_if_it_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (own, moved) = (dir.path().join("own"), dir.path().join("moved"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(own.join("file"), "text").unwrap();
        let held = SourceDir::open(&own).unwrap().closed_between_uses();
        let file = SourceFile::open(&held.unwrap(), Path::new("file")).unwrap();
        let file = file.closed_between_reads();
        assert!(file.descriptor().is_none());
        let begin = || {
            let read = read(&file, 0, 2);
            file.release();
            read
        };
        assert_eq!(begin(), Some(b"te".to_vec()));
        assert_eq!(begin(), Some(b"te".to_vec()));
        // Another directory, and another file.
        std::fs::rename(&own, &moved).unwrap();
        assert_eq!(begin(), None);
        std::fs::create_dir(&own).unwrap();
        std::fs::hard_link(moved.join("file"), own.join("file")).unwrap();
        assert_eq!(begin(), None);
        std::fs::remove_dir_all(&own).unwrap();
        std::fs::rename(&moved, &own).unwrap();
        assert_eq!(begin(), Some(b"te".to_vec()));
        std::fs::write(own.join("other"), "text").unwrap();
        std::fs::rename(own.join("other"), own.join("file")).unwrap();
        let changed = file.read_exact_at(&mut [0; 2], 0);
        assert!(matches!(changed, Err(Error::Changed { .. })), "{changed:?}");
    }

    #[test]
    fn blocks_lie_anywhere_or_nowhere() {
        let (dir, bytes) = numbered(100);
        let source = arranged(
            &dir,
            Arrangement::Blocks {
                block: 10,
                at: vec![(0, 50), (1, 20), (3, 95)],
                len: 34,
            },
        );
        assert_eq!(source.len(), 34);
        let expected = [&bytes[55..60], &bytes[20..28]].concat();
        assert_eq!(read(&source, 5, 13), Some(expected));
        // Block 2 does not exist, and block 3 is cut off.
        assert_eq!(read(&source, 19, 2), None);
        assert_eq!(read(&source, 30, 4), Some(bytes[95..99].to_vec()));
        assert_eq!(read(&source, 30, 5), None);
        assert_eq!(read(&source, u64::MAX, 1), None);
    }

    #[test]
    fn zeros_follow_where_nobody_has_written() {
        let (dir, bytes) = numbered(10);
        let source = arranged(&dir, Arrangement::ZerosAfter);
        let expected = [&bytes[8..], &[0; 3]].concat();
        assert_eq!(read(&source, 8, 5), Some(expected));
        assert_eq!(read(&source, 1 << 62, 2), Some(vec![0; 2]));
        assert_eq!(source.len(), 10);
    }

    #[test]
    fn blocks_that_are_missing_are_known() {
        let (dir, _) = numbered(40);
        let source = arranged(
            &dir,
            Arrangement::Blocks {
                block: 4,
                at: vec![(0, 8), (1, 0), (3, 20), (4, 24)],
                len: 18,
            },
        );
        for (offset, len) in (0..20).flat_map(|at| (1..20).map(move |len| (at, len))) {
            let there = read(&source, offset, len as usize).is_some();
            assert_eq!(source.has(offset, len), there, "{len} bytes at {offset}");
        }
        assert!(!source.has(0, u64::MAX) && !source.has(u64::MAX, 1));
    }
}
