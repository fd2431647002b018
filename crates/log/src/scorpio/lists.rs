//! The lists about a variable in one step.

use super::{Tables, VariableSource};
use crate::adios::steps::{ReadStep, Sections, read_variable};
use crate::source_file::SourceFile;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::{Place, Variable};
use h5logfs_adios::scorpio::{
    Counted, Frame, Lists, Track, Values, count_off, frames_of, map_writers_of, of_groups, track_of,
};
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// Reads variables of the directory.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub task: &'a Task,
    pub tables: &'a Tables,
    pub directory: &'a Directory,
    pub sections: &'a Sections,
    pub files: Files<'a>,
    pub sources: &'a [SourceFile],
}

impl Reader<'_> {
    /// A variable of ADIOS2 in one step. The step has none, or problems, where it is not there.
    pub fn variable(&self, step: u64, name: &str) -> Result<ReadStep, Fault> {
        let asked = (step, name);
        read_variable(self.task, self.directory, self.sections, self.files, asked)
    }

    /// Calls `with` with the means to read small arrays.
    pub fn with_values<T>(&self, with: impl FnOnce(&Values<'_>) -> T) -> T {
        let read =
            |place: &Place, buffer: &mut [u8]| self.tables.parts.read(place, self.sources, buffer);
        with(&Values {
            read: &read,
            is_big_endian: self.directory.is_big_endian(),
        })
    }

    /// The frames of a variable in a step, with fill values of its type.
    pub fn frames(&self, step: u64, of: &VariableSource) -> Result<Vec<Frame>, Fault> {
        let list = |track| self.variable(step, &track_of(track, &of.name));
        let (maps, numbers) = (list(Track::Map)?, list(Track::Number)?);
        let fills = list(Track::Fill)?;
        let lists = Lists {
            maps: maps.step.variables.first(),
            numbers: numbers.step.variables.first(),
            fills: fills.step.variables.first(),
        };
        let bytes = [lists.maps, lists.numbers, lists.fills];
        let _reserved = self.reserve(bytes.into_iter().flatten())?;
        let mut frames = self.with_values(|values| frames_of(lists, values))?;
        if let Some(list) = lists.fills.filter(|list| !of.ty.is_stored_as(&list.ty)) {
            let conversion = of.conversion(&list.ty, self.directory.is_big_endian())?;
            for fill in frames.iter_mut().filter_map(|frame| frame.fill.as_mut()) {
                let mut converted = vec![0; conversion.to.kind.size()];
                conversion.convert(fill, &mut converted);
                *fill = converted;
            }
        }
        Ok(frames)
    }

    /// The blocks of each of `frames` frames of a variable in a step, in which the variable has `blocks` blocks.
    pub fn counted(
        &self,
        step: u64,
        name: &str,
        (frames, blocks): (usize, usize),
    ) -> Result<Vec<Counted>, Fault> {
        self.count(step, &track_of(Track::Writers, name), (frames, blocks))
    }

    /// The blocks of a map, by group.
    pub fn counted_map(&self, step: u64, id: i64, blocks: usize) -> Result<Vec<Counted>, Fault> {
        self.count(step, &map_writers_of(id), (1, blocks))
    }

    fn count(
        &self,
        step: u64,
        list: &str,
        (frames, blocks): (usize, usize),
    ) -> Result<Vec<Counted>, Fault> {
        let groups = &self.tables.groups;
        let read = self.variable(step, list)?;
        let writers = match read.step.variables.first() {
            Some(list) => {
                let _reserved = self.reserve(std::iter::once(list))?;
                let numbers = self.with_values(|values| values.numbers(list))?;
                of_groups(numbers, groups.len())?
            }
            // Since release 1.4.1 only roots write. A list for more frames than there are blocks is not made.
            None if frames.checked_mul(groups.len()) == Some(blocks) => {
                vec![vec![1; frames]; groups.len()]
            }
            None => {
                let groups = groups.len();
                return Err(
                    format!("{blocks} blocks for {frames} frames of {groups} groups").into(),
                );
            }
        };
        count_off(groups, &writers, frames, blocks)
    }

    /// Reserves the memory of small arrays: their bytes, and numbers of 8 bytes.
    fn reserve<'v>(
        &self,
        lists: impl Iterator<Item = &'v Variable>,
    ) -> Result<h5logfs_common::memory::Reservation, Fault> {
        let elements = lists.flat_map(|list| &list.counts);
        let elements = elements.fold(0u64, |all, count| all.saturating_add(*count));
        Ok(self.task.reserve(elements.saturating_mul(24))?)
    }
}
