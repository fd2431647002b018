//! Reads elements of a log while this process writes it: what all ranks have flushed, then what this rank has written
//! since, and what its [neighbours](crate::neighbours) have.
//!
//! The entries of the flushes are read from the data files, those since then from the section in memory. Both become
//! indexes, which the code of the view puts elements together with. Each flush and each entry is looked at once. The order of
//! what was written since the last flush is that which the next one gives it: what was spilled, in the order of the data
//! file, then the buffers in the order of the ranks.

mod others;

use std::collections::HashMap;
use std::fs::File;
use std::iter::once;
use std::ops::Range;
use std::path::Path;

use h5logfs_common::task::Task;
use h5logfs_log::boxes::Bounds;
use h5logfs_log::filters::Filter;
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

/// Bytes of decoded records that are kept.
const DECODED: u64 = 32 << 20;
/// Bytes of indexes that are kept, besides those of the dataset that is read.
const INDEXES: usize = 32 << 20;
/// The number of the source that is in memory: no data file has it.
const MEMORY: u16 = u16::MAX;

/// What the log holds now.
#[derive(Clone, Copy)]
pub struct Written<'a> {
    /// The files, which know what is flushed and spilled.
    pub files: &'a Files,
    /// The entries of this rank.
    pub section: &'a Section,
    /// The data of its pending entries.
    pub data: &'a [u8],
    /// Where this rank sees those of others.
    pub neighbours: Option<&'a Neighbours>,
}

/// A logged dataset, as the reader has to know it.
#[derive(Debug, Clone, Copy)]
pub struct Readable<'a> {
    /// Its ID.
    pub id: u32,
    /// Current extent.
    pub dims: &'a [u64],
    /// Chunk shape, if it has one.
    pub chunk: Option<&'a [u64]>,
    /// Bytes of one element.
    pub element: u64,
    /// One element, or empty for zeros.
    pub fill: &'a [u8],
    /// The filters that its records may have gone through.
    pub filters: &'a [Filter],
}

/// Reads elements of the log that a session writes. It holds descriptors of its own, and indexes of the datasets that
/// were read.
pub struct Reader {
    task: Task,
    flushed: Flushed,
    pending: Pending,
    /// What other ranks have written since the last flush, in the order of the ranks.
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
    /// Fills `out` with the elements of a box in row-major order: as the flushes have left them, with what this rank has
    /// written since; where no rank has written, the fill value. Always called with the files and the section of one log.
    pub fn read(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        start: &[u64],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<(), String> {
        let read = match dataset.check(start, count, out.len()) {
            Ok(Some(wanted)) => self.read_box(written, dataset, &wanted, out),
            Ok(None) => Ok(()),
            Err(reason) => Err(reason),
        };
        read.map_err(|reason| format!("{}: {reason}", written.files.path().display()))
    }

    fn read_box(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
        out: &mut [u8],
    ) -> Result<(), String> {
        let mut read =
            |elements: &Elements<'_>| elements.read(wanted, out).map_err(|e| e.to_string());
        self.with_elements(written, dataset, &mut read)?
    }

    /// Where a box of a dataset lies in one piece of a data file, if it does. What is not written to a file has no place.
    pub fn place(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
    ) -> Result<Option<Placed>, String> {
        self.with_elements(written, dataset, &mut |elements| elements.place(wanted))
    }

    /// Whether a record touches a box of a dataset.
    pub fn is_written(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        wanted: &Bounds,
    ) -> Result<bool, String> {
        self.with_elements(written, dataset, &mut |elements| {
            let mut indexes = elements.indexes.iter();
            indexes.any(|index| index.is_touched(wanted))
        })
    }

    /// Calls with all elements of a dataset, until no rank has emptied its buffer meanwhile, and returns the last answer.
    fn with_elements<R>(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        act: &mut dyn FnMut(&Elements<'_>) -> R,
    ) -> Result<R, String> {
        loop {
            self.take_in(written)?;
            let answer = self.with_known(written, dataset, act)?;
            if self.others.iter().all(Other::is_still_there) {
                return Ok(answer);
            }
        }
    }

    /// Takes in what was written since the last call.
    fn take_in(&mut self, written: &Written<'_>) -> Result<(), String> {
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
        // What others say is spilled lies behind the last flush that this rank knows.
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

    /// Calls with the elements that are known.
    fn with_known<R>(
        &mut self,
        written: &Written<'_>,
        dataset: &Readable<'_>,
        act: &mut dyn FnMut(&Elements<'_>) -> R,
    ) -> Result<R, String> {
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
    /// The box that is wanted; `None` where it has no elements.
    fn check(&self, start: &[u64], count: &[u64], out: usize) -> Result<Option<Bounds>, String> {
        let rank = self.dims.len();
        let ranks = [
            start.len(),
            count.len(),
            self.chunk.map_or(rank, <[u64]>::len),
        ];
        let is_fill = [0, self.element].contains(&(self.fill.len() as u64));
        if ranks != [rank; 3] || self.element == 0 || !is_fill {
            return Err(format!("a request that does not fit {self:?}"));
        }
        let ends = start.iter().zip(count).map(|(s, c)| s.checked_add(*c));
        let end: Option<Vec<u64>> = ends.collect();
        let inside = |end: &Vec<u64>| end.iter().zip(self.dims).all(|(e, dim)| e <= dim);
        let end = end.filter(inside).ok_or_else(|| {
            format!(
                "a box with start {start:?} and count {count:?} reaches out of the extent {:?}",
                self.dims
            )
        })?;
        let bytes = count
            .iter()
            .try_fold(self.element, |n, c| n.checked_mul(*c));
        if bytes != Some(out as u64) {
            return Err(format!("{out} bytes for a box of {count:?} elements"));
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

/// The entries in the data files: those of all ranks up to the last flush, and those that are known to be spilled since.
struct Flushed {
    /// The data files, then the file of this rank alone where it has spilled into one, or the memory of other ranks.
    sources: Vec<SourceFile>,
    /// Of each data file: the number and the end of the last flush that is known.
    known: Vec<(u64, u64)>,
    /// Of each source: the end of what is known.
    reached: Vec<u64>,
    /// How many extents that this rank has spilled since the flush `flush` are known.
    spilled: usize,
    /// How many of other ranks.
    spilled_by_others: usize,
    /// The last flush.
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

    /// Takes in what was flushed or spilled since the last call. Returns the number of a source from which a flush has moved
    /// what was known of it.
    fn update(&mut self, task: &Task, files: &Files) -> Result<Option<u16>, String> {
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
    fn add_spilled(&mut self, task: &Task, file: usize, extent: &Range<u64>) -> Result<(), String> {
        let (before, after) = ((self.flush, extent.start), (self.flush + 1, extent.end));
        self.add(task, file, before, after)?;
        self.spilled_by_others += 1;
        Ok(())
    }

    /// Adds the memory of another rank. Returns its number.
    fn add_source(&mut self, file: &File, path: &Path) -> Result<u16, String> {
        let number = self.sources.len() as u16;
        self.sources.push(source_of(file, path)?);
        Ok(number)
    }

    fn source(&self, number: u16) -> Result<&SourceFile, String> {
        let source = self.sources.get(usize::from(number));
        source.ok_or_else(|| format!("a log without source {number}"))
    }

    /// Adds the entries of the extents between two flushes of a data file, each a number and an end.
    fn add(
        &mut self,
        task: &Task,
        source: usize,
        before: (u64, u64),
        after: (u64, u64),
    ) -> Result<(), String> {
        let Some(file) = self.sources.get_mut(source) else {
            return Err(format!("a log without data file {source}"));
        };
        // What is spilled does not come in the order of the file.
        let ends = &mut self.reached;
        ends.resize(ends.len().max(source + 1), 0);
        let end = ends[source].max(after.1);
        ends[source] = end;
        file.set_len(end).map_err(|e| e.to_string())?;
        let source = source as u16;
        let found = sections_after(file, source, before, once(after));
        let found = found.map_err(|e| e.to_string())?;
        self.table.set_end(source, end);
        self.table.add_diagnostics(found.diagnostics);
        for section in &found.sections {
            let tables = TableBytes::Files(&self.sources);
            self.table.extend(task, tables, section)?;
        }
        Ok(())
    }

    /// Indexes the entries of a dataset.
    fn index(&mut self, task: &Task, dataset: &Logged<'_>) -> Result<(), String> {
        self.table.check()?;
        let tables = TableBytes::Files(&self.sources);
        // Records apply in the order of the data files. Other ranks may have spilled in front of this one.
        let settled = self.known.len() == 1 && self.spilled == 0 && self.spilled_by_others == 0;
        self.indexes
            .update(task, &self.table, tables, dataset, settled)
    }
}

/// The file of a rank alone: one in which extents wait for the data file, or its memory.
fn source_of(own: &File, data_path: &Path) -> Result<SourceFile, String> {
    let opened = own.try_clone();
    let opened = opened.and_then(|own| SourceFile::new(own, data_path.to_owned()));
    opened.map_err(|e| format!("{}: {e}", data_path.display()))
}

fn open_data_files(files: &Files) -> Result<Vec<SourceFile>, String> {
    let open = |path: &Path| {
        let file = File::open(path)?;
        files.id().check(&file)?;
        SourceFile::new(file, path.to_owned())
    };
    let open = |path: &Path| open(path).map_err(|e| format!("{}: {e}", path.display()));
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
    /// Where their data are.
    source: u16,
    /// The state of the section when it was looked at.
    seen: Seen,
    /// Of the whole section: pending entries may share the selections of others.
    table: GrowingTable,
    indexes: Indexes,
}

/// While these stay the same, pending entries are only added.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Seen {
    drops: u64,
    flushed: u64,
    base: u64,
}

impl Seen {
    fn of(section: &Section) -> Self {
        Seen {
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
            seen: Seen::default(),
            table,
            indexes: Indexes::default(),
        }
    }

    /// Takes in the entries since the last call. Returns whether those from before it are no longer pending.
    fn update(&mut self, task: &Task, section: &Section) -> Result<bool, String> {
        let now = Seen::of(section);
        let has_changed = now != self.seen;
        // The base changes only where data could not be written.
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

    /// Adds the entries in a range of bytes of the section.
    fn add(&mut self, task: &Task, section: &Section, range: Range<u64>) -> Result<(), String> {
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
        Ok(self.table.extend(task, tables, &more)?)
    }

    /// Indexes the entries of a dataset.
    fn index(
        &mut self,
        task: &Task,
        section: &Section,
        dataset: &Logged<'_>,
    ) -> Result<(), String> {
        self.table.check()?;
        let tables = TableBytes::Memory(section.bytes());
        self.indexes
            .update(task, &self.table, tables, dataset, true)
    }
}

/// The indexes of the datasets that were read, as far as there is room.
#[derive(Default)]
struct Indexes {
    by_dataset: HashMap<i64, Used>,
    /// Bytes of memory of all.
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
    /// Those of a dataset. Records of a later one apply later.
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
    ) -> Result<(), String> {
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

    /// Drops those that were used least recently, but not the last one.
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
