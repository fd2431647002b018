//! Reading: from an offset in the canonical file down to the bytes of the log.
//!
//! ```text
//! read_at ─ read_region ─┬ read_flat: a file that lies in others as it is
//!                        ├ read_preamble: the user block from the log file, file metadata from memory
//!                        ├ read_node: a B-tree node, computed
//!                        ├ read_contiguous: bytes of the log as they lie
//!                        └ read_chunk ─┬ read_in_place: elements that follow each other in the log
//!                                      └ make ─┬ make_stored: for the cache, and ahead of readers ─┬ assemble
//!                                              │                                                   └ filtered
//!                                              └ make_raw_in: in the reader's buffer
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use super::assemble::{Assembly, Decoded, ElementForm, decode_record, stored_bytes};
use super::cache::{Bytes, BytesKey, Part};
use super::grid::ChunkId;
use super::map::{Placement, Region};
use super::pieces::read_elements;
use super::plan::Plans;
use super::resolve::{ChunkResolver, ChunkSource, InPlace};
use super::{View, check_limit};
use crate::index::DatasetIndex;
use h5logfs_common::buffers::make_room;
use h5logfs_common::error::Result;
use h5logfs_common::fault::{Fault, Shortage, Stop};
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::btree::Key;
use h5logfs_log::filters;
use h5logfs_log::model::Record;
use h5logfs_log::snapshot::{Content, Dataset};

/// Where a chunk goes that is made.
enum Target<'a> {
    /// To the cache. If another thread makes it, this one waits.
    Cache,
    /// To the cache, before a reader asks for it. If another thread makes it, there is nothing to do.
    Ahead,
    /// To the memory of a reader who keeps it: then it need not be kept here. It has the length of the chunk. A chunk
    /// that this reader has dropped, and one that another thread makes, goes to the cache.
    Buffer(&'a mut [u8]),
}

impl View {
    /// Fills `buf` with the bytes from `offset` on. Returns how many were read: fewer than asked for only at
    /// the end of the file. The whole read fails where one of the bytes is not available.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.read_metadata(offset, buf) {
            Some(len) => Ok(len),
            None => self.read_for(&self.task(None), offset, buf),
        }
    }

    /// Fills `buf` with file metadata, where it is for nothing else. That takes no task.
    fn read_metadata(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let at = offset.checked_sub(self.snapshot.user_block)?;
        let at = usize::try_from(at).ok()?;
        // A file that lies in others as it is has none here.
        let found = self.preamble.get(at..at.checked_add(buf.len())?)?;
        buf.copy_from_slice(found);
        Some(found.len())
    }

    /// Work with this view: on behalf of `user`, where users share the budget.
    pub fn task(&self, user: Option<u32>) -> Task {
        self.budget.task(user).within(self.allowance)
    }

    /// The same as [`View::read_at`], as part of `task`, whose memory is that of the view's budget.
    pub fn read_for(&self, task: &Task, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let task = &task.clone().within(self.allowance);
        let _running = self.running(task);
        let left = self.len().saturating_sub(offset);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            done += self.read_region(task, offset + done as u64, &mut buf[done..wanted])?;
        }
        Ok(done)
    }

    /// Reads from one region of the file: at least one byte, at most all of `buf`.
    fn read_region(&self, task: &Task, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (region, range) = self.map.region_at(offset);
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
    fn read_flat(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(flat) = self.snapshot.log.layout().flat() {
            flat.read(&self.sources, offset, buf)?;
        }
        Ok(buf.len())
    }

    /// Reads from the user block, which is that of the log file, or from the file metadata behind it.
    fn read_preamble(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(left) = self.snapshot.user_block.checked_sub(offset + 1) else {
            let at = offset - self.snapshot.user_block;
            return Ok(copy_from(&self.preamble, at as usize, buf));
        };
        let len = (buf.len() as u64).min(left + 1) as usize;
        self.sources[0].read_exact_at(&mut buf[..len], offset)?;
        self.sources[0].check_unchanged()?;
        Ok(len)
    }

    /// Reads from one node of a dataset's chunk index. `offset`: bytes from the start of the index.
    fn read_node(&self, task: &Task, number: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (dataset, place) = self.dataset(number);
        let Some((tree, base)) = &place.tree else {
            unreachable!("a region of a B-tree belongs to a dataset that has one");
        };
        let (number_of_node, range) = tree.node_at(offset);
        let at = (offset - range.start) as usize;
        let listed = self.listed(task, number)?;
        let Some(node) = tree.node(number_of_node, &listed) else {
            return Ok(zeros(buf, range.end - offset));
        };
        let index = self.index_of_filtered(task, number)?;
        let mask = filters::mask(&dataset.filters);
        let key = |chunk| {
            let stored = self.len_as_stored(index.as_deref(), ChunkId::new(number, chunk));
            let mut origin = place.grid.origin(chunk);
            origin.push(0);
            Key {
                // It fits: that was checked when the address map was made.
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

    /// The index of a dataset whose records went through its filters: only chunks of such a dataset can be
    /// served as they are stored. `None` where they did not, or where no element of the dataset can be
    /// trusted: then the chunk index stays readable, and reading a chunk tells the reason.
    pub(super) fn index_of_filtered(
        &self,
        task: &Task,
        number: usize,
    ) -> Result<Option<Arc<DatasetIndex>>> {
        let content = &self.snapshot.datasets[number].content;
        if !matches!(content, Content::Logged { filtered: true, .. }) {
            return Ok(None);
        }
        let index = self.index_for(task, number)?;
        Ok(index.check().is_ok().then_some(index))
    }

    /// Bytes of a chunk that is served as it is stored in the log. `index`: [`View::index_of_filtered`].
    pub(super) fn len_as_stored(&self, index: Option<&DatasetIndex>, id: ChunkId) -> Option<u64> {
        match self.resolver(index?, id).source() {
            ChunkSource::AsStored(stored) => Some(stored.len),
            _ => None,
        }
    }

    /// Reads from the data of a dataset. `offset`: bytes from the start of its first chunk.
    pub(super) fn read_data(
        &self,
        task: &Task,
        number: usize,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        match self.snapshot.datasets[number].content {
            Content::Extent {
                source,
                offset: start,
                ..
            } => self.read_contiguous(number, source, start, offset, buf),
            _ => self.read_chunk(task, number, offset, buf),
        }
    }

    /// Fills `buf` with bytes of a dataset that was never logged and lies in one piece. `offset`: bytes from its start.
    pub fn read_extent(&self, number: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Content::Extent {
            source,
            offset: start,
            ..
        } = self.snapshot.datasets[number].content
        else {
            return Err(self.bad_data(number, "all of it".into(), "it is not in one piece"));
        };
        self.read_contiguous(number, source, start, offset, buf)
            .map(drop)
    }

    /// Reads from data that lies in one piece at byte `start` of a source file.
    fn read_contiguous(
        &self,
        number: usize,
        source: u16,
        start: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let stored = self.map.datasets[number].stored;
        if offset >= stored {
            buf.fill(0);
            return Ok(buf.len());
        }
        let len = buf.len().min((stored - offset) as usize);
        let file = &self.sources[usize::from(source)];
        file.read_exact_at(&mut buf[..len], start + offset)
            .map_err(|e| self.bad_data(number, "contiguous data".into(), e))?;
        file.check_unchanged()?;
        Ok(len)
    }

    /// Reads from one chunk. `offset`: bytes from the start of the dataset's first chunk.
    fn read_chunk(&self, task: &Task, number: usize, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (dataset, place) = self.dataset(number);
        let (id, offset) = (
            ChunkId::new(number, offset / place.slot),
            offset % place.slot,
        );
        let is_filtered = !dataset.filters.is_empty();
        if offset >= place.stored && !is_filtered {
            // The rest of the slot. The length of a filtered chunk is known once it was made.
            return Ok(zeros(buf, place.slot - offset));
        }
        let cached = self.budget.bytes().get(&self.cache_key(id));
        let mut source = None;
        if cached.is_none() && !is_filtered && dataset.logged().is_some() {
            let index = self.index_of_chunk(task, id)?;
            let found = self.checked_resolver(&index, id)?.source();
            if let ChunkSource::InPlace(elements) = &found
                && let Some(len) = self.read_in_place(id, elements, offset, buf)?
            {
                return Ok(len);
            }
            source = Some(found);
        }
        self.read_ahead(task, id);
        let bytes = match cached {
            Some(bytes) => bytes,
            None => {
                let whole = buf.get_mut(..place.raw as usize).filter(|_| offset == 0);
                if let Some(whole) = whole
                    && source == Some(ChunkSource::Assemble)
                    && task.reader_keeps()
                {
                    match self.make(task, id, source, Target::Buffer(&mut *whole))? {
                        Some(bytes) => bytes,
                        None => return Ok(whole.len()),
                    }
                } else {
                    let make = || self.cached_chunk(task, id, source);
                    self.batch(id).make(self, task.user(), make)?
                }
            }
        };
        if offset >= bytes.len() as u64 {
            return Ok(zeros(buf, place.slot - offset));
        }
        Ok(copy_from(&bytes, offset as usize, buf))
    }

    /// Reads from a chunk whose elements follow each other in the log. They need not be cached here: the
    /// kernel caches them. `None` where no whole element is asked for that has to be converted.
    fn read_in_place(
        &self,
        id: ChunkId,
        elements: &InPlace,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let raw = self.map.datasets[id.dataset].raw;
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
        let file = &self.sources[usize::from(elements.source)];
        let at = elements.offset + in_log;
        let (target, scratch) = (&mut buf[..len], &mut Vec::new());
        read_elements(file, at, elements.conversion, target, scratch)
            .map_err(|e| self.bad_chunk(id, e))?;
        file.check_unchanged()?;
        Ok(Some(len))
    }

    /// Stored bytes of a chunk, as the canonical file has them.
    pub fn chunk(&self, id: ChunkId) -> Result<Bytes> {
        self.cached_chunk(&self.task(None), id, None)
    }

    fn cached_chunk(&self, task: &Task, id: ChunkId, source: Option<ChunkSource>) -> Result<Bytes> {
        let made = self.make(task, id, source, Target::Cache)?;
        made.ok_or_else(|| self.bad_chunk(id, "it was not made"))
    }

    /// Makes a chunk before a reader asks for it. An error is dropped: the reader will meet it.
    pub(crate) fn prefetch(&self, task: &Task, id: ChunkId) {
        let _ = self.make(task, id, None, Target::Ahead);
    }

    /// Makes a chunk for `target`. Returns the stored bytes where they are in the cache. `source`: how the chunk is
    /// served, where that is known.
    ///
    /// Work that waits for memory holds nothing that other work may wait for: no flight, and nothing reserved. So the
    /// attempts are outermost, and the index is there before the flight of the chunk begins.
    fn make(
        &self,
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
        &self,
        task: &Task,
        id: ChunkId,
        source: Option<ChunkSource>,
        target: &mut Target<'_>,
    ) -> Result<Option<Bytes>> {
        if let Content::Unreadable(reason) = &self.snapshot.datasets[id.dataset].content {
            return Err(self.bad_chunk(id, reason.as_str()));
        }
        let index = self.index_of_chunk(task, id)?;
        let resolver = self.checked_resolver(&index, id)?;
        let (bytes, key) = (self.budget.bytes(), self.cache_key(id));
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
                    // It is in the cache, or on its way there.
                    None => bytes.get_or_make(task, &key, stored).map(Some),
                }
            }
            Target::Buffer(_) | Target::Cache => bytes.get_or_make(task, &key, stored).map(Some),
        }
    }

    /// Runs `make`, which makes a chunk. What took too long a moment ago is not tried again.
    fn making<T>(&self, task: &Task, id: ChunkId, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let part = Part::Chunk(self.generation, id);
        self.budget
            .check_not_too_long(part)
            .map_err(|fault| self.bad_chunk(id, fault))?;
        let _running = self.running(task);
        let made = self.budget.stats().chunk_time.time(make);
        self.remember_if_too_long(task, part);
        made
    }

    /// Call this after `part` was made, or not.
    pub(crate) fn remember_if_too_long(&self, task: &Task, part: Part) {
        if task.stopped() == Some(Stop::Deadline) {
            self.budget.remember_too_long(part);
        }
    }

    fn cache_key(&self, id: ChunkId) -> BytesKey {
        BytesKey::Chunk(self.generation, id)
    }

    /// Whether a chunk is cached.
    pub(crate) fn has_chunk(&self, id: ChunkId) -> bool {
        self.budget.bytes().contains(&self.cache_key(id))
    }

    /// Whether this chunk goes to a reader who keeps it for the first time, as far as is remembered. One that is asked
    /// for again was dropped there: then it is worth a place in the cache.
    fn is_given_first(&self, id: ChunkId) -> bool {
        self.budget.given().insert((self.generation, id), ())
    }

    /// Reads all that a chunk is made of, and keeps nothing of it.
    pub(crate) fn check_chunk(&self, task: &Task, id: ChunkId) -> Result<()> {
        if let Content::Unreadable(reason) = &self.snapshot.datasets[id.dataset].content {
            return Err(self.bad_chunk(id, reason.as_str()));
        }
        let index = self.index_of_chunk(task, id)?;
        let resolver = self.checked_resolver(&index, id)?;
        let _running = self.running(task);
        self.make_stored(task, id, &resolver, None).map(drop)
    }

    /// The stored bytes of a chunk: those of a record, or its elements after the filters of the dataset.
    fn make_stored(
        &self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
        source: Option<ChunkSource>,
    ) -> Result<Reserved<Vec<u8>>> {
        let bad_chunk = |fault: Fault| self.bad_chunk(id, fault);
        let place = resolver.place;
        self.check_cache_size("a chunk", place.raw.max(place.stored))
            .map_err(bad_chunk)?;
        if let ChunkSource::AsStored(stored) = source.unwrap_or_else(|| resolver.source()) {
            let bytes = stored_bytes(task, &self.sources, stored).map_err(bad_chunk)?;
            self.check_unchanged([usize::from(stored.source)])?;
            return Ok(bytes);
        }
        let (raw, sources) = self.assemble(task, id, resolver).map_err(bad_chunk)?;
        let bytes = filtered(raw, resolver).map_err(bad_chunk)?;
        self.check_unchanged(sources)?;
        Ok(bytes)
    }

    /// Makes a chunk without filters that has to be assembled, in memory of its length.
    fn make_raw_in(
        &self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
        buf: &mut [u8],
    ) -> Result<()> {
        let bad_chunk = |fault: Fault| self.bad_chunk(id, fault);
        self.check_cache_size("a chunk", buf.len() as u64)
            .map_err(bad_chunk)?;
        let decoded =
            |record: &Record<'_>| self.decoded(task, id.dataset, record, &resolver.bounds);
        let assembly = self.assembly(task, resolver.dataset, &decoded);
        let sources = assembly.raw_chunk_in(resolver, buf).map_err(bad_chunk)?;
        self.check_unchanged(sources)
    }

    /// The elements of a chunk of a logged dataset, before its filters. Those past the dataset's edge have the fill value.
    /// They are not cached.
    pub fn raw_chunk(&self, task: &Task, id: ChunkId) -> Result<Reserved<Vec<u8>>> {
        self.raw_chunk_in(task, id, Vec::new)
    }

    /// The same, in the memory of a buffer that is no longer needed, where it is read in one piece. The system takes longer
    /// to give new memory than to copy what lies in the kernel.
    pub fn raw_chunk_in(
        &self,
        task: &Task,
        id: ChunkId,
        spare: impl Fn() -> Vec<u8>,
    ) -> Result<Reserved<Vec<u8>>> {
        task.retry(|| self.make_raw(task, id, &spare))
    }

    fn make_raw(
        &self,
        task: &Task,
        id: ChunkId,
        spare: &impl Fn() -> Vec<u8>,
    ) -> Result<Reserved<Vec<u8>>> {
        let (dataset, place) = self.dataset(id.dataset);
        let bad_chunk = |fault: Fault| self.bad_chunk(id, fault);
        if let Content::Unreadable(reason) = &dataset.content {
            return Err(self.bad_chunk(id, reason.as_str()));
        }
        self.check_cache_size("a chunk", place.raw)
            .map_err(bad_chunk)?;
        let index = self.index_of_chunk(task, id)?;
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
        self.check_unchanged(sources)?;
        Ok(raw)
    }

    /// A chunk's elements, and the source files that they were read from.
    fn assemble(
        &self,
        task: &Task,
        id: ChunkId,
        resolver: &ChunkResolver<'_>,
    ) -> Result<(Reserved<Vec<u8>>, BTreeSet<usize>), Fault> {
        let decoded =
            |record: &Record<'_>| self.decoded(task, id.dataset, record, &resolver.bounds);
        self.assembly(task, resolver.dataset, &decoded)
            .raw_chunk(resolver)
    }

    pub(super) fn assembly<'a>(
        &'a self,
        task: &'a Task,
        dataset: &'a Dataset,
        decoded: &'a dyn Fn(&Record<'_>) -> Decoded,
    ) -> Assembly<'a> {
        Assembly {
            task,
            form: ElementForm::of(dataset),
            sources: &self.sources,
            unwritten: None,
            addresses: &self.snapshot.addresses,
            plans: Some(Plans {
                budget: &self.budget,
                generation: self.generation,
            }),
            decoded,
        }
    }

    /// Decoded bytes of a record. They are cached where chunks other than that of `bounds` need them too.
    pub(super) fn decoded(
        &self,
        task: &Task,
        number: usize,
        record: &Record<'_>,
        bounds: &Bounds,
    ) -> Decoded {
        let dataset = &self.snapshot.datasets[number];
        let stored = record.stored;
        let raw = record.elements().saturating_mul(dataset.element_size);
        let decode = || {
            let decoded = decode_record(task, &self.sources, stored, raw, &dataset.filters)?;
            Ok(Arc::new(decoded.unowned()))
        };
        self.check_cache_size("a filtered record", raw.max(stored.len))?;
        if bounds.contains(&record.bounds()) {
            return decode();
        }
        let key = BytesKey::Record(self.generation, number as u32, stored, raw);
        self.budget.bytes().get_or_make(task, &key, decode)
    }

    /// Memory is bounded by options, whatever a file asks for.
    fn check_cache_size(&self, what: &'static str, bytes: u64) -> Result<(), Fault> {
        check_limit(what, bytes, "cache_size", self.budget.limits().cache_size)
    }

    pub(super) fn dataset(&self, number: usize) -> (&Dataset, &Placement) {
        (&self.snapshot.datasets[number], &self.map.datasets[number])
    }

    pub(super) fn resolver<'a>(
        &'a self,
        index: &'a DatasetIndex,
        id: ChunkId,
    ) -> ChunkResolver<'a> {
        let (dataset, place) = self.dataset(id.dataset);
        ChunkResolver {
            index,
            dataset,
            place,
            bounds: place.grid.bounds(id.number),
        }
    }

    /// Fails where no element of the dataset can be trusted.
    pub(super) fn checked_resolver<'a>(
        &'a self,
        index: &'a DatasetIndex,
        id: ChunkId,
    ) -> Result<ChunkResolver<'a>> {
        index.check().map_err(|fault| self.bad_chunk(id, fault))?;
        Ok(self.resolver(index, id))
    }
}

/// Elements of a chunk after the filters of its dataset.
fn filtered(
    raw: Reserved<Vec<u8>>,
    resolver: &ChunkResolver<'_>,
) -> Result<Reserved<Vec<u8>>, Fault> {
    let filters = &resolver.dataset.filters;
    if filters.is_empty() {
        return Ok(raw);
    }
    let (raw, mut reservation) = raw.into_parts();
    // A filter makes new bytes of the old ones, the last of them at most as many as are stored.
    reservation.grow(resolver.place.stored.max(resolver.place.raw))?;
    let bytes = filters::encode(raw, filters)?;
    reservation.shrink_to(bytes.capacity() as u64);
    Ok(Reserved::new(bytes, reservation))
}

/// Fills `buf` with zeros, at most `left` of them. Returns how many.
fn zeros(buf: &mut [u8], left: u64) -> usize {
    let len = buf.len().min(left as usize);
    buf[..len].fill(0);
    len
}

/// Copies the bytes from `at` on, as far as they go. Returns how many.
fn copy_from(bytes: &[u8], at: usize, buf: &mut [u8]) -> usize {
    let len = buf.len().min(bytes.len() - at);
    buf[..len].copy_from_slice(&bytes[at..at + len]);
    len
}
