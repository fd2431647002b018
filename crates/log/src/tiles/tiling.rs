//! The blocks that chunks should follow: the layers of members, or the chunks of netCDF-4 members.

use std::collections::HashSet;

use super::chunks::Hdf5Members;
use super::{Axis, FileKind, Tables, Variable};
use crate::source_file::SourceFile;
use crate::tiling::{Tiling, Tilings};

/// The tilings of all decomposed variables.
pub(super) fn tilings(tables: &Tables, sources: &[SourceFile]) -> Tilings {
    let mut tilings = Tilings::default();
    for (number, of) in tables.variables.iter().enumerate() {
        let is_cut = of.dims.iter().any(|axis| matches!(axis, Axis::Cut(_)));
        if is_cut && let Some(tiling) = tiling(tables, sources, number, of) {
            tilings.by_dataset.insert(number as i64, tiling);
        }
    }
    tilings
}

/// The tiling of a variable. The first member stands for the others in what is not decomposed.
fn tiling(tables: &Tables, sources: &[SourceFile], number: usize, of: &Variable) -> Option<Tiling> {
    let member = tables.members.first()?;
    let form = tables.forms.get(member.form as usize)?;
    let place = form.places.get(number).copied().flatten()?;
    let chunk = match form.kind {
        FileKind::Hdf5 => Hdf5Members::chunk_of(sources.first()?, place),
        FileKind::Classic { .. } => None,
    };
    let chunk = chunk.filter(|chunk| chunk.len() == of.dims.len());
    let mut tiling = Tiling::default();
    let mut seen = HashSet::new();
    for member in &tables.members {
        let spans: Vec<_> = of
            .dims
            .iter()
            .map(|axis| match *axis {
                Axis::Cut(number) => Some(member.spans[usize::from(number)]),
                Axis::Whole | Axis::Records(_) => None,
            })
            .collect();
        if !seen.insert(spans.clone()) {
            continue;
        }
        let mut block = vec![(0, 1); spans.len()];
        // A chunk is one layer, or as large as that of the member.
        for d in (0..spans.len()).rev() {
            match (spans[d], &chunk) {
                (Some(span), _) => block[d] = (span.at, span.len),
                (None, Some(chunk)) => block[d] = (0, chunk[d]),
                (None, None) => {}
            }
        }
        tiling.add(&block);
    }
    Some(tiling)
}
