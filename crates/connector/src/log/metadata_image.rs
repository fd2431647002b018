//! The metadata image of a log: a native file in memory with all objects, and without the elements of logged datasets.

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

/// Ends the name of the file in memory, after the path of the log. No file has this name: libhdf5 checks whether one exists.
const SUFFIX: &str = ".h5logfs-image";

/// The metadata image of an open log.
///
/// It stays open through its root group, which this structure holds. A file closes only when none of its objects is open. So its
/// image can be read even after the program has closed its own handles.
#[derive(Debug)]
pub struct MetadataImage {
    /// The handle for the program.
    file: *mut c_void,
    /// Whether the program has received that handle. The program then closes it.
    is_given: AtomicBool,
    /// The root group. Null once it is closed.
    root: AtomicPtr<c_void>,
    info: Arc<Info>,
    number: u64,
    /// Reserves the name of the file in memory. `None` once the file is taken ([`MetadataImage::take`]).
    announced: Mutex<Option<Announced>>,
}

// SAFETY: calls of libhdf5 are guarded by its own lock, or by the program.
unsafe impl Send for MetadataImage {}
// SAFETY: as above.
unsafe impl Sync for MetadataImage {}

/// A root group without further use, waiting to be closed.
struct Unused {
    root: *mut c_void,
    /// The handle of the file, if the program never received it because the log could not be made.
    file: Option<*mut c_void>,
    info: Arc<Info>,
}

// SAFETY: as above.
unsafe impl Send for Unused {}

/// Root groups to be closed by [`release`]. The lock is never held during a call of libhdf5.
static UNUSED: Mutex<Vec<Unused>> = Mutex::new(Vec::new());

impl Drop for MetadataImage {
    /// Leaves the root group to [`release`]. When a file closes, libhdf5 looks at all objects that have identifiers. But a
    /// session may end in the close of an object that still has its identifier and nothing behind it.
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

/// Closes metadata images of closed logs. Called when all objects with identifiers are open.
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

/// Closes all metadata images of a library that terminates, including those kept for a later opening.
pub fn release_all(library: &Library) {
    closed::forget_all(library);
    release(library);
}

fn close_root(root: *mut c_void, info: &Info) {
    // SAFETY: the group is open, and closed once.
    info.library
        .nested(|f| unsafe { (f.H5VLgroup_close)(root, info.under_vol, 0, ptr::null_mut()) });
}

fn close_file(file: *mut c_void, info: &Info) {
    // SAFETY: the file is open, and closed once.
    info.library
        .nested(|f| unsafe { (f.H5VLfile_close)(file, info.under_vol, 0, ptr::null_mut()) });
}

/// Bounds the format of a file, as far as its objects allow, to `H5F_LIBVER_V110`. The program that shows and closes logs may use
/// an older libhdf5.
///
/// # Safety
///
/// The list belongs to the library.
unsafe fn bound_format(f: &Functions, list: Id) -> Status {
    const V110: c_int = 2;
    let (mut low, mut high) = (0, V110);
    // SAFETY: guaranteed by the caller; both places for a number are valid.
    unsafe {
        let status = (f.H5Pget_libver_bounds)(list, &mut low, &mut high);
        status | (f.H5Pset_libver_bounds)(list, low.min(V110), high)
    }
}

/// Opens the root group, or closes the file if that fails.
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

/// The fault that follows a reason of libhdf5 on its error stack.
pub fn refused(path: &Path) -> Fault {
    let path = path.display();
    format!("{path}: the objects of the log cannot be loaded into memory").into()
}

/// Announces an image to the file driver for files in memory, under a name for the metadata image of a log.
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
        .ok_or_else(|| "another file in memory has the same name".into())
}

impl MetadataImage {
    /// Creates an empty metadata image with the program's creation property list. `None` if libhdf5 refuses; the reason is then
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
                // SAFETY: the lists belong to this library, and the name is a C string.
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

    /// Opens a metadata image from its bytes. `None` if libhdf5 refuses; the reason is then on its error stack.
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
                // SAFETY: the list belongs to this library, and the name is a C string.
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
        /// `H5F_CLOSE_WEAK`: the file stays open while one of its objects is.
        const WEAK: c_int = 1;
        let native = info.native()?;
        let file = native.with_under_list(request.fapl, |list| {
            let (name, class) = (SESSION_DRIVER, h5logfs_file_driver::session_class());
            let mut set = set_driver(info, list, name, class);
            // SAFETY: the list belongs to this library.
            set |= info.library.nested(|f| unsafe {
                // Alignment is for data in the log, and memory needs none.
                (f.H5Pset_fclose_degree)(list, WEAK)
                    | (f.H5Pset_alignment)(list, 1, 1)
                    | bound_format(f, list)
                    // A cached file of an external link may be a log, which differs once it is closed.
                    | (f.H5Pset_elink_file_cache_size)(list, 0)
            });
            if set == FAILURE {
                return Err("the access property list of the file in memory cannot be set".into());
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

    /// Takes the file out of a log that is being closed. It stays open after the program has closed its handles. `None` if the
    /// program never received a handle, or the file is closed.
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

    /// Closes the root group. Called when all objects with identifiers are open. The file closes with the program's last handle.
    pub fn close(&self) {
        let root = self.root.swap(ptr::null_mut(), Ordering::AcqRel);
        if !root.is_null() {
            close_root(root, &self.info);
        }
    }

    /// The number that libhdf5 assigned to objects of the file.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The first handle, for a program that creates or opens the log, and that closes the handle. Null if libhdf5 refuses; the
    /// reason is then on its error stack.
    pub fn first_handle(&self) -> *mut c_void {
        if self.is_given.swap(true, Ordering::Relaxed) {
            // This image served an earlier opening, whose program has closed the original handle.
            return self.handle();
        }
        self.file
    }

    /// Another handle for the program. Null if libhdf5 refuses; the reason is then on its error stack.
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
        // SAFETY: the file is open, and the arguments belong to the operation.
        self.info.library.quietly(|f| unsafe {
            (f.H5VLfile_specific)(self.file, self.info.under_vol, args, 0, ptr::null_mut())
        })
    }

    /// Writes all cached metadata of libhdf5 to the file in memory. This may free space, and so decide the addresses of later
    /// objects.
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

    /// The bytes of the file, as the last flush left them.
    pub fn image(&self) -> Result<Vec<u8>, Fault> {
        let failed = || "the bytes of the metadata image cannot be read".to_owned();
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
        // SAFETY: the file is open, and `buf` has room for `size` bytes.
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

/// The metadata image of a closed log. It is open in libhdf5, but not under its name.
#[derive(Debug)]
pub struct Closed {
    metadata_image: MetadataImage,
    withdrawn: Withdrawn,
}

impl Closed {
    /// Gives the file its name again, for a new opening of the log. `None` if another file has taken the name.
    pub fn open(self) -> Option<MetadataImage> {
        let Closed {
            metadata_image,
            withdrawn,
        } = self;
        *metadata_image.announced.lock() = Some(withdrawn.announce()?);
        Some(metadata_image)
    }

    /// Whether the file has at most `most` bytes.
    pub fn fits(&self, most: usize) -> bool {
        self.withdrawn.fits(most)
    }

    /// Whether the file is open in this library.
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
