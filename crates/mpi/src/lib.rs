//! The ranks of an MPI communicator: what `h5logfs-output` needs of MPI. The crate `mpi` has MPI-IO in its raw layer
//! only.

pub mod library;

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use h5logfs_output::ranks::{self, Access, Node, OwnFile, SharedFile};
use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

/// The counts of MPI have 32 bits.
const MAX_REQUEST_BYTES: usize = 1 << 30;

/// If a request has more pieces than the system takes in one call (IOV_MAX), Open MPI returns a wrong
/// number of written bytes.
const MAX_REQUEST_PIECES: usize = 512;

/// A communicator of its own.
pub struct MpiRanks(SimpleCommunicator);

// SAFETY: a handle of MPI is no part of a thread. Its user calls MPI as the program's thread support allows.
unsafe impl Send for MpiRanks {}
// SAFETY: see above; the handle does not change.
unsafe impl Sync for MpiRanks {}

/// Whether MPI was begun and has not ended.
pub fn is_running() -> bool {
    let (mut begun, mut ended) = (0, 0);
    // SAFETY: MPI allows both calls at any time.
    unsafe {
        ffi::MPI_Initialized(&mut begun);
        ffi::MPI_Finalized(&mut ended);
    }
    begun != 0 && ended == 0
}

impl MpiRanks {
    /// The ranks of a communicator, of a handle that is given up.
    ///
    /// # Safety
    ///
    /// `comm` is a communicator between processes of one group, and only this frees it.
    pub unsafe fn from_raw(comm: ffi::MPI_Comm) -> Self {
        // SAFETY: the caller says so.
        MpiRanks(unsafe { SimpleCommunicator::from_raw(comm) })
    }

    /// The ranks of a communicator. Collective.
    pub fn duplicate(comm: &impl Communicator) -> Self {
        MpiRanks(comm.duplicate())
    }
}

impl ranks::Communicator for MpiRanks {
    fn rank(&self) -> u32 {
        self.0.rank() as u32
    }

    fn size(&self) -> u32 {
        self.0.size() as u32
    }

    fn is_usable(&self) -> bool {
        is_running()
    }

    fn split(&self, color: u32) -> Box<dyn ranks::Communicator> {
        let comm = self.0.split_by_color(Color::with_value(color as i32));
        // Only a rank without a color gets no communicator.
        let comm = comm.unwrap_or_else(|| self.0.duplicate());
        Box::new(MpiRanks(comm))
    }

    fn node(&self) -> Node {
        let node = self.0.split_shared(self.0.rank());
        let is_first = u64::from(node.rank() == 0);
        let before = self.sums_before(&[is_first])[0];
        // The scan tells the first rank nothing.
        let mut number = if self.0.rank() == 0 { 0 } else { before as u32 };
        node.process_at_rank(0).broadcast_into(&mut number);
        let of = self.sum(is_first) as u32;
        Node { number, of }
    }

    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        let mut sums = vec![0; values.len()];
        self.0
            .exclusive_scan_into(values, &mut sums[..], SystemOperation::sum());
        sums
    }

    fn sum(&self, value: u64) -> u64 {
        let mut sum = 0;
        self.0
            .all_reduce_into(&value, &mut sum, SystemOperation::sum());
        sum
    }

    fn minima(&self, values: &[u64]) -> Vec<u64> {
        let signed: Vec<i64> = values.iter().copied().map(ordered).collect();
        let mut minima = vec![0; values.len()];
        self.0
            .all_reduce_into(&signed[..], &mut minima[..], SystemOperation::min());
        minima.into_iter().map(unordered).collect()
    }

    fn gather(&self, value: u64) -> Vec<u64> {
        let root = self.0.process_at_rank(0);
        if self.0.rank() != 0 {
            root.gather_into(&value);
            return Vec::new();
        }
        let mut values = vec![0; self.0.size() as usize];
        root.gather_into_root(&value, &mut values[..]);
        values
    }

    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let lens = self.gather(bytes.len() as u64);
        if self.0.rank() != 0 {
            let root = self.0.process_at_rank(0);
            bytes
                .chunks(MAX_REQUEST_BYTES)
                .for_each(|part| root.send(part));
            return Vec::new();
        }
        let received = (1..).zip(&lens[1..]).map(|(rank, len)| {
            let mut received = vec![0; *len as usize];
            let sender = self.0.process_at_rank(rank);
            for part in received.chunks_mut(MAX_REQUEST_BYTES) {
                sender.receive_into(part);
            }
            received
        });
        std::iter::once(bytes.to_vec()).chain(received).collect()
    }

    fn broadcast(&self, from: u32, value: &mut [u8]) {
        let sender = self.0.process_at_rank(from as i32);
        for part in value.chunks_mut(MAX_REQUEST_BYTES) {
            sender.broadcast_into(part);
        }
    }

    /// An ordinary barrier of MPI keeps the waiting ranks on their processors, which a rank with more work may need.
    /// So a rank that has waited for a while sleeps.
    fn wait(&self) {
        const AWAKE: Duration = Duration::from_micros(500);
        const ASLEEP: Duration = Duration::from_micros(200);
        let begun = Instant::now();
        let mut barrier = self.0.immediate_barrier();
        while let Err(pending) = barrier.test() {
            if begun.elapsed() < AWAKE {
                std::thread::yield_now()
            } else {
                std::thread::sleep(ASLEEP)
            }
            barrier = pending;
        }
    }

    fn open(
        &self,
        path: &Path,
        file: File,
        access: &Access<'_>,
    ) -> Result<Box<dyn SharedFile>, String> {
        // What ranks write by themselves needs no MPI, unless the user has hints for it. To open a file together takes
        // messages and memory for each rank; where several nodes do, Open MPI 4.1 makes a further file beside it, and does
        // not come back if that cannot be made. MPICH holds a lock until all ranks are there, so that threads with files of
        // their own could wait for one another for ever. And Open MPI makes and removes three files in the directory
        // of each file that a rank opens for itself.
        if !access.collective && access.hints.is_empty() {
            return Ok(Box::new(OwnFile(file)));
        }
        let alone = SimpleCommunicator::self_comm();
        let comm = if access.collective { &self.0 } else { &alone };
        Ok(Box::new(MpiFile::open(comm, path, file, access)?))
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}

/// A file that a group of ranks has open for writing.
struct MpiFile {
    raw: ffi::MPI_File,
    /// The same file without MPI, to find out why MPI has failed.
    file: File,
    /// Write with collective calls.
    collective: bool,
}

// SAFETY: a handle of MPI is no part of a thread. Its user calls MPI as the program's thread support allows.
unsafe impl Send for MpiFile {}
// SAFETY: see above; the handle is not changed while it is open.
unsafe impl Sync for MpiFile {}

impl MpiFile {
    /// Opens an existing file. Collective in the communicator.
    fn open(
        comm: &SimpleCommunicator,
        path: &Path,
        file: File,
        access: &Access<'_>,
    ) -> Result<Self, String> {
        let c_string = |text: &[u8]| {
            let text = CString::new(text);
            text.map_err(|_| format!("{}: a zero byte in the path or a hint", path.display()))
        };
        // Errors here are the same on all ranks, so no rank waits for another one.
        let name = c_string(path.as_os_str().as_bytes())?;
        let pairs = access
            .hints
            .iter()
            .map(|(k, v)| Ok((c_string(k.as_bytes())?, c_string(v.as_bytes())?)))
            .collect::<Result<Vec<_>, String>>()?;
        // SAFETY: MPI is initialised, because there is a communicator. Strings end with a zero byte, and
        // MPI copies them. `raw` is used only if MPI has opened it.
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
            check("MPI_File_open", opened).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(MpiFile {
                raw,
                file,
                collective: access.collective,
            })
        }
    }

    /// Writes one request completely. MPI may write a part of it and report no error, so the rest is
    /// written with further calls.
    fn write_request(&self, offset: u64, pieces: &[&[u8]], collective: bool) -> Result<(), String> {
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
                return Err(format!("{done} of {wanted} bytes could be written: {why}"));
            }
        }
        if done > wanted {
            return Err(format!("{done} bytes were written instead of {wanted}"));
        }
        Ok(())
    }

    /// Finds out why nothing more can be written at `offset`, by a write without MPI.
    fn write_error(&self, offset: u64, rest: &[&[u8]]) -> String {
        let piece = rest.first().copied().unwrap_or_default();
        match self.file.write_all_at(piece, offset) {
            Ok(()) => "MPI wrote less than it was told to, and does not say why".into(),
            Err(e) => e.to_string(),
        }
    }

    /// Calls MPI once. Returns the number of bytes that MPI has written by its own account.
    fn call_write(&self, offset: u64, pieces: &[&[u8]], collective: bool) -> Result<u64, String> {
        let lengths: Vec<c_int> = pieces.iter().map(|p| p.len() as c_int).collect();
        let places: Vec<ffi::MPI_Aint> =
            pieces.iter().map(|p| p.as_ptr() as ffi::MPI_Aint).collect();
        let offset = i64::try_from(offset);
        let offset = offset.map_err(|_| "the file would have more than 2^63 bytes")?;
        // SAFETY: the file is open. The datatype has the addresses of the pieces, which live longer than
        // the call, and is freed after it. A single piece is passed without a datatype. MPI only reads
        // the buffer. A zeroed status is valid. It says that nothing was written, in case MPI does not
        // set it.
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
            // Without pieces the status may have any value.
            Ok(if pieces.is_empty() { 0 } else { done as u64 })
        }
    }
}

impl SharedFile for MpiFile {
    fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), String> {
        let mut requests = requests(pieces).into_iter();
        let mut at = offset;
        let mut result = Ok(());
        if self.collective {
            // All ranks make one collective request. Each writes its further requests by itself.
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

    fn sync(&self) -> Result<(), String> {
        // SAFETY: the file is open.
        check("MPI_File_sync", unsafe { ffi::MPI_File_sync(self.raw) })
    }

    fn close(mut self: Box<Self>) -> Result<(), String> {
        // SAFETY: the file is open, and `self` is gone after this.
        check("MPI_File_close", unsafe {
            ffi::MPI_File_close(&mut self.raw)
        })
    }

    fn leak(self: Box<Self>) {
        std::mem::forget(self);
    }
}

/// A signed number with the same place among all of them. MPICH 4.0 and Open MPI 4.1 compare some unsigned numbers as if
/// they had a sign (pmodels/mpich#6083, open-mpi/ompi#10648).
fn ordered(value: u64) -> i64 {
    (value ^ (1 << 63)).cast_signed()
}

/// The number of which [`ordered`] has made this.
fn unordered(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

fn bytes_of(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|p| p.len() as u64).sum()
}

/// The pieces without their first `done` bytes.
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

/// Fails with the text of an error of MPI.
pub fn check(what: &str, code: c_int) -> Result<(), String> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer has the size that MPI documents.
    let found =
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let text = if found == ffi::MPI_SUCCESS as c_int {
        String::from_utf8_lossy(&text[..len.clamp(0, text.len() as c_int) as usize])
    } else {
        "an error without a text".into()
    };
    Err(format!("{what}: {text} (MPI error {code})"))
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
    fn signed_numbers_keep_the_order() {
        let values = [0, 1, u64::MAX >> 1, 1 << 63, u64::MAX - 1, u64::MAX];
        let signed = values.map(ordered);
        assert!(signed.is_sorted(), "{signed:?}");
        assert_eq!(signed.map(unordered), values);
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
