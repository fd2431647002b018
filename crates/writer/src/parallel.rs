//! The little of MPI that the writer needs: sums over ranks, agreement on errors, one file that all
//! write to. The safe crate has no MPI-IO, and leaves it to its raw layer.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

/// Bytes of one request: counts of MPI have 32 bits.
const REQUEST: usize = 1 << 30;

/// Pieces of one request: more than the system takes in one call (IOV_MAX), and Open MPI does not say
/// truly how many bytes it wrote.
const PIECES: usize = 512;

/// The processes that write a file together, on a communicator of their own.
pub(super) struct Ranks {
    comm: SimpleCommunicator,
}

/// How a rank fared, for all others to know.
pub(super) enum Outcome {
    Good,
    /// Something worth telling, which stops nobody.
    Refused(String),
    Failed(String),
}

/// What came of the outcomes of all ranks: the first failure, or else the first refusal.
pub(super) enum Verdict {
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

    /// The ranks of one color, in their order. Collective.
    pub fn split(&self, color: u32) -> Self {
        let comm = self.comm.split_by_color(Color::with_value(color as i32));
        // Only a rank without a color gets no communicator.
        let comm = comm.unwrap_or_else(|| self.comm.duplicate());
        Ranks { comm }
    }

    /// Nodes that the ranks are on. Collective.
    pub fn nodes(&self) -> u32 {
        let node = self.comm.split_shared(self.comm.rank());
        self.sum(u64::from(node.rank() == 0)) as u32
    }

    /// The sum of `value` over all lower ranks. Collective.
    pub fn sum_before(&self, value: u64) -> u64 {
        let mut sum = 0;
        self.comm
            .exclusive_scan_into(&value, &mut sum, SystemOperation::sum());
        // MPI leaves it undefined on the first rank.
        if self.is_root() { 0 } else { sum }
    }

    /// The sum of `value` over all ranks. Collective.
    pub fn sum(&self, value: u64) -> u64 {
        let mut sum = 0;
        self.comm
            .all_reduce_into(&value, &mut sum, SystemOperation::sum());
        sum
    }

    /// The values of all ranks, on the first one; empty on the others. Collective.
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

    /// The first rank's value, on all. Collective.
    pub fn broadcast(&self, value: &mut [u8]) {
        self.comm.process_at_rank(0).broadcast_into(value);
    }

    /// Tells all ranks of what went wrong on any. Collective: one reduction, where all is well.
    pub fn agree(&self, outcome: Outcome) -> Verdict {
        self.agree_on(outcome, 0, &mut [])
    }

    /// The same. `same`: a value that all ranks should have alike; if they do not, that is a failure.
    /// `largest`: values that are raised to the largest that any rank has.
    pub fn agree_on(&self, outcome: Outcome, same: u64, largest: &mut [u64]) -> Verdict {
        const REFUSAL: u64 = 1 << 32;
        const GOOD: u64 = u64::MAX;
        let rank = u64::from(self.rank());
        let worst = match &outcome {
            Outcome::Failed(_) => rank,
            Outcome::Refused(_) => REFUSAL | rank,
            Outcome::Good => GOOD,
        };
        let mut own = vec![worst, same, !same];
        own.extend(largest.iter().map(|value| !value));
        let mut least = vec![0; own.len()];
        self.comm
            .all_reduce_into(&own[..], &mut least[..], SystemOperation::min());
        let [worst, lowest, highest] = [least[0], least[1], !least[2]];
        let largest = largest.iter_mut().zip(&least[3..]);
        largest.for_each(|(value, least)| *value = !least);
        if lowest != highest && worst >= REFUSAL {
            return Verdict::Failed {
                rank: 0,
                reason: "the ranks do not have the same options, or did not make the same definitions, in the same order".into(),
            };
        }
        if worst == GOOD {
            return Verdict::Good;
        }
        let rank = worst as u32;
        let reason = match outcome {
            Outcome::Failed(reason) | Outcome::Refused(reason) => reason,
            Outcome::Good => String::new(),
        };
        let reason = self.tell(rank, reason);
        if worst < REFUSAL {
            Verdict::Failed { rank, reason }
        } else {
            Verdict::Refused { rank, reason }
        }
    }

    /// Tells all ranks how the first one fared in what it alone had to do; what the others pass does
    /// not count. Collective.
    pub fn follow(&self, own: Result<(), String>) -> Verdict {
        let mut failed = [u8::from(own.is_err())];
        self.broadcast(&mut failed);
        match failed {
            [0] => Verdict::Good,
            _ => Verdict::Failed {
                rank: 0,
                reason: self.tell(0, own.err().unwrap_or_default()),
            },
        }
    }

    /// Waits until all ranks are here. Collective. Where one of them has much to do, MPI would let the
    /// others wait on processors, and might well take that of the one: who has waited for a while
    /// sleeps in between.
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

    /// The text of rank `from`, on all ranks.
    fn tell(&self, from: u32, text: String) -> String {
        let teller = self.comm.process_at_rank(from as i32);
        let mut bytes = if self.rank() == from {
            text.into_bytes()
        } else {
            Vec::new()
        };
        let mut len = bytes.len() as u64;
        teller.broadcast_into(&mut len);
        bytes.resize(len as usize, 0);
        teller.broadcast_into(&mut bytes[..]);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Gives the communicator up without freeing it, which would be a collective call.
    pub fn leak(self) {
        std::mem::forget(self.comm);
    }
}

/// A file that a group of ranks has open for writing.
pub(super) struct SharedFile {
    raw: ffi::MPI_File,
    /// The same file, to ask the system why MPI failed.
    own: File,
    together: bool,
}

impl SharedFile {
    /// Opens the file as this rank alone. To be done, and agreed on, before [`SharedFile::open`]: where
    /// one rank cannot open a file, Open MPI lets the others wait for it forever.
    pub fn probe(path: &Path) -> Result<File, String> {
        let opened = OpenOptions::new().write(true).open(path);
        opened.map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Opens a file that is there. Collective. `own`: the same from [`SharedFile::probe`]. `together`:
    /// its writes are collective as well.
    pub fn open(
        ranks: &Ranks,
        (path, own): (&Path, File),
        hints: &[(String, String)],
        together: bool,
    ) -> Result<Self, String> {
        let text = |text: &[u8]| CString::new(text).map_err(|e| e.to_string());
        let pairs = hints
            .iter()
            .map(|(k, v)| Ok((text(k.as_bytes())?, text(v.as_bytes())?)));
        // What is wrong here is so on all ranks, which all leave at this point.
        let (name, pairs) = (
            text(path.as_os_str().as_bytes())?,
            pairs.collect::<Result<Vec<_>, String>>()?,
        );
        // SAFETY: MPI is initialised, for there is a communicator; names end with a zero byte, and
        // MPI copies them; `raw` is ours, and an open file only where MPI says so.
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
            Ok(SharedFile { raw, own, together })
        }
    }

    /// Writes the pieces one behind the other from `offset`; all ranks call it, also those without
    /// pieces.
    pub fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), String> {
        let mut requests = requests(pieces).into_iter();
        let mut at = offset;
        let mut result = Ok(());
        if self.together {
            // Together each rank makes one request; what it has beyond that it writes by itself.
            let first = requests.next().unwrap_or_default();
            result = self.complete(at, &first, true);
            at += bytes_of(&first);
        }
        for request in requests {
            result = result.and_then(|()| self.complete(at, &request, false));
            at += bytes_of(&request);
        }
        result
    }

    /// Writes all of one request: a request that was carried out in part, which is no error to MPI,
    /// is followed by one for the rest.
    fn complete(&self, offset: u64, pieces: &[&[u8]], together: bool) -> Result<(), String> {
        let wanted = bytes_of(pieces);
        let mut done = self.request(offset, pieces, together)?;
        let mut idle = 0;
        while done < wanted {
            let rest = behind(pieces, done);
            let more = self.request(offset + done, &rest, false)?;
            done += more;
            idle = if more == 0 { idle + 1 } else { 0 };
            if idle == 2 {
                let why = self.hindrance(offset + done, &rest);
                return Err(format!("{done} of {wanted} bytes could be written: {why}"));
            }
        }
        if done == wanted {
            Ok(())
        } else {
            Err(format!("{done} bytes were written instead of {wanted}"))
        }
    }

    /// Why nothing more can be written at `offset`: the system says what MPI does not.
    fn hindrance(&self, offset: u64, rest: &[&[u8]]) -> String {
        let piece = rest.first().copied().unwrap_or_default();
        match self.own.write_all_at(piece, offset) {
            Ok(()) => "MPI does not say why".into(),
            Err(e) => e.to_string(),
        }
    }

    /// One request; returns the number of bytes that MPI says it has written.
    fn request(&self, offset: u64, pieces: &[&[u8]], together: bool) -> Result<u64, String> {
        let lengths: Vec<c_int> = pieces.iter().map(|p| p.len() as c_int).collect();
        let places: Vec<ffi::MPI_Aint> = pieces.iter().map(|p| p.as_ptr() as isize).collect();
        let offset = i64::try_from(offset).map_err(|e| e.to_string())?;
        // SAFETY: the file is open. The datatype lists the pieces by address, which are alive until
        // the call returns, and is freed after it; a single piece is passed as it is. MPI does not
        // write to the buffer. A zeroed status is a status; it says nothing was written, for an
        // implementation that leaves it as it is.
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
            let call = if together {
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
            check("writing", written)?;
            // Without anything to write the status may be anything.
            Ok(if pieces.is_empty() { 0 } else { done as u64 })
        }
    }

    /// Waits until what was written is on the disk. Collective.
    pub fn sync(&self) -> Result<(), String> {
        // SAFETY: the file is open.
        check("MPI_File_sync", unsafe { ffi::MPI_File_sync(self.raw) })
    }

    /// Collective.
    pub fn close(mut self) -> Result<(), String> {
        // SAFETY: the file is open, and nobody can use it after this.
        check("MPI_File_close", unsafe {
            ffi::MPI_File_close(&mut self.raw)
        })
    }
}

fn bytes_of(pieces: &[&[u8]]) -> u64 {
    pieces.iter().map(|p| p.len() as u64).sum()
}

/// What is left of the pieces behind the first `done` bytes.
fn behind<'a>(pieces: &[&'a [u8]], done: u64) -> Vec<&'a [u8]> {
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

/// The pieces in groups of at most [`REQUEST`] bytes and [`PIECES`] pieces.
fn requests<'a>(pieces: &[&'a [u8]]) -> Vec<Vec<&'a [u8]>> {
    let mut groups: Vec<Vec<&[u8]>> = Vec::new();
    let mut room = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            if room == 0 || groups.last().is_none_or(|g| g.len() == PIECES) {
                groups.push(Vec::new());
                room = REQUEST;
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

fn check(what: &str, code: c_int) -> Result<(), String> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer has the size that MPI documents.
    let told = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let text = if told == ffi::MPI_SUCCESS as c_int {
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
        let many = [&large[..1]; PIECES + 1];
        let lens: Vec<usize> = requests(&many).iter().map(Vec::len).collect();
        assert_eq!(lens, [PIECES, 1]);
    }

    #[test]
    fn what_was_not_written_is_left() {
        let pieces: [&[u8]; 3] = [b"abc", b"", b"defg"];
        assert_eq!(behind(&pieces, 0), [&b"abc"[..], b"defg"]);
        assert_eq!(behind(&pieces, 2), [&b"c"[..], b"defg"]);
        assert_eq!(behind(&pieces, 5), [b"fg"]);
        assert!(behind(&pieces, 7).is_empty());
    }
}
