//! An entry of the index of variables (sections 4.2 and 4.3).

use super::set::{Dim, Of, Set};
use super::{Writing, types};
use crate::Result;
use crate::fields::Fields;
use crate::model::{Block, File, Kind, Place, Type, Variable};
use crate::numbers::EXTENT;

/// Extent that marks the dimension along which blocks are joined.
const JOINED: u64 = u64::MAX - 1;

/// Extent that marks a value of each writer.
const LOCAL_VALUE: u64 = u64::MAX - 2;

/// The name of an entry, and the fields after it.
pub(super) fn name(mut entry: Fields<'_>) -> Result<(&str, Fields<'_>)> {
    let _id = entry.u32()?;
    let _group = entry.text()?;
    let name = entry.text()?;
    Ok((name, entry))
}

/// Reads the fields after the name.
pub(super) fn read(name: &str, mut entry: Fields<'_>, writing: Writing) -> Result<Variable> {
    let _order = entry.u16()?;
    let number = entry.u8()?;
    if number == types::TEXTS {
        return Err("a variable of several texts".into());
    }
    let ty = types::of(number)?;
    let _sets = entry.u64()?;
    let sets = Sets {
        left: entry,
        ty: &ty,
        is_column_major: writing.is_column_major,
    };
    let (kind, number, last) = overview(sets.clone())?;
    let mut variable = Variable {
        name: name.into(),
        kind,
        ty: ty.clone(),
        shape: Vec::new(),
        rank: 0,
        blocks: Vec::new(),
        starts: Vec::new(),
        counts: Vec::new(),
        texts: Vec::new(),
    };
    let values = match kind {
        Kind::GlobalValue => 1,
        Kind::LocalValue => number,
        _ => {
            add_arrays(&mut variable, sets, &last, writing)?;
            return Ok(variable);
        }
    };
    if kind == Kind::LocalValue {
        variable.shape = vec![number as u64];
    }
    for set in sets.take(values) {
        add_value(&mut variable, set?, writing)?;
    }
    Ok(variable)
}

/// The sets of a variable, read one after the other: in memory together they would take many times their stored size.
#[derive(Clone)]
struct Sets<'a, 'b> {
    left: Fields<'a>,
    ty: &'b Type,
    is_column_major: bool,
}

impl<'a> Iterator for Sets<'a, '_> {
    type Item = Result<Set<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let mut set = Set::read(&mut self.left, self.ty, Of::Variable);
        if let (Ok(set), true) = (&mut set, self.is_column_major) {
            set.dims.reverse();
        }
        Some(set)
    }
}

/// The kind of a variable's blocks, their number, and the dimensions of the last one. Blocks without dimensions fit
/// any kind.
fn overview(sets: Sets<'_, '_>) -> Result<(Kind, usize, Vec<Dim>)> {
    let (mut kind, mut number, mut last) = (None, 0, Vec::new());
    for set in sets {
        let set = set?;
        let own = kind_of(&set);
        if kind.is_some() && own.is_some() && own != kind {
            return Err("its blocks are of different kinds".into());
        }
        kind = kind.or(own);
        number += 1;
        last = set.dims;
    }
    if number == 0 {
        return Err("it has no block".into());
    }
    Ok((kind.unwrap_or(Kind::GlobalArray), number, last))
}

fn kind_of(set: &Set<'_>) -> Option<Kind> {
    let dims = &set.dims;
    if matches!(**dims, [dim] if dim.shape == LOCAL_VALUE) {
        Some(Kind::LocalValue)
    } else if dims
        .iter()
        .all(|dim| [dim.count, dim.shape, dim.start] == [0; 3])
    {
        set.value.as_ref().map(|_| Kind::GlobalValue)
    } else if dims.iter().any(|dim| dim.shape == JOINED) {
        Some(Kind::JoinedArray)
    } else if dims.iter().all(|dim| [dim.shape, dim.start] == [0; 2]) {
        Some(Kind::LocalArray)
    } else {
        Some(Kind::GlobalArray)
    }
}

/// Adds a value, which is stored in the metadata.
fn add_value(variable: &mut Variable, set: Set<'_>, writing: Writing) -> Result<()> {
    let mut value = set.value.ok_or("a block without its value")?;
    if variable.ty == Type::Text {
        variable.texts.push(value.clone().text()?.to_owned());
        value.u16()?;
    }
    variable.blocks.push(Block {
        writer: 0,
        place: Place {
            file: File::Metadata,
            offset: writing.begin + value.at() as u64,
            len: value.rest().len() as u64,
        },
        has_operator: false,
    });
    Ok(())
}

/// Adds the blocks of an array, except empty ones. The last block decides the shape.
fn add_arrays(
    variable: &mut Variable,
    sets: Sets<'_, '_>,
    last: &[Dim],
    writing: Writing,
) -> Result<()> {
    variable.rank = last.len();
    if variable.rank == 0 || variable.ty == Type::Text {
        return Err("a block without its value".into());
    }
    if variable.kind != Kind::LocalArray {
        variable.shape = last.iter().map(|dim| dim.shape).collect();
    }
    let along = variable.shape.iter().position(|of| *of == JOINED);
    let mut others = (0..).zip(&variable.shape);
    if others.any(|(dim, of)| Some(dim) != along && *of >= EXTENT) {
        return Err("its shape is larger than any array".into());
    }
    let mut joined = 0_u64;
    for set in sets {
        let set = set?;
        let mut dims = set.dims.clone();
        if dims.len() != variable.rank {
            return Err("its blocks have different numbers of dimensions".into());
        }
        if let Some(along) = along {
            let dim = &mut dims[along];
            if dim.shape != JOINED {
                return Err("its blocks are joined along different dimensions".into());
            }
            dim.start = joined;
            let end = joined.checked_add(dim.count).filter(|end| *end < EXTENT);
            joined = end.ok_or("its blocks are too large to be joined")?;
        }
        if dims.iter().all(|dim| dim.count > 0) {
            variable.blocks.push(block(&set, &variable.ty, writing)?);
            variable.starts.extend(dims.iter().map(|dim| dim.start));
            variable.counts.extend(dims.iter().map(|dim| dim.count));
        }
    }
    if let Some(along) = along {
        variable.shape[along] = joined;
    }
    Ok(())
}

/// The place of a block's elements.
fn block(set: &Set<'_>, ty: &Type, writing: Writing) -> Result<Block> {
    let plain = plain(&set.dims, ty).ok_or("a block of too many elements")?;
    let operator = set.operator.as_ref();
    if let Some(operator) = operator.filter(|_| writing.has_bare_operators) {
        let name = operator.name;
        return Err(format!("operator {name} of a writer before ADIOS2 2.8 is not read").into());
    }
    Ok(Block {
        writer: 0,
        place: Place {
            file: File::Data(set.file),
            offset: set.payload.ok_or("a block without a place")?,
            len: operator.map_or(plain, |operator| operator.stored),
        },
        has_operator: operator.is_some(),
    })
}

/// Bytes of a block's elements. `None` on overflow, or where the block ends past the largest extent.
fn plain(dims: &[Dim], ty: &Type) -> Option<u64> {
    let is_below = |number: &u64| *number < EXTENT;
    dims.iter().try_fold(ty.size(), |len, dim| {
        dim.start.checked_add(dim.count).filter(is_below)?;
        len.checked_mul(dim.count).filter(is_below)
    })
}
