//! The part of MPI that the writer needs: sums over ranks, agreement on errors, and a shared file. The
//! crate `mpi` has MPI-IO in its raw layer only.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

/// The counts of MPI have 32 bits.
const MAX_REQUEST_BYTES: usize = 1 << 30;

/// If a request has more pieces than the system takes in one call (IOV_MAX), Open MPI returns a wrong
/// number of written bytes.
const MAX_REQUEST_PIECES: usize = 512;

/// The processes that write a file collective, on a communicator of their own.
pub(super) struct Ranks {
    comm: SimpleCommunicator,
}

/// The outcome of an operation on this rank.
pub(super) enum LocalOutcome {
    Good,
    /// A write was refused. The operation goes on.
    Refused(String),
    Failed(String),
}

/// What all ranks know after a reduction.
pub(super) struct Agreement {
    pub outcome: GlobalOutcome,
    /// A value was the same on all ranks.
    pub same: bool,
}

/// The outcome on all ranks: the first failure, or else the first refusal.
pub(super) enum GlobalOutcome {
    Good,
    Refused { rank: u32, reason: String },
    Failed { rank: u32, reason: String },
}

impl Ranks {
    /// Collective.
    pub fn duplicate(comm: &impl Communicator) -> Self {
        Ranks {
            comm: comm.duplicate(),
        }
    }

    pub fn rank(&self) -> u32 {
        self.comm.rank() as u32
    }

    pub fn size(&self) -> u32 {
        self.comm.size() as u32
    }

    pub fn is_root(&self) -> bool {
        self.comm.rank() == 0
    }

    /// Splits the ranks by color, in their order. Collective.
    pub fn split(&self, color: u32) -> Self {
        let comm = self.comm.split_by_color(Color::with_value(color as i32));
        // Only a rank without a color gets no communicator.
        let comm = comm.unwrap_or_else(|| self.comm.duplicate());
        Ranks { comm }
    }

    /// The number of nodes. Collective.
    pub fn nodes(&self) -> u32 {
        let node = self.comm.split_shared(self.comm.rank());
        self.sum(u64::from(node.rank() == 0)) as u32
    }

    /// The sum of `value` over all lower ranks. Collective.
    pub fn sum_before(&self, value: u64) -> u64 {
        let mut sum = 0;
        self.comm
            .exclusive_scan_into(&value, &mut sum, SystemOperation::sum());
        // MPI leaves the result undefined on the first rank.
        if self.is_root() { 0 } else { sum }
    }

    /// The sums of `values` over all lower ranks. All ranks have as many values. Collective.
    pub fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        let mut sums = vec![0; values.len()];
        self.comm
            .exclusive_scan_into(values, &mut sums[..], SystemOperation::sum());
        // MPI leaves the result undefined on the first rank.
        if self.is_root() {
            sums.fill(0);
        }
        sums
    }

    /// The sum of `value` over all ranks. Collective.
    pub fn sum(&self, value: u64) -> u64 {
        let mut sum = 0;
        self.comm
            .all_reduce_into(&value, &mut sum, SystemOperation::sum());
        sum
    }

    /// The values of all ranks on the first rank. Empty on the others. Collective.
    pub fn gather(&self, value: u64) -> Vec<u64> {
        let root = self.comm.process_at_rank(0);
        if !self.is_root() {
            root.gather_into(&value);
            return Vec::new();
        }
        let mut values = vec![0; self.comm.size() as usize];
        root.gather_into_root(&value, &mut values[..]);
        values
    }

    /// Sends the first rank's value to all ranks. Collective.
    pub fn broadcast(&self, value: &mut [u8]) {
        self.comm.process_at_rank(0).broadcast_into(value);
    }

    /// Combines the outcomes of all ranks. Takes one reduction if all are good. Collective.
    pub fn agree(&self, outcome: LocalOutcome) -> GlobalOutcome {
        self.agree_on(outcome, 0, &mut []).outcome
    }

    /// Does the same, and tells whether `same` is the same on all ranks. Raises each value of `largest` to the
    /// largest one on any rank.
    pub fn agree_on(&self, outcome: LocalOutcome, same: u64, largest: &mut [u64]) -> Agreement {
        const REFUSAL: u64 = 1 << 32;
        const GOOD: u64 = u64::MAX;
        let rank = u64::from(self.rank());
        let worst = match &outcome {
            LocalOutcome::Failed(_) => rank,
            LocalOutcome::Refused(_) => REFUSAL | rank,
            LocalOutcome::Good => GOOD,
        };
        // One minimum for all values. The complement turns a maximum into a minimum.
        let mut local = vec![worst, same, !same];
        local.extend(largest.iter().map(|value| !value));
        let mut minima = vec![0; local.len()];
        self.comm
            .all_reduce_into(&local[..], &mut minima[..], SystemOperation::min());
        let [worst, lowest, highest] = [minima[0], minima[1], !minima[2]];
        let largest = largest.iter_mut().zip(&minima[3..]);
        largest.for_each(|(value, minimum)| *value = !minimum);
        let outcome = match worst {
            GOOD => GlobalOutcome::Good,
            worst => self.worst_outcome(worst as u32, worst < REFUSAL, outcome),
        };
        Agreement {
            outcome,
            same: lowest == highest,
        }
    }

    /// The outcome of `rank`, which `outcome` is there. Collective.
    fn worst_outcome(&self, rank: u32, failed: bool, outcome: LocalOutcome) -> GlobalOutcome {
        let reason = match outcome {
            LocalOutcome::Failed(reason) | LocalOutcome::Refused(reason) => reason,
            LocalOutcome::Good => String::new(),
        };
        let reason = self.broadcast_text(rank, reason);
        if failed {
            GlobalOutcome::Failed { rank, reason }
        } else {
            GlobalOutcome::Refused { rank, reason }
        }
    }

    /// The outcome of something that only the first rank does. Ignores `result` on other ranks.
    /// Collective.
    pub fn follow_root(&self, result: Result<(), String>) -> GlobalOutcome {
        let mut failed = [u8::from(result.is_err())];
        self.broadcast(&mut failed);
        if failed == [0] {
            return GlobalOutcome::Good;
        }
        GlobalOutcome::Failed {
            rank: 0,
            reason: self.broadcast_text(0, result.err().unwrap_or_default()),
        }
    }

    /// Waits until all ranks are here. An ordinary barrier of MPI keeps the waiting ranks on their
    /// processors, which a rank with more work may need. So a rank that has waited for a while sleeps.
    /// Collective.
    pub fn wait(&self) {
        const AWAKE: Duration = Duration::from_micros(500);
        const ASLEEP: Duration = Duration::from_micros(200);
        let begun = Instant::now();
        let mut barrier = self.comm.immediate_barrier();
        while let Err(pending) = barrier.test() {
            if begun.elapsed() < AWAKE {
                std::thread::yield_now()
            } else {
                std::thread::sleep(ASLEEP)
            }
            barrier = pending;
        }
    }

    /// The first rank for which something is so. Collective.
    pub fn first(&self, is: bool) -> Option<u32> {
        let own = if is { self.rank() } else { u32::MAX };
        let mut first = own;
        self.comm
            .all_reduce_into(&own, &mut first, SystemOperation::min());
        (first != u32::MAX).then_some(first)
    }

    /// Sends the text of rank `from` to all ranks. Collective.
    pub fn broadcast_text(&self, from: u32, text: String) -> String {
        let sender = self.comm.process_at_rank(from as i32);
        let mut bytes = if self.rank() == from {
            text.into_bytes()
        } else {
            Vec::new()
        };
        let mut len = bytes.len() as u64;
        sender.broadcast_into(&mut len);
        bytes.resize(len as usize, 0);
        for part in bytes.chunks_mut(MAX_REQUEST_BYTES) {
            sender.broadcast_into(part);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Leaks the communicator. Freeing it would be a collective call.
    pub fn leak(self) {
        std::mem::forget(self.comm);
    }
}

/// A file that a group of ranks has open for writing.
pub(super) struct SharedFile {
    raw: ffi::MPI_File,
    /// The same file without MPI, to find out why MPI has failed.
    file: File,
    /// Write with collective calls.
    collective: bool,
}

impl SharedFile {
    /// Opens the file on this rank alone. All ranks must have succeeded in this before
    /// [`SharedFile::open`]: if one rank cannot open a file, Open MPI lets the others wait forever.
    pub fn probe(path: &Path) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    }

    /// Opens an existing file, which [`SharedFile::probe`] has opened as `file`. Collective.
    pub fn open(
        ranks: &Ranks,
        path: &Path,
        file: File,
        hints: &[(String, String)],
        collective: bool,
    ) -> Result<Self, String> {
        let c_string = |text: &[u8]| {
            let text = CString::new(text);
            text.map_err(|_| format!("{}: a zero byte in the path or a hint", path.display()))
        };
        // Errors here are the same on all ranks, so no rank waits for another one.
        let name = c_string(path.as_os_str().as_bytes())?;
        let pairs = hints
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
                ranks.comm.as_raw(),
                name.as_ptr().cast_mut(),
                mode,
                info,
                &mut raw,
            );
            if !pairs.is_empty() {
                ffi::MPI_Info_free(&mut info);
            }
            check("MPI_File_open", opened).map_err(|e| format!("{}: {e}", path.display()))?;
            Ok(SharedFile {
                raw,
                file,
                collective,
            })
        }
    }

    /// Writes the pieces one behind the other from `offset` on. Ranks without pieces must call it, too.
    pub fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), String> {
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
        let places: Vec<ffi::MPI_Aint> = pieces.iter().map(|p| p.as_ptr() as isize).collect();
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

    /// Forces the written data to the disk. Collective.
    pub fn sync(&self) -> Result<(), String> {
        // SAFETY: the file is open.
        check("MPI_File_sync", unsafe { ffi::MPI_File_sync(self.raw) })
    }

    /// Collective.
    pub fn close(mut self) -> Result<(), String> {
        // SAFETY: the file is open, and `self` is gone after this.
        check("MPI_File_close", unsafe {
            ffi::MPI_File_close(&mut self.raw)
        })
    }
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
pub(super) fn check(what: &str, code: c_int) -> Result<(), String> {
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
    fn what_was_not_written_is_left() {
        let pieces: [&[u8]; 3] = [b"abc", b"", b"defg"];
        assert_eq!(remaining(&pieces, 0), [&b"abc"[..], b"defg"]);
        assert_eq!(remaining(&pieces, 2), [&b"c"[..], b"defg"]);
        assert_eq!(remaining(&pieces, 5), [b"fg"]);
        assert!(remaining(&pieces, 7).is_empty());
    }
}
