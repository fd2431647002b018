//! What `h5logfs inspect` says of a set as a whole: its members, their boxes and records, and boxes that no member has.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Axis, Member, Span, Tables};

/// Most members, and most missing boxes, that are listed.
const MOST_LISTED: usize = 12;
/// Most boxes of a grid of members that is examined.
const MOST_BOXES: usize = 1 << 20;

/// The lines. `files` are those of the members.
pub fn of(tables: &Tables, files: &[&Path]) -> Vec<String> {
    let members = &tables.members;
    let mut lines = vec![format!(
        "{} of {}",
        tables.family.name(),
        match members.len() {
            1 => "1 member".to_owned(),
            several => format!("{several} members"),
        }
    )];
    let named = members.iter().zip(files).take(MOST_LISTED);
    lines.extend(named.map(|(member, file)| line(member, file)));
    if members.len() > MOST_LISTED {
        lines.push(format!("and {} more members", members.len() - MOST_LISTED));
    }
    lines.extend(missing(tables));
    lines
}

fn line(member: &Member, file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    let spans: Vec<String> = member.spans.iter().map(interval).collect();
    let records: Vec<String> = member.records.iter().map(u64::to_string).collect();
    let records = if records.is_empty() {
        String::new()
    } else {
        format!(", {} records", records.join(" and "))
    };
    let name = name.to_string_lossy();
    format!("{name}: points {}{records}", spans.join(" × "))
}

fn interval(span: &Span) -> String {
    format!("[{}, {})", span.at, span.at.saturating_add(span.len))
}

/// The boxes of a regular grid that no member has. They may be masked, or lost.
fn missing(tables: &Tables) -> Vec<String> {
    let mut variables = tables.variables.iter();
    let cuts = variables.find_map(|variable| {
        let mut cuts = variable.dims.iter().filter_map(|axis| match axis {
            Axis::Cut(number) => Some(usize::from(*number)),
            _ => None,
        });
        cuts.next().zip(cuts.next())
    });
    let Some((slow, fast)) = cuts else {
        return Vec::new();
    };
    let span = |member: &Member, number: usize| {
        let span = member.spans.get(number);
        span.map_or((0, 0), |span| (span.at, span.len))
    };
    let of = |number| -> BTreeSet<(u64, u64)> {
        let members = tables.members.iter();
        members.map(|member| span(member, number)).collect()
    };
    let (rows, columns) = (of(slow), of(fast));
    let count = rows.len().saturating_mul(columns.len());
    if !is_regular(&rows) || !is_regular(&columns) || count > MOST_BOXES {
        return Vec::new();
    }
    let members = tables.members.iter();
    let there: BTreeSet<_> = members
        .map(|member| (span(member, slow), span(member, fast)))
        .collect();
    let all = rows
        .iter()
        .flat_map(|row| columns.iter().map(|column| (*row, *column)));
    let gaps: Vec<_> = all.filter(|place| !there.contains(place)).collect();
    let end = |(at, len): (u64, u64)| format!("[{at}, {})", at.saturating_add(len));
    // In the order in which members are told.
    let text = |(row, column)| {
        let (first, second) = if slow < fast {
            (row, column)
        } else {
            (column, row)
        };
        format!("no member has the points {} × {}", end(first), end(second))
    };
    let listed = gaps.iter().copied().take(MOST_LISTED).map(text);
    let more = gaps.len().saturating_sub(MOST_LISTED);
    let more = (more > 0).then(|| format!("nor {more} more boxes"));
    listed.chain(more).collect()
}

/// Whether the parts follow each other. Members of a symmetric grid share a point.
fn is_regular(parts: &BTreeSet<(u64, u64)>) -> bool {
    let mut pairs = parts.iter().zip(parts.iter().skip(1));
    pairs.all(|((at, len), (next, _))| at.saturating_add(*len) <= next.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::super::{Family, Holders, Variable};
    use super::*;
    use crate::numbers::NumberType;

    /// A set of members of 4 × 3 points at these rows and columns of a grid.
    fn set(places: &[(u64, u64)]) -> Tables {
        let span = |at, len| Span {
            at,
            len,
            before: 0,
            all: len,
        };
        let member = |(row, column): &(u64, u64)| Member {
            form: 0,
            spans: vec![span(row * 4, 4), span(column * 3, 3)],
            records: vec![2],
        };
        Tables {
            family: Family::Fms,
            members: places.iter().map(member).collect(),
            absent: Vec::new(),
            forms: Vec::new(),
            variables: vec![Variable {
                name: "eta".into(),
                kind: NumberType::F32,
                is_big_endian: true,
                dims: vec![Axis::Records(0), Axis::Cut(0), Axis::Cut(1)],
                holders: Holders::All,
            }],
        }
    }

    #[test]
    fn boxes_without_a_member_are_named() {
        let files = ["d/a.nc.0000", "d/a.nc.0001", "d/a.nc.0003"].map(Path::new);
        let lines = of(&set(&[(0, 0), (0, 1), (1, 1)]), &files);
        let expected = [
            "FMS of 3 members",
            "a.nc.0000: points [0, 4) × [0, 3), 2 records",
            "a.nc.0001: points [0, 4) × [3, 6), 2 records",
            "a.nc.0003: points [4, 8) × [3, 6), 2 records",
            "no member has the points [4, 8) × [0, 3)",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_lists_are_cut() {
        let diagonal: Vec<(u64, u64)> = (0..20).map(|n| (n, n)).collect();
        let names: Vec<String> = (0..20).map(|n| format!("a.nc.{n:04}")).collect();
        let files: Vec<&Path> = names.iter().map(Path::new).collect();
        let lines = of(&set(&diagonal), &files);
        assert_eq!(lines.len(), 1 + MOST_LISTED + 1 + MOST_LISTED + 1);
        assert_eq!(lines[1 + MOST_LISTED], "and 8 more members");
        assert_eq!(lines.last().unwrap(), "nor 368 more boxes");
    }
}
