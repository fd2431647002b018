//! Damaged and hostile log files. They cause clear errors, no panic, and no zeros in place of data.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::encoder::raw;
use crate::common::encoder::*;
use h5logfs_common::error::Error;
use h5logfs_common::task::Task;
use h5logfs_log::snapshot::{Content, Snapshot};
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

/// Number of damaged copies per small log file and kind of damage.
const DAMAGES: u64 = 200;

/// Number of chunks of a dataset, one of which must fail.
const MOST_CHUNKS: u64 = 100;

/// A log file in its own directory.
pub fn place(file: &LogFile) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    file.write(&path);
    (dir, path)
}

/// All elements of a dataset, or the reason why they are unreadable.
fn read(view: &View, name: &str) -> Result<Vec<u8>, Error> {
    read_by_chunks(view, number_of(view, name))
}

/// The message of the chunk that must fail to read. It names the file and the dataset.
fn refusal(view: &View, name: &str) -> String {
    let number = number_of(view, name);
    let mut chunks = 0..view.grid(number).len().min(MOST_CHUNKS);
    let error = chunks.find_map(|chunk| {
        Some((
            chunk,
            view.chunks().stored(ChunkId::new(number, chunk)).err()?,
        ))
    });
    let (chunk, error) = error.unwrap_or_else(|| panic!("{name} can be read"));
    let message = error.to_string();
    let path = view.path().display().to_string();
    assert!(message.contains(&path), "no file in: {message}");
    assert!(message.contains(&format!("dataset {name}:")), "{message}");
    // The read of the file's bytes fails as well.
    let (offset, _) = view
        .inspection()
        .chunk_place(ChunkId::new(number, chunk))
        .unwrap();
    let mut bytes = [0; 8];
    assert!(view.read_at(offset, &mut bytes).is_err());
    message
}

#[track_caller]
fn assert_says(message: &str, words: &str) {
    assert!(message.contains(words), "\"{words}\" is not in: {message}");
}

/// Two datasets: `bad` with these entries, and `good`.
fn with_bad(bad: Dataset, entries: Vec<Entry>) -> LogFile {
    let good = Dataset::new("good", 1, Type::U8, &[4]);
    let mut file = LogFile::with(vec![bad, good], entries);
    // Another section, which is unaffected if the first one ends early.
    let healthy = Entry::one(1, &[0], &[4], vec![1, 2, 3, 4]).flush(1);
    file.logs[0].tables.push(vec![vec![healthy]]);
    file
}

fn bytes_dataset(dims: &[u64]) -> Dataset {
    Dataset::new("bad", 0, Type::U8, dims)
}

/// Reads `bad`, which must fail, and `good`, which must not.
#[track_caller]
fn refused(file: &LogFile) -> String {
    let (_dir, path) = place(file);
    let view = open_view(&path).unwrap();
    assert_eq!(read(&view, "/good").unwrap(), [1, 2, 3, 4]);
    refusal(&view, "/bad")
}

// --- entries -------------------------------------------------------------------------------------

#[test]
fn entries_with_impossible_coordinates() {
    let coordinates = |values: &[i64]| Spelling::Bytes {
        flags: 0,
        body: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let cases: [(&[i64], &str); 5] = [
        (&[-1, 0, 1, 1], "negative"),
        (&[0, 0, 1, -1], "negative"),
        (&[0, 0, i64::MAX, i64::MAX], "counted"),
        (&[i64::MAX, 0, 1, 1], "2^63"),
        (&[0, 0, 1 << 40, 1 << 40], "counted"),
    ];
    for (values, words) in cases {
        let entry = Entry::many(0, Vec::new(), vec![9]).spelled(coordinates(values));
        let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![entry]));
        assert_says(&message, words);
        assert_says(&message, "_md_0");
    }
    let entry = Entry::one(0, &[0], &[3], vec![9; 3]).record(-1);
    let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![entry]));
    assert_says(&message, "negative");
}

#[test]
fn entries_without_elements_are_none() {
    let empty = Entry::one(0, &[0, 0], &[0, 3], Vec::new());
    let many = Entry::many(
        0,
        vec![(vec![0, 0], vec![1, 0]), (vec![1, 0], vec![1, 2])],
        vec![5, 6],
    );
    let file = with_bad(bytes_dataset(&[2, 2]), vec![empty, many]);
    let (_dir, path) = place(&file);
    let view = open_view(&path).unwrap();
    assert_eq!(read(&view, "/bad").unwrap(), [0, 0, 5, 6]);
}

/// Section 6.2: encoded counts of zero, recognised by the size of the data.
#[test]
fn encoded_blocks_without_elements() {
    let extent = vec![16, 10];
    let blocks = vec![(vec![1, 2], vec![2, 0]), (vec![3, 2], vec![2, 4])];
    let entry = Entry::many(0, blocks, (1..=8).collect()).spelled(Spelling::Encoded { extent });
    let file = with_bad(bytes_dataset(&[16, 10]), vec![entry]);
    let (_dir, path) = place(&file);
    let view = open_view(&path).unwrap();
    assert_eq!(
        read(&view, "/bad").unwrap(),
        file.contents(&file.datasets[0])
    );
}

#[test]
fn entries_that_are_cut_or_claim_too_much() {
    let body = |flags, body: Vec<u8>| {
        Entry::many(0, Vec::new(), vec![9]).spelled(Spelling::Bytes { flags, body })
    };
    let mut huge = i32::MAX.to_le_bytes().to_vec();
    huge.extend([0; 32]);
    let zero_blocks = [0u8; 4].to_vec();
    for entry in [
        body(0, vec![0; 8]),
        body(0x01, huge.clone()),
        body(0x05, huge),
        body(0x01, zero_blocks),
        body(0x01, vec![1]),
        body(0x20, Vec::new()),
        body(0x10, vec![0; 8]),
        body(0x10, i64::MIN.to_le_bytes().to_vec()),
        body(0x10, (-8i64).to_le_bytes().to_vec()),
        body(0x4000, vec![0; 32]),
        body(0x05, [&1i32.to_le_bytes()[..], &[0; 24]].concat()),
    ] {
        // Anything may follow a broken entry, of any dataset.
        let file = with_bad(bytes_dataset(&[3, 3]), vec![entry.clone()]);
        let (_dir, path) = place(&file);
        let view = open_view(&path).unwrap();
        let message = read(&view, "/bad")
            .expect_err(&format!("{entry:?}"))
            .to_string();
        assert_says(&message, "_md_0");
    }
}

#[test]
fn data_that_lie_outside_the_data_logs() {
    for claim in [
        (1 << 40, 9),
        (0, 9),
        (-1, 9),
        (i64::MAX, 9),
        (600, i64::MAX),
        (600, -9),
    ] {
        let entry = Entry::one(0, &[0, 0], &[3, 3], vec![7; 9]).claiming(claim.0, claim.1);
        let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![entry]));
        assert_says(&message, "chunk [0, 0]");
    }
}

/// Lost data must not expose older data below them.
#[test]
fn lost_data_of_a_later_flush() {
    let old = |place| Entry::one(0, &[0, 0], &[3, 3], vec![place; 9]);
    let nowhere = old(2).flush(2).claiming(1 << 40, 9);
    let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![old(1), nowhere]));
    assert_says(&message, "lie in no _ld dataset");
    let wide = bytes_dataset(&[1 << 20]);
    let cannot_hold = Entry::one(0, &[0], &[1 << 20], filter::deflate(&[1; 9])).flush(2);
    let old = Entry::one(0, &[0], &[1 << 20], vec![1; 1 << 20]);
    let message = refused(&with_bad(wide, vec![old, cannot_hold]));
    assert_says(&message, "stored bytes cannot hold");
}

/// Two records in one place, with elements of 16 and 32 bytes. Only one can be right, in any order of reading.
#[test]
fn records_that_claim_the_same_bytes() {
    let data = filter::deflate(&[5; 16]);
    let dims = [4, 16];
    let dataset = |name, id| Dataset::new(name, id, Type::U8, &dims).chunked(&[1, 4]);
    let long = |n| Entry::one(n, &[1, 0], &[2, 16], data.clone());
    let right = |n| Entry::one(n, &[0, 0], &[1, 16], data.clone());
    for same in [true, false] {
        let datasets = vec![dataset("a", 0), dataset("b", 1)];
        let other = i32::from(!same);
        let write = |second: Entry| LogFile::with(datasets.clone(), vec![right(0), second]);
        let (_dir, path) = place(&write(long(other)));
        let (offset, len) = extents(&path, "_ld")[0];
        assert_eq!(len, 2 * data.len() as u64);
        let claimed = long(other).claiming(offset as i64, data.len() as i64);
        let (_dir, path) = place(&write(claimed));
        let view = open_view(&path).unwrap();
        assert_eq!(extents(&path, "_ld")[0].0, offset);
        for _ in 0..2 {
            for chunk in 0..4 {
                assert_eq!(
                    view.chunks().stored(ChunkId::new(0, chunk)).unwrap()[..],
                    [5; 4]
                );
                view.chunks()
                    .stored(ChunkId::new(other as usize, 4 + chunk))
                    .unwrap_err();
            }
        }
    }
}

/// A selection with another number of dimensions is invalid, even if another dataset has read it before.
#[test]
fn a_selection_shared_across_ranks() {
    let blocks = vec![
        (vec![0, 1, 0], vec![1, 1, 2]),
        (vec![0, 2, 1], vec![1, 1, 2]),
    ];
    let dataset = |name, id, dims: &[u64]| Dataset::new(name, id, Type::U8, dims);
    let datasets = vec![dataset("a", 0, &[2, 3, 3]), dataset("b", 1, &[3, 3])];
    let shared =
        |id| Entry::many(id, Vec::new(), vec![1, 2, 3, 4]).spelled(Spelling::Shared { target: 0 });
    let entries = vec![
        Entry::many(0, blocks, vec![5, 6, 7, 8]),
        shared(0).record(1),
        shared(1),
    ];
    let (_dir, path) = place(&LogFile::with(datasets, entries));
    for first in [0, 1] {
        let view = open_view(&path).unwrap();
        let read = |name: &str| read(&view, name);
        for turn in 0..2 {
            match (turn + first) % 2 {
                0 => {
                    let a = read("/a").unwrap();
                    assert_eq!(a[..9], [0, 0, 0, 5, 6, 0, 0, 7, 8]);
                    assert_eq!(a[9..], [0, 0, 0, 1, 2, 0, 0, 3, 4]);
                }
                _ => assert_says(&read("/b").unwrap_err().to_string(), "of rank 2"),
            }
        }
    }
}

/// Some kilobytes that would become a hundred megabytes of coordinates.
#[test]
fn a_deflated_selection_of_very_many_blocks() {
    const RANK: usize = 32;
    const BLOCKS: usize = 200_000;
    let steps: Vec<u64> = (1..RANK).rev().map(|d| 1 << d).collect();
    let one_element = steps.iter().sum::<u64>() + 1;
    let starts = std::iter::repeat_n(0, BLOCKS);
    let counts = std::iter::repeat_n(one_element, BLOCKS);
    let values = steps.into_iter().chain(starts).chain(counts);
    let coordinates = values.flat_map(u64::to_le_bytes).collect();
    let number = (BLOCKS as i32).to_le_bytes().to_vec();
    let body = filter::deflate(&[number, coordinates].concat());
    assert!(body.len() < 20_000);
    let entry = Entry::many(0, Vec::new(), vec![7; BLOCKS]);
    let entry = entry.spelled(Spelling::Bytes {
        flags: 0x01 | 0x04 | 0x08,
        body,
    });
    let message = refused(&with_bad(bytes_dataset(&[2; RANK]), vec![entry]));
    assert_says(&message, "a deflated selection");
}

/// A number of blocks without coordinates costs an entry nothing, and must cost its reader nothing.
#[test]
fn a_scalar_that_was_written_very_often() {
    let number = i32::MAX;
    let body = number.to_le_bytes().to_vec();
    let often = Entry::many(0, Vec::new(), vec![7; 3 << 20]);
    let often = often.spelled(Spelling::Bytes { flags: 1, body });
    let (_dir, path) = place(&with_bad(bytes_dataset(&[]), vec![often]));
    let view = open_view(&path).unwrap();
    let number = number_of(&view, "/bad");
    assert!(view.indexes().of(number).unwrap().bytes() < 4096);
    assert_says(&refusal(&view, "/bad"), "cache_size");
}

#[test]
fn data_that_do_not_inflate_or_are_too_many() {
    let short = Entry::one(0, &[0, 0], &[3, 3], vec![7; 8]);
    let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![short]));
    assert_says(&message, "zlib");
    // A few bytes that declare an exabyte, and some that would inflate beyond the limit.
    let bomb = filter::deflate(&vec![0; 1 << 20]);
    let claims = Entry::one(0, &[0, 0], &[1 << 30, 1 << 29], bomb.clone());
    let message = refused(&with_bad(bytes_dataset(&[1 << 30, 1 << 29]), vec![claims]));
    assert_says(&message, "stored bytes cannot hold");
    let more = Entry::one(0, &[0, 0], &[3, 3], bomb.clone());
    let message = refused(&with_bad(bytes_dataset(&[3, 3]), vec![more]));
    assert_says(&message, "more bytes");
    let filtered = bytes_dataset(&[64, 64])
        .chunked(&[64, 64])
        .filtered(&[Filter::deflate(6), Filter::fletcher32()]);
    let broken = Entry::one(0, &[0, 0], &[32, 64], bomb);
    assert_says(&refused(&with_bad(filtered, vec![broken])), "fletcher32");
}

// --- attributes of a stub dataset ---------------------------------------------------------------------

/// A dataset with these additional attributes is shown, but its elements are not.
#[track_caller]
fn refused_attribute(add: impl FnOnce(&raw::Id)) -> String {
    let entry = Entry::one(0, &[0, 0], &[3, 3], vec![9; 9]);
    let file = with_bad(bytes_dataset(&[3, 3]), vec![entry]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    file.write_with(&path, |file| add(&raw::open(file, "bad")));
    let view = open_view(&path).unwrap();
    assert_eq!(read(&view, "/good").unwrap(), [1, 2, 3, 4]);
    refusal(&view, "/bad")
}

#[test]
fn malformed_chunk_shapes() {
    let cases: [&[i64]; 6] = [
        &[3],
        &[3, 3, 3],
        &[0, 3],
        &[-1, 3],
        &[i64::MAX, i64::MAX],
        &[],
    ];
    for shape in cases {
        let message = refused_attribute(|stub_dataset| {
            raw::attribute_i64(stub_dataset, "_h5logfs_chunk", shape);
        });
        assert!(!message.is_empty());
    }
    let many = vec![1; 1000];
    refused_attribute(|stub_dataset| raw::attribute_i64(stub_dataset, "_h5logfs_chunk", &many));
    refused_attribute(|stub_dataset| {
        let text = raw::string_type(4);
        raw::attribute(
            stub_dataset,
            "_h5logfs_chunk",
            &text,
            &raw::space(&[2]),
            b"oh  no  ",
        );
    });
}

#[test]
fn malformed_filter_pipelines() {
    let cases: [&[u32]; 6] = [
        &[1],
        &[1, 0],
        &[1, 0, 1],
        &[1, 0, u32::MAX],
        &[1, 0, u32::MAX, 6],
        &[u32::MAX, 0, 0],
    ];
    for words in cases {
        let message = refused_attribute(|stub_dataset| {
            raw::attribute_u32(stub_dataset, "_h5logfs_filters", words);
        });
        assert_says(&message, "_h5logfs_filters");
    }
    let many = vec![0; 5000];
    refused_attribute(|stub_dataset| raw::attribute_u32(stub_dataset, "_h5logfs_filters", &many));
}

// --- files ---------------------------------------------------------------------------------------

#[test]
fn a_chunk_larger_than_the_budget() {
    let dataset = bytes_dataset(&[4 << 20]).chunked(&[4 << 20]);
    let half = |at: u64| Entry::one(0, &[at], &[2 << 20], vec![3; 2 << 20]);
    let entries = vec![half(0), half(2 << 20)];
    let (_dir, path) = place(&with_bad(dataset.clone(), entries));
    let view = open_view_within(&path, 1 << 20).unwrap();
    assert_says(&refusal(&view, "/bad"), "cache_size");
    assert_eq!(read(&view, "/good").unwrap(), [1, 2, 3, 4]);

    // Reading data directly from the log needs no memory.
    let whole = Entry::one(0, &[0], &[4 << 20], vec![3; 4 << 20]);
    let (_dir, path) = place(&with_bad(dataset, vec![whole]));
    let view = open_view_within(&path, 1 << 20).unwrap();
    let (offset, _) = view
        .inspection()
        .chunk_place(ChunkId::new(number_of(&view, "/bad"), 0))
        .unwrap();
    let mut bytes = vec![0; 4 << 20];
    view.read_at(offset, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 3));
}

/// Reading the unused bytes after a chunk, up to the next page, reads no chunk.
#[test]
fn what_follows_a_chunk_is_not_read_from_the_log() {
    const LEN: u64 = (4 << 20) + 100;
    let dataset = bytes_dataset(&[LEN]).chunked(&[LEN]);
    let whole = Entry::one(0, &[0], &[LEN], vec![3; LEN as usize]);
    let (_dir, path) = place(&with_bad(dataset, vec![whole]));
    // The chunk does not fit into the budget.
    let view = open_view_within(&path, 1 << 20).unwrap();
    let number = number_of(&view, "/bad");
    let (offset, _) = view
        .inspection()
        .chunk_place(ChunkId::new(number, 0))
        .unwrap();
    view.indexes().of(number).unwrap();
    let before = view.log_bytes_read();
    let mut bytes = vec![9; LEN.next_multiple_of(4096) as usize];
    assert_eq!(view.read_at(offset, &mut bytes).unwrap(), bytes.len());
    let (chunk, rest) = bytes.split_at(LEN as usize);
    assert!(chunk.iter().all(|b| *b == 3) && rest.iter().all(|b| *b == 0));
    assert_eq!(view.log_bytes_read(), before + LEN);
}

#[test]
fn a_log_that_changed_after_it_was_opened() {
    let entry = Entry::one(0, &[0, 0], &[3, 3], vec![9; 9]);
    let (_dir, path) = place(&with_bad(bytes_dataset(&[3, 3]), vec![entry]));
    let view = open_view(&path).unwrap();
    let scanned = scan_file(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    file.write_at(b"x", 600).unwrap();
    match read(&view, "/good") {
        Err(Error::Changed { path: named }) => assert_eq!(named, path.canonicalize().unwrap()),
        other => panic!("{other:?}"),
    }
    let (dir, _) = h5logfs_log::source_dir::SourceDir::of_file(&path).unwrap();
    let budget = std::sync::Arc::new(Budget::new(MemoryLimits::each(BUDGET)));
    let opened = View::open(&dir, scanned, budget, None);
    assert!(matches!(opened, Err(Error::Changed { .. })));
}

/// Entries may disappear under an open view. Elements must not become the fill value.
#[test]
fn record_tables_that_changed_after_the_log_was_opened() {
    let entry = Entry::one(0, &[0, 0], &[3, 3], vec![9; 9]);
    let (_dir, path) = place(&with_bad(bytes_dataset(&[3, 3]), vec![entry]));
    let (tables, len) = extents(&path, "_md")[0];
    let view = open_view(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    // The entries, after the number of sections and the end of the only one, now belong to other datasets.
    let ids = (16..len).step_by(4).map(|at| tables + at);
    let mut number = [0; 4];
    for at in ids {
        fs::File::open(&path)
            .unwrap()
            .read_exact_at(&mut number, at)
            .unwrap();
        if number == [0; 4] {
            file.write_at(&77i32.to_le_bytes(), at).unwrap();
            break;
        }
    }
    for name in ["/bad", "/good"] {
        assert!(
            matches!(read(&view, name), Err(Error::Changed { .. })),
            "{name}"
        );
    }
}

/// A dataset with too many chunks to look at each.
#[test]
fn very_many_chunks_that_nobody_wrote() {
    const CHUNKS: u64 = 1 << 40;
    let vast = Dataset::new("vast", 0, Type::U8, &[CHUNKS]).chunked(&[1]);
    let entry = |at| Entry::one(0, &[at], &[2], vec![1, 2]);
    let log = LogFile::with(vec![vast], vec![entry(7), entry(CHUNKS / 3)]);
    let (_dir, path) = place(&log);
    let view = open_view(&path).unwrap();
    view.inspection()
        .check_dataset(0, &|_| (), &mut |fault| panic!("{fault}"));
    assert_eq!(
        view.inspection().covered(0).unwrap(),
        Some(4.0 / CHUNKS as f64)
    );
    let mut extents = Vec::new();
    let (mut at, _) = view.inspection().chunk_place(ChunkId::new(0, 0)).unwrap();
    while at < view.len() {
        let segment = view.holes().segment_at(at).unwrap();
        at = segment.range.end;
        extents.push(segment.is_hole);
    }
    assert_eq!(extents, [true, false, true, false, true]);
}

/// Such a dataset is left out of all files. All others are there.
#[test]
fn datasets_of_more_bytes_than_a_file_can_have() {
    const SIDE: u64 = 1 << 40;
    let entry = Entry::one(0, &[5, 3], &[1, 2], vec![7; 2]);
    for entries in [Vec::new(), vec![entry]] {
        let vast = bytes_dataset(&[SIDE, SIDE]).chunked(&[1024, 1024]);
        let message = refused(&with_bad(vast, entries));
        assert_says(&message, "more than a file can have");
    }
    // Either of the two datasets would fit, but not both.
    let bad = bytes_dataset(&[3 << 61]).chunked(&[1 << 20]);
    let mut file = with_bad(bad, vec![Entry::one(2, &[7], &[2], vec![8; 2])]);
    let other = Dataset::new("other", 2, Type::U8, &[1 << 62]).chunked(&[1 << 20]);
    file.datasets.push(other);
    assert_says(&refused(&file), "cannot be laid out in a file");
    let (_dir, path) = place(&file);
    let view = open_view(&path).unwrap();
    let chunk = ChunkId::new(number_of(&view, "/other"), 0);
    assert_eq!(view.chunks().stored(chunk).unwrap()[6..10], [0, 8, 8, 0]);
}

/// Numbers of blocks that take no bytes in the table must not be trusted either.
#[test]
fn very_many_blocks_without_coordinates() {
    let scalar = Dataset::new("bad", 0, Type::U8, &[]);
    let one = || (Vec::new(), Vec::new());
    let mut log = with_bad(scalar, vec![Entry::many(0, vec![one(), one()], vec![1, 2])]);
    let (_dir, path) = place(&log);
    assert_eq!(read(&open_view(&path).unwrap(), "/bad").unwrap(), [2]);
    log.config = 0xa;
    let (tables, len) = extents(&path, "_md")[0];
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut table = vec![0; len as usize];
    file.read_exact_at(&mut table, tables).unwrap();
    let count = table
        .windows(4)
        .rposition(|w| w == 2i32.to_le_bytes())
        .unwrap();
    file.write_all_at(&i32::MAX.to_le_bytes(), tables + count as u64)
        .unwrap();
    let view = open_view(&path).unwrap();
    assert_says(&refusal(&view, "/bad"), "2147483647 blocks in 2 bytes");
}

/// The log must not lead libhdf5 to other files.
#[test]
fn a_log_group_behind_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let entry = Entry::one(0, &[0], &[4], vec![1, 2, 3, 4]);
    let good = Dataset::new("good", 0, Type::U8, &[4]);
    LogFile::with(vec![good], vec![entry]).write_with(&path, |_| {});
    {
        let file = raw::open_file_to_change(&path);
        raw::hard_link(&file, "_LOG", &file, "elsewhere");
        raw::delete_link(&file, "_LOG");
        raw::external_link("other.h5", "/_LOG", &file, "_LOG");
    }
    match scan_file(&path) {
        Err(Error::BadFile { reason, .. }) => assert_says(&reason, "no hard link"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_cut_inside_its_data() {
    // The data is last, so truncation leaves the rest.
    let len = 1 << 16;
    let entry = Entry::one(0, &[0], &[len], vec![9; len as usize]).flush(1);
    let mut file = with_bad(bytes_dataset(&[len]).chunked(&[1 << 12]), vec![entry]);
    file.logs[0].tables[1][0][0].flush = 0;
    let (_dir, path) = place(&file);
    let whole = fs::read(&path).unwrap();
    for cut in [1, 1000, len - 1] {
        fs::write(&path, &whole[..whole.len() - cut as usize]).unwrap();
        match open_view(&path) {
            // libhdf5 knows where the file should end.
            Err(e @ Error::BadFile { .. }) => assert_says(&e.to_string(), "log.h5"),
            Err(e) => panic!("{e}"),
            Ok(view) => drop(refusal(&view, "/bad")),
        }
    }
}

/// Two subfiles of one dataset.
fn subfiled() -> LogFile {
    let dataset = Dataset::new("d", 0, Type::U8, &[4]);
    let mut file = LogFile::new(vec![dataset]);
    file.subfiled = true;
    let log = |start: u64| Log {
        tables: vec![vec![vec![Entry::one(
            0,
            &[start],
            &[2],
            vec![start as u8 + 1; 2],
        )]]],
    };
    file.logs = vec![log(0), log(2)];
    file
}

#[test]
fn a_missing_subfile() {
    let (_dir, path) = place(&subfiled());
    let subfile = subfile_dir(&path).join("log.h5.1");
    fs::remove_file(&subfile).unwrap();
    let message = open_view(&path).unwrap_err().to_string();
    assert_says(&message, "log.h5.subfiles");
    fs::remove_dir_all(subfile_dir(&path)).unwrap();
    let message = open_view(&path).unwrap_err().to_string();
    assert_says(&message, "log.h5.subfiles");
}

#[test]
fn a_renamed_subfiled_master() {
    let (dir, path) = place(&subfiled());
    let renamed = dir.path().join("renamed.h5");
    fs::rename(subfile_dir(&path), subfile_dir(&renamed)).unwrap();
    fs::rename(&path, &renamed).unwrap();
    let view = open_view(&renamed).unwrap();
    assert_eq!(read(&view, "/d").unwrap(), [1, 1, 3, 3]);
    // A second base name would require a guess.
    let dir = subfile_dir(&renamed);
    for number in 0..2 {
        let name = |base: &str| dir.join(format!("{base}.{number}"));
        fs::copy(name("log.h5"), name("other.h5")).unwrap();
    }
    assert!(open_view(&renamed).is_err());
}

#[test]
fn a_snapshot_survives_its_bytes() {
    for file in [subfiled(), sample(true), sample(false)] {
        let (_dir, path) = place(&file);
        let snapshot = scan_file(&path).unwrap();
        let bytes = snapshot.to_bytes().unwrap();
        let task = &Task::unlimited();
        assert_eq!(*Snapshot::from_bytes(task, &bytes).unwrap(), snapshot);
        for cut in 0..bytes.len() {
            // A truncated snapshot may be an error, but never a panic.
            let _ = Snapshot::from_bytes(task, &bytes[..cut]);
        }
    }
}

// --- random damage -------------------------------------------------------------------------------

/// Whether a read would find an unreadable element. The scan decodes no more than this function.
fn has_unreadable(view: &View) -> bool {
    let datasets = &view.snapshot().datasets;
    datasets.iter().enumerate().any(|(number, dataset)| {
        if dataset.logged().is_none() {
            return matches!(dataset.content, Content::Unreadable(_));
        }
        let index = view.indexes().of(number).unwrap();
        let records = view.indexes().records(number).unwrap().records;
        !index.diagnostics().is_empty() || !records.faults().is_empty()
    })
}

/// A small log with all kinds of entries.
fn sample(filtered: bool) -> LogFile {
    let mut records = Dataset::new("records", 0, Type::U8, &[6, 8]);
    records.max[0] = None;
    let mut plane = Dataset::new("plane", 1, Type::I16Be, &[12, 10]).chunked(&[5, 4]);
    if filtered {
        plane = plane.filtered(&[Filter::shuffle(2), Filter::deflate(6), Filter::fletcher32()]);
    }
    let pattern = |len: usize| (0..len).map(|i| (i / 7) as u8).collect::<Vec<u8>>();
    let stored = |raw: Vec<u8>| match &plane.filters {
        Some(filters) => filter::apply(filters, &raw),
        None => filter::deflate(&raw),
    };
    let blocks = vec![(vec![0, 0], vec![3, 10]), (vec![6, 2], vec![2, 7])];
    let extent = vec![12, 10];
    let mut entries = vec![
        Entry::one(0, &[2], &[3], vec![1, 2, 3]).record(0),
        Entry::many(0, Vec::new(), vec![4, 5, 6])
            .spelled(Spelling::Shared { target: 0 })
            .record(3),
        Entry::many(1, blocks.clone(), pattern(88)).spelled(Spelling::Encoded { extent }),
        Entry::many(1, blocks, stored(pattern(88))).flush(1),
        Entry::one(1, &[5, 4], &[5, 4], stored(pattern(40))).flush(1),
    ];
    let second = vec![Entry::one(0, &[1, 1], &[3, 3], pattern(9)).flush(1)];
    entries[1].blocks = entries[0].blocks.clone();
    let mut file = LogFile::new(vec![records, plane]);
    file.logs[0].tables = vec![vec![entries, second]];
    file
}

/// The places of one kind of dataset in `/_LOG`.
fn extents(path: &Path, kind: &str) -> Vec<(u64, u64)> {
    let file = raw::open_file(path);
    let names = (0..).map(|n| format!("/_LOG/{kind}_{n}"));
    names
        .take_while(|name| raw::link_exists(&file, name))
        .map(|name| {
            let dataset = raw::open(&file, &name);
            let (dims, _) = raw::extent(&raw::dataset_space(&dataset));
            (raw::dataset_offset(&dataset), dims[0])
        })
        .collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Reads every dataset of a damaged file; errors are fine.
fn read_all(path: &Path, file: &LogFile) -> Vec<Option<Vec<u8>>> {
    let Ok(view) = open_view(path) else {
        return vec![None; file.datasets.len()];
    };
    let read = |d: &Dataset| read(&view, &format!("/{}", d.name)).ok();
    file.datasets.iter().map(read).collect()
}

/// Changes one to three bytes within one kind of dataset.
fn damage(bytes: &mut [u8], extents: &[(u64, u64)], random: &mut Random) {
    for _ in 0..=random.below(3) {
        let (offset, len) = extents[random.below(extents.len() as u64) as usize];
        let at = (offset + random.below(len)) as usize;
        bytes[at] = match random.below(3) {
            0 => bytes[at] ^ (1 << random.below(8)),
            1 => 0xff,
            _ => random.below(256) as u8,
        };
    }
}

/// Entries have no checksum, so damage may name another place, whose bytes the dataset then shows. But nothing panics,
/// hangs, or allocates memory because a number in the file says so.
#[test]
fn random_damage_to_the_tables() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for sample in [sample(false), sample(true)] {
        let (_dir, path) = place(&sample);
        let whole = fs::read(&path).unwrap();
        let extents = extents(&path, "_md");
        let (mut refused, mut known) = (0, 0);
        for _ in 0..DAMAGES {
            let mut bytes = whole.clone();
            damage(&mut bytes, &extents, &mut random);
            fs::write(&path, &bytes).unwrap();
            refused += read_all(&path, &sample)
                .iter()
                .filter(|r| r.is_none())
                .count();
            if let Ok(view) = open_view(&path) {
                known += usize::from(view.snapshot().has_unreadable);
                assert_eq!(view.snapshot().has_unreadable, has_unreadable(&view));
            }
        }
        assert!(refused > 0 && known > 0);
    }
}

/// A table too large to be decoded during a scan.
fn large_table() -> LogFile {
    let number: u64 = 4000;
    let lines = Dataset::new("lines", 0, Type::U8, &[number * 32]);
    let entry = |n| Entry::one(0, &[n * 32], &[32], vec![n as u8; 32]);
    let mut file = LogFile::new(vec![lines]);
    file.logs[0].tables = vec![vec![(0..number).map(entry).collect()]];
    file
}

/// Offset of the first dataset's chunks.
fn first_chunk(view: &View) -> u64 {
    view.inspection().chunk_place(ChunkId::new(0, 0)).unwrap().0
}

/// The scan walks through a large table in search of tiles, but does not decode it.
#[test]
fn damage_to_a_large_table_is_known_where_the_walk_meets_it() {
    let (_dir, path) = place(&large_table());
    let whole = fs::read(&path).unwrap();
    let view = open_view(&path).unwrap();
    assert!(!view.snapshot().has_unreadable);
    assert!(first_chunk(&view) < 4 << 20);
    let (table, len) = extents(&path, "_md")[0];
    assert!(len > 64 << 10);
    let entry = table as usize + 16;
    // The size of an entry, the offset of its data, and its count.
    for (at, is_known) in [(entry, true), (entry + 19, true), (entry + 43, false)] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x70;
        fs::write(&path, &bytes).unwrap();
        let view = open_view(&path).unwrap();
        assert_eq!(view.snapshot().has_unreadable, is_known);
        assert_eq!(first_chunk(&view) >= 4 << 20, is_known);
        assert!(read(&view, "/lines").is_err());
    }
}

/// The scan limits its memory for decoding a small table. It knows nothing about entries beyond this limit.
#[test]
fn a_small_table_that_asks_for_much_memory_is_not_decoded_by_the_scan() {
    for (blocks, is_known) in [(1000, true), (1 << 18, false)] {
        let block = (vec![0], vec![1]);
        let many = Entry::many(0, vec![block; blocks], vec![7; blocks]);
        let many = many.spelled(Spelling::Deflated {
            extent: None,
            form: Deflated::AfterCount,
        });
        let outside = Entry::one(1, &[0], &[4], vec![7; 4]).claiming(1 << 40, 4);
        let (_dir, path) = place(&with_bad(bytes_dataset(&[9]), vec![many, outside]));
        let tables: u64 = extents(&path, "_md").iter().map(|(_, len)| len).sum();
        assert!(tables < 16 << 10, "{tables}");
        let view = open_view(&path).unwrap();
        assert_eq!(view.snapshot().has_unreadable, is_known);
        assert!(read(&view, "/good").is_err());
    }
}

/// An impossible field in an entry's header is noticed. All elements shown are those written.
#[test]
fn damage_to_entry_sizes_never_shows_other_data() {
    let sample = sample(false);
    let (_dir, path) = place(&sample);
    let whole = fs::read(&path).unwrap();
    let intact = read_all(&path, &sample);
    assert!(intact.iter().all(Option::is_some));
    let (table, len) = extents(&path, "_md")[0];
    let size_at = |at: usize| i32::from_le_bytes(whole[at..at + 4].try_into().unwrap());
    // Two sections: two ends after their number.
    let mut at = table as usize + 24;
    while at < (table + len) as usize {
        for bit in 0..32 {
            let mut bytes = whole.clone();
            let damaged = size_at(at) ^ (1i32 << bit);
            bytes[at..at + 4].copy_from_slice(&damaged.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            for (now, before) in read_all(&path, &sample).iter().zip(&intact) {
                assert!(now.is_none() || now == before, "byte {at}, size {damaged}");
            }
        }
        at += size_at(at) as usize;
    }
}

/// In damaged data only the damaged bytes differ, unless they passed filters.
#[test]
fn random_damage_to_the_data() {
    let mut random = Random(0xfeed_5678_9abc_def1);
    for sample in [sample(false), sample(true)] {
        let (_dir, path) = place(&sample);
        let whole = fs::read(&path).unwrap();
        let intact = read_all(&path, &sample);
        let extents = extents(&path, "_ld");
        for _ in 0..DAMAGES {
            let mut bytes = whole.clone();
            damage(&mut bytes, &extents, &mut random);
            fs::write(&path, &bytes).unwrap();
            let now = read_all(&path, &sample);
            // `records` is unfiltered: at most three bytes.
            let (now, before) = (now[0].as_ref().unwrap(), intact[0].as_ref().unwrap());
            let differ = now.iter().zip(before).filter(|(a, b)| a != b).count();
            assert!(differ <= 3);
        }
    }
}

#[test]
fn truncation_anywhere() {
    let sample = sample(true);
    let (_dir, path) = place(&sample);
    let whole = fs::read(&path).unwrap();
    let intact = read_all(&path, &sample);
    let mut random = Random(0xabcd_ef01);
    for _ in 0..DAMAGES {
        let len = random.below(whole.len() as u64) as usize;
        fs::write(&path, &whole[..len]).unwrap();
        for (now, before) in read_all(&path, &sample).iter().zip(&intact) {
            assert!(now.is_none() || now == before, "cut to {len}");
        }
    }
}

// --- the corpus ----------------------------------------------------------------------------------

fn corpus(name: &str) -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let candidates = [dir.join(name), dir.join("logvol").join(name)];
    candidates.into_iter().find(|p| p.exists())
}

/// Files damaged by hand: datasets report whatever is wrong with their entries.
#[test]
fn damaged_files_of_the_corpus() {
    for name in ["size0", "nsel", "foff", "roff", "refself", "step0", "nproc"] {
        let Some(path) = corpus(&format!("bad_{name}.log.h5")) else {
            continue;
        };
        let view = open_view(&path).unwrap();
        assert!(view.snapshot().has_unreadable, "{name}");
        let failed = ["/a", "/r"].map(|d| read(&view, d).err());
        let message = failed.iter().flatten().next().expect(name).to_string();
        assert_says(&message, "_md_0");
        assert_says(&message, &format!("bad_{name}.log.h5"));
    }
    if let Some(path) = corpus("damaged_vlen.log.h5") {
        let view = open_view(&path).unwrap();
        let datasets = view.snapshot().datasets.clone();
        for dataset in datasets {
            let message = read(&view, &dataset.name).unwrap_err().to_string();
            assert_says(&message, "variable-length");
        }
    }
    for (name, words) in [
        ("noflush", "never closed"),
        (
            "flush",
            "720 bytes are there, and nothing says what they mean",
        ),
        (
            "md",
            "Its last 232 bytes, from byte 3720 on, are a table of 4 writes to 2 datasets, 720 bytes",
        ),
    ] {
        if let Some(path) = corpus(&format!("crash_{name}.log.h5")) {
            let error = open_view(&path).unwrap_err();
            assert!(matches!(error, Error::NotALog { .. }), "{error}");
            assert_says(&error.to_string(), words);
        }
    }
    if let Some(path) = corpus("truncated.log.h5") {
        let error = open_view(&path).unwrap_err();
        assert!(matches!(error, Error::BadFile { .. }), "{error}");
    }
}
