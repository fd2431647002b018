//! Checks the places that a snapshot names. The bytes there are checked when they are read.

use super::{Extent, Tables};
use crate::log::window::Piece;

impl Tables {
    /// Fails with the reason where a place cannot exist. `sources`: number of source files.
    pub fn check(&self, sources: usize) -> Result<(), String> {
        if !self.metadata.is_empty() && !self.sections.is_empty() {
            return Err("tables of a closed log and sections of an unclosed one".into());
        }
        let known = |source: u16| {
            if usize::from(source) < sources {
                Ok(())
            } else {
                Err(format!("source file {source} of {sources}"))
            }
        };
        for extent in self.metadata.iter().chain(&self.data) {
            known(extent.source)?;
            check_range(extent.offset, extent.len)?;
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
        // They are searched by bisection.
        let place = |e: &Extent| (e.source, e.offset);
        if self.data.is_sorted_by_key(place) {
            Ok(())
        } else {
            Err("data extents out of order".into())
        }
    }
}

fn check_range(offset: u64, len: u64) -> Result<(), String> {
    let end = offset.checked_add(len);
    if end.is_some_and(|end| end <= i64::MAX as u64) {
        Ok(())
    } else {
        Err(format!("{len} bytes at {offset} are in no file"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::logvol::Section;

    fn extent(source: u16, offset: u64, len: u64) -> Extent {
        Extent {
            source,
            number: 0,
            offset,
            len,
        }
    }

    #[test]
    fn places_that_cannot_be_followed_are_refused() {
        let sound = Tables {
            metadata: vec![extent(0, 100, 50)],
            data: vec![extent(0, 0, 10), extent(1, 0, 10)],
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
