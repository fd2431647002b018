//! The metadata image of a log: a native file in memory, which has all objects and no element of a logged dataset.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use h5logfs_file_driver::{Announced, SESSION_DRIVER, Withdrawn, Written};
use h5logfs_hdf5_format::Image;
use h5logfs_host::types::{FAILURE, Id, Status};
use parking_lot::Mutex;

use super::closed;
use crate::arguments::{
    FileFlush, FileSpecific, FileSpecificArguments, Location, LocationData, Optional, Token, kind,
};
use crate::below::drivers::set_driver;
use crate::below::info::Info;
use crate::below::list::default_list;
use crate::below::questions::number_of;
use crate::below::request::Request;
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// Stands behind the name of the log in the name of the file in memory, which no file has: libhdf5 looks for one.
const SUFFIX: &str = ".h5logfs-metadata_image";

/// The metadata image of an open log. It is open as long as its root group, which we keep: a file closes when nothing of it is
/// open, and can be asked for its image until then, also when the program has closed it.
#[derive(Debug)]
pub struct MetadataImage {
    /// The handle that the program gets.
    file: *mut c_void,
    /// It has got it, and closes it.
    is_given: AtomicBool,
    /// Null once it is closed.
    root: AtomicPtr<c_void>,
    info: Arc<Info>,
    number: u64,
    /// Its name is not given to another file meanwhile. `None` once the file is taken ([`Metadata image::take`]).
    announced: Mutex<Option<Announced>>,
}

// SAFETY: libhdf5 guards its objects by its own lock, or leaves that to the program.
unsafe impl Send for MetadataImage {}
// SAFETY: see above.
unsafe impl Sync for MetadataImage {}

/// A root group that nothing uses any more.
struct Unused {
    root: *mut c_void,
    /// The handle of its file, where the program has not got it: the log could not be made.
    file: Option<*mut c_void>,
    info: Arc<Info>,
}

// SAFETY: as above.
unsafe impl Send for Unused {}

/// libhdf5 is not called with the lock held.
static UNUSED: Mutex<Vec<Unused>> = Mutex::new(Vec::new());

impl Drop for MetadataImage {
    /// Where a file closes, libhdf5 looks at all objects that have identifiers. The session may end in the close of one
    /// that still has its identifier, but nothing behind it. So the root group is closed a little later.
    fn drop(&mut self) {
        let root = self.root.swap(ptr::null_mut(), Ordering::AcqRel);
        if !root.is_null() {
            let is_given = self.is_given.load(Ordering::Relaxed);
            UNUSED.lock().push(Unused {
                root,
                file: (!is_given).then_some(self.file),
                info: Arc::clone(&self.info),
            });
        }
    }
}

/// Closes the metadata images of logs that are closed, where all objects with identifiers are open.
pub fn release(library: &Library) {
    let unused: Vec<Unused> = {
        let mut all = UNUSED.lock();
        if all.is_empty() {
            return;
        }
        let is_own = |unused: &mut Unused| unused.info.library.is(library);
        all.extract_if(.., is_own).collect()
    };
    for Unused { root, file, info } in unused {
        close_root(root, &info);
        if let Some(file) = file {
            close_file(file, &info);
        }
    }
}

/// The same where a library ends, which keeps no metadata image of a log for later.
pub fn release_all(library: &Library) {
    closed::forget_all(library);
    release(library);
}

fn close_root(root: *mut c_void, info: &Info) {
    // SAFETY: the group is ours, and closed once.
    info.library
        .nested(|f| unsafe { (f.H5VLgroup_close)(root, info.under_vol, 0, ptr::null_mut()) });
}

fn close_file(file: *mut c_void, info: &Info) {
    // SAFETY: the file is ours, and closed once.
    info.library
        .nested(|f| unsafe { (f.H5VLfile_close)(file, info.under_vol, 0, ptr::null_mut()) });
}

/// Keeps a file, as far as its objects allow, to what the program that shows and closes logs can read, which may use an
/// older libhdf5: `H5F_LIBVER_V110`.
///
/// # Safety
///
/// The list is one of the library.
unsafe fn bound_format(f: &Functions, list: Id) -> Status {
    const V110: c_int = 2;
    let (mut low, mut high) = (0, V110);
    // SAFETY: the caller says so; both are places for a number.
    unsafe {
        let status = (f.H5Pget_libver_bounds)(list, &mut low, &mut high);
        status | (f.H5Pset_libver_bounds)(list, low.min(V110), high)
    }
}

/// Opens the root group. Closes the file if that fails.
fn open_root(file: *mut c_void, info: &Info) -> Result<*mut c_void, Fault> {
    let mut token = Token([0; 16]);
    let location = Location {
        from: kind::FILE,
        by: Location::SELF,
        data: LocationData { token: &mut token },
    };
    let gapl = default_list(&info.library, c"H5P_LST_GROUP_ACCESS_ID_g")?;
    // SAFETY: the file is open, and the path is a C string.
    let root = info.library.quietly(|f| unsafe {
        let (vol, root) = (info.under_vol, c"/".as_ptr());
        (f.H5VLgroup_open)(file, &location, vol, root, gapl, 0, ptr::null_mut())
    });
    if root.is_null() {
        close_file(file, info);
        return Err("the root group cannot be opened in memory".into());
    }
    Ok(root)
}

/// What follows the reason that libhdf5 has put on its error stack.
pub fn refused(path: &Path) -> Fault {
    let path = path.display();
    format!("{path}: the objects of the log cannot be had in memory").into()
}

/// Tells the file driver of a file in memory, by a name for the metadata image of a log.
fn announce(info: &Info, path: &Path, image: &[u8]) -> Result<Announced, Fault> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.extend_from_slice(format!("{SUFFIX}-{number}").as_bytes());
    let name = CString::new(name).map_err(|_| "a path with a zero byte")?;
    let of = Written {
        path: path.to_owned(),
        library: info.library.number(),
    };
    h5logfs_file_driver::announce(name, image.to_vec(), of)
        .ok_or_else(|| "the file in memory has the name of another one".into())
}

impl MetadataImage {
    /// Makes an empty one, with the creation property list of the program. Null if libhdf5 refuses: then the reason is
    /// on its error stack.
    pub fn create(
        info: &Arc<Info>,
        request: &Request<'_>,
        path: &Path,
    ) -> Result<Option<Self>, Fault> {
        const CREATE: u32 = 0x02;
        Self::made(
            info,
            request,
            announce(info, path, &[])?,
            |f, name, fapl| {
                // SAFETY: the lists are of this library, and the name is a C string.
                unsafe {
                    (f.H5VLfile_create)(
                        name.as_ptr(),
                        CREATE,
                        request.fcpl,
                        fapl,
                        request.dxpl,
                        ptr::null_mut(),
                    )
                }
            },
        )
    }

    /// Opens one of an image.
    pub fn open(
        info: &Arc<Info>,
        request: &Request<'_>,
        path: &Path,
        image: &[u8],
    ) -> Result<Option<Self>, Fault> {
        const WRITE: u32 = 0x01;
        Self::made(
            info,
            request,
            announce(info, path, image)?,
            |f, name, fapl| {
                // SAFETY: the list is of this library, and the name is a C string.
                unsafe {
                    (f.H5VLfile_open)(name.as_ptr(), WRITE, fapl, request.dxpl, ptr::null_mut())
                }
            },
        )
    }

    fn made(
        info: &Arc<Info>,
        request: &Request<'_>,
        announced: Announced,
        make: impl FnOnce(&Functions, &CStr, Id) -> *mut c_void,
    ) -> Result<Option<Self>, Fault> {
        /// `H5F_CLOSE_WEAK`: it stays open as long as an object of it.
        const WEAK: c_int = 1;
        let native = info.native()?;
        let file = native.with_under_list(request.fapl, |list| {
            let (name, class) = (SESSION_DRIVER, h5logfs_file_driver::session_class());
            let mut set = set_driver(info, list, name, class);
            // SAFETY: the list is of this library.
            set |= info.library.nested(|f| unsafe {
                // Data are aligned in the log, not in memory.
                (f.H5Pset_fclose_degree)(list, WEAK)
                    | (f.H5Pset_alignment)(list, 1, 1)
                    | bound_format(f, list)
                    // A log that a link leads to is not what it was once it is closed.
                    | (f.H5Pset_elink_file_cache_size)(list, 0)
            });
            if set == FAILURE {
                return Err("the file in memory cannot be described".into());
            }
            Ok(info.library.quietly(|f| make(f, announced.name(), list)))
        })?;
        if file.is_null() {
            return Ok(None);
        }
        let number = number_of(&native, file);
        let number = number.inspect_err(|_| close_file(file, &native))?;
        let root = open_root(file, &native)?;
        Ok(Some(MetadataImage {
            file,
            is_given: AtomicBool::new(false),
            root: AtomicPtr::new(root),
            number,
            info: native,
            announced: Mutex::new(Some(announced)),
        }))
    }

    /// Takes the file out of a log that is closed: it stays open when the program has closed its own. `None` if the program has
    /// got none, or the file is given up.
    pub fn take(&self) -> Option<Closed> {
        if !self.is_given.load(Ordering::Relaxed) {
            return None;
        }
        let announced = self.announced.lock().take()?;
        let root = self.root.swap(ptr::null_mut(), Ordering::AcqRel);
        let metadata_image = MetadataImage {
            file: self.file,
            is_given: AtomicBool::new(true),
            root: AtomicPtr::new(root),
            number: self.number,
            info: Arc::clone(&self.info),
            announced: Mutex::new(None),
        };
        let withdrawn = announced.withdraw()?;
        (!root.is_null()).then_some(Closed {
            metadata_image,
            withdrawn,
        })
    }

    /// Gives the file up, where all objects with identifiers are open. It closes when the program has closed its own.
    pub fn close(&self) {
        let root = self.root.swap(ptr::null_mut(), Ordering::AcqRel);
        if !root.is_null() {
            close_root(root, &self.info);
        }
    }

    /// The number that the library gives to objects of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first handle for a program that makes or opens the log, which closes it. Null if libhdf5 refuses: then the reason is
    /// on its error stack.
    pub fn first_handle(&self) -> *mut c_void {
        if self.is_given.swap(true, Ordering::Relaxed) {
            // The program has closed the other one with the log.
            return self.handle();
        }
        self.file
    }

    /// Another handle, for the program. Null if libhdf5 refuses: then the reason is on its error stack.
    pub fn handle(&self) -> *mut c_void {
        let mut handle = ptr::null_mut();
        let mut args = FileSpecific {
            operation: FileSpecific::REOPEN,
            arguments: FileSpecificArguments {
                reopen: &mut handle,
            },
        };
        match self.specific(&mut args) {
            0.. => handle,
            _ => ptr::null_mut(),
        }
    }

    fn specific(&self, args: &mut FileSpecific) -> Status {
        // SAFETY: the file is open, and the arguments are those of the operation.
        self.info.library.quietly(|f| unsafe {
            (f.H5VLfile_specific)(self.file, self.info.under_vol, args, 0, ptr::null_mut())
        })
    }

    /// Brings all that libhdf5 keeps of the file into its image. That may decide where later objects lie.
    pub fn flush(&self) -> Result<(), Fault> {
        let mut args = FileSpecific {
            operation: FileSpecific::FLUSH,
            arguments: FileSpecificArguments {
                // H5I_FILE, H5F_SCOPE_LOCAL
                flush: FileFlush { kind: 1, scope: 0 },
            },
        };
        match self.specific(&mut args) {
            0.. => Ok(()),
            _ => Err("the objects in memory cannot be flushed".into()),
        }
    }

    /// The image of the file, as the last flush has left it.
    pub fn image(&self) -> Result<Vec<u8>, Fault> {
        let failed = || "the image of the objects cannot be had".to_owned();
        let mut length = 0usize;
        self.ask_image(ptr::null_mut(), 0, &mut length)
            .ok_or_else(failed)?;
        let mut image = vec![0u8; length];
        self.ask_image(image.as_mut_ptr().cast(), length, &mut length)
            .ok_or_else(failed)?;
        let mut image = Image::new(image);
        image.refresh_superblock()?;
        Ok(image.into_bytes())
    }

    fn ask_image(&self, buf: *mut c_void, size: usize, length: &mut usize) -> Option<()> {
        /// `H5VL_NATIVE_FILE_GET_FILE_IMAGE`.
        const GET_FILE_IMAGE: i32 = 1;
        let mut arguments = FileImage { size, buf, length };
        let mut args = Optional {
            operation: GET_FILE_IMAGE,
            arguments: (&raw mut arguments).cast(),
        };
        // SAFETY: the file is open; `buf` has room for `size` bytes.
        let status = self.info.library.quietly(|f| unsafe {
            (f.H5VLfile_optional)(
                self.file,
                self.info.under_vol,
                &mut args,
                0,
                ptr::null_mut(),
            )
        });
        (status >= 0).then_some(())
    }
}

/// The metadata image of a log that is closed, which nothing finds by the name of that log.
#[derive(Debug)]
pub struct Closed {
    metadata_image: MetadataImage,
    withdrawn: Withdrawn,
}

impl Closed {
    /// The metadata image of the log, which is open again. `None` if another file has its name.
    pub fn open(self) -> Option<MetadataImage> {
        let Closed {
            metadata_image,
            withdrawn,
        } = self;
        *metadata_image.announced.lock() = Some(withdrawn.announce()?);
        Some(metadata_image)
    }

    /// Whether it has no more bytes than this.
    pub fn fits(&self, most: usize) -> bool {
        self.withdrawn.fits(most)
    }

    /// Whether it is one of this library.
    pub fn is_of(&self, library: &Library) -> bool {
        self.metadata_image.info.library.is(library)
    }
}

/// `H5VL_native_file_get_file_image_t`.
#[repr(C)]
struct FileImage {
    size: usize,
    buf: *mut c_void,
    length: *mut usize,
}
