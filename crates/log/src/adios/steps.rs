//! Reads the steps of a directory.

use super::{INDEX, METADATA, Tables};
use crate::source_file::SourceFile;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::{Bytes, Step};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

impl Bytes for SourceFile {
    fn len(&self) -> u64 {
        self.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<(), Fault> {
        Ok(self.read_exact_at(buffer, at)?)
    }
}

/// The files of a directory that have metadata.
pub(super) fn files<'a>(tables: &Tables, sources: &'a [SourceFile]) -> Result<Files<'a>, Fault> {
    let source = |number: u16| -> Result<&dyn Bytes, Fault> {
        let source = sources.get(usize::from(number));
        Ok(source.ok_or("a directory without its files")?)
    };
    Ok(Files {
        index: source(INDEX)?,
        metadata: source(METADATA)?,
        formats: tables.formats.map(source).transpose()?,
    })
}

/// A step, and the memory for it.
#[derive(Debug)]
pub(super) struct ReadStep {
    pub step: Step,
    _reservation: Reservation,
}

/// Reads a step with the variables whose names are asked for. Fails where there is no such step, where there is no memory, and
/// where `task` stops.
pub(super) fn read(
    task: &Task,
    directory: &Directory,
    files: Files<'_>,
    number: u64,
    is_asked: &dyn Fn(&str) -> bool,
) -> Result<ReadStep, Fault> {
    task.check()?;
    let number = usize::try_from(number)?;
    if number >= directory.steps() {
        return Err(format!("there are {} complete steps", directory.steps()).into());
    }
    // The metadata themselves, and what is made of them.
    let reservation = task.reserve(directory.metadata_len(number).saturating_mul(2))?;
    Ok(ReadStep {
        step: directory.step(files, number, is_asked)?,
        _reservation: reservation,
    })
}
