//! Numbers of the types that programs write, in either byte order, and the way from one to another.

use serde::{Deserialize, Serialize};

/// A type of numbers, as C has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Kind {
    /// Bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
        }
    }
}

/// A type of numbers as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Number {
    pub kind: Kind,
    pub big_endian: bool,
}

/// How numbers of a log become those of a dataset, one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conversion {
    pub from: Number,
    pub to: Number,
    /// What stands for a number that the dataset's type does not have: as many bytes as that type needs, in
    /// its byte order, from the front.
    pub fill: [u8; 8],
}

impl Conversion {
    /// Converts as many numbers as there are. Both slices have room for the same number of them.
    pub fn convert(&self, from: &[u8], to: &mut [u8]) {
        to.copy_from_slice(from);
        if self.from.big_endian != self.to.big_endian {
            for number in to.chunks_exact_mut(self.to.kind.size()) {
                number.reverse();
            }
        }
    }
}
