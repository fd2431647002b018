//! Something that several tests need and one of them makes. Tests may be threads of one process, or processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A directory that outlives the test and is shared by all tests.
pub fn shared_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Lets one test fill `dir` while the others wait. It is filled again if one of the `sources` has changed since.
pub fn once(dir: &Path, sources: &[&Path], make: impl FnOnce()) {
    let lock = File::create(dir.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let done = dir.with_extension("done");
    let states = sources.iter().map(|source| {
        let source = fs::metadata(source).unwrap();
        format!("{:?} {}", source.modified().unwrap(), source.len())
    });
    let state = states.collect::<Vec<_>>().join("\n");
    if fs::read_to_string(&done).is_ok_and(|made_of| made_of == state) {
        return;
    }
    fs::remove_dir_all(dir).unwrap();
    // Another test may have called `shared_dir` meanwhile.
    fs::create_dir_all(dir).unwrap();
    make();
    fs::write(done, state).unwrap();
}
