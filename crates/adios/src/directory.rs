//! The steps of one directory, of either version.
//!
//! [`Directory::open`] walks through `md.idx` and keeps the places of the steps' metadata. [`Directory::step`] reads
//! one step. The caller chooses the parts to read.

use crate::asked::Asked;
use crate::header::{Header, Version};
use crate::model::{Place, Step};
use crate::tree::{Presence, Summary, is_complete};
use crate::{Bytes, Result, bp4, bp5};

pub use crate::Files;

/// Turns damage to all of a step's metadata into a step with one problem.
fn damaged(step: Result<Step>) -> Result<Step> {
    match step {
        Ok(step) => Ok(step),
        Err(fault) => Ok(Step {
            problems: vec![fault.into_damage()?],
            ..Step::default()
        }),
    }
}

/// What a [`Summary`] needs of a step.
#[derive(Debug)]
pub enum Needed {
    /// The outline: all stored bytes are there.
    Outline(Step),
    /// All of it, with each block.
    All(Step),
}

/// The places of the metadata of all steps of a directory.
#[derive(Debug)]
pub struct Directory {
    header: Header,
    writers: u64,
    index: Index,
}

#[derive(Debug)]
enum Index {
    Bp4(bp4::Index),
    Bp5(bp5::Index),
}

impl Directory {
    /// Finds each step. Incomplete steps are not listed.
    pub fn open(files: Files<'_>) -> Result<Self> {
        let header = Header::read(files.index).map_err(|fault| fault.at("md.idx"))?;
        let (index, writers) = match header.version {
            Version::Bp4 => {
                let index = bp4::Index::open(files, header)?;
                let writers = index.writers(files.metadata)?;
                (Index::Bp4(index), writers)
            }
            Version::Bp5 => {
                let index = bp5::Index::open(files, header)?;
                let writers = index.writers();
                (Index::Bp5(index), writers)
            }
        };
        Ok(Directory {
            header,
            writers,
            index,
        })
    }

    /// Number of steps that `md.idx` lists, whether or not their metadata are there.
    pub fn steps_of(index: &dyn Bytes) -> Result<usize> {
        let header = Header::read(index).map_err(|fault| fault.at("md.idx"))?;
        match header.version {
            Version::Bp4 => bp4::Index::steps_of(index),
            Version::Bp5 => bp5::Index::steps_of(index, &header),
        }
    }

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        match &self.index {
            Index::Bp4(index) => index.steps(),
            Index::Bp5(index) => index.steps(),
        }
    }

    /// The steps that have metadata. BP4 has none for an empty step, and any number of steps may be empty.
    pub fn numbers(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.index {
            Index::Bp4(index) => Box::new(index.numbers()),
            Index::Bp5(index) => Box::new(0..index.steps()),
        }
    }

    /// Bytes of metadata of a step, which [`Directory::step`] reads into memory; 0 if there is no such step.
    pub fn metadata_len(&self, number: usize) -> u64 {
        match &self.index {
            Index::Bp4(index) => index.metadata_len(number),
            Index::Bp5(index) => index.metadata_len(number),
        }
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let index = match &self.index {
            Index::Bp4(index) => index.bytes(),
            Index::Bp5(index) => index.bytes(),
        };
        size_of::<Self>() + index
    }

    /// Reads the metadata of one step. `is_asked` chooses variables by name; others cost as little as possible. If all
    /// of the metadata is damaged, the step has one problem and nothing else.
    pub fn step(
        &self,
        files: Files<'_>,
        number: usize,
        is_asked: &dyn Fn(&str) -> bool,
    ) -> Result<Step> {
        let asked = Asked::Some(is_asked);
        let section = self.section(files, number);
        damaged(section.and_then(|section| self.read(files, number, &section, asked)))
    }

    /// Reads all variables of a step as [`Directory::step`] does, without the details that do not affect the objects.
    /// Blocks may be merged. `section` is memory for the metadata, which the next step can reuse.
    pub fn outline(&self, files: Files<'_>, number: usize, section: &mut Vec<u8>) -> Result<Step> {
        let read = self.section_into(files, number, section);
        damaged(read.and_then(|()| self.read(files, number, section, Asked::Outline)))
    }

    /// What `summary` needs of a step: its outline, or each block where the outline does not tell enough, namely which
    /// blocks have bytes that are not there, or where the values of attributes are. `section`: as for
    /// [`Directory::outline`].
    pub fn outline_for(
        &self,
        summary: &Summary,
        files: Files<'_>,
        number: usize,
        section: &mut Vec<u8>,
        presence: &dyn Fn(&Place) -> Presence,
    ) -> Result<Needed> {
        let step = self.outline(files, number, section)?;
        if !summary.has_attributes_as_variables(&step) && is_complete(&step, presence) {
            return Ok(Needed::Outline(step));
        }
        Ok(Needed::All(self.step(files, number, &|_| true)?))
    }

    /// The stored metadata of one step, from which [`Directory::variable`] reads. Fails where it cannot be read.
    pub fn section(&self, files: Files<'_>, number: usize) -> Result<Vec<u8>> {
        let mut section = Vec::new();
        self.section_into(files, number, &mut section)?;
        Ok(section)
    }

    fn section_into(&self, files: Files<'_>, number: usize, section: &mut Vec<u8>) -> Result<()> {
        match &self.index {
            Index::Bp4(index) => bp4::section(index, files, number, section),
            Index::Bp5(index) => bp5::section(index, files, number, section),
        }
    }

    /// Reads one variable of a step as [`Directory::step`] does, without attributes. `section` is that of the step. In
    /// BP5 the cost does not depend on the number of other variables.
    pub fn variable(
        &self,
        files: Files<'_>,
        number: usize,
        section: &[u8],
        name: &str,
    ) -> Result<Step> {
        damaged(self.read(files, number, section, Asked::One(name)))
    }

    fn read(
        &self,
        files: Files<'_>,
        number: usize,
        section: &[u8],
        asked: Asked<'_>,
    ) -> Result<Step> {
        match &self.index {
            Index::Bp4(index) => bp4::step(index, number, section, asked),
            Index::Bp5(index) => bp5::step(index, files, number, section, asked),
        }
    }

    /// The format.
    pub fn version(&self) -> Version {
        self.header.version
    }

    /// All numbers are big-endian; otherwise little-endian.
    pub fn is_big_endian(&self) -> bool {
        self.header.is_big_endian
    }

    /// A writer has the directory open, or died without closing it.
    pub fn is_active(&self) -> bool {
        self.header.is_active
    }

    /// The steps are shown as one (section 3.9).
    pub fn is_flattened(&self) -> bool {
        self.header.is_flattened
    }

    /// The largest number of writers of a step.
    pub fn writers(&self) -> u64 {
        self.writers
    }

    /// Problems of the directory: steps left out, unknown bytes.
    pub fn problems(&self) -> &[String] {
        match &self.index {
            Index::Bp4(index) => index.problems(),
            Index::Bp5(index) => index.problems(),
        }
    }
}
