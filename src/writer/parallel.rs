//! The little of MPI that the writer needs: sums over ranks, agreement on errors, one file that all
//! write to. The safe crate has no MPI-IO, and leaves it to its raw layer.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use mpi::collective::SystemOperation;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;

/// Bytes of one request: counts of MPI have 32 bits.
const REQUEST: usize = 1 << 30;

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

    /// Tells all ranks of what went wrong on any. `same`: a value that all ranks should have alike;
    /// if they do not, that is a failure. Collective: one reduction, where all is well.
    pub fn agree(&self, outcome: Outcome, same: u64) -> Verdict {
        const REFUSAL: u64 = 1 << 32;
        const GOOD: u64 = u64::MAX;
        let rank = u64::from(self.rank());
        let worst = match &outcome {
            Outcome::Failed(_) => rank,
            Outcome::Refused(_) => REFUSAL | rank,
            Outcome::Good => GOOD,
        };
        let mut least = [0u64; 3];
        self.comm
            .all_reduce_into(&[worst, same, !same], &mut least, SystemOperation::min());
        let [worst, lowest, highest] = [least[0], least[1], !least[2]];
        if lowest != highest && worst >= REFUSAL {
            return Verdict::Failed {
                rank: 0,
                reason: "the ranks did not make the same definitions, in the same order".into(),
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
        match worst < REFUSAL {
            true => Verdict::Failed { rank, reason },
            false => Verdict::Refused { rank, reason },
        }
    }

    /// The text of rank `from`, on all ranks.
    fn tell(&self, from: u32, text: String) -> String {
        let teller = self.comm.process_at_rank(from as i32);
        let mut bytes = match self.rank() == from {
            true => text.into_bytes(),
            false => Vec::new(),
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
}

impl SharedFile {
    /// Opens a file that is there. Collective; fails on the ranks that cannot.
    pub fn open(ranks: &Ranks, path: &Path, hints: &[(String, String)]) -> Result<Self, String> {
        let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string());
        let pairs = hints.iter().map(|(k, v)| Ok((text(k)?, text(v)?)));
        let pairs: Result<Vec<(CString, CString)>, String> = pairs.collect();
        // What is wrong here is so on all ranks, which all leave at this point.
        let (name, pairs) = (name?, pairs?);
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
            Ok(SharedFile { raw })
        }
    }

    /// Writes the pieces one behind the other from `offset`. Collective; ranks without pieces take
    /// part. The first GiB is written together, what is more by each rank by itself: how many
    /// requests a rank has is then its own affair.
    pub fn write_all(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), String> {
        let mut parts = requests(pieces).into_iter();
        let first = parts.next().unwrap_or_default();
        let mut result = self.write(offset, &first, true);
        let mut at = offset + bytes_of(&first);
        for part in parts {
            result = result.and_then(|()| self.write(at, &part, false));
            at += bytes_of(&part);
        }
        result
    }

    fn write(&self, offset: u64, pieces: &[&[u8]], together: bool) -> Result<(), String> {
        let wanted = bytes_of(pieces);
        let lengths: Vec<c_int> = pieces.iter().map(|p| p.len() as c_int).collect();
        let places: Vec<ffi::MPI_Aint> = pieces.iter().map(|p| p.as_ptr() as isize).collect();
        let offset = i64::try_from(offset).map_err(|e| e.to_string())?;
        // SAFETY: the file is open. The datatype lists the pieces by address, which are alive until
        // the call returns, and is freed after it; a single piece is passed as it is. MPI does not
        // write to the buffer. A zeroed status is a status.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
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
            let written = match together {
                true => ffi::MPI_File_write_at_all(
                    self.raw,
                    offset,
                    buffer,
                    count,
                    datatype,
                    &mut status,
                ),
                false => {
                    ffi::MPI_File_write_at(self.raw, offset, buffer, count, datatype, &mut status)
                }
            };
            let mut done: ffi::MPI_Count = 0;
            ffi::MPI_Get_elements_x(&status, ffi::RSMPI_UINT8_T, &mut done);
            if pieces.len() > 1 {
                ffi::MPI_Type_free(&mut datatype);
            }
            check("writing", written)?;
            match done as u64 == wanted {
                true => Ok(()),
                false => Err(format!("{done} of {wanted} bytes were written")),
            }
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

/// The pieces in groups of at most [`REQUEST`] bytes.
fn requests<'a>(pieces: &[&'a [u8]]) -> Vec<Vec<&'a [u8]>> {
    let mut groups: Vec<Vec<&[u8]>> = Vec::new();
    let mut room = 0;
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            if room == 0 {
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
    let text = match told == ffi::MPI_SUCCESS as c_int {
        true => String::from_utf8_lossy(&text[..len.clamp(0, text.len() as c_int) as usize]),
        false => "an error without a text".into(),
    };
    Err(format!("{what}: {text} (MPI error {code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_gibibyte_at_most() {
        let large = vec![0u8; 100];
        let pieces = [&large[..10], &[], &large[..]];
        assert_eq!(requests(&pieces), [vec![&large[..10], &large[..]]]);
        assert!(requests(&[&[], &[]]).is_empty());
    }
}
