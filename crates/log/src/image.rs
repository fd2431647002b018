//! The metadata image of a canonical file, and the few fields that are set in it after libhdf5 made it:
//! times, addresses of chunk indexes, end of file, and the checksums over them. Section numbers are those
//! of the HDF5 File Format Specification.
//!
//! libhdf5 makes an image, but a snapshot from another process may carry it. Every offset is checked. Fields can
//! be found in other HDF5 bytes, too: see [`HeaderBytes`].

mod added;
pub mod btree2;
mod dataset;
mod fields;
mod file;
pub mod links;
pub mod object_header;
mod space;
mod symbol_table;
mod window;

pub use super::settled::record::SUPERBLOCK;
pub use added::Added;
pub use dataset::{DatasetHeader, HeaderAttribute, HeaderSpace};
pub use fields::Fields;
pub use file::Hdf5;
pub use space::Space;
pub use symbol_table::NewLinks;
pub use window::Window;

use object_header::{Message, Mode, Prefix, kind};

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use h5logfs_common::buffers::zeroed;
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The largest rank of a dataspace (`H5S_MAX_RANK`).
pub const MAX_RANK: usize = 32;

/// Times in seconds since 1970, of the object whose header is at `header`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectTimes {
    /// Address of the object header.
    pub header: u64,
    /// Last access.
    pub access: u32,
    /// Last modification.
    pub modification: u32,
    /// Last change of the metadata.
    pub change: u32,
    /// Creation.
    pub birth: u32,
}

/// Random access to the bytes of an HDF5 file; addresses count from the first of them.
pub trait HeaderBytes {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from byte `at` on. Fails with the reason where bytes are missing.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;
}

/// The same, for bytes that can be changed.
pub trait HeaderBytesMut: HeaderBytes {
    /// Replaces the bytes from byte `at` on. Fails with the reason where that is not possible.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()>;
}

impl<B: HeaderBytes + ?Sized> HeaderBytes for &B {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(at, buf)
    }
}

impl<B: HeaderBytes + ?Sized> HeaderBytes for Arc<B> {
    fn size(&self) -> u64 {
        (**self).size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (**self).read(at, buf)
    }
}

impl HeaderBytes for Vec<u8> {
    fn size(&self) -> u64 {
        self.as_slice().size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.as_slice().read(at, buf)
    }
}

impl HeaderBytes for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let range = range(at, buf.len())?;
        buf.copy_from_slice(self.get(range).ok_or(PAST_IMAGE)?);
        Ok(())
    }
}

impl HeaderBytesMut for Vec<u8> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let range = range(at, bytes.len())?;
        let there = self.get_mut(range).ok_or(PAST_IMAGE)?;
        there.copy_from_slice(bytes);
        Ok(())
    }
}

const PAST_IMAGE: &str = "offset past the image";

fn range(at: u64, len: usize) -> Result<Range<usize>> {
    let start = usize::try_from(at)?;
    let end = start.checked_add(len).ok_or(PAST_IMAGE)?;
    Ok(start..end)
}

/// The `N` bytes at `at`.
pub fn read_array<const N: usize, B: HeaderBytes + ?Sized>(bytes: &B, at: u64) -> Result<[u8; N]> {
    let mut found = [0; N];
    bytes.read(at, &mut found)?;
    Ok(found)
}

/// The `len` bytes at `at`, if there are so many.
pub fn read_vec<B: HeaderBytes + ?Sized>(bytes: &B, at: u64, len: u64) -> Result<Vec<u8>> {
    let end = at.checked_add(len).filter(|end| *end <= bytes.size());
    let len = end.and(usize::try_from(len).ok()).ok_or(PAST_IMAGE)?;
    let mut found = zeroed(len)?;
    bytes.read(at, &mut found)?;
    Ok(found)
}

/// The bytes of an image, or of another HDF5 file.
#[derive(Debug)]
pub struct Image<B = Vec<u8>> {
    bytes: B,
}

impl<B: HeaderBytes> Image<B> {
    /// Wraps bytes of a file that begin with its superblock.
    pub fn new(bytes: B) -> Self {
        Image { bytes }
    }

    fn get<const N: usize>(&self, at: u64) -> Result<[u8; N]> {
        read_array(&self.bytes, at)
    }

    fn u32_at(&self, at: u64) -> Result<u32> {
        self.get(at).map(u32::from_le_bytes)
    }

    /// Where the superblock (II.A) says that the file ends.
    pub fn end_of_file(&self) -> Result<u64> {
        let at = match self.get::<1>(8)? {
            [0] => 40,
            [1] => 44,
            [2 | 3] => 28,
            [version] => return Err(format!("superblock version {version}").into()),
        };
        self.get(at).map(u64::from_le_bytes)
    }

    /// The data layout message (IV.A.2.i) of the object header at `header`.
    pub fn layout(&self, header: u64) -> Result<Vec<u8>> {
        let message = self
            .message(header, kind::LAYOUT)?
            .ok_or("no layout message")?;
        message.body(&self.bytes)
    }

    /// The fill value of the dataset whose object header is at `header` (IV.A.2.f), in the datatype of the file. Empty stands
    /// for zeros, and for none.
    pub fn fill_value(&self, header: u64) -> Result<Vec<u8>> {
        let message = self.message(header, kind::FILL_VALUE)?;
        let message = message.ok_or("no fill value message")?;
        fill_value(&message.body(&self.bytes)?)
    }

    /// The first message of a kind in the object header at `header`.
    fn message(&self, header: u64, kind: u16) -> Result<Option<Message>> {
        let mut found = None;
        object_header::messages(&self.bytes, header, Mode::Lenient, |message| {
            if message.kind != kind {
                return Ok(ControlFlow::Continue(()));
            }
            found = Some(message);
            Ok(ControlFlow::Break(()))
        })?;
        Ok(found)
    }
}

/// The fill value in a message (IV.A.2.f). Empty stands for zeros, and for none.
pub fn fill_value(message: &[u8]) -> Result<Vec<u8>> {
    const HAS_VALUE: u8 = 1 << 5;
    let mut fields = match *message {
        [1, _, _, _, ref rest @ ..] | [2, _, _, 1, ref rest @ ..] => Fields(rest),
        [3, flags, ref rest @ ..] if flags & HAS_VALUE != 0 => Fields(rest),
        [2 | 3, _, ..] => return Ok(Vec::new()),
        [] | [1..=3, ..] => return Err(SHORT_FILL_VALUE.into()),
        [version, ..] => return Err(format!("fill value message of version {version}").into()),
    };
    let len = fields.u32().ok_or(SHORT_FILL_VALUE)?;
    // 0 is the default fill value, and all bits of a negative length say that there is none.
    let len = usize::try_from(len as i32).unwrap_or(0);
    let value = fields.take(len).ok_or(SHORT_FILL_VALUE)?;
    Ok(value.to_vec())
}

const SHORT_FILL_VALUE: &str = "fill value message too short";

impl<B> Image<B> {
    /// The bytes with all fields set.
    pub fn into_bytes(self) -> B {
        self.bytes
    }
}

impl<B: HeaderBytesMut> Image<B> {
    fn put(&mut self, at: u64, value: &[u8]) -> Result<()> {
        self.bytes.write(at, value)
    }

    /// Refreshes the checksum in the last four bytes of a block.
    fn checksum(&mut self, block: Range<u64>) -> Result<()> {
        let at = block.end.checked_sub(4);
        let len = at.and_then(|at| at.checked_sub(block.start));
        let len = len.ok_or("a block without a checksum")?;
        let bytes = read_vec(&self.bytes, block.start, len)?;
        self.put(block.start + len, &lookup3(&bytes).to_le_bytes())
    }

    /// Superblock (II.A): base address, end of file.
    pub fn set_superblock(&mut self, base: u64, end_of_file: u64) -> Result<()> {
        let (base_at, end_at, checksum) = match self.get::<1>(8)? {
            [0] => (24, 40, None),
            [1] => (28, 44, None),
            [2 | 3] => (12, 28, Some(0..48)),
            [version] => return Err(format!("superblock version {version}").into()),
        };
        self.put(base_at, &base.to_le_bytes())?;
        self.put(end_at, &end_of_file.to_le_bytes())?;
        checksum.map_or(Ok(()), |block| self.checksum(block))
    }

    /// Refreshes the checksum of the superblock, where it has one. libhdf5 clears a field of it in the image of an open file,
    /// and leaves the checksum as it was.
    pub fn refresh_superblock(&mut self) -> Result<()> {
        match self.get::<1>(8)? {
            [2 | 3] => self.checksum(0..48),
            _ => Ok(()),
        }
    }

    /// Data layout message (IV.A.2.i), version 3.
    pub fn set_layout_address(&mut self, header: u64, address: u64, chunked: bool) -> Result<()> {
        let message = self
            .message(header, kind::LAYOUT)?
            .ok_or("no layout message")?;
        let [version, class] = self.get(message.data)?;
        let at = match (version, class, chunked) {
            (3, 1, false) => message.data + 2,
            (3, 2, true) => message.data + 3,
            _ => {
                return Err(format!("layout message of version {version}, class {class}").into());
            }
        };
        if at + 8 > message.end() {
            return Err("layout message too short".into());
        }
        self.put(at, &address.to_le_bytes())?;
        message.block.map_or(Ok(()), |block| self.checksum(block))
    }

    /// Fill value message (IV.A.2.f), version 2: sets early space allocation.
    pub fn set_early_allocation(&mut self, header: u64) -> Result<()> {
        const EARLY: u8 = 1;
        let message = self.message(header, kind::FILL_VALUE)?;
        let message = message.ok_or("no fill value message")?;
        match self.get::<1>(message.data)? {
            [2] => self.put(message.data + 1, &[EARLY])?,
            [version] => return Err(format!("fill value message of version {version}").into()),
        }
        message.block.map_or(Ok(()), |block| self.checksum(block))
    }

    /// Version-2 headers keep four times in their prefix (IV.A.1.b); in version 1 the modification
    /// time is a message, which not every object has.
    pub fn set_times(&mut self, times: &ObjectTimes) -> Result<()> {
        let prefix = Prefix::read(&self.bytes, times.header)?;
        if prefix.flags().is_none() {
            if let Some(message) = self.message(times.header, kind::MODIFICATION_TIME)? {
                self.put(message.data + 4, &times.change.to_le_bytes())?;
            }
            return Ok(());
        }
        if let Some(at) = prefix.times_at() {
            let all = [times.access, times.modification, times.change, times.birth];
            self.put(at, all.map(u32::to_le_bytes).as_flattened())?;
            self.checksum(prefix.first_block())?;
        }
        Ok(())
    }
}

/// The `len` bytes at `at`, of which the last four are a checksum, without it. Fails where that is wrong.
pub fn read_checked<B: HeaderBytes + ?Sized>(bytes: &B, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut found = read_vec(bytes, at, len)?;
    let sum = found.len().checked_sub(4).map(|at| found.split_off(at));
    if sum.is_some_and(|sum| sum == lookup3(&found).to_le_bytes()) {
        return Ok(found);
    }
    Err(format!("a block at {at} with a wrong checksum").into())
}

/// The checksum of HDF5 metadata: Bob Jenkins' lookup3, `hashlittle` with an initial value of 0.
pub fn lookup3(bytes: &[u8]) -> u32 {
    let word = |b: &[u8]| {
        let mut padded = [0; 4];
        padded[..b.len()].copy_from_slice(b);
        u32::from_le_bytes(padded)
    };
    let seed = 0xdead_beefu32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (seed, seed, seed);
    let mut rest = bytes;
    while rest.len() > 12 {
        a = a.wrapping_add(word(&rest[..4]));
        b = b.wrapping_add(word(&rest[4..8]));
        c = c.wrapping_add(word(&rest[8..12]));
        for (shift, step) in [(4, 0), (6, 1), (8, 2), (16, 0), (19, 1), (4, 2)] {
            let (x, y, z) = match step {
                0 => (&mut a, &mut b, &mut c),
                1 => (&mut b, &mut c, &mut a),
                _ => (&mut c, &mut a, &mut b),
            };
            *x = x.wrapping_sub(*z) ^ z.rotate_left(shift);
            *z = z.wrapping_add(*y);
        }
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    let part = |i: usize| word(&rest[(i * 4).min(rest.len())..(i * 4 + 4).min(rest.len())]);
    a = a.wrapping_add(part(0));
    b = b.wrapping_add(part(1));
    c = c.wrapping_add(part(2));
    for (shift, step) in [(14, 0), (11, 1), (25, 2), (16, 0), (4, 1), (14, 2), (24, 0)] {
        let (x, y) = match step {
            0 => (&mut c, b),
            1 => (&mut a, c),
            _ => (&mut b, a),
        };
        *x = (*x ^ y).wrapping_sub(y.rotate_left(shift));
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup3_agrees_with_its_author() {
        // The vectors of Jenkins' own driver, with an initial value of 0.
        assert_eq!(lookup3(b""), 0xdead_beef);
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
