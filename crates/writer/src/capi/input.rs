//! Converts C arguments to Rust values: strings, arrays, and structs of other header versions.

use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::status::{ApiError, Result};

/// Most dimensions, as in HDF5.
pub(super) const MAX_DIMS: usize = 32;

/// Reads a string in UTF-8.
///
/// # Safety
/// `text` is NULL or a string that ends with a zero byte. It lives as long as the result.
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| ApiError::invalid(format!("{what} is not UTF-8")))
}

/// Reads an array. `items` may be NULL if `number` is 0.
///
/// # Safety
/// `items` is NULL or points to `number` items, which live and do not change as long as the result.
pub(super) unsafe fn array<'a, T>(items: *const T, number: usize, what: &str) -> Result<&'a [T]> {
    if number == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(null(what));
    }
    let bytes = number.checked_mul(size_of::<T>());
    if !items.is_aligned() || bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(ApiError::invalid(format!(
            "{what} cannot be an array of {number}: it is not aligned, or too large"
        )));
    }
    // SAFETY: promised by the caller. The array is aligned and not larger than memory.
    Ok(unsafe { std::slice::from_raw_parts(items, number) })
}

/// Reads an array, or `None` if it is NULL.
///
/// # Safety
/// See [`array`].
pub(super) unsafe fn optional<'a, T>(
    items: *const T,
    number: usize,
    what: &str,
) -> Result<Option<&'a [T]>> {
    if items.is_null() {
        Ok(None)
    } else {
        // SAFETY: promised by the caller.
        unsafe { array(items, number, what) }.map(Some)
    }
}

/// Reads an array of strings in UTF-8.
///
/// # Safety
/// See [`array`] and [`text`].
pub(super) unsafe fn texts<'a>(
    texts: *const *const c_char,
    number: usize,
    what: &str,
) -> Result<Vec<&'a str>> {
    // SAFETY: promised by the caller.
    let texts = unsafe { array(texts, number, what) }?;
    // SAFETY: promised by the caller.
    texts.iter().map(|t| unsafe { text(*t, what) }).collect()
}

/// Checks a number of dimensions.
pub(super) fn rank(rank: c_int) -> Result<usize> {
    let good = usize::try_from(rank).ok().filter(|r| *r <= MAX_DIMS);
    good.ok_or_else(|| ApiError::invalid(format!("a rank of {rank}; 0 to {MAX_DIMS} are possible")))
}

/// Reads the number of a dimension. The library checks it against the dataset.
pub(super) fn dimension(dimension: c_int) -> Result<u32> {
    u32::try_from(dimension).map_err(|_| {
        ApiError::invalid(format!("there is no dimension {dimension}: the first is 0"))
    })
}

/// Reads a flag, which must be 0 or 1.
pub(super) fn flag(value: c_int, what: &str) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(unknown_value(what, other.into())),
    }
}

/// Checks the pointer for a result.
pub(super) fn result_pointer<T>(result: *mut T, what: &str) -> Result<NonNull<T>> {
    let result = NonNull::new(result).ok_or_else(|| null(what))?;
    if !result.is_aligned() {
        return Err(ApiError::invalid(format!("{what} is not aligned")));
    }
    Ok(result)
}

pub(super) fn unknown_value(what: &str, value: i64) -> ApiError {
    ApiError::invalid(format!(
        "{what} has no value {value}: h5logfs_writer.h lists the values"
    ))
}

fn null(what: &str) -> ApiError {
    ApiError::invalid(format!("{what} is NULL"))
}

/// A C struct that begins with its size in the caller's header. Later versions may append fields. Their default is zero, for
/// programs that were compiled with an earlier header.
///
/// # Safety
/// The type is `#[repr(C)]`, its first field is a `usize`, and any bytes are a valid value.
pub(super) unsafe trait VersionedStruct: Copy {
    /// Size of the first version.
    const FIRST_SIZE: usize;
}

/// Fills in the defaults of a caller's struct of `size` bytes, which may be of an earlier or a later version.
///
/// # Safety
/// `to` is NULL or has room for `size` bytes.
pub(super) unsafe fn write_defaults<T: VersionedStruct>(
    to: *mut T,
    size: usize,
    defaults: impl FnOnce(usize) -> T,
) -> Result<()> {
    let to = result_pointer(to, "the struct")?;
    check_size::<T>(size)?;
    let value = defaults(size);
    // SAFETY: there is room for `size` bytes. The known fields come first; the others become zero.
    unsafe {
        let to = to.as_ptr().cast::<u8>();
        ptr::write_bytes(to, 0, size);
        ptr::copy_nonoverlapping((&raw const value).cast(), to, size.min(size_of::<T>()));
    }
    Ok(())
}

/// Reads a caller's struct. Fails if it is of a later version and sets unknown fields.
///
/// # Safety
/// `from` is NULL or points to as many bytes as its first field says.
pub(super) unsafe fn read_struct<T: VersionedStruct>(from: *const T) -> Result<T> {
    let from = result_pointer(from.cast_mut(), "the struct")?;
    // SAFETY: the first field is the size of the struct. Zeros are a valid value.
    let (bytes, value) = unsafe {
        let size = from.cast::<usize>().read();
        check_size::<T>(size)?;
        let bytes = std::slice::from_raw_parts(from.as_ptr().cast::<u8>(), size);
        let mut value = MaybeUninit::<T>::zeroed();
        let known = size.min(size_of::<T>());
        ptr::copy_nonoverlapping(bytes.as_ptr(), value.as_mut_ptr().cast(), known);
        (bytes, value.assume_init())
    };
    let rest = bytes.get(size_of::<T>()..).unwrap_or_default();
    if rest.iter().any(|b| *b != 0) {
        return Err(ApiError::invalid(
            "a struct sets fields that this version of the library does not know: the program was compiled with a later \
             one",
        ));
    }
    Ok(value)
}

/// Fails for a struct that is shorter than its first version or much longer than the present one: it was not initialised.
fn check_size<T: VersionedStruct>(size: usize) -> Result<()> {
    const LARGEST: usize = 4096;
    if !(T::FIRST_SIZE..=LARGEST).contains(&size) {
        return Err(ApiError::invalid(format!(
            "a struct of {size} bytes, which should be {}: was it initialised with its _init function?",
            size_of::<T>()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Now {
        size: usize,
        number: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Later {
        now: Now,
        more: u64,
    }

    // SAFETY: two numbers, the size in front.
    unsafe impl VersionedStruct for Now {
        const FIRST_SIZE: usize = size_of::<Self>();
    }

    // SAFETY: three numbers, the size in front.
    unsafe impl VersionedStruct for Later {
        const FIRST_SIZE: usize = size_of::<Now>();
    }

    fn defaults(size: usize) -> Now {
        Now { size, number: 7 }
    }

    #[test]
    fn structs_may_be_longer_if_the_rest_is_not_used() {
        let mut later = Later {
            now: Now { size: 1, number: 1 },
            more: 1,
        };
        let size = size_of::<Later>();
        // SAFETY: a `Later` begins with a `Now` and has `size` bytes.
        unsafe { write_defaults::<Now>((&raw mut later).cast(), size, defaults) }.unwrap();
        assert_eq!((later.now, later.more), (defaults(size), 0));
        // SAFETY: as above.
        let read = |later: &Later| unsafe { read_struct::<Now>((&raw const *later).cast()) };
        assert_eq!(read(&later).unwrap(), defaults(size));
        later.more = 1;
        assert!(read(&later).is_err());
    }

    #[test]
    fn structs_may_be_of_an_earlier_version() {
        let defaults = |size| Later {
            now: defaults(size),
            more: 0,
        };
        // The caller's memory after the struct is not touched.
        let mut caller = [Now { size: 1, number: 1 }; 2];
        let size = size_of::<Now>();
        // SAFETY: a `Now` has `size` bytes.
        let read = unsafe {
            write_defaults::<Later>((&raw mut caller).cast(), size, defaults).unwrap();
            read_struct::<Later>((&raw const caller).cast()).unwrap()
        };
        assert_eq!(caller[1], Now { size: 1, number: 1 });
        assert_eq!((read.now, read.more), (caller[0], 0));
        assert_eq!(caller[0], Now { size, number: 7 });
        caller[0].size -= 1;
        // SAFETY: as above.
        assert!(unsafe { read_struct::<Later>((&raw const caller).cast()) }.is_err());
    }

    #[test]
    fn structs_without_a_size_are_refused() {
        let mut now = Now { size: 0, number: 7 };
        // SAFETY: `now` is a `Now`, and nothing after it is read.
        unsafe {
            assert!(read_struct(&raw const now).is_err());
            assert!(write_defaults(&raw mut now, 8, defaults).is_err());
            assert!(read_struct(ptr::null::<Now>()).is_err());
        }
    }

    #[test]
    fn arrays_are_checked_as_far_as_they_can_be() {
        let values = [1u64, 2];
        // SAFETY: the first two arrays exist. The others are refused before they are read.
        unsafe {
            assert_eq!(array(values.as_ptr(), 2, "it").unwrap(), values);
            assert_eq!(array(ptr::null::<u64>(), 0, "it").unwrap(), [0u64; 0]);
            assert!(array(ptr::null::<u64>(), 1, "it").is_err());
            assert!(array(values.as_ptr().byte_add(1), 1, "it").is_err());
            assert!(array(values.as_ptr(), usize::MAX / 8, "it").is_err());
            assert!(text(c"\xff".as_ptr(), "it").is_err());
            assert_eq!(text(c"x".as_ptr(), "it").unwrap(), "x");
        }
        assert!(rank(-1).is_err() && rank(33).is_err() && rank(32).is_ok());
    }
}
