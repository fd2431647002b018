//! Functions of datatypes.

use std::ffi::{c_char, c_int};

use super::input;
use super::registry::{self, h5logfs_id};
use super::status::{ApiError, Result, to_status};
use crate::{Datatype, Member};

/// int8_t
pub const H5LOGFS_INT8: h5logfs_id = 1;
/// int16_t
pub const H5LOGFS_INT16: h5logfs_id = 2;
/// int32_t
pub const H5LOGFS_INT32: h5logfs_id = 3;
/// int64_t
pub const H5LOGFS_INT64: h5logfs_id = 4;
/// uint8_t
pub const H5LOGFS_UINT8: h5logfs_id = 5;
/// uint16_t
pub const H5LOGFS_UINT16: h5logfs_id = 6;
/// uint32_t
pub const H5LOGFS_UINT32: h5logfs_id = 7;
/// uint64_t
pub const H5LOGFS_UINT64: h5logfs_id = 8;
/// float
pub const H5LOGFS_FLOAT: h5logfs_id = 9;
/// double
pub const H5LOGFS_DOUBLE: h5logfs_id = 10;
/// bool: a byte that is 0 or 1. Readers see an enumeration of FALSE and TRUE, as h5py writes it.
pub const H5LOGFS_BOOL: h5logfs_id = 11;

/// The least significant byte comes first.
pub const H5LOGFS_LITTLE_ENDIAN: c_int = 0;
/// The most significant byte comes first.
pub const H5LOGFS_BIG_ENDIAN: c_int = 1;

/// A string of ASCII characters.
pub const H5LOGFS_ASCII: c_int = 0;
/// A string in UTF-8.
pub const H5LOGFS_UTF8: c_int = 1;

pub(super) fn predefined(id: h5logfs_id) -> Option<Datatype> {
    Some(match id {
        H5LOGFS_INT8 => Datatype::integer(1, true),
        H5LOGFS_INT16 => Datatype::integer(2, true),
        H5LOGFS_INT32 => Datatype::integer(4, true),
        H5LOGFS_INT64 => Datatype::integer(8, true),
        H5LOGFS_UINT8 => Datatype::integer(1, false),
        H5LOGFS_UINT16 => Datatype::integer(2, false),
        H5LOGFS_UINT32 => Datatype::integer(4, false),
        H5LOGFS_UINT64 => Datatype::integer(8, false),
        H5LOGFS_FLOAT => Datatype::float(4),
        H5LOGFS_DOUBLE => Datatype::float(8),
        H5LOGFS_BOOL => Datatype::boolean(),
        _ => return None,
    })
}

/// Creates the type of a struct. `size` is its sizeof. `h5logfs_type_insert` adds members. The file
/// holds the struct without the padding between members. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_compound(size: usize, datatype: *mut h5logfs_id) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let size = to_u32(size as u64, "a compound")?;
            let members = Vec::new();
            Ok(Datatype::Compound { size, members })
        })
    }
}

/// Adds a member to a compound. `offset` is its offsetof. Members must not overlap. The call copies
/// the datatype `member`. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_insert(
    compound: h5logfs_id,
    name: *const c_char,
    offset: usize,
    member: h5logfs_id,
) -> c_int {
    to_status(|| {
        // SAFETY: promised by the caller.
        let name = unsafe { input::text(name, "the name of the member") }?.to_owned();
        let wrong = |e: ApiError| e.about(format!("member {name}"));
        let datatype = registry::datatype(member).map_err(wrong)?;
        let checked = datatype.check().map_err(ApiError::definition);
        checked.map_err(wrong)?;
        let offset = to_u32(offset as u64, "an offset").map_err(wrong)?;
        let member = Member {
            name,
            offset,
            datatype,
        };
        registry::change_type(compound, |datatype| {
            change_checked(datatype, |changed| match changed {
                Datatype::Compound { members, .. } => {
                    members.push(member);
                    Ok(())
                }
                _ => Err(ApiError::invalid("only compounds have members to insert")),
            })
        })
    })
}

/// Creates an enumeration based on an integer type. `h5logfs_type_enum_insert` adds values. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_enum(base: h5logfs_id, datatype: *mut h5logfs_id) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let base = Box::new(registry::datatype(base)?);
            if !matches!(*base, Datatype::Integer { .. }) {
                return Err(ApiError::definition(format!(
                    "an enumeration needs an integer type, not {}",
                    base.short()
                )));
            }
            let members = Vec::new();
            Ok(Datatype::Enumeration { base, members })
        })
    }
}

/// Adds a value and its name to an enumeration. For a value of H5LOGFS_UINT64 of 2^63 or more, pass the
/// same bits as an int64_t. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_enum_insert(
    enumeration: h5logfs_id,
    name: *const c_char,
    value: i64,
) -> c_int {
    to_status(|| {
        // SAFETY: promised by the caller.
        let name = unsafe { input::text(name, "the name of the value") }?.to_owned();
        registry::change_type(enumeration, |datatype| {
            change_checked(datatype, |changed| match changed {
                Datatype::Enumeration { base, members } => {
                    check_value(base, value).map_err(|e| e.about(&name))?;
                    members.push((name, value));
                    Ok(())
                }
                _ => Err(ApiError::invalid("only enumerations have values to insert")),
            })
        })
    })
}

/// Creates the type of an array of `rank` dimensions `dims` (1 to 32), row-major, with elements of type
/// `base`. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_array(
    base: h5logfs_id,
    rank: c_int,
    dims: *const u64,
    datatype: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let base = Box::new(registry::datatype(base)?);
            let dims = input::array(dims, input::rank(rank)?, "dims")?;
            let dims = dims.iter().map(|d| to_u32(*d, "an array type"));
            let dims = dims.collect::<Result<_>>()?;
            let array = Datatype::Array { base, dims };
            array.check().map_err(ApiError::definition)?;
            Ok(array)
        })
    }
}

/// Creates the type of a string of `size` bytes, padded with zero bytes. `charset` is H5LOGFS_ASCII or
/// H5LOGFS_UTF8. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_text(
    size: usize,
    charset: c_int,
    datatype: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            Ok(Datatype::Text {
                size: to_u32(size as u64, "a text")?,
                utf8: match charset {
                    H5LOGFS_ASCII => false,
                    H5LOGFS_UTF8 => true,
                    other => return Err(input::unknown_value("charset", other.into())),
                },
            })
        })
    }
}

/// Creates an opaque type: `size` bytes that HDF5 does not interpret. `tag` describes them. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_opaque(
    size: usize,
    tag: *const c_char,
    datatype: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let opaque = Datatype::Opaque {
                size: to_u32(size as u64, "an opaque type")?,
                tag: input::text(tag, "the tag")?.to_owned(),
            };
            opaque.check().map_err(ApiError::definition)?;
            Ok(opaque)
        })
    }
}

/// Creates a bitfield type of 1, 2, 4 or 8 bytes. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_bitfield(size: usize, datatype: *mut h5logfs_id) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let bits = Datatype::Bitfield {
                size: to_u32(size as u64, "a bitfield")?,
                big_endian: cfg!(target_endian = "big"),
            };
            bits.check().map_err(ApiError::definition)?;
            Ok(bits)
        })
    }
}

/// Creates a copy of an integer, floating-point, bitfield or enumeration type with the given byte
/// order: H5LOGFS_LITTLE_ENDIAN or H5LOGFS_BIG_ENDIAN. All other functions create types in the byte
/// order of this machine. The library does not convert data: elements in memory must have this order.
/// Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_with_order(
    base: h5logfs_id,
    order: c_int,
    datatype: *mut h5logfs_id,
) -> c_int {
    // SAFETY: promised by the caller.
    unsafe {
        make(datatype, || {
            let big = match order {
                H5LOGFS_LITTLE_ENDIAN => false,
                H5LOGFS_BIG_ENDIAN => true,
                other => return Err(input::unknown_value("order", other.into())),
            };
            let mut ordered = registry::datatype(base)?;
            set_order(&mut ordered, big)?;
            Ok(ordered)
        })
    }
}

/// Returns the size of an element of this type in memory, in bytes. Local.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn h5logfs_type_size(datatype: h5logfs_id, size: *mut usize) -> c_int {
    to_status(|| {
        let size = input::result_pointer(size, "size")?;
        let bytes = registry::datatype(datatype)?.size();
        // SAFETY: there is room for the result.
        unsafe { size.write(bytes as usize) };
        Ok(())
    })
}

/// Closes a datatype. Datasets, attributes and types that were created with it do not change. Local.
#[unsafe(no_mangle)]
pub extern "C" fn h5logfs_type_close(datatype: h5logfs_id) -> c_int {
    to_status(|| registry::remove_type(datatype))
}

/// Adds a datatype to the registry. `result` receives its handle, or 0 on error.
///
/// # Safety
/// `result` is NULL or has room for a handle.
unsafe fn make(result: *mut h5logfs_id, datatype: impl FnOnce() -> Result<Datatype>) -> c_int {
    to_status(|| {
        let result = input::result_pointer(result, "datatype")?;
        // SAFETY: there is room for a handle.
        unsafe {
            result.write(0);
            result.write(registry::add_type(datatype()?));
        }
        Ok(())
    })
}

/// Changes a datatype, unless the result is invalid.
fn change_checked(
    datatype: &mut Datatype,
    change: impl FnOnce(&mut Datatype) -> Result<()>,
) -> Result<()> {
    let mut changed = datatype.clone();
    change(&mut changed)?;
    changed.check().map_err(ApiError::definition)?;
    *datatype = changed;
    Ok(())
}

fn check_value(base: &Datatype, value: i64) -> Result<()> {
    let Datatype::Integer { size, signed, .. } = *base else {
        return Ok(());
    };
    let unused = 64 - 8 * size.clamp(1, 8);
    let truncated = if signed {
        value << unused >> unused
    } else {
        ((value as u64) << unused >> unused) as i64
    };
    if truncated != value {
        return Err(ApiError::definition(format!(
            "{value} is no value of an enumeration of {}",
            base.short()
        )));
    }
    Ok(())
}

fn set_order(datatype: &mut Datatype, big: bool) -> Result<()> {
    match datatype {
        Datatype::Integer { big_endian, .. }
        | Datatype::Float { big_endian, .. }
        | Datatype::Bitfield { big_endian, .. } => {
            *big_endian = big;
            Ok(())
        }
        Datatype::Enumeration { base, .. } => set_order(base, big),
        other => Err(ApiError::invalid(format!(
            "{} has no byte order",
            other.short()
        ))),
    }
}

fn to_u32(size: u64, what: &str) -> Result<u32> {
    match u32::try_from(size) {
        Ok(0) if what != "an offset" => Err(ApiError::definition(format!(
            "{what} of 0 bytes or elements"
        ))),
        Ok(size) => Ok(size),
        Err(_) => Err(ApiError::definition(format!(
            "{what} of {size} bytes or elements: less than 2^32 are possible"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::status::h5logfs_status::{H5LOGFS_ERR_DEFINITION, H5LOGFS_OK};
    use super::*;

    fn made(make: impl FnOnce(*mut h5logfs_id) -> c_int) -> h5logfs_id {
        let mut id = 0;
        assert_eq!(make(&raw mut id), H5LOGFS_OK as c_int);
        id
    }

    #[test]
    fn compounds_grow_by_members_that_fit() {
        // SAFETY: the strings are C strings, and there is room for a handle.
        unsafe {
            let event = made(|id| h5logfs_type_compound(16, id));
            assert_eq!(
                h5logfs_type_insert(event, c"id".as_ptr(), 0, H5LOGFS_INT32),
                0
            );
            let overlaps = h5logfs_type_insert(event, c"x".as_ptr(), 2, H5LOGFS_INT32);
            assert_eq!(overlaps, H5LOGFS_ERR_DEFINITION as c_int);
            assert_eq!(
                h5logfs_type_insert(event, c"x".as_ptr(), 8, H5LOGFS_DOUBLE),
                0
            );
            let members = [
                ("id", 0, Datatype::integer(4, true)),
                ("x", 8, Datatype::float(8)),
            ];
            let wanted = Datatype::compound(16, members.map(|(n, o, d)| (n.to_owned(), o, d)));
            assert_eq!(registry::datatype(event).unwrap(), wanted);
            assert_ne!(h5logfs_type_enum_insert(event, c"x".as_ptr(), 8), 0);
        }
    }

    #[test]
    fn enumerations_have_values_of_their_type() {
        // SAFETY: the strings are C strings, and there is room for a handle.
        unsafe {
            let kind = made(|id| h5logfs_type_enum(H5LOGFS_INT8, id));
            let insert = |name: &std::ffi::CStr, value| {
                h5logfs_type_enum_insert(kind, name.as_ptr(), value) == H5LOGFS_OK as c_int
            };
            assert!(insert(c"a", -128) && insert(c"b", 127));
            assert!(!insert(c"c", 128) && !insert(c"c", -129) && !insert(c"a", 3));
            assert_ne!(h5logfs_type_enum(H5LOGFS_FLOAT, &mut 0), 0);
        }
        let wide = Datatype::integer(8, false);
        assert!(check_value(&wide, -1).is_ok());
        assert!(check_value(&Datatype::integer(1, false), -1).is_err());
    }

    #[test]
    fn byte_orders_are_set_where_there_is_one() {
        let ordered = |base, order| {
            // SAFETY: there is room for a handle.
            let id = made(|id| unsafe { h5logfs_type_with_order(base, order, id) });
            registry::datatype(id).unwrap()
        };
        let big = Datatype::Float {
            size: 4,
            big_endian: true,
        };
        assert_eq!(ordered(H5LOGFS_FLOAT, H5LOGFS_BIG_ENDIAN), big);
        let native = if cfg!(target_endian = "big") {
            H5LOGFS_BIG_ENDIAN
        } else {
            H5LOGFS_LITTLE_ENDIAN
        };
        assert_eq!(ordered(H5LOGFS_FLOAT, native), Datatype::float(4));
        let mut id = 7;
        // SAFETY: there is room for a handle.
        let code = unsafe { h5logfs_type_with_order(H5LOGFS_FLOAT, 2, &raw mut id) };
        assert!(code != 0 && id == 0);
    }
}
