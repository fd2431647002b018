//! NEMO and XIOS: the global attributes `DOMAIN_…` (section 4).

use super::{Marked, Marks, Members, Part, Unfit, check_number, count, integers, list};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, attribute, lossy};

pub const MARK: &str = "DOMAIN_number_total";
const NUMBER: &str = "DOMAIN_number";
const IDS: &str = "DOMAIN_dimensions_ids";
const TYPE: &str = "DOMAIN_type";
/// The other attributes of the directions, in the order in which they are used.
const OTHERS: [&str; 6] = [
    "DOMAIN_size_global",
    "DOMAIN_size_local",
    "DOMAIN_position_first",
    "DOMAIN_position_last",
    "DOMAIN_halo_size_start",
    "DOMAIN_halo_size_end",
];

pub fn marks(header: &MemberHeader, number: u32) -> Result<Marks, Unfit> {
    let attributes = &header.attributes;
    let total = count(attributes, MARK)?;
    let own = integers(attributes, NUMBER, 1)?[0];
    check_number(NUMBER, u64::try_from(own).unwrap_or(u64::MAX), number)?;
    if let Some(kind) = attribute(attributes, TYPE).map(|kind| kind.text().unwrap_or_default())
        && !kind.trim_ascii_end().eq_ignore_ascii_case(b"box")
    {
        let text = format!("its attribute {TYPE} is {:?}", lossy(kind));
        return Err(Unfit::Kind(format!("{text}, and only boxes can be joined")));
    }
    // One-dimensional cuts have one number.
    let ids = integers(attributes, IDS, 2).or_else(|_| integers(attributes, IDS, 1))?;
    let mut numbers = Vec::new();
    for name in OTHERS {
        numbers.push(integers(attributes, name, ids.len())?);
    }
    let parts = (0..ids.len()).map(|k| part([0, 1, 2, 3, 4, 5].map(|name| numbers[name][k])));
    Ok(Marks {
        total: Some(total),
        parts: parts.collect::<Result<_, _>>()?,
        ids,
        ..Marks::default()
    })
}

/// The part along one direction. Its interior has to lie in the whole; the halo may lie behind it (section 4.2).
fn part([whole, local, first, last, start, end]: [i64; 6]) -> Result<Part, String> {
    let is_sound = start >= 0 && end >= 0 && start + end <= local && last - first + 1 == local;
    if !is_sound || first + start < 1 || last - end > whole {
        let text = format!("points {first} to {last} with a halo of {start} and {end}");
        return Err(format!(
            "{text} are not {local} points of {whole} (attributes DOMAIN_…)"
        ));
    }
    let plain = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(Part {
        dimension: Vec::new(),
        whole: (1, plain(whole)),
        span: Span {
            at: plain(first - 1 + start),
            len: plain(local - start - end),
            before: plain(start),
            all: plain(local),
        },
    })
}

/// The dimensions of the directions.
pub fn dimensions(members: &Members<'_>) -> Result<Vec<usize>, String> {
    let first = &members.members[0];
    let found = (0..first.marks.ids.len()).map(|k| dimension(members, k));
    let found: Vec<usize> = found.collect::<Result<_, _>>()?;
    match *found.as_slice() {
        [one, other] if one == other => {
            let name = lossy(&members.dimensions[one]);
            let text = format!("{name} is decomposed in both directions ({IDS})");
            Err(format!("{}: {text}", first.name))
        }
        _ => Ok(found),
    }
}

/// The dimension that the attribute names if it has the right length in all members; else the only one of which that is true, and
/// whose name begins like the direction.
fn dimension(members: &Members<'_>, k: usize) -> Result<usize, String> {
    let first = &members.members[0];
    let fits = |dimension: usize| {
        let local = |member: &Marked| member.marks.parts.get(k).map(|part| part.span.all);
        let mut all = members.members.iter();
        all.all(|member| member.lens.get(dimension).copied().flatten() == local(member))
    };
    let named = usize::try_from(first.marks.ids[k] - 1).ok();
    if let Some(named) = named.filter(|d| *d < members.dimensions.len() && fits(*d)) {
        return Ok(named);
    }
    let letter = ["x", "y"][k];
    let names = members.dimensions.iter().enumerate();
    let named = names.filter(|(_, name)| name.starts_with(letter.as_bytes()));
    match *named
        .filter(|(d, _)| fits(*d))
        .collect::<Vec<_>>()
        .as_slice()
    {
        [(only, _)] => Ok(only),
        ref other => Err(format!(
            "{}: {IDS} is {}, and {} dimensions {letter}… have the length DOMAIN_size_local in all members",
            first.name,
            list(&first.marks.ids),
            other.len()
        )),
    }
}
