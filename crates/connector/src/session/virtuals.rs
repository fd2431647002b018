//! Virtual datasets, while this process writes logs.
//!
//! A source of a virtual dataset may be a logged dataset, whose elements no native file holds. So the logs are flushed, and the
//! virtual dataset is read from its file as flushed, with new views of all logs.

use std::ffi::{CStr, CString, c_int, c_uint};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use h5logfs_file_driver::FRESH_DRIVER;
use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status};
use parking_lot::Mutex;

use super::links::is_log;
use super::{Session, registry};
use crate::arguments::DatasetGet;
use crate::below::Below;
use crate::below::apart::apart;
use crate::below::drivers::set_driver;
use crate::below::info::Info;
use crate::below::questions::{list_of, name_of, path_of};
use crate::library::Functions;
use crate::log::making::can_change;
use crate::log::version;
use h5logfs_common::fault::Fault;

/// `H5D_VIRTUAL`.
const VIRTUAL: c_int = 3;

/// A dataset whose elements are not logged, and that may be virtual.
#[derive(Debug, Default)]
pub struct Virtual {
    /// Whether the dataset is virtual, once asked. The inner value is `None` if its creation property list cannot be read.
    is_virtual: OnceLock<Option<bool>>,
    /// The dataset as of the last flush. The lock is never held during a call of libhdf5.
    fresh: Mutex<Option<Arc<Fresh>>>,
}

/// A dataset in a file that was opened anew for it.
#[derive(Debug)]
struct Fresh {
    info: Arc<Info>,
    file: Id,
    dataset: Id,
    /// The version of this process's logs at the opening.
    version: u64,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: this structure opened both, and closes them once.
        self.info.library.nested(|f| unsafe {
            (f.H5Dclose)(self.dataset);
            (f.H5Fclose)(self.file);
        });
    }
}

impl Virtual {
    /// Whether a dataset is virtual, and its library writes logs.
    pub fn is_wanted(&self, below: &Below) -> Result<bool, Fault> {
        Ok(!registry::written(below.info.library_number())?.is_empty() && self.is_virtual(below))
    }

    fn is_virtual(&self, below: &Below) -> bool {
        let known = self.is_virtual.get().copied();
        let is_virtual = known.unwrap_or_else(|| {
            // The query converts the fill value, and the present call may have its own settings for conversions.
            let list = apart(below.library(), || list_of(below, DatasetGet::CREATION));
            let found = list.map(|list| {
                // SAFETY: the list is open.
                let layout = |f: &Functions| unsafe { (f.H5Pget_layout)(list.id) };
                below.library().nested(layout) == VIRTUAL
            });
            // Another thread may have set the answer in between; the first one counts.
            *self.is_virtual.get_or_init(|| found)
        });
        is_virtual.unwrap_or(false)
    }

    /// Runs `call` with the present state of a virtual dataset in a session's file.
    ///
    /// A conversion of elements may run functions of the program, which may read this dataset, too. So no lock is held.
    pub fn with<R>(
        &self,
        session: &Session,
        below: &Below,
        call: impl FnOnce(&Functions, Id) -> R,
    ) -> Result<R, Fault> {
        let fresh = self.fresh(session, below).map_err(|reason| {
            let name = name_of(below);
            format!("virtual dataset {name}: {reason}")
        })?;
        Ok(fresh.info.library.nested(|f| call(f, fresh.dataset)))
    }

    /// The dataset as of the last flush: the kept one, or a new one, which is kept from now on.
    fn fresh(&self, session: &Session, below: &Below) -> Result<Arc<Fresh>, Fault> {
        for session in registry::written(below.info.library_number())? {
            session.settle()?;
        }
        let version = version::present();
        let kept = self.fresh.lock().clone();
        if let Some(kept) = kept.filter(|kept| kept.version == version) {
            return Ok(kept);
        }
        let earlier = self.fresh.lock().take();
        // The earlier file is closed before it is opened once more.
        drop(earlier);
        let fresh = Arc::new(Fresh::open(session, below, version)?);
        let other = self.fresh.lock().replace(Arc::clone(&fresh));
        drop(other);
        Ok(fresh)
    }

    /// Fails for a virtual dataset with sources in logs.
    pub fn check_write(&self, session: &Session, below: &Below) -> Result<(), Fault> {
        if !self.is_wanted(below)? {
            return Ok(());
        }
        let list = list_of(below, DatasetGet::CREATION);
        let list = list.ok_or("its creation property list cannot be read")?;
        let sources = sources(&below.info, list.id);
        let dir = session.path.parent().unwrap_or(Path::new(""));
        let is_plain = |source: &Option<String>| {
            let source = source.as_ref().filter(|name| *name != ".");
            source.is_some_and(|name| {
                let found = [dir.join(name), name.into()];
                let found = found.iter().find(|path| fs::metadata(path).is_ok());
                found.is_some_and(|path| !is_log(path))
            })
        };
        if sources.iter().all(is_plain) {
            return Ok(());
        }
        Err(format!(
            "{}: virtual dataset {}: the source datasets lie in logs: write to these",
            session.path.display(),
            name_of(below)
        )
        .into())
    }

    /// `H5Dget_*`: the extent, which depends on the extents of the sources. `None`: the native file answers.
    pub fn get(
        &self,
        session: &Session,
        below: &Below,
        args: &mut DatasetGet,
    ) -> Result<Option<Status>, Fault> {
        let is_asked = args.operation == DatasetGet::SPACE;
        if !is_asked || !self.is_wanted(below)? || !can_change(below) {
            return Ok(None);
        }
        // SAFETY: the dataset is open.
        let space = |f: &Functions, dataset| unsafe { (f.H5Dget_space)(dataset) };
        let space = self.with(session, below, space)?;
        if space < 0 {
            return Ok(Some(FAILURE));
        }
        args.arguments.space = space;
        Ok(Some(SUCCESS))
    }
}

impl Fresh {
    fn open(session: &Session, below: &Below, version: u64) -> Result<Self, Fault> {
        let info = below.info.native()?;
        let path = path_of(below)?;
        let dapl = list_of(below, DatasetGet::ACCESS);
        let dapl = dapl.ok_or("its access property list cannot be read")?;
        let file = open_again(&info, session)?;
        // SAFETY: the file is open, the list belongs to the library, and the path is a C string.
        let dataset = info.library.nested(|f| unsafe {
            let dataset = (f.H5Dopen2)(file, path.as_ptr(), dapl.id);
            if dataset < 0 {
                (f.H5Fclose)(file);
                return dataset;
            }
            // libhdf5 finds out the extent only when asked for it; a read uses the extent known so far.
            let space = (f.H5Dget_space)(dataset);
            (f.H5Sclose)(space);
            dataset
        });
        if dataset < 0 {
            return Err("it cannot be opened in the file as it was flushed".into());
        }
        Ok(Fresh {
            info,
            file,
            dataset,
            version,
        })
    }
}

/// Opens the file of a session once more, for reading. Its objects do not belong to this connector.
fn open_again(info: &Arc<Info>, session: &Session) -> Result<Id, Fault> {
    /// `H5F_ACC_RDONLY`.
    const READ_ONLY: c_uint = 0;
    let name = CString::new(session.path.as_os_str().as_bytes());
    let name = name.map_err(|e| e.to_string())?;
    info.with_under_list(session.access.id, |list| {
        if set_driver(info, list, FRESH_DRIVER, h5logfs_file_driver::fresh_class()) < 0 {
            return Err("the file driver cannot be registered".into());
        }
        // SAFETY: the list belongs to this library, and the name is a C string. This needs `H5Fopen`: within a call for an
        // object, no function for connectors opens a file.
        let file = info
            .library
            .nested(|f| unsafe { (f.H5Fopen)(name.as_ptr(), READ_ONLY, list) });
        match file {
            1.. => Ok(file),
            _ => Err("its file cannot be opened as it was flushed".into()),
        }
    })
}

/// The file names in the mappings of a virtual dataset. `None` for a name that libhdf5 does not give.
fn sources(info: &Info, dcpl: Id) -> Vec<Option<String>> {
    /// The longest path with a zero byte.
    const ROOM: usize = 4096;
    let mut number = 0;
    info.library.nested(|f| {
        // SAFETY: the list is open, and the places for the answers are valid.
        if unsafe { (f.H5Pget_virtual_count)(dcpl, &mut number) } < 0 {
            return vec![None];
        }
        let source = |n| {
            let mut name = [0u8; ROOM];
            // SAFETY: as above.
            let length: isize =
                unsafe { (f.H5Pget_virtual_filename)(dcpl, n, name.as_mut_ptr().cast(), ROOM) };
            let is_whole = usize::try_from(length).is_ok_and(|length| (1..ROOM).contains(&length));
            let name = CStr::from_bytes_until_nul(&name).ok()?;
            is_whole.then(|| name.to_string_lossy().into_owned())
        };
        (0..number).map(source).collect()
    })
}
