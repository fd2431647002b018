//! MITgcm's package mnc: the number of the tile, and the numbers of tiles (section 6).

use super::{Marks, Part, Unfit, check_number, count};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, lossy};

pub const MARK: &str = "tile_number";
/// The beginning of attributes of grids with several faces.
const FACES: &[u8] = b"exch2_";
/// The decomposed dimensions: their names, whether they lie along x, and the points that they have more than the tile.
const DIMENSIONS: [(&[u8], bool, u64); 4] = [
    (b"X", true, 0),
    (b"Xp1", true, 1),
    (b"Y", false, 0),
    (b"Yp1", false, 1),
];
/// Dimensions of tiles with their overlap.
const WITH_OVERLAP: [&[u8]; 2] = [b"Xwh", b"Ywh"];

pub fn marks(header: &MemberHeader, number: u32) -> Result<Marks, Unfit> {
    let count = |name| count(&header.attributes, name);
    let own = count(MARK)?;
    check_number(MARK, own, number)?;
    if let Some(found) = header.attributes.iter().find(|a| a.name.starts_with(FACES)) {
        let text = format!(
            "its grid has several faces (attribute {})",
            lossy(&found.name)
        );
        return Err(Unfit::Kind(format!("{text}: join with gluemncbig")));
    }
    let has = |name: &[u8]| {
        header
            .dimensions
            .iter()
            .any(|dimension| dimension.name == name)
    };
    if let Some(name) = WITH_OVERLAP.into_iter().find(|name| has(name)) {
        let text = format!(
            "it has its tile with the overlap (dimension {})",
            lossy(name)
        );
        return Err(Unfit::Kind(format!("{text}: join with gluemncbig")));
    }
    let tiles = (count("nSx")? * count("nPx")?, count("nSy")? * count("nPy")?);
    let (x, y) = ((count("sNx")?, count("Nx")?), (count("sNy")?, count("Ny")?));
    let mut parts = Vec::new();
    for (name, is_x, more) in DIMENSIONS.into_iter().filter(|(name, ..)| has(name)) {
        let (place, (size, whole)) = if is_x {
            ((own - 1) % tiles.0, x)
        } else {
            ((own - 1) / tiles.0, y)
        };
        parts.push(Part {
            dimension: name.to_vec(),
            whole: (0, whole + more),
            span: Span {
                at: place.saturating_mul(size),
                len: size + more,
                before: 0,
                all: size + more,
            },
        });
    }
    if parts.is_empty() {
        return Err("it has none of the dimensions X, Y, Xp1, Yp1"
            .to_owned()
            .into());
    }
    Ok(Marks {
        total: Some(tiles.0.saturating_mul(tiles.1)),
        parts,
        ..Marks::default()
    })
}
