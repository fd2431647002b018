//! Writes the journal of a running job.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::Crc;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use super::Recorded;
use super::held::HeldFile;
use super::job::lock;
use super::line::{Header, Line, encode, encode_all};
use h5logfs_common::error::{Error, Result};

/// The journal of a running job. One process writes it.
#[derive(Debug)]
pub struct Journal {
    pub(super) held: HeldFile,
    /// Number of valid bytes, and their checksum.
    len: u64,
    sum: Crc,
    /// Whether bytes may follow the valid ones.
    torn: bool,
}

impl Journal {
    /// Creates the journal of a new file. A lock on the journal, held for its lifetime, shows other processes that the
    /// job is running. No process sees the journal without the lock and the header. With `replace` the new journal
    /// replaces an existing one, whose lock the caller must hold. Otherwise an existing journal is an error.
    pub fn create(path: &Path, header: &Header, replace: bool) -> Result<Self> {
        Self::begin(path, header, &[], replace, |_| Ok(()))
    }

    /// Creates a journal that also has these lines before it gets its name: an append begins with them. With `sync`
    /// all of it is on disk by then, because it replaces the record of the log's earlier state.
    pub fn create_with(
        path: &Path,
        header: &Header,
        lines: &[Line],
        replace: bool,
        sync: bool,
    ) -> Result<Self> {
        Self::begin(path, header, lines, replace, |file| {
            if sync { file.sync_all() } else { Ok(()) }
        })
    }

    fn begin(
        path: &Path,
        header: &Header,
        lines: &[Line],
        replace: bool,
        sync: impl Fn(&File) -> io::Result<()>,
    ) -> Result<Self> {
        let number = header.file_id().unwrap_or_default().number();
        let (mut text, mut sum) = (Vec::new(), Crc::new());
        let begin = |file: &File| {
            encode(header, &mut sum, &mut text)?;
            encode_all(lines, &mut sum, &mut text)?;
            lock(file)?;
            file.write_all_at(&text, 0)?;
            sync(file)
        };
        let held = HeldFile::create(path, &number, replace, begin);
        Ok(Journal {
            held: held.map_err(|e| Error::io(path, e))?,
            len: text.len() as u64,
            sum,
            torn: false,
        })
    }

    /// Appends lines in one write. With `sync`, waits until they are on disk. After an error the journal is
    /// unchanged.
    pub fn append_lines(&mut self, lines: &[Line], sync: bool) -> Result<()> {
        self.append(lines, sync)
    }

    pub(super) fn append(&mut self, lines: &[impl Serialize], sync: bool) -> Result<()> {
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
            // If this fails, too, the file is cut before the next lines.
            self.torn = file.set_len(self.len).is_err();
            return Err(Error::io(self.held.path(), e));
        }
        self.len += text.len() as u64;
        self.sum = sum;
        self.torn = false;
        Ok(())
    }

    /// Waits until all of the journal is on disk.
    pub fn sync(&self) -> Result<()> {
        let synced = self.held.file().sync_data();
        synced.map_err(|e| Error::io(self.held.path(), e))
    }

    /// The file and its name.
    pub fn held(&self) -> &HeldFile {
        &self.held
    }

    /// Fails where the name no longer leads to the journal.
    pub fn check_name(&self) -> Result<()> {
        let checked = self.held.check_name();
        checked.map_err(|e| Error::io(self.held.path(), e))
    }

    /// Releases the lock. A process forked meanwhile shares the lock, and loses it as well.
    pub fn unlock(self) {
        // Without locks in the file system there is nothing to release.
        let _ = flock(self.held.file(), FlockOperation::Unlock);
    }

    /// Removes the journal of a closed file. Until its directory is on disk, a crash of the system may bring it back.
    pub fn remove(&self) -> Result<()> {
        self.check_name()?;
        let path = self.held.path();
        std::fs::remove_file(path).map_err(|e| Error::io(path, e))
    }
}

/// Replaces the journal `old` by one with further lines after its last commit, on disk and locked. `recorded` is the
/// content of `old`. A crash leaves the old or the new journal.
pub fn extended(
    path: &Path,
    old: &File,
    recorded: &Recorded,
    lines: &[Line],
) -> io::Result<HeldFile> {
    const STAMP: usize = "00000000 ".len();
    let mut text = Vec::new();
    old.take(recorded.len).read_to_end(&mut text)?;
    let mut sum = Crc::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let said = line.get(STAMP..line.len() - 1);
        sum.update(said.ok_or(io::ErrorKind::InvalidData)?);
    }
    encode_all(lines, &mut sum, &mut text)?;
    HeldFile::create(path, &recorded.id.number(), true, |new| {
        lock(new)?;
        new.write_all_at(&text, 0)
    })
}

/// Copies a checksum. `Crc` cannot be cloned, but can be combined with an empty one.
fn copy_of(sum: &Crc) -> Crc {
    let mut copy = Crc::new();
    copy.combine(sum);
    copy
}
