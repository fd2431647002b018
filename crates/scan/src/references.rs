//! Translates references, so that a copy in another file points at the objects of that file.

use std::collections::HashMap;

use super::original::stored_space;
use crate::hdf5_sys::{self as h5, Id, Space, StorageClass};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::HeaderBytes;

type Result<T> = std::result::Result<T, Fault>;

/// The largest global heap collection that is read.
const LARGEST_HEAP: u64 = 64 << 20;

/// Translates references of a file into references of its copy.
pub struct Translator<'a> {
    pub file: &'a Id,
    /// The bytes of the file. Addresses count from its first byte.
    pub bytes: &'a dyn HeaderBytes,
    pub target: &'a Id,
    /// Addresses of the objects in the copy, by their addresses in the file.
    pub objects: &'a HashMap<u64, u64>,
    /// The number of references to missing objects.
    pub lost: usize,
}

impl Translator<'_> {
    /// Translates a reference in its memory form: 8 bytes for an object reference, 12 for a region reference. A
    /// reference to a missing object becomes the null reference, which readers can recognize.
    pub fn translate(&mut self, reference: &mut [u8]) -> Result<()> {
        if reference.iter().all(|b| *b == 0) {
            return Ok(());
        }
        let new = match reference.len() {
            8 => self
                .object(read_u64(reference, 0)?)
                .map(|a| a.to_le_bytes().to_vec()),
            _ => self.region(reference).ok(),
        };
        match new {
            Some(new) => reference.copy_from_slice(&new),
            None => {
                self.lost += 1;
                reference.fill(0);
            }
        }
        Ok(())
    }

    /// Whether the copy contains the object of an object reference.
    pub fn has(&self, reference: &[u8]) -> bool {
        read_u64(reference, 0).is_ok_and(|old| reference.len() == 8 && self.object(old).is_some())
    }

    fn object(&self, old: u64) -> Option<u64> {
        self.objects.get(&old).copied()
    }

    /// Translates a region reference: a heap address and an index (HDF5 File Format Specification, III.E). The heap
    /// object holds the dataset's address and a serialized selection. libhdf5 cannot read the reference of a stub
    /// dataset, because the selection does not fit into a dataspace without elements. But it can write one.
    fn region(&self, reference: &[u8]) -> Result<Vec<u8>> {
        let index = u32::from_le_bytes(array(reference, 8)?);
        let heap = self.heap_object(read_u64(reference, 0)?, index)?;
        let old = read_u64(&heap, 0)?;
        let dataset = self.object(old).ok_or("a region reference to no dataset")?;
        let dataset = h5::open_object(self.target, dataset)?;
        let creation = h5::dataset_creation(&dataset)?;
        let mut extent = match h5::storage_class(&creation)? {
            StorageClass::Elsewhere => stored_space(self.bytes, old)?,
            _ => h5::dataset_space(&dataset)?,
        };
        if extent.is_empty() {
            extent = h5::dataset_space(&h5::open_object(self.file, old)?)?;
        }
        let space = extent.create()?;
        select(&space, &extent, &heap[8..])?;
        h5::create_region_reference(&dataset, &space).map(|r| r.to_vec())
    }

    /// Reads an object of the global heap collection at `address`.
    fn heap_object(&self, address: u64, index: u32) -> Result<Vec<u8>> {
        let file = self.bytes;
        let mut head = [0; 16];
        file.read(address, &mut head)?;
        let size = read_u64(&head, 8)?;
        if &head[..4] != b"GCOL" || !(16..=LARGEST_HEAP).contains(&size) {
            return Err("no global heap".into());
        }
        let mut heap = vec![0; size as usize];
        file.read(address, &mut heap)?;
        find_heap_object(&heap, index)
    }
}

/// Finds an object in the bytes of a global heap collection.
fn find_heap_object(heap: &[u8], wanted: u32) -> Result<Vec<u8>> {
    const PAST_END: &str = "a heap object past the end";
    const HEADER: usize = 16;
    let mut at = HEADER;
    while at + HEADER <= heap.len() {
        let index = u16::from_le_bytes(array(heap, at)?);
        let size = usize::try_from(read_u64(heap, at + 8)?)?;
        let data = at + HEADER;
        let end = data.checked_add(size).ok_or(PAST_END)?;
        // Object 0 is the free space at the end.
        if index == 0 {
            break;
        }
        if u32::from(index) == wanted {
            return Ok(heap.get(data..end).ok_or(PAST_END)?.to_vec());
        }
        at = end.checked_next_multiple_of(8).ok_or(PAST_END)?;
    }
    Err("no such heap object".into())
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .copied()
        .ok_or_else(|| "too few bytes".into())
}

fn read_u64(bytes: &[u8], at: usize) -> Result<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Reads a serialized selection from front to back.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// An unsigned number of 1, 2, 4 or 8 bytes.
    fn number(&mut self, width: usize) -> Result<u64> {
        if !matches!(width, 1 | 2 | 4 | 8) || self.0.len() < width {
            return Err("a broken selection".into());
        }
        let (now, rest) = self.0.split_at(width);
        self.0 = rest;
        Ok(now.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn numbers(&mut self, count: u64, width: usize) -> Result<Vec<u64>> {
        let bytes = count
            .checked_mul(width as u64)
            .ok_or("a broken selection")?;
        if bytes > self.0.len() as u64 {
            return Err("a broken selection".into());
        }
        (0..count).map(|_| self.number(width)).collect()
    }
}

/// Makes a serialized selection (HDF5 File Format Specification, VIII.A: "Dataspace selections") in a space of the given
/// extent.
fn select(space: &Id, extent: &Space, serialized: &[u8]) -> Result<()> {
    const NONE: u64 = 0;
    const POINTS: u64 = 1;
    const HYPERSLABS: u64 = 2;
    const ALL: u64 = 3;
    let mut reader = Reader(serialized);
    let kind = reader.number(4)?;
    let version = reader.number(4)?;
    match (kind, version) {
        (NONE, _) => h5::select_none(space),
        (ALL, _) => Ok(()),
        (POINTS, 1) => {
            reader.numbers(2, 4)?;
            points(space, extent, &mut reader, 4)
        }
        (POINTS, 2) => {
            let width = reader.number(1)? as usize;
            points(space, extent, &mut reader, width)
        }
        (HYPERSLABS, 1) => {
            reader.numbers(2, 4)?;
            blocks(space, extent, &mut reader, 4)
        }
        (HYPERSLABS, 2) => {
            reader.number(1)?;
            reader.number(4)?;
            regular(space, extent, &mut reader, 8)
        }
        (HYPERSLABS, 3) => {
            let is_regular = reader.number(1)? & 1 != 0;
            let width = reader.number(1)? as usize;
            if is_regular {
                regular(space, extent, &mut reader, width)
            } else {
                blocks(space, extent, &mut reader, width)
            }
        }
        other => Err(format!("a selection of kind and version {other:?}").into()),
    }
}

fn rank(extent: &Space, reader: &mut Reader<'_>) -> Result<u64> {
    let rank = reader.number(4)?;
    match extent {
        Space::Simple { dims, .. } if dims.len() as u64 == rank && rank > 0 => Ok(rank),
        _ => Err(format!("a selection of rank {rank}").into()),
    }
}

fn points(space: &Id, extent: &Space, reader: &mut Reader<'_>, width: usize) -> Result<()> {
    let rank = rank(extent, reader)?;
    let count = reader.number(width)?;
    let total = count.checked_mul(rank).ok_or("a broken selection")?;
    let coordinates = reader.numbers(total, width)?;
    h5::select_points(space, count as usize, &coordinates)
}

fn blocks(space: &Id, extent: &Space, reader: &mut Reader<'_>, width: usize) -> Result<()> {
    let rank = rank(extent, reader)?;
    let count = reader.number(width)?;
    for number in 0..count {
        let start = reader.numbers(rank, width)?;
        let last = reader.numbers(rank, width)?;
        let sides = start.iter().zip(&last);
        let side = sides.map(|(s, l)| l.checked_sub(*s).and_then(|n| n.checked_add(1)));
        let side: Option<Vec<u64>> = side.collect();
        let side = side.ok_or("a broken selection")?;
        h5::select_block(space, &start, &side, number > 0)?;
    }
    Ok(())
}

fn regular(space: &Id, extent: &Space, reader: &mut Reader<'_>, width: usize) -> Result<()> {
    let rank = rank(extent, reader)?;
    let mut terms: [Vec<u64>; 4] = Default::default();
    for _ in 0..rank {
        for term in &mut terms {
            term.push(reader.number(width)?);
        }
    }
    h5::select_regular(space, terms.each_ref().map(Vec::as_slice))
}
