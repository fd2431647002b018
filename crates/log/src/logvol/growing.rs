//! The entries of a growing log, for a program that reads its own data while it writes.

use std::collections::HashMap;

use super::decode::Decoder;
use super::table::{EntryTable, SectionSelections};
use super::{LogDataset, Section, Tables};
use crate::layout::DatasetRecords;
use crate::model::Logged;
use crate::model::Selections;
use crate::window::TableBytes;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

/// The known sections of a log. New entries are appended to a section. Memory grows with the number of entries, as in
/// any table.
#[derive(Debug)]
pub struct GrowingTable {
    tables: Tables,
    entries: EntryTable,
    /// Progress in each section.
    walked: Vec<Walked>,
    /// Index into `tables.sections` and `walked`, by source and rank.
    numbers: HashMap<(u16, u32), usize>,
    selections: Selections,
}

/// Progress in a section.
#[derive(Debug, Default)]
struct Walked {
    /// Bytes of the entries read so far.
    len: u64,
    selections: SectionSelections,
}

impl GrowingTable {
    /// A table without entries.
    pub fn new(task: &Task) -> Self {
        GrowingTable {
            tables: Tables::default(),
            entries: EntryTable::growing(task),
            walked: Vec::new(),
            numbers: HashMap::new(),
            selections: Selections::default(),
        }
    }

    /// Sets the end of the data in a source.
    pub fn set_end(&mut self, source: u16, end: u64) {
        let data = &mut self.tables.data;
        let at = data.partition_point(|log| log.source < source);
        match data.get_mut(at) {
            Some(log) if log.source == source => log.len = end,
            _ => data.insert(
                at,
                LogDataset {
                    source,
                    number: 0,
                    offset: 0,
                    len: end,
                },
            ),
        }
    }

    /// Records damage that may hide entries of any dataset.
    pub fn add_diagnostics(&mut self, diagnostics: Vec<Diagnostic>) {
        self.entries.diagnostics.extend(diagnostics);
    }

    /// Fails with the reason if entries of any dataset may be missing.
    pub fn check(&self) -> Result<(), Fault> {
        match self.entries.diagnostics.first() {
            Some(reason) => Err(reason.to_string().into()),
            None => Ok(()),
        }
    }

    /// Appends entries to the section of a rank. Pieces that the section already has are skipped.
    pub fn extend(
        &mut self,
        task: &Task,
        tables: TableBytes<'_>,
        more: &Section,
    ) -> Result<(), Fault> {
        let number = self.number_of(more);
        let section = &mut self.tables.sections[number];
        for piece in &more.pieces {
            match section.pieces.last_mut() {
                Some(last) if piece.offset < last.offset + last.len => continue,
                Some(last) if piece.offset == last.offset + last.len => last.len += piece.len,
                _ => section.pieces.push(*piece),
            }
        }
        let Walked { len, selections } = &mut self.walked[number];
        let window = section.window(tables);
        let from = std::mem::replace(len, window.len());
        self.entries.extend(task, window, number, from, selections)
    }

    /// The index of a section.
    fn number_of(&mut self, wanted: &Section) -> usize {
        let place = (wanted.source, wanted.rank);
        *self.numbers.entry(place).or_insert_with(|| {
            self.tables.sections.push(Section {
                pieces: Vec::new(),
                ..*wanted
            });
            self.walked.push(Walked::default());
            self.walked.len() - 1
        })
    }

    /// Known bytes of the section of a rank.
    pub fn len_of_section(&self, source: u16, rank: u32) -> u64 {
        let number = self.numbers.get(&(source, rank));
        number.map_or(0, |number| self.walked[*number].len)
    }

    /// Number of entries of a dataset.
    pub fn entries_of(&self, dataset: i64) -> usize {
        self.entries.of_dataset(dataset).len()
    }

    /// Drops all entries, but keeps their selections, because later entries may share them.
    pub fn forget_entries(&mut self) {
        self.entries.forget_entries();
    }

    /// The records of a dataset's entries, from number `first` on.
    pub fn records(
        &self,
        task: &Task,
        tables: TableBytes<'_>,
        dataset: &Logged<'_>,
        first: usize,
    ) -> Result<DatasetRecords, Fault> {
        let places = self.entries.of_dataset(dataset.id);
        let decoder = Decoder {
            task,
            tables: &self.tables,
            entries: &self.entries,
            sources: tables,
            dataset,
            selections: &self.selections,
        };
        decoder.records_of(places.from(first))
    }
}
