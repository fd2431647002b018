//! Types (section 3).

use serde::{Deserialize, Serialize};

use crate::model::Type;

/// A type of netCDF, without strings: SCORPIO writes no variable of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum NcType {
    Byte,
    Char,
    Short,
    Int,
    Float,
    Double,
    UByte,
    UShort,
    UInt,
    Int64,
    UInt64,
}

impl NcType {
    /// The type of this number in `netcdf.h`; `None` for text of any length and for unknown numbers.
    pub fn of_number(number: i64) -> Option<Self> {
        Some(match number {
            1 => NcType::Byte,
            2 => NcType::Char,
            3 => NcType::Short,
            4 => NcType::Int,
            5 => NcType::Float,
            6 => NcType::Double,
            7 => NcType::UByte,
            8 => NcType::UShort,
            9 => NcType::UInt,
            10 => NcType::Int64,
            11 => NcType::UInt64,
            _ => return None,
        })
    }

    /// The type of the values of an attribute; `None` for types that netCDF does not have.
    pub fn of_attribute(ty: &Type) -> Option<Self> {
        Some(match ty {
            Type::I8 | Type::Char => NcType::Byte,
            Type::I16 => NcType::Short,
            Type::I32 => NcType::Int,
            Type::F32 => NcType::Float,
            Type::F64 => NcType::Double,
            Type::U8 => NcType::UByte,
            Type::U16 => NcType::UShort,
            Type::U32 => NcType::UInt,
            Type::I64 => NcType::Int64,
            Type::U64 => NcType::UInt64,
            _ => return None,
        })
    }

    /// The type of ADIOS2 in which the elements of all processes are stored.
    pub fn stored(self) -> Type {
        match self {
            NcType::Byte | NcType::Char => Type::I8,
            NcType::Short => Type::I16,
            NcType::Int => Type::I32,
            NcType::Float => Type::F32,
            NcType::Double => Type::F64,
            NcType::UByte => Type::U8,
            NcType::UShort => Type::U16,
            NcType::UInt => Type::U32,
            NcType::Int64 => Type::I64,
            NcType::UInt64 => Type::U64,
        }
    }

    /// Whether elements of a type of ADIOS2 are elements of this type.
    pub fn is_stored_as(self, ty: &Type) -> bool {
        let ty = if *ty == Type::Char { &Type::I8 } else { ty };
        self.stored() == *ty
    }
}

/// The type in memory, by its number in the C interface of ADIOS2. `None` for text and for unknown numbers.
pub fn memory_type(number: i64) -> Option<Type> {
    Some(match number {
        1 => Type::F32,
        2 => Type::F64,
        5 => Type::I8,
        6 => Type::I16,
        7 => Type::I32,
        8 => Type::I64,
        9 => Type::U8,
        10 => Type::U16,
        11 => Type::U32,
        12 => Type::U64,
        _ => return None,
    })
}
