//! The files of a log. This module places and writes flushes, and keeps the journal. `opening` makes or opens the files,
//! `tables` writes the tables at the close.

mod opening;
mod tables;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::automatic::Cause;
use crate::base::Base;
use crate::entries::Section;
use crate::error::FaultResult;
use crate::extent::{self, Checksums};
use crate::options::{Fsync, Options};
use crate::plain_close::Ended;
use crate::ranks::{Ranks, SharedFile};
use crate::spill::Spill;
use crate::write_back::WriteBack;
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::front::unclosed_front;
use h5logfs_log::journal::{self, Commit, Header, HeldFile, Journal, Line};
use h5logfs_log::journal::{number_at, parent, sync};
use h5logfs_log::logvol::extent::{ExtentHeader, MOST_EXTENTS};
use h5logfs_log::logvol::names::subfile_dir;

pub use opening::Appendable;
pub use tables::Tabled;

/// The data file of this rank. The first rank of the job also has the journal.
pub struct Files {
    path: PathBuf,
    header: Header,
    id: FileId,
    data_path: PathBuf,
    data_file: Box<dyn SharedFile>,
    /// The data file, opened by this rank alone.
    local: Arc<File>,
    /// Files whose names this rank checks.
    held: Vec<HeldFile>,
    /// Number of the data file.
    file_number: usize,
    /// Numbers of the data files that no rank of this job writes, and that this rank closes.
    unwritten: Range<u32>,
    /// End of the extents of earlier jobs in the data file.
    begin: u64,
    /// Ranks that share the data file.
    file_ranks: Ranks,
    /// End of the last complete flush in each data file.
    ends: Vec<u64>,
    flushes: u64,
    /// Number of the last flush that the program asked for.
    asked: u64,
    /// Whether no flush of this job is complete.
    is_first: bool,
    /// On the first rank only: the flush with which this job began, and its own flushes, with their ends in the first data
    /// file.
    commits: Vec<(u64, u64)>,
    /// The journal, on the first rank only.
    journal: Option<Journal>,
    /// The path of the unclosed log that had this name and was kept, on the first rank only.
    kept: Option<PathBuf>,
    /// Inode number of the journal, which all ranks know.
    journal_number: u64,
    spill: Spill,
    write_back: WriteBack,
    /// Tags of this rank's extents since the last flush; `None` if extents have no seals.
    tags: Option<Tags>,
}

/// Tags of a rank's extents for the next commit.
#[derive(Debug, Default)]
struct Tags {
    /// Sum over the spilled extents.
    spilled: u64,
    /// This rank's part of the commit: on the last rank of a data file the sum over all its ranks, on others 0.
    total: u64,
}

impl Tags {
    fn of(options: &Options) -> Option<Self> {
        options.checksums.then(Tags::default)
    }
}

/// The extent of this rank in a flush.
pub(crate) struct Written {
    /// End of the extent.
    pub end: u64,
    /// Distance by which data that waited in another file moved.
    pub moved: u64,
    /// Whether the extent is in the file and can be committed.
    pub written: FaultResult,
}

impl Files {
    /// The path of the unclosed log that had this name and was kept ([`Options::keep_unclosed`]). On the first rank only.
    pub fn kept_log(&self) -> Option<&Path> {
        self.kept.as_deref()
    }

    /// Fails if the log is no longer the one that these ranks write: a file was moved away or replaced, or another process
    /// has closed or reopened the log, on a node that does not see the lock of the journal. The bytes after the last flush
    /// then belong to that process, and must be neither written nor cut off.
    fn check_names(&self) -> FaultResult {
        self.look_at_names().map_err(|(path, e)| {
            let (log, named) = (self.path.display(), path.display());
            let told = if path == journal::path_of(&self.path) {
                format!("{log}: {named}: {e}")
            } else {
                format!("{named}: {e}")
            };
            e.told(told).with(
                "Nothing was written: the data would go into a file without that name, or into a log that another process \
                 has changed. If the log was moved, move it back, with its journal and subfiles, and flush again",
            )
        })
    }

    /// Fails if the log is not in the state in which these ranks opened it. For a process forked from a rank.
    pub(crate) fn check_unclosed(&self) -> FaultResult {
        self.look_at_names().map_err(|(path, e)| {
            e.told(format!("{}: {e}", path.display())).with(
                "The log was closed or moved after this process was forked: this process has to open it itself",
            )
        })
    }

    /// Finds a name that no longer leads to the open file. The first rank holds the log file and the journal, the first rank
    /// of each subfile holds the subfile. Costs one system call a name.
    fn look_at_names(&self) -> Result<(), (PathBuf, Fault)> {
        let lost = |path: &Path, e: io::Error| (path.to_owned(), Fault::from(e));
        match &self.journal {
            Some(journal) => {
                let checked = journal.held().check_name();
                checked.map_err(|e| lost(journal.held().path(), e))?;
            }
            None => self.look_at_journal()?,
        }
        self.held.iter().try_for_each(|held| {
            let checked = held.check_name();
            checked.map_err(|e| lost(held.path(), e))
        })
    }

    /// Checks the name of the journal on a rank that does not hold it. Its node may see the name late, so without a journal
    /// the front of the data file decides.
    fn look_at_journal(&self) -> Result<(), (PathBuf, Fault)> {
        let path = journal::path_of(&self.path);
        match number_at(&path) {
            Some(number) if number == self.journal_number => Ok(()),
            None if self.has_unclosed_front() => Ok(()),
            _ => {
                let reason = "another process has closed the log, or opened it again";
                Err((path, Fault::Refused(reason.into())))
            }
        }
    }

    /// Whether the data file has the front of an unclosed log. An unreadable front proves nothing.
    fn has_unclosed_front(&self) -> bool {
        let mut begin = [0; 64];
        let front = unclosed_front(&self.id);
        let read = self.local.read_exact_at(&mut begin, 0);
        read.is_err() || front.starts_with(&begin)
    }

    /// Whether readers accept this number of flushes.
    fn can_take(&self, flushes: u64) -> bool {
        let extents = flushes.saturating_mul(u64::from(self.file_ranks.size()));
        let numbers = self.ends.len() * if self.tags.is_some() { 2 } else { 1 };
        let ends = flushes.saturating_mul(numbers as u64);
        extents <= MOST_EXTENTS as u64 && ends <= journal::MOST_ENDS as u64
    }

    /// Whether there is room for automatic flushes. They leave half of the room to the program's own flushes.
    pub(crate) fn has_room_for_more(&self) -> bool {
        self.can_take(self.flushes.saturating_mul(2))
    }

    /// Fails if one more flush would exceed the limits of readers.
    fn check_room(&self) -> FaultResult {
        if !self.can_take(self.flushes + 1) {
            return Err(Fault::Refused(format!(
                "after {} flushes of {} ranks the file can take no more: close it and continue in another one",
                self.flushes, self.header.ranks
            )));
        }
        Ok(())
    }

    /// The state of the log now, without the lines that define its objects.
    pub fn base(&self) -> Base {
        Base {
            id: self.id,
            subfiles: self.header.subfiles,
            config: self.header.config,
            flush: self.flushes,
            // The program asks for the close, so a closed log ends with a requested state.
            asked: self.flushes,
            ends: self.ends.clone(),
            lines: Vec::new(),
            takes_definitions: false,
        }
    }

    /// Lets ranks of one node that share the data file spill into it. Collective.
    pub(crate) fn share_spills(&mut self) {
        self.spill.share(&self.file_ranks);
    }

    /// Writes the pending entries of this rank and their data before the flush. They count with the next flush. Local. After
    /// an error nothing is written.
    pub(crate) fn spill(
        &mut self,
        rank: u32,
        section: &mut Section,
        data: &[&[u8]],
    ) -> FaultResult {
        if self.spill.is_in_place() {
            self.check_names()?;
        }
        let entries = section.pending().len() as u64;
        let data_len: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        let len = ExtentHeader::SIZE + entries + data_len;
        let about = |e: io::Error| Fault::from(e).of_file(&self.data_path);
        let offset = self.spill.place(self.end(), len).map_err(about)?;
        section.set_base(offset + ExtentHeader::SIZE + entries);
        let flush = self.flushes + 1;
        let header = extent::header(rank, flush, section.pending(), data_len);
        let number = self.spill.extents().len();
        let sums = Checksums::of(data, number, self.tags.is_some());
        let bytes = sums.add_to(header).to_bytes();
        let gap = extent::header(rank, flush, &[], len - ExtentHeader::SIZE);
        let mut pieces: Vec<&[u8]> = vec![&bytes, section.pending()];
        pieces.extend(data);
        let written = self.spill.write(offset, &pieces, &gap.to_bytes());
        written.map_err(about)?;
        if let Some((tags, seal)) = self.tags.as_mut().zip(sums.seal) {
            tags.spilled = tags.spilled.wrapping_add(seal.tag);
        }
        if self.spill.is_in_place() {
            section.set_flushed();
            self.write_back.written(&self.local, offset..offset + len);
        } else {
            section.set_waiting();
        }
        Ok(())
    }

    /// Whether this rank spills into the data file. Otherwise the flush moves spilled data there.
    pub fn spills_in_place(&self) -> bool {
        self.spill.is_in_place()
    }

    /// Whether a flush of this job is complete.
    pub fn has_flushed(&self) -> bool {
        !self.is_first
    }

    /// Number of complete flushes, including those of earlier jobs.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    /// Number of the last flush that the program asked for; 0 without one. Later flushes are automatic.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// End of the last complete flush in each data file.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Number of this rank's data file.
    pub fn file_number(&self) -> usize {
        self.file_number
    }

    /// Ranges of the extents that this rank has spilled since the last flush: in its data file, or in [`Files::own_file`].
    pub fn spilled(&self) -> &[Range<u64>] {
        self.spill.extents()
    }

    /// The file into which this rank alone has spilled, if that was not the data file.
    pub fn own_file(&self) -> Option<&File> {
        self.spill.own()
    }

    /// Writes one extent of this rank: the entries since the last flush, and their data. `None`: nothing. Collective over the
    /// ranks that share the file.
    pub(crate) fn write_extent(
        &mut self,
        rank: u32,
        section: &mut Section,
        data: Option<&[&[u8]]>,
        fsync: Fsync,
    ) -> Written {
        let entries = section.pending().len() as u64;
        let pieces = data.filter(|_| entries > 0).unwrap_or_default();
        let data: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let len = match pieces {
            [] => 0,
            _ => ExtentHeader::SIZE + entries + data,
        };
        let waiting = self.spill.waiting();
        let sums = match len {
            0 => Checksums::default(),
            _ => Checksums::of(pieces, self.spill.extents().len(), self.tags.is_some()),
        };
        let tag = sums.seal.map_or(0, |seal| seal.tag);
        // The names are checked before anything is written. The first rank tells the others with their places.
        let named = if self.file_ranks.is_root() {
            self.check_names()
        } else {
            Ok(())
        };
        let (begin, placed) = self.place(waiting + len, tag, named);
        let moved = placed.and_then(|()| {
            let moved = self.spill.close_gaps();
            let moved = moved.and_then(|()| self.spill.move_to(begin));
            moved.map_err(|e| Fault::from(e).of_file(&self.data_path))
        });
        let offset = begin + waiting;
        section.set_base(offset + ExtentHeader::SIZE + entries);
        if !self.spill.is_in_place() {
            // The next spill of this rank goes to another file than these entries.
            section.forget_selections();
        }
        let header = extent::header(rank, self.flushes + 1, section.pending(), data);
        let header = sums.add_to(header).to_bytes();
        let mut extent: Vec<&[u8]> = Vec::new();
        if len > 0 && moved.is_ok() {
            extent.extend([&header[..], section.pending()]);
            extent.extend(pieces);
        }
        let written = self.write(offset, &extent, fsync);
        let written = moved.and(written).and(self.check_room());
        if written.is_ok() {
            self.write_back.written(&self.local, begin..offset + len);
        }
        Written {
            end: offset + len,
            moved: begin,
            written,
        }
    }

    /// After a failed flush, cuts the data file off after the spilled data, so that further extents follow without a
    /// gap. Does nothing if others have closed or reopened the log. Collective over the ranks that share the file.
    pub(crate) fn cut(&mut self) {
        let end = self.begin_of_flush();
        let cut = if self.file_ranks.is_root() {
            let cut = || self.spill.cut(end).map_err(Fault::from);
            self.check_names().and_then(|()| cut())
        } else {
            Ok(())
        };
        // If the cut failed, nothing more is spilled before the next flush.
        if !matches!(self.file_ranks.follow_root(cut), crate::GlobalOutcome::Good) {
            self.spill.stop();
        }
    }

    /// Finds the offset in the data file for `len` bytes of this rank, in an extent with this tag. The first of the
    /// ranks that share the file passes in `named` whether the log has lost a name. If it has, the call fails on all of
    /// them. Collective.
    fn place(&mut self, len: u64, tag: u64, named: FaultResult) -> (u64, FaultResult) {
        /// A size that no file can have. If the first rank may write nothing, the sums of all other ranks exceed it.
        const LOST: u64 = 1 << 62;
        let begin = self.begin_of_flush();
        let len = if named.is_ok() { len } else { LOST };
        let Some(tags) = &mut self.tags else {
            let before = self.file_ranks.sum_before(len);
            return placed(begin, before, named);
        };
        let own = tags.spilled.wrapping_add(tag);
        let sums = self.file_ranks.sums_before(&[len, own]);
        let is_last = self.file_ranks.rank() + 1 == self.file_ranks.size();
        tags.total = if is_last {
            sums[1].wrapping_add(own)
        } else {
            0
        };
        return placed(begin, sums[0], named);

        fn placed(begin: u64, before: u64, named: FaultResult) -> (u64, FaultResult) {
            let lost = "the first rank that writes this file writes nothing";
            let others = if before < LOST {
                Ok(())
            } else {
                Err(Fault::Refused(lost.into()))
            };
            (begin + before % LOST, named.and(others))
        }
    }

    /// End of the flushed and spilled data. Collective if ranks spill into a shared data file.
    fn begin_of_flush(&self) -> u64 {
        let own = self.end().max(self.spill.end());
        if self.spill.is_locked() {
            self.file_ranks.largest(own)
        } else {
            own
        }
    }

    /// The ends of the data files if this rank's file ends at `end`, followed by the sums of tags if extents have seals.
    /// Other ranks may know larger numbers; a flush uses the largest ones.
    pub(crate) fn ends_with(&self, end: u64) -> Vec<u64> {
        let mut ends = self.ends.clone();
        ends[self.file_number] = end;
        if let Some(tags) = &self.tags {
            let sum = |number| {
                if number == self.file_number {
                    tags.total
                } else {
                    0
                }
            };
            ends.extend((0..self.ends.len()).map(sum));
        }
        ends
    }

    /// Writes this rank's part of a flush. Collective over the ranks that share the file.
    fn write(&self, offset: u64, pieces: &[&[u8]], fsync: Fsync) -> FaultResult {
        let written = self.data_file.write(offset, pieces);
        // Collective: a rank whose write has failed must take part, too.
        let synced = match fsync {
            Fsync::Flush => self.data_file.sync(),
            Fsync::None | Fsync::Close => Ok(()),
        };
        written.and(synced).map_err(|e| e.of_file(&self.data_path))
    }

    /// Records a flush in the journal, after `lines`. All ranks have written it up to `ends`: see [`Files::ends_with`]. Only
    /// the first rank has anything to do.
    pub(crate) fn commit(
        &mut self,
        ends: &[u64],
        mut lines: Vec<Line>,
        cause: Cause,
        fsync: Fsync,
    ) -> FaultResult {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let (ends, tags) = ends.split_at(self.ends.len());
        let commit = Commit {
            tags: tags.to_vec(),
            asked: (cause == Cause::Automatic).then_some(self.asked),
            ..Commit::new(self.flushes + 1, ends.to_vec()).now()
        };
        lines.push(Line::Commit(commit));
        let sync_now = fsync == Fsync::Flush;
        // The journal is useless without its name, or the name of a data file.
        if sync_now && self.is_first {
            sync_names(&self.path, &self.header)?;
        }
        Ok(journal.append_lines(&lines, sync_now)?)
    }

    /// Records a committed flush.
    pub(crate) fn set_committed(&mut self, mut ends: Vec<u64>, cause: Cause) {
        ends.truncate(self.ends.len());
        self.ends = ends;
        if let Some(tags) = &mut self.tags {
            *tags = Tags::default();
        }
        self.flushes += 1;
        if self.journal.is_some() {
            self.commits.push((self.flushes, self.ends[0]));
        }
        if cause == Cause::Asked {
            self.asked = self.flushes;
        }
        self.is_first = false;
        self.spill.set_committed();
    }

    /// The data file, opened by this rank alone.
    pub fn local(&self) -> &Arc<File> {
        &self.local
    }

    /// Path of the log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line of the journal.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether extents get seals.
    pub fn has_seals(&self) -> bool {
        self.tags.is_some()
    }

    /// The identifier of the log.
    pub fn id(&self) -> &FileId {
        &self.id
    }

    /// Path of the data file.
    pub fn data_path(&self) -> &Path {
        &self.data_path
    }

    /// The end of the last complete flush in the data file.
    fn end(&self) -> u64 {
        self.ends[self.file_number]
    }

    /// The journal, on the first rank.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Forces the data files to the disk, except one that only the ranks of one node have written: the first rank does that
    /// at the end of the close. `ranks` are those of the job. Collective.
    pub fn sync_other_nodes(&self, ranks: &Ranks) -> FaultResult {
        let is_one_file = self.header.subfiles == 0;
        if is_one_file && self.data_file.is_plain() && ranks.are_on_one_node() {
            return Ok(());
        }
        let synced = self.data_file.sync();
        let synced = synced.map_err(|e| e.of_file(&self.data_path));
        Ok(ranks.all(synced)?)
    }

    /// Closes the data file, and releases the lock of the journal. Collective.
    pub fn close(self) {
        self.finish().unlock();
    }

    /// Closes the data file. Collective.
    pub fn finish(self) -> Ended {
        // All data are flushed. While the journal is locked, nobody else looks for the spill file.
        self.spill.close();
        // The file is complete, so an error has no consequence.
        if let Err(e) = self.data_file.close() {
            log::warn!("{}: {e}", self.data_path.display());
        }
        Ended {
            path: self.path,
            header: self.header,
            id: self.id,
            file: self.local,
            journal: self.journal,
            commits: self.commits,
        }
    }

    /// Leaks the objects that only collective calls could free.
    pub fn leak(self) {
        self.data_file.leak();
        self.file_ranks.leak();
    }
}

/// Forces the names of all files of the log to the disk.
pub fn sync_names(path: &Path, header: &Header) -> h5logfs_common::error::Result<()> {
    if header.subfiles > 0 {
        sync(&subfile_dir(path))?;
    }
    sync(parent(path))
}
