use proptest::prelude::*;

use super::set::Dim;
use super::testing::{Directory, Entry, Set, TYPES, text};
use crate::asked::Asked;
use crate::model::{Attribute, Block, File, Kind, Place, Step, Type, Value, Variable};

const JOINED: u64 = u64::MAX - 1;
const LOCAL_VALUE: u64 = u64::MAX - 2;

/// `count`, `shape`, `start` of each dimension.
fn set(dims: &[[u64; 3]]) -> Set {
    let dims = dims.iter().map(|[count, shape, start]| Dim {
        count: *count,
        shape: *shape,
        start: *start,
    });
    Set {
        dims: dims.collect(),
        payload: 100,
        ..Set::default()
    }
}

fn entry(name: &str, ty: u8, sets: Vec<Set>) -> Entry {
    Entry {
        name: name.to_owned(),
        ty,
        sets,
    }
}

/// A step with only these variables.
fn read(is_column_major: bool, variables: &[Entry]) -> Step {
    let mut directory = Directory::new();
    directory.step(is_column_major, variables, &[]);
    directory.read(0).unwrap()
}

fn place(file: File, offset: u64, len: u64) -> Block {
    Block {
        writer: 0,
        place: Place { file, offset, len },
        has_operator: false,
    }
}

/// The example of section 4.5, byte by byte.
#[test]
fn the_worked_example() {
    let mut metadata = vec![0; 64];
    let mut add = |at: usize, hex: &str| {
        assert_eq!(metadata.len(), at);
        let digits = hex.replace(' ', "");
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        metadata.extend((0..digits.len()).step_by(2).map(byte));
    };
    let (zero, one, three) = ("0000000000000000", "0100000000000000", "0300000000000000");
    add(
        0x40,
        &format!("{one} 1c00000000000000 1a00 0400 74425034 6e 00000000 0100 31"),
    );
    add(0x60, "01000000 4000000000000000");
    add(0x6c, "02000000 a000000000000000");
    add(
        0x78,
        &format!("5c000000 00000000 0000 0100 78 4b00 02 {one}"),
    );
    add(0x90, "06 43000000 08 01000000 07 00000000");
    add(
        0x9f,
        &format!("04 01 1800 {three}{three}{zero} 0c 0100 01000000 03000000"),
    );
    add(0xc6, "03 7000000000000000 06 ba00000000000000");
    add(
        0xd8,
        &format!("3c000000 01000000 0000 0100 6e 4b00 01 {one} 06 23000000"),
    );
    add(0xf5, "08 01000000 07 00000000 04 00 0000 00 0700");
    add(0x106, "03 c600000000000000 06 ea00000000000000");
    add(0x118, "01000000 5b00000000000000");
    add(
        0x124,
        &format!("57000000 00000000 0000 0300 782f75 0000 09 {one} 06 3c000000"),
    );
    add(
        0x143,
        &format!("08 01000000 07 00000000 04 01 1800 {one}{zero}{zero} 00 0100 6d"),
    );
    add(0x16d, "03 0000000000000000 06 0000000000000000");
    let mut directory = Directory::new();
    directory.metadata = metadata;
    for number in [1, 0, 0x40, 0x6c, 0x118, 0x17f, 0x6b04_dfc9, 0_u64] {
        directory.index.extend(number.to_le_bytes());
    }
    let x = Variable {
        name: "x".into(),
        kind: Kind::GlobalArray,
        ty: Type::I32,
        shape: vec![3],
        rank: 1,
        blocks: vec![place(File::Data(0), 0xba, 12)],
        starts: vec![0],
        counts: vec![3],
        texts: vec![],
    };
    let n = Variable {
        name: "n".into(),
        kind: Kind::GlobalValue,
        ty: Type::I16,
        shape: vec![],
        rank: 0,
        blocks: vec![place(File::Metadata, 0x104, 2)],
        starts: vec![],
        counts: vec![],
        texts: vec![],
    };
    let unit = Attribute {
        name: "x/u".to_owned(),
        value: Value::Text("m".to_owned()),
    };
    let step = Step {
        variables: vec![x, n],
        attributes: vec![unit],
        problems: vec![],
    };
    assert_eq!(directory.read(0), Ok(step));
}

#[test]
fn only_what_is_asked_for_is_read() {
    let mut directory = Directory::new();
    let variables = ["a", "b"].map(|name| entry(name, 99, vec![]));
    directory.step(false, &variables, &[]);
    let index = directory.open().unwrap();
    let mut section = Vec::new();
    super::section(&index, directory.files(), 0, &mut section).unwrap();
    let step = super::step(&index, 0, &section, Asked::One("b")).unwrap();
    assert_eq!(step.problems, ["variable b: type 99, which is not known"]);
    assert_eq!(index.writers(&directory.metadata), Ok(1));
}

#[test]
fn blocks_tell_the_kind() {
    let value = |bytes: &[u8], shape| Set {
        value: Some(bytes.to_vec()),
        ..match shape {
            0 => set(&[]),
            shape => set(&[[1, shape, 0]]),
        }
    };
    let step = read(
        false,
        &[
            entry("value", 52, vec![value(b"abcd", 0), value(b"efgh", 0)]),
            entry(
                "each",
                52,
                vec![value(b"abcd", LOCAL_VALUE), value(b"efgh", LOCAL_VALUE)],
            ),
            entry(
                "local",
                0,
                vec![set(&[[0, 0, 0]]), set(&[[2, 0, 0]]), set(&[[1, 0, 0]])],
            ),
            entry("empty", 0, vec![set(&[[0, 0, 0]])]),
            entry(
                "joined",
                0,
                vec![
                    set(&[[2, 5, 0], [4, JOINED, 0]]),
                    set(&[[2, 5, 3], [1, JOINED, 0]]),
                ],
            ),
            // A block of a smaller array than the last.
            entry("global", 0, vec![set(&[[1, 4, 0]]), set(&[[2, 6, 4]])]),
        ],
    );
    assert_eq!(step.problems, [""; 0]);
    let told = step
        .variables
        .iter()
        .map(|v| (v.kind, v.rank, [&*v.shape, &*v.starts, &*v.counts]));
    let expected: [(_, _, [&[u64]; 3]); 6] = [
        (Kind::GlobalValue, 0, [&[], &[], &[]]),
        (Kind::LocalValue, 0, [&[2], &[], &[]]),
        (Kind::LocalArray, 1, [&[], &[0, 0], &[2, 1]]),
        (Kind::GlobalArray, 1, [&[0], &[], &[]]),
        (
            Kind::JoinedArray,
            2,
            [&[5, 5], &[0, 0, 3, 4], &[2, 4, 2, 1]],
        ),
        (Kind::GlobalArray, 1, [&[6], &[0, 4], &[1, 2]]),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(step.variables[0].blocks.len(), 1);
    assert_eq!(step.variables[1].blocks.len(), 2);
}

#[test]
fn dimensions_of_fortran_are_reversed() {
    let step = read(
        true,
        &[entry(
            "j",
            0,
            vec![
                set(&[[2, JOINED, 0], [4, 9, 1]]),
                set(&[[3, JOINED, 0], [4, 9, 0]]),
            ],
        )],
    );
    let joined = &step.variables[0];
    assert_eq!(joined.shape, [9, 5]);
    assert_eq!(joined.starts, [1, 0, 0, 2]);
    assert_eq!(joined.counts, [4, 2, 4, 3]);
}

#[test]
fn bytes_of_an_operator() {
    let mut packed = set(&[[8, 8, 0]]);
    packed.operator = Some(("blosc", 21));
    let mut directory = Directory::new();
    directory.step(false, &[entry("x", 6, vec![packed])], &[]);
    let block = directory.read(0).unwrap().variables[0].blocks[0];
    assert!(block.has_operator);
    assert_eq!(block.place.len, 21);

    directory.index[32..35].copy_from_slice(b"276");
    let step = directory.read(0).unwrap();
    assert_eq!(
        step.problems,
        ["variable x: operator blosc of a writer before ADIOS2 2.8 is not read"]
    );
}

#[test]
fn statistics_of_parts_of_a_block_are_passed_over() {
    let mut parts = set(&[[8, 8, 0]]);
    // The least and greatest value of the block and of its two parts. `bytes` writes 1 in front. The number of parts
    // follows it.
    parts.statistics = Some(
        [
            &[0; 8][..],
            &[1],
            &[4, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0],
            &[0; 16],
        ]
        .concat(),
    );
    let mut directory = Directory::new();
    directory.step(false, &[entry("x", 52, vec![parts])], &[]);
    let item = [12, 1, 0];
    let at = directory
        .metadata
        .windows(3)
        .rposition(|bytes| bytes == item)
        .unwrap();
    directory.metadata[at + 1] = 2;
    assert_eq!(directory.read(0).unwrap().problems, [""; 0]);
}

#[test]
fn what_breaks_the_rules_is_a_problem_of_one_variable() {
    let bad = |name: &str, ty, sets| (entry(name, ty, sets), name.to_owned());
    let cases = [
        bad(
            "different kinds",
            0,
            vec![set(&[[1, 4, 0]]), set(&[[1, 0, 0]])],
        ),
        bad(
            "different numbers of dimensions",
            0,
            vec![set(&[[1, 4, 0]]), set(&[[1, 4, 0]; 2])],
        ),
        bad(
            "too many elements",
            6,
            vec![set(&[[1 << 32, 1 << 33, 0]; 2])],
        ),
        bad("too many elements", 6, vec![set(&[[2, 4, u64::MAX]])]),
        bad("without its value", 9, vec![set(&[[2, 4, 0]])]),
        bad(
            "different dimensions",
            0,
            vec![
                set(&[[1, 4, 0], [1, JOINED, 0]]),
                set(&[[1, JOINED, 0], [1, 4, 0]]),
            ],
        ),
        bad("type 3,", 3, vec![]),
        bad("several texts", 12, vec![]),
        bad("has no block", 0, vec![]),
    ];
    for (bad, words) in cases {
        let step = read(false, &[bad, entry("good", 0, vec![set(&[[1, 4, 0]])])]);
        assert_eq!(step.problems.len(), 1, "{words}");
        assert!(step.problems[0].contains(&words), "{:?}", step.problems);
        assert_eq!(step.variables.len(), 1);
    }
    let twice = entry("x", 0, vec![set(&[[1, 4, 0]])]);
    assert_eq!(read(false, &[twice.clone(), twice]).problems.len(), 1);
}

#[test]
fn a_step_has_one_number() {
    let mut of = Directory::new();
    of.step(false, &[entry("x", 1, vec![set(&[[3, 3, 0]])])], &[]);
    let read = |of: &Directory, number| of.read(number).map_err(|fault| fault.to_string());
    assert_eq!(read(&of, 0).unwrap().variables.len(), 1);
    // Offset 64 is the start of the row.
    of.index[64] = 3;
    let refused = read(&of, 2).unwrap_err();
    assert!(
        refused.contains("number 3, and md.0 that it is 1"),
        "{refused}"
    );
}

#[test]
fn memory_for_texts_is_bounded_by_their_bytes() {
    let empty = |number: usize| Set {
        value: Some(vec![0; 2 * number]),
        ..set(&[[number as u64, 0, 0]])
    };
    let mut directory = Directory::new();
    let attributes = [
        entry("few", 12, vec![empty(1000)]),
        entry("many", 12, vec![empty(5000)]),
    ];
    directory.step(false, &[], &attributes);
    let step = directory.read(0).unwrap();
    assert_eq!(step.attributes.len(), 1);
    assert_eq!(
        step.problems,
        ["attribute many: more texts than its bytes stand for"]
    );
}

#[test]
fn attributes() {
    let value = |count, bytes: &[u8]| Set {
        value: Some(bytes.to_vec()),
        ..set(&[[count, 0, 0]])
    };
    let mut texts = Vec::new();
    for one in ["one", "", "three"] {
        text(&mut texts, one.as_bytes());
    }
    let mut directory = Directory::new();
    let attributes = [
        entry("one", 52, vec![value(1, b"abcd")]),
        entry("two", 52, vec![value(2, b"abcdefgh")]),
        entry("texts", 12, vec![value(3, &texts)]),
        entry("none", 52, vec![set(&[])]),
    ];
    directory.step(false, &[], &attributes);
    let step = directory.read(0).unwrap();
    let numbers = |is_single, bytes: &[u8]| Value::Numbers {
        ty: Type::U32,
        is_single,
        bytes: bytes.to_vec(),
    };
    let values = step.attributes.into_iter().map(|one| one.value);
    let texts = ["one", "", "three"].map(str::to_owned).to_vec();
    assert_eq!(
        values.collect::<Vec<_>>(),
        [
            numbers(true, b"abcd"),
            numbers(false, b"abcdefgh"),
            Value::Texts(texts)
        ]
    );
    assert_eq!(step.problems, ["attribute none: it has no value"]);
}

/// Every kind of entry, in two steps.
fn sound() -> Directory {
    let value = |bytes: &[u8], shape| Set {
        value: Some(bytes.to_vec()),
        ..set(&[[1, shape, 0]])
    };
    let mut name = Vec::new();
    text(&mut name, b"name");
    let mut packed = set(&[[2, 4, 1], [3, 3, 0]]);
    packed.operator = Some(("bzip2", 77));
    packed.statistics = Some(vec![0; 16]);
    let mut directory = Directory::new();
    for step in 0..2 {
        let variables = [
            entry(
                "packed",
                6,
                vec![packed.clone(), set(&[[1, 4, 3], [3, 3, 0]])],
            ),
            entry("text", 9, vec![value(&name, LOCAL_VALUE); 2]),
            entry("joined", 0, vec![set(&[[2, JOINED, 0]]); 3]),
        ];
        let attributes = [entry("unit", 9, vec![value(&name, 0)])];
        directory.step(step == 1, &variables, &attributes);
    }
    directory
}

/// Damaged bytes never make a reader panic.
#[test]
fn damaged_bytes_are_answered() {
    let whole = sound();
    assert_eq!(whole.read(1).unwrap().problems, [""; 0]);
    let read = |directory: &Directory| [0, 1].map(|step| directory.read(step).is_ok());
    for len in 0..whole.metadata.len() {
        let mut cut = whole.clone();
        cut.metadata.truncate(len);
        assert!(cut.read(1).is_err());
        read(&cut);
    }
    for len in 0..whole.index.len() {
        let mut cut = whole.clone();
        cut.index.truncate(len);
        read(&cut);
    }
    for at in 0..whole.metadata.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = whole.clone();
            bad.metadata[at] ^= flip;
            read(&bad);
            if at < whole.index.len() {
                bad = whole.clone();
                bad.index[at] ^= flip;
                read(&bad);
            }
        }
    }
}

prop_compose! {
    /// Blocks of an array of `rank` dimensions, and their places.
    fn blocks()(rank in 1..4_usize)(
        dims in prop::collection::vec(prop::collection::vec([0..4_u64, 4..9_u64, 0..4_u64], rank), 1..5),
        places in prop::collection::vec((0..3_u32, any::<u64>()), 5),
    ) -> Vec<Set> {
        let made = dims.iter().zip(places).map(|(dims, (file, payload))| Set {
            file,
            payload,
            ..set(dims)
        });
        made.collect()
    }
}

proptest! {
    /// Arrays are read as they were written.
    #[test]
    fn arrays_are_read_back(sets in blocks(), ty in 0..4_usize, is_column_major: bool) {
        let (number, size) = TYPES[ty];
        let step = read(is_column_major, &[entry("x", number, sets.clone())]);
        prop_assert_eq!(&step.problems, &[""; 0]);
        let variable = &step.variables[0];
        let in_order = |of: &Set, pick: fn(&Dim) -> u64| {
            let mut all = of.dims.iter().map(pick).collect::<Vec<_>>();
            if is_column_major {
                all.reverse();
            }
            all
        };
        prop_assert_eq!(&variable.shape, &in_order(sets.last().unwrap(), |dim| dim.shape));
        let mut block = 0;
        for set in sets.iter().filter(|set| set.dims.iter().all(|dim| dim.count > 0)) {
            prop_assert_eq!(variable.start(block), in_order(set, |dim| dim.start));
            prop_assert_eq!(variable.count(block), in_order(set, |dim| dim.count));
            let len = set.dims.iter().map(|dim| dim.count).product::<u64>() * size as u64;
            let expected = place(File::Data(set.file), set.payload, len);
            prop_assert_eq!(variable.blocks[block], expected);
            block += 1;
        }
        prop_assert_eq!(variable.blocks.len(), block);
    }
}
