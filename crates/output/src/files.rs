//! The files of a log: creates them, places and writes flushes, and keeps the journal.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::creation::Creation;
use crate::entries::Section;
use crate::error::{Error, Result};
use crate::options::{Fsync, Options, Subfiles};
use crate::ranks::{Access, LocalOutcome, Ranks, SharedFile, probe};
use h5logfs_core::journal::extent::{ExtentHeader, FRONT, MOST_EXTENTS, crc32};
use h5logfs_core::journal::{self, Commit, FileId, Header, HeldFile, Job, Journal, Line};
use h5logfs_core::journal::{parent, sync};
use h5logfs_core::log::logvol::names::{subfile, subfile_dir};
use h5logfs_core::log::logvol::{ENCODED, SHARED};
use h5logfs_core::log::window::Piece;

/// The data file that this rank writes to. The first rank of the job also has the journal.
pub struct Files {
    path: PathBuf,
    header: Header,
    id: FileId,
    data_path: PathBuf,
    data_file: Box<dyn SharedFile>,
    /// The files whose names this rank looks after.
    held: Vec<HeldFile>,
    /// The number of the data file.
    file_number: usize,
    /// The ranks that share the data file.
    file_ranks: Ranks,
    /// The end of the last complete flush in each data file.
    ends: Vec<u64>,
    flushes: u64,
    /// On the first rank only.
    journal: Option<Journal>,
}

type StringResult<T = ()> = std::result::Result<T, String>;

/// The extent of this rank in a flush.
pub struct Written {
    /// The offset behind it.
    pub end: u64,
    /// Whether it is in the file, and can be committed.
    pub written: StringResult,
}

impl Files {
    /// Creates the files. On failure everything is as it was before. Collective.
    pub fn create(path: &Path, ranks: &Ranks, options: &Options) -> Result<Self> {
        let mut id = FileId::default();
        let chosen = check_hints(&options.hints).and_then(|()| {
            if ranks.is_root() {
                random(&mut id.0).map_err(|e| format!("/dev/urandom: {e}"))
            } else {
                Ok(())
            }
        });
        ranks.broadcast(&mut id.0);
        let mut creation = Creation::new(path, id, options);
        creation.keep_if(ranks.agree(LocalOutcome::of(chosen).0), ranks)?;
        let header = new_header(&id, ranks, options);
        let begun = if ranks.is_root() {
            creation.begin(&header, options).map(Some)
        } else {
            Ok(None)
        };
        let (outcome, master) = LocalOutcome::of(begun);
        creation.keep_if(ranks.agree(outcome), ranks)?;

        // Readers find a rank's data file by this rule (section 10 of the format page).
        let file_number =
            u64::from(ranks.rank()) * u64::from(header.data_files()) / u64::from(ranks.size());
        let file_ranks = ranks.split(file_number as u32);
        let mut data_path = path.to_owned();
        let mut subfile_created = Ok(None);
        if header.subfiles > 0 {
            data_path = subfile(path, file_number as u32);
            if file_ranks.is_root() {
                subfile_created = creation.create_file(&data_path).map(Some);
            }
        }
        let (outcome, created) = LocalOutcome::of(subfile_created);
        creation.keep_if(ranks.agree(outcome), ranks)?;
        let held = [master, created].into_iter().flatten().flatten().collect();

        let data_file = open_data_file(&data_path, ranks, &file_ranks, options, &mut creation)?;
        let journal = creation.complete();
        let data_files = header.data_files() as usize;
        Ok(Files {
            path: path.to_owned(),
            header,
            id,
            data_path,
            data_file,
            held,
            file_number: file_number as usize,
            file_ranks,
            ends: vec![FRONT; data_files],
            flushes: 0,
            journal,
        })
    }

    /// Fails if another file has taken the name of one of this log, or if it was moved away: what is flushed would be
    /// lost. The first rank looks after the log file and the journal, the first rank of each subfile after that. One
    /// system call for each name.
    fn check_names(&self) -> StringResult {
        let lost = |path: &Path, e: String| {
            format!(
                "{}: {e}. A flush would go into a file without that name, so nothing was flushed. If the log was \
                 moved, move it back, with its journal and subfiles, and flush again",
                path.display()
            )
        };
        if let Some(journal) = &self.journal {
            let checked = journal.check_name();
            checked.map_err(|e| lost(&self.path, e.to_string()))?;
        }
        self.held.iter().try_for_each(|held| {
            let checked = held.check_name();
            checked.map_err(|e| lost(held.path(), e.to_string()))
        })
    }

    /// Fails if one more flush would exceed the limits of readers.
    fn check_room(&self) -> StringResult {
        let extents = (self.flushes + 1).saturating_mul(u64::from(self.file_ranks.size()));
        let ends = (self.flushes + 1).saturating_mul(self.ends.len() as u64);
        if extents > MOST_EXTENTS as u64 || ends > journal::MOST_ENDS as u64 {
            return Err(format!(
                "after {} flushes of {} ranks the file can take no more: close it, and go on in another one",
                self.flushes, self.header.ranks
            ));
        }
        Ok(())
    }

    /// Writes one extent of this rank: the entries since the last flush, and their data. `None`: nothing. Collective
    /// over the ranks that share the file.
    pub fn write_extent(
        &self,
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
        let offset = self.place(len);
        section.set_base(offset + ExtentHeader::SIZE + entries);
        let pending = section.pending();
        let header = ExtentHeader {
            rank,
            flush: self.flushes + 1,
            entries,
            data,
            entries_crc: crc32(pending),
        };
        let header = header.to_bytes();
        let mut extent: Vec<&[u8]> = Vec::new();
        if len > 0 {
            extent.extend([&header[..], pending]);
            extent.extend(pieces);
        }
        let written = self.write(offset, &extent, fsync);
        Written {
            end: offset + len,
            written: self.check_names().and(written).and(self.check_room()),
        }
    }

    /// The offset in the data file for `len` bytes of this rank. Collective.
    fn place(&self, len: u64) -> u64 {
        self.ends[self.file_number] + self.file_ranks.sum_before(len)
    }

    /// The ends of the data files if this rank's file ends at `end`. Other ranks may know larger ends.
    pub fn ends_with(&self, end: u64) -> Vec<u64> {
        let mut ends = self.ends.clone();
        ends[self.file_number] = end;
        ends
    }

    /// Writes this rank's part of a flush. Collective over the ranks that share the file.
    fn write(&self, offset: u64, pieces: &[&[u8]], fsync: Fsync) -> StringResult {
        let written = self.data_file.write(offset, pieces);
        // Collective: a rank whose write has failed must take part, too.
        let synced = match fsync {
            Fsync::Flush => self.data_file.sync(),
            Fsync::None | Fsync::Close => Ok(()),
        };
        let about = |e: String| format!("{}: {e}", self.data_path.display());
        written.and(synced).map_err(about)
    }

    /// Enters a flush, which all ranks have written up to `ends`, in the journal, behind `lines`. Only the first rank
    /// has anything to do.
    pub fn commit(&mut self, ends: &[u64], mut lines: Vec<Line>, fsync: Fsync) -> StringResult {
        let Some(journal) = &mut self.journal else {
            return Ok(());
        };
        let ends = ends.to_vec();
        let flush = self.flushes + 1;
        lines.push(Line::Commit(Commit { flush, ends }));
        let sync_now = fsync == Fsync::Flush;
        // The journal is useless if its name, or that of a data file, gets lost.
        if sync_now && self.flushes == 0 {
            sync_names(&self.path, &self.header).map_err(|e| e.to_string())?;
        }
        let appended = journal.append_lines(&lines, sync_now);
        appended.map_err(|e| e.to_string())
    }

    /// Takes note of a committed flush.
    pub fn set_committed(&mut self, ends: Vec<u64>) {
        self.ends = ends;
        self.flushes += 1;
    }

    /// Writes the table of entries behind the data, with one section for each rank. Collective over the
    /// ranks that share the file.
    pub fn write_table(&self, section: &[u8]) -> (Piece, StringResult) {
        let len = section.len() as u64;
        let before = self.file_ranks.sum_before(len);
        let total = self.file_ranks.sum(len);
        let lens = self.file_ranks.gather(len);
        let mut table = Piece {
            offset: self.ends[self.file_number],
            len: 0,
        };
        if total == 0 {
            return (table, Ok(()));
        }
        let head = 8 * (u64::from(self.file_ranks.size()) + 1);
        table.len = head + total;
        if !self.file_ranks.is_root() {
            let offset = table.offset + head + before;
            return (table, self.data_file.write(offset, &[section]));
        }
        let mut words = u64::from(self.file_ranks.size()).to_le_bytes().to_vec();
        let mut at = head;
        for len in lens {
            at += len;
            words.extend_from_slice(&at.to_le_bytes());
        }
        let written = self.data_file.write(table.offset, &[&words, section]);
        (table, written)
    }

    /// Path of the log file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first line of the journal.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The identifier of the log.
    pub fn id(&self) -> &FileId {
        &self.id
    }

    /// Path of the data file.
    pub fn data_path(&self) -> &Path {
        &self.data_path
    }

    /// Whether this is the first rank of those that share the data file.
    pub fn is_first_of_data_file(&self) -> bool {
        self.file_ranks.is_root()
    }

    /// The end of the last complete flush in the data file.
    pub fn end(&self) -> u64 {
        self.ends[self.file_number]
    }

    /// The journal, on the first rank.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// Forces the data file to the disk. Collective.
    pub fn sync(&self) -> StringResult {
        self.data_file.sync()
    }

    /// Closes the data file. Collective.
    pub fn close(self) {
        // The file is complete, so an error is of no consequence.
        if let Err(e) = self.data_file.close() {
            log::warn!("{}: {e}", self.data_path.display());
        }
    }

    /// Leaks what only collective calls could free.
    pub fn leak(self) {
        self.data_file.leak();
        self.file_ranks.leak();
    }
}

/// Opens the data file on all ranks that share it. Collective.
fn open_data_file(
    path: &Path,
    ranks: &Ranks,
    file_ranks: &Ranks,
    options: &Options,
    creation: &mut Creation,
) -> Result<Box<dyn SharedFile>> {
    let probed = creation.check_seen(path, probe(path));
    let (outcome, probed) = LocalOutcome::of(probed);
    creation.keep_if(ranks.agree(outcome), ranks)?;
    // `keep_if` has failed if this is `None` on any rank.
    let probed = probed.ok_or_else(|| Error::closed(path))?;
    let access = Access {
        hints: &options.hints,
        collective: options.collective,
    };
    let opened = file_ranks.open(path, probed, &access);
    let (outcome, file) = LocalOutcome::of(opened);
    let kept = creation.keep_if(ranks.agree(outcome), ranks);
    if let Err(e) = kept {
        // Only some ranks may have the file open, and closing it is collective.
        if let Some(file) = file {
            file.leak();
        }
        return Err(e);
    }
    file.ok_or_else(|| Error::closed(path))
}

fn new_header(id: &FileId, ranks: &Ranks, options: &Options) -> Header {
    let subfiles = match options.subfiles {
        Subfiles::None => 0,
        Subfiles::Number(n) => n.clamp(1, ranks.size()),
        Subfiles::PerNode => ranks.nodes(),
    };
    let mut config = 0;
    if options.encode_selections {
        config |= ENCODED;
    }
    if options.share_selections {
        config |= SHARED;
    }
    let subfiles = subfiles.min(journal::MOST_SUBFILES);
    Header {
        job: ranks.is_root().then(Job::of_this_process),
        ..Header::new(id, ranks.size(), subfiles, config)
    }
}

fn check_hints(hints: &[(String, String)]) -> StringResult {
    let wrong = hints
        .iter()
        .find(|(k, v)| k.contains('\0') || v.contains('\0'));
    match wrong {
        Some((key, _)) => Err(format!("the hint {key:?} has a zero byte")),
        None => Ok(()),
    }
}

/// Forces the names of all files of the log to the disk.
pub fn sync_names(path: &Path, header: &Header) -> h5logfs_core::error::Result<()> {
    if header.subfiles > 0 {
        sync(&subfile_dir(path))?;
    }
    sync(parent(path))
}

fn random(bytes: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(bytes)
}
