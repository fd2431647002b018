//! Decomposition maps (section 6.2): for each element of each process its place.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::boxes::{MapBoxes, Shape};
use super::lists::Reader;
use super::{MapSource, Tables};
use crate::model::{Selection, Selections};
use crate::records::Numbered;
use crate::source_file::SourceFile;
use h5logfs_adios::Type;
use h5logfs_adios::directory::Directory;
use h5logfs_adios::model::{Block, Kind, Variable};
use h5logfs_adios::scorpio::{Begin, Places, map_of, numbers_of};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::{Reservation, Reserved};
use h5logfs_common::sync::Mutex;
use h5logfs_common::task::Task;

/// The facts about a map that take a look at all its entries.
#[derive(Debug)]
pub(super) struct Map {
    begin: Begin,
    /// Each place has an entry.
    pub is_whole: bool,
    /// No entry is a place.
    is_empty: bool,
    /// The blocks of each group, one after the other.
    groups: Vec<Vec<Part>>,
    reservation: Reservation,
}

/// A block of a map.
#[derive(Debug)]
struct Part {
    block: Block,
    /// Number of entries.
    entries: u64,
}

/// The maps that were looked at; an error is kept, too.
#[derive(Debug, Default)]
pub(super) struct Maps(Mutex<HashMap<i64, Looked>>);

/// A map, or the reason why it cannot be used.
type Looked = Arc<Result<Map, Box<str>>>;

/// What a look at a map tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFacts {
    /// Places begin with 0, by the rule of section 6.2.
    pub begins_with_zero: bool,
    /// No entry is a place.
    pub is_empty: bool,
}

impl Maps {
    /// The map of a decomposition, read at the first call. Fails where memory is short, and where the task stops.
    pub fn get(&self, reader: Reader<'_>, source: &MapSource) -> Result<Looked, Fault> {
        if let Some(known) = self.0.lock().get(&source.id) {
            return Ok(Arc::clone(known));
        }
        let looked = match Map::look(reader, source) {
            Ok(map) => {
                map.reservation.release_share();
                Ok(map)
            }
            Err(fault) => Err(fault.into_damage()?.into()),
        };
        let looked = Arc::new(looked);
        Ok(Arc::clone(self.0.lock().entry(source.id).or_insert(looked)))
    }

    /// Memory held, in bytes.
    pub fn bytes(&self) -> usize {
        let known = self.0.lock();
        let of = |looked: &Looked| match &**looked {
            Ok(map) => map.reservation.bytes() as usize,
            Err(reason) => reason.len(),
        };
        known.values().map(of).sum()
    }
}

impl Map {
    fn look(reader: Reader<'_>, source: &MapSource) -> Result<Self, Fault> {
        let shape = Shape::new(&source.dims)?;
        let groups = groups_of(reader, source)?;
        let number: usize = groups.iter().map(Vec::len).sum();
        let bytes = number * size_of::<Part>() + groups.len() * size_of::<Vec<Part>>();
        let mut map = Map {
            begin: Begin::One,
            is_whole: false,
            is_empty: false,
            groups,
            reservation: reader.task.reserve(bytes as u64)?,
        };
        let entries = map.groups.iter().flatten().map(|part| part.entries);
        let entries = entries.fold(0, u64::saturating_add);
        let mut places = Places::new(shape.places());
        let mut seen = Seen::new(reader.task, shape.places(), entries);
        for part in map.groups.iter().flatten() {
            reader.task.check()?;
            let entries = entries_of(reader, part)?;
            places.add(entries.iter().copied());
            if let Some(seen) = &mut seen {
                entries.iter().for_each(|entry| seen.add(*entry));
            }
        }
        let distinct = seen.map(|seen| seen.distinct);
        map.begin = places.begin(distinct)?;
        map.is_whole = places.is_whole(map.begin, distinct);
        map.is_empty = places.is_empty(map.begin);
        Ok(map)
    }

    /// Whether places begin with 0, by the rule of section 6.2.
    pub fn begins_with_zero(&self) -> bool {
        self.begin == Begin::Zero
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Number of entries of a group.
    pub fn entries(&self, group: usize) -> u64 {
        let parts = self.groups.get(group).into_iter().flatten();
        parts.map(|part| part.entries).fold(0, u64::saturating_add)
    }

    /// The selection of some entries of a group, and the bytes of memory if it is new. `number` and `dims`: the map's number,
    /// and the shape over which its places count.
    pub fn selection(
        &self,
        reader: Reader<'_>,
        (number, dims): (usize, &[u64]),
        (group, range): (usize, Range<u64>),
        known: &Selections,
    ) -> Result<(Numbered, usize), Fault> {
        let is_all = range == (0..self.entries(group));
        let id = selection_number(number, dims.len(), group, (!is_all).then_some(&range));
        if let Some(selection) = known.get(id) {
            return Ok(((id, selection), 0));
        }
        let entries = self.entries_in(reader, group, range)?;
        let shape = Shape::new(dims)?;
        let boxes = MapBoxes::of(reader.task, shape, self.begin, &entries)?;
        let selection = Selection::placed(reader.task, &boxes, entries.len() as u64)?;
        let bytes = selection.bytes();
        let (selection, is_new) = known.keep(id, selection);
        Ok(((id, selection), if is_new { bytes } else { 0 }))
    }

    /// Some entries of a group.
    fn entries_in(
        &self,
        reader: Reader<'_>,
        group: usize,
        range: Range<u64>,
    ) -> Result<Reserved<Vec<i64>>, Fault> {
        let mut all = Vec::new();
        let len = range.end.saturating_sub(range.start);
        let mut reservation = reader.task.reserve(0)?;
        let mut before = 0u64;
        for part in self.groups.get(group).into_iter().flatten() {
            let (from, to) = (
                range.start.max(before),
                range.end.min(before + part.entries),
            );
            if from < to {
                let entries = entries_of(reader, part)?;
                if to - from == len {
                    // One block has all of them.
                    let (mut entries, reservation) = entries.into_parts();
                    entries.truncate((to - before) as usize);
                    entries.drain(..(from - before) as usize);
                    return Ok(Reserved::new(entries, reservation));
                }
                reservation.make_room(&mut all, (to - from) as usize)?;
                all.extend_from_slice(&entries[(from - before) as usize..(to - before) as usize]);
            }
            before += part.entries;
        }
        Ok(Reserved::new(all, reservation))
    }
}

/// The number of a selection. Indexes on disk keep it, so it depends on the map alone, and on the number of dimensions that an
/// array has of its shape. Selections of whole groups have numbers of their own. The numbers of parts are scattered over the
/// other half of all numbers.
fn selection_number(map: usize, rank: usize, group: usize, part: Option<&Range<u64>>) -> u64 {
    const PART: u64 = 1 << 63;
    // HDF5 has at most 32 dimensions.
    let whole = (rank as u64) << 56 | (map as u64) << 32 | group as u64;
    let Some(range) = part else {
        return whole & !PART;
    };
    // The mixing of SplitMix64.
    let mix = |number: u64| {
        let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ number >> 31
    };
    PART | mix(mix(mix(whole).wrapping_add(range.start)).wrapping_add(range.end))
}

/// The blocks of each group.
fn groups_of(reader: Reader<'_>, source: &MapSource) -> Result<Vec<Vec<Part>>, Fault> {
    let read = reader.variable(source.step, &map_of(source.id))?;
    let variable = read.step.variables.first().ok_or("it is not in the file")?;
    if variable.kind != Kind::LocalArray || variable.rank != 1 || variable.ty != Type::I64 {
        return Err("its map is not a list of 64-bit integers".into());
    }
    let counted = reader.counted_map(source.step, source.id, variable.blocks.len())?;
    let mut groups: Vec<Vec<Part>> = reader.tables.groups.iter().map(|_| Vec::new()).collect();
    for one in counted {
        let part = Part {
            block: variable.blocks[one.block as usize],
            entries: entries_in_block(variable, one.block as usize),
        };
        groups[one.group as usize].push(part);
    }
    Ok(groups)
}

fn entries_in_block(variable: &Variable, block: usize) -> u64 {
    variable.count(block).first().copied().unwrap_or(0)
}

/// The entries of a block.
fn entries_of(reader: Reader<'_>, part: &Part) -> Result<Reserved<Vec<i64>>, Fault> {
    const ENTRY: u64 = 8;
    let len = part
        .entries
        .checked_mul(ENTRY)
        .ok_or("a map of more than 2^64 bytes")?;
    if !part.block.has_operator && len != part.block.place.len {
        return Err(format!(
            "a block of {} bytes for {} entries",
            part.block.place.len, part.entries
        )
        .into());
    }
    let stored = if part.block.has_operator {
        part.block.place.len
    } else {
        0
    };
    let all = len
        .saturating_mul(2)
        .saturating_add(stored.saturating_mul(2));
    let mut reservation = reader.task.reserve(all)?;
    let bytes = reader.with_values(|values| {
        if part.block.has_operator {
            return values.decoded(&part.block, len);
        }
        let mut bytes = h5logfs_common::buffers::zeroed(usize::try_from(len)?)?;
        (values.read)(&part.block.place, &mut bytes)?;
        Ok(bytes)
    })?;
    let entries = numbers_of(&Type::I64, &bytes, reader.directory.is_big_endian())?;
    drop(bytes);
    reservation.shrink_to(len);
    Ok(Reserved::new(entries, reservation))
}

/// The places that have an entry, with a bit each.
struct Seen {
    bits: Vec<u64>,
    _reservation: Reservation,
    /// Number of distinct entries above 0 and up to the number of places.
    distinct: u64,
}

impl Seen {
    /// `None` where a map of `entries` entries cannot have all places, and where memory is short: the map then counts as
    /// one that lacks a place.
    fn new(task: &Task, places: u64, entries: u64) -> Option<Self> {
        if entries < places {
            return None;
        }
        let words = places.div_ceil(64).checked_add(1)?;
        let reservation = task.reserve(words.checked_mul(8)?).ok()?;
        let bits = h5logfs_common::buffers::zeroed(usize::try_from(words).ok()?).ok()?;
        Some(Seen {
            bits,
            _reservation: reservation,
            distinct: 0,
        })
    }

    fn add(&mut self, entry: i64) {
        if entry <= 0 {
            return;
        }
        let (word, bit) = (entry as u64 / 64, 1u64 << (entry as u64 % 64));
        if let Some(word) = self.bits.get_mut(word as usize) {
            self.distinct += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }
}

impl Tables {
    /// Looks at the map of a decomposition. Fails with the reason why it cannot be used.
    pub fn look_at_map(
        &self,
        task: &Task,
        sources: &[SourceFile],
        directory: &Directory,
        source: &MapSource,
    ) -> Result<MapFacts, Fault> {
        let reader = Reader {
            task,
            tables: self,
            directory,
            sections: &Default::default(),
            files: self.parts.files(sources)?,
            sources,
        };
        let map = Map::look(reader, source)?;
        Ok(MapFacts {
            begins_with_zero: map.begins_with_zero(),
            is_empty: map.is_empty,
        })
    }
}
