//! Closes a log: makes valid HDF5 in the Log VOL layout of the files that a job has written.
//!
//! The data stay where they are. The table of entries goes behind them. The superblock and the log's own objects go
//! into the space in front of them (`front`). Last, libhdf5 adds the user's objects at the end (`objects`). Until
//! the journal is removed, all of this can be repeated, however far it came. The writer does it at a clean close,
//! [`recover()`] later.

mod front;
mod objects;
mod recover;
mod refusal;
mod scales;

pub use front::Role;
pub(crate) use objects::make_objects;
pub use recover::{Recovered, close_again, recover};

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::hdf5_sys as h5;
use front::closed_front;
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::definition::{Defined, Definition};
use h5logfs_core::journal::extent::check_id;
use h5logfs_core::journal::{FileId, Header};

/// Writes the front of a file whose log is complete, and cuts off what follows the log. `datasets` is the number of
/// dataset IDs in use.
pub fn write_front(
    path: &Path,
    header: &Header,
    id: &FileId,
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

/// Adds the user's objects to a file that has its front. `datasets` are in the order of their IDs.
pub fn write_objects(
    path: &Path,
    id: &FileId,
    definitions: &[Definition],
    datasets: &[Defined],
) -> Result<()> {
    // About the size of the objects, so that little space stays unused.
    let block = (definitions.len() as u64 * 512).clamp(2 << 10, 1 << 20);
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.and_then(|file| check_id(&file, id).map(|()| file));
    let file = file.map_err(|e| Error::io(path, e))?;
    let write = || {
        // Opens the file that was checked: the path may lead to another one by now.
        let name = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let opened = h5::open_to_write(&name.map_err(|e| e.to_string())?, block)?;
        make_objects(&opened, definitions, datasets)?;
        h5::close_file(opened)
    };
    write().map_err(|e: String| Error::bad_file(path, plain(&e)))
}

/// An error of libhdf5 in one line. Where a system call failed, libhdf5 also tells the time, descriptors and addresses.
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
