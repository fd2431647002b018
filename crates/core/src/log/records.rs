//! The records of one dataset, as a layout finds them.

use std::collections::HashMap;
use std::sync::Arc;

use super::base::Base;
use super::model::{Encoding, Record, Selection, StoredBytes};
use super::numbers::Conversion;
use crate::memory::{Reservation, Reserved};
use crate::task::Task;

/// Records, and what they share. A layout makes it and calls [`RecordList::put_in_order`] last.
#[derive(Debug)]
pub struct RecordList {
    reservation: Reservation,
    rank: usize,
    records: Vec<Listed>,
    /// Sides of the records' boxes: `rank` starts, then `rank` counts each.
    boxes: Vec<u64>,
    selections: Vec<Numbered>,
    /// Where in that list the selection of some number is.
    numbers: HashMap<u64, u32>,
    conversions: Vec<Conversion>,
    faults: Vec<Box<str>>,
    base: Option<Base>,
}

/// What the records of a dataset share, and what lies below them.
#[derive(Debug)]
pub struct Shared {
    /// Each once.
    pub selections: Vec<Numbered>,
    /// Each once.
    pub conversions: Vec<Conversion>,
    /// Why the bytes of single records cannot be read.
    pub faults: Vec<Box<str>>,
    /// What lies below the records.
    pub base: Option<Base>,
}

/// A selection, and its layout's number of it. Datasets share selections by these numbers.
pub type Numbered = (u64, Arc<Reserved<Selection>>);

/// A record without its box.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listed {
    pub stored: StoredBytes,
    /// Records of lower order apply first; of the same order, those of lower offset.
    order: u64,
    /// Position of its box.
    place: u32,
    /// Positions in the lists of selections and of faults, or [`NONE`].
    selection: u32,
    fault: u32,
    /// Position in the list of conversions, if it has one.
    pub conversion: Option<u8>,
    pub has_lead: bool,
}

const NONE: u32 = u32::MAX;

impl Listed {
    /// The position of its selection in the list of selections.
    pub fn selection(&self) -> Option<u32> {
        (self.selection != NONE).then_some(self.selection)
    }

    /// The position of its fault in the list of faults.
    pub fn fault(&self) -> Option<u32> {
        (self.fault != NONE).then_some(self.fault)
    }
}

/// Bytes of memory of one entry of [`RecordList::numbers`], spare places included.
const OF_NUMBER: u64 = 48;

impl RecordList {
    /// A list with capacity for `number` records. Fails where there is no memory for them.
    pub fn new(task: &Task, rank: usize, number: usize) -> Result<Self, String> {
        let mut list = RecordList {
            reservation: task.reservation(),
            rank,
            records: Vec::new(),
            boxes: Vec::new(),
            selections: Vec::new(),
            numbers: HashMap::new(),
            conversions: Vec::new(),
            faults: Vec::new(),
            base: None,
        };
        list.reservation.make_room(&mut list.records, number)?;
        let sides = number.saturating_mul(2 * rank);
        list.reservation.make_room(&mut list.boxes, sides)?;
        Ok(list)
    }

    /// Rank of the dataset.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a record of one block, of the dataset's rank. This and the others that add fail where there is no
    /// memory.
    pub fn push_block(
        &mut self,
        stored: StoredBytes,
        order: u64,
        start: &[u64],
        count: &[u64],
    ) -> Result<(), String> {
        self.reservation.extend(&mut self.boxes, start)?;
        self.reservation.extend(&mut self.boxes, count)?;
        self.push(stored, order, NONE, false)
    }

    /// Adds a record of several blocks. `lead`: their index along the first dimension, where they have one
    /// dimension less than the dataset.
    pub fn push_selection(
        &mut self,
        stored: StoredBytes,
        order: u64,
        (id, selection): Numbered,
        lead: Option<u64>,
    ) -> Result<(), String> {
        let bounds = selection.bounds();
        let sides = 2 * self.rank;
        self.reservation.make_room(&mut self.boxes, sides)?;
        self.boxes.extend(lead);
        self.boxes.extend_from_slice(&bounds.start);
        self.boxes.extend(lead.map(|_| 1));
        self.boxes.extend(bounds.count());
        let number = match self.numbers.get(&id) {
            Some(number) => *number,
            None => {
                self.reservation.grow(OF_NUMBER)?;
                let number = self.selections.len() as u32;
                self.reservation
                    .push(&mut self.selections, (id, selection))?;
                self.numbers.insert(id, number);
                number
            }
        };
        self.push(stored, order, number, lead.is_some())
    }

    fn push(
        &mut self,
        stored: StoredBytes,
        order: u64,
        selection: u32,
        has_lead: bool,
    ) -> Result<(), String> {
        let record = Listed {
            stored,
            order,
            place: self.records.len() as u32,
            selection,
            fault: NONE,
            conversion: None,
            has_lead,
        };
        self.reservation.push(&mut self.records, record)
    }

    /// Marks the last record as one whose elements have to be converted. There are at most as many conversions as
    /// pairs of types.
    pub fn convert_last(&mut self, conversion: &Conversion) {
        let known = self.conversions.iter().position(|c| c == conversion);
        let at = known.unwrap_or_else(|| {
            self.conversions.push(*conversion);
            self.conversions.len() - 1
        });
        if let (Some(last), Ok(at)) = (self.records.last_mut(), u8::try_from(at)) {
            last.conversion = Some(at);
            last.stored.encoding = Encoding::Converted;
        }
    }

    /// Sets what lies below all records.
    pub fn set_base(&mut self, base: Base) {
        self.base = Some(base);
    }

    /// What lies below the records, if anything does.
    pub fn base(&self) -> Option<&Base> {
        self.base.as_ref()
    }

    /// Marks the last record as one whose bytes cannot be read, for this reason.
    pub fn spoil_last(&mut self, reason: String) -> Result<(), String> {
        if let Some(last) = self.records.last_mut() {
            self.reservation.grow(reason.len() as u64)?;
            last.fault = self.faults.len() as u32;
            self.reservation.push(&mut self.faults, reason.into())?;
        }
        Ok(())
    }

    /// Sorts the records into the order in which they apply. Called once all records are there.
    pub fn put_in_order(&mut self) {
        // Without the place the sort would need memory to keep equals in order.
        self.records
            .sort_unstable_by_key(|r| (r.order, r.stored.offset, r.place));
    }

    /// The box of a record: first the starts, then the counts.
    pub fn sides(&self, number: usize) -> &[u64] {
        let at = self.records[number].place as usize * 2 * self.rank;
        &self.boxes[at..at + 2 * self.rank]
    }

    /// A record without its box, by its position in the list.
    pub(crate) fn listed(&self, number: usize) -> &Listed {
        &self.records[number]
    }

    /// A record, by its position in the list.
    pub fn get(&self, number: usize) -> Record<'_> {
        let record = &self.records[number];
        let (start, count) = self.sides(number).split_at(self.rank);
        let selection = record.selection();
        let fault = record.fault();
        Record {
            start,
            count,
            selection: selection.map(|at| &**self.selections[at as usize].1),
            has_lead: record.has_lead,
            stored: record.stored,
            conversion: record
                .conversion
                .map(|at| &self.conversions[usize::from(at)]),
            fault: fault.map(|at| &*self.faults[at as usize]),
        }
    }

    /// All records, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// How the bytes of each record are stored.
    pub fn stored_mut(&mut self) -> impl Iterator<Item = &mut StoredBytes> {
        self.records.iter_mut().map(|record| &mut record.stored)
    }

    /// What the records share, and the memory for it.
    pub fn into_shared(mut self) -> (Shared, Reservation) {
        self.records = Vec::new();
        self.boxes = Vec::new();
        self.numbers = HashMap::new();
        let shared = Shared {
            selections: self.selections,
            conversions: self.conversions,
            faults: self.faults,
            base: self.base,
        };
        self.reservation.shrink_to(shared.bytes() as u64);
        (shared, self.reservation)
    }
}

impl Shared {
    /// Bytes of memory, without the selections themselves.
    pub fn bytes(&self) -> usize {
        let faults = self.faults.iter().map(|f| f.len());
        self.selections.capacity() * size_of::<Numbered>()
            + self.conversions.len() * size_of::<Conversion>()
            + self.faults.capacity() * size_of::<Box<str>>()
            + faults.sum::<usize>()
    }
}
