//! The positions of the entries of each variable in all metadata logs, and a summary of the logs.

use super::decode::{self, Decoder};
use super::entry::PutCall;
use super::metadata::{EntryError, FIRST_PAYLOAD, LogHeader, walk};
use super::{ProcessLog, Tables};
use crate::arrangement::Arrangement;
use crate::layout::{DatasetRecords, Layout, RecordTable};
use crate::model::Logged;
use crate::model::Selections;
use crate::origins::{Origins, Span};
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// Bits of an entry's number in its order. The bits above them hold the number of its log.
const ENTRY_BITS: u32 = 40;
/// The most diagnostics that are kept. One is enough to make the log unreadable.
const MOST_DIAGNOSTICS: usize = 100;

/// The place of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryPosition {
    /// Offset in the metadata log. No offset uses the highest bit, so it holds [`Self::ASTRAY`].
    position: u64,
    /// The number of the log, then the number of the entry. Entries apply in this order.
    pub order: u64,
}

impl EntryPosition {
    /// The payload does not follow the payload of the previous entry.
    const ASTRAY: u64 = 1 << 63;

    pub fn position(&self) -> u64 {
        self.position & !Self::ASTRAY
    }

    /// Whether the payload does not follow the payload of the previous entry.
    pub fn is_astray(&self) -> bool {
        self.position & Self::ASTRAY != 0
    }

    pub fn log(&self) -> usize {
        (self.order >> ENTRY_BITS) as usize
    }

    pub fn number(&self) -> u64 {
        self.order & ((1 << ENTRY_BITS) - 1)
    }
}

/// The entries of all logs by variable, 16 bytes each.
#[derive(Debug)]
pub(super) struct Table {
    pub tables: Tables,
    /// The header of each log; `None` if it cannot be read.
    pub headers: Vec<Option<LogHeader>>,
    places: Vec<Vec<EntryPosition>>,
    diagnostics: Vec<Diagnostic>,
    reservation: Reservation,
}

impl Table {
    /// Reads all logs. Fails when memory is short, and when `task` stops.
    fn read(
        task: &Task,
        sources: &[SourceFile],
        tables: &Tables,
    ) -> std::result::Result<Self, Fault> {
        let lists = tables.logs.len() * size_of::<Option<LogHeader>>()
            + tables.variables.len() * size_of::<Vec<EntryPosition>>();
        let mut table = Table {
            reservation: task.reserve(lists as u64)?,
            tables: tables.clone(),
            headers: Vec::with_capacity(tables.logs.len()),
            places: vec![Vec::new(); tables.variables.len()],
            diagnostics: Vec::new(),
        };
        for (number, log) in tables.logs.iter().enumerate() {
            let read = table.read_log(task, sources, number, log);
            let header = match read {
                Ok(header) => Some(header),
                Err(fault) => {
                    table.add(name(sources, log), fault.into_damage()?);
                    None
                }
            };
            table.headers.push(header);
        }
        for places in &mut table.places {
            places.shrink_to_fit();
        }
        table.reservation.shrink_to(table.bytes() as u64);
        Ok(table)
    }

    fn read_log(
        &mut self,
        task: &Task,
        sources: &[SourceFile],
        number: usize,
        log: &ProcessLog,
    ) -> std::result::Result<LogHeader, Fault> {
        let source = source(sources, log.metadata)?;
        let header = LogHeader::read(source)?;
        let mut end = Some(FIRST_PAYLOAD);
        // If an entry cannot be followed, all later entries are lost. The scan reports this. The earlier entries are
        // read.
        walk(source, &header, |entry, _| {
            task.check()?;
            if entry.number >> ENTRY_BITS != 0 {
                return Err(format!("has more than {} entries", entry.number).into());
            }
            let astray = if end == Some(entry.data_offset) {
                0
            } else {
                EntryPosition::ASTRAY
            };
            end = entry.data_end();
            match entry.variable_of(self.places.len()) {
                Some(variable) => {
                    let place = EntryPosition {
                        position: entry.at | astray,
                        order: (number as u64) << ENTRY_BITS | entry.number,
                    };
                    let places = &mut self.places[variable];
                    Ok(self.reservation.push(places, place)?)
                }
                None => {
                    let reason = format!(
                        "{} is of variable {}, which does not exist",
                        entry.name(),
                        entry.variable
                    );
                    self.add(name(sources, log), reason);
                    Ok(())
                }
            }
        })?;
        Ok(header)
    }

    fn add(&mut self, log: String, reason: String) {
        if self.diagnostics.len() < MOST_DIAGNOSTICS {
            self.diagnostics
                .push(Diagnostic::unreadable(reason).at(log));
        }
    }

    /// The entries of a variable in the order in which they apply.
    pub fn of_variable(&self, variable: usize) -> &[EntryPosition] {
        self.places.get(variable).map_or(&[], |places| places)
    }
}

impl RecordTable for Table {
    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    fn records(
        &self,
        task: &Task,
        sources: &[SourceFile],
        dataset: &Logged<'_>,
        selections: &Selections,
    ) -> std::result::Result<DatasetRecords, Fault> {
        let decoder = Decoder {
            task,
            table: self,
            sources,
            dataset,
            selections,
        };
        decoder.records()
    }

    fn entries(&self) -> usize {
        self.places.iter().map(Vec::len).sum()
    }

    fn bytes(&self) -> usize {
        let places = self.places.iter();
        let places: usize = places
            .map(|places| size_of_val(places) + places.capacity() * size_of::<EntryPosition>())
            .sum();
        places + self.headers.len() * size_of::<Option<LogHeader>>()
    }

    fn release_share(&self) {
        self.reservation.release_share();
    }
}

impl Layout for Tables {
    fn name(&self) -> &'static str {
        "PnetCDF burst buffer"
    }

    fn read_tables(
        &self,
        task: &Task,
        sources: &[SourceFile],
        _: &[Logged<'_>],
    ) -> std::result::Result<Box<dyn RecordTable>, Fault> {
        Ok(Box::new(Table::read(task, sources, self)?))
    }

    fn tables_len(&self, sources: &[SourceFile]) -> u64 {
        let logs = self.logs.iter();
        let lens = logs.map(|log| source(sources, log.metadata).map_or(0, SourceFile::len));
        lens.fold(0, u64::saturating_add)
    }

    fn tilings(&self, sources: &[SourceFile]) -> Tilings {
        let found = self.find_tilings(sources);
        found.unwrap_or_else(|_| Tilings::of_damaged())
    }

    /// Each process has its own logs, which do not record flushes.
    fn origins(&self, _: &Task, sources: &[SourceFile]) -> Origins {
        let mut origins = Origins::default();
        for log in &self.logs {
            let Some(number) = log.data else { continue };
            let Some(data) = sources.get(usize::from(number)) else {
                continue;
            };
            let pushed = origins.push(Span {
                source: number,
                start: 0,
                end: data.len(),
                rank: u32::try_from(log.rank).ok(),
                flush: None,
            });
            if let Err(fault) = pushed {
                origins
                    .diagnostics
                    .push(Diagnostic::note(fault.to_string()));
                break;
            }
        }
        origins.sort();
        origins
    }
}

impl Tables {
    /// Fails if a log cannot be read, or if an entry may belong to any variable.
    fn find_tilings(&self, sources: &[SourceFile]) -> std::result::Result<Tilings, Fault> {
        let mut found = Tilings::default();
        let mut block = Vec::new();
        for log in &self.logs {
            let log = source(sources, log.metadata)?;
            let header = LogHeader::read(log)?;
            walk(log, &header, |entry, window| {
                let variable = entry.variable_of(self.variables.len());
                let number = variable.ok_or("a variable that does not exist")?;
                let tiling = found.by_dataset.entry(number as i64).or_default();
                let checked = entry.check(window, &self.variables[number], self.version);
                found.has_unreadable |= checked.is_err();
                if checked.is_err() || entry.call != PutCall::Vara {
                    tiling.spoil();
                    return Ok(());
                }
                let read = entry.each_subarray(window, |part| {
                    block.clear();
                    block.extend(part.sides().map(|side| (side.start, side.count)));
                    Ok(())
                });
                tiling.add(&block);
                read.map_err(EntryError::fault)
            })?;
        }
        Ok(found)
    }
}

/// The facts about the entries of all logs that a scan needs.
#[derive(Debug, Default)]
pub struct LogSummary {
    /// The number of records that the valid entries need.
    pub records: u64,
    pub diagnostics: Vec<Diagnostic>,
}

/// Walks through all logs once. Fails if one of them cannot be read.
pub fn summarize(sources: &[SourceFile], tables: &Tables) -> Result<LogSummary> {
    let mut found = LogSummary::default();
    for log in &tables.logs {
        let name = name(sources, log);
        let looked = look(sources, tables, log, &mut found.records);
        let said = looked.map_err(|reason| Error::of(&name, reason))?;
        let named = |diagnostic: Diagnostic| diagnostic.at(name.as_str());
        found.diagnostics.extend(said.into_iter().map(named));
    }
    Ok(found)
}

/// Walks through one log. Raises `records` to the number that its entries need. Returns diagnostics.
fn look(
    sources: &[SourceFile],
    tables: &Tables,
    log: &ProcessLog,
    records: &mut u64,
) -> std::result::Result<Vec<Diagnostic>, Fault> {
    let source = source(sources, log.metadata)?;
    let header = LogHeader::read(source)?;
    let mut without_payload = 0u64;
    let cut = walk(source, &header, |entry, window| {
        if decode::lost(sources, entry, log.data).is_some() {
            without_payload += 1;
        }
        let variable = entry.variable_of(tables.variables.len());
        let variable = variable.map(|number| &tables.variables[number]);
        let Some(variable) = variable.filter(|variable| variable.is_record) else {
            return Ok(());
        };
        match entry.check(window, variable, tables.version) {
            Ok(request) => *records = request.records.max(*records),
            Err(EntryError::Invalid(_)) => {}
            Err(EntryError::Unreadable(reason)) => return Err(reason),
        }
        Ok(())
    })?;
    let cut = cut.map(Diagnostic::lost);
    let mut diagnostics: Vec<_> = header.diagnostic.into_iter().chain(cut).collect();
    if without_payload > 0 {
        let of = header.entries;
        let what = match log.data {
            Some(_) => {
                format!("payloads of {without_payload} of {of} entries are not in the data log")
            }
            None => format!("the data log is missing, with the payloads of {of} entries"),
        };
        // Their selections are known.
        diagnostics.push(Diagnostic::lost(what).counted());
    }
    Ok(diagnostics)
}

/// Name of a log in messages.
pub(super) fn name(sources: &[SourceFile], log: &ProcessLog) -> String {
    match source(sources, log.metadata) {
        Err(fault) => fault.to_string(),
        Ok(source) if matches!(source.arrangement(), Arrangement::Whole) => {
            source.path().display().to_string()
        }
        Ok(source) => format!("{}, rank {}", source.path().display(), log.rank),
    }
}

pub(super) fn source(
    sources: &[SourceFile],
    number: u16,
) -> std::result::Result<&SourceFile, Fault> {
    let found = sources.get(usize::from(number));
    Ok(found.ok_or_else(|| format!("source file {number} does not exist"))?)
}
