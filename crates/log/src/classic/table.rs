//! Finds the entries of the metadata log. Their selections are not read here.

use super::Tables;
use super::chain::{self, ChainError, EntryPosition};
use super::entry::{
    DATA_HEADER, Entry, EntrySelection, METADATA_HEADER, check_data_header, read_metadata_header,
};
use super::{DATA_LOG, METADATA_LOG};
use crate::source_file::SourceFile;
use crate::tiling::Tilings;
use crate::window::Window;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// The most diagnostics kept.
const MOST_DIAGNOSTICS: usize = 100;
/// Upper bound of the memory of a diagnostic's text, in bytes.
const OF_DIAGNOSTIC: u64 = 256;

/// The entries of a log: 24 bytes each.
#[derive(Debug)]
pub(super) struct EntryTable {
    /// Entries of each dataset, in the order of the stub datasets.
    pub by_stub_dataset: Vec<Entries>,
    /// Start of each entry's data in the data log, ascending.
    data: Vec<u64>,
    /// [`Severity::Unreadable`]: not all entries could be found. [`Severity::Inconsistent`]: they were
    /// found, but the log contradicts itself.
    pub diagnostics: Vec<Diagnostic>,
    reservation: Reservation,
}

/// The entries of one dataset.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Entries in the order of the log.
    pub places: Vec<EntryPosition>,
    /// The reason why no element of the dataset can be read.
    pub unreadable: Option<Diagnostic>,
}

impl EntryTable {
    /// Reads the two logs. Fails when memory is short, and when `task` stops.
    pub fn read(
        task: &Task,
        tables: &Tables,
        (metadata, data): (&SourceFile, &SourceFile),
    ) -> Result<Self, Fault> {
        let mut found = EntryTable {
            by_stub_dataset: Vec::new(),
            data: Vec::new(),
            diagnostics: Vec::new(),
            reservation: task.reservation(),
        };
        let stub_datasets = tables.stub_datasets.len();
        found
            .reservation
            .make_room(&mut found.by_stub_dataset, stub_datasets)?;
        found
            .by_stub_dataset
            .resize_with(stub_datasets, Entries::default);
        if let Err(fault) = check_data_header(data) {
            let reason = fault.into_damage()?;
            let place = format!("/{DATA_LOG}");
            found
                .diagnostics
                .push(Diagnostic::unreadable(reason).at(place));
        }
        let walked = walk(tables, metadata, |number, entry, window| {
            task.check()?;
            // A fault of an entry with elements is reported with the entry's record.
            if let Some(reason) = entry.invalid_field()
                && is_empty(entry, window)?
            {
                let place = format!("/{METADATA_LOG}: entry at byte {}", entry.at);
                let empty = Diagnostic::new(Severity::Inconsistent, reason);
                found.add_diagnostic(empty.at(place));
            }
            let place = EntryPosition {
                at: entry.at,
                next: entry.next,
            };
            let reservation = &mut found.reservation;
            reservation.push(&mut found.by_stub_dataset[number].places, place)?;
            match u64::try_from(entry.data) {
                Ok(begin) if begin >= DATA_HEADER => Ok(reservation.push(&mut found.data, begin)?),
                _ => Ok(()),
            }
        });
        found.data.sort_unstable();
        found.data.dedup();
        match walked {
            // Some entries are missing, so chains may be incomplete. They are not followed.
            Err(fault) => {
                let diagnostic = Diagnostic::unreadable(fault.into_damage()?);
                found.diagnostics.push(diagnostic);
            }
            Ok(()) => found.follow_chains(task, tables)?,
        }
        Ok(found)
    }

    fn add_diagnostic(&mut self, diagnostic: Diagnostic) {
        if self.diagnostics.len() < MOST_DIAGNOSTICS {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Stops counting the table's memory for a user.
    pub fn release_share(&self) {
        self.reservation.release_share();
    }

    fn follow_chains(&mut self, task: &Task, tables: &Tables) -> Result<(), Fault> {
        let mut diagnostics = Vec::new();
        for (stub_dataset, entries) in tables.stub_datasets.iter().zip(&mut self.by_stub_dataset) {
            let id = stub_dataset.id;
            let diagnostic = |severity, text| {
                Diagnostic::new(severity, text).at(format!("/{METADATA_LOG}: dataset {id}"))
            };
            task.check()?;
            let _met = task.reserve(chain::memory(&entries.places))?;
            let followed = stub_dataset
                .first
                .map(|first| chain::follow(first, &entries.places));
            match followed.unwrap_or(Ok(())) {
                Ok(()) => {}
                Err(ChainError::Disagrees(text)) => {
                    let disagrees = diagnostic(Severity::Inconsistent, text);
                    diagnostics.extend((diagnostics.len() < MOST_DIAGNOSTICS).then_some(disagrees));
                }
                Err(ChainError::Cycle(text) | ChainError::Negative(text)) => {
                    self.reservation.grow(OF_DIAGNOSTIC)?;
                    entries.unreadable = Some(diagnostic(Severity::Unreadable, text));
                }
            }
        }
        diagnostics.into_iter().for_each(|d| self.add_diagnostic(d));
        Ok(())
    }

    /// Start of the data behind the data at `at`, or the end of the log.
    pub fn end_of_data(&self, at: u64, log: &SourceFile) -> u64 {
        let after = self.data.partition_point(|begin| *begin <= at);
        let next = self.data.get(after).copied();
        next.unwrap_or(u64::MAX).min(log.len())
    }

    /// Memory in bytes.
    pub fn bytes(&self) -> usize {
        let places = self.by_stub_dataset.iter().map(|e| e.places.capacity());
        let places = places.sum::<usize>() * size_of::<EntryPosition>();
        let lists = self.by_stub_dataset.capacity() * size_of::<Entries>();
        let diagnostics = self.diagnostics.iter().map(Diagnostic::bytes);
        places + lists + diagnostics.sum::<usize>() + self.data.capacity() * size_of::<u64>()
    }
}

/// Calls `visit` with the entries of the log in order, each with the index of its stub dataset. Fails with the place
/// and the reason if the log cannot be followed further.
fn walk<'a>(
    tables: &Tables,
    log: &'a SourceFile,
    mut visit: impl FnMut(usize, &Entry, &mut Window<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut window = Window::over(log);
    let entries = read_metadata_header(&mut window);
    let entries = entries.map_err(|e| e.at(format_args!("/{METADATA_LOG}")))?;
    let rank_of = |id| {
        tables
            .find(id)
            .map(|n| u64::from(tables.stub_datasets[n].rank))
    };
    let mut at = METADATA_HEADER;
    for _ in 0..entries {
        let entry = Entry::read(&mut window, at, rank_of);
        let shown = entry.and_then(|entry| {
            let number = tables.find(entry.id).ok_or("it has no stub dataset")?;
            visit(number, &entry, &mut window)?;
            Ok(entry)
        });
        let entry = shown.map_err(|e| e.at(format_args!("/{METADATA_LOG}: entry at byte {at}")))?;
        at = entry.end();
    }
    Ok(())
}

/// The possible tiling of each dataset by its entries.
pub(super) fn tilings(tables: &Tables, (metadata, _): (&SourceFile, &SourceFile)) -> Tilings {
    let mut found = Tilings::default();
    let walked = walk(tables, metadata, |_, entry, window| {
        let tiling = found.by_dataset.entry(entry.id).or_default();
        match block_of(entry, window)? {
            Some(block) => tiling.add(&block),
            None => tiling.spoil(),
        }
        Ok(())
    });
    match walked {
        Ok(()) => found,
        Err(_) => Tilings::of_damaged(),
    }
}

/// Whether an entry has no elements.
fn is_empty(entry: &Entry, window: &mut Window<'_>) -> Result<bool, Fault> {
    let block = block_of(entry, window)?;
    let has_none = |block: &[(u64, u64)]| block.iter().any(|(_, count)| *count == 0);
    Ok(entry.selection == EntrySelection::Points(0) || block.is_some_and(|block| has_none(&block)))
}

/// Start and count of an entry's block along each dimension; `None` if the entry is not a block.
fn block_of(entry: &Entry, window: &mut Window<'_>) -> Result<Option<Vec<(u64, u64)>>, Fault> {
    if entry.selection != EntrySelection::Subarray {
        return Ok(None);
    }
    let bytes = window.bytes(entry.coordinates, entry.len)?;
    let (starts, counts) = bytes.split_at(bytes.len() / 2);
    let side = |bytes: &[u8]| u64::try_from(entry.order.i64_at(bytes, 0)).ok();
    let sides = starts.chunks_exact(8).zip(counts.chunks_exact(8));
    Ok(sides
        .map(|(start, count)| Some((side(start)?, side(count)?)))
        .collect())
}
