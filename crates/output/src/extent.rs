//! Extents as bytes: their headers, their seals, and their writes. Every independent write of this crate to a data file goes
//! through this module.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;

use h5logfs_log::logvol::extent::{ExtentHeader, Proof, Seal, crc32, data_sum};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, pwritev, retry_on_intr};

/// Most pieces that the system takes in one call (IOV_MAX).
const PIECES: usize = 1024;

/// The header of an extent with these entries and `data` bytes of data.
pub(crate) fn header(rank: u32, flush: u64, entries: &[u8], data: u64) -> ExtentHeader {
    ExtentHeader {
        rank,
        flush,
        entries: entries.len() as u64,
        data,
        entries_crc: crc32(entries),
        seal: None,
        proof: None,
    }
}

/// The header's fields about the data.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Checksums {
    pub seal: Option<Seal>,
    pub proof: Option<Proof>,
}

impl Checksums {
    /// The fields for an extent with these data. `number`: extents that its rank has written since the last flush.
    pub fn of(data: &[&[u8]], number: usize, sealed: bool) -> Self {
        let sum = data_sum(data);
        let seal = sealed.then(|| Seal {
            data: sum,
            // Each `RandomState` has new random keys.
            tag: RandomState::new().hash_one(0u8),
        });
        Checksums {
            seal,
            proof: Proof::new(sum, number),
        }
    }

    /// Adds the fields to a header.
    pub fn add_to(self, header: ExtentHeader) -> ExtentHeader {
        let Checksums { seal, proof } = self;
        ExtentHeader {
            seal,
            proof,
            ..header
        }
    }
}

/// Writes pieces one after the other, and returns their end. Needs one system call for each [`PIECES`], unless the system
/// takes fewer bytes at once.
pub(crate) fn write_all(file: &File, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
    pieces
        .chunks(PIECES)
        .try_fold(offset, |at, some| write_some(file, some, at))
}

fn write_some(file: &File, pieces: &[&[u8]], offset: u64) -> io::Result<u64> {
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut done = retry_on_intr(|| pwritev(file, &slices, offset))? as u64;
    let mut at = offset;
    for piece in pieces {
        let skip = done.min(piece.len() as u64);
        file.write_all_at(&piece[skip as usize..], at + skip)?;
        done -= skip;
        at += piece.len() as u64;
    }
    Ok(at)
}

/// Reserves `len` bytes at the end of a file that other processes of this node extend, too. The last flush ends at `flushed`.
pub(crate) fn take_place(file: &File, flushed: u64, len: u64) -> io::Result<u64> {
    retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?;
    let taken = lengthen(file, flushed, len);
    flock(file, FlockOperation::Unlock)?;
    taken
}

/// Whether the file system of a file has locks; Lustre may have none. The answer is the same on all ranks of a node.
pub(crate) fn has_locks(file: &File) -> bool {
    let locked = flock(file, FlockOperation::NonBlockingLockShared);
    if locked.is_ok() {
        // Closing the file would release the lock, too.
        let _ = flock(file, FlockOperation::Unlock);
    }
    !matches!(locked, Err(Errno::NOSYS | Errno::OPNOTSUPP))
}

/// Extends a locked file by `len` bytes. Returns their start.
fn lengthen(file: &File, flushed: u64, len: u64) -> io::Result<u64> {
    let offset = file.metadata()?.len().max(flushed);
    let end = offset.checked_add(len);
    let end = end.ok_or_else(|| io::Error::other("the file would have more than 2^63 bytes"))?;
    file.set_len(end)?;
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::thread::JoinHandleExt;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    /// The chunks of one write may be more pieces than one system call takes.
    #[test]
    fn any_number_of_pieces_is_written() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..3 * PIECES + 5).map(|i| i as u8).collect();
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(write_all(&file, &pieces, 0).unwrap(), bytes.len() as u64);
        let mut found = Vec::new();
        file.read_to_end(&mut found).unwrap();
        assert_eq!(found, bytes);
    }

    /// A signal that a program handles does not end the wait for the lock of a data file.
    #[test]
    fn a_signal_does_not_end_the_wait_for_a_lock() {
        static HANDLED: AtomicU32 = AtomicU32::new(0);
        extern "C" fn handle(_: libc::c_int) {
            HANDLED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler only counts. Without SA_RESTART, a signal interrupts the waiting call.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
                0
            );
        }
        let path = tempfile::NamedTempFile::new().unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(path.path())
                .unwrap()
        };
        let held = open();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let (file, (tell, told)) = (open(), std::sync::mpsc::channel());
        let waiting = thread::spawn(move || {
            // SAFETY: `gettid` takes no arguments.
            tell.send(unsafe { libc::gettid() }).unwrap();
            take_place(&file, 100, 7)
        });
        let status = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        let sleeps = || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            status
                .rsplit_once(')')
                .is_some_and(|(_, rest)| rest.starts_with(" S"))
        };
        while HANDLED.load(Ordering::Relaxed) < 3 && !waiting.is_finished() {
            if sleeps() {
                // SAFETY: the thread has not been joined yet.
                unsafe { libc::pthread_kill(waiting.as_pthread_t(), libc::SIGUSR1) };
            }
            thread::yield_now();
        }
        flock(&held, FlockOperation::Unlock).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 100);
        assert_eq!(held.metadata().unwrap().len(), 107);
    }
}
