//! The attributes by which each family of models says where the tile of a member lies.
//!
//! The attributes of one member are its *marks*. Most say all about its place. NEMO's dimensions, and the places of CROCO's members,
//! are known only once the marks of all are.

mod fms;
mod mitgcm;
mod nemo;
mod roms;
#[cfg(test)]
mod tests;

use super::member::{Attribute, MemberHeader, attribute, lossy};
use super::names::MemberName;
use super::recognition::Recognized;
use super::{Axis, Family, Holders, Span};

/// The numbers in attributes are smaller.
const MOST: i64 = 1 << 31;

/// What the attributes of one member say of its place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// How many members the set has; `None` where nothing says so.
    pub total: Option<u64>,
    /// Its parts. All members have them in one order.
    parts: Vec<Part>,
    /// Of NEMO: the positions of the dimensions, from 1.
    ids: Vec<i64>,
    roms: roms::Partition,
}

/// The part of a decomposed dimension that a member has.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// The name of the dimension, where the attributes tell.
    dimension: Vec<u8>,
    /// The first index of the whole, and its length.
    whole: (i64, u64),
    span: Span,
}

/// Why a file is no member.
#[derive(Debug)]
pub(super) enum Unfit {
    /// It has not the attributes.
    Other(String),
    /// It is of a kind that is not joined.
    Kind(String),
}

impl From<String> for Unfit {
    fn from(reason: String) -> Self {
        Unfit::Other(reason)
    }
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
    let is_whole = |part: &Part| part.span.len == part.whole.1;
    match marks(name.family, header, name.number) {
        Ok(Marks { total: Some(1), .. }) => Recognized::No,
        Ok(marks) if marks.total.is_none() && marks.parts.iter().all(is_whole) => Recognized::No,
        Ok(_) => Recognized::Set,
        Err(Unfit::Kind(reason)) => Recognized::Refused(reason),
        Err(Unfit::Other(_)) => Recognized::No,
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

/// What the attributes of the member with this number say. The reason goes on after the name of the member.
pub(super) fn marks(family: Family, header: &MemberHeader, number: u32) -> Result<Marks, Unfit> {
    match family {
        Family::Fms => fms::marks(header),
        Family::Nemo => nemo::marks(header, number),
        Family::Roms => Ok(roms::marks(header, number)?),
        Family::Mitgcm => mitgcm::marks(header, number),
    }
}

/// The number of the first member of a set.
pub(super) fn first_number(family: Family) -> u32 {
    u32::from(family == Family::Mitgcm)
}

/// How many files an FMS set has, masked ones included, as its first member says; `None` where it says nothing.
pub(super) fn fms_files(header: &MemberHeader) -> Option<u64> {
    let found = integers(&header.attributes, fms::MARK, 1).ok()?;
    u64::try_from(found[0]).ok()
}

/// The decomposed dimensions. The error begins with the name of a member.
pub(super) fn place(family: Family, members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let dimensions = match family {
        Family::Roms => return roms::place(members),
        Family::Nemo => nemo::dimensions(members)?,
        Family::Fms | Family::Mitgcm => {
            let parts = members.members[0].marks.parts.iter();
            parts
                .filter_map(|part| members.dimension(&part.dimension))
                .collect()
        }
    };
    let first = &members.members[0];
    let mut cuts = Vec::new();
    for (k, (dimension, part)) in dimensions.iter().zip(&first.marks.parts).enumerate() {
        let name = lossy(&members.dimensions[*dimension]);
        let mut spans = Vec::new();
        for member in members.members {
            let parts = &member.marks.parts;
            let own = parts.get(k).filter(|own| own.dimension == part.dimension);
            let Some(own) = own.filter(|_| parts.len() == first.marks.parts.len()) else {
                let text = "other dimensions are decomposed than in";
                return Err(format!("{}: {text} {}", member.name, first.name));
            };
            if own.whole != part.whole {
                let is_shifted = own.whole.1 == part.whole.1;
                let from = |part: &Part| match part.whole.0 {
                    from if is_shifted => format!(" from {from}"),
                    _ => String::new(),
                };
                let own = format!("{} points in all{}", own.whole.1, from(own));
                let of_first = format!("{}{} in {}", part.whole.1, from(part), first.name);
                let name = format!("{}: {name}", member.name);
                return Err(format!(
                    "{name} has {own}, and {of_first}: two sets are mixed"
                ));
            }
            spans.push(own.span);
        }
        cuts.push(Cut {
            dimension: *dimension,
            whole: part.whole.1,
            spans,
        });
    }
    Ok(cuts)
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
    match decomposed.collect::<Vec<_>>().as_slice() {
        [] => Holders::First,
        [alone] if family == Family::Roms => roms::holders(name, alone, members, cuts),
        _ => Holders::All,
    }
}

// --- numbers of attributes -----------------------------------------------------------------------

/// The `count` integers of an attribute, all of them below 2^31.
fn integers(attributes: &[Attribute], name: &str, count: usize) -> Result<Vec<i64>, String> {
    let found = attribute(attributes, name).ok_or_else(|| format!("it has no attribute {name}"))?;
    let numbers = found.integers().unwrap_or_default();
    if numbers.len() == count && numbers.iter().all(|number| (-MOST..MOST).contains(number)) {
        return Ok(numbers);
    }
    let text = "is not as many integers below 2^31 as it has to have";
    Err(format!(
        "its attribute {name} ({}) {text}: {count}",
        list(&numbers)
    ))
}

/// A positive integer.
fn count(attributes: &[Attribute], name: &str) -> Result<u64, String> {
    let number = integers(attributes, name, 1)?[0];
    let positive = u64::try_from(number).ok().filter(|number| *number > 0);
    positive.ok_or_else(|| format!("its attribute {name} is {number}"))
}

fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    numbers.join(", ")
}

/// Fails if the attribute with the number of a member has not that of its name.
fn check_number(attribute: &str, own: u64, number: u32) -> Result<(), String> {
    if own == u64::from(number) {
        return Ok(());
    }
    let text = "it was renamed, or copied from another set";
    Err(format!("its attribute {attribute} is {own}: {text}"))
}

impl Members<'_> {
    /// The number of a dimension.
    fn dimension(&self, name: &[u8]) -> Option<usize> {
        self.dimensions.iter().position(|known| known == name)
    }
}
