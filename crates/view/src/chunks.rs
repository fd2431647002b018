//! The chunks of a view, which are made from the bytes of the log or taken from the cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assemble::{Assembly, Decoded, ElementForm, decode_record, stored_bytes};
use super::cache::{Bytes, BytesKey, Part};
use super::grid::ChunkId;
use super::pieces::{element_in_log, read_elements};
use super::plan::Plans;
use super::resolve::{BoxRecords, ChunkResolver, ChunkSource, InPlace};
use super::{View, check_limit};
use crate::index::DatasetIndex;
use h5logfs_common::buffers::{LargePages, make_room};
use h5logfs_common::error::Result;
use h5logfs_common::fault::{Fault, Shortage};
use h5logfs_common::memory::Reserved;
use h5logfs_common::parallel;
use h5logfs_common::sync::Mutex;
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
    /// The memory of a reader, which has the length of the chunk. A copy is kept if there is room, and the reader does not
    /// keep the chunk itself. A chunk goes to the cache all the same if it was given to a reader before, or if another
    /// thread makes it. So many threads put it together.
    Buffer(&'a mut [u8], usize),
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

    /// Makes `count` chunks from `first` on as one box, before a reader asks for them. They have no filters, and follow each other
    /// along the first dimension, as in [`Grid::is_split_once`](super::Grid::is_split_once). Errors are dropped.
    pub(crate) fn prefetch_row(self, task: &Task, first: ChunkId, count: u64) {
        if count > 1 && self.make_row(task, first, count).is_some() {
            return;
        }
        for number in first.number..first.number.saturating_add(count) {
            self.prefetch(task, ChunkId { number, ..first });
        }
    }

    fn make_row(self, task: &Task, first: ChunkId, count: u64) -> Option<()> {
        let (dataset, place) = self.view.dataset(first.dataset);
        let number = first.number.checked_add(count - 1)?;
        let index = self.view.indexes().of_chunk(task, first).ok()?;
        let last = ChunkId { number, ..first };
        let of_last = self.view.indexes().of_chunk(task, last).ok()?;
        // Strips of a dataset have indexes of their own.
        if !Arc::ptr_eq(&index, &of_last) || index.check().is_err() {
            return None;
        }
        let bounds = Bounds {
            start: place.grid.bounds(first.number).start,
            end: place.grid.bounds(last.number).end,
        };
        let mut sides = place.grid.chunk.clone();
        let side = sides.first_mut()?;
        *side = side.checked_mul(count)?;
        let len = place.raw.checked_mul(count)?;
        let _reserved = task.reserve(len).ok()?;
        let mut all = LargePages::zeroed(usize::try_from(len).ok()?).ok()?;
        let records = BoxRecords {
            indexes: &[&*index],
            bounds: &bounds,
            sides: &sides,
        };
        let _running = self.view.running(task);
        let decoded = |record: &Record<'_>| self.decoded(task, first.dataset, record, &bounds);
        let assembly = self.assembly(task, dataset, &decoded);
        let sources = assembly.fill_box(&records, &mut all).ok()?;
        self.view.check_unchanged(sources).ok()?;
        for (number, chunk) in (first.number..).zip(all.chunks_exact(place.raw as usize)) {
            self.keep_ahead(task, ChunkId { number, ..first }, chunk);
        }
        Some(())
    }

    /// Keeps a chunk that was made before a reader asks for it.
    fn keep_ahead(self, task: &Task, id: ChunkId, chunk: &[u8]) {
        let budget = &self.view.budget;
        if self.has(id) || budget.keep_copy((self.view.generation, id), chunk) {
            return;
        }
        let copied = || -> Result<_, Shortage> {
            let (mut bytes, reservation) = budget.scratch().chunk(task, chunk.len())?.into_parts();
            bytes.copy_from_slice(chunk);
            budget.drop_copies_for(chunk.len() as u64);
            Ok(Arc::new(Reserved::new(bytes, reservation).unowned()))
        };
        let _ = budget.bytes().make_ahead(&self.cache_key(id), copied);
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
            self.view.budget.drop_copies_for(made.len() as u64);
            Ok(Arc::new(made.unowned()))
        };
        match target {
            Target::Ahead => bytes.make_ahead(&key, stored).map(|()| None),
            Target::Buffer(buf, shares) if self.is_given_first(id) => {
                let raw = || self.make_raw_in(task, id, &resolver, *shares, buf);
                let make = || self.making(task, id, raw);
                match bytes.make_aside(&key, make) {
                    Some(made) => {
                        made?;
                        if !task.reader_keeps() {
                            self.view.budget.keep_copy((self.view.generation, id), buf);
                        }
                        Ok(None)
                    }
                    // The chunk is in the cache, or on its way there.
                    None => bytes.get_or_make(task, &key, stored).map(Some),
                }
            }
            Target::Buffer(..) | Target::Cache => bytes.get_or_make(task, &key, stored).map(Some),
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

    /// Whether a chunk is cached, or a copy of it is kept.
    pub(crate) fn has(self, id: ChunkId) -> bool {
        let budget = &self.view.budget;
        let key = (self.view.generation, id);
        budget.bytes().contains(&self.cache_key(id)) || budget.copies().contains(&key)
    }

    /// Notes that a reader got all of a chunk from the cache. If it is the first one, the chunk was made ahead. It stays as long
    /// as there is room, as one does that was made in a reader's memory. Then its memory serves for the next one.
    pub(super) fn was_given(self, task: &Task, id: ChunkId, chunk: Bytes) {
        let budget = &self.view.budget;
        if !self.is_given_first(id) || !task.reader_keeps() && budget.has_room_for_chunks() {
            return;
        }
        budget.bytes().remove(&self.cache_key(id));
        if let Some(chunk) = Arc::into_inner(chunk) {
            budget.scratch().give_back(chunk);
        }
    }

    /// Reads from the copy of a chunk. `offset` counts from the start of the chunk. `None` where there is no copy.
    pub(super) fn read_kept(self, id: ChunkId, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let key = (self.view.generation, id);
        let offset = usize::try_from(offset).ok()?;
        self.view.budget.copies().read(&key, offset, buf)
    }

    /// Whether a reader has got this chunk already, as far as is remembered.
    pub(crate) fn was_given_before(self, id: ChunkId) -> bool {
        self.view.budget.was_given(&(self.view.generation, id))
    }

    /// Whether this chunk is given to a reader for the first time, as far as is remembered. If a reader asks again, the
    /// chunk is worth a place in the cache.
    fn is_given_first(self, id: ChunkId) -> bool {
        let bytes = self.view.map.datasets[id.dataset].raw;
        let key = (self.view.generation, id);
        self.view.budget.remember_given(key, bytes)
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

    /// Assembles a chunk without filters, in memory of its length. Each of `shares` threads makes a band of it.
    fn make_raw_in(
        self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
        shares: usize,
        buf: &mut [u8],
    ) -> Result<()> {
        let bad_chunk = |fault: Fault| self.view.bad_chunk(id, fault);
        self.check_cache_size("a chunk", buf.len() as u64)
            .map_err(bad_chunk)?;
        let element = resolver.dataset.element_size as usize;
        let mut rest = buf;
        let mut bands = Vec::new();
        for band in resolver.place.grid.bands(id.number, shares as u64) {
            let bytes = band.sides.iter().product::<u64>() as usize * element;
            let own = rest.split_off_mut(..bytes).unwrap_or_default();
            bands.push(Mutex::new((band, own)));
        }
        let made = parallel::share(bands.len(), |number| {
            let (band, own) = &mut *bands[number].lock();
            let task = task.clone();
            let _running = self.view.running(&task);
            let decoded =
                |record: &Record<'_>| self.decoded(&task, id.dataset, record, &band.bounds);
            let assembly = self.assembly(&task, resolver.dataset, &decoded);
            let records = BoxRecords {
                indexes: &[resolver.index],
                bounds: &band.bounds,
                sides: &band.sides,
            };
            assembly.fill_box(&records, own)
        });
        for sources in made {
            self.view.check_unchanged(sources.map_err(bad_chunk)?)?;
        }
        Ok(())
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
