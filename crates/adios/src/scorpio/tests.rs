//! Names, places, frames and puts, without files.

use super::names::{NamedAttribute, Part, name_of_attribute};
use super::*;

#[test]
fn names_are_taken_apart() {
    assert_eq!(name_of("/__pio__/info/nproc"), Named::Processes);
    assert_eq!(name_of("/__pio__/dim/x-dim"), Named::Dimension("x-dim"));
    assert_eq!(name_of("/__pio__/var/b c"), Named::Data("b c"));
    assert_eq!(
        name_of("/__pio__/track/frame_id/def"),
        Named::Track(Track::Number, "def")
    );
    assert_eq!(name_of("/__pio__/info/testing"), Named::Other);
    assert_eq!(name_of("/data/0"), Named::Other);
    assert_eq!(name_of(&map_of(512)), Named::Map("512"));
    assert_eq!(
        name_of(&map_writers_of(512)),
        Named::Track(Track::MapWriters, "512")
    );
    let attribute = |name: &'static str| name_of_attribute(name);
    assert_eq!(attribute("/__pio__/global/a"), NamedAttribute::Global("a"));
    assert_eq!(
        attribute("/__pio__/var/v/units"),
        NamedAttribute::OfVariable("v", "units")
    );
    // Only six names below "def" are SCORPIO's.
    assert_eq!(
        attribute("/__pio__/var/v/def"),
        NamedAttribute::OfVariable("v", "def")
    );
    assert_eq!(
        attribute("/__pio__/var/v/def/a"),
        NamedAttribute::OfVariable("v", "def/a")
    );
    assert_eq!(
        attribute("/__pio__/var/v/def/ndims"),
        NamedAttribute::Definition(Part::Rank, "v")
    );
    assert_eq!(
        attribute("/__pio__/decomp/7/dimlen"),
        NamedAttribute::Shape("7")
    );
    assert_eq!(attribute("/__pio__/fillmode"), NamedAttribute::Other);
}

/// The group, the member and the frame of each block, in the order of the blocks.
fn counted(
    groups: &[Vec<u32>],
    writers: &[Vec<i64>],
    blocks: usize,
) -> Result<Vec<(u32, u32, u32)>> {
    let frames = writers.first().map_or(0, Vec::len);
    let mut counted = count_off(groups, writers, frames, blocks)?;
    counted.sort_by_key(|one| one.block);
    Ok(counted
        .into_iter()
        .map(|one| (one.group, one.member, one.frame))
        .collect())
}

#[test]
fn blocks_are_counted_off_by_rank_and_frame() {
    // Roots alone write.
    let groups = [vec![0, 1], vec![2, 3]];
    let roots = counted(&groups, &[vec![1, 1], vec![1, 1]], 4).unwrap();
    assert_eq!(roots, [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]);
    // In the second frame each member of the first group writes its own part.
    let some = counted(&groups, &[vec![1, 2], vec![1, 1]], 5).unwrap();
    assert_eq!(
        some,
        [(0, 0, 0), (0, 0, 1), (0, 1, 1), (1, 0, 0), (1, 0, 1)]
    );
    // The ranks of a group need not follow each other.
    let mixed = counted(&[vec![0, 3], vec![1, 2]], &[vec![2], vec![2]], 4).unwrap();
    assert_eq!(mixed, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]);
    assert!(counted(&groups, &[vec![1], vec![1]], 3).is_err());
    assert!(counted(&groups, &[vec![1], vec![3]], 4).is_err());
    assert!(counted(&groups, &[vec![1]], 1).is_err());
    assert!(counted(&groups, &[vec![-1], vec![1]], 1).is_err());
}

#[test]
fn lists_of_groups_may_have_several_blocks() {
    let blocks = vec![vec![1, 1], vec![1], vec![2, 2], vec![2]];
    assert_eq!(
        of_groups(blocks.clone(), 2).unwrap(),
        [vec![1, 1, 1], vec![2, 2, 2]]
    );
    assert!(of_groups(blocks, 3).is_err());
    assert!(of_groups(Vec::new(), 0).is_err());
}

/// Where the places of a map begin, and whether it has all of them.
fn begin_of(of: u64, entries: &[i64]) -> Result<(Begin, bool)> {
    let mut places = Places::new(of);
    places.add(entries.iter().copied());
    let above: std::collections::HashSet<_> = entries.iter().filter(|entry| **entry > 0).collect();
    let distinct = places.may_be_whole().then_some(above.len() as u64);
    let begin = places.begin(distinct)?;
    Ok((begin, places.is_whole(begin, distinct)))
}

#[test]
fn places_begin_with_one_but_for_the_contiguous_rearranger() {
    assert_eq!(
        begin_of(3, &[1, 0, 2, 0, 3, 0]).unwrap(),
        (Begin::One, true)
    );
    assert_eq!(begin_of(3, &[1, 0, 2, 0]).unwrap(), (Begin::One, false));
    assert_eq!(begin_of(3, &[2, 1, 0]).unwrap(), (Begin::Zero, true));
    assert_eq!(begin_of(3, &[2, -1, 0]).unwrap(), (Begin::Zero, false));
    // Padding makes a second zero, so the entries are not each once.
    assert_eq!(begin_of(3, &[2, 1, 0, 0]).unwrap(), (Begin::One, false));
    assert_eq!(begin_of(2, &[1, 2, 1, 2]).unwrap(), (Begin::One, true));
    assert!(begin_of(3, &[-1, 0, 1, 0]).is_err());
    assert!(begin_of(3, &[-2, 1]).is_err());
    assert!(begin_of(3, &[1, 4]).is_err());
    assert!(begin_of(3, &[-1, 3]).is_err());
    assert_eq!(begin_of(3, &[]).unwrap(), (Begin::One, false));
}

/// The put of a head, with `stored` bytes of elements of 8 bytes each, into a variable of unlimited × 4.
fn put(numbers: [i64; 4], stored: u64) -> std::result::Result<Option<Put>, PutError> {
    let side = |len, is_unlimited| Side { len, is_unlimited };
    let head: Vec<u8> = numbers.into_iter().flat_map(i64::to_le_bytes).collect();
    Put::read(&head, false, &[side(0, true), side(4, false)], stored, 8)
}

#[test]
fn puts_have_start_and_count() {
    let at = |start: [u64; 2], count: [u64; 2], lost_records| Put {
        start: start.to_vec(),
        count: count.to_vec(),
        lost_records,
    };
    assert_eq!(put([2, 1, 1, 3], 24), Ok(Some(at([2, 1], [1, 3], 0))));
    assert_eq!(put([-1, 0, 1, 4], 32), Ok(Some(at([0, 0], [1, 4], 0))));
    assert_eq!(put([2, 0, -1, 0], 32), Ok(Some(at([2, 0], [1, 4], 0))));
    assert_eq!(put([0, 0, 0, 4], 32), Ok(None));
    // Of three records the file has the first one.
    let several = put([5, 0, 3, 4], 32).unwrap().unwrap();
    assert_eq!((&several, several.records()), (&at([5, 0], [1, 4], 3), 3));
    assert_eq!(put([5, 0, 3, 4], 96), Ok(Some(at([5, 0], [3, 4], 0))));
    let reason = |numbers, stored| put(numbers, stored).unwrap_err();
    assert!(
        reason([0, 0, 1, 4], 16)
            .reason
            .contains("elements of 4 bytes, not of 8")
    );
    assert!(reason([0, 0, 1, 4], 7).reason.contains("damaged"));
    let beyond = reason([0, 3, 1, 4], 32);
    assert!(beyond.reason.contains("beyond dimension 1"), "{beyond:?}");
    assert!(reason([0, -5, 1, 4], 32).reason.contains("negative"));
    assert!(
        reason([i64::MAX, 0, 2, 4], 64)
            .reason
            .contains("beyond dimension 0")
    );
    assert!(
        Put::read(
            &[0; 8],
            false,
            &[Side {
                len: 1,
                is_unlimited: false
            }],
            8,
            8
        )
        .is_err()
    );
}

/// Definitions of one step, in which a dimension and a variable have these names.
fn defined(name: &str) -> Definitions {
    use crate::model::{Attribute, Block, File, Kind, Place, Step, Type, Value, Variable};
    let place = Place {
        file: File::Metadata,
        offset: 0,
        len: 8,
    };
    let length = Variable {
        name: format!("/__pio__/dim/{name}").into(),
        kind: Kind::GlobalValue,
        ty: Type::U64,
        shape: Vec::new(),
        rank: 0,
        blocks: vec![Block {
            writer: 0,
            place,
            has_operator: false,
        }],
        starts: Vec::new(),
        counts: Vec::new(),
        texts: Vec::new(),
    };
    let number = |part: &str, value: i32| Attribute {
        name: format!("/__pio__/var/{name}/def/{part}"),
        value: Value::Numbers {
            ty: Type::I32,
            is_single: true,
            bytes: value.to_le_bytes().to_vec(),
        },
    };
    let dims = Attribute {
        name: format!("/__pio__/var/{name}/def/dims"),
        value: Value::Texts(vec![name.to_owned()]),
    };
    let step = Step {
        variables: vec![length],
        attributes: vec![number("nctype", 5), number("ndims", 1), dims],
        problems: Vec::new(),
    };
    let read = |_: &Place, buffer: &mut [u8]| {
        buffer.copy_from_slice(&7u64.to_le_bytes());
        Ok(())
    };
    let mut definitions = Definitions::default();
    let values = Values {
        read: &read,
        is_big_endian: false,
    };
    definitions.add(&step, &values);
    definitions
}

#[test]
fn names_that_netcdf_cannot_have_are_told() {
    let sound = defined("x y");
    assert_eq!(sound.problems, [""; 0]);
    let form = sound.in_order()[0].form(&sound).unwrap();
    assert_eq!(
        (form, sound.dimensions[0].len),
        ((NcType::Float, vec![0]), 7)
    );
    for name in ["", ".", "a\0b"] {
        let refused = defined(name);
        assert_eq!(
            refused.problems.len(),
            4,
            "{name:?}: {:?}",
            refused.problems
        );
        assert!(refused.variables.is_empty() && refused.dimensions.is_empty());
    }
}
