//! Files: made, described, flushed, closed.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::NonNull;

use mpi::ffi::{self, MPI_Comm, RSMPI_Fint as MPI_Fint};

use super::environment::{Duplicate, Turn};
use super::input;
use super::options::{self, h5logfs_options};
use super::registry::{self, File, Held, h5logfs_id};
use super::status::h5logfs_status::H5LOGFS_ERR_REFUSED;
use super::status::{Fault, Result, answer};
use crate::{Batch, Options, Writer, elements_value};
use h5logfs_core::journal::definition::Value;

/// Creates a file that the ranks of `comm` write together, and tells its handle, which is 0 after an
/// error. The communicator is duplicated, and remains the caller's. `options` may be NULL, for the
/// defaults. Fails on all ranks or on none. Collective over `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_create(
    comm: MPI_Comm,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe { create(|| comm, path, options, file) })
}

/// The same with a communicator as Fortran has it. `path` ends with a zero byte. Collective over
/// `comm`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_create_f(
    comm: MPI_Fint,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> c_int {
    // SAFETY: as the caller says; the handle is translated once MPI is known to run.
    answer(|| unsafe { create(|| ffi::RSMPI_Comm_f2c(comm), path, options, file) })
}

/// # Safety
/// The pointers are what they are documented to be, and so is the communicator.
unsafe fn create(
    comm: impl FnOnce() -> MPI_Comm,
    path: *const c_char,
    options: *const h5logfs_options,
    file: *mut h5logfs_id,
) -> Result<()> {
    let place = input::place(file, "file");
    if let Ok(place) = &place {
        // SAFETY: there is room for a handle.
        unsafe { place.write(0) };
    }
    let turn = Turn::take()?;
    // SAFETY: as the caller says.
    let ranks = unsafe { Duplicate::of(comm(), &turn) }?;
    // SAFETY: as the caller says.
    let arguments = place.and_then(|place| unsafe { arguments(path, options, place) });
    let made = ranks.agree(arguments).and_then(|(path, options, place)| {
        let writer = Writer::create(path, ranks.comm(), options)?;
        Ok((writer, place))
    });
    ranks.free();
    let (writer, place) = made?;
    // SAFETY: there is room for a handle.
    unsafe { place.write(registry::add_file(File::new(writer))) };
    Ok(())
}

/// # Safety
/// The pointers are what they are documented to be.
unsafe fn arguments<'a>(
    path: *const c_char,
    options: *const h5logfs_options,
    place: NonNull<h5logfs_id>,
) -> Result<(&'a str, Options, NonNull<h5logfs_id>)> {
    // SAFETY: as the caller says.
    let (path, options) = unsafe { (input::text(path, "the path")?, options::read(options)?) };
    if path.is_empty() {
        Err(Fault::invalid("the path is empty"))
    } else {
        Ok((path, options, place))
    }
}

/// Makes a group, and those around it that are missing. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_group(file: h5logfs_id, path: *const c_char) -> c_int {
    answer(|| {
        // SAFETY: as the caller says.
        let path = unsafe { input::text(path, "the path") }?;
        define(file, |writer| writer.group(path))
    })
}

/// Gives an attribute to the group or dataset at the path `object`; "/" is the root group. The value
/// are elements of a datatype, row-major, `rank` dimensions (0 for a single one) of `dims`; `size` is
/// their number of bytes. Collective, without communication.
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
    answer(|| {
        // SAFETY: as the caller says.
        let (dims, bytes) = unsafe {
            (
                input::array(dims, input::rank(rank)?, "dims")?,
                input::array(value.cast::<u8>(), size, "the value")?,
            )
        };
        let value = elements_value(registry::datatype(datatype)?, dims, bytes);
        // SAFETY: as the caller says.
        unsafe { attribute(file, object, name, value.map_err(Fault::definition)) }
    })
}

/// Gives a text to an object as an attribute: a scalar of variable length, in UTF-8. Collective,
/// without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_attribute_text(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    text: *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe {
        let text = input::text(text, "the text").map(Value::from);
        attribute(file, object, name, text)
    })
}

/// Gives a list of `number` texts to an object as an attribute. Collective, without communication.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_attribute_texts(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    number: usize,
    texts: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller says.
    answer(|| unsafe {
        let texts = input::texts(texts, number, "a text");
        attribute(file, object, name, texts.map(|t| Value::from(&t[..])))
    })
}

/// # Safety
/// `object` and `name` are NULL or texts.
unsafe fn attribute(
    file: h5logfs_id,
    object: *const c_char,
    name: *const c_char,
    value: Result<Value>,
) -> Result<()> {
    // SAFETY: as the caller says.
    let (object, name) = unsafe {
        (
            input::text(object, "the path of the object")?,
            input::text(name, "the name")?,
        )
    };
    let value = value?;
    define(file, |writer| writer.attribute(object, name, value))
}

fn define(file: h5logfs_id, define: impl FnOnce(&mut Writer) -> crate::Result<()>) -> Result<()> {
    let file = registry::file(file)?;
    let _turn = Turn::take()?;
    Ok(define(&mut file.lock()?.writer)?)
}

/// Writes what all ranks hold, and makes it last: when it has returned on all ranks, nothing that
/// happens to the job can take it back. Buffers that were lent are the caller's again, whatever is
/// returned. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_flush(file: h5logfs_id) -> c_int {
    answer(|| collective(file, |lent| lent.flush()))
}

/// Flushes, and makes the file an HDF5 file in the Log VOL layout. The handle, and those of the file's
/// datasets, are closed after H5LOGFS_OK and H5LOGFS_ERR_REFUSED. After another error the file is
/// still open: the call can be made again, or the file abandoned. Buffers that were lent are the
/// caller's again, whatever is returned. Collective.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_close(file: h5logfs_id) -> c_int {
    answer(|| {
        let closed = collective(file, |lent| lent.close());
        let refused = |fault: &Fault| fault.code == H5LOGFS_ERR_REFUSED;
        if closed.as_ref().err().is_none_or(refused) {
            // Another thread may have been faster to abandon it.
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
    let turn = Turn::take();
    let mut held = file.lock()?;
    // Where MPI must not be called, the end of this makes copies of what is lent: the caller may do
    // with it what he likes afterwards.
    let lent = batch(&mut held);
    let _turn = turn?;
    Ok(call(lent)?)
}

/// The writes that were lent since the last flush, with their writer.
pub(super) fn batch(held: &mut Held) -> Batch<'_, 'static> {
    let lent = std::mem::take(&mut held.lent);
    Batch::resume(&mut held.writer, lent)
}

/// Gives a file up without a close. It stays as the last flush left it: readable through h5logfs, and
/// closed by `h5logfs recover`. For use after a close has failed; the other ranks should do the same.
/// Local.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_abandon(file: h5logfs_id) -> c_int {
    answer(|| registry::remove_file(file).map(drop))
}

/// Bytes that this rank holds since the last flush: copies of data, and what describes them. Data that
/// are lent do not count. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_buffered(file: h5logfs_id, bytes: *mut u64) -> c_int {
    answer(|| {
        let bytes = input::place(bytes, "bytes")?;
        let held = registry::file(file)?;
        let buffered = held.lock()?.writer.buffered();
        // SAFETY: there is room for the result, as the caller says.
        unsafe { bytes.write(buffered) };
        Ok(())
    })
}
