//! Logs that this process has closed. A program may write a step, close its file, and open it again for the next step: then
//! no scan has to find out what the log holds, which would start a process and cost by what is there.
//!
//! What is remembered counts only while front and objects of the file are those that this close has written, as its seal
//! proves (`docs/formats/journal.md`, section 5.1). So another program that has changed the file since is noticed, whatever
//! times the file has.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use h5logfs_log::journal::closed::{CloseSeal, intact_seal};
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_output::Base;
use h5logfs_output::plain_close::PlainlyClosed;
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
    table: KnownTable,
}

/// Takes note of a log that is closed now: by this process if that tells of it.
pub(super) fn remember(path: &Path, objects: Objects, base: Base, closed: Option<PlainlyClosed>) {
    // Each subfile has a seal of its own.
    let is_small = objects.image.len() as u64 <= LARGEST && base.subfiles == 0;
    let (seal, table) = match closed {
        _ if !is_small => return,
        Some(PlainlyClosed { seal, table }) => (seal, table),
        None => (seal_at(path, &base), KnownTable::default()),
    };
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
        table,
    });
}

/// What the log at `path`, of which this is the file, holds, if this process has closed it, and nobody has changed it since. The table is empty where it
/// is too large to be kept.
pub(super) fn recall(path: &Path, log: &SourceFile) -> Option<(Objects, Base, KnownTable)> {
    let mut closed = CLOSED.try_lock()?;
    let at = closed.iter().position(|known| known.path == path)?;
    let known = closed.remove(at)?;
    drop(closed);
    let is_unchanged = seal(log, &known.base) == Some(known.seal);
    is_unchanged.then_some((known.objects, known.base, known.table))
}

/// The seal of the log, if all that it is about is there.
fn seal(file: &SourceFile, base: &Base) -> Option<CloseSeal> {
    let is_same = file.file_id().ok()? == Some(base.id);
    is_same.then(|| intact_seal(file, LARGEST)).flatten()
}

fn seal_at(path: &Path, base: &Base) -> Option<CloseSeal> {
    let (dir, name) = SourceDir::of_file(path).ok()?;
    seal(&SourceFile::open(&dir, &name).ok()?, base)
}
