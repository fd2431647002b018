//! The HDF5 types of elements (section 8, rule 8).

use std::collections::HashMap;

use crate::hdf5_sys::{self as h5, Id};
use h5logfs_adios::Type;
use h5logfs_adios::model::StructType;
use h5logfs_common::fault::Fault;

type Result<T> = std::result::Result<T, Fault>;

/// The types of one directory. Thousands of objects share a few.
pub(super) struct Types {
    is_big_endian: bool,
    known: HashMap<Type, Id>,
}

/// Whether elements are single numbers.
pub(super) fn is_number(ty: &Type) -> bool {
    match ty {
        Type::I8 | Type::Char | Type::U8 | Type::I16 | Type::I32 | Type::I64 => true,
        Type::U16 | Type::U32 | Type::U64 | Type::F32 | Type::F64 => true,
        Type::LongDouble | Type::Complex32 | Type::Complex64 | Type::Text | Type::Struct(_) => {
            false
        }
    }
}

impl Types {
    pub fn new(is_big_endian: bool) -> Self {
        Types {
            is_big_endian,
            known: HashMap::new(),
        }
    }

    pub fn get(&mut self, ty: &Type) -> Result<Id> {
        if let Some(known) = self.known.get(ty) {
            return Ok(known.clone());
        }
        let new = self.make(ty)?;
        self.known.insert(ty.clone(), new.clone());
        Ok(new)
    }

    fn make(&mut self, ty: &Type) -> Result<Id> {
        let order = self.is_big_endian;
        match ty {
            // One byte has no byte order.
            Type::I8 | Type::Char => h5::integer_type(1, true, false),
            Type::U8 => h5::integer_type(1, false, false),
            Type::I16 => h5::integer_type(2, true, order),
            Type::I32 => h5::integer_type(4, true, order),
            Type::I64 => h5::integer_type(8, true, order),
            Type::U16 => h5::integer_type(2, false, order),
            Type::U32 => h5::integer_type(4, false, order),
            Type::U64 => h5::integer_type(8, false, order),
            Type::F32 => h5::float_type(4, order),
            Type::F64 => h5::float_type(8, order),
            // Big-endian processors have no x87, and the files do not say which format they use.
            Type::LongDouble if order => h5::opaque_type(16, "long double"),
            Type::LongDouble => h5::x87_type(),
            Type::Complex32 => self.complex(&Type::F32),
            Type::Complex64 => self.complex(&Type::F64),
            Type::Text => h5::variable_text_type(),
            Type::Struct(of) => self.compound(of),
        }
    }

    fn complex(&mut self, part: &Type) -> Result<Id> {
        let (size, part) = (part.size() as u32, self.get(part)?);
        h5::compound_type(2 * size, &[("r", 0, part.clone()), ("i", size, part)])
    }

    fn compound(&mut self, of: &StructType) -> Result<Id> {
        let mut members = Vec::new();
        for member in &of.members {
            let mut ty = self.get(&member.ty)?;
            if let Some(count) = member.count {
                ty = h5::array_type(&ty, &[count.into()])?;
            }
            members.push((member.name.as_str(), member.offset, ty));
        }
        // The compound is no longer than its members.
        h5::compound_type(of.value_size() as u32, &members)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use h5logfs_adios::model::Member;

    #[test]
    fn elements_have_their_sizes_and_orders() {
        // Making a property list loads the library.
        let _library = h5::new_dataset_creation().unwrap();
        let member = |name: &str, offset, ty, count| Member {
            name: name.to_owned(),
            offset,
            ty,
            count,
        };
        let of = StructType {
            size: 40,
            members: vec![
                member("id", 0, Type::I32, None),
                member("pos", 8, Type::F64, Some(3)),
            ],
        };
        let all = [
            Type::I16,
            Type::Complex32,
            Type::LongDouble,
            Type::Struct(Arc::new(of)),
        ];
        for (order, expected) in [
            (false, ["i16", "compound of 8", "f128", "compound of 32"]),
            (
                true,
                [
                    "i16, big-endian",
                    "compound of 8",
                    "opaque of 16",
                    "compound of 32",
                ],
            ),
        ] {
            let mut types = Types::new(order);
            let described = |ty| h5::describe_type(&types.get(ty).unwrap());
            assert_eq!(all.each_ref().map(described), expected);
        }
    }

    /// The expected type is libhdf5's own `long double` of this processor.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_long_double_is_that_of_the_processor() {
        let made = Types::new(false).get(&Type::LongDouble).unwrap();
        assert!(h5::equal_types(&made, &h5::native_long_double().unwrap()).unwrap());
    }
}
