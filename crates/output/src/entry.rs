//! One entry of the record table as bytes (`docs/formats/logvol.md`, sections 5 and 6).

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use h5logfs_log::logvol::flags::{DEFL, ENC, HEADER, MUL, REC, REF};

/// Bytes before the deflated part of an entry of several blocks: the header, and the number of blocks.
const UNDEFLATED: usize = HEADER as usize + 4;

/// An entry of the record table.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Number of the dataset.
    pub dataset: u32,
    /// Number of the record that contains all blocks, if the entry has one.
    pub record: Option<u64>,
    /// Offset of the data.
    pub offset: u64,
    /// Bytes of the data.
    pub stored: u64,
    /// Elements that the data cover.
    pub selection: Form<'a>,
}

/// The form of an entry's selection.
#[derive(Debug, Clone, Copy)]
pub enum Form<'a> {
    /// Section 6.1: all coordinates.
    Plain(Coordinates<'a>),
    /// Section 6.2: one number for the start of each block, and one for its count. Each stored dimension has a stride,
    /// in elements.
    Encoded {
        /// The blocks.
        blocks: Coordinates<'a>,
        /// The strides.
        strides: &'a [u64],
    },
    /// Section 6.3: the selection of an earlier entry of the same section.
    Shared {
        /// Distance back to the start of that entry, in bytes.
        back: u64,
        /// Flags of the earlier entry.
        flags: i32,
    },
}

/// Blocks of `rank` dimensions. The entry stores the dimensions from `skip` on.
#[derive(Debug, Clone, Copy)]
pub struct Coordinates<'a> {
    /// Number of dimensions.
    pub rank: usize,
    /// Number of leading dimensions left out: 1 if the record number stands for the first one.
    pub skip: usize,
    /// Number of blocks. A scalar has one block without coordinates.
    pub number: usize,
    /// Starts of the blocks, one after the other.
    pub starts: &'a [u64],
    /// Counts of the blocks.
    pub counts: &'a [u64],
}

impl Entry<'_> {
    /// Appends the entry, which must be shorter than 2 GiB. Returns its flags.
    pub fn append_to(&self, out: &mut Vec<u8>) -> i32 {
        let (at, flags) = (out.len(), self.flags());
        out.extend_from_slice(&[0; HEADER as usize]);
        if let Some(record) = self.record {
            push(out, record);
        }
        self.selection.append_to(out);
        let size = (out.len() - at) as i32;
        let header = &mut out[at..at + HEADER as usize];
        header[..4].copy_from_slice(&size.to_le_bytes());
        header[4..8].copy_from_slice(&self.dataset.to_le_bytes());
        header[8..12].copy_from_slice(&flags.to_le_bytes());
        header[12..20].copy_from_slice(&self.offset.to_le_bytes());
        header[20..28].copy_from_slice(&self.stored.to_le_bytes());
        flags
    }

    /// Bytes before the selection.
    pub fn head_len(&self) -> usize {
        HEADER as usize + if self.record.is_some() { 8 } else { 0 }
    }

    fn flags(&self) -> i32 {
        let record = if self.record.is_some() { REC } else { 0 };
        record
            | match self.selection {
                Form::Plain(blocks) if blocks.number > 1 => MUL,
                Form::Plain(_) => 0,
                Form::Encoded { .. } => MUL | ENC,
                // A reference repeats the flags of its selection.
                Form::Shared { flags, .. } => flags & (MUL | ENC) | REF,
            }
    }
}

impl Form<'_> {
    fn append_to(&self, out: &mut Vec<u8>) {
        match *self {
            Form::Plain(blocks) => {
                if blocks.number > 1 {
                    blocks.push_number(out);
                }
                blocks.for_each(|block| block.iter().for_each(|value| push(out, *value)));
            }
            Form::Encoded { blocks, strides } => {
                blocks.push_number(out);
                // The last stride is 1, and is not stored.
                let (_, stored) = strides.split_last().unwrap_or((&1, &[]));
                stored.iter().for_each(|stride| push(out, *stride));
                out.reserve(16 * blocks.number);
                blocks.for_each(|block| {
                    let terms = block.iter().zip(strides);
                    push(out, terms.map(|(value, stride)| value * stride).sum());
                });
            }
            Form::Shared { back, .. } => push(out, back.wrapping_neg()),
        }
    }
}

impl Coordinates<'_> {
    fn push_number(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.number as u32).to_le_bytes());
    }

    /// Calls `see` with the stored part of each start, and then of each count.
    fn for_each(&self, mut see: impl FnMut(&[u64])) {
        if self.rank == 0 {
            return;
        }
        for values in [self.starts, self.counts] {
            for block in values.chunks_exact(self.rank) {
                see(&block[self.skip..]);
            }
        }
    }
}

/// Section 6.4: deflates the selection of the last entry, at `at`, which has several blocks and no record number. Keeps
/// the selection as it is if this saves less than half. Returns the flags of the entry.
pub fn deflate_last(out: &mut Vec<u8>, at: usize) -> i32 {
    let (head, selection) = out[at..].split_at(UNDEFLATED);
    let mut flags = i32::from_le_bytes([8, 9, 10, 11].map(|i| head[i]));
    let room = Vec::with_capacity(selection.len() / 2);
    let mut deflated = ZlibEncoder::new(room, Compression::default());
    let deflated = deflated
        .write_all(selection)
        .and_then(|()| deflated.finish());
    let Some(deflated) = deflated.ok().filter(|d| d.len() <= selection.len() / 2) else {
        return flags;
    };
    flags |= DEFL;
    out.truncate(at + UNDEFLATED);
    out.extend_from_slice(&deflated);
    let size = (out.len() - at) as i32;
    out[at..at + 4].copy_from_slice(&size.to_le_bytes());
    out[at + 8..at + 12].copy_from_slice(&flags.to_le_bytes());
    flags
}

fn push(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}
