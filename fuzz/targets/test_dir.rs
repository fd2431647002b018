//! The files of one run.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use h5logfs_common::error::Result;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

use super::memory;

/// Each of the two memory limits.
pub const MEMORY: u64 = 32 << 20;

/// A temporary directory, in memory if possible.
pub struct TestDir {
    dir: TempDir,
    pub source: SourceDir,
}

impl TestDir {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a temporary directory");
        TestDir {
            source: SourceDir::open(dir.path()).expect("the temporary directory"),
            dir,
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path().join(name);
        if let Some(dir) = Path::new(name).parent() {
            fs::create_dir_all(self.path().join(dir)).expect("a directory");
        }
        fs::write(path, bytes).expect("a file");
    }

    /// Writes a file of the length `len` that has only these bytes and a hole.
    pub fn sparse(&self, name: &str, bytes: &[u8], len: u64) {
        self.write(name, bytes);
        let file = File::options().write(true).open(self.path().join(name));
        let set = file.and_then(|file| file.set_len(len));
        set.expect("a sparse file");
    }

    pub fn append(&self, name: &str, bytes: &[u8]) {
        let file = File::options().append(true).open(self.path().join(name));
        let put = file.and_then(|mut file| file.write_all(bytes));
        put.expect("a longer file");
    }

    pub fn open(&self, name: &str) -> SourceFile {
        SourceFile::open(&self.source, Path::new(name)).expect("a file that was just written")
    }

    pub fn scan(&self, name: &str) -> Result<Snapshot> {
        let settings = Settings {
            without_logs: true,
            ..Settings::default()
        };
        scan(ScanRequest::alone(&self.source, Path::new(name), &settings))
    }

    pub fn view(&self, snapshot: Snapshot) -> Result<Arc<View>> {
        let budget = Arc::new(Budget::new(MemoryLimits::each(MEMORY)));
        memory::count(&budget.task(None));
        View::open(&self.source, snapshot, budget, None)
    }

    /// Makes a snapshot of other files with the same names one of the files here.
    pub fn adopt(&self, snapshot: &mut Snapshot) {
        for source in &mut snapshot.sources {
            if let Ok(stat) = self.source.stat(&source.place.path) {
                let seen = source.identity.size;
                source.identity = Identity::from(&stat);
                if source.grows {
                    source.identity.size = seen.min(source.identity.size);
                }
            }
        }
    }
}
