//! The canonical file as random-access bytes, made on demand.
//!
//! [`View`] is one state of one log, and all of its own methods stand in this file. Questions about it are methods of
//! structs over it, such as [`View::chunks`].
//!
//! * `read`: reads, from [`View::read_at`] down to the bytes of the log. `chunks`: chunks made from these bytes.
//! * `map`, `grid`, `preamble`: the place of everything in the canonical file, by formulas.
//! * `resolve`: the records that make up a chunk. `assemble`, `pieces`: the reads of them into the chunk. `plan`: the
//!   same reads for chunks that are made up alike.
//! * [`cache`]: the memory that all views share. `readahead`: chunks made before a reader asks for them.
//! * `indexes`: record tables and indexes. `holes`, `inspect`, `gaps`: questions other than "which bytes?".
//! * [`coverage`]: a dataset as a picture of a few cells: how much of each was written, how often, by which rank, in
//!   which flush.
//! * `references`: the places of chunks in the files of the log, for other readers of these files.
//! * `hyperslab`: boxes of elements in the caller's memory, for readers that want arrays and no file.
//! * [`elements`]: boxes of elements of a log that a program still writes.
//! * [`index`]: the records that touch a chunk, and the store on disk.
//! * `compared`: comparisons of a log with its checksums, for the view of a later state.
//! * `metadata`: the file metadata, for code that reads HDF5 structures.
//! * `reader`: a view as [`std::io::Read`] and [`std::io::Seek`].

#![deny(missing_docs)]

mod assemble;
mod bitmap;
pub mod cache;
mod chunks;
mod compared;
pub mod coverage;
pub mod elements;
mod gaps;
mod grid;
mod holes;
mod hyperslab;
pub mod index;
mod indexes;
mod inspect;
mod map;
mod metadata;
mod moves;
mod pieces;
mod plan;
mod preamble;
mod read;
mod readahead;
mod reader;
mod references;
mod resolve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::index::store::StoreEntry;
pub use cache::Bytes;
use cache::{Budget, Generation, MemoryLimits};
pub use chunks::Chunks;
pub use compared::Compared;
use coverage::Pictures;
pub use gaps::Gap;
pub use grid::{ChunkId, Grid};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::{Fault, TooLarge};
use h5logfs_common::memory::{Hold, Reservation, Reserved};
use h5logfs_common::single_flight::SingleFlight;
use h5logfs_common::task::{Running, Task, processor_time};
use h5logfs_log::Layout;
use h5logfs_log::descriptors;
use h5logfs_log::journal::guard::SealGuard;
use h5logfs_log::journal::sealed::SealedFile;
use h5logfs_log::log_dir;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::model::Selections;
use h5logfs_log::origins::Origins;
use h5logfs_log::snapshot::{Dataset, Snapshot};
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::{Guard, SourceFile};
pub use holes::{Holes, Segment};
pub use hyperslab::Hyperslabs;
pub use indexes::Indexes;
use indexes::Unkept;
pub use inspect::{Inspection, StoredBlock};
use map::{AddressMap, Placement, Region};
pub use metadata::Metadata;
pub use read::Regions;
use readahead::{Ahead, Readers};
pub use reader::ViewReader;
pub use references::{ChunkReference, Form, PlacedChunk, PlacedChunks, References};

/// One state of one log file, presented as canonical HDF5. Reads run in parallel.
#[derive(Debug)]
pub struct View {
    generation: Generation,
    snapshot: Snapshot,
    map: AddressMap,
    /// The completed file metadata, which follows the user block.
    preamble: Vec<u8>,
    sources: Vec<SourceFile>,
    /// The layout with the entries in the extents, once an append has overwritten the tables of the closed log.
    after_append: OnceLock<Reserved<Box<dyn Layout>>>,
    /// Guards that compare data with their checksums, by the number of the source.
    guards: BTreeMap<usize, Arc<SealGuard>>,
    /// Selections that the indexes of the datasets share.
    selections: Selections,
    budget: Arc<Budget>,
    /// Bytes that the budget charges for the view while it keeps the view open.
    weight: u64,
    /// The memory of the view itself.
    reservation: Reservation,
    /// Processor time that a thread may spend on one read.
    allowance: Duration,
    readers: Readers,
    /// The place on disk for the indexes of this state of the log.
    saved: Option<StoreEntry>,
    /// Indexes that still have to be kept there.
    unkept: Mutex<Vec<Unkept>>,
    /// The result of [`Inspection::covered_in_all`], once it was asked for.
    covered: OnceLock<Option<f64>>,
    /// The flight of that count: one thread counts, and others that want it wait.
    counting: SingleFlight<()>,
}

impl View {
    /// Opens the files below `dir` that `snapshot` was made from. Fails with [`Error::Changed`] where a file is no
    /// longer what the scan saw, and with [`Error::BadFile`] where one does not belong to the log (see
    /// [`ownership`](h5logfs_log::ownership)). The snapshot is checked, because it may come from another process or
    /// from a file. `saved` is the place on disk for what is learned of this state of the log.
    pub fn open(
        dir: &SourceDir,
        snapshot: Snapshot,
        budget: Arc<Budget>,
        saved: Option<StoreEntry>,
    ) -> Result<Arc<Self>> {
        Self::open_as(None, dir, snapshot, budget, saved)
    }

    /// [`View::open`] for a state of a log whose earlier view was dropped from memory. The view keeps the generation of
    /// the earlier one if the canonical file still has the same length. The caller ensures that `snapshot` is of the
    /// same state of the same files.
    pub fn open_again(
        before: (Generation, u64),
        dir: &SourceDir,
        snapshot: Snapshot,
        budget: Arc<Budget>,
        saved: Option<StoreEntry>,
    ) -> Result<Arc<Self>> {
        Self::open_as(Some(before), dir, snapshot, budget, saved)
    }

    fn open_as(
        before: Option<(Generation, u64)>,
        dir: &SourceDir,
        mut snapshot: Snapshot,
        budget: Arc<Budget>,
        saved: Option<StoreEntry>,
    ) -> Result<Arc<Self>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let main = snapshot.sources.first().map(|s| &s.place.path);
        let main = snapshot.joined.as_ref().or(main);
        let main = dir.full_path(main.map_or(Path::new(""), |main| main));
        snapshot.check().map_err(|e| Error::of(&main, e))?;
        let task = budget.task(None);
        let reservation = reserve(&task, &snapshot, budget.limits(), &main)?;
        let guards = guards(&snapshot);
        let sources = open_sources(dir, &snapshot, &guards, &budget)?;
        let map = AddressMap::new(&mut snapshot).map_err(|e| Error::of(&main, e))?;
        let image = std::mem::take(&mut snapshot.image);
        let is_flat = snapshot.log.layout().flat().is_some();
        let preamble = match snapshot.image_at {
            None if is_flat => Ok(Vec::new()),
            None => preamble::complete(image, &snapshot, &map),
            // Such an image is not that of the canonical file. The view then has nothing but the chunks.
            Some(_) => Ok(image),
        };
        let preamble = preamble.map_err(|e| Error::of(&main, e))?;
        let held = sources.iter().filter(|file| file.descriptor().is_some());
        let descriptors = held.count() as u64;
        let datasets = map.datasets.len();
        let on_disk = sources.iter().map(SourceFile::bytes_on_disk);
        let allowance = processor_time(on_disk.fold(0, u64::saturating_add));
        let same = before.filter(|(_, len)| *len == map.len());
        let generation = match same {
            Some((generation, _)) => generation,
            None => NEXT.fetch_add(1, Ordering::Relaxed),
        };
        Ok(Arc::new_cyclic(|view| View {
            readers: Readers::new(datasets, Weak::clone(view)),
            guards,
            weight: reservation.bytes() + descriptors * descriptor_charge(&budget),
            generation,
            allowance,
            map,
            preamble,
            sources,
            after_append: OnceLock::new(),
            selections: Selections::default(),
            budget,
            snapshot,
            reservation,
            saved,
            unkept: Mutex::default(),
            covered: OnceLock::new(),
            counting: SingleFlight::default(),
        }))
    }

    /// The place on disk for the indexes of this state of the log. `None` where they are not kept.
    pub fn saved(&self) -> Option<&StoreEntry> {
        self.saved.as_ref()
    }

    /// A number that no other state has in this process.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The memory that views share.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The snapshot of the scan, without the image of the file metadata, which the view has completed.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Path of the log file, of the directory that is the log, or of the file that a set of files makes up.
    pub fn path(&self) -> PathBuf {
        let Some(main) = self.sources.first().map(SourceFile::path) else {
            return PathBuf::new();
        };
        let joined = self.snapshot.joined.as_ref();
        match joined.and_then(|joined| joined.file_name()) {
            Some(name) => main.with_file_name(name),
            None => log_dir::name_of(main).to_owned(),
        }
    }

    /// The files with the bytes of the log, each with the place where it was found. The journal is not among them.
    pub fn files(&self) -> impl Iterator<Item = (&SourcePath, &SourceFile)> {
        let places = self.snapshot.sources.iter().map(|source| &source.place);
        places.zip(&self.sources)
    }

    /// Number of descriptors that the view takes.
    pub fn descriptors(&self) -> usize {
        let held = self
            .sources
            .iter()
            .filter(|file| file.descriptor().is_some());
        held.count()
    }

    /// Closes the descriptors that may be closed: of the files, their directories, and the place on disk for indexes.
    /// They are opened again when they are needed.
    pub fn release(&self) {
        self.sources.iter().for_each(SourceFile::release);
        if let Some(saved) = &self.saved {
            saved.release();
        }
    }

    /// The file of the log whose bytes are exactly those of the canonical file, if there is one.
    pub fn only_file(&self) -> Option<&SourceFile> {
        let flat = self.snapshot.log.layout().flat()?;
        let (source, _) = flat.one_piece(0, flat.len)?;
        let file = self.sources.get(usize::from(source))?;
        (file.len() == flat.len).then_some(file)
    }

    /// Length of the canonical file in bytes.
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    /// Whether the canonical file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Length of the user block and the file metadata, which lie at the start of the file. Where files of the log have
    /// the bytes of the canonical file as they are, metadata may lie anywhere.
    pub fn preamble_len(&self) -> u64 {
        if self.snapshot.log.layout().flat().is_some() {
            return self.len();
        }
        self.snapshot.user_block + self.preamble.len() as u64
    }

    /// Counts the memory of the view itself, without tables and indexes, for a user who has it open. `None` where the
    /// user's share of the budget is exceeded.
    pub fn hold_for(&self, user: u32) -> Option<Hold> {
        self.budget.hold(user, self.reservation.bytes())
    }

    /// Whether the log was deleted. A program that has it open reads on.
    pub fn is_deleted(&self) -> bool {
        self.sources.first().is_some_and(SourceFile::is_unlinked)
    }

    /// Bytes of tables and data that were read from the files of the log since the view was opened.
    pub fn log_bytes_read(&self) -> u64 {
        self.sources.iter().map(SourceFile::bytes_read).sum()
    }

    /// The chunk grid of dataset `number` of the snapshot.
    pub fn grid(&self, number: usize) -> &Grid {
        &self.map.datasets[number].grid
    }

    /// Fills `buf` with the bytes of the canonical file from `offset` on. Returns the number of bytes read, which is
    /// smaller than asked for only at the end of the file. The whole read fails where one of the bytes is not
    /// available.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.read_metadata(offset, buf) {
            Some(len) => Ok(len),
            None => self.read_for(&self.task(None), offset, buf),
        }
    }

    /// Fills `buf` with file metadata, if it asks for nothing else. This takes no task.
    fn read_metadata(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let at = offset.checked_sub(self.snapshot.user_block)?;
        let at = usize::try_from(at).ok()?;
        // A file that lies in others as it is has no preamble.
        let found = self.preamble.get(at..at.checked_add(buf.len())?)?;
        buf.copy_from_slice(found);
        Some(found.len())
    }

    /// A task for work with this view, on behalf of `user` where users share the budget.
    pub fn task(&self, user: Option<u32>) -> Task {
        self.budget.task(user).within(self.allowance)
    }

    /// [`View::read_at`] as part of `task`, whose memory is that of the view's budget.
    pub fn read_for(&self, task: &Task, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let task = &task.clone().within(self.allowance);
        let _running = self.running(task);
        let left = self.len().saturating_sub(offset);
        let wanted = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < wanted {
            done += self
                .regions()
                .read(task, offset + done as u64, &mut buf[done..wanted])?;
        }
        Ok(done)
    }

    /// The number of bytes from `offset` on that a reader of the whole file asks for at once: at most `most`, and up to the
    /// end of a slot where one ends within them. No chunk is then made for a part of it.
    pub fn up_to_a_slot(&self, offset: u64, most: u64) -> u64 {
        let Some(inside) = offset.checked_sub(self.snapshot.user_block) else {
            return most;
        };
        let end = inside.saturating_add(most);
        let (Some(Region::Chunks(number)), _) = self.map.region_at(end) else {
            return most;
        };
        let place = &self.map.datasets[number];
        let behind = end.saturating_sub(place.chunks) % place.slot.max(1);
        match end.checked_sub(behind) {
            Some(slot) if slot > inside => slot - inside,
            _ => most,
        }
    }

    fn dataset(&self, number: usize) -> (&Dataset, &Placement) {
        (&self.snapshot.datasets[number], &self.map.datasets[number])
    }

    /// The metadata of the canonical file, for code that reads HDF5 structures.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata(self)
    }

    /// The regions of the canonical file.
    #[inline]
    pub fn regions(&self) -> Regions<'_> {
        Regions::new(self)
    }

    /// The chunks of the datasets.
    #[inline]
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks::new(self)
    }

    /// The record tables, and the indexes of the datasets.
    #[inline]
    pub fn indexes(&self) -> Indexes<'_> {
        Indexes::new(self)
    }

    /// The holes of the canonical file.
    #[inline]
    pub fn holes(&self) -> Holes<'_> {
        Holes::new(self)
    }

    /// The places of chunks in the files of the log.
    #[inline]
    pub fn references(&self) -> References<'_> {
        References::new(self)
    }

    /// Questions of people about the view.
    #[inline]
    pub fn inspection(&self) -> Inspection<'_> {
        Inspection::new(self)
    }

    /// The elements of dataset `number`, for reads of boxes. Fails where they cannot be read at all. The caller calls
    /// [`Indexes::keep`] after its read, or in parallel.
    pub fn hyperslabs(&self, task: &Task, number: usize) -> Result<Hyperslabs<'_>> {
        Hyperslabs::open(self, task, number)
    }

    /// Pictures of how the datasets were written. `origins` comes from [`Indexes::origins`].
    pub fn pictures<'a>(&'a self, origins: &'a Origins) -> Pictures<'a> {
        Pictures::new(self, origins)
    }

    #[inline]
    fn ahead(&self) -> Ahead<'_> {
        Ahead::new(self)
    }

    /// Lets comparisons with checksums stop with `task`, because they may take long.
    fn running(&self, task: &Task) -> Option<Running> {
        (!self.guards.is_empty()).then(|| task.running())
    }

    /// Fails where a source file has changed. Call this after reading bytes: only then is it certain that they are
    /// those that the scan saw.
    fn check_unchanged(&self, sources: impl IntoIterator<Item = usize>) -> Result<()> {
        let mut sources = sources.into_iter();
        sources.try_for_each(|source| self.sources[source].check_unchanged())
    }

    fn bad_chunk(&self, id: ChunkId, fault: impl Into<Fault>) -> Error {
        let place = format!("chunk {:?}", self.grid(id.dataset).position(id.number));
        self.bad_data(id.dataset, place, fault)
    }

    fn bad_data(&self, number: usize, place: String, fault: impl Into<Fault>) -> Error {
        Error::BadData {
            path: self.path(),
            dataset: self.snapshot.datasets[number].name.clone(),
            place,
            fault: fault.into(),
        }
    }
}

fn open_sources(
    dir: &SourceDir,
    snapshot: &Snapshot,
    guards: &BTreeMap<usize, Arc<SealGuard>>,
    budget: &Arc<Budget>,
) -> Result<Vec<SourceFile>> {
    let Some(log) = snapshot.sources.first() else {
        return Ok(Vec::new());
    };
    let files = LogFiles::of_owner(dir, &log.place.path, log.identity.owner);
    let mut sources = Vec::with_capacity(snapshot.sources.len());
    for (number, source) in snapshot.sources.iter().enumerate() {
        let stats = Arc::clone(budget.stats());
        if snapshot.joined.is_some() && number > 0 {
            let file = SourceFile::on_demand(dir, &source.place, source.identity)?;
            sources.push(file.counted_in(stats));
            continue;
        }
        let file = if source.place == log.place {
            SourceFile::open_at(dir, &source.place)?
        } else {
            files.open(&source.place)?
        };
        let file = file.counted_in(stats);
        if !source.is_still(file.identity()) {
            return Err(Error::Changed {
                path: file.path().to_owned(),
            });
        }
        let file = file.arranged(source.arrangement.clone())?;
        let file = if source.grows {
            file.first_bytes(source.identity.size)?
        } else {
            file.with_lasting()?
        };
        sources.push(match guards.get(&number) {
            Some(guard) => file.guarded_by(Arc::clone(guard) as Arc<dyn Guard>),
            None => file,
        });
    }
    if dir.is_closed_between_uses() {
        let sources = sources.into_iter();
        return Ok(sources.map(SourceFile::closed_between_reads).collect());
    }
    Ok(sources)
}

fn guards(snapshot: &Snapshot) -> BTreeMap<usize, Arc<SealGuard>> {
    let files = snapshot.sealed.iter().flat_map(|sealed| &sealed.files);
    let guard = |file: &SealedFile| (usize::from(file.source), Arc::new(SealGuard::new(file)));
    files.map(guard).collect()
}

/// Reserves memory for the view of `snapshot`. `main` is the path of the log file.
fn reserve(
    task: &Task,
    snapshot: &Snapshot,
    limits: MemoryLimits,
    main: &Path,
) -> Result<Reservation> {
    let datasets = snapshot.datasets.len();
    let places = datasets * size_of::<Placement>() * 2;
    let sealed = snapshot.sealed.iter().flat_map(|sealed| &sealed.files);
    let guards: u64 = sealed.map(|file| SealGuard::most_memory(file.end())).sum();
    let bytes = (snapshot.bytes() + places + Readers::bytes(datasets)) as u64 + guards;
    check_limit("metadata", bytes, "index_memory", limits.index_memory)
        .map_err(|e| Error::of(main, e))?;
    let reservation = task.reserve(bytes);
    let reservation = reservation.map_err(|e| Error::of(main, e))?;
    reservation.release_share();
    Ok(reservation)
}

/// The most files that the cache of views keeps open, whatever the limit of the process is.
const MOST_DESCRIPTORS: u64 = 4096;

/// Bytes of `index_memory` that an open file is charged. The cache of views may keep half of the descriptors of the
/// process open, and at most [`MOST_DESCRIPTORS`]. This shares the memory among them.
fn descriptor_charge(budget: &Budget) -> u64 {
    let most = (descriptors::limit().max(2) / 2).min(MOST_DESCRIPTORS);
    budget.limits().index_memory / most
}

/// Fails where `bytes` exceed the `limit` that `option` sets.
fn check_limit(
    what: &'static str,
    bytes: u64,
    option: &'static str,
    limit: u64,
) -> Result<(), Fault> {
    if bytes <= limit {
        return Ok(());
    }
    Err(TooLarge {
        what,
        bytes,
        option,
        limit,
    }
    .into())
}
