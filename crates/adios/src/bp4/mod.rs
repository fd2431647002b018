//! Metadata of BP4 (section 4).
//!
//! * `index`: the rows of `md.idx`, one per step.
//! * `first_step`: a look at the first step.
//! * `set`: the metadata of one block.
//! * `variable`, `attribute`: one entry of the indices of a step.

mod attribute;
pub(crate) mod first_step;
mod index;
mod set;
mod types;
mod variable;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use index::Index;

use std::collections::HashSet;

use crate::Files;
use crate::asked::Asked;
use crate::fields::Fields;
use crate::model::Step;
use crate::{Result, numbers};

/// Largest number of problems reported for a step.
const MOST_PROBLEMS: usize = 100;

/// Average bytes of metadata per text in the arrays of a step. A text takes more memory than this: beyond
/// [`SOME_TEXTS`], empty texts could demand many times the memory of the metadata.
const TEXT: usize = 12;
const SOME_TEXTS: usize = 4096;

/// Properties that all variables of a step share.
#[derive(Debug, Clone, Copy)]
struct Writing {
    /// Dimensions are in Fortran order.
    is_column_major: bool,
    /// Offset of the step's section in `md.0`.
    begin: u64,
    /// Blocks with an operator lack the header of section 5 (section 4.7).
    has_bare_operators: bool,
}

/// Reads the stored metadata of step `number`, counted from 0, into `section`: nothing where the step has no row.
pub fn section(
    index: &Index,
    files: Files<'_>,
    number: usize,
    section: &mut Vec<u8>,
) -> Result<()> {
    match index.row(number)? {
        Some(row) => {
            let len = row.end - row.begin;
            numbers::read_into(section, files.metadata, row.begin, len, "md.0")
        }
        None => {
            section.clear();
            Ok(())
        }
    }
}

/// Decodes the metadata of step `number` from its section.
pub fn step(index: &Index, number: usize, section: &[u8], asked: Asked<'_>) -> Result<Step> {
    let Some(row) = index.row(number)? else {
        return Ok(Step::default());
    };
    if section.len() as u64 != row.end - row.begin {
        return Err("the section of another step".into());
    }
    let part = |begin, end| {
        // `Index` has checked the order of the three offsets.
        let mut part = Fields::new(&section[..(end - row.begin) as usize], index.is_big_endian);
        part.take((begin - row.begin) as usize).map(|_| part)
    };
    let group = first_group(part(row.begin, row.variables)?);
    let group = group.map_err(|fault| fault.at("md.0: process groups"))?;
    if let Some(Group { step, .. }) = group
        && step as usize != row.step + 1
    {
        // A value must not be shown under the wrong step.
        let row = row.step + 1;
        return Err(
            format!("md.idx says that it is number {row}, and md.0 that it is {step}").into(),
        );
    }
    let writing = Writing {
        is_column_major: group.is_some_and(|group| group.is_column_major),
        begin: row.begin,
        has_bare_operators: index.has_bare_operators,
    };
    let mut step = Step::default();
    let variables = part(row.variables, row.attributes)?;
    add_variables(variables, writing, asked, &mut step);
    if asked.has_attributes() {
        add_attributes(part(row.attributes, row.end)?, &mut step);
    }
    Ok(step)
}

fn add_variables(index: Fields<'_>, writing: Writing, asked: Asked<'_>, step: &mut Step) {
    let mut names = HashSet::new();
    each(index, "variables", &mut step.problems, |entry| {
        let (name, entry) = variable::name(entry)?;
        if !asked.has(name) {
            return Ok(());
        }
        let read = if names.insert(name) {
            variable::read(name, entry, writing)
        } else {
            Err("it comes twice in one step".into())
        };
        let variable = read.map_err(|fault| fault.at(format!("variable {name}")))?;
        step.variables.push(variable);
        Ok(())
    });
}

fn add_attributes(index: Fields<'_>, step: &mut Step) {
    let mut texts = index.rest().len() / TEXT + SOME_TEXTS;
    each(index, "attributes", &mut step.problems, |entry| {
        step.attributes.push(attribute::read(entry, &mut texts)?);
        Ok(())
    });
}

/// A process group.
struct Group {
    /// Dimensions are in Fortran order.
    is_column_major: bool,
    /// Number of the step, from 1.
    step: u32,
}

/// The first process group, which stands for all of the step. `None` where there is none.
fn first_group(mut groups: Fields<'_>) -> Result<Option<Group>> {
    if groups.u64()? == 0 {
        return Ok(None);
    }
    groups.u64()?;
    groups.u16()?;
    groups.text()?;
    let is_column_major = groups.u8()? == b'y';
    groups.u32()?;
    groups.text()?;
    Ok(Some(Group {
        is_column_major,
        step: groups.u32()?,
    }))
}

/// Passes each entry of an index to `entry`. A failure is a problem of that entry; its length leads to the next one.
fn each<'a>(
    index: Fields<'a>,
    what: &str,
    problems: &mut Vec<String>,
    mut entry: impl FnMut(Fields<'a>) -> Result<()>,
) {
    let mut tell = |problem: String| {
        if problems.len() < MOST_PROBLEMS {
            problems.push(problem);
        }
    };
    let mut walk = |mut index: Fields<'a>| -> Result<()> {
        let count = index.u32()?;
        let len = index.u64()?;
        let mut entries = index.part(len)?;
        for _ in 0..count {
            let len = entries.u32()?;
            if let Err(fault) = entry(entries.part(len.into())?) {
                tell(fault.to_string());
            }
        }
        Ok(())
    };
    if let Err(fault) = walk(index) {
        tell(format!("index of {what}: {fault}"));
    }
}
