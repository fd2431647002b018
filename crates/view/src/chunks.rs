//! The chunks of a view, which are made from the bytes of the log or taken from the cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assemble::{Assembly, Decoded, ElementForm, decode_record, stored_bytes};
use super::cache::{Bytes, BytesKey, Part};
use super::grid::ChunkId;
use super::pieces::{element_in_log, read_elements};
use super::plan::Plans;
use super::resolve::{ChunkResolver, ChunkSource, InPlace};
use super::{View, check_limit};
use crate::index::DatasetIndex;
use h5logfs_common::buffers::make_room;
use h5logfs_common::error::Result;
use h5logfs_common::fault::{Fault, Shortage};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::model::Record;
use h5logfs_log::snapshot::{Content, Dataset};

/// The destination of a chunk that is made.
pub(super) enum Target<'a> {
    /// The cache. If another thread makes the chunk, this one waits.
    Cache,
    /// The cache, before a reader asks for the chunk. If another thread makes it, there is nothing to do.
    Ahead,
    /// The memory of a reader who keeps the chunk, so that it need not be kept here. The memory has the length of the
    /// chunk. A chunk goes to the cache all the same if this reader has dropped it before, or if another thread makes
    /// it.
    Buffer(&'a mut [u8]),
}

/// The chunks of all datasets of a view.
#[derive(Debug, Clone, Copy)]
pub struct Chunks<'a> {
    view: &'a View,
}

impl<'a> Chunks<'a> {
    #[inline]
    pub(super) fn new(view: &'a View) -> Self {
        Chunks { view }
    }

    /// The index of a dataset whose records went through its filters. Only chunks of such a dataset can be served as
    /// they are stored. `None` for other datasets, and where no element of the dataset can be trusted. The chunk index
    /// then stays readable, and a read of a chunk tells the reason.
    pub(super) fn index_of_filtered(
        self,
        task: &Task,
        number: usize,
    ) -> Result<Option<Arc<DatasetIndex>>> {
        let content = &self.view.snapshot.datasets[number].content;
        if !matches!(content, Content::Logged { filtered: true, .. }) {
            return Ok(None);
        }
        let index = self.view.indexes().of_dataset(task, number)?;
        Ok(index.check().is_ok().then_some(index))
    }

    /// Bytes of a chunk that is served as it is stored in the log. `index` is that of [`Chunks::index_of_filtered`].
    pub(super) fn len_as_stored(self, index: Option<&DatasetIndex>, id: ChunkId) -> Option<u64> {
        match self.resolver(index?, id).source() {
            ChunkSource::AsStored(stored) => Some(stored.len),
            _ => None,
        }
    }

    /// Reads from a chunk whose elements follow each other in the log. The kernel caches them, so they are not cached
    /// here. `None` where elements have to be converted and no whole element is asked for.
    pub(super) fn read_in_place(
        self,
        id: ChunkId,
        elements: &InPlace,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let raw = self.view.map.datasets[id.dataset].raw;
        let mut len = buf.len().min((raw - offset) as usize);
        let mut in_log = offset;
        if let Some(conversion) = elements.conversion {
            let to = conversion.shown_size();
            len -= len % to;
            if len == 0 || !offset.is_multiple_of(to as u64) {
                return Ok(None);
            }
            in_log = offset / to as u64 * conversion.stored_size() as u64;
        }
        let file = &self.view.sources[usize::from(elements.source)];
        let at = elements.offset + in_log;
        let (target, scratch) = (&mut buf[..len], &mut Vec::new());
        read_elements(file, at, elements.conversion, target, scratch)
            .map_err(|e| self.view.bad_chunk(id, e))?;
        file.check_unchanged()?;
        Ok(Some(len))
    }

    /// Stored bytes of a chunk, as the canonical file has them.
    pub fn stored(self, id: ChunkId) -> Result<Bytes> {
        self.cached(&self.view.task(None), id, None)
    }

    pub(super) fn cached(
        self,
        task: &Task,
        id: ChunkId,
        source: Option<ChunkSource>,
    ) -> Result<Bytes> {
        let made = self.make(task, id, source, Target::Cache)?;
        made.ok_or_else(|| self.view.bad_chunk(id, "it was not made"))
    }

    /// Makes a chunk before a reader asks for it. An error is dropped, because the reader will meet it.
    pub(crate) fn prefetch(self, task: &Task, id: ChunkId) {
        let _ = self.make(task, id, None, Target::Ahead);
    }

    /// Makes a chunk for `target`. Returns its stored bytes where they are in the cache. `source` tells how the chunk
    /// is served, if that is known.
    ///
    /// Work that waits for memory must hold nothing that other work may wait for, neither a flight nor a reservation.
    /// So the attempts are outermost, and the index is there before the flight of the chunk begins.
    pub(super) fn make(
        self,
        task: &Task,
        id: ChunkId,
        source: Option<ChunkSource>,
        mut target: Target<'_>,
    ) -> Result<Option<Bytes>> {
        if let Target::Ahead = target {
            return self.try_make(task, id, source, &mut target);
        }
        task.retry(|| self.try_make(task, id, source, &mut target))
    }

    fn try_make(
        self,
        task: &Task,
        id: ChunkId,
        source: Option<ChunkSource>,
        target: &mut Target<'_>,
    ) -> Result<Option<Bytes>> {
        if let Content::Unreadable(reason) = &self.view.snapshot.datasets[id.dataset].content {
            return Err(self.view.bad_chunk(id, reason.as_str()));
        }
        let index = self.view.indexes().of_chunk(task, id)?;
        let resolver = self.checked_resolver(&index, id)?;
        let (bytes, key) = (self.view.budget.bytes(), self.cache_key(id));
        let stored = || {
            let made = self.making(task, id, || self.make_stored(task, id, &resolver, source))?;
            Ok(Arc::new(made.unowned()))
        };
        match target {
            Target::Ahead => bytes.make_ahead(&key, stored).map(|()| None),
            Target::Buffer(buf) if self.is_given_first(id) => {
                let make = || self.making(task, id, || self.make_raw_in(task, id, &resolver, buf));
                match bytes.make_aside(&key, make) {
                    Some(made) => made.map(|()| None),
                    // The chunk is in the cache, or on its way there.
                    None => bytes.get_or_make(task, &key, stored).map(Some),
                }
            }
            Target::Buffer(_) | Target::Cache => bytes.get_or_make(task, &key, stored).map(Some),
        }
    }

    /// Runs `make`, which makes a chunk. A chunk that took too long a moment ago is not tried again.
    fn making<T>(self, task: &Task, id: ChunkId, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let part = Part::Chunk(self.view.generation, id);
        self.view
            .budget
            .check_not_too_long(part)
            .map_err(|fault| self.view.bad_chunk(id, fault))?;
        let _running = self.view.running(task);
        let made = self.view.budget.stats().chunk_time.time(make);
        self.view.budget.remember_if_too_long(task, part);
        made
    }

    pub(super) fn cache_key(self, id: ChunkId) -> BytesKey {
        BytesKey::Chunk(self.view.generation, id)
    }

    /// Whether a chunk is cached.
    pub(crate) fn has(self, id: ChunkId) -> bool {
        self.view.budget.bytes().contains(&self.cache_key(id))
    }

    /// Whether this chunk goes to a reader who keeps it for the first time, as far as is remembered. If the reader asks
    /// again, it has dropped the chunk, which is then worth a place in the cache.
    fn is_given_first(self, id: ChunkId) -> bool {
        self.view
            .budget
            .given()
            .insert((self.view.generation, id), ())
    }

    /// Reads everything that a chunk is made from, and keeps nothing of it.
    pub(crate) fn check(self, task: &Task, id: ChunkId) -> Result<()> {
        if let Content::Unreadable(reason) = &self.view.snapshot.datasets[id.dataset].content {
            return Err(self.view.bad_chunk(id, reason.as_str()));
        }
        let index = self.view.indexes().of_chunk(task, id)?;
        let resolver = self.checked_resolver(&index, id)?;
        let _running = self.view.running(task);
        self.make_stored(task, id, &resolver, None).map(drop)
    }

    /// Makes the stored bytes of a chunk: those of a record, or its elements after the filters of the dataset.
    fn make_stored(
        self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
        source: Option<ChunkSource>,
    ) -> Result<Reserved<Vec<u8>>> {
        let bad_chunk = |fault: Fault| self.view.bad_chunk(id, fault);
        let place = resolver.place;
        self.check_cache_size("a chunk", place.raw.max(place.stored))
            .map_err(bad_chunk)?;
        if let ChunkSource::AsStored(stored) = source.unwrap_or_else(|| resolver.source()) {
            let bytes = stored_bytes(task, &self.view.sources, stored).map_err(bad_chunk)?;
            self.view.check_unchanged([usize::from(stored.source)])?;
            return Ok(bytes);
        }
        let (raw, sources) = self.assemble(task, id, resolver).map_err(bad_chunk)?;
        let bytes = filtered(raw, resolver).map_err(bad_chunk)?;
        self.view.check_unchanged(sources)?;
        Ok(bytes)
    }

    /// Assembles a chunk without filters, in memory of its length.
    fn make_raw_in(
        self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
        buf: &mut [u8],
    ) -> Result<()> {
        let bad_chunk = |fault: Fault| self.view.bad_chunk(id, fault);
        self.check_cache_size("a chunk", buf.len() as u64)
            .map_err(bad_chunk)?;
        let decoded =
            |record: &Record<'_>| self.decoded(task, id.dataset, record, &resolver.bounds);
        let assembly = self.assembly(task, resolver.dataset, &decoded);
        let sources = assembly.raw_chunk_in(resolver, buf).map_err(bad_chunk)?;
        self.view.check_unchanged(sources)
    }

    /// The elements of a chunk of a logged dataset, before its filters. Elements past the dataset's edge have the fill
    /// value. Nothing is cached.
    pub fn raw(self, task: &Task, id: ChunkId) -> Result<Reserved<Vec<u8>>> {
        self.raw_in(task, id, Vec::new)
    }

    /// [`Chunks::raw`] in the memory of a buffer that is no longer needed, where the chunk is read in one piece. The
    /// system takes longer to give new memory than to copy what lies in the kernel.
    pub fn raw_in(
        self,
        task: &Task,
        id: ChunkId,
        spare: impl Fn() -> Vec<u8>,
    ) -> Result<Reserved<Vec<u8>>> {
        task.retry(|| self.make_raw(task, id, &spare))
    }

    fn make_raw(
        self,
        task: &Task,
        id: ChunkId,
        spare: &impl Fn() -> Vec<u8>,
    ) -> Result<Reserved<Vec<u8>>> {
        let (dataset, place) = self.view.dataset(id.dataset);
        let bad_chunk = |fault: Fault| self.view.bad_chunk(id, fault);
        if let Content::Unreadable(reason) = &dataset.content {
            return Err(self.view.bad_chunk(id, reason.as_str()));
        }
        self.check_cache_size("a chunk", place.raw)
            .map_err(bad_chunk)?;
        let index = self.view.indexes().of_chunk(task, id)?;
        let resolver = self.checked_resolver(&index, id)?;
        if let ChunkSource::InPlace(elements) = resolver.source() {
            let room = || -> Result<_, Shortage> {
                let reservation = task.reserve(place.raw)?;
                let mut raw = spare();
                let more = (place.raw as usize).saturating_sub(raw.len());
                make_room(&mut raw, more)?;
                raw.resize(place.raw as usize, 0);
                Ok((raw, reservation))
            };
            let (mut raw, reservation) = room().map_err(|refused| bad_chunk(refused.into()))?;
            if self.read_in_place(id, &elements, 0, &mut raw)? == Some(raw.len()) {
                return Ok(Reserved::new(raw, reservation));
            }
        }
        let (raw, sources) = self.assemble(task, id, &resolver).map_err(bad_chunk)?;
        self.view.check_unchanged(sources)?;
        Ok(raw)
    }

    /// The elements of a chunk, and the source files that they were read from.
    fn assemble(
        self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
    ) -> Result<(Reserved<Vec<u8>>, BTreeSet<usize>), Fault> {
        let decoded =
            |record: &Record<'_>| self.decoded(task, id.dataset, record, &resolver.bounds);
        self.assembly(task, resolver.dataset, &decoded)
            .raw_chunk(resolver)
    }

    pub(super) fn assembly<'s>(
        self,
        task: &'s Task,
        dataset: &'s Dataset,
        decoded: &'s dyn Fn(&Record<'_>) -> Decoded,
    ) -> Assembly<'s>
    where
        'a: 's,
    {
        Assembly {
            task,
            form: ElementForm::of(dataset),
            sources: &self.view.sources,
            unwritten: None,
            addresses: &self.view.snapshot.addresses,
            plans: Some(Plans {
                budget: &self.view.budget,
                generation: self.view.generation,
            }),
            decoded,
        }
    }

    /// Decoded bytes of a record. They are cached if chunks other than that of `bounds` need them, too.
    pub(super) fn decoded(
        self,
        task: &Task,
        number: usize,
        record: &Record<'_>,
        bounds: &Bounds,
    ) -> Decoded {
        let dataset = &self.view.snapshot.datasets[number];
        let stored = record.stored;
        let in_log = element_in_log(record, dataset.element_size);
        let raw = record.elements().saturating_mul(in_log);
        let decode = || {
            let decoded = decode_record(task, &self.view.sources, record, raw, &dataset.filters)?;
            Ok(Arc::new(decoded.unowned()))
        };
        self.check_cache_size("a filtered record", raw.max(stored.len))?;
        if bounds.contains(&record.bounds()) {
            return decode();
        }
        let key = BytesKey::Record(self.view.generation, number as u32, stored, raw);
        self.view.budget.bytes().get_or_make(task, &key, decode)
    }

    /// Fails where `bytes` do not fit into the cache. Options bound the memory, whatever a file asks for.
    fn check_cache_size(self, what: &'static str, bytes: u64) -> Result<(), Fault> {
        check_limit(
            what,
            bytes,
            "cache_size",
            self.view.budget.limits().cache_size,
        )
    }

    pub(super) fn resolver<'s>(self, index: &'s DatasetIndex, id: ChunkId) -> ChunkResolver<'s>
    where
        'a: 's,
    {
        let (dataset, place) = self.view.dataset(id.dataset);
        ChunkResolver {
            index,
            dataset,
            place,
            bounds: place.grid.bounds(id.number),
        }
    }

    /// The resolver of a chunk. Fails where no element of the dataset can be trusted.
    pub(super) fn checked_resolver<'s>(
        self,
        index: &'s DatasetIndex,
        id: ChunkId,
    ) -> Result<ChunkResolver<'s>>
    where
        'a: 's,
    {
        index
            .check()
            .map_err(|fault| self.view.bad_chunk(id, fault))?;
        Ok(self.resolver(index, id))
    }
}

/// The elements of a chunk after the filters of its dataset.
fn filtered(
    raw: Reserved<Vec<u8>>,
    resolver: &ChunkResolver<'_>,
) -> Result<Reserved<Vec<u8>>, Fault> {
    let filters = &resolver.dataset.filters;
    if filters.is_empty() {
        return Ok(raw);
    }
    let (raw, mut reservation) = raw.into_parts();
    // A filter makes new bytes from the old ones. The last filter makes at most as many as are stored.
    reservation.grow(resolver.place.stored.max(resolver.place.raw))?;
    let bytes = filters::encode(raw, filters)?;
    reservation.shrink_to(bytes.capacity() as u64);
    Ok(Reserved::new(bytes, reservation))
}
