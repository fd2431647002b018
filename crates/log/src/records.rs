//! The records of one dataset, as a layout finds them.

use std::collections::HashMap;
use std::sync::Arc;

use super::base::Base;
use super::conversion::{Constant, Conversion};
use super::model::{Encoding, Record, Selection, StoredBytes};
use crate::boxes::packed::Row;
use crate::column::Column;
use crate::part::Part;
use h5logfs_common::buffers::with_room;
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::task::Task;

/// A list of records, and the parts that they share. A layout fills it and calls [`RecordList::put_in_order`] last.
#[derive(Debug)]
pub struct RecordList {
    reservation: Reservation,
    rank: usize,
    /// Number of records, and the number for which a new column allocates room.
    len: usize,
    room: usize,
    /// The starts and the counts of the boxes of the records, then their [`VALUES`].
    columns: Vec<Column>,
    /// Some records are zlib streams of known length.
    has_deflated: bool,
    /// The places of the records in the columns, in the order of the records. `None` where both orders are equal.
    sorted: Option<Vec<u32>>,
    /// Index in the list of selections, by the number of the selection.
    numbers: HashMap<u64, u32>,
    /// Index in the list of parts.
    parts: HashMap<Part, u32>,
    shared: Shared,
}

/// Number of values of a record, besides its box: its place in the order of application, offset and length of its
/// stored bytes, the position of its selection or its part plus one, and [`HOW`]. In a list, records of lower order apply first; of
/// the same order, those of lower offset. In an index, the first value is the number of the record.
pub const VALUES: usize = 5;
const ORDER: usize = 0;
const OFFSET: usize = 1;
const LEN: usize = 2;
/// Index of the value that is the position of the selection plus one; of the part, for [`Encoding::Part`].
pub const SELECTION: usize = 3;
/// Index of the value that describes the stored bytes, in groups of bits.
pub const HOW: usize = 4;

/// Bits of [`HOW`]: the source file in the low 16 bits, then encoding, lead, position of the conversion plus
/// one, and position of the fault plus one.
const ENCODING: u32 = 16;
const LEAD: u64 = 1 << 20;
const CONVERSION: u32 = 21;
const CONVERSION_BITS: u64 = 0x1ff;
/// The lowest bit of [`HOW`] that belongs to the fault: its position plus one.
pub const FAULT: u32 = 30;
const ENCODING_BITS: u64 = 15;
const ENCODINGS: [Encoding; 9] = [
    Encoding::Raw,
    Encoding::Deflate,
    Encoding::RawOrDeflate,
    Encoding::Pipeline,
    Encoding::Converted,
    Encoding::DeflateStream,
    Encoding::DeflateStreams,
    Encoding::Operator,
    Encoding::Part,
];

/// The bits of [`HOW`] for an encoding.
fn encoding_bits(encoding: Encoding) -> u64 {
    let number = ENCODINGS.iter().position(|e| *e == encoding);
    (number.unwrap_or(0) as u64) << ENCODING
}

/// [`HOW`] with another encoding.
fn with_encoding(how: u64, encoding: Encoding) -> u64 {
    how & !(ENCODING_BITS << ENCODING) | encoding_bits(encoding)
}

/// The parts that records of a dataset share, and the elements below them.
#[derive(Debug, Default)]
pub struct Shared {
    /// Selections, without duplicates.
    pub selections: Vec<Numbered>,
    /// Parts, without duplicates.
    pub parts: Vec<Part>,
    /// Conversions, without duplicates.
    pub conversions: Vec<Conversion>,
    /// Reasons why the bytes of single records cannot be read.
    pub faults: Vec<Box<str>>,
    /// The elements below all records.
    pub base: Option<Base>,
}

/// A selection, and the layout's number for it. Datasets share selections by these numbers.
pub type Numbered = (u64, Arc<Reserved<Selection>>);

/// Bytes of memory of one entry of [`RecordList::numbers`], with unused capacity.
const OF_NUMBER: u64 = 48;

impl RecordList {
    /// A list for about `number` records.
    pub fn new(task: &Task, rank: usize, number: usize) -> Result<Self, Fault> {
        let columns = 2 * rank + VALUES;
        Ok(RecordList {
            reservation: task.reserve((columns * size_of::<Column>()) as u64)?,
            rank,
            len: 0,
            room: number,
            columns: (0..columns).map(|_| Column::Same(0)).collect(),
            has_deflated: false,
            sorted: None,
            numbers: HashMap::new(),
            parts: HashMap::new(),
            shared: Shared::default(),
        })
    }

    /// Rank of the dataset.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a record of one block, of the dataset's rank. All methods that add records fail where there is no memory.
    #[inline]
    pub fn push_block(
        &mut self,
        stored: StoredBytes,
        order: u64,
        start: &[u64],
        count: &[u64],
    ) -> Result<(), Fault> {
        self.push_box(start.iter().chain(count).copied())?;
        self.push_values(stored, order, 0, false)
    }

    /// Adds a record of one block that is a part of a stored array. `stored` is the place of this array.
    pub fn push_part(
        &mut self,
        stored: StoredBytes,
        order: u64,
        (start, count): (&[u64], &[u64]),
        part: &Part,
    ) -> Result<(), Fault> {
        let stored = StoredBytes {
            encoding: Encoding::Part,
            ..stored
        };
        let number = match self.parts.get(part) {
            Some(number) => *number,
            None => {
                self.reservation.grow(OF_NUMBER + 2 * part.bytes() as u64)?;
                let parts = &mut self.shared.parts;
                let number = u32::try_from(parts.len())?;
                self.reservation.push(parts, part.clone())?;
                self.parts.insert(part.clone(), number);
                number
            }
        };
        self.push_box(start.iter().chain(count).copied())?;
        self.push_values(stored, order, u64::from(number) + 1, false)
    }

    /// Adds a record of several blocks. `lead`: their index along the first dimension, for blocks with one dimension
    /// less than the dataset.
    pub fn push_selection(
        &mut self,
        stored: StoredBytes,
        order: u64,
        (id, selection): Numbered,
        lead: Option<u64>,
    ) -> Result<(), Fault> {
        let bounds = selection.bounds();
        let number = match self.numbers.get(&id) {
            Some(number) => *number,
            None => {
                self.reservation.grow(OF_NUMBER)?;
                let selections = &mut self.shared.selections;
                let number = selections.len() as u32;
                self.reservation.push(selections, (id, selection))?;
                self.numbers.insert(id, number);
                number
            }
        };
        let start = lead.iter().chain(&bounds.start).copied();
        let count = lead.map(|_| 1).into_iter().chain(bounds.count());
        self.push_box(start.chain(count))?;
        self.push_values(stored, order, u64::from(number) + 1, lead.is_some())
    }

    #[inline]
    fn push_box(&mut self, sides: impl Iterator<Item = u64>) -> Result<(), Fault> {
        self.push_cells(0, sides)
    }

    #[inline]
    fn push_values(
        &mut self,
        stored: StoredBytes,
        order: u64,
        selection: u64,
        has_lead: bool,
    ) -> Result<(), Fault> {
        let lead = if has_lead { LEAD } else { 0 };
        let how = u64::from(stored.source) | encoding_bits(stored.encoding) | lead;
        self.has_deflated |= matches!(
            stored.encoding,
            Encoding::Deflate | Encoding::DeflateStreams
        );
        let values = [order, stored.offset, stored.len, selection, how];
        self.push_cells(2 * self.rank, values.into_iter())?;
        self.len += 1;
        Ok(())
    }

    /// Adds numbers to the columns from `first` on.
    #[inline]
    fn push_cells(
        &mut self,
        first: usize,
        numbers: impl Iterator<Item = u64>,
    ) -> Result<(), Fault> {
        let (len, room, memory) = (self.len, self.room, &mut self.reservation);
        for (column, number) in self.columns[first..].iter_mut().zip(numbers) {
            column.push(number, len, room, memory)?;
        }
        Ok(())
    }

    /// Changes [`HOW`] of the last record.
    fn change_last(&mut self, change: impl FnOnce(u64) -> u64) -> Result<(), Fault> {
        let how = &mut self.columns[2 * self.rank + HOW];
        if let Some(last) = self.len.checked_sub(1) {
            let changed = change(how.get(last));
            how.set(last, changed, self.len, &mut self.reservation)?;
        }
        Ok(())
    }

    /// Marks the elements of the last record, which is raw or the output of an operator, for conversion. A list has at most 255 different conversions: the record is
    /// unreadable if it would need another one.
    pub fn convert_last(&mut self, conversion: &Conversion) -> Result<(), Fault> {
        let conversions = &mut self.shared.conversions;
        let known = conversions.iter().position(|c| c == conversion);
        let at = known.unwrap_or(conversions.len());
        let Some(at) = u8::try_from(at).ok().filter(|at| *at < u8::MAX) else {
            return self.spoil_last("its dataset has more conversions than can be kept".to_owned());
        };
        if known.is_none() {
            conversions.push(*conversion);
        }
        self.change_last(|how| {
            let how = how & !(CONVERSION_BITS << CONVERSION) | (u64::from(at) + 1) << CONVERSION;
            match how >> ENCODING & ENCODING_BITS {
                // Raw.
                0 => with_encoding(how, Encoding::Converted),
                _ => how,
            }
        })
    }

    /// Adds a record that gives all elements of a box one value, of which the log stores nothing.
    pub fn push_constant(
        &mut self,
        constant: Constant,
        order: u64,
        start: &[u64],
        count: &[u64],
    ) -> Result<(), Fault> {
        let nothing = StoredBytes {
            source: 0,
            offset: 0,
            len: 0,
            encoding: Encoding::Raw,
        };
        self.push_block(nothing, order, start, count)?;
        self.convert_last(&constant.into())
    }

    /// Sets the elements below all records.
    pub fn set_base(&mut self, base: Base) {
        self.shared.base = Some(base);
    }

    /// The elements below all records.
    pub fn base(&self) -> Option<&Base> {
        self.shared.base.as_ref()
    }

    /// Marks the bytes of the last record as unreadable, for this reason.
    pub fn spoil_last(&mut self, reason: String) -> Result<(), Fault> {
        self.reservation.grow(reason.len() as u64)?;
        let faults = &mut self.shared.faults;
        self.reservation.push(faults, reason.into())?;
        let after = faults.len() as u64;
        self.change_last(|how| how & ((1 << FAULT) - 1) | after << FAULT)
    }

    /// Appends the records of another list. Neither list may be in order yet, nor have selections, parts, conversions
    /// or a base.
    pub fn append(&mut self, mut next: RecordList) -> Result<(), Fault> {
        let (known, more) = (self.shared.faults.len() as u64, next.len);
        let behind = |how: u64| match how >> FAULT {
            0 => how,
            _ => how + (known << FAULT),
        };
        let memory = &mut self.reservation;
        let how = &mut next.columns[2 * self.rank + HOW];
        how.replace(more, &mut next.reservation, behind)?;
        for (column, next) in self.columns.iter_mut().zip(&next.columns) {
            column.append(self.len, (next, more), memory)?;
        }
        for fault in std::mem::take(&mut next.shared.faults) {
            memory.grow(fault.len() as u64)?;
            memory.push(&mut self.shared.faults, fault)?;
        }
        self.has_deflated |= next.has_deflated;
        self.len += more;
        Ok(())
    }

    /// Sorts the records into the order in which they apply. The caller calls this once all records are added.
    pub fn put_in_order(&mut self) -> Result<(), Fault> {
        let column = |value| &self.columns[2 * self.rank + value];
        let (orders, offsets) = (column(ORDER), column(OFFSET));
        let keys = (0..self.len).map(|place| (orders.get(place), offsets.get(place)));
        let are_sorted = match orders {
            Column::Same(_) => offsets.is_sorted(self.len),
            _ => keys.clone().is_sorted(),
        };
        if are_sorted {
            return Ok(());
        }
        let (size, kept) = (
            size_of::<((u64, u64), u32)>() as u64,
            size_of::<u32>() as u64,
        );
        let all = self.len() as u64;
        self.reservation.grow(all * (size + kept))?;
        let mut list = with_room(self.len())?;
        list.extend(keys.zip(0u32..));
        list.sort_unstable();
        // A list collected from the old one would keep all of its memory.
        let mut sorted = with_room(self.len())?;
        sorted.extend(list.iter().map(|(_, place)| *place));
        drop(list);
        self.reservation
            .shrink_to(self.reservation.bytes() - all * size);
        self.sorted = Some(sorted);
        Ok(())
    }

    /// The place of a record in the columns, by its position in the list.
    #[inline]
    fn place(&self, number: usize) -> usize {
        self.sorted.as_ref().map_or(number, |s| s[number] as usize)
    }

    /// A number of a record. Columns are the `2 * rank` numbers of its box, then its [`VALUES`].
    #[inline]
    pub fn cell(&self, number: usize, column: usize) -> u64 {
        self.columns[column].get(self.place(number))
    }

    /// The number that all records have in a column; `None` where they differ.
    pub fn same(&self, column: usize) -> Option<u64> {
        match self.columns[column] {
            Column::Same(number) => Some(number),
            _ => None,
        }
    }

    /// A record, by its position in the list. `cells`: space for its box and its values.
    #[inline]
    pub fn get<'a>(&'a self, number: usize, cells: &'a mut Vec<u64>) -> Record<'a> {
        let place = self.place(number);
        cells.clear();
        cells.extend(self.columns.iter().map(|column| column.get(place)));
        self.shared.record(Row::new(self.rank, cells))
    }

    /// The selection of a record, by its position in the list.
    pub fn selection_of(&self, number: usize) -> Option<&Numbered> {
        let cell = |value| self.cell(number, 2 * self.rank + value);
        self.shared.selection_at(cell(SELECTION), cell(HOW))
    }

    /// The selections of all records, without duplicates.
    pub fn selections(&self) -> &[Numbered] {
        &self.shared.selections
    }

    /// Calls `take` with each record, in the order of the list, and returns the results.
    pub fn map<'a, T>(
        &'a self,
        mut take: impl FnMut(&Record<'_>) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        let mut cells = Vec::new();
        (0..self.len()).map(move |number| take(&self.get(number, &mut cells)))
    }

    /// Reasons why the bytes of single records cannot be read.
    pub fn faults(&self) -> &[Box<str>] {
        &self.shared.faults
    }

    /// Whether some records are zlib streams of known length.
    pub fn has_deflated(&self) -> bool {
        self.has_deflated
    }

    /// Treats all raw records as records that may be zlib streams.
    pub fn doubt_raw(&mut self) -> Result<(), Fault> {
        let doubted = |how: u64| match how >> ENCODING & ENCODING_BITS {
            0 => with_encoding(how, Encoding::RawOrDeflate),
            _ => how,
        };
        let how = &mut self.columns[2 * self.rank + HOW];
        how.replace(self.len, &mut self.reservation, doubted)?;
        Ok(())
    }

    /// The parts that the records share, and the reservation of their memory.
    pub fn into_shared(mut self) -> (Shared, Reservation) {
        self.columns = Vec::new();
        self.sorted = None;
        self.numbers = HashMap::new();
        self.parts = HashMap::new();
        let bytes = self.shared.bytes() as u64;
        self.reservation.shrink_to(bytes);
        (self.shared, self.reservation)
    }
}

impl Shared {
    /// The record of a row of an index, or of a list.
    pub fn record<'a>(&'a self, row: Row<'a>) -> Record<'a> {
        let how = row.value(HOW);
        let after = |number: u64| (number as usize).checked_sub(1);
        let encoding = ENCODINGS.get((how >> ENCODING & ENCODING_BITS) as usize);
        let conversion = after(how >> CONVERSION & CONVERSION_BITS);
        let fault = after(how >> FAULT).and_then(|at| self.faults.get(at));
        Record {
            start: row.start(),
            count: row.count(),
            selection: self.selection(row).map(|(_, selection)| &***selection),
            has_lead: how & LEAD != 0,
            stored: StoredBytes {
                source: how as u16,
                offset: row.value(OFFSET),
                len: row.value(LEN),
                encoding: encoding.copied().unwrap_or(Encoding::Raw),
            },
            conversion: conversion.and_then(|at| self.conversions.get(at)),
            part: match encoding {
                Some(Encoding::Part) => {
                    after(row.value(SELECTION)).and_then(|at| self.parts.get(at))
                }
                _ => None,
            },
            fault: fault.map(|f| &**f),
        }
    }

    /// The selection of the record in a row.
    pub fn selection(&self, row: Row<'_>) -> Option<&Numbered> {
        self.selection_at(row.value(SELECTION), row.value(HOW))
    }

    /// The selection for two values of a record.
    fn selection_at(&self, value: u64, how: u64) -> Option<&Numbered> {
        let is_part = how & ENCODING_BITS << ENCODING == encoding_bits(Encoding::Part);
        let at = (value as usize).checked_sub(1).filter(|_| !is_part)?;
        self.selections.get(at)
    }

    /// Bytes of memory, without the selections themselves.
    pub fn bytes(&self) -> usize {
        let faults = self.faults.iter().map(|f| f.len());
        self.selections.capacity() * size_of::<Numbered>()
            + self.parts.iter().map(Part::bytes).sum::<usize>()
            + self.conversions.len() * size_of::<Conversion>()
            + self.faults.capacity() * size_of::<Box<str>>()
            + faults.sum::<usize>()
    }
}
