//! The schema of variable-based series of openPMD-api 0.15 (section 8.1). Attributes are variables, which a step has or
//! lacks. The variable of the elements of `PATH` is `PATH/__data__`.

use std::collections::HashMap;

use crate::Result;
use crate::model::{Attribute, Kind, Place, Step, Type, Value, Variable};
use crate::tree::Presence;
use crate::tree::summary::{SeenVariable, Summary};

/// The attribute with the number of the schema.
const SCHEMA: &str = "__openPMD_internal/openPMD2_adios2_schema";
/// The number of this schema.
const OLDER: u64 = 20_210_209;
/// The end of the names of variables that are no attributes.
const ELEMENTS: &str = "/__data__";

/// Bytes of the largest attribute that is read.
const LARGEST: u64 = 1 << 20;
/// Bytes of all attributes that are read of a directory.
const MOST_BYTES: u64 = 256 << 20;

/// The name of the object that has the elements of a variable; `None` for a variable that is an attribute.
pub(super) fn object_of(variable: &str) -> Option<&str> {
    variable.strip_suffix(ELEMENTS)
}

/// The variables that are attributes, by name.
pub(super) fn attributes(summary: &Summary) -> HashMap<&str, &SeenVariable> {
    let variables = summary.variables.iter();
    let all = variables.map(|(name, seen)| (&**name, seen));
    all.filter(|(name, _)| object_of(name).is_none()).collect()
}

impl Summary {
    /// Whether attributes are variables in this step, which is added next. If so, [`Values::add`] reads them.
    pub fn has_attributes_as_variables(&self, step: &Step) -> bool {
        let is_named = |attribute: &&Attribute| attribute.name == SCHEMA;
        let new = step.attributes.iter().rfind(is_named);
        match new {
            Some(new) => self.number(&new.value) == Some(OLDER),
            None => is_older(self),
        }
    }
}

/// Whether attributes are variables.
pub(super) fn is_older(summary: &Summary) -> bool {
    let history = summary.attributes.get(SCHEMA);
    let last = history.and_then(|history| history.last());
    last.and_then(|(_, value)| summary.number(value)) == Some(OLDER)
}

/// Reads the stored bytes at a place, which are as long as the buffer.
pub type Read<'a> = dyn Fn(&Place, &mut [u8]) -> Result<()> + 'a;

/// The values of attributes that are variables.
#[derive(Debug)]
pub struct Values {
    /// Bytes that may still be read.
    left: u64,
}

impl Default for Values {
    fn default() -> Self {
        Values { left: MOST_BYTES }
    }
}

impl Values {
    /// Adds the attributes that are variables in a step. Each variable stays, because it tells the steps that have the
    /// attribute; but one whose value makes no attribute becomes a problem of the step. The summary leaves out those
    /// with missing bytes. Fails where the system cannot read a file.
    pub fn add(
        &mut self,
        step: &mut Step,
        presence: &dyn Fn(&Place) -> Presence,
        read: &Read<'_>,
    ) -> Result<()> {
        let Step {
            variables,
            attributes,
            problems,
        } = step;
        for variable in std::mem::take(variables) {
            let is_cut = || {
                variable
                    .blocks
                    .iter()
                    .any(|block| presence(&block.place) != Presence::There)
            };
            if object_of(&variable.name).is_some() || is_cut() {
                variables.push(variable);
                continue;
            }
            let name = variable.name.to_string();
            match self.value(&variable, read) {
                Ok(value) => {
                    attributes.push(Attribute { name, value });
                    variables.push(variable);
                }
                Err(fault) => {
                    let reason = fault.into_damage()?;
                    problems.push(format!("attribute {name} is left out: {reason}"));
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, variable: &Variable, read: &Read<'_>) -> Result<Value> {
        let is_global = matches!(variable.kind, Kind::GlobalValue | Kind::GlobalArray);
        let ty = match &variable.ty {
            Type::Text => {
                let text = variable.texts.last().filter(|_| is_global);
                return Ok(Value::Text(text.ok_or("it is not a single text")?.clone()));
            }
            ty if is_global && !matches!(ty, Type::Struct(_)) => ty.clone(),
            _ => return Err("it is not a value or an array of numbers".into()),
        };
        let bytes = self.bytes(variable, read)?;
        Ok(match (&ty, variable.shape.as_slice()) {
            // One text a row, with zeros up to the longest one.
            (Type::Char, [_, longest]) => Value::Texts(rows(&bytes, *longest as usize)),
            (Type::Char, _) => numbers(Type::I8, variable, bytes),
            _ => numbers(ty, variable, bytes),
        })
    }

    /// The elements of a value that one block holds. Where several writers put the same value, the last one counts.
    fn bytes(&mut self, variable: &Variable, read: &Read<'_>) -> Result<Vec<u8>> {
        let product = |product: u64, extent: &u64| product.checked_mul(*extent);
        let len = variable.shape.iter().try_fold(variable.ty.size(), product);
        let is_read = |len: &u64| *len <= LARGEST.min(self.left);
        let len = len
            .filter(is_read)
            .ok_or("it is too large for an attribute")?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let blocks = variable.blocks.iter().enumerate();
        let mut whole = blocks
            .filter(|(number, _)| variable.rank == 0 || variable.count(*number) == variable.shape);
        let (_, block) = whole.next_back().ok_or("no block has all of it")?;
        if block.has_operator || block.place.len != len {
            return Err("its block has an operator".into());
        }
        self.left -= len;
        let mut bytes = vec![0; len as usize];
        read(&block.place, &mut bytes)?;
        Ok(bytes)
    }
}

fn numbers(ty: Type, variable: &Variable, bytes: Vec<u8>) -> Value {
    Value::Numbers {
        ty,
        is_single: variable.shape.is_empty(),
        bytes,
    }
}

/// The texts of rows of this length.
fn rows(bytes: &[u8], longest: usize) -> Vec<String> {
    let rows = bytes.chunks_exact(longest.max(1));
    let text = |row: &[u8]| {
        String::from_utf8_lossy(row)
            .trim_end_matches('\0')
            .to_owned()
    };
    rows.map(text).collect()
}
