//! The outcome of a scan, from another process or the disk.

use h5logfs_core::log::source_dir::SourcePath;
use h5logfs_core::snapshot::Snapshot;

use super::Seeds;
use super::input::Output;
use super::reading::read;
use super::samples::SAMPLES;
use super::site::Site;

/// Descriptors that one view may take here.
const MOST_SOURCES: usize = 64;

/// The number of the sample whose files are there, then the snapshot.
pub fn run(bytes: &[u8]) {
    let Some((number, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok(mut snapshot) = Snapshot::from_bytes(bytes) else {
        return;
    };
    let again = snapshot
        .to_bytes()
        .map(|bytes| Snapshot::from_bytes(&bytes));
    assert!(matches!(again, Ok(Ok(again)) if again == snapshot));
    snapshot.bytes();
    if snapshot.check().is_err() || snapshot.sources.len() > MOST_SOURCES {
        return;
    }
    let files = &SAMPLES[usize::from(*number) % SAMPLES.len()].sample.files;
    let site = Site::new();
    for (name, bytes) in files {
        site.write(name, bytes);
    }
    for source in &mut snapshot.sources {
        if site.held.stat(&source.place.path).is_err() {
            source.place = SourcePath::below(files[0].0);
        }
    }
    site.adopt(&mut snapshot);
    if let Ok(view) = site.view(snapshot) {
        read(&view);
    }
}

pub fn seeds() -> Seeds {
    let numbered = SAMPLES.iter().enumerate();
    let seed = |(number, scanned): (usize, &super::samples::Scanned)| {
        let bytes = scanned.snapshot.to_bytes().expect("a snapshot as bytes");
        let bytes = Output::default().u8(number).put(&bytes).0;
        (scanned.sample.name.to_owned(), bytes)
    };
    numbered.map(seed).collect()
}
