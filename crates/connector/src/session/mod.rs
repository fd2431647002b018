//! An open log, and the hooks through which calls of HDF5 reach it.
//!
//! Each object of a log holds a reference to its [`Session`]. A logged dataset also holds one to its
//! [`Dataset`](crate::log::dataset::Dataset). Objects of plain files have neither, and their calls go to the connector below.
//!
//! The callbacks (`crates/connector/src/callbacks`) call these hooks. A hook that returns `None` leaves the call to the connector
//! below. That connector has the object in a native file: the canonical file of a log that is read, or the metadata image of a
//! log that is written. `Some` is the answer of the log, and the connector below never sees the call.
//!
//! | call | hook |
//! |---|---|
//! | `H5Fcreate` | [`opening::create`](crate::opening::create) |
//! | `H5Fopen` | [`opening::open`](crate::opening::open) |
//! | `H5Fis_accessible`, `H5Fdelete` | [`opening::read`](crate::opening::read) |
//! | `H5Freopen` | [`Session::enter`]: the new handle gets the same session |
//! | `H5Fis_same`/`H5F…is_equal` | none: the connector below answers |
//! | `H5Fget_name`, `_access_plist`, `_intent`, `_fileno`, … | [`Session::file_get`] |
//! | `H5Fget_filesize`, `_vfd_handle`, `_file_image`, … | [`Session::file_optional`] |
//! | the start of a call that changes something | [`Session::begin_call`] |
//! | `H5Fflush`, of any object of the file; `H5Dflush`, `H5Gflush`, `H5Tflush`, `H5Oflush` | [`Session::flush`] |
//! | close of a file, or of another object | [`Session::before_leave`], then [`Session::leave`] |
//! | creation of a dataset | [`Session::prepare_dataset`], then [`Session::dataset_made`] |
//! | opening of a dataset by any way, and wrapping | [`Session::dataset`] |
//! | `H5Dread`, `H5Dread_multi` | [`Session::read`] |
//! | `H5Dwrite`, `H5Dwrite_multi` | [`Session::write`] |
//! | `H5Dget_space`, `_create_plist`, `_storage_size`, `_space_status`, … | [`Session::dataset_get`] |
//! | `H5Dset_extent`, `H5Drefresh` | [`Session::dataset_specific`] |
//! | `H5Dread_chunk`, `H5Dwrite_chunk`, `H5Dget_num_chunks`, `H5Dget_offset`, `H5Dchunk_iter`, … | [`Session::dataset_optional`] |
//! | read or write of a virtual dataset | [`Virtual`](virtuals::Virtual) |
//! | `H5Ocopy`, within a file or to another | [`copies`](crate::copies) |
//! | `H5Ldelete`, `H5Lmove` over a link, `H5Odecr_refcount`, which may delete an object | [`Session::touch`] |
//! | other changes of objects: `H5Gcreate`, `H5Acreate`, `H5Awrite`, `H5Tcommit`, `H5Lcreate_*`, … | [`Session::touch`] |
//!
//! # Modules
//!
//! Each module uses only modules above it.
//!
//! | module | contents |
//! |---|---|
//! | `descriptor` | the descriptor of a log file, for programs that ask for one |
//! | this one | the session: its kind, its objects, flush and close |
//! | `registry` | the sessions of this process |
//! | `links` | files that links of a log lead to |
//! | `virtuals` | virtual datasets, while logs are written |
//! | `file`, `datasets` | hooks for files and logged datasets |

mod datasets;
mod descriptor;
mod file;
pub mod links;
pub mod registry;
pub mod virtuals;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use h5logfs_host::at_end::AtEnd;
use h5logfs_host::types::Id;

use crate::below::Below;
use crate::below::drivers::is_parallel_driver;
use crate::below::ending::close_objects;
use crate::below::info::Info;
use crate::below::list::PropertyList;
use crate::below::questions::{name_of, opened_through};
use crate::below::request::Request;
use crate::log::{Left, WrittenLog};
use descriptor::Descriptor;
use h5logfs_common::fault::Fault;
use h5logfs_log::log_dir;
use h5logfs_output::Error;
use h5logfs_output::automatic::{Call, Cause};

/// The identity of a log's file, and its libhdf5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    library: usize,
    device: u64,
    inode: u64,
}

impl Identity {
    /// The identity of the file at a path, if there is one.
    pub fn of(info: &Info, path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            library: info.library_number(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// The three kinds of a session.
#[derive(Debug)]
pub enum Kind {
    /// A log that this process reads.
    Read {
        /// The number that libhdf5 assigned to objects of the canonical file, once it is open.
        number: OnceLock<u64>,
    },
    /// A log that this process writes.
    Written(Box<WrittenLog>),
    /// A file behind a link.
    Linked {
        /// The number that libhdf5 assigned to objects of the file.
        number: u64,
        /// Whether the log with the link is being written. libhdf5 then has the file open for writing, too.
        is_inherited: bool,
    },
}

/// An open log.
#[derive(Debug)]
pub struct Session {
    /// The path, as the program gave it.
    pub path: PathBuf,
    /// The identity of the file at the time of its opening.
    pub identity: Identity,
    /// The program's file access property list.
    pub access: Arc<PropertyList>,
    /// The kind of the session.
    pub kind: Kind,
    /// The number of open objects of the log.
    open: AtomicUsize,
    /// The number of open handles of the file among them.
    files: AtomicUsize,
    /// The effect of closing the last file handle while other objects are open. `None`: the program leaves it to the driver.
    close_degree: Option<CloseDegree>,
    /// Whether libhdf5 is finishing the opening of a file.
    is_being_opened: AtomicBool,
    /// Whether an object was changed since [`Session::take_changes`].
    is_changed: AtomicBool,
    /// Whether the program lets readers follow the log (SWMR).
    is_followed: AtomicBool,
    /// Whether the program changed settings of the native file that no image holds. The next opening then makes a new metadata
    /// image.
    is_special: AtomicBool,
    /// The descriptor for programs that ask for one.
    descriptor: OnceLock<Descriptor>,
}

impl Session {
    /// Makes the session of an opened log. No object of the log is open yet.
    pub fn new(info: &Info, request: &Request<'_>, kind: Kind) -> Result<Self, Fault> {
        let access = PropertyList::copy(&info.library, request.fapl);
        let access = access.ok_or("the file access property list cannot be copied")?;
        Session::with_access(info, request, kind, access.into())
    }

    /// Makes a session with a copy of the file access property list, or an equal list.
    pub fn with_access(
        info: &Info,
        request: &Request<'_>,
        kind: Kind,
        access: Arc<PropertyList>,
    ) -> Result<Self, Fault> {
        let path = request.path();
        let identity = Identity::of(info, path)
            .or_else(|| Identity::of(info, &log_dir::named_by(path)?))
            .or_else(|| Identity::of(info, &log_dir::file_of(path)))
            .ok_or_else(|| format!("{}: the file no longer exists", path.display()))?;
        let mut session = Session::of_file(path.to_owned(), identity, access, kind);
        session.close_degree = CloseDegree::of(info, request.fapl);
        Ok(session)
    }

    /// Makes a session of a file.
    fn of_file(path: PathBuf, identity: Identity, access: Arc<PropertyList>, kind: Kind) -> Self {
        Session {
            path,
            identity,
            access,
            kind,
            open: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
            close_degree: None,
            is_being_opened: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
            is_special: AtomicBool::new(false),
            descriptor: OnceLock::new(),
        }
    }

    /// The log, if this process writes it.
    pub fn log(&self) -> Option<&WrittenLog> {
        match &self.kind {
            Kind::Written(log) => Some(log),
            Kind::Read { .. } | Kind::Linked { .. } => None,
        }
    }

    /// The number that libhdf5 assigned to objects of the native file, if known.
    fn number(&self) -> Option<u64> {
        match &self.kind {
            Kind::Read { number } => number.get().copied(),
            Kind::Written(log) => Some(log.number()),
            Kind::Linked { number, .. } => Some(*number),
        }
    }

    /// Whether the files of the log are open. A program may still have objects of a file that was closed and deleted, and another
    /// file may have its number by now.
    fn is_open(&self) -> bool {
        self.log().is_none_or(WrittenLog::is_open)
    }

    /// Counts one more open object. Returns whether it keeps the log open.
    pub fn enter(&self) -> bool {
        let counts = !self.is_being_opened.load(Ordering::Relaxed);
        if counts {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// Counts one more open handle of the file.
    pub fn enter_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs the end of an opening. Within it, the native file takes an object of this connector for itself, and keeps it as long
    /// as the file.
    pub fn finish_opening<R>(&self, finish: impl FnOnce() -> R) -> R {
        self.is_being_opened.store(true, Ordering::Relaxed);
        let _opened = AtEnd(|| self.is_being_opened.store(false, Ordering::Relaxed));
        finish()
    }

    /// Prepares the close of an object. `file`: the object is a file handle, flushed just now.
    ///
    /// The last object closes the log, while libhdf5 still knows all objects. The last file handle does so, too, if the program's
    /// close degree demands it. If closing the log fails, the object stays open. Its next close succeeds, since a log is closed
    /// once.
    pub fn before_leave(&self, file: Option<&Below>) -> Result<(), Fault> {
        let Some(log) = self.log() else {
            return Ok(());
        };
        if self.is_forked() {
            if self.open.load(Ordering::Acquire) == 1 {
                log.forget();
            }
            return Ok(());
        }
        let mut is_flushed = file.is_some();
        match (file, self.close_degree) {
            (Some(file), Some(CloseDegree::Semi)) if opened_through(file)? > 0 => {
                return Err(self.has_open_objects());
            }
            (Some(file), Some(CloseDegree::Strong)) if self.files.load(Ordering::Acquire) == 1 => {
                close_objects(file)?;
                is_flushed = false;
            }
            _ => {}
        }
        let is_last = self.open.load(Ordering::Acquire) == 1;
        if !is_last {
            return Ok(());
        }
        let left = if is_flushed {
            Left::Nothing
        } else {
            self.left()
        };
        let closed = log.close(left);
        if closed.is_ok() && !self.is_special.load(Ordering::Relaxed) {
            log.keep_image(&self.access);
        } else {
            log.metadata_image().close();
        }
        closed
    }

    /// Records that the program changed settings of the native file that no image holds: its cache, or files mounted on it.
    pub fn set_special(&self) {
        self.is_special.store(true, Ordering::Relaxed);
    }

    /// Whether a file access property list demands the same close degree as the log's. Both name the same driver.
    pub fn is_closed_as(&self, info: &Info, fapl: Id) -> bool {
        let by_driver = CloseDegree::of_driver(info, fapl);
        CloseDegree::of(info, fapl).unwrap_or(by_driver) == self.degree(info)
    }

    fn degree(&self, info: &Info) -> CloseDegree {
        let by_driver = || CloseDegree::of_driver(info, self.access.id);
        self.close_degree.unwrap_or_else(by_driver)
    }

    fn has_open_objects(&self) -> Fault {
        let path = self.path.display();
        format!("{path}: can't close file, there are objects still open (H5F_CLOSE_SEMI)").into()
    }

    /// Counts a closed object. The last one closes the log, if [`Session::before_leave`] was not called for it: libhdf5 frees
    /// wrapped objects without a close.
    pub fn leave(&self, is_file: bool) -> Result<(), Fault> {
        if is_file {
            self.files.fetch_sub(1, Ordering::AcqRel);
        }
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Ok(());
        }
        match self.log() {
            Some(log) if self.is_forked() => {
                log.forget();
                Ok(())
            }
            Some(log) => log.close(self.left()),
            None => Ok(()),
        }
    }

    /// Records that an object of the log may have changed.
    pub fn touch(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Session::touch`] was called since the last call of this function.
    fn take_changes(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }

    /// Changes that may be left to flush.
    fn left(&self) -> Left {
        if self.take_changes() {
            Left::Changes
        } else {
            Left::Elements
        }
    }

    /// Begins a call that changes the log. Flushes first if that is due, so that a crash of the program loses some seconds at
    /// most. A failure does not stop the call: the reason goes on the error stack, and the next flush tries again.
    pub fn begin_call(&self, call: Call) {
        let Some(log) = self.log().filter(|log| log.is_automatic()) else {
            return;
        };
        self.warn_of_flush(log, log.flush_if_due(call, &self.is_changed));
    }

    /// Reports the failure of an automatic flush.
    fn warn_of_flush(&self, log: &WrittenLog, flushed: Result<(), Fault>) {
        if let Err(reason) = flushed {
            log.warn(&format!(
                "{reason}. This automatic flush failed, but the call continues, and the next flush tries again"
            ));
        }
    }

    /// Flushes the log, after the connector below has flushed its own object.
    pub fn flush(&self) -> Result<(), Fault> {
        self.flush_for(Cause::Asked)
    }

    /// Flushes the log before the file is closed. Does nothing if the log is closed already, since a program may repeat a failed
    /// close, and nothing in a process forked from the writer.
    pub fn flush_to_close(&self) -> Result<(), Fault> {
        if self.is_forked() || self.log().is_some_and(WrittenLog::is_closed) {
            return Ok(());
        }
        self.flush()
    }

    /// Whether this process was forked from the writer of the log. Such a process must not change the log, and its close affects
    /// memory alone.
    fn is_forked(&self) -> bool {
        self.log().is_some_and(|log| !log.process().is_this())
    }

    /// Fails in a [forked](Self::is_forked) process.
    fn check_process(&self) -> Result<(), Fault> {
        match self.log() {
            Some(log) if !log.process().is_this() => Err(Error::Forked {
                file: self.path.clone(),
                process: log.process().id(),
            }
            .into()),
            _ => Ok(()),
        }
    }

    fn flush_for(&self, cause: Cause) -> Result<(), Fault> {
        let Some(log) = self.log() else {
            return Ok(());
        };
        self.check_process()?;
        let is_changed = self.take_changes();
        let flushed = log.flush(is_changed, cause);
        if flushed.is_err() && is_changed {
            self.touch();
        }
        flushed
    }

    /// Flushes elements that others cannot see yet. With several ranks it fails instead if there are any, since a flush is
    /// collective.
    fn settle(&self) -> Result<(), Fault> {
        let Some(log) = self.log() else {
            return Ok(());
        };
        if !log.is_parallel() {
            return self.flush_for(Cause::Automatic);
        }
        if self.is_changed.load(Ordering::Relaxed) || log.has_unflushed() {
            return Err(format!(
                "{}: several ranks write this log: virtual datasets can be read after a flush",
                self.path.display()
            )
            .into());
        }
        Ok(())
    }

    /// Makes a fault that names a dataset of this file.
    fn about(&self, dataset: &Below, fault: impl Into<Fault>) -> Fault {
        let fault = fault
            .into()
            .at(format_args!("dataset {}", name_of(dataset)));
        fault.of_file(&self.path)
    }
}

/// `H5F_close_degree_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseDegree {
    /// The log is closed with its last object.
    Weak = 1,
    /// A file handle cannot be closed while objects opened through it are open.
    Semi,
    /// The last file handle closes the log and all its other objects.
    Strong,
}

impl CloseDegree {
    /// The degree that HDF5 uses if a list leaves it to the driver.
    fn of_driver(info: &Info, fapl: Id) -> Self {
        if is_parallel_driver(info, fapl) {
            CloseDegree::Semi
        } else {
            CloseDegree::Weak
        }
    }

    /// The degree in a file access property list. `None` for `H5F_CLOSE_DEFAULT`.
    fn of(info: &Info, fapl: Id) -> Option<Self> {
        let mut degree = 0;
        // SAFETY: the place for the answer is valid, and the list is the program's.
        let status = info
            .library
            .nested(|f| unsafe { (f.H5Pget_fclose_degree)(fapl, &mut degree) });
        match degree {
            _ if status < 0 => None,
            1 => Some(CloseDegree::Weak),
            2 => Some(CloseDegree::Semi),
            3 => Some(CloseDegree::Strong),
            _ => None,
        }
    }
}
