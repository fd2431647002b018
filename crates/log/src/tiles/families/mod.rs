//! The attributes by which each family of models says where the tile of a member lies.
//!
//! A family has three questions to answer: whether a first member is one of a set, what the attributes of one member say (its
//! *marks*), and where the members lie once the marks of all are known.

mod fms;
mod mitgcm;
mod nemo;
mod roms;
#[cfg(test)]
mod tests;

use super::member::{Attribute, MemberHeader, attribute};
use super::names::MemberName;
use super::recognition::Recognized;
use super::{Axis, Family, Holders, Span};

/// The numbers in attributes are smaller.
const MOST: i64 = 1 << 31;

/// What the attributes of one member say of its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Marks {
    Fms(Vec<fms::Part>),
    Nemo(nemo::Domain),
    Roms(roms::Partition),
    Mitgcm(mitgcm::Tile),
}

/// A member with its marks.
#[derive(Debug)]
pub(super) struct Marked {
    pub name: String,
    pub number: u32,
    /// Its length along each dimension of the set; `None` where it lacks the dimension.
    pub lens: Vec<Option<u64>>,
    pub marks: Marks,
}

/// A decomposed dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its number among the dimensions of the set.
    pub dimension: usize,
    /// Its length in the joined file.
    pub whole: u64,
    /// The part of each member.
    pub spans: Vec<Span>,
}

/// All members, and the dimensions of the set.
pub(super) struct Members<'a> {
    /// Names of the dimensions, by number.
    pub dimensions: &'a [Vec<u8>],
    /// There is at least one.
    pub members: &'a [Marked],
    /// All members that the set must have are here.
    pub are_all: bool,
}

/// Whether the first member that is there, with this name and header, makes a set of the files of its stem (section 9).
pub(super) fn recognize(name: &MemberName<'_>, header: &MemberHeader) -> Recognized {
    match name.family {
        Family::Fms => fms::recognize(header),
        Family::Nemo => nemo::recognize(name, header),
        Family::Roms => roms::recognize(name, header),
        Family::Mitgcm => mitgcm::recognize(name, header),
    }
}

/// Whether the attribute is there without which no file of the family is a member of a set. It is a global one. Files of FMS may
/// lack theirs.
pub(super) fn has_mark(family: Family, attributes: &[Attribute]) -> bool {
    let mark = match family {
        Family::Fms => fms::MARK,
        Family::Nemo => nemo::MARK,
        Family::Roms => roms::MARK,
        Family::Mitgcm => mitgcm::MARK,
    };
    attribute(attributes, mark).is_some()
}

/// What the attributes of the member with this number say. The error goes on after the name of the member.
pub(super) fn marks(family: Family, header: &MemberHeader, number: u32) -> Result<Marks, String> {
    match family {
        Family::Fms => fms::parts(header).map(Marks::Fms),
        Family::Nemo => nemo::domain(header, number).map(Marks::Nemo),
        Family::Roms => roms::partition(header, number).map(Marks::Roms),
        Family::Mitgcm => mitgcm::tile(header, number).map(Marks::Mitgcm),
    }
}

impl Marks {
    /// How many members the set has; `None` where nothing says so.
    pub fn total(&self) -> Option<u64> {
        match self {
            Marks::Fms(_) => None,
            Marks::Nemo(domain) => Some(domain.total),
            Marks::Roms(partition) => Some(partition.total()),
            Marks::Mitgcm(tile) => Some(tile.total()),
        }
    }
}

/// The number of the first member of a set.
pub(super) fn first_number(family: Family) -> u32 {
    u32::from(family == Family::Mitgcm)
}

/// The same, of the family of these marks.
pub(super) fn first_number_of(marks: &Marks) -> u32 {
    u32::from(matches!(marks, Marks::Mitgcm(_)))
}

/// How many files an FMS set has, masked ones included, as its first member says; `None` where it says nothing.
pub(super) fn fms_files(header: &MemberHeader) -> Option<u64> {
    u64::try_from(single(&header.attributes, fms::MARK)?).ok()
}

/// The decomposed dimensions. The error begins with the name of a member.
pub(super) fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    match members.members.first().map(|first| &first.marks) {
        Some(Marks::Fms(_)) => fms::place(members),
        Some(Marks::Nemo(_)) => nemo::place(members),
        Some(Marks::Roms(_)) => roms::place(members),
        Some(Marks::Mitgcm(_)) => mitgcm::place(members),
        None => Err("it has no member".to_owned()),
    }
}

/// Whether a global attribute says only where one member lies, so that the joined file lacks it (section 8.3).
pub(super) fn goes(family: Family, name: &[u8]) -> bool {
    let begins = |starts: &[&str]| {
        starts
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
    };
    match family {
        Family::Fms => name == fms::MARK.as_bytes(),
        Family::Nemo => begins(&["DOMAIN_", "file_name", "associate_file"]),
        Family::Roms => name == roms::MARK.as_bytes(),
        Family::Mitgcm => matches!(name, b"tile_number" | b"bi" | b"bj") || begins(&["exch2_"]),
    }
}

/// The same for an attribute of a variable.
pub(super) fn goes_of_variable(family: Family, name: &[u8]) -> bool {
    family == Family::Fms && name == fms::DECOMPOSITION.as_bytes()
}

/// The members that have the elements of a variable (sections 1 and 5.4).
pub(super) fn holders(
    family: Family,
    name: &[u8],
    dims: &[Axis],
    members: &Members<'_>,
    cuts: &[Cut],
) -> Holders {
    let decomposed = dims.iter().filter_map(|axis| match axis {
        Axis::Cut(number) => cuts.get(usize::from(*number)),
        _ => None,
    });
    let decomposed: Vec<&Cut> = decomposed.collect();
    match decomposed.as_slice() {
        [] => Holders::First,
        [alone] if family == Family::Roms => roms::holders(name, alone, members, cuts),
        _ => Holders::All,
    }
}

// --- numbers of attributes -----------------------------------------------------------------------

/// The integers of an attribute, all of them below 2^31.
fn integers(attributes: &[Attribute], name: &str) -> Option<Vec<i64>> {
    let numbers = attribute(attributes, name)?.integers()?;
    numbers
        .iter()
        .all(|number| (-MOST..MOST).contains(number))
        .then_some(numbers)
}

fn single(attributes: &[Attribute], name: &str) -> Option<i64> {
    match integers(attributes, name)?.as_slice() {
        [number] => Some(*number),
        _ => None,
    }
}

/// The error for an attribute that is not there, or not as it has to be.
fn bad_attribute(attributes: &[Attribute], name: &str, what: &str) -> String {
    match attribute(attributes, name) {
        None => format!("it has no attribute {name}"),
        Some(found) => match found.integers() {
            Some(numbers) => format!(
                "its attribute {name} is {}, which is not {what}",
                list(&numbers)
            ),
            None => format!("its attribute {name} is not {what}"),
        },
    }
}

fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    numbers.join(", ")
}

/// The error for members of two sets.
fn mixed(
    member: &Marked,
    first: &Marked,
    what: &str,
    own: impl std::fmt::Display,
    of_first: impl std::fmt::Display,
) -> String {
    let (name, first) = (&member.name, &first.name);
    format!("{name}: {what} {own}, and {of_first} in {first}: two sets are mixed")
}

impl Members<'_> {
    /// The number of a dimension.
    fn dimension(&self, name: &str) -> Option<usize> {
        self.dimensions
            .iter()
            .position(|known| known == name.as_bytes())
    }

    /// The length of a member along a dimension; 0 where it lacks the dimension.
    fn len(&self, member: &Marked, dimension: usize) -> u64 {
        member.lens.get(dimension).copied().flatten().unwrap_or(0)
    }
}
