//! A view as a file of the standard library.

use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use super::View;
use crate::error::{Error, Result};

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

    /// The view that it reads.
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
        let read = read.map_err(|e: Error| io::Error::other(e))?;
        self.position += read as u64;
        Ok(read)
    }
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
