//! Tells which rank wrote which data, in which flush. Our own writer puts a header in front of the data of each rank
//! and flush (`docs/formats/journal.md`, section 3.1). In other logs, each `_ld_N` is a flush, and each section of a
//! table is a rank (sections 3 and 4).

use super::Tables;
use super::entries::{Entry, Visitor, walk};
use super::extent;
use crate::origins::{Origins, Span};
use crate::source_file::SourceFile;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

impl Tables {
    pub(super) fn find_origins(&self, task: &Task, sources: &[SourceFile]) -> Origins {
        let mut origins = Origins::default();
        let found = if self.has_headers(sources) {
            self.of_headers(task, sources, &mut origins)
        } else {
            self.of_entries(task, sources, &mut origins)
        };
        if let Err(reason) = found {
            let what = format!("not all ranks and flushes are known: {reason}");
            origins.diagnostics.push(Diagnostic::note(what));
        }
        origins.sort();
        origins
    }

    /// Whether our writer made the data files.
    fn has_headers(&self, sources: &[SourceFile]) -> bool {
        let is_ours = |number: u16| {
            let file = sources.get(usize::from(number))?;
            file.file_id().ok().flatten()
        };
        !self.data.is_empty() && self.data.iter().all(|data| is_ours(data.source).is_some())
    }

    fn of_headers(
        &self,
        task: &Task,
        sources: &[SourceFile],
        origins: &mut Origins,
    ) -> Result<(), Fault> {
        for data in &self.data {
            let range = data.offset..data.offset.saturating_add(data.len);
            extent::each_with_data(
                &sources[usize::from(data.source)],
                range,
                |header, bytes| {
                    task.check()?;
                    origins.push(Span {
                        source: data.source,
                        start: bytes.start,
                        end: bytes.end,
                        rank: Some(header.rank),
                        flush: Some(header.flush),
                    })
                },
            )?;
        }
        Ok(())
    }

    fn of_entries(
        &self,
        task: &Task,
        sources: &[SourceFile],
        origins: &mut Origins,
    ) -> Result<(), Fault> {
        let mut finder = Finder {
            task,
            tables: self,
            origins,
            section: 0,
            sections: vec![0; sources.len()],
            stopped: Ok(()),
        };
        walk(sources, self, &mut finder)?;
        let Finder {
            sections, stopped, ..
        } = finder;
        // The ranks of a subfile continue those of the previous subfile (section 10).
        let first_ranks: Vec<u32> = sections
            .iter()
            .scan(0u32, |next, sections| {
                let first = *next;
                *next = next.saturating_add(*sections);
                Some(first)
            })
            .collect();
        origins.adjust(|span| {
            let first = first_ranks[usize::from(span.source)];
            span.rank = span.rank.map(|rank| rank.saturating_add(first));
        });
        stopped
    }
}

/// Turns the entries of a walk into spans.
struct Finder<'a> {
    task: &'a Task,
    tables: &'a Tables,
    origins: &'a mut Origins,
    /// Number of sections visited in this table.
    section: u32,
    /// The largest number of sections of a table, by source file.
    sections: Vec<u32>,
    stopped: Result<(), Fault>,
}

impl Visitor for Finder<'_> {
    fn table(&mut self) {
        self.section = 0;
    }

    fn section(&mut self) {
        self.section = self.section.saturating_add(1);
    }

    fn entry(&mut self, entry: &mut Entry<'_, '_>) -> Result<(), Fault> {
        self.task.check()?;
        self.stopped.clone()?;
        let source = self.tables.source_of(entry.table);
        if let Some(most) = self.sections.get_mut(usize::from(source)) {
            *most = self.section.max(*most);
        }
        let (offset, len) = (entry.head.data_offset, entry.head.data_size);
        let Some(data) = self.tables.data_log(source, offset, len) else {
            return Ok(());
        };
        // The data lies in an extent of the file, so neither value is negative and the sum does not overflow.
        let (start, len) = (offset as u64, len as u64);
        if len == 0 {
            return Ok(());
        }
        self.stopped = self.origins.push(Span {
            source,
            start,
            end: start + len,
            rank: self.section.checked_sub(1),
            flush: Some(u64::from(data.number)),
        });
        self.stopped.clone()
    }

    /// The view reports unreadable parts.
    fn unreadable(&mut self, _: Diagnostic) {}
}
