//! Files beside a log under the name of its journal, and whether they count (`docs/formats/journal.md`, section 1).
//!
//! Everything that reads, closes, replaces or continues a log asks here. A file that proves that its own close is
//! complete is closed, whatever a stale journal says. After a loss of power a removed journal, or an older state of it,
//! may be back.

use std::io;

use super::closed::CloseSeal;
use super::guard::check_table;
use super::lines::Lines;
use super::{Cause, Recorded, path_of};
use crate::file_id::FileId;
use crate::front::{self, FRONT};
use crate::log_files::LogFiles;
use crate::own_parts::{BEGIN, begins_as_journal};
use crate::source_dir::SourcePath;
use crate::source_file::{Identity, SourceFile};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// The journal beside a log file, if there is one.
#[derive(Debug)]
pub enum Beside {
    /// The journal of an unclosed log, and its place.
    Journal(SourcePath, Box<Recorded>),
    /// A stale journal. The log is closed, and loses nothing without the journal.
    Stale(Stale),
    /// No journal that the log needs or that could be removed. The log is closed, or our writer did not make it.
    Nothing,
}

/// A stale journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The reason, in words that follow the name of the journal.
    pub reason: String,
    /// The journal as it was read.
    pub identity: Identity,
}

impl Beside {
    /// Looks beside the log file `file`. Fails where the file is unclosed and has no journal.
    pub fn of(files: &LogFiles<'_>, file: &SourceFile) -> Result<Self> {
        let Some(id) = file.file_id()? else {
            if lacks_front(files, file)? {
                let reason = "it has a journal, but its first bytes are not visible here yet";
                return Err(Error::of(file.path(), reason));
            }
            return Ok(Beside::Nothing);
        };
        let place = SourcePath::below(path_of(files.log()));
        // A closed file is valid without its journal, so an unusable one is ignored.
        let unless_unclosed = |reason: String, beside: Beside| {
            if !front::is_unclosed(file)? {
                return Ok(beside);
            }
            let advice = if file.len() > FRONT {
                "Put its journal beside it: only the journal lists its flushes"
            } else {
                "It has no data itself: if it has no subfiles either, nothing is lost when it is removed or replaced"
            };
            let reason = format!("it was not closed, and {reason}. {advice}");
            Err(Error::of(file.path(), reason))
        };
        let source = match files.open(&place) {
            Ok(source) => source,
            Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                let reason = format!("its journal {} is not there", place.path.display());
                return unless_unclosed(reason, Beside::Nothing);
            }
            // The journal belongs to another user.
            Err(e @ Error::BadFile { .. }) => {
                let reason = format!("its journal is not used: {e}");
                return unless_unclosed(reason, Beside::Nothing);
            }
            Err(e) => return Err(e),
        };
        let stale = |reason: String| {
            Beside::Stale(Stale {
                reason,
                identity: source.identity(),
            })
        };
        match Recorded::read(&source) {
            Ok(recorded) if recorded.id == id => {
                if is_closed_after(files, file, id, &recorded)? {
                    let flushes = recorded.flushes();
                    return Ok(stale(format!(
                        "is too old: it ends with flush {flushes}, and the log was closed after that"
                    )));
                }
                Ok(Beside::Journal(place, Box::new(recorded)))
            }
            Ok(other) => {
                let reason = format!("{} belongs to another file", place.path.display());
                let hides_flushes = other.torn.is_some_and(|torn| torn.hides_flushes());
                let beside = if other.flushes() == 0 && !hides_flushes {
                    stale("is of another log, into which nothing was flushed".to_owned())
                } else {
                    Beside::Nothing
                };
                unless_unclosed(reason, beside)
            }
            Err(e @ Error::BadFile { .. }) => {
                let beside = if is_journal(&source)? && Lines::new(&source).have_no_commit()? {
                    stale("has no flush: it never reached the disk in full".to_owned())
                } else {
                    Beside::Nothing
                };
                unless_unclosed(e.to_string(), beside)
            }
            Err(e) => Err(e),
        }
    }

    /// The journal of an unclosed log, and its place.
    pub fn journal(self) -> Option<(SourcePath, Recorded)> {
        match self {
            Beside::Journal(place, recorded) => Some((place, *recorded)),
            Beside::Stale(_) | Beside::Nothing => None,
        }
    }
}

/// Whether a file is a journal at all. A user may give its name to any file.
pub fn is_journal(source: &SourceFile) -> Result<bool> {
    let mut begin = vec![0; source.len().min(BEGIN as u64) as usize];
    source.read_exact_at(&mut begin, 0)?;
    Ok(begins_as_journal(&begin))
}

/// Whether a file has a journal but no bytes at its start. A file system may show the writes of another node late.
pub fn lacks_front(files: &LogFiles<'_>, file: &SourceFile) -> Result<bool> {
    let has_journal = || {
        files
            .check(&SourcePath::below(path_of(files.log())))
            .is_ok()
    };
    Ok(front::is_hollow(file)? && has_journal())
}

/// Whether the log file `file` and all its subfiles prove that they were closed at or after the last flush of the
/// journal. A journal of a later version may contain more.
fn is_closed_after(
    files: &LogFiles<'_>,
    file: &SourceFile,
    id: FileId,
    journal: &Recorded,
) -> Result<bool> {
    let proves = |file: &SourceFile, least: u64| match check_closed(file, least) {
        Ok(flush) => Ok(Some(flush)),
        Err(fault) if fault.ends_work() => Err(Error::of(file.path(), fault)),
        // Without the proof of a close, the journal decides.
        Err(reason) => {
            log::debug!("{}: not closed: {reason}", file.path().display());
            Ok(None)
        }
    };
    let hidden = match journal.torn {
        Some(torn) if torn.cause == Cause::Unknown => return Ok(false),
        torn => torn.and_then(|torn| torn.last_hidden).unwrap_or_default(),
    };
    let Some(flush) = proves(file, journal.flushes().max(hidden))? else {
        return Ok(false);
    };
    for place in journal.header.subfiles_of(files)? {
        let subfile = files.open(&place)?;
        let is_own = subfile.file_id()? == Some(id);
        if !is_own || proves(&subfile, flush)? != Some(flush) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The flush after which a file was closed. Fails where that is less than `least`, or front, table or objects are
/// incomplete.
fn check_closed(file: &SourceFile, least: u64) -> std::result::Result<u64, Fault> {
    let (seal, front) = CloseSeal::read(file)?.ok_or("its front has no seal of a close")?;
    let closed = seal.closed().ok_or("its seal lacks the last flush")?;
    if closed.flush < least {
        return Err(format!("it was closed after flush {}", closed.flush).into());
    }
    seal.check(file, &front, u64::MAX)?;
    let table = seal.table().ok_or("its table has no place")?;
    check_table(file, closed.end, table)?;
    Ok(closed.flush)
}
