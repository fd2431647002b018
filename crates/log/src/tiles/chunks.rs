//! The elements of netCDF-4 members: the storage of their datasets, and the records of chunks (section 8.10).

use std::ops::ControlFlow;
use std::sync::Arc;

use super::parts::{Adder, MemberPart, OwnRange, Piece, Whole, name_of, order_of};
use crate::conversion::Constant;
use crate::hdf5_bytes::Hdf5;
use crate::model::{Encoding, StoredBytes};
use crate::numbers::{NumberConversion, NumberFormat};
use crate::part::Part;
use crate::signature::find_signature;
use crate::source_file::SourceFile;
use crate::stored::{FoundChunk, Stored, bytes_of};
use h5logfs_common::fault::Fault;
use h5logfs_common::lru::Lru;
use h5logfs_common::task::Task;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::object_header::{Mode, kind, messages};
use h5logfs_hdf5_format::{Class, DatasetInfo, Dataspace, Layout, Objects};

/// Bytes of the chunk indexes that are kept.
const KEPT: u64 = 16 << 20;

/// The datasets of members that were looked at last.
#[derive(Debug)]
pub(super) struct Hdf5Members(Lru<(usize, usize), Arc<Looked>>);

/// A dataset of a member.
#[derive(Debug)]
pub(super) struct Looked {
    /// The size of the file's user block.
    base: u64,
    dataset: DatasetInfo,
    dims: Vec<u64>,
    stored: Stored,
    /// Offset of the elements that lie in the header.
    compact: Option<u64>,
}

impl Default for Hdf5Members {
    fn default() -> Self {
        Hdf5Members(Lru::new(KEPT))
    }
}

impl Hdf5Members {
    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.0.weight() as usize
    }

    /// The sides of the chunks in which a member stores a variable; `None` where it has none or cannot be read.
    pub fn chunk_of(file: &SourceFile, place: u64) -> Option<Vec<u64>> {
        let base = find_signature(file).ok()??;
        let objects = Objects::open(Hdf5 { source: file, base }).ok()?;
        match objects.dataset(place).ok()?.layout {
            Layout::Chunked { chunk, .. } => Some(chunk),
            _ => None,
        }
    }

    /// The dataset of a variable in a member, whose object header is at `place`.
    fn look(
        &self,
        task: &Task,
        file: &SourceFile,
        key: (usize, usize),
        place: u64,
    ) -> Result<Arc<Looked>, Fault> {
        if let Some(known) = self.0.get(&key) {
            return Ok(known);
        }
        let looked = Arc::new(Looked::at(task, file, place)?);
        let chunks = match &looked.stored {
            Stored::Chunks(chunks) => chunks.found.len() * size_of::<FoundChunk>(),
            _ => 0,
        };
        let bytes = size_of::<Looked>() + 256 + chunks;
        self.0.insert(key, Arc::clone(&looked), bytes as u64);
        Ok(looked)
    }
}

impl Looked {
    fn at(task: &Task, file: &SourceFile, place: u64) -> Result<Self, Fault> {
        let base = find_signature(file)?.ok_or("it is no longer an HDF5 file")?;
        let objects = Objects::open(Hdf5 { source: file, base })?;
        let dataset = objects.dataset(place)?;
        let dims = match &dataset.space {
            Dataspace::Simple { dims, .. } => dims.clone(),
            Dataspace::Null => return Err("a dataset without elements".into()),
        };
        let stored = Stored::of(&objects, &dataset, &dims, task)?;
        let compact = match &stored {
            Stored::Here(_) => Some(compact_at(objects.bytes(), place)?),
            _ => None,
        };
        Ok(Looked {
            base,
            dataset,
            dims,
            stored,
            compact,
        })
    }

    /// Fails where the dataset is not that of the member's part.
    fn check(&self, whole: &Whole<'_>, part: &MemberPart) -> Result<(), Fault> {
        let has = self
            .dims
            .iter()
            .zip(&part.own)
            .all(|(side, own)| *side >= own.first + own.len());
        if self.dims.len() != part.own.len() || !has {
            return Err(format!("{:?} elements", self.dims).into());
        }
        if u64::from(self.dataset.datatype.size) != whole.of.kind.size() as u64 {
            return Err("elements of another size".into());
        }
        Ok(())
    }

    fn is_big_endian(&self) -> bool {
        match self.dataset.datatype.class {
            Class::Integer { big_endian, .. } | Class::Float { big_endian, .. } => big_endian,
            _ => false,
        }
    }

    /// The value of elements that the member did not write, in the byte order in which the variable is shown.
    fn fill(&self, conversion: Option<&NumberConversion>, size: usize) -> Option<Constant> {
        let mut fill = self.dataset.fill.clone().unwrap_or_else(|| vec![0; size]);
        if conversion.is_some() {
            fill.reverse();
        }
        Constant::new(&fill)
    }
}

/// Offset of the elements in the header of a compact dataset.
fn compact_at(bytes: &Hdf5<'_>, place: u64) -> Result<u64, Fault> {
    /// Version, class and length before the elements, in versions 3 to 5 of the message.
    const BEFORE: u64 = 4;
    let mut found = None;
    messages(bytes, place, Mode::Lenient, |message| {
        if message.kind != kind::LAYOUT || message.is_shared() {
            return Ok(ControlFlow::Continue(()));
        }
        let body = message.body(bytes)?;
        let is_known = matches!(body.first(), Some(3..=5));
        found = is_known.then_some(message.data + BEFORE);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found.ok_or("elements in a header of an old form")?)
}

impl Adder<'_> {
    /// Adds the records of a netCDF-4 member. What is wrong with its dataset is an error of its elements.
    pub fn hdf5(
        &mut self,
        whole: &Whole<'_>,
        part: &MemberPart,
        member: usize,
        place: u64,
    ) -> Result<(), Fault> {
        let Some(file) = self.sources.get(member) else {
            return Err("a member without a file".into());
        };
        let looked = self
            .hdf5
            .look(self.task, file, (whole.number, member), place);
        let added = looked.and_then(|looked| {
            looked.check(whole, part)?;
            self.dataset(whole, part, member, &looked)
        });
        match added {
            Ok(()) => Ok(()),
            Err(fault) => {
                let reason = fault.into_damage()?;
                self.constant(whole.zero()?, part, member)?;
                let name = name_of(file);
                self.found.records.spoil_last(format!("{name}: {reason}"))
            }
        }
    }

    fn constant(&mut self, value: Constant, part: &MemberPart, member: usize) -> Result<(), Fault> {
        let (start, count) = (part.start(), part.count());
        let order = order_of(member) - 1;
        self.found
            .records
            .push_constant(value, order, &start, &count)
    }

    fn dataset(
        &mut self,
        whole: &Whole<'_>,
        part: &MemberPart,
        member: usize,
        looked: &Looked,
    ) -> Result<(), Fault> {
        let format = |big_endian| NumberFormat {
            kind: whole.of.kind,
            big_endian,
        };
        let (from, to) = (looked.is_big_endian(), whole.of.is_big_endian);
        let size = whole.of.kind.size();
        let conversion = (from != to && size > 1).then(|| NumberConversion {
            from: format(from),
            to: format(to),
            fill: [0; 8],
        });
        let offset = match &looked.stored {
            Stored::Nowhere => None,
            Stored::Here(_) => looked.compact,
            Stored::Piece { address, .. } => Some(*address),
            Stored::Chunks(_) => {
                return self.chunks(whole, part, member, (looked, conversion.as_ref()));
            }
        };
        let Some(offset) = offset else {
            let fill = looked.fill(conversion.as_ref(), size);
            return self.constant(fill.ok_or("a fill value of another size")?, part, member);
        };
        let mut own = part.own.clone();
        for (own, side) in own.iter_mut().zip(&looked.dims) {
            own.all = *side;
        }
        let piece = Piece {
            member,
            offset: offset
                .checked_add(looked.base)
                .ok_or("an address past 2^64")?,
            own: &own,
            conversion: conversion.as_ref(),
        };
        self.piece(whole, piece)
    }

    /// Adds the chunks with elements of the part.
    fn chunks(
        &mut self,
        whole: &Whole<'_>,
        part: &MemberPart,
        member: usize,
        (looked, conversion): (&Looked, Option<&NumberConversion>),
    ) -> Result<(), Fault> {
        let Stored::Chunks(chunks) = &looked.stored else {
            return Ok(());
        };
        let all = chunks.count(&looked.dims);
        if all != Some(chunks.found.len() as u64) {
            let fill = looked.fill(conversion, whole.of.kind.size());
            self.constant(fill.ok_or("a fill value of another size")?, part, member)?;
        }
        // Chunks are in row-major order, so those of some rows are neighbours.
        let along = part.own.first().zip(chunks.sides.first());
        let along = along.zip(looked.dims.first());
        let ((rows, side), len) = along.ok_or("chunks of a scalar")?;
        let in_row = all.unwrap_or(0) / len.div_ceil(*side).max(1);
        let first = rows.first / side * in_row;
        let end = (rows.first + rows.len()).div_ceil(*side) * in_row;
        let begin = chunks.found.partition_point(|chunk| chunk.number < first);
        let of_rows = chunks.found[begin..]
            .iter()
            .take_while(|chunk| chunk.number < end);
        for chunk in of_rows {
            let origin = chunks.origin(chunk.number, &looked.dims);
            if let Some(cut) = Cut::of(&part.own, &origin, &chunks.sides) {
                self.chunk((cut, chunk), member, (looked, conversion))?;
            }
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        (cut, chunk): (Cut, &FoundChunk),
        member: usize,
        (looked, conversion): (&Looked, Option<&NumberConversion>),
    ) -> Result<(), Fault> {
        let filters: Vec<Filter> = chunk.filters(&looked.dataset.filters).cloned().collect();
        let offset = chunk.address.checked_add(looked.base);
        let mut stored = StoredBytes {
            source: u16::try_from(member)?,
            offset: offset.ok_or("an address past 2^64")?,
            len: chunk.size,
            encoding: Encoding::Raw,
        };
        let part = Part {
            filters,
            ..cut.part
        };
        let unknown = part.filters.iter().find(|filter| !filter.can_undo());
        let unknown = unknown.map(|filter| filter.id);
        let (order, place) = (order_of(member), (&*cut.start, &*cut.count));
        if part.filters.is_empty() {
            let element = u64::from(looked.dataset.datatype.size);
            let raw = bytes_of(&part.sides, element);
            // A chunk may have more room than elements.
            stored.len = raw
                .filter(|raw| *raw <= chunk.size)
                .ok_or("a chunk of too few bytes")?;
        }
        let records = &mut self.found.records;
        if part.filters.is_empty() && cut.count == part.sides {
            records.push_block(stored, order, place.0, place.1)?;
        } else {
            records.push_part(stored, order, place, &part)?;
        }
        if let Some(conversion) = conversion {
            records.convert_last(&(*conversion).into())?;
        }
        if let Some(filter) = unknown {
            let name = self.sources.get(member).map(name_of).unwrap_or_default();
            let reason = format!(
                "{name}: its chunks have the HDF5 filter {filter}, which h5logfs does not undo"
            );
            return self.found.records.spoil_last(reason);
        }
        self.check_there(stored)
    }
}

/// The elements of a chunk that the part of a member has.
struct Cut {
    /// Their first index in the whole, along each dimension.
    start: Vec<u64>,
    count: Vec<u64>,
    /// Their place in the chunk.
    part: Part,
}

impl Cut {
    fn of(own: &[OwnRange], origin: &[u64], sides: &[u64]) -> Option<Self> {
        let mut cut = Cut {
            start: Vec::with_capacity(own.len()),
            count: Vec::with_capacity(own.len()),
            part: Part {
                sides: sides.to_vec(),
                start: Vec::with_capacity(own.len()),
                filters: Vec::new(),
            },
        };
        for ((own, origin), side) in own.iter().zip(origin).zip(sides) {
            let first = own.first.max(*origin);
            let end = (own.first + own.len()).min(origin.saturating_add(*side));
            if first >= end {
                return None;
            }
            cut.start.push(own.shown.start + (first - own.first));
            cut.count.push(end - first);
            cut.part.start.push(first - origin);
        }
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DatasetRecords;
    use crate::numbers::NumberType;
    use crate::stored::Chunks;
    use crate::tiles::{Holders, Variable};
    use h5logfs_hdf5_format::{Bits, Datatype};

    /// HDF5 writes no such dataset, but a file may claim one.
    #[test]
    fn a_scalar_in_chunks_is_an_error() {
        let task = Task::unlimited();
        let looked = Looked {
            base: 0,
            dataset: DatasetInfo {
                datatype: Datatype {
                    size: 4,
                    class: Class::Integer {
                        signed: true,
                        big_endian: true,
                        bits: Bits {
                            offset: 0,
                            precision: 32,
                        },
                    },
                },
                space: Dataspace::Simple {
                    dims: Vec::new(),
                    max_dims: Vec::new(),
                },
                layout: Layout::Other(String::new()),
                fill: None,
                filters: Vec::new(),
            },
            dims: Vec::new(),
            stored: Stored::Chunks(Chunks::none(&task)),
            compact: None,
        };
        let of = Variable {
            name: "t".into(),
            kind: NumberType::I32,
            is_big_endian: true,
            dims: Vec::new(),
            holders: Holders::First,
        };
        let whole = Whole {
            of: &of,
            number: 0,
            dims: &[],
            rows: 0..1,
        };
        let mut found = DatasetRecords::none(&task, 0).unwrap();
        let mut adder = Adder {
            task: &task,
            sources: &[],
            hdf5: &Hdf5Members::default(),
            found: &mut found,
        };
        let part = MemberPart { own: Vec::new() };
        let added = adder.dataset(&whole, &part, 0, &looked);
        let fault = added.unwrap_err().to_string();
        assert!(fault.contains("chunks of a scalar"), "{fault}");
    }
}
