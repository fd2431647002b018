//! The computed chunk index, walked by libhdf5.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::encoder::raw::{self, Id, call};
use crate::common::encoder::*;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use hdf5_metno_sys::h5d::*;

/// Chunks looked up in each view. Some versions of libhdf5 walk the whole index for each.
const LOOKUPS: u64 = 100;

/// The chunk at these coordinates according to libhdf5: address, stored bytes, filter mask.
fn chunk_info(dataset: &Id, origin: &[u64]) -> (u64, u64, u32) {
    let (mut mask, mut address, mut size) = (0, 0, 0);
    call!(H5Dget_chunk_info_by_coord(
        dataset.get(),
        origin.as_ptr(),
        &mut mask,
        &mut address,
        &mut size
    ));
    (address, size, mask)
}

fn count_chunks(dataset: &Id) -> u64 {
    let mut count = 0;
    let all = raw::dataset_space(dataset);
    call!(H5Dget_num_chunks(dataset.get(), all.get(), &mut count));
    count
}

/// A file of the view's length without content.
fn sparse_file(view: &View, path: &Path) -> File {
    let file = File::create(path).unwrap();
    file.set_len(view.len()).unwrap();
    file
}

fn copy_range(view: &View, file: &File, start: u64, len: u64) -> Vec<u8> {
    let mut buffer = vec![0; len as usize];
    assert_eq!(view.read_at(start, &mut buffer).unwrap(), buffer.len());
    file.write_all_at(&buffer, start).unwrap();
    buffer
}

/// Writes the front of the file, and the index nodes between the root and some chunks.
fn export_paths(view: &View, chunks: impl Iterator<Item = u64>, path: &Path) -> File {
    let file = sparse_file(view, path);
    let front = copy_range(
        view,
        &file,
        0,
        view.holes().segment_at(0).unwrap().range.end,
    );
    let root = root_of(view, &front);
    for chunk in chunks {
        let mut wanted = view.grid(0).origin(chunk);
        wanted.push(0);
        let mut node = root;
        while let Some(child) = copy_node(view, &file, node, &wanted) {
            node = child;
        }
    }
    file
}

/// The address in the data layout message of the only dataset: version 3, class 2, rank, address, chunk shape (HDF5
/// File Format Specification, IV.A.2.i).
fn root_of(view: &View, front: &[u8]) -> u64 {
    let dataset = &view.snapshot().datasets[0];
    let sides = view.grid(0).chunk.iter().chain([&dataset.element_size]);
    let shape: Vec<u8> = sides.flat_map(|s| (*s as u32).to_le_bytes()).collect();
    let head = [3, 2, dataset.dims.len() as u8 + 1];
    let is_message = |w: &&[u8]| w[..3] == head && w[11..] == shape;
    let mut found = front.windows(11 + shape.len()).filter(is_message);
    let message = found.next().expect("a layout message");
    assert!(found.next().is_none(), "one layout message");
    u64::from_le_bytes(message[3..11].try_into().unwrap())
}

/// Copies a node (III.A.1); returns the address of its child that leads to `wanted`.
fn copy_node(view: &View, file: &File, address: u64, wanted: &[u64]) -> Option<u64> {
    const FAN_OUT: usize = 64;
    let key_size = 8 + 8 * wanted.len();
    let step = key_size + 8;
    let size = 24 + FAN_OUT * step + key_size;
    let node = copy_range(view, file, address, size as u64);
    assert_eq!(&node[..5], b"TREE\x01");
    let level = node[5];
    let entries = usize::from(u16::from_le_bytes([node[6], node[7]]));
    let number = |at: usize| u64::from_le_bytes(node[at..at + 8].try_into().unwrap());
    let key = |entry: usize| -> Vec<u64> {
        let at = 24 + entry * step + 8;
        (0..wanted.len()).map(|d| number(at + 8 * d)).collect()
    };
    let entry = (0..entries).rev().find(|e| key(*e)[..] <= *wanted).unwrap();
    assert!(*wanted < key(entry + 1)[..], "{wanted:?} past the last key");
    (level > 0).then(|| number(24 + entry * step + key_size))
}

/// Numbers spread over `0..len`, including its ends; deterministic.
fn spread(len: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let random = (0..LOOKUPS).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % len
    });
    let near = [0, 1, 62, 63, 64, 65, 4094, 4095, 4096];
    let edges = near
        .into_iter()
        .chain(near.map(move |n| (len - 1).saturating_sub(n)));
    edges.filter(move |n| *n < len).chain(random)
}

fn check_lookups(view: &View, number: usize, shown: &Id) {
    let user_block = view.snapshot().user_block;
    for chunk in spread(view.grid(number).len()) {
        let origin = view.grid(number).origin(chunk);
        let (address, size) = view
            .inspection()
            .chunk_place(ChunkId::new(number, chunk))
            .unwrap();
        let (found, stored, mask) = chunk_info(shown, &origin);
        // Some versions of libhdf5 count from the end of the user block here.
        let base = if found == address { 0 } else { user_block };
        assert_eq!(
            (found + base, stored, mask),
            (address, size, 0),
            "{origin:?}"
        );
    }
}

/// An entry that writes all of a dataset, with different neighbours.
fn everything(dataset: &Dataset) -> Entry {
    let len = dataset.elements() as usize * dataset.datatype.size();
    let data = (0..len).map(|i| (i % 251 + 1) as u8).collect();
    let start = vec![0; dataset.dims.len()];
    Entry::one(dataset.id, &start, &dataset.dims, data)
}

/// Writes the view and checks libhdf5's reading of every chunked dataset.
fn check_whole(file: &LogFile) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    file.write(&path);
    let view = open_view(&path).unwrap();
    let exported = dir.path().join("view.h5");
    export(&view, &exported);
    let shown = raw::open_file(&exported);
    for dataset in file.datasets.iter().filter(|d| !d.dims.is_empty()) {
        let number = number_of(&view, &format!("/{}", dataset.name));
        let shown = raw::open(&shown, &dataset.name);
        let chunks = view.grid(number).len();
        assert_eq!(count_chunks(&shown), chunks);
        if chunks > 0 {
            check_lookups(&view, number, &shown);
        }
        let same = raw::read(&shown) == file.contents(dataset);
        assert!(same, "{} of {chunks} chunks", dataset.name);
    }
}

#[test]
fn perfect_trees_of_every_height() {
    for chunks in [1, 2, 63, 64, 65, 128, 129, 4095, 4096, 4097] {
        let mut dataset = Dataset::new("d", 0, Type::U8, &[chunks * 3 - 1]).chunked(&[3]);
        dataset.max = vec![None];
        let entry = everything(&dataset);
        let mut file = LogFile::with(vec![dataset], vec![entry]);
        file.user_block = vec![1; if chunks % 2 == 0 { 512 } else { 0 }];
        check_whole(&file);
    }
}

/// With several dimensions, "past the last chunk" refers to row-major order.
#[test]
fn trees_of_several_dimensions_and_datasets() {
    let deflated = [Filter::shuffle(8), Filter::deflate(6), Filter::fletcher32()];
    let mut growing = Dataset::new("growing", 3, Type::I16, &[70, 3, 5]).chunked(&[1, 2, 2]);
    growing.max[0] = None;
    let datasets = vec![
        Dataset::new("deep", 0, Type::F64, &[9, 9, 9, 9]).chunked(&[2, 2, 2, 2]),
        Dataset::new("empty", 1, Type::F64, &[0, 9]).chunked(&[2, 2]),
        Dataset::new("filtered", 2, Type::F64, &[30, 30])
            .chunked(&[2, 2])
            .filtered(&deflated),
        growing,
        Dataset::new("scalar", 4, Type::F64, &[]),
        Dataset::new("tall", 5, Type::U8, &[150, 40]).chunked(&[1, 40]),
        Dataset::new("wide", 6, Type::U8, &[40, 150]).chunked(&[40, 1]),
    ];
    let entries = datasets.iter().map(everything).collect();
    check_whole(&LogFile::with(datasets, entries));
}

/// Records served directly as chunks have individual sizes, which the index must have.
#[test]
fn sizes_of_chunks_that_are_served_as_they_lie() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let filters = [Filter::shuffle(4), Filter::deflate(9)];
    let dataset = Dataset::new("d", 0, Type::I32, &[150, 40])
        .chunked(&[1, 40])
        .filtered(&filters);
    let rows = (0..150u64).step_by(3).map(|row| {
        let raw: Vec<u8> = (0..40u32)
            .flat_map(|i| (i * (row as u32) % 7).to_le_bytes())
            .collect();
        Entry::one(0, &[row, 0], &[1, 40], filter::apply(&filters, &raw))
    });
    let file = LogFile::with(vec![dataset], rows.collect());
    file.write(&path);
    let view = open_view(&path).unwrap();
    let exported = dir.path().join("view.h5");
    export(&view, &exported);
    let shown = raw::open_file(&exported);
    let shown = raw::open(&shown, "d");
    check_lookups(&view, 0, &shown);
    let as_logged = (0..150).filter(|c| {
        view.inspection()
            .chunk_place(ChunkId::new(0, *c))
            .unwrap()
            .1
            < 160
    });
    assert_eq!(as_logged.count(), 50);
    let contents = file.contents(&file.datasets[0]);
    assert!(read_by_chunks(&view, 0).unwrap() == contents);
    assert!(raw::read(&shown) == contents);
}

/// A million chunks cost nothing until they are read, even if nothing was written to them.
#[test]
fn a_million_chunks() {
    let dataset = Dataset::new("d", 0, Type::U64, &[2000, 2000]).chunked(&[2, 2]);
    check_ways(LogFile::new(vec![dataset]), 1_000_000);
}

/// The index of ten million chunks, more than a log without data may claim, lists only written ones.
#[test]
fn ten_million_chunks() {
    let dataset = Dataset::new("d", 0, Type::U64, &[50_000, 20_000]).chunked(&[10, 10]);
    let entries = spread(10_000_000).map(|chunk| {
        let origin = [chunk / 2000 * 10, chunk % 2000 * 10];
        Entry::one(0, &origin, &[1, 1], vec![1; 8])
    });
    check_ways(LogFile::with(vec![dataset], entries.collect()), 10_000_000);
}

/// Writes only those index nodes of the only dataset that lead to some chunks, and each chunk's number into it.
fn check_ways(log: LogFile, chunks: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    log.write(&path);
    let view = open_view(&path).unwrap();
    assert_eq!(view.grid(0).len(), chunks);

    let exported = dir.path().join("view.h5");
    let file = export_paths(&view, spread(chunks), &exported);
    for chunk in spread(chunks) {
        let (address, size) = view
            .inspection()
            .chunk_place(ChunkId::new(0, chunk))
            .unwrap();
        assert_eq!(size, 8 * view.grid(0).elements());
        file.write_all_at(&chunk.to_le_bytes(), address).unwrap();
    }
    let shown = raw::open_file(&exported);
    let shown = raw::open(&shown, "d");
    for chunk in spread(chunks) {
        let origin = view.grid(0).origin(chunk);
        let element = raw::read_block(&shown, &origin, &[1, 1]);
        assert_eq!(element, chunk.to_le_bytes(), "chunk at {origin:?}");
    }
}

/// Filters that the view cannot apply stay in the pipeline, and the chunks' masks exclude them.
#[test]
fn filters_that_cannot_be_applied_are_masked() {
    let foreign = |id, values: &[u32]| Filter {
        id,
        flags: 0,
        values: values.to_vec(),
    };
    let (szip, scale_offset, zstd) = (
        foreign(4, &[141, 32]),
        foreign(6, &[2, 0]),
        foreign(32015, &[3]),
    );
    let pipelines = [
        vec![szip],
        vec![scale_offset],
        vec![zstd.clone()],
        vec![Filter::shuffle(4), zstd, Filter::deflate(6)],
    ];
    let elements: Vec<u8> = (0..1200).map(|i| (i % 251) as u8).collect();
    let datasets = pipelines.iter().enumerate().map(|(id, pipeline)| {
        let dataset = Dataset::new(&format!("d{id}"), id as i32, Type::I32, &[20, 15]);
        dataset.chunked(&[8, 15]).filtered(pipeline)
    });
    let entry = |id| Entry::one(id as i32, &[0, 0], &[20, 15], elements.clone());
    let entries = (0..pipelines.len()).map(entry).collect();
    let log = LogFile::with(datasets.collect(), entries);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    log.write(&path);
    let exported = dir.path().join("view.h5");
    export(&open_view(&path).unwrap(), &exported);
    let shown = raw::open_file(&exported);
    for (number, (pipeline, mask)) in pipelines.iter().zip([1, 1, 1, 2]).enumerate() {
        let dataset = raw::open(&shown, &format!("d{number}"));
        assert_eq!(
            raw::filter_ids(&dataset),
            pipeline.iter().map(|f| f.id).collect::<Vec<_>>()
        );
        assert_eq!(chunk_info(&dataset, &[8, 0]).2, mask);
        assert_eq!(raw::read(&dataset), elements);
    }
}
