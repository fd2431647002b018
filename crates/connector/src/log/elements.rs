//! Elements on their way between the program's memory and a log: gathered, converted by libhdf5, scattered.

use std::borrow::Cow;
use std::ffi::c_void;
use std::slice;

use h5logfs_host::types::{Id, Status};

use super::selection::Place;
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// Elements in the program's memory.
#[derive(Clone, Copy)]
pub struct Memory {
    pub buf: *const c_void,
    /// The datatype of the elements.
    pub datatype: Id,
    /// The size of one element, in bytes.
    pub size: usize,
    pub place: Place,
    /// The number of selected elements.
    pub count: usize,
}

impl Memory {
    fn bytes(&self) -> Result<usize, Fault> {
        let bytes = self.count.checked_mul(self.size);
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| "more elements than memory can hold".into())
    }

    /// The selected elements without a copy. `None` unless they lie in one piece, and there is a buffer.
    ///
    /// # Safety
    ///
    /// As for [`Memory::gathered`].
    #[inline]
    pub unsafe fn as_they_lie<'a>(&self) -> Option<&'a [u8]> {
        let bytes = self.count.checked_mul(self.size)?;
        if self.buf.is_null() || bytes > isize::MAX as usize {
            return None;
        }
        let from = self.in_one_piece()?;
        // SAFETY: the caller guarantees that the buffer holds the elements.
        Some(unsafe { slice::from_raw_parts(from, bytes) })
    }

    /// The selected elements in one piece, copied if necessary.
    ///
    /// # Safety
    ///
    /// `buf` holds the elements that the place selects, and does not change during the life of the result.
    pub unsafe fn gathered<'a>(&self, library: &Library) -> Result<Cow<'a, [u8]>, Fault> {
        let bytes = self.bytes()?;
        if bytes == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        if self.buf.is_null() {
            return Err("no buffer was given".into());
        }
        let space = match self.place {
            Place::From(first) => {
                let skipped = first as usize * self.size;
                // SAFETY: the caller guarantees that the buffer holds the elements.
                let elements =
                    unsafe { slice::from_raw_parts(self.buf.cast::<u8>().add(skipped), bytes) };
                return Ok(Cow::Borrowed(elements));
            }
            Place::Selected(space) => space,
        };
        let mut out = vec![0u8; bytes];
        // SAFETY: the result has room for all selected elements.
        let status = library.nested(|f| unsafe {
            (f.H5Dgather)(
                space,
                self.buf,
                self.datatype,
                bytes,
                out.as_mut_ptr().cast(),
                None,
                std::ptr::null_mut(),
            )
        });
        match status {
            0.. => Ok(Cow::Owned(out)),
            _ => Err("the elements cannot be gathered from memory".into()),
        }
    }

    /// Copies consecutive elements to their selected places in memory.
    ///
    /// # Safety
    ///
    /// `buf` is writable, and has room for the elements that the place selects.
    pub unsafe fn scatter(&self, library: &Library, elements: &[u8]) -> Result<(), Fault> {
        if elements.is_empty() {
            return Ok(());
        }
        let buf = self.buf.cast_mut();
        let space = match self.place {
            Place::From(first) => {
                let skipped = first as usize * self.size;
                // SAFETY: the caller guarantees the room.
                let room = unsafe {
                    slice::from_raw_parts_mut(buf.cast::<u8>().add(skipped), elements.len())
                };
                room.copy_from_slice(elements);
                return Ok(());
            }
            Place::Selected(space) => space,
        };
        let mut rest = elements;
        // SAFETY: libhdf5 passes the address of `rest` to `next_elements`, during this call alone. That function returns all
        // selected elements.
        let status = library.nested(|f| unsafe {
            (f.H5Dscatter)(
                next_elements,
                (&raw mut rest).cast(),
                self.datatype,
                space,
                buf,
            )
        });
        match status {
            0.. => Ok(()),
            _ => Err("the elements cannot be put into memory".into()),
        }
    }

    /// The address of the elements, if they lie in one piece.
    pub fn in_one_piece(&self) -> Option<*mut u8> {
        match self.place {
            Place::From(first) => {
                let skipped = first as usize * self.size;
                // SAFETY: the address stays within the program's buffer.
                Some(unsafe { self.buf.cast_mut().cast::<u8>().add(skipped) })
            }
            Place::Selected(_) => None,
        }
    }
}

/// `H5D_scatter_func_t`. Returns all elements at once.
unsafe extern "C-unwind" fn next_elements(
    elements: *mut *const c_void,
    bytes: *mut usize,
    rest: *mut c_void,
) -> Status {
    // SAFETY: `rest` comes from `scatter`, and the other arguments are places in libhdf5.
    unsafe {
        let rest = &mut *rest.cast::<&[u8]>();
        *elements = rest.as_ptr().cast();
        *bytes = rest.len();
        *rest = &[];
    }
    0
}

/// A conversion of elements by libhdf5.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub from: Id,
    pub to: Id,
    pub from_size: usize,
    pub to_size: usize,
    /// The data transfer property list.
    pub dxpl: Id,
}

impl Conversion {
    /// Converts `count` elements. `background`: values for members that `from` lacks.
    pub fn apply(
        &self,
        library: &Library,
        elements: Cow<'_, [u8]>,
        count: usize,
        background: Option<&mut [u8]>,
    ) -> Result<Vec<u8>, Fault> {
        let room = count.checked_mul(self.from_size.max(self.to_size));
        let room = room.ok_or("more elements than memory can hold")?;
        let mut bytes = elements.into_owned();
        bytes.resize(room, 0);
        let background = background.map_or(std::ptr::null_mut(), |b| b.as_mut_ptr().cast());
        // SAFETY: the buffer has room for the larger of both types, and the background for `count` elements of `to`.
        let status = library.nested(|f| unsafe {
            (f.H5Tconvert)(
                self.from,
                self.to,
                count,
                bytes.as_mut_ptr().cast(),
                background,
                self.dxpl,
            )
        });
        if status < 0 {
            return Err(
                "the elements cannot be converted between their types in memory and in the file"
                    .into(),
            );
        }
        bytes.truncate(count * self.to_size);
        Ok(bytes)
    }
}

/// Whether two datatypes are equal.
pub fn are_equal(f: &Functions, one: Id, other: Id) -> bool {
    // SAFETY: the library checks any identifier.
    one == other || unsafe { (f.H5Tequal)(one, other) } > 0
}
