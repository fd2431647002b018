//! Closes a log: turns the files of a job into valid HDF5 in the Log VOL layout.
//!
//! The data stay where they are. The table of entries follows them, and then the user's objects, made from the metadata
//! image. `stored` makes the objects that libhdf5 has to copy. Last, the superblock and the log's own objects go into
//! the space in front (`front`), so a file does not claim to be closed before it is complete. Every step can be
//! repeated until the journal is removed.
//!
//! The writer closes its log at the end of a job. [`recover()`] closes logs later, and closes the logs of programs that
//! write through HDF5 itself.

mod front;
mod kept;
mod recover;
mod refusal;
mod stored;
mod stub_dataset;
mod unflushed;

pub use front::{Front, Role};
pub use h5logfs_log::journal::known_table::KnownTable;
pub use kept::{KeptFile, KeptState};
pub use recover::{Asked, How, Outcome, Recovered, recover, recover_knowing, take_in_unflushed};
pub use unflushed::{Did, Handled, Unflushing};

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::hdf5_sys::{self as h5, Id};
use crate::shown::with_times;
use front::closed_front;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::Added;
use h5logfs_log::file_id::FileId;
use h5logfs_log::journal::closed::finish_seal;
use h5logfs_log::journal::metadata_image::MetadataImage;
use stored::OpenImage;

/// Writes the front of a data file without objects of the user, and cuts off all bytes behind its table.
pub fn write_front(path: &Path, front: Front<'_>) -> Result<()> {
    let creation = h5::new_file_creation().map_err(|e| Error::of(path, e))?;
    put_front(path, front, &creation)
}

fn put_front(path: &Path, front: Front<'_>, creation: &Id) -> Result<()> {
    let bytes = closed_front(front, creation).map_err(|e| Error::of(path, e))?;
    let write = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        front.id.check(&file)?;
        file.set_len(front.role.end())?;
        file.write_all_at(&bytes, 0)
    };
    write().map_err(|e: io::Error| Error::io(path, e))
}

/// Writes the user's objects to their file, and the front that leads to them. `image` is made from definitions. Fails
/// if an object cannot be copied.
pub fn write_objects(
    path: &Path,
    front: Front<'_>,
    image: &MetadataImage,
    is_synced: bool,
) -> Result<()> {
    let open = || {
        let image = OpenImage::open(Cow::Borrowed(image))?;
        let creation = image.creation()?;
        Ok((image, creation))
    };
    let (image, creation) = open().map_err(|fault| of_library(path, fault))?;
    let made = WithObjects::of(path, front, &creation, &image)?;
    if let Some(diagnostic) = made.diagnostics.first() {
        return Err(Error::of(path, diagnostic.to_string()));
    }
    made.write(path, front.id, is_synced)
}

/// A closed file with the user's objects, without the bytes between its front and the objects.
struct WithObjects {
    added: Added,
    /// The objects that could not be copied.
    diagnostics: Vec<Diagnostic>,
}

impl WithObjects {
    fn of(path: &Path, front: Front<'_>, creation: &Id, image: &OpenImage<'_>) -> Result<Self> {
        let write = |opened: &Id| image.write(opened);
        let (copied, added) = make(path, front, creation, image.size(), write)?;
        let added = with_times(added, &copied.times);
        let added = added.map_err(|e| Error::of(path, e))?;
        Ok(WithObjects {
            added: sealed(added),
            diagnostics: copied.diagnostics,
        })
    }

    /// Writes the objects, and then the front. `is_synced`: the objects reach the disk before the front is written.
    fn write(&self, path: &Path, id: &FileId, is_synced: bool) -> Result<()> {
        let file = open_to_write(path, id)?;
        let write = || {
            self.added.write_rest_to(&file)?;
            if is_synced {
                file.sync_data()?;
            }
            self.added.write_front_to(&file)
        };
        write().map_err(|e| Error::io(path, e))
    }
}

/// Writes the seal of the objects into the front.
fn sealed(mut added: Added) -> Added {
    let start = added.start();
    let (front, objects) = added.front_mut();
    finish_seal(front, start, objects);
    added
}

fn open_to_write(path: &Path, id: &FileId) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.and_then(|file| id.check(&file).map(|()| file));
    file.map_err(|e| Error::io(path, e))
}

/// Lets libhdf5 make objects that are added to a file. `size` is their approximate size.
fn make<T>(
    path: &Path,
    front: Front<'_>,
    creation: &Id,
    size: u64,
    write: impl FnOnce(&Id) -> std::result::Result<T, Fault>,
) -> Result<(T, Added)> {
    let block = size.clamp(2 << 10, 1 << 20);
    let made = closed_front(front, creation).and_then(|bytes| {
        let added = Added::of(bytes, front.role.end(), Vec::new());
        h5::add(added, block, write)
    });
    made.map_err(|fault| of_library(path, fault))
}

/// The error for a failure of libhdf5 on a file.
fn of_library(path: &Path, fault: Fault) -> Error {
    match fault {
        Fault::Damage(said) => Error::of(path, plain(&said)),
        other => Error::of(path, other),
    }
}

/// An error of libhdf5 in one line. For a failed system call, libhdf5 also prints the time, descriptors and addresses,
/// which are left out.
fn plain(said: &str) -> String {
    let cause = said.split_once("error message = '");
    let cause = cause.and_then(|(_, rest)| Some(rest.split_once('\'')?.0));
    match (said.split_once(": time = "), cause) {
        (Some((what, _)), Some(cause)) => format!("{what}: {cause}"),
        _ => said.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_libhdf5_are_one_line_with_the_cause() {
        let said = "H5Fflush(): unable to flush file's cached information: file write failed: time = Sun Nov 22 2026\n, \
                    filename = '/proc/self/fd/18', errno = 28, error message = 'No space left on device', buf = 0x55";
        let wanted = "H5Fflush(): unable to flush file's cached information: file write failed: No space left on device";
        assert_eq!(plain(said), wanted);
        assert_eq!(plain("H5Dcreate(): no\n room"), "H5Dcreate(): no room");
    }
}
