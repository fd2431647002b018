//! Snapshots from another process or from the disk.

use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourcePath;

use super::Seeds;
use super::input::Output;
use super::memory;
use super::reading::read;
use super::samples::SAMPLES;
use super::test_dir::{MEMORY, TestDir};

/// The most descriptors for one view.
const MOST_SOURCES: usize = 64;

/// The input is the number of a sample, whose files exist, and a snapshot.
pub fn run(bytes: &[u8]) {
    let Some((number, bytes)) = bytes.split_first() else {
        return;
    };
    let task = &memory::task(2 * MEMORY);
    let Ok(snapshot) = Snapshot::from_bytes(task, bytes) else {
        return;
    };
    let (mut snapshot, reservation) = snapshot.into_parts();
    let again = snapshot
        .to_bytes()
        .map(|bytes| Snapshot::from_bytes(task, &bytes));
    assert!(matches!(again, Ok(Ok(again)) if *again == snapshot));
    assert!(reservation.bytes() >= snapshot.bytes() as u64);
    if snapshot.check().is_err() || snapshot.sources.len() > MOST_SOURCES {
        return;
    }
    let files = &SAMPLES[usize::from(*number) % SAMPLES.len()].sample.files;
    let test_dir = TestDir::new();
    for (name, bytes) in files {
        test_dir.write(name, bytes);
    }
    for source in &mut snapshot.sources {
        if test_dir.source.stat(&source.place.path).is_err() {
            source.place = SourcePath::below(files[0].0);
        }
    }
    test_dir.adopt(&mut snapshot);
    if let Ok(view) = test_dir.view(snapshot) {
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
