//! Attributes (section 3.8).

use super::ffs::{Field, Format, Slot, Struct};
use super::record::Record;
use super::types;
use crate::Result;
use crate::model::{Attribute, Type, Value};

/// Difference between the type number of an array attribute and that of its elements.
const ARRAY: u32 = 18;

/// The attributes of records, and the problems of the damaged ones.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    /// The writer whose record is read.
    pub writer: u32,
    pub all: Vec<Attribute>,
    pub problems: Vec<String>,
}

impl Attributes {
    /// Adds an attribute, unless it is damaged.
    fn add(&mut self, attribute: Result<Attribute>) -> Result<()> {
        match attribute {
            Ok(attribute) => self.all.push(attribute),
            Err(fault) => {
                let reason = fault.into_damage()?;
                self.problems
                    .push(format!("writer {}: {reason}", self.writer));
            }
        }
        Ok(())
    }
}

/// A format whose records have two lists of attributes: numbers and texts.
#[derive(Debug)]
pub(super) struct NamedFields {
    numbers: List,
    texts: List,
    /// Bytes of a pointer to a text.
    pointer: u8,
}

impl NamedFields {
    /// Finds the lists.
    pub fn of(format: &Format) -> Result<Self> {
        let numbers = List::of(
            format,
            ("PrimAttrCount", "PrimAttrs"),
            ("PrimAttr", "TotalElementSize"),
            1,
        );
        let pointer = format.top().pointer;
        let texts = List::of(
            format,
            ("StrAttrCount", "StrAttrs"),
            ("StrAttr", "ElementCount"),
            u32::from(pointer),
        );
        Ok(NamedFields {
            numbers: numbers?,
            texts: texts?,
            pointer,
        })
    }

    /// Adds the attributes of a record.
    pub fn read(&self, record: &Record<'_>, to: &mut Attributes) -> Result<()> {
        for item in self.numbers.items(record)? {
            to.add(item.named(record, |ty, is_single| {
                let ty = types::of_number(ty).filter(|ty| *ty != Type::Text);
                let bytes = record.target(item.values, item.count, 1)?.bytes;
                numbers(ty.ok_or("its type is unknown")?, is_single, bytes)
            }))?;
        }
        for item in self.texts.items(record)? {
            to.add(item.named(record, |_, is_single| {
                let mut texts = texts(record, item.values, item.count, self.pointer)?;
                match (is_single, texts.pop()) {
                    (true, Some(text)) if texts.is_empty() => Ok(Value::Text(text)),
                    (true, _) => Err("it is single, but does not have one text".into()),
                    (false, last) => {
                        texts.extend(last);
                        Ok(Value::Texts(texts))
                    }
                }
            }))?;
        }
        Ok(())
    }
}

/// A list of structs, each with a name, a count and a pointer to the counted values.
#[derive(Debug)]
struct List {
    count: Slot,
    items: Slot,
    /// Bytes of an item.
    len: u32,
    name: Slot,
    size: Slot,
    values: Slot,
}

/// One item of a [`List`].
struct Item {
    name: u64,
    count: u64,
    values: u64,
}

impl List {
    /// Finds a list: the record's fields `count` and `items`, and the struct `item` with its field `size`. `size`
    /// counts units of `unit` bytes.
    fn of(
        format: &Format,
        (count, items): (&str, &str),
        (item, size): (&str, &str),
        unit: u32,
    ) -> Result<Self> {
        let top = format.top();
        let (_, of) = format
            .sub(item)
            .ok_or_else(|| format!("struct {item:?} is missing"))?;
        Ok(List {
            count: top.number(count)?,
            items: top.pointer(items, of.len)?,
            len: of.len,
            name: of.pointer_at(of.field("name")?.offset)?,
            size: of.number(size)?,
            values: of.pointer("Values", unit)?,
        })
    }

    fn items(&self, record: &Record<'_>) -> Result<Vec<Item>> {
        let (count, items) = (record.number(0, self.count)?, record.number(0, self.items)?);
        record.target(items, count, u64::from(self.len))?;
        let item = |number| {
            let base = items + number * u64::from(self.len);
            Ok(Item {
                name: record.number(base, self.name)?,
                count: record.number(base, self.size)?,
                values: record.number(base, self.values)?,
            })
        };
        (0..count).map(item).collect()
    }
}

impl Item {
    /// An attribute whose value `value` makes from the number of its type and whether it is single. The first
    /// character of the name tells both.
    fn named(
        &self,
        record: &Record<'_>,
        value: impl FnOnce(u32, bool) -> Result<Value>,
    ) -> Result<Attribute> {
        let text = record.text(self.name)?;
        let (mark, name) = text
            .split_at_checked(1)
            .ok_or("an attribute without a name")?;
        let mark = u32::from(mark.as_bytes()[0]).saturating_sub(u32::from(b'0'));
        let (ty, is_single) = (mark.checked_sub(ARRAY).unwrap_or(mark), mark <= ARRAY);
        attribute(name, value(ty, is_single))
    }
}

/// A format whose fields are attributes.
#[derive(Debug)]
pub(super) struct OwnFields {
    attributes: Vec<(String, std::result::Result<Own, String>)>,
    /// Bytes of a pointer to a text.
    pointer: u8,
}

/// The form and the place of an attribute in a record.
#[derive(Debug)]
enum Own {
    Number { ty: Type, offset: u32 },
    Text(Slot),
    Numbers { ty: Type, count: Slot, values: Slot },
    Texts { count: Slot, values: Slot },
}

impl OwnFields {
    /// Finds the attributes. Fields that count the elements of others are not attributes.
    pub fn of(format: &Format) -> Result<Self> {
        let top = format.top();
        let mut attributes = Vec::new();
        for field in &top.fields {
            let own = match Own::of(top, field) {
                Ok(None) => continue,
                Ok(Some((name, own))) => (name, Ok(own)),
                Err(fault) => (field.name.to_owned(), Err(fault.into_damage()?)),
            };
            attributes.push(own);
        }
        Ok(OwnFields {
            attributes,
            pointer: top.pointer,
        })
    }

    /// Adds the attributes of a record.
    pub fn read(&self, record: &Record<'_>, to: &mut Attributes) -> Result<()> {
        for (name, own) in &self.attributes {
            let value = match own {
                Ok(own) => own.read(record, self.pointer),
                Err(reason) => Err(reason.as_str().into()),
            };
            to.add(attribute(name, value))?;
        }
        Ok(())
    }
}

impl Own {
    /// The name and the layout of a field's attribute; `None` if the field counts the elements of another one.
    fn of(top: &Struct, field: &Field) -> Result<Option<(String, Self)>> {
        if let Some(name) = field.name.strip_prefix("BPG_") {
            let Some((ty, count)) = field.ty.split_once('[') else {
                return Ok(None);
            };
            let count = top.number(count.strip_suffix(']').unwrap_or(count))?;
            let values = top.pointer(field.name, field.size)?;
            let ty = types::of_field(ty, field.size).ok_or("its type is unknown")?;
            let own = match ty {
                Type::Text => Own::Texts { count, values },
                ty => Own::Numbers { ty, count, values },
            };
            return Ok(Some((name.to_owned(), own)));
        }
        let rest = field
            .name
            .strip_prefix("BPg_")
            .and_then(|rest| rest.split_once('_'));
        let parts = rest.and_then(|(_, rest)| rest.split_once('_'));
        let (ty, name) = parts.ok_or("the name of its field is unknown")?;
        let ty = ty
            .parse()
            .ok()
            .and_then(types::of_number)
            .ok_or("its type is unknown")?;
        let own = match ty {
            Type::Text => Own::Text(top.pointer_at(field.offset)?),
            ty => {
                let Slot { offset, .. } = top.slot(field.offset, u8::try_from(ty.size())?)?;
                Own::Number { ty, offset }
            }
        };
        Ok(Some((name.to_owned(), own)))
    }

    fn read(&self, record: &Record<'_>, pointer: u8) -> Result<Value> {
        match self {
            Own::Number { ty, offset } => {
                let bytes = record.take(u64::from(*offset), ty.size())?.bytes;
                numbers(ty.clone(), true, bytes)
            }
            Own::Text(slot) => {
                let text = record.text(record.number(0, *slot)?)?;
                Ok(Value::Text(text.to_owned()))
            }
            Own::Numbers { ty, count, values } => {
                let (count, values) = (record.number(0, *count)?, record.number(0, *values)?);
                let bytes = record.target(values, count, ty.size())?.bytes;
                numbers(ty.clone(), false, bytes)
            }
            Own::Texts { count, values } => {
                let (count, values) = (record.number(0, *count)?, record.number(0, *values)?);
                Ok(Value::Texts(texts(record, values, count, pointer)?))
            }
        }
    }
}

fn attribute(name: &str, value: Result<Value>) -> Result<Attribute> {
    Ok(Attribute {
        name: name.to_owned(),
        value: value.map_err(|fault| fault.at(format_args!("attribute {name:?}")))?,
    })
}

fn numbers(ty: Type, is_single: bool, bytes: &[u8]) -> Result<Value> {
    let (len, size) = (bytes.len() as u64, ty.size());
    if len % size != 0 || is_single && len != size {
        return Err(format!("its {len} bytes are not a multiple of {size}").into());
    }
    Ok(Value::Numbers {
        ty,
        is_single,
        bytes: bytes.to_vec(),
    })
}

/// `count` texts, through pointers of `size` bytes at `values`.
fn texts(record: &Record<'_>, values: u64, count: u64, size: u8) -> Result<Vec<String>> {
    let pointers = record.target(values, count, u64::from(size))?;
    let text = |number| {
        let pointer = pointers.unsigned(number * u64::from(size), size)?;
        Ok(record.text(pointer)?.to_owned())
    };
    (0..count).map(text).collect()
}
