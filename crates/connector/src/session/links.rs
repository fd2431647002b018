//! Files behind the links of a log: another log that this process has open, or a file that libhdf5 opens with the driver of the
//! file that contains the link.

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

/// The start of a path.
#[derive(Debug, Clone, Copy)]
pub struct Start<'a> {
    /// The object.
    pub below: &'a Below,
    /// The session of the object's file.
    pub session: &'a Session,
    /// The kind of the object.
    pub kind: c_int,
    /// The link access property list for the path.
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

    /// Whether there is a link at a path. `false` if its group does not exist.
    fn has_link(&self, path: &CStr) -> bool {
        let location = self.location(path);
        let mut exists = false;
        let mut args = LinkSpecific {
            operation: LinkSpecific::EXISTS,
            arguments: LinkSpecificArguments {
                exists: &mut exists,
            },
        };
        // SAFETY: the object is open, and the path is a C string.
        let status = self.with_links(|below| {
            below.quietly(|f, under, vol| unsafe {
                (f.H5VLlink_specific)(under, &location, vol, &mut args, 0, ptr::null_mut())
            })
        });
        status >= 0 && exists
    }

    /// Opens the object at a path. `None` if there is none.
    fn open(&self, path: &CStr) -> Option<Opened> {
        let location = self.location(path);
        self.with_links(|below| Opened::at(below, &location))
    }

    fn with_links<R>(&self, call: impl FnOnce(&Below) -> R) -> R {
        let Start { below, session, .. } = *self;
        session.with_links(&below.info, self.links, || call(below))
    }

    /// The session of the file in which a path ends, if it is not the file of the start. Groups at the end of the path may not
    /// exist yet.
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
    /// The session of an object's file, if an external link led to another file than this one.
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

    /// The session of a file that a link led to.
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

    /// Whether libhdf5 has the native file open for writing. It then opens files behind its links for writing, too.
    fn is_open_for_writing(&self) -> bool {
        match self.kind {
            Kind::Read { .. } => false,
            Kind::Written(_) => true,
            Kind::Linked { is_inherited, .. } => is_inherited,
        }
    }

    /// Fails if the file cannot be written. There are two cases. The log may belong to a process from which this one was forked.
    /// Or a link led to a closed log: libhdf5 has that open for writing, like the file with the link, and would not hear that
    /// what it writes is lost.
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
            "{}: a link of another file leads to this log, which is read-only through the link: open the log itself to \
             write to it",
            self.path.display()
        ).into())
    }

    /// Returns the access property list of a file that a link led to, with the program's own driver.
    pub fn linked_access_list(&self, file: &Below, args: &mut FileGet) -> Result<Status, Fault> {
        // SAFETY: the file is open, and the arguments belong to the operation.
        let status = file.quietly(|f, under, vol| unsafe {
            (f.H5VLfile_get)(under, vol, args, 0, ptr::null_mut())
        });
        if status < 0 {
            return Ok(status);
        }
        // SAFETY: the operation has succeeded, and it selects this part of the union.
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
        // SAFETY: both lists belong to this library, which copies the driver's information.
        let status = info.library.nested(|f| unsafe {
            let from = self.access.id;
            (f.H5Pset_driver)(list, (f.H5Pget_driver)(from), (f.H5Pget_driver_info)(from))
        });
        match status {
            0.. => Ok(()),
            _ => Err("the driver of a file access property list cannot be set".into()),
        }
    }

    /// Runs `call` with a link access property list that opens linked files with the driver of this file, unless the program set
    /// a list for them. The program's list is changed during the call. A copy would have to outlive the call of libhdf5 that this
    /// one runs in.
    pub fn with_links<R>(&self, info: &Arc<Info>, lapl: Id, call: impl FnOnce() -> R) -> R {
        if lapl == DEFAULT {
            return call();
        }
        let library = &info.library;
        // SAFETY: `lapl` is a list of the library, or a special number, for which the call fails.
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
        // SAFETY: the lists belong to the library, which copies the value.
        let set = |list: Id| library.nested(|f| unsafe { (f.H5Pset_elink_fapl)(lapl, list) });
        set(own.id);
        let _given = AtEnd(|| {
            set(given.id);
        });
        call()
    }

    /// Sets the driver that follows links of this file.
    fn set_driver(&self, info: &Info, list: Id) -> bool {
        set_driver_for_links(info, list, self.is_open_for_writing()) >= 0
    }
}

/// Whether a path leads to a log. A plain file that this process writes does not count.
pub fn is_log(path: &Path) -> bool {
    let is_plain = path.metadata().is_ok_and(|found| is_written(path, &found));
    !is_plain
        && matches!(
            direct::open(path, &Options::default()),
            Ok(direct::Opened::Log(_))
        )
}

/// The path of an object's file.
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
        _ => Err("the name of the file behind a link cannot be read".into()),
    }
}
