//! The writer: each process of an MPI program logs elements of datasets independently, and all processes flush together.
//!
//! Definitions and flushes are collective: all ranks of the communicator make the same calls in the same order. Definitions
//! need no communication: every rank keeps an outline of the file, and comes to the same result. With the next flush, the
//! first rank writes the definitions to the journal, and the ranks compare a hash of them. If it differs, `left_out` finds
//! the differences. Writes are local, and only fill a buffer.
//!
//! A flush consists of an exclusive scan for the offsets, a write in which each rank adds one contiguous extent, a reduction
//! for the total and for errors, a line in the journal, and a broadcast of this commit. After that the data survive any
//! failure of the job.
//!
//! A file is created, or a log of earlier jobs, closed or not, is opened again ([`Writer::open`]).
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/pressure.rs")]
#![doc = "```"]

mod appends;
mod batch;
pub mod capi;
mod closing;
mod differences;
mod flushing;
mod left_out;
mod memory;
mod reopening;
mod spec;

use std::borrow::Cow;
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ::mpi::traits::Communicator;
use hdf5::H5Type;

pub use batch::Batch;
pub use h5logfs_common::fault::{Fault, Kind};
pub use h5logfs_log::journal::datatype::{Datatype, Member};
pub use h5logfs_log::journal::value::Value;
pub use h5logfs_output::{Error, Fsync, Options, Result, Selection, Subfiles};
pub use memory::MemorySpace;
pub use spec::{DatasetSpec, array_value, datatype_of, elements_value};

use appends::{Appends, Rows, number_of_rows};
use closing::Objects;
use h5logfs_log::journal::definition::{DatasetLayout, Defined, Definition, Outline};
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::source_dir::resolved;
use h5logfs_mpi::{MpiRanks, library};
use h5logfs_output::automatic::Call;
use h5logfs_output::entries::DatasetInfo;
use h5logfs_output::files::Files;
use h5logfs_output::lists::Lists;
use h5logfs_output::stored::Form;
use h5logfs_output::{Blocks, LogWriter, Ranks, check_outcome, check_same};
use left_out::LeftOut;
use memory::Source;
use spec::MemoryType;

/// The name of a dimension scale, or its prefix, by which netCDF recognizes a dimension without a variable.
pub const NETCDF_DIMENSION: &str = "This is a netCDF dimension but not a netCDF variable.";

/// A dataset of a [`Writer`]'s file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dataset(u32);

impl Dataset {
    /// Number of the dataset in the layout.
    pub fn id(self) -> u32 {
        self.0
    }

    /// The dataset with number `id`. A write fails if there is none.
    pub fn from_id(id: u32) -> Self {
        Dataset(id)
    }
}

/// A file written by the ranks of a communicator. If it is dropped without a close, it stays as the last flush left it:
/// h5logfs can read it, and `h5logfs recover` closes it.
pub struct Writer {
    path: PathBuf,
    /// Number of this rank.
    rank: u32,
    /// The buffer and the files. `None` once the file is closed.
    log: Option<LogWriter>,
    outline: Outline,
    /// The datatype of each dataset in the program's memory.
    memory: Vec<MemoryType>,
    /// Definitions since the last flush, which must be the same on all ranks.
    defined: Vec<Definition>,
    /// On the first rank: flushed definitions, without extents. Those of a log that was opened again add to `base`.
    flushed: Vec<Definition>,
    /// On the first rank: the objects of a log that was opened again, when it was.
    base: Option<MetadataImage>,
    /// The table of the log when it was reopened, as far as the first rank knows it.
    table: KnownTable,
    /// Attributes left out of the next complete flush, which reports them.
    left_out: LeftOut,
    /// Rows appended since the last flush.
    appends: Appends,
    /// Blocks of the current write in the dataset, and of recent ones that may be repeated.
    lists: Lists,
    /// Blocks of the current write in memory. Kept to save allocations.
    memory_blocks: Blocks,
    /// Why a write was refused on this rank. The next flush reports it to all ranks.
    refused: Option<Fault>,
    /// A refusal on some rank that a failed close has found, and has not reported yet.
    unreported: Option<Error>,
}

impl Writer {
    /// Creates a file. All ranks pass the same path and options. Duplicates `comm`. Fails on all ranks or on none, and then
    /// leaves everything as it was. Collective.
    pub fn create(
        path: impl AsRef<Path>,
        comm: &impl Communicator,
        options: Options,
    ) -> Result<Self> {
        let (path, ranks) = begin(path.as_ref(), comm, &options, "create")?;
        let files = Files::create(&path, &ranks, &options)?;
        Ok(Self::new(path, LogWriter::new(ranks, files, options)))
    }

    /// Opens a log again, to append to it: a closed one, or one whose job ended before the close. This library has made it, or an
    /// HDF5 program through the VOL connector. [`Writer::open_dataset`] finds its datasets. From now on the log is unclosed; its content is safe whatever
    /// happens, and the close makes one log of all. The number of ranks may differ from before. All ranks pass the same path
    /// and options. The options for new files (`overwrite`, `discard_unclosed`, `keep_unclosed`, `subfiles`) are refused.
    /// Duplicates `comm`. Collective.
    pub fn open(
        path: impl AsRef<Path>,
        comm: &impl Communicator,
        options: Options,
    ) -> Result<Self> {
        let (path, ranks) = begin(path.as_ref(), comm, &options, "open")?;
        let reopened = reopening::open(&path, &ranks, &options)?;
        let log = LogWriter::new(ranks, reopened.files, options);
        let mut writer = Self::new(path, log);
        writer.table = reopened.table;
        writer.outline = reopened.outline;
        let datasets = writer.outline.datasets.iter();
        let memory = datasets.map(|defined| MemoryType::of_file(&defined.layout.datatype));
        let memory: std::result::Result<_, Fault> = memory.collect();
        writer.memory = memory.map_err(|reason| writer.definition_error(reason))?;
        writer.base = (writer.rank == 0).then_some(reopened.image);
        Ok(writer)
    }

    fn new(path: PathBuf, log: LogWriter) -> Self {
        Writer {
            path,
            rank: log.ranks().rank(),
            log: Some(log),
            outline: Outline::default(),
            memory: Vec::new(),
            defined: Vec::new(),
            flushed: Vec::new(),
            base: None,
            table: KnownTable::default(),
            left_out: LeftOut::default(),
            appends: Appends::default(),
            lists: Lists::default(),
            memory_blocks: Blocks::default(),
            refused: None,
            unreported: None,
        }
    }

    /// Keeps a flushed definition for the close, on the first rank.
    fn keep_for_close(&mut self, definition: Definition) {
        // The outline has the extents, and what else changes datasets of a new log.
        let is_in_outline = match self.base {
            Some(_) => matches!(definition, Definition::Extent { .. }),
            None => definition.changes_dataset(),
        };
        if self.rank == 0 && !is_in_outline {
            self.flushed.push(definition);
        }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    // --- definitions -----------------------------------------------------------------------------

    /// Creates a group, and missing parent groups. An existing group stays as it is. Collective, without communication.
    pub fn group(&mut self, path: &str) -> Result<()> {
        let path = self.absolute(path);
        if self.log.is_some() && self.outline.has_group(&path) {
            return Ok(());
        }
        self.define_parents(&path)?;
        self.define(Definition::Group { path })
    }

    /// Creates a dataset, and missing parent groups. Collective, without communication.
    pub fn dataset(&mut self, path: &str, spec: DatasetSpec) -> Result<Dataset> {
        let path = self.absolute(path);
        let memory = MemoryType::new(spec.memory.clone());
        let defined = spec.layout().and_then(|layout| Ok((layout, memory?)));
        let (layout, memory) =
            defined.map_err(|e| self.definition_error(e.at(format_args!("dataset {path}"))))?;
        self.define_parents(&path)?;
        let id = self.memory.len() as u32;
        let layout = Box::new(layout);
        self.define(Definition::Dataset { path, layout })?;
        self.memory.push(memory);
        Ok(Dataset(id))
    }

    /// Finds a dataset of a reopened log, or one that this writer has made. `T` is the type of its elements in memory. Fails
    /// if the dataset has another type. Local.
    pub fn open_dataset<T: H5Type>(&mut self, path: &str) -> Result<Dataset> {
        self.open_dataset_of(path, datatype_of::<T>())
    }

    /// Finds a dataset with a datatype known only at run time: see [`Writer::open_dataset`]. Local.
    pub fn open_dataset_as(&mut self, path: &str, memory: Datatype) -> Result<Dataset> {
        self.open_dataset_of(path, Ok(memory))
    }

    fn open_dataset_of(
        &mut self,
        path: &str,
        memory: std::result::Result<Datatype, Fault>,
    ) -> Result<Dataset> {
        if self.log.is_none() {
            return Err(Error::closed(&self.path));
        }
        let path = self.absolute(path);
        let opened = memory.and_then(|memory| {
            let id = self.outline.dataset_at(&path)?;
            self.check_elements(id)?;
            let layout = &self.outline.datasets[id as usize].layout;
            let known = &mut self.memory[id as usize];
            let stated = known.state(MemoryType::new(memory)?, &layout.datatype);
            stated.map_err(|e| e.at(format_args!("dataset {path}")))?;
            Ok(Dataset(id))
        });
        opened.map_err(|reason| self.definition_error(reason))
    }

    /// Whether the file has a group or a dataset at `path`. Local.
    pub fn exists(&self, path: &str) -> bool {
        self.outline.has_object(&self.absolute(path))
    }

    /// Creates an attribute of the object at `path`; `/` is the root group. Collective, without communication. An attribute
    /// that differs between ranks is left out, and the next flush returns [`Error::Refused`], which names it. Its name can be
    /// defined again.
    pub fn attribute(&mut self, path: &str, name: &str, value: impl Into<Value>) -> Result<()> {
        self.define(Definition::Attribute {
            object: self.absolute(path),
            name: name.to_owned(),
            value: value.into(),
        })
    }

    /// Sets the extent of a dataset. Dimensions can only grow. Collective, without communication.
    pub fn extend(&mut self, dataset: Dataset, dims: &[u64]) -> Result<()> {
        self.define(Definition::Extent {
            dataset: dataset.0,
            dims: dims.to_vec(),
        })
    }

    /// Makes a dataset of one dimension a dimension scale, which [`Writer::attach_scale`] attaches to dimensions of datasets.
    /// An empty name is none. netCDF takes the name of the dataset as that of the dimension; a scale whose name begins with
    /// [`NETCDF_DIMENSION`] is a dimension without a variable. Collective, without communication.
    pub fn make_scale(&mut self, dataset: Dataset, name: &str) -> Result<()> {
        self.define(Definition::Scale {
            dataset: dataset.0,
            name: name.to_owned(),
        })
    }

    /// Attaches a dimension scale to a dimension of a dataset. The first dimension is 0. A dimension may have
    /// several scales. Collective, without communication.
    pub fn attach_scale(&mut self, dataset: Dataset, dimension: u32, scale: Dataset) -> Result<()> {
        self.define(Definition::Attachment {
            dataset: dataset.0,
            dimension,
            scale: scale.0,
        })
    }

    /// Labels a dimension of a dataset, once. The first dimension is 0. Collective, without communication.
    pub fn set_label(&mut self, dataset: Dataset, dimension: u32, label: &str) -> Result<()> {
        self.define(Definition::Label {
            dataset: dataset.0,
            dimension,
            label: label.to_owned(),
        })
    }

    /// The extent of a dataset.
    pub fn dims(&self, dataset: Dataset) -> Result<&[u64]> {
        let defined = self.outline.datasets.get(dataset.0 as usize);
        let defined = defined.ok_or_else(|| self.unknown(dataset))?;
        Ok(&defined.layout.dims)
    }

    /// The path of an object, from the root group on. A link of an HDF5 program may lead to it.
    fn absolute(&self, path: &str) -> String {
        let path = absolute(path);
        match self.outline.resolved(&path) {
            Cow::Owned(resolved) => resolved,
            Cow::Borrowed(_) => path,
        }
    }

    /// Fails where the writer cannot write elements of a dataset that an HDF5 program has made.
    fn check_elements(&self, id: u32) -> std::result::Result<(), Fault> {
        let defined = self.outline.datasets.get(id as usize);
        match defined.and_then(|defined| defined.foreign.as_ref()) {
            Some(why) => Err(Fault::Refused(format!(
                "dataset {}: {why}; HDF5 programs can write it, with the VOL connector of h5logfs",
                self.path_of(Dataset(id))
            ))),
            None => Ok(()),
        }
    }

    fn define_parents(&mut self, path: &str) -> Result<()> {
        for path in self.outline.missing_groups(path) {
            self.define(Definition::Group { path })?;
        }
        Ok(())
    }

    fn define(&mut self, definition: Definition) -> Result<()> {
        self.check_process()?;
        let log = self.log.as_mut();
        let log = log.ok_or_else(|| Error::closed(&self.path))?;
        // Attributes may differ between ranks.
        let is_same = !matches!(definition, Definition::Attribute { .. });
        if is_same && log.begin_call(Call::Collective) {
            self.flush_automatically();
        }
        let added = self.outline.add(&definition);
        added.map_err(|reason| self.definition_error(reason))?;
        self.defined.push(definition);
        Ok(())
    }

    // --- writes ----------------------------------------------------------------------------------

    /// Logs elements, row-major over the selection. Copies the data. Local.
    ///
    /// A write that does not match the dataset is refused, and the next flush reports it to all ranks. A full buffer, and a
    /// large write, go to the file and wait there for the next flush. [`Error::BufferFull`] means that neither the file nor,
    /// because of appended rows, the buffer has room for a write. It can be repeated after a flush; the program must tell the
    /// other ranks to flush.
    pub fn write<T: H5Type>(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: &[T],
    ) -> Result<()> {
        let written = self.check_type::<T>(dataset).and_then(|()| {
            // SAFETY: a `T` has the datatype of the dataset.
            unsafe { self.buffer_write(dataset, selection, Source::of(data)) }
        });
        self.remember_refusal(written)
    }

    /// Logs a selected part of a larger array, for example the inner cells of a grid with ghost cells. `data` is the whole
    /// array. Copies the selected elements. Local. See [`Writer::write`].
    pub fn write_from<T: H5Type>(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        space: MemorySpace<'_>,
        data: &[T],
    ) -> Result<()> {
        let written = self.check_type::<T>(dataset).and_then(|()| {
            let source = Source::of(data).within(space);
            // SAFETY: a `T` has the datatype of the dataset.
            unsafe { self.buffer_write(dataset, selection, source) }
        });
        self.remember_refusal(written)
    }

    /// Logs elements of a type known only at run time. Copies the data. Local.
    ///
    /// # Safety
    /// `data` points to `count` elements of the dataset's datatype in memory.
    pub unsafe fn write_raw(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        let source = Source::new(data, count);
        // SAFETY: promised by the caller.
        unsafe { self.write_elements(dataset, selection, source) }
    }

    /// # Safety
    /// `source` has elements of the dataset's datatype.
    pub(crate) unsafe fn write_elements(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        source: Source<'_>,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let written = unsafe { self.buffer_write(dataset, selection, source) };
        self.remember_refusal(written)
    }

    /// Appends rows to a dataset whose first dimension is unlimited. The next flush counts the rows of all ranks, extends the
    /// dataset, and puts the rows after its previous extent: those of a lower rank first, those of a rank in order. Ranks may
    /// append any number of rows, or none. Copies the data. Local.
    ///
    /// Errors are those of [`Writer::write`].
    pub fn append<T: H5Type>(&mut self, dataset: Dataset, rows: &[T]) -> Result<()> {
        let appended = self.check_type::<T>(dataset).and_then(|()| {
            // SAFETY: a `T` has the datatype of the dataset.
            unsafe { self.buffer_rows(dataset, Source::of(rows)) }
        });
        self.remember_refusal(appended)
    }

    /// Appends rows of a type known only at run time. Local. See [`Writer::append`].
    ///
    /// # Safety
    /// `data` points to `count` elements of the dataset's datatype in memory.
    pub unsafe fn append_raw(
        &mut self,
        dataset: Dataset,
        data: *const u8,
        count: usize,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        let appended = unsafe { self.buffer_rows(dataset, Source::new(data, count)) };
        self.remember_refusal(appended)
    }

    /// The indices that the last complete flush gave to this rank's appended rows. Local.
    pub fn appended(&self, dataset: Dataset) -> Result<Range<u64>> {
        match self.outline.datasets.get(dataset.0 as usize) {
            Some(_) => Ok(self.appends.flushed(dataset.0)),
            None => Err(self.unknown(dataset)),
        }
    }

    /// Starts writes without copies: see [`Batch`].
    pub fn batch<'d>(&mut self) -> Batch<'_, 'd> {
        Batch::new(self)
    }

    /// Bytes in this rank's buffer, data and entries.
    pub fn buffered(&self) -> u64 {
        self.log.as_ref().map_or(0, LogWriter::buffered) + self.appends.bytes()
    }

    fn check_type<T: H5Type>(&mut self, dataset: Dataset) -> Result<()> {
        let Some(memory) = self.memory.get_mut(dataset.0 as usize) else {
            return Err(self.unknown(dataset));
        };
        if memory.is::<T>() {
            return Ok(());
        }
        let reason = Fault::Refused(format!(
            "elements of type {} were written to a dataset of {}",
            std::any::type_name::<T>(),
            memory.datatype.short()
        ));
        Err(self.write_error(dataset, reason))
    }

    /// # Safety
    /// See [`Writer::write_raw`].
    unsafe fn buffer_write(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        source: Source<'_>,
    ) -> Result<()> {
        self.check_process()?;
        if let Some(log) = &mut self.log {
            log.begin_write();
        }
        self.select(dataset, selection, &source)?;
        let blocks = self.lists.blocks();
        let bytes = blocks.elements * self.memory[dataset.0 as usize].size as u64;
        let wanted = bytes.saturating_add(blocks.max_encoded_len());
        let form = form_of(&self.outline.datasets[dataset.0 as usize].layout);
        let log = self.log.as_ref();
        let log = log.ok_or_else(|| Error::closed(&self.path))?;
        let goes_through = log.goes_through(form, blocks);
        if !goes_through {
            self.check_room(dataset, wanted)?;
        }
        let memory = &self.memory[dataset.0 as usize];
        let layout = &self.outline.datasets[dataset.0 as usize].layout;
        // SAFETY: promised by the caller.
        let bytes = unsafe { source.packed(memory, &self.memory_blocks) };
        let log = self.log.as_mut();
        let log = log.ok_or_else(|| Error::closed(&self.path))?;
        let info = info_of(dataset.0, layout);
        let pushed = log.push(info, form_of(layout), self.lists.blocks(), bytes);
        pushed.map_err(|reason| {
            if goes_through {
                self.buffer_full(dataset, wanted, Some(reason))
            } else {
                self.write_error(dataset, reason)
            }
        })
    }

    /// Makes room for `wanted` more bytes in the buffer. Fails if there is none. Appended rows stay in the buffer, because
    /// only a flush assigns their places.
    fn check_room(&mut self, dataset: Dataset, wanted: u64) -> Result<()> {
        let log = self.log.as_mut();
        let log = log.ok_or_else(|| Error::closed(&self.path))?;
        let limit = log.options().buffer_limit;
        let rows = self.appends.bytes();
        let made = if rows.saturating_add(wanted) <= limit {
            log.make_room(wanted, rows)
        } else {
            Ok(())
        };
        if self.buffered().saturating_add(wanted) <= limit {
            return Ok(());
        }
        Err(self.buffer_full(dataset, wanted, made.err()))
    }

    fn buffer_full(&self, dataset: Dataset, wanted: u64, reason: Option<Fault>) -> Error {
        Error::BufferFull {
            file: self.path.clone(),
            rank: self.rank,
            dataset: self.path_of(dataset),
            limit: self
                .log
                .as_ref()
                .map_or(0, |log| log.options().buffer_limit),
            held: self.buffered(),
            wanted,
            reason,
        }
    }

    /// # Safety
    /// See [`Writer::append_raw`].
    unsafe fn buffer_rows(&mut self, dataset: Dataset, source: Source<'_>) -> Result<()> {
        // SAFETY: promised by the caller.
        let rows = unsafe { self.rows(dataset, source) }?;
        self.check_room(dataset, rows.bytes.len() as u64)?;
        if rows.number > 0 {
            self.appends.push(rows);
        }
        Ok(())
    }

    /// # Safety
    /// `source` has elements of the dataset's datatype, which live and do not change as long as the result.
    unsafe fn rows<'d>(&self, dataset: Dataset, source: Source<'_>) -> Result<Rows<'d>> {
        self.check_process()?;
        if self.log.is_none() {
            return Err(Error::closed(&self.path));
        }
        let defined = self.outline.datasets.get(dataset.0 as usize);
        let Defined { layout, .. } = defined.ok_or_else(|| self.unknown(dataset))?;
        let writable = self.check_elements(dataset.0);
        writable.map_err(|reason| self.write_error(dataset, reason))?;
        let memory = &self.memory[dataset.0 as usize];
        let number = source.check_size(memory);
        let number = number.and_then(|()| number_of_rows(layout, source.count as u64));
        Ok(Rows {
            dataset: dataset.0,
            number: number.map_err(|reason| self.write_error(dataset, reason))?,
            shape: layout.dims[1..].to_vec(),
            // SAFETY: promised by the caller.
            bytes: unsafe { memory.packed(source.data, source.count) },
        })
    }

    /// Lists the blocks of a selection in `self.lists`, and those of the elements in memory in `self.memory_blocks`. Fails if
    /// their numbers of elements differ.
    fn select(
        &mut self,
        dataset: Dataset,
        selection: Selection<'_>,
        source: &Source<'_>,
    ) -> Result<()> {
        self.check_process()?;
        if self.log.is_none() {
            return Err(Error::closed(&self.path));
        }
        let defined = self.outline.datasets.get(dataset.0 as usize);
        let defined = defined.ok_or_else(|| self.unknown(dataset))?;
        if defined.foreign.is_some() {
            let writable = self.check_elements(dataset.0);
            writable.map_err(|reason| self.write_error(dataset, reason))?;
        }
        let listed = self.lists.set(&selection, &defined.layout.dims);
        let listed = listed.map(|blocks| blocks.elements);
        let wanted = listed.map_err(|reason| self.write_error(dataset, reason))?;
        let size = source.check_size(&self.memory[dataset.0 as usize]);
        size.map_err(|reason| self.write_error(dataset, reason))?;
        let selected = source.select(wanted, &mut self.memory_blocks);
        selected.map_err(|what| {
            let reason = what.told(format!(
                "{what} for a selection of {wanted} ({selection}, of the extent {:?})",
                self.outline.datasets[dataset.0 as usize].layout.dims
            ));
            self.write_error(dataset, reason)
        })
    }

    /// Fails in a process forked from the one that opened the file.
    fn check_process(&self) -> Result<()> {
        let log = self.log.as_ref();
        log.map_or(Ok(()), LogWriter::check_process)
    }

    // Errors of this rank leave the writer through these functions, which add file and rank.

    fn write_error(&self, dataset: Dataset, reason: Fault) -> Error {
        Error::Write {
            file: self.path.clone(),
            rank: self.rank,
            dataset: self.path_of(dataset),
            reason,
        }
    }

    fn definition_error(&self, reason: Fault) -> Error {
        Error::Definition {
            file: self.path.clone(),
            rank: self.rank,
            reason,
        }
    }

    fn unknown(&self, dataset: Dataset) -> Error {
        let reason = format!("there is no dataset {} in this file", dataset.0);
        self.definition_error(Fault::Refused(reason))
    }

    /// The file and the rank, as the start of a message.
    pub(crate) fn place(&self) -> String {
        format!("{}: rank {}", self.path.display(), self.rank)
    }

    /// The path of a dataset of this file.
    fn path_of(&self, dataset: Dataset) -> String {
        self.outline.datasets[dataset.0 as usize].path.clone()
    }

    /// Remembers a refused write, for the report of the next flush.
    fn remember_refusal(&mut self, written: Result<()>) -> Result<()> {
        match &written {
            Err(Error::Write {
                dataset, reason, ..
            }) => self.refuse(reason.told(format!("dataset {dataset}: {reason}"))),
            Err(Error::Definition { reason, .. }) => self.refuse(reason.clone()),
            _ => {}
        }
        written
    }

    /// Refuses a write. The next flush reports the first reason.
    pub(crate) fn refuse(&mut self, reason: Fault) {
        self.refused.get_or_insert(reason);
    }

    // --- collective ------------------------------------------------------------------------------

    /// Flushes, turns the file into an HDF5 file in the Log VOL layout, and removes the journal. With the option `settle` the
    /// file then becomes an ordinary HDF5 file. After [`Error::Refused`] and [`Error::NotSettled`] the file is closed; after
    /// any other error it is still open. In a process forked from the one that opened the file, the close only releases
    /// memory, and the file stays as it is. Collective.
    pub fn close(&mut self) -> Result<()> {
        if self.check_process().is_err() {
            if let Some(log) = self.log.take() {
                log.leak();
            }
            return Ok(());
        }
        let flushed = self.flush();
        self.finish(flushed)
    }

    /// Closes the file after the flush.
    fn finish(&mut self, flushed: Result<()>) -> Result<()> {
        let flushed = match flushed {
            Ok(()) => self.unreported.take().map_or(Ok(()), Err),
            Err(Error::Refused { .. }) => flushed,
            Err(_) => return flushed,
        };
        let log = self.log.as_ref();
        let log = log.ok_or_else(|| Error::closed(&self.path))?;
        self.unreported = flushed.clone().err();
        let objects = Objects {
            base: self.base.as_ref(),
            definitions: &self.flushed,
            datasets: &self.outline.datasets,
        };
        let closed = closing::close(log, objects, mem::take(&mut self.table))?;
        let Options {
            settle,
            settle_memory,
            ..
        } = *log.options();
        if self.rank == 0 && !settle {
            let closing::Closed { log: just, image } = closed;
            if reopening::is_remembered(&image) {
                reopening::CLOSED.remember(&self.path, image, log.files().base(), just);
            }
        }
        let Some(ranks) = self.log.take().map(LogWriter::close) else {
            return flushed;
        };
        if !settle {
            return flushed;
        }
        let settled = closing::settle(&self.path, &ranks, settle_memory);
        match (flushed, settled) {
            (flushed, Ok(())) => flushed,
            (Ok(()), not_settled) => not_settled,
            (Err(refused), Err(not_settled)) => Err(refused.with(&not_settled)),
        }
    }
}

impl Drop for Writer {
    /// Does not close the file, because a close is collective and the other ranks may not make it.
    fn drop(&mut self) {
        if let Some(log) = self.log.take() {
            if log.is_forked() {
                return log.leak();
            }
            log::warn!(
                "{}: dropped without a close; it shows what was flushed, and `h5logfs recover` closes it",
                self.path.display()
            );
            log.leak();
        }
    }
}

/// The properties of a dataset for its entries.
fn info_of(id: u32, layout: &DatasetLayout) -> DatasetInfo<'_> {
    DatasetInfo::new(id, &layout.dims, &layout.max_dims).with_filters(&layout.filters)
}

/// The storage form of a dataset's elements.
fn form_of(layout: &DatasetLayout) -> Form<'_> {
    Form {
        element: layout.datatype.size().into(),
        chunk: layout.chunk.as_deref(),
        filters: &layout.filters,
    }
}

/// The path and the ranks of a file to be opened or created, if all ranks pass the same arguments. Collective.
fn begin(
    given: &Path,
    comm: &impl Communicator,
    options: &Options,
    operation: &'static str,
) -> Result<(PathBuf, Ranks)> {
    // Before the close, the program may change its directory, or remove one that the path leads through.
    let path = resolved(given);
    // The outcome is the same on all ranks.
    library::check()
        .and_then(|()| library::check_launch())
        .map_err(|reason| Error::Failed {
            file: path.clone(),
            operation,
            rank: 0,
            reason,
        })?;
    // A single process needs MPI only for MPI-IO.
    let ranks = if comm.size() == 1 && !options.collective && options.hints.is_empty() {
        Ranks::one()
    } else {
        Ranks::new(MpiRanks::duplicate(comm))
    };
    let same = ranks.agree(check_same(given, options, &ranks));
    check_outcome(&path, operation, same)?;
    Ok((path, ranks))
}

/// Adds a missing slash in front.
fn absolute(path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("/{path}")
    }
}
