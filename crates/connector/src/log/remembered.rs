//! Logs that this process has closed. A program may write a step, close its file, and open it again for the next step: then
//! no scan has to find out what the log holds, which would start a process and cost by what is there.
//!
//! What is remembered counts only while front and objects of the file are those that this close has written, as its seal
//! proves (`docs/formats/journal.md`, section 5.1). So another program that has changed the file since is noticed, whatever
//! times the file has.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use h5logfs_log::journal::closed::{CloseSeal, intact_seal};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_output::Base;
use parking_lot::Mutex;

use super::reopening::Objects;

/// Logs that are remembered: the last ones. Programs write few at a time.
const MOST: usize = 8;
/// The most bytes of the objects of one, in memory and in the file.
const LARGEST: u64 = 4 << 20;

/// A fork may leave the lock to nobody, so no thread waits for it.
static CLOSED: Mutex<VecDeque<Remembered>> = Mutex::new(VecDeque::new());

struct Remembered {
    path: PathBuf,
    seal: CloseSeal,
    objects: Objects,
    base: Base,
}

/// Takes note of a log that is closed now.
pub(super) fn remember(path: &Path, objects: Objects, base: Base) {
    // Each subfile has a seal of its own.
    let is_small = objects.image.len() as u64 <= LARGEST && base.subfiles == 0;
    let seal = is_small.then(|| seal(path, &base)).flatten();
    let (Some(seal), Some(mut closed)) = (seal, CLOSED.try_lock()) else {
        return;
    };
    closed.retain(|known| known.path != path);
    closed.truncate(MOST - 1);
    closed.push_front(Remembered {
        path: path.to_owned(),
        seal,
        objects,
        base,
    });
}

/// What the log at `path` holds, if this process has closed it, and nobody has changed it since.
pub(super) fn recall(path: &Path) -> Option<(Objects, Base)> {
    let mut closed = CLOSED.try_lock()?;
    let at = closed.iter().position(|known| known.path == path)?;
    let known = closed.remove(at)?;
    drop(closed);
    let is_unchanged = seal(path, &known.base) == Some(known.seal);
    is_unchanged.then_some((known.objects, known.base))
}

/// The seal of the log, if all that it is about is there.
fn seal(path: &Path, base: &Base) -> Option<CloseSeal> {
    let (dir, name) = SourceDir::of_file(path).ok()?;
    let file = SourceFile::open(&dir, &name).ok()?;
    let is_same = file.file_id().ok()? == Some(base.id);
    is_same.then(|| intact_seal(&file, LARGEST)).flatten()
}
