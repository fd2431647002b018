//! Places of chunks in the files of the log, for readers that read these files without this crate, such as those of
//! Zarr.

use serde::Serialize;

use super::resolve::ChunkResolver;
use super::{ChunkId, View};
use h5logfs_common::buffers::zeroed;
use h5logfs_common::error::Result;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::{self, DEFLATE, Filter};
use h5logfs_log::conversion::Conversion;
use h5logfs_log::model::{Block, Encoding, Record};
use h5logfs_log::snapshot::Content;

/// The form of a chunk's bytes in a file of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The elements, as the dataset has them.
    Elements,
    /// The elements, with the bytes of each in the opposite order.
    Swapped,
    /// The elements after all filters of the dataset.
    Filtered,
    /// The elements as a zlib stream, of which the filters of the dataset say nothing.
    Deflated,
}

/// One chunk in one piece of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ChunkReference {
    /// Number of the source file.
    pub source: u16,
    /// Offset of the first byte in the file, whatever the arrangement of the source is.
    pub offset: u64,
    /// Length of the whole chunk in bytes. In a chunk at the edge of its dataset, the bytes behind the last element
    /// mean nothing.
    pub len: u64,
    /// Form of the bytes.
    pub form: Form,
}

/// Chunks, with their numbers in the grid and their places.
pub type PlacedChunks<'a> = Box<dyn Iterator<Item = Result<PlacedChunk>> + 'a>;
/// A chunk and its place. `None` where the chunk does not lie in one piece of a file.
pub type PlacedChunk = (u64, Option<ChunkReference>);

/// The places of a view's chunks in the files of its log.
#[derive(Debug, Clone, Copy)]
pub struct References<'a> {
    view: &'a View,
}

impl<'a> References<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        References { view }
    }

    /// The written chunks of a dataset with their places, by ascending number. The place is `None` for a chunk that
    /// does not lie in the log in one piece, and has to be read from the view. Chunks that are left out have the fill
    /// value. Fails where elements of the dataset cannot be read.
    ///
    /// After the last chunk, call [`References::check_sources`].
    pub fn of(self, number: usize) -> Result<PlacedChunks<'a>> {
        match &self.view.snapshot.datasets[number].content {
            Content::Unreadable(reason) => {
                Err(self
                    .view
                    .bad_data(number, "all of it".into(), reason.as_str()))
            }
            Content::Extent { source, offset, .. } => {
                let raw = self.view.map.datasets[number].raw;
                let place = self.one_piece(*source, *offset, raw);
                let reference = place.map(|offset| ChunkReference {
                    source: *source,
                    offset,
                    len: raw,
                    form: Form::Elements,
                });
                let only = (raw > 0).then_some(Ok((0, reference)));
                Ok(Box::new(only.into_iter()))
            }
            Content::Logged { .. } => {
                let index = self.view.indexes().of(number)?;
                self.view
                    .chunks()
                    .checked_resolver(&index, ChunkId::new(number, 0))?;
                let chunks = self.view.holes().touched(number, 0)?;
                Ok(Box::new(chunks.map(move |chunk| {
                    let id = ChunkId::new(number, chunk);
                    let found = self.reference(&self.view.chunks().resolver(&index, id));
                    let found = found.map_err(|fault| self.view.bad_chunk(id, fault));
                    Ok((chunk, found?))
                })))
            }
        }
    }

    /// The bytes of a chunk after `pipeline`, if the log has them in this form. They are decoded once, to make sure
    /// that they can be.
    pub fn stored_chunk(
        self,
        task: &Task,
        id: ChunkId,
        pipeline: &[Filter],
    ) -> Result<Option<Vec<u8>>> {
        let index = self.view.indexes().of_chunk(task, id)?;
        let resolver = self.view.chunks().checked_resolver(&index, id)?;
        let bad_chunk = |fault| self.view.bad_chunk(id, fault);
        let reference = self.reference(&resolver).map_err(bad_chunk)?;
        let own = &self.view.snapshot.datasets[id.dataset].filters;
        let has_gone_through = |form| match form {
            Form::Filtered => alike(own, pipeline),
            Form::Deflated => matches!(pipeline, [only] if only.id == DEFLATE),
            Form::Elements | Form::Swapped => false,
        };
        let Some(found) = reference.filter(|found| has_gone_through(found.form)) else {
            return Ok(None);
        };
        let source = &self.view.sources[usize::from(found.source)];
        let read = || -> Result<Vec<u8>, Fault> {
            let raw = self.view.map.datasets[id.dataset].raw;
            let decoding = filters::decoding_memory(found.len, raw, pipeline);
            let _reserved = task.reserve(found.len.saturating_add(decoding))?;
            let mut bytes = zeroed(found.len as usize)?;
            source.read_file(&mut bytes, found.offset)?;
            filters::decode(&bytes, raw, pipeline)?;
            Ok(bytes)
        };
        let bytes = read().map_err(bad_chunk)?;
        source.check_unchanged()?;
        Ok(Some(bytes))
    }

    /// Fails where a file of the log is no longer what the scan saw.
    pub fn check_sources(self) -> Result<()> {
        self.view.check_unchanged(0..self.view.sources.len())
    }

    /// The elements of a chunk, without the filters of its dataset. Elements past the dataset's edge have the fill
    /// value.
    pub fn chunk_elements(self, id: ChunkId) -> Result<Vec<u8>> {
        let (dataset, place) = self.view.dataset(id.dataset);
        if let Content::Extent { .. } = dataset.content {
            let address = self.view.snapshot.user_block + place.chunk_address(id.number);
            let mut raw =
                zeroed(place.raw as usize).map_err(|fault| self.view.bad_chunk(id, fault))?;
            self.view.read_at(address, &mut raw)?;
            return Ok(raw);
        }
        let raw = self.view.chunks().raw(&self.view.task(None), id)?;
        Ok(raw.into_parts().0)
    }

    /// A chunk after the filters of its dataset. Unlike the stored deflate blocks of the view, it is compressed.
    pub fn compressed_chunk(self, id: ChunkId) -> Result<Vec<u8>> {
        let raw = self.chunk_elements(id)?;
        filters::compress(&raw, &self.view.snapshot.datasets[id.dataset].filters)
            .map_err(|e| self.view.bad_chunk(id, e))
    }

    /// The place of the chunk, if it lies in one piece. Looks only at the last block that touches the chunk.
    fn reference(self, resolver: &ChunkResolver<'_>) -> Result<Option<ChunkReference>, Fault> {
        let found = resolver.if_covered(|record, block| match record.fault {
            Some(reason) => Err(Fault::from(reason)),
            // Object references are translated where chunks are assembled.
            None if !resolver.dataset.references.is_empty() => Ok(None),
            None => Ok(self.reference_in(resolver, record, block)),
        });
        found.unwrap_or(Ok(None))
    }

    /// The place of a chunk that `block` covers.
    fn reference_in(
        self,
        resolver: &ChunkResolver<'_>,
        record: &Record<'_>,
        block: &Block<'_>,
    ) -> Option<ChunkReference> {
        let stored = record.stored;
        let form = match stored.encoding {
            Encoding::Raw => Form::Elements,
            Encoding::Converted => form_of(record.conversion?)?,
            Encoding::Pipeline if can_apply_all(&resolver.dataset.filters) => Form::Filtered,
            Encoding::Deflate => Form::Deflated,
            // The form and the number of these bytes show only when they are read.
            Encoding::Pipeline
            | Encoding::RawOrDeflate
            | Encoding::DeflateStream
            | Encoding::DeflateStreams
            | Encoding::Operator
            | Encoding::Part => return None,
        };
        match form {
            Form::Filtered | Form::Deflated => {
                if !resolver.is_all_of(record, block) {
                    return None;
                }
                Some(ChunkReference {
                    source: stored.source,
                    offset: self.one_piece(stored.source, stored.offset, stored.len)?,
                    len: stored.len,
                    form,
                })
            }
            Form::Elements | Form::Swapped => {
                let size = resolver.dataset.element_size;
                let run = resolver.only_run(block)?;
                let start = stored
                    .offset
                    .checked_add(run.in_record.checked_mul(size)?)?;
                let offset = self.one_piece(stored.source, start, run.len.checked_mul(size)?)?;
                // Behind a run that ends at the edge of the dataset, the file has other bytes, or none.
                let len = resolver.place.raw;
                let end = offset.checked_add(len)?;
                let file = &self.view.sources[usize::from(stored.source)];
                (end <= file.identity().size).then_some(ChunkReference {
                    source: stored.source,
                    offset,
                    len,
                    form,
                })
            }
        }
    }

    /// The file offset of `len` bytes of a source. `None` where they do not lie in one piece of the file.
    fn one_piece(self, source: u16, offset: u64, len: u64) -> Option<u64> {
        self.view.sources[usize::from(source)].one_piece(offset, len)
    }
}

/// Whether bytes that went through one pipeline also went through the other one.
fn alike(one: &[Filter], other: &[Filter]) -> bool {
    let parts = |pipeline: &[Filter]| -> Vec<(i32, Vec<u32>)> {
        let part = |f: &Filter| (f.id, f.values.clone());
        pipeline.iter().map(part).collect()
    };
    parts(one) == parts(other)
}

fn can_apply_all(pipeline: &[Filter]) -> bool {
    pipeline.iter().all(Filter::can_apply)
}

/// The form of numbers that this conversion turns into those of the dataset. `None` where it changes more than their
/// byte order.
fn form_of(conversion: &Conversion) -> Option<Form> {
    let Conversion::Numbers(numbers) = conversion else {
        return None;
    };
    let (from, to) = (numbers.from, numbers.to);
    if from.kind != to.kind {
        return None;
    }
    let is_same = from.big_endian == to.big_endian || from.kind.size() == 1;
    Some(if is_same {
        Form::Elements
    } else {
        Form::Swapped
    })
}
