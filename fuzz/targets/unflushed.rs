//! Fuzz target for the data that ranks have written after the last flush of a log.

use h5logfs_log::logvol::extent::{ExtentHeader, Proof, crc32, data_sum};
use h5logfs_log::logvol::loose::{Wanted, find};

use super::Seeds;
use super::test_dir::TestDir;

const WANTED: Wanted = Wanted {
    flush: 3,
    ranks: 2,
    datasets: 1,
    data: true,
};

/// Largest number of extents looked for.
const MOST: usize = 1000;

pub fn run(bytes: &[u8]) {
    let test_dir = TestDir::new();
    test_dir.write("log.h5", bytes);
    let file = test_dir.open("log.h5");
    let Ok(found) = find(&file, 0..file.len(), WANTED, MOST) else {
        return;
    };
    let mut end = 0;
    for extent in &found.extents {
        let place = extent.place.bytes();
        assert!(end <= place.start && place.end <= file.len());
        let data = extent.place.data();
        let data = &bytes[data.start as usize..data.end as usize];
        let proof = extent.place.header.proof.expect("a proof");
        assert_eq!(proof.data, data_sum(&[data]));
        end = place.end;
    }
    assert!(found.rest <= file.len());
}

/// Extents of two ranks, with a part of an extent between them. The second has a dataset that no journal knows.
pub fn seeds() -> Seeds {
    let mut bytes = Vec::new();
    put(&mut bytes, 0, 0, b"four");
    let whole = bytes.len();
    put(&mut bytes, 1, 0, &[7; 100]);
    bytes.truncate(bytes.len() - 50);
    put(&mut bytes, 1, 5, b"some more data");
    vec![
        ("one".into(), bytes[..whole].to_vec()),
        ("three".into(), bytes),
    ]
}

fn put(bytes: &mut Vec<u8>, rank: u32, dataset: i32, data: &[u8]) {
    let len = data.len() as u64;
    let offset = bytes.len() as u64 + ExtentHeader::SIZE + 44;
    let mut entries = [44, dataset, 0].map(i32::to_le_bytes).concat();
    entries.extend([offset, len, 0, len].map(u64::to_le_bytes).concat());
    let header = ExtentHeader {
        rank,
        flush: WANTED.flush,
        entries: entries.len() as u64,
        data: len,
        entries_crc: crc32(&entries),
        seal: None,
        proof: Proof::new(data_sum(&[data]), 0),
    };
    bytes.extend(header.to_bytes());
    bytes.extend(entries);
    bytes.extend(data);
}
