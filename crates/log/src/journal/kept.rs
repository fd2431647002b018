//! Unflushed data kept beside a log that is closed, or continued, without it (`docs/formats/journal.md`, section
//! 3.3).
//!
//! A kept file also has the journal as of then. So the earlier state of the log can be restored, and the kept data be
//! included, as long as nothing was flushed since.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};

use super::held::{HeldFile, parent, sync};
use super::unflushed::{Extent, Summary, Unflushed};
use super::{Recorded, path_of};
use crate::file_id::FileId;
use crate::log_files::LogFiles;
use crate::logvol::extent::{crc32, move_extent};
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};

/// The suffix that a kept file appends to the name of its log. Further kept files append a number to it, from 2.
pub const SUFFIX: &str = ".h5logfs-unflushed";

/// The first bytes of a kept file.
const MAGIC: &[u8; 48] = b"h5logfs: what no flush of a log covers, kept.\n\n\n";
/// Bytes of the head before the lengths: magic, identifier of the log, bytes of the journal, number of data files,
/// and a checksum of the rest of the head.
const HEAD: usize = 88;
/// The longest journal that is kept, in bytes.
const MOST_JOURNAL: u64 = 16 << 30;
const MOST_FILES: u64 = 1 << 16;
/// The most kept files searched beside one log.
const MOST_KEPT: u32 = 1000;

/// A kept file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Place of the file.
    pub place: SourcePath,
    /// The identifier of the log.
    pub id: FileId,
    /// Byte range of the journal in the file.
    pub journal: Range<u64>,
    /// End of the extents of each data file.
    ends: Vec<u64>,
}

/// Path of a kept file, by number from 1.
pub fn path_of_kept(log: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(log);
    name.push(SUFFIX);
    if number > 1 {
        name.push(format!("-{number}"));
    }
    name.into()
}

impl Kept {
    /// All kept files beside a log, of whatever log of this name. Invalid files are skipped.
    pub fn all(files: &LogFiles<'_>) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for number in 1..=MOST_KEPT {
            let place = SourcePath::below(path_of_kept(files.log(), number));
            let file = match files.open(&place) {
                Ok(file) => file,
                Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => break,
                // The file belongs to another user, or is no regular file.
                Err(e) => {
                    log::debug!("{e}");
                    continue;
                }
            };
            found.extend(Self::read(&file, place)?);
        }
        Ok(found)
    }

    /// Reads the head of a file; `None` where it is not a kept file.
    fn read(file: &SourceFile, place: SourcePath) -> Result<Option<Self>> {
        let mut head = [0; HEAD];
        if file.len() < HEAD as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut head, 0)?;
        let u64_at = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let (journal, number, crc) = (u64_at(64), u64_at(72), u64_at(80));
        if head[..48] != *MAGIC || number > MOST_FILES || journal > MOST_JOURNAL {
            return Ok(None);
        }
        let mut lens = vec![0; 8 * number as usize];
        let begin = (HEAD + lens.len()) as u64;
        if file.len() < begin {
            return Ok(None);
        }
        file.read_exact_at(&mut lens, HEAD as u64)?;
        if u64::from(crc32(&[&head[48..80], &lens].concat())) != crc {
            return Ok(None);
        }
        let mut id = FileId::default();
        id.0.copy_from_slice(&head[48..64]);
        let journal = begin..begin + journal;
        let (lens, _) = lens.as_chunks::<8>();
        let ends = lens.iter().try_fold(Vec::new(), |mut ends, len| {
            let before = ends.last().copied().unwrap_or(journal.end);
            ends.push(u64::checked_add(before, u64::from_le_bytes(*len))?);
            Some(ends)
        });
        let last = |ends: &Vec<u64>| ends.last().copied().unwrap_or(journal.end);
        let ends = ends.filter(|ends| last(ends) <= file.len());
        Ok(ends.map(|ends| Kept {
            place,
            id,
            journal,
            ends,
        }))
    }

    /// Byte ranges of the extents of each data file.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, Range<u64>)> + '_ {
        let begins = std::iter::once(self.journal.end).chain(self.ends.iter().copied());
        let ranges = begins.zip(&self.ends).map(|(begin, end)| begin..*end);
        (0..).zip(ranges)
    }

    /// Writes the kept journal to the start of an empty file. `kept` is the kept file.
    pub fn write_journal(&self, kept: &SourceFile, to: &File) -> io::Result<()> {
        let len = self.journal.end - self.journal.start;
        copy(kept, self.journal.start, len, to, 0)
    }

    /// The kept journal. `kept` is the kept file.
    pub fn journal(&self, kept: &SourceFile) -> Result<Recorded> {
        let read = || -> io::Result<SourceFile> {
            let file = File::from(memfd_create(c"h5logfs", MemfdFlags::CLOEXEC)?);
            self.write_journal(kept, &file)?;
            SourceFile::new(file, kept.path().to_owned())
        };
        Recorded::read(&read().map_err(|e| Error::io(kept.path(), e))?)
    }

    /// Removes the file. The caller holds the lock of the log's journal, or the log is closed.
    pub fn remove(&self, files: &LogFiles<'_>) -> Result<PathBuf> {
        let path = files.dir().full_path(&self.place.path);
        std::fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
        sync(parent(&path))?;
        Ok(path)
    }

    /// Bytes of the extents.
    fn bytes(&self) -> u64 {
        self.ends.last().unwrap_or(&self.journal.end) - self.journal.end
    }

    /// Whether the log is at the same flush of the same job: its journal equals the kept one.
    pub fn is_of(&self, files: &LogFiles<'_>, journal: &Recorded) -> Result<bool> {
        if self.id != journal.id || self.journal.end - self.journal.start != journal.len {
            return Ok(false);
        }
        let now = files.open(&SourcePath::below(path_of(files.log())))?;
        let kept = files.open(&self.place)?;
        let mut buffers = (vec![0; 1 << 20], vec![0; 1 << 20]);
        let mut at = 0;
        while at < journal.len {
            let len = (journal.len - at).min(1 << 20) as usize;
            let (one, other) = (&mut buffers.0[..len], &mut buffers.1[..len]);
            now.read_exact_at(one, at)?;
            kept.read_exact_at(other, self.journal.start + at)?;
            if one != other {
                return Ok(false);
            }
            at += len as u64;
        }
        Ok(true)
    }
}

/// Keeps unflushed data beside a log, on disk. Returns its place. A complete file of an interrupted run is used.
pub fn keep(files: &LogFiles<'_>, journal: &Recorded, unflushed: &Unflushed) -> Result<PathBuf> {
    let log = files.dir().full_path(files.log());
    let mut by_file: Vec<Vec<&Extent>> = vec![Vec::new(); journal.header.data_files() as usize];
    for extent in unflushed.all() {
        by_file[unflushed.files[extent.file].data_file as usize].push(extent);
    }
    let lens = by_file.iter().map(|extents| {
        let len = |extent: &&Extent| extent.loose.place.size();
        extents.iter().map(len).sum::<u64>()
    });
    let lens: Vec<u64> = lens.collect();
    let all = Kept::all(files)?;
    for kept in &all {
        if kept.bytes() == lens.iter().sum::<u64>()
            && kept.is_of(files, journal)?
            && holds(files, journal, kept, &unflushed.summary())?
        {
            return Ok(files.dir().full_path(&kept.place.path));
        }
    }
    let source = files.open(&SourcePath::below(path_of(files.log())))?;
    let write = |file: &File| {
        let begin = write_head(file, journal, &lens)?;
        copy(&source, 0, journal.len, file, begin)?;
        let mut at = begin + journal.len;
        for extent in by_file.iter().flatten() {
            let place = &extent.loose.place;
            let holder = &unflushed.files[extent.file];
            move_extent(&holder.file.to_file()?, place.at, file, at)?;
            at += place.size();
        }
        file.sync_all()
    };
    for number in 1..=MOST_KEPT {
        let path = path_of_kept(&log, number);
        match HeldFile::create(&path, &journal.id.number(), false, write) {
            Ok(_) => {
                sync(parent(&path))?;
                return Ok(path);
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io(path, e)),
        }
    }
    Err(Error::of(
        log,
        "too many files beside it hold kept data that no flush covers",
    ))
}

/// Whether a file already has the data to be kept.
fn holds(files: &LogFiles<'_>, journal: &Recorded, kept: &Kept, wanted: &Summary) -> Result<bool> {
    let found = Unflushed::only_kept(files, journal, kept)?.summary();
    Ok((found.bytes, found.ranks, found.apart) == (wanted.bytes, wanted.ranks, wanted.apart))
}

/// Writes the head. Returns the offset of the journal.
fn write_head(file: &File, journal: &Recorded, lens: &[u64]) -> io::Result<u64> {
    let mut head = journal.id.0.to_vec();
    head.extend(journal.len.to_le_bytes());
    head.extend((lens.len() as u64).to_le_bytes());
    let lens: Vec<u8> = lens.iter().flat_map(|len| len.to_le_bytes()).collect();
    let crc = u64::from(crc32(&[&head[..], &lens].concat()));
    let all = [&MAGIC[..], &head, &crc.to_le_bytes(), &lens].concat();
    file.write_all_at(&all, 0)?;
    Ok(all.len() as u64)
}

/// Copies bytes between files.
fn copy(from: &SourceFile, begin: u64, len: u64, to: &File, offset: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(1 << 20) as usize];
        from.read_exact_at(part, begin + at)
            .map_err(io::Error::other)?;
        to.write_all_at(part, offset + at)?;
        at += part.len() as u64;
    }
    Ok(())
}
