//! ROMS and CROCO: the global attribute `partition` (section 5).

use super::{Cut, Marked, Marks, Members, Part, integers, list};
use crate::tiles::member::MemberHeader;
use crate::tiles::{Holders, Span};

pub const MARK: &str = "partition";
/// The numbers of subdomains along xi and eta, where some over land are left out.
const NODES: &str = "ij_nodes";
/// The whole lengths along xi and eta.
const WHOLE: &str = "globaldims";
/// The decomposed dimensions: their names, whether they lie along xi, and the points that they have less than the rho points.
const DIMENSIONS: [(&[u8], bool, u64); 4] = [
    (b"xi_rho", true, 0),
    (b"xi_u", true, 1),
    (b"eta_rho", false, 0),
    (b"eta_v", false, 1),
];

/// Numbers along xi and eta.
type Pair = (u64, u64);

/// The attributes of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Partition {
    /// UCLA-ROMS: the first rho point, from 1. CROCO: column and row, from 0.
    at: Pair,
    of_all: Shared,
}

/// What all members say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shared {
    /// CROCO: numbers of columns and rows.
    cells: Option<Pair>,
    nodes: Option<Pair>,
    whole: Option<Pair>,
}

fn along(pair: Pair, is_xi: bool) -> u64 {
    if is_xi { pair.0 } else { pair.1 }
}

pub fn marks(header: &MemberHeader, number: u32) -> Result<Marks, String> {
    let numbers = integers(&header.attributes, MARK, 4)?;
    let plain: Vec<u64> = numbers
        .iter()
        .filter_map(|n| u64::try_from(*n).ok())
        .collect();
    let own = u64::from(number);
    let (total, at, cells) = match *plain.as_slice() {
        [a, files, xi, eta] if a == own && files > own && xi > 0 && eta > 0 => {
            (files, (xi, eta), None)
        }
        [a, b, c, d] if a < c && b < d && a + b * c == own => (c * d, (a, b), Some((c, d))),
        _ => {
            let text = format!("its attribute {MARK} is {}", list(&numbers));
            return Err(format!(
                "{text}: it was renamed, or copied from another set"
            ));
        }
    };
    let pair = |name: &str| {
        let found = integers(&header.attributes, name, 2).ok()?;
        Some((u64::try_from(found[0]).ok()?, u64::try_from(found[1]).ok()?))
    };
    let of_all = Shared {
        cells,
        nodes: pair(NODES),
        whole: pair(WHOLE),
    };
    let known = DIMENSIONS.into_iter().filter_map(|(name, is_xi, less)| {
        let len = header
            .dimensions
            .iter()
            .find(|dimension| dimension.name == name)?
            .len;
        let first = along(at, is_xi).saturating_sub(1 + less);
        let span = Span {
            at: if cells.is_none() { first } else { 0 },
            len,
            before: 0,
            all: len,
        };
        Some(Part {
            dimension: name.to_vec(),
            whole: (0, 0),
            span,
        })
    });
    Ok(Marks {
        total: Some(total),
        parts: known.collect(),
        roms: Partition { at, of_all },
        ..Marks::default()
    })
}

pub fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let first = &members.members[0];
    let shared = |member: &Marked| member.marks.roms.of_all.clone();
    if let Some(other) = members
        .members
        .iter()
        .find(|other| shared(other) != shared(first))
    {
        let text = format!(
            "{MARK}, {NODES} and {WHOLE} do not fit those of {}",
            first.name
        );
        return Err(format!("{}: {text}: two sets are mixed", other.name));
    }
    let bad = |text: String| format!("{}: {text}", first.name);
    let mut cuts: Vec<Cut> = Vec::new();
    let mut wholes = [None; 4];
    for (number, (name, is_xi, less)) in DIMENSIONS.into_iter().enumerate() {
        if let Some(dimension) = members.dimension(name) {
            let cut = cut(members, dimension, is_xi, less)?;
            wholes[number] = Some(cut.whole);
            cuts.push(cut);
        }
    }
    for (rho, other) in [(wholes[0], wholes[1]), (wholes[2], wholes[3])] {
        if let (Some(rho), Some(other)) = (rho, other)
            && other.checked_add(1) != Some(rho)
        {
            let text = format!("{other} points between {rho} rho points, which no rule explains");
            return Err(bad(text));
        }
    }
    let of = |is_xi: bool| cuts.iter().find(|cut| is_along_xi(members, cut) == is_xi);
    if let (Some(xi), Some(eta)) = (of(true), of(false)) {
        check_whole(members, xi, eta).map_err(bad)?;
    }
    if cuts.is_empty() {
        let text = "it has none of the dimensions xi_rho, xi_u, eta_rho, eta_v";
        return Err(bad(text.to_owned()));
    }
    Ok(cuts)
}

fn is_along_xi(members: &Members<'_>, cut: &Cut) -> bool {
    members.dimensions[cut.dimension].starts_with(b"xi_")
}

/// The parts along one dimension. `less`: the points that it has less than the rho points.
fn cut(members: &Members<'_>, dimension: usize, is_xi: bool, less: u64) -> Result<Cut, String> {
    let name = &members.dimensions[dimension];
    let part = |member: &Marked| {
        member
            .marks
            .parts
            .iter()
            .find(|p| p.dimension == *name)
            .cloned()
    };
    let none = Span {
        at: 0,
        len: 0,
        before: 0,
        all: 0,
    };
    let spans = members
        .members
        .iter()
        .map(|member| part(member).map_or(none, |part| part.span));
    let mut spans: Vec<Span> = spans.collect();
    let shared = &members.members[0].marks.roms.of_all;
    if let Some(cells) = shared.cells {
        let starts = starts(members, &spans, along(cells, is_xi), is_xi)?;
        for (span, member) in spans.iter_mut().zip(members.members) {
            let cell = along(member.marks.roms.at, is_xi) as usize;
            span.at = starts.get(cell).copied().unwrap_or(0);
        }
    }
    let ends = spans.iter().map(|span| span.at.saturating_add(span.len));
    let by_attribute = shared
        .whole
        .map_or(0, |whole| along(whole, is_xi))
        .saturating_sub(less);
    Ok(Cut {
        dimension,
        whole: ends.max().unwrap_or(0).max(by_attribute),
        spans,
    })
}

/// The first point of each column or row of CROCO. All members of a column are equally long.
fn starts(
    members: &Members<'_>,
    spans: &[Span],
    cells: u64,
    is_xi: bool,
) -> Result<Vec<u64>, String> {
    let what = if is_xi { "column" } else { "row" };
    let mut lens: Vec<Option<u64>> = vec![None; cells.min(1 << 16) as usize];
    for (member, span) in members.members.iter().zip(spans) {
        let cell = along(member.marks.roms.at, is_xi) as usize;
        match lens.get_mut(cell) {
            Some(Some(known)) if *known != span.len => {
                let text = format!("{} points, and {known} in another member", span.len);
                return Err(format!("{}: {text} of {what} {cell}", member.name));
            }
            Some(len) => *len = Some(span.len),
            None => return Err(format!("{}: {what} {cell} is one too many", member.name)),
        }
    }
    let (mut at, mut starts) = (0u64, Vec::new());
    for (cell, len) in lens.iter().enumerate() {
        starts.push(at);
        let Some(len) = len else {
            let text = format!("no member of {what} {cell} can be read");
            return Err(format!("{text}, so that the places of others are unknown"));
        };
        at = at.saturating_add(*len);
    }
    Ok(starts)
}

/// Fails where the members leave a gap that no rule allows, or where the whole lengths cannot be known.
fn check_whole(members: &Members<'_>, xi: &Cut, eta: &Cut) -> Result<(), String> {
    let first = &members.members[0].marks;
    let Shared {
        cells,
        nodes,
        whole,
    } = first.roms.of_all;
    if members.are_all {
        let points = xi.spans.iter().zip(&eta.spans);
        let points = points.map(|(xi, eta)| xi.len.saturating_mul(eta.len));
        let points = points.fold(0, u64::saturating_add);
        if nodes.is_none() && points < xi.whole.saturating_mul(eta.whole) {
            let whole = format!("{} × {}", eta.whole, xi.whole);
            return Err(format!(
                "members have {points} of {whole} points, without {NODES}"
            ));
        }
        return Ok(());
    }
    let parts = |cut: &Cut| {
        let mut starts: Vec<u64> = cut.spans.iter().map(|span| span.at).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len() as u64
    };
    let found = (parts(xi), parts(eta));
    let has_all = match nodes {
        Some(nodes) => found == nodes,
        None => Some(found.0.saturating_mul(found.1)) == first.total,
    };
    if has_all || cells.is_some() || whole.is_some() {
        return Ok(());
    }
    Err(format!(
        "members are missing, and the whole lengths are unknown without {WHOLE}"
    ))
}

/// The members that have a variable which is decomposed along one dimension: boundary data come from the members at their edge.
pub fn holders(name: &[u8], cut: &Cut, members: &Members<'_>, cuts: &[Cut]) -> Holders {
    let edges: [(&[u8], bool, bool); 4] = [
        (b"_south", true, false),
        (b"_north", true, true),
        (b"_west", false, false),
        (b"_east", false, true),
    ];
    let is_xi = is_along_xi(members, cut);
    let edge = edges
        .iter()
        .find(|(end, is_along, _)| name.ends_with(end) && *is_along == is_xi);
    let Some((_, _, is_far)) = edge else {
        return Holders::All;
    };
    // The edge lies across the dimension of the variable.
    let across = cuts.iter().find(|cut| is_along_xi(members, cut) != is_xi);
    let places = members
        .members
        .iter()
        .map(|member| along(member.marks.roms.at, !is_xi));
    let places: Vec<u64> = places.collect();
    let outermost = if *is_far {
        places.iter().max()
    } else {
        places.iter().min()
    };
    let is_at_edge =
        |number: &usize| match across.map(|across| (across.spans[*number], across.whole)) {
            Some((span, whole)) if *is_far => span.at + span.len == whole,
            Some((span, _)) => span.at == 0,
            None => Some(&places[*number]) == outermost,
        };
    let numbers = (0..places.len()).filter(is_at_edge);
    Holders::Some(
        numbers
            .filter_map(|number| u16::try_from(number).ok())
            .collect(),
    )
}
