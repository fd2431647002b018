//! What was kept on the disk: indexes, and the files that they lie in.

use std::fs;
use std::path::PathBuf;

use h5logfs_core::index::DatasetIndex;
use h5logfs_core::index::saved::IndexInputs;
use h5logfs_core::index::store::StoreEntry;
use h5logfs_core::log::Logged;
use h5logfs_core::log::model::Selections;
use h5logfs_core::log::source_file::{Identity, SourceFile};
use h5logfs_core::snapshot::Dataset;

use super::Seeds;
use super::asking::{answers, empty_store, keep, queries};
use super::damaged::Edit;
use super::input::{Input, Output};
use super::samples::{SAMPLES, Scanned};
use super::site::Site;

/// Source files that there are, without any bytes.
const SOURCES: usize = 5;

/// The logged datasets of all samples.
fn datasets() -> impl Iterator<Item = (&'static Scanned, usize, Logged<'static>)> {
    SAMPLES.iter().flat_map(|scanned| {
        let datasets = scanned.snapshot.datasets.iter().map(Dataset::logged);
        let numbered = datasets.enumerate();
        numbered.filter_map(move |(number, logged)| Some((scanned, number, logged?)))
    })
}

fn sources(site: &Site) -> Vec<SourceFile> {
    site.write("log", &[]);
    (0..SOURCES).map(|_| site.open("log")).collect()
}

fn identities(sources: &[SourceFile]) -> Vec<u8> {
    let identities: Vec<Identity> = sources.iter().map(SourceFile::identity).collect();
    postcard::to_stdvec(&identities).expect("identities as bytes")
}

/// Which dataset is meant, then its selections, then its index without the states of the source files,
/// which stand at its front and differ each time.
pub fn index(bytes: &[u8]) {
    let mut input = Input(bytes);
    let wanted = usize::from(input.u8());
    let (selections, index) = input.two_parts();
    let number = datasets().count();
    let Some((_, _, dataset)) = datasets().nth(wanted % number) else {
        return;
    };
    let site = Site::new();
    let sources = sources(&site);
    let item = [&identities(&sources), index].concat();
    let about = IndexInputs {
        number: 0,
        dataset: &dataset,
        sources: &sources,
    };
    let known = Selections::default();
    let get = |_: &str| Some(selections.to_vec());
    let Some(index) = DatasetIndex::from_items(&item, get, about, &known) else {
        return;
    };
    for query in queries(dataset.dims) {
        answers(&index, &query);
    }
    index.bytes_with_selections();
    keep(&index, about);
}

pub fn index_seeds() -> Seeds {
    let all = datasets().enumerate();
    all.filter_map(|(at, (scanned, number, dataset))| {
        let made = Site::new();
        for (name, bytes) in &scanned.sample.files {
            made.write(name, bytes);
        }
        let mut snapshot = scanned.snapshot.clone();
        made.adopt(&mut snapshot);
        let index = made.view(snapshot).ok()?.index(number).ok()?;
        let site = Site::new();
        let sources = sources(&site);
        let log = empty_store(&site);
        let about = IndexInputs {
            number: 0,
            dataset: &dataset,
            sources: &sources,
        };
        index.save(&log, about);
        let of_selections = items(&site)
            .into_iter()
            .find(|item| item.starts_with("selections"));
        let selections = of_selections.and_then(|item| log.get(&item));
        let item = log.get("index-0")?;
        let index = item.strip_prefix(identities(&sources).as_slice())?;
        let bytes = Output::default().u8(at);
        let bytes = bytes.two_parts(&selections.unwrap_or_default(), index);
        Some((format!("{}-{number}", scanned.sample.name), bytes))
    })
    .collect()
}

/// The files of a store: there is one directory in it.
fn dir(site: &Site) -> PathBuf {
    let dirs = fs::read_dir(site.path().join("kept")).expect("a store");
    let mut dirs = dirs.flatten().map(|entry| entry.path());
    dirs.next().expect("a folder of items")
}

fn items(site: &Site) -> Vec<String> {
    let items = fs::read_dir(dir(site)).expect("a folder of items");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().ok();
    items.flatten().filter_map(name).collect()
}

/// An item, then what happens to its file.
pub fn item(bytes: &[u8]) {
    let (item, edits) = Input(bytes).two_parts();
    let site = Site::new();
    let log: StoreEntry = empty_store(&site);
    log.put("item", item);
    let path = dir(&site).join("item");
    let whole = fs::read(&path).expect("an item that was put");
    let mut damaged = whole.clone();
    for edit in Edit::all(Input(edits)) {
        edit.apply(&mut damaged);
    }
    fs::write(&path, &damaged).expect("the item");
    let got = log.get("item");
    let wanted = (damaged == whole).then_some(item);
    assert_eq!(got.as_deref(), wanted);
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
