//! Chunks that went through filters.

use h5logfs_hdf5_format::filters::{self, DEFLATE, FLETCHER32, Filter, SHUFFLE, SZIP};

use super::Seeds;
use super::input::{Input, Output};

/// The most bytes of a chunk without filters.
const MOST_BYTES: u32 = 1 << 20;
const MOST_FILTERS: u8 = 3;
const VALUES: usize = 4;

/// Decodes a chunk. `bytes` holds the size of the chunk, its filters, and its stored form.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let raw = u64::from(input.u32() % (MOST_BYTES + 1));
    let count = input.u8() % (MOST_FILTERS + 1);
    let pipeline: Vec<Filter> = (0..count)
        .map(|_| Filter {
            id: i32::from(input.u8() % 6),
            flags: 0,
            values: (0..VALUES).map(|_| input.u32()).collect(),
        })
        .collect();
    let whole = filters::decode(input.0, raw, &pipeline);
    let mut out = vec![0xff; raw as usize];
    match (whole, filters::decode_in(input.0, &pipeline, &mut out)) {
        (Ok(whole), Ok(())) => assert_eq!(whole, out),
        (whole, within) => assert_eq!(whole.is_ok(), within.is_ok()),
    }
}

fn seed(raw: u64, filters: &[(i32, [u32; VALUES])], stored: &[u8]) -> Vec<u8> {
    let mut out = Output::default().u32(raw).u8(filters.len());
    for (id, values) in filters {
        out = out.u8(*id as usize);
        for value in values {
            out = out.u32((*value).into());
        }
    }
    out.put(stored).0
}

pub fn seeds() -> Seeds {
    let elements: Vec<u8> = (0..600u32).map(|at| (at * at / 7) as u8).collect();
    let compressed = |ids: &[i32]| {
        let with_values: Vec<_> = ids.iter().map(|id| (*id, [4, 0, 0, 0])).collect();
        let filter = |(id, values): &(i32, [u32; VALUES])| Filter {
            id: *id,
            flags: 0,
            values: values.to_vec(),
        };
        let pipeline: Vec<Filter> = with_values.iter().map(filter).collect();
        let stored = filters::compress(&elements, &pipeline).unwrap();
        seed(elements.len() as u64, &with_values, &stored)
    };
    // Streams of libhdf5: pairs after a reference, runs of zeros, blocks of all kinds, planes of bytes in padded
    // scanlines.
    let szip: [(&str, u64, [u32; VALUES], &[u8]); 3] = [
        (
            "pairs",
            40,
            [169, 16, 8, 40],
            b"\x28\0\0\0\x10\x09\x70\xe2\x5c\x39\x17\x0f\x80",
        ),
        (
            "zeros",
            6000,
            [141, 8, 16, 1024],
            b"\x70\x17\0\0\0\x40\0\0\x02\x3c\x01\xf0\x04\0\0\0\0\0\x04\x7f\x80\x20\x08\x02\x02\x3c\x01\xf0\x04\0\0\0\0\
              \x8f\xf0\x04\x01",
        ),
        (
            "planes",
            240,
            [169, 8, 32, 60],
            b"\xf0\0\0\0\x20\xbc\x92\x5d\x55\x80\x02\x9e\x80\x57\x6d\x87\x02\xfe\x1c\x45\x55\x52\xe5\xf8\x7c\xcc\xcc\
              \x1e\xeb\x8d\x51\xee\xfd\0\x0f\xb5\x45\x5e\x22\x2d\x44\x48\x02\x49\xf7\x26\0\0\0\x08\0\x04\0\x02\0",
        ),
    ];
    let mut seeds: Seeds = szip
        .into_iter()
        .map(|(name, raw, values, stored)| {
            (format!("szip-{name}"), seed(raw, &[(SZIP, values)], stored))
        })
        .collect();
    seeds.push((
        "all".to_owned(),
        compressed(&[SHUFFLE, DEFLATE, FLETCHER32]),
    ));
    seeds
}
