//! From a log as it is while a job writes it to a closed file: valid HDF5, in the Log VOL layout.
//!
//! The data stay where they are. Behind them goes the table of entries; in front of them, into the
//! room that was left, the superblock and the log's own objects ([`front`]); last, behind everything,
//! libhdf5 adds the user's objects ([`objects`]). Until the journal is removed, all of this can be
//! done anew, whatever there is of it: the writer does it at a clean close, [`recover`] later.

pub mod front;
pub mod objects;
pub mod recover;

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::hdf5_sys as h5;
use front::{Role, closed_front};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::definition::{Defined, Definition};
use h5logfs_core::journal::extent::check_id;
use h5logfs_core::journal::{FileId, Header};

/// Writes the front of a file whose log is complete, and cuts off what lies behind it.
pub fn write_front(
    path: &Path,
    (header, id): (&Header, &FileId),
    datasets: usize,
    role: Role,
) -> Result<()> {
    let front = closed_front(header, id, datasets, role).map_err(|e| Error::bad_file(path, e))?;
    let write = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        check_id(&file, id)?;
        file.set_len(role.end())?;
        file.write_all_at(&front, 0)
    };
    write().map_err(|e: io::Error| Error::io(path, e))
}

/// Adds the user's objects to a file that has its front. `datasets`: by ID.
pub fn write_objects(
    path: &Path,
    id: &FileId,
    definitions: &[Definition],
    datasets: &[Defined],
) -> Result<()> {
    // About what a definition takes, so that little room is left over.
    let block = (definitions.len() as u64 * 512).clamp(2 << 10, 1 << 20);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.and_then(|file| check_id(&file, id).map(|()| file));
    let file = file.map_err(|e| Error::io(path, e))?;
    let write = || {
        // The very file that was checked.
        let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let opened = h5::open_to_write(&name.map_err(|e| e.to_string())?, block)?;
        objects::create(&opened, definitions, datasets)?;
        h5::close_file(opened)
    };
    write().map_err(|e: String| Error::bad_file(path, e))
}

/// Waits until a file, or the names in a directory, are on the disk.
pub fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|f| f.sync_all());
    synced.map_err(|e| Error::io(path, e))
}

/// The directory that a file lies in.
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
