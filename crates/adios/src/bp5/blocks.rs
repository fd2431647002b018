//! The blocks of one variable in one step, from all writers (section 3.6).

use std::ops::Range;
use std::sync::Arc;

use super::fields::{ArrayFields, Content, Described, Fields};
use super::index::WriterPlaces;
use super::record::Record;
use crate::Result;
use crate::model::{Block, File, Kind, Place, Type, Variable};
use crate::numbers::{EXTENT, Numbers};

/// Placeholder in a shape for the dimension along which blocks are joined.
const JOINED: u64 = u64::MAX - 1;

/// The location of a block without data. Derived variables that have only statistics have such blocks.
const NOWHERE: u64 = u64::MAX;

const OTHER_DIMENSIONS: &str = "it has other dimensions than with the writers before";
const NO_STARTS: &str = "its blocks have no starts";
const TOO_LARGE: &str = "it has a block that is too large";
const DERIVED: &str = "it is derived, and its data are not stored";

/// The largest rank: BP4 stores the number of dimensions in one byte.
const RANK: u64 = 255;

/// The writer of a record.
pub(super) struct Writer<'a> {
    pub rank: u32,
    pub places: WriterPlaces<'a>,
}

/// The description of a variable by the writers read so far.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// `None` until a writer has the variable.
    kind: Option<(Kind, Type)>,
    rank: usize,
    shape: Vec<u64>,
    /// The dimension along which blocks are joined.
    joined: usize,
    blocks: Vec<Block>,
    starts: Vec<u64>,
    counts: Vec<u64>,
    texts: Vec<String>,
}

/// The description of an array by one writer, in its order of dimensions. Every number has 8 bytes.
struct Array<'a> {
    rank: usize,
    shape: Option<Numbers<'a>>,
    counts: Numbers<'a>,
    starts: Option<Numbers<'a>>,
    locations: Numbers<'a>,
    stored: Option<Numbers<'a>>,
    is_column_major: bool,
}

impl Blocks {
    /// Adds the blocks of one writer after those of the writers before it. With `is_outline`, the blocks of a global
    /// array are added as one.
    pub fn add(
        &mut self,
        writer: &Writer<'_>,
        fields: &Fields,
        field: &Described,
        record: &Record<'_>,
        is_column_major: bool,
        is_outline: bool,
    ) -> Result<()> {
        let is_first = self.kind.is_none();
        let (kind, ty) = self
            .kind
            .get_or_insert_with(|| (field.kind, field.ty.clone()));
        if *kind != field.kind || *ty != field.ty {
            return Err("it has another kind or type than with the writers before".into());
        }
        match field.content {
            // The value of the first writer stands for all.
            _ if *kind == Kind::GlobalValue && !is_first => Ok(()),
            Content::Value { offset } => {
                let at = u64::from(offset);
                record.take(at, ty.size())?;
                self.push_value(writer, record.place(at), field.ty.size());
                Ok(())
            }
            Content::Text(slot) => {
                let pointer = record.number(0, slot)?;
                let text = record.text(pointer)?;
                self.push_value(writer, record.place(pointer), text.len() as u64);
                self.texts.push(text.to_owned());
                Ok(())
            }
            Content::Array { offset, fields: of } => {
                let array = Array::read(
                    record,
                    u64::from(offset),
                    &fields.arrays[of],
                    is_column_major,
                )?;
                if is_first {
                    self.set_shape(field.kind, &array)?;
                }
                if is_outline && field.kind == Kind::GlobalArray {
                    self.push_outline(writer, field, &array)
                } else {
                    self.push_blocks(writer, field, &array)
                }
            }
        }
    }

    fn push_value(&mut self, writer: &Writer<'_>, offset: u64, len: u64) {
        self.blocks.push(Block {
            writer: writer.rank,
            place: Place {
                file: File::Metadata,
                offset,
                len,
            },
            has_operator: false,
        });
    }

    /// Sets the shape. The first writer that has the variable decides it.
    fn set_shape(&mut self, kind: Kind, array: &Array<'_>) -> Result<()> {
        self.rank = array.rank;
        if kind == Kind::LocalArray {
            return Ok(());
        }
        self.shape = array.shape()?;
        if kind == Kind::JoinedArray {
            self.joined = array.joined()?;
            self.shape[self.joined] = 0;
        }
        match self.shape.iter().find(|extent| **extent >= EXTENT) {
            Some(extent) => Err(format!("{extent} is not a valid extent").into()),
            None => Ok(()),
        }
    }

    fn push_blocks(
        &mut self,
        writer: &Writer<'_>,
        field: &Described,
        array: &Array<'_>,
    ) -> Result<()> {
        let is_other = array.rank != self.rank
            || field.kind == Kind::JoinedArray && array.joined()? != self.joined;
        if is_other {
            return Err(OTHER_DIMENSIONS.into());
        }
        let rank = self.rank;
        let many = array.locations.u64s().len();
        let begin = self.counts.len();
        array.push_rows(array.counts, &mut self.counts);
        match array.starts {
            Some(starts) if field.kind == Kind::GlobalArray => {
                array.push_rows(starts, &mut self.starts);
            }
            _ => self.starts.resize(begin + many * rank, 0),
        }
        self.blocks.reserve(many);
        let size = field.ty.size();
        let mut stored = array.stored.map(Numbers::u64s);
        // Blocks without elements are left out; later blocks move up.
        let mut end = begin;
        for (at, location) in (begin..).step_by(rank).zip(array.locations.u64s()) {
            let stored = stored.as_mut().and_then(Iterator::next);
            if let Some(start) = self.join(field.kind, at)? {
                self.starts[at + self.joined] = start;
            }
            let row = at..at + rank;
            if self.counts[row.clone()].contains(&0) {
                continue;
            }
            if field.kind == Kind::GlobalArray && array.starts.is_none() {
                return Err(NO_STARTS.into());
            }
            let len = self.len_of(row.clone(), size)?;
            if location == NOWHERE {
                return Err(DERIVED.into());
            }
            self.blocks.push(Block {
                writer: writer.rank,
                place: writer.places.of(location, stored.unwrap_or(len))?,
                has_operator: array.stored.is_some(),
            });
            if end < at {
                self.counts.copy_within(row.clone(), end);
                self.starts.copy_within(row, end);
            }
            end += rank;
        }
        self.counts.truncate(end);
        self.starts.truncate(end);
        Ok(())
    }

    /// The start along the joined dimension of the block with the counts at `begin`. The array grows to the end of the
    /// block.
    fn join(&mut self, kind: Kind, begin: usize) -> Result<Option<u64>> {
        if kind != Kind::JoinedArray {
            return Ok(None);
        }
        let start = self.shape[self.joined];
        let end = start.checked_add(self.counts[begin + self.joined]);
        let end = end.filter(|end| *end < EXTENT);
        self.shape[self.joined] = end.ok_or("its blocks are too large to be joined")?;
        Ok(Some(start))
    }

    /// Bytes of the block whose starts and counts are in `row`.
    fn len_of(&self, row: Range<usize>, size: u64) -> Result<u64> {
        let mut len = Some(size);
        for (start, count) in self.starts[row.clone()].iter().zip(&self.counts[row]) {
            let end = start.checked_add(*count).filter(|end| *end < EXTENT);
            len = end.and_then(|_| len?.checked_mul(*count));
        }
        let len = len.filter(|len| *len < EXTENT);
        len.ok_or_else(|| TOO_LARGE.into())
    }

    /// Adds the blocks of a global array as one block, up to the largest end. Fails where [`Blocks::push_blocks`] does.
    fn push_outline(
        &mut self,
        writer: &Writer<'_>,
        field: &Described,
        array: &Array<'_>,
    ) -> Result<()> {
        if array.rank != self.rank {
            return Err(OTHER_DIMENSIONS.into());
        }
        let (size, has_flushes) = (field.ty.size(), writer.places.has_flushes());
        let mut last: Option<Place> = None;
        // Without flushes the bytes of a writer are contiguous, so one end for all is enough.
        let mut end = None;
        let starts = array.starts.unwrap_or(array.counts).words();
        let rows = array.counts.words().chunks_exact(array.rank);
        let rows = rows.zip(starts.chunks_exact(array.rank));
        let word = |word: &[u8; 8]| array.locations.number(*word);
        for (block, (location, (counts, starts))) in
            array.locations.words().iter().zip(rows).enumerate()
        {
            // There may be millions of blocks, so the loop has no branch.
            let (mut len, mut is_empty, mut is_sound) = (size, false, true);
            for (count, start) in counts.iter().zip(starts) {
                let (count, start) = (word(count), word(start));
                let (product, is_past) = len.overflowing_mul(count);
                len = product;
                is_empty |= count == 0;
                is_sound &= !is_past & (start.saturating_add(count) < EXTENT);
            }
            if is_empty {
                continue;
            }
            if array.starts.is_none() {
                return Err(NO_STARTS.into());
            }
            if !is_sound || len >= EXTENT {
                return Err(TOO_LARGE.into());
            }
            let location = word(location);
            if location == NOWHERE {
                return Err(DERIVED.into());
            }
            if let Some(stored) = array.stored {
                len = stored.words().get(block).map_or(len, word);
            }
            match location.checked_add(len) {
                Some(block_end) if !has_flushes => end = end.max(Some(block_end)),
                // This arm also reports a block outside of the writer's data.
                _ => {
                    let place = writer.places.of(location, len)?;
                    if last.and_then(|last| last.end()) < place.end() {
                        last = Some(place);
                    }
                }
            }
        }
        if let Some(end) = end {
            last = Some(writer.places.of(0, end)?);
        }
        self.blocks.extend(last.map(|place| Block {
            writer: writer.rank,
            place,
            has_operator: array.stored.is_some(),
        }));
        Ok(())
    }

    /// The variable, if a writer has it.
    pub fn finish(mut self, name: &Arc<str>) -> Option<Variable> {
        let (kind, ty) = self.kind?;
        if kind == Kind::LocalValue {
            self.shape = vec![self.blocks.len() as u64];
        }
        Some(Variable {
            name: name.clone(),
            kind,
            ty,
            shape: self.shape,
            rank: self.rank,
            blocks: self.blocks,
            starts: self.starts,
            counts: self.counts,
            texts: self.texts,
        })
    }
}

impl<'a> Array<'a> {
    /// Reads the struct at `base`. Fails unless all the numbers that it announces are there.
    fn read(
        record: &Record<'a>,
        base: u64,
        fields: &ArrayFields,
        is_column_major: bool,
    ) -> Result<Self> {
        record.take(base, u64::from(fields.len))?;
        let number = |slot| record.number(base, slot);
        let (rank, blocks) = (number(fields.rank)?, number(fields.blocks)?);
        if !(1..=RANK).contains(&rank) {
            return Err(format!("an array of {rank} dimensions").into());
        }
        let extents = rank.checked_mul(blocks);
        let extents = extents.filter(|extents| number(fields.extents) == Ok(*extents));
        let extents = extents.ok_or("its numbers of dimensions and of blocks do not agree")?;
        let target = |slot, count| record.target(number(slot)?, count, 8);
        let if_there = |slot, count| match number(slot)? {
            0 => Ok(None),
            _ => target(slot, count).map(Some),
        };
        Ok(Array {
            rank: usize::try_from(rank)?,
            shape: if_there(fields.shape, rank)?,
            counts: target(fields.counts, extents)?,
            starts: if_there(fields.starts, extents)?,
            locations: target(fields.locations, blocks)?,
            stored: fields.stored.map(|slot| target(slot, blocks)).transpose()?,
            is_column_major,
        })
    }

    /// Appends rows of numbers, one number per dimension.
    fn push_rows(&self, rows: Numbers<'_>, to: &mut Vec<u64>) {
        let begin = to.len();
        to.extend(rows.u64s());
        if self.is_column_major {
            to[begin..]
                .chunks_exact_mut(self.rank)
                .for_each(<[u64]>::reverse);
        }
    }

    fn shape(&self) -> Result<Vec<u64>> {
        let mut shape = Vec::with_capacity(self.rank);
        self.push_rows(self.shape.ok_or("it has no shape")?, &mut shape);
        Ok(shape)
    }

    /// The dimension along which blocks are joined.
    fn joined(&self) -> Result<usize> {
        let shape = self.shape()?;
        let mut joined = (0..self.rank).filter(|dimension| shape[*dimension] == JOINED);
        match (joined.next(), joined.next()) {
            (Some(dimension), None) => Ok(dimension),
            _ => Err("its blocks are not joined along one dimension".into()),
        }
    }
}
