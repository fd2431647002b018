//! Finds the chunks of a one-dimensional dataset, by reading their index once from front to end. libhdf5 1.10 looks at all chunks
//! before the wanted one for each query, which takes minutes for some hundred thousand chunks.

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{Chunk, HeaderBytes, Layout, Objects, UNDEFINED};

type Result<T> = std::result::Result<T, Fault>;

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

/// Finds the chunks of the dataset whose object header is at `header` in `file`, which begins behind a user block of `base`
/// bytes. The dataset has `len` elements of one byte.
pub fn of_bytes<B: HeaderBytes>(file: B, base: u64, header: u64, len: u64) -> Result<Chunks> {
    let objects = Objects::open(file)?;
    let dataset = objects.dataset(header)?;
    let chunk = match &dataset.layout {
        Layout::Chunked { chunk, .. } if chunk.len() == 1 => chunk[0],
        _ => return Err("it is not chunked along one dimension".into()),
    };
    let mut found = Chunks {
        chunk,
        at: Vec::new(),
    };
    // The smallest number that the next chunk may have. The index may list more chunks than the dataset has.
    let (mut next, most) = (0, len.div_ceil(chunk));
    objects.each_chunk(&dataset, |stored| {
        let Chunk {
            offset, address, ..
        } = stored;
        let number = match offset[..] {
            [offset] if offset.is_multiple_of(chunk) => offset / chunk,
            _ => return Err(format!("it has a chunk at {offset:?}").into()),
        };
        if number < next {
            return Err(format!("its chunk {number} comes twice").into());
        }
        next = number.saturating_add(1);
        if number < most && address != UNDEFINED {
            if found.at.len() >= MOST_CHUNKS {
                return Err(format!("it has more than {MOST_CHUNKS} chunks").into());
            }
            let offset = base.checked_add(address);
            found
                .at
                .push((number, offset.ok_or("an address past 2^64")?));
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_hdf5_format::Space;
    use h5logfs_hdf5_format::object_header::kind;
    use h5logfs_hdf5_format::superblock::new_superblock;
    use h5logfs_hdf5_format::written::datatype;
    use h5logfs_hdf5_format::written::header::{self, Messages};

    /// Where the index begins in a file.
    const INDEX: u64 = 512;

    /// Finds the chunks in a file with this index, for a log of `len` bytes in chunks of 16. The root of the index lies `root`
    /// bytes behind its first byte.
    fn read_tree(index: &[u8], root: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        let mut messages = Messages::default();
        let mut layout = header::chunked(&[16], 1).unwrap();
        layout[3..11].copy_from_slice(&(INDEX + root).to_le_bytes());
        for (kind, data) in [
            (
                kind::DATASPACE,
                header::extent(&[len], &[UNDEFINED]).unwrap(),
            ),
            (kind::DATATYPE, datatype::integer(1, false).to_vec()),
            (kind::LAYOUT, layout),
        ] {
            messages.push(kind, 0, &data).unwrap();
        }
        let mut space = Space::new(0);
        space.put(&new_superblock(96, None, 0));
        let header = messages.put(&mut space, 1, 0).unwrap();
        let mut bytes = space.into_bytes();
        bytes.resize(INDEX as usize, 0);
        bytes.extend(index);
        of_bytes(&bytes, 1000, header, len).map(|found| found.at)
    }

    fn node(level: u8, entries: &[(u64, u64)]) -> Vec<u8> {
        let mut node = b"TREE\x01".to_vec();
        node.push(level);
        node.extend((entries.len() as u16).to_le_bytes());
        node.extend([0xff; 16]);
        for (number, child) in entries {
            let child = if level > 0 { INDEX + child } else { *child };
            let numbers = [16, number * 16, 0, child];
            node.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
        }
        node
    }

    #[test]
    fn nodes_that_lead_to_the_same_ones_come_to_an_end() {
        let good = [node(0, &[(0, 100), (3, 200)]), node(1, &[(0, 0)])].concat();
        assert_eq!(read_tree(&good, 88, 64), Ok(vec![(0, 1100), (3, 1200)]));
        // A chunk past the end of the log is left out. Listing it twice is still an error.
        assert_eq!(read_tree(&good, 88, 48), Ok(vec![(0, 1100)]));
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
}
