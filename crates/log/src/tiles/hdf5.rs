//! Headers of members in netCDF-4: the root group of an HDF5 file, in netCDF's data model (section 8.10).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::FileKind;
use super::member::{Attribute, Dimension, MemberHeader, Value, Variable, lossy};
use crate::hdf5_bytes::{Hdf5, is_bare_dimension};
use crate::netcdf::header::Type;
use crate::numbers::NumberType;
use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::{
    self as format, Class, DatasetInfo, Dataspace, Datatype, Layout, Link, LinkTarget, Object,
    Objects, Window,
};

type Result<T> = std::result::Result<T, Fault>;

/// The most bytes of attributes of one file. They are held in memory.
const MOST_BYTES: u64 = 64 << 20;
/// What an object or an attribute counts besides its value.
const EACH: u64 = 64;

const UNLIMITED: u64 = u64::MAX;
/// The names of netCDF-4's own attributes. They are made anew.
const OWN: [&str; 8] = [
    "CLASS",
    "NAME",
    "REFERENCE_LIST",
    "DIMENSION_LIST",
    DIMENSION_ID,
    COORDINATES,
    "_NCProperties",
    STRICT,
];
const DIMENSION_ID: &str = "_Netcdf4Dimid";
const COORDINATES: &str = "_Netcdf4Coordinates";
const STRICT: &str = "_nc3_strict";
/// The prefix of a variable that has the name of a dimension, and is not its scale.
const NOT_A_COORDINATE: &[u8] = b"_nc4_non_coord_";

/// Reads the root group of an HDF5 file whose superblock lies at `base`.
pub(super) fn header(file: &SourceFile, base: u64) -> Result<MemberHeader> {
    Reader::open(file, base)?.header()
}

/// The attributes of the root group, for recognition.
pub(super) fn attributes(file: &SourceFile, base: u64) -> Result<Vec<Attribute>> {
    let mut reader = Reader::open(file, base)?;
    let root = reader.objects.root();
    let found = reader.attributes(root)?;
    reader.shown(&found)
}

struct Reader<'f> {
    objects: Objects<Window<Hdf5<'f>>>,
    /// Bytes that may still be kept.
    left: u64,
}

/// A dataset of the root group.
struct Found {
    name: Vec<u8>,
    address: u64,
    info: DatasetInfo,
    attributes: Vec<format::Attribute>,
}

/// The dimensions of a file.
#[derive(Default)]
struct Scales {
    dimensions: Vec<Dimension>,
    /// Their numbers by the addresses of their scales.
    by_address: HashMap<u64, usize>,
    /// By the number that netCDF-4 gave it.
    by_id: BTreeMap<i64, usize>,
}

impl<'f> Reader<'f> {
    fn open(source: &'f SourceFile, base: u64) -> Result<Self> {
        Ok(Reader {
            objects: Objects::open(Window::new(Hdf5 { source, base }))?,
            left: MOST_BYTES,
        })
    }

    fn header(mut self) -> Result<MemberHeader> {
        let root = self.objects.root();
        let global = self.attributes(root)?;
        let datasets = self.datasets(root)?;
        let mut scales = Scales::of(&datasets)?;
        let mut variables = Vec::new();
        for dataset in datasets.iter().filter(|dataset| !dataset.is_placeholder()) {
            let variable = self.variable(dataset, &mut scales);
            let name = lossy(&dataset.name);
            variables.push(variable.map_err(|e| e.at(format_args!("variable {name}")))?);
        }
        let mut names = HashSet::new();
        if let Some(twice) = variables.iter().find(|v| !names.insert(&v.name)) {
            return Err(format!("a second variable {}", lossy(&twice.name)).into());
        }
        Ok(MemberHeader {
            kind: FileKind::Hdf5,
            is_classic: global.iter().any(|a| a.name == STRICT.as_bytes()),
            dimensions: scales.dimensions,
            attributes: self.shown(&global)?,
            variables,
            reach: None,
        })
    }

    /// The datasets of the root group, in the order of their creation. Fails for other objects.
    fn datasets(&mut self, root: u64) -> Result<Vec<Found>> {
        let mut links = self.objects.links(root)?;
        links.sort_by_key(|link| link.order);
        let mut addresses = HashSet::new();
        let mut datasets = Vec::new();
        for Link { name, target, .. } in links {
            let shown = lossy(&name).into_owned();
            let LinkTarget::Hard(address) = target else {
                return Err(refused(format!("{shown} is a link to another place")));
            };
            if !addresses.insert(address) {
                return Err(refused(format!("{shown} is a second name of an object")));
            }
            let object = self.objects.object(address).map_err(|e| e.at(&shown))?;
            let info = match object {
                Object::Dataset(info) => info,
                Object::Group => return Err(refused(format!("it has the group {shown}"))),
                Object::Datatype(_) => return Err(refused(format!("it has the type {shown}"))),
            };
            let attributes = self.attributes(address).map_err(|e| e.at(&shown))?;
            datasets.push(Found {
                name,
                address,
                info,
                attributes,
            });
        }
        Ok(datasets)
    }

    fn attributes(&mut self, object: u64) -> Result<Vec<format::Attribute>> {
        let found = self.objects.attributes(object)?;
        let size = |a: &format::Attribute| (a.name.len() + a.bytes.len()) as u64 + EACH;
        self.take(found.iter().map(size).sum::<u64>() + EACH)?;
        Ok(found)
    }

    fn take(&mut self, bytes: u64) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left =
            left.ok_or_else(|| format!("a header of more than {} MiB", MOST_BYTES >> 20))?;
        Ok(())
    }

    fn variable(&mut self, dataset: &Found, scales: &mut Scales) -> Result<Variable> {
        match &dataset.info.layout {
            Layout::Virtual(_) => return Err(refused("its elements are those of other datasets")),
            Layout::Other(reason) => return Err(refused(reason.clone())),
            Layout::Compact(_) | Layout::Contiguous { .. } | Layout::Chunked { .. } => {}
        }
        let (kind, is_big_endian) = type_of(&dataset.info.datatype).ok_or_else(|| {
            refused(format!(
                "its type is not one of netCDF's numbers or char: {}",
                dataset.info.datatype
            ))
        })?;
        let name = dataset.name.strip_prefix(NOT_A_COORDINATE);
        Ok(Variable {
            name: name.unwrap_or(&dataset.name).to_vec(),
            kind,
            is_big_endian,
            dimensions: self.dimensions_of(dataset, scales)?,
            attributes: self.shown(&dataset.attributes)?,
            place: dataset.address,
        })
    }

    /// The numbers of the dimensions of a variable. A dimension along which the variable is longer than known so far, and may
    /// grow, gets the length.
    fn dimensions_of(&self, dataset: &Found, scales: &mut Scales) -> Result<Vec<usize>> {
        let (dims, _) = dataset.extent()?;
        let own = scales.by_address.get(&dataset.address).copied();
        let numbers = match (dataset.integers(COORDINATES), own) {
            (Some(ids), _) => ids.iter().map(|id| scales.by_id.get(id).copied()).collect(),
            (None, Some(own)) if dims.len() == 1 => Some(vec![own]),
            _ if dims.is_empty() => Some(Vec::new()),
            _ => self.dimension_list(dataset, scales)?,
        };
        let numbers: Vec<usize> = numbers.ok_or("its dimensions have no scales")?;
        if numbers.len() != dims.len() {
            return Err(format!("{} dimensions for {} scales", dims.len(), numbers.len()).into());
        }
        for (number, len) in numbers.iter().zip(dims) {
            let dimension = &mut scales.dimensions[*number];
            if dimension.is_unlimited {
                dimension.len = dimension.len.max(*len);
            } else if dimension.len != *len {
                let (of, has) = (lossy(&dimension.name), dimension.len);
                return Err(format!("{len} points along {of}, which has {has}").into());
            }
        }
        Ok(numbers)
    }

    fn dimension_list(&self, dataset: &Found, scales: &Scales) -> Result<Option<Vec<usize>>> {
        let Some(list) = dataset.attribute("DIMENSION_LIST") else {
            return Ok(None);
        };
        let scale_of = |value: format::Value| match value {
            format::Value::List(scales) => match scales.as_slice() {
                [format::Value::Reference(Some(address))] => Some(*address),
                _ => None,
            },
            _ => None,
        };
        let found = self
            .objects
            .values(&list.datatype, &list.bytes)?
            .into_iter();
        Ok(found
            .map(|value| scales.by_address.get(&scale_of(value)?).copied())
            .collect())
    }

    /// The attributes that a user sees.
    fn shown(&mut self, attributes: &[format::Attribute]) -> Result<Vec<Attribute>> {
        let mut shown = Vec::new();
        for attribute in attributes {
            if !OWN.iter().any(|own| own.as_bytes() == attribute.name) {
                shown.push(Attribute {
                    name: attribute.name.clone(),
                    value: self.value(attribute)?,
                });
            }
        }
        Ok(shown)
    }

    fn value(&mut self, attribute: &format::Attribute) -> Result<Value> {
        let is_scalar =
            matches!(&attribute.space, Dataspace::Simple { dims, .. } if dims.is_empty());
        let is_null = attribute.space == Dataspace::Null;
        match &attribute.datatype.class {
            Class::Text { .. } if is_scalar || is_null => Ok(Value::Text(attribute.bytes.clone())),
            Class::Text { .. } | Class::VariableText { .. } => {
                let values = self.objects.values(&attribute.datatype, &attribute.bytes)?;
                let texts = values.into_iter().map(|value| match value {
                    format::Value::Text(text) => text,
                    _ => Vec::new(),
                });
                let texts: Vec<_> = texts.collect();
                self.take(texts.iter().map(|text| text.len() as u64).sum())?;
                Ok(Value::Texts(texts))
            }
            _ => {
                let other = || Value::Other(attribute.datatype.to_string());
                Ok(numbers(attribute).unwrap_or_else(other))
            }
        }
    }
}

impl Found {
    fn attribute(&self, name: &str) -> Option<&format::Attribute> {
        self.attributes.iter().find(|a| a.name == name.as_bytes())
    }

    /// The text of an attribute, up to its first zero byte.
    fn text(&self, name: &str) -> Option<&[u8]> {
        let attribute = self.attribute(name)?;
        matches!(attribute.datatype.class, Class::Text { .. }).then_some(())?;
        attribute.bytes.split(|byte| *byte == 0).next()
    }

    /// The integers of one of netCDF-4's own attributes.
    fn integers(&self, name: &str) -> Option<Vec<i64>> {
        let value = numbers(self.attribute(name)?)?;
        let name = Vec::new();
        Attribute { name, value }.integers()
    }

    fn is_scale(&self) -> bool {
        self.text("CLASS") == Some(b"DIMENSION_SCALE")
    }

    /// The scale of a dimension that has no variable.
    fn is_placeholder(&self) -> bool {
        self.is_scale() && self.text("NAME").is_some_and(is_bare_dimension)
    }

    fn extent(&self) -> Result<(&[u64], &[u64])> {
        match &self.info.space {
            Dataspace::Simple { dims, max_dims } => Ok((dims, max_dims)),
            Dataspace::Null => Err(refused("it has no extent")),
        }
    }
}

impl Scales {
    /// The dimensions of the scales among `datasets`: in the order of the numbers that netCDF-4 gave them, if all have one.
    fn of(datasets: &[Found]) -> Result<Self> {
        let scales: Vec<&Found> = datasets.iter().filter(|found| found.is_scale()).collect();
        let id = |found: &Found| found.integers(DIMENSION_ID)?.first().copied();
        let have_ids = scales.iter().all(|found| id(found).is_some());
        let mut by_id = BTreeMap::new();
        for (position, found) in (0i64..).zip(scales) {
            let id = id(found).filter(|_| have_ids).unwrap_or(position);
            if by_id.insert(id, found).is_some() {
                return Err(format!("two dimensions of the number {id}").into());
            }
        }
        let mut all = Scales::default();
        for (number, (id, found)) in by_id.into_iter().enumerate() {
            let (dims, max_dims) = found.extent()?;
            let (Some(len), Some(most)) = (dims.first(), max_dims.first()) else {
                return Err(format!("the scale {} has no extent", lossy(&found.name)).into());
            };
            let is_unlimited = *most == UNLIMITED;
            all.dimensions.push(Dimension {
                name: found.name.clone(),
                // The scale of an unlimited dimension without a variable does not grow with it: its variables tell.
                len: if is_unlimited && found.is_placeholder() {
                    0
                } else {
                    *len
                },
                is_unlimited,
            });
            all.by_address.insert(found.address, number);
            all.by_id.insert(id, number);
        }
        Ok(all)
    }
}

fn refused(text: impl Into<String>) -> Fault {
    Fault::Refused(text.into())
}

/// The values of an attribute, if they are numbers.
fn numbers(attribute: &format::Attribute) -> Option<Value> {
    let (Type::Number(kind), is_big_endian) = type_of(&attribute.datatype)? else {
        return None;
    };
    let mut bytes = attribute.bytes.clone();
    if is_big_endian {
        bytes
            .chunks_exact_mut(kind.size())
            .for_each(<[u8]>::reverse);
    }
    Some(Value::Numbers(kind, bytes))
}

/// netCDF's type of an HDF5 type, and whether it is big-endian.
fn type_of(datatype: &Datatype) -> Option<(Type, bool)> {
    let (is_signed, big_endian) = match &datatype.class {
        Class::Text { .. } => return (datatype.size == 1).then_some((Type::Char, false)),
        _ if !datatype.is_plain_number() => return None,
        Class::Integer {
            signed, big_endian, ..
        } => (Some(*signed), *big_endian),
        Class::Float { big_endian, .. } => (None, *big_endian),
        _ => return None,
    };
    let kind = match (is_signed, datatype.size) {
        (Some(true), 1) => NumberType::I8,
        (Some(false), 1) => NumberType::U8,
        (Some(true), 2) => NumberType::I16,
        (Some(false), 2) => NumberType::U16,
        (Some(true), 4) => NumberType::I32,
        (Some(false), 4) => NumberType::U32,
        (Some(true), 8) => NumberType::I64,
        (Some(false), 8) => NumberType::U64,
        (None, 4) => NumberType::F32,
        (None, 8) => NumberType::F64,
        _ => return None,
    };
    Some((Type::Number(kind), big_endian))
}
