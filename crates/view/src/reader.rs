//! A view as a file of the standard library.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::View;
use h5logfs_common::error::{Error, Result};

/// A view with a position, for code that takes [`Read`] and [`Seek`].
///
/// Their errors are of kind [`io::ErrorKind::Other`] and carry the crate's [`Error`]:
/// `e.get_ref().and_then(|e| e.downcast_ref::<Error>())` gets it back. Clones share the view, but each has
/// its own position.
#[derive(Debug, Clone)]
pub struct ViewReader {
    view: Arc<View>,
    position: u64,
}

impl ViewReader {
    /// A reader at the start of the canonical file.
    pub fn new(view: Arc<View>) -> Self {
        ViewReader { view, position: 0 }
    }

    /// The view that is read.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Reads at a byte offset of the canonical file and leaves the position alone: see [`View::read_at`].
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.view.read_at(offset, buf)
    }
}

impl Read for ViewReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.view.read_at(self.position, buf);
        let read = read.map_err(to_io)?;
        self.position += read as u64;
        Ok(read)
    }
}

fn to_io(error: Error) -> io::Error {
    io::Error::other(error)
}

impl Seek for ViewReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.view.len().checked_add_signed(by),
        };
        self.position = position.ok_or_else(|| {
            let reason = "seek to a position before byte 0 or past 2^64";
            io::Error::new(io::ErrorKind::InvalidInput, reason)
        })?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Budget, MemoryLimits};
    use h5logfs_log::snapshot::{Snapshot, Source};
    use h5logfs_log::source_dir::{SourceDir, SourcePath};
    use h5logfs_log::source_file::SourceFile;

    /// A view of a log without datasets: a user block of 512 sevens, and a superblock of version 0.
    fn view() -> Arc<View> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), [7; 600]).unwrap();
        let dir = SourceDir::open(dir.path()).unwrap();
        let file = SourceFile::open(&dir, "log".as_ref()).unwrap();
        let snapshot = Snapshot {
            user_block: 512,
            image: vec![0; 96],
            sources: vec![Source::whole(SourcePath::below("log"), file.identity())],
            ..Snapshot::default()
        };
        let budget = Arc::new(Budget::new(MemoryLimits::default()));
        View::open(&dir, snapshot, budget, None).unwrap()
    }

    #[test]
    fn reads_and_seeks_like_a_file() {
        let mut reader = ViewReader::new(view());
        let mut whole = Vec::new();
        assert_eq!(reader.read_to_end(&mut whole).unwrap(), 512 + 96);
        assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(reader.seek(SeekFrom::End(-96 - 2)).unwrap(), 510);
        let mut some = [1; 3];
        reader.read_exact(&mut some).unwrap();
        assert_eq!(some, [7, 7, 0]);
        assert_eq!(reader.seek(SeekFrom::Current(-3)).unwrap(), 510);
        assert_eq!(reader.read_at(0, &mut some).unwrap(), 3);
        assert_eq!(some, [7; 3]);
        assert_eq!(reader.stream_position().unwrap(), 510);
        // As in a file, a position may be past the end, but not before the start.
        assert_eq!(reader.seek(SeekFrom::Start(1000)).unwrap(), 1000);
        assert_eq!(reader.read(&mut some).unwrap(), 0);
        let refused = reader.seek(SeekFrom::End(-1000)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(reader.stream_position().unwrap(), 1000);
    }

    #[test]
    fn errors_carry_those_of_the_crate() {
        let error = to_io(Error::of("/log", "torn"));
        let own = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
        assert!(matches!(own, Some(Error::BadFile { .. })), "{error}");
    }
}
