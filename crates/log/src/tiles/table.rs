//! The layout: the records of each variable.

use std::ops::Range;
use std::path::Path;

use super::chunks::Hdf5Members;
use super::facts;
use super::parts::{Adder, Whole};
use super::{Axis, FileKind, Holders, Member, Tables, Variable};
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::{Logged, Selections};
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// About the number of pieces in one strip.
const IN_STRIP: u64 = 1 << 15;

/// The tables, and the chunk indexes that were read last.
#[derive(Debug)]
struct Table {
    tables: Tables,
    hdf5: Hdf5Members,
    reservation: Reservation,
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "netCDF tiles"
    }

    fn facts(&self, files: &[&Path]) -> Vec<String> {
        facts::of(self, files)
    }

    fn read_tables(
        &self,
        task: &Task,
        _: &[SourceFile],
        _: &[Logged<'_>],
    ) -> Result<Box<dyn RecordTable>, Fault> {
        let reservation = task.reserve(self.bytes() as u64)?;
        Ok(Box::new(Table {
            tables: self.clone(),
            hdf5: Hdf5Members::default(),
            reservation,
        }))
    }

    /// A strip has several records of all members.
    fn strip(&self, dataset: i64) -> Option<u64> {
        let of = self.variable(dataset).ok()?;
        let has_records = matches!(of.dims.first(), Some(Axis::Records(_)));
        has_records.then(|| (IN_STRIP / self.members.len().max(1) as u64).max(1))
    }

    /// Each member has all records.
    fn has_equal_rows(&self, dataset: i64) -> bool {
        let axis = self.variable(dataset).map(|of| of.dims.first());
        let Ok(Some(Axis::Records(number))) = axis else {
            return false;
        };
        let mut records = self
            .members
            .iter()
            .map(|member| member.records[usize::from(*number)]);
        let first = records.next();
        records.all(|records| Some(records) == first)
    }

    /// The description of the set has all places.
    fn tables_len(&self, _: &[SourceFile]) -> u64 {
        0
    }

    fn tilings(&self, sources: &[SourceFile]) -> Tilings {
        super::tiling::tilings(self, sources)
    }
}

impl Tables {
    pub(super) fn variable(&self, dataset: i64) -> Result<&Variable, Fault> {
        let variable = usize::try_from(dataset).ok();
        let variable = variable.and_then(|number| self.variables.get(number));
        Ok(variable.ok_or("it comes from no variable")?)
    }

    /// Approximate bytes of memory.
    fn bytes(&self) -> usize {
        let member = |member: &Member| {
            size_of::<Member>() + 32 * member.spans.len() + 8 * member.records.len()
        };
        let members: usize = self.members.iter().map(member).sum();
        let forms = self.forms.iter().map(|form| 64 + 16 * form.places.len());
        members + forms.sum::<usize>() + 200 * self.variables.len() + 300 * self.absent.len()
    }
}

impl RecordTable for Table {
    /// The scan reports problems of the set.
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
        let all = dataset.dims.first().copied().unwrap_or(1);
        self.records_of_rows(task, sources, dataset, selections, 0..all)
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
        let of = self.tables.variable(dataset.id)?;
        if of.dims.len() != dataset.dims.len() || of.kind.size() as u64 != dataset.element_size {
            let text = format!("variable {} has another shape or type", of.name);
            found.add_diagnostic(Diagnostic::unreadable(text));
            return Ok(found);
        }
        let whole = Whole {
            of,
            number: dataset.id as usize,
            dims: dataset.dims,
            rows,
        };
        self.add_absent(&whole, &mut found)?;
        let mut adder = Adder {
            task,
            sources,
            hdf5: &self.hdf5,
            found: &mut found,
        };
        // Records below this one have their member already.
        let mut next = 0;
        for number in self.holders(of) {
            task.check()?;
            let member = &self.tables.members[number];
            let form = &self.tables.forms[member.form as usize];
            let Some(place) = form.places.get(whole.number).copied().flatten() else {
                continue;
            };
            let Some(mut part) = whole.part_of(member) else {
                continue;
            };
            if of.holders == Holders::First {
                let end = part.own[..].first().map_or(1, |own| own.shown.end);
                if end <= next {
                    continue;
                }
                if let Some(Axis::Records(_)) = of.dims.first() {
                    part.own[0].skip_to(next);
                }
                next = end;
            }
            match form.kind {
                FileKind::Classic { record_size } => {
                    adder.classic(&whole, &part, number, (place, record_size))?;
                }
                FileKind::Hdf5 => adder.hdf5(&whole, &part, number, place)?,
            }
            let is_one = !matches!(of.dims.first(), Some(Axis::Records(_)));
            if of.holders == Holders::First && is_one {
                break;
            }
        }
        found.records.put_in_order()?;
        Ok(found)
    }

    /// Number of variables times members.
    fn entries(&self) -> usize {
        self.tables
            .members
            .len()
            .saturating_mul(self.tables.variables.len())
    }

    fn bytes(&self) -> usize {
        self.tables.bytes() + self.hdf5.bytes()
    }

    fn release_share(&self) {
        self.reservation.release_share();
    }
}

impl Table {
    /// The numbers of the members that may have elements of a variable, ascending.
    fn holders<'a>(&'a self, of: &'a Variable) -> Box<dyn Iterator<Item = usize> + 'a> {
        match &of.holders {
            Holders::All | Holders::First => Box::new(0..self.tables.members.len()),
            Holders::Some(members) => Box::new(members.iter().map(|number| usize::from(*number))),
        }
    }

    /// Makes the elements unreadable that only an absent member can have. The records of members come after these.
    fn add_absent(&self, whole: &Whole<'_>, found: &mut DatasetRecords) -> Result<(), Fault> {
        let absent = &self.tables.absent;
        let is_cut = |axis: &Axis| matches!(axis, Axis::Cut(_));
        if absent.is_empty() || !whole.of.dims.iter().any(is_cut) {
            return Ok(());
        }
        let nothing = whole.zero()?;
        let mut spoil = |start: &[u64], count: &[u64], reason: String| {
            if count.contains(&0) {
                return Ok(());
            }
            found.records.push_constant(nothing, 0, start, count)?;
            found.records.spoil_last(reason)
        };
        let mut placeless = absent.iter().filter(|one| one.spans.is_none());
        if let Some(first) = placeless.next() {
            let others = match placeless.count() {
                0 => String::new(),
                count => format!(", and {count} more files"),
            };
            let (start, count) = whole.all();
            let (name, reason) = (&first.name, &first.reason);
            spoil(&start, &count, format!("{name} {reason}{others}"))?;
        }
        for one in absent {
            let Some(spans) = &one.spans else { continue };
            let (mut start, mut count) = whole.all();
            for (d, axis) in whole.of.dims.iter().enumerate() {
                if let Axis::Cut(number) = axis
                    && let Some((at, len)) = spans.get(usize::from(*number))
                {
                    let at = (*at).min(whole.dims[d]);
                    (start[d], count[d]) = (at, (*len).min(whole.dims[d] - at));
                }
            }
            spoil(&start, &count, format!("{} {}", one.name, one.reason))?;
        }
        Ok(())
    }
}
