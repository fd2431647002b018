//! The lines of a journal, as plain data and as text.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::definition::Definition;
use super::hex::{from_hex, to_hex};
use super::job::Job;
use super::metadata_image::{ImagePart, LoggedDataset};
use crate::file_id::FileId;
use crate::log_files::LogFiles;
use crate::logvol::names::find_subfiles;
use crate::source_dir::SourcePath;
use h5logfs_common::error::{Error, Result};

pub(super) const VERSION: u32 = 1;
/// The version whose definitions follow a metadata image.
pub(super) const VERSION_WITH_BASE: u32 = 2;

/// The longest line, and the longest first line, in bytes.
pub(super) const LONGEST_LINE: u64 = 4 << 20;
pub(super) const LONGEST_HEADER: u64 = 64 << 10;

/// The most subfiles. Files of a log have 16-bit numbers, and one is the master.
pub const MOST_SUBFILES: u32 = u16::MAX as u32 - 1;

/// The first line: the file and its layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the journal format: 2 where definitions follow a metadata image, else 1.
    pub journal: u32,
    /// [`FileId`] in hexadecimal digits.
    pub file: String,
    /// The text of the root attribute `_h5logfs_writer`.
    pub writer: String,
    /// Number of processes of the job.
    pub ranks: u32,
    /// Number of subfiles; 0 where the log lies in the file itself.
    pub subfiles: u32,
    /// Config bits of the layout: the encoding of entries.
    pub config: i32,
    /// The writer of the log. Older writers do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    /// Set if the log existed before this journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<Append>,
}

/// A journal that continues a log. Its first commit stands for the state of the log when the append began, and is
/// written before the journal gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Append {
    /// Number of the first commit. The data files hold the flushes up to it.
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

    /// The header of a journal in which definitions follow a metadata image.
    pub fn with_base(self) -> Self {
        Header {
            journal: VERSION_WITH_BASE,
            ..self
        }
    }

    /// Whether definitions may follow a metadata image.
    pub fn has_base(&self) -> bool {
        self.journal == VERSION_WITH_BASE
    }

    /// Whether this version of h5logfs reads the journal.
    pub(super) fn is_known(&self) -> bool {
        (VERSION..=VERSION_WITH_BASE).contains(&self.journal)
    }

    /// The identifier of the file; `None` where `file` is not valid.
    pub fn file_id(&self) -> Option<FileId> {
        let bytes = from_hex(&self.file)?;
        bytes.try_into().ok().map(FileId)
    }

    /// The places of the subfiles; none where the log lies in the file itself.
    pub fn subfiles_of(&self, files: &LogFiles<'_>) -> Result<Vec<SourcePath>> {
        match self.subfiles {
            0 => Ok(Vec::new()),
            n => find_subfiles(files, i64::from(n))
                .map_err(|e| Error::of(files.dir().full_path(files.log()), e)),
        }
    }

    /// Number of files that hold data.
    pub fn data_files(&self) -> u32 {
        self.subfiles.max(1)
    }
}

/// Name and version of this writer, as stored in files.
pub fn writer_name() -> String {
    format!("h5logfs {}", env!("CARGO_PKG_VERSION"))
}

/// A line other than the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A definition.
    Define(Definition),
    /// A part of the metadata image.
    Image(ImagePart),
    /// A dataset of the metadata image whose elements are in the log.
    Logged(LoggedDataset),
    /// The end of a flush.
    Commit(Commit),
}

/// The end of a flush: all bytes before `ends` are in the data files, and all lines before this one are valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Number of the flush, from 1. The first commit of an append has the number in [`Append`].
    pub flush: u64,
    /// End of the log in each data file.
    pub ends: Vec<u64>,
    /// Sum of the tags of the flush's extents in each data file, modulo 2^64. Empty where the extents have no
    /// [`Seal`](crate::logvol::extent::Seal).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<u64>,
    /// For an automatic flush: the last requested flush before it, 0 if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// Time of writing, in milliseconds since 1970, by the clock of the first rank. Older writers do not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<i64>,
}

impl Commit {
    /// The commit of a requested flush whose extents have no seals.
    pub fn new(flush: u64, ends: Vec<u64>) -> Self {
        Commit {
            flush,
            ends,
            tags: Vec::new(),
            asked: None,
            time: None,
        }
    }

    /// The commit with the present time.
    pub fn now(mut self) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).ok();
        self.time = since_1970.and_then(|time| i64::try_from(time.as_millis()).ok());
        self
    }

    /// The commit with `asked` as the last requested flush: this one, or an earlier one.
    pub fn asked_at(mut self, asked: u64) -> Self {
        self.asked = (asked < self.flush).then_some(asked);
        self
    }

    /// The last requested flush up to this one; 0 if there is none.
    pub fn asked(&self) -> u64 {
        self.asked.unwrap_or(self.flush)
    }
}

/// Appends the text of a line after its checksum to `out`. `sum` becomes the checksum of all lines so far.
pub(super) fn encode(line: &impl Serialize, sum: &mut Crc, out: &mut Vec<u8>) -> io::Result<()> {
    let begin = out.len();
    // The place is filled below: a log of thousands of datasets has as many lines, so nothing is copied.
    out.extend_from_slice(b"00000000 ");
    let text = out.len();
    serde_json::to_writer(&mut *out, line)?;
    let len = out.len() - text;
    if len as u64 > LONGEST_LINE - 16 {
        return Err(io::Error::other(format!(
            "a line of {len} bytes; the journal takes {LONGEST_LINE} at most"
        )));
    }
    sum.update(&out[text..]);
    write!(&mut out[begin..text], "{:08x}", sum.sum())?;
    out.push(b'\n');
    Ok(())
}

pub(super) fn encode_all(
    lines: &[impl Serialize],
    sum: &mut Crc,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    lines.iter().try_for_each(|line| encode(line, sum, out))
}
