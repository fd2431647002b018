//! The flush: the buffers of all ranks become extents, and the journal says so.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use h5logfs_log::journal::Line;
use h5logfs_log::journal::definition::{Defined, Definition};
use h5logfs_output::entries::Section;
use h5logfs_output::files::Written;
use h5logfs_output::stored;
use h5logfs_output::{Blocks, Error, GlobalOutcome, LocalOutcome, Result, check_outcome};

use crate::appends::{PlacedRows, Places, Rows};
use crate::left_out::LeftOut;
use crate::{Open, Writer, form_of, info_of};

/// What a batch adds to a flush.
#[derive(Clone, Copy, Default)]
pub(crate) struct Lent<'a> {
    /// Data that follow those of the buffer.
    pub data: &'a [&'a [u8]],
    pub rows: &'a [Rows<'a>],
}

impl Lent<'_> {
    /// Bytes of the data.
    fn len(&self) -> u64 {
        self.data.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

/// How one attempt to flush ended, on all ranks.
enum Round {
    Complete(GlobalOutcome),
    Failed(GlobalOutcome),
    /// The ranks have learned of a dataset whose rows have to be counted.
    Again,
}

/// Adds the entries of rows to a section. Their data begin at `offset` in those of the flush. Returns the data.
fn row_records<'a>(
    section: &mut Section,
    rows: impl Iterator<Item = PlacedRows<'a>>,
    datasets: &[Defined],
    mut offset: u64,
) -> Vec<Cow<'a, [u8]>> {
    let mut data = Vec::new();
    for PlacedRows { rows, start } in rows {
        let layout = &datasets[rows.dataset as usize].layout;
        let info = info_of(rows.dataset, layout);
        let mut first = vec![0; layout.dims.len()];
        first[0] = start;
        let count = [&[rows.number], &rows.shape[..]].concat();
        let blocks = Blocks::one(&first, &count);
        let bytes = Cow::Borrowed(&rows.bytes[..]);
        stored::records(form_of(layout), &blocks, bytes, &mut |blocks, bytes| {
            section.push(info, blocks, offset, bytes.len() as u64);
            offset += bytes.len() as u64;
            data.push(bytes);
        });
    }
    data
}

impl Writer {
    /// Writes the buffers and definitions of all ranks to the file. Once this has returned on all ranks,
    /// they survive whatever happens to the job. Collective.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_with(Lent::default())
    }

    pub(crate) fn flush_with(&mut self, lent: Lent<'_>) -> Result<()> {
        let outcome = loop {
            let entries = self.section.section().len();
            match self.flush_round(lent)? {
                Round::Complete(outcome) => break outcome,
                // Rows get other places in another round.
                Round::Failed(outcome) => {
                    self.section.section().truncate(entries);
                    break outcome;
                }
                Round::Again => self.section.section().truncate(entries),
            }
        };
        check_outcome(&self.path, "flush", outcome)
    }

    fn flush_round(&mut self, lent: Lent<'_>) -> Result<Round> {
        let open = self.open.as_mut();
        let Open { ranks, files } = open.ok_or_else(|| Error::closed(&self.path))?;
        let uncounted = self.appends.uncounted(lent.rows);
        let datasets = &self.outline.datasets;
        let places = self.appends.place(ranks, datasets, lent.rows);
        let rows = self.appends.placed(&places, lent.rows);
        let behind = self.data.len() as u64 + lent.len();
        let rows = row_records(self.section.section(), rows, datasets, behind);
        let mut data: Vec<&[u8]> = vec![&self.data];
        data.extend(lent.data);
        data.extend(rows.iter().map(|bytes| &bytes[..]));
        // Where another round follows, in which the rows of that dataset are counted, nothing is written in this one.
        let data = uncounted.is_none().then_some(&data[..]);
        let section = self.section.section();
        let Written { end, written } =
            files.write_extent(self.rank, section, data, self.options.fsync);
        let outcome = match (written, &self.refused) {
            (Err(reason), _) => LocalOutcome::Failed(reason),
            (Ok(()), Some(refused)) => LocalOutcome::Refused(format!(
                "a write that rank {} refused: {refused}",
                self.rank
            )),
            (Ok(()), None) => LocalOutcome::Good,
        };
        // The ends of the data files, the number of a dataset that is not counted, the ends of those that are.
        let mut largest = files.ends_with(end);
        let data_files = largest.len();
        largest.push(uncounted.map_or(0, |dataset| u64::from(dataset) + 1));
        largest.extend(places.ends());
        let outcome = self.agree(outcome, &mut largest)?;
        if matches!(outcome, GlobalOutcome::Failed { .. }) {
            return Ok(Round::Failed(outcome));
        }
        if let Some(dataset) = largest[data_files].checked_sub(1) {
            self.appends.count(dataset as u32);
            return Ok(Round::Again);
        }
        let row_ends = largest.split_off(data_files + 1);
        largest.truncate(data_files);
        let extents = self.appends.extents(&row_ends, &self.outline.datasets);
        let committed = self.commit(largest, &extents)?;
        if matches!(committed, GlobalOutcome::Failed { .. }) {
            return Ok(Round::Failed(committed));
        }
        self.set_flushed(places, &extents);
        let left_out = std::mem::take(&mut self.left_out);
        Ok(Round::Complete(left_out.added_to(outcome)))
    }

    /// Finds out whether all ranks have written their extents and made the same definitions. Raises each value of
    /// `largest` to the largest one on any rank. Collective.
    fn agree(&mut self, outcome: LocalOutcome, largest: &mut [u64]) -> Result<GlobalOutcome> {
        let open = self.open.as_ref();
        let Open { ranks, .. } = open.ok_or_else(|| Error::closed(&self.path))?;
        let mut hasher = DefaultHasher::new();
        self.defined.hash(&mut hasher);
        let agreed = ranks.agree_on(outcome, hasher.finish(), largest);
        if agreed.same || matches!(agreed.outcome, GlobalOutcome::Failed { .. }) {
            return Ok(agreed.outcome);
        }
        Ok(
            match LeftOut::find(ranks, &self.defined, &self.outline.datasets) {
                Ok(left_out) => {
                    left_out.remove_from(&mut self.defined, &mut self.outline);
                    self.left_out.add(left_out);
                    agreed.outcome
                }
                Err(failed) => failed,
            },
        )
    }

    /// Writes the definitions, the new extents and the end of the flush to the journal. Collective.
    fn commit(&mut self, ends: Vec<u64>, extents: &[Definition]) -> Result<GlobalOutcome> {
        let open = self.open.as_mut();
        let Open { ranks, files } = open.ok_or_else(|| Error::closed(&self.path))?;
        // The same on all ranks.
        if let Err(reason) = self.outline.check_extents(extents) {
            return Ok(GlobalOutcome::Failed {
                rank: 0,
                reason: reason.to_string(),
            });
        }
        let lines = if ranks.is_root() {
            let defined = self.defined.iter().chain(extents);
            defined.cloned().map(Line::Define).collect()
        } else {
            Vec::new()
        };
        let committed = files.commit(&ends, lines, self.options.fsync);
        let committed = ranks.follow_root(committed);
        if matches!(committed, GlobalOutcome::Good) {
            files.set_committed(ends);
            for definition in std::mem::take(&mut self.defined) {
                self.note_flushed(definition);
            }
        }
        Ok(committed)
    }

    /// Takes note that all that was buffered is in the file.
    fn set_flushed(&mut self, places: Places, extents: &[Definition]) {
        for extent in extents {
            let added = self.outline.add(extent);
            debug_assert_eq!(added, Ok(()), "it was checked");
        }
        self.section.section().set_flushed();
        self.data.clear();
        self.appends.set_flushed(places);
        self.refused = None;
    }
}
