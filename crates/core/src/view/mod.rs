//! The canonical file as random-access bytes, made on demand.
//!
//! ```text
//! read_at ─ map: which part? ─┬ front: user block and completed image, as they are
//!                             ├ B-tree node: computed (btree)
//!                             └ chunk: budget ─miss→ index ─ assemble ─ filters
//! ```

mod ahead;
mod assemble;
mod btree;
pub mod cache;
mod claims;
mod deciding;
mod grid;
mod map;
mod patch;
mod pieces;
mod survey;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::boxes::Bounds;
use crate::diagnostic::{Diagnostic, Severity};
use crate::error::{Error, Result};
use crate::filters;
use crate::index::DatasetIndex;
use crate::index::kept::About;
use crate::index::store::KeptLog;
use crate::log::descriptors;
use crate::log::model::{Encoding, Record, Selections};
use crate::log::source::{SourceDir, SourceFile, SourcePath};
use crate::log::{DatasetRecords, Logged, RecordTable};
use crate::snapshot::{Content, Dataset, Snapshot};
use ahead::Readers;
use assemble::{Assembly, Decoded, decode_record, stored_bytes};
use btree::Key;
pub use cache::Bytes;
use cache::{Budget, BytesKey, Generation, Room};
use deciding::{Deciding, Sole};
pub use grid::Grid;
use map::{AddressMap, Part, Placement};
use pieces::read_elements;
pub use survey::{Extent, Source};

/// Smaller indexes, of logs with smaller tables, are made anew as fast as they would be read: in a
/// millisecond or two.
const WORTH_KEEPING: usize = 256 << 10;

/// One state of one log file, presented as canonical HDF5. Reads run in parallel.
#[derive(Debug)]
pub struct View {
    generation: Generation,
    snapshot: Snapshot,
    map: AddressMap,
    front: Vec<u8>,
    sources: Vec<SourceFile>,
    /// What the indexes of the datasets share.
    selections: Selections,
    budget: Arc<Budget>,
    /// What the view is charged in the budget, if that keeps it, and as long as it is there.
    weight: u64,
    _room: Room,
    readers: Readers,
    /// Where things are kept that were learned of this state of the log.
    kept: Option<KeptLog>,
    /// What was counted of all datasets together: see [`View::covered_in_all`].
    covered: Mutex<Option<Option<f64>>>,
}

impl View {
    /// Opens the files that `snapshot` was made of, below `directory`; fails with [`Error::Changed`]
    /// where one of them is no longer what the scan saw. The snapshot may have come from another process,
    /// or from a file. `kept`: where to keep what is learned of this very state of the log.
    pub fn open(
        dir: &SourceDir,
        mut snapshot: Snapshot,
        budget: Arc<Budget>,
        kept: Option<KeptLog>,
    ) -> Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let main = snapshot.sources.first().map(|s| s.place.path.as_path());
        let main = dir.full_path(main.unwrap_or(Path::new("")));
        snapshot.check().map_err(|e| Error::bad_file(&main, e))?;
        let mut sources = Vec::with_capacity(snapshot.sources.len());
        for source in &snapshot.sources {
            let stats = Arc::clone(budget.stats());
            let file = SourceFile::open_at(dir, &source.place)?.counted_in(stats);
            if !source.is_still(file.identity()) {
                return Err(Error::Changed {
                    path: file.path().to_owned(),
                });
            }
            sources.push(match source.grows {
                true => file.first_bytes(source.identity.size)?,
                false => file.arranged(source.arrangement.clone())?,
            });
        }
        let map = AddressMap::new(&snapshot).map_err(|e| Error::bad_file(&main, e))?;
        let image = std::mem::take(&mut snapshot.image);
        let front = patch::front(image, &snapshot, &map).map_err(|e| Error::bad_file(&main, e))?;
        let places = map.datasets.len() * size_of::<Placement>() * 2;
        let readers = Readers::bytes(map.datasets.len());
        let memory = snapshot.bytes() + front.len() + places + readers;
        let room = room_for(&budget, memory as u64, &main)?;
        Ok(Arc::new_cyclic(|view| View {
            readers: Readers::new(map.datasets.len(), Weak::clone(view)),
            weight: memory as u64 + sources.len() as u64 * descriptor_charge(&budget),
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            map,
            front,
            sources,
            selections: Selections::default(),
            budget,
            snapshot,
            _room: room,
            kept,
            covered: Mutex::default(),
        }))
    }

    /// Where things are kept that were learned of this state of the log; `None` where they are not.
    pub fn kept(&self) -> Option<&KeptLog> {
        self.kept.as_ref()
    }

    /// Tells this state of the log from every other one that the process has seen.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What the scan saw, but for the image, which is in the front of the file now.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Path of the log file.
    pub fn path(&self) -> PathBuf {
        let main = self.sources.first();
        main.map(|s| s.path().to_owned()).unwrap_or_default()
    }

    /// The files that the bytes of the log are in, and where each was found. The journal is none of them.
    pub fn files(&self) -> impl Iterator<Item = (&SourcePath, &SourceFile)> {
        let places = self.snapshot.sources.iter().map(|source| &source.place);
        places.zip(&self.sources)
    }

    /// Length of the canonical file in bytes.
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of user block and metadata, which stand in front of everything.
    pub fn front_len(&self) -> usize {
        self.front.len()
    }

    /// Bytes read of the log file and its subfiles since the view was opened: tables and data.
    pub fn log_bytes_read(&self) -> u64 {
        self.sources.iter().map(SourceFile::bytes_read).sum()
    }

    /// Fills `buf` with the bytes from `offset` on. Returns how many there are: fewer than asked
    /// only at the end of the file. Where one of them cannot be had the whole read fails.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = self.len().saturating_sub(offset);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            done += self.read_part(offset + done as u64, &mut buf[done..wanted])?;
        }
        Ok(done)
    }

    /// Reads from one part of the file: at least one byte, at most all of `buf`.
    fn read_part(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (part, start, end) = self.map.at(offset);
        let len = buf.len().min((end - offset) as usize);
        let buf = &mut buf[..len];
        let within = offset - start;
        match part {
            None => {
                buf.fill(0);
                Ok(len)
            }
            Some(Part::Front) => {
                let from = within as usize;
                buf.copy_from_slice(&self.front[from..from + len]);
                Ok(len)
            }
            Some(Part::Tree(dataset)) => self.read_node(dataset, within, buf),
            Some(Part::Chunks(dataset)) => self.read_chunk(dataset, within, buf),
        }
    }

    fn read_node(&self, number: usize, within: u64, buf: &mut [u8]) -> Result<usize> {
        let place = &self.map.datasets[number];
        let Some((tree, base)) = &place.tree else {
            unreachable!("a part of the map that is a tree belongs to a dataset that has one");
        };
        let dataset = &self.snapshot.datasets[number];
        let (node, range) = tree.node_at(within);
        let keys: Vec<Key> = tree
            .keys_of(node)
            .into_iter()
            .map(|chunk| self.key(number, chunk))
            .collect::<Result<_>>()?;
        let address = |chunk| place.chunk_address(chunk);
        let bytes = tree.node(
            node,
            *base,
            address,
            &keys,
            (&place.grid.chunk, dataset.element),
        );
        Ok(copy_from(&bytes, (within - range.start) as usize, buf))
    }

    /// What the chunk index says of a chunk.
    fn key(&self, number: usize, chunk: u64) -> Result<Key> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let mut origin = place.grid.origin(chunk);
        origin.push(0);
        let (size, filter_mask) = match self.as_logged(number, chunk)? {
            Some(stored) => (stored, 0),
            None => (place.stored, filters::mask(&dataset.filters)),
        };
        Ok(Key {
            // Checked when the map was made.
            size: size as u32,
            filter_mask,
            origin,
        })
    }

    /// Stored bytes of a chunk that is served as it lies in the log. Only where records went through
    /// the dataset's filters does that have to be asked of the index. A chunk that cannot be had is
    /// none: the tree stays readable, and reading the chunk says why.
    fn as_logged(&self, number: usize, chunk: u64) -> Result<Option<u64>> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        if !matches!(dataset.content, Content::Logged { filtered: true, .. }) {
            return Ok(None);
        }
        let index = self.index(number)?;
        if index.check().is_err() {
            return Ok(None);
        }
        let sole = Deciding::new(&index, &place.grid, chunk).sole();
        let sole = sole.filter(|sole| self.is_as_logged(number, chunk, sole));
        Ok(sole.map(|sole| sole.stored.len))
    }

    /// Whether a chunk's stored bytes are those of a record, as they lie: it went through the dataset's
    /// filters, and is one block, the whole chunk.
    fn is_as_logged(&self, number: usize, chunk: u64, sole: &Sole) -> bool {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        sole.stored.encoding == Encoding::Pipeline
            && sole.stored.len <= place.slot
            && sole.fault.is_none()
            && sole.is_only_block
            && dataset.references.is_empty()
            && place.grid.is_whole(&sole.block)
            && sole.block.start == place.grid.origin(chunk)
    }

    fn read_chunk(&self, number: usize, within: u64, buf: &mut [u8]) -> Result<usize> {
        let place = &self.map.datasets[number];
        if let Content::Extent { source, offset, .. } = self.snapshot.datasets[number].content {
            return self.read_extent(number, source, offset, within, buf);
        }
        let (chunk, inside) = (within / place.slot, within % place.slot);
        let has_filters = !self.snapshot.datasets[number].filters.is_empty();
        if inside >= place.stored && !has_filters {
            // The rest of the slot. Where there are filters the chunk itself has to say how long it is.
            return Ok(zeros(buf, place.slot - inside));
        }
        if !self.has_chunk(number, chunk)
            && let Some(len) = self.read_directly(number, chunk, inside, buf)?
        {
            return Ok(len);
        }
        self.look_ahead(number, chunk);
        let bytes = self.part_of_chunk(number, chunk, inside..inside + buf.len() as u64)?;
        if inside >= bytes.len() as u64 {
            return Ok(zeros(buf, place.slot - inside));
        }
        Ok(copy_from(&bytes, inside as usize, buf))
    }

    /// Reads from a chunk whose elements lie in the log one after the other: they need neither be put
    /// together nor be kept, since the kernel keeps them. `inside` is before the end of the chunk.
    fn read_directly(
        &self,
        number: usize,
        chunk: u64,
        inside: u64,
        buf: &mut [u8],
    ) -> Result<Option<usize>> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let is_plain = dataset.filters.is_empty() && dataset.references.is_empty();
        if !is_plain || dataset.logged().is_none() {
            return Ok(None);
        }
        let index = self.index(number)?;
        if index.check().is_err() {
            return Ok(None);
        }
        let sole = Deciding::new(&index, &place.grid, chunk).sole();
        let wanted = buf.len().min((place.raw - inside) as usize);
        let found = sole
            .as_ref()
            .and_then(|sole| in_one_piece(sole, place, dataset.element, inside, wanted));
        let (Some(sole), Some((offset, len))) = (sole, found) else {
            return Ok(None);
        };
        let source = &self.sources[usize::from(sole.stored.source)];
        let (target, scratch) = (&mut buf[..len], &mut Vec::new());
        read_elements(source, offset, sole.conversion, target, scratch)
            .map_err(|e| self.bad_data(number, self.chunk_name(number, chunk), e))?;
        source.check_unchanged()?;
        Ok(Some(len))
    }

    fn read_extent(
        &self,
        number: usize,
        source: u16,
        offset: u64,
        within: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let stored = self.map.datasets[number].stored;
        if within >= stored {
            buf.fill(0);
            return Ok(buf.len());
        }
        let len = buf.len().min((stored - within) as usize);
        let file = &self.sources[usize::from(source)];
        file.read_exact_at(&mut buf[..len], offset + within)
            .map_err(|e| self.bad_data(number, "contiguous data".into(), e))?;
        file.check_unchanged()?;
        Ok(len)
    }

    /// Stored bytes of a chunk: as the canonical file has them.
    pub fn chunk(&self, number: usize, chunk: u64) -> Result<Bytes> {
        self.part_of_chunk(number, chunk, 0..u64::MAX)
    }

    /// All bytes of a chunk, of which those in the range `asked` are handed out.
    fn part_of_chunk(&self, number: usize, chunk: u64, asked: Range<u64>) -> Result<Bytes> {
        let make = || self.make_counted(number, chunk);
        self.budget.bytes(&self.key_of(number, chunk), asked, make)
    }

    fn key_of(&self, number: usize, chunk: u64) -> BytesKey {
        BytesKey::Chunk(self.generation, number as u32, chunk)
    }

    /// Whether a chunk is in memory, or being made.
    fn has_chunk(&self, number: usize, chunk: u64) -> bool {
        self.budget.has_bytes(&self.key_of(number, chunk))
    }

    /// Makes a chunk that somebody will want soon; should that fail, they will see it themselves.
    fn make_ahead(&self, number: usize, chunk: u64) {
        let make = || self.make_counted(number, chunk);
        let _ = self.budget.bytes_ahead(&self.key_of(number, chunk), make);
    }

    fn make_counted(&self, number: usize, chunk: u64) -> Result<Bytes> {
        let times = &self.budget.stats().chunk_time;
        times.time(|| self.make_chunk(number, chunk)).map(Arc::new)
    }

    fn make_chunk(&self, number: usize, chunk: u64) -> Result<Vec<u8>> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let fault = |e: String| self.bad_data(number, self.chunk_name(number, chunk), e);
        if let Content::Unreadable(reason) = &dataset.content {
            return Err(fault(reason.clone()));
        }
        self.check_cached(place.raw.max(place.stored), "a chunk")
            .map_err(fault)?;
        let index = self.index(number)?;
        index.check().map_err(fault)?;
        let deciding = Deciding::new(&index, &place.grid, chunk);
        if let Some(sole) = deciding.sole()
            && self.is_as_logged(number, chunk, &sole)
        {
            let stored = stored_bytes(&self.sources, sole.stored).map_err(fault)?;
            self.check_unchanged([usize::from(sole.stored.source)])?;
            return Ok(stored);
        }
        let (stored, sources) = self.assemble(number, &deciding).map_err(fault)?;
        self.check_unchanged(sources)?;
        Ok(stored)
    }

    /// A chunk's stored bytes, and the source files that they were made from.
    fn assemble(
        &self,
        number: usize,
        deciding: &Deciding<'_>,
    ) -> Result<(Vec<u8>, BTreeSet<usize>), String> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let assembly = Assembly {
            dataset,
            sources: &self.sources,
            addresses: &self.snapshot.addresses,
            decoded: &|record| self.decoded(number, record, &deciding.bounds),
        };
        let (raw, sources) = assembly.raw_chunk(deciding, place.raw)?;
        Ok((filters::encode(raw, &dataset.filters)?, sources))
    }

    /// Decoded bytes of a record; kept where other chunks than that of `bounds` will want them too.
    fn decoded(&self, number: usize, record: &Record<'_>, bounds: &Bounds) -> Decoded {
        let dataset = &self.snapshot.datasets[number];
        let stored = record.stored;
        let raw = record.elements().saturating_mul(dataset.element);
        let decode = || decode_record(&self.sources, stored, raw, dataset).map(Arc::new);
        self.check_cached(raw.max(stored.len), "a filtered record")?;
        let own = record.bounds();
        if bounds.contains(&own) {
            return decode();
        }
        // Of a record with many blocks that is more than the chunk takes, which does no harm.
        let common = own.intersection(bounds);
        let taken = common.map_or(0, |common| common.count().product::<u64>());
        let key = BytesKey::Record(self.generation, number as u32, stored, raw);
        self.budget.bytes(
            &key,
            0..taken.saturating_mul(dataset.element).max(1),
            decode,
        )
    }

    /// Memory is bounded by options, whatever a file asks for.
    fn check_cached(&self, bytes: u64, what: &str) -> Result<(), String> {
        check_fits(what, bytes, "cache_size", self.budget.limits().cache_size)
    }

    fn check_indexed(&self, bytes: u64, what: &str) -> Result<(), String> {
        let limit = self.budget.limits().index_memory;
        check_fits(what, bytes, "index_memory", limit)
    }

    /// What is wrong with the record tables, besides what makes reads of datasets fail.
    pub fn diagnostics(&self) -> Result<Vec<Diagnostic>> {
        let table = self.table()?;
        // Without a logged dataset no read fails and tells of them.
        let has_logged = self.snapshot.datasets.iter().any(|d| d.logged().is_some());
        let is_told = |d: &&Diagnostic| !has_logged || d.severity != Severity::Unreadable;
        Ok(table
            .diagnostics()
            .iter()
            .filter(is_told)
            .cloned()
            .collect())
    }

    /// All records of a logged dataset, those that later ones hide as well.
    pub fn records(&self, number: usize) -> Result<DatasetRecords> {
        let logged = self.logged(number)?;
        let table = self.table()?;
        let found = table.records(&self.sources, &logged, &self.selections)?;
        self.check_unchanged(0..self.sources.len())?;
        Ok(found)
    }

    fn logged(&self, number: usize) -> Result<Logged<'_>> {
        let logged = self.snapshot.datasets[number].logged();
        logged.ok_or_else(|| self.bad_data(number, "all of it".into(), "it was not logged"))
    }

    /// What tells which records of a logged dataset touch a chunk.
    pub fn index(&self, number: usize) -> Result<Arc<DatasetIndex>> {
        let logged = self.logged(number)?;
        let about = About {
            number,
            dataset: &logged,
            sources: &self.sources,
        };
        self.budget.index(self.generation, number as u32, || {
            let kept = self.kept.as_ref();
            let kept = kept.and_then(|log| DatasetIndex::kept(log, about, &self.selections));
            let index = match kept {
                Some(index) => index,
                None => self.make_index(about)?,
            };
            self.check_indexed(index.bytes() as u64, "the index")
                .map_err(|e| self.bad_data(number, "all of it".into(), e))?;
            Ok(Arc::new(index))
        })
    }

    fn make_index(&self, about: About<'_>) -> Result<DatasetIndex> {
        let table = self.table()?;
        let (sources, selections) = (about.sources, &self.selections);
        let index = DatasetIndex::build(table.as_ref(), sources, about.dataset, selections)?;
        self.check_unchanged(0..sources.len())?;
        if let Some(log) = &self.kept
            && index.bytes_in_all().max(table.bytes()) > WORTH_KEEPING
        {
            index.keep(log, about);
        }
        Ok(index)
    }

    /// The record tables of the log.
    fn table(&self) -> Result<Arc<dyn RecordTable>> {
        self.budget.table(self.generation, || {
            let datasets = self.snapshot.datasets.iter();
            let logged: Vec<_> = datasets.filter_map(Dataset::logged).collect();
            let layout = self.snapshot.log.layout();
            let table = layout.read_tables(&self.sources, &logged)?;
            self.check_unchanged(0..self.sources.len())?;
            self.check_indexed(table.bytes() as u64, "the list of records")
                .map_err(|e| Error::bad_file(self.path(), e))?;
            Ok(Arc::from(table))
        })
    }

    /// Asked after the bytes were read: only then is it certain that they were those that the scan
    /// saw.
    fn check_unchanged(&self, sources: impl IntoIterator<Item = usize>) -> Result<()> {
        sources
            .into_iter()
            .try_for_each(|source| self.sources[source].check_unchanged())
    }

    /// The chunk grid of a dataset.
    pub fn grid(&self, number: usize) -> &Grid {
        &self.map.datasets[number].grid
    }

    fn chunk_name(&self, number: usize, chunk: u64) -> String {
        format!("chunk {:?}", self.grid(number).position(chunk))
    }

    fn bad_data(&self, number: usize, place: String, reason: impl ToString) -> Error {
        Error::BadData {
            path: self.path(),
            dataset: self.snapshot.datasets[number].name.clone(),
            place,
            reason: reason.to_string(),
        }
    }
}

/// Room for the metadata of the log file `main`.
fn room_for(budget: &Arc<Budget>, bytes: u64, main: &Path) -> Result<Room> {
    let limit = budget.limits().index_memory;
    check_fits("metadata", bytes, "index_memory", limit).map_err(|e| Error::bad_file(main, e))?;
    let room = budget.room_for_view(bytes);
    room.ok_or_else(|| Error::io(main, Errno::NFILE.into()))
}

/// What an open file is charged: its share of `index_memory` is that of the process's descriptors, half
/// of which views may keep.
fn descriptor_charge(budget: &Budget) -> u64 {
    budget.limits().index_memory / (descriptors::limit().max(2) / 2)
}

fn check_fits(what: &str, bytes: u64, option: &str, limit: u64) -> Result<(), String> {
    if bytes <= limit {
        return Ok(());
    }
    Err(format!(
        "{what} of {bytes} bytes is larger than {option}, {limit} bytes"
    ))
}

/// Where in its source the elements of a chunk lie from byte `inside` on, and how many bytes of the `wanted` ones
/// are whole elements; `None` where they cannot be taken from there, or `inside` is within one.
fn in_one_piece(
    sole: &Sole,
    place: &Placement,
    element: u64,
    inside: u64,
    wanted: usize,
) -> Option<(u64, usize)> {
    let is_plain = matches!(sole.stored.encoding, Encoding::Raw | Encoding::Converted);
    let first = sole.stretch.filter(|s| s.len == place.grid.elements())?;
    if !is_plain || sole.fault.is_some() {
        return None;
    }
    let before = first.from.checked_mul(element)?.checked_add(inside)?;
    let Some(conversion) = sole.conversion else {
        return Some((sole.stored.offset.checked_add(before)?, wanted));
    };
    let (from, to) = (
        conversion.from.kind.size() as u64,
        conversion.to.kind.size(),
    );
    let len = wanted - wanted % to;
    let is_whole = len > 0 && before.is_multiple_of(to as u64);
    let within = (before / to as u64).checked_mul(from)?;
    is_whole.then_some((sole.stored.offset.checked_add(within)?, len))
}

/// Bytes that nothing uses, `left` of them at most; returns how many.
fn zeros(buf: &mut [u8], left: u64) -> usize {
    let len = buf.len().min(left as usize);
    buf[..len].fill(0);
    len
}

/// Copies what there is from `at` on; returns how much.
fn copy_from(bytes: &[u8], at: usize, buf: &mut [u8]) -> usize {
    let len = buf.len().min(bytes.len() - at);
    buf[..len].copy_from_slice(&bytes[at..at + len]);
    len
}
