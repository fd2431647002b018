//! A log that is not closed yet: its journal and its data files (`docs/formats/journal.md`). The journal records
//! definitions and complete flushes.
//!
//! * [`datatype`], [`definition`], [`scales`] and [`value`] describe what a program defines, as plain data.
//! * [`words`] says them in messages; `limits` has the most that there can be of them.
//! * [`shadow`] is what a journal has in place of definitions where HDF5 itself keeps the objects.
//! * [`state`] describes all of it at once, for an append.
//! * [`extent`](crate::log::logvol::extent) describes the contents of data files before they are HDF5.
//! * [`visible`] tells which flushes a file system shows wholly, [`sealed`] is what a scan says of that, and [`guard`] compares
//!   the rest when it is first read.
//! * [`closed`] tells whether all of a close can be seen.
//! * [`held`] notices when the name of a file of the log leads to another one.
//! * [`job`] describes who writes a log, and whether the job still runs.
//! * This module reads and writes the journal: one JSON value a line, each with a checksum over all lines so
//!   far.
//!
//! The writer, the scan, and `h5logfs recover` use this module. It needs neither MPI nor libhdf5.

pub mod closed;
pub mod datatype;
pub mod definition;
pub mod guard;
pub mod held;
mod hex;
pub mod job;
mod limits;
pub mod scales;
pub mod sealed;
pub mod shadow;
pub mod state;
pub mod value;
pub mod visible;
pub mod words;

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::Crc;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::log::file_id::FileId;
use crate::log::front;
use crate::log::log_files::LogFiles;
use crate::log::logvol::names::find_subfiles;
use crate::log::source_dir::SourcePath;
use crate::log::source_file::{Identity, SourceFile};
use definition::{Definition, Outline};
use hex::{from_hex, to_hex};
use shadow::{ImagePart, LoggedDataset, Shadow};

pub use held::{HeldFile, parent, sync};
pub use job::{Job, JobState, lock};

/// The suffix of a journal behind the name of its log file.
pub const SUFFIX: &str = ".h5logfs-journal";

const VERSION: u32 = 1;

/// The most bytes of a line, and of the first one.
const LONGEST_LINE: u64 = 4 << 20;
const LONGEST_HEADER: u64 = 64 << 10;

/// The most subfiles. The files of a log have 16-bit numbers, and one of them is the master.
pub const MOST_SUBFILES: u32 = u16::MAX as u32 - 1;

/// More flushes than any log has, so that an append can count on.
const MOST_FLUSHES: u64 = 1 << 62;

/// The most ends of flushes that are held in memory: one for each flush and data file, 8 bytes each.
pub const MOST_ENDS: usize = 1 << 27;

/// Path of the journal of the log file at `path`.
pub fn path_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(SUFFIX);
    name.into()
}

/// The first line: the file and its layout.
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
    /// Config bits of the layout: the encoding of entries.
    pub config: i32,
    /// Who writes the log. Journals of older writers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// The log existed before this journal did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<Append>,
}

/// What a journal is that continues a log. Its first commit stands for the state of the log when the append began, and
/// is in the journal before the journal has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// Number of the first commit. The data files hold flushes up to this one.
    pub flush: u64,
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
            job: None,
            append: None,
        }
    }

    /// The identifier of the file; `None` where `file` is not one.
    pub fn file_id(&self) -> Option<FileId> {
        let bytes = from_hex(&self.file)?;
        bytes.try_into().ok().map(FileId)
    }

    /// Where the subfiles lie; none where the log lies in the file itself.
    pub fn subfiles_of(&self, files: &LogFiles<'_>) -> Result<Vec<SourcePath>> {
        match self.subfiles {
            0 => Ok(Vec::new()),
            n => find_subfiles(files, i64::from(n))
                .map_err(|e| Error::bad_file(files.dir().full_path(files.log()), e)),
        }
    }

    /// Number of files that hold data.
    pub fn data_files(&self) -> u32 {
        self.subfiles.max(1)
    }
}

/// Name and version of this writer, for files.
pub fn writer_name() -> String {
    format!("h5logfs {}", env!("CARGO_PKG_VERSION"))
}

/// A line other than the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A definition.
    Define(Definition),
    /// A part of the image of the shadow.
    Image(ImagePart),
    /// What is known of a dataset of the shadow whose elements are in the log.
    Logged(LoggedDataset),
    /// The end of a flush.
    Commit(Commit),
}

/// The end of a flush: all bytes in front of `ends` are in the data files, and what all lines before it say is valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// From 1; in the first commit of an append, what [`Append`] says.
    pub flush: u64,
    /// Byte offset at which the log ends in each data file.
    pub ends: Vec<u64>,
    /// For each data file the sum of the tags of the flush's extents, modulo 2^64. Empty where the writer gives its
    /// extents no [`Seal`](crate::log::logvol::extent::Seal).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<u64>,
}

impl Commit {
    /// A commit of extents without seals.
    pub fn new(flush: u64, ends: Vec<u64>) -> Self {
        Commit {
            flush,
            ends,
            tags: Vec::new(),
        }
    }
}

/// Appends the text of a line, with its checksum in front, to `out`. `sum` becomes the checksum of all lines so far.
fn encode(line: &impl Serialize, sum: &mut Crc, out: &mut Vec<u8>) -> io::Result<()> {
    let text = serde_json::to_vec(line)?;
    if text.len() as u64 > LONGEST_LINE - 16 {
        return Err(io::Error::other(format!(
            "a line of {} bytes; the journal takes {LONGEST_LINE} at most",
            text.len()
        )));
    }
    sum.update(&text);
    out.extend_from_slice(format!("{:08x} ", sum.sum()).as_bytes());
    out.extend_from_slice(&text);
    out.push(b'\n');
    Ok(())
}

fn encode_all(lines: &[impl Serialize], sum: &mut Crc, out: &mut Vec<u8>) -> io::Result<()> {
    lines.iter().try_for_each(|line| encode(line, sum, out))
}

/// The journal of a running job. One process writes it.
#[derive(Debug)]
pub struct Journal {
    held: HeldFile,
    /// Number of valid bytes, and their checksum.
    len: u64,
    sum: Crc,
    /// There may be bytes behind the valid ones.
    torn: bool,
}

impl Journal {
    /// Makes the journal of a new file. It holds a lock on the journal for as long as it lives, which shows other
    /// processes that the job is running. No process sees the journal without the lock and the header. With `replace` it
    /// takes the place of a journal that is there, whose lock the caller must have. Else such a journal is an error.
    pub fn create(path: &Path, header: &Header, replace: bool) -> Result<Self> {
        Self::create_with(path, header, &[], replace)
    }

    /// The same for a journal that has these lines, too, before it has its name: an append begins with them.
    pub fn create_with(
        path: &Path,
        header: &Header,
        lines: &[Line],
        replace: bool,
    ) -> Result<Self> {
        let number = header.file_id().unwrap_or_default().number();
        let (mut text, mut sum) = (Vec::new(), Crc::new());
        let begin = |file: &File| {
            encode(header, &mut sum, &mut text)?;
            encode_all(lines, &mut sum, &mut text)?;
            lock(file)?;
            file.write_all_at(&text, 0)
        };
        let held = HeldFile::create(path, &number, replace, begin);
        Ok(Journal {
            held: held.map_err(|e| Error::io(path, e))?,
            len: text.len() as u64,
            sum,
            torn: false,
        })
    }

    /// Appends lines in one piece. With `sync`, waits until they are on the disk. After an error the journal is as it
    /// was before.
    pub fn append_lines(&mut self, lines: &[Line], sync: bool) -> Result<()> {
        self.append(lines, sync)
    }

    fn append(&mut self, lines: &[impl Serialize], sync: bool) -> Result<()> {
        let (mut text, mut sum) = (Vec::new(), copy_of(&self.sum));
        let encoded = encode_all(lines, &mut sum, &mut text);
        let file = self.held.file();
        let written = encoded
            .and_then(|()| {
                if self.torn {
                    file.set_len(self.len)
                } else {
                    Ok(())
                }
            })
            .and_then(|()| file.write_all_at(&text, self.len))
            .and_then(|()| if sync { file.sync_data() } else { Ok(()) });
        if let Err(e) = written {
            // Where this fails, too, it is done before the next lines.
            self.torn = file.set_len(self.len).is_err();
            return Err(Error::io(self.held.path(), e));
        }
        self.len += text.len() as u64;
        self.sum = sum;
        self.torn = false;
        Ok(())
    }

    /// Fails where the journal no longer has its name.
    pub fn check_name(&self) -> Result<()> {
        let checked = self.held.check_name();
        checked.map_err(|e| Error::io(self.held.path(), e))
    }

    /// Gives up the lock. A process that was forked meanwhile has the same lock, and does not keep it.
    pub fn unlock(self) {
        // Where the file system has no locks there is nothing to give up.
        let _ = flock(self.held.file(), FlockOperation::Unlock);
    }

    /// Removes the journal of a file that is closed.
    pub fn remove(&self) -> Result<()> {
        self.check_name()?;
        let path = self.held.path();
        std::fs::remove_file(path).map_err(|e| Error::io(path, e))
    }
}

/// Copies a checksum: `Crc` cannot be cloned, but combined with an empty one.
fn copy_of(sum: &Crc) -> Crc {
    let mut copy = Crc::new();
    copy.combine(sum);
    copy
}

/// The contents of a journal, up to its last commit.
#[derive(Debug)]
pub struct Recorded {
    /// Its first line.
    pub header: Header,
    /// The identifier of the file.
    pub id: FileId,
    /// Definitions before the last commit, in their order. Changes of datasets are not listed; the outline has them.
    pub definitions: Vec<Definition>,
    /// The objects that these definitions make.
    pub outline: Outline,
    /// What the journal has in place of definitions; `None` where it has definitions, or nothing.
    pub shadow: Option<Shadow>,
    /// The flushes that are complete, in their order.
    pub commits: Vec<Commit>,
    /// The first line that is not valid.
    pub torn: Option<Torn>,
    /// Identity of the journal as it was read.
    pub identity: Identity,
}

/// A line that is not valid. It ends the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    /// From 1.
    pub line: u64,
    /// Why it is not valid.
    pub cause: Cause,
}

/// Why a line of a journal is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It is the last one: the job died while it wrote the line.
    Interrupted,
    /// Other lines follow it, so a dying job did not leave it.
    Damaged,
    /// Its checksum is right: a later version of the writer wrote it.
    Unknown,
    /// It has bytes that were never written, or that the file system does not show yet.
    Missing,
}

impl Torn {
    /// Whether complete flushes may follow the line.
    pub fn hides_flushes(&self) -> bool {
        self.cause != Cause::Interrupted
    }
}

impl Display for Torn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = match self.cause {
            Cause::Interrupted => "is torn: a flush that did not return",
            Cause::Damaged => "is damaged: flushes that follow it cannot be shown",
            Cause::Missing => "is not all there: flushes from there on cannot be shown",
            Cause::Unknown => {
                "is of a kind that only a later version of h5logfs knows: flushes that follow it cannot be shown"
            }
        };
        write!(f, "line {} of the journal {what}", self.line)
    }
}

impl Recorded {
    /// Reads a journal. A torn last line belongs to a flush that did not return.
    pub fn read(source: &SourceFile) -> Result<Self> {
        Self::read_until(source, u64::MAX)
    }

    /// Reads a journal up to the end of flush `last`. Of an append it reads the first commit in any case.
    pub fn read_until(source: &SourceFile, last: u64) -> Result<Self> {
        let broken = |reason: String| Error::bad_file(source.path(), reason);
        let mut lines = Lines::new(source);
        let (header, id) = lines.header()?;
        let mut found = Recorded {
            header,
            id,
            definitions: Vec::new(),
            outline: Outline::default(),
            shadow: None,
            commits: Vec::new(),
            torn: None,
            identity: source.identity(),
        };
        let mut pending = Vec::new();
        while (found.flushes() < last || found.lacks_begin())
            && let Some(line) = lines.next(LONGEST_LINE)?
        {
            match line {
                Line::Commit(commit) => {
                    found.commit(commit, &mut pending).map_err(broken)?;
                }
                line => pending.push(line),
            }
        }
        if found.lacks_begin() {
            return Err(broken(
                "an append without the state that it continues".into(),
            ));
        }
        found.torn = lines.torn;
        Ok(found)
    }

    fn commit(
        &mut self,
        commit: Commit,
        pending: &mut Vec<Line>,
    ) -> std::result::Result<(), String> {
        let before = self.commits.last();
        let number = match before {
            Some(before) => before.flush.checked_add(1),
            None => Some(self.header.append.map_or(1, |append| append.flush)),
        };
        let grows = match before {
            Some(before) => commit.ends.iter().zip(&before.ends).all(|(e, b)| e >= b),
            None => commit.ends.iter().all(|e| *e >= front::FRONT),
        };
        let files = self.header.data_files() as usize;
        let has_tags = commit.tags.is_empty() || commit.tags.len() == files;
        if Some(commit.flush) != number || commit.ends.len() != files || !has_tags || !grows {
            return Err(format!(
                "flush {} at {:?} cannot follow",
                commit.flush, commit.ends
            ));
        }
        let numbers = commit.ends.len() + commit.tags.len();
        if self.commits.len().saturating_mul(numbers) > MOST_ENDS {
            return Err("more flushes than can be kept in mind".into());
        }
        for line in pending.drain(..) {
            self.add(line)?;
        }
        self.commits.push(commit);
        Ok(())
    }

    /// Adds what a line says that a commit covers.
    fn add(&mut self, line: Line) -> std::result::Result<(), String> {
        let mixed = match line {
            Line::Define(_) => self.shadow.is_some(),
            _ => !self.definitions.is_empty(),
        };
        if mixed {
            return Err("it has definitions, and a shadow".into());
        }
        match line {
            Line::Define(definition) => {
                self.outline.add(&definition)?;
                if !definition.changes_dataset() {
                    self.definitions.push(definition);
                }
            }
            Line::Image(part) => self.shadow.get_or_insert_default().change_image(&part)?,
            Line::Logged(dataset) => self.shadow.get_or_insert_default().set_logged(&dataset)?,
            // A commit adds itself.
            Line::Commit(_) => {}
        }
        Ok(())
    }

    /// Whether the journal continues a log, whose state is still to be read.
    fn lacks_begin(&self) -> bool {
        self.header.append.is_some() && self.commits.is_empty()
    }

    /// Number of dataset IDs in use.
    pub fn dataset_ids(&self) -> usize {
        let shadow = self.shadow.as_ref();
        shadow.map_or(self.outline.datasets.len(), Shadow::ids)
    }

    /// Number of datasets whose elements are in the log.
    pub fn datasets(&self) -> usize {
        match &self.shadow {
            Some(shadow) => shadow.logged.values().flatten().count(),
            None => self.outline.datasets.len(),
        }
    }

    /// The first flush that the journal tells from those before it. The state after any later one can be restored.
    pub fn first_flush(&self) -> u64 {
        self.header.append.map_or(0, |append| append.flush)
    }

    /// Number of the last complete flush; 0 without one.
    pub fn flushes(&self) -> u64 {
        self.commits.last().map_or(0, |c| c.flush)
    }

    /// Number of each flush, and its end in one data file.
    pub fn ends(&self, file: usize) -> impl Iterator<Item = (u64, u64)> {
        self.commits.iter().map(move |c| (c.flush, c.ends[file]))
    }

    /// Where the log ends in one data file.
    pub fn end(&self, file: usize) -> u64 {
        let last = self.commits.last();
        last.map_or(front::FRONT, |c| c.ends[file])
    }
}

/// The valid lines of a journal.
struct Lines<'a> {
    source: &'a SourceFile,
    reader: BufReader<io::Take<Reader<'a>>>,
    sum: Crc,
    number: u64,
    torn: Option<Torn>,
}

impl<'a> Lines<'a> {
    fn new(source: &'a SourceFile) -> Self {
        let reader = Reader { source, at: 0 };
        let reader = BufReader::new(io::Read::take(reader, source.len()));
        Lines {
            source,
            reader,
            sum: Crc::new(),
            number: 0,
            torn: None,
        }
    }

    /// The first line.
    fn header(&mut self) -> Result<(Header, FileId)> {
        let found: Option<Header> = self.next(LONGEST_HEADER)?;
        let broken = |reason: String| Error::bad_file(self.source.path(), reason);
        let header = found.ok_or_else(|| broken("a journal without a first line".into()))?;
        if header.journal != VERSION {
            return Err(broken(format!("a journal of version {}", header.journal)));
        }
        let has_room = header
            .append
            .is_none_or(|append| append.flush < MOST_FLUSHES);
        let id = header.file_id();
        let id = id.filter(|_| header.subfiles <= MOST_SUBFILES && has_room);
        let id = id.ok_or_else(|| broken("a journal of no file".into()))?;
        Ok((header, id))
    }

    /// `None` behind the last valid line, and where the next one has more than `longest` bytes.
    fn next<T: for<'d> Deserialize<'d>>(&mut self, longest: u64) -> Result<Option<T>> {
        let mut text = Vec::new();
        let mut line = io::Read::take(&mut self.reader, longest);
        let read = line.read_until(b'\n', &mut text);
        read.map_err(|e| Error::io(self.source.path(), e))?;
        if text.is_empty() || self.torn.is_some() {
            return Ok(None);
        }
        self.number += 1;
        let json = self.checked(&text);
        let parsed = json.and_then(|json| serde_json::from_slice(json).ok());
        if parsed.is_none() {
            let rest = self.reader.fill_buf();
            let rest = rest.map_err(|e| Error::io(self.source.path(), e))?;
            let cause = match (json, rest) {
                (Some(_), _) => Cause::Unknown,
                // A hole. No line of a journal has such bytes.
                (None, _) if text.contains(&0) => Cause::Missing,
                (None, []) => Cause::Interrupted,
                (None, _) => Cause::Damaged,
            };
            self.torn = Some(Torn {
                line: self.number,
                cause,
            });
        }
        Ok(parsed)
    }

    /// The JSON text of a line whose checksum is right.
    fn checked<'t>(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        let text = text.strip_suffix(b"\n")?;
        let (sum, text) = (text.get(..8)?, text.get(8..)?.strip_prefix(b" ")?);
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        self.sum.update(text);
        (sum == self.sum.sum()).then_some(text)
    }
}

/// Reads a source file as a stream.
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

/// The journal of the log file `file`, and where it lies; `None` where the file is closed, or this writer did not make it.
/// Fails where the file is not closed and has no journal.
pub fn of_file(files: &LogFiles<'_>, file: &SourceFile) -> Result<Option<(SourcePath, Recorded)>> {
    let Some(id) = file.file_id()? else {
        if lacks_front(files, file)? {
            let reason = "it has a journal, but its first bytes cannot be seen here yet";
            return Err(Error::bad_file(file.path(), reason));
        }
        return Ok(None);
    };
    let place = SourcePath::below(path_of(files.log()));
    let missing = |reason: String| {
        if front::is_unclosed(file)? {
            Err(Error::bad_file(
                file.path(),
                format!("it was not closed, and {reason}"),
            ))
        } else {
            Ok(None)
        }
    };
    let source = match files.open(&place) {
        Ok(source) => source,
        Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return missing(format!("its journal {} is not there", place.path.display()));
        }
        // It belongs to another user.
        Err(e @ Error::BadFile { .. }) => return missing(format!("its journal is not used: {e}")),
        Err(e) => return Err(e),
    };
    // A closed file is valid without its journal, so a journal that cannot be read is ignored.
    let recorded = match Recorded::read(&source) {
        Ok(recorded) if recorded.id == id => recorded,
        Ok(_) => return missing(format!("{} belongs to another file", place.path.display())),
        Err(e) => return missing(e.to_string()),
    };
    Ok(Some((place, recorded)))
}

/// Whether a file has a journal, and no bytes at its begin: a file system may show late what another node has written.
pub fn lacks_front(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    let has_journal = || {
        files
            .check(&SourcePath::below(path_of(files.log())))
            .is_ok()
    };
    Ok(front::is_hollow(file)? && has_journal())
}

/// The job that writes the journal `source`, as its first line says; `None` where it does not say it.
pub fn job_of(source: &SourceFile) -> Option<Job> {
    let (header, _) = Lines::new(source).header().ok()?;
    header.job
}

/// Whether the log file `file` is not closed, or may not be, as its journal says. It reads no more of the journal than
/// its first line: the rest takes memory that only the process of a scan may use.
pub fn may_belong_to(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    let Some(id) = file.file_id()? else {
        return Ok(false);
    };
    let place = SourcePath::below(path_of(files.log()));
    let header = files
        .open(&place)
        .and_then(|source| Lines::new(&source).header());
    match header {
        Ok((_, of)) if of == id => Ok(true),
        _ => front::is_unclosed(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::source_dir::SourceDir;
    use std::fs;

    const ID: FileId = FileId([7; 16]);

    fn group(name: &str) -> Line {
        Line::Define(Definition::Group { path: name.into() })
    }

    fn commit(flush: u64, end: u64) -> Line {
        Line::Commit(Commit::new(flush, vec![end]))
    }

    fn read(path: &Path) -> Result<Recorded> {
        let (dir, name) = SourceDir::of_file(path)?;
        Recorded::read(&SourceFile::open(&dir, &name)?)
    }

    /// A journal of two flushes, and a definition behind them.
    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("log.h5.h5logfs-journal");
        let header = Header::new(&ID, 4, 0, 10);
        let mut journal = Journal::create(&path, &header, false).unwrap();
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
        assert_eq!((none.flushes(), none.end(0)), (0, front::FRONT));
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
                    assert!(found.torn.is_none_or(|torn| !torn.hides_flushes()));
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
                    // Without its line end a line joins the next one.
                    let own = 1 + usize::from(whole[at] == b'\n');
                    let ends = whole[at..].iter().filter(|b| **b == b'\n').count();
                    let cause = if ends > own {
                        Cause::Damaged
                    } else {
                        Cause::Interrupted
                    };
                    let torn = Torn {
                        line: line + 1,
                        cause,
                    };
                    assert_eq!(found.torn, Some(torn), "byte {at}");
                    assert_eq!(found.flushes(), (line.saturating_sub(1)) / 2, "byte {at}");
                }
                Err(_) => assert_eq!(line, 0, "byte {at}"),
            }
        }
    }

    /// Its checksum tells it from damage.
    #[test]
    fn a_line_of_a_later_version_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
        let known = [group("/a"), commit(1, 9000)];
        journal.append_lines(&known, false).unwrap();
        let later = serde_json::json!({"define": {"colour": {"dataset": 0}}});
        journal.append(&[later], false).unwrap();
        journal.append_lines(&[commit(2, 9000)], false).unwrap();
        let found = read(&path).unwrap();
        let torn = found.torn.unwrap();
        assert_eq!((found.flushes(), torn.line), (1, 4));
        assert_eq!(torn.cause, Cause::Unknown);
        assert!(torn.hides_flushes() && torn.to_string().contains("a later version"));
    }

    #[test]
    fn what_cannot_follow_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let attempt = |lines: &[Line]| {
            let _ = fs::remove_file(&path);
            let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
            journal.append_lines(lines, false).unwrap();
            read(&path).map(|found| found.flushes())
        };
        assert_eq!(attempt(&[commit(1, 9000), commit(2, 9000)]).unwrap(), 2);
        assert!(attempt(&[commit(1, 9000), commit(3, 9000)]).is_err());
        assert!(attempt(&[commit(1, 9000), commit(2, 8999)]).is_err());
        assert!(attempt(&[commit(1, 100)]).is_err());
        assert!(attempt(&[group("/a"), group("/a"), commit(1, 9000)]).is_err());
        let two = Line::Commit(Commit::new(1, vec![9000, 9000]));
        assert!(attempt(&[two]).is_err());
        let tags = |tags| {
            Line::Commit(Commit {
                tags,
                ..Commit::new(1, vec![9000])
            })
        };
        assert_eq!(attempt(&[tags(vec![7])]).unwrap(), 1);
        assert!(attempt(&[tags(vec![7, 7])]).is_err());
    }

    /// A header of a journal that continues a log of `flush` flushes.
    fn append(flush: u64) -> Header {
        Header {
            append: Some(Append { flush }),
            ..Header::new(&ID, 1, 0, 0)
        }
    }

    #[test]
    fn an_append_begins_with_the_state_that_it_continues() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let begin = |header: &Header, lines: &[Line]| {
            let _ = fs::remove_file(&path);
            Journal::create_with(&path, header, lines, false).unwrap()
        };
        let mut journal = begin(&append(7), &[group("/a"), commit(7, 9000)]);
        let found = read(&path).unwrap();
        assert_eq!((found.flushes(), found.end(0)), (7, 9000));
        assert_eq!((found.definitions.len(), found.first_flush()), (1, 7));
        let next = [group("/b"), commit(8, 9100)];
        journal.append_lines(&next, false).unwrap();
        assert_eq!(read(&path).unwrap().flushes(), 8);
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let source = SourceFile::open(&below, &name).unwrap();
        for (last, wanted) in [(0, 7), (6, 7), (7, 7), (8, 8)] {
            let found = Recorded::read_until(&source, last).unwrap();
            assert_eq!(found.flushes(), wanted);
        }
        // A log that had no flush.
        begin(&append(0), &[commit(0, 8192), commit(1, 9000)]);
        assert_eq!(read(&path).unwrap().flushes(), 1);
        // Another state than that of the header, none, and numbers at their limit.
        begin(&append(7), &[commit(1, 9000)]);
        assert!(read(&path).is_err());
        begin(&append(7), &[group("/a")]);
        let missing = read(&path).unwrap_err().to_string();
        assert!(missing.contains("without the state"), "{missing}");
        begin(
            &append(u64::MAX),
            &[commit(u64::MAX, 9000), commit(0, 9000)],
        );
        assert!(read(&path).is_err());
    }

    fn logged(id: u32, header: Option<u64>) -> Line {
        Line::Logged(LoggedDataset { id, header })
    }

    #[test]
    fn a_shadow_counts_with_the_commit_that_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
        let images: [Vec<u8>; 3] = [vec![1; 10_000], vec![2; 300], vec![3; 20_000]];
        let mut last: &[u8] = &[];
        for (image, flush) in images.iter().zip(1..) {
            let mut lines = shadow::image_lines(last, image).unwrap();
            lines.push(logged(flush as u32, Some(flush)));
            journal.append_lines(&lines, false).unwrap();
            let before = read(&path).unwrap().shadow.unwrap_or_default();
            assert_eq!(before.image, last);
            journal.append_lines(&[commit(flush, 9000)], false).unwrap();
            let shadow = read(&path).unwrap().shadow.unwrap();
            assert_eq!(
                (&shadow.image, shadow.logged.len()),
                (image, flush as usize)
            );
            last = image;
        }
        journal
            .append_lines(&[logged(2, None), commit(4, 9000)], false)
            .unwrap();
        let found = read(&path).unwrap();
        assert_eq!((found.dataset_ids(), found.definitions.len()), (4, 0));
        let shadow = found.shadow.unwrap();
        let headers: Vec<_> = shadow.logged.values().copied().collect();
        assert_eq!(headers, [Some(1), None, Some(3)]);
        // What cannot be: both kinds of lines, in any order, and a part of no image.
        for lines in [
            [group("/a"), logged(0, None)],
            [logged(0, None), group("/a")],
        ] {
            let _ = fs::remove_file(&path);
            let header = Header::new(&ID, 1, 0, 0);
            let [one, other] = lines;
            let lines = [one, commit(1, 9000), other, commit(2, 9000)];
            Journal::create_with(&path, &header, &lines, false).unwrap();
            assert!(read(&path).is_err());
        }
        let Line::Image(mut part) = shadow::image_lines(&[], &[1; 10]).unwrap().remove(0) else {
            panic!();
        };
        part.at = 1;
        let lines = [Line::Image(part), commit(1, 9000)];
        Journal::create_with(&path, &Header::new(&ID, 1, 0, 0), &lines, true).unwrap();
        assert!(read(&path).is_err());
    }

    #[test]
    fn an_append_that_fails_leaves_the_journal_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        // A device that is always full takes the place of the journal's file.
        let header = Header::new(&ID, 1, 0, 0);
        let other = dir.path().join("other");
        let mut journal = Journal::create(&other, &header, false).unwrap();
        let mut options = fs::OpenOptions::new();
        let full = options.write(true).open("/dev/full").unwrap();
        let good = journal.held.swap_file(full);
        assert!(journal.append_lines(&[commit(1, 9000)], false).is_err());
        journal.held.swap_file(good);
        journal.append_lines(&[commit(1, 9100)], false).unwrap();
        let found = read(&other).unwrap();
        assert_eq!((found.end(0), found.torn), (9100, None));
        assert_eq!(read(&path).unwrap().flushes(), 2);
    }

    #[test]
    fn a_journal_says_who_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let job = Job::of_this_process();
        let header = Header {
            job: Some(job.clone()),
            ..Header::new(&ID, 1, 0, 0)
        };
        let journal = Journal::create(&path, &header, false).unwrap();
        assert_eq!(read(&path).unwrap().header.job.as_ref(), Some(&job));
        let (below, name) = SourceDir::of_file(&path).unwrap();
        let source = SourceFile::open(&below, &name).unwrap();
        assert_eq!(job_of(&source), Some(job));
        let other = File::open(&path).unwrap();
        assert_eq!(JobState::of(&other), JobState::Running);
        drop(journal);
        assert_eq!(JobState::of(&other), JobState::Ended);
        // Older writers do not say it.
        assert_eq!(read(&written(dir.path())).unwrap().header.job, None);
    }
}
