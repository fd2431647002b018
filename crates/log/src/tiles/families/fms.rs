//! FMS: `domain_decomposition` of the coordinate variables (section 2).

use super::{Cut, Marked, Marks, Members, integers, list, mixed};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, attribute, lossy};
use crate::tiles::recognition::Recognized;

pub const MARK: &str = "NumFilesInSet";
pub const DECOMPOSITION: &str = "domain_decomposition";
/// The attribute of a dimension whose points are those of several dimensions that are not land (section 2.6).
const COMPRESS: &str = "compress";

/// The part of one dimension that a member has. Indices count from `first`, and all of them belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    dimension: Vec<u8>,
    /// The first and the last index of the whole.
    whole: (i64, i64),
    /// Those of the member.
    own: (i64, i64),
}

impl Part {
    fn whole_len(&self) -> u64 {
        self.whole.1.abs_diff(self.whole.0) + 1
    }

    fn len(&self) -> u64 {
        self.own.1.abs_diff(self.own.0) + 1
    }

    fn span(&self) -> Span {
        Span {
            at: self.own.0.abs_diff(self.whole.0),
            len: self.len(),
            before: 0,
            all: self.len(),
        }
    }
}

pub fn recognize(header: &MemberHeader) -> Recognized {
    let is_marked = attribute(&header.attributes, MARK).is_some();
    match parts(header) {
        Ok(parts) if parts.iter().all(|part| part.own == part.whole) => Recognized::No,
        Ok(_) => Recognized::Set,
        // A joined file, or another one, may have such an attribute, too.
        Err(_) if !is_marked => Recognized::No,
        Err(reason) => Recognized::Refused(reason),
    }
}

/// The parts of the decomposed dimensions; at least one.
pub fn parts(header: &MemberHeader) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    for (number, dimension) in header.dimensions.iter().enumerate() {
        let Some(coordinate) = header.coordinate(number) else {
            continue;
        };
        let name = lossy(&dimension.name);
        if attribute(&coordinate.attributes, COMPRESS).is_some() {
            return Err(format!(
                "dimension {name} is compressed by gathering (attribute {COMPRESS}): join with combine-ncc, then decompress-ncc"
            ));
        }
        if attribute(&coordinate.attributes, DECOMPOSITION).is_none() {
            continue;
        }
        let numbers = integers(&coordinate.attributes, DECOMPOSITION).unwrap_or_default();
        let (s, e, a, b) = match *numbers.as_slice() {
            [s, e, a, b] if s <= a && a <= b && b <= e => (s, e, a, b),
            _ => {
                let numbers = list(&numbers);
                return Err(format!(
                    "{DECOMPOSITION} {numbers} of {name} is not a part of a whole"
                ));
            }
        };
        let part = Part {
            dimension: dimension.name.clone(),
            whole: (s, e),
            own: (a, b),
        };
        if part.len() != dimension.len {
            return Err(format!(
                "{DECOMPOSITION} {} of {name} has {} points, and the dimension {}",
                list(&numbers),
                part.len(),
                dimension.len
            ));
        }
        parts.push(part);
    }
    match parts.is_empty() {
        true => Err(
            "no dimension is decomposed (icebergs, particles): join with iceberg_comb.sh"
                .to_owned(),
        ),
        false => Ok(parts),
    }
}

pub fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let Some((first, _)) = members.members.split_first() else {
        return Ok(Vec::new());
    };
    let of_first = parts_of(first);
    let mut cuts = Vec::new();
    for part in of_first {
        let mut cut = Cut {
            dimension: members
                .dimensions
                .iter()
                .position(|name| *name == part.dimension)
                .unwrap_or(0),
            whole: part.whole_len(),
            spans: Vec::new(),
        };
        for member in members.members {
            let own = parts_of(member)
                .iter()
                .find(|own| own.dimension == part.dimension);
            cut.spans.push(span(member, own, first, part)?);
        }
        cuts.push(cut);
    }
    let is_known = |part: &Part| {
        of_first
            .iter()
            .any(|known| known.dimension == part.dimension)
    };
    for member in members.members {
        if let Some(part) = parts_of(member).iter().find(|part| !is_known(part)) {
            let (name, dimension) = (&member.name, lossy(&part.dimension));
            return Err(format!(
                "{name}: {dimension} is decomposed, and not in {}",
                first.name
            ));
        }
    }
    Ok(cuts)
}

fn parts_of(member: &Marked) -> &[Part] {
    match &member.marks {
        Marks::Fms(parts) => parts,
        _ => &[],
    }
}

fn span(member: &Marked, own: Option<&Part>, first: &Marked, part: &Part) -> Result<Span, String> {
    let dimension = lossy(&part.dimension);
    let Some(own) = own else {
        let (name, first) = (&member.name, &first.name);
        return Err(format!(
            "{name}: {dimension} is not decomposed, and it is in {first}"
        ));
    };
    if own.whole_len() != part.whole_len() {
        let of_first = part.whole_len();
        let what = format!("{dimension} has");
        return Err(mixed(
            member,
            first,
            &what,
            format_args!("{} points in all", own.whole_len()),
            of_first,
        ));
    }
    if own.whole != part.whole {
        let what = format!("{dimension} counts from");
        return Err(mixed(member, first, &what, own.whole.0, part.whole.0));
    }
    Ok(own.span())
}
