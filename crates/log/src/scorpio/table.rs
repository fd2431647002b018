//! The layout: the records of each variable.

use std::collections::HashSet;
use std::path::Path;

use super::frames::Frames;
use super::lists::Reader;
use super::maps::Maps;
use super::puts::Puts;
use super::{Tables, VariableSource, Written, number_type};
use crate::adios::steps::Sections;
use crate::conversion::Constant;
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::{Logged, Selections};
use crate::origins::Origins;
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_adios::directory::Directory;
use h5logfs_adios::scorpio::NcType;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// The most decompositions that `h5logfs inspect` lists.
const MOST_FACTS: usize = 16;

/// The places of the metadata of all steps, and the maps that were looked at.
#[derive(Debug)]
struct Table {
    tables: Tables,
    directory: Directory,
    sections: Sections,
    maps: Maps,
    reservation: Reservation,
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "SCORPIO in ADIOS2 BP"
    }

    /// The groups of processes, and the shapes of the decompositions.
    fn facts(&self, _: &[&Path]) -> Vec<String> {
        let processes: usize = self.groups.iter().map(Vec::len).sum();
        let count = |number: usize, one: &str, many: &str| match number {
            1 => format!("1 {one}"),
            number => format!("{number} {many}"),
        };
        let written = format!(
            "written by {} in {}",
            count(processes, "process", "processes"),
            count(self.groups.len(), "group", "groups")
        );
        let maps = self.maps.iter().take(MOST_FACTS);
        let maps = maps.map(|map| format!("{} {:?} in step {}", map.id, map.dims, map.step));
        let mut maps: Vec<String> = maps.collect();
        if let Some(more) = self
            .maps
            .len()
            .checked_sub(MOST_FACTS)
            .filter(|more| *more > 0)
        {
            maps.push(format!("and {more} more"));
        }
        if maps.is_empty() {
            return vec![written];
        }
        vec![written, format!("decompositions: {}", maps.join(", "))]
    }

    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        _: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        let directory = Directory::open(self.parts.files(sources)?)?;
        let bytes = directory.bytes() as u64 + Sections::most_bytes(&directory);
        Ok(Box::new(Table {
            reservation: task.reserve(bytes)?,
            tables: self.clone(),
            sections: Sections::default(),
            maps: Maps::default(),
            directory,
        }))
    }

    fn tables_len(&self, sources: &[SourceFile]) -> u64 {
        self.parts.metadata_len(sources)
    }

    /// None: a chunk is a frame, or a part of it, whatever the processes have of it.
    fn tilings(&self, _: &[SourceFile]) -> Tilings {
        Tilings::default()
    }

    fn origins(&self, task: &Task, sources: &[SourceFile]) -> Origins {
        self.parts.origins(task, sources)
    }
}

impl RecordTable for Table {
    /// The scan reports problems of the directory.
    fn diagnostics(&self) -> &[Diagnostic] {
        &[]
    }

    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> Result<DatasetRecords, Fault> {
        let mut found = DatasetRecords::none(task, dataset.dims.len())?;
        let variable = usize::try_from(dataset.id).ok();
        let variable = variable.and_then(|number| self.tables.variables.get(number));
        let Some(of) = variable.filter(|of| of.ty.stored().size() == dataset.element_size) else {
            let text = format!("dataset {} comes from no variable", dataset.id);
            found.add_diagnostic(Diagnostic::unreadable(text));
            return Ok(found);
        };
        let reader = Reader {
            task,
            tables: &self.tables,
            directory: &self.directory,
            sections: &self.sections,
            files: self.tables.parts.files(sources)?,
            sources,
        };
        let mut add = self.adder(reader, of, dataset, selections)?;
        for step in of.steps.iter() {
            if let Err(fault) = add(step, &mut found) {
                let place = format!("variable {} in step {step}", of.name);
                let diagnostic = Diagnostic::unreadable(fault.into_damage()?).at(place);
                found.add_diagnostic(diagnostic);
                break;
            }
        }
        drop(add);
        found.records.put_in_order()?;
        Ok(found)
    }

    /// Number of variables times steps.
    fn entries(&self) -> usize {
        let steps = self
            .tables
            .variables
            .iter()
            .map(|of| of.steps.len() as usize);
        steps.fold(0, usize::saturating_add)
    }

    fn bytes(&self) -> usize {
        self.directory.bytes() + self.maps.bytes()
    }

    fn release_share(&self) {
        self.reservation.release_share();
    }
}

/// Adds the records of one step.
type Adder<'a> = Box<dyn FnMut(u64, &mut DatasetRecords) -> Result<(), Fault> + 'a>;

impl Table {
    fn adder<'a>(
        &'a self,
        reader: Reader<'a>,
        of: &'a VariableSource,
        dataset: &'a Logged<'a>,
        selections: &'a Selections,
    ) -> Result<Adder<'a>, Fault> {
        let size = dataset.element_size as usize;
        let fill = of.fill.get(..size).and_then(Constant::new);
        let fill = fill.ok_or("a fill value of another size")?;
        Ok(match of.written {
            Written::Frames => {
                let default = default_fill(of.ty, self.directory.is_big_endian());
                let mut frames = Frames {
                    reader,
                    maps: &self.maps,
                    of,
                    dataset,
                    selections,
                    default_fill: Constant::new(&default[..size]).unwrap_or(fill),
                    fill,
                    seen: HashSet::new(),
                };
                Box::new(move |step, found| frames.add(step, found))
            }
            Written::Puts(memory) => {
                let mut puts = Puts {
                    reader,
                    of,
                    dataset,
                    memory,
                    fill,
                    puts: 0,
                };
                Box::new(move |step, found| puts.add(step, found))
            }
        })
    }
}

/// The default fill value of a type (section 3), in the first bytes.
pub fn default_fill(ty: NcType, is_big_endian: bool) -> [u8; 8] {
    let mut fill = match ty {
        NcType::Char => [0; 8],
        _ => number_type(ty).default_fill(),
    };
    if is_big_endian {
        fill[..ty.stored().size() as usize].reverse();
    }
    fill
}
