//! Datatypes of a writer and of a journal, as plain data without libhdf5 handles.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::MAX_RANK;

/// A datatype of fixed size (HDF5 File Format Specification, IV.A.2.d), or variable-length text, which only
/// attributes may have. Sizes and offsets are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Datatype {
    /// A signed (two's complement) or unsigned integer.
    Integer {
        /// Bytes.
        size: u32,
        /// Whether the type has negative values.
        signed: bool,
        /// Byte order.
        #[serde(default, skip_serializing_if = "is_little")]
        big_endian: bool,
    },
    /// An IEEE 754 floating-point number of 4 or 8 bytes.
    Float {
        /// Bytes: 4 or 8.
        size: u32,
        /// Byte order.
        #[serde(default, skip_serializing_if = "is_little")]
        big_endian: bool,
    },
    /// Bits without a numeric meaning.
    Bitfield {
        /// Bytes.
        size: u32,
        /// Byte order.
        #[serde(default, skip_serializing_if = "is_little")]
        big_endian: bool,
    },
    /// Bytes without a structure.
    Opaque {
        /// Bytes.
        size: u32,
        /// The program's description of the bytes.
        tag: String,
    },
    /// Text of a fixed number of bytes, padded with zeros.
    Text {
        /// Bytes including the padding.
        size: u32,
        /// UTF-8; otherwise ASCII.
        utf8: bool,
    },
    /// UTF-8 text of any length, for attributes only.
    VariableText,
    /// Named values of an integer type. Values above 2^63 are stored as their two's complement.
    Enumeration {
        /// The integer type.
        base: Box<Datatype>,
        /// Names and values.
        members: Vec<(String, i64)>,
    },
    /// A structure.
    Compound {
        /// Bytes including the gaps.
        size: u32,
        /// The members in the order of definition.
        members: Vec<Member>,
    },
    /// An array of fixed size.
    Array {
        /// Type of an element.
        base: Box<Datatype>,
        /// Extent.
        dims: Vec<u32>,
    },
}

/// Whether to omit the byte order in a journal: little-endian is the default.
fn is_little(big_endian: &bool) -> bool {
    !big_endian
}

/// A member of a compound.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Name of the member.
    pub name: String,
    /// Byte offset in the compound.
    pub offset: u32,
    /// Type of the member.
    pub datatype: Datatype,
}

/// The deepest nesting of compounds and arrays.
const DEEPEST: usize = 16;
/// The largest datatype message in bytes. Lengths in an object header have 16 bits.
const LARGEST_MESSAGE: u64 = 60_000;

/// The longest tag of an opaque type in bytes. Its length has 8 bits, padded to a multiple of eight bytes.
const LONGEST_TAG: usize = 248;

/// The most runs of bytes between the gaps of an element. They are listed for each dataset.
const MOST_RUNS: u64 = 1 << 16;

impl Datatype {
    /// A little-endian integer of `size` bytes.
    pub const fn integer(size: u32, signed: bool) -> Self {
        Datatype::Integer {
            size,
            signed,
            big_endian: cfg!(target_endian = "big"),
        }
    }

    /// A little-endian floating-point number of `size` bytes.
    pub const fn float(size: u32) -> Self {
        Datatype::Float {
            size,
            big_endian: cfg!(target_endian = "big"),
        }
    }

    /// A boolean as h5py writes it.
    pub fn boolean() -> Self {
        Datatype::Enumeration {
            base: Box::new(Datatype::integer(1, true)),
            members: vec![("FALSE".into(), 0), ("TRUE".into(), 1)],
        }
    }

    /// A compound of `size` bytes; members are given by name, byte offset and type.
    pub fn compound(size: u32, members: impl IntoIterator<Item = (String, u32, Datatype)>) -> Self {
        let members = members.into_iter();
        let members = members.map(|(name, offset, datatype)| Member {
            name,
            offset,
            datatype,
        });
        Datatype::Compound {
            size,
            members: members.collect(),
        }
    }

    /// Bytes of an element; 0 for variable-length text, and on overflow.
    pub fn size(&self) -> u32 {
        match self {
            Datatype::Integer { size, .. }
            | Datatype::Float { size, .. }
            | Datatype::Bitfield { size, .. }
            | Datatype::Opaque { size, .. }
            | Datatype::Text { size, .. }
            | Datatype::Compound { size, .. } => *size,
            Datatype::VariableText => 0,
            Datatype::Enumeration { base, .. } => base.size(),
            Datatype::Array { base, dims } => dims
                .iter()
                .try_fold(base.size(), |size, d| size.checked_mul(*d))
                .unwrap_or(0),
        }
    }

    /// Fails with the reason where libhdf5 would reject the type, or its elements cannot be logged.
    pub fn check(&self) -> Result<(), Fault> {
        self.check_nested(0)?;
        if self.message_size() > LARGEST_MESSAGE {
            return Err(format!(
                "the datatype has too many members: their names and types take more than {LARGEST_MESSAGE} bytes"
            ).into());
        }
        match self.most_runs() {
            runs if runs > MOST_RUNS => Err(format!(
                "the datatype is an array of too many compounds with padding: {runs} pieces, {MOST_RUNS} are possible"
            ).into()),
            _ => Ok(()),
        }
    }

    /// Whether a value of an enumeration fits this integer type.
    fn can_hold(&self, value: i64) -> bool {
        let Datatype::Integer { size, signed, .. } = self else {
            return false;
        };
        match (size, signed) {
            // Values above 2^63 are stored as their two's complement.
            (8, _) => true,
            (size @ (1 | 2 | 4), true) => {
                let limit = 1i64 << (8 * size - 1);
                (-limit..limit).contains(&value)
            }
            (size @ (1 | 2 | 4), false) => (0..1i64 << (8 * size)).contains(&value),
            _ => false,
        }
    }

    /// An upper bound for the number of runs.
    fn most_runs(&self) -> u64 {
        match self {
            Datatype::Compound { members, .. } => {
                let members = members.iter().map(|m| m.datatype.most_runs());
                members.fold(0, u64::saturating_add)
            }
            Datatype::Array { base, dims } if base.has_gaps() => {
                let dims = dims.iter().map(|d| u64::from(*d));
                dims.fold(base.most_runs(), u64::saturating_mul)
            }
            _ => 1,
        }
    }

    fn check_nested(&self, depth: usize) -> Result<(), Fault> {
        if depth > DEEPEST {
            return Err(format!("the datatype is nested more than {DEEPEST} deep").into());
        }
        match self {
            Datatype::Integer { size, .. } | Datatype::Bitfield { size, .. }
                if ![1, 2, 4, 8].contains(size) =>
            {
                Err(
                    format!("an integer or bitfield of {size} bytes: 1, 2, 4 and 8 are possible")
                        .into(),
                )
            }
            Datatype::Float { size, .. } if ![4, 8].contains(size) => {
                Err(format!("a floating-point number of {size} bytes: 4 and 8 are possible").into())
            }
            Datatype::VariableText => {
                Err("elements of variable length cannot be logged: use a text of fixed size".into())
            }
            Datatype::Opaque { tag, .. } if tag.contains('\0') => {
                Err("the tag of an opaque type has a zero byte".into())
            }
            Datatype::Opaque { tag, .. } if tag.len() > LONGEST_TAG => Err(format!(
                "the tag of an opaque type has {} bytes; {LONGEST_TAG} are possible",
                tag.len()
            )
            .into()),
            Datatype::Enumeration { base, members } => {
                if !matches!(**base, Datatype::Integer { .. }) {
                    return Err(format!(
                        "an enumeration needs an integer type, not {}",
                        base.short()
                    )
                    .into());
                }
                if let Some((name, value)) = members.iter().find(|m| !base.can_hold(m.1)) {
                    return Err(
                        format!("{name} = {value} of an enumeration does not fit {base}").into(),
                    );
                }
                if members.is_empty() {
                    return Err("the enumeration has no values".into());
                }
                let mut seen = HashSet::new();
                if let Some((name, value)) = members.iter().find(|m| !seen.insert(m.1)) {
                    return Err(format!(
                        "{name} = {value} of an enumeration: another name has that value"
                    )
                    .into());
                }
                check_names(members.iter().map(|m| m.0.as_str()))?;
                base.check_nested(depth + 1)
            }
            Datatype::Compound { size, members } => {
                check_names(members.iter().map(|m| m.name.as_str()))?;
                check_places(*size, members)?;
                members
                    .iter()
                    .try_for_each(|m| m.datatype.check_nested(depth + 1))
            }
            Datatype::Array { base, dims } => {
                if dims.is_empty() || dims.len() > MAX_RANK || dims.contains(&0) {
                    return Err(format!(
                        "an array type of shape {dims:?}: 1 to {MAX_RANK} dimensions are possible, and none is 0"
                    ).into());
                }
                base.check_nested(depth + 1)
            }
            _ => Ok(()),
        }?;
        match self.size() {
            0 => Err("the datatype has 0 bytes, or 4 GiB and more".into()),
            _ => Ok(()),
        }
    }

    /// An upper bound for the bytes of the datatype message.
    pub(super) fn message_size(&self) -> u64 {
        let named = |name: &str| name.len() as u64 + 64;
        match self {
            Datatype::Enumeration { base, members } => {
                let members = members.iter().map(|m| named(&m.0));
                base.message_size() + members.sum::<u64>()
            }
            Datatype::Compound { members, .. } => {
                let members = members.iter();
                let members = members.map(|m| named(&m.name) + m.datatype.message_size());
                32 + members.sum::<u64>()
            }
            Datatype::Array { base, dims } => base.message_size() + 32 + 8 * dims.len() as u64,
            Datatype::Opaque { tag, .. } => named(tag),
            _ => 64,
        }
    }

    /// The type without gaps, as it is logged. Bytes in the gaps are arbitrary memory of the program.
    pub fn packed(&self) -> Self {
        match self {
            Datatype::Compound { members, .. } => {
                let mut offset = 0;
                let place = |m: &Member| {
                    let datatype = m.datatype.packed();
                    let placed = Member {
                        name: m.name.clone(),
                        offset,
                        datatype,
                    };
                    // A type for which this would wrap is refused elsewhere.
                    offset = placed.datatype.size().saturating_add(offset);
                    placed
                };
                let members: Vec<Member> = members.iter().map(place).collect();
                Datatype::Compound {
                    size: offset,
                    members,
                }
            }
            Datatype::Array { base, dims } => Datatype::Array {
                base: Box::new(base.packed()),
                dims: dims.clone(),
            },
            other => other.clone(),
        }
    }

    /// The bytes of the packed form in an element: runs of (offset, length) in bytes, in the order of the packed
    /// form. Without gaps there is one run.
    pub fn runs(&self) -> Vec<(usize, usize)> {
        let mut runs = Vec::new();
        self.add_runs(0, &mut runs);
        runs
    }

    fn add_runs(&self, at: usize, runs: &mut Vec<(usize, usize)>) {
        match self {
            Datatype::Compound { members, .. } => {
                for member in members {
                    member.datatype.add_runs(at + member.offset as usize, runs);
                }
            }
            Datatype::Array { base, dims } if base.has_gaps() => {
                let count = dims.iter().map(|d| *d as usize).product();
                for i in 0..count {
                    base.add_runs(at + i * base.size() as usize, runs);
                }
            }
            _ => match runs.last_mut() {
                Some((start, len)) if *start + *len == at => *len += self.size() as usize,
                _ => runs.push((at, self.size() as usize)),
            },
        }
    }

    fn has_gaps(&self) -> bool {
        self.packed() != *self
    }
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    for name in names {
        if name.is_empty() {
            return Err("the name of a member is empty".into());
        }
        if name.contains('\0') {
            return Err(format!("the name of member {name:?} has a zero byte").into());
        }
        if !seen.insert(name) {
            return Err(format!("member {name} occurs twice").into());
        }
    }
    Ok(())
}

/// Fails where a member lies outside of the compound, or two members overlap.
fn check_places(size: u32, members: &[Member]) -> Result<(), Fault> {
    if members.is_empty() {
        return Err("the compound has no members".into());
    }
    let mut places: Vec<(u32, u32, &str)> = members
        .iter()
        .map(|m| (m.offset, m.datatype.size(), m.name.as_str()))
        .collect();
    places.sort_unstable();
    let mut end = 0;
    for (offset, bytes, name) in places {
        let next = offset.checked_add(bytes).filter(|next| *next <= size);
        match next {
            Some(next) if offset >= end => end = next,
            Some(_) => {
                return Err(format!(
                    "member {name} at offset {offset} overlaps another one, which ends at {end}"
                )
                .into());
            }
            None => {
                return Err(format!(
                    "member {name} of {bytes} bytes at offset {offset} ends past the {size} bytes of its compound"
                ).into());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Datatype {
        let fields = [
            ("id", 0, Datatype::integer(4, true)),
            ("time", 8, Datatype::float(8)),
            ("kind", 16, Datatype::integer(1, false)),
        ];
        Datatype::compound(24, fields.map(|(n, o, t)| (n.to_owned(), o, t)))
    }

    #[test]
    fn gaps_are_packed_away() {
        let packed = event().packed();
        assert_eq!((event().size(), packed.size()), (24, 13));
        assert_eq!(event().runs(), [(0, 4), (8, 9)]);
        assert_eq!(packed.runs(), [(0, 13)]);
        let two = Datatype::Array {
            base: Box::new(event()),
            dims: vec![2],
        };
        assert_eq!(two.runs(), [(0, 4), (8, 9), (24, 4), (32, 9)]);
        assert_eq!(two.packed().size(), 26);
        let plain = Datatype::Array {
            base: Box::new(Datatype::float(4)),
            dims: vec![2, 3],
        };
        assert_eq!(plain.runs(), [(0, 24)]);
    }

    #[test]
    fn what_libhdf5_would_refuse_is_refused() {
        assert_eq!(event().check(), Ok(()));
        let float = |size| Datatype::Float {
            size,
            big_endian: false,
        };
        assert!(float(3).check().is_err());
        assert!(Datatype::VariableText.check().is_err());
        let overlapping = [("a".to_owned(), 0, float(8)), ("b".to_owned(), 4, float(8))];
        assert!(Datatype::compound(16, overlapping).check().is_err());
        let outside = [("a".to_owned(), 4, float(8))];
        assert!(Datatype::compound(8, outside).check().is_err());
        let array = |dims: &[u32]| Datatype::Array {
            base: Box::new(float(8)),
            dims: dims.to_vec(),
        };
        assert!(array(&[0]).check().is_err());
        assert!(array(&[1 << 30]).check().is_err());
        let gaps = |count| Datatype::Array {
            base: Box::new(event()),
            dims: vec![count],
        };
        assert_eq!(gaps(1000).check(), Ok(()));
        assert!(gaps(1 << 20).check().is_err());
        let named = |signed, value| Datatype::Enumeration {
            base: Box::new(Datatype::integer(1, signed)),
            members: vec![("A".into(), 0), ("B".into(), value)],
        };
        assert_eq!(named(true, -128).check(), Ok(()));
        assert_eq!(named(false, 255).check(), Ok(()));
        assert!(named(true, 128).check().is_err());
        assert!(named(false, 256).check().is_err());
        assert!(named(false, -1).check().is_err());
        let tagged = |len| Datatype::Opaque {
            size: 1,
            tag: "x".repeat(len),
        };
        assert_eq!(tagged(248).check(), Ok(()));
        assert!(tagged(249).check().is_err());
        let text = Datatype::Text {
            size: 0,
            utf8: true,
        };
        assert!(text.check().is_err());
        let many = (0..2000).map(|i| (format!("member {i}"), i * 8, float(8)));
        assert!(Datatype::compound(16_000, many).check().is_err());
    }
}
