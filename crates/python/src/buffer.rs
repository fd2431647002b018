//! Memory of Python objects, into which files are read without a copy.

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::slice;

use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;

/// CPython's `Py_buffer`. pyo3 has it in the limited API from Python 3.11 on, which first included it. Members and
/// functions are the same in Python 3.9 and 3.10: PEP 688 and the notes of 3.11 only declare them stable.
#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut Py_ssize_t,
    strides: *mut Py_ssize_t,
    suboffsets: *mut Py_ssize_t,
    internal: *mut c_void,
}

/// `PyBUF_WRITABLE`. Without further flags an object hands out contiguous memory only.
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// The contiguous, writable memory of an object, which keeps it in place while this lives.
pub struct WritableBuffer<'py> {
    /// The box fixes the address of the structure, which some objects keep.
    raw: Box<RawBuffer>,
    _locked: PhantomData<Python<'py>>,
}

impl<'py> WritableBuffer<'py> {
    /// Fails with `BufferError` or `TypeError` for objects without such memory.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let mut raw = Box::new(RawBuffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the object is alive, the interpreter's lock is held, and the structure is CPython's.
        let status = unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *raw, WRITABLE) };
        match status {
            0 => Ok(WritableBuffer {
                raw,
                _locked: PhantomData,
            }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// The memory. Python code may write to it at the same time, as with any `readinto`: the bytes are then a
    /// mixture.
    pub fn bytes(&mut self) -> &mut [u8] {
        let len = usize::try_from(self.raw.len).unwrap_or(0);
        if len == 0 {
            return &mut [];
        }
        // SAFETY: the object handed out `len` writable bytes at `buf`, which stay until they are released.
        unsafe { slice::from_raw_parts_mut(self.raw.buf.cast(), len) }
    }
}

impl Drop for WritableBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: PyObject_GetBuffer filled the structure once. The type cannot leave its thread, which holds the
        // lock.
        unsafe { PyBuffer_Release(&raw mut *self.raw) };
    }
}
