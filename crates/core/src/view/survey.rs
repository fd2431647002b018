//! Questions about a view that no reader of its bytes asks: what is a hole, what is sound, what is a
//! chunk made of, how much was written.

use std::ops::{ControlFlow, Range};

use serde::Serialize;

use super::View;
use super::deciding::Deciding;
use super::map::Part;
use crate::boxes::Bounds;
use crate::error::{Error, Result};
use crate::snapshot::Content;

/// What may be looked at to count elements: chunks of datasets, and stretches of records in them.
#[derive(Debug, Clone, Copy)]
struct Work {
    chunks: u64,
    stretches: u64,
}

/// For one dataset, of which a person wants to know.
const MOST_WORK: Work = Work {
    chunks: 1 << 22,
    stretches: 1 << 26,
};
/// For all of a log, and bytes of its record tables, where a program asks that may ask of many.
const LITTLE_WORK: Work = Work {
    chunks: 1 << 18,
    stretches: 1 << 22,
};
const LITTLE_TABLE: usize = 16 << 20;

/// Chunks of one stretch that are no hole: a damaged log may have more than anybody could count.
const MOST_IN_STRETCH: u64 = 1 << 10;

/// Bytes read at once where nothing is done with them.
const STEP: u64 = 1 << 20;

/// Bytes of the log that a chunk is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Which source file, and the stored bytes of the record in it.
    pub source: u16,
    pub offset: u64,
    pub stored: u64,
    /// Where one of its blocks lies in the chunk; later ones may override parts of it.
    pub start: Vec<u64>,
    pub count: Vec<u64>,
}

/// A stretch of the canonical file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    pub range: Range<u64>,
    /// All zeros, known without a look at the log's data: no record touches it.
    pub hole: bool,
}

impl View {
    /// The stretch of the file that starts at `offset`: as far as it is alike, hole or not, or as far as was
    /// looked. Past the end it is empty.
    pub fn extent_at(&self, offset: u64) -> Result<Extent> {
        if offset >= self.len() {
            return Ok(Extent {
                range: offset..offset,
                hole: true,
            });
        }
        let (part, start, end) = self.map.at(offset);
        let Some(Part::Chunks(number)) = part else {
            return Ok(Extent {
                range: offset..end,
                hole: part.is_none(),
            });
        };
        let place = &self.map.datasets[number];
        if !self.has_holes(number) {
            return Ok(Extent {
                range: offset..end,
                hole: false,
            });
        }
        let first = (offset - start) / place.slot;
        let mut touched = self.touched(number, first)?.peekable();
        let hole = touched.peek() != Some(&first);
        let next = match hole {
            true => touched.next(),
            // The first chunk of a gap after those that follow each other, or of another stretch.
            false => {
                let looked_at = first.saturating_add(MOST_IN_STRETCH).min(place.grid.len());
                let gap = (first..looked_at).find(|chunk| touched.next() != Some(*chunk));
                gap.or((looked_at < place.grid.len()).then_some(looked_at))
            }
        };
        Ok(Extent {
            range: offset..next.map_or(end, |chunk| start + chunk * place.slot),
            hole,
        })
    }

    /// Whether chunks that nobody wrote are all zeros.
    fn has_holes(&self, number: usize) -> bool {
        let dataset = &self.snapshot.datasets[number];
        let plain = dataset.filters.is_empty() && dataset.fill.iter().all(|b| *b == 0);
        plain && dataset.logged().is_some()
    }

    /// The chunks from number `from` on that some record of a logged dataset touches, or may touch
    /// where its records have faults.
    pub fn touched(&self, number: usize, from: u64) -> Result<impl Iterator<Item = u64>> {
        let index = self.index(number)?;
        let all = !index.diagnostics().is_empty();
        let wanted = move |bounds: &Bounds| all || index.is_touched(bounds);
        Ok(self.grid(number).matching(from, wanted))
    }

    /// Reads all that a dataset has in the log, and hands on what is wrong, until `fault` has enough: for a logged one
    /// with each chunk that some record touches.
    pub fn check_dataset(&self, number: usize, fault: &mut impl FnMut(Error) -> ControlFlow<()>) {
        let checked = match self.snapshot.datasets[number].content {
            Content::Logged { .. } => self.check_chunks(number, fault),
            Content::Extent { len, .. } => self.check_extent(number, len),
            Content::Unreadable(_) => self.make_chunk(number, 0).map(drop),
        };
        if let Err(e) = checked {
            let _ = fault(e);
        }
    }

    fn check_chunks(
        &self,
        number: usize,
        fault: &mut impl FnMut(Error) -> ControlFlow<()>,
    ) -> Result<()> {
        for chunk in self.touched(number, 0)? {
            if let Err(e) = self.make_chunk(number, chunk)
                && fault(e).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn check_extent(&self, number: usize, len: u64) -> Result<()> {
        let mut buf = vec![0; STEP.min(len) as usize];
        let mut at = 0;
        while at < len {
            at += self.read_chunk(number, at, &mut buf)? as u64;
        }
        Ok(())
    }

    /// Offset in the canonical file and stored bytes of a chunk.
    pub fn chunk_place(&self, number: usize, chunk: u64) -> Result<(u64, u64)> {
        let place = &self.map.datasets[number];
        let stored = self.as_logged(number, chunk)?.unwrap_or(place.stored);
        let user_block = self.snapshot.user_block.len() as u64;
        Ok((user_block + place.chunk_address(chunk), stored))
    }

    /// What a chunk is made of, in the order in which it applies: the blocks that decide some element of it,
    /// as a read finds them.
    pub fn chunk_sources(&self, number: usize, chunk: u64) -> Result<Vec<Source>> {
        let index = self.index(number)?;
        let fault = |e| self.bad_data(number, self.chunk_name(number, chunk), e);
        index.check().map_err(fault)?;
        let deciding = Deciding::new(&index, self.grid(number), chunk);
        let mut sources = Vec::new();
        let decided = deciding.stretches(|record, block, _| {
            if let Some(reason) = record.fault {
                return Err(reason.to_owned());
            }
            let common = block.bounds().intersection(&deciding.bounds);
            let source = common.map(|common| Source {
                source: record.stored.source,
                offset: record.stored.offset,
                stored: record.stored.len,
                count: common.count().collect(),
                start: common.start,
            });
            // A block may have several stretches; another one that lies where it does has none.
            if source.as_ref() != sources.last() {
                sources.extend(source);
            }
            Ok(())
        });
        decided.map_err(fault)?;
        sources.reverse();
        Ok(sources)
    }

    /// Entries in the record tables of all datasets: as many records, but for those that cover nothing.
    pub fn entries(&self) -> Result<usize> {
        Ok(self.table()?.entries())
    }

    /// Share of a logged dataset's elements that some record wrote, from 0 to 1; `None` where that is in too many chunks
    /// or pieces to be counted.
    pub fn covered(&self, number: usize) -> Result<Option<f64>> {
        let counted = self.count_covered(number, &mut { MOST_WORK })?;
        Ok(counted.map(share))
    }

    /// The same of all logged datasets together, counted once. `None` where it would take longer than some seconds.
    pub fn covered_in_all(&self) -> Result<Option<f64>> {
        let mut known = self.covered.lock();
        if let Some(known) = *known {
            return Ok(known);
        }
        let counted = self.count_all_covered()?.map(share);
        *known = Some(counted);
        Ok(counted)
    }

    fn count_all_covered(&self) -> Result<Option<(u128, u128)>> {
        if self.table()?.bytes() > LITTLE_TABLE {
            return Ok(None);
        }
        let mut work = LITTLE_WORK;
        let (mut covered, mut total) = (0, 0);
        for (number, dataset) in self.snapshot.datasets.iter().enumerate() {
            if dataset.logged().is_none() {
                continue;
            }
            match self.count_covered(number, &mut work)? {
                Some((own, of)) => (covered, total) = (covered + own, total + of),
                None => return Ok(None),
            }
        }
        Ok(Some((covered, total)))
    }

    /// How many elements of a dataset some record wrote, and how many it has. `None` where the `work` is not enough.
    fn count_covered(&self, number: usize, work: &mut Work) -> Result<Option<(u128, u128)>> {
        let index = self.index(number)?;
        let grid = self.grid(number);
        if grid.is_empty() {
            // What its dimensions say is no number of elements: some of them may be huge.
            return Ok(Some((0, 0)));
        }
        let total: u64 = grid.dims.iter().product();
        let mut covered = 0;
        for chunk in grid.matching(0, |bounds| index.is_touched(bounds)) {
            let Some(left) = work.chunks.checked_sub(1) else {
                return Ok(None);
            };
            work.chunks = left;
            match Deciding::new(&index, grid, chunk).covered(&mut work.stretches) {
                Some(own) => covered += u128::from(own),
                None => return Ok(None),
            }
        }
        Ok(Some((covered, u128::from(total))))
    }
}

/// Nothing is covered completely.
fn share((covered, total): (u128, u128)) -> f64 {
    match total {
        0 => 1.0,
        _ => covered as f64 / total as f64,
    }
}
