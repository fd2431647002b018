//! Chunks that are one piece in the files of a log, as other readers find them there. The tests of random logs also
//! follow references.

use std::fs;
use std::path::Path;

use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::cache::{Budget, MemoryLimits};
use h5logfs_view::{Form, View};

use crate::common::encoder::filter;
use crate::common::encoder::*;
use crate::common::pnetcdf::case;

/// The configuration bit of a writer that merges calls into entries.
const MERGED: i32 = 0x001;

/// Forms of a dataset's references, and the number of chunks without one.
fn followed(path: &Path, name: &str) -> (Vec<Form>, usize) {
    let view = open_view(path).unwrap();
    follow_references(&view, number_of(&view, name)).unwrap()
}

fn numbers(count: usize, first: usize) -> Vec<u8> {
    let numbers = (first..first + count).map(|n| n as u16);
    numbers.flat_map(u16::to_le_bytes).collect()
}

/// Writes a log of one dataset of 16-bit numbers, in chunks of 4 × 6, and follows its references.
fn written(
    dir: &Path,
    dims: [u64; 2],
    filters: &[Filter],
    entries: Vec<Entry>,
) -> (Vec<Form>, usize) {
    let dataset = Dataset::new("d", 0, Type::U16, &dims).chunked(&[4, 6]);
    let path = dir.join("log.h5");
    LogFile::with(vec![dataset.filtered(filters)], entries).write(&path);
    followed(&path, "/d")
}

#[test]
fn chunks_that_are_one_piece_are_referenced() {
    let dir = tempfile::tempdir().unwrap();
    // The first chunk is a record, the second lies among other rows, the third was never written.
    let entries = vec![
        Entry::one(0, &[0, 0], &[4, 6], numbers(24, 0)),
        Entry::one(0, &[2, 6], &[8, 6], numbers(48, 100)),
    ];
    let forms = written(dir.path(), [12, 12], &[], entries);
    assert_eq!(forms, (vec![Form::Elements; 2], 2));
}

#[test]
fn a_chunk_at_the_edge_takes_the_bytes_that_follow_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let entries = |last| {
        vec![
            Entry::one(0, &[4, 0], &[3, 6], numbers(18, 0)),
            Entry::one(0, &[0, 0], &[4, last], numbers(4 * last as usize, 18)),
        ]
    };
    assert_eq!(written(dir.path(), [7, 6], &[], entries(6)).1, 0);
    // Rows shorter than a chunk's are laid out differently.
    let short = vec![Entry::one(0, &[0, 6], &[4, 3], numbers(12, 0))];
    assert_eq!(written(dir.path(), [4, 9], &[], short), (vec![], 1));
}

#[test]
fn filtered_chunks_are_referenced_where_they_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [Filter::shuffle(2), Filter::deflate(6), Filter::fletcher32()];
    let entry = |start: [u64; 2], count: [u64; 2]| {
        let raw = numbers((count[0] * count[1]) as usize, start[0] as usize * 7);
        Entry::one(0, &start, &count, filter::apply(&filters, &raw))
    };
    let entries = vec![entry([0, 0], [4, 6]), entry([4, 0], [2, 6])];
    let forms = written(dir.path(), [6, 6], &filters, entries);
    assert_eq!(forms, (vec![Form::Filtered], 1));
}

/// The deflated cases of the real writer, whose stub datasets record no filter.
#[test]
fn deflated_records_that_are_chunks_are_referenced() {
    let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/deflate.log.h5");
    let view = open_view(&log).unwrap();
    let mut forms = Vec::new();
    for number in 0..view.snapshot().datasets.len() {
        forms.extend(follow_references(&view, number).unwrap().0);
    }
    assert!(forms.contains(&Form::Deflated), "{forms:?}");
}

/// A chunk of 4 × 6 that each of these entries writes completely.
fn deflated(config: i32, entry: Entry) -> (Vec<Form>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let dataset = Dataset::new("d", 0, Type::U16, &[4, 6]).chunked(&[4, 6]);
    let mut log = LogFile::with(vec![dataset], vec![entry]);
    log.config = config;
    log.write(&dir.path().join("log.h5"));
    followed(&dir.path().join("log.h5"), "/d")
}

#[test]
fn deflated_records_of_merged_calls_are_not_referenced() {
    let (upper, lower) = (numbers(12, 0), numbers(12, 12));
    let streams = [filter::deflate(&upper), filter::deflate(&lower)].concat();
    // The blocks of the calls become one.
    let blocks = vec![(vec![0, 0], vec![2, 6]), (vec![2, 0], vec![2, 6])];
    let entry = Entry::many(0, blocks, streams);
    let one = Entry::one(0, &[0, 0], &[4, 6], filter::deflate(&numbers(24, 0)));
    assert_eq!(deflated(0, entry.clone()), (vec![], 1));
    assert_eq!(deflated(MERGED, entry), (vec![], 1));
    assert_eq!(deflated(0, one), (vec![Form::Deflated], 0));
}

#[test]
fn the_data_of_a_netcdf_file_are_referenced_in_their_byte_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = case("append-cdf2-np4").lay_out(dir.path());
    let (below, name) = SourceDir::of_file(&file).unwrap();
    let snapshot = scan(ScanRequest::alone(&below, &name, &Settings::default())).unwrap();
    let budget = Budget::new(MemoryLimits::each(64 << 20));
    let view = View::open(&below, snapshot, budget.into(), None).unwrap();
    let mut forms = Vec::new();
    for number in 0..view.snapshot().datasets.len() {
        forms.extend(follow_references(&view, number).unwrap().0);
    }
    assert!(forms.contains(&Form::Swapped), "{forms:?}");
}

#[test]
fn a_compressed_chunk_is_the_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [Filter::shuffle(2), Filter::deflate(6)];
    let raw = numbers(24, 0);
    let entry = Entry::one(0, &[0, 0], &[4, 6], filter::apply(&filters, &raw));
    written(dir.path(), [4, 6], &filters, vec![entry]);
    let view = open_view(&dir.path().join("log.h5")).unwrap();
    let compressed = view
        .references()
        .compressed_chunk(ChunkId::new(0, 0))
        .unwrap();
    assert!(filter::undo(&filters, &compressed) == raw);
}

#[test]
fn a_file_that_changed_is_no_longer_referred_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let entry = Entry::one(0, &[0, 0], &[4, 6], numbers(24, 0));
    written(dir.path(), [4, 6], &[], vec![entry]);
    let view = open_view(&path).unwrap();
    assert_eq!(view.references().of(0).unwrap().count(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes.push(0);
    fs::write(&path, bytes).unwrap();
    view.references().check_sources().unwrap_err();
}
