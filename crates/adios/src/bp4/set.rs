//! A set of characteristics: the metadata of one block or attribute (section 4.3).

use super::types;
use crate::Result;
use crate::fields::Fields;
use crate::model::Type;

/// One set of characteristics.
#[derive(Debug, Default)]
pub(super) struct Set<'a> {
    /// Dimensions in the order of the writer.
    pub dims: Vec<Dim>,
    /// The value: one element of a variable, all of an attribute.
    pub value: Option<Fields<'a>>,
    /// Number of the file that holds the elements, and their offset there.
    pub file: u32,
    pub payload: Option<u64>,
    pub operator: Option<Operator<'a>>,
}

/// One dimension of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dim {
    pub count: u64,
    pub shape: u64,
    pub start: u64,
}

/// The transformation of the elements before they were stored (section 4.6).
#[derive(Debug)]
pub(super) struct Operator<'a> {
    pub name: &'a str,
    /// Number of stored bytes.
    pub stored: u64,
}

/// The owner of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Variable,
    Attribute,
}

impl<'a> Set<'a> {
    /// Reads one set.
    pub fn read(fields: &mut Fields<'a>, ty: &Type, of: Of) -> Result<Self> {
        let count = fields.u8()?;
        let len = fields.u32()?;
        let mut items = fields.part(len.into())?;
        let mut set = Set::default();
        for _ in 0..count {
            set.item(&mut items, ty, of)?;
        }
        Ok(set)
    }

    fn item(&mut self, items: &mut Fields<'a>, ty: &Type, of: Of) -> Result<()> {
        match items.u8()? {
            0 => {
                let count = match of {
                    Of::Variable => 1,
                    Of::Attribute => self.dims.first().map_or(1, |dim| dim.count),
                };
                self.value = Some(types::elements(items, ty, count)?);
            }
            // Least and greatest value, from old writers.
            1 | 2 => {
                types::elements(items, ty, 1)?;
            }
            // The record of the block in `data.N`.
            3 => {
                items.u64()?;
            }
            4 => self.dims = dims(items)?,
            6 => self.payload = Some(items.u64()?),
            7 => self.file = items.u32()?,
            // The step.
            8 => {
                items.u32()?;
            }
            11 => self.operator = Some(operator(items)?),
            12 => self.statistics(items, ty)?,
            other => return Err(format!("characteristic {other}, which is not known").into()),
        }
        Ok(())
    }

    /// Skips the least and greatest values of the block and its parts.
    fn statistics(&self, items: &mut Fields<'a>, ty: &Type) -> Result<()> {
        let parts = items.u16()?;
        types::elements(items, ty, 2)?;
        if parts > 1 {
            let _method = items.u8()?;
            let _size = items.u64()?;
            items.take(2 * self.dims.len())?;
            types::elements(items, ty, 2 * u64::from(parts))?;
        }
        Ok(())
    }
}

fn dims(items: &mut Fields<'_>) -> Result<Vec<Dim>> {
    let rank = items.u8()?;
    let _len = items.u16()?;
    (0..rank)
        .map(|_| {
            Ok(Dim {
                count: items.u64()?,
                shape: items.u64()?,
                start: items.u64()?,
            })
        })
        .collect()
}

fn operator<'a>(items: &mut Fields<'a>) -> Result<Operator<'a>> {
    let len = items.u8()?;
    let name = std::str::from_utf8(items.take(len.into())?)
        .map_err(|_| "an operator whose name is not UTF-8")?;
    let _type = items.u8()?;
    dims(items)?;
    let len = items.u16()?;
    let mut sizes = items.part(len.into())?;
    let _plain = sizes.u64()?;
    Ok(Operator {
        name,
        stored: sizes.u64()?,
    })
}
