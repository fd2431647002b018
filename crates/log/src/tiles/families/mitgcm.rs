//! MITgcm's package mnc: the number of the tile, and the numbers of tiles (section 6).

use super::{Cut, Marked, Marks, Members, bad_attribute, mixed, single};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, lossy};
use crate::tiles::names::MemberName;
use crate::tiles::recognition::Recognized;

pub const MARK: &str = "tile_number";
/// The beginning of attributes of grids with several faces.
const FACES: &[u8] = b"exch2_";
/// The decomposed dimensions: their names, whether they lie along x, and the points that they have more than the tile.
const DIMENSIONS: [(&str, bool, u64); 4] = [
    ("X", true, 0),
    ("Xp1", true, 1),
    ("Y", false, 0),
    ("Yp1", false, 1),
];
/// Dimensions of tiles with their overlap.
const WITH_OVERLAP: [&[u8]; 2] = [b"Xwh", b"Ywh"];

/// The place of a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    number: u64,
    /// Points of a tile along x and y.
    size: (u64, u64),
    /// Points of the whole.
    whole: (u64, u64),
    /// Numbers of tiles.
    tiles: (u64, u64),
}

impl Tile {
    pub fn total(&self) -> u64 {
        self.tiles.0.saturating_mul(self.tiles.1)
    }
}

pub fn recognize(name: &MemberName<'_>, header: &MemberHeader) -> Recognized {
    let is_own = single(&header.attributes, MARK) == Some(i64::from(name.number));
    match tile(header, name.number) {
        Ok(tile) if tile.total() == 1 => Recognized::No,
        Ok(_) => Recognized::Set,
        Err(reason) if is_own && refusal(header).is_some() => Recognized::Refused(reason),
        Err(_) => Recognized::No,
    }
}

/// Why a tile of this kind is not joined.
fn refusal(header: &MemberHeader) -> Option<String> {
    if let Some(found) = header.attributes.iter().find(|a| a.name.starts_with(FACES)) {
        let name = lossy(&found.name);
        return Some(format!(
            "its grid has several faces (attribute {name}): join with gluemncbig"
        ));
    }
    let found = header
        .dimensions
        .iter()
        .find(|d| WITH_OVERLAP.contains(&d.name.as_slice()))?;
    let name = lossy(&found.name);
    Some(format!(
        "it has its tile with the overlap (dimension {name}): join with gluemncbig"
    ))
}

pub fn tile(header: &MemberHeader, number: u32) -> Result<Tile, String> {
    if let Some(reason) = refusal(header) {
        return Err(reason);
    }
    let attributes = &header.attributes;
    let count = |name: &str| {
        let found = single(attributes, name).filter(|count| *count > 0);
        let found = found.and_then(|count| u64::try_from(count).ok());
        found.ok_or_else(|| bad_attribute(attributes, name, "one positive integer"))
    };
    let tile = Tile {
        number: count(MARK)?,
        size: (count("sNx")?, count("sNy")?),
        whole: (count("Nx")?, count("Ny")?),
        tiles: (count("nSx")? * count("nPx")?, count("nSy")? * count("nPy")?),
    };
    if tile.number != u64::from(number) {
        let own = tile.number;
        return Err(format!(
            "its attribute {MARK} is {own}: it was renamed, or copied from another set"
        ));
    }
    if tile.number > tile.total() {
        return Err(format!(
            "its attribute {MARK} is {}, of {} tiles",
            tile.number,
            tile.total()
        ));
    }
    Ok(tile)
}

pub fn place(members: &Members<'_>) -> Result<Vec<Cut>, String> {
    let mut cuts = Vec::new();
    for (name, is_x, more) in DIMENSIONS {
        let Some(dimension) = members.dimension(name) else {
            continue;
        };
        let mut cut = Cut {
            dimension,
            whole: 0,
            spans: Vec::new(),
        };
        for member in members.members {
            let (whole, span) = span(members, member, is_x, more)?;
            cut.whole = whole;
            if members.len(member, dimension) != span.all {
                let (file, len) = (&member.name, members.len(member, dimension));
                let size = if is_x { "sNx" } else { "sNy" };
                return Err(format!(
                    "{file}: {name} has {len} points, and {size} is {}",
                    span.all - more
                ));
            }
            cut.spans.push(span);
        }
        cuts.push(cut);
    }
    match cuts.is_empty() {
        true => Err(format!(
            "{}: it has none of the dimensions X, Y, Xp1, Yp1",
            members.members[0].name
        )),
        false => Ok(cuts),
    }
}

/// The length of the whole, and the part of a member.
fn span(
    members: &Members<'_>,
    member: &Marked,
    is_x: bool,
    more: u64,
) -> Result<(u64, Span), String> {
    let (Marks::Mitgcm(tile), Marks::Mitgcm(of_first)) = (&member.marks, &members.members[0].marks)
    else {
        return Err(format!("{}: it is of another model", member.name));
    };
    let form = |tile: &Tile| {
        let (size, whole, tiles) = (tile.size, tile.whole, tile.tiles);
        format!(
            "{} × {} points of {} × {}, {} × {} tiles",
            size.0, size.1, whole.0, whole.1, tiles.0, tiles.1
        )
    };
    if form(tile) != form(of_first) {
        return Err(mixed(
            member,
            &members.members[0],
            "it has",
            form(tile),
            form(of_first),
        ));
    }
    let number = tile.number - 1;
    let (place, size, whole) = match is_x {
        true => (number % tile.tiles.0, tile.size.0, tile.whole.0),
        false => (number / tile.tiles.0, tile.size.1, tile.whole.1),
    };
    let span = Span {
        at: place.saturating_mul(size),
        len: size + more,
        before: 0,
        all: size + more,
    };
    Ok((whole + more, span))
}
