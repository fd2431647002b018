//! An open log, and the hooks through which calls of HDF5 reach it.
//!
//! Each object of a log has a reference to its [`Session`], and a logged dataset one to its
//! [`Dataset`](crate::log::dataset::Dataset), too. Objects of plain files have neither: their calls go to the connector
//! below.
//!
//! The callbacks (`crates/connector/src/callbacks`) call these hooks. A hook that returns `None` leaves the call to the
//! connector below, which has the object in a native file: the canonical file of a log that is read, the metadata image of one
//! that is written. `Some` is the answer of the log, and the connector below does not see the call.
//!
//! | call | hook |
//! |---|---|
//! | `H5Fcreate` | [`opening::create`](crate::opening::create) |
//! | `H5Fopen` | [`opening::open`](crate::opening::open) |
//! | `H5Fis_accessible`, `H5Fdelete` | [`opening::read`](crate::opening::read) |
//! | `H5Freopen`: the other handle gets the same session | [`Session::enter`] |
//! | `H5Fis_same`/`H5F…is_equal`: by the connector below | |
//! | `H5Fget_name`, `_access_plist`, `_intent`, `_fileno`, … | [`Session::file_get`] |
//! | `H5Fget_filesize`, `_vfd_handle`, `_file_image`, … | [`Session::file_optional`] |
//! | a call that changes something begins | [`Session::begin_call`] |
//! | `H5Fflush`, of any object of the file; `H5Dflush`, `H5Gflush`, `H5Tflush`, `H5Oflush` | [`Session::flush`] |
//! | a file, or another object, is closed | [`Session::before_leave`], then [`Session::leave`] |
//! | a dataset is created | [`Session::prepare_dataset`], then [`Session::dataset_made`] |
//! | a dataset was opened, wrapped, found by `H5Oopen` | [`Session::dataset`] |
//! | `H5Dread`, `H5Dread_multi` | [`Session::read`] |
//! | `H5Dwrite`, `H5Dwrite_multi` | [`Session::write`] |
//! | `H5Dget_space`, `_create_plist`, `_storage_size`, `_space_status`, … | [`Session::dataset_get`] |
//! | `H5Dset_extent`, `H5Drefresh` | [`Session::dataset_specific`] |
//! | `H5Dread_chunk`, `H5Dwrite_chunk`, `H5Dget_num_chunks`, `H5Dget_offset`, `H5Dchunk_iter`, … | [`Session::dataset_optional`] |
//! | a virtual dataset is read or written | [`Virtual`](virtuals::Virtual) |
//! | `H5Ocopy`, within a file or to another | [`copies`](crate::copies) |
//! | `H5Ldelete`, `H5Lmove` over a link, `H5Odecr_refcount`: an object may be gone | [`Session::touch`] |
//! | anything else that changes objects: `H5Gcreate`, `H5Acreate`, `H5Awrite`, `H5Tcommit`, `H5Lcreate_*`, … | [`Session::touch`] |
//!
//! # Modules
//!
//! Each uses only those above it.
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
use crate::log::{Left, Log};
use descriptor::Descriptor;
use h5logfs_common::fault::Fault;
use h5logfs_log::log_dir;
use h5logfs_output::Error;
use h5logfs_output::automatic::{Call, Cause};

/// Which file a log is, and for which libhdf5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    library: usize,
    device: u64,
    inode: u64,
}

impl Identity {
    /// That of the file at a path, if there is one.
    pub fn of(info: &Info, path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Identity {
            library: info.library_number(),
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// What a session is for.
#[derive(Debug)]
pub enum Kind {
    /// A log that is read.
    Read {
        /// The number that libhdf5 gives to objects of the canonical file, once it is open.
        number: OnceLock<u64>,
    },
    /// A log that this process writes.
    Written(Box<Log>),
    /// A file that a link led to.
    Linked {
        /// The number that libhdf5 gives to objects of the file.
        number: u64,
        /// The log that the link is in is written, so libhdf5 has opened the file for writing, too.
        is_inherited: bool,
    },
}

/// An open log.
#[derive(Debug)]
pub struct Session {
    /// As the program gave it.
    pub path: PathBuf,
    /// The file that it was when it was opened.
    pub identity: Identity,
    /// The file access property list of the program.
    pub access: Arc<PropertyList>,
    /// What the session is for.
    pub kind: Kind,
    /// Objects of the log that are open.
    open: AtomicUsize,
    /// Those of them that are files.
    files: AtomicUsize,
    /// What the close of the last file means while other objects are open. `None`: the program leaves it to the driver.
    close_degree: Option<CloseDegree>,
    /// libhdf5 finishes the opening of a file of it.
    is_being_opened: AtomicBool,
    /// Whether an object was changed since [`Session::take_changes`].
    is_changed: AtomicBool,
    /// The program lets others follow what it writes.
    is_followed: AtomicBool,
    /// The program has changed of the native file what no image has: the next opening makes a new one.
    is_special: AtomicBool,
    /// What a program gets that asks for the descriptor.
    descriptor: OnceLock<Descriptor>,
}

impl Session {
    /// A log that was opened. No object of it is open.
    pub fn new(info: &Info, request: &Request<'_>, kind: Kind) -> Result<Self, Fault> {
        let access = PropertyList::copy(&info.library, request.fapl);
        let access = access.ok_or("the file access property list cannot be copied")?;
        Session::with_access(info, request, kind, access.into())
    }

    /// The same with a copy of the file access property list, or one that is equal.
    pub fn with_access(
        info: &Info,
        request: &Request<'_>,
        kind: Kind,
        access: Arc<PropertyList>,
    ) -> Result<Self, Fault> {
        let path = request.path();
        let identity = Identity::of(info, path)
            .or_else(|| Identity::of(info, &log_dir::named_by(path)?))
            .ok_or_else(|| format!("{}: it is not there any more", path.display()))?;
        let mut session = Session::of_file(path.to_owned(), identity, access, kind);
        session.close_degree = CloseDegree::of(info, request.fapl);
        Ok(session)
    }

    /// One of a file of which nothing more is known.
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

    /// The log, where this process writes it.
    pub fn log(&self) -> Option<&Log> {
        match &self.kind {
            Kind::Written(log) => Some(log),
            Kind::Read { .. } | Kind::Linked { .. } => None,
        }
    }

    /// The number that libhdf5 gives to objects of the native file, as far as it is known.
    fn number(&self) -> Option<u64> {
        match &self.kind {
            Kind::Read { number } => number.get().copied(),
            Kind::Written(log) => Some(log.number()),
            Kind::Linked { number, .. } => Some(*number),
        }
    }

    /// Whether its files are open. Another file may have the number of one that was closed and deleted, while the program
    /// still has objects of that one.
    fn is_open(&self) -> bool {
        self.log().is_none_or(Log::is_open)
    }

    /// One more object of the log is open. Returns whether it keeps the log open.
    pub fn enter(&self) -> bool {
        let counts = !self.is_being_opened.load(Ordering::Relaxed);
        if counts {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// One more handle of the file is open.
    pub fn enter_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Lets the native file have an object of ours for itself, which lives as long as the file.
    pub fn finish_opening<R>(&self, finish: impl FnOnce() -> R) -> R {
        self.is_being_opened.store(true, Ordering::Relaxed);
        let _opened = AtEnd(|| self.is_being_opened.store(false, Ordering::Relaxed));
        finish()
    }

    /// An object is about to be closed: a file, which was flushed just now, or another one. The log is closed with the last
    /// one, while all that libhdf5 knows is still there, and with the last file where the program wants that. If that fails,
    /// the object stays open, and the next close of it succeeds: the log is closed once.
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

    /// The program changes of the native file what no image has: how its cache works, what is mounted on it.
    pub fn set_special(&self) {
        self.is_special.store(true, Ordering::Relaxed);
    }

    /// Whether a file access property list, which names the same driver, means the close that the log was opened with.
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

    /// An object was closed. The log is closed with the last one, where [`Session::before_leave`] was not told of it:
    /// libhdf5 gives a wrapped object up without a close.
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

    /// An object of the log may have been changed.
    pub fn touch(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Session::touch`] was called since the last time.
    fn take_changes(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }

    /// What may be left to flush.
    fn left(&self) -> Left {
        if self.take_changes() {
            Left::Changes
        } else {
            Left::Elements
        }
    }

    /// A call begins that changes the log, before it changes anything. Flushes where that is due, so that whatever the
    /// program does, not more than some seconds are lost. If that fails, the call goes on: the reason is on the error stack,
    /// and the next flush tries again.
    pub fn begin_call(&self, call: Call) {
        let Some(log) = self.log().filter(|log| log.is_automatic()) else {
            return;
        };
        self.warn_of_flush(log, log.flush_if_due(call, &self.is_changed));
    }

    /// Tells why a flush has failed that the program did not ask for.
    fn warn_of_flush(&self, log: &Log, flushed: Result<(), Fault>) {
        if let Err(reason) = flushed {
            log.warn(&format!(
                "{reason}. No flush was asked for: the call goes on, and a later one flushes"
            ));
        }
    }

    /// The file, or an object of it, is flushed. The connector below flushes its own before.
    pub fn flush(&self) -> Result<(), Fault> {
        self.flush_for(Cause::Asked)
    }

    /// The same before the file is closed. A program may repeat a close that has failed when the log was closed already: then
    /// nothing is left to flush. Nor has a process that was forked from the one that writes the log.
    pub fn flush_to_close(&self) -> Result<(), Fault> {
        if self.is_forked() || self.log().is_some_and(Log::is_closed) {
            return Ok(());
        }
        self.flush()
    }

    /// Whether this process was forked from the one that writes the log. Such a process changes nothing of it, and its close is one
    /// of memory alone.
    fn is_forked(&self) -> bool {
        self.log().is_some_and(|log| !log.process().is_this())
    }

    /// Fails in a process that was [forked](Self::is_forked).
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

    /// Flushes what others cannot see. Ranks cannot do that by themselves.
    fn settle(&self) -> Result<(), Fault> {
        let Some(log) = self.log() else {
            return Ok(());
        };
        if !log.is_parallel() {
            return self.flush_for(Cause::Automatic);
        }
        if self.is_changed.load(Ordering::Relaxed) || log.has_unflushed() {
            return Err(format!(
                "{}: several ranks write this log: virtual datasets are read after a flush",
                self.path.display()
            )
            .into());
        }
        Ok(())
    }

    /// A fault of a dataset of this file.
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
    /// A file cannot be closed while objects are open that were opened through it.
    Semi,
    /// The log is closed with its last file, and so are its other objects.
    Strong,
}

impl CloseDegree {
    /// What HDF5 takes where a list leaves it to the driver.
    fn of_driver(info: &Info, fapl: Id) -> Self {
        if is_parallel_driver(info, fapl) {
            CloseDegree::Semi
        } else {
            CloseDegree::Weak
        }
    }

    /// What a file access property list says. `None` for `H5F_CLOSE_DEFAULT`.
    fn of(info: &Info, fapl: Id) -> Option<Self> {
        let mut degree = 0;
        // SAFETY: there is room for the answer; the list is the program's.
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
