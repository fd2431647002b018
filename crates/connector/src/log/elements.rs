//! Elements between the memory of a program and a log: gathered, converted by libhdf5, scattered.

use std::borrow::Cow;
use std::ffi::c_void;
use std::slice;

use h5logfs_host::types::{Id, Status};

use super::selection::Place;
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// The elements of a program in memory.
#[derive(Clone, Copy)]
pub struct Memory {
    pub buf: *const c_void,
    /// Their type.
    pub datatype: Id,
    /// Bytes of one.
    pub size: usize,
    pub place: Place,
    /// How many are selected.
    pub count: usize,
}

impl Memory {
    fn bytes(&self) -> Result<usize, Fault> {
        let bytes = self.count.checked_mul(self.size);
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize);
        bytes.ok_or_else(|| "more elements than memory can hold".into())
    }

    /// The selected elements, where they lie in one piece in memory, and are there.
    ///
    /// # Safety
    ///
    /// As [`Memory::gathered`].
    #[inline]
    pub unsafe fn as_they_lie<'a>(&self) -> Option<&'a [u8]> {
        let bytes = self.count.checked_mul(self.size)?;
        if self.buf.is_null() || bytes > isize::MAX as usize {
            return None;
        }
        let from = self.in_one_piece()?;
        // SAFETY: the caller says that the elements are there.
        Some(unsafe { slice::from_raw_parts(from, bytes) })
    }

    /// The selected elements, one behind the other.
    ///
    /// # Safety
    ///
    /// `buf` has the elements that the place selects, and does not change as long as the result.
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
                // SAFETY: the caller says that the elements are there.
                let elements =
                    unsafe { slice::from_raw_parts(self.buf.cast::<u8>().add(skipped), bytes) };
                return Ok(Cow::Borrowed(elements));
            }
            Place::Selected(space) => space,
        };
        let mut out = vec![0u8; bytes];
        // SAFETY: there is room for all selected elements.
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

    /// Puts elements, one behind the other, where the place selects them.
    ///
    /// # Safety
    ///
    /// `buf` can be written to, and has room for the elements that the place selects.
    pub unsafe fn scatter(&self, library: &Library, elements: &[u8]) -> Result<(), Fault> {
        if elements.is_empty() {
            return Ok(());
        }
        let buf = self.buf.cast_mut();
        let space = match self.place {
            Place::From(first) => {
                let skipped = first as usize * self.size;
                // SAFETY: the caller says that there is room.
                let room = unsafe {
                    slice::from_raw_parts_mut(buf.cast::<u8>().add(skipped), elements.len())
                };
                room.copy_from_slice(elements);
                return Ok(());
            }
            Place::Selected(space) => space,
        };
        let mut rest = elements;
        // SAFETY: `next` gets the address of `rest` during the call alone, and gives all elements that are selected.
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

    /// The place of the elements in memory, where they follow each other.
    pub fn in_one_piece(&self) -> Option<*mut u8> {
        match self.place {
            Place::From(first) => {
                let skipped = first as usize * self.size;
                // SAFETY: the first of the elements that the program has at `buf`.
                Some(unsafe { self.buf.cast_mut().cast::<u8>().add(skipped) })
            }
            Place::Selected(_) => None,
        }
    }
}

/// `H5D_scatter_func_t`: gives all elements at once.
unsafe extern "C-unwind" fn next_elements(
    elements: *mut *const c_void,
    bytes: *mut usize,
    rest: *mut c_void,
) -> Status {
    // SAFETY: `rest` is what `scatter` passes, and the others are places of libhdf5.
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
    /// Converts `count` elements. `background`: what the members have that `from` lacks.
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

/// Whether two types are the same.
pub fn are_equal(f: &Functions, one: Id, other: Id) -> bool {
    // SAFETY: the library answers for any identifiers.
    one == other || unsafe { (f.H5Tequal)(one, other) } > 0
}
