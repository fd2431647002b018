//! Distinguishes a stub without subfiles from a file that was merged from subfiles (`docs/formats/hdf5-subfiling.md`,
//! section 7).
//!
//! Both have the same driver information, and since HDF5 2.1 the same length. But a stub holds only superblock and
//! object headers, and zeros elsewhere. So a file is whole if it has a nonzero byte that no stub has.

use std::ops::{ControlFlow, Range};

use crate::hdf5_bytes::Hdf5;
use crate::signature::find_signature;
use crate::source_file::SourceFile;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::object_header::{self, Mode, kind};
use h5logfs_hdf5_format::symbol_table::Table;
use h5logfs_hdf5_format::{ChunkIndex, HeaderBytes, Layout, Superblock, Window, read_vec};

/// Bytes of a file that are searched for structures.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes of a dataset's data that are examined, from its start.
const MOST_DATA: u64 = 4 << 20;
/// Bytes that are read together.
const STEP: u64 = 1 << 20;

/// Signatures of structures that HDF5 does not write to a stub. All have the length of an object header's signature.
const ELSEWHERE: [&[u8; 4]; 12] = [
    b"TREE", b"SNOD", b"HEAP", b"GCOL", b"BTHD", b"BTIN", b"BTLF", b"FHDB", b"FADB", b"EADB",
    b"EASB", b"FSSE",
];
const HEADER: &[u8; 4] = b"OHDR";

/// Whether a file with driver information of the subfiling driver contains all of its bytes.
pub fn is_whole(file: &SourceFile) -> Result<bool> {
    let Some(base) = find_signature(file)? else {
        return Ok(false);
    };
    let bytes = Window::new(Hdf5 { source: file, base });
    let superblock = Superblock::read(&bytes);
    let Some(superblock) = superblock.ok().filter(|found| found.end <= file.len()) else {
        return Ok(false);
    };
    // Unreadable structures count as absent.
    Ok(has_more(&bytes, superblock.root).unwrap_or(false))
}

/// Whether the file has a byte that no stub has.
fn has_more<B: HeaderBytes>(bytes: &B, root: u64) -> Result<bool, Fault> {
    let mut root_header = Header::default();
    root_header.read(bytes, root)?;
    if let Some(tree) = root_header.tree {
        return Ok(read_vec(bytes, tree, 4)? == b"TREE");
    }
    let mut headers = Header::default();
    let mut others = Vec::new();
    let end = bytes.size().min(MOST_BYTES);
    let mut at = 0;
    while at < end {
        // The steps overlap, because a signature may span two of them.
        let step = read_vec(bytes, at, (end - at).min(STEP + 3))?;
        for (offset, found) in (at..).zip(step.windows(4)) {
            if found == HEADER {
                // Data may look like a header, so a failure does not matter.
                let _ = headers.read(bytes, offset);
            } else if ELSEWHERE.iter().any(|signature| found == *signature) {
                others.push(offset);
            }
        }
        if headers.has_other(&mut others) {
            return Ok(true);
        }
        at += STEP;
    }
    let has_data = |range: &Range<u64>| has_data(bytes, range);
    Ok(headers.data.iter().any(has_data))
}

/// Whether one of these bytes exists and is not zero.
fn has_data<B: HeaderBytes>(bytes: &B, range: &Range<u64>) -> bool {
    let end = range.end.min(range.start.saturating_add(MOST_DATA));
    let mut at = range.start;
    while at < end {
        let len = STEP.min(end - at);
        match read_vec(bytes, at, len) {
            Ok(found) if found.iter().all(|byte| *byte == 0) => at += len,
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
    false
}

/// The contents of object headers.
#[derive(Debug, Default)]
struct Header {
    /// Places of the headers.
    blocks: Vec<Range<u64>>,
    /// The B-tree of names in an old group.
    tree: Option<u64>,
    /// Places of datasets' data.
    data: Vec<Range<u64>>,
}

/// The most headers and pieces of data. A file has more than enough evidence long before.
const MOST_RANGES: usize = 1 << 16;

impl Header {
    /// Adds the header at `at`.
    fn read<B: HeaderBytes>(&mut self, bytes: &B, at: u64) -> Result<(), Fault> {
        let mut found = Header::default();
        object_header::messages(bytes, at, Mode::Checked, |message| {
            if let Some(block) = &message.block
                && found.blocks.last() != Some(block)
            {
                found.blocks.push(block.clone());
            }
            match message.kind {
                kind::SYMBOL_TABLE => {
                    found.tree = Table::of_message(&message.body(bytes)?).map(|table| table.tree)
                }
                kind::LAYOUT => found.data.extend(data_of(&message.body(bytes)?)),
                _ => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if self.blocks.len() < MOST_RANGES {
            self.blocks.extend(found.blocks);
            self.data.extend(found.data);
        }
        self.tree = self.tree.or(found.tree);
        Ok(())
    }

    /// Whether one of the places lies in no header. The places in headers are removed.
    fn has_other(&self, places: &mut Vec<u64>) -> bool {
        let covered = |at: &u64| self.blocks.iter().any(|block| block.contains(at));
        places.retain(|at| !covered(at));
        !places.is_empty()
    }
}

/// The place of the data according to a layout message (IV.A.2.i), if the message itself states it.
fn data_of(body: &[u8]) -> Option<Range<u64>> {
    /// Bytes of chunks that are looked at. Their number is not known here.
    const OF_CHUNKS: u64 = 4096;
    let (start, len) = match Layout::of_message(body, None).ok()? {
        Layout::Contiguous { address, len } => (address?, len),
        Layout::Chunked {
            index: ChunkIndex::Single { address, .. } | ChunkIndex::Implicit(address),
            ..
        } => (address?, OF_CHUNKS),
        _ => return None,
    };
    Some(start..start.checked_add(len)?)
}
