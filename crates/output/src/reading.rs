//! Reads elements of a log while this process writes it: the flushes of all ranks, then the pending writes of this rank and
//! of its [neighbours](crate::neighbours).
//!
//! Flushed entries are read from the data files, pending ones from the section in memory. Both become indexes for the code of
//! the view that assembles elements. Each flush and each entry is read once. Pending writes have the order that the next
//! flush gives them: spilled data in the order of the data file, then the buffers in the order of the ranks.

mod others;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::iter::once;
use std::ops::Range;
use std::path::Path;

use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::front::FRONT;
use h5logfs_log::logvol::Section as Entries;
use h5logfs_log::logvol::extent::sections_after;
use h5logfs_log::logvol::names::subfile;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::{Piece, TableBytes};
use h5logfs_log::{GrowingTable, Logged};
pub use h5logfs_view::elements::Placed;
use h5logfs_view::elements::{DecodedRecords, ElementForm, Elements, Unwritten};
use h5logfs_view::index::DatasetIndex;
use h5logfs_view::index::layers::Layers;

use crate::entries::Section;
use crate::files::Files;
use crate::neighbours::Neighbours;
use others::Other;

/// Bytes of decoded records in the cache.
const DECODED: u64 = 32 << 20;
/// Bytes of indexes that are kept, besides those of the dataset being read.
const INDEXES: usize = 32 << 20;
/// Number of the source in memory; no data file has it.
const MEMORY: u16 = u16::MAX;

/// The present content of the log.
#[derive(Clone, Copy)]
pub struct Written<'a> {
    /// The files of the log. They know the flushed and the spilled data.
    pub files: &'a Files,
    /// The entries of this rank.
    pub section: &'a Section,
    /// The data of this rank's pending entries.
    pub data: &'a [u8],
    /// Access to the pending entries of other ranks.
    pub neighbours: Option<&'a Neighbours>,
}

/// A logged dataset in the form that the reader needs.
#[derive(Debug, Clone, Copy)]
pub struct Readable<'a> {
    /// ID of the dataset.
    pub id: u32,
    /// Current extent.
    pub dims: &'a [u64],
    /// Chunk shape, if there is one.
    pub chunk: Option<&'a [u64]>,
    /// Size of one element in bytes.
    pub element: u64,
    /// The fill value as one element; empty for zeros.
    pub fill: &'a [u8],
    /// Filters that its records may have passed.
    pub filters: &'a [Filter],
}

/// Reads elements of a log that this process writes. It has its own descriptors, and keeps indexes of the datasets read.
pub struct Reader {
    task: Task,
    flushed: Flushed,
    pending: Pending,
    /// Pending writes of other ranks, in the order of the ranks.
    others: Vec<Other>,
    decoded: DecodedRecords,
}

impl Default for Reader {
    fn default() -> Self {
        let task = Task::unlimited();
        Reader {
            flushed: Flushed::new(&task),
            pending: Pending::new(&task, MEMORY),
            others: Vec::new(),
            decoded: DecodedRecords::new(DECODED),
            task,
        }
    }
}

impl Reader {
    /// Fills `out` with the elements of a box in row-major order. The elements are those of the flushes, with the
    /// pending writes applied, and the fill value where no rank has written. All calls must be for one log.
    pub fn read(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        start: &[u64],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let read = match dataset.check(start, count, out.len()) {
            Ok(Some(wanted)) => self.read_box(written, dataset, &wanted, out),
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        read.map_err(|reason| reason.of_file(written.files.path()))
    }

    fn read_box(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        self.with_elements(written, dataset, &mut |elements| elements.read(wanted, out))?
    }

    /// The place of a box in a data file; `None` if it is not in one piece, or not in a file.
    pub fn place(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
    ) -> Result<Option<Placed>, Fault> {
        self.with_elements(written, dataset, &mut |elements| elements.place(wanted))
    }

    /// Whether a record touches a box of a dataset.
    pub fn is_written(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
    ) -> Result<bool, Fault> {
        self.with_elements(written, dataset, &mut |elements| {
            let mut indexes = elements.indexes.iter();
            indexes.any(|index| index.is_touched(wanted))
        })
    }

    /// Calls `act` with all elements of a dataset. Repeats the call until no rank has emptied its buffer during it.
    /// Returns the last answer.
    fn with_elements<R>(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        act: &mut dyn FnMut(&Elements<'_>) -> R,
    ) -> Result<R, Fault> {
        loop {
            self.update(written)?;
            let answer = self.with_known(written, dataset, act)?;
            if self.others.iter().all(Other::is_still_there) {
                return Ok(answer);
            }
        }
    }

    /// Reads the entries written since the last call.
    fn update(&mut self, written: &Written<'_>) -> Result<(), Fault> {
        let Reader {
            task,
            flushed,
            pending,
            others,
            decoded,
        } = self;
        let Written {
            files, neighbours, ..
        } = *written;
        // Spills that others report lie after the last flush that this rank knows.
        if let Some(moved) = flushed.update(task, files)? {
            decoded.forget(moved);
        }
        if pending.update(task, written.section)? {
            decoded.forget(MEMORY);
        }
        let Some(neighbours) = neighbours else {
            return Ok(());
        };
        if others.is_empty() {
            for opened in neighbours.open()? {
                let source = flushed.add_source(&opened.file, &opened.path)?;
                others.push(Other::new(task, opened, source));
            }
        }
        for other in others {
            let memory = flushed.source(other.source())?;
            if other.update(task, files.flushes(), memory)? {
                decoded.forget(other.source());
            }
            for (file, extent) in other.new_extents() {
                flushed.add_spilled(task, *file, extent)?;
            }
        }
        Ok(())
    }

    /// Calls `act` with the known elements.
    fn with_known<R>(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        act: &mut dyn FnMut(&Elements<'_>) -> R,
    ) -> Result<R, Fault> {
        let Reader {
            task,
            flushed,
            pending,
            others,
            decoded,
        } = self;
        let logged = dataset.logged();
        flushed.index(task, &logged)?;
        pending.index(task, written.section, &logged)?;
        for other in &mut *others {
            other.index(task, &logged)?;
        }
        let own = written.neighbours.map_or(0, Neighbours::own);
        let behind = others.partition_point(|other| other.rank() < own);
        let (before, behind) = others.split_at(behind);
        let indexes = flushed.indexes.of(logged.id);
        let indexes = indexes.chain(before.iter().flat_map(|other| other.indexes_of(logged.id)));
        let indexes = indexes.chain(pending.indexes.of(logged.id));
        let indexes = indexes.chain(behind.iter().flat_map(|other| other.indexes_of(logged.id)));
        let indexes: Vec<_> = indexes.collect();
        let elements = Elements {
            task,
            form: ElementForm {
                size: dataset.element,
                fill: dataset.fill,
                filters: dataset.filters,
                references: &[],
            },
            chunk: dataset.chunk,
            indexes: &indexes,
            sources: &flushed.sources,
            unwritten: Some(Unwritten {
                source: MEMORY,
                offset: written.section.base(),
                bytes: written.data,
            }),
            decoded,
        };
        Ok(act(&elements))
    }
}

impl Readable<'_> {
    /// The requested box; `None` if it has no elements.
    fn check(&self, start: &[u64], count: &[u64], out: usize) -> Result<Option<Bounds>, Fault> {
        let rank = self.dims.len();
        let ranks = [
            start.len(),
            count.len(),
            self.chunk.map_or(rank, <[u64]>::len),
        ];
        let is_fill = [0, self.element].contains(&(self.fill.len() as u64));
        if ranks != [rank; 3] || self.element == 0 || !is_fill {
            let reason = format!("a request that does not fit {self:?}");
            return Err(Fault::Refused(reason));
        }
        let ends = start.iter().zip(count).map(|(s, c)| s.checked_add(*c));
        let end: Option<Vec<u64>> = ends.collect();
        let inside = |end: &Vec<u64>| end.iter().zip(self.dims).all(|(e, dim)| e <= dim);
        let end = end.filter(inside).ok_or_else(|| {
            Fault::Refused(format!(
                "a box with start {start:?} and count {count:?} reaches out of the extent {:?}",
                self.dims
            ))
        })?;
        let bytes = count
            .iter()
            .try_fold(self.element, |n, c| n.checked_mul(*c));
        if bytes != Some(out as u64) {
            let reason = format!("{out} bytes for a box of {count:?} elements");
            return Err(Fault::Refused(reason));
        }
        Ok((out > 0).then(|| Bounds {
            start: start.to_vec(),
            end,
        }))
    }

    fn logged(&self) -> Logged<'_> {
        Logged {
            id: i64::from(self.id),
            dims: self.dims,
            element_size: self.element,
            filtered: !self.filters.is_empty(),
        }
    }
}

/// The entries in the data files: the entries of all ranks up to the last flush, and the known spilled ones.
struct Flushed {
    /// The data files, followed by this rank's own spill file, if any, or the memory of other ranks.
    sources: Vec<SourceFile>,
    /// For each data file: number and end of the last known flush.
    known: Vec<(u64, u64)>,
    /// For each source: end of the known entries.
    reached: Vec<u64>,
    /// Number of known extents that this rank has spilled since flush `flush`.
    spilled: usize,
    /// Number of known extents that other ranks have spilled.
    spilled_by_others: usize,
    /// Number of the last flush.
    flush: u64,
    table: GrowingTable,
    indexes: Indexes,
}

impl Flushed {
    fn new(task: &Task) -> Self {
        Flushed {
            sources: Vec::new(),
            known: Vec::new(),
            reached: Vec::new(),
            spilled: 0,
            spilled_by_others: 0,
            flush: 0,
            table: GrowingTable::new(task),
            indexes: Indexes::default(),
        }
    }

    /// Reads the entries flushed or spilled since the last call. Returns the number of a source whose known entries a flush
    /// has moved.
    fn update(&mut self, task: &Task, files: &Files) -> Result<Option<u16>, Fault> {
        let flush = files.flushes();
        let spilled_into = match files.own_file() {
            Some(_) => files.ends().len(),
            None => files.file_number(),
        };
        let has_moved = files.own_file().is_some() && self.spilled > 0 && self.flush != flush;
        if has_moved {
            *self = Flushed::new(task);
        }
        if self.sources.is_empty() {
            self.sources = open_data_files(files)?;
            self.known = vec![(0, FRONT); files.ends().len()];
        }
        if let Some(own) = files.own_file()
            && self.sources.len() == spilled_into
        {
            self.sources.push(source_of(own, files.data_path())?);
        }
        self.flush = flush;
        for (source, end) in files.ends().iter().enumerate() {
            let known = self.known.get(source).copied().unwrap_or_default();
            if *end > known.1 {
                self.add(task, source, known, (flush, *end))?;
                self.known[source] = (flush, *end);
                self.spilled = 0;
                self.spilled_by_others = 0;
            }
        }
        for extent in files.spilled().iter().skip(self.spilled) {
            let (before, after) = ((flush, extent.start), (flush + 1, extent.end));
            self.add(task, spilled_into, before, after)?;
            self.spilled += 1;
        }
        Ok(has_moved.then_some(spilled_into as u16))
    }

    /// Adds the entries of an extent that another rank has spilled into a data file.
    fn add_spilled(&mut self, task: &Task, file: usize, extent: &Range<u64>) -> Result<(), Fault> {
        let (before, after) = ((self.flush, extent.start), (self.flush + 1, extent.end));
        self.add(task, file, before, after)?;
        self.spilled_by_others += 1;
        Ok(())
    }

    /// Adds the memory of another rank as a source. Returns its number.
    fn add_source(&mut self, file: &File, path: &Path) -> Result<u16, Fault> {
        let number = self.sources.len() as u16;
        self.sources.push(source_of(file, path)?);
        Ok(number)
    }

    fn source(&self, number: u16) -> Result<&SourceFile, Fault> {
        let source = self.sources.get(usize::from(number));
        source.ok_or_else(|| format!("a log without source {number}").into())
    }

    /// Adds the entries of the extents between two flushes of a data file. A flush is given by number and end.
    fn add(
        &mut self,
        task: &Task,
        source: usize,
        before: (u64, u64),
        after: (u64, u64),
    ) -> Result<(), Fault> {
        let Some(file) = self.sources.get_mut(source) else {
            return Err(format!("a log without data file {source}").into());
        };
        // Spilled extents do not come in the order of the file.
        let ends = &mut self.reached;
        ends.resize(ends.len().max(source + 1), 0);
        let end = ends[source].max(after.1);
        ends[source] = end;
        file.set_len(end)?;
        let source = source as u16;
        let found = sections_after(file, source, before, once(after))?;
        self.table.set_end(source, end);
        self.table.add_diagnostics(found.diagnostics);
        for section in &found.sections {
            let tables = TableBytes::Files(&self.sources);
            self.table.extend(task, tables, section)?;
        }
        Ok(())
    }

    /// Indexes the entries of a dataset.
    fn index(&mut self, task: &Task, dataset: &Logged<'_>) -> Result<(), Fault> {
        self.table.check()?;
        let tables = TableBytes::Files(&self.sources);
        // Records apply in the order of the data files. Other ranks may have spilled at lower offsets than this one.
        let settled = self.known.len() == 1 && self.spilled == 0 && self.spilled_by_others == 0;
        self.indexes
            .update(task, &self.table, tables, dataset, settled)
    }
}

/// A private source of a rank: its spill file, or its memory.
fn source_of(own: &File, data_path: &Path) -> Result<SourceFile, Fault> {
    let opened = own.try_clone();
    let opened = opened.and_then(|own| SourceFile::new(own, data_path.to_owned()));
    opened.map_err(|e| Fault::from(e).of_file(data_path))
}

fn open_data_files(files: &Files) -> Result<Vec<SourceFile>, Fault> {
    let open = |path: &Path| {
        let file = File::open(path)?;
        files.id().check(&file)?;
        SourceFile::new(file, path.to_owned())
    };
    let open = |path: &Path| open(path).map_err(|e: io::Error| Fault::from(e).of_file(path));
    let header = files.header();
    if header.subfiles == 0 {
        return Ok(vec![open(files.path())?]);
    }
    let numbers = 0..header.subfiles;
    numbers
        .map(|number| open(&subfile(files.path(), number)))
        .collect()
}

/// The pending entries of a rank.
struct Pending {
    /// Number of the source with their data.
    source: u16,
    /// The state of the section at the previous update.
    seen: SectionState,
    /// Table of the whole section, because pending entries may share selections of others.
    table: GrowingTable,
    indexes: Indexes,
}

/// The state of a section. While it stays the same, entries are only appended.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct SectionState {
    drops: u64,
    flushed: u64,
    base: u64,
}

impl SectionState {
    fn of(section: &Section) -> Self {
        SectionState {
            drops: section.drops(),
            flushed: (section.len() - section.pending().len()) as u64,
            base: section.base(),
        }
    }
}

impl Pending {
    fn new(task: &Task, source: u16) -> Self {
        let mut table = GrowingTable::new(task);
        table.set_end(source, i64::MAX as u64);
        Pending {
            source,
            seen: SectionState::default(),
            table,
            indexes: Indexes::default(),
        }
    }

    /// Reads the entries since the last call. Returns whether the earlier ones are no longer pending.
    fn update(&mut self, task: &Task, section: &Section) -> Result<bool, Fault> {
        let now = SectionState::of(section);
        let has_changed = now != self.seen;
        // The base changes only after a failed write of data.
        if (now.drops, now.base) != (self.seen.drops, self.seen.base) {
            *self = Pending::new(task, self.source);
        } else if has_changed {
            self.forget();
        }
        self.seen = now;
        let known = self.table.len_of_section(self.source, 0);
        if known < now.flushed {
            self.add(task, section, known..now.flushed)?;
            self.forget();
        }
        let len = section.len() as u64;
        let known = known.max(now.flushed);
        if known < len {
            self.add(task, section, known..len)?;
        }
        Ok(has_changed)
    }

    fn forget(&mut self) {
        self.table.forget_entries();
        self.indexes = Indexes::default();
    }

    /// Adds the entries in a byte range of the section.
    fn add(&mut self, task: &Task, section: &Section, range: Range<u64>) -> Result<(), Fault> {
        let piece = Piece {
            offset: range.start,
            len: range.end - range.start,
        };
        let more = Entries {
            source: self.source,
            rank: 0,
            pieces: vec![piece],
        };
        let tables = TableBytes::Memory(section.bytes());
        self.table.extend(task, tables, &more)
    }

    /// Indexes the entries of a dataset.
    fn index(&mut self, task: &Task, section: &Section, dataset: &Logged<'_>) -> Result<(), Fault> {
        self.table.check()?;
        let tables = TableBytes::Memory(section.bytes());
        self.indexes
            .update(task, &self.table, tables, dataset, true)
    }
}

/// The indexes of the datasets read, within a limit.
#[derive(Default)]
struct Indexes {
    by_dataset: HashMap<i64, Used>,
    /// Total memory, in bytes.
    bytes: usize,
    /// Number of look-ups.
    time: u64,
}

#[derive(Default)]
struct Used {
    layers: Layers,
    bytes: usize,
    /// Time of the last look-up.
    at: u64,
}

impl Indexes {
    /// The indexes of a dataset. Records of a later index apply later.
    fn of(&self, dataset: i64) -> impl Iterator<Item = &DatasetIndex> {
        let used = self.by_dataset.get(&dataset).into_iter();
        used.flat_map(|used| used.layers.indexes())
    }

    /// Indexes all entries of a dataset.
    fn update(
        &mut self,
        task: &Task,
        table: &GrowingTable,
        tables: TableBytes<'_>,
        dataset: &Logged<'_>,
        settled: bool,
    ) -> Result<(), Fault> {
        self.time += 1;
        let used = self.by_dataset.entry(dataset.id).or_default();
        used.at = self.time;
        if used.layers.update(task, table, tables, dataset, settled)? {
            let bytes = used.layers.bytes();
            self.bytes = self.bytes - used.bytes + bytes;
            used.bytes = bytes;
            self.make_room();
        }
        Ok(())
    }

    /// Drops the least recently used indexes, but keeps the last one.
    fn make_room(&mut self) {
        while self.bytes > INDEXES && self.by_dataset.len() > 1 {
            let oldest = self.by_dataset.iter().min_by_key(|(_, used)| used.at);
            let oldest = oldest.map(|(id, _)| *id);
            let gone = oldest.and_then(|id| self.by_dataset.remove(&id));
            self.bytes -= gone.map_or(0, |used| used.bytes);
        }
    }
}

#[cfg(test)]
mod tests;
