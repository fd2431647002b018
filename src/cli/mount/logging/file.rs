//! The file of the option `log_file`. Its size is limited, and logrotate may rename or remove it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use h5logfs_catalog::lookup::overwrite::check_text;

/// Size limit. A larger file is renamed to `PATH.old`, and replaces an older one of that name.
const MAX_SIZE: u64 = 64 << 20;

/// Access mode. Messages contain file names, which may be private.
const MODE: u32 = 0o640;

#[derive(Debug)]
pub struct LogFile {
    /// Absolute path, because the daemon changes its directory.
    path: PathBuf,
    file: File,
    max_size: u64,
}

impl LogFile {
    /// Opens the file. Fails if it holds data: a slip in the options must not add messages to them.
    pub fn open(path: &Path) -> io::Result<Self> {
        check_text(path)?;
        let old = old(path);
        if !may_replace(&old)? {
            let reason = format!(
                "{}, which holds no messages, would be replaced when the file is full: move it",
                old.display()
            );
            return Err(io::Error::other(reason));
        }
        Ok(LogFile {
            path: std::path::absolute(path)?,
            file: open(path)?,
            max_size: MAX_SIZE,
        })
    }

    /// Opens a new file if this one is full, or was renamed or removed.
    fn reopen_if_needed(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let named = match std::fs::metadata(&self.path) {
            Ok(named) => Some((named.dev(), named.ino())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if named == Some((own.dev(), own.ino())) {
            if !own.is_file() || own.len() < self.max_size {
                return Ok(());
            }
            let old = old(&self.path);
            // Another file of the user is worth more than the limit.
            if !may_replace(&old)? {
                return Ok(());
            }
            std::fs::rename(&self.path, old)?;
        }
        self.file = open(&self.path)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(MODE).open(path)
}

/// Whether a file is absent, empty, or begins like a message: with a time.
fn may_replace(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        Ok(found) if !found.is_file() => return Ok(false),
        found => found?,
    };
    let mut begin = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut begin)?;
    let is_time = |begin: &[u8]| {
        let year = begin.strip_prefix(b"[");
        let year = year.and_then(|year| year.strip_suffix(b"-"));
        year.is_some_and(|year| year.len() == 4 && year.iter().all(u8::is_ascii_digit))
    };
    // `RUST_LOG_STYLE` may have coloured the messages.
    Ok(begin.is_empty() || is_time(&begin) || begin.starts_with(b"\x1b["))
}

fn old(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
    name.into()
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A message in the old file is better than none.
        let _ = self.reopen_if_needed();
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn log_file() -> (tempfile::TempDir, PathBuf, LogFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LogFile::open(&path).unwrap();
        (dir, path, file)
    }

    #[test]
    fn it_follows_its_name() {
        let (_dir, path, mut log) = log_file();
        log.write_all(b"one\n").unwrap();
        let moved = path.with_extension("1");
        fs::rename(&path, &moved).unwrap();
        log.write_all(b"two\n").unwrap();
        assert_eq!(fs::read(&moved).unwrap(), b"one\n");
        assert_eq!(fs::read(&path).unwrap(), b"two\n");
        fs::remove_file(&path).unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0);
    }

    #[test]
    fn it_is_no_data_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.h5");
        fs::write(&path, b"\x89HDF\r\n\x1a\n").unwrap();
        let refused = LogFile::open(&path).unwrap_err().to_string();
        assert!(refused.contains("holds data"), "{refused}");
    }

    #[test]
    fn it_has_a_bound() {
        let (_dir, path, mut log) = log_file();
        log.max_size = 100;
        for _ in 0..100 {
            log.write_all(b"[2026-01-0").unwrap();
        }
        let len = |path: &Path| fs::metadata(path).unwrap().len();
        assert_eq!(len(&path), 100);
        assert_eq!(len(&old(&path)), 100);
    }

    #[test]
    fn a_file_that_holds_no_messages_is_not_replaced() {
        let (_dir, path, mut log) = log_file();
        log.max_size = 100;
        fs::write(old(&path), "notes").unwrap();
        let refused = LogFile::open(&path).unwrap_err().to_string();
        assert!(refused.contains("log.old, which holds no"), "{refused}");
        for _ in 0..20 {
            log.write_all(b"[2026-01-0").unwrap();
        }
        assert_eq!(fs::read_to_string(old(&path)).unwrap(), "notes");
        assert_eq!(fs::metadata(&path).unwrap().len(), 200);
    }
}
