//! The form in which an index outlives the process: an item for each dataset, and one for each set of
//! selections, which datasets that were written alike share.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::{DatasetIndex, FAULT, HOW, SELECTION, VALUES};
use crate::boxes::Bounds;
use crate::boxes::packed::{PackedBoxes, Row};
use crate::log::Logged;
use crate::log::model::{Selection, Selections};
use crate::log::records::Numbered;

/// An index without its selections.
#[derive(Serialize, Deserialize)]
struct Kept {
    records: PackedBoxes,
    /// Numbers of the selections.
    selections: Vec<u64>,
    record_faults: Vec<Box<str>>,
    faults: Vec<String>,
}

/// An index as items of a kept log.
pub struct Items {
    pub index: Vec<u8>,
    /// Name and content of the item with the selections, where there are some.
    pub selections: Option<(String, Vec<u8>)>,
}

impl DatasetIndex {
    /// The inverse of [`DatasetIndex::from_kept`].
    pub fn to_kept(&self) -> Result<Items, postcard::Error> {
        let ids: Vec<u64> = self.selections.iter().map(|(id, _)| *id).collect();
        let selections = match ids.is_empty() {
            true => None,
            false => {
                let of = |(id, selection): &Numbered| (*id, selection.rank(), selection.clone());
                let spelled: Vec<_> = self.selections.iter().map(of).collect();
                Some((item_of(&ids), postcard::to_stdvec(&spelled)?))
            }
        };
        let index = postcard::to_stdvec(&Kept {
            records: self.records.clone(),
            selections: ids,
            record_faults: self.record_faults.clone(),
            faults: self.faults.clone(),
        })?;
        Ok(Items { index, selections })
    }

    /// From what was kept of a dataset; `get` fetches the item of some name. `None` where that does not
    /// fit together, or not to the dataset and to a log of so many source files.
    pub fn from_kept(
        index: &[u8],
        get: impl FnOnce(&str) -> Option<Vec<u8>>,
        dataset: &Logged<'_>,
        sources: usize,
        known: &Selections,
    ) -> Option<Self> {
        let kept: Kept = postcard::from_bytes(index).ok()?;
        let there = kept.selections.iter();
        let there = there.map(|id| Some((*id, known.get(*id)?)));
        let (selections, decoded) = match there.collect::<Option<Vec<Numbered>>>() {
            Some(selections) => (selections, 0),
            None => read_selections(&get(&item_of(&kept.selections))?, &kept.selections, known)?,
        };
        let index = DatasetIndex {
            records: kept.records.checked(dataset.dims.len(), VALUES)?,
            selections,
            record_faults: kept.record_faults,
            faults: kept.faults,
            decoded,
        };
        index.fits(dataset.dims.len(), sources).then_some(index)
    }

    /// Whether all that the records speak of is there.
    fn fits(&self, rank: usize, sources: usize) -> bool {
        let fits = |row: Row<'_>| {
            let record = self.record(row);
            let lead = usize::from(record.has_lead);
            let is_there = |number: u64, list: usize| number <= list as u64;
            row.count().iter().all(|count| *count > 0)
                && usize::from(record.stored.source) < sources
                && is_there(row.value(SELECTION), self.selections.len())
                && is_there(row.value(HOW) >> FAULT, self.record_faults.len())
                && record.selection.is_none_or(|s| s.rank() + lead == rank)
        };
        let everything = Bounds {
            start: vec![0; rank],
            end: vec![u64::MAX; rank],
        };
        !self.records.any(&everything, |row| !fits(row))
    }
}

/// The selections of an item, which has to have just these; and the bytes of those that were not known.
fn read_selections(item: &[u8], ids: &[u64], known: &Selections) -> Option<(Vec<Numbered>, usize)> {
    let spelled: Vec<(u64, usize, Selection)> = postcard::from_bytes(item).ok()?;
    if !spelled.iter().map(|(id, ..)| id).eq(ids) {
        return None;
    }
    let mut decoded = 0;
    let selections = spelled.into_iter().map(|(id, rank, selection)| {
        let (selection, is_new) = known.keep(id, selection.checked(rank)?);
        decoded += if is_new { selection.bytes() } else { 0 };
        Some((id, selection))
    });
    let selections = selections.collect::<Option<Vec<_>>>()?;
    Some((selections, decoded))
}

/// The name of the item that has these selections.
fn item_of(ids: &[u64]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    format!("selections-{:032x}", xxh3_128(&bytes))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use crate::log::DatasetRecords;
    use crate::log::model::{Encoding, Stored};
    use crate::log::records::RecordList;

    const DIMS: [u64; 2] = [50, 1000];
    const SOURCES: usize = 3;

    fn dataset() -> Logged<'static> {
        Logged {
            id: 0,
            dims: &DIMS,
            element: 4,
            filtered: false,
        }
    }

    /// Records of one block, of a shared selection, and of one that cannot be read.
    fn index(known: &Selections) -> DatasetIndex {
        let mut records = RecordList::new(2, 80);
        let stored = |offset| Stored {
            source: (offset % 3) as u16,
            offset,
            len: 12,
            encoding: Encoding::Raw,
        };
        let selection = Selection::new(1, 300, |b, _| b as u64 * 3, |b, _| 1 + b as u64 % 2);
        let (selection, _) = known.keep(7, selection.unwrap());
        for row in 0..40 {
            records.push_selection(stored(row * 7), row, (7, selection.clone()), Some(row));
            records.push_block(stored(row * 9), row, &[row, 990], &[1, 3]);
        }
        records.spoil_last("torn".into());
        records.put_in_order();
        let found = DatasetRecords {
            records,
            faults: vec!["an entry".into()],
            decoded: 100,
        };
        DatasetIndex::of(found, &["a table".into()])
    }

    /// All that an index says of a part of the dataset.
    fn answers(index: &DatasetIndex, query: &Bounds) -> Vec<String> {
        let mut said: Vec<String> = index.faults().to_vec();
        let _ = index.visit_back(query, |record| {
            said.push(format!("{:?} {:?}", record.stored, record.fault));
            record.visit_back(query, |block| {
                said.push(format!("{} {}", block.bounds(), block.before));
                ControlFlow::<()>::Continue(())
            })
        });
        said
    }

    fn somewhere() -> Bounds {
        Bounds {
            start: vec![3, 100],
            end: vec![40, 999],
        }
    }

    #[test]
    fn what_was_kept_answers_as_before() {
        let known = Selections::default();
        let made = index(&known);
        let items = made.to_kept().unwrap();
        let (name, selections) = items.selections.unwrap();
        let get = |asked: &str| (asked == name).then(|| selections.clone());
        // Here the selections are known, and need not be fetched.
        let read = DatasetIndex::from_kept(&items.index, |_| None, &dataset(), SOURCES, &known);
        assert_eq!(
            answers(&read.unwrap(), &somewhere()),
            answers(&made, &somewhere())
        );
        let fresh = Selections::default();
        let read = DatasetIndex::from_kept(&items.index, get, &dataset(), SOURCES, &fresh).unwrap();
        assert_eq!(answers(&read, &somewhere()), answers(&made, &somewhere()));
        assert!(read.bytes() > read.records.bytes() + selections.len());

        let too_few = DatasetIndex::from_kept(&items.index, get, &dataset(), 2, &fresh);
        assert!(too_few.is_none());
        let other_rank = Logged {
            dims: &DIMS[..1],
            ..dataset()
        };
        let refused = DatasetIndex::from_kept(&items.index, get, &other_rank, SOURCES, &fresh);
        assert!(refused.is_none());
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_answered(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            in_selections in any::<bool>(),
        ) {
            let mut items = index(&Selections::default()).to_kept().unwrap();
            let (_, mut selections) = items.selections.unwrap();
            let damaged = if in_selections { &mut selections } else { &mut items.index };
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let get = |_: &str| Some(selections);
            let known = Selections::default();
            let read = DatasetIndex::from_kept(&items.index, get, &dataset(), SOURCES, &known);
            if let Some(read) = read {
                answers(&read, &somewhere());
            }
        }
    }
}
