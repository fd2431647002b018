//! The steps of one directory, of either version.
//!
//! [`Directory::open`] walks through `md.idx` and keeps where the metadata of each step lie; [`Directory::step`] reads those of
//! one. So what is asked for decides what is read.

use crate::asked::Asked;
use crate::header::{Header, Version};
use crate::model::Step;
use crate::{Result, bp4, bp5};

pub use crate::Files;

/// Of metadata that are damaged as a whole there is nothing but a problem.
fn damaged(step: Result<Step>) -> Result<Step> {
    match step {
        Ok(step) => Ok(step),
        Err(fault) => Ok(Step {
            problems: vec![fault.into_damage()?],
            ..Step::default()
        }),
    }
}

/// Where the metadata of all steps of one directory lie.
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
    /// Reads where each step lies. Steps that are not complete yet, or no more, are not there.
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

    /// Number of complete steps.
    pub fn steps(&self) -> usize {
        match &self.index {
            Index::Bp4(index) => index.steps(),
            Index::Bp5(index) => index.steps(),
        }
    }

    /// The steps that have metadata. BP4 has none of a step into which nothing was put, which may be any number of steps.
    pub fn numbers(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        match &self.index {
            Index::Bp4(index) => Box::new(index.numbers()),
            Index::Bp5(index) => Box::new(0..index.steps()),
        }
    }

    /// Bytes of metadata of a step, which [`Directory::step`] reads into memory; 0 of one that is not there.
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

    /// Reads the metadata of one step. `is_asked` chooses variables by name: others cost as little as can be. Of a step whose
    /// metadata are damaged as a whole there is nothing but a problem.
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

    /// As [`Directory::step`], of all variables, as far as that decides the objects: blocks may be told together. `section` is
    /// memory for the metadata, which the next step may have, too.
    pub fn outline(&self, files: Files<'_>, number: usize, section: &mut Vec<u8>) -> Result<Step> {
        let read = self.section_into(files, number, section);
        damaged(read.and_then(|()| self.read(files, number, section, Asked::Outline)))
    }

    /// The metadata of one step, as they are stored: [`Directory::variable`] reads from them. Fails where they cannot be read.
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

    /// As [`Directory::step`], of one variable, without attributes. `section`: that of the step. Of BP5 it costs as little for one
    /// variable of thousands as for the only one.
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

    /// Its format.
    pub fn version(&self) -> Version {
        self.header.version
    }

    /// All numbers are big-endian; else little-endian.
    pub fn is_big_endian(&self) -> bool {
        self.header.is_big_endian
    }

    /// A writer has it open, or ended without closing it.
    pub fn is_active(&self) -> bool {
        self.header.is_active
    }

    /// The steps are to be shown as one (section 3.9).
    pub fn is_flattened(&self) -> bool {
        self.header.is_flattened
    }

    /// The largest number of writers of a step.
    pub fn writers(&self) -> u64 {
        self.writers
    }

    /// What is wrong with the directory: steps that are left out, bytes that nobody knows.
    pub fn problems(&self) -> &[String] {
        match &self.index {
            Index::Bp4(index) => index.problems(),
            Index::Bp5(index) => index.problems(),
        }
    }
}
