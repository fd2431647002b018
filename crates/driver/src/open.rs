//! Opening of paths, and which files may be replaced or deleted.

use std::ffi::{CStr, OsStr, c_int, c_uint, c_void};
use std::fs;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Once;

use h5logfs_catalog::direct::{self, OpenLog, Opened, Options};
use h5logfs_catalog::lookup::overwrite::{Originals, check_target};
use h5logfs_log::Tables;
use h5logfs_log::log_dir;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::striped::Kind;

use h5logfs_host::types::{Address, Id, access};

use crate::declared::PublicPart;
use crate::file::{CanonicalFile, Content};
use crate::library::{self, Library};
use crate::memory::Memory;
use crate::written;
use h5logfs_common::fault::Fault;

/// A program's request to open a file.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub name: &'a CStr,
    pub flags: c_uint,
    /// The file access property list.
    pub fapl: Id,
    pub last_address: Address,
}

impl<'a> Request<'a> {
    fn path(&self) -> &'a Path {
        path_of(self.name)
    }

    fn has(&self, flag: c_uint) -> bool {
        self.flags & flag != 0
    }
}

static BUFFERS_STAY: Once = Once::new();

/// Bytes of the largest block that the allocator then gives from memory that was used before. The chunk cache of a dataset has 8 MiB in
/// HDF5 2, and twice this number may stay in the allocator.
const STAY: usize = 16 << 20;

/// Lets the allocator keep the buffers that libhdf5 frees. At first glibc maps each block of 128 KiB or more by itself, and unmaps it
/// when it is freed: the system then clears the memory of each chunk, which takes as long as its read. The limit grows to the
/// largest block freed so far (`M_MMAP_THRESHOLD` in mallopt(3)). This block is never touched, so it takes no memory.
fn let_buffers_stay() {
    drop(black_box(Vec::<u8>::with_capacity(STAY)));
}

/// The path in a name of HDF5.
pub fn path_of(name: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(name.to_bytes()))
}

/// Opens a file. `None` if the default driver failed to; the reason is on the error stack.
pub fn open(library: &Library, request: &Request<'_>) -> Result<Option<Content>, Fault> {
    match open_log(library, request)? {
        Some(log) => Ok(Some(Content::Log(log))),
        None => Ok(open_plain(library, request)),
    }
}

/// Opens a file in memory, or the target of a link or virtual dataset of such a file, which libhdf5 opens with the driver and
/// the flags of the file in memory. A log that libhdf5 writes is its file in memory.
pub fn open_in_session(library: &Library, request: &Request<'_>) -> Result<Option<Content>, Fault> {
    if let Some(memory) = Memory::open(request.name, request.flags) {
        return Ok(Some(Content::Memory(memory)));
    }
    if !request.has(access::TRUNCATE | access::EXCLUSIVE)
        && let Some(memory) = Memory::of_log(request.path(), library.number())
    {
        return Ok(Some(Content::Memory(memory)));
    }
    let Some(mut log) = open_log(library, request)? else {
        return Ok(open_plain(library, request));
    };
    log.is_inherited = log.is_refused;
    log.is_refused = false;
    Ok(Some(Content::Log(log)))
}

/// Opens a file with the default driver.
fn open_plain(library: &Library, request: &Request<'_>) -> Option<Content> {
    let file = library::with_default_driver(library, request.fapl, ptr::null_mut(), |f, fapl| {
        // SAFETY: `fapl` is a list of this library, and the other arguments are from libhdf5.
        unsafe {
            (f.H5FDopen)(
                request.name.as_ptr(),
                request.flags,
                fapl,
                request.last_address,
            )
        }
    });
    let file = NonNull::new(file)?;
    if request.has(access::WRITE) {
        record_written(library, request.fapl, file);
    }
    Some(Content::Plain(file))
}

/// Records a plain file that was opened for writing.
fn record_written(library: &Library, fapl: Id, file: NonNull<PublicPart>) {
    let mut handle = ptr::null_mut::<c_void>();
    // SAFETY: the default driver has opened the file, the list is of this library, and there is a place for the address of
    // the descriptor.
    let descriptor = library.nested(|f| unsafe {
        let status = (f.H5FDget_vfd_handle)(file.as_ptr(), fapl, &mut handle);
        let descriptor = NonNull::new(handle.cast::<c_int>());
        descriptor.filter(|_| status >= 0).map(|place| place.read())
    });
    descriptor.into_iter().for_each(written::note);
}

/// The log at the path. `None` if the default driver must open the file, or make one.
fn open_log(library: &Library, request: &Request<'_>) -> Result<Option<CanonicalFile>, Fault> {
    let makes = request.has(access::TRUNCATE | access::EXCLUSIVE);
    let path = &path_of_log(request.path(), makes);
    let options = options_of(library, request.fapl)?;
    let Some(found) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else {
        return Ok(None);
    };
    // An existing file makes an exclusive creation fail.
    if request.has(access::TRUNCATE) && !request.has(access::EXCLUSIVE) {
        return check_replaceable(path).map(|()| None);
    }
    if written::is_written(path, &found) {
        return Ok(None);
    }
    match direct::open(path, &options) {
        Ok(Opened::Plain) => Ok(None),
        // HDF5's family driver writes its members with this driver if it is the default.
        Ok(Opened::Log(open)) if request.has(access::WRITE) && is_family(&open) => Ok(None),
        // A model writes its member.
        Ok(Opened::Log(open)) if request.has(access::WRITE) && is_member(&open, request.path()) => {
            Ok(None)
        }
        Ok(Opened::Log(open)) => {
            // Before libhdf5 truncates a file, it opens it for writing to see whether it is already open. So this succeeds,
            // and every use of the file is refused.
            let is_refused = request.has(access::WRITE);
            BUFFERS_STAY.call_once(let_buffers_stay);
            let log = CanonicalFile::new(request.path().into(), open, is_refused);
            if request.has(access::EXCLUSIVE) {
                // The text of the default driver, in which h5py looks for the number.
                let exists = "errno = 17, error message = 'File exists'";
                return Err(format!("{}; {exists}", log.read_only()).into());
            }
            Ok(Some(log))
        }
        // The default driver reports an unreadable file in its own words.
        Err(_) if fs::File::open(path).is_err() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_family(log: &OpenLog) -> bool {
    match &log.view().snapshot().log {
        Tables::Striped(tables) => tables.kind == Kind::Family,
        _ => false,
    }
}

/// Whether the log is a set of netCDF files, and the program has named one of them.
pub fn is_member(log: &OpenLog, path: &Path) -> bool {
    log.view().snapshot().joined.is_some() && path.exists()
}

/// The path of the file to which a name leads. A new file may have the name of a log that is a directory, with a suffix.
fn path_of_log(path: &Path, makes: bool) -> PathBuf {
    if makes && !path.is_dir() {
        return path.to_owned();
    }
    log_dir::file_of(path)
}

/// Deletes the log at a path, if it has several files. `false` if the default driver must delete the file.
pub fn delete_log(path: &Path, options: &Options) -> Result<bool, Fault> {
    let found = path.symlink_metadata().ok();
    // A symbolic link is deleted itself.
    let Some(found) = found.filter(|found| !found.is_symlink()) else {
        return Ok(false);
    };
    log_dir::check_change(path).map_err(|e| Fault::from(e).at("it is not deleted"))?;
    if !found.is_file() {
        return Ok(false);
    }
    let Err(refused) = check_replaceable(path) else {
        return Ok(false);
    };
    match direct::delete(path, options).map_err(Fault::from) {
        Ok(true) => Ok(true),
        // The file is part of a log.
        Ok(false) => Err(refused.at("it is not deleted")),
        Err(fault) => Err(fault.at("it is not deleted")),
    }
}

/// The options in a file access property list.
pub fn options_of(library: &Library, fapl: Id) -> Result<Options, Fault> {
    parse_options(&library::configuration(library, fapl))
}

/// Parses the configuration string of the driver.
///
/// # Errors
///
/// Fails if an option is unknown, or has an invalid value.
pub fn parse_options(configuration: &[u8]) -> Result<Options, Fault> {
    let options = Options::parse(OsStr::from_bytes(configuration));
    Ok(options.map_err(|e| format!("the configuration of the h5logfs driver: {e}"))?)
}

/// Fails if a log needs the file at `path`, or if the file is a log with companion files.
pub fn check_replaceable(path: &Path) -> Result<(), Fault> {
    // A truncation acts on the target of a link.
    let Ok(path) = fs::canonicalize(path) else {
        return Ok(());
    };
    let (dir, name) = SourceDir::of_file(&path)?;
    check_target(&dir, &name, &Originals::default()).map_err(Fault::from)
}
