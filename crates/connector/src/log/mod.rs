//! A log that this process writes, alone or with other ranks.
//!
//! The *metadata image* holds the objects of the log. It is a native file in memory, equal on all ranks. A write of elements
//! appends records to a buffer. A flush writes the buffers of all ranks, and the changes of the metadata image, to the log.
//!
//! [`WrittenLog`] itself covers the log, its flush and its close; all its own methods are in this file. Operations on datasets are
//! methods of structs over it, such as [`WrittenLog::transfers`].
//!
//! | module | contents |
//! |---|---|
//! | `metadata_image` | the metadata image: creation, reopening, its bytes |
//! | `dataset` | a logged dataset, and the rules for what can be logged |
//! | `selection` | dataspaces as blocks of a dataset, and as places in memory |
//! | `walks` | selections of many blocks |
//! | `elements` | gathers, converts and scatters elements |
//! | `expression` | transfers with an expression (`H5Pset_data_transform`) |
//! | `transfer` | `H5Dwrite` and `H5Dread` |
//! | `extent` | `H5Dset_extent` |
//! | `parts` | boxes of elements, for copies |
//! | `chunks` | `H5Dwrite_chunk`, `H5Dread_chunk` and queries about chunks |
//! | `making` | datasets of the metadata image: creation and look-up |
//! | `questions` | queries about a dataset that the metadata image cannot answer |
//! | `closed` | metadata images of closed logs, for the next opening |
//! | `version` | a number that grows with each flush |
//! | `reopening` | opens a log again to append to it |

mod chunks;
pub mod closed;
pub mod dataset;
mod elements;
mod expression;
mod extent;
pub mod making;
pub mod metadata_image;
mod parts;
mod questions;
mod reopening;
mod selection;
pub mod transfer;
pub mod version;
mod walks;

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::fmt::Display;
use std::hash::{BuildHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::FixedState;
use h5logfs_catalog::direct::{self, Close, Closed};
use h5logfs_host::Kind;
use h5logfs_host::types::{DEFAULT, Id};
use h5logfs_log::journal::Line;
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::metadata_image::{LoggedDataset, Packing, packed_image_lines};
use h5logfs_objects::closed::ClosedObjects;
use h5logfs_output::automatic::{Call, Cause};
use h5logfs_output::log_writer::Part;
use h5logfs_output::neighbours::NodeMemory;
use h5logfs_output::plain_close::{Ended, JustClosed};
use h5logfs_output::reading::Reader;
use h5logfs_output::remembered::LARGEST;
use h5logfs_output::{Error, Fsync, GlobalOutcome, LocalOutcome, LogWriter};
use parking_lot::Mutex;

use crate::below::ending;
use crate::below::list::PropertyList;
use crate::library::Library;
use h5logfs_common::fault::Fault;
use h5logfs_common::process::Process;

use chunks::Chunks;
use closed::{FileState, KeptImage};
use dataset::{Dataset, Extent, Parts, RecentTypes, Wanted};
use making::Datasets;
use metadata_image::MetadataImage;
use parts::Boxes;
use questions::Questions;
use reopening::CLOSED;
pub use reopening::append;
use transfer::{Kept, Transfers};

/// Variables of libhdf5 that hold the native number types of C.
const PREDEFINED: [&CStr; 14] = [
    c"H5T_NATIVE_SCHAR_g",
    c"H5T_NATIVE_UCHAR_g",
    c"H5T_NATIVE_SHORT_g",
    c"H5T_NATIVE_USHORT_g",
    c"H5T_NATIVE_FLOAT_g",
    c"H5T_NATIVE_DOUBLE_g",
    c"H5T_NATIVE_INT_g",
    c"H5T_NATIVE_UINT_g",
    c"H5T_NATIVE_LONG_g",
    c"H5T_NATIVE_ULONG_g",
    c"H5T_NATIVE_LLONG_g",
    c"H5T_NATIVE_ULLONG_g",
    c"H5T_IEEE_F32LE_g",
    c"H5T_IEEE_F64LE_g",
];

/// A log that this process writes.
#[derive(Debug)]
pub struct WrittenLog {
    library: Library,
    metadata_image: MetadataImage,
    types: RecentTypes,
    constants: Arc<Constants>,
    /// The number of the opening, if the log was opened again. All ranks know it.
    opening: Option<u64>,
    /// Whether flushes happen without a request of the program.
    is_automatic: bool,
    /// Whether several ranks write the log.
    is_parallel: bool,
    /// The process that writes the log.
    process: Process,
    /// The changing part of the log, under one lock.
    ///
    /// Flush and close hold the lock during their I/O, their collective calls and the flush of the metadata image: the ranks
    /// agree on this state, so nobody may change it meanwhile. Reads and writes of the log's own files hold it, because a flush
    /// moves the bytes that they read. libhdf5 runs no function of the program in these calls. A conversion of elements may run
    /// one, and that function may use this log. So the lock is not held during a conversion.
    state: Mutex<State>,
}

/// Identifiers of a library that no program can change until the library terminates.
#[derive(Debug)]
pub struct Constants {
    /// Predefined types.
    predefined: Vec<Id>,
    /// The data transfer property list of programs that make none.
    default_transfer: Option<Id>,
}

impl Constants {
    /// Reads them from a library.
    pub fn of(library: &Library) -> Self {
        let predefined = PREDEFINED.iter();
        Constants {
            predefined: predefined
                .filter_map(|name| library.identifier(name))
                .collect(),
            default_transfer: library.identifier(c"H5P_LST_DATASET_XFER_ID_g"),
        }
    }
}

/// Changes that no flush covers yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// None: this call of the program has flushed the log.
    Nothing,
    /// Elements only; the objects are unchanged.
    Elements,
    /// Elements and objects.
    Changes,
}

/// The changing part of a log.
struct State {
    library: Library,
    path: PathBuf,
    /// The buffer and the files. `None` once the log is closed.
    writer: Option<LogWriter>,
    /// The logged datasets, by ID. `None` for an ID whose dataset this job has not used yet, or that was deleted.
    datasets: Vec<Option<Arc<Dataset>>>,
    /// The ends of datasets that this process has written in earlier openings, by ID: see [`dataset::Extent::reached`].
    reached: HashMap<u32, Vec<u64>>,
    /// The number of datasets from earlier jobs.
    base: usize,
    /// A checksum of the datasets that this job has made, in order.
    made: u64,
    /// IDs of datasets, by the addresses of their object headers.
    headers: HashMap<u64, u32>,
    /// IDs whose present header is not in the journal yet.
    unrecorded: BTreeSet<u32>,
    /// The bytes of the metadata image that the journal holds. On the first rank only.
    image: Vec<u8>,
    /// Knowledge of the log's table. On the first rank only. `None` if closing the log takes more work than this process should
    /// do.
    table: Option<KnownTable>,
    reader: Reader,
    /// Memory that the ranks of a node share, once the log is closed.
    memory: Option<NodeMemory>,
    /// State that one call keeps for the next. `None` during a call.
    kept: Option<Box<Kept>>,
    /// Whether the program was warned that it has spilled and not flushed.
    is_warned: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl WrittenLog {
    /// Makes a log. Its files exist already.
    pub fn new(
        library: Library,
        metadata_image: MetadataImage,
        constants: Arc<Constants>,
        path: &Path,
        writer: LogWriter,
    ) -> Self {
        let options = writer.options();
        let is_automatic = options.flush_every.is_some() || options.flush_bytes.is_some();
        let is_parallel = writer.ranks().size() > 1;
        let process = writer.ranks().process();
        let state = State {
            library,
            path: path.to_owned(),
            writer: Some(writer),
            datasets: Vec::new(),
            reached: HashMap::new(),
            base: 0,
            made: 0,
            headers: HashMap::new(),
            unrecorded: BTreeSet::new(),
            image: Vec::new(),
            table: Some(KnownTable::default()),
            reader: Reader::default(),
            memory: None,
            kept: None,
            is_warned: false,
        };
        WrittenLog {
            library,
            metadata_image,
            types: RecentTypes::default(),
            constants,
            opening: None,
            is_automatic,
            is_parallel,
            process,
            state: Mutex::new(state),
        }
    }

    /// The metadata image.
    pub fn metadata_image(&self) -> &MetadataImage {
        &self.metadata_image
    }

    /// Whether the files of the log are open.
    pub fn is_open(&self) -> bool {
        let state = self.state.try_lock();
        // A locked state belongs to a call at work, so the log is open.
        state.is_none_or(|state| state.writer.is_some())
    }

    /// The process that writes the log. A process forked from it must not change the log: changes of its memory would never reach
    /// the files.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Forgets the log in a forked process, without touching its files. The thread that held the lock may not exist there, so
    /// nothing waits for it.
    pub fn forget(&self) {
        let writer = self
            .state
            .try_lock()
            .and_then(|mut state| state.writer.take());
        if let Some(writer) = writer {
            writer.leak();
        }
        self.metadata_image.close();
    }

    /// Whether several ranks write the log.
    pub fn is_parallel(&self) -> bool {
        self.is_parallel
    }

    /// Whether flushes happen without a request of the program.
    pub fn is_automatic(&self) -> bool {
        self.is_automatic
    }

    /// Whether a data transfer property list is the default one.
    pub fn is_default_transfer(&self, dxpl: Id) -> bool {
        dxpl == DEFAULT || self.constants.default_transfer == Some(dxpl)
    }

    /// Whether this rank sees unflushed elements of all other ranks.
    pub fn sees_all(&self) -> bool {
        let state = self.state.lock();
        state.writer.as_ref().is_none_or(LogWriter::sees_all)
    }

    /// Whether this rank has unflushed elements.
    pub fn has_unflushed(&self) -> bool {
        let state = self.state.lock();
        state.writer.as_ref().is_some_and(LogWriter::has_unflushed)
    }

    /// The logged dataset with its object header at an address of the metadata image.
    pub fn dataset(&self, header: u64) -> Option<Arc<Dataset>> {
        let state = self.state.lock();
        let id = *state.headers.get(&header)?;
        state.datasets.get(id as usize)?.clone()
    }

    /// Whether the object header at an address belongs to a logged dataset.
    pub fn has(&self, header: u64) -> bool {
        self.state.lock().headers.contains_key(&header)
    }

    /// Adds a logged dataset of an earlier job, which is used for the first time.
    pub fn load(&self, header: u64, parts: Parts) -> Result<Option<Arc<Dataset>>, Fault> {
        let mut state = self.state.lock();
        let Some(&id) = state.headers.get(&header) else {
            return Ok(None);
        };
        let dataset = Dataset::new(id, header, parts, Wanted::default());
        let dataset = Arc::new(dataset.ok_or("a dataset whose elements have no bytes")?);
        dataset.set_earlier(state.reached.get(&id));
        dataset.set_written();
        state.datasets[id as usize] = Some(Arc::clone(&dataset));
        Ok(Some(dataset))
    }

    /// Registers a dataset made in the metadata image. Its elements are logged if `parts` is given, and lie in the metadata image
    /// otherwise.
    pub fn add_dataset(
        &self,
        header: u64,
        parts: Option<Parts>,
        wanted: Wanted,
    ) -> Option<Arc<Dataset>> {
        let mut state = self.state.lock();
        // libhdf5 reuses the addresses of deleted objects.
        if let Some(id) = state.headers.remove(&header) {
            state.datasets[id as usize] = None;
            state.unrecorded.insert(id);
        }
        let id = state.datasets.len() as u32;
        let dataset = Dataset::new(id, header, parts?, wanted)?;
        let dataset = Arc::new(dataset);
        state.add_to_made(&dataset);
        state.datasets.push(Some(Arc::clone(&dataset)));
        state.headers.insert(header, id);
        state.unrecorded.insert(id);
        Some(dataset)
    }

    /// Writes the buffers of all ranks, and the changes of the metadata image, to the log. They then survive any failure of the
    /// processes. Collective.
    pub fn flush(&self, is_changed: bool, cause: Cause) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.flush(&self.metadata_image, is_changed, cause)
    }

    /// Flushes at the start of a call, if a flush is due. Clears `is_changed` in that case. Collective if the call is.
    pub fn flush_if_due(&self, call: Call, is_changed: &AtomicBool) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.flush_if_due(&self.metadata_image, call, is_changed)
    }

    /// Puts a warning on the error stack, although nothing fails.
    pub fn warn(&self, sentence: &str) {
        self.library.push(Kind::Write, sentence);
    }

    /// Flushes the rest and closes the log, which then is an HDF5 file. Later calls do nothing. Fails if not everything is
    /// flushed, or if the log is not settled as the program asked. Flushed data is never lost. Collective.
    pub fn close(&self, left: Left) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.close(&self.library, &self.metadata_image, self.opening, left)
    }

    /// Whether this is the first rank, and the log is open.
    pub fn is_first_rank(&self) -> bool {
        let state = self.state.lock();
        let writer = state.writer.as_ref();
        writer.is_some_and(|writer| writer.ranks().is_root())
    }

    /// Prepares the log for a new extent of a dataset. Returns the extent to record once the metadata image has it. After a
    /// failure the dataset is as before. Collective.
    pub fn prepare_extent(&self, dataset: &Dataset, dims: &[u64]) -> Result<Extent, Fault> {
        let mut state = self.state.lock();
        state.prepare_extent(&self.metadata_image, dataset, dims)
    }

    /// The datasets of the metadata image.
    pub fn datasets(&self) -> Datasets<'_> {
        Datasets::new(self)
    }

    /// Reads and writes of logged datasets.
    #[inline]
    pub fn transfers(&self) -> Transfers<'_> {
        Transfers::new(self)
    }

    /// Boxes of elements of logged datasets, for copies.
    pub fn boxes(&self) -> Boxes<'_> {
        Boxes::new(self)
    }

    /// Chunks of logged datasets.
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks::new(self)
    }

    /// Queries about logged datasets.
    pub fn questions(&self) -> Questions<'_> {
        Questions::new(self)
    }

    /// Whether [`WrittenLog::close`] was called, with any outcome.
    pub fn is_closed(&self) -> bool {
        self.state.lock().writer.is_none()
    }

    /// The number of the metadata image among the files of the library.
    pub fn number(&self) -> u64 {
        self.metadata_image.number()
    }

    /// Keeps the metadata image of a log that is being closed, if this program opens its logs repeatedly. A later opening with an
    /// equal `access` list may use it. Closes the image otherwise.
    pub fn keep_image(&self, access: &Arc<PropertyList>) {
        let opening = self.opening.filter(|_| ending::is_told(&self.library));
        let metadata_image = opening.and_then(|_| self.metadata_image.take());
        let metadata_image =
            metadata_image.filter(|metadata_image| metadata_image.fits(closed::LARGEST));
        if let (Some(opening), Some(metadata_image)) = (opening, metadata_image) {
            let mut state = self.state.lock();
            let (path, memory) = (state.path.clone(), state.memory.take());
            drop(state);
            closed::keep(KeptImage {
                memory,
                seen: FileState::at(&path),
                path,
                opening,
                metadata_image,
                access: Arc::clone(access),
                constants: Arc::clone(&self.constants),
            });
        }
        self.metadata_image.close();
    }
}

impl State {
    fn writer(&mut self) -> Result<&mut LogWriter, Fault> {
        let path = &self.path;
        self.writer
            .as_mut()
            .ok_or_else(|| format!("{}: the file is closed", path.display()).into())
    }

    fn close(
        &mut self,
        library: &Library,
        metadata_image: &MetadataImage,
        opening: Option<u64>,
        left: Left,
    ) -> Result<(), Fault> {
        let state = self;
        let is_usable = state
            .writer
            .as_ref()
            .is_some_and(|writer| writer.ranks().is_usable());
        let flushed = match left {
            _ if !is_usable => {
                let path = state.path.display();
                Err(format!(
                    "{path}: MPI has ended before the file was closed, so it stays as it was last flushed"
                ).into())
            }
            Left::Nothing => Ok(()),
            left => state.flush(metadata_image, left == Left::Changes, Cause::Asked),
        };
        let Some(writer) = state.writer.take() else {
            return Ok(());
        };
        if !is_usable {
            writer.leak();
            return flushed;
        }
        let options = writer.options();
        let mut how = Close {
            sync: options.fsync != Fsync::None,
            settle: (options.settle).then_some(options.settle_memory),
            journal: None,
        };
        let flushed = flushed.and_then(|()| {
            if how.sync {
                writer.files().sync_other_nodes(writer.ranks())
            } else {
                Ok(())
            }
        });
        let base = writer.files().base();
        let (ranks, ended, memory) = writer.finish();
        state.memory = memory;
        version::grow();
        if let Err(reason) = flushed {
            ended.unlock();
            return Err(reason);
        }
        // A log to be settled is closed first, too: it stays closed whatever becomes of the settling.
        let plainly = if ranks.is_root() {
            state.close_plainly(&ended, how)
        } else {
            None
        };
        let is_closed = plainly.is_some();
        how.journal = ended.journal_number();
        ended.unlock();
        let closed = if ranks.is_root() && (!is_closed || how.settle.is_some()) {
            direct::close_log(&state.path, how, &direct::Options::default())
        } else {
            Ok(Closed::Done)
        };
        let is_small = state.image.len() as u64 <= LARGEST;
        if ranks.is_root() && how.settle.is_none() && closed.is_ok() && is_small {
            let objects = state.objects(opening);
            CLOSED.remember(&state.path, objects, base, plainly.unwrap_or_default());
        }
        ranks.wait();
        let not_settled = |reason| {
            let file = state.path.clone();
            Fault::from(Error::NotSettled { file, reason })
        };
        let unclosed = |reason: &dyn Display| {
            format!(
                "{reason}. The log stays unclosed, with all that was written: `h5logfs recover` closes it"
            )
        };
        let done = match closed {
            Ok(Closed::Done | Closed::Without(_)) => Ok(()),
            Ok(Closed::NotSettled(reason)) => Err(not_settled(reason)),
            Err(reason) if is_closed => Err(not_settled(reason.into())),
            Err(reason) if how.settle.is_some() => Err(unclosed(&reason).into()),
            // The log holds all that was written, so the close succeeds. The error stack tells the reason.
            Err(reason) => {
                library.push(Kind::Close, &unclosed(&reason));
                Ok(())
            }
        };
        // If the log is not settled, all ranks tell the program.
        match how.settle.map(|_| ranks.follow_root(done)) {
            None | Some(GlobalOutcome::Good) => Ok(()),
            Some(GlobalOutcome::Failed { reason, .. } | GlobalOutcome::Refused { reason, .. }) => {
                Err(reason)
            }
        }
    }

    /// Closes the log without libhdf5, on the first rank. `None` if only the program `h5logfs` can close it, or can tell why it
    /// cannot be closed.
    fn close_plainly(&mut self, ended: &Ended, how: Close) -> Option<JustClosed> {
        /// The largest metadata image, in bytes. Several copies of it exist during the close.
        const MOST_BYTES: usize = 64 << 20;
        let table = self.table.take()?;
        if !ended.is_one_file() || self.image.len() > MOST_BYTES {
            return None;
        }
        let logged = self.headers.iter().map(|(header, id)| (*header, *id));
        let objects = ClosedObjects::of(&self.image, logged)?;
        let datasets = self.datasets.len();
        let closed = ended.close(table, how.sync, |log| objects.metadata(log, datasets));
        closed.ok()
    }

    fn flush_if_due(
        &mut self,
        metadata_image: &MetadataImage,
        call: Call,
        is_changed: &AtomicBool,
    ) -> Result<(), Fault> {
        let is_due = |writer: &mut LogWriter| writer.begin_call(call);
        if !self.writer.as_mut().is_some_and(is_due) {
            return Ok(());
        }
        let was_changed = is_changed.swap(false, Ordering::Relaxed);
        let flushed = self.flush(metadata_image, was_changed, Cause::Automatic);
        if flushed.is_err() {
            is_changed.fetch_or(was_changed, Ordering::Relaxed);
        }
        flushed
    }

    fn flush(
        &mut self,
        metadata_image: &MetadataImage,
        is_changed: bool,
        cause: Cause,
    ) -> Result<(), Fault> {
        self.flush_if(Ok(()), metadata_image, is_changed, cause)
    }

    /// Flushes if all ranks have succeeded in the work before it.
    fn flush_if(
        &mut self,
        done: Result<(), Fault>,
        metadata_image: &MetadataImage,
        is_changed: bool,
        cause: Cause,
    ) -> Result<(), Fault> {
        let is_root = self.writer()?.ranks().is_root();
        let is_recorded = is_changed || (is_root && self.image.is_empty());
        // A flush of libhdf5 may free space. Whether an object later takes the address of a deleted one depends on that, and all
        // ranks must agree on it. So all of them flush here.
        let flushed = if is_recorded {
            metadata_image.flush()
        } else {
            Ok(())
        };
        let metadata_image =
            flushed.and_then(|()| self.image_lines_of(metadata_image, is_root && is_recorded));
        let (outcome, metadata_image) = LocalOutcome::of(done.and(metadata_image));
        let ImageLines { lines, image } = metadata_image.unwrap_or_default();
        let same = self.hash_of_datasets();
        let writer = self.writer()?;
        let has_more = is_changed || writer.has_unflushed();
        // A log needs at least one flush: without one it has no objects.
        let is_first = writer.files().flushes() == 0;
        // An explicit flush after automatic ones confirms them, even if nothing is new.
        let is_meant = cause == Cause::Asked && writer.files().asked() < writer.files().flushes();
        let part = Part {
            data: Some(&[]),
            outcome,
            cause,
            same,
            numbers: vec![u64::from(has_more)],
        };
        let flushed = writer.flush(part, |agreed| {
            if !agreed.same {
                let reason = "the ranks have not made the same datasets: in parallel HDF5 all ranks make, delete and \
                              extend them together";
                return Err(GlobalOutcome::Failed {
                    rank: 0,
                    reason: Fault::Refused(reason.into()),
                });
            }
            let has_more = agreed.numbers != [0];
            Ok((has_more || is_first || is_meant).then_some(lines))
        });
        if flushed?.is_none() {
            return Ok(());
        }
        version::grow();
        self.unrecorded.clear();
        if let Some(image) = image {
            self.image = image;
        }
        Ok(())
    }

    /// The journal's lines for the changes of the metadata image, if they are to be recorded.
    fn image_lines_of(
        &self,
        metadata_image: &MetadataImage,
        is_recorded: bool,
    ) -> Result<ImageLines, Fault> {
        if !is_recorded {
            return Ok(ImageLines::default());
        }
        let image = metadata_image.image()?;
        // A program that opens its log for each step flushes once in each opening. So the first flush packs for speed rather than
        // size.
        let is_first = self
            .writer
            .as_ref()
            .is_some_and(|w| !w.files().has_flushed());
        let packing = if is_first {
            Packing::Quick
        } else {
            Packing::Small
        };
        let about = |e: std::io::Error| format!("{}: {e}", self.path.display());
        let mut lines = packed_image_lines(&self.image, &image, packing).map_err(about)?;
        lines.extend(self.unrecorded.iter().map(|id| self.logged_line(*id)));
        Ok(ImageLines {
            lines,
            image: Some(image),
        })
    }

    fn logged_line(&self, id: u32) -> Line {
        let dataset = self.datasets.get(id as usize).and_then(Option::as_ref);
        Line::Logged(LoggedDataset {
            id,
            header: dataset.map(|dataset| dataset.header),
        })
    }

    fn add_to_made(&mut self, dataset: &Dataset) {
        let mut hasher = sum();
        (
            self.made,
            dataset.element,
            &dataset.max_dims,
            &dataset.chunk,
        )
            .hash(&mut hasher);
        self.made = hasher.finish();
    }

    /// A checksum that is equal on all ranks that have made the same calls.
    fn hash_of_datasets(&self) -> u64 {
        let mut hasher = sum();
        self.made.hash(&mut hasher);
        // Each rank decides by itself which datasets of earlier jobs it opens, so these do not count.
        for dataset in self.datasets[self.base..].iter().flatten() {
            dataset.dims().hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Makes the hasher for a checksum that ranks compare in each flush. It is equal in each process. It is fast, since there may be
/// thousands of datasets, and needs no protection against chosen input.
fn sum() -> impl Hasher {
    FixedState::default().build_hasher()
}

/// Lines of a flush about the metadata image.
#[derive(Default)]
struct ImageLines {
    lines: Vec<Line>,
    /// The bytes of the metadata image after these lines. `None` if it is unchanged.
    image: Option<Vec<u8>>,
}
