//! Finds the chunks of a one-dimensional dataset, by reading their index once from front to end (HDF5 File Format
//! Specification, III.A.1 and VII.D). libhdf5 1.10 looks at all chunks before the wanted one for each query, which
//! takes minutes for some hundred thousand chunks.

use h5logfs_hdf5_format::btree;
use h5logfs_hdf5_format::{Fields, HeaderBytes, Image};
use h5logfs_log::hdf5_bytes::Hdf5;

use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

const UNDEFINED: u64 = u64::MAX;

/// The most bytes of an array that are read at once.
const MOST_READ: u64 = 64 << 20;
/// The most chunks. Their addresses take a gigabyte; a sparse file could have any number of them.
const MOST_CHUNKS: usize = 1 << 26;

/// The chunks of a one-dimensional dataset without filters.
#[derive(Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Elements of a chunk.
    pub chunk: u64,
    /// The number of each chunk with storage, in ascending order, and its offset in the file.
    pub at: Vec<(u64, u64)>,
}

/// Finds the chunks of the dataset whose object header is at `header`. It has `len` elements of one byte.
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
        Index::BTree(root) => reader.tree(root)?,
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

/// Reads the length of the chunks and the address of their index from a layout message (IV.A.2.i).
fn index_of(layout: &[u8]) -> Result<(u64, Index)> {
    let mut fields = Fields(layout);
    let version = take(&mut fields, 1)?;
    let (chunk, index) = match version {
        1 | 2 => {
            let (rank, class) = (take(&mut fields, 1)?, take(&mut fields, 1)?);
            take(&mut fields, 5)?;
            let address = take(&mut fields, 8)?;
            check_chunked(class, rank)?;
            (take(&mut fields, 4)?, Index::BTree(address))
        }
        3 => {
            let (class, rank) = (take(&mut fields, 1)?, take(&mut fields, 1)?);
            check_chunked(class, rank)?;
            let address = take(&mut fields, 8)?;
            (take(&mut fields, 4)?, Index::BTree(address))
        }
        4 => {
            const EXTENSIBLE_ARRAY: u64 = 4;
            let (class, _, rank) = (
                take(&mut fields, 1)?,
                take(&mut fields, 1)?,
                take(&mut fields, 1)?,
            );
            check_chunked(class, rank)?;
            let width = take(&mut fields, 1)? as usize;
            let chunk = take(&mut fields, width)?;
            take(&mut fields, width)?;
            let kind = take(&mut fields, 1)?;
            if kind != EXTENSIBLE_ARRAY {
                return Err(format!("it has a chunk index of kind {kind}").into());
            }
            // The header of the array repeats these parameters.
            take(&mut fields, 5)?;
            (chunk, Index::Array(take(&mut fields, 8)?))
        }
        other => return Err(format!("it has a layout message of version {other}").into()),
    };
    match chunk {
        0 => Err("it has chunks without elements".into()),
        chunk => Ok((chunk, index)),
    }
}

/// `rank` is the rank of the dataset plus one, for the bytes of an element.
fn check_chunked(class: u64, rank: u64) -> Result<()> {
    const CHUNKED: u64 = 2;
    match (class, rank) {
        (CHUNKED, 2) => Ok(()),
        _ => Err("it is not chunked along one dimension".into()),
    }
}

/// A little-endian number of `width` bytes.
fn take(fields: &mut Fields<'_>, width: usize) -> Result<u64> {
    let number = fields.number(width);
    number.ok_or_else(|| "it is too short".into())
}

struct Reader<'a> {
    file: Hdf5<'a>,
    /// Elements of a chunk.
    chunk: u64,
    /// How many chunks the dataset has. The index may list more.
    most: u64,
    /// How many bytes may still be read. The limit is the length of the file, because a sound index is read once. An
    /// index that refers to the same part again and again would never end.
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
            return Err(format!("its chunk {number} comes twice").into());
        }
        self.next = number.saturating_add(1);
        if number < self.most && address != UNDEFINED {
            if self.at.len() >= MOST_CHUNKS {
                return Err(format!("it has more than {MOST_CHUNKS} chunks").into());
            }
            let offset = self.file.base.checked_add(address);
            self.at
                .push((number, offset.ok_or("an address past 2^64")?));
        }
        Ok(())
    }

    /// Reads a version 1 B-tree (III.A.1).
    fn tree(&mut self, root: u64) -> Result<()> {
        let file = self.file;
        btree::read(&file, root, 1, &mut |leaf| match leaf.origin {
            [offset, _] if offset.is_multiple_of(self.chunk) => {
                self.add(offset / self.chunk, leaf.address)
            }
            origin => Err(format!("it has a chunk at {origin:?}").into()),
        })
    }

    /// Reads an extensible array (VII.D).
    fn array(&mut self, header: u64) -> Result<()> {
        let bytes = self.read(header, ARRAY_HEADER)?;
        let mut array = Array::parse(&bytes).ok_or("the header of its chunk index")?;
        if array.index_block == UNDEFINED {
            return Ok(());
        }
        // The index block has the first elements, then pointers to the data blocks of the first super blocks, then
        // pointers to the other super blocks.
        let Array {
            in_index,
            supers,
            direct,
            ..
        } = array;
        let blocks: u64 = (0..direct).map(blocks_of).sum();
        let len = 8 * (in_index + blocks + u64::from(supers - direct));
        let body = self.read(array.index_block.saturating_add(BLOCK_HEAD), len)?;
        let mut fields = Fields(&body);
        self.elements(&mut array, &mut fields, in_index)?;
        for number in 0..direct {
            for _ in 0..blocks_of(number) {
                self.block(&mut array, number, take(&mut fields, 8)?, None)?;
            }
        }
        for number in direct..supers {
            if array.next >= self.most {
                break;
            }
            self.super_block(&mut array, number, take(&mut fields, 8)?)?;
        }
        Ok(())
    }

    /// Reads elements of an array: the addresses of chunks.
    fn elements(&mut self, array: &mut Array, fields: &mut Fields<'_>, count: u64) -> Result<()> {
        for _ in 0..count {
            self.add(array.next, take(fields, 8)?)?;
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
        // A bitmap of the pages that were ever written.
        let start = address.saturating_add(BLOCK_HEAD + array.offset);
        let bitmap = self.read(start, blocks.saturating_mul(pages.div_ceil(8)))?;
        let start = start.saturating_add(bitmap.len() as u64);
        let pointers = self.read(start, blocks.saturating_mul(8))?;
        let mut fields = Fields(&pointers);
        for block in 0..blocks {
            let first = (block * pages) as usize;
            let is_written = |page: usize| {
                let bit = first + page;
                let byte = bitmap.get(bit / 8).copied().unwrap_or(0);
                byte & (0x80 >> (bit % 8)) != 0
            };
            self.block(array, number, take(&mut fields, 8)?, Some(&is_written))?;
        }
        Ok(())
    }

    /// Reads a data block of the super block `number`.
    fn block(
        &mut self,
        array: &mut Array,
        number: u32,
        address: u64,
        is_written: Option<&dyn Fn(usize) -> bool>,
    ) -> Result<()> {
        let (elements, pages) = (array.elements_of(number), array.pages_of(number));
        if address == UNDEFINED || array.next >= self.most {
            array.skip(elements);
            return Ok(());
        }
        let start = address.saturating_add(BLOCK_HEAD + array.offset);
        if pages == 0 {
            let body = self.read(start, elements.saturating_mul(8))?;
            return self.elements(array, &mut Fields(&body), elements);
        }
        for page in 0..pages {
            let is_unwritten = is_written.is_some_and(|is_written| !is_written(page as usize));
            if is_unwritten || array.next >= self.most {
                array.skip(array.page);
                continue;
            }
            // The head of the block has a checksum, and each page, too.
            let before = 4 + page.saturating_mul(8 * array.page + 4);
            let body = self.read(start.saturating_add(before), 8 * array.page)?;
            self.elements(array, &mut Fields(&body), array.page)?;
        }
        Ok(())
    }
}

/// Length of the header of an array.
const ARRAY_HEADER: u64 = 68;
/// Each block of an array begins with signature, version, client and the address of the header.
const BLOCK_HEAD: u64 = 4 + 1 + 1 + 8;

/// The parameters of an array, and how far it was read.
struct Array {
    index_block: u64,
    /// Elements in the index block.
    in_index: u64,
    /// The number of super blocks. They grow with their number.
    supers: u32,
    /// How many super blocks exist only as pointers to their data blocks.
    direct: u32,
    /// Elements of the smallest data block.
    least: u64,
    /// Elements of a page. Larger data blocks consist of pages.
    page: u64,
    /// Size of the field that says where in the array a block begins.
    offset: u64,
    /// The number of the next element.
    next: u64,
}

impl Array {
    fn parse(header: &[u8]) -> Option<Self> {
        let fields = header.strip_prefix(b"EAHD\0\0")?;
        let [size, bits, in_index, least, pointers, page_bits] = *fields.first_chunk()?;
        let is_sound = size == 8
            && bits < 64
            && page_bits < 32
            && least.is_power_of_two()
            && pointers.is_power_of_two();
        if !is_sound {
            return None;
        }
        let supers = (1 + u32::from(bits)).saturating_sub(least.ilog2());
        Some(Array {
            index_block: Fields(header.get(60..)?).u64()?,
            in_index: u64::from(in_index),
            supers,
            direct: (2 * pointers.ilog2()).min(supers),
            least: u64::from(least),
            page: 1 << page_bits,
            offset: u64::from(bits).div_ceil(8),
            next: 0,
        })
    }

    /// Elements of each data block of a super block.
    fn elements_of(&self, number: u32) -> u64 {
        let doubled = 1u64.checked_shl(number.div_ceil(2)).unwrap_or(u64::MAX);
        doubled.saturating_mul(self.least)
    }

    /// Pages of each data block of a super block; 0 if the blocks have no pages.
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

/// The number of data blocks of a super block.
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

    /// Reads the index at `root` in these bytes, for a log of `len` bytes in chunks of 16.
    fn read_tree(bytes: &[u8], root: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), bytes).unwrap();
        let held = h5logfs_log::source_dir::SourceDir::open(dir.path()).unwrap();
        let source = h5logfs_log::source_file::SourceFile::open(&held, "file".as_ref()).unwrap();
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
        reader.tree(root)?;
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
        // A chunk behind the end of the log is left out, but it must not come twice, either.
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

    /// With the default parameters of libhdf5.
    #[test]
    fn blocks_of_an_array_grow() {
        let parameters = [8, 32, 4, 16, 4, 10];
        let header = [b"EAHD\0\0", &parameters[..], &[0; 56]].concat();
        let array = Array::parse(&header).unwrap();
        let sizes = [0, 1, 2, 3, 4].map(|n| (blocks_of(n), array.elements_of(n)));
        assert_eq!(sizes, [(1, 16), (1, 32), (2, 32), (2, 64), (4, 64)]);
        assert_eq!([12, 13].map(|n| array.pages_of(n)), [0, 2]);
    }
}
