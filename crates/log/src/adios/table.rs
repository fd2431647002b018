//! Turns the blocks of steps into records.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::steps::{Sections, read_variable};
use super::{DatasetSource, Tables};
use crate::conversion::{Conversion, Padding};
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::Logged;
use crate::model::Selections;
use crate::origins::Origins;
use crate::source_file::SourceFile;
use crate::tiling::{SMALLEST_TILE, Tiling, Tilings};
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::{Block, Kind, Type, Variable};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// The places of the metadata of all steps. The blocks of a dataset are read on demand.
#[derive(Debug)]
struct Table {
    tables: Tables,
    directory: Directory,
    sections: Sections,
    reservation: Reservation,
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "ADIOS2 BP"
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
            directory,
        }))
    }

    fn tables_len(&self, sources: &[SourceFile]) -> u64 {
        self.parts.metadata_len(sources)
    }

    fn strip(&self, dataset: i64) -> Option<u64> {
        let source = self.datasets.get(usize::try_from(dataset).ok()?)?;
        (source.has_steps && self.strip > 0).then_some(self.strip)
    }

    fn tilings(&self, sources: &[SourceFile]) -> Tilings {
        let found = self.find_tilings(sources);
        found.unwrap_or_else(|_| Tilings::of_damaged())
    }

    fn origins(&self, task: &Task, sources: &[SourceFile]) -> Origins {
        self.parts.origins(task, sources)
    }
}

impl RecordTable for Table {
    /// The scan reports problems of the directory, and datasets lack the steps that it left out.
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
        self.records_of_rows(task, sources, dataset, selections, 0..u64::MAX)
    }

    fn records_of_rows(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        _: &Selections,
        rows: Range<u64>,
    ) -> Result<DatasetRecords, Fault> {
        let mut found = DatasetRecords::none(task, dataset.dims.len())?;
        let source = usize::try_from(dataset.id).ok();
        let Some(of) = source.and_then(|source| self.tables.datasets.get(source)) else {
            let text = format!("dataset {} comes from no variable", dataset.id);
            found.add_diagnostic(Diagnostic::unreadable(text));
            return Ok(found);
        };
        let reading = Reading {
            task,
            table: self,
            sources,
            files: self.tables.parts.files(sources)?,
            dataset,
            of,
        };
        // Rows can be read without the earlier ones only in a dataset with steps.
        let rows = if of.has_steps { rows } else { 0..u64::MAX };
        let mut before = 0;
        for row in rows {
            let Some(number) = of.steps.get(row) else {
                break;
            };
            if let Err(fault) = reading.add(row, number, &mut before, &mut found) {
                let place = format!("variable {:?} in step {number}", &*of.variable);
                let diagnostic = Diagnostic::unreadable(fault.into_damage()?).at(place);
                found.add_diagnostic(diagnostic);
                // One such diagnostic makes the whole dataset unreadable, so later steps need not be read.
                break;
            }
        }
        found.records.put_in_order()?;
        Ok(found)
    }

    /// Number of datasets times steps.
    fn entries(&self) -> usize {
        let steps = self
            .tables
            .datasets
            .iter()
            .map(|of| of.steps.len() as usize);
        steps.fold(0, usize::saturating_add)
    }

    fn bytes(&self) -> usize {
        self.directory.bytes()
    }

    fn release_share(&self) {
        self.reservation.release_share();
    }
}

/// State while the records of a dataset are made.
struct Reading<'a> {
    task: &'a Task,
    table: &'a Table,
    sources: &'a [SourceFile],
    files: Files<'a>,
    dataset: &'a Logged<'a>,
    of: &'a DatasetSource,
}

impl Reading<'_> {
    /// Adds the records of a step. `before` is the number of blocks in earlier steps.
    fn add(
        &self,
        row: u64,
        number: u64,
        before: &mut u64,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let Table {
            directory,
            sections,
            ..
        } = self.table;
        let asked = (number, &*self.of.variable);
        let read = read_variable(self.task, directory, sections, self.files, asked)?;
        let variable = read.the_variable()?;
        let size = variable.ty.shown_size();
        if size != self.dataset.element_size {
            return Err(format!("its elements have {size} bytes").into());
        }
        let conversion = conversion_of(variable, directory.is_big_endian());
        self.of
            .each_block(variable, row, *before, |block, start, count| {
                if start.len() != self.dataset.dims.len() {
                    return Err(format!("it has {} dimensions", start.len()).into());
                }
                self.push(block, number, start, count, found)?;
                if let Some(conversion) = conversion {
                    found.records.convert_last(&conversion)?;
                }
                Ok(())
            })?;
        self.of.go_on(variable, before);
        Ok(())
    }

    fn push(
        &self,
        block: &Block,
        number: u64,
        start: &[u64],
        count: &[u64],
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let (stored, reason) = self.table.tables.parts.stored(block, self.sources);
        let order = found.records.len() as u64;
        found.records.push_block(stored, order, start, count)?;
        match reason {
            Some(reason) => {
                let writer = block.writer;
                let reason = format!("the block of writer {writer} in step {number}: {reason}");
                found.records.spoil_last(reason)
            }
            None => Ok(()),
        }
    }
}

/// The conversion that zeroes the padding after structs and after single values of long double: the padding holds
/// whatever was in the writer's memory. Arrays of long double keep their padding, so that a chunk is read unchanged.
fn conversion_of(variable: &Variable, is_big_endian: bool) -> Option<Conversion> {
    /// Bytes of an x87 number.
    const X87: u64 = 10;
    let (stored, shown) = (variable.ty.size(), variable.ty.shown_size());
    let value = match (&variable.ty, variable.kind) {
        (Type::LongDouble, Kind::GlobalValue | Kind::LocalValue) if !is_big_endian => X87,
        _ => shown,
    };
    let padding = || {
        let [stored, value, shown] = [stored, value, shown].map(|size| u32::try_from(size).ok());
        Padding::new(stored?, value?, shown?)
    };
    (value < stored)
        .then(padding)
        .flatten()
        .map(Conversion::from)
}

impl DatasetSource {
    /// Calls `visit` with the blocks of a step that belong to the dataset, in the order in which they apply, and the
    /// box of each in the dataset. `row` is the step's index in the dataset. `before` is the number of blocks in
    /// earlier steps.
    fn each_block(
        &self,
        variable: &Variable,
        row: u64,
        before: u64,
        mut visit: impl FnMut(&Block, &[u64], &[u64]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let lead = self.has_steps.then_some(row);
        let (mut start, mut count) = (Vec::new(), Vec::new());
        for number in self.blocks_of(variable, before) {
            let block = &variable.blocks[number];
            start.clear();
            count.clear();
            start.extend(lead);
            count.extend(lead.map(|_| 1));
            if variable.kind == Kind::LocalValue {
                start.push(number as u64);
                count.push(1);
            } else {
                start.extend_from_slice(variable.start(number));
                count.extend_from_slice(variable.count(number));
            }
            visit(block, &start, &count)?;
        }
        Ok(())
    }

    /// The indices of the step's blocks that belong to the dataset. `before` is the number of blocks in earlier
    /// steps.
    fn blocks_of(&self, variable: &Variable, before: u64) -> Range<usize> {
        let all = 0..variable.blocks.len();
        let Some(block) = self.block else {
            return all;
        };
        let own = block.checked_sub(before).map(usize::try_from);
        match own {
            Some(Ok(own)) if all.contains(&own) => own..own + 1,
            _ => 0..0,
        }
    }

    /// Adds the blocks of a step to the tiling. Returns whether its tile may become a chunk.
    fn add_to(
        &self,
        tiling: &mut Tiling,
        variable: &Variable,
        number: u64,
        before: &mut u64,
    ) -> Result<bool, Fault> {
        let Some(row) = self.steps.position(number) else {
            return Ok(true);
        };
        let mut sides: Vec<(u64, u64)> = Vec::new();
        self.each_block(variable, row, *before, |block, start, count| {
            sides.clear();
            sides.extend(start.iter().copied().zip(count.iter().copied()));
            if block.has_operator {
                tiling.add_encoded(&sides);
            } else {
                tiling.add(&sides);
            }
            Ok(())
        })?;
        self.go_on(variable, before);
        let mut dims: Vec<u64> = self
            .has_steps
            .then(|| self.steps.len())
            .into_iter()
            .collect();
        if self.block.is_none() {
            dims.extend_from_slice(&variable.shape);
        } else if sides.is_empty() {
            // The block is in a later step.
            return Ok(true);
        } else {
            dims.extend(sides.iter().skip(dims.len()).map(|(_, count)| *count));
        }
        let elements = SMALLEST_TILE.div_ceil(variable.ty.size().max(1));
        Ok(!tiling.stays_below(&dims, elements))
    }

    /// Adds the number of a step's blocks to `before`. This count matters where steps are flattened.
    fn go_on(&self, variable: &Variable, before: &mut u64) {
        if !self.has_steps {
            *before += variable.blocks.len() as u64;
        }
    }
}

impl Tables {
    /// Walks through the steps until no dataset's tile can become a chunk. Fails where a step cannot be read.
    fn find_tilings(&self, sources: &[SourceFile]) -> Result<Tilings, Fault> {
        let files = self.parts.files(sources)?;
        let directory = Directory::open(files)?;
        let mut known = Known::of(&self.datasets);
        let mut before = HashMap::new();
        let mut found = Tilings::default();
        for number in directory.numbers() {
            if known.names.is_empty() {
                break;
            }
            let step = directory.step(files, number, &|name| known.names.contains(name))?;
            found.has_unreadable |= !step.problems.is_empty();
            for variable in &step.variables {
                let mut may_be_chunks = false;
                for id in known.of_step(&variable.name, number as u64) {
                    let before = before.entry(id).or_insert(0);
                    let tiling = found.by_dataset.entry(id as i64).or_default();
                    may_be_chunks |=
                        self.datasets[id].add_to(tiling, variable, number as u64, before)?;
                }
                if !may_be_chunks && !known.of_one.contains_key(&*variable.name) {
                    known.names.remove(&*variable.name);
                }
            }
        }
        Ok(found)
    }
}

/// Datasets by variable.
#[derive(Debug, Default)]
struct Known<'a> {
    names: HashSet<&'a str>,
    /// Datasets of a single step, of which a variable may have many.
    of_one: HashMap<&'a str, HashMap<u64, Vec<usize>>>,
    /// All other datasets.
    of_many: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Known<'a> {
    fn of(datasets: &'a [DatasetSource]) -> Self {
        let mut known = Known::default();
        for (number, dataset) in datasets.iter().enumerate() {
            let name = &*dataset.variable;
            known.names.insert(name);
            let numbers = match (dataset.steps.len(), dataset.steps.last()) {
                (1, Some(step)) => known
                    .of_one
                    .entry(name)
                    .or_default()
                    .entry(step)
                    .or_default(),
                _ => known.of_many.entry(name).or_default(),
            };
            numbers.push(number);
        }
        known
    }

    /// Datasets that may have blocks of this variable in this step.
    fn of_step(&self, variable: &str, step: u64) -> impl Iterator<Item = usize> {
        let of_one = self.of_one.get(variable).and_then(|steps| steps.get(&step));
        let of_many = self.of_many.get(variable);
        of_one.into_iter().chain(of_many).flatten().copied()
    }
}
