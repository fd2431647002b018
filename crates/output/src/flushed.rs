//! The entries of a rank that have left its memory. They are kept by their places in the data file, and read again from
//! there.
//!
//! A close copies them into the table, piece by piece. To share a selection, a new entry is compared with them in the
//! file.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::Crc;

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::fresh::refresh;
use h5logfs_log::logvol::extent::ExtentHeader;

/// Bytes read at once. The value is small in tests, so that they reach the limits of a piece.
const STEP: usize = if cfg!(debug_assertions) {
    1 << 10
} else {
    4 << 20
};

/// The entries of a rank in its data file, in order.
#[derive(Debug)]
pub struct Flushed {
    file: Arc<File>,
    extents: Vec<Entries>,
    /// Number of these extents in the data file. The others are still in another file.
    placed: usize,
    /// Size of all entries, in bytes.
    len: u64,
}

/// The entries of one extent.
#[derive(Debug, Clone, Copy)]
struct Entries {
    /// Size of the preceding entries, in bytes.
    at: u64,
    /// Offset in the file, after the header of the extent.
    offset: u64,
}

impl Flushed {
    /// An empty list for the data file `file`.
    pub fn new(file: Arc<File>) -> Self {
        Flushed {
            file,
            extents: Vec::new(),
            placed: 0,
            len: 0,
        }
    }

    /// Size of all entries, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the entries of an extent: `len` bytes at `offset`. No other entries wait.
    pub fn add(&mut self, offset: u64, len: u64) {
        self.add_waiting(offset, len);
        self.placed = self.extents.len();
    }

    /// Adds entries that wait in an extent of another file: `len` bytes at `offset`.
    pub fn add_waiting(&mut self, offset: u64, len: u64) {
        if len > 0 {
            let at = self.len;
            self.extents.push(Entries { at, offset });
            self.len += len;
        }
    }

    /// Records that the waiting entries moved to the data file, `by` bytes further on.
    pub fn set_moved(&mut self, by: u64) {
        let moved = self.extents[self.placed..].iter_mut();
        moved.for_each(|extent| extent.offset += by);
        self.placed = self.extents.len();
    }

    /// Whether the bytes at `at` equal `bytes`. An entry lies in one extent. Entries that cannot be read, or that wait, are
    /// not equal.
    pub fn is_equal(&self, at: u64, bytes: &[u8]) -> bool {
        let extent = self.extents.partition_point(|extent| extent.at <= at);
        let extent = extent.checked_sub(1).filter(|i| *i < self.placed);
        let Some(extent) = extent.map(|i| self.extents[i]) else {
            return false;
        };
        let mut offset = extent.offset + (at - extent.at);
        let mut found = vec![0; bytes.len().min(STEP)];
        bytes.chunks(STEP).all(|bytes| {
            let found = &mut found[..bytes.len()];
            let read = self.file.read_exact_at(found, offset);
            offset += bytes.len() as u64;
            read.is_ok() && found == bytes
        })
    }

    /// Most bytes that [`Reader::next`] returns.
    pub fn step() -> u64 {
        STEP as u64
    }

    /// All entries. The caller knows that there are few.
    pub fn all(&self) -> Result<Vec<u8>, Fault> {
        let (mut reader, mut all, mut buffer) = (self.reader(), Vec::new(), Vec::new());
        loop {
            reader.next(&mut buffer)?;
            if buffer.is_empty() {
                return Ok(all);
            }
            all.extend_from_slice(&buffer);
        }
    }

    /// Reads all entries from the first one on.
    pub fn reader(&self) -> Reader<'_> {
        Reader {
            flushed: self,
            extent: 0,
            within: 0,
            crc: Crc::new(),
            wanted_crc: 0,
        }
    }
}

/// Reads entries, and checks them against the checksums of their extents.
pub struct Reader<'a> {
    flushed: &'a Flushed,
    /// Index of the present extent, and bytes of its entries already read.
    extent: usize,
    within: u64,
    crc: Crc,
    wanted_crc: u32,
}

impl Reader<'_> {
    /// Fills `buffer` with the next [`Flushed::step`] bytes, or with all that are left.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> Result<(), Fault> {
        buffer.clear();
        while buffer.len() < STEP && self.extent < self.flushed.extents.len() {
            self.read_some(buffer)?;
        }
        Ok(())
    }

    /// Adds bytes of the present extent.
    fn read_some(&mut self, buffer: &mut Vec<u8>) -> Result<(), Fault> {
        let Flushed {
            file, extents, len, ..
        } = self.flushed;
        let Entries { at, offset } = extents[self.extent];
        let len = extents.get(self.extent + 1).map_or(*len, |next| next.at) - at;
        let changed = || format!("the entries at byte {offset} are not those that were written");
        if self.within == 0 {
            let mut header = [0; ExtentHeader::SIZE as usize];
            read_at(file, &mut header, offset - ExtentHeader::SIZE)?;
            let header = ExtentHeader::from_bytes(&header);
            let header = header.filter(|header| header.entries == len);
            self.wanted_crc = header.ok_or_else(changed)?.entries_crc;
            self.crc = Crc::new();
        }
        let part = (len - self.within).min((STEP - buffer.len()) as u64);
        let begin = buffer.len();
        buffer.resize(begin + part as usize, 0);
        read_at(file, &mut buffer[begin..], offset + self.within)?;
        self.crc.update(&buffer[begin..]);
        self.within += part;
        if self.within == len {
            if self.crc.sum() != self.wanted_crc {
                return Err(changed().into());
            }
            self.extent += 1;
            self.within = 0;
        }
        Ok(())
    }
}

/// Reads written bytes. If other nodes write to the file, this node may not know its length yet.
fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match file.read_exact_at(buf, offset) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
            refresh(file);
            file.read_exact_at(buf, offset)
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::logvol::extent::crc32;
    use std::io::Write;

    /// A file of extents with these entries, and the places of the entries.
    fn written(extents: &[Vec<u8>]) -> (std::fs::File, Flushed) {
        let mut file = tempfile::tempfile().unwrap();
        let mut flushed = Flushed::new(Arc::new(file.try_clone().unwrap()));
        let mut offset = 0;
        for entries in extents {
            let header = ExtentHeader {
                rank: 0,
                flush: 1,
                entries: entries.len() as u64,
                data: 3,
                entries_crc: crc32(entries),
                seal: None,
                proof: None,
            };
            file.write_all(&header.to_bytes()).unwrap();
            file.write_all(entries).unwrap();
            file.write_all(&[0xff; 3]).unwrap();
            let len = entries.len() as u64;
            flushed.add(offset + ExtentHeader::SIZE, len);
            offset += ExtentHeader::SIZE + len + 3;
        }
        (file, flushed)
    }

    fn bytes(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + seed) as u8).collect()
    }

    #[test]
    fn entries_are_read_in_pieces() {
        let extents = [
            bytes(10, 1),
            bytes(3 * STEP + 5, 2),
            Vec::new(),
            bytes(STEP, 3),
        ];
        let (_file, flushed) = written(&extents);
        let all = extents.concat();
        assert_eq!(flushed.len(), all.len() as u64);
        assert_eq!(flushed.all().unwrap(), all);
        assert!(flushed.is_equal(0, &extents[0]));
        assert!(flushed.is_equal(10, &extents[1]));
        assert!(flushed.is_equal(15, &extents[1][5..2 * STEP]));
        assert!(!flushed.is_equal(16, &extents[1][5..2 * STEP]));
        assert!(!flushed.is_equal(all.len() as u64, &[0; 4000]));
        let (_file, none) = written(&[]);
        assert!(none.is_empty() && none.all().unwrap().is_empty() && !none.is_equal(0, &[1]));
    }

    /// A waiting entry must not be compared: the bytes at its place in the data file may be equal by chance.
    #[test]
    fn what_waits_is_not_compared() {
        let extents = [bytes(10, 1), bytes(40, 2)];
        let (_file, mut flushed) = written(&extents[..1]);
        let offset = ExtentHeader::SIZE;
        flushed.add_waiting(offset, 10);
        assert!(flushed.is_equal(0, &extents[0]) && !flushed.is_equal(10, &extents[0]));
        flushed.set_moved(0);
        assert!(flushed.is_equal(10, &extents[0]));
    }

    #[test]
    fn damage_is_seen() {
        let (file, flushed) = written(&[bytes(2 * STEP + 9, 1)]);
        for at in [20, ExtentHeader::SIZE + 2 * STEP as u64] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[!byte[0]], at).unwrap();
            let said = flushed.all().unwrap_err().to_string();
            assert!(said.contains("at byte 64"), "{said}");
            file.write_all_at(&byte, at).unwrap();
        }
        file.set_len(STEP as u64).unwrap();
        assert!(flushed.all().is_err());
    }
}
