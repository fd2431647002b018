//! Assumptions of the netCDF tests: their own encoder writes the same bytes as PnetCDF, and their model has the same
//! meaning as PnetCDF.

use std::fs;

use crate::common::burst::log::{Channel, Entry, Generation, Job, Memory, Request, Side, Value};
use crate::common::burst::model::Model;
use crate::common::burst::{Attribute, Classic, Type, Variable};
use crate::common::pnetcdf::{WRITTEN_AT, corpus};

fn real(case: &str, file: &str) -> Vec<u8> {
    fs::read(corpus().join(case).join(file)).unwrap()
}

fn classic(
    version: u8,
    dimensions: &[(&str, u64)],
    variables: &[(&str, Type, &[usize])],
) -> Classic {
    let dimensions = dimensions
        .iter()
        .map(|(name, len)| ((*name).to_owned(), *len));
    let variables = variables.iter().map(|(name, kind, dimensions)| Variable {
        name: (*name).to_owned(),
        dimensions: dimensions.to_vec(),
        attributes: Vec::new(),
        kind: *kind,
        begin: 0,
    });
    Classic {
        version,
        dimensions: dimensions.collect(),
        attributes: Vec::new(),
        variables: variables.collect(),
        records: Some(0),
    }
}

/// Sets the start of the data.
fn place_at(classic: &mut Classic, begin: u64) {
    let mut gap = begin - classic.header(Some(0)).len() as u64;
    classic.place(|| std::mem::take(&mut gap));
}

/// Writes the log of one process, and compares it with the real one, and its meaning with PnetCDF's result.
fn expect_as_real(case: &str, classic: Classic, entries: Vec<Entry>) {
    let header = classic.header(Some(0));
    let base = real(case, "file.nc");
    assert_eq!(header, base[..header.len()], "{case}: header");
    let job = Job {
        classic,
        base,
        generations: vec![Generation {
            number: 0,
            age: 0,
            big_endian: false,
            nodes: vec![vec![Channel::new(0, entries)]],
        }],
    };
    let dir = tempfile::tempdir().unwrap();
    let logs = job.write(dir.path(), "file.nc", dir.path(), WRITTEN_AT);
    for file in [&logs[0].0, &logs[0].1] {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(fs::read(file).unwrap(), real(case, name), "{case}: {name}");
    }
    assert_eq!(
        Model::of(&job).bytes,
        real(case, "expected.nc"),
        "{case}: what it means"
    );
}

/// Starts, and counts.
fn pieces(pieces: &[(&[u64], &[u64])]) -> Vec<Vec<Side>> {
    let piece = |(start, count): &(&[u64], &[u64])| {
        let sides = start.iter().zip(*count);
        sides.map(|(start, count)| (*start, *count, 1)).collect()
    };
    pieces.iter().map(piece).collect()
}

#[test]
fn requests_of_many_pieces() {
    let dimensions = [("t", 0), ("y", 4), ("x", 6)];
    let variables: [(_, _, &[usize]); 3] = [
        ("v", Type::Int, &[1, 2]),
        ("w", Type::Float, &[0, 2]),
        ("p", Type::Double, &[2]),
    ];
    let mut classic = classic(2, &dimensions, &variables);
    place_at(&mut classic, 512);
    let counted = Request::Varn { counted: true };
    let entries = vec![
        Entry {
            variable: 0,
            request: counted,
            pieces: pieces(&[
                (&[0, 0], &[1, 6]),
                (&[2, 0], &[1, 6]),
                (&[1, 2], &[1, 4]),
                (&[1, 0], &[1, 2]),
                (&[3, 0], &[1, 6]),
            ]),
            memory: Memory::Int,
            values: (1000..1024).map(Value::Integer).collect(),
        },
        // The third has no elements, and starts beyond the others.
        Entry {
            variable: 1,
            request: counted,
            pieces: pieces(&[
                (&[0, 0], &[1, 6]),
                (&[2, 0], &[1, 6]),
                (&[9, 0], &[0, 6]),
                (&[1, 0], &[1, 6]),
            ]),
            memory: Memory::Float,
            values: (1..19)
                .map(|n| Value::Single((n as f32 / 8.0).to_bits()))
                .collect(),
        },
        Entry {
            variable: 2,
            request: counted,
            pieces: pieces(&[(&[5], &[1]), (&[0], &[1]), (&[1], &[4])]),
            memory: Memory::Double,
            values: (0..6)
                .map(|n| Value::Double((2.5 + f64::from(n)).to_bits()))
                .collect(),
        },
    ];
    expect_as_real("varn-cdf2-np1", classic, entries);
}

/// Every value is converted as by PnetCDF (2.7).
#[test]
fn conversions() {
    let integers = |numbers: [i128; 8]| numbers.map(Value::Integer).to_vec();
    let doubles = |numbers: [f64; 8]| numbers.map(|n| Value::Double(n.to_bits())).to_vec();
    let singles = |numbers: [f32; 8]| numbers.map(|n| Value::Single(n.to_bits())).to_vec();
    let shorts = integers([0, 32767, 32768, -32768, -32769, 100_000, -1, 7]);
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let float = f64::from(f32::MAX);
    let writes = [
        ("i_from_double", Type::Int, Memory::Double, {
            let edge = 2_147_483_648.0;
            doubles([0.0, 1.9, -1.9, edge - 1.0, edge, -edge, -3e9, 0.5])
        }),
        ("s_from_int", Type::Short, Memory::Int, shorts.clone()),
        (
            "b_from_short",
            Type::Byte,
            Memory::Short,
            integers([0, 127, 128, -128, -129, 300, -1, 5]),
        ),
        (
            "b_from_uchar",
            Type::Byte,
            Memory::UChar,
            integers([0, 127, 128, 200, 255, 1, 2, 3]),
        ),
        (
            "f_from_double",
            Type::Float,
            Memory::Double,
            doubles([0.1, 1e38, 1e39, -1e39, 1e-50, float, -0.0, 2.5]),
        ),
        (
            "d_specials",
            Type::Double,
            Memory::Double,
            doubles([nan, inf, -inf, -0.0, 5e-324, f64::MAX, 1.0, 2.0]),
        ),
        ("f_specials", Type::Float, Memory::Float, {
            let (inf, nan) = (f32::INFINITY, f32::NAN);
            singles([nan, inf, -inf, -0.0, 1e-45, f32::MAX, 1.0, 2.0])
        }),
        ("i_from_long", Type::Int, Memory::Long, {
            integers([
                0,
                1,
                -1,
                2_147_483_647,
                -2_147_483_648,
                4_294_967_296,
                17,
                18,
            ])
        }),
        ("s_fill", Type::Short, Memory::Int, shorts),
        ("d_from_ull", Type::Double, Memory::ULongLong, {
            integers([
                0,
                1,
                i128::from(u64::MAX),
                9_007_199_254_740_993,
                4,
                5,
                6,
                7,
            ])
        }),
    ];
    for (version, case) in [(1, "conv-cdf1-np1"), (5, "conv-cdf5-np1")] {
        let variables = writes
            .iter()
            .map(|(name, kind, ..)| (*name, *kind, &[0][..]));
        let mut classic = classic(version, &[("n", 8)], &variables.collect::<Vec<_>>());
        classic.variables[8].attributes.push(Attribute {
            name: "_FillValue".into(),
            kind: Type::Short,
            values: Type::Short.integer(-999),
        });
        place_at(&mut classic, 1024);
        let entries = writes.iter().enumerate().map(|(number, write)| Entry {
            variable: number,
            request: Request::Vara,
            pieces: pieces(&[(&[0], &[8])]),
            memory: write.2,
            values: write.3.clone(),
        });
        let entries = entries.collect();
        expect_as_real(case, classic, entries);
    }
}
