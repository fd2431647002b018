//! The addresses of parts, and the data after the parts: chunk indexes, and the metadata with all addresses set.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use h5logfs_hdf5_format::{Image, UNDEFINED};

use super::making::Outline;
use super::{Layout, Source};
use crate::error::{Error, Result};
use h5logfs_hdf5_format::btree::{StoredChunk, StoredIndex};

/// Alignment of data that does not follow a chunk.
const ALIGN: u64 = 8;
/// The largest file offset of system calls.
const MAX_FILE: u64 = i64::MAX as u64;
/// HDF5's undefined address.
/// Bytes of chunk indexes written at once.
const NODES_AT_ONCE: usize = 1 << 20;

/// The storage of one dataset.
#[derive(Debug, Default)]
struct Place {
    /// Chunks.
    chunks: Vec<StoredChunk>,
    /// Start of contiguous data. Addresses count from the end of the user block.
    start: Option<u64>,
}

/// Assigns addresses.
#[derive(Debug)]
pub struct Placer<'a> {
    source: &'a Source,
    datasets: Vec<Place>,
    /// The next free address.
    end: u64,
}

/// A complete file.
#[derive(Debug)]
pub struct Complete {
    /// Length of the file.
    pub len: u64,
    /// Metadata, which follows the user block.
    pub image: Vec<u8>,
}

impl<'a> Placer<'a> {
    /// A placer whose first address follows the metadata.
    pub fn new(source: &'a Source) -> Self {
        let datasets = source.metadata.datasets.iter();
        Placer {
            source,
            datasets: datasets.map(|_| Place::default()).collect(),
            end: (source.metadata.image.len() as u64).next_multiple_of(ALIGN),
        }
    }

    /// The file offset of a part. Parts come in order.
    pub fn place(&mut self, part: &Outline) -> Result<u64> {
        let number = part.number;
        if self.source.layout(number) != Layout::Chunks && self.datasets[number].start.is_none() {
            self.align()?;
            // There is no storage where the only chunk cannot be read.
            self.datasets[number].start = (part.len > 0).then_some(self.end);
        }
        let start = self.take(part.len)?;
        if self.source.layout(number) == Layout::Chunks {
            let mut address = start;
            for chunk in &part.chunks {
                self.datasets[number].chunks.push(StoredChunk {
                    number: chunk.number,
                    address,
                    size: chunk.size,
                    filter_mask: chunk.filter_mask,
                });
                address += u64::from(chunk.size);
            }
        }
        Ok(start + self.user_block())
    }

    fn user_block(&self) -> u64 {
        self.source.view.snapshot().user_block
    }

    /// Reserves `len` bytes and returns their address.
    fn take(&mut self, len: u64) -> Result<u64> {
        let end = self.end.checked_add(len);
        let file_end = end.and_then(|end| end.checked_add(self.user_block()));
        match (end, file_end) {
            (Some(end), Some(file_end)) if file_end <= MAX_FILE => {
                Ok(std::mem::replace(&mut self.end, end))
            }
            _ => Err(Error::Other("the file would be too long".into())),
        }
    }

    fn align(&mut self) -> Result<()> {
        let padding = self.end.next_multiple_of(ALIGN) - self.end;
        self.take(padding).map(drop)
    }

    /// Writes everything but the parts.
    pub fn finish(mut self, file: &File) -> Result<Complete> {
        let user_block = self.user_block();
        let mut image = Image::new(self.source.metadata.image.clone());
        for number in 0..self.datasets.len() {
            let address = self.address_of(number, file)?.unwrap_or(UNDEFINED);
            let header = self.source.dataset(number).header;
            let is_chunked = self.source.layout(number) == Layout::Chunks;
            image
                .set_layout_address(header, address, is_chunked)
                .map_err(|e| self.source.about(number, e))?;
        }
        let len = self.end + user_block;
        image.set_superblock(user_block, len)?;
        let image = image.into_bytes();
        self.copy_user_block(file)?;
        file.write_all_at(&image, user_block)?;
        Ok(Complete { len, image })
    }

    /// The address for a dataset's layout message. Writes the chunk index.
    fn address_of(&mut self, number: usize, file: &File) -> Result<Option<u64>> {
        if self.source.layout(number) != Layout::Chunks {
            return Ok(self.datasets[number].start);
        }
        self.align()?;
        let chunks = std::mem::take(&mut self.datasets[number].chunks);
        let element_size = self.source.dataset(number).element_size;
        let grid = self.source.view.grid(number);
        let index = StoredIndex::new(&grid.chunk, element_size, &chunks, |chunk| {
            grid.origin(chunk)
        });
        let index = index.ok_or_else(|| self.source.about(number, "too many chunks"))?;
        let address = self.take(index.len())?;
        write_nodes(&index, address, self.user_block(), file)?;
        Ok(index.root(address))
    }

    fn copy_user_block(&self, file: &File) -> Result<()> {
        let len = self.user_block();
        let mut buf = vec![0; len.min(1 << 20) as usize];
        let mut at = 0;
        while at < len {
            let step = (len - at).min(buf.len() as u64) as usize;
            self.source.view.read_at(at, &mut buf[..step])?;
            file.write_all_at(&buf[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }
}

/// Writes a chunk index, many nodes at a time.
fn write_nodes(
    index: &StoredIndex<'_, impl Fn(u64) -> Vec<u64>>,
    address: u64,
    user_block: u64,
    file: &File,
) -> io::Result<()> {
    let mut at = address + user_block;
    let mut waiting = Vec::new();
    let mut write = |waiting: &mut Vec<u8>| {
        file.write_all_at(waiting, at)?;
        at += waiting.len() as u64;
        waiting.clear();
        io::Result::Ok(())
    };
    for node in index.nodes(address) {
        waiting.extend(node);
        if waiting.len() >= NODES_AT_ONCE {
            write(&mut waiting)?;
        }
    }
    write(&mut waiting)
}
