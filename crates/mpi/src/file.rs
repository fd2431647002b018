//! Files of MPI-IO.

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use h5logfs_common::fault::Fault;
use h5logfs_output::ranks::{Access, SharedFile};
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use rustix::io::Errno;

use crate::{MAX_REQUEST_BYTES, check};

/// Most pieces of a request. With more pieces than the system takes in one call (IOV_MAX), Open MPI returns a wrong number of
/// written bytes.
const MAX_REQUEST_PIECES: usize = 512;

/// A file that a group of ranks has open for writing.
pub(crate) struct MpiFile {
    raw: ffi::MPI_File,
    /// The file opened without MPI, to find out why MPI has failed.
    file: Arc<File>,
    /// Whether to write with collective calls.
    collective: bool,
}

// SAFETY: an MPI handle belongs to no thread. Its user calls MPI as the program's thread support allows.
unsafe impl Send for MpiFile {}
// SAFETY: see above; the handle is not changed while it is open.
unsafe impl Sync for MpiFile {}

impl MpiFile {
    /// Opens an existing file. Collective in the communicator.
    pub(crate) fn open(
        comm: &SimpleCommunicator,
        path: &Path,
        file: Arc<File>,
        access: &Access<'_>,
    ) -> Result<Self, Fault> {
        let c_string = |text: &[u8]| {
            let text = CString::new(text);
            text.map_err(|_| {
                let path = path.display();
                Fault::Refused(format!("{path}: a zero byte in the path or a hint"))
            })
        };
        // Errors here are the same on all ranks, so no rank is left waiting.
        let name = c_string(path.as_os_str().as_bytes())?;
        let pairs = access
            .hints
            .iter()
            .map(|(k, v)| Ok((c_string(k.as_bytes())?, c_string(v.as_bytes())?)))
            .collect::<Result<Vec<_>, Fault>>()?;
        // SAFETY: MPI is initialised, because a communicator exists. Strings end with a zero byte, and MPI copies them. `raw`
        // is used only if MPI has opened it.
        unsafe {
            let mut info = ffi::RSMPI_INFO_NULL;
            if !pairs.is_empty() {
                ffi::MPI_Info_create(&mut info);
            }
            for (key, value) in &pairs {
                ffi::MPI_Info_set(info, key.as_ptr(), value.as_ptr());
            }
            let mut raw = ffi::RSMPI_FILE_NULL;
            let mode = ffi::MPI_MODE_WRONLY as c_int;
            let opened = ffi::MPI_File_open(
                comm.as_raw(),
                name.as_ptr().cast_mut(),
                mode,
                info,
                &mut raw,
            );
            if !pairs.is_empty() {
                ffi::MPI_Info_free(&mut info);
            }
            check("MPI_File_open", opened).map_err(|e| e.of_file(path))?;
            Ok(MpiFile {
                raw,
                file,
                collective: access.collective,
            })
        }
    }

    /// Writes one request completely. MPI may write only a part without an error, so further calls write the rest.
    fn write_request(&self, offset: u64, pieces: &[&[u8]], collective: bool) -> Result<(), Fault> {
        let wanted = bytes_of(pieces);
        let mut done = self.call_write(offset, pieces, collective)?;
        let mut idle = 0;
        while done < wanted {
            let rest = remaining(pieces, done);
            let more = self.call_write(offset + done, &rest, false)?;
            done += more;
            idle = if more == 0 { idle + 1 } else { 0 };
            if idle == 2 {
                let why = self.write_error(offset + done, &rest);
                return Err(why.at(format_args!("{done} of {wanted} bytes could be written")));
            }
        }
        if done > wanted {
            return Err(format!("{done} bytes were written instead of {wanted}").into());
        }
        Ok(())
    }

    /// Finds out why `rest` cannot be written at `offset`, by a write without MPI.
    fn write_error(&self, offset: u64, rest: &[&[u8]]) -> Fault {
        let piece = rest.first().copied().unwrap_or_default();
        match self.file.write_all_at(piece, offset) {
            Ok(()) => "MPI wrote fewer bytes than requested, and reported no error".into(),
            Err(e) => e.into(),
        }
    }

    /// Calls MPI once. Returns the number of bytes written, as reported by MPI.
    fn call_write(&self, offset: u64, pieces: &[&[u8]], collective: bool) -> Result<u64, Fault> {
        let lengths: Vec<c_int> = pieces.iter().map(|p| p.len() as c_int).collect();
        let places: Vec<ffi::MPI_Aint> =
            pieces.iter().map(|p| p.as_ptr() as ffi::MPI_Aint).collect();
        let offset = i64::try_from(offset).map_err(|_| Errno::FBIG)?;
        // SAFETY: the file is open. The datatype has the addresses of the pieces, which outlive the call, and is freed after
        // it. A single piece needs no datatype. MPI only reads the buffer. A zeroed status is valid, and means that nothing
        // was written, in case MPI does not set it.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            ffi::MPI_Status_set_elements(&mut status, ffi::RSMPI_UINT8_T, 0);
            let mut datatype = ffi::RSMPI_UINT8_T;
            let (buffer, count): (*const c_void, c_int) = match pieces {
                [] => (ptr::null(), 0),
                [one] => (one.as_ptr().cast(), one.len() as c_int),
                _ => {
                    let number = pieces.len() as c_int;
                    ffi::MPI_Type_create_hindexed(
                        number,
                        lengths.as_ptr().cast_mut(),
                        places.as_ptr().cast_mut(),
                        ffi::RSMPI_UINT8_T,
                        &mut datatype,
                    );
                    ffi::MPI_Type_commit(&mut datatype);
                    (ptr::null(), 1)
                }
            };
            let call = if collective {
                ffi::MPI_File_write_at_all
            } else {
                ffi::MPI_File_write_at
            };
            let written = call(self.raw, offset, buffer, count, datatype, &mut status);
            let mut done: ffi::MPI_Count = 0;
            ffi::MPI_Get_elements_x(&status, ffi::RSMPI_UINT8_T, &mut done);
            if pieces.len() > 1 {
                ffi::MPI_Type_free(&mut datatype);
            }
            let name = if collective {
                "MPI_File_write_at_all"
            } else {
                "MPI_File_write_at"
            };
            check(name, written)?;
            // Without pieces the status is arbitrary.
            Ok(if pieces.is_empty() { 0 } else { done as u64 })
        }
    }
}

impl SharedFile for MpiFile {
    fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), Fault> {
        let mut requests = requests(pieces).into_iter();
        let mut at = offset;
        let mut result = Ok(());
        if self.collective {
            // All ranks make one collective request. Each rank writes its further requests independently.
            let first = requests.next().unwrap_or_default();
            result = self.write_request(at, &first, true);
            at += bytes_of(&first);
        }
        for request in requests {
            result = result.and_then(|()| self.write_request(at, &request, false));
            at += bytes_of(&request);
        }
        result
    }

    fn sync(&self) -> Result<(), Fault> {
        // SAFETY: the file is open.
        check("MPI_File_sync", unsafe { ffi::MPI_File_sync(self.raw) })
    }

    fn close(mut self: Box<Self>) -> Result<(), Fault> {
        // SAFETY: the file is open, and `self` is gone after this.
        check("MPI_File_close", unsafe {
            ffi::MPI_File_close(&mut self.raw)
        })
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}

fn bytes_of(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|p| p.len() as u64).sum()
}

/// The pieces after their first `done` bytes.
fn remaining<'a>(pieces: &[&'a [u8]], done: u64) -> Vec<&'a [u8]> {
    let mut skip = done as usize;
    let mut rest = Vec::new();
    for piece in pieces {
        let left = &piece[skip.min(piece.len())..];
        skip -= piece.len() - left.len();
        if !left.is_empty() {
            rest.push(left);
        }
    }
    rest
}

/// Groups the pieces into requests of at most [`MAX_REQUEST_BYTES`] bytes and [`MAX_REQUEST_PIECES`] pieces.
fn requests<'a>(pieces: &[&'a [u8]]) -> Vec<Vec<&'a [u8]>> {
    let mut groups: Vec<Vec<&[u8]>> = Vec::new();
    let mut room = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            if room == 0 || groups.last().is_none_or(|g| g.len() == MAX_REQUEST_PIECES) {
                groups.push(Vec::new());
                room = MAX_REQUEST_BYTES;
            }
            let (part, more) = rest.split_at(rest.len().min(room));
            if let Some(group) = groups.last_mut() {
                group.push(part);
            }
            room -= part.len();
            rest = more;
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_not_too_large() {
        let large = [0u8; 100];
        let pieces = [&large[..10], &[], &large[..]];
        assert_eq!(requests(&pieces), [vec![&large[..10], &large[..]]]);
        assert!(requests(&[&[], &[]]).is_empty());
        let many = [&large[..1]; MAX_REQUEST_PIECES + 1];
        let lens: Vec<usize> = requests(&many).iter().map(Vec::len).collect();
        assert_eq!(lens, [MAX_REQUEST_PIECES, 1]);
    }

    #[test]
    fn what_was_not_written_is_left() {
        let pieces: [&[u8]; 3] = [b"abc", b"", b"defg"];
        assert_eq!(remaining(&pieces, 0), [&b"abc"[..], b"defg"]);
        assert_eq!(remaining(&pieces, 2), [&b"c"[..], b"defg"]);
        assert_eq!(remaining(&pieces, 5), [b"fg"]);
        assert!(remaining(&pieces, 7).is_empty());
    }
}
