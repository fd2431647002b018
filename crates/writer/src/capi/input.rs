//! What comes from C, as Rust has it: texts, arrays, structs that may be of another version.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{self, NonNull};

use super::status::{Fault, Result};

/// Dimensions at most, as HDF5 has it.
pub(super) const MOST_DIMS: usize = 32;

/// A text in UTF-8.
///
/// # Safety
/// `text` is NULL or a text that ends with a zero byte, and lives as long as the result.
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: as the caller says.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map_err(|_| Fault::invalid(format!("{what} is not UTF-8")))
}

/// An array; without elements it may be NULL.
///
/// # Safety
/// `items` is NULL or points to `number` of them, which live, and stay as they are, as long as the
/// result.
pub(super) unsafe fn array<'a, T>(items: *const T, number: usize, what: &str) -> Result<&'a [T]> {
    if number == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(null(what));
    }
    let bytes = number.checked_mul(size_of::<T>());
    if !items.is_aligned() || bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Fault::invalid(format!("{what} is no array of {number}")));
    }
    // SAFETY: as the caller says; aligned, and no larger than memory.
    Ok(unsafe { std::slice::from_raw_parts(items, number) })
}

/// The same, where an array may be left out.
///
/// # Safety
/// As of [`array`].
pub(super) unsafe fn optional<'a, T>(
    items: *const T,
    number: usize,
    what: &str,
) -> Result<Option<&'a [T]>> {
    if items.is_null() {
        Ok(None)
    } else {
        // SAFETY: as the caller says.
        unsafe { array(items, number, what) }.map(Some)
    }
}

/// Texts in UTF-8.
///
/// # Safety
/// As of [`array`] and [`text`].
pub(super) unsafe fn texts<'a>(
    texts: *const *const c_char,
    number: usize,
    what: &str,
) -> Result<Vec<&'a str>> {
    // SAFETY: as the caller says.
    let texts = unsafe { array(texts, number, what) }?;
    // SAFETY: as the caller says.
    texts.iter().map(|t| unsafe { text(*t, what) }).collect()
}

/// A number of dimensions.
pub(super) fn rank(rank: c_int) -> Result<usize> {
    let good = usize::try_from(rank).ok().filter(|r| *r <= MOST_DIMS);
    good.ok_or_else(|| Fault::invalid(format!("a rank of {rank}; 0 to {MOST_DIMS} are possible")))
}

/// A yes or no.
pub(super) fn flag(value: c_int, what: &str) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(unknown(what, other.into())),
    }
}

/// Where a result goes.
pub(super) fn place<T>(result: *mut T, what: &str) -> Result<NonNull<T>> {
    let place = NonNull::new(result).ok_or_else(|| null(what))?;
    if place.is_aligned() {
        Ok(place)
    } else {
        Err(Fault::invalid(format!("{what} is no place for a result")))
    }
}

pub(super) fn unknown(what: &str, value: i64) -> Fault {
    Fault::invalid(format!("{what} has no value {value}"))
}

fn null(what: &str) -> Fault {
    Fault::invalid(format!("{what} is NULL"))
}

/// A struct of C that begins with its size, as the caller's header had it, and may grow at its end.
///
/// # Safety
/// `#[repr(C)]`, with a `usize` in front; zeros and any other bytes are a value.
pub(super) unsafe trait Growing: Copy {}

/// Fills in a caller's struct, which may be older and shorter than ours.
///
/// # Safety
/// `to` is NULL or has room for `size` bytes.
pub(super) unsafe fn set_defaults<T: Growing>(
    to: *mut T,
    size: usize,
    of: impl FnOnce(usize) -> T,
) -> Result<()> {
    let to = place(to, "the struct")?;
    check_size::<T>(size)?;
    let value = of(size);
    // SAFETY: there is room for `size` bytes, of which ours are the first; those behind them are
    // zeros to a later library.
    unsafe {
        let to = to.as_ptr().cast::<u8>();
        ptr::write_bytes(to, 0, size);
        ptr::copy_nonoverlapping((&raw const value).cast(), to, size_of::<T>());
    }
    Ok(())
}

/// A caller's struct, as ours.
///
/// # Safety
/// `given` is NULL or points to as many bytes as its first field says.
pub(super) unsafe fn given<T: Growing>(given: *const T) -> Result<T> {
    let given = place(given.cast_mut(), "the struct")?;
    // SAFETY: the size comes first, and says how many bytes there are.
    let (size, value) = unsafe {
        let size = given.cast::<usize>().read();
        check_size::<T>(size)?;
        (size, given.read())
    };
    // SAFETY: as the struct says.
    let rest = unsafe {
        let rest = given.as_ptr().cast::<u8>().add(size_of::<T>());
        std::slice::from_raw_parts(rest, size - size_of::<T>())
    };
    if rest.iter().all(|b| *b == 0) {
        Ok(value)
    } else {
        Err(Fault::invalid(
            "a struct has fields that this version of the library does not know",
        ))
    }
}

/// As long as there is one version, none is shorter; and one that is much longer was never
/// initialised.
fn check_size<T>(size: usize) -> Result<()> {
    const LARGEST: usize = 4096;
    if (size_of::<T>()..=LARGEST).contains(&size) {
        Ok(())
    } else {
        Err(Fault::invalid(format!(
            "a struct of {size} bytes, which should be {}: was it initialised?",
            size_of::<T>()
        )))
    }
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
    struct Later {
        now: Now,
        more: u64,
    }

    // SAFETY: two numbers, the size in front.
    unsafe impl Growing for Now {}

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
        // SAFETY: a `Later` begins with a `Now`, and has `size` bytes.
        unsafe { set_defaults::<Now>((&raw mut later).cast(), size, defaults) }.unwrap();
        assert_eq!((later.now, later.more), (defaults(size), 0));
        // SAFETY: as above.
        let read = |later: &Later| unsafe { given::<Now>((&raw const *later).cast()) };
        assert_eq!(read(&later).unwrap(), defaults(size));
        later.more = 1;
        assert!(read(&later).is_err());
    }

    #[test]
    fn structs_without_a_size_are_refused() {
        let mut now = Now { size: 0, number: 7 };
        // SAFETY: a `Now` is there, and nothing behind it is read.
        unsafe {
            assert!(given(&raw const now).is_err());
            assert!(set_defaults(&raw mut now, 8, defaults).is_err());
            assert!(given(ptr::null::<Now>()).is_err());
        }
    }

    #[test]
    fn arrays_are_checked_as_far_as_they_can_be() {
        let values = [1u64, 2];
        // SAFETY: what is read is there; the rest is refused.
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
