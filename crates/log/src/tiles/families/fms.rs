//! FMS: `domain_decomposition` of the coordinate variables (section 2).

use super::{Marks, Part, Unfit, integers, list};
use crate::tiles::Span;
use crate::tiles::member::{MemberHeader, attribute, lossy};

pub const MARK: &str = "NumFilesInSet";
pub const DECOMPOSITION: &str = "domain_decomposition";
/// The attribute of a dimension whose points are those of several dimensions that are not land (section 2.6).
const COMPRESS: &str = "compress";

pub fn marks(header: &MemberHeader) -> Result<Marks, Unfit> {
    let found = parts(header);
    // A joined file, or another one, may have such attributes of variables, too.
    let is_marked = attribute(&header.attributes, MARK).is_some();
    found.map_err(|reason| {
        if is_marked {
            Unfit::Kind(reason)
        } else {
            Unfit::Other(reason)
        }
    })
}

fn parts(header: &MemberHeader) -> Result<Marks, String> {
    let mut parts = Vec::new();
    for (dimension, coordinate) in header.coordinates() {
        let name = lossy(&dimension.name);
        if attribute(&coordinate.attributes, COMPRESS).is_some() {
            let advice = "join with combine-ncc, then decompress-ncc";
            return Err(format!(
                "dimension {name} is compressed by gathering (attribute {COMPRESS}): {advice}"
            ));
        }
        if attribute(&coordinate.attributes, DECOMPOSITION).is_none() {
            continue;
        }
        let numbers = integers(&coordinate.attributes, DECOMPOSITION, 4);
        let numbers = numbers.map_err(|reason| format!("coordinate variable {name}: {reason}"))?;
        let [s, e, a, b] = [numbers[0], numbers[1], numbers[2], numbers[3]];
        if !(s <= a && a <= b && b <= e) {
            let numbers = list(&numbers);
            return Err(format!(
                "{DECOMPOSITION} {numbers} of {name} is not a part of a whole"
            ));
        }
        let len = b.abs_diff(a) + 1;
        parts.push(Part {
            dimension: dimension.name.clone(),
            whole: (s, e.abs_diff(s) + 1),
            span: Span {
                at: a.abs_diff(s),
                len,
                before: 0,
                all: len,
            },
        });
    }
    if parts.is_empty() {
        let text = "no dimension is decomposed (icebergs, particles): join with iceberg_comb.sh";
        return Err(text.to_owned());
    }
    // Members may have their dimensions in other orders.
    parts.sort_by(|one, other| one.dimension.cmp(&other.dimension));
    Ok(Marks {
        parts,
        ..Marks::default()
    })
}
