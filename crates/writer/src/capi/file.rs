//! Functions of files: create, open, define, flush, close.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use mpi::ffi::{self, MPI_Comm, RSMPI_Fint as MPI_Fint};

use super::environment::{DuplicateComm, MpiGuard};
use super::input;
use super::options::{self, h5logfs_options};
use super::registry::{self, File, FileState, h5logfs_id};
use super::status::h5logfs_status::{H5LOGFS_ERR_NOT_SETTLED, H5LOGFS_ERR_REFUSED};
use super::status::{ApiError, Result, to_status};
use crate::{Batch, Options, Writer, elements_value};
use h5logfs_log::journal::value::Value;

/// Creates a file that all ranks of `comm` write together. `file` receives its handle, or 0 on error.
/// The library duplicates the communicator. `options` may be NULL for the defaults. All ranks pass the
/// same path and options. Fails on all ranks or on none, and then leaves everything as it was.
/// Collective over `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_create(
    comm: MPI_Comm,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { start(Start::Create, || comm, path, options, file) })
}

/// As `h5logfs_create`, with a communicator of Fortran. `path` ends with a zero byte. Collective over
/// `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_create_f(
    comm: MPI_Fint,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller. `start` translates the handle after it has found MPI running.
    to_status(|| unsafe {
        start(
            Start::Create,
            || ffi::RSMPI_Comm_f2c(comm),
            path,
            options,
            file,
        )
    })
}

/// Opens a log again, to append to it: a closed one, or one whose job ended before the close. This
/// library has made it, or an HDF5 program through the VOL connector. `h5logfs_open_dataset` finds its
/// datasets. From now on the log is unclosed; its content is safe whatever happens, and the close makes one log of all. The number of ranks may
/// differ from before. `options` may be NULL for the defaults; `overwrite`, `discard_unclosed`,
/// `keep_unclosed` and `subfiles` are for new files, and refused. All ranks pass the same path and
/// options. Collective over `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_open(
    comm: MPI_Comm,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe { start(Start::Open, || comm, path, options, file) })
}

/// As `h5logfs_open`, with a communicator of Fortran. `path` ends with a zero byte. Collective over
/// `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_open_f(
    comm: MPI_Fint,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller. `start` translates the handle after it has found MPI running.
    to_status(|| unsafe {
        start(
            Start::Open,
            || ffi::RSMPI_Comm_f2c(comm),
            path,
            options,
            file,
        )
    })
}

/// Whether a file is created or opened again.
#[derive(Clone, Copy)]
enum Start {
    Create,
    Open,
}

/// # Safety
/// The pointers and the communicator are valid as documented.
unsafe fn start(
    how: Start,
    comm: impl FnOnce() -> MPI_Comm,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> Result<()> {
    let result = input::result_pointer(file, "file");
    if let Ok(result) = &result {
        // SAFETY: there is room for a handle.
        unsafe { result.write(0) };
    }
    let mpi = MpiGuard::acquire()?;
    // SAFETY: promised by the caller.
    let ranks = unsafe { DuplicateComm::of(comm(), &mpi) }?;
    // SAFETY: promised by the caller.
    let arguments =
        result.and_then(|result| unsafe { StartArguments::read(path, options, result) });
    let operation = match how {
        Start::Create => "create",
        Start::Open => "open",
    };
    let agreed = ranks.agree(operation, arguments, |arguments| arguments.path);
    let started = agreed.and_then(|arguments| {
        let (path, options) = (arguments.path, arguments.options);
        let writer = match how {
            Start::Create => Writer::create(path, ranks.comm(), options),
            Start::Open => Writer::open(path, ranks.comm(), options),
        }?;
        let id = registry::add_file(File::new(writer));
        // SAFETY: there is room for a handle.
        unsafe { arguments.result.write(id) };
        Ok(())
    });
    ranks.free();
    started
}

/// The arguments of a create or an open, once they are checked.
struct StartArguments<'a> {
    path: &'a str,
    options: Options,
    result: NonNull<h5logfs_id>,
}

impl<'a> StartArguments<'a> {
    /// # Safety
    /// The pointers are valid as documented.
    unsafe fn read(
        path: *const c_char,
        options: *const h5logfs_options,
        result: NonNull<h5logfs_id>,
    ) -> Result<Self> {
        // SAFETY: promised by the caller.
        let (path, options) = unsafe { (input::text(path, "the path")?, options::read(options)?) };
        if path.is_empty() {
            return Err(ApiError::invalid("the path is empty"));
        }
        Ok(StartArguments {
            path,
            options,
            result,
        })
    }
}

/// Returns whether the file has a group or a dataset at `path`: 1 or 0 in `exists`. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_exists(
    file: h5logfs_id,
    path: *const c_char,
    exists: *mut c_int,
) -> c_int {
    to_status(|| {
        let exists = input::result_pointer(exists, "exists")?;
        // SAFETY: promised by the caller.
        let path = unsafe { input::text(path, "the path") }?;
        let found = registry::file(file)?.lock()?.writer.exists(path);
        // SAFETY: there is room for the result.
        unsafe { exists.write(found.into()) };
        Ok(())
    })
}

/// Creates a group, and missing parent groups. An existing group stays as it is. Collective, without
/// communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_group(file: h5logfs_id, path: *const c_char) -> c_int {
    to_status(|| {
        // SAFETY: promised by the caller.
        let path = unsafe { input::text(path, "the path of the group") }?;
        define(file, |writer| Ok(writer.group(path)?))
    })
}

/// Creates an attribute of the group or dataset at the path `object`; "/" is the root group. The value is
/// an array of `rank` dimensions `dims`, row-major, or a single element if `rank` is 0. `size` is the
/// number of bytes in `value`. An attribute that differs between ranks is left out, and the next flush
/// returns H5LOGFS_ERR_REFUSED. Its name can be defined again. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_attribute(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    datatype: h5logfs_id,
    rank: c_int,
    dims: *const u64,
    value: *const c_void,
    size: usize,
) -> c_int {
    to_status(|| {
        let value = || {
            // SAFETY: promised by the caller.
            let (dims, bytes) = unsafe {
                (
                    input::array(dims, input::rank(rank)?, "dims")?,
                    input::array(value.cast::<u8>(), size, "the value")?,
                )
            };
            elements_value(registry::datatype(datatype)?, dims, bytes).map_err(ApiError::definition)
        };
        // SAFETY: promised by the caller.
        unsafe { attribute(file, object, name, value()) }
    })
}

/// Creates an attribute of an object from a string: a scalar of variable length, in UTF-8. Collective,
/// without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_attribute_text(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe {
        let text = input::text(text, "the text").map(Value::from);
        attribute(file, object, name, text)
    })
}

/// Creates an attribute of an object from a list of `number` strings. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_attribute_texts(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    number: usize,
    texts: *const *const c_char,
) -> c_int {
    // SAFETY: promised by the caller.
    to_status(|| unsafe {
        let texts = input::texts(texts, number, "a text");
        attribute(file, object, name, texts.map(|t| Value::from(&t[..])))
    })
}

/// # Safety
/// `object` and `name` are NULL or strings.
unsafe fn attribute(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    value: Result<Value>,
) -> Result<()> {
    // SAFETY: promised by the caller.
    let (object, name) = unsafe {
        (
            input::text(object, "the path of the object")?,
            input::text(name, "the name of the attribute")?,
        )
    };
    define(file, |writer| {
        let wrong =
            |e: ApiError| e.about(format!("{}: attribute {name} of {object}", writer.place()));
        let value = value.map_err(wrong)?;
        Ok(writer.attribute(object, name, value)?)
    })
}

fn define(file: h5logfs_id, define: impl FnOnce(&mut Writer) -> Result<()>) -> Result<()> {
    let file = registry::file(file)?;
    let _mpi = MpiGuard::acquire()?;
    define(&mut file.lock()?.writer)
}

/// Writes the buffered data of all ranks to the file. Once this has returned on all ranks, the data
/// survive any failure of the job. Lent buffers are free again, whatever this returns. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_flush(file: h5logfs_id) -> c_int {
    to_status(|| collective(file, |lent| lent.flush()))
}

/// Flushes, and turns the file into an HDF5 file in the Log VOL layout. With the option `settle` the file
/// then becomes an ordinary HDF5 file. After H5LOGFS_OK, H5LOGFS_ERR_REFUSED and H5LOGFS_ERR_NOT_SETTLED
/// the handles of the file and its datasets are closed. After any other error the file is still open:
/// repeat the call, or abandon the file. Lent buffers are free again, whatever this returns. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_close(file: h5logfs_id) -> c_int {
    to_status(|| {
        let closed = collective(file, |lent| lent.close());
        let complete = [H5LOGFS_ERR_REFUSED, H5LOGFS_ERR_NOT_SETTLED];
        let is_complete = |error: &ApiError| complete.contains(&error.code);
        if closed.as_ref().err().is_none_or(is_complete) {
            // Another thread may have abandoned the file already.
            let _ = registry::remove_file(file);
        }
        closed
    })
}

fn collective(
    file: h5logfs_id,
    call: impl FnOnce(Batch<'_, 'static>) -> crate::Result<()>,
) -> Result<()> {
    let file = registry::file(file)?;
    let mpi = MpiGuard::acquire();
    let mut file = file.lock()?;
    // If MPI must not be called, dropping the batch copies the lent data. The caller may then change
    // its buffers in any case.
    let lent = lent_batch(&mut file);
    let _mpi = mpi?;
    Ok(call(lent)?)
}

/// The writes with lent data since the last flush, as a batch.
pub(super) fn lent_batch(file: &mut FileState) -> Batch<'_, 'static> {
    let lent = std::mem::take(&mut file.lent);
    Batch::from_contents(&mut file.writer, lent)
}

/// Gives up a file without closing it, for example after a close has failed. The other ranks should do
/// the same. The file stays as the last flush left it: h5logfs can read it, and `h5logfs recover`
/// closes it. Local.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_abandon(file: h5logfs_id) -> c_int {
    to_status(|| registry::remove_file(file).map(drop))
}

/// Returns the number of bytes in this rank's buffer: copied data and their selections. Lent data do
/// not count. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_buffered(file: h5logfs_id, bytes: *mut u64) -> c_int {
    to_status(|| {
        let bytes = input::result_pointer(bytes, "bytes")?;
        let buffered = registry::file(file)?.lock()?.writer.buffered();
        // SAFETY: there is room for the result.
        unsafe { bytes.write(buffered) };
        Ok(())
    })
}
