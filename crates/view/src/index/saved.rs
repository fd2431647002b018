//! Indexes on disk: an item for each dataset, and one for each set of selections. Datasets that were written
//! alike share their set.

use std::borrow::Cow;
use std::hash::Hash;
use std::io;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::store::StoreEntry;
use super::{DatasetIndex, query_memory};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::task::Task;
use h5logfs_log::Logged;
use h5logfs_log::base::Base;
use h5logfs_log::boxes::packed::{PackedBoxes, Row};
use h5logfs_log::conversion::Conversion;
use h5logfs_log::model::{Encoding, Selection, Selections};
use h5logfs_log::part::Part;
use h5logfs_log::records::{FAULT, HOW, Numbered, SELECTION, Shared, VALUES};
use h5logfs_log::source_file::SourceFile;

/// An index without its selections, in the form in which it is saved.
#[derive(Serialize, Deserialize)]
struct SavedIndex<'a> {
    /// Number of the source files that it was made from, and the hash of their identities: there may be thousands.
    sources: (usize, u128),
    records: Cow<'a, PackedBoxes>,
    /// Ids of the selections.
    selections: Vec<u64>,
    parts: Cow<'a, [Part]>,
    record_faults: Cow<'a, [Box<str>]>,
    conversions: Cow<'a, [Conversion]>,
    base: Cow<'a, Option<Base>>,
    diagnostics: Cow<'a, [Diagnostic]>,
}

/// Some rows of a dataset along its first dimension: see [`Layout::strip`](h5logfs_log::Layout::strip).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Strip {
    /// First row.
    pub first: u64,
    /// The most rows.
    pub rows: u64,
}

impl Strip {
    /// The strip in which `row` lies. Strips have `rows` rows, counted from the first row of the dataset on.
    pub fn with(row: u64, rows: u64) -> Self {
        let rows = rows.max(1);
        Strip {
            first: row - row % rows,
            rows,
        }
    }

    /// The row behind the last row.
    pub fn end(self) -> u64 {
        self.first.saturating_add(self.rows)
    }
}

/// The inputs of an index.
#[derive(Debug, Clone, Copy)]
pub struct IndexInputs<'a> {
    /// Number of the dataset in the snapshot.
    pub number: usize,
    /// Rows of the strip. `None` stands for all records.
    pub strip: Option<Strip>,
    /// The dataset, as its layout knows it.
    pub dataset: &'a Logged<'a>,
    /// The files that hold the bytes of the log.
    pub sources: &'a [SourceFile],
}

impl IndexInputs<'_> {
    fn item(&self) -> String {
        match self.strip {
            None => format!("index-{}", self.number),
            Some(Strip { first, .. }) => format!("strip-{:08x}{first:016x}", self.number),
        }
    }
}

/// Number of files, and the hash of their identities.
pub fn identities(files: &[SourceFile]) -> (usize, u128) {
    let mut hash = Xxh3::new();
    for file in files {
        file.identity().hash(&mut hash);
    }
    (files.len(), hash.digest128())
}

impl DatasetIndex {
    /// Saves the index for [`DatasetIndex::load`]. An index that cannot be saved is left out.
    pub fn save(&self, task: &Task, entry: &StoreEntry, inputs: IndexInputs<'_>) {
        // Spelled selections go to the disk piece by piece, so only their lists take memory.
        let lists = self.shared.selections.len() * (size_of::<u64>() * 2 + SPELLED);
        let Ok(_lists) = task.reserve(lists as u64) else {
            return;
        };
        let ids: Vec<u64> = self.shared.selections.iter().map(|(id, _)| *id).collect();
        let name = item_of(&ids);
        // If another dataset had all of these selections, they were saved with it.
        if !ids.is_empty() && (self.decoded > 0 || !entry.has(&name)) {
            put(entry, &name, &spelled(&self.shared.selections));
        }
        let kept = SavedIndex {
            sources: identities(inputs.sources),
            records: Cow::Borrowed(&self.records),
            selections: ids,
            parts: Cow::Borrowed(&self.shared.parts),
            record_faults: Cow::Borrowed(&self.shared.faults),
            conversions: Cow::Borrowed(&self.shared.conversions),
            base: Cow::Borrowed(&self.shared.base),
            diagnostics: Cow::Borrowed(&self.diagnostics),
        };
        put(entry, &inputs.item(), &kept);
    }

    /// The saved index. `None` where there is none, where it was made from other files, or where its parts do not fit
    /// together. `known` has the selections of the log that are in use.
    pub fn load(
        task: &Task,
        entry: &StoreEntry,
        inputs: IndexInputs<'_>,
        known: &Selections,
    ) -> Option<Self> {
        let item = entry.get(task, &inputs.item())?;
        let get = |name: &str| entry.get(task, name);
        Self::from_items(task, item, get, inputs, known)
    }

    /// [`DatasetIndex::load`] from the bytes of the item. Everything is checked, because a checksum shows damage and
    /// not intent. `get` is called at most once, for the item with the selections.
    pub fn from_items(
        task: &Task,
        item: Reserved<Vec<u8>>,
        get: impl FnOnce(&str) -> Option<Reserved<Vec<u8>>>,
        inputs: IndexInputs<'_>,
        known: &Selections,
    ) -> Option<Self> {
        let reservation = task.reserve(decoded_at_most(&item)).ok()?;
        let saved: SavedIndex<'_> = postcard::from_bytes(&item).ok()?;
        if saved.sources != identities(inputs.sources) {
            return None;
        }
        drop(item);
        Self::from_saved(task, saved, reservation, get, inputs.dataset, known)
    }

    fn from_saved(
        task: &Task,
        saved: SavedIndex<'_>,
        reservation: Reservation,
        get: impl FnOnce(&str) -> Option<Reserved<Vec<u8>>>,
        dataset: &Logged<'_>,
        known: &Selections,
    ) -> Option<Self> {
        let in_use = saved.selections.iter();
        let in_use = in_use.map(|id| Some((*id, known.get(*id)?)));
        let (selections, decoded) = match in_use.collect::<Option<Vec<Numbered>>>() {
            Some(selections) => (selections, 0),
            None => {
                let item = get(&item_of(&saved.selections))?;
                read_selections(task, &item, &saved.selections, known)?
            }
        };
        let records = saved.records.into_owned();
        let records = records.checked(dataset.dims.len(), VALUES)?;
        let shared = Shared {
            selections,
            parts: saved.parts.into_owned(),
            conversions: saved.conversions.into_owned(),
            faults: saved.record_faults.into_owned(),
            base: saved.base.into_owned(),
        };
        let mut index = DatasetIndex {
            query_memory: query_memory(&records, &shared),
            records,
            shared,
            diagnostics: saved.diagnostics.into_owned(),
            decoded,
            reservation,
        };
        index.reserve_rest().ok()?;
        let (sources, _) = saved.sources;
        index.fits(dataset, sources).then_some(index)
    }

    /// Whether everything that the records refer to is there.
    fn fits(&self, dataset: &Logged<'_>, sources: usize) -> bool {
        let rank = dataset.dims.len();
        let fits = |row: Row<'_>| {
            let record = self.record(row);
            let lead = usize::from(record.has_lead);
            // Positions are stored plus one.
            let is_there = |position: u64, list: usize| position <= list as u64;
            row.count().iter().all(|count| *count > 0)
                && usize::from(record.stored.source) < sources
                && is_there(row.value(HOW) >> FAULT, self.shared.faults.len())
                && match record.stored.encoding {
                    Encoding::Part => record.part.is_some_and(|part| part.has(record.count)),
                    _ => is_there(row.value(SELECTION), self.shared.selections.len()),
                }
                && match record.stored.encoding {
                    Encoding::Converted => record.conversion.is_some(),
                    Encoding::Operator | Encoding::Part => true,
                    _ => record.conversion.is_none(),
                }
                && record.selection.is_none_or(|s| s.rank() + lead == rank)
        };
        let base = self.shared.base.as_ref();
        let mut conversions = self.shared.conversions.iter();
        conversions.all(|c| c.is_sound() && c.shown_size() as u64 == dataset.element_size)
            && base.is_none_or(|base| base.fits(dataset, sources))
            && !self.records.any_kind(&[HOW, SELECTION], |row| !fits(row))
    }
}

/// The selections of an item, and the bytes of memory of those that were not in use. The item must have the selections
/// `ids`, in that order.
fn read_selections(
    task: &Task,
    item: &[u8],
    ids: &[u64],
    known: &Selections,
) -> Option<(Vec<Numbered>, usize)> {
    let _all = task.reserve(decoded_at_most(item)).ok()?;
    let spelled: Vec<(u64, usize, Selection)> = postcard::from_bytes(item).ok()?;
    if !spelled.iter().map(|(id, ..)| id).eq(ids) {
        return None;
    }
    let mut decoded = 0;
    let selections = spelled.into_iter().map(|(id, rank, selection)| {
        let selection = selection.checked(rank)?.reserved(task).ok()?;
        let (selection, is_new) = known.keep(id, selection);
        decoded += if is_new { selection.bytes() } else { 0 };
        Some((id, selection))
    });
    let selections = selections.collect::<Option<Vec<_>>>()?;
    Some((selections, decoded))
}

/// The most bytes of memory that the decoded form of an item takes. A number of 8 bytes may take one byte in the item.
fn decoded_at_most(item: &[u8]) -> u64 {
    8 * item.len() as u64
}

fn put(entry: &StoreEntry, name: &str, item: &impl Serialize) {
    entry.put_spelled(name, |out| {
        postcard::to_io(item, out).map_err(io::Error::other)?;
        Ok(())
    });
}

/// Bytes of memory of one entry of [`spelled`].
const SPELLED: usize = size_of::<(u64, usize, &Selection)>();

/// Selections as they are saved, each with its rank.
fn spelled(selections: &[Numbered]) -> Vec<(u64, usize, &Selection)> {
    let spelled = selections.iter().map(|(id, s)| (*id, s.rank(), &***s));
    spelled.collect()
}

/// The name of the item with these selections.
fn item_of(ids: &[u64]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    format!("selections-{:032x}", xxh3_128(&bytes))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::*;
    use h5logfs_log::DatasetRecords;
    use h5logfs_log::boxes::Bounds;
    use h5logfs_log::lattice::Lattice;
    use h5logfs_log::model::{Encoding, StoredBytes};
    use h5logfs_log::numbers::{NumberConversion, NumberFormat, NumberType};
    use h5logfs_log::records::RecordList;

    const DIMS: [u64; 2] = [50, 1000];
    const SOURCES: usize = 3;

    fn dataset() -> Logged<'static> {
        Logged {
            id: 0,
            dims: &DIMS,
            element_size: 4,
            filtered: false,
        }
    }

    const DOUBLES: Conversion = Conversion::Numbers(NumberConversion {
        from: NumberFormat {
            kind: NumberType::F64,
            big_endian: true,
        },
        to: NumberFormat {
            kind: NumberType::I32,
            big_endian: false,
        },
        fill: [1; 8],
    });

    /// Records of one block, of a shared selection, of every third element, of another type, and one that is not
    /// readable. Below them are elements of a file.
    fn index(known: &Selections) -> DatasetIndex {
        let task = &Task::unlimited();
        let mut records = RecordList::new(task, 2, 80).unwrap();
        let stored = |offset| StoredBytes {
            source: (offset % 3) as u16,
            offset,
            len: 12,
            encoding: Encoding::Raw,
        };
        let selection = Selection::new(task, 1, 300, |b, _| b as u64 * 3, |b, _| 1 + b as u64 % 2);
        let (selection, _) = known.keep(7, selection.unwrap());
        for row in 0..40 {
            let shared = (7, selection.clone());
            records
                .push_selection(stored(row * 7), row, shared, Some(row))
                .unwrap();
            records
                .push_block(stored(row * 9), row, &[row, 990], &[1, 3])
                .unwrap();
        }
        records.spoil_last("torn".into()).unwrap();
        let part = Part {
            sides: vec![5, 7],
            start: vec![1, 0],
            filters: Vec::new(),
        };
        records
            .push_part(stored(6), 49, (&[30, 150], &[4, 7]), &part)
            .unwrap();
        let every_third = Lattice::new(vec![1, 90], vec![9, 80], vec![5, 3]).unwrap();
        let (every_third, _) =
            known.keep(8, Selection::strided(every_third).reserved(task).unwrap());
        records
            .push_selection(stored(7), 50, (8, every_third), None)
            .unwrap();
        records
            .push_block(stored(8), 51, &[20, 200], &[4, 400])
            .unwrap();
        records.convert_last(&DOUBLES).unwrap();
        records.put_in_order().unwrap();
        let base = Base::new((1, 60), 9000, vec![30, 1000], 4, Some(DOUBLES));
        records.set_base(base.unwrap());
        let found = DatasetRecords {
            records,
            diagnostics: vec![Diagnostic::unreadable("an entry")],
            decoded: 100,
        };
        DatasetIndex::of(task, found, &[Diagnostic::unreadable("a table")]).unwrap()
    }

    /// All that an index answers about a part of the dataset.
    fn answers(index: &DatasetIndex, query: &Bounds) -> Vec<String> {
        let mut said: Vec<String> = index
            .diagnostics()
            .iter()
            .map(Diagnostic::to_string)
            .collect();
        let _ = index.visit_back(query, |record| {
            let how = (record.conversion, record.part, record.fault);
            said.push(format!("{:?} {how:?}", record.stored));
            record.visit_back(query, |block| {
                said.push(format!("{} {}", block.bounds(), block.elements_before));
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

    /// The saved form of an index, and its selections.
    fn packed(index: &DatasetIndex) -> (Vec<u8>, Vec<u8>) {
        let spelled = spelled(&index.shared.selections);
        let kept = SavedIndex {
            sources: (SOURCES, 0),
            records: Cow::Borrowed(&index.records),
            selections: index.shared.selections.iter().map(|(id, _)| *id).collect(),
            parts: Cow::Borrowed(&index.shared.parts),
            record_faults: Cow::Borrowed(&index.shared.faults),
            conversions: Cow::Borrowed(&index.shared.conversions),
            base: Cow::Borrowed(&index.shared.base),
            diagnostics: Cow::Borrowed(&index.diagnostics),
        };
        let packed = |bytes: postcard::Result<Vec<u8>>| bytes.unwrap();
        (
            packed(postcard::to_stdvec(&kept)),
            packed(postcard::to_stdvec(&spelled)),
        )
    }

    fn read(
        saved: &[u8],
        selections: Option<&[u8]>,
        dataset: &Logged<'_>,
        known: &Selections,
    ) -> Option<DatasetIndex> {
        let task = &Task::unlimited();
        let saved = postcard::from_bytes(saved).ok()?;
        let get = |_: &str| Some(Reserved::new(selections?.to_vec(), task.reservation()));
        DatasetIndex::from_saved(task, saved, task.reservation(), get, dataset, known)
    }

    #[test]
    fn what_was_kept_answers_as_before() {
        let known = Selections::default();
        let made = index(&known);
        let (kept, selections) = packed(&made);
        let wanted = answers(&made, &somewhere());
        // The selections are in use here, and are not read.
        let again = read(&kept, None, &dataset(), &known).unwrap();
        assert_eq!(answers(&again, &somewhere()), wanted);

        let fresh = Selections::default();
        let other_rank = Logged {
            dims: &DIMS[..1],
            ..dataset()
        };
        assert!(read(&kept, None, &dataset(), &fresh).is_none());
        assert!(read(&kept, Some(&selections), &other_rank, &fresh).is_none());
        let again = read(&kept, Some(&selections), &dataset(), &fresh).unwrap();
        assert_eq!(answers(&again, &somewhere()), wanted);
        assert!(again.bytes() > again.records.bytes() + again.shared.selections[0].1.bytes());
    }

    #[test]
    fn numbers_of_another_size_than_the_elements_are_refused() {
        let known = Selections::default();
        let made = index(&known);
        let (kept, _) = packed(&made);
        assert!(read(&kept, None, &dataset(), &known).is_some());
        let longer = Logged {
            element_size: 8,
            ..dataset()
        };
        assert!(read(&kept, None, &longer, &known).is_none());
        let task = &Task::unlimited();
        let mut without_records = RecordList::new(task, 2, 0).unwrap();
        let base = Base::new((1, 60), 9000, vec![30, 1000], 4, Some(DOUBLES));
        without_records.set_base(base.unwrap());
        let found = DatasetRecords {
            records: without_records,
            diagnostics: Vec::new(),
            decoded: 0,
        };
        let (of_base, _) = packed(&DatasetIndex::of(task, found, &[]).unwrap());
        assert!(read(&of_base, None, &longer, &known).is_none());
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_answered(
            at in any::<prop::sample::Index>(),
            byte in prop_oneof![
                any::<u8>().prop_map(|byte| vec![byte]),
                // 2^63-1 and 2^64-1 as postcard encodes them.
                Just([&[0xff; 8][..], &[0x7f]].concat()),
                Just([&[0xff; 8][..], &[0xff, 1]].concat()),
            ],
            in_selections in any::<bool>(),
        ) {
            let (mut kept, mut selections) = packed(&index(&Selections::default()));
            let damaged = if in_selections { &mut selections } else { &mut kept };
            let at = at.index(damaged.len());
            damaged.splice(at..at + 1, byte);
            let known = Selections::default();
            if let Some(read) = read(&kept, Some(&selections), &dataset(), &known) {
                answers(&read, &somewhere());
                let everything = Bounds { start: vec![0; 2], end: DIMS.to_vec() };
                answers(&read, &everything);
                read.is_touched(&everything);
            }
        }
    }
}
