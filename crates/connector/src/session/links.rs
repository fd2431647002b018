//! Files that the links of a log lead to: another log that this process has open, or a file that libhdf5 opens by the
//! driver of the log that the link is in.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;

use h5logfs_catalog::direct::{self, Options};
use h5logfs_file_driver::is_written;
use h5logfs_host::at_end::AtEnd;
use h5logfs_host::types::{DEFAULT, Id, SUCCESS, Status};

use super::{Identity, Kind, Session, registry};
use crate::arguments::{
    FileGet, FileGetArguments, FileName, LinkSpecific, LinkSpecificArguments, Location,
    LocationData, LocationName,
};
use crate::below::Below;
use crate::below::drivers::{has_driver_of_ours, has_usual_driver, set_driver_for_links};
use crate::below::info::Info;
use crate::below::list::PropertyList;
use crate::below::opened::Opened;
use crate::below::questions::place_of;
use h5logfs_common::fault::Fault;

/// Where a path starts.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The object.
    pub below: &'a Below,
    /// The session of its file.
    pub session: &'a Session,
    /// Its kind.
    pub kind: c_int,
    /// The link access property list with which the path is followed.
    pub links: Id,
}

impl Start<'_> {
    fn location(&self, path: &CStr) -> Location {
        Location {
            from: self.kind,
            by: Location::NAME,
            data: LocationData {
                name: LocationName {
                    name: path.as_ptr(),
                    lapl: self.links,
                },
            },
        }
    }

    /// Whether there is a link at a path, in a group that is there.
    fn has_link(&self, path: &CStr) -> bool {
        let location = self.location(path);
        let mut exists = false;
        let mut args = LinkSpecific {
            operation: LinkSpecific::EXISTS,
            arguments: LinkSpecificArguments {
                exists: &mut exists,
            },
        };
        // SAFETY: the object is open, and the path a C string.
        let status = self.with_links(|below| {
            below.quietly(|f, under, vol| unsafe {
                (f.H5VLlink_specific)(under, &location, vol, &mut args, 0, ptr::null_mut())
            })
        });
        status >= 0 && exists
    }

    /// The object of the connector below at a path. `None` if there is none.
    fn open(&self, path: &CStr) -> Option<Opened> {
        let location = self.location(path);
        self.with_links(|below| Opened::at(below, &location))
    }

    fn with_links<R>(&self, call: impl FnOnce(&Below) -> R) -> R {
        let Start { below, session, .. } = *self;
        session.with_links(&below.info, self.links, || call(below))
    }

    /// The session of the file in which a path ends that starts here, where that is another one. Groups at its end may not
    /// be made yet.
    pub fn session_at(&self, path: &[u8]) -> Result<Option<Arc<Session>>, Fault> {
        let root: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
        let names = path.split(|byte| *byte == b'/');
        let mut found = None;
        let mut longer = root.to_vec();
        for name in names.filter(|name| ![b"".as_slice(), b"."].contains(name)) {
            longer.extend_from_slice(name);
            let path = CString::new(longer.clone()).map_err(|e| e.to_string())?;
            if !self.has_link(&path) {
                break;
            }
            found = Some(path);
            longer.push(b'/');
        }
        match found.and_then(|path| self.open(&path)) {
            Some(found) => self.session.elsewhere(&found.below, found.kind),
            None => Ok(None),
        }
    }
}

impl Session {
    /// The session of the file that an object lies in, where it is another one than this: an external link led to it.
    pub fn elsewhere(
        &self,
        object: &Below,
        object_type: c_int,
    ) -> Result<Option<Arc<Self>>, Fault> {
        let number = place_of(object, object_type)?.file;
        if self.number() == Some(number) {
            return Ok(None);
        }
        let open = registry::find_number(object.info.library_number(), number)?;
        match open {
            Some(open) => Ok(Some(open)),
            None => self.linked(object, object_type, number).map(Some),
        }
    }

    /// The session of a file that a link has led to.
    fn linked(&self, object: &Below, object_type: c_int, number: u64) -> Result<Arc<Self>, Fault> {
        let path = path_of_file(object, object_type)?;
        let access = self.access.duplicate();
        let access = access.ok_or("the file access property list cannot be copied")?;
        let identity = Identity::of(&object.info, &path).unwrap_or(self.identity);
        let kind = Kind::Linked {
            number,
            is_inherited: self.is_open_for_writing(),
        };
        Ok(Arc::new(Session::of_file(
            path,
            identity,
            access.into(),
            kind,
        )))
    }

    /// Whether libhdf5 has the native file open for writing, and so each file that a link of it leads to.
    fn is_open_for_writing(&self) -> bool {
        match self.kind {
            Kind::Read { .. } => false,
            Kind::Written(_) => true,
            Kind::Linked { is_inherited, .. } => is_inherited,
        }
    }

    /// Fails where nothing can be written to the file. It is a log that another process writes, from which this one was forked.
    /// Or it is a log that a link led to: libhdf5 has it open for writing, since the file with the link is, and does not hear
    /// that what it writes is lost.
    pub fn check_writable(&self) -> Result<(), Fault> {
        self.check_process()?;
        let is_linked = matches!(
            self.kind,
            Kind::Linked {
                is_inherited: true,
                ..
            }
        );
        if !is_linked || !is_log(&self.path) {
            return Ok(());
        }
        Err(format!(
            "{}: this is a log that a link of another file leads to, and is only read there: open it by itself to write to it",
            self.path.display()
        ).into())
    }

    /// Gives the access property list of a file that a link led to, in which the driver is that of the program.
    pub fn linked_access_list(&self, file: &Below, args: &mut FileGet) -> Result<Status, Fault> {
        // SAFETY: the file is open, and the arguments are those of the operation.
        let status = file.quietly(|f, under, vol| unsafe {
            (f.H5VLfile_get)(under, vol, args, 0, ptr::null_mut())
        });
        if status < 0 {
            return Ok(status);
        }
        // SAFETY: the part of this operation, which has succeeded.
        let list = PropertyList::own(&file.info.library, unsafe { args.arguments.access });
        if has_driver_of_ours(&file.info, list.id) {
            self.set_driver_of_program(&file.info, list.id)?;
        }
        list.forget_page_buffer();
        file.info.restore_list(list.id)?;
        args.arguments.access = list.into_id();
        Ok(SUCCESS)
    }

    fn set_driver_of_program(&self, info: &Info, list: Id) -> Result<(), Fault> {
        // SAFETY: both lists are of this library, which copies the information of the driver.
        let status = info.library.nested(|f| unsafe {
            let from = self.access.id;
            (f.H5Pset_driver)(list, (f.H5Pget_driver)(from), (f.H5Pget_driver_info)(from))
        });
        match status {
            0.. => Ok(()),
            _ => Err("the driver of a file access property list cannot be set".into()),
        }
    }

    /// Calls with a link access property list in which the files of links have the driver of this file, as they have where
    /// the program gives no list for them. The list of the program is changed for the time of the call: a copy would have
    /// to live as long as the call that libhdf5 is in.
    pub fn with_links<R>(&self, info: &Arc<Info>, lapl: Id, call: impl FnOnce() -> R) -> R {
        if lapl == DEFAULT {
            return call();
        }
        let library = &info.library;
        // SAFETY: `lapl` is a list of the library, or a special number, for which it has no answer.
        let given = library.nested(|f| unsafe { (f.H5Pget_elink_fapl)(lapl) });
        if given <= 0 {
            return call();
        }
        let given = PropertyList::own(library, given);
        let own = given
            .duplicate()
            .filter(|own| has_usual_driver(info, own.id) && self.set_driver(info, own.id));
        let Some(own) = own else {
            return call();
        };
        // SAFETY: the lists are of the library, which copies what is set.
        let set = |list: Id| library.nested(|f| unsafe { (f.H5Pset_elink_fapl)(lapl, list) });
        set(own.id);
        let _given = AtEnd(|| {
            set(given.id);
        });
        call()
    }

    /// Sets the driver by which links of this file are followed.
    fn set_driver(&self, info: &Info, list: Id) -> bool {
        set_driver_for_links(info, list, self.is_open_for_writing()) >= 0
    }
}

/// Whether a path is that of a log, and of no plain file that this process writes.
pub fn is_log(path: &Path) -> bool {
    let is_plain = path.metadata().is_ok_and(|found| is_written(path, &found));
    !is_plain
        && matches!(
            direct::open(path, &Options::default()),
            Ok(direct::Opened::Log(_))
        )
}

/// The path of the file that an object lies in.
fn path_of_file(object: &Below, object_type: c_int) -> Result<PathBuf, Fault> {
    let ask = |name: &mut [u8], length: &mut usize| {
        let mut args = FileGet {
            operation: FileGet::NAME,
            arguments: FileGetArguments {
                name: FileName {
                    kind: object_type,
                    size: name.len(),
                    name: name.as_mut_ptr().cast(),
                    length,
                },
            },
        };
        // SAFETY: the object is open, and there is room for `size` bytes.
        object.quietly(|f, under, vol| unsafe {
            (f.H5VLfile_get)(under, vol, &mut args, 0, ptr::null_mut())
        })
    };
    let mut length = 0;
    let mut status = ask(&mut [0], &mut length);
    let mut name = vec![0; length + 1];
    if status >= 0 {
        status = ask(&mut name, &mut length);
    }
    match CStr::from_bytes_until_nul(&name) {
        Ok(name) if status >= 0 => Ok(OsStr::from_bytes(name.to_bytes()).into()),
        _ => Err("the name of the file that a link leads to cannot be had".into()),
    }
}
