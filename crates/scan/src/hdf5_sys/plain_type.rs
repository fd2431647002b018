//! Turns datatypes of files into plain data.

use h5logfs_log::journal::datatype::{Datatype, Member};

use hdf5_metno_sys::h5::H5free_memory;

use super::*;
use h5logfs_common::fault::Fault;

/// The deepest nesting that is followed.
const DEEPEST: usize = 32;

/// The end of messages about datatypes that plain data cannot express.
const INEXPRESSIBLE: &str = "is of a form that definitions do not have";

/// A datatype as plain data. Fails if the plain data would not make an equal type again.
pub fn plain_type(datatype: &Id) -> Result<Datatype> {
    if committed(datatype)?.is_some() {
        return Err("it has a committed datatype".into());
    }
    let Plain { data, made } = Plain::of(datatype, 0)?;
    if h5!(H5Tequal(datatype.0, made.0))? > 0 {
        Ok(data)
    } else {
        let name = describe_type(datatype);
        Err(format!("its datatype ({name}) {INEXPRESSIBLE}").into())
    }
}

/// A datatype as plain data, and the type that libhdf5 makes of these.
struct Plain {
    data: Datatype,
    made: Id,
}

impl Plain {
    fn of(datatype: &Id, depth: usize) -> Result<Self> {
        if depth > DEEPEST {
            return Err(format!("its datatype is nested more than {DEEPEST} levels deep").into());
        }
        match type_class(datatype) {
            H5T_class_t::H5T_STRING => text(datatype),
            H5T_class_t::H5T_ENUM => enumeration(datatype, depth),
            H5T_class_t::H5T_COMPOUND => compound(datatype, depth),
            H5T_class_t::H5T_ARRAY => array(datatype, depth),
            H5T_class_t::H5T_OPAQUE => opaque(datatype),
            _ => number(datatype),
        }
    }

    /// The base type of another type.
    fn base_of(datatype: &Id, depth: usize) -> Result<Self> {
        Self::of(&Id::new(h5!(H5Tget_super(datatype.0)))?, depth + 1)
    }
}

fn size_of(datatype: &Id) -> Result<u32> {
    u32::try_from(type_size(datatype)?).map_err(Fault::from)
}

fn number(datatype: &Id) -> Result<Plain> {
    let size = size_of(datatype)?;
    let big_endian = raw!(H5Tget_order(datatype.0)) == H5T_order_t::H5T_ORDER_BE;
    let (data, made) = match type_class(datatype) {
        H5T_class_t::H5T_INTEGER => {
            let signed = !is_unsigned(datatype);
            let data = Datatype::Integer {
                size,
                signed,
                big_endian,
            };
            (data, integer_type(size, signed, big_endian))
        }
        H5T_class_t::H5T_FLOAT => {
            let data = Datatype::Float { size, big_endian };
            (data, float_type(size, big_endian))
        }
        H5T_class_t::H5T_BITFIELD => {
            let data = Datatype::Bitfield { size, big_endian };
            (data, bitfield_type(size, big_endian))
        }
        _ => {
            let name = describe_type(datatype);
            return Err(format!("it has elements of type {name}").into());
        }
    };
    let unknown = |_| format!("its datatype ({}) {INEXPRESSIBLE}", describe_type(datatype));
    Ok(Plain {
        data,
        made: made.map_err(unknown)?,
    })
}

fn text(datatype: &Id) -> Result<Plain> {
    if h5!(H5Tis_variable_str(datatype.0))? > 0 {
        return Ok(Plain {
            data: Datatype::VariableText,
            made: variable_text_type()?,
        });
    }
    let size = size_of(datatype)?;
    let utf8 = raw!(H5Tget_cset(datatype.0)) == H5T_cset_t::H5T_CSET_UTF8;
    Ok(Plain {
        data: Datatype::Text { size, utf8 },
        made: text_type(size, utf8)?,
    })
}

fn opaque(datatype: &Id) -> Result<Plain> {
    let size = size_of(datatype)?;
    let tag = owned_text(raw!(H5Tget_tag(datatype.0)))?;
    Ok(Plain {
        made: opaque_type(size, &tag)?,
        data: Datatype::Opaque { size, tag },
    })
}

fn array(datatype: &Id, depth: usize) -> Result<Plain> {
    let base = Plain::base_of(datatype, depth)?;
    let rank = h5!(H5Tget_array_ndims(datatype.0))? as usize;
    let mut sides = vec![0; rank];
    h5!(H5Tget_array_dims2(datatype.0, sides.as_mut_ptr()))?;
    let dims = sides.iter().map(|side| u32::try_from(*side));
    let dims = dims.collect::<std::result::Result<_, _>>();
    Ok(Plain {
        made: array_type(&base.made, &sides)?,
        data: Datatype::Array {
            base: Box::new(base.data),
            dims: dims?,
        },
    })
}

fn enumeration(datatype: &Id, depth: usize) -> Result<Plain> {
    let base = Plain::base_of(datatype, depth)?;
    let Datatype::Integer {
        size,
        signed,
        big_endian,
    } = base.data
    else {
        return Err(format!("its datatype ({}) {INEXPRESSIBLE}", describe_type(datatype)).into());
    };
    let mut values = Vec::new();
    for number in 0..h5!(H5Tget_nmembers(datatype.0))? as c_uint {
        let mut value = vec![0; size as usize];
        let buffer = value.as_mut_ptr().cast();
        h5!(H5Tget_member_value(datatype.0, number, buffer))?;
        values.push((member_name(datatype, number)?, value));
    }
    let integer = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        if big_endian {
            bytes.reverse();
        }
        let is_negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
        bytes.resize(8, if is_negative { 0xff } else { 0 });
        bytes.iter().rev().fold(0, |n, b| n << 8 | i64::from(*b))
    };
    let members = values.iter().map(|(name, v)| (name.clone(), integer(v)));
    Ok(Plain {
        data: Datatype::Enumeration {
            base: Box::new(base.data),
            members: members.collect(),
        },
        made: enumeration_type(&base.made, &values)?,
    })
}

fn compound(datatype: &Id, depth: usize) -> Result<Plain> {
    let size = size_of(datatype)?;
    let (mut members, mut types) = (Vec::new(), Vec::new());
    for number in 0..h5!(H5Tget_nmembers(datatype.0))? as c_uint {
        let member = Id::new(h5!(H5Tget_member_type(datatype.0, number)))?;
        let Plain { data, made } = Plain::of(&member, depth + 1)?;
        let offset = raw!(H5Tget_member_offset(datatype.0, number));
        members.push(Member {
            name: member_name(datatype, number)?,
            offset: u32::try_from(offset)?,
            datatype: data,
        });
        types.push(made);
    }
    let made = members.iter().zip(types);
    let made: Vec<_> = made
        .map(|(m, made)| (m.name.as_str(), m.offset, made))
        .collect();
    let made = compound_type(size, &made)?;
    Ok(Plain {
        data: Datatype::Compound { size, members },
        made,
    })
}

fn member_name(datatype: &Id, number: c_uint) -> Result<String> {
    owned_text(raw!(H5Tget_member_name(datatype.0, number)))
}

/// Takes ownership of a text that libhdf5 has allocated.
fn owned_text(text: *mut c_char) -> Result<String> {
    if text.is_null() {
        return Err("a name or tag of its datatype cannot be read".into());
    }
    // SAFETY: libhdf5 has returned a C string, and the caller has to free it.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes().to_vec();
    h5!(H5free_memory(text.cast()))?;
    Ok(String::from_utf8(bytes).map_err(|_| "a name or tag of its datatype is not UTF-8")?)
}
