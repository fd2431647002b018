//! An open log, and the hooks through which calls of HDF5 reach it.
//!
//! Each object of a log has a reference to its [`Session`], and a logged dataset one to its [`Dataset`], too. Objects of
//! plain files have neither: their calls go to the connector below.
//!
//! The callbacks (`crates/connector/src/callbacks`) call these hooks. A hook that returns `None` leaves the call to the
//! connector below, which has the object in a native file: the canonical file of a log that is read, the shadow of one
//! that is written. `Some` is the answer of the log, and the connector below does not see the call.
//!
//! | call | hook |
//! |---|---|
//! | `H5Fcreate` | [`Session::create`] |
//! | `H5Fopen` | [`Session::open`] |
//! | `H5Fis_accessible` | [`Session::is_accessible`] |
//! | `H5Fdelete` | [`Session::delete`] |
//! | `H5Freopen`: the other handle gets the same session | [`Session::enter`] |
//! | `H5Fis_same`/`H5F…is_equal`: by the connector below | |
//! | `H5Fget_name`, `_access_plist`, `_intent`, `_fileno`, … | [`Session::file_get`] |
//! | `H5Fget_filesize`, `_vfd_handle`, `_file_image`, … | [`Session::file_optional`] |
//! | `H5Fflush`, of any object of the file | [`Session::flush`] |
//! | `H5Dflush`, `H5Gflush`, `H5Tflush`, `H5Oflush` | [`Session::flush_object`] |
//! | a file, or another object, is closed | [`Session::close_file`], then [`Session::leave`] |
//! | a dataset was created, opened, wrapped, found by `H5Oopen` | [`Session::dataset`] |
//! | `H5Dread`, `H5Dread_multi` | [`Session::read`] |
//! | `H5Dwrite`, `H5Dwrite_multi` | [`Session::write`] |
//! | `H5Dget_space`, `_create_plist`, `_storage_size`, `_space_status`, … | [`Session::dataset_get`] |
//! | `H5Dset_extent`, `H5Drefresh` | [`Session::dataset_specific`] |
//! | `H5Dread_chunk`, `H5Dwrite_chunk`, `H5Dget_num_chunks`, `H5Dget_offset`, `H5Dchunk_iter`, … | [`Session::dataset_optional`] |
//! | `H5Ocopy`, within a file or to another | [`Session::copy_object`] |
//! | `H5Ldelete`, `H5Lmove` over a link, `H5Odecr_refcount`: an object may be gone | [`Session::touch`] |
//! | anything else that changes objects: `H5Gcreate`, `H5Acreate`, `H5Awrite`, `H5Tcommit`, `H5Lcreate_*`, … | [`Session::touch`] |

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use h5logfs_host::types::{Id, SUCCESS, Status, access};

use crate::arguments::{DatasetGet, DatasetSpecific, FileGet, Location, Optional};
use crate::info::{Info, PropertyList};
use crate::library::Functions;
use crate::object::{Effect, Object};

mod elsewhere;
mod file;
mod fresh;
mod reading;
mod registry;
mod writing;

pub use elsewhere::Start;
use elsewhere::{Link, is_log};
use file::Descriptor;
pub use fresh::Fresh;
pub use registry::Identity;
use writing::Log;

/// An open log.
#[derive(Debug)]
pub struct Session {
    /// As the program gave it.
    pub path: PathBuf,
    /// The file that it was when it was opened.
    pub identity: Identity,
    /// The file access property list of the program.
    pub access: PropertyList,
    /// Objects of the log that are open.
    open: AtomicUsize,
    /// Those of them that are files.
    files: AtomicUsize,
    /// `H5F_CLOSE_STRONG`: the log is closed with its last file, whatever else is open.
    closes_with_file: bool,
    /// libhdf5 finishes the opening of a file of it.
    is_being_opened: AtomicBool,
    /// Whether an object was changed since [`Session::take_changes`].
    is_changed: AtomicBool,
    /// The program lets others follow what it writes.
    is_followed: AtomicBool,
    /// What a program gets that asks for the descriptor.
    descriptor: OnceLock<Descriptor>,
    /// The number that libhdf5 gives to objects of the native file.
    number: OnceLock<u64>,
    /// `None` for a file that is read, and for one that a link led to.
    log: Option<Log>,
    /// Set for a file that a link led to.
    link: Option<Link>,
}

pub use writing::dataset::Dataset;
pub use writing::{FindRanks, NewDataset, release_shadows};

/// What a program asks for when it creates or opens a file.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The path.
    pub name: &'a CStr,
    /// `H5F_ACC_*`.
    pub flags: c_uint,
    /// The file creation property list; `H5P_DEFAULT` for a file that is opened.
    pub fcpl: Id,
    /// The file access property list, with the connector in it.
    pub fapl: Id,
    /// The data transfer property list.
    pub dxpl: Id,
}

impl<'a> Request<'a> {
    /// The path that the name is.
    pub fn path(&self) -> &'a Path {
        h5logfs_file_driver::path_of(self.name)
    }

    /// Whether it has one of the flags.
    pub fn has(&self, flags: c_uint) -> bool {
        self.flags & flags != 0
    }
}

/// A file that was opened for a log: the object of the connector below, and the log.
#[derive(Debug)]
pub struct Opened {
    /// Null if it could not be opened: then the reason is on the error stack.
    pub under: *mut c_void,
    /// The connector below: the native one.
    pub info: Arc<Info>,
    /// The log.
    pub session: Arc<Session>,
}

/// One dataset of a read or a write: `H5S_ALL` is 0 in spaces.
#[derive(Debug)]
pub struct Transfer<'a, B> {
    /// The dataset. Its [`Object::dataset`] is there.
    pub object: &'a Object,
    /// That.
    pub dataset: &'a Arc<Dataset>,
    /// The type of the elements in memory.
    pub memory_type: Id,
    /// The selection in memory.
    pub memory_space: Id,
    /// The selection in the dataset.
    pub file_space: Id,
    /// The data transfer property list.
    pub dxpl: Id,
    /// Where the elements are: `*mut c_void` for a read, `*const c_void` for a write.
    pub buf: B,
}

impl Session {
    /// A log that was opened. No object of it is open.
    pub fn new(info: &Info, request: &Request<'_>, log: Option<Log>) -> Result<Arc<Self>, String> {
        let access = PropertyList::copy(&info.library, request.fapl);
        let access = access.ok_or("the file access property list cannot be copied")?;
        let path = request.path();
        let identity = Identity::of(info, path)
            .ok_or_else(|| format!("{}: it is not there any more", path.display()))?;
        let mut session = Session::of_file(path.to_owned(), identity, access);
        session.closes_with_file = closes_with_file(info, request.fapl);
        if let Some(log) = &log {
            session.number = log.number().into();
        }
        session.log = log;
        let session = Arc::new(session);
        registry::add(&session)?;
        Ok(session)
    }

    /// One of a file of which nothing more is known.
    fn of_file(path: PathBuf, identity: Identity, access: PropertyList) -> Self {
        Session {
            path,
            identity,
            access,
            open: AtomicUsize::new(0),
            files: AtomicUsize::new(0),
            closes_with_file: false,
            is_being_opened: AtomicBool::new(false),
            is_changed: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
            descriptor: OnceLock::new(),
            number: OnceLock::new(),
            log: None,
            link: None,
        }
    }

    /// The logs that this libhdf5 has open at a path, also by another name.
    pub fn open_at(info: &Info, path: &Path) -> Result<Vec<Arc<Session>>, String> {
        let Some(identity) = Identity::of(info, path) else {
            return Ok(Vec::new());
        };
        let mut found = registry::find(&identity)?;
        found.retain(|session| session.is_open());
        Ok(found)
    }

    /// Whether its files are open. Another file may have the number of one that was closed and deleted, while the program
    /// still has objects of that one.
    fn is_open(&self) -> bool {
        self.log.as_ref().is_none_or(Log::is_open)
    }

    /// One more object of the log is open. Returns whether it keeps the log open.
    pub fn enter(&self) -> bool {
        let counts = !self.is_being_opened.load(Ordering::Relaxed);
        if counts {
            self.open.fetch_add(1, Ordering::Relaxed);
        }
        counts
    }

    /// Lets the native file have an object of ours for itself, which lives as long as the file.
    pub fn finish_opening<R>(&self, finish: impl FnOnce() -> R) -> R {
        self.is_being_opened.store(true, Ordering::Relaxed);
        let result = finish();
        self.is_being_opened.store(false, Ordering::Relaxed);
        result
    }

    /// An object is about to be closed. The session ends with the last one, while all that libhdf5 knows is still there.
    pub fn before_leave(&self) {
        if self.open_objects() == 1
            && let Some(log) = &self.log
        {
            log.close(self.take_changes());
            log.shadow().close();
        }
    }

    /// An object was closed. With the last one the session ends.
    pub fn leave(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(log) = &self.log
        {
            log.close(self.take_changes());
        }
    }

    /// Objects of the log that are open.
    pub fn open_objects(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// An object of the log may have been changed.
    pub fn touch(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Session::touch`] was called since that.
    fn is_changed(&self) -> bool {
        self.is_changed.load(Ordering::Relaxed)
    }

    /// Whether [`Session::touch`] was called since the last time.
    pub fn take_changes(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }

    /// A file is created. `None` for a plain one.
    pub fn create(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Opened>, String> {
        if let Some(opened) = writing::create(info, request)? {
            return Ok(Some(opened));
        }
        reading::check_create(info, request).map(|()| None)
    }

    /// A file is opened. `None` for a plain one.
    pub fn open(info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Opened>, String> {
        if let Some(opened) = writing::open(info, request)? {
            return Ok(Some(opened));
        }
        reading::open(info, request)
    }

    /// Whether a path can be opened. `None` for a plain file; else the status of the answer.
    pub fn is_accessible(
        info: &Arc<Info>,
        request: &Request<'_>,
        accessible: *mut bool,
    ) -> Result<Option<Status>, String> {
        reading::is_accessible(info, request, accessible)
    }

    /// A path is deleted. `None`: the connector below deletes it. Fails for what is needed by a log.
    pub fn delete(_info: &Arc<Info>, request: &Request<'_>) -> Result<Option<Status>, String> {
        reading::check_delete(request).map(|()| None)
    }

    /// `H5Fget_*`.
    pub fn file_get(&self, file: &Object, args: &mut FileGet) -> Result<Option<Status>, String> {
        match args.operation {
            FileGet::ACCESS if self.link.is_some() => self.linked_access_list(file, args).map(Some),
            FileGet::ACCESS => reading::access_list(self, args).map(Some),
            // SAFETY: the part of this operation.
            FileGet::NAME if self.log.is_some() => {
                let asked = unsafe { args.arguments.name };
                Ok(Some(writing::give_name(&self.path, &asked)))
            }
            FileGet::INTENT if self.is_followed.load(Ordering::Relaxed) => {
                // SAFETY: the part of this operation.
                unsafe { *args.arguments.intent = access::WRITE | access::SWMR_WRITE };
                Ok(Some(SUCCESS))
            }
            _ => Ok(None),
        }
    }

    /// Operations on files that only the native connector has.
    pub fn file_optional(
        &self,
        _file: &Object,
        args: &mut Optional,
    ) -> Result<Option<Status>, String> {
        if self.log.is_none() {
            return Ok(None);
        }
        // SAFETY: the library gives the arguments of an operation.
        unsafe { file::answer(self, args) }
    }

    /// Whether one of the datasets is what [`Session::read_virtual`] reads.
    pub fn has_virtual(objects: &[&Object]) -> Result<bool, String> {
        for object in objects {
            if fresh::is_wanted(object)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads a virtual dataset, while this process writes logs. `None`: the native file does.
    pub fn read_virtual(
        object: &Object,
        read: impl FnOnce(&Functions, Id) -> Status,
    ) -> Result<Option<Status>, String> {
        if !fresh::is_wanted(object)? {
            return Ok(None);
        }
        fresh::with(object, read).map(Some)
    }

    /// Fails for a virtual dataset whose elements would be written to logs.
    pub fn check_virtual_write(object: &Object) -> Result<(), String> {
        fresh::check_write(object)
    }

    /// Fails where the native file would take elements that are not logged, and each rank has one of its own.
    pub fn check_unlogged_write(&self, object: &Object) -> Result<(), String> {
        let log = self.log.as_ref().filter(|log| log.is_parallel());
        if log.is_none() || !writing::has_extent(object) {
            return Ok(());
        }
        Err(self.about(
            object,
            "several ranks cannot write its elements, which are not logged (variable length, references, virtual or \
             external storage)",
        ))
    }

    /// The file is flushed. The connector below flushes its own file before.
    pub fn flush(&self, _object: &Object) -> Result<(), String> {
        self.flush_log()
    }

    fn flush_log(&self) -> Result<(), String> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let is_changed = self.take_changes();
        let flushed = log.flush(is_changed);
        if flushed.is_err() && is_changed {
            self.touch();
        }
        flushed
    }

    /// One object is flushed. The connector below flushes its own before.
    pub fn flush_object(&self, _object: &Object) -> Result<(), String> {
        self.flush_log()
    }

    /// One more handle of the file is open.
    pub fn enter_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// A handle of the file is closed; other objects may stay open. Called before the connector below closes its own.
    pub fn close_file(&self, _file: &Object) -> Result<(), String> {
        self.flush_log()
    }

    /// A handle of the file was closed.
    pub fn leave_file(&self) {
        if self.files.fetch_sub(1, Ordering::AcqRel) == 1
            && self.closes_with_file
            && let Some(log) = &self.log
        {
            log.close(self.take_changes());
        }
    }

    /// A dataset is about to be made. `None`: the native file takes it as it is.
    pub fn prepare_dataset(
        &self,
        parent: &Object,
        datatype: Id,
        space: Id,
        dcpl: Id,
    ) -> Result<Option<NewDataset>, String> {
        let log = self.log.as_ref();
        log.map(|log| log.prepare(&parent.info, datatype, space, dcpl))
            .transpose()
    }

    /// A dataset was made. Returns the logged dataset that it is.
    pub fn dataset_made(
        &self,
        object: &Object,
        new: NewDataset,
    ) -> Result<Option<Arc<Dataset>>, String> {
        match &self.log {
            Some(log) => log.made(object, new),
            None => Ok(None),
        }
    }

    /// The logged dataset that an object is. `None` for one whose elements are in the native file.
    pub fn dataset(&self, object: &Object) -> Result<Option<Arc<Dataset>>, String> {
        match &self.log {
            Some(log) => log.find(object),
            None => Ok(None),
        }
    }

    /// Logged datasets are read: all that one call names.
    pub fn read(&self, transfers: &[Transfer<'_, *mut c_void>]) -> Result<Status, String> {
        let log = self.log.as_ref().ok_or_else(|| self.has_no_records())?;
        for transfer in transfers {
            log.read(transfer)
                .map_err(|e| self.about(transfer.object, &e))?;
        }
        Ok(SUCCESS)
    }

    /// Logged datasets are written: all that one call names.
    pub fn write(&self, transfers: &[Transfer<'_, *const c_void>]) -> Result<Status, String> {
        let log = self.log.as_ref().ok_or_else(|| self.has_no_records())?;
        for transfer in transfers {
            log.write(transfer)
                .map_err(|e| self.about(transfer.object, &e))?;
        }
        Ok(SUCCESS)
    }

    /// A sentence about a dataset of this file.
    fn about(&self, object: &Object, reason: &str) -> String {
        let name = writing::name_of(object);
        format!("{}: dataset {name}: {reason}", self.path.display())
    }

    /// [`Session::dataset`] has said that there is no logged dataset.
    fn has_no_records(&self) -> String {
        format!("{}: a dataset that is not logged", self.path.display())
    }

    /// `H5Dget_*`, of any dataset.
    pub fn dataset_get(
        &self,
        object: &Object,
        args: &mut DatasetGet,
    ) -> Result<Option<Status>, String> {
        match (&self.log, &object.dataset) {
            (Some(log), Some(dataset)) => log.dataset_get(object, dataset, args),
            _ => fresh::extent(object, args),
        }
    }

    /// `H5Dset_extent`, `H5Drefresh`, of any dataset. `H5Dflush` is [`Session::flush_object`].
    pub fn dataset_specific(
        &self,
        object: &Object,
        args: &mut DatasetSpecific,
    ) -> Result<Option<Status>, String> {
        let (Some(log), Some(dataset)) = (&self.log, &object.dataset) else {
            return Ok(None);
        };
        if args.operation != DatasetSpecific::SET_EXTENT {
            return Ok(None);
        }
        // SAFETY: the part of this operation, with a number for each dimension.
        let dims = unsafe {
            let status = object.call(Effect::Changes, |f, under, vol| {
                (f.H5VLdataset_specific)(under, vol, args, 0, std::ptr::null_mut())
            });
            if status < 0 {
                return Ok(Some(status));
            }
            std::slice::from_raw_parts(args.arguments.extent, dataset.max_dims.len())
        };
        log.set_extent(dataset, dims)
            .map_err(|e| self.about(object, &e))?;
        Ok(Some(SUCCESS))
    }

    /// Operations on datasets that only the native connector has: of chunks, above all.
    pub fn dataset_optional(
        &self,
        object: &Object,
        args: &mut Optional,
    ) -> Result<Option<Status>, String> {
        let (Some(log), Some(dataset)) = (&self.log, &object.dataset) else {
            return Ok(None);
        };
        let is_version_2 = writing::is_version_2(&object.info.library);
        // SAFETY: the library gives the arguments of an operation.
        let answered = unsafe { log.dataset_optional(dataset, args, is_version_2) };
        answered.map_err(|e| self.about(object, &e))
    }

    /// `H5Ocopy`: one of both objects belongs to a log at least.
    pub fn copy_object(copy: &Copy<'_>) -> Result<Option<Status>, String> {
        writing::copy_object(copy)
    }
}

/// Whether a program wants all objects of a file closed with it.
fn closes_with_file(info: &Info, fapl: Id) -> bool {
    const STRONG: c_int = 3;
    let mut degree = 0;
    info.library.nested(|f| {
        // SAFETY: there is room for the answer; the list is the program's.
        let status = unsafe { (f.H5Pget_fclose_degree)(fapl, &mut degree) };
        status >= 0 && degree == STRONG
    })
}

/// What `H5Ocopy` copies.
#[derive(Clone)]
pub struct Copy<'a> {
    /// The session of the file that the source is in.
    pub source_session: Option<Arc<Session>>,
    /// The session of the file that the copy is in.
    pub target_session: Option<Arc<Session>>,
    /// What the source is seen from.
    pub source: &'a Object,
    /// Which object that is meant from there.
    pub source_location: &'a Location,
    /// The path of the source from there.
    pub source_name: &'a CStr,
    /// What the copy is seen from.
    pub target: &'a Object,
    /// Which object that is meant from there.
    pub target_location: &'a Location,
    /// The path of the copy from there.
    pub target_name: &'a CStr,
    /// The object copy property list.
    pub ocpypl: Id,
    /// The link creation property list.
    pub lcpl: Id,
    /// The data transfer property list.
    pub dxpl: Id,
}
