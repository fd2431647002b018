//! Indexes kept beside logs: after a crash they are used only if right.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use h5logfs_catalog::Catalog;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_output::Options;
use h5logfs_scan::InProcess;
use h5logfs_view::cache::MemoryLimits;
use h5logfs_view::index::store::Store;

use super::common::clock::settle;
use super::common::encoder::read_whole;
use super::common::rows::{Course, Job};
use super::common::{User, can_mount};
use super::judge::Verdict;
use super::recorder::Recorder;
use super::scenario::{NAME, try_images};

/// All bytes of the log in `dir`, by a daemon with the index directory `place`, and the number of its scans.
fn read(dir: &Path, place: &Path) -> Result<(Vec<u8>, u64), String> {
    let store = Store::open(place, 64 << 20).map_err(|e| e.to_string())?;
    let dir = SourceDir::open(dir).unwrap();
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let catalog = catalog.with_store(Arc::new(store));
    let view = catalog.open(Path::new(NAME)).map_err(|e| e.to_string())?;
    let bytes = read_whole(&view).map_err(|e| e.to_string())?;
    Ok((bytes, catalog.scans()))
}

#[test]
fn what_is_kept_of_a_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let paths: [PathBuf; 1] = [dir.path().join(NAME)];
    let mut job = Job::create(&paths, &Options::default());
    (0..3).for_each(|_| job.flush(Course::default()));
    job.leave();
    h5logfs_scan::closing::recover(&paths[0], Default::default()).unwrap();
    settle(dir.path());
    let recorder = Recorder::new();
    let place = |of: &Path| of.join("kept");
    let (bytes, _) = read(dir.path(), &place(recorder.path())).unwrap();
    let (again, scans) = read(dir.path(), &place(recorder.path())).unwrap();
    assert_eq!((again == bytes, scans), (true, 0));
    let violations = try_images("kept index", &recorder.history(), |disk, _, _| {
        let kept = tempfile::tempdir().unwrap();
        disk.store(kept.path()).unwrap();
        match read(dir.path(), &place(kept.path()))? {
            (found, _) if found != bytes => Err("other bytes".into()),
            (_, 0) => Ok(Verdict::Good),
            _ => Ok(Verdict::Nothing),
        }
    });
    assert_eq!(violations, 0);
}
