//! The dimensions, variables and attributes of a file, collected step by step (sections 2 and 7).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::names::{Named, NamedAttribute, Part, name_of, name_of_attribute};
use super::types::NcType;
use super::values::{Values, numbers_of};
use crate::Result;
use crate::model::{Attribute, Step, Type, Value, Variable};

/// The longest dimension, so that HDF5 can count the bytes of a dataset of one dimension.
const MOST_ELEMENTS: u64 = i64::MAX as u64 / 8;
/// The most dimensions of a variable: those of a dataset of HDF5.
const MOST_DIMENSIONS: usize = 32;

/// The definitions so far.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Dimensions in the order of their definition.
    pub dimensions: Vec<Dimension>,
    /// Variables in the order of their definition.
    pub variables: Vec<Definition>,
    /// Global attributes.
    pub attributes: Vec<(String, Value)>,
    /// The shape of each decomposition, by its ID.
    pub shapes: BTreeMap<i64, Vec<u64>>,
    /// The ranks of each group, the root first.
    pub groups: Vec<Vec<u32>>,
    /// The file has no maps, because SCORPIO was built to leave them out (section 6.5).
    pub lacks_maps: bool,
    /// Definitions that cannot be understood, with the reasons.
    pub problems: Vec<String>,
    /// Number of variables whose place in the order is known.
    ranks: usize,
    by_name: HashMap<Arc<str>, usize>,
    /// Names in ADIOS2 of the attributes that have a value.
    given: HashSet<Box<str>>,
    dimension_by_name: HashMap<String, usize>,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dimension {
    /// Its name in netCDF.
    pub name: String,
    /// Its length; 0 for an unlimited dimension.
    pub len: u64,
}

/// A variable. Parts of it are missing as long as no attribute has given them.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name in netCDF.
    pub name: Arc<str>,
    /// Number of its type in netCDF.
    pub type_number: Option<i64>,
    /// Number of dimensions.
    pub rank: Option<i64>,
    /// Names of the dimensions, slowest first.
    pub dimensions: Vec<String>,
    /// How it was written; `None` if it never was.
    pub way: Option<Way>,
    /// Number of its type in memory, for [`Way::One`].
    pub memory_number: Option<i64>,
    /// Its attributes.
    pub attributes: Vec<(String, Value)>,
    /// Place of `def/ndims` among all attributes, which is the order of definition.
    order: usize,
}

/// How a variable was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By all processes, each with its places.
    All,
    /// By one process, with start and count.
    One,
}

impl Definitions {
    /// Adds the definitions of a step. `step` has all its attributes, and the variables of dimensions and of groups.
    pub fn add(&mut self, step: &Step, values: &Values<'_>) {
        for variable in &step.variables {
            if let Err(fault) = self.add_variable(variable, values) {
                let name = &variable.name;
                self.problems.push(format!("{name}: {fault}"));
            }
        }
        for attribute in &step.attributes {
            if let Err(fault) = self.add_attribute(attribute, values.is_big_endian) {
                let name = &attribute.name;
                self.problems.push(format!("attribute {name}: {fault}"));
            }
        }
    }

    fn add_variable(&mut self, variable: &Variable, values: &Values<'_>) -> Result<()> {
        match name_of(&variable.name) {
            Named::HasMaps => self.lacks_maps = values.number(variable)? == 0,
            Named::Groups => self.groups = groups(&values.numbers(variable)?)?,
            Named::Dimension(name) => {
                check_name(name)?;
                let len = u64::try_from(values.number(variable)?);
                let len = len.ok().filter(|len| *len <= MOST_ELEMENTS);
                let len = len.ok_or("its length is negative, or too large for HDF5")?;
                match self.dimension_by_name.get(name) {
                    Some(known) => self.dimensions[*known].len = len,
                    None => {
                        let number = self.dimensions.len();
                        self.dimension_by_name.insert(name.to_owned(), number);
                        let name = name.to_owned();
                        self.dimensions.push(Dimension { name, len });
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_attribute(&mut self, attribute: &Attribute, is_big_endian: bool) -> Result<()> {
        match name_of_attribute(&attribute.name) {
            NamedAttribute::Global(name) => {
                check_attribute(name)?;
                if self.is_first(attribute) {
                    let value = attribute.value.clone();
                    self.attributes.push((name.to_owned(), value));
                }
            }
            NamedAttribute::OfVariable(variable, name) => {
                check_name(variable)?;
                check_attribute(name)?;
                if self.is_first(attribute) {
                    let value = attribute.value.clone();
                    let of = self.variable(variable);
                    of.attributes.push((name.to_owned(), value));
                }
            }
            NamedAttribute::Definition(part, variable) => {
                check_name(variable)?;
                let order = self.ranks + 1;
                let of = self.variable(variable);
                of.define(part, &attribute.value, is_big_endian)?;
                if part == Part::Rank && of.order == 0 {
                    of.order = order;
                    self.ranks = order;
                }
            }
            NamedAttribute::Shape(id) => {
                let shape = numbers(&attribute.value, is_big_endian)?;
                let shape = shape.into_iter().map(|side| u64::try_from(side).ok());
                let shape: Option<Vec<u64>> = shape.collect();
                let shape = shape.ok_or("a negative length")?;
                let id = id.parse().map_err(|_| "an ID that is not a number")?;
                self.shapes.entry(id).or_insert(shape);
            }
            NamedAttribute::Other => {}
        }
        Ok(())
    }

    /// Whether an attribute has no value yet: the first one stays (section 7).
    fn is_first(&mut self, attribute: &Attribute) -> bool {
        self.given.insert(attribute.name.as_str().into())
    }

    fn variable(&mut self, name: &str) -> &mut Definition {
        let number = match self.by_name.get(name) {
            Some(known) => *known,
            None => {
                let name: Arc<str> = name.into();
                self.by_name.insert(name.clone(), self.variables.len());
                self.variables.push(Definition::new(name));
                self.variables.len() - 1
            }
        };
        &mut self.variables[number]
    }

    /// The variable of a name.
    pub fn of_name(&self, name: &str) -> Option<&Definition> {
        self.by_name
            .get(name)
            .map(|number| &self.variables[*number])
    }

    /// Index of the dimension of a name.
    pub fn dimension(&self, name: &str) -> Option<usize> {
        self.dimension_by_name.get(name).copied()
    }

    /// The variables that exist (section 2), in the order of their definition.
    pub fn in_order(&self) -> Vec<&Definition> {
        let exist = self
            .variables
            .iter()
            .filter(|known| known.type_number.is_some());
        let mut exist: Vec<_> = exist.collect();
        exist.sort_by_key(|known| known.order);
        exist
    }
}

impl Definition {
    fn new(name: Arc<str>) -> Self {
        Definition {
            name,
            type_number: None,
            rank: None,
            dimensions: Vec::new(),
            way: None,
            memory_number: None,
            attributes: Vec::new(),
            order: 0,
        }
    }

    /// The value that was given first stays (section 7).
    fn define(&mut self, part: Part, value: &Value, is_big_endian: bool) -> Result<()> {
        let number = || -> Result<i64> {
            let numbers = numbers(value, is_big_endian)?;
            Ok(*numbers.first().ok_or("no number")?)
        };
        match part {
            Part::Type if self.type_number.is_none() => self.type_number = Some(number()?),
            Part::Rank if self.rank.is_none() => self.rank = Some(number()?),
            Part::MemoryType if self.memory_number.is_none() => {
                self.memory_number = Some(number()?);
            }
            Part::Dimensions if self.dimensions.is_empty() => {
                self.dimensions = match value {
                    Value::Text(text) => vec![text.clone()],
                    Value::Texts(texts) => texts.clone(),
                    Value::Numbers { .. } => return Err("numbers, not names".into()),
                };
            }
            Part::Way if self.way.is_none() => {
                let Value::Text(text) = value else {
                    return Err("not a text".into());
                };
                self.way = Some(match text.trim_end_matches('\0') {
                    "darray" => Way::All,
                    "put_var" => Way::One,
                    other => return Err(format!("{other:?} is not a way to write").into()),
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// The type, and the numbers of the dimensions. Fails with the reason why the variable cannot be shown.
    pub fn form(&self, all: &Definitions) -> Result<(NcType, Vec<usize>)> {
        let number = self.type_number.ok_or("it has no type")?;
        let ty = NcType::of_number(number);
        let ty = ty.ok_or_else(|| {
            format!("its type has the number {number}, which has no elements here")
        })?;
        let rank = self.rank.ok_or("its number of dimensions is missing")?;
        let names = &self.dimensions;
        if usize::try_from(rank) != Ok(names.len()) {
            return Err(format!("{rank} dimensions with {} names", names.len()).into());
        }
        if names.len() > MOST_DIMENSIONS {
            return Err(
                format!("{rank} dimensions, of which HDF5 has {MOST_DIMENSIONS} at most").into(),
            );
        }
        let mut dimensions = Vec::new();
        for (position, name) in names.iter().enumerate() {
            let number = all.dimension(name);
            let number = number.ok_or_else(|| format!("its dimension {name} has no length"))?;
            if position > 0 && all.dimensions[number].len == 0 {
                return Err(
                    format!("its dimension {name} is unlimited, and not the first one").into(),
                );
            }
            dimensions.push(number);
        }
        Ok((ty, dimensions))
    }
}

fn numbers(value: &Value, is_big_endian: bool) -> Result<Vec<i64>> {
    match value {
        Value::Numbers { ty, bytes, .. } if *ty != Type::Text => {
            numbers_of(ty, bytes, is_big_endian)
        }
        _ => Err("not numbers".into()),
    }
}

/// Fails for a name that no dimension or variable of netCDF-4 can have.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name == "." || name.contains(['/', '\0']) {
        return Err("netCDF-4 can have no such name".into());
    }
    Ok(())
}

/// Fails for a name that no attribute of HDF5 can have.
fn check_attribute(name: &str) -> Result<()> {
    if name.is_empty() || name.contains('\0') {
        return Err("HDF5 can have no such name".into());
    }
    Ok(())
}

/// The ranks of each group. Fails where a rank is in two groups.
fn groups(blocks: &[Vec<i64>]) -> Result<Vec<Vec<u32>>> {
    let mut seen = HashSet::new();
    let mut groups = Vec::new();
    for block in blocks {
        let ranks = block.iter().map(|rank| u32::try_from(*rank));
        let ranks = ranks.collect::<std::result::Result<Vec<u32>, _>>()?;
        if ranks.is_empty() || !ranks.iter().all(|rank| seen.insert(*rank)) {
            return Err("a group without ranks, or a rank in two groups".into());
        }
        groups.push(ranks);
    }
    Ok(groups)
}
