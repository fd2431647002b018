//! Fuzz targets for the metadata of ADIOS2 directories, and for blocks with operators.

use std::collections::HashSet;

use h5logfs_adios::Bytes;
use h5logfs_adios::directory::{Directory, Files, Needed};
use h5logfs_adios::first_step;
use h5logfs_adios::model::{Place, Step, Type};
use h5logfs_adios::operator;
use h5logfs_adios::tree::{Loss, Presence, Summary, Values};

use super::Seeds;
use super::input::{Input, Output};

/// Largest number of steps read from an input.
const MOST_STEPS: usize = 16;

/// Bytes of the longest block that is decoded.
const MOST_BYTES: u32 = 1 << 20;

/// The common header of a field of zfp.
const ZFP_HEADER: [u8; 4] = [7, 1, 0, 0];

/// Reads a directory. `bytes` holds `md.idx`, `md.0` and, for BP5, `mmd.0`.
pub fn directory(bytes: &[u8]) {
    let (index, rest) = Input(bytes).two_parts();
    let (metadata, formats) = Input(rest).two_parts();
    let files = Files {
        index: &index,
        metadata: &metadata,
        formats: Some(&formats),
    };
    let _found_or_not = first_step::has_variable(files, "x");
    let Ok(directory) = Directory::open(files) else {
        return;
    };
    let mut summary = Summary::new(directory.is_big_endian(), directory.is_flattened());
    let mut outline = Summary::new(directory.is_big_endian(), directory.is_flattened());
    let mut values = Values::default();
    let mut section = Vec::new();
    for number in 0..directory.steps().min(MOST_STEPS) {
        let Ok(mut step) = directory.step(files, number, &|_| true) else {
            continue;
        };
        check(&step);
        for variable in step.variables.iter().take(4) {
            let alone = directory.step(files, number, &|name| name == &*variable.name);
            let alone = alone.expect("a step that was read before");
            assert_eq!(&alone.variables, std::slice::from_ref(variable));
            let section = directory.section(files, number);
            let section = section.expect("a step that was read before");
            let one = directory.variable(files, number, &section, &variable.name);
            assert_eq!(
                one.expect("a step that was read before").variables,
                alone.variables
            );
        }
        let needed = directory
            .outline_for(&outline, files, number, &mut section, &presence)
            .expect("a step that was read before");
        if summary.has_attributes_as_variables(&step) {
            let read =
                |place: &Place, buffer: &mut [u8]| metadata.read_exact_at(buffer, place.offset);
            let added = values.add(&mut step, &presence, &read);
            added.expect("bytes in memory");
        }
        summary.add(number as u64, &step, &presence);
        match needed {
            Needed::Outline(seen) => outline.add_complete(number as u64, &seen),
            Needed::All(_) => outline.add(number as u64, &step, &presence),
        }
    }
    let objects = summary.finish().objects;
    assert_eq!(outline.finish().objects, objects);
    let mut paths = HashSet::new();
    for object in objects {
        assert!(paths.insert(object.path), "a path twice");
    }
}

/// The target pretends that long files are cut off.
fn presence(place: &Place) -> Presence {
    const LEN: u64 = 1 << 12;
    match place.end() {
        Some(end) if end <= LEN => Presence::There,
        _ => Presence::Lost(Loss::Cut(LEN)),
    }
}

/// Checks the rules that every step keeps.
fn check(step: &Step) {
    let mut names = HashSet::new();
    for variable in &step.variables {
        assert!(names.insert(&variable.name), "a name twice");
        let numbers = variable.blocks.len() * variable.rank;
        assert_eq!(variable.starts.len(), numbers);
        assert_eq!(variable.counts.len(), numbers);
        if variable.ty == Type::Text {
            assert_eq!(variable.texts.len(), variable.blocks.len());
        }
        for (number, block) in variable.blocks.iter().enumerate() {
            let elements = variable.count(number).iter().product::<u64>();
            assert!(elements > 0, "a block without elements");
            if variable.ty != Type::Text && !block.has_operator {
                assert_eq!(block.place.len, elements * variable.ty.size());
            }
        }
    }
}

/// Decodes a block with an operator. `bytes` holds the length of the block, and its stored bytes.
pub fn operator(bytes: &[u8]) {
    let mut input = Input(bytes);
    let len = input.u32() % (MOST_BYTES + 1);
    let decoded = [0, 0xff].map(|byte| {
        let mut out = vec![byte; len as usize];
        operator::decode(input.0, &mut out).map(|()| out)
    });
    assert_eq!(decoded[0], decoded[1], "bytes that were not decoded");
}

/// Decodes a field of zfp. `bytes` are the stored ones behind the common header. The block has the length that they say.
pub fn zfp(bytes: &[u8]) {
    let stored = [&ZFP_HEADER, bytes].concat();
    let len = len_of_field(bytes).unwrap_or(8).min(MOST_BYTES as usize);
    let decoded = [0, 0xff].map(|byte| {
        let mut out = vec![byte; len];
        operator::decode(&stored, &mut out).map(|()| out)
    });
    assert_eq!(decoded[0], decoded[1], "bytes that were not decoded");
}

/// Bytes of the elements of a field. `None` for an unknown type, or on overflow.
fn len_of_field(bytes: &[u8]) -> Option<usize> {
    let mut input = Input(bytes);
    let rank = input.u64().min(32);
    let count = (0..rank).try_fold(1_u64, |count, _| count.checked_mul(input.u64()))?;
    let size = match input.u32() {
        3 | 9 => 4,
        4 | 10 | 12 => 8,
        13 => 16,
        _ => return None,
    };
    usize::try_from(count.checked_mul(size)?).ok()
}

macro_rules! directories {
    ($($name:literal $formats:expr),*) => {
        [$((
            $name,
            &include_bytes!(concat!("../../tests/corpus-adios/", $name, ".bp/md.idx"))[..],
            &include_bytes!(concat!("../../tests/corpus-adios/", $name, ".bp/md.0"))[..],
            $formats,
        )),*]
    };
}

macro_rules! formats {
    ($name:literal) => {
        &include_bytes!(concat!("../../tests/corpus-adios/", $name, ".bp/mmd.0"))[..]
    };
}

type Seed<'a> = (&'a str, &'a [u8], &'a [u8], &'a [u8]);

fn seeds(directories: &[Seed<'_>]) -> Seeds {
    let seed = |(name, index, metadata, formats): &Seed<'_>| {
        let rest = Output::default().two_parts(metadata, formats);
        let all = Output::default().two_parts(index, &rest);
        ((*name).to_owned(), all)
    };
    directories.iter().map(seed).collect()
}

pub fn bp4_seeds() -> Seeds {
    seeds(&directories!(
        "b4_types" & [],
        "b4_local" & [],
        "b4_joined" & [],
        "b4_colmajor" & [],
        "b4_empty" & [],
        "b4_mpi_agg2" & []
    ))
}

pub fn bp5_seeds() -> Seeds {
    seeds(&directories!(
        "b5_types" formats!("b5_types"),
        "b5_local" formats!("b5_local"),
        "b5_joined" formats!("b5_joined"),
        "b5_colmajor" formats!("b5_colmajor"),
        "b5_struct" formats!("b5_struct"),
        "b5_v1attr" formats!("b5_v1attr"),
        "b5_mpi_agg2" formats!("b5_mpi_agg2"),
        "openpmd_b5_var" formats!("openpmd_b5_var"),
        "openpmd_b5_v015_variable" formats!("openpmd_b5_v015_variable")
    ))
}

/// Chunks of the libraries, one of each codec and filter.
pub fn operator_seeds() -> Seeds {
    let files: [(&str, &[u8]); 2] = [
        (
            "blosc1",
            include_bytes!("../../crates/adios/tests/chunks/blosc1"),
        ),
        (
            "blosc2",
            include_bytes!("../../crates/adios/tests/chunks/blosc2"),
        ),
    ];
    let header = |operator, len: u32| {
        let out = Output::default().u32(len.into()).put(&[operator, 1, 0, 0]);
        out.u64(len.into())
    };
    let mut seeds = vec![("null".to_owned(), header(127, 4).put(b"abcd").0)];
    let whole = include_bytes!("../../tests/corpus-adios/b5_bzip2.bp/data.0");
    let bzip2 = Output::default().u32(2400).put(&whole[..299]).0;
    seeds.push(("bzip2".to_owned(), bzip2));
    for (name, mut file) in files {
        let mut number = 0;
        while let Some(head) = file.first_chunk::<16>() {
            let size =
                |at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (chunk, rest) = file.split_at(size(12) as usize);
            let out = header(0, size(4)).put(&[2, 11, 1]).u32(0).u32(1);
            seeds.push((format!("{name}-{number}"), out.put(chunk).0));
            number += 1;
            file = rest;
        }
    }
    seeds
}

/// All fields of directories: of each mode and type, in one to five dimensions.
pub fn zfp_seeds() -> Seeds {
    macro_rules! data {
        ($($name:literal),*) => {
            [$((
                $name,
                &include_bytes!(concat!("../../tests/corpus-adios/openpmd_b5_zfp_", $name, ".bp/data.0"))[..],
            )),*]
        };
    }
    let files = data!("accuracy", "rate", "precision", "full", "special");
    let mut seeds = Seeds::new();
    for (name, data) in files {
        let begins: Vec<usize> = (0..data.len())
            .filter(|at| is_field(&data[*at..]))
            .collect();
        for (number, begin) in begins.iter().enumerate() {
            let end = begins.get(number + 1).copied().unwrap_or(data.len());
            let field = data[begin + size_of_val(&ZFP_HEADER)..end].to_vec();
            seeds.push((format!("{name}-{number}"), field));
        }
    }
    seeds
}

/// Whether a field of at most eight dimensions begins here.
fn is_field(bytes: &[u8]) -> bool {
    let rank = bytes.strip_prefix(&ZFP_HEADER);
    rank.is_some_and(|bytes| (1..=8).contains(&Input(bytes).u64()))
}
