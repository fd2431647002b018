//! Checks the places in a snapshot. The bytes are checked when they are read.

use super::{LogDataset, Tables};
use crate::window::Piece;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

impl Tables {
    /// Fails with the reason if a place cannot exist. `sources` is the number of source files.
    pub fn check(&self, sources: usize) -> Result<(), Fault> {
        if !self.metadata.is_empty() && !self.sections.is_empty() {
            return Err("tables of a closed log and sections of an unclosed one".into());
        }
        let known = |source: u16| -> Result<(), Fault> {
            if usize::from(source) < sources {
                Ok(())
            } else {
                Err(format!("source file {source} of {sources}").into())
            }
        };
        for log in self.metadata.iter().chain(&self.data) {
            known(log.source)?;
            check_range(log.offset, log.len)?;
        }
        for section in &self.sections {
            known(section.source)?;
            let mut total = 0u64;
            for Piece { offset, len } in &section.pieces {
                check_range(*offset, *len)?;
                total = total.saturating_add(*len);
            }
            check_range(0, total)?;
        }
        // Data logs are searched by bisection, so they must be sorted.
        let place = |e: &LogDataset| (e.source, e.offset);
        if self.data.is_sorted_by_key(place) {
            Ok(())
        } else {
            Err("data logs out of order".into())
        }
    }
}

impl Tables {
    /// Reports record tables that overlap each other or data. HDF5 gives each dataset its own bytes, and a small file
    /// with overlapping tables could demand any amount of work.
    pub(super) fn overlap(&self) -> Option<Diagnostic> {
        let tables = self.metadata.iter().map(|table| Place {
            is_table: true,
            source: table.source,
            start: table.offset,
            len: table.len,
        });
        let data = self.data.iter().map(|data| Place {
            is_table: false,
            source: data.source,
            start: data.offset,
            len: data.len,
        });
        let pieces = self.sections.iter().flat_map(|section| {
            section.pieces.iter().map(|piece| Place {
                is_table: true,
                source: section.source,
                start: piece.offset,
                len: piece.len,
            })
        });
        if self.sections.is_empty() {
            first_overlap(tables.chain(data).collect())
        } else {
            // The extents of an unclosed log hold both tables and data.
            first_overlap(pieces.collect())
        }
    }
}

struct Place {
    is_table: bool,
    source: u16,
    start: u64,
    len: u64,
}

/// The first table that overlaps another one, or data.
fn first_overlap(mut places: Vec<Place>) -> Option<Diagnostic> {
    places.retain(|place| place.len > 0);
    places.sort_unstable_by_key(|place| (place.source, place.start));
    // The ends of the tables and of the data so far, in the current source.
    let (mut source, mut tables, mut data) = (0, 0, 0);
    for place in places {
        if place.source != source {
            (source, tables, data) = (place.source, 0, 0);
        }
        if place.start < tables || (place.is_table && place.start < data) {
            let what = "a record table shares bytes with another one, or with data";
            let at = format!("byte {} of source file {source}", place.start);
            return Some(Diagnostic::unreadable(what).at(at));
        }
        let end = place.start.saturating_add(place.len);
        let ends = if place.is_table {
            &mut tables
        } else {
            &mut data
        };
        *ends = end.max(*ends);
    }
    None
}

fn check_range(offset: u64, len: u64) -> Result<(), Fault> {
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= i64::MAX as u64) {
        Ok(())
    } else {
        Err(format!("{len} bytes at {offset} are in no file").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logvol::Section;

    fn log(source: u16, offset: u64, len: u64) -> LogDataset {
        LogDataset {
            source,
            number: 0,
            offset,
            len,
        }
    }

    #[test]
    fn tables_share_no_bytes() {
        let tables = |metadata: &[(u16, u64)], data: &[(u16, u64)]| Tables {
            metadata: metadata.iter().map(|(s, at)| log(*s, *at, 10)).collect(),
            data: data.iter().map(|(s, at)| log(*s, *at, 30)).collect(),
            ..Tables::default()
        };
        let sound = [
            tables(&[(0, 40), (0, 30), (1, 30)], &[(0, 0), (0, 0), (1, 0)]),
            tables(&[(0, 0)], &[(0, 10)]),
        ];
        assert!(sound.iter().all(|t| t.overlap().is_none()));
        for overlapping in [
            tables(&[(0, 30), (0, 30)], &[]),
            tables(&[(0, 39), (0, 30)], &[]),
            tables(&[(1, 29)], &[(0, 0), (1, 0)]),
            tables(&[(1, 5)], &[(1, 14)]),
            tables(&[(0, 25)], &[(0, 0), (0, 1)]),
        ] {
            assert!(overlapping.overlap().is_some());
        }
    }

    #[test]
    fn places_that_cannot_be_followed_are_refused() {
        let sound = Tables {
            metadata: vec![log(0, 100, 50)],
            data: vec![log(0, 0, 10), log(1, 0, 10)],
            ..Tables::default()
        };
        assert_eq!(sound.check(2), Ok(()));
        assert!(sound.check(1).is_err());
        let damaged = |damage: &dyn Fn(&mut Tables)| {
            let mut tables = sound.clone();
            damage(&mut tables);
            tables.check(2)
        };
        assert!(damaged(&|t| t.data.reverse()).is_err());
        assert!(damaged(&|t| t.metadata[0].source = 2).is_err());
        assert!(damaged(&|t| t.metadata[0].len = i64::MAX as u64).is_err());
        assert!(damaged(&|t| t.data[1].offset = u64::MAX).is_err());
        let half = Piece {
            offset: 0,
            len: i64::MAX as u64,
        };
        let section = |source, pieces| Section {
            source,
            rank: 0,
            pieces,
        };
        assert!(damaged(&|t| t.sections.push(section(0, vec![]))).is_err());
        let unclosed = |section| {
            damaged(&|t: &mut Tables| {
                t.metadata.clear();
                t.sections = vec![Section::clone(&section)];
            })
        };
        assert_eq!(unclosed(section(1, vec![half])), Ok(()));
        assert!(unclosed(section(2, vec![half])).is_err());
        assert!(unclosed(section(1, vec![half, half])).is_err());
    }
}
