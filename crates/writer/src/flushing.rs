//! The parts of a flush besides the buffer: definitions, and rows, whose places it assigns.

use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::{iter, mem};

use h5logfs_log::journal::Line;
use h5logfs_log::journal::definition::{Defined, Definition};
use h5logfs_output::automatic::Cause;
use h5logfs_output::log_writer::{Agreed, Part};
use h5logfs_output::stored;
use h5logfs_output::{
    Blocks, Error, GlobalOutcome, LocalOutcome, LogWriter, Result, check_outcome,
};

use crate::appends::{PlacedRows, Places, Rows};
use crate::left_out::LeftOut;
use crate::{Writer, form_of, info_of};

/// A batch's contribution to a flush.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lent<'a> {
    /// Data after those of the buffer.
    pub data: &'a [&'a [u8]],
    pub rows: &'a [Rows<'a>],
}

impl Lent<'_> {
    /// Bytes of the data.
    fn len(&self) -> u64 {
        self.data.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

/// Adds the entries of rows to those of a log. Their data begin at `offset` in the data of the flush. Returns the data.
fn row_records<'a>(
    log: &mut LogWriter,
    rows: impl Iterator<Item = PlacedRows<'a>>,
    datasets: &[Defined],
    mut offset: u64,
) -> Vec<Cow<'a, [u8]>> {
    let (mut data, threads) = (Vec::new(), log.options().threads);
    for PlacedRows { rows, start } in rows {
        let layout = &datasets[rows.dataset as usize].layout;
        let info = info_of(rows.dataset, layout);
        let mut first = vec![0; layout.dims.len()];
        first[0] = start;
        let count = [&[rows.number], &rows.shape[..]].concat();
        let blocks = Blocks::one(&first, &count);
        let bytes = Cow::Borrowed(&rows.bytes[..]);
        stored::records(
            form_of(layout),
            threads,
            &blocks,
            bytes,
            &mut |blocks, bytes| {
                log.push_entry(info, blocks, offset, bytes.len() as u64);
                offset += bytes.len() as u64;
                data.push(bytes);
            },
        );
    }
    data
}

/// The journal lines of definitions. Only the last extent of a dataset is kept.
fn lines_of<'a>(definitions: impl DoubleEndedIterator<Item = &'a Definition>) -> Vec<Line> {
    let mut extended = HashSet::new();
    let is_last = |definition: &&Definition| match definition {
        Definition::Extent { dataset, .. } => extended.insert(*dataset),
        _ => true,
    };
    let lines = definitions.rev().filter(is_last);
    let mut lines: Vec<Line> = lines.cloned().map(Line::Define).collect();
    lines.reverse();
    lines
}

impl Writer {
    /// Writes the buffers and definitions of all ranks to the file. Once this has returned on all ranks, they survive any
    /// failure of the job. Collective.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_with(Lent::default())
    }

    /// Makes an automatic flush. After a failure, a later flush writes everything. Collective.
    pub(crate) fn flush_automatically(&mut self) {
        // Rows, and the report of refusals, wait for a flush of the program.
        let (appends, refused) = (mem::take(&mut self.appends), self.refused.take());
        let flushed = self.flush_for(Lent::default(), Cause::Automatic);
        (self.appends, self.refused) = (appends, refused);
        if let Err(e) = flushed {
            log::warn!("{e}. No flush was asked for: a later one tries again");
        }
    }

    pub(crate) fn flush_with(&mut self, lent: Lent<'_>) -> Result<()> {
        self.flush_for(lent, Cause::Asked)
    }

    fn flush_for(&mut self, lent: Lent<'_>, cause: Cause) -> Result<()> {
        self.check_process()?;
        let outcome = loop {
            let log = self.log.as_mut();
            let log = log.ok_or_else(|| Error::closed(&self.path))?;
            let entries = log.section().len();
            let round = self.flush_round(lent, cause);
            if let Ok(Some(outcome)) = round {
                break outcome;
            }
            // Another round assigns other places to the rows.
            if let Some(log) = &mut self.log {
                log.section().truncate(entries);
            }
            round?;
        };
        check_outcome(&self.path, "flush", outcome)
    }

    /// One round of a flush. `None` if the ranks have learned of a dataset whose rows must be counted.
    fn flush_round(&mut self, lent: Lent<'_>, cause: Cause) -> Result<Option<GlobalOutcome>> {
        let Self {
            log,
            appends,
            outline,
            defined,
            left_out,
            ..
        } = self;
        let log = log.as_mut().ok_or_else(|| Error::closed(&self.path))?;
        let uncounted = appends.uncounted(lent.rows);
        let places = appends.place(log.ranks(), &outline.datasets, lent.rows);
        let rows = appends.placed(&places, lent.rows);
        let behind = log.data_len() + lent.len();
        let rows = row_records(log, rows, &outline.datasets, behind);
        let mut data = lent.data.to_vec();
        data.extend(rows.iter().map(|bytes| &bytes[..]));
        let outcome = match &self.refused {
            Some(refused) => LocalOutcome::Refused(refused.told(format!(
                "a write that rank {} refused: {refused}",
                self.rank
            ))),
            None => LocalOutcome::Good,
        };
        let mut hasher = DefaultHasher::new();
        defined.hash(&mut hasher);
        // The number of an uncounted dataset plus 1, and the ends of the counted ones.
        let uncounted_number = uncounted.map_or(0, |dataset| u64::from(dataset) + 1);
        let part = Part {
            // This round writes nothing if another one must follow to count the rows of that dataset.
            data: uncounted.is_none().then_some(&data[..]),
            outcome,
            cause,
            same: hasher.finish(),
            numbers: iter::once(uncounted_number).chain(places.ends()).collect(),
        };
        let mut found = None;
        let mut extents = Vec::new();
        let flushed = log.flush(part, |agreed| {
            let Agreed {
                ranks,
                same,
                numbers,
            } = agreed;
            if !same {
                let different = LeftOut::find(ranks, defined, &outline.datasets)?;
                different.remove_from(defined, outline);
                left_out.add(different);
            }
            let (number, row_ends) = numbers.split_first().unwrap_or((&0, &[]));
            found = number.checked_sub(1).map(|dataset| dataset as u32);
            if found.is_some() {
                return Ok(None);
            }
            extents = appends.extents(row_ends, &outline.datasets);
            // The outcome is the same on all ranks.
            if let Err(reason) = outline.check_extents(&extents) {
                return Err(GlobalOutcome::Failed { rank: 0, reason });
            }
            Ok(Some(if ranks.is_root() {
                lines_of(defined.iter().chain(&extents))
            } else {
                Vec::new()
            }))
        })?;
        let Some(outcome) = flushed else {
            found.into_iter().for_each(|dataset| appends.count(dataset));
            return Ok(None);
        };
        self.set_flushed(places, &extents);
        let left_out = match cause {
            Cause::Asked => mem::take(&mut self.left_out),
            Cause::Automatic => LeftOut::default(),
        };
        Ok(Some(left_out.added_to(outcome)))
    }

    /// Records that the definitions and rows are in the file.
    fn set_flushed(&mut self, places: Places, extents: &[Definition]) {
        for definition in mem::take(&mut self.defined) {
            self.keep_for_close(definition);
        }
        for extent in extents {
            let added = self.outline.add(extent);
            debug_assert_eq!(added, Ok(()), "it was checked");
        }
        self.appends.set_flushed(places);
        self.refused = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_extent_of_a_dataset_is_told() {
        let extent = |dataset, rows| Definition::Extent {
            dataset,
            dims: vec![rows, 5],
        };
        let group = Definition::Group { path: "/g".into() };
        let defined = [extent(0, 1), group.clone(), extent(1, 1), extent(0, 2)];
        let wanted = [group, extent(1, 1), extent(0, 2)].map(Line::Define);
        assert_eq!(lines_of(defined.iter()), wanted);
    }
}
