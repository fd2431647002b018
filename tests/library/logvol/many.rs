//! A log with enough entries that several threads decode them, and an index of them takes a while.

use crate::common::encoder::*;
use h5logfs_common::task::Task;

/// Entries in each of two sections.
const ENTRIES: u64 = 40_000;
const CELL: u64 = 3;

/// Cells in random order. Some entries share the selection of an earlier one, and some of these have two cells.
fn section(seed: u64) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for number in 0..ENTRIES {
        let block = |n: u64| (vec![(n * 48_271 + seed) % ENTRIES * CELL], vec![CELL]);
        let (blocks, spelling) = if number % 10 == 9 {
            let target = (number - 9 - number % 70 / 10 * 10 % (number - 8)) as usize;
            (entries[target].blocks.clone(), Spelling::Shared { target })
        } else if number % 1000 == 0 {
            (vec![block(number), block(number + 1)], Spelling::Many)
        } else {
            (vec![block(number)], Spelling::One)
        };
        let elements = blocks.iter().map(block_elements).sum::<u64>();
        let data = (0..elements).map(|n| (number * 7 + seed + n) as u8);
        entries.push(Entry::many(0, blocks, data.collect()).spelled(spelling));
    }
    entries
}

fn many() -> LogFile {
    let cells = Dataset::new("cells", 0, Type::U8, &[ENTRIES * CELL]);
    let mut file = LogFile::new(vec![cells]);
    file.logs[0].tables = vec![vec![section(0), section(12_345)]];
    file
}

#[test]
fn many_entries_are_read_and_opening_their_log_does_not_wait_for_them() {
    let file = many();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    file.write(&path);
    let view = open_view(&path).unwrap();
    assert_eq!(
        view.indexes().entries(&Task::unlimited()).unwrap() as u64,
        2 * ENTRIES
    );
    let read = view.log_bytes_read();
    // Bytes that the kernel reads ahead while a program looks at the metadata.
    let mut front = vec![0; 1 << 20];
    assert_eq!(view.read_at(0, &mut front).unwrap(), front.len());
    assert_eq!(view.log_bytes_read(), read);
    assert!(read_by_chunks(&view, 0).unwrap() == file.contents(&file.datasets[0]));
}
