//! Sequential appends to a file.

use std::io;
use std::os::unix::fs::FileExt;

use super::held::Held;
use h5logfs_common::error::Result;
use h5logfs_log::settled::record::Checksum;

/// Bytes per system call.
const STEP: usize = 1 << 20;

/// The end of a growing file. Bytes dropped before [`Appender::flush`] are not written.
pub struct Appender<'a> {
    held: &'a Held,
    /// Offset of the first byte of `buffer`.
    at: u64,
    buffer: Vec<u8>,
    pub checksum: Checksum,
}

impl<'a> Appender<'a> {
    /// An appender that starts at offset `at`.
    pub fn new(held: &'a Held, at: u64) -> Self {
        Appender {
            held,
            at,
            buffer: Vec::with_capacity(2 * STEP),
            checksum: Checksum::default(),
        }
    }

    /// Offset of the next byte.
    pub fn offset(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Address of the next byte.
    pub fn address(&self) -> u64 {
        self.offset() - self.held.user_block()
    }

    /// Appends zeros up to the next multiple of 8.
    pub fn align(&mut self) -> Result<()> {
        const ZEROS: [u8; 8] = [0; 8];
        let missing = self.address().next_multiple_of(8) - self.address();
        self.put(&ZEROS[..missing as usize])
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.add(bytes);
        if bytes.len() >= STEP {
            self.flush()?;
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= STEP {
            self.flush()?;
        }
        Ok(())
    }

    /// Passes all bytes to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.at.checked_add(bytes.len() as u64);
        let Some(end) = end.filter(|end| *end <= i64::MAX as u64) else {
            return Err(self.held.failed(io::ErrorKind::FileTooLarge.into()));
        };
        let written = self.held.file().write_all_at(bytes, self.at);
        written.map_err(|e| self.held.failed(e))?;
        self.at = end;
        Ok(())
    }
}
