//! The meaning of the fields of variable metadata (section 3.6).

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

use super::ffs::{Field, Format, Id, Slot, Struct};
use super::types;
use crate::Result;
use crate::model::{Kind, StructType, Type};

/// The last field that belongs to no variable.
const LAST_OF_ALL: &str = "DataBlockSize";

/// The fields of one format.
#[derive(Debug)]
pub(super) struct Fields {
    /// Number of words in the bit mask of present variables.
    pub bit_words: Slot,
    /// Pointer to the bit mask.
    pub bits: Slot,
    /// One field per variable.
    pub variables: Vec<VariableField>,
    /// Hash and index of each variable, by hash. Filled when a name is first looked up.
    by_name: OnceLock<Vec<(u64, usize)>>,
    hasher: RandomState,
    /// Structs of arrays.
    pub arrays: Vec<ArrayFields>,
}

/// The field of one variable.
#[derive(Debug)]
pub(super) struct VariableField {
    /// Name of the variable, or of the field if it cannot be split.
    pub name: Arc<str>,
    /// The description of the variable, or the reason why the field is not understood.
    pub described: std::result::Result<Described, String>,
}

/// The description of a variable, from the name and type of its field.
#[derive(Debug)]
pub(super) struct Described {
    pub kind: Kind,
    pub ty: Type,
    pub content: Content,
}

/// The content of a variable's field.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// The value itself.
    Value { offset: u32 },
    /// A pointer to the value.
    Text(Slot),
    /// A struct, described by [`Fields::arrays`].
    Array { offset: u32, fields: usize },
}

/// The fields of a struct that describes the blocks of an array.
#[derive(Debug)]
pub(super) struct ArrayFields {
    /// Bytes of the struct.
    pub len: u32,
    pub rank: Slot,
    pub blocks: Slot,
    /// Number of extents: rank times blocks.
    pub extents: Slot,
    pub shape: Slot,
    pub counts: Slot,
    pub starts: Slot,
    pub locations: Slot,
    /// Stored bytes of each block, if an operator made them.
    pub stored: Option<Slot>,
}

impl Fields {
    /// Interprets the fields of a format. `members` gives the struct type that another format describes.
    pub fn of(format: &Format, members: impl Fn(&Id) -> Result<Arc<StructType>>) -> Result<Self> {
        let top = format.top();
        let of_variables = of_variables(top)?;
        let mut made = Making {
            format,
            members,
            numbers: HashMap::new(),
            arrays: Vec::new(),
        };
        let mut variables = Vec::with_capacity(of_variables.len());
        for field in of_variables {
            let named = named(field.name);
            let name = named.as_ref().map_or(field.name, |named| named.name);
            let described = named
                .as_ref()
                .ok_or_else(|| "its field has an unknown name".into());
            let described = match described.and_then(|named| made.described(field, named)) {
                Ok(described) => Ok(described),
                Err(fault) => Err(fault.into_damage()?),
            };
            variables.push(VariableField {
                name: name.into(),
                described,
            });
        }
        Ok(Fields {
            bit_words: top.number("BitFieldCount")?,
            bits: top.pointer("BitField", 8)?,
            variables,
            by_name: OnceLock::new(),
            hasher: RandomState::default(),
            arrays: made.arrays,
        })
    }

    /// The indices of the fields with this name, ascending. A sound format has one at most.
    pub fn numbers_of(&self, name: &str) -> impl Iterator<Item = usize> {
        let by_name = self.by_name();
        let hash = self.hasher.hash_one(name);
        let first = by_name.partition_point(|(other, _)| *other < hash);
        let alike = by_name[first..]
            .iter()
            .take_while(move |(other, _)| *other == hash);
        let numbers = alike.map(|(_, number)| *number);
        numbers.filter(move |number| *self.variables[*number].name == *name)
    }

    /// Whether all names differ, judged by their hashes.
    pub fn has_own_names(&self) -> bool {
        let by_name = self.by_name();
        by_name.is_sorted_by(|(a, _), (b, _)| a < b)
    }

    fn by_name(&self) -> &[(u64, usize)] {
        self.by_name.get_or_init(|| {
            let hash = |field: &VariableField| self.hasher.hash_one(&*field.name);
            let hashes = self.variables.iter().map(hash);
            let mut by_name: Vec<(u64, usize)> = hashes.zip(0..).collect();
            by_name.sort_unstable();
            by_name
        })
    }
}

/// Where the records of a format tell whether they have the variables of one name.
#[derive(Debug)]
pub(super) struct Presence {
    /// As in [`Fields`].
    pub bit_words: Slot,
    /// As in [`Fields`].
    pub bits: Slot,
    /// The numbers of the variables. A sound format has one at most.
    pub numbers: Vec<usize>,
}

impl Presence {
    /// Looks for a name among the fields of a format, and interprets no other field.
    pub fn of(format: &Format, name: &str) -> Result<Self> {
        let top = format.top();
        let is_of_name = |field: &Field| named(field.name).is_some_and(|named| named.name == name);
        let fields = of_variables(top)?.iter().zip(0..);
        let own = fields.filter(|(field, _)| field.name.ends_with(name) && is_of_name(field));
        Ok(Presence {
            bit_words: top.number("BitFieldCount")?,
            bits: top.pointer("BitField", 8)?,
            numbers: own.map(|(_, number)| number).collect(),
        })
    }
}

/// The fields of variables in the struct of records.
fn of_variables<'a, 'b>(top: &'a Struct<'b>) -> Result<&'a [Field<'b>]> {
    let last = top
        .fields
        .iter()
        .position(|field| field.name == LAST_OF_ALL);
    let last = last.ok_or("struct \"MetaData\" has no field \"DataBlockSize\"")?;
    Ok(&top.fields[last + 1..])
}

/// State while the fields of a format are interpreted.
struct Making<'a, M> {
    format: &'a Format<'a>,
    members: M,
    /// Index in `arrays` of each struct.
    numbers: HashMap<usize, usize>,
    arrays: Vec<ArrayFields>,
}

impl<M: Fn(&Id) -> Result<Arc<StructType>>> Making<'_, M> {
    fn described(&mut self, field: &Field, named: &Named<'_>) -> Result<Described> {
        let (ty, content) = match &named.elements {
            None => self.value(field)?,
            Some(elements) => self.array(field, elements)?,
        };
        Ok(Described {
            kind: named.kind,
            ty,
            content,
        })
    }

    fn value(&self, field: &Field) -> Result<(Type, Content)> {
        let unknown = || format!("type {:?} of {} bytes is unknown", field.ty, field.size);
        let ty = types::of_field(field.ty, field.size).ok_or_else(unknown)?;
        let top = self.format.top();
        if ty == Type::Text {
            return Ok((ty, Content::Text(top.pointer_at(field.offset)?)));
        }
        let slot = top.slot(field.offset, u8::try_from(ty.size())?)?;
        let Slot { offset, .. } = slot;
        Ok((ty, Content::Value { offset }))
    }

    fn array(&mut self, field: &Field, elements: &Elements) -> Result<(Type, Content)> {
        let ty = match elements.members {
            Some(id) => Type::Struct((self.members)(&id)?),
            None => types::of_number(elements.ty)
                .filter(|ty| *ty != Type::Text)
                .ok_or_else(|| format!("type {} is unknown", elements.ty))?,
        };
        let size = ty.size();
        if size != elements.size || size == 0 {
            return Err(format!(
                "elements of {} bytes, but the type has {size}",
                elements.size
            )
            .into());
        }
        let fields = self.fields_of(field.ty)?;
        let end = u64::from(field.offset) + u64::from(self.arrays[fields].len);
        if end > u64::from(self.format.top().len) {
            return Err("its field lies outside".into());
        }
        let offset = field.offset;
        Ok((ty, Content::Array { offset, fields }))
    }

    /// The index in `arrays` of the struct of this name.
    fn fields_of(&mut self, ty: &str) -> Result<usize> {
        let (sub, fields) = self
            .format
            .sub(ty)
            .ok_or_else(|| format!("struct {ty:?} is missing"))?;
        if let Some(known) = self.numbers.get(&sub) {
            return Ok(*known);
        }
        let known = self.arrays.len();
        self.arrays.push(ArrayFields::of(fields)?);
        self.numbers.insert(sub, known);
        Ok(known)
    }
}

impl ArrayFields {
    fn of(fields: &Struct) -> Result<Self> {
        let has_operator = fields.name.starts_with("MetaArrayOp");
        let stored = has_operator.then(|| fields.pointer("DataBlockSize", 8));
        Ok(ArrayFields {
            len: fields.len,
            rank: fields.number("Dims")?,
            blocks: fields.number("BlockCount")?,
            extents: fields.number("DBCount")?,
            shape: fields.pointer("Shape", 8)?,
            counts: fields.pointer("Count", 8)?,
            starts: fields.pointer("Offset", 8)?,
            locations: fields.pointer("DataBlockLocation", 8)?,
            stored: stored.transpose()?,
        })
    }
}

/// The parts of the name of a field.
#[derive(Debug, PartialEq)]
struct Named<'a> {
    kind: Kind,
    name: &'a str,
    /// Elements of an array. The field of a value has the type itself.
    elements: Option<Elements>,
}

/// The description of an array's elements in the name of its field.
#[derive(Debug, PartialEq)]
struct Elements {
    /// Bytes of an element.
    size: u64,
    ty: u32,
    /// Format of a struct type.
    members: Option<Id>,
}

/// Splits the name of a field. The expression of a derived variable is skipped.
fn named(field: &str) -> Option<Named<'_>> {
    let rest = field.strip_prefix("BP")?;
    let kind = match rest.as_bytes().first()? {
        b'g' => Kind::GlobalValue,
        b'l' => Kind::LocalValue,
        b'G' => Kind::GlobalArray,
        b'L' => Kind::LocalArray,
        b'J' => Kind::JoinedArray,
        _ => return None,
    };
    let rest = &rest[1..];
    if matches!(kind, Kind::GlobalValue | Kind::LocalValue) {
        let name = rest.strip_prefix('_')?;
        return Some(Named {
            kind,
            name,
            elements: None,
        });
    }
    let rest = match rest.strip_prefix('-') {
        Some(derived) => {
            let (len, derived) = derived.split_once('-')?;
            derived.get(len.parse().ok()?..)?.strip_prefix('-')?
        }
        None => rest.strip_prefix('_')?,
    };
    let (size, rest) = rest.split_once('_')?;
    let (ty, rest) = rest.split_once('_')?;
    let (size, ty) = (size.parse().ok()?, ty.parse().ok()?);
    let (members, name) = match ty {
        types::STRUCT => {
            let (id, name) = rest.split_once('_')?;
            (Some(of_hex(id)?), name)
        }
        _ => (None, rest),
    };
    Some(Named {
        kind,
        name,
        elements: Some(Elements { size, ty, members }),
    })
}

fn of_hex(text: &str) -> Option<Id> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
        return None;
    };
    let bytes = pairs
        .iter()
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}
