//! Dataspaces (IV.A.2.b).

use crate::MAX_RANK;

/// The extent of a dataset or an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dataspace {
    /// No elements and no dimensions.
    Null,
    /// An array; without dimensions a scalar, which has one element.
    Simple {
        /// The extent.
        dims: Vec<u64>,
        /// The largest extent. `u64::MAX` is unlimited.
        max_dims: Vec<u64>,
    },
}

impl Dataspace {
    /// Reads a dataspace message (IV.A.2.b). `None` where it is not in a known form.
    pub fn of_message(data: &[u8]) -> Option<Self> {
        const HAS_LIMITS: u8 = 1;
        const NULL: u8 = 2;
        let (rank, flags, numbers) = match *data {
            [1, rank, flags, ..] => (rank, flags, data.get(8..)?),
            [2, _, _, NULL, ..] => return Some(Dataspace::Null),
            [2, rank, flags, ..] => (rank, flags, data.get(4..)?),
            _ => return None,
        };
        let rank = usize::from(rank);
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let (numbers, _) = numbers.as_chunks();
        let mut numbers = numbers.iter().map(number);
        let dims: Vec<u64> = numbers.by_ref().take(rank).collect();
        let max_dims = match flags & HAS_LIMITS {
            0 => dims.clone(),
            _ => numbers.take(rank).collect(),
        };
        let is_whole = rank <= MAX_RANK && dims.len() == rank && max_dims.len() == rank;
        is_whole.then_some(Dataspace::Simple { dims, max_dims })
    }

    /// The number of elements; `None` where that is 2^64 or more.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Dataspace::Null => Some(0),
            Dataspace::Simple { dims, .. } if dims.contains(&0) => Some(0),
            Dataspace::Simple { dims, .. } => {
                dims.iter().try_fold(1u64, |n, dim| n.checked_mul(*dim))
            }
        }
    }

    /// Bytes of all elements, each of `element` bytes; `None` where these are 2^64 or more.
    pub fn bytes(&self, element: u32) -> Option<u64> {
        self.elements()?.checked_mul(element.into())
    }

    /// Whether no element has a place in it.
    pub fn is_empty(&self) -> bool {
        match self {
            Dataspace::Null => true,
            Dataspace::Simple { dims, .. } => dims.contains(&0),
        }
    }
}
