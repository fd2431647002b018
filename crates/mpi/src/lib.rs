//! The ranks of an MPI communicator, as `h5logfs-output` needs them. The crate `mpi` offers MPI-IO in its raw layer only.

mod file;
pub mod library;

use std::ffi::{c_char, c_int};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use file::MpiFile;
use h5logfs_common::fault::{Fault, Kind};
use h5logfs_output::ranks::{self, Access, Node, OwnFile, SharedFile, Word};
use mpi::Count;
use mpi::collective::SystemOperation;
use mpi::datatype::PartitionMut;
use mpi::ffi;
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::*;
use rustix::io::Errno;

/// Most bytes of a request: counts of MPI have 32 bits.
const MAX_REQUEST_BYTES: usize = 1 << 30;

/// A communicator that belongs to this library.
pub struct MpiRanks(SimpleCommunicator);

// SAFETY: an MPI handle belongs to no thread. Its user calls MPI as the program's thread support allows.
unsafe impl Send for MpiRanks {}
// SAFETY: see above; the handle does not change.
unsafe impl Sync for MpiRanks {}

/// Whether MPI is initialised and not yet finalised.
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
    /// The ranks of a communicator, whose handle this takes over.
    ///
    /// # Safety
    ///
    /// `comm` is an intracommunicator, and only this frees it.
    pub unsafe fn from_raw(comm: ffi::MPI_Comm) -> Self {
        // SAFETY: promised by the caller.
        MpiRanks(unsafe { SimpleCommunicator::from_raw(comm) })
    }

    /// The ranks of a duplicate of a communicator. Collective.
    pub fn duplicate(comm: &impl Communicator) -> Self {
        MpiRanks(comm.duplicate())
    }
}

/// The nodes of all ranks, as one reduction finds them.
#[derive(PartialEq, Eq)]
enum Nodes {
    One,
    Several,
    /// Some rank does not know its node.
    Unknown,
}

impl MpiRanks {
    /// The nodes of all ranks. The same on all of them. Collective.
    fn nodes(&self) -> Nodes {
        let own = this_node();
        match ranks::Communicator::minima(self, &[own, !own])[..] {
            [0, _] => Nodes::Unknown,
            [least, rest] if least == !rest => Nodes::One,
            _ => Nodes::Several,
        }
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
        // Jobs that open files often mostly run on one node. Splitting a communicator takes many messages.
        if self.nodes() == Nodes::One {
            return Node { number: 0, of: 1 };
        }
        let node = self.0.split_shared(self.0.rank());
        let is_first = u64::from(node.rank() == 0);
        let before = self.sums_before(&[is_first])[0];
        // The scan leaves the first rank's result undefined.
        let mut number = if self.0.rank() == 0 { 0 } else { before as u32 };
        node.process_at_rank(0).broadcast_into(&mut number);
        let of = self.sum(is_first) as u32;
        Node { number, of }
    }

    fn are_on_one_node(&self) -> bool {
        match self.nodes() {
            Nodes::One => true,
            Nodes::Several => false,
            Nodes::Unknown => self.node().of == 1,
        }
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

    fn all_values(&self, values: &[u64]) -> Vec<u64> {
        let mut all = vec![0; values.len() * self.0.size() as usize];
        self.0.all_gather_into(values, &mut all[..]);
        all
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

    fn gather_few(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        // The pointer of an empty list could equal `MPI_IN_PLACE`.
        let none = [0];
        let bytes = if bytes.is_empty() { &none[..0] } else { bytes };
        let lens = self.gather(bytes.len() as u64);
        let root = self.0.process_at_rank(0);
        if self.0.rank() != 0 {
            root.gather_varcount_into(bytes);
            return Vec::new();
        }
        let mut all = vec![0; 1 + lens.iter().sum::<u64>() as usize];
        // The caller ensures that the bytes are few.
        let counts: Vec<Count> = lens.iter().map(|len| *len as Count).collect();
        let begins = counts.iter().scan(0, |end, count| {
            let begin = *end;
            *end += count;
            Some(begin)
        });
        let begins: Vec<Count> = begins.collect();
        let mut parts = PartitionMut::new(&mut all[..], &counts[..], &begins[..]);
        root.gather_varcount_into_root(bytes, &mut parts);
        let mut rest = &all[..];
        let parts = lens.iter().map(|len| {
            let (part, behind) = rest.split_at(*len as usize);
            rest = behind;
            part.to_vec()
        });
        parts.collect()
    }

    fn broadcast(&self, from: u32, value: &mut [u8]) {
        let sender = self.0.process_at_rank(from as i32);
        for part in value.chunks_mut(MAX_REQUEST_BYTES) {
            sender.broadcast_into(part);
        }
    }

    fn begin_broadcast(&self, value: u64) -> Box<dyn Word> {
        // SAFETY: this is a constant of MPI.
        let datatype = unsafe { ffi::RSMPI_UINT64_T };
        let comm = self.0.as_raw();
        Pending::begin(value, |value, request| {
            // SAFETY: the value stays in place until the broadcast is complete, or for ever if it never is.
            unsafe { ffi::MPI_Ibcast(value.cast(), 1, datatype, 0, comm, request) };
        })
    }

    fn begin_wait(&self) -> Box<dyn Word> {
        let comm = self.0.as_raw();
        Pending::begin(0, |_, request| {
            // SAFETY: this is an intracommunicator.
            unsafe { ffi::MPI_Ibarrier(comm, request) };
        })
    }

    /// Waits asleep. An ordinary barrier of MPI keeps the waiting ranks on processors that a rank with more work may need.
    fn wait(&self) {
        self.begin_wait().wait();
    }

    fn open(
        &self,
        path: &Path,
        file: Arc<File>,
        access: &Access<'_>,
    ) -> Result<Box<dyn SharedFile>, Fault> {
        // Independent writes need no MPI, unless the user has hints for it. A shared opening takes messages and memory for
        // each rank. If several nodes open a file, Open MPI 4.1 makes a further file beside it, and hangs if it cannot. MPICH
        // holds a lock until all ranks have come, so threads with files of their own could deadlock. And Open MPI makes and
        // removes three files in the directory of each file that a single rank opens.
        if !access.collective && access.hints.is_empty() {
            return Ok(Box::new(OwnFile(file)));
        }
        let alone = SimpleCommunicator::self_comm();
        let comm = if access.collective { &self.0 } else { &alone };
        Ok(Box::new(MpiFile::open(comm, path, file, access)?))
    }
}

/// A number shared by the processes under one kernel and one host name; 0 if it is not known.
fn this_node() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let names = ["random/boot_id", "hostname"];
        let read = |name| std::fs::read(Path::new("/proc/sys/kernel").join(name));
        let Ok(names) = names.into_iter().map(read).collect::<io::Result<Vec<_>>>() else {
            return 0;
        };
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        hasher.finish()
    })
}

/// A pending collective call.
struct Pending {
    /// The number that it sends or receives, at a fixed place for MPI.
    value: *mut u64,
    request: ffi::MPI_Request,
}

// SAFETY: only `wait` uses the place, once; an MPI handle belongs to no thread.
unsafe impl Send for Pending {}
// SAFETY: see above.
unsafe impl Sync for Pending {}

impl Pending {
    /// Begins a call with a fixed place for its number, and one for its request.
    fn begin(value: u64, begin: impl FnOnce(*mut u64, &mut ffi::MPI_Request)) -> Box<dyn Word> {
        let value = Box::into_raw(Box::new(value));
        // SAFETY: this is a constant of MPI.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        begin(value, &mut request);
        Box::new(Pending { value, request })
    }

    fn is_complete(&mut self) -> bool {
        let (request, mut is_complete) = (&mut self.request, 0);
        // SAFETY: the request belongs to the call, or is null once it is complete.
        unsafe { ffi::MPI_Test(request, &mut is_complete, ffi::RSMPI_STATUS_IGNORE) };
        is_complete != 0
    }
}

impl Word for Pending {
    fn comes_in(&mut self, longest: Duration) -> bool {
        sleep_until(longest, || self.is_complete())
    }

    fn wait(mut self: Box<Self>) -> u64 {
        while !self.comes_in(Duration::MAX) {}
        // SAFETY: MPI no longer uses it, and nothing else has it.
        *unsafe { Box::from_raw(self.value) }
    }
}

/// Waits until `is_done`, but not longer than `longest`. Returns whether it is done. A rank that has waited longer than
/// messages take sleeps, because others may need its processor. It does not yield: on a busy machine each yield takes the
/// slice of another process.
fn sleep_until(longest: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    const BUSY: Duration = Duration::from_micros(500);
    const ASLEEP: Duration = Duration::from_micros(200);
    // Usually it is done, and the clock is not read.
    if is_done() {
        return true;
    }
    let begun = Instant::now();
    loop {
        if is_done() {
            return true;
        }
        let passed = begun.elapsed();
        if passed >= longest {
            return false;
        }
        if passed < BUSY {
            std::hint::spin_loop()
        } else {
            // It is thus at most a tenth late.
            std::thread::sleep((passed / 10).min(ASLEEP))
        }
    }
}

/// Maps a number to a signed one of the same order. MPICH 4.0 and Open MPI 4.1 compare some unsigned numbers as signed ones
/// (pmodels/mpich#6083, open-mpi/ompi#10648).
fn ordered(value: u64) -> i64 {
    (value ^ (1 << 63)).cast_signed()
}

/// Inverts [`ordered`].
fn unordered(value: i64) -> u64 {
    value.cast_unsigned() ^ (1 << 63)
}

/// System errors that MPI has error classes for.
const ERRNOS: [(u32, Errno); 6] = [
    (ffi::MPI_ERR_ACCESS, Errno::ACCESS),
    (ffi::MPI_ERR_NO_MEM, Errno::NOMEM),
    (ffi::MPI_ERR_NO_SPACE, Errno::NOSPC),
    (ffi::MPI_ERR_NO_SUCH_FILE, Errno::NOENT),
    (ffi::MPI_ERR_QUOTA, Errno::DQUOT),
    (ffi::MPI_ERR_READ_ONLY, Errno::ROFS),
];

/// Fails with MPI's text of an error code.
pub fn check(what: &str, code: c_int) -> Result<(), Fault> {
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
    let mut class = 0;
    // SAFETY: the call only looks the code up.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    Err(Kind::Io(errno_of(class)).told(format!("{what}: {text} (MPI error {code})")))
}

fn errno_of(class: c_int) -> Errno {
    let known = ERRNOS.iter().find(|(known, _)| *known as c_int == class);
    known.map_or(Errno::IO, |(_, errno)| *errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_keep_the_order() {
        let values = [0, 1, u64::MAX >> 1, 1 << 63, u64::MAX - 1, u64::MAX];
        let signed = values.map(ordered);
        assert!(signed.is_sorted(), "{signed:?}");
        assert_eq!(signed.map(unordered), values);
    }
}
