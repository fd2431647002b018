//! A file driver for libhdf5 that keeps in memory what is added to a file.
//!
//! libhdf5 writes the objects that it makes one by one, in the order in which its cache has no room for them. Here that
//! takes no system calls. What it has added is written at once.

use std::collections::HashMap;
use std::ffi::c_ulong;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

use h5logfs_core::image::{HeaderBytes, HeaderBytesMut};
use hdf5_metno_sys::h5::{haddr_t, herr_t};
use hdf5_metno_sys::h5fd::*;
use parking_lot::Mutex;

use super::driver::{FUNCTIONS, Functions, Library, register};
use super::*;

/// The metadata of a file: those in its front, and those that are added at its end. What lies between is not libhdf5's.
#[derive(Debug)]
pub struct Added {
    front: Vec<u8>,
    /// The end of the file as it was.
    start: u64,
    rest: Vec<u8>,
}

impl Added {
    /// Of a file to which nothing is added yet. The first `front` bytes may be changed, too.
    pub fn to(file: &File, front: u64) -> io::Result<Self> {
        let start = file.metadata()?.len();
        let mut bytes = vec![0; front.min(start) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Added {
            front: bytes,
            start,
            rest: Vec::new(),
        })
    }

    /// Writes it to the file: the objects first, then what leads to them.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.rest, self.start)?;
        file.write_all_at(&self.front, 0)
    }

    /// Lets the file end here.
    fn resize(&mut self, end: u64) -> Result<()> {
        let len = usize::try_from(end.saturating_sub(self.start)).map_err(|e| e.to_string())?;
        let more = len.saturating_sub(self.rest.len());
        self.rest.try_reserve(more).map_err(|e| e.to_string())?;
        self.rest.resize(len, 0);
        Ok(())
    }

    /// Fills `buf`. What lies between, and past the end of the file, is zeros: libhdf5 reads more than an object header
    /// where it does not know its length.
    fn fill(&self, at: u64, buf: &mut [u8]) {
        buf.fill(0);
        copy_common(&self.front, 0, at, buf);
        copy_common(&self.rest, self.start, at, buf);
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        let end = at.checked_add(bytes.len() as u64).ok_or("past 2^64")?;
        if end > self.size() {
            self.resize(end)?;
        }
        self.write(at, bytes)
    }
}

/// Copies what bytes at `start` of a file have in common with `buf`, which is for those at `at`.
fn copy_common(bytes: &[u8], start: u64, at: u64, buf: &mut [u8]) {
    let ahead =
        |of: u64, other: u64| usize::try_from(other.saturating_sub(of)).unwrap_or(usize::MAX);
    let from = bytes.get(ahead(start, at)..).unwrap_or_default();
    let to = buf.get_mut(ahead(at, start)..).unwrap_or_default();
    let count = to.len().min(from.len());
    to[..count].copy_from_slice(&from[..count]);
}

impl HeaderBytes for Added {
    fn size(&self) -> u64 {
        self.start + self.rest.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => self.rest.read(at, buf),
            None => self.front.read(at, buf),
        }
    }
}

impl HeaderBytesMut for Added {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => HeaderBytesMut::write(&mut self.rest, at, bytes),
            None => HeaderBytesMut::write(&mut self.front, at, bytes),
        }
    }
}

/// Lets libhdf5 add to a file. New metadata go behind its end in blocks of `block` bytes. The unused part of the last
/// block stays in the file.
pub fn add<T>(added: Added, block: u64, make: impl FnOnce(&Id) -> Result<T>) -> Result<(T, Added)> {
    let name = memory_name()?;
    let added = Arc::new(Mutex::new(added));
    OPEN.lock().insert(name.clone(), Arc::clone(&added));
    let made = open_by_name(&name, block).and_then(|file| {
        let made = make(&file)?;
        close_file(file)?;
        Ok(made)
    });
    OPEN.lock().remove(&name);
    let made = made?;
    let added = Arc::try_unwrap(added).map_err(|_| "an object of the file is still open")?;
    Ok((made, added.into_inner()))
}

fn open_by_name(name: &CStr, block: u64) -> Result<Id> {
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_driver(access.0, driver()?, ptr::null()))?;
    h5!(H5Pset_meta_block_size(access.0, block))?;
    h5!(H5Pset_libver_bounds(
        access.0,
        H5F_libver_t::H5F_LIBVER_EARLIEST,
        H5F_LIBVER_LATEST
    ))?;
    Id::new(h5!(H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.0)))
}

/// The files that can be opened, by their names.
static OPEN: LazyLock<Mutex<HashMap<CString, Arc<Mutex<Added>>>>> = LazyLock::new(Mutex::default);

/// An open file. libhdf5 uses its first part only.
#[repr(C)]
struct Opened {
    library: Library,
    added: Arc<Mutex<Added>>,
    /// The end of the addresses that libhdf5 has allocated.
    eoa: u64,
}

fn functions() -> Functions {
    let mut functions = FUNCTIONS;
    functions.open = open;
    functions.close = close;
    functions.query = query;
    functions.get_eoa = get_eoa;
    functions.set_eoa = set_eoa;
    functions.get_eof = get_eof;
    functions.read = read;
    functions.write = write;
    functions
}

/// The identifier of the driver, which is registered once.
fn driver() -> Result<hid_t> {
    /// A number from the range for private drivers.
    const VALUE: c_int = 510;
    /// Metadata and elements are allocated apart (`H5FD_FLMAP_DICHOTOMY`), as in other files.
    const APART: [c_int; 7] = [1, 1, 1, 3, 3, 1, 1];
    static DRIVER: OnceLock<Result<hid_t>> = OnceLock::new();
    DRIVER
        .get_or_init(|| register(c"h5logfs_added", VALUE, functions(), APART))
        .clone()
}

// SAFETY of all driver functions: libhdf5 calls them with the pointers that `open` returned, and not after `close`. It
// holds its lock, so no two calls run at the same time.

unsafe extern "C" fn open(name: *const c_char, _: c_uint, _: hid_t, _: haddr_t) -> *mut H5FD_t {
    // SAFETY: libhdf5 passes the C string that `H5Fopen` was given.
    let added = OPEN.lock().get(unsafe { CStr::from_ptr(name) }).cloned();
    added.map_or(ptr::null_mut(), |added| {
        let opened = Opened {
            library: Library::ZEROS,
            added,
            eoa: 0,
        };
        Box::into_raw(Box::new(opened)).cast()
    })
}

/// What was allocated and not written belongs to the file.
unsafe extern "C" fn close(file: *mut H5FD_t) -> herr_t {
    // SAFETY: `open` made it, and libhdf5 does not use it any more.
    let file = unsafe { Box::from_raw(file.cast::<Opened>()) };
    let resized = file.added.lock().resize(file.eoa);
    resized.map_or(-1, |()| 0)
}

unsafe extern "C" fn query(_: *const H5FD_t, flags: *mut c_ulong) -> herr_t {
    let features =
        H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_DATA_SIEVE | H5FD_FEAT_AGGREGATE_SMALLDATA;
    if !flags.is_null() {
        // SAFETY: libhdf5 passes a pointer to its variable.
        unsafe { *flags = c_ulong::from(features) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made it.
    unsafe { (*file.cast::<Opened>()).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut H5FD_t, _: c_int, eoa: haddr_t) -> herr_t {
    // SAFETY: `open` made it.
    unsafe { (*file.cast::<Opened>()).eoa = eoa };
    0
}

unsafe extern "C" fn get_eof(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made it.
    unsafe { &*file.cast::<Opened>() }.added.lock().size()
}

unsafe extern "C" fn read(
    file: *mut H5FD_t,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buffer: *mut c_void,
) -> herr_t {
    // SAFETY: `open` made the file; the buffer has `size` bytes, and it is initialized before a reference to it exists.
    let (file, buffer) = unsafe {
        ptr::write_bytes(buffer.cast::<u8>(), 0, size);
        let buffer = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size);
        (&*file.cast::<Opened>(), buffer)
    };
    file.added.lock().fill(address, buffer);
    0
}

unsafe extern "C" fn write(
    file: *mut H5FD_t,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buffer: *const c_void,
) -> herr_t {
    // SAFETY: `open` made the file, and the buffer has `size` bytes.
    let (file, bytes) = unsafe {
        let bytes = std::slice::from_raw_parts(buffer.cast::<u8>(), size);
        (&*file.cast::<Opened>(), bytes)
    };
    let written = file.added.lock().put(address, bytes);
    written.map_or(-1, |()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_written_at_once_behind_what_is_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let image = file_image(&create_in_memory(&new_file_creation().unwrap()).unwrap()).unwrap();
        let front = image.len() as u64;
        let log = [7; 100];
        let mut image = h5logfs_core::image::Image::new(image);
        image.set_superblock(0, front + 100).unwrap();
        let bytes = [image.into_bytes(), log.to_vec()].concat();
        file.as_file().write_all_at(&bytes, 0).unwrap();

        let added = Added::to(file.as_file(), front).unwrap();
        let make = |file: &Id| {
            let (root, creation) = (open_group(file, c"/")?, new_group_creation()?);
            create_group(&root, &Link::ascii("g"), &creation).map(drop)
        };
        let ((), added) = add(added, 2048, make).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), bytes);
        added.write_to(file.as_file()).unwrap();

        let written = std::fs::read(file.path()).unwrap();
        assert_eq!(written[front as usize..][..100], log);
        let path = c_name(file.path().as_os_str().as_encoded_bytes()).unwrap();
        let file = open_to_write(&path, 2048).unwrap();
        open_group(&file, c"/g").unwrap();
    }

    #[test]
    fn what_lies_between_is_not_seen() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 10], 0).unwrap();
        let mut added = Added::to(&file, 4).unwrap();
        for at in [3, 4, 9] {
            added.put(at, &[2; 2]).unwrap_err();
        }
        added.put(11, &[3]).unwrap();
        added.put(0, &[4]).unwrap();
        let mut found = [9; 14];
        added.fill(0, &mut found);
        assert_eq!(found, [4, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]);
        let mut found = [9; 3];
        for (at, wanted) in [(2, [1, 1, 0]), (10, [0, 3, 0]), (u64::MAX, [0; 3])] {
            added.fill(at, &mut found);
            assert_eq!(found, wanted);
        }
        added.put(u64::MAX, &[5; 2]).unwrap_err();
        added.write_to(&file).unwrap();
        let mut bytes = [0; 12];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 3]);
    }
}
