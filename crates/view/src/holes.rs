//! Where the canonical file has holes, for SEEK_HOLE and SEEK_DATA: chunks that no record touches.

use std::ops::Range;

use super::View;
use super::map::Region;
use h5logfs_common::error::Result;
use h5logfs_log::boxes::Bounds;

/// Chunks of a segment of data that are looked at. A damaged log may have more than can be counted.
const MAX_CHUNKS: u64 = 1 << 10;

/// A range of the canonical file that is a hole, or has data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// In bytes of the file.
    pub range: Range<u64>,
    /// The bytes are zeros; that is known without reading data of the log.
    pub is_hole: bool,
}

impl View {
    /// The segment from `offset` on. A segment of data may end before the next hole: only so many chunks
    /// are looked at. At and past the end of the file the segment is empty. Fails where the index of the
    /// dataset cannot be made.
    pub fn segment_at(&self, offset: u64) -> Result<Segment> {
        if offset >= self.len() {
            return Ok(Segment {
                range: offset..offset,
                is_hole: true,
            });
        }
        let (region, range) = self.map.region_at(offset);
        let number = match region {
            Some(Region::Chunks(number)) if self.has_holes(number) => number,
            _ => {
                return Ok(Segment {
                    range: offset..range.end,
                    is_hole: region.is_none(),
                });
            }
        };
        let place = &self.map.datasets[number];
        let first = (offset - range.start) / place.slot;
        let mut touched = self.touched(number, first)?.peekable();
        let is_hole = touched.peek() != Some(&first);
        let next = if is_hole {
            touched.next()
        } else {
            // The first chunk that is not touched, or the first that is not looked at.
            let end = first.saturating_add(MAX_CHUNKS).min(place.grid.len());
            let gap = (first..end).find(|chunk| touched.next() != Some(*chunk));
            gap.or((end < place.grid.len()).then_some(end))
        };
        let end = next.map_or(range.end, |chunk| range.start + chunk * place.slot);
        Ok(Segment {
            range: offset..end,
            is_hole,
        })
    }

    /// Whether chunks that no record touches are all zeros.
    fn has_holes(&self, number: usize) -> bool {
        let dataset = &self.snapshot.datasets[number];
        let is_zero = dataset.filters.is_empty() && dataset.fill.iter().all(|b| *b == 0);
        is_zero && dataset.logged().is_some()
    }

    /// The chunks of a logged dataset from number `from` on that some record touches. Where an entry of the
    /// record tables is damaged, that may be any chunk.
    pub fn touched(&self, number: usize, from: u64) -> Result<impl Iterator<Item = u64>> {
        let index = self.index(number)?;
        let all = !index.diagnostics().is_empty();
        let wanted = move |bounds: &Bounds| all || index.is_touched(bounds);
        Ok(self.grid(number).matching(from, wanted))
    }
}
