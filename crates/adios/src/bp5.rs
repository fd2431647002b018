//! Metadata of BP5 (section 3).

mod attributes;
mod blocks;
mod ffs;
mod fields;
pub(crate) mod first_step;
mod formats;
mod index;
mod record;
mod types;
mod variables;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::Files;
use crate::asked::Asked;
use crate::header::Header;
use crate::model::Step;
use crate::numbers::{self, Numbers};
use crate::{Bytes, Result};

use attributes::Attributes;
use blocks::Writer;
use ffs::Id;
use formats::{Formats, Meaning};
use index::Records;
use record::Record;
use variables::Variables;

/// The places of the metadata of all steps, and the meaning of the record formats.
#[derive(Debug)]
pub struct Index {
    header: Header,
    records: Records,
    formats: Formats,
    problems: Vec<String>,
}

impl Index {
    /// Finds each step, up to the first whose metadata is incomplete.
    pub fn open(files: Files<'_>, header: Header) -> Result<Self> {
        let mut records = Records::read(files.index, &header)?;
        let mut problems = Vec::new();
        if records.rest > 0 && !header.is_active {
            let rest = records.rest;
            problems.push(format!(
                "md.idx: its last {rest} bytes are an incomplete record"
            ));
        }
        let len = files.metadata.len();
        if let Some(first) = records.steps.iter().position(|step| !step.is_below(len)) {
            records.steps.truncate(first);
            problems.push(format!(
                "step {first} and those after it are not there: md.0 has {len} bytes and ends before the metadata do"
            ));
        }
        let formats = match files.formats {
            Some(formats) => Formats::read(formats, header.is_big_endian)?,
            None if records.steps.is_empty() => Formats::default(),
            None => {
                let steps = records.steps.len();
                let what = "the formats of the metadata of all";
                return Err(format!("mmd.0 is not there: it has {what} {steps} steps").into());
            }
        };
        Ok(Index {
            header,
            records,
            formats,
            problems,
        })
    }

    /// Number of steps that `md.idx` lists.
    pub fn steps_of(index: &dyn Bytes, header: &Header) -> Result<usize> {
        Ok(Records::read(index, header)?.steps.len())
    }

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        self.records.steps.len()
    }

    /// Bytes of metadata of a step; 0 if there is no such step.
    pub fn metadata_len(&self, step: usize) -> u64 {
        self.records.steps.get(step).map_or(0, |step| step.size)
    }

    /// Memory in bytes. It includes formats that are decoded later, because all steps together need them.
    pub fn bytes(&self) -> usize {
        self.records.bytes() + self.formats.bytes()
    }

    /// The largest number of writers of any step.
    pub fn writers(&self) -> u64 {
        self.records.writers()
    }

    /// Problems of the directory.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

/// Reads the stored metadata of one step into `section`.
pub fn section(
    index: &Index,
    files: Files<'_>,
    number: usize,
    section: &mut Vec<u8>,
) -> Result<()> {
    let step = index.records.steps.get(number).ok_or("has no such step")?;
    numbers::read_into(section, files.metadata, step.metadata, step.size, "md.0")
}

/// Decodes the metadata of one step from its section. A fault concerns the whole step.
pub fn step(
    index: &Index,
    files: Files<'_>,
    number: usize,
    section: &[u8],
    asked: Asked<'_>,
) -> Result<Step> {
    let header = &index.header;
    let step = index.records.steps.get(number).ok_or("has no such step")?;
    let places = index.records.places(files.index, header, step)?;
    let section = Numbers {
        bytes: section,
        is_big_endian: header.is_big_endian,
    };
    let blocks = blocks(section, places.writers())?;
    let (of_variables, of_attributes) = blocks.split_at(places.writers());
    let reading = Reading {
        index,
        formats: files.formats.ok_or("mmd.0 is not there")?,
        section,
        at: step.metadata,
    };
    let mut variables = Variables::new(header.is_column_major, asked);
    let lost = reading.each(of_variables, &mut |writer, id, record| {
        let Meaning::Variables(fields) = reading.meaning(id)? else {
            return Err("a record of variables has another format".into());
        };
        let writer = Writer {
            rank: writer,
            places: places.of_writer(writer as usize),
        };
        variables.add(&writer, id, fields, record)
    })?;
    let of_attributes = if asked.has_attributes() {
        of_attributes
    } else {
        &[]
    };
    let mut attributes = Attributes::default();
    let others = reading.each(of_attributes, &mut |writer, id, record| {
        attributes.writer = writer;
        match reading.meaning(id)? {
            Meaning::Attributes(fields) => fields.read(record, &mut attributes),
            Meaning::OwnAttributes(fields) => fields.read(record, &mut attributes),
            Meaning::Variables(_) => Err("a record of attributes has another format".into()),
        }
    })?;
    let (mut variables, mut problems) = variables.finish();
    if !lost.is_empty() {
        // Any variable may have unknown blocks.
        variables.clear();
    }
    problems.extend(lost);
    problems.extend(attributes.problems);
    problems.extend(others);
    Ok(Step {
        variables,
        attributes: attributes.all,
        problems,
    })
}

/// The places of a step's records in its section of `md.0`: first the records of variables, one per writer, then those
/// of attributes (section 3.2).
fn blocks(section: Numbers<'_>, writers: usize) -> Result<Vec<Range<u64>>> {
    let sizes = section.part(8, 16 * writers as u64);
    let sizes = sizes.map_err(|fault| fault.at("md.0: sizes of the records"))?;
    let mut at = 8 + 16 * writers as u64;
    let end = section.bytes.len() as u64;
    let block = |(number, size): (usize, u64)| -> Result<Range<u64>> {
        let begin = at;
        let (what, writer) = match number.checked_sub(writers) {
            None => ("variables", number),
            Some(writer) => ("attributes", writer),
        };
        at = begin.checked_add(size).filter(|at| *at <= end).ok_or_else(|| {
            let left = end - begin;
            format!("md.0: writer {writer}: its record of {what} should have {size} bytes, and {left} are left of the step")
        })?;
        Ok(begin..at)
    };
    sizes.u64s().enumerate().map(block).collect()
}

/// The records of one step.
struct Reading<'a> {
    index: &'a Index,
    formats: &'a dyn Bytes,
    section: Numbers<'a>,
    /// Offset of the section in `md.0`.
    at: u64,
}

impl<'a> Reading<'a> {
    fn meaning(&self, id: &Id) -> Result<&'a Meaning> {
        self.index.formats.meaning(self.formats, id)
    }

    /// Passes the record of each writer that has one to `read`. Returns the problems of the records that cannot be
    /// read.
    fn each(
        &self,
        blocks: &[Range<u64>],
        read: &mut dyn FnMut(u32, &Id, &Record<'_>) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for (writer, block) in (0..).zip(blocks).filter(|(_, block)| !block.is_empty()) {
            let bytes = self.section.part(block.start, block.end - block.start)?;
            let record = Record::open(bytes, self.at + block.start);
            if let Err(fault) = record.and_then(|(id, record)| read(writer, &id, &record)) {
                problems.push(format!("writer {writer}: {}", fault.into_damage()?));
            }
        }
        Ok(problems)
    }
}
