//! Where the chunks of a dataset of one dimension lie. libhdf5 1.10 tells it of one chunk after a look at all in front
//! of it, which takes minutes where there are some hundred thousand of them; so their index is read
//! here, once from its front to its end (HDF5 File Format Specification, III.A.1 and VII.D).

use h5logfs_core::image::{HeaderBytes, Image};
use h5logfs_core::log::source_file::SourceFile;

type Result<T> = std::result::Result<T, String>;

const UNDEFINED: u64 = u64::MAX;

/// The most bytes of an index that are read at once.
const MOST_READ: u64 = 64 << 20;
/// The most chunks: their addresses take a gigabyte. A sparse file could have any number.
const MOST_CHUNKS: usize = 1 << 26;

/// An HDF5 file behind its user block.
#[derive(Debug, Clone, Copy)]
pub struct Hdf5<'a> {
    pub source: &'a SourceFile,
    /// Bytes of the user block.
    pub base: u64,
}

impl HeaderBytes for Hdf5<'_> {
    fn size(&self) -> u64 {
        self.source.len().saturating_sub(self.base)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let offset = self.base.checked_add(at).ok_or("an address past 2^64")?;
        let read = self.source.read_exact_at(buf, offset);
        read.map_err(|e| e.to_string())
    }
}

/// Chunks of one dimension, without filters.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Elements of a chunk.
    pub chunk: u64,
    /// Addresses, by the numbers of the chunks in ascending order. Those without storage are missing.
    pub at: Vec<(u64, u64)>,
}

/// The chunks of the dataset whose object header is at `header`. It has `len` elements of one byte.
pub fn of_bytes(file: Hdf5<'_>, header: u64, len: u64) -> Result<Chunks> {
    let layout = Image::new(file).layout(header)?;
    let (chunk, index) = index_of(&layout)?;
    let mut reader = Reader {
        file,
        chunk,
        most: len.div_ceil(chunk),
        left: file.size(),
        next: 0,
        at: Vec::new(),
    };
    match index {
        Index::BTree(UNDEFINED) | Index::Array(UNDEFINED) => {}
        Index::BTree(root) => reader.tree(root, None)?,
        Index::Array(header) => reader.array(header)?,
    }
    Ok(Chunks {
        chunk,
        at: reader.at,
    })
}

/// The address of an index.
#[derive(Debug, PartialEq, Eq)]
enum Index {
    BTree(u64),
    Array(u64),
}

/// The length of chunks, and what a layout message says of their index (IV.A.2.i).
fn index_of(layout: &[u8]) -> Result<(u64, Index)> {
    let mut fields = Fields(layout);
    let version = fields.number(1)?;
    let (chunk, index) = match version {
        1 | 2 => {
            let (rank, class) = (fields.number(1)?, fields.number(1)?);
            fields.number(5)?;
            let address = fields.number(8)?;
            check_chunked(class, rank)?;
            (fields.number(4)?, Index::BTree(address))
        }
        3 => {
            let (class, rank) = (fields.number(1)?, fields.number(1)?);
            check_chunked(class, rank)?;
            let address = fields.number(8)?;
            (fields.number(4)?, Index::BTree(address))
        }
        4 => {
            const EXTENSIBLE_ARRAY: u64 = 4;
            let (class, _, rank) = (fields.number(1)?, fields.number(1)?, fields.number(1)?);
            check_chunked(class, rank)?;
            let width = fields.number(1)? as usize;
            let chunk = fields.number(width)?;
            fields.number(width)?;
            let kind = fields.number(1)?;
            if kind != EXTENSIBLE_ARRAY {
                return Err(format!("it has a chunk index of kind {kind}"));
            }
            // What the header of the array says as well.
            fields.number(5)?;
            (chunk, Index::Array(fields.number(8)?))
        }
        other => return Err(format!("it has a layout message of version {other}")),
    };
    match chunk {
        0 => Err("it has chunks without elements".into()),
        chunk => Ok((chunk, index)),
    }
}

/// `rank`: that of the dataset, and one more for the bytes of an element.
fn check_chunked(class: u64, rank: u64) -> Result<()> {
    const CHUNKED: u64 = 2;
    match (class, rank) {
        (CHUNKED, 2) => Ok(()),
        _ => Err("it is not chunked along one dimension".into()),
    }
}

/// Little-endian numbers, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, width: usize) -> Result<u64> {
        let (field, rest) = self.0.split_at_checked(width).ok_or("it is too short")?;
        self.0 = rest;
        let mut bytes = [0; 8];
        let there = bytes.get_mut(..width).ok_or("a number of many bytes")?;
        there.copy_from_slice(field);
        Ok(u64::from_le_bytes(bytes))
    }
}

struct Reader<'a> {
    file: Hdf5<'a>,
    chunk: u64,
    /// How many chunks the dataset has; an index may know more.
    most: u64,
    /// Bytes that may still be read: no part of an index has to be read twice, so that they are not more
    /// than the file has. Who leads to the same part again and again would never come to an end.
    left: u64,
    /// The smallest number that the next chunk may have.
    next: u64,
    at: Vec<(u64, u64)>,
}

impl Reader<'_> {
    fn read(&mut self, at: u64, len: u64) -> Result<Vec<u8>> {
        let left = self.left.checked_sub(len).filter(|_| len <= MOST_READ);
        self.left = left.ok_or_else(|| format!("{len} bytes at {at} of its chunk index"))?;
        let mut bytes = vec![0; len as usize];
        self.file.read(at, &mut bytes)?;
        Ok(bytes)
    }

    fn add(&mut self, number: u64, address: u64) -> Result<()> {
        if number < self.next {
            return Err(format!("its chunk {number} comes twice"));
        }
        self.next = number.saturating_add(1);
        if number < self.most && address != UNDEFINED {
            if self.at.len() >= MOST_CHUNKS {
                return Err(format!("it has more than {MOST_CHUNKS} chunks"));
            }
            let offset = self.file.base.checked_add(address);
            self.at
                .push((number, offset.ok_or("an address past 2^64")?));
        }
        Ok(())
    }

    /// A node of a version-1 B-tree (III.A.1), of the level that its parent says.
    fn tree(&mut self, address: u64, level: Option<u8>) -> Result<()> {
        // Key: stored bytes, filter mask, and the offsets of the two dimensions.
        const KEY: u64 = 4 + 4 + 16;
        const HEAD: u64 = 24;
        let head = self.read(address, HEAD)?;
        let mut fields = Fields(head.get(4..).unwrap_or_default());
        let (kind, own, entries) = (fields.number(1)?, fields.number(1)?, fields.number(2)?);
        let own = own as u8;
        let is_sound = head.starts_with(b"TREE") && kind == 1 && level.is_none_or(|l| l == own);
        if !is_sound {
            return Err(format!("the node at {address} of its chunk index"));
        }
        let body = self.read(address + HEAD, entries * (KEY + 8))?;
        for entry in body.chunks_exact(KEY as usize + 8) {
            let mut fields = Fields(entry);
            let (_, _) = (fields.number(4)?, fields.number(4)?);
            let (offset, _, child) = (fields.number(8)?, fields.number(8)?, fields.number(8)?);
            match own.checked_sub(1) {
                Some(below) => self.tree(child, Some(below))?,
                None if !offset.is_multiple_of(self.chunk) => {
                    return Err(format!("it has a chunk at {offset}"));
                }
                None => self.add(offset / self.chunk, child)?,
            }
        }
        Ok(())
    }

    /// An extensible array (VII.D).
    fn array(&mut self, header: u64) -> Result<()> {
        let bytes = self.read(header, 68)?;
        let broken = || "the header of its chunk index".to_owned();
        let fields = bytes.strip_prefix(b"EAHD\0\0").unwrap_or_default();
        let Some([size, bits, first, least, pointers, page_bits]) = fields.first_chunk() else {
            return Err(broken());
        };
        let (size, bits, page_bits) = (*size, *bits, *page_bits);
        let is_sound = size == 8
            && bits < 64
            && page_bits < 32
            && least.is_power_of_two()
            && pointers.is_power_of_two();
        if !is_sound {
            return Err(broken());
        }
        let mut array = Array {
            least: u64::from(*least),
            page: 1 << page_bits,
            offset: u64::from(bits).div_ceil(8),
            next: 0,
        };
        let index = Fields(bytes.get(60..).unwrap_or_default()).number(8)?;
        if index == UNDEFINED {
            return Ok(());
        }
        // Blocks grow; the pointers to those of the first super blocks stand in the index block.
        let supers = (1 + u32::from(bits)).saturating_sub(least.ilog2());
        let direct = (2 * pointers.ilog2()).min(supers);
        let blocks: u64 = (0..direct).map(blocks_of).sum();
        let len = 8 * (u64::from(*first) + blocks + u64::from(supers - direct));
        let body = self.read(index + ARRAY_HEAD, len)?;
        let mut fields = Fields(&body);
        self.elements(&mut array, &mut fields, u64::from(*first))?;
        for number in 0..direct {
            for _ in 0..blocks_of(number) {
                self.block(&mut array, number, fields.number(8)?, None)?;
            }
        }
        for number in direct..supers {
            if array.next >= self.most {
                break;
            }
            self.super_block(&mut array, number, fields.number(8)?)?;
        }
        Ok(())
    }

    /// Elements of an array: the addresses of chunks.
    fn elements(&mut self, array: &mut Array, fields: &mut Fields<'_>, count: u64) -> Result<()> {
        for _ in 0..count {
            self.add(array.next, fields.number(8)?)?;
            array.next = array.next.saturating_add(1);
        }
        Ok(())
    }

    fn super_block(&mut self, array: &mut Array, number: u32, address: u64) -> Result<()> {
        let (blocks, elements) = (blocks_of(number), array.elements_of(number));
        if address == UNDEFINED {
            array.skip(blocks.saturating_mul(elements));
            return Ok(());
        }
        let pages = array.pages_of(number);
        // Which pages were ever written.
        let marks = blocks.saturating_mul(pages.div_ceil(8));
        let start = address.saturating_add(ARRAY_HEAD + array.offset);
        let marks = self.read(start, marks)?;
        let start = start.saturating_add(marks.len() as u64);
        let pointers = self.read(start, blocks.saturating_mul(8))?;
        let mut fields = Fields(&pointers);
        for block in 0..blocks {
            let first = (block * pages) as usize;
            let written = |page: usize| {
                let bit = first + page;
                let mark = marks.get(bit / 8).copied().unwrap_or(0);
                mark & (0x80 >> (bit % 8)) != 0
            };
            self.block(array, number, fields.number(8)?, Some(&written))?;
        }
        Ok(())
    }

    /// A data block of the super block `number`.
    fn block(
        &mut self,
        array: &mut Array,
        number: u32,
        address: u64,
        written: Option<&dyn Fn(usize) -> bool>,
    ) -> Result<()> {
        let (elements, pages) = (array.elements_of(number), array.pages_of(number));
        if address == UNDEFINED || array.next >= self.most {
            array.skip(elements);
            return Ok(());
        }
        let start = address.saturating_add(ARRAY_HEAD + array.offset);
        if pages == 0 {
            let body = self.read(start, elements.saturating_mul(8))?;
            return self.elements(array, &mut Fields(&body), elements);
        }
        for page in 0..pages {
            if written.is_some_and(|written| !written(page as usize)) || array.next >= self.most {
                array.skip(array.page);
                continue;
            }
            // The head of the block, and each page, have a checksum.
            let before = 4 + page.saturating_mul(8 * array.page + 4);
            let body = self.read(start.saturating_add(before), 8 * array.page)?;
            self.elements(array, &mut Fields(&body), array.page)?;
        }
        Ok(())
    }
}

/// Signature, version, client and the address of the header, in front of each block of an array.
const ARRAY_HEAD: u64 = 4 + 1 + 1 + 8;

/// What is known of an array, and how far it was read.
struct Array {
    /// Elements of the smallest data block.
    least: u64,
    /// Elements of a page; larger blocks are made of pages.
    page: u64,
    /// Bytes of the field that says where in the array a block begins.
    offset: u64,
    /// Number of the next element.
    next: u64,
}

impl Array {
    /// Elements of each data block of a super block.
    fn elements_of(&self, number: u32) -> u64 {
        let doubled = 1u64.checked_shl(number.div_ceil(2)).unwrap_or(u64::MAX);
        doubled.saturating_mul(self.least)
    }

    /// Pages of each of these; none where it is in one piece.
    fn pages_of(&self, number: u32) -> u64 {
        match self.elements_of(number) {
            elements if elements > self.page => elements / self.page,
            _ => 0,
        }
    }

    fn skip(&mut self, elements: u64) {
        self.next = self.next.saturating_add(elements);
    }
}

/// Data blocks of a super block.
fn blocks_of(number: u32) -> u64 {
    1u64.checked_shl(number / 2).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_messages_name_the_index() {
        let address = 0x1234u64.to_le_bytes();
        let sides = [16, 0, 0, 0, 1, 0, 0, 0];
        let of = |parts: &[&[u8]]| index_of(&parts.concat());
        let tree = Ok((16, Index::BTree(0x1234)));
        assert_eq!(of(&[&[3, 2, 2], &address, &sides]), tree);
        assert_eq!(of(&[&[1, 2, 2, 0, 0, 0, 0, 0], &address, &sides]), tree);
        let array = [4, 2, 0, 2, 1, 16, 1, 4, 32, 4, 4, 16, 10];
        let found = of(&[&array, &address]);
        assert_eq!(found, Ok((16, Index::Array(0x1234))));
        // A fixed array, no chunks, two dimensions, chunks of nothing, the end.
        let fixed = [4, 2, 0, 2, 1, 16, 1, 3, 10];
        assert!(of(&[&fixed, &address]).is_err());
        assert!(of(&[&[3, 1, 2], &address, &sides]).is_err());
        assert!(of(&[&[3, 2, 3], &address, &sides]).is_err());
        assert!(of(&[&[3, 2, 2], &address, &[0; 8]]).is_err());
        assert!(of(&[&[3, 2, 2], &address]).is_err());
    }

    /// What an index of these bytes, which begins at `root`, says of a log of `len` bytes in chunks of 16.
    fn read_tree(bytes: &[u8], root: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), bytes).unwrap();
        let held = h5logfs_core::log::source_dir::SourceDir::open(dir.path()).unwrap();
        let source = SourceFile::open(&held, "file".as_ref()).unwrap();
        let file = Hdf5 {
            source: &source,
            base: 0,
        };
        let mut reader = Reader {
            file,
            chunk: 16,
            most: len.div_ceil(16),
            left: file.size(),
            next: 0,
            at: Vec::new(),
        };
        reader.tree(root, None)?;
        Ok(reader.at)
    }

    fn node(level: u8, entries: &[(u64, u64)]) -> Vec<u8> {
        let mut node = b"TREE\x01".to_vec();
        node.push(level);
        node.extend((entries.len() as u16).to_le_bytes());
        node.extend([0xff; 16]);
        for (number, child) in entries {
            let numbers = [16, number * 16, 0, *child];
            node.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        }
        node
    }

    #[test]
    fn nodes_that_lead_to_the_same_ones_come_to_an_end() {
        let good = [node(0, &[(0, 100), (3, 200)]), node(1, &[(0, 0)])].concat();
        assert_eq!(read_tree(&good, 88, 64), Ok(vec![(0, 100), (3, 200)]));
        // A chunk behind the end of the log is none, but it comes once, too.
        assert_eq!(read_tree(&good, 88, 48), Ok(vec![(0, 100)]));
        let twice = [node(0, &[(3, 200)]), node(1, &[(0, 0), (4, 0)])].concat();
        for len in [48, 64] {
            assert!(read_tree(&twice, 56, len).is_err());
        }
        let mut bytes = node(0, &[]);
        let mut below = 0;
        for level in 1..8 {
            let here = bytes.len() as u64;
            bytes.extend(node(level, &[(0, below); 500]));
            below = here;
        }
        assert!(read_tree(&bytes, below, i64::MAX as u64).is_err());
    }

    /// As libhdf5 has them with its usual parameters.
    #[test]
    fn blocks_of_an_array_grow() {
        let array = Array {
            least: 16,
            page: 1024,
            offset: 4,
            next: 0,
        };
        let sizes = [0, 1, 2, 3, 4].map(|n| (blocks_of(n), array.elements_of(n)));
        assert_eq!(sizes, [(1, 16), (1, 32), (2, 32), (2, 64), (4, 64)]);
        assert_eq!([12, 13].map(|n| array.pages_of(n)), [0, 2]);
    }
}
