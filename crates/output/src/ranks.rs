//! The processes that write a log together: sums over ranks, agreement on errors, shared files.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use h5logfs_common::fault::{Fault, Kind};
use h5logfs_common::process::Process;

use crate::extent::write_all;

/// The communicator that this crate needs. All calls except `rank`, `size` and `is_usable` are collective: all ranks
/// make them in the same order. The default methods are right for every communicator; some communicators have faster
/// ones.
pub trait Communicator: Send + Sync {
    /// Number of this process, from 0.
    fn rank(&self) -> u32;

    /// Number of processes.
    fn size(&self) -> u32;

    /// Splits the ranks by color, in their order.
    fn split(&self, color: u32) -> Box<dyn Communicator>;

    /// Sums of `values` over all lower ranks. All ranks have the same number of values. The result on the first rank is
    /// arbitrary.
    fn sums_before(&self, values: &[u64]) -> Vec<u64>;

    /// Minimum of each value over all ranks. All ranks have the same number of values.
    fn minima(&self, values: &[u64]) -> Vec<u64>;

    /// The bytes of all ranks, of any length, on the first rank. Empty on the others.
    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>>;

    /// [`gather_bytes`](Self::gather_bytes) for at most 2^30 bytes in all. The number of calls does not grow with the
    /// number of ranks.
    fn gather_few(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.gather_bytes(bytes)
    }

    /// Sends the value of rank `from` to all ranks. The length is the same on all ranks.
    fn broadcast(&self, from: u32, value: &mut [u8]);

    /// Begins to send the value of the first rank to all ranks. It should not wait; the receiver of the value waits later.
    /// The default sends it at once.
    fn begin_broadcast(&self, value: u64) -> Box<dyn Word> {
        let mut bytes = value.to_le_bytes();
        self.broadcast(0, &mut bytes);
        Box::new(Sent(u64::from_le_bytes(bytes)))
    }

    /// Whether calls are still possible: the program may have finalized MPI. Local.
    fn is_usable(&self) -> bool {
        true
    }

    /// The node of this process. The default is one node for all.
    fn node(&self) -> Node {
        Node { number: 0, of: 1 }
    }

    /// Whether all ranks are known to run on one node. The same on all ranks.
    fn are_on_one_node(&self) -> bool {
        self.node().of == 1
    }

    /// Sum of `value` over all ranks.
    fn sum(&self, value: u64) -> u64 {
        let sum = self.gather(value).into_iter().fold(0, u64::wrapping_add);
        let mut bytes = sum.to_le_bytes();
        self.broadcast(0, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The values of all ranks on the first rank. Empty on the others.
    fn gather(&self, value: u64) -> Vec<u64> {
        let all = self.gather_bytes(&value.to_le_bytes()).into_iter();
        let value = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_le_bytes);
        all.map(value).collect()
    }

    /// The values of all ranks, in order, on all ranks. All ranks have the same number of values.
    fn all_values(&self, values: &[u64]) -> Vec<u64> {
        let own = values.iter().flat_map(|value| value.to_le_bytes());
        let mut all = self.gather_bytes(&own.collect::<Vec<_>>()).concat();
        all.resize(self.size() as usize * size_of_val(values), 0);
        self.broadcast(0, &mut all);
        let all = all.as_chunks().0.iter();
        all.map(|value| u64::from_le_bytes(*value)).collect()
    }

    /// Waits until all ranks have made this call.
    fn wait(&self) {
        self.minima(&[]);
    }

    /// Begins to wait for all ranks. When they have come, a word of any value arrives. The default waits at once.
    fn begin_wait(&self) -> Box<dyn Word> {
        self.wait();
        Box::new(Sent(0))
    }

    /// Opens an existing file, which this rank has opened as `file`, for writing by all ranks. By default each rank
    /// writes on its own.
    fn open(
        &self,
        _path: &Path,
        file: Arc<File>,
        _access: &Access<'_>,
    ) -> Result<Box<dyn SharedFile>, Fault> {
        Ok(Box::new(OwnFile(file)))
    }
}

/// A value on its way to all ranks.
pub trait Word: Send + Sync {
    /// Waits for the value, but not longer than `longest`. Returns whether it has come.
    fn comes_in(&mut self, longest: Duration) -> bool;

    /// Waits for the value.
    fn wait(self: Box<Self>) -> u64;
}

/// A value that has arrived.
struct Sent(u64);

impl Word for Sent {
    fn comes_in(&mut self, _longest: Duration) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> u64 {
        self.0
    }
}

/// A node of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Number of the node, from 0, in the order of the first ranks on the nodes.
    pub number: u32,
    /// Number of nodes.
    pub of: u32,
}

/// The way in which a shared file is written.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// Hints for MPI-IO.
    pub hints: &'a [(String, String)],
    /// Whether to write with collective calls.
    pub collective: bool,
}

/// A file that a group of ranks has open for writing.
pub trait SharedFile: Send + Sync {
    /// Writes the pieces one after the other from `offset` on. In a collective file, ranks without pieces must call it, too.
    fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), Fault>;

    /// Forces the written data to the disk. Collective.
    fn sync(&self) -> Result<(), Fault>;

    /// Whether the system has all written bytes. A file may otherwise keep some until it is synced or closed. The same on all
    /// ranks.
    fn is_plain(&self) -> bool {
        false
    }

    /// Closes the file. Collective.
    fn close(self: Box<Self>) -> Result<(), Fault> {
        Ok(())
    }

    /// Forgets the file if its release would be a collective call. The default releases it.
    fn leak(self: Box<Self>) {}
}

/// The outcome of an operation on this rank.
#[derive(Debug)]
pub enum LocalOutcome {
    /// The operation succeeded.
    Good,
    /// A write was refused. The operation goes on.
    Refused(Fault),
    /// The operation failed.
    Failed(Fault),
}

impl LocalOutcome {
    /// The outcome of a fallible operation, and its value.
    pub fn of<T>(result: Result<T, impl Into<Fault>>) -> (Self, Option<T>) {
        match result {
            Ok(value) => (LocalOutcome::Good, Some(value)),
            Err(reason) => (LocalOutcome::Failed(reason.into()), None),
        }
    }
}

/// The result of a reduction, the same on all ranks.
#[derive(Debug)]
pub struct Agreement {
    /// The outcome on all ranks.
    pub outcome: GlobalOutcome,
    /// Whether a value was equal on all ranks.
    pub same: bool,
}

/// The outcome over all ranks: the first failure, or else the first refusal.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum GlobalOutcome {
    Good,
    Refused { rank: u32, reason: Fault },
    Failed { rank: u32, reason: Fault },
}

/// An error with the same kind and text on all ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct JobError(Fault);

impl JobError {
    /// A refusal: the job cannot do what it was told. The caller ensures that all ranks have the same reason.
    pub fn new(reason: impl Into<String>) -> Self {
        JobError(Fault::Refused(reason.into()))
    }

    /// This error with `what` in front of its text.
    pub fn about(self, what: impl Display) -> Self {
        JobError(self.0.told(format!("{what}: {self}")))
    }

    fn of_rank(rank: u32, reason: Fault) -> Self {
        JobError(reason).about(format_args!("rank {rank}"))
    }
}

impl From<JobError> for Fault {
    fn from(error: JobError) -> Self {
        error.0
    }
}

/// The processes that write a log, and their agreements. Clones share the communicator: calls of all clones together must be
/// in the same order on all ranks.
#[derive(Clone)]
pub struct Ranks {
    communicator: Arc<dyn Communicator>,
    /// The rank, which each write needs.
    rank: u32,
    size: u32,
    /// The node, once it was needed: finding it takes a new communicator.
    node: Arc<OnceLock<Node>>,
    /// The process of this rank.
    process: Process,
}

impl Ranks {
    /// The ranks of `communicator`, which belongs to them alone.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        Self::of(Arc::new(communicator))
    }

    fn of(communicator: Arc<dyn Communicator>) -> Self {
        Ranks {
            rank: communicator.rank(),
            size: communicator.size(),
            communicator,
            node: Arc::default(),
            process: Process::this(),
        }
    }

    /// A process that writes alone.
    pub fn one() -> Self {
        Self::new(OneRank)
    }

    /// Number of this process, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether calls are still possible: the program may have finalized MPI. Local.
    pub fn is_usable(&self) -> bool {
        self.communicator.is_usable()
    }

    /// The process of this rank. A process forked from it is no rank, and makes no calls.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether this is the first rank.
    pub fn is_root(&self) -> bool {
        self.rank() == 0
    }

    /// Splits the ranks by color, in their order. Collective.
    pub fn split(&self, color: u32) -> Self {
        Self::of(self.communicator.split(color).into())
    }

    /// The node of this process. Collective.
    pub fn node(&self) -> Node {
        *self.node.get_or_init(|| self.communicator.node())
    }

    /// Whether all ranks are known to run on one node. The same on all ranks. Collective.
    pub fn are_on_one_node(&self) -> bool {
        if let Some(node) = self.node.get() {
            return node.of == 1;
        }
        let is_one = self.communicator.are_on_one_node();
        if is_one {
            let _ = self.node.set(Node { number: 0, of: 1 });
        }
        is_one
    }

    /// Sum of `value` over all lower ranks. Collective.
    pub fn sum_before(&self, value: u64) -> u64 {
        self.sums_before(&[value])[0]
    }

    /// Sums of `values` over all lower ranks. All ranks have the same number of values. Collective.
    pub fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        let mut sums = self.communicator.sums_before(values);
        // MPI leaves the result undefined on the first rank.
        if self.is_root() {
            sums.fill(0);
        }
        sums
    }

    /// Sum of `value` over all ranks. Collective.
    pub fn sum(&self, value: u64) -> u64 {
        self.communicator.sum(value)
    }

    /// Maximum of `value` over all ranks. Collective.
    pub fn largest(&self, value: u64) -> u64 {
        !self.communicator.minima(&[!value])[0]
    }

    /// The values of all ranks on the first rank. Empty on the others. Collective.
    pub fn gather(&self, value: u64) -> Vec<u64> {
        self.communicator.gather(value)
    }

    /// The bytes of all ranks, of any length, on the first rank. Empty on the others. Collective.
    pub fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.communicator.gather_bytes(bytes)
    }

    /// [`gather_bytes`](Self::gather_bytes) for at most 2^30 bytes in all. Collective.
    pub fn gather_few(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.communicator.gather_few(bytes)
    }

    /// The values of all ranks, in order, on all ranks. All ranks have the same number of values. Collective.
    pub fn all_values(&self, values: &[u64]) -> Vec<u64> {
        self.communicator.all_values(values)
    }

    /// Sends the first rank's value to all ranks. Collective.
    pub fn broadcast(&self, value: &mut [u8]) {
        self.communicator.broadcast(0, value);
    }

    /// Begins to send the first rank's value to all ranks, without waiting. Collective.
    pub fn begin_broadcast(&self, value: u64) -> Box<dyn Word> {
        self.communicator.begin_broadcast(value)
    }

    /// Begins to wait for all ranks. A word arrives when they have come. Collective.
    pub fn begin_wait(&self) -> Box<dyn Word> {
        self.communicator.begin_wait()
    }

    /// Combines the outcomes of all ranks. Takes one reduction if all are good. Collective.
    pub fn agree(&self, outcome: LocalOutcome) -> GlobalOutcome {
        self.agree_on(outcome, 0, &mut []).outcome
    }

    /// Combines the outcomes of all ranks, and finds whether `same` is equal on all of them. Raises each value of `largest`
    /// to its maximum over all ranks. Collective.
    pub fn agree_on(&self, outcome: LocalOutcome, same: u64, largest: &mut [u64]) -> Agreement {
        const REFUSAL: u64 = 1 << 32;
        const GOOD: u64 = u64::MAX;
        let rank = u64::from(self.rank());
        let worst = match &outcome {
            LocalOutcome::Failed(_) => rank,
            LocalOutcome::Refused(_) => REFUSAL | rank,
            LocalOutcome::Good => GOOD,
        };
        // One reduction finds all minima. The complement turns a maximum into a minimum.
        let mut local = vec![worst, same, !same];
        local.extend(largest.iter().map(|value| !value));
        let minima = self.communicator.minima(&local);
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

    /// The outcome of rank `rank`, which passes it as `outcome`. Collective.
    fn worst_outcome(&self, rank: u32, failed: bool, outcome: LocalOutcome) -> GlobalOutcome {
        let reason = match outcome {
            LocalOutcome::Failed(reason) | LocalOutcome::Refused(reason) => reason,
            LocalOutcome::Good => Fault::Damage(String::new()),
        };
        let reason = self.broadcast_fault(rank, &reason);
        if failed {
            GlobalOutcome::Failed { rank, reason }
        } else {
            GlobalOutcome::Refused { rank, reason }
        }
    }

    /// The outcome of an operation of the first rank alone. Ignores `result` on other ranks. Collective.
    pub fn follow_root(&self, result: Result<(), Fault>) -> GlobalOutcome {
        let mut failed = [u8::from(result.is_err())];
        self.broadcast(&mut failed);
        if failed == [0] {
            return GlobalOutcome::Good;
        }
        let (failed, _) = LocalOutcome::of(result);
        self.worst_outcome(0, true, failed)
    }

    /// The result of this rank if all ranks have succeeded, otherwise the error of the first rank that failed. Waiting
    /// ranks leave their processors to the others. Collective.
    pub fn all<T>(&self, own: Result<T, impl Into<Fault>>) -> Result<T, JobError> {
        self.wait();
        let own = own.map_err(Into::into);
        let (outcome, _) = LocalOutcome::of(own.as_ref().map(drop).map_err(Fault::clone));
        match (self.agree(outcome), own) {
            (GlobalOutcome::Good, own) => own.map_err(|e| JobError::of_rank(self.rank(), e)),
            (
                GlobalOutcome::Failed { rank, reason } | GlobalOutcome::Refused { rank, reason },
                _,
            ) => Err(JobError::of_rank(rank, reason)),
        }
    }

    /// The result of an operation of the first rank alone: `own`, which the other ranks set to their own value. Fails with
    /// the error of the first rank. The others leave their processors to it while they wait. Collective.
    pub fn led<T>(&self, own: Result<T, impl Into<Fault>>) -> Result<T, JobError> {
        self.wait();
        let own = own.map_err(Into::into);
        let outcome = own.as_ref().map(drop).map_err(Fault::clone);
        match (self.follow_root(outcome), own) {
            (GlobalOutcome::Good, own) => own.map_err(JobError),
            (GlobalOutcome::Failed { reason, .. } | GlobalOutcome::Refused { reason, .. }, _) => {
                Err(JobError(reason))
            }
        }
    }

    /// Waits until all ranks have made this call. Collective.
    pub fn wait(&self) {
        self.communicator.wait();
    }

    /// The first rank that passes `true`. Collective.
    pub fn first(&self, is: bool) -> Option<u32> {
        let own = if is { self.rank() } else { u32::MAX };
        let first = self.communicator.minima(&[own.into()])[0] as u32;
        (first != u32::MAX).then_some(first)
    }

    /// Sends the fault of rank `from` to all ranks: its kind, and its text. Collective.
    fn broadcast_fault(&self, from: u32, fault: &Fault) -> Fault {
        fault_of_bytes(&self.broadcast_bytes(from, fault_to_bytes(fault)))
    }

    /// Sends the text of rank `from` to all ranks. Collective.
    pub fn broadcast_text(&self, from: u32, text: String) -> String {
        let bytes = self.broadcast_bytes(from, text.into_bytes());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Sends bytes that the first rank has found to all ranks, or the reason why it failed. Ignores `found` on other ranks.
    /// Few bytes take one broadcast. Collective.
    pub fn tell(&self, found: Result<Vec<u8>, Fault>) -> (GlobalOutcome, Vec<u8>) {
        const GOOD: u8 = 0;
        const FAILED: u8 = 1;
        let bytes = match found {
            Ok(found) => [&[GOOD], &found[..]].concat(),
            Err(fault) => [&[FAILED], &fault_to_bytes(&fault)[..]].concat(),
        };
        let bytes = self.broadcast_bytes(0, bytes);
        match bytes.split_first() {
            Some((&GOOD, found)) => (GlobalOutcome::Good, found.to_vec()),
            failed => {
                let reason = fault_of_bytes(failed.map_or(&[], |(_, fault)| fault));
                (GlobalOutcome::Failed { rank: 0, reason }, Vec::new())
            }
        }
    }

    /// Sends the bytes of rank `from` to all ranks. Ignores `bytes` on other ranks. Few bytes take one broadcast. Collective.
    pub fn broadcast_bytes(&self, from: u32, bytes: Vec<u8>) -> Vec<u8> {
        let mut bytes = if self.rank() == from {
            bytes
        } else {
            Vec::new()
        };
        let mut first = (bytes.len() as u64).to_le_bytes().to_vec();
        first.extend(&bytes[..bytes.len().min(FIRST)]);
        first.resize(size_of::<u64>() + FIRST, 0);
        self.communicator.broadcast(from, &mut first);
        let (len, first) = first.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let len = u64::from_le_bytes(*len) as usize;
        bytes.resize(len, 0);
        let (begin, rest) = bytes.split_at_mut(len.min(FIRST));
        begin.copy_from_slice(&first[..begin.len()]);
        if !rest.is_empty() {
            self.communicator.broadcast(from, rest);
        }
        bytes
    }

    /// Opens an existing file, which [`probe`] has opened as `file`. Collective.
    pub fn open(
        &self,
        path: &Path,
        file: Arc<File>,
        access: &Access<'_>,
    ) -> Result<Box<dyn SharedFile>, Fault> {
        self.communicator.open(path, file, access)
    }

    /// Leaks the communicator. Freeing it would be a collective call.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}

fn fault_to_bytes(fault: &Fault) -> Vec<u8> {
    let mut bytes = fault.kind().number().to_le_bytes().to_vec();
    bytes.extend(fault.to_string().into_bytes());
    bytes
}

fn fault_of_bytes(bytes: &[u8]) -> Fault {
    let (kind, text) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let kind = Kind::of_number(i32::from_le_bytes(*kind));
    kind.told(String::from_utf8_lossy(text))
}

/// Bytes sent together with their number, in a message that MPI sends without asking the receiver first.
const FIRST: usize = 4000;

/// Opens a file for writing on this rank alone. All ranks must have succeeded in this before [`Ranks::open`]: if one
/// rank cannot open a file, Open MPI lets the others wait forever.
pub fn probe(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// A process that writes alone.
struct OneRank;

impl Communicator for OneRank {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        1
    }

    fn split(&self, _color: u32) -> Box<dyn Communicator> {
        Box::new(OneRank)
    }

    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        vec![0; values.len()]
    }

    fn minima(&self, values: &[u64]) -> Vec<u64> {
        values.to_vec()
    }

    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        vec![bytes.to_vec()]
    }

    fn broadcast(&self, _from: u32, _value: &mut [u8]) {}
}

/// A file that each process writes independently.
pub struct OwnFile(pub Arc<File>);

impl SharedFile for OwnFile {
    fn write(&self, offset: u64, pieces: &[&[u8]]) -> Result<(), Fault> {
        write_all(&self.0, pieces, offset)?;
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        Ok(self.0.sync_data()?)
    }

    fn is_plain(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    /// An end of a pair of ranks: the first sends messages, the other receives them.
    struct End {
        rank: u32,
        sent: Arc<Mutex<VecDeque<Vec<u8>>>>,
    }

    impl Communicator for End {
        fn rank(&self) -> u32 {
            self.rank
        }

        fn size(&self) -> u32 {
            2
        }

        fn split(&self, _: u32) -> Box<dyn Communicator> {
            unreachable!()
        }

        fn sums_before(&self, _: &[u64]) -> Vec<u64> {
            unreachable!()
        }

        fn minima(&self, _: &[u64]) -> Vec<u64> {
            unreachable!()
        }

        fn gather_bytes(&self, _: &[u8]) -> Vec<Vec<u8>> {
            unreachable!()
        }

        fn broadcast(&self, from: u32, value: &mut [u8]) {
            let mut sent = self.sent.lock().unwrap();
            if self.rank == from {
                sent.push_back(value.to_vec());
            } else {
                value.copy_from_slice(&sent.pop_front().unwrap());
            }
        }
    }

    #[test]
    fn what_the_first_rank_tells_takes_one_message_if_it_is_not_much() {
        let sent = Arc::default();
        let [first, other] = [0, 1].map(|rank| {
            let sent = Arc::clone(&sent);
            Ranks::new(End { rank, sent })
        });
        for (len, messages) in [(0, 1), (1, 1), (FIRST, 1), (FIRST + 1, 2), (3 * FIRST, 2)] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(first.broadcast_bytes(0, bytes.clone()), bytes);
            assert_eq!(sent.lock().unwrap().len(), messages, "{len} bytes");
            assert_eq!(other.broadcast_bytes(0, Vec::new()), bytes);
        }
        for found in [Ok(vec![1, 2]), Err(Fault::Refused("no log".into()))] {
            let told = [&first, &other].map(|rank| rank.tell(found.clone()));
            for (outcome, bytes) in told {
                match (outcome, &found) {
                    (GlobalOutcome::Good, Ok(found)) => assert_eq!(bytes, *found),
                    (GlobalOutcome::Failed { rank: 0, reason }, Err(found)) => {
                        assert_eq!(reason, *found);
                    }
                    (outcome, found) => panic!("{outcome:?} of {found:?}"),
                }
            }
        }
    }
}
