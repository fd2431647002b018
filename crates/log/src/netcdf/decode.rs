//! Turns the entries of a variable into records, and finds the data below them in the netCDF file.

use super::Variable;
use super::entry::{CheckedEntry, Entry, PutCall};
use super::metadata::{EntryError, FIRST_PAYLOAD, LogHeader};
use super::table::{EntryPosition, Table, name, source};
use crate::base::Base;
use crate::conversion::Conversion;
use crate::lattice::Lattice;
use crate::layout::DatasetRecords;
use crate::model::Logged;
use crate::model::{Encoding, Selection, Selections, StoredBytes};
use crate::numbers::{NumberConversion, NumberFormat, NumberType};
use crate::records::RecordList;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;

/// The context for decoding a variable.
pub(super) struct Decoder<'a> {
    pub task: &'a Task,
    pub table: &'a Table,
    pub sources: &'a [SourceFile],
    pub dataset: &'a Logged<'a>,
    pub selections: &'a Selections,
}

impl<'a> Decoder<'a> {
    /// The records of the variable. Fails when memory is short or the task stops, but not on damage.
    pub fn records(&self) -> Result<DatasetRecords, Fault> {
        let mut found = DatasetRecords::none(self.task, self.dataset.dims.len())?;
        let variable = match self.variable() {
            Ok(variable) => variable,
            Err(fault) => {
                found.add_diagnostic(Diagnostic::unreadable(fault.into_damage()?));
                return Ok(found);
            }
        };
        let places = usize::try_from(self.dataset.id).map(|id| self.table.of_variable(id));
        let places = places.unwrap_or(&[]);
        found.records = RecordList::new(self.task, variable.dims.len(), places.len())?;
        let mut window = None;
        for place in places {
            self.task.check()?;
            if let Err(fault) = self.add(place, variable, &mut window, &mut found) {
                let diagnostic = Diagnostic::unreadable(fault.into_damage()?).at(self.name(place));
                found.add_diagnostic(diagnostic);
            }
        }
        match self.base(variable) {
            Ok(Some(base)) => found.records.set_base(base),
            Ok(None) => {}
            Err(fault) => found.add_diagnostic(Diagnostic::unreadable(fault.into_damage()?)),
        }
        found.records.put_in_order()?;
        Ok(found)
    }

    /// The variable of the dataset. Fails if extents or types differ.
    fn variable(&self) -> Result<&'a Variable, Fault> {
        let variables = &self.table.tables.variables;
        let variable = usize::try_from(self.dataset.id).ok();
        let variable = variable.and_then(|id| variables.get(id));
        let is_dataset = |variable: &&Variable| {
            let fixed = usize::from(variable.is_record);
            let dims = &self.dataset.dims;
            variable.dims.len() == dims.len()
                && variable.dims[fixed..] == dims[fixed..]
                && variable.kind.size() as u64 == self.dataset.element_size
        };
        let variable = variable.filter(is_dataset);
        Ok(variable.ok_or_else(|| format!("dataset {} is not a variable", self.dataset.id))?)
    }

    /// Name of an entry in messages.
    fn name(&self, place: &EntryPosition) -> String {
        let log = self.table.tables.logs.get(place.log());
        let log = log.map(|log| name(self.sources, log)).unwrap_or_default();
        let (number, at) = (place.number(), place.position());
        format!("{log}: entry {number} at byte {at}")
    }

    /// Adds the record of an entry. `window` holds the number of the last log read, and a window over it.
    fn add(
        &self,
        place: &EntryPosition,
        variable: &Variable,
        window: &mut Option<(usize, Window<'a>)>,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let at = place.log();
        let (Some(log), Some(Some(header))) =
            (self.table.tables.logs.get(at), self.table.headers.get(at))
        else {
            return Err("is in no log".into());
        };
        if window.as_ref().is_none_or(|(there, _)| *there != at) {
            let source = source(self.sources, log.metadata)?;
            *window = Some((at, Window::over(source)));
        }
        let Some((_, window)) = window else {
            return Ok(());
        };
        let order = header.fields.order();
        let entry = Entry::read(window, order, place.position(), place.number());
        let entry = entry.map_err(EntryError::fault)?;
        let version = self.table.tables.version;
        let request = entry.check(window, variable, version);
        let request = request.map_err(EntryError::fault)?;
        if request.elements == 0 {
            return Ok(());
        }
        let lost = if place.is_astray() {
            Some("its payload does not follow the one before".into())
        } else {
            lost(self.sources, &entry, log.data)
        };
        let covered = covered(self.task, &entry, &request, window).map_err(EntryError::fault)?;
        let stored = StoredBytes {
            source: log.data.unwrap_or(log.metadata),
            offset: u64::try_from(entry.data_offset).unwrap_or(0),
            len: u64::try_from(entry.data_len).unwrap_or(0),
            encoding: Encoding::Raw,
        };
        self.push(covered, stored, place.order, found)?;
        if let Some(conversion) = conversion(&request, variable, header, version) {
            found.records.convert_last(&conversion)?;
        }
        if let Some(reason) = lost {
            let reason = format!("{}: {reason}", self.name(place));
            found.records.spoil_last(reason)?;
        }
        Ok(())
    }

    fn push(
        &self,
        covered: Coverage,
        stored: StoredBytes,
        order: u64,
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let list = &mut found.records;
        match covered {
            Coverage::Block(sides) => {
                let (start, count) = sides.split_at(sides.len() / 2);
                list.push_block(stored, order, start, count)
            }
            Coverage::Blocks(selection) => {
                let (selection, is_new) = self.selections.keep(order, selection);
                if is_new {
                    found.decoded += selection.bytes();
                }
                list.push_selection(stored, order, (order, selection), None)
            }
        }
    }

    /// The variable's elements in the netCDF file (section 7); `None` if the file ends before them.
    fn base(&self, variable: &Variable) -> Result<Option<Base>, Fault> {
        let len = source(self.sources, 0)?.len();
        let there = match len.checked_sub(variable.begin) {
            Some(there) if there > 0 => there,
            _ => return Ok(None),
        };
        let mut dims = self.dataset.dims.to_vec();
        let step = if variable.is_record {
            self.table.tables.record_size
        } else {
            variable.row_bytes().unwrap_or(u64::MAX)
        };
        if let Some(rows) = dims.first_mut() {
            let begun = there.checked_div(step).map(|_| there.div_ceil(step));
            *rows = begun.unwrap_or(0).min(*rows);
        }
        let number = |big_endian| NumberFormat {
            kind: variable.kind,
            big_endian,
        };
        let conversion = (variable.kind.size() > 1).then(|| {
            let numbers = NumberConversion {
                from: number(true),
                to: number(false),
                fill: variable.fill,
            };
            numbers.into()
        });
        let element = self.dataset.element_size;
        Base::new((0, variable.begin), step, dims, element, conversion).map(Some)
    }
}

/// The reason why the payload of an entry cannot be read, if there is one.
pub(super) fn lost(sources: &[SourceFile], entry: &Entry, data: Option<u16>) -> Option<String> {
    let Some(data) = data else {
        return Some("its payload is lost: the data log is missing".into());
    };
    let there = source(sources, data).map(|source| (source.len(), source.path()));
    match (there, entry.data_end()) {
        (Err(fault), _) => Some(fault.to_string()),
        (Ok((there, path)), Some(end)) if end.unsigned_abs() > there => Some(format!(
            "its payload ends at {end}, past the end of {} at {there}",
            path.display()
        )),
        (_, Some(_)) if entry.data_offset >= FIRST_PAYLOAD => None,
        _ => Some(format!("its payload begins at {}", entry.data_offset)),
    }
}

/// The conversion of a payload to the variable's type; `None` if both have the same bytes.
fn conversion(
    request: &CheckedEntry,
    variable: &Variable,
    header: &LogHeader,
    version: u8,
) -> Option<Conversion> {
    // Section 2.7: CDF-1 and CDF-2 have no unsigned bytes, so PnetCDF does not convert these.
    let kind = match (request.kind, variable.kind, version) {
        (NumberType::U8, NumberType::I8, 1 | 2) => NumberType::I8,
        (kind, ..) => kind,
    };
    let big_endian = header.fields.big_endian;
    let is_same = kind == variable.kind && (kind.size() == 1 || !big_endian);
    let numbers = NumberConversion {
        from: NumberFormat { kind, big_endian },
        to: NumberFormat {
            kind: variable.kind,
            big_endian: false,
        },
        fill: variable.fill,
    };
    (!is_same).then(|| numbers.into())
}

/// The selection of an entry.
enum Coverage {
    /// One block: starts, then counts.
    Block(Vec<u64>),
    Blocks(Reserved<Selection>),
}

impl Coverage {
    /// A selection of `number` blocks. `start` and `count` take a block and a dimension.
    fn blocks(
        task: &Task,
        rank: usize,
        number: usize,
        start: impl Fn(usize, usize) -> u64 + Sync,
        count: impl Fn(usize, usize) -> u64 + Sync,
    ) -> Result<Self, EntryError> {
        if number == 1 {
            let starts = (0..rank).map(|d| start(0, d));
            return Ok(Coverage::Block(
                starts.chain((0..rank).map(|d| count(0, d))).collect(),
            ));
        }
        let selection = Selection::new(task, rank, number, start, count);
        Ok(Coverage::Blocks(selection?))
    }
}

/// The selection of an entry. The entry must have elements and have passed all checks.
fn covered(
    task: &Task,
    entry: &Entry,
    request: &CheckedEntry,
    window: &mut Window<'_>,
) -> Result<Coverage, EntryError> {
    let rank = entry.rank as usize;
    let mut sides = Vec::new();
    if let PutCall::Varn { .. } = entry.call {
        let mut reservation = task.reservation();
        entry.each_subarray(window, |part| {
            if !part.is_empty() {
                reservation.make_room(&mut sides, 2 * rank)?;
                sides.extend(part.sides().map(|side| side.start));
                sides.extend(part.sides().map(|side| side.count));
            }
            Ok(())
        })?;
        let side = |block: usize, at: usize| sides[2 * rank * block + at];
        let number = request.subarrays as usize;
        return Coverage::blocks(task, rank, number, side, |block, d| side(block, rank + d));
    }
    let mut stride = Vec::new();
    entry.each_subarray(window, |part| {
        sides.extend(part.sides().map(|side| side.start));
        sides.extend(part.sides().map(|side| side.count));
        stride.extend(part.sides().map(|side| side.stride));
        Ok(())
    })?;
    let (start, count) = sides.split_at(rank);
    let lattice = Lattice::new(start.to_vec(), count.to_vec(), stride);
    let lattice = lattice.map_err(EntryError::from)?;
    Ok(match lattice.blocks() {
        1 => Coverage::Block(sides),
        _ => {
            let selection = Selection::strided(lattice).reserved(task);
            Coverage::Blocks(selection?)
        }
    })
}
