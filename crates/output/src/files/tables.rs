//! The record tables of a closed log: the entries of all ranks, after the data.
//!
//! The first rank writes a small table alone, from entries that the others send. It then has all entries in memory, for the
//! next close of a program that opens its log for each step. All ranks write a larger table.

use std::path::PathBuf;
use std::sync::Arc;

use super::Files;
use crate::earlier;
use crate::error::FaultResult;
use crate::flushed::Flushed;
use crate::plain_close::MOST;
use crate::ranks::{Ranks, probe};
use h5logfs_common::fault::Fault;
use h5logfs_log::front::{FRONT, extents_until};
use h5logfs_log::journal::closed::ClosedLog;
use h5logfs_log::journal::known_table::{Entries, KnownTable, len_of};
use h5logfs_log::logvol::Section;
use h5logfs_log::logvol::extent::sections_after;
use h5logfs_log::logvol::names::subfile;
use h5logfs_log::logvol::table_head;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::window::Piece;

/// A data file with its table.
pub struct Tabled {
    /// Path of the file.
    pub path: PathBuf,
    /// End of its extents.
    pub end: u64,
    /// Place of its table.
    pub table: Piece,
    /// Whether extents have seals.
    pub has_seals: bool,
    /// All entries of the table, if they are in memory.
    pub entries: Entries,
}

/// The entries of earlier jobs in a log of one file.
#[derive(Default)]
struct Earlier {
    known: Entries,
    /// Sections that are not known.
    sections: Vec<Section>,
    has_seals: bool,
}

impl Earlier {
    fn len(&self) -> u64 {
        self.known.len() + len_of(&self.sections)
    }
}

impl Files {
    /// Writes the record table after the data, with one section for each rank. `entries`: the entries of this rank, which is
    /// number `rank` in the job; all are in the data file, and are copied in steps. `known`: the table of a previously closed
    /// log of one file, as far as the first rank knows it. Returns the data files whose fronts this rank has to write.
    /// Collective over the ranks that share the file.
    pub fn write_tables(
        &self,
        rank: u32,
        entries: &Flushed,
        known: KnownTable,
    ) -> (Vec<Tabled>, FaultResult) {
        if let Some((tabled, written)) = self.write_small_table(entries, known) {
            let written = written.map_err(|e| e.of_file(&self.data_path));
            return (tabled.into_iter().collect(), written);
        }
        let (table, written) = match &self.header.append {
            None => self.write_table(entries),
            Some(append) => self.write_whole_table(rank, entries, append.flush),
        };
        let written = written.map_err(|e| e.of_file(&self.data_path));
        if !self.file_ranks.is_root() {
            return (Vec::new(), written);
        }
        let own = self.tabled(table, self.has_seals(), Entries::default());
        let unwritten = self.unwritten.clone().map(|file| self.table_of(file));
        let unwritten: FaultResult<Vec<Tabled>> = unwritten.collect();
        match written.and(unwritten) {
            Ok(unwritten) => ([own].into_iter().chain(unwritten).collect(), Ok(())),
            Err(e) => (Vec::new(), Err(e)),
        }
    }

    fn tabled(&self, table: Piece, has_seals: bool, entries: Entries) -> Tabled {
        Tabled {
            path: self.data_path.clone(),
            end: self.end(),
            table,
            has_seals,
            entries,
        }
    }

    /// The closed form of a log of one file that has its table, without the objects.
    pub fn closed_log(&self, tabled: &Tabled) -> ClosedLog<'_> {
        ClosedLog {
            header: &self.header,
            id: &self.id,
            data: extents_until(tabled.end),
            table: tabled.table,
            flush: self.flushes,
            has_seals: tabled.has_seals,
        }
    }

    /// Writes the table of a log of one file if it is small. `None` on all ranks if it is not.
    fn write_small_table(
        &self,
        entries: &Flushed,
        known: KnownTable,
    ) -> Option<(Option<Tabled>, FaultResult)> {
        let ranks = &self.file_ranks;
        if self.header.subfiles > 0 {
            return None;
        }
        let new = ranks.sum(entries.len());
        if new > MOST {
            return None;
        }
        let mut earlier = None;
        let mut is_small = [1];
        if self.header.append.is_some() {
            if ranks.is_root() {
                earlier = self.earlier(known);
                let fits = |earlier: &Earlier| earlier.len() + new <= MOST;
                is_small = [earlier.as_ref().is_some_and(fits).into()];
            }
            ranks.broadcast(&mut is_small);
        }
        if is_small == [0] {
            return None;
        }
        // Collective: a rank whose entries cannot be read must take part, too.
        let read = entries.all();
        let all = ranks.gather_few(read.as_deref().unwrap_or_default());
        let read = read.map(drop);
        if !ranks.is_root() {
            return Some((None, read));
        }
        let written = read.and_then(|()| self.write_gathered(earlier.unwrap_or_default(), &all));
        Some(match written {
            Ok(tabled) => (Some(tabled), Ok(())),
            Err(e) => (None, Err(e)),
        })
    }

    /// On the first rank: the entries of earlier jobs. `None` if they cannot be read now.
    fn earlier(&self, known: KnownTable) -> Option<Earlier> {
        let begun = self.commits.first().copied()?;
        let known = known.up_to(&[begun]);
        if !known.is_empty() {
            return Some(Earlier {
                has_seals: known.has_seals,
                known: known.entries,
                sections: Vec::new(),
            });
        }
        let file = self.local.try_clone().ok()?;
        let source = SourceFile::new(file, self.data_path.clone()).ok()?;
        let found = sections_after(&source, 0, known.behind(), [begun].into_iter()).ok()?;
        found.diagnostics.is_empty().then_some(Earlier {
            known: Entries::default(),
            sections: found.sections,
            has_seals: found.has_seals,
        })
    }

    /// On the first rank: writes a table of the entries of earlier jobs, followed by those of each rank.
    fn write_gathered(&self, earlier: Earlier, all: &[Vec<u8>]) -> FaultResult<Tabled> {
        let mut entries = earlier.known;
        entries.take_in(&self.local, &earlier.sections)?;
        for (rank, own) in (0..).zip(all) {
            entries.add(rank, own);
        }
        let offset = self.end();
        let len = entries.write(&self.local, &[], offset, MOST)?;
        let has_seals = self.has_seals() || earlier.has_seals;
        Ok(self.tabled(Piece { offset, len }, has_seals, entries))
    }

    fn write_table(&self, entries: &Flushed) -> (Piece, FaultResult) {
        let len = entries.len();
        let before = self.file_ranks.sum_before(len);
        let total = self.file_ranks.sum(len);
        let steps = self.file_ranks.largest(len.div_ceil(Flushed::step()));
        let lens = self.file_ranks.gather(len);
        let mut table = Piece {
            offset: self.end(),
            len: 0,
        };
        if total == 0 {
            return (table, Ok(()));
        }
        let head = 8 * (u64::from(self.file_ranks.size()) + 1);
        table.len = head + total;
        let mut to = table.offset + head + before;
        let mut words = Vec::new();
        if self.file_ranks.is_root() {
            words = table_head(lens.into_iter());
            to = table.offset;
        }
        (table, self.copy(entries, words, to, steps))
    }

    /// Writes the whole table of a data file to which earlier jobs have written up to flush `flush`.
    fn write_whole_table(&self, rank: u32, entries: &Flushed, flush: u64) -> (Piece, FaultResult) {
        let file = earlier::DataFile {
            path: &self.data_path,
            file: &self.local,
            ranks: &self.file_ranks,
            flush,
            begin: self.begin,
            end: self.end(),
        };
        let steps = self
            .file_ranks
            .largest(entries.len().div_ceil(Flushed::step()));
        let own = earlier::Own {
            rank,
            entries: entries.len(),
        };
        match file.plan(own) {
            Ok(plan) => {
                let (table, to) = (plan.table, plan.own);
                let copied = file.copy(plan);
                // Collective: a rank that has failed must take part, too.
                let written = self.copy(entries, Vec::new(), to, steps);
                (table, copied.and(written))
            }
            Err(e) => {
                let (offset, len) = (self.end(), 0);
                (Piece { offset, len }, Err(e))
            }
        }
    }

    /// Writes the table of a data file that only earlier jobs have written.
    fn table_of(&self, file: u32) -> FaultResult<Tabled> {
        let path = subfile(&self.path, file);
        let about = |e: Fault| e.of_file(&path);
        let opened = probe(&path).and_then(|file| self.id.check(&file).map(|()| file));
        let opened = Arc::new(opened.map_err(|e| about(e.into()))?);
        let end = self.ends.get(file as usize).copied().unwrap_or(FRONT);
        let file = earlier::DataFile {
            path: &path,
            file: &opened,
            ranks: &Ranks::one(),
            flush: self.flushes,
            begin: end,
            end,
        };
        let plan = file.plan(earlier::Own::default()).map_err(about)?;
        let table = plan.table;
        file.copy(plan).map_err(about)?;
        Ok(Tabled {
            path,
            end,
            table,
            has_seals: self.has_seals(),
            entries: Entries::default(),
        })
    }

    /// Writes `head` and the entries after it, from `to` on, in `steps` steps. A rank without further entries, or after a
    /// failure, still takes part in each step. Collective over the ranks that share the file.
    fn copy(&self, entries: &Flushed, mut head: Vec<u8>, mut to: u64, steps: u64) -> FaultResult {
        let (mut reader, mut buffer) = (entries.reader(), Vec::new());
        let mut copied = Ok(());
        for _ in 0..steps {
            if copied.is_ok() {
                copied = reader.next(&mut buffer);
            }
            if copied.is_err() {
                buffer.clear();
            }
            let written = self.data_file.write(to, &[&head, &buffer]);
            copied = copied.and(written);
            to += (head.len() + buffer.len()) as u64;
            head.clear();
        }
        copied
    }
}
