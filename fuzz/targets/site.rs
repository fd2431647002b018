//! Files of one run.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use h5logfs_core::error::Result;
use h5logfs_core::log::source_dir::SourceDir;
use h5logfs_core::log::source_file::{Identity, SourceFile};
use h5logfs_core::scan::{ScanRequest, Settings};
use h5logfs_core::snapshot::Snapshot;
use h5logfs_core::view::View;
use h5logfs_core::view::cache::{Budget, MemoryLimits};
use h5logfs_scan::scan;
use tempfile::TempDir;

/// What each of the two limits of memory is.
const MEMORY: u64 = 32 << 20;

/// A directory that goes with the run, in memory where the system has such.
pub struct Site {
    dir: TempDir,
    pub held: SourceDir,
}

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.expect("a temporary directory");
        Site {
            held: SourceDir::open(dir.path()).expect("the temporary directory"),
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

    /// The same with nothing behind the bytes, up to a length.
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
        SourceFile::open(&self.held, Path::new(name)).expect("a file that was just written")
    }

    pub fn scan(&self, name: &str) -> Result<Snapshot> {
        let settings = Settings {
            without_logs: true,
            ..Settings::default()
        };
        scan(ScanRequest::alone(&self.held, Path::new(name), &settings))
    }

    pub fn view(&self, snapshot: Snapshot) -> Result<Arc<View>> {
        let budget = Arc::new(Budget::new(MemoryLimits::each(MEMORY)));
        View::open(&self.held, snapshot, budget, None)
    }

    /// A snapshot that was made of other files of the same names, as if it were of those here.
    pub fn adopt(&self, snapshot: &mut Snapshot) {
        for source in &mut snapshot.sources {
            if let Ok(stat) = self.held.stat(&source.place.path) {
                let seen = source.identity.size;
                source.identity = Identity::from(&stat);
                if source.grows {
                    source.identity.size = seen.min(source.identity.size);
                }
            }
        }
    }
}
