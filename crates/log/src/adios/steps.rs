//! Reads the steps of a directory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::source_file::SourceFile;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::{Bytes, Step, Variable};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::sync::Mutex;
use h5logfs_common::task::Task;

impl Bytes for SourceFile {
    fn len(&self) -> u64 {
        self.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<(), Fault> {
        Ok(self.read_exact_at(buffer, at)?)
    }
}

/// A step and its memory.
#[derive(Debug)]
pub(crate) struct ReadStep {
    pub step: Step,
    _reservation: Reservation,
}

impl ReadStep {
    /// The only variable, which was requested.
    pub fn the_variable(&self) -> Result<&Variable, Fault> {
        let problem = || {
            let first = self.step.problems.first();
            first
                .map_or("no longer exists", |problem| problem)
                .to_owned()
        };
        Ok(self.step.variables.first().ok_or_else(problem)?)
    }
}

/// Bytes of sections kept.
const KEPT: u64 = 4 << 20;
/// Bytes of a larger section that is kept alone. A directory of one step has a single section, however long, and every
/// variable is read from it.
const KEPT_ALONE: u64 = 128 << 20;

/// The sections of the steps read last. After one variable, a reader mostly reads others of the same steps.
#[derive(Debug, Default)]
pub(crate) struct Sections(Mutex<VecDeque<(usize, Arc<Vec<u8>>)>>);

impl Sections {
    /// Upper bound of the kept bytes for a directory.
    pub fn most_bytes(directory: &Directory) -> u64 {
        let each = || {
            let numbers = directory.numbers();
            numbers.map(|number| directory.metadata_len(number))
        };
        let alone = each().filter(|len| *len <= KEPT_ALONE).max().unwrap_or(0);
        let all = each().fold(0, u64::saturating_add);
        all.min(KEPT.max(alone))
    }

    /// The section of a step.
    fn get(
        &self,
        directory: &Directory,
        files: Files<'_>,
        number: usize,
    ) -> Result<Arc<Vec<u8>>, Fault> {
        if let Some((_, section)) = self.0.lock().iter().find(|(kept, _)| *kept == number) {
            return Ok(Arc::clone(section));
        }
        let section = Arc::new(directory.section(files, number)?);
        let mut kept = self.0.lock();
        // Another thread may have read the section meanwhile.
        kept.retain(|(of, _)| *of != number);
        kept.push_back((number, Arc::clone(&section)));
        let mut bytes: u64 = kept.iter().map(|(_, section)| section.len() as u64).sum();
        while bytes > KEPT
            && (kept.len() > 1 || bytes > KEPT_ALONE)
            && let Some((_, first)) = kept.pop_front()
        {
            bytes -= first.len() as u64;
        }
        Ok(section)
    }
}

/// Reads a step with all variables. Fails where there is no such step, when memory is short, and when `task` stops.
pub(crate) fn read(
    task: &Task,
    directory: &Directory,
    files: Files<'_>,
    number: u64,
) -> Result<ReadStep, Fault> {
    read_as(task, directory, number, |number| {
        directory.step(files, number, &|_| true)
    })
}

/// Reads one variable of a step, without attributes. Fails as [`read`] does.
pub(crate) fn read_variable(
    task: &Task,
    directory: &Directory,
    sections: &Sections,
    files: Files<'_>,
    (number, name): (u64, &str),
) -> Result<ReadStep, Fault> {
    read_as(task, directory, number, |number| {
        let section = sections.get(directory, files, number)?;
        directory.variable(files, number, &section, name)
    })
}

fn read_as(
    task: &Task,
    directory: &Directory,
    number: u64,
    read: impl FnOnce(usize) -> Result<Step, Fault>,
) -> Result<ReadStep, Fault> {
    task.check()?;
    let number = usize::try_from(number)?;
    if number >= directory.steps() {
        return Err(format!("there are {} complete steps", directory.steps()).into());
    }
    // The metadata, and the data decoded from it.
    let mut reservation = task.reserve(directory.metadata_len(number).saturating_mul(2))?;
    let step = read(number)?;
    reservation.shrink_to(reservation.bytes().min(step.bytes()));
    Ok(ReadStep {
        step,
        _reservation: reservation,
    })
}
