//! A file driver for libhdf5 that keeps additions to a file in memory.
//!
//! libhdf5 writes new objects one by one, as its cache evicts them. With this driver these writes take no system calls.
//! All additions are written together at the end.

use std::collections::HashMap;
use std::ffi::c_ulong;
use std::sync::{Arc, LazyLock};

use h5logfs_hdf5_format::{Added, HeaderBytes, SUPERBLOCK};
use hdf5_metno_sys::h5::{haddr_t, herr_t, hsize_t};
use hdf5_metno_sys::h5fd::*;
use parking_lot::Mutex;

use super::driver::{FUNCTIONS, Functions, Library, register};
use super::*;

/// Lets libhdf5 add to a file. New metadata follow its end in blocks of `block` bytes. The unused part of the last
/// block stays in the file.
pub fn add<T>(added: Added, block: u64, make: impl FnOnce(&Id) -> Result<T>) -> Result<(T, Added)> {
    with_file(added, make, |name| {
        let access = access(block)?;
        Id::new(h5!(H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.0)))
    })
}

/// Creates a file whose superblock lies at address 0 and whose other parts begin at address `start`. `make` fills it.
pub fn create_behind<T>(
    start: u64,
    creation: &Id,
    make: impl FnOnce(&Id) -> Result<T>,
) -> Result<(T, Added)> {
    with_file(Added::new(SUPERBLOCK, start), make, |name| {
        // A block of metadata at address 0 would hold the superblock and all objects that fit behind it.
        const NO_BLOCKS: u64 = 0;
        let (flags, access) = (H5F_ACC_TRUNC, access(NO_BLOCKS)?);
        Id::new(h5!(H5Fcreate(name.as_ptr(), flags, creation.0, access.0)))
    })
}

/// Lets libhdf5 open the file with `open`, and `make` change the file.
fn with_file<T>(
    added: Added,
    make: impl FnOnce(&Id) -> Result<T>,
    open: impl FnOnce(&CStr) -> Result<Id>,
) -> Result<(T, Added)> {
    let name = memory_name()?;
    let added = Arc::new(Mutex::new(added));
    OPEN.lock().insert(name.clone(), Arc::clone(&added));
    let made = open(&name).and_then(|file| {
        let made = make(&file)?;
        close_file(file)?;
        Ok(made)
    });
    OPEN.lock().remove(&name);
    let made = made?;
    let added = Arc::try_unwrap(added).map_err(|_| "an object of the file is still open")?;
    Ok((made, added.into_inner()))
}

fn access(block: u64) -> Result<Id> {
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_driver(access.0, driver()?, ptr::null()))?;
    h5!(H5Pset_meta_block_size(access.0, block))?;
    h5!(H5Pset_libver_bounds(
        access.0,
        H5F_libver_t::H5F_LIBVER_EARLIEST,
        H5F_LIBVER_LATEST
    ))?;
    Ok(access)
}

/// The files that libhdf5 can open, by name.
static OPEN: LazyLock<Mutex<HashMap<CString, Arc<Mutex<Added>>>>> = LazyLock::new(Mutex::default);

/// An open file. libhdf5 uses only its first part.
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
    functions.alloc = alloc as *const () as usize;
    functions.get_eoa = get_eoa;
    functions.set_eoa = set_eoa;
    functions.get_eof = get_eof;
    functions.read = read;
    functions.write = write;
    functions
}

/// The identifier of the driver. It is registered once.
fn driver() -> Result<hid_t> {
    /// A number from the range for private drivers.
    const VALUE: c_int = 510;
    /// Metadata and elements are allocated separately (`H5FD_FLMAP_DICHOTOMY`), as in other files.
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

/// Resizes the file to all allocated bytes: bytes that were never written belong to the file, too.
unsafe extern "C" fn close(file: *mut H5FD_t) -> herr_t {
    // SAFETY: `open` made the box, and libhdf5 does not use it any more.
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

/// Allocates bytes. The superblock of a new file comes first. All later bytes lie where additions begin.
unsafe extern "C" fn alloc(file: *mut H5FD_t, _: c_int, _: hid_t, size: hsize_t) -> haddr_t {
    // SAFETY: `open` made the file.
    let file = unsafe { &mut *file.cast::<Opened>() };
    let at = match file.eoa {
        0 => 0,
        end => end.max(file.added.lock().start()),
    };
    match at.checked_add(size) {
        Some(end) => {
            file.eoa = end;
            at
        }
        None => UNDEFINED,
    }
}

unsafe extern "C" fn get_eoa(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made the file.
    unsafe { (*file.cast::<Opened>()).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut H5FD_t, _: c_int, eoa: haddr_t) -> herr_t {
    // SAFETY: `open` made the file.
    unsafe { (*file.cast::<Opened>()).eoa = eoa };
    0
}

unsafe extern "C" fn get_eof(file: *const H5FD_t, _: c_int) -> haddr_t {
    // SAFETY: `open` made the file.
    let added = unsafe { &*file.cast::<Opened>() }.added.lock();
    // An empty file makes libhdf5 create a new one.
    let is_new = added.front().iter().all(|byte| *byte == 0);
    if is_new { 0 } else { added.size() }
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
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_is_added_is_written_at_once_behind_what_is_there() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let image = file_image(&create_in_memory(&new_file_creation().unwrap()).unwrap()).unwrap();
        let front = image.len() as u64;
        let log = [7; 100];
        let mut image = h5logfs_hdf5_format::Image::new(image);
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
    fn a_new_file_has_its_superblock_at_the_front_and_all_else_behind_an_address() {
        const START: u64 = 12_345_672;
        let properties = [
            new_file_creation().unwrap(),
            new_file_creation().unwrap(),
            new_file_creation().unwrap(),
        ];
        // Superblock extensions, and root groups of both kinds.
        h5!(H5Pset_sym_k(properties[1].0, 7, 9)).unwrap();
        let order = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
        h5!(H5Pset_link_creation_order(properties[2].0, order)).unwrap();
        for creation in properties {
            let make = |file: &Id| {
                let (root, creation) = (open_group(file, c"/")?, new_group_creation()?);
                for number in 0..100 {
                    let name = format!("group {number}");
                    create_group(&root, &Link::ascii(&name), &creation)?;
                }
                address(&root)
            };
            let (root, added) = create_behind(START, &creation, make).unwrap();
            assert!((START..added.size()).contains(&root));
            assert_eq!(added.front().len(), SUPERBLOCK);
            let end = added.size();
            let mut image = h5logfs_hdf5_format::Image::new(added);
            image.set_superblock(0, end).unwrap();
            let added = image.into_bytes();

            // Readers never look at the bytes between.
            let file = tempfile::NamedTempFile::new().unwrap();
            let between = vec![0xff; START as usize];
            file.as_file().write_all_at(&between, 0).unwrap();
            added.write_to(file.as_file()).unwrap();
            let path = c_name(file.path().as_os_str().as_encoded_bytes()).unwrap();
            let file = open_to_write(&path, 2048).unwrap();
            let root = open_group(&file, c"/").unwrap();
            assert_eq!(links(&root).unwrap().len(), 100);
            open_group(&file, c"/group 99").unwrap();
        }
    }
}
