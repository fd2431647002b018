//! Reads the lines of a journal, up to the first invalid one.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader};

use flate2::Crc;
use serde::Deserialize;

use super::fresh::FileSystem;
use super::line::{Header, LONGEST_HEADER, LONGEST_LINE, Line, MOST_SUBFILES};
use crate::file_id::FileId;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};

/// More flushes than any log has. An append can still count further.
pub const MOST_FLUSHES: u64 = 1 << 62;

/// Bytes after an invalid line that are searched for commits. In more bytes, commits are assumed.
const MOST_SEARCHED: u64 = 64 << 20;

/// An invalid line, which ends the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Torn {
    /// Number of the line, from 1.
    pub line: u64,
    /// Why the line is invalid.
    pub cause: Cause,
    /// The last flush with a commit in this line or later. It was complete, but cannot be shown.
    pub last_hidden: Option<u64>,
    /// A loss of power has cut the end of the journal: the line has a hole, the file system shows everything written,
    /// and the journal ends with the commit of exactly one more flush.
    pub is_end: bool,
}

/// Why a line of a journal is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The line is no commit and none follows: the job or its node went down during the flush.
    Interrupted,
    /// The line is a commit, or commits follow it, so a dying job did not leave it.
    Damaged,
    /// The checksum is right: a later version of the writer wrote the line.
    Unknown,
    /// The line has bytes that were never written, or are not visible yet.
    Missing,
}

impl Torn {
    /// Whether complete flushes may follow the line.
    pub fn hides_flushes(&self) -> bool {
        self.last_hidden.is_some() || self.cause == Cause::Unknown
    }

    /// Whether acknowledged flushes may be lost. A flush with a hole was never synced to disk, so it was never
    /// acknowledged.
    pub fn may_lose_flushes(&self) -> bool {
        self.hides_flushes() && !self.is_end
    }
}

impl Display for Torn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let what = match self.cause {
            Cause::Interrupted => "is torn: a flush that did not return",
            Cause::Damaged => "is damaged: flushes from there on cannot be shown",
            Cause::Missing if self.is_end => {
                "is not all there: a part of the last flush did not reach the disk"
            }
            Cause::Missing if self.last_hidden.is_some() => {
                "is not all there: flushes from there on cannot be shown"
            }
            Cause::Missing => {
                "is not all there: a part of a flush did not reach the disk, or is not visible here yet"
            }
            Cause::Unknown => {
                "is of a kind that only a later version of h5logfs knows: flushes that follow it cannot be shown"
            }
        };
        write!(f, "line {} of the journal {what}", self.line)
    }
}

/// The valid lines of a journal.
pub(super) struct Lines<'a> {
    source: &'a SourceFile,
    reader: BufReader<io::Take<Reader<'a>>>,
    sum: Crc,
    number: u64,
    /// Bytes of the valid lines.
    pub(super) len: u64,
    torn: Option<Torn>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(source: &'a SourceFile) -> Self {
        let reader = Reader { source, at: 0 };
        let reader = BufReader::new(io::Read::take(reader, source.len()));
        Lines {
            source,
            reader,
            sum: Crc::new(),
            number: 0,
            len: 0,
            torn: None,
        }
    }

    /// Whether there is no commit, as when only a part of a new journal reached the disk. False for a journal of
    /// another version, where it is unknown.
    pub(super) fn have_no_commit(mut self) -> Result<bool> {
        let mut line: Option<Line> = None;
        match self.next::<Header>(LONGEST_HEADER)? {
            Some(header) if header.is_known() => line = self.next(LONGEST_LINE)?,
            Some(_) => return Ok(false),
            None => {}
        }
        while let Some(found) = line {
            if matches!(found, Line::Commit(_)) {
                return Ok(false);
            }
            line = self.next(LONGEST_LINE)?;
        }
        Ok(!self.end()?.is_some_and(|torn| torn.hides_flushes()))
    }

    /// The first line.
    pub(super) fn header(&mut self) -> Result<(Header, FileId)> {
        let found: Option<Header> = self.next(LONGEST_HEADER)?;
        let broken = |reason: &str| Error::of(self.source.path(), reason);
        let header = found.ok_or_else(|| broken("a journal without a first line"))?;
        if !header.is_known() {
            return Err(broken(&format!("a journal of version {}", header.journal)));
        }
        let has_room = header
            .append
            .is_none_or(|append| append.flush < MOST_FLUSHES);
        let id = header.file_id();
        let id = id.filter(|_| header.subfiles <= MOST_SUBFILES && has_room);
        let id = id.ok_or_else(|| broken("a journal without a valid identifier of its file"))?;
        Ok((header, id))
    }

    /// The next line. `None` after the last valid line, and for a line of more than `longest` bytes.
    pub(super) fn next<T: for<'d> Deserialize<'d>>(&mut self, longest: u64) -> Result<Option<T>> {
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
        if parsed.is_some() {
            self.len += text.len() as u64;
            return Ok(parsed);
        }
        let cause = match json {
            Some(_) => Cause::Unknown,
            // A hole: no line of a journal has such bytes.
            None if text.contains(&0) => Cause::Missing,
            None => Cause::Interrupted,
        };
        let hidden = commit_in(&text);
        self.torn = Some(Torn {
            line: self.number,
            cause,
            last_hidden: hidden,
            is_end: false,
        });
        Ok(None)
    }

    /// The invalid line, if there is one, and the flushes that it hides. From the damage on, checksums prove nothing, so anything
    /// that parses as a commit counts as one. A flush that was cut off has no commit.
    pub(super) fn end(mut self) -> Result<Option<Torn>> {
        let Some(mut torn) = self.torn else {
            return Ok(None);
        };
        let mut hidden = Hidden {
            last: torn.last_hidden,
            commits: torn.last_hidden.iter().count(),
            ends_with_commit: torn.last_hidden.is_some(),
        };
        self.find_commits(&mut hidden)?;
        torn.last_hidden = hidden.last;
        torn.is_end = torn.cause == Cause::Missing
            && hidden.commits == 1
            && hidden.ends_with_commit
            && (self.source.descriptor()).is_some_and(|file| FileSystem::of(file).is_local());
        if torn.last_hidden.is_some() && torn.cause == Cause::Interrupted {
            torn.cause = Cause::Damaged;
        }
        Ok(Some(torn))
    }

    /// Looks for commits in the bytes not read yet. If there are very many, commits are assumed.
    fn find_commits(&mut self, hidden: &mut Hidden) -> Result<()> {
        let (mut line, mut searched) = (Vec::new(), 0);
        loop {
            line.clear();
            let mut part = io::Read::take(&mut self.reader, LONGEST_LINE);
            let read = part.read_until(b'\n', &mut line);
            let read = read.map_err(|e| Error::io(self.source.path(), e))?;
            if read == 0 {
                return Ok(());
            }
            let commit = commit_in(&line);
            hidden.last = hidden.last.max(commit);
            hidden.commits += commit.iter().count();
            hidden.ends_with_commit = commit.is_some();
            searched += read as u64;
            if searched > MOST_SEARCHED {
                hidden.last = Some(u64::MAX);
                hidden.ends_with_commit = false;
                return Ok(());
            }
        }
    }

    /// The JSON text of a line with a correct checksum.
    fn checked<'t>(&mut self, text: &'t [u8]) -> Option<&'t [u8]> {
        let text = text.strip_suffix(b"\n")?;
        let (sum, text) = (text.get(..8)?, text.get(8..)?.strip_prefix(b" ")?);
        let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
        self.sum.update(text);
        (sum == self.sum.sum()).then_some(text)
    }
}

/// Commits in and after an invalid line.
struct Hidden {
    last: Option<u64>,
    commits: usize,
    /// Nothing follows the last commit.
    ends_with_commit: bool,
}

/// The number of the flush, if a text ends with a complete commit line, whatever precedes it. The checksum is not
/// verified.
fn commit_in(text: &[u8]) -> Option<u64> {
    const BEGIN: &[u8] = br#" {"commit":"#;
    let at = text.windows(BEGIN.len()).rposition(|part| part == BEGIN)?;
    let (sum, json) = text.split_at(at);
    let has_sum = sum.last_chunk::<8>()?.iter().all(u8::is_ascii_hexdigit);
    match serde_json::from_slice(json.strip_suffix(b"\n")?) {
        Ok(Line::Commit(commit)) if has_sum => Some(commit.flush),
        _ => None,
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
