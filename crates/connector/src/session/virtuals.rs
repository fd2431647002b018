//! Virtual datasets, while this process writes logs: their sources may be logged datasets, whose elements no native file
//! has. The logs are flushed, and the dataset is read from the file as it then is, with new views of all logs.

use std::ffi::{CStr, c_int};
use std::fs;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use h5logfs_host::types::{FAILURE, Id, SUCCESS, Status};

use super::{Session, is_log, reading, registry, writing};
use crate::arguments::{DatasetGet, DatasetGetArguments};
use crate::info::{Info, PropertyList};
use crate::library::Functions;
use crate::object::{Effect, Object};

/// `H5D_VIRTUAL`.
const VIRTUAL: c_int = 3;

/// A dataset, in a file that was opened anew for it.
#[derive(Debug)]
pub struct Fresh {
    info: Arc<Info>,
    file: Id,
    dataset: Id,
    /// What was written when it was opened.
    version: u64,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: both are ours, and closed once.
        self.info.library.nested(|f| unsafe {
            (f.H5Dclose)(self.dataset);
            (f.H5Fclose)(self.file);
        });
    }
}

/// Whether a dataset is a virtual one, while its library writes logs.
pub fn is_wanted(object: &Object) -> Result<bool, String> {
    if object.session.is_none() || object.dataset.is_some() {
        return Ok(false);
    }
    Ok(is_virtual(object) && !registry::written(object.info.library_number())?.is_empty())
}

fn is_virtual(object: &Object) -> bool {
    let is_virtual = object.is_virtual.get_or_init(|| {
        let list = ask(object, DatasetGet::CREATION)?;
        let f = object.info.library;
        // SAFETY: the list is ours.
        Some(f.nested(|f| unsafe { (f.H5Pget_layout)(list.id) }) == VIRTUAL)
    });
    is_virtual.unwrap_or(false)
}

/// A property list of a dataset.
fn ask(object: &Object, operation: c_int) -> Option<PropertyList> {
    let mut args = DatasetGet {
        operation,
        arguments: DatasetGetArguments { access: -1 },
    };
    // SAFETY: the object is open, and both answers are identifiers.
    let status = object.call(Effect::Reads, |f, under, vol| unsafe {
        (f.H5VLdataset_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    // SAFETY: see above.
    (status >= 0).then(|| PropertyList::own(&object.info.library, unsafe { args.arguments.access }))
}

/// Calls with a virtual dataset as it is now.
pub fn with<R>(object: &Object, call: impl FnOnce(&Functions, Id) -> R) -> Result<R, String> {
    let about = |reason: &str| {
        let name = writing::name_of(object);
        format!("virtual dataset {name}: {reason}")
    };
    for session in registry::written(object.info.library_number())? {
        session.settle().map_err(|reason| about(&reason))?;
    }
    let fresh = Fresh::of(object).map_err(|reason| about(&reason))?;
    // A conversion of elements may run functions of the program, which may read this dataset, too. So nothing is locked.
    Ok(fresh.info.library.nested(|f| call(f, fresh.dataset)))
}

impl Fresh {
    /// The dataset as it was flushed last: the one that the object keeps, or a new one, which it keeps then.
    fn of(object: &Object) -> Result<Arc<Self>, String> {
        let version = registry::version();
        let kept = object.fresh.lock().clone();
        if let Some(kept) = kept.filter(|kept| kept.version == version) {
            return Ok(kept);
        }
        // libhdf5 is not called with the lock held, neither to close the earlier one nor to open this.
        let earlier = object.fresh.lock().take();
        drop(earlier);
        let fresh = Arc::new(Fresh::open(object, version)?);
        let other = object.fresh.lock().replace(Arc::clone(&fresh));
        drop(other);
        Ok(fresh)
    }

    fn open(object: &Object, version: u64) -> Result<Self, String> {
        let session = object.session.as_ref().ok_or("it belongs to no log")?;
        let info = object.info.native()?;
        let path = writing::path_of(object)?;
        let dapl = ask(object, DatasetGet::ACCESS);
        let dapl = dapl.ok_or("its access property list cannot be had")?;
        let file = reading::open_again(&info, session)?;
        // SAFETY: the file is ours, the list of the library, and the path a C string.
        let dataset = info.library.nested(|f| unsafe {
            let dataset = (f.H5Dopen2)(file, path.as_ptr(), dapl.id);
            if dataset < 0 {
                (f.H5Fclose)(file);
            }
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

impl Session {
    /// Flushes what others cannot see. Ranks cannot do that by themselves.
    fn settle(&self) -> Result<(), String> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        if !log.is_parallel() {
            return self.flush_log();
        }
        if self.is_changed() || log.has_unflushed() {
            return Err(format!(
                "{}: several ranks write this log: virtual datasets are read after a flush",
                self.path.display()
            ));
        }
        Ok(())
    }
}

/// Fails for a virtual dataset whose elements would be written to logs.
pub fn check_write(object: &Object) -> Result<(), String> {
    let Some(session) = object.session.as_ref() else {
        return Ok(());
    };
    if !is_wanted(object)? {
        return Ok(());
    }
    let list =
        ask(object, DatasetGet::CREATION).ok_or("its creation property list cannot be had")?;
    let sources = sources(&object.info, list.id);
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
        "{}: virtual dataset {}: the datasets that it is made of lie in logs: write to these",
        session.path.display(),
        writing::name_of(object)
    ))
}

/// The files of the mappings of a virtual dataset.
fn sources(info: &Info, dcpl: Id) -> Vec<Option<String>> {
    /// Longer paths are none.
    const ROOM: usize = 4096;
    let mut number = 0;
    info.library.nested(|f| {
        // SAFETY: the list is ours, and there is room for the answers.
        unsafe { (f.H5Pget_virtual_count)(dcpl, &mut number) };
        let source = |n| {
            let mut name = [0u8; ROOM];
            // SAFETY: see above.
            let length: isize =
                unsafe { (f.H5Pget_virtual_filename)(dcpl, n, name.as_mut_ptr().cast(), ROOM) };
            let name = CStr::from_bytes_until_nul(&name).ok()?;
            (length > 0).then(|| name.to_string_lossy().into_owned())
        };
        (0..number).map(source).collect()
    })
}

/// Asks for the extent of a virtual dataset, which that of its sources may change.
pub fn extent(object: &Object, args: &mut DatasetGet) -> Result<Option<Status>, String> {
    if args.operation != DatasetGet::SPACE || !is_wanted(object)? || !writing::is_unlimited(object)
    {
        return Ok(None);
    }
    // SAFETY: the dataset is open.
    let space = with(object, |f, dataset| unsafe { (f.H5Dget_space)(dataset) })?;
    if space < 0 {
        return Ok(Some(FAILURE));
    }
    args.arguments.space = space;
    Ok(Some(SUCCESS))
}
