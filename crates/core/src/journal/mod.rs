//! A log that is not closed yet: its journal, which holds what was defined and which flushes are
//! complete, and its data files (`docs/formats/journal.md`).
//!
//! * [`datatype`] and [`definition`]: what a program defines; plain data.
//! * [`extent`]: what the data files hold before they are HDF5.
//! * this file: the journal itself, a text of one JSON value a line, each with a checksum over all
//!   that was said so far.
//!
//! The writer, the scan, and `h5logfs recover` stand on this; it knows neither MPI nor libhdf5.

pub mod datatype;
pub mod definition;
pub mod extent;

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::log::logvol::names::find_subfiles;
use crate::log::source_dir::SourceDir;
use crate::log::source_file::{Identity, SourceFile};
use definition::{Definition, Outline, from_hex, to_hex};

/// What is appended to a file's name to name its journal.
pub const SUFFIX: &str = ".h5logfs-journal";

const VERSION: u32 = 1;

/// A line longer than this is none of ours.
const LONGEST_LINE: u64 = 4 << 20;

/// Subfiles have 16-bit numbers among the files of a log, of which the master is one.
pub const MOST_SUBFILES: u32 = u16::MAX as u32 - 1;

/// Places that are kept in mind while a journal is read, 8 bytes each: one a flush and data file.
pub const MOST_ENDS: usize = 1 << 27;

/// Tells a file from every other one, so that no journal is taken for that of another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileId(pub [u8; 16]);

/// Path of the journal of the log file at `path`.
pub fn path_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    name.into()
}

/// The first line: which file, and how it is laid out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the journal format.
    pub journal: u32,
    /// [`FileId`] in hexadecimal digits.
    pub file: String,
    /// As in the root attribute `_h5logfs_writer`.
    pub writer: String,
    /// Processes of the job.
    pub ranks: u32,
    /// Subfiles; 0 where the log lies in the file itself.
    pub subfiles: u32,
    /// Config bits of the layout: how entries are spelled.
    pub config: i32,
}

impl Header {
    /// The header of a new journal, by this version of the writer.
    pub fn new(id: &FileId, ranks: u32, subfiles: u32, config: i32) -> Self {
        Header {
            journal: VERSION,
            file: to_hex(&id.0),
            writer: writer_name(),
            ranks,
            subfiles,
            config,
        }
    }

    /// The identifier of the file; `None` where `file` is not one.
    pub fn file_id(&self) -> Option<FileId> {
        let bytes = from_hex(&self.file)?;
        bytes.try_into().ok().map(FileId)
    }

    /// Paths of the subfiles, below the directory; none where the log lies in the file itself.
    pub fn subfile_paths(&self, dir: &SourceDir, master: &Path) -> Result<Vec<PathBuf>> {
        match self.subfiles {
            0 => Ok(Vec::new()),
            n => find_subfiles(dir, master, i64::from(n))
                .map_err(|e| Error::bad_file(dir.full_path(master), e)),
        }
    }

    /// Files that hold data.
    pub fn data_files(&self) -> u32 {
        self.subfiles.max(1)
    }
}

/// Which writer this is, as files say it.
pub fn writer_name() -> String {
    format!("h5logfs {}", env!("CARGO_PKG_VERSION"))
}

/// Every other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A definition.
    Define(Definition),
    /// The end of a flush.
    Commit(Commit),
}

/// A flush is complete: all bytes in front of `ends` are in the data files, and all definitions of
/// the lines before hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// From 1.
    pub flush: u64,
    /// Where the log ends now, in each data file.
    pub ends: Vec<u64>,
}

/// The text of a line, its checksum in front, and the sum over all lines so far in `sum`.
fn encode(line: &impl Serialize, sum: &mut Crc, out: &mut Vec<u8>) -> io::Result<()> {
    let text = serde_json::to_vec(line)?;
    if text.len() as u64 > LONGEST_LINE - 16 {
        return Err(io::Error::other("a line that is too long"));
    }
    sum.update(&text);
    out.extend_from_slice(format!("{:08x} ", sum.sum()).as_bytes());
    out.extend_from_slice(&text);
    out.push(b'\n');
    Ok(())
}

/// The journal of a job that is running. One process writes it.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    /// Bytes that are good, and the sum over them.
    len: u64,
    sum: Crc,
    /// There may be bytes behind the good ones.
    torn: bool,
}

impl Journal {
    /// Makes the journal of a new file. Holds a lock on it for as long as it lives, by which others
    /// know that the job is running.
    pub fn create(path: PathBuf, header: &Header) -> Result<Self> {
        // What an earlier job left, it may still be writing to: a new file takes the name.
        let attempt = || {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            File::create_new(&path)
        };
        let file = attempt().map_err(|e| Error::io(&path, e))?;
        let mut journal = Journal {
            file,
            path,
            len: 0,
            sum: Crc::new(),
            torn: false,
        };
        let locked = lock(&journal.file).map_err(|e| Error::io(&journal.path, e));
        let begun = locked.and_then(|()| journal.append(std::slice::from_ref(header), false));
        match begun {
            Ok(()) => Ok(journal),
            Err(e) => {
                // What says nothing would stand in the way of the next one.
                let _ = std::fs::remove_file(&journal.path);
                Err(e)
            }
        }
    }

    /// Appends lines in one piece, and waits until they are on the disk if told to. After an error
    /// the journal says what it said before.
    pub fn append_lines(&mut self, lines: &[Line], sync: bool) -> Result<()> {
        self.append(lines, sync)
    }

    fn append(&mut self, lines: &[impl Serialize], sync: bool) -> Result<()> {
        let (mut text, mut sum) = (Vec::new(), copy_of(&self.sum));
        let encoded = lines
            .iter()
            .try_for_each(|l| encode(l, &mut sum, &mut text));
        let written = encoded
            .and_then(|()| match self.torn {
                true => self.file.set_len(self.len),
                false => Ok(()),
            })
            .and_then(|()| self.file.write_all_at(&text, self.len))
            .and_then(|()| match sync {
                true => self.file.sync_data(),
                false => Ok(()),
            });
        if let Err(e) = written {
            // Should this fail too, it has to be done before the next lines.
            self.torn = self.file.set_len(self.len).is_err();
            return Err(Error::io(&self.path, e));
        }
        self.len += text.len() as u64;
        self.sum = sum;
        self.torn = false;
        Ok(())
    }

    /// The file is closed, and says itself what the journal said.
    pub fn remove(&self) -> Result<()> {
        let removed = self.is_in_place().and_then(|there| match there {
            true => std::fs::remove_file(&self.path),
            false => Err(io::Error::other("another file has taken its name")),
        });
        removed.map_err(|e| Error::io(&self.path, e))
    }

    /// Whether the journal still has its name.
    fn is_in_place(&self) -> io::Result<bool> {
        let place = |m: Metadata| (m.dev(), m.ino());
        let there = std::fs::symlink_metadata(&self.path)?;
        Ok(place(there) == place(self.file.metadata()?))
    }
}

/// `Crc` cannot be cloned; combining with an empty one copies it.
fn copy_of(sum: &Crc) -> Crc {
    let mut copy = Crc::new();
    copy.combine(sum);
    copy
}

/// Takes the lock by which a running job is known; fails where somebody has it.
pub fn lock(file: &File) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Where the file system has no locks, nobody can be asked.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS | rustix::io::Errno::NOLCK) => {
            Ok(())
        }
        other => Ok(other?),
    }
}

/// What a journal says, up to its last commit.
#[derive(Debug)]
pub struct Recorded {
    /// Its first line.
    pub header: Header,
    /// The identifier of the file.
    pub id: FileId,
    /// Those that the last commit covers, in their order; without extents, whose outcome the outline
    /// has.
    pub definitions: Vec<Definition>,
    /// The objects that these definitions make.
    pub outline: Outline,
    /// The flushes that are complete, in their order.
    pub commits: Vec<Commit>,
    /// What is wrong with what follows the last good line.
    pub torn: Option<Torn>,
    /// Of the state that was read.
    pub identity: Identity,
}

/// The line that ends a journal before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    /// From 1.
    pub line: u64,
    /// Others follow it: it is not what a dying job left, but damaged, and complete flushes may be
    /// among what follows.
    pub damaged: bool,
}

impl Display for Torn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.damaged {
            true => write!(
                f,
                "line {} of the journal is damaged: flushes that follow it cannot be shown",
                self.line
            ),
            false => write!(
                f,
                "line {} of the journal is torn: a flush that did not return",
                self.line
            ),
        }
    }
}

impl Recorded {
    /// Reads a journal. A last line that is torn belongs to a flush that did not return.
    pub fn read(source: &SourceFile) -> Result<Self> {
        Self::read_until(source, u64::MAX)
    }

    /// Reads what a journal said when flush `last` was complete.
    pub fn read_until(source: &SourceFile, last: u64) -> Result<Self> {
        let broken = |reason: String| Error::bad_file(source.path(), reason);
        let mut lines = Lines::new(source)?;
        let header: Header = lines
            .next()?
            .ok_or_else(|| broken("a journal without a first line".into()))?;
        if header.journal != VERSION {
            return Err(broken(format!("a journal of version {}", header.journal)));
        }
        let id = header.file_id();
        let id = id.filter(|_| header.subfiles <= MOST_SUBFILES);
        let id = id.ok_or_else(|| broken("a journal of no file".into()))?;
        let mut found = Recorded {
            header,
            id,
            definitions: Vec::new(),
            outline: Outline::default(),
            commits: Vec::new(),
            torn: None,
            identity: source.identity(),
        };
        let mut pending = Vec::new();
        while found.flushes() < last
            && let Some(line) = lines.next()?
        {
            match line {
                Line::Define(definition) => pending.push(definition),
                Line::Commit(commit) => {
                    found.commit(commit, &mut pending).map_err(broken)?;
                }
            }
        }
        found.torn = lines.torn;
        Ok(found)
    }

    fn commit(
        &mut self,
        commit: Commit,
        pending: &mut Vec<Definition>,
    ) -> std::result::Result<(), String> {
        let before = self.commits.last();
        let number = before.map_or(1, |c| c.flush + 1);
        let grows = match before {
            Some(before) => commit.ends.iter().zip(&before.ends).all(|(e, b)| e >= b),
            None => commit.ends.iter().all(|e| *e >= extent::FRONT),
        };
        let files = self.header.data_files() as usize;
        if commit.flush != number || commit.ends.len() != files || !grows {
            return Err(format!(
                "flush {} at {:?} cannot follow",
                commit.flush, commit.ends
            ));
        }
        if self.commits.len().saturating_mul(files) > MOST_ENDS {
            return Err("more flushes than can be kept in mind".into());
        }
        for definition in pending.drain(..) {
            self.outline.add(&definition)?;
            if !matches!(definition, Definition::Extent { .. }) {
                self.definitions.push(definition);
            }
        }
        self.commits.push(commit);
        Ok(())
    }

    /// Number of the last flush; 0 where none is complete.
    pub fn flushes(&self) -> u64 {
        self.commits.last().map_or(0, |c| c.flush)
    }

    /// Where each flush ended in one data file, with the number of the flush.
    pub fn ends(&self, file: usize) -> impl Iterator<Item = (u64, u64)> {
        self.commits.iter().map(move |c| (c.flush, c.ends[file]))
    }

    /// Where the log ends in one data file.
    pub fn end(&self, file: usize) -> u64 {
        let last = self.commits.last();
        last.map_or(extent::FRONT, |c| c.ends[file])
    }
}

/// The good lines of a journal.
struct Lines<'a> {
    source: &'a SourceFile,
    reader: BufReader<io::Take<Reader<'a>>>,
    sum: Crc,
    number: u64,
    torn: Option<Torn>,
}

impl<'a> Lines<'a> {
    fn new(source: &'a SourceFile) -> Result<Self> {
        let reader = Reader { source, at: 0 };
        let reader = BufReader::new(io::Read::take(reader, source.len()));
        Ok(Lines {
            source,
            reader,
            sum: Crc::new(),
            number: 0,
            torn: None,
        })
    }

    /// `None` behind the last good line.
    fn next<T: for<'d> Deserialize<'d>>(&mut self) -> Result<Option<T>> {
        let mut text = Vec::new();
        let mut line = io::Read::take(&mut self.reader, LONGEST_LINE);
        let read = line.read_until(b'\n', &mut text);
        read.map_err(|e| Error::io(self.source.path(), e))?;
        if text.is_empty() || self.torn.is_some() {
            return Ok(None);
        }
        self.number += 1;
        let parsed = self.parse(&text);
        if parsed.is_none() {
            let rest = self.reader.fill_buf();
            let rest = rest.map_err(|e| Error::io(self.source.path(), e))?;
            self.torn = Some(Torn {
                line: self.number,
                damaged: !rest.is_empty(),
            });
        }
        Ok(parsed)
    }

    fn parse<T: for<'d> Deserialize<'d>>(&mut self, text: &[u8]) -> Option<T> {
        let text = text.strip_suffix(b"\n")?;
        let (sum, text) = (text.get(..8)?, text.get(8..)?.strip_prefix(b" ")?);
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        self.sum.update(text);
        match sum == self.sum.sum() {
            true => serde_json::from_slice(text).ok(),
            false => None,
        }
    }
}

/// A source file as a stream.
struct Reader<'a> {
    source: &'a SourceFile,
    at: u64,
}

impl io::Read for Reader<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.at);
        let len = buf.len().min(left as usize);
        let read = self.source.read_exact_at(&mut buf[..len], self.at);
        read.map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

/// The journal that belongs to a log file: `None` where the file is closed, or was never ours.
/// Fails where the file was not closed and no journal of it is there.
pub fn of_file(
    dir: &SourceDir,
    relative: &Path,
    file: &SourceFile,
) -> Result<Option<(PathBuf, Recorded)>> {
    let Some(id) = extent::file_id(file)? else {
        return Ok(None);
    };
    let path = path_of(relative);
    let missing = |reason: String| match extent::is_unclosed(file)? {
        true => Err(Error::bad_file(
            file.path(),
            format!("it was not closed, and {reason}"),
        )),
        false => Ok(None),
    };
    let source = match SourceFile::open(dir, &path) {
        Ok(source) => source,
        Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return missing(format!("its journal {} is not there", path.display()));
        }
        Err(e) => return Err(e),
    };
    // A journal that cannot be read says nothing against a file that was closed.
    let recorded = match Recorded::read(&source) {
        Ok(recorded) if recorded.id == id => recorded,
        Ok(_) => return missing(format!("{} belongs to another file", path.display())),
        Err(e) => return missing(e.to_string()),
    };
    Ok(Some((path, recorded)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ID: FileId = FileId([7; 16]);

    fn group(name: &str) -> Line {
        Line::Define(Definition::Group { path: name.into() })
    }

    fn commit(flush: u64, end: u64) -> Line {
        Line::Commit(Commit {
            flush,
            ends: vec![end],
        })
    }

    fn read(path: &Path) -> Result<Recorded> {
        let (dir, name) = SourceDir::of_file(path)?;
        Recorded::read(&SourceFile::open(&dir, &name)?)
    }

    /// A journal of two flushes and a definition that no flush has.
    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("log.h5.h5logfs-journal");
        let header = Header::new(&ID, 4, 0, 10);
        let mut journal = Journal::create(path.clone(), &header).unwrap();
        let first = [group("/a"), commit(1, 9000)];
        journal.append_lines(&first, true).unwrap();
        let second = [group("/b"), commit(2, 9500)];
        journal.append_lines(&second, false).unwrap();
        journal.append_lines(&[group("/c")], false).unwrap();
        path
    }

    #[test]
    fn what_the_last_commit_covers_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let found = read(&path).unwrap();
        assert_eq!((found.id, found.header.ranks), (ID, 4));
        assert_eq!(found.definitions.len(), 2);
        assert_eq!((found.flushes(), found.end(0)), (2, 9500));
        assert_eq!(found.torn, None);
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let source = SourceFile::open(&below, &name).unwrap();
        let first = Recorded::read_until(&source, 1).unwrap();
        assert_eq!((first.definitions.len(), first.end(0)), (1, 9000));
        let none = Recorded::read_until(&source, 0).unwrap();
        assert_eq!((none.flushes(), none.end(0)), (0, extent::FRONT));
    }

    #[test]
    fn a_journal_cut_anywhere_tells_no_more_than_it_did() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let whole = fs::read(&path).unwrap();
        let ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let lines = ends.iter().filter(|end| **end < len).count();
            match read(&path) {
                Ok(found) => {
                    assert!(found.torn.is_none_or(|torn| !torn.damaged));
                    // Header, group, commit, group, commit, group.
                    assert_eq!(
                        found.flushes(),
                        (lines as u64).saturating_sub(1) / 2,
                        "{len}"
                    );
                    let whole_lines = len == 0 || whole[len - 1] == b'\n';
                    assert_eq!(found.torn.is_none(), whole_lines, "{len}");
                }
                Err(_) => assert_eq!(lines, 0, "{len}"),
            }
        }
    }

    #[test]
    fn damage_anywhere_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            let line = whole[..at].iter().filter(|b| **b == b'\n').count() as u64;
            match read(&path) {
                Ok(found) => {
                    // A line without its end is one with the next.
                    let own = 1 + usize::from(whole[at] == b'\n');
                    let ends = whole[at..].iter().filter(|b| **b == b'\n').count();
                    let torn = Torn {
                        line: line + 1,
                        damaged: ends > own,
                    };
                    assert_eq!(found.torn, Some(torn), "byte {at}");
                    assert_eq!(found.flushes(), (line.saturating_sub(1)) / 2, "byte {at}");
                }
                Err(_) => assert_eq!(line, 0, "byte {at}"),
            }
        }
    }

    #[test]
    fn what_cannot_follow_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let attempt = |lines: &[Line]| {
            let mut journal = Journal::create(path.clone(), &Header::new(&ID, 1, 0, 0)).unwrap();
            journal.append_lines(lines, false).unwrap();
            read(&path).map(|found| found.flushes())
        };
        assert_eq!(attempt(&[commit(1, 9000), commit(2, 9000)]).unwrap(), 2);
        assert!(attempt(&[commit(1, 9000), commit(3, 9000)]).is_err());
        assert!(attempt(&[commit(1, 9000), commit(2, 8999)]).is_err());
        assert!(attempt(&[commit(1, 100)]).is_err());
        assert!(attempt(&[group("/a"), group("/a"), commit(1, 9000)]).is_err());
        let two = Line::Commit(Commit {
            flush: 1,
            ends: vec![9000, 9000],
        });
        assert!(attempt(&[two]).is_err());
    }

    #[test]
    fn an_append_that_fails_leaves_the_journal_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        // A device that is always full takes the place of the journal's file.
        let header = Header::new(&ID, 1, 0, 0);
        let other = dir.path().join("other");
        let mut journal = Journal::create(other.clone(), &header).unwrap();
        let good = std::mem::replace(
            &mut journal.file,
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap(),
        );
        assert!(journal.append_lines(&[commit(1, 9000)], false).is_err());
        journal.file = good;
        journal.append_lines(&[commit(1, 9100)], false).unwrap();
        let found = read(&other).unwrap();
        assert_eq!((found.end(0), found.torn), (9100, None));
        assert_eq!(read(&path).unwrap().flushes(), 2);
    }

    #[test]
    fn a_running_job_is_known_by_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let journal = Journal::create(path.clone(), &Header::new(&ID, 1, 0, 0)).unwrap();
        let other = File::open(&path).unwrap();
        assert_eq!(lock(&other).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(journal);
        lock(&other).unwrap();
    }
}
