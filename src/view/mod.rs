//! The canonical file as random-access bytes, made on demand.
//!
//! ```text
//! read_at ─ map: which part? ─┬ front: user block and completed image, as they are
//!                             ├ B-tree node: computed (btree)
//!                             └ chunk: budget ─miss→ index ─ assemble ─ filters
//! ```

mod assemble;
mod btree;
pub mod cache;
mod coverage;
mod filters;
mod grid;
mod map;
mod patch;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::index::DatasetIndex;
use crate::log::RecordTable;
use crate::log::model::Record;
use crate::log::source::{Folder, SourceFile};
use crate::snapshot::{Content, Dataset, Snapshot};
use assemble::{Assembly, Decoded, Fault, Touching, decode_record};
use btree::Key;
use cache::{Budget, BytesKey, Generation};
pub use grid::Grid;
use map::{AddressMap, Part, Placement};

/// Bytes read at once where nothing is done with them.
const STEP: u64 = 1 << 20;

/// One state of one log file, presented as canonical HDF5. Reads run in parallel.
#[derive(Debug)]
pub struct View {
    generation: Generation,
    snapshot: Snapshot,
    map: AddressMap,
    front: Vec<u8>,
    sources: Vec<SourceFile>,
    budget: Arc<Budget>,
}

/// Bytes of the log that a chunk is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Which source file, and the stored bytes of the record in it.
    pub source: u16,
    pub offset: u64,
    pub stored: u64,
    /// The elements that one of its blocks gives to the chunk.
    pub start: Vec<u64>,
    pub count: Vec<u64>,
}

/// A stretch of the canonical file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    pub range: Range<u64>,
    /// All zeros, known without a look at the log's data: no record touches it.
    pub hole: bool,
}

impl View {
    /// Opens the files that `snapshot` was made of, below `folder`; fails with [`Error::Changed`]
    /// where one of them is no longer what the scan saw.
    pub fn open(folder: &Folder, snapshot: Snapshot, budget: Arc<Budget>) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut sources = Vec::with_capacity(snapshot.sources.len());
        for source in &snapshot.sources {
            let file = SourceFile::open(folder, &source.path)?;
            if file.identity() != source.identity {
                return Err(Error::Changed {
                    path: file.path().to_owned(),
                });
            }
            sources.push(file);
        }
        let main = sources.first().map_or(Path::new(""), SourceFile::path);
        let map = AddressMap::new(&snapshot).map_err(|e| Error::bad_file(main, e))?;
        let front = patch::front(&snapshot, &map).map_err(|e| Error::bad_file(main, e))?;
        Ok(View {
            generation: NEXT.fetch_add(1, Ordering::Relaxed),
            map,
            front,
            sources,
            budget,
            snapshot,
        })
    }

    /// Tells this state of the log from every other one that the process has seen.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Path of the log file.
    pub fn path(&self) -> PathBuf {
        let main = self.sources.first();
        main.map(|s| s.path().to_owned()).unwrap_or_default()
    }

    /// Length of the canonical file in bytes.
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the view is charged in the budget: its memory, and its descriptors in the measure in
    /// which they would use up the process's limit of them.
    fn weight(&self) -> u64 {
        let places = self.map.datasets.len() * size_of::<Placement>() * 2;
        let memory = self.snapshot.bytes() + self.front.len() + places;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let limit = descriptors.current.unwrap_or(u64::MAX).max(64);
        let share = self.budget.largest() / (limit / 2);
        memory as u64 + share * self.sources.len() as u64
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
        let Ok(touching) = Touching::new(&index, &place.grid, chunk) else {
            return Ok(None);
        };
        let record = touching.as_logged(dataset, &place.grid, place.slot);
        Ok(record.map(|r| r.stored))
    }

    fn read_chunk(&self, number: usize, within: u64, buf: &mut [u8]) -> Result<usize> {
        let place = &self.map.datasets[number];
        if let Content::Extent { source, offset, .. } = self.snapshot.datasets[number].content {
            return self.read_extent(number, source, offset, within, buf);
        }
        let (chunk, inside) = (within / place.slot, within % place.slot);
        let bytes = self.chunk(number, chunk)?;
        if inside >= bytes.len() as u64 {
            // The rest of the slot, which no chunk uses.
            let len = buf.len().min((place.slot - inside) as usize);
            buf[..len].fill(0);
            return Ok(len);
        }
        Ok(copy_from(&bytes, inside as usize, buf))
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
    pub fn chunk(&self, number: usize, chunk: u64) -> Result<Arc<[u8]>> {
        let key = BytesKey::Chunk(self.generation, number as u32, chunk);
        let make = || self.make_chunk(number, chunk).map(Arc::from);
        self.budget.bytes(key, make)
    }

    fn make_chunk(&self, number: usize, chunk: u64) -> Result<Vec<u8>> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let fault = |e: Fault| self.bad_data(number, self.chunk_name(number, chunk), e);
        if let Content::Unreadable(reason) = &dataset.content {
            return Err(fault(reason.clone()));
        }
        self.check_fits(place.raw.max(place.stored), "a chunk")
            .map_err(fault)?;
        let index = self.index(number)?;
        let touching = Touching::new(&index, &place.grid, chunk).map_err(fault)?;
        let stored = match touching.as_logged(dataset, &place.grid, place.slot) {
            Some(record) => self.stored_bytes(record).map_err(fault)?,
            None => self.assemble(number, &touching).map_err(fault)?,
        };
        self.check_unchanged(touching.sources())?;
        Ok(stored)
    }

    fn assemble(&self, number: usize, touching: &Touching<'_>) -> Result<Vec<u8>, Fault> {
        let (dataset, place) = (&self.snapshot.datasets[number], &self.map.datasets[number]);
        let assembly = Assembly {
            dataset,
            grid: &place.grid,
            sources: &self.sources,
            addresses: &self.snapshot.addresses,
            decoded: &|record| self.decoded(number, record, touching),
        };
        let raw = assembly.raw_chunk(touching, place.raw)?;
        Ok(filters::encode(raw, &dataset.filters))
    }

    /// Decoded bytes of a record; kept where other chunks will want them too.
    fn decoded(&self, number: usize, record: &Record, touching: &Touching<'_>) -> Decoded {
        let dataset = &self.snapshot.datasets[number];
        let decode = || {
            let stored = self.stored_bytes(record)?;
            decode_record(record, stored, dataset).map(Arc::from)
        };
        let raw = record.selection.elements().saturating_mul(dataset.element);
        self.check_fits(raw.max(record.stored), "a filtered record")?;
        if touching.bounds.contains(&record.bounds()) {
            return decode();
        }
        let key = BytesKey::Record(self.generation, record.source, record.offset);
        self.budget.bytes(key, decode)
    }

    /// Memory is bounded by an option, whatever a file asks for.
    fn check_fits(&self, bytes: u64, what: &str) -> Result<(), Fault> {
        let largest = self.budget.largest();
        if bytes <= largest {
            return Ok(());
        }
        Err(format!(
            "{what} of {bytes} bytes is larger than half of cache_size, {largest} bytes"
        ))
    }

    fn stored_bytes(&self, record: &Record) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; record.stored as usize];
        self.sources[usize::from(record.source)]
            .read_exact_at(&mut bytes, record.offset)
            .map_err(|e| e.to_string())?;
        Ok(bytes)
    }

    /// The records of a logged dataset.
    pub fn index(&self, number: usize) -> Result<Arc<DatasetIndex>> {
        let dataset = &self.snapshot.datasets[number];
        let Some(logged) = dataset.logged() else {
            return Err(self.bad_data(number, "all of it".into(), "it was not logged"));
        };
        self.budget.index(self.generation, number as u32, || {
            let table = self.table()?;
            let index = DatasetIndex::build(table.as_ref(), &self.sources, &logged)?;
            self.check_unchanged(0..self.sources.len())?;
            self.check_fits(index.bytes() as u64, "the index")
                .map_err(|e| self.bad_data(number, "all of it".into(), e))?;
            Ok(Arc::new(index))
        })
    }

    /// The record tables of the log.
    fn table(&self) -> Result<Arc<dyn RecordTable>> {
        self.budget.table(self.generation, || {
            let datasets = self.snapshot.datasets.iter();
            let logged: Vec<_> = datasets.filter_map(Dataset::logged).collect();
            let layout = self.snapshot.log.layout();
            let table = layout.read_tables(&self.sources, &logged)?;
            self.check_unchanged(0..self.sources.len())?;
            self.check_fits(table.bytes() as u64, "the list of records")
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

    /// The stretch of the file that starts at `offset`: as far as it is alike, hole or not. Past the
    /// end it is empty.
    pub fn extent_at(&self, offset: u64) -> Result<Extent> {
        if offset >= self.len() {
            return Ok(Extent {
                range: offset..offset,
                hole: true,
            });
        }
        let (part, start, end) = self.map.at(offset);
        let Some(Part::Chunks(number)) = part else {
            return Ok(Extent {
                range: offset..end,
                hole: part.is_none(),
            });
        };
        let place = &self.map.datasets[number];
        let first = (offset - start) / place.slot;
        let hole = self.is_hole(number, first)?;
        let mut next = first + 1;
        while next < place.grid.len() && self.is_hole(number, next)? == hole {
            next += 1;
        }
        Ok(Extent {
            range: offset..(start + next * place.slot).min(end),
            hole,
        })
    }

    /// Whether a chunk is all zeros because nothing was ever written to it.
    fn is_hole(&self, number: usize, chunk: u64) -> Result<bool> {
        let dataset = &self.snapshot.datasets[number];
        let plain = dataset.filters.is_empty() && dataset.fill.iter().all(|b| *b == 0);
        if !plain || dataset.logged().is_none() {
            return Ok(false);
        }
        self.is_untouched(number, chunk)
    }

    fn is_untouched(&self, number: usize, chunk: u64) -> Result<bool> {
        let index = self.index(number)?;
        let bounds = self.map.datasets[number].grid.bounds(chunk);
        Ok(index.faults().is_empty() && index.touching(&bounds).is_empty())
    }

    /// Makes a chunk that some record touches, to see whether it can be had.
    pub fn check_chunk(&self, number: usize, chunk: u64) -> Result<()> {
        match &self.snapshot.datasets[number].content {
            Content::Extent { len, .. } => {
                let mut buf = vec![0; STEP.min(*len) as usize];
                let mut at = 0;
                while at < *len {
                    at += self.read_chunk(number, at, &mut buf)? as u64;
                }
                Ok(())
            }
            Content::Logged { .. } if self.is_untouched(number, chunk)? => Ok(()),
            _ => self.make_chunk(number, chunk).map(drop),
        }
    }

    /// Offset in the canonical file and stored bytes of a chunk.
    pub fn chunk_place(&self, number: usize, chunk: u64) -> Result<(u64, u64)> {
        let place = &self.map.datasets[number];
        let stored = self.as_logged(number, chunk)?.unwrap_or(place.stored);
        let user_block = self.snapshot.user_block.len() as u64;
        Ok((user_block + place.chunk_address(chunk), stored))
    }

    /// What a chunk is made of, in the order in which it applies.
    pub fn chunk_sources(&self, number: usize, chunk: u64) -> Result<Vec<Source>> {
        let index = self.index(number)?;
        let fault = |e| self.bad_data(number, self.chunk_name(number, chunk), e);
        let touching = Touching::new(&index, self.grid(number), chunk).map_err(fault)?;
        let mut sources = Vec::new();
        for (record, blocks) in &touching.records {
            for block in blocks {
                let common = record.block(*block).intersection(&touching.bounds);
                sources.extend(common.map(|common| Source {
                    source: record.source,
                    offset: record.offset,
                    stored: record.stored,
                    count: common.count().collect(),
                    start: common.start,
                }));
            }
        }
        Ok(sources)
    }

    /// Share of a logged dataset's elements that some record wrote, from 0 to 1.
    pub fn covered(&self, number: usize) -> Result<f64> {
        let index = self.index(number)?;
        let grid = self.grid(number);
        let total: u64 = grid.dims.iter().product();
        let covered: u64 = (0..grid.len())
            .map(|chunk| coverage::elements(&index, &grid.bounds(chunk)))
            .sum();
        Ok(match total {
            0 => 1.0,
            _ => covered as f64 / total as f64,
        })
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

/// Copies what there is from `at` on; returns how much.
fn copy_from(bytes: &[u8], at: usize, buf: &mut [u8]) -> usize {
    let len = buf.len().min(bytes.len() - at);
    buf[..len].copy_from_slice(&bytes[at..at + len]);
    len
}
