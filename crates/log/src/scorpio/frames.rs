//! The records of a variable that all processes wrote (section 6).

use std::collections::HashSet;
use std::ops::Range;

use super::VariableSource;
use super::lists::Reader;
use super::maps::{Map, Maps};
use crate::conversion::Constant;
use crate::layout::DatasetRecords;
use crate::model::{Logged, Selections};
use h5logfs_adios::model::{Kind, Variable};
use h5logfs_adios::scorpio::{Counted, Frame, data_of};
use h5logfs_common::fault::Fault;

/// The records of a variable while they are made.
pub(super) struct Frames<'a> {
    pub reader: Reader<'a>,
    pub maps: &'a Maps,
    pub of: &'a VariableSource,
    pub dataset: &'a Logged<'a>,
    pub selections: &'a Selections,
    /// The default fill value of the type, in the byte order of the directory.
    pub default_fill: Constant,
    /// The fill value of the dataset.
    pub fill: Constant,
    /// Indexes along the first dimension of the frames so far; of a variable without frames, 0.
    pub seen: HashSet<u64>,
}

/// A part of the array that one frame has.
struct Place {
    /// Index along the first dimension, if frames lie along it.
    lead: Option<u64>,
    /// First index along each dimension.
    start: Vec<u64>,
    /// Number of elements along each dimension.
    count: Vec<u64>,
}

/// The map of a frame.
#[derive(Clone, Copy)]
struct Chosen<'m> {
    number: usize,
    /// The shape over which its places count, in the rank of the array.
    dims: &'m [u64],
    map: &'m Map,
}

impl Frames<'_> {
    /// Adds the records of a step. Fails where its frames cannot be told apart.
    pub fn add(&mut self, step: u64, found: &mut DatasetRecords) -> Result<(), Fault> {
        let (reader, name) = (self.reader, &*self.of.name);
        let read = reader.variable(step, &data_of(name))?;
        let data = read.the_variable()?;
        if data.kind != Kind::LocalArray || data.rank != 1 || !self.of.ty.is_stored_as(&data.ty) {
            return Err(format!("elements of type {:?}, not of {:?}", data.ty, self.of.ty).into());
        }
        if self.dataset.dims.is_empty() {
            return Err("it has no dimensions, and parts of several processes".into());
        }
        let frames = reader.frames(step, self.of)?;
        let counted = reader.counted(step, name, (frames.len(), data.blocks.len()))?;
        let mut rest = &counted[..];
        for (number, frame) in (0u32..).zip(&frames) {
            reader.task.check()?;
            let own = rest.partition_point(|one| one.frame <= number);
            let (blocks, others) = rest.split_at(own);
            rest = others;
            self.add_frame(frame, (data, blocks), found)?;
        }
        Ok(())
    }

    /// Adds a frame. One that cannot be read is an error of its elements.
    fn add_frame(
        &mut self,
        frame: &Frame,
        blocks: (&Variable, &[Counted]),
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let Some(place) = self.place(frame) else {
            return Ok(());
        };
        if let Err(fault) = self.add_elements(frame, &place, blocks, found) {
            let reason = fault.into_damage()?;
            let number = frame
                .number
                .map_or("without a number".to_owned(), |n| n.to_string());
            let reason = format!("frame {number}: {reason}");
            let order = found.records.len() as u64;
            found
                .records
                .push_constant(self.fill, order, &place.start, &place.count)?;
            found.records.spoil_last(reason)?;
        }
        self.seen.insert(place.lead.unwrap_or(0));
        Ok(())
    }

    /// The place of a frame (section 6.3). `None` where the frame lies beyond the array, which the scan tells, or where the
    /// array has no elements.
    fn place(&self, frame: &Frame) -> Option<Place> {
        let dims = self.dataset.dims;
        let has_frames = dims.len() >= 2 && (self.of.has_records || frame.number.is_some());
        let lead = has_frames.then_some(frame.number.unwrap_or(0));
        let mut place = Place {
            lead,
            start: vec![0; dims.len()],
            count: dims.to_vec(),
        };
        if let Some(lead) = lead {
            (place.start[0], place.count[0]) = (lead, 1);
            if lead >= dims[0] {
                return None;
            }
        }
        (!place.count.contains(&0)).then_some(place)
    }

    fn add_elements(
        &self,
        frame: &Frame,
        place: &Place,
        (data, blocks): (&Variable, &[Counted]),
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let tables = self.reader.tables;
        let id = frame.map;
        let of_map = |fault: &str| format!("decomposition {id}: {fault}");
        let (number, source) = tables
            .map(id)
            .ok_or_else(|| of_map("its map is not in the file"))?;
        let looked = self.maps.get(self.reader, source)?;
        let map = (*looked).as_ref().map_err(|reason| of_map(reason))?;
        let inner = usize::from(place.lead.is_some());
        let dims = fitted(&source.dims, &place.count[inner..]);
        let dims = dims.ok_or_else(|| {
            let array = &place.count[inner..];
            of_map(&format!(
                "it is of shape {:?}, the variable of {array:?}",
                source.dims
            ))
        })?;
        check_lengths(map, data, blocks).map_err(|reason| of_map(&reason))?;
        self.add_fill(frame, place, (map, dims), found)?;
        let chosen = Chosen { number, dims, map };
        let mut before = (0, 0);
        for one in blocks {
            if before.0 != one.group {
                before = (one.group, 0);
            }
            let len = entries(data, one);
            let part = before.1..before.1 + len;
            before.1 = part.end;
            self.add_block(place, (data, one), (chosen, part), found)?;
        }
        Ok(())
    }

    /// Adds the value of all places that no process has (section 6.4).
    fn add_fill(
        &self,
        frame: &Frame,
        place: &Place,
        (map, dims): (&Map, &[u64]),
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let own = frame.fill.as_ref().map(|fill| Constant::new(fill));
        let fill = match own {
            Some(fill) => fill.ok_or("a fill value of no elements")?,
            None => self.default_fill,
        };
        let is_first = !self.seen.contains(&place.lead.unwrap_or(0));
        if map.is_whole || is_first && fill == self.fill {
            return Ok(());
        }
        let inner = usize::from(place.lead.is_some());
        let mut count = place.count.clone();
        count[inner..].copy_from_slice(dims);
        let order = found.records.len() as u64;
        found
            .records
            .push_constant(fill, order, &place.start, &count)
    }

    /// Adds the elements of a block.
    fn add_block(
        &self,
        place: &Place,
        (data, one): (&Variable, &Counted),
        (chosen, part): (Chosen<'_>, Range<u64>),
        found: &mut DatasetRecords,
    ) -> Result<(), Fault> {
        let Chosen { number, dims, map } = chosen;
        let which = (one.group as usize, part);
        let selected = map.selection(self.reader, (number, dims), which, self.selections);
        let (numbered, bytes) = selected?;
        found.decoded += bytes;
        if numbered.1.blocks() == 0 {
            return Ok(());
        }
        let block = &data.blocks[one.block as usize];
        let (stored, lost) = self.reader.tables.parts.stored(block, self.reader.sources);
        let order = found.records.len() as u64;
        found
            .records
            .push_selection(stored, order, numbered, place.lead)?;
        match lost {
            Some(reason) => found
                .records
                .spoil_last(format!("a block of group {}: {reason}", one.group)),
            None => Ok(()),
        }
    }
}

/// The shape of a map without the dimensions in front that the array lacks. `None` where it does not fit into the array.
fn fitted<'m>(map: &'m [u64], array: &[u64]) -> Option<&'m [u64]> {
    let more = map.len().checked_sub(array.len())?;
    let (front, own) = map.split_at(more);
    let fits = own.iter().zip(array).all(|(own, side)| own <= side);
    (fits && front.iter().all(|side| *side == 1)).then_some(own)
}

/// Fails where a group has more or fewer elements than places. A group may lack a block.
fn check_lengths(map: &Map, data: &Variable, blocks: &[Counted]) -> Result<(), String> {
    let mut rest = blocks;
    for group in 0..map.groups() {
        let own = rest.partition_point(|one| one.group as usize <= group);
        let (own, others) = rest.split_at(own);
        rest = others;
        let elements = own.iter().map(|one| entries(data, one));
        let elements = elements.fold(0, u64::saturating_add);
        let places = map.entries(group);
        if elements != places {
            return Err(format!(
                "group {group} has {elements} elements for {places} places"
            ));
        }
    }
    Ok(())
}

/// Number of elements of a block.
fn entries(data: &Variable, one: &Counted) -> u64 {
    data.count(one.block as usize).first().copied().unwrap_or(0)
}
