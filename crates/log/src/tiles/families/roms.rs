//! ROMS and CROCO: the global attribute `partition` (section 5).

use super::{Cut, Marked, Marks, Members, bad_attribute, integers, mixed};
use crate::tiles::member::{MemberHeader, lossy};
use crate::tiles::names::MemberName;
use crate::tiles::recognition::Recognized;
use crate::tiles::{Holders, Span};

pub const MARK: &str = "partition";
/// The numbers of subdomains along xi and eta, where some over land are left out.
const NODES: &str = "ij_nodes";
/// The whole lengths along xi and eta.
const WHOLE: &str = "globaldims";
/// The decomposed dimensions: their names, whether they lie along xi, and the points that they have less than the rho points.
const DIMENSIONS: [(&str, bool, u64); 4] = [
    ("xi_rho", true, 0),
    ("xi_u", true, 1),
    ("eta_rho", false, 0),
    ("eta_v", false, 1),
];

/// The attributes of a member. Pairs are along xi and eta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    way: Way,
    /// [`NODES`].
    nodes: Option<(u64, u64)>,
    /// [`WHOLE`].
    whole: Option<(u64, u64)>,
}

/// The two meanings of the attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    /// UCLA-ROMS: the number of files, and the first rho point from 1.
    Starts { files: u64, at: (u64, u64) },
    /// CROCO: column and row, and their numbers.
    Cells { at: (u64, u64), all: (u64, u64) },
}

impl Partition {
    pub fn total(&self) -> u64 {
        match self.way {
            Way::Starts { files, .. } => files,
            Way::Cells { all, .. } => all.0.saturating_mul(all.1),
        }
    }

    fn at(&self, is_xi: bool) -> u64 {
        let (Way::Starts { at, .. } | Way::Cells { at, .. }) = &self.way;
        of(*at, is_xi)
    }
}

fn of(pair: (u64, u64), is_xi: bool) -> u64 {
    if is_xi { pair.0 } else { pair.1 }
}

pub fn recognize(name: &MemberName<'_>, header: &MemberHeader) -> Recognized {
    match partition(header, name.number) {
        Ok(partition) if partition.total() > 1 => Recognized::Set,
        _ => Recognized::No,
    }
}

pub fn partition(header: &MemberHeader, number: u32) -> Result<Partition, String> {
    let attributes = &header.attributes;
    let numbers = integers(attributes, MARK).unwrap_or_default();
    let numbers: Vec<u64> = numbers
        .iter()
        .filter_map(|n| u64::try_from(*n).ok())
        .collect();
    let own = u64::from(number);
    let way = match *numbers.as_slice() {
        [a, files, xi, eta] if a == own && files > own && xi > 0 && eta > 0 => Way::Starts {
            files,
            at: (xi, eta),
        },
        [a, b, c, d] if a < c && b < d && a + b * c == own => Way::Cells {
            at: (a, b),
            all: (c, d),
        },
        _ => {
            return Err(bad_attribute(
                attributes,
                MARK,
                "that of a file with this number",
            ));
        }
    };
    let pair = |name: &str| match integers(attributes, name)?.as_slice() {
        [xi, eta] => Some((u64::try_from(*xi).ok()?, u64::try_from(*eta).ok()?)),
        _ => None,
    };
    Ok(Partition {
        way,
        nodes: pair(NODES),
        whole: pair(WHOLE),
    })
}

fn partition_of(member: &Marked) -> Option<&Partition> {
    match &member.marks {
        Marks::Roms(partition) => Some(partition),
        _ => None,
    }
}

pub fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let first = &members.members[0];
    check_alike(members)?;
    let mut cuts: Vec<Cut> = Vec::new();
    for (name, is_xi, less) in DIMENSIONS {
        if let Some(dimension) = members.dimension(name) {
            cuts.push(cut(members, dimension, is_xi, less)?);
        }
    }
    if cuts.is_empty() {
        return Err(format!(
            "{}: it has none of the dimensions xi_rho, xi_u, eta_rho, eta_v",
            first.name
        ));
    }
    for (rho, other) in [("xi_rho", "xi_u"), ("eta_rho", "eta_v")] {
        let whole = |name| {
            let dimension = members.dimension(name)?;
            cuts.iter()
                .find(|cut| cut.dimension == dimension)
                .map(|cut| cut.whole)
        };
        if let (Some(of_rho), Some(of_other)) = (whole(rho), whole(other))
            && of_other + 1 != of_rho
        {
            let name = &first.name;
            return Err(format!(
                "{name}: {other} has {of_other} points in all, and {rho} {of_rho}, which no rule explains"
            ));
        }
    }
    check_whole(members, &cuts)?;
    Ok(cuts)
}

/// Fails if members are of two sets.
fn check_alike(members: &Members<'_>) -> Result<(), String> {
    let first = &members.members[0];
    let form = |member: &Marked| {
        let partition = partition_of(member)?;
        let way = match &partition.way {
            Way::Starts { files, .. } => format!("of {files} files"),
            Way::Cells { all, .. } => format!("of {} × {} files", all.0, all.1),
        };
        Some((way, partition.nodes, partition.whole))
    };
    let of_first = form(first);
    match members
        .members
        .iter()
        .find(|member| form(member) != of_first)
    {
        None => Ok(()),
        Some(other) => {
            let text =
                |form: Option<(String, _, _)>| form.map(|(way, _, _)| way).unwrap_or_default();
            Err(mixed(
                other,
                first,
                "it is",
                text(form(other)),
                text(of_first),
            ))
        }
    }
}

/// The parts along one dimension. `less`: the points that it has less than the rho points.
fn cut(members: &Members<'_>, dimension: usize, is_xi: bool, less: u64) -> Result<Cut, String> {
    let starts = starts(members, dimension, is_xi)?;
    let mut whole = 0;
    let mut spans = Vec::new();
    for member in members.members {
        let Some(partition) = partition_of(member) else {
            continue;
        };
        let len = members.len(member, dimension);
        let at = match &partition.way {
            Way::Starts { at, .. } => of(*at, is_xi).saturating_sub(1 + less),
            Way::Cells { at, .. } => starts[of(*at, is_xi) as usize],
        };
        whole = whole.max(at + len);
        let by_attribute = partition.whole.map_or(0, |whole| of(whole, is_xi));
        whole = whole.max(by_attribute.saturating_sub(less));
        spans.push(Span {
            at: if len > 0 { at } else { 0 },
            len,
            before: 0,
            all: len,
        });
    }
    Ok(Cut {
        dimension,
        whole,
        spans,
    })
}

/// The first point of each column or row, for members that tell their cells. All members of a column are equally long.
fn starts(members: &Members<'_>, dimension: usize, is_xi: bool) -> Result<Vec<u64>, String> {
    let first = &members.members[0];
    let Some(Way::Cells { all, .. }) = partition_of(first).map(|partition| &partition.way) else {
        return Ok(Vec::new());
    };
    let (name, cells) = (
        lossy(&members.dimensions[dimension]),
        of(*all, is_xi) as usize,
    );
    let what = if is_xi { "column" } else { "row" };
    // A set has fewer members than that.
    let mut lens: Vec<Option<u64>> = vec![None; cells.min(1 << 16)];
    for member in members.members {
        let Some(cell) = partition_of(member).map(|partition| partition.at(is_xi) as usize) else {
            continue;
        };
        let Some(len) = member.lens.get(dimension).copied().flatten() else {
            continue;
        };
        let known = lens
            .get_mut(cell)
            .ok_or_else(|| format!("{}: {what} {cell} is too many", member.name))?;
        if known.is_some_and(|known| known != len) {
            return Err(format!(
                "{}: {name} has {len} points, and {} in another member of {what} {cell}",
                member.name,
                known.unwrap_or(0)
            ));
        }
        *known = Some(len);
    }
    let mut at = 0;
    let mut starts = Vec::new();
    for (cell, len) in lens.iter().enumerate() {
        starts.push(at);
        match len {
            Some(len) => at += len,
            None => {
                return Err(format!(
                    "{}: no member of {what} {cell} can be read, so the places of others are unknown",
                    first.name
                ));
            }
        }
    }
    Ok(starts)
}

/// Fails where the members leave a gap that no rule allows, or where the whole lengths cannot be known.
fn check_whole(members: &Members<'_>, cuts: &[Cut]) -> Result<(), String> {
    let first = &members.members[0];
    let Some(partition) = partition_of(first) else {
        return Ok(());
    };
    let along = |names: [&str; 2]| {
        let mut dimensions = names.iter().filter_map(|name| members.dimension(name));
        let dimension = dimensions.next()?;
        cuts.iter().find(|cut| cut.dimension == dimension)
    };
    let (xi, eta) = (along(["xi_rho", "xi_u"]), along(["eta_rho", "eta_v"]));
    let (Some(xi), Some(eta)) = (xi, eta) else {
        return Ok(());
    };
    let has_land = partition
        .nodes
        .is_some_and(|(xi, eta)| xi.saturating_mul(eta) > partition.total());
    if members.are_all {
        let points = xi
            .spans
            .iter()
            .zip(&eta.spans)
            .map(|(xi, eta)| xi.len.saturating_mul(eta.len));
        let points = points.fold(0, u64::saturating_add);
        if points < xi.whole.saturating_mul(eta.whole) && !has_land && partition.nodes.is_none() {
            return Err(format!(
                "{}: the members have {points} of {} × {} points, though there is no attribute {NODES}",
                first.name, eta.whole, xi.whole
            ));
        }
        return Ok(());
    }
    let distinct = |cut: &Cut| {
        let mut starts: Vec<u64> = cut.spans.iter().map(|span| span.at).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len() as u64
    };
    let found = (distinct(xi), distinct(eta));
    let are_all = match (&partition.way, partition.nodes) {
        (Way::Cells { .. }, _) => true,
        (_, Some(nodes)) => found == nodes,
        (Way::Starts { files, .. }, None) => found.0.checked_mul(found.1) == Some(*files),
    };
    if are_all || partition.whole.is_some() {
        return Ok(());
    }
    Err(format!(
        "{}: members are missing, and the whole lengths cannot be known without the attribute {WHOLE}",
        first.name
    ))
}

/// The members that have a variable which is decomposed along one dimension: boundary data come from the members at their edge.
pub fn holders(name: &[u8], cut: &Cut, members: &Members<'_>, cuts: &[Cut]) -> Holders {
    let (is_along_xi, is_far) = match name {
        name if name.ends_with(b"_south") => (true, false),
        name if name.ends_with(b"_north") => (true, true),
        name if name.ends_with(b"_west") => (false, false),
        name if name.ends_with(b"_east") => (false, true),
        _ => return Holders::All,
    };
    let is_xi = |cut: &Cut| members.dimensions[cut.dimension].starts_with(b"xi_");
    if is_xi(cut) != is_along_xi {
        return Holders::All;
    }
    // The edge lies across the dimension of the variable.
    let across = cuts.iter().find(|cut| is_xi(cut) != is_along_xi);
    let places = members
        .members
        .iter()
        .map(|member| partition_of(member).map_or(0, |p| p.at(!is_along_xi)));
    let places: Vec<u64> = places.collect();
    let edge = match is_far {
        true => places.iter().max(),
        false => places.iter().min(),
    };
    let is_at_edge = |number: usize| match across {
        Some(across) if is_far => {
            across.spans[number].at + across.spans[number].len == across.whole
        }
        Some(across) => across.spans[number].at == 0,
        None => Some(&places[number]) == edge,
    };
    let numbers = (0..places.len()).filter(|number| is_at_edge(*number));
    Holders::Some(
        numbers
            .filter_map(|number| u16::try_from(number).ok())
            .collect(),
    )
}
