//! Reading: from an offset in the canonical file down to the bytes of the log.
//!
//! ```text
//! read_at ─ Regions::read ─┬ read_flat: a file that lies in others as it is
//!                        ├ read_preamble: the user block from the log file, file metadata from memory
//!                        ├ read_node: a B-tree node, computed
//!                        ├ read_contiguous: bytes of the log as they lie
//!                        └ read_chunk ─┬ read_in_place: elements that follow each other in the log
//!                                      └ make ─┬ make_stored: for the cache, and ahead of readers ─┬ assemble
//!                                              │                                                   └ filtered
//!                                              └ make_raw_in: in the reader's buffer
//! ```

use super::View;
use super::chunks::Target;
use super::grid::ChunkId;
use super::map::Region;
use super::resolve::ChunkSource;
use h5logfs_common::error::Result;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::btree::Key;
use h5logfs_hdf5_format::filters;
use h5logfs_log::snapshot::Content;

/// The regions of the canonical file, for reads.
#[derive(Debug, Clone, Copy)]
pub struct Regions<'a> {
    view: &'a View,
}

impl<'a> Regions<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Regions { view }
    }

    /// Reads from one region of the file: at least one byte, at most all of `buf`.
    pub(super) fn read(self, task: &Task, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (region, range) = self.view.map.region_at(offset);
        let len = buf.len().min((range.end - offset) as usize);
        let buf = &mut buf[..len];
        let offset = offset - range.start;
        match region {
            None => {
                buf.fill(0);
                Ok(len)
            }
            Some(Region::Flat) => self.read_flat(offset, buf),
            Some(Region::Preamble) => self.read_preamble(offset, buf),
            Some(Region::Tree(number)) => self.read_node(task, number, offset, buf),
            Some(Region::Chunks(number)) => self.read_data(task, number, offset, buf),
        }
    }

    /// Reads bytes that the files of the log have as they are.
    fn read_flat(self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(flat) = self.view.snapshot.log.layout().flat() {
            flat.read(&self.view.sources, offset, buf)?;
        }
        Ok(buf.len())
    }

    /// Reads from the user block, which is that of the log file, or from the file metadata behind it.
    fn read_preamble(self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(left) = self.view.snapshot.user_block.checked_sub(offset + 1) else {
            let at = offset - self.view.snapshot.user_block;
            return Ok(copy_from(&self.view.preamble, at as usize, buf));
        };
        let len = (buf.len() as u64).min(left + 1) as usize;
        self.view.sources[0].read_exact_at(&mut buf[..len], offset)?;
        self.view.sources[0].check_unchanged()?;
        Ok(len)
    }

    /// Reads from one node of a dataset's chunk index. `offset` counts bytes from the start of the index.
    fn read_node(self, task: &Task, number: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (dataset, place) = self.view.dataset(number);
        let Some((tree, base)) = &place.tree else {
            unreachable!("a region of a B-tree belongs to a dataset that has one");
        };
        let (number_of_node, range) = tree.node_at(offset);
        let at = (offset - range.start) as usize;
        let listed = self.view.holes().listed(task, number)?;
        let Some(node) = tree.node(number_of_node, &listed) else {
            return Ok(zeros(buf, range.end - offset));
        };
        let index = self.view.chunks().index_of_filtered(task, number)?;
        let mask = filters::mask(&dataset.filters);
        let key = |chunk| {
            let stored = self
                .view
                .chunks()
                .len_as_stored(index.as_deref(), ChunkId::new(number, chunk));
            let mut origin = place.grid.origin(chunk);
            origin.push(0);
            Key {
                // The size fits, which was checked when the address map was made.
                size: stored.unwrap_or(place.stored) as u32,
                filter_mask: if stored.is_some() { 0 } else { mask },
                origin,
            }
        };
        let address = |chunk| place.chunk_address(chunk);
        let (shape, element) = (&place.grid.chunk, dataset.element_size);
        let bytes = tree.node_bytes(&node, *base, address, key, shape, element);
        Ok(copy_from(&bytes, at, buf))
    }

    /// Reads from the data of a dataset. `offset` counts bytes from the start of its first chunk.
    pub(super) fn read_data(
        self,
        task: &Task,
        number: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        match self.view.snapshot.datasets[number].content {
            Content::Extent {
                source,
                offset: start,
                ..
            } => self.read_contiguous(number, source, start, offset, buf),
            _ => self.read_chunk(task, number, offset, buf),
        }
    }

    /// Fills `buf` with bytes of a dataset that was never logged and lies in one piece. `offset` counts from its start.
    pub fn read_extent(self, number: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Content::Extent {
            source,
            offset: start,
            ..
        } = self.view.snapshot.datasets[number].content
        else {
            return Err(self
                .view
                .bad_data(number, "all of it".into(), "it is not in one piece"));
        };
        self.read_contiguous(number, source, start, offset, buf)
            .map(drop)
    }

    /// Reads from data that lies in one piece at byte `start` of a source file.
    fn read_contiguous(
        self,
        number: usize,
        source: u16,
        start: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let stored = self.view.map.datasets[number].stored;
        if offset >= stored {
            buf.fill(0);
            return Ok(buf.len());
        }
        let len = buf.len().min((stored - offset) as usize);
        let file = &self.view.sources[usize::from(source)];
        file.read_exact_at(&mut buf[..len], start + offset)
            .map_err(|e| self.view.bad_data(number, "contiguous data".into(), e))?;
        file.check_unchanged()?;
        Ok(len)
    }

    /// Reads from one chunk. `offset` counts bytes from the start of the dataset's first chunk.
    fn read_chunk(self, task: &Task, number: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (dataset, place) = self.view.dataset(number);
        let (id, offset) = (
            ChunkId::new(number, offset / place.slot),
            offset % place.slot,
        );
        let is_filtered = !dataset.filters.is_empty();
        if offset >= place.stored && !is_filtered {
            // The rest of the slot. The length of a filtered chunk is known only once the chunk is made.
            return Ok(zeros(buf, place.slot - offset));
        }
        let cached = self
            .view
            .budget
            .bytes()
            .get(&self.view.chunks().cache_key(id));
        let mut source = None;
        if cached.is_none() && !is_filtered && dataset.logged().is_some() {
            if let Some(len) = self.view.chunks().read_kept(id, offset, buf) {
                self.view.ahead().follow(task, id);
                return Ok(len);
            }
            let index = self.view.indexes().of_chunk(task, id)?;
            let found = self.view.chunks().checked_resolver(&index, id)?.source();
            if let ChunkSource::InPlace(elements) = &found
                && let Some(len) = self
                    .view
                    .chunks()
                    .read_in_place(id, elements, offset, buf)?
            {
                return Ok(len);
            }
            source = Some(found);
        }
        self.view.ahead().follow(task, id);
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                let whole = buf.get_mut(..place.raw as usize).filter(|_| offset == 0);
                let whole = whole.filter(|_| source == Some(ChunkSource::Assemble));
                let batch = self.view.ahead().batch(id, whole.is_some());
                let target = match whole {
                    Some(whole) => Target::Buffer(whole, batch.shares()),
                    None => Target::Cache,
                };
                let make = || self.view.chunks().make(task, id, source, target);
                match batch.make(self.view, task.user(), make)? {
                    Some(bytes) => bytes,
                    // It was made in the buffer.
                    None => return Ok(place.raw as usize),
                }
            }
        };
        if offset >= bytes.len() as u64 {
            return Ok(zeros(buf, place.slot - offset));
        }
        let len = copy_from(&bytes, offset as usize, buf);
        if !is_filtered && len == bytes.len() {
            self.view.chunks().was_given(task, id, bytes);
        }
        Ok(len)
    }
}

/// Fills at most `left` bytes of `buf` with zeros. Returns their number.
fn zeros(buf: &mut [u8], left: u64) -> usize {
    let len = buf.len().min(left as usize);
    buf[..len].fill(0);
    len
}

/// Copies the bytes from `at` on into `buf`, as far as they go. Returns their number.
fn copy_from(bytes: &[u8], at: usize, buf: &mut [u8]) -> usize {
    let len = buf.len().min(bytes.len() - at);
    buf[..len].copy_from_slice(&bytes[at..at + len]);
    len
}
