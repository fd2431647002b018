//! Indexes on the disk, and the items of the store that hold them.

use std::fs;
use std::path::PathBuf;

use h5logfs_common::memory::Reserved;
use h5logfs_log::Logged;
use h5logfs_log::model::Selections;
use h5logfs_log::snapshot::Dataset;
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::index::DatasetIndex;
use h5logfs_view::index::saved::{self, IndexInputs};
use h5logfs_view::index::store::StoreEntry;

use super::Seeds;
use super::damaged::Edit;
use super::input::{Input, Output};
use super::memory;
use super::samples::{SAMPLES, Scanned};
use super::tables::{STORE, answers, check_saved, empty_store, queries};
use super::test_dir::{MEMORY, TestDir};

/// The number of source files. They are empty.
const SOURCES: usize = 5;

/// The logged datasets of all samples.
fn datasets() -> impl Iterator<Item = (&'static Scanned, usize, Logged<'static>)> {
    SAMPLES.iter().flat_map(|scanned| {
        let datasets = scanned.snapshot.datasets.iter().map(Dataset::logged);
        let numbered = datasets.enumerate();
        numbered.filter_map(move |(number, logged)| Some((scanned, number, logged?)))
    })
}

fn sources(test_dir: &TestDir) -> Vec<SourceFile> {
    test_dir.write("log", &[]);
    (0..SOURCES).map(|_| test_dir.open("log")).collect()
}

fn identities(sources: &[SourceFile]) -> Vec<u8> {
    postcard::to_stdvec(&saved::identities(sources)).expect("identities as bytes")
}

/// The input is the number of a dataset, its selections, and its index without the identities of the source files. These
/// are at the front of an index and differ each time.
pub fn index(bytes: &[u8]) {
    let mut input = Input(bytes);
    let wanted = usize::from(input.u8());
    let (selections, index) = input.two_parts();
    let number = datasets().count();
    let Some((_, _, dataset)) = datasets().nth(wanted % number) else {
        return;
    };
    let test_dir = TestDir::new();
    let sources = sources(&test_dir);
    let item = [&identities(&sources), index].concat();
    let inputs = IndexInputs {
        number: 0,
        strip: None,
        dataset: &dataset,
        sources: &sources,
    };
    let known = Selections::default();
    let task = &memory::task(MEMORY);
    let reserved = |bytes: Vec<u8>| Reserved::new(bytes, task.reservation());
    let get = |_: &str| Some(reserved(selections.to_vec()));
    let Some(index) = DatasetIndex::from_items(task, reserved(item), get, inputs, &known) else {
        return;
    };
    for query in queries(dataset.dims) {
        answers(&index, &query);
    }
    index.bytes_with_selections();
    let store = TestDir::new();
    check_saved(&index, inputs, &empty_store(&store));
}

pub fn index_seeds() -> Seeds {
    let all = datasets().enumerate();
    all.filter_map(|(at, (scanned, number, dataset))| {
        let made = TestDir::new();
        for (name, bytes) in &scanned.sample.files {
            made.write(name, bytes);
        }
        let mut snapshot = scanned.snapshot.clone();
        made.adopt(&mut snapshot);
        let index = made.view(snapshot).ok()?.indexes().of(number).ok()?;
        let test_dir = TestDir::new();
        let sources = sources(&test_dir);
        let entry = empty_store(&test_dir);
        let inputs = IndexInputs {
            number: 0,
            strip: None,
            dataset: &dataset,
            sources: &sources,
        };
        let task = &memory::task(MEMORY);
        index.save(task, &entry, inputs);
        let of_selections = items(&test_dir)
            .into_iter()
            .find(|item| item.starts_with("selections"));
        let selections = of_selections.and_then(|item| entry.get(task, &item));
        let selections = selections.map_or(Vec::new(), |item| item.to_vec());
        let item = entry.get(task, "index-0")?;
        let index = item.strip_prefix(identities(&sources).as_slice())?;
        let bytes = Output::default().u8(at);
        let bytes = bytes.two_parts(&selections, index);
        Some((format!("{}-{number}", scanned.sample.name), bytes))
    })
    .collect()
}

/// The directory of the only entry in the store.
fn dir(test_dir: &TestDir) -> PathBuf {
    let dirs = fs::read_dir(test_dir.path().join(STORE)).expect("a store");
    let mut dirs = dirs.flatten().map(|entry| entry.path());
    dirs.next().expect("a directory of items")
}

fn items(test_dir: &TestDir) -> Vec<String> {
    let items = fs::read_dir(dir(test_dir)).expect("a directory of items");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    items.flatten().filter_map(name).collect()
}

/// The input is an item and changes to its file.
pub fn item(bytes: &[u8]) {
    let (item, edits) = Input(bytes).two_parts();
    let test_dir = TestDir::new();
    let entry: StoreEntry = empty_store(&test_dir);
    entry.put("scan", item);
    let path = dir(&test_dir).join("scan");
    let whole = fs::read(&path).expect("an item that was put");
    let mut damaged = whole.clone();
    for edit in Edit::all(Input(edits)) {
        edit.apply(&mut damaged);
    }
    fs::write(&path, &damaged).expect("the item");
    let got = entry.get(&memory::task(MEMORY), "scan");
    let wanted = (damaged == whole).then_some(item);
    assert_eq!(got.as_ref().map(|item| item.as_slice()), wanted);
}

pub fn item_seeds() -> Seeds {
    let seed = |(name, edits): (&str, &[u8])| {
        let bytes = Output::default().two_parts(b"some bytes that are kept", edits);
        (name.to_owned(), bytes)
    };
    let flip: &[u8] = &[1, 60, 0, 0, 0, 3];
    let cut: &[u8] = &[6, 90, 0, 0, 0];
    [("as-it-was", &[][..]), ("flipped", flip), ("cut", cut)]
        .map(seed)
        .into()
}
