//! Proof that our writers made a file beside a log. A user may give a file any name, so the content of the file is the
//! proof. Code that removes or renames such a file asks here first.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::file_id::FileId;
use crate::front::begins_unclosed_text;
use crate::logvol::extent::ExtentHeader;
use crate::logvol::names::{spilled_by, subfile_number};

/// Bytes at the start of a file that identify its kind, without its identifier.
pub const BEGIN: usize = 64;

/// A directory beside a log, by the proof that a file in it belongs to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnDir {
    /// The directory of the subfiles.
    Subfiles {
        /// The part of a subfile's name before its number.
        base: OsString,
        /// The identifier of the log.
        id: FileId,
    },
    /// The directory of the spill files of the ranks.
    Spilled,
}

impl OwnDir {
    /// Whether the file at this path in the directory belongs to the log.
    pub fn has(&self, path: &Path) -> io::Result<bool> {
        let name = path.file_name().unwrap_or_default();
        let has_name = match self {
            OwnDir::Subfiles { base, .. } => subfile_number(base, name).is_some(),
            OwnDir::Spilled => spilled_by(name).is_some(),
        };
        // Files with other names are not opened.
        let Some(file) = has_name.then(|| open(path)).transpose()?.flatten() else {
            return Ok(false);
        };
        match self {
            OwnDir::Subfiles { id, .. } => Ok(FileId::of(&file)? == Some(*id)),
            OwnDir::Spilled => is_spilled(&file),
        }
    }
}

/// Whether a file is a spill file. It may be empty, as after each flush.
pub fn is_spilled(file: &File) -> io::Result<bool> {
    let begin = begin(file)?;
    Ok(is_blank(&begin) || begins_as(&begin, ExtentHeader::MAGIC))
}

/// Whether the file at `path` is an unfinished log, subfile or journal: a process began to make it.
pub fn is_unfinished(path: &Path) -> io::Result<bool> {
    let Some(file) = open(path)? else {
        return Ok(false);
    };
    let begin = begin(&file)?;
    let is_begun = begins_as_journal(&begin) || begins_unclosed_text(&begin);
    Ok(is_begun || FileId::of(&file)?.is_some())
}

/// Whether a file with these first bytes is a journal. A journal begins with the checksum of its first line and the
/// version. A journal of which nothing reached the disk counts as well.
pub fn begins_as_journal(begin: &[u8]) -> bool {
    let (sum, rest) = begin.split_at(begin.len().min(8));
    let is_line = sum.iter().all(u8::is_ascii_hexdigit) && begins_as(rest, br#" {"journal":"#);
    is_line || is_blank(begin)
}

/// Whether bytes begin with a mark, or with a part of it: the first write may have been cut off.
fn begins_as(bytes: &[u8], mark: &[u8]) -> bool {
    let len = bytes.len().min(mark.len());
    bytes[..len] == mark[..len]
}

/// Whether all bytes are zero. After a loss of power a file may have its size, but no data.
fn is_blank(begin: &[u8]) -> bool {
    begin.iter().all(|byte| *byte == 0)
}

/// The first bytes of a file, fewer where it is short.
fn begin(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; BEGIN];
    let mut len = 0;
    while len < BEGIN {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// Opens a regular file for reading. `None` where there is none, or something else. Links are not followed.
fn open(path: &Path) -> io::Result<Option<File>> {
    match path.symlink_metadata() {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = File::options();
    options.read(true).custom_flags(flags.bits().cast_signed());
    match options.open(path) {
        Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
        // A file that this user may not read proves nothing.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::front::unclosed_front;

    const ID: FileId = FileId([7; 16]);

    #[test]
    fn what_is_in_a_file_decides() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, bytes).unwrap();
            path
        };
        let front = unclosed_front(&ID);
        let subfiles = |id| OwnDir::Subfiles {
            base: "a.h5".into(),
            id,
        };
        let has = |dir: &OwnDir, name: &str, bytes: &[u8]| dir.has(&at(name, bytes)).unwrap();
        assert!(has(&subfiles(ID), "a.h5.12", &front));
        assert!(!has(&subfiles(FileId([8; 16])), "a.h5.12", &front));
        for name in [
            "a.h5.",
            "a.h5.012",
            "a.h5.+1",
            "a.h5.1.1",
            "b.h5.1",
            "a.h5",
            "a.h5.4294967296",
        ] {
            assert!(!has(&subfiles(ID), name, &front), "{name}");
        }
        for bytes in [&b"notes"[..], b"", &front[..8191], &[0; 9000]] {
            assert!(!has(&subfiles(ID), "a.h5.0", bytes));
        }
        for bytes in [&b""[..], b"h5lg", b"h5lgxtnt and more", &[0; 99]] {
            assert!(has(&OwnDir::Spilled, "0.1", bytes));
            assert!(!has(&OwnDir::Spilled, "0.01", bytes));
        }
        assert!(!has(&OwnDir::Spilled, "2.1", b"h5lx"));
        // Links and directories are no parts of a log, whatever is behind them.
        let link = dir.path().join("a.h5.3");
        std::os::unix::fs::symlink(dir.path().join("a.h5.12"), &link).unwrap();
        assert!(!subfiles(ID).has(&link).unwrap());
        fs::create_dir(dir.path().join("a.h5.4")).unwrap();
        assert!(!subfiles(ID).has(&dir.path().join("a.h5.4")).unwrap());
        assert!(!subfiles(ID).has(&dir.path().join("a.h5.5")).unwrap());
    }
}
