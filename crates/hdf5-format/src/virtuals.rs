//! The mappings of virtual datasets (VII.H: "Global heap block for virtual datasets"), and the selections in them (VIII.A).

use std::sync::Arc;

use crate::dataset::Layout;
use crate::heap::GlobalHeaps;
use crate::{DatasetInfo, Fields, HeaderBytes, MAX_RANK, Objects, Result, lookup3};

/// A count or block size without an end.
pub const UNLIMITED: u64 = u64::MAX;

/// A part of a virtual dataset whose elements lie in another dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The file of the source dataset; `.` for the file of the virtual dataset.
    pub file: Arc<[u8]>,
    /// The path of the source dataset.
    pub dataset: Arc<[u8]>,
    /// The elements of the source dataset, in row-major order.
    pub source: Picked,
    /// Their places in the virtual dataset, in the same order.
    pub target: Picked,
}

/// A selection of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Picked {
    /// No elements.
    Nothing,
    /// All elements.
    All,
    /// Blocks at equal distances, along each dimension.
    Regular(Vec<Steps>),
    /// Disjoint blocks: the first and the last element of each.
    Blocks(Vec<(Vec<u64>, Vec<u64>)>),
}

/// Blocks at equal distances along one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The start of the first block.
    pub start: u64,
    /// The distance from one block to the next. If there are several blocks, it is at least `block`.
    pub stride: u64,
    /// The number of blocks; it may be [`UNLIMITED`].
    pub count: u64,
    /// Elements of a block; it may be [`UNLIMITED`].
    pub block: u64,
}

impl<B: HeaderBytes> Objects<B> {
    /// The mappings of a virtual dataset, in their order. If several mappings contain an element, the last one counts.
    pub fn mappings(&self, dataset: &DatasetInfo) -> Result<Vec<Mapping>> {
        let Layout::Virtual(place) = dataset.layout else {
            return Err("no virtual dataset".into());
        };
        let Some((address, index)) = place else {
            return Ok(Vec::new());
        };
        mappings(&GlobalHeaps::new(&self.bytes).object(address, index)?)
    }
}

const SHORT: &str = "mappings of a virtual dataset that end early";

fn mappings(block: &[u8]) -> Result<Vec<Mapping>> {
    const NEWEST: u8 = 1;
    let (block, sum) = block.split_last_chunk().ok_or(SHORT)?;
    if lookup3(block) != u32::from_le_bytes(*sum) {
        return Err("mappings of a virtual dataset with a wrong checksum".into());
    }
    let mut fields = Fields(block);
    let version = fields.u8().ok_or(SHORT)?;
    if version > NEWEST {
        return Err(format!("mappings of a virtual dataset, in version {version}").into());
    }
    let count = fields.u64().ok_or(SHORT)?;
    let mut all: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        let next = mapping(version, &mut fields, &all)?;
        all.push(next);
    }
    Ok(all)
}

fn mapping(version: u8, fields: &mut Fields<'_>, before: &[Mapping]) -> Result<Mapping> {
    /// The name is that of an earlier mapping. The number of that mapping follows.
    const FILE_OF_EARLIER: u8 = 1;
    const DATASET_OF_EARLIER: u8 = 2;
    const SAME_FILE: u8 = 4;
    let flags = match version {
        0 => 0,
        _ => fields.u8().ok_or(SHORT)?,
    };
    let earlier = |fields: &mut Fields<'_>| {
        let number = usize::try_from(fields.u64().ok_or(SHORT)?)?;
        let found = before.get(number);
        found.ok_or_else(|| {
            h5logfs_common::fault::Fault::from("a mapping with the name of no earlier mapping")
        })
    };
    // Mappings share one allocation of a name. Otherwise, few bytes of a file could make many copies of a long name.
    let file = match flags {
        flags if flags & SAME_FILE != 0 => Arc::from(*b"."),
        flags if flags & FILE_OF_EARLIER != 0 => earlier(fields)?.file.clone(),
        _ => text(fields)?,
    };
    let dataset = match flags {
        flags if flags & DATASET_OF_EARLIER != 0 => earlier(fields)?.dataset.clone(),
        _ => text(fields)?,
    };
    Ok(Mapping {
        file,
        dataset,
        source: picked(fields)?,
        target: picked(fields)?,
    })
}

fn text(fields: &mut Fields<'_>) -> Result<Arc<[u8]>> {
    /// Names of links and files are shorter.
    const LONGEST: usize = 1 << 16;
    let len = fields.0.iter().position(|byte| *byte == 0).ok_or(SHORT)?;
    if len > LONGEST {
        return Err(format!("a mapping with a name of {len} bytes").into());
    }
    let text = fields.take(len).ok_or(SHORT)?.into();
    fields.skip(1).ok_or(SHORT)?;
    Ok(text)
}

/// Reads a serialized selection.
fn picked(fields: &mut Fields<'_>) -> Result<Picked> {
    const NOTHING: u32 = 0;
    const BLOCKS: u32 = 2;
    const ALL: u32 = 3;
    let mut head = || Some((fields.u32()?, fields.u32()?));
    let (kind, version) = head().ok_or(SHORT)?;
    match (kind, version) {
        (NOTHING | ALL, 1) => {
            // Four bytes without meaning, and the number of bytes that follow: 0.
            fields.skip(8).ok_or(SHORT)?;
            Ok(if kind == ALL {
                Picked::All
            } else {
                Picked::Nothing
            })
        }
        (BLOCKS, 1) => {
            fields.skip(8).ok_or(SHORT)?;
            blocks(fields, 4)
        }
        (BLOCKS, 2) => {
            const REGULAR: u8 = 1;
            let flags = fields.u8().ok_or(SHORT)?;
            fields.skip(4).ok_or(SHORT)?;
            if flags & REGULAR == 0 {
                return Err("a selection of version 2 that is not regular".into());
            }
            regular(fields, 8)
        }
        (BLOCKS, 3) => {
            const REGULAR: u8 = 1;
            let (flags, width) = (fields.u8().ok_or(SHORT)?, fields.u8().ok_or(SHORT)?);
            if !matches!(width, 2 | 4 | 8) {
                return Err(format!("a selection of numbers of {width} bytes").into());
            }
            if flags & REGULAR != 0 {
                regular(fields, width.into())
            } else {
                blocks(fields, width.into())
            }
        }
        other => Err(format!("a selection of kind and version {other:?}").into()),
    }
}

fn rank(fields: &mut Fields<'_>) -> Result<usize> {
    let rank = fields.u32().ok_or(SHORT)? as usize;
    if (1..=MAX_RANK).contains(&rank) {
        return Ok(rank);
    }
    Err(format!("a selection in {rank} dimensions").into())
}

fn blocks(fields: &mut Fields<'_>, width: usize) -> Result<Picked> {
    let rank = rank(fields)?;
    let count = fields.number(width).ok_or(SHORT)?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        let mut corner = || {
            (0..rank)
                .map(|_| fields.number(width))
                .collect::<Option<Vec<u64>>>()
        };
        let (first, last) = (corner().ok_or(SHORT)?, corner().ok_or(SHORT)?);
        let mut sides = first.iter().zip(&last);
        if sides.any(|(first, last)| first > last || *last == u64::MAX) {
            return Err("a selection with a block that ends before it begins".into());
        }
        blocks.push((first, last));
    }
    Ok(Picked::Blocks(blocks))
}

fn regular(fields: &mut Fields<'_>, width: usize) -> Result<Picked> {
    let rank = rank(fields)?;
    // A shorter number means "unlimited", too, if all its bits are set.
    let unlimited = u64::MAX >> (64 - 8 * width as u32);
    let size = |number| {
        if number == unlimited {
            UNLIMITED
        } else {
            number
        }
    };
    let mut steps = Vec::new();
    for _ in 0..rank {
        let mut read = || {
            Some(Steps {
                start: fields.number(width)?,
                stride: fields.number(width)?,
                count: size(fields.number(width)?),
                block: size(fields.number(width)?),
            })
        };
        let found = read().ok_or(SHORT)?;
        let has_room = found.count == 1 || found.stride >= found.block;
        if found.count == 0 || found.block == 0 || !has_room {
            return Err(format!("a selection of {found:?}").into());
        }
        steps.push(found);
    }
    if steps.iter().filter(|steps| steps.has_no_end()).count() > 1 {
        return Err("a selection without an end in several dimensions".into());
    }
    Ok(Picked::Regular(steps))
}

impl Steps {
    /// Whether the blocks have no end.
    pub fn has_no_end(&self) -> bool {
        self.count == UNLIMITED || self.block == UNLIMITED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(numbers: &[u64], width: usize) -> Vec<u8> {
        let each = numbers.iter();
        each.flat_map(|number| number.to_le_bytes()[..width].to_vec())
            .collect()
    }

    fn all() -> Vec<u8> {
        [numbers(&[3, 1], 4), vec![0; 8]].concat()
    }

    fn steps([start, stride, count, block]: [u64; 4]) -> Steps {
        Steps {
            start,
            stride,
            count,
            block,
        }
    }

    fn sealed(mut block: Vec<u8>) -> Vec<u8> {
        block.extend(lookup3(&block).to_le_bytes());
        block
    }

    #[test]
    fn both_versions_have_names_and_selections() {
        let one = [b"a.h5\0/x\0".to_vec(), all(), all()].concat();
        let old = sealed([vec![0], numbers(&[1], 8), one.clone()].concat());
        let first = Mapping {
            file: Arc::from(*b"a.h5"),
            dataset: Arc::from(*b"/x"),
            source: Picked::All,
            target: Picked::All,
        };
        assert_eq!(mappings(&old), Ok(vec![first.clone()]));
        let others = [
            [vec![3], numbers(&[0, 0], 8), all(), all()].concat(),
            [&[4][..], b"y\0", &all(), &all()].concat(),
        ];
        let new = [vec![1], numbers(&[3], 8), vec![0], one, others.concat()].concat();
        let new = sealed(new);
        let last = Mapping {
            file: Arc::from(*b"."),
            dataset: Arc::from(*b"y"),
            ..first.clone()
        };
        assert_eq!(mappings(&new), Ok(vec![first.clone(), first, last]));
        for block in [old, new] {
            for len in 0..block.len() {
                assert!(mappings(&block[..len]).is_err(), "{len}");
            }
            let (block, _) = block.split_at(block.len() - 4);
            for len in 1..block.len() {
                assert!(mappings(&sealed(block[..len].to_vec())).is_err(), "{len}");
            }
        }
        // A name of no earlier mapping, and an unknown version.
        let forward = [vec![1], numbers(&[1], 8), vec![1], numbers(&[0], 8)].concat();
        assert!(mappings(&sealed(forward)).is_err());
        assert!(mappings(&sealed([vec![2], numbers(&[0], 8)].concat())).is_err());
    }

    #[test]
    fn selections_of_all_versions_are_read() {
        let read = |bytes: Vec<u8>| -> Result<Picked> {
            let mut fields = Fields(&bytes);
            let found = picked(&mut fields)?;
            assert!(fields.0.is_empty());
            Ok(found)
        };
        let blocks = [
            numbers(&[2, 1, 0, 0, 2, 2], 4),
            numbers(&[0, 0, 1, 2, 3, 0, 3, 9], 4),
        ]
        .concat();
        let two = Picked::Blocks(vec![(vec![0, 0], vec![1, 2]), (vec![3, 0], vec![3, 9])]);
        assert_eq!(read(blocks), Ok(two.clone()));
        let newer = [
            numbers(&[2, 3], 4),
            vec![0, 2],
            numbers(&[2], 4),
            numbers(&[2, 0, 0, 1, 2, 3, 0, 3, 9], 2),
        ];
        assert_eq!(read(newer.concat()), Ok(two));
        let rows = Picked::Regular(vec![steps([1, 2, UNLIMITED, 1]), steps([0, 1, 1, 4])]);
        let terms = [1, 2, UNLIMITED, 1, 0, 1, 1, 4];
        let second = [
            numbers(&[2, 2], 4),
            vec![1],
            numbers(&[68, 2], 4),
            numbers(&terms, 8),
        ];
        assert_eq!(read(second.concat()), Ok(rows.clone()));
        for width in [2, 4, 8] {
            let third = [
                numbers(&[2, 3], 4),
                vec![1, width as u8],
                numbers(&[2], 4),
                numbers(&terms, width),
            ];
            assert_eq!(read(third.concat()), Ok(rows.clone()));
        }
        let of = |terms: [u64; 4]| {
            [
                numbers(&[2, 3], 4),
                vec![1, 8],
                numbers(&[1], 4),
                numbers(&terms, 8),
            ]
            .concat()
        };
        for bad in [[0, 1, 0, 1], [0, 1, 1, 0], [0, 2, 2, 3]] {
            assert!(read(of(bad)).is_err(), "{bad:?}");
        }
        assert!(read(of([5, 1, 1, 3])).is_ok());
        // A selection of points.
        assert!(read(numbers(&[1, 1, 0, 0, 1, 0], 4)).is_err());
    }
}
