//! NEMO and XIOS: the global attributes `DOMAIN_…` (section 4).

use super::{Cut, Marked, Marks, Members, bad_attribute, integers, list, mixed, single};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, attribute, lossy};
use crate::tiles::names::MemberName;
use crate::tiles::recognition::Recognized;

pub const MARK: &str = "DOMAIN_number_total";
const NUMBER: &str = "DOMAIN_number";
const IDS: &str = "DOMAIN_dimensions_ids";
const TYPE: &str = "DOMAIN_type";
/// The fewest digits of a number that make a name a member's by itself.
const DIGITS: usize = 4;

/// The part of the domain that a member has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub total: u64,
    /// The x direction, then y; only one in one-dimensional cuts.
    axes: Vec<Axis>,
}

/// One direction, as the attributes say.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Axis {
    /// The position of the dimension in the file's list, from 1.
    id: i64,
    whole: i64,
    local: i64,
    /// The first point and the last one, from 1.
    first: i64,
    last: i64,
    /// Points that do not count, at the begin and at the end.
    halo: (i64, i64),
}

pub fn recognize(name: &MemberName<'_>, header: &MemberHeader) -> Recognized {
    let is_of_type = attribute(&header.attributes, TYPE).is_none_or(|a| is_box(a.text()));
    let number = single(&header.attributes, NUMBER);
    match domain(header, name.number) {
        Ok(domain) if domain.total == 1 => Recognized::No,
        Ok(_) => Recognized::Set,
        Err(reason) if !is_of_type => Recognized::Refused(reason),
        // The files of a set that were renamed are told when it is opened.
        Err(_)
            if number.is_some_and(|number| number != i64::from(name.number))
                && name.digits >= DIGITS =>
        {
            Recognized::Set
        }
        Err(_) => Recognized::No,
    }
}

fn is_box(text: Option<&[u8]>) -> bool {
    text.is_some_and(|text| text.trim_ascii_end().eq_ignore_ascii_case(b"box"))
}

pub fn domain(header: &MemberHeader, number: u32) -> Result<Domain, String> {
    let attributes = &header.attributes;
    if let Some(kind) = attribute(attributes, TYPE)
        && !is_box(kind.text())
    {
        let kind = lossy(kind.text().unwrap_or_default()).into_owned();
        return Err(format!(
            "its attribute {TYPE} is {kind:?}, and only boxes can be joined"
        ));
    }
    let total = single(attributes, MARK).and_then(|total| u64::try_from(total).ok());
    let total = total.filter(|total| *total > 0);
    let total = total.ok_or_else(|| bad_attribute(attributes, MARK, "one positive integer"))?;
    match single(attributes, NUMBER) {
        Some(own) if own == i64::from(number) => {}
        Some(own) => {
            return Err(format!(
                "its attribute {NUMBER} is {own}: it was renamed, or copied from another set"
            ));
        }
        None => return Err(bad_attribute(attributes, NUMBER, "one integer")),
    }
    let ids = pair(header, IDS)?;
    let rest = [
        "DOMAIN_size_global",
        "DOMAIN_size_local",
        "DOMAIN_position_first",
        "DOMAIN_position_last",
        "DOMAIN_halo_size_start",
        "DOMAIN_halo_size_end",
    ];
    let mut numbers = Vec::new();
    for name in rest {
        let found = pair(header, name)?;
        if found.len() != ids.len() {
            return Err(bad_attribute(
                attributes,
                name,
                "as many integers as dimensions",
            ));
        }
        numbers.push(found);
    }
    let axes = ids.iter().enumerate().map(|(k, id)| Axis {
        id: *id,
        whole: numbers[0][k],
        local: numbers[1][k],
        first: numbers[2][k],
        last: numbers[3][k],
        halo: (numbers[4][k], numbers[5][k]),
    });
    let axes: Vec<Axis> = axes.collect();
    for axis in &axes {
        axis.check()?;
    }
    Ok(Domain { total, axes })
}

/// The integers of an attribute, of which there are one or two.
fn pair(header: &MemberHeader, name: &str) -> Result<Vec<i64>, String> {
    let found =
        integers(&header.attributes, name).filter(|numbers| (1..=2).contains(&numbers.len()));
    found.ok_or_else(|| bad_attribute(&header.attributes, name, "one or two integers"))
}

impl Axis {
    /// Fails unless the interior lies in the whole. The halo may lie behind it (section 4.2).
    fn check(&self) -> Result<(), String> {
        let Axis {
            whole,
            local,
            first,
            last,
            halo: (start, end),
            ..
        } = *self;
        let is_sound = start >= 0 && end >= 0 && start + end <= local && last - first + 1 == local;
        let is_inside = first + start >= 1 && last - end <= whole;
        if is_sound && is_inside {
            return Ok(());
        }
        Err(format!(
            "points {first} to {last} with a halo of {start} and {end} are not {local} points of {whole} (attributes DOMAIN_…)"
        ))
    }

    fn span(&self) -> Span {
        let (start, end) = self.halo;
        let plain = |number: i64| u64::try_from(number).unwrap_or(0);
        Span {
            at: plain(self.first - 1 + start),
            len: plain(self.local - start - end),
            before: plain(start),
            all: plain(self.local),
        }
    }
}

fn axes_of(member: &Marked) -> &[Axis] {
    match &member.marks {
        Marks::Nemo(domain) => &domain.axes,
        _ => &[],
    }
}

pub fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let first = &members.members[0];
    let mut cuts: Vec<Cut> = Vec::new();
    for member in members.members {
        let (own, of_first) = (axes_of(member), axes_of(first));
        if own.len() != of_first.len() {
            return Err(mixed(
                member,
                first,
                "directions:",
                own.len(),
                of_first.len(),
            ));
        }
    }
    for (k, of_first) in axes_of(first).iter().enumerate() {
        let dimension = dimension(members, k, of_first)?;
        if cuts.iter().any(|cut| cut.dimension == dimension) {
            let name = lossy(&members.dimensions[dimension]);
            return Err(format!(
                "{}: {name} is decomposed in both directions ({IDS})",
                first.name
            ));
        }
        let mut spans = Vec::new();
        for member in members.members {
            let axis = &axes_of(member)[k];
            if axis.whole != of_first.whole {
                let what = format!("{} has", lossy(&members.dimensions[dimension]));
                let own = format_args!("{} points in all", axis.whole);
                return Err(mixed(member, first, &what, own, of_first.whole));
            }
            spans.push(axis.span());
        }
        let whole = u64::try_from(of_first.whole).unwrap_or(0);
        cuts.push(Cut {
            dimension,
            whole,
            spans,
        });
    }
    Ok(cuts)
}

/// The dimension of a direction: the one that the attribute names if it has the right length in all members; else the only one of
/// which that is true, and whose name begins like the direction.
fn dimension(members: &Members<'_>, k: usize, axis: &Axis) -> Result<usize, String> {
    let fits = |dimension: usize| {
        let mut all = members.members.iter();
        all.all(|member| {
            let local = axes_of(member).get(k).map(|axis| axis.local);
            local.and_then(|local| u64::try_from(local).ok())
                == member.lens.get(dimension).copied().flatten()
        })
    };
    let named = usize::try_from(axis.id - 1).ok();
    if let Some(named) = named.filter(|named| *named < members.dimensions.len() && fits(*named)) {
        return Ok(named);
    }
    let letter = if k == 0 { b"x" } else { b"y" };
    let all = members.dimensions.iter().enumerate();
    let mut found = all.filter(|(number, name)| name.starts_with(letter) && fits(*number));
    match (found.next(), found.next()) {
        (Some((number, _)), None) => Ok(number),
        (one, _) => {
            let ids: Vec<i64> = axes_of(&members.members[0])
                .iter()
                .map(|axis| axis.id)
                .collect();
            let count = if one.is_none() {
                "no dimension"
            } else {
                "several dimensions"
            };
            Err(format!(
                "{}: {IDS} is {}, but {count} that {} with {} have the length of DOMAIN_size_local in all members",
                members.members[0].name,
                list(&ids),
                "begin",
                lossy(letter)
            ))
        }
    }
}
