//! The tables of a log that is closed: the entries of all ranks, behind the data.

use std::path::PathBuf;
use std::sync::Arc;

use super::Files;
use crate::earlier;
use crate::error::FaultResult;
use crate::flushed::Flushed;
use crate::ranks::{Ranks, probe};
use h5logfs_common::fault::Fault;
use h5logfs_log::front::FRONT;
use h5logfs_log::logvol::names::subfile;
use h5logfs_log::logvol::table_head;
use h5logfs_log::window::Piece;

/// A data file with its table.
pub struct Tabled {
    /// Its path.
    pub path: PathBuf,
    /// Where its extents end.
    pub end: u64,
    /// Where its table lies.
    pub table: Piece,
}

impl Files {
    /// Writes the table of entries behind the data, with one section for each rank: its entries, all of which are in the
    /// data file. `entries`: those of this rank, which has this number in the job. They are copied in steps. Returns the data
    /// files whose fronts this rank has to write. Collective over the ranks that share the file.
    pub fn write_tables(&self, rank: u32, entries: &Flushed) -> (Vec<Tabled>, FaultResult) {
        let (table, written) = match &self.header.append {
            None => self.write_table(entries),
            Some(append) => self.write_whole_table(rank, entries, append.flush),
        };
        let written = written.map_err(|e| e.of_file(&self.data_path));
        if !self.file_ranks.is_root() {
            return (Vec::new(), written);
        }
        let own = Tabled {
            path: self.data_path.clone(),
            end: self.end(),
            table,
        };
        let unwritten = self.unwritten.clone().map(|file| self.table_of(file));
        let unwritten: FaultResult<Vec<Tabled>> = unwritten.collect();
        match written.and(unwritten) {
            Ok(unwritten) => ([own].into_iter().chain(unwritten).collect(), Ok(())),
            Err(e) => (Vec::new(), Err(e)),
        }
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

    /// The same where earlier jobs have written up to this flush.
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

    /// Writes the table of a data file to which only earlier jobs have written.
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
        Ok(Tabled { path, end, table })
    }

    /// Writes `head` and the entries behind it from `to` on, in so many steps: a rank that has no more, or that has failed,
    /// takes part in those of the others. Collective over the ranks that share the file.
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
