//! The entries of one process (`docs/formats/logvol.md`, sections 4 to 6), counted or written.
//!
//! A section is produced twice. The first pass counts its bytes, from which the offset of each section in the file
//! follows. The second pass writes data and entries through buffers of fixed size.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use h5logfs_output::entry::{self, Coordinates, Form};

use super::Dataset;
use super::blocks::Blocks;
use super::values::Values;

const BUFFER: usize = 1 << 20;

/// The form of a selection in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// One block, or MUL.
    Plain,
    /// ENC: one number for the start of each block, and one for its count.
    Encoded,
    /// REF to an entry of the same section.
    Shared(Position),
}

/// The offset of an entry in its section, and its flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    start: u64,
    flags: i32,
}

/// The data of an entry in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    Elements,
    /// The elements after shuffle and deflate, or without filters if that is smaller.
    Deflated,
    /// Other elements, which a later write overrides.
    Stale,
    /// A hole in the file, which reads as zeros.
    Hole,
}

/// A write of the program that made the log.
#[derive(Debug)]
pub struct Entry<'a> {
    pub dataset: &'a Dataset,
    /// Record number. With a record number, blocks have no first dimension.
    pub record: Option<u64>,
    pub blocks: &'a Blocks,
    pub spelling: Spelling,
    pub stored: Stored,
}

impl<'a> Entry<'a> {
    pub fn new(dataset: &'a Dataset, blocks: &'a Blocks) -> Self {
        Entry {
            dataset,
            record: None,
            blocks,
            spelling: Spelling::Plain,
            stored: Stored::Elements,
        }
    }

    /// Appends the entry at `position` in its section, for `stored` bytes at `offset` in the file. Returns its flags.
    fn append(&self, position: u64, offset: u64, stored: u64, out: &mut Vec<u8>) -> Result<i32> {
        let blocks = Coordinates {
            rank: self.blocks.rank(),
            skip: 0,
            number: usize::try_from(self.blocks.len())?,
            starts: self.blocks.starts(),
            counts: self.blocks.counts(),
        };
        let strides = strides(self.own_dims());
        let selection = match self.spelling {
            Spelling::Plain => Form::Plain(blocks),
            Spelling::Encoded => {
                ensure!(strides.len() > 1, "nothing to encode in one dimension");
                Form::Encoded {
                    blocks,
                    strides: &strides,
                }
            }
            Spelling::Shared(target) => Form::Shared {
                back: position - target.start,
                flags: target.flags,
            },
        };
        let entry = entry::Entry {
            dataset: self.dataset.id,
            record: self.record,
            offset,
            stored,
            selection,
        };
        Ok(entry.append_to(out))
    }

    /// The dimensions of the blocks.
    fn own_dims(&self) -> &[u64] {
        &self.dataset.dims[usize::from(self.record.is_some())..]
    }

    /// Calls `run` with the position in the dataset and the length of each run of elements, in the order of
    /// the stored data.
    fn runs(&self, mut run: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let steps = strides(self.own_dims());
        let record: u64 = self.own_dims().iter().product();
        let base = self.record.unwrap_or(0) * record;
        for (start, count) in self.blocks.iter() {
            let Some((length, outer)) = count.split_last() else {
                continue;
            };
            let rows: u64 = outer.iter().product();
            for row in 0..rows {
                let mut rest = row;
                let mut place = base + start[outer.len()];
                for d in (0..outer.len()).rev() {
                    place += (start[d] + rest % outer[d]) * steps[d];
                    rest /= outer[d];
                }
                run(place, *length)?;
            }
        }
        Ok(())
    }
}

/// The stride of each dimension, in elements.
fn strides(dims: &[u64]) -> Vec<u64> {
    let mut steps = vec![1; dims.len()];
    for d in (1..dims.len()).rev() {
        steps[d - 1] = steps[d] * dims[d];
    }
    steps
}

/// The size of a section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Bytes of data in each flush.
    pub data: Vec<u64>,
    pub entries: u64,
    pub blocks: u64,
    /// Bytes of the entries.
    pub metadata: u64,
}

/// The offsets of a section in the file.
#[derive(Debug)]
pub struct Places<'a> {
    pub file: &'a File,
    /// Offset of its data in each flush.
    pub data: Vec<u64>,
    /// Offset of its entries.
    pub metadata: u64,
}

/// The section of one process.
#[derive(Debug)]
pub struct Section<'a> {
    seed: u64,
    flush: usize,
    lengths: Lengths,
    places: Option<Places<'a>>,
    entries: Gathered,
    data: Gathered,
    /// The latest entry.
    entry: Vec<u8>,
    /// The data of the latest entry, if they are deflated.
    scratch: Vec<u8>,
}

impl<'a> Section<'a> {
    pub fn new(seed: u64, places: Option<Places<'a>>) -> Self {
        let entries = places.as_ref().map_or(0, |p| p.metadata);
        Section {
            seed,
            flush: 0,
            lengths: Lengths::default(),
            places,
            entries: Gathered::at(entries),
            data: Gathered::at(0),
            entry: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Begins the next flush.
    pub fn flush(&mut self) {
        self.flush += 1;
    }

    /// Appends an entry. Returns its position, so that later entries can share its selection.
    pub fn write(&mut self, entry: &Entry<'_>) -> Result<Position> {
        let elements = entry.blocks.elements();
        let raw = elements * entry.dataset.element.size();
        if entry.stored == Stored::Deflated {
            self.deflate(entry)?;
        }
        let stored = match entry.stored {
            Stored::Deflated => self.scratch.len() as u64,
            _ => raw,
        };
        if self.lengths.data.len() <= self.flush {
            self.lengths.data.resize(self.flush + 1, 0);
        }
        let position = self.lengths.metadata;
        // The offset has no effect on the length of the entry, so it may be unknown.
        let data = self.places.as_ref().map_or(0, |p| p.data[self.flush]);
        let offset = data + self.lengths.data[self.flush];
        self.entry.clear();
        let flags = entry.append(position, offset, stored, &mut self.entry)?;
        if let Some(places) = &self.places {
            self.entries.onto(places.file).write_all(&self.entry)?;
            let mut out = self.data.onto(places.file);
            out.go_to(offset)?;
            match entry.stored {
                Stored::Hole => {}
                Stored::Deflated => out.write_all(&self.scratch)?,
                Stored::Elements | Stored::Stale => {
                    let stale = u64::from(entry.stored == Stored::Stale);
                    let values = entry.dataset.values(self.seed + stale);
                    entry.runs(|place, count| {
                        append_run(entry.dataset, values, place, count, &mut out)
                    })?;
                }
            }
        }
        self.lengths.data[self.flush] += stored;
        self.lengths.metadata += self.entry.len() as u64;
        self.lengths.entries += 1;
        self.lengths.blocks += entry.blocks.len();
        Ok(Position {
            start: position,
            flags,
        })
    }

    /// Writes the rest of the buffers. Returns the lengths.
    pub fn finish(mut self) -> Result<Lengths> {
        if let Some(places) = &self.places {
            self.entries.onto(places.file).flush()?;
            self.data.onto(places.file).flush()?;
        }
        Ok(self.lengths)
    }

    /// Puts the stored bytes of a filtered entry into `scratch`.
    fn deflate(&mut self, entry: &Entry<'_>) -> Result<()> {
        let (element, values) = (entry.dataset.element, entry.dataset.values(self.seed));
        let mut raw = Vec::new();
        entry.runs(|place, count| {
            element.append(values, place, count, &mut raw);
            Ok(())
        })?;
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(super::LEVEL));
        encoder.write_all(&shuffled(&raw, element.size() as usize))?;
        let deflated = encoder.finish()?;
        self.scratch = if deflated.len() < raw.len() {
            deflated
        } else {
            raw
        };
        Ok(())
    }
}

/// Appends a run in pieces, because it may be larger than memory.
fn append_run(
    dataset: &Dataset,
    values: Values,
    place: u64,
    count: u64,
    out: &mut Onto<'_>,
) -> Result<()> {
    const PIECE: u64 = (BUFFER / 8) as u64;
    for first in (place..place + count).step_by(PIECE as usize) {
        let count = PIECE.min(place + count - first);
        let bytes = &mut out.gathered.bytes;
        dataset.element.append(values, first, count, bytes);
        out.spill()?;
    }
    Ok(())
}

/// The first bytes of all elements, then their second bytes, and so on.
fn shuffled(raw: &[u8], element: usize) -> Vec<u8> {
    let byte = |b: usize| raw.iter().skip(b).step_by(element).copied();
    (0..element).flat_map(byte).collect()
}

/// A buffer for bytes that follow each other in a file.
#[derive(Debug)]
struct Gathered {
    bytes: Vec<u8>,
    offset: u64,
}

impl Gathered {
    fn at(offset: u64) -> Self {
        Gathered {
            bytes: Vec::new(),
            offset,
        }
    }

    fn onto<'a>(&'a mut self, file: &'a File) -> Onto<'a> {
        Onto {
            gathered: self,
            file,
        }
    }
}

struct Onto<'a> {
    gathered: &'a mut Gathered,
    file: &'a File,
}

impl Onto<'_> {
    /// Sets the offset of the next bytes. In most cases the offset is unchanged.
    fn go_to(&mut self, offset: u64) -> io::Result<()> {
        if offset != self.gathered.offset + self.gathered.bytes.len() as u64 {
            self.flush()?;
            self.gathered.offset = offset;
        }
        Ok(())
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.gathered.bytes.len() < BUFFER {
            Ok(())
        } else {
            self.flush()
        }
    }
}

impl Write for Onto<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.gathered.bytes.extend_from_slice(bytes);
        self.spill()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Gathered { bytes, offset } = &mut *self.gathered;
        self.file.write_all_at(bytes, *offset)?;
        *offset += bytes.len() as u64;
        bytes.clear();
        Ok(())
    }
}
