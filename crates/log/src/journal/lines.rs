//! Reads the lines of a journal, up to the first one that is not valid.

use std::fmt::{self, Display, Formatter};
use std::io::{self, BufRead, BufReader};

use flate2::Crc;
use serde::Deserialize;

use super::line::{Header, LONGEST_HEADER, MOST_SUBFILES, VERSION};
use crate::file_id::FileId;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};

/// More flushes than any log has, so that an append can count on.
const MOST_FLUSHES: u64 = 1 << 62;

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

/// The valid lines of a journal.
pub(super) struct Lines<'a> {
    source: &'a SourceFile,
    reader: BufReader<io::Take<Reader<'a>>>,
    sum: Crc,
    number: u64,
    pub(super) torn: Option<Torn>,
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
            torn: None,
        }
    }

    /// The first line.
    pub(super) fn header(&mut self) -> Result<(Header, FileId)> {
        let found: Option<Header> = self.next(LONGEST_HEADER)?;
        let broken = |reason: &str| Error::of(self.source.path(), reason);
        let header = found.ok_or_else(|| broken("a journal without a first line"))?;
        if header.journal != VERSION {
            return Err(broken(&format!("a journal of version {}", header.journal)));
        }
        let has_room = header
            .append
            .is_none_or(|append| append.flush < MOST_FLUSHES);
        let id = header.file_id();
        let id = id.filter(|_| header.subfiles <= MOST_SUBFILES && has_room);
        let id = id.ok_or_else(|| broken("a journal of no file"))?;
        Ok((header, id))
    }

    /// `None` behind the last valid line, and where the next one has more than `longest` bytes.
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
