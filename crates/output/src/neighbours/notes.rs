//! What a rank notes for its neighbours: words of 64 bits, of the byte order of the machine.
//!
//! The first word is the number of flushes that are complete. What follows is
//!
//! * [`SPILLED`], with the number of a data file above its lowest 8 bits; begin and end of an extent there;
//! * [`WRITTEN`], with 256 for a record that may have gone through filters, the number of dimensions from bit 16 on, the
//!   dataset from bit 32 on; the number of blocks; stored bytes; the start of each block; the count of each block. Data of
//!   consecutive records follow each other in the data of the rank.

use std::ops::Range;

use crate::entries::DatasetInfo;
use crate::selection::Blocks;

const WRITTEN: u64 = 0;
const SPILLED: u64 = 1;
const KIND: u64 = 0xff;
const FILTERED: u64 = 1 << 8;
const RANK: u32 = 16;
const DATASET: u32 = 32;

/// A note.
#[derive(Debug, PartialEq, Eq)]
pub enum Note {
    /// An extent that the rank has written before the flush. All that it wrote until then lies there.
    Spilled { file: usize, extent: Range<u64> },
    /// A record in the data of the rank.
    Written {
        dataset: u32,
        filtered: bool,
        blocks: Blocks,
        stored: u64,
    },
}

/// The words of an extent.
pub fn spilled(file: usize, extent: &Range<u64>) -> [u64; 3] {
    [SPILLED | (file as u64) << 8, extent.start, extent.end]
}

/// The first words of a record. Starts and counts of its blocks follow.
pub fn written(dataset: DatasetInfo<'_>, blocks: &Blocks, stored: u64) -> [u64; 3] {
    let filtered = if dataset.filtered { FILTERED } else { 0 };
    let rank = (blocks.rank as u64) << RANK;
    let first = WRITTEN | filtered | rank | u64::from(dataset.id) << DATASET;
    [first, blocks.number as u64, stored]
}

/// Takes the first note off some words. `None` where they do not begin with one.
pub fn take(words: &mut &[u64]) -> Option<Note> {
    let (first, rest) = words.split_first_chunk::<3>()?;
    *words = rest;
    let [head, second, third] = *first;
    match head & KIND {
        SPILLED => Some(Note::Spilled {
            file: (head >> 8) as usize,
            extent: second..third,
        }),
        WRITTEN => {
            let rank = (head >> RANK & 0xffff) as usize;
            let number = usize::try_from(second).ok()?;
            let coordinates = number.checked_mul(rank)?;
            let (starts, rest) = words.split_at_checked(coordinates)?;
            let (counts, rest) = rest.split_at_checked(coordinates)?;
            *words = rest;
            let mut elements = 0u64;
            for block in 0..number {
                let sides = &counts[block * rank..][..rank];
                let one = sides
                    .iter()
                    .try_fold(1u64, |n, side| n.checked_mul(*side))?;
                elements = elements.checked_add(one)?;
            }
            Some(Note::Written {
                dataset: (head >> DATASET) as u32,
                filtered: head & FILTERED != 0,
                blocks: Blocks {
                    rank,
                    number,
                    starts: starts.to_vec(),
                    counts: counts.to_vec(),
                    elements,
                },
                stored: third,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_they_were_made() {
        let blocks = [
            Blocks::one(&[3, 4], &[2, 5]),
            Blocks {
                rank: 0,
                number: 1,
                elements: 1,
                ..Blocks::default()
            },
            Blocks {
                rank: 1,
                number: 2,
                starts: vec![7, 1],
                counts: vec![1, 2],
                elements: 3,
            },
        ];
        let extent = 8192..9000;
        let mut words = spilled(300, &extent).to_vec();
        for (dataset, blocks) in (5..).zip(&blocks) {
            let info = DatasetInfo {
                id: dataset,
                dims: &[],
                records: true,
                filtered: dataset == 6,
            };
            words.extend(written(info, blocks, 44));
            words.extend(&blocks.starts);
            words.extend(&blocks.counts);
        }
        let rest = &mut &words[..];
        assert_eq!(take(rest), Some(Note::Spilled { file: 300, extent }));
        for (dataset, blocks) in (5..).zip(blocks) {
            let wanted = Note::Written {
                dataset,
                filtered: dataset == 6,
                blocks,
                stored: 44,
            };
            assert_eq!(take(rest), Some(wanted));
        }
        assert!(rest.is_empty() && take(rest).is_none());
        // One that is cut off, of another kind, or with more blocks than there can be.
        assert!(take(&mut &words[3..6]).is_none());
        assert!(take(&mut &[7, 0, 0][..]).is_none());
        assert!(take(&mut &[1 << RANK, u64::MAX, 0][..]).is_none());
    }
}
