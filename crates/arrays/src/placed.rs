//! The places of a dataset's chunks in the files of the log, and their content, for programs that read these files.

use super::dataset::Dataset;
use super::log::{Log, Object};
use super::stored::Reader;
use h5logfs_common::error::Result;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::stored::{FoundChunk, Stored};
use h5logfs_view::{ChunkId, ChunkReference, Form, PlacedChunk, View};

/// A dataset whose elements lie outside of the canonical file's metadata.
pub struct Placed(Kind);

enum Kind {
    /// A dataset of the snapshot, by its number.
    OfLog(Log, usize),
    /// A dataset of a file whose bytes are shown as they are.
    OfFile(Box<Dataset>),
}

impl Log {
    /// The dataset with this header address; `None` where its elements lie in metadata.
    pub fn placed(&self, address: u64) -> Result<Option<Placed>> {
        if let Some(number) = self.inner.number(address) {
            return Ok(Some(Placed(Kind::OfLog(self.clone(), number))));
        }
        let view = self.inner.open.view();
        if view.snapshot().log.layout().flat().is_none() {
            return Ok(None);
        }
        let Object::Dataset(dataset) = self.object_at(&format!("address {address}"), address)?
        else {
            return Ok(None);
        };
        let is_here = matches!(dataset.reader(&dataset.task())?.stored, Stored::Here(_));
        Ok((!is_here).then_some(Placed(Kind::OfFile(dataset))))
    }
}

impl Placed {
    /// The shape of a chunk; the extent where it has no chunks.
    pub fn chunk(&self) -> &[u64] {
        match &self.0 {
            Kind::OfLog(log, number) => &log.inner.open.view().grid(*number).chunk,
            Kind::OfFile(dataset) => dataset.chunk().unwrap_or(dataset.shape()),
        }
    }

    /// The filter pipeline of the chunks.
    pub fn filters(&self) -> &[Filter] {
        match &self.0 {
            Kind::OfLog(log, number) => &log.inner.open.view().snapshot().datasets[*number].filters,
            Kind::OfFile(dataset) => dataset.filters(),
        }
    }

    /// The value of unwritten elements, as one element; empty for zeros. It may differ from the fill value in the
    /// metadata.
    pub fn fill(&self) -> &[u8] {
        match &self.0 {
            Kind::OfLog(log, number) => &log.inner.open.view().snapshot().datasets[*number].fill,
            Kind::OfFile(dataset) => dataset.info().fill.as_deref().unwrap_or_default(),
        }
    }

    /// The written chunks and their places, by ascending number in the grid. A chunk that is not in one piece of one
    /// file has no place. Fails where elements cannot be read, or a file has changed.
    pub fn references(&self) -> Result<Vec<PlacedChunk>> {
        match &self.0 {
            Kind::OfLog(log, number) => {
                let _inside = log.inner.enter()?;
                let view = log.inner.open.view();
                let found = view.references().of(*number)?.collect::<Result<_>>()?;
                view.references().check_sources()?;
                Ok(found)
            }
            Kind::OfFile(dataset) => {
                let log = dataset.log();
                let _inside = log.enter()?;
                let view = log.open.view();
                let found = references(view, dataset.reader(&dataset.task())?);
                view.references().check_sources()?;
                Ok(found)
            }
        }
    }

    /// The elements of a chunk. Those past the edge of the dataset are arbitrary. With `is_filtered`, the bytes after
    /// the dataset's filters.
    pub fn bytes(&self, chunk: u64, is_filtered: bool) -> Result<Vec<u8>> {
        match &self.0 {
            Kind::OfLog(log, number) => {
                let _inside = log.inner.enter()?;
                let (view, id) = (log.inner.open.view(), ChunkId::new(*number, chunk));
                if is_filtered {
                    view.references().compressed_chunk(id)
                } else {
                    view.references().chunk_elements(id)
                }
            }
            Kind::OfFile(dataset) => {
                let _inside = dataset.log().enter()?;
                let bytes = dataset.reader(&dataset.task())?.chunk(chunk, is_filtered);
                bytes.map_err(|fault| dataset.failed(fault))
            }
        }
    }
}

/// The places of a dataset's chunks in a file that is shown as it is.
fn references(view: &View, reader: Reader<'_, impl Sized>) -> Vec<PlacedChunk> {
    let place = |address, len, form| {
        let (source, offset) = one_piece(view, address, len)?;
        Some(ChunkReference {
            source,
            offset,
            len,
            form: form?,
        })
    };
    match reader.stored {
        Stored::Nowhere | Stored::Here(_) => Vec::new(),
        Stored::Piece { address, len } => {
            vec![(0, place(*address, *len, Some(Form::Elements)))]
        }
        Stored::Chunks(chunks) => {
            let each = chunks.found.iter();
            let reference = |chunk: &FoundChunk| {
                let form = form_of(&reader.dataset.filters, chunk);
                (chunk.number, place(chunk.address, chunk.size, form))
            };
            each.map(reference).collect()
        }
    }
}

/// The form of a chunk's bytes; `None` where a filter is unknown or was not applied.
fn form_of(filters: &[Filter], chunk: &FoundChunk) -> Option<Form> {
    if chunk.filters(filters).next().is_none() {
        return Some(Form::Elements);
    }
    let is_whole = chunk.filters(filters).count() == filters.len();
    (is_whole && filters.iter().all(Filter::can_apply)).then_some(Form::Filtered)
}

/// The source with the bytes at an address, and their offset there, if they are in one piece.
fn one_piece(view: &View, address: u64, len: u64) -> Option<(u16, u64)> {
    let snapshot = view.snapshot();
    let flat = snapshot.log.layout().flat()?;
    let at = snapshot.user_block.checked_add(address)?;
    let (source, offset) = flat.one_piece(at, len)?;
    let has = snapshot.sources.get(usize::from(source))?.identity.size;
    let end = offset.checked_add(len)?;
    (end <= has).then_some((source, offset))
}
