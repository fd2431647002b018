//! A block cache over the bytes of a file. Object headers are read field by field, and the cache turns these reads into
//! reads of blocks.

use std::cell::RefCell;
use std::collections::VecDeque;

use crate::Result;
use crate::bytes::HeaderBytes;

/// Bytes of a block.
const BLOCK: u64 = 8 << 10;
/// The number of blocks that are kept.
const MOST_BLOCKS: usize = 8;

/// The bytes of a file. Two reads of the same bytes may see two states of the file.
#[derive(Debug)]
pub struct Window<B> {
    bytes: B,
    /// Blocks with their offsets, the last one read first.
    kept: RefCell<VecDeque<(u64, Vec<u8>)>>,
}

impl<B: HeaderBytes> Window<B> {
    /// A window onto `bytes` without any cached block.
    pub fn new(bytes: B) -> Self {
        Window {
            bytes,
            kept: RefCell::default(),
        }
    }

    /// Copies bytes of the block at `start`, from its byte `from` on.
    fn copy(&self, start: u64, from: usize, buf: &mut [u8]) -> Result<()> {
        let kept = &mut *self.kept.borrow_mut();
        if !kept.iter().any(|(known, _)| *known == start) {
            let len = self.bytes.size().saturating_sub(start).min(BLOCK);
            let mut block = vec![0; len as usize];
            self.bytes.read(start, &mut block)?;
            kept.truncate(MOST_BLOCKS - 1);
            kept.push_front((start, block));
        }
        let block = kept.iter().find(|(known, _)| *known == start);
        let found = block.and_then(|(_, block)| block.get(from..from.checked_add(buf.len())?));
        buf.copy_from_slice(found.ok_or("an address past the end")?);
        Ok(())
    }
}

impl<B: HeaderBytes> HeaderBytes for Window<B> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read(&self, mut at: u64, mut buf: &mut [u8]) -> Result<()> {
        if buf.len() as u64 > BLOCK {
            return self.bytes.read(at, buf);
        }
        while !buf.is_empty() {
            let from = at % BLOCK;
            let here = buf.len().min((BLOCK - from) as usize);
            let (first, rest) = buf.split_at_mut(here);
            self.copy(at - from, from as usize, first)?;
            at = at.checked_add(here as u64).ok_or("an address past 2^64")?;
            buf = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_shows_the_bytes_of_its_file() {
        let bytes: Vec<u8> = (0..BLOCK * 20 + 7).map(|n| (n % 251) as u8).collect();
        let window = Window::new(&bytes);
        assert_eq!(window.size(), bytes.len() as u64);
        let last = bytes.len() - 1;
        for at in [0, 1, 8191, 8190, 8192, 100_000, 3, last, last - 8191] {
            for len in [0, 1, 2, 20_000] {
                let mut buf = vec![0; len];
                let end = (at + len).min(bytes.len());
                let read = window.read(at as u64, &mut buf);
                assert_eq!(read.is_ok(), at + len <= bytes.len(), "{at} {len}");
                if read.is_ok() {
                    assert_eq!(buf, bytes[at..end], "{at} {len}");
                }
            }
        }
        assert!(window.read(u64::MAX - 1, &mut [0; 4]).is_err());
        assert!(window.kept.borrow().len() <= MOST_BLOCKS);
    }
}
