//! Notifications of a rank for its neighbours: words of 64 bits, in the byte order of the machine.
//!
//! The first word is the number of complete flushes. Notifications follow:
//!
//! * [`SPILLED`], with the number of a data file from bit 8 on; start and end of an extent there;
//! * [`WRITTEN`], with 256 for a record that may have passed filters, a slot from bit 9 on, the number of dimensions from
//!   bit 16 on, the dataset from bit 32 on; the number of blocks; stored bytes; the start of each block; the count of each
//!   block. A slot other than 0 refers to these blocks from now on;
//! * [`AGAIN`], with filters, slot and dataset as above: a record with the blocks of the slot, moved along the first dimension;
//!   the index of the first block in that dimension; stored bytes.
//!
//! Data of consecutive records are adjacent in the rank's buffer.

use std::ops::Range;

use crate::entries::DatasetInfo;
use crate::selection::Blocks;

const WRITTEN: u64 = 0;
const SPILLED: u64 = 1;
const AGAIN: u64 = 2;
const KIND: u64 = 0xff;
const FILTERED: u64 = 1 << 8;
const SLOT: u32 = 9;
const RANK: u32 = 16;
const DATASET: u32 = 32;

/// A notification.
#[derive(Debug, PartialEq, Eq)]
pub enum Notification {
    /// An extent that the rank has spilled. It contains all that the rank had pending.
    Spilled { file: usize, extent: Range<u64> },
    /// A record in the rank's buffer.
    Written {
        dataset: u32,
        filtered: bool,
        /// The slot, from 1 on, that keeps the blocks for later records; 0 for none.
        slot: usize,
        blocks: Blocks,
        stored: u64,
    },
    /// A record with the blocks of a slot, moved so that they begin at index `first` of the first dimension.
    Again {
        dataset: u32,
        filtered: bool,
        slot: usize,
        first: u64,
        stored: u64,
    },
}

/// The slots, with the numbers of their lists of blocks.
#[derive(Debug, Default)]
pub struct Slots {
    lists: [u64; Slots::NUMBER],
    /// The slot filled last.
    last: usize,
}

impl Slots {
    /// Number of slots. A slot takes four bits, and 0 means none.
    pub const NUMBER: usize = 15;

    /// The slot of a list, from 1 on.
    fn find(&self, list: u64) -> Option<usize> {
        let at = self.lists.iter().position(|known| *known == list)?;
        Some(at + 1)
    }

    /// Puts a list into the oldest slot.
    fn fill(&mut self, list: u64) -> usize {
        self.last = self.last % Self::NUMBER + 1;
        self.lists[self.last - 1] = list;
        self.last
    }
}

/// The words about an extent.
pub fn spilled(file: usize, extent: &Range<u64>) -> [u64; 3] {
    [SPILLED | (file as u64) << 8, extent.start, extent.end]
}

/// The first words about a record, and whether starts and counts of its blocks follow.
pub fn written(
    dataset: DatasetInfo<'_>,
    blocks: &Blocks,
    stored: u64,
    slots: &mut Slots,
) -> ([u64; 3], bool) {
    let filtered = if dataset.filtered { FILTERED } else { 0 };
    let common = filtered | u64::from(dataset.id) << DATASET;
    let known = blocks.list.map(|list| (list, slots.find(list.number)));
    if let (Some((_, Some(slot))), Some(first)) = (known, blocks.starts.first()) {
        return (
            [AGAIN | common | (slot as u64) << SLOT, *first, stored],
            false,
        );
    }
    let slot = known.map_or(0, |(list, _)| slots.fill(list.number));
    let rank = (blocks.rank as u64) << RANK;
    let first = WRITTEN | common | rank | (slot as u64) << SLOT;
    ([first, blocks.number as u64, stored], true)
}

/// Takes the first notification from `words`. `None` if they begin with none.
pub fn take(words: &mut &[u64]) -> Option<Notification> {
    let (first, rest) = words.split_first_chunk::<3>()?;
    *words = rest;
    let [head, second, third] = *first;
    match head & KIND {
        SPILLED => Some(Notification::Spilled {
            file: (head >> 8) as usize,
            extent: second..third,
        }),
        AGAIN => Some(Notification::Again {
            dataset: (head >> DATASET) as u32,
            filtered: head & FILTERED != 0,
            slot: slot_of(head),
            first: second,
            stored: third,
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
            Some(Notification::Written {
                dataset: (head >> DATASET) as u32,
                filtered: head & FILTERED != 0,
                slot: slot_of(head),
                blocks: Blocks {
                    rank,
                    number,
                    starts: starts.to_vec(),
                    counts: counts.to_vec(),
                    elements,
                    list: None,
                },
                stored: third,
            })
        }
        _ => None,
    }
}

fn slot_of(head: u64) -> usize {
    (head >> SLOT) as usize & Slots::NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(id: u32) -> DatasetInfo<'static> {
        DatasetInfo {
            id,
            dims: &[],
            records: true,
            filtered: id == 6,
        }
    }

    fn notification(words: &mut Vec<u64>, id: u32, blocks: &Blocks, slots: &mut Slots) {
        let (head, has_blocks) = written(info(id), blocks, 44, slots);
        words.extend(head);
        if has_blocks {
            words.extend(&blocks.starts);
            words.extend(&blocks.counts);
        }
    }

    fn two_blocks(first: u64) -> Blocks {
        Blocks {
            rank: 1,
            number: 2,
            starts: vec![first, first + 4],
            counts: vec![1, 2],
            elements: 3,
            list: None,
        }
    }

    #[test]
    fn notes_are_read_as_they_were_made() {
        let blocks = [
            Blocks::one(&[3, 4], &[2, 5]),
            Blocks {
                number: 1,
                elements: 1,
                ..Blocks::default()
            },
            two_blocks(7),
        ];
        let extent = 8192..9000;
        let mut words = spilled(300, &extent).to_vec();
        for (dataset, blocks) in (5..).zip(&blocks) {
            notification(&mut words, dataset, blocks, &mut Slots::default());
        }
        let rest = &mut &words[..];
        assert_eq!(
            take(rest),
            Some(Notification::Spilled { file: 300, extent })
        );
        for (dataset, blocks) in (5..).zip(blocks) {
            let wanted = Notification::Written {
                dataset,
                filtered: dataset == 6,
                slot: 0,
                blocks,
                stored: 44,
            };
            assert_eq!(take(rest), Some(wanted));
        }
        assert!(rest.is_empty() && take(rest).is_none());
        // Notifications that are cut off, of another kind, or with too many blocks are none.
        assert!(take(&mut &words[3..6]).is_none());
        assert!(take(&mut &[7, 0, 0][..]).is_none());
        assert!(take(&mut &[1 << RANK, u64::MAX, 0][..]).is_none());
    }

    /// A repeated list is stored once, as long as a slot keeps it.
    #[test]
    fn a_list_that_comes_again_takes_three_words() {
        let (mut words, mut slots) = (Vec::new(), Slots::default());
        let mut lists: Vec<Blocks> = (0..=Slots::NUMBER as u64).map(two_blocks).collect();
        lists.iter_mut().for_each(Blocks::give_number);
        for blocks in &lists {
            notification(&mut words, 6, blocks, &mut slots);
        }
        let before = words.len();
        lists[1].move_to(99);
        notification(&mut words, 6, &lists[1], &mut slots);
        assert_eq!(words.len(), before + 3);
        // Its slot has another list now.
        notification(&mut words, 5, &lists[0], &mut slots);
        assert_eq!(words.len(), before + 3 + 7);
        let rest = &mut &words[..];
        let slots: Vec<_> = std::iter::from_fn(|| match take(rest)? {
            Notification::Written { slot, .. } => Some((slot, None)),
            Notification::Again {
                slot,
                first,
                dataset: 6,
                filtered: true,
                stored: 44,
            } => Some((slot, Some(first))),
            other => panic!("{other:?}"),
        })
        .collect();
        let all = (1..=Slots::NUMBER).chain([1]).map(|slot| (slot, None));
        let wanted: Vec<_> = all.chain([(2, Some(99)), (2, None)]).collect();
        assert_eq!(slots, wanted);
    }
}
