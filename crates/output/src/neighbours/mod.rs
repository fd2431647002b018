//! Pending writes that the ranks of one node show each other. A rank that reads sees the writes of the others since the
//! last flush.
//!
//! Each rank has a file in memory that the others can open. It holds the buffer of the rank, and *notifications* of
//! writes to the buffer and of spills. A write appends a notification, and then stores the number of notifications. It
//! sends no message, and waits for nobody. A rank that reads looks at this number of each other rank. If a program
//! orders a write before a read, for example by a barrier, the two are ordered here, too.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | the file, and its mapped parts |
//! | `notifications` | notifications as words |
//! | this module | the memory of a rank, and the places of the others' memory |
//!
//! The file has a state, two parts for notifications, and one for the data. The state contains the *epoch*, and the number of
//! words of notifications in it. An epoch ends when the buffer becomes empty. Even epochs use one part for notifications, odd
//! ones the other, so the next epoch begins with all spills before others see that it has begun. A rank that has read data
//! looks at the epoch again. If it has changed, the data may have been overwritten, and the rank begins anew.

mod memory;
pub(crate) mod notifications;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::entries::DatasetInfo;
use crate::ranks::Ranks;
use crate::selection::Blocks;
use h5logfs_common::fault::Fault;
use h5logfs_common::held_file::HeldFile;
use memory::{Bytes, PART, Word};
use notifications::Slots;

/// Number of parts of a file: the state, two for notifications, the data.
const PARTS: u64 = 4;
/// Offset of the data.
pub(crate) const DATA: u64 = 3 * PART;
/// Bytes of notifications whose memory is kept for later ones.
const KEPT: usize = 1 << 20;
/// The state of a rank that could not store its last notifications.
const LOST: u64 = u64::MAX;

/// An epoch, and its number of words of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub epoch: u32,
    pub words: u32,
}

impl State {
    fn to_bits(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.words)
    }

    /// Offset of this epoch's notifications in the file.
    pub fn notifications(self) -> u64 {
        (1 + u64::from(self.epoch % 2)) * PART
    }
}

/// The memory of this rank.
#[derive(Debug)]
pub(crate) struct Shared {
    file: Arc<HeldFile>,
    word: Word,
    epoch: u32,
    notifications: [Bytes; 2],
    /// Lists of blocks that notifications of this epoch can refer to.
    slots: Slots,
    data: Bytes,
    /// Number of complete flushes.
    flush: u64,
    /// Extents spilled since then.
    spilled: Vec<[u64; 3]>,
    /// Whether notifications of this epoch could not be stored.
    is_lost: bool,
}

impl Shared {
    /// The memory of a rank that has written nothing since flush `flush`.
    fn new(flush: u64) -> io::Result<Self> {
        let file = Arc::new(memory::new_file(PARTS)?);
        let mut shared = Shared {
            word: Word::writable(&file)?,
            epoch: 0,
            notifications: [1, 2].map(|part| Bytes::new(&file, part)),
            slots: Slots::default(),
            data: Bytes::new(&file, 3),
            flush,
            spilled: Vec::new(),
            is_lost: false,
            file,
        };
        shared.begin_epoch();
        Ok(shared)
    }

    /// The data.
    pub fn data(&self) -> &Bytes {
        &self.data
    }

    /// Makes room for `more` bytes of data.
    pub fn reserve(&mut self, more: usize) -> io::Result<()> {
        self.data.reserve(more)
    }

    /// Bytes of the notifications.
    pub fn notes_len(&self) -> u64 {
        self.notifications[self.part()].len() as u64
    }

    fn part(&self) -> usize {
        (self.epoch % 2) as usize
    }

    /// Adds the data of a record.
    pub fn push(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.data.extend(bytes)?;
        let stored = bytes.len() as u64;
        match notifications::written(dataset, blocks, stored, &mut self.slots) {
            (head, true) => self.append(&[&head, &blocks.starts, &blocks.counts]),
            (head, false) => self.append(&[&head]),
        }
        self.publish();
        Ok(())
    }

    /// Records an extent with the buffered data, and empties the buffer.
    pub fn set_spilled(&mut self, file: usize, extent: &Range<u64>) {
        let notification = notifications::spilled(file, extent);
        let notes_of_extents = size_of::<u64>() + size_of_val(&self.spilled[..]);
        self.spilled.push(notification);
        // Without data nothing changes for present readers.
        if self.data.len() == 0 && self.notes_len() == notes_of_extents as u64 {
            self.append(&[&notification]);
            self.publish();
        } else {
            self.begin_epoch();
        }
    }

    /// Records that flush `flush` has written the buffer.
    pub fn set_flushed(&mut self, flush: u64) {
        self.flush = flush;
        self.spilled.clear();
        self.begin_epoch();
    }

    /// Empties the buffer.
    fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.is_lost = false;
        let part = self.part();
        self.notifications[part].clear();
        self.slots = Slots::default();
        let spilled = std::mem::take(&mut self.spilled);
        self.append(&[&[self.flush], spilled.as_flattened()]);
        self.spilled = spilled;
        self.data.clear();
        self.publish();
        // Anyone who sees new bytes in the place of old notifications or data also sees the new epoch.
        fence(Ordering::SeqCst);
        let old = &mut self.notifications[1 - part];
        let has_many = old.len() > KEPT;
        old.clear();
        if has_many {
            old.shrink();
        }
    }

    /// Appends words. Without memory for them, the others see nothing of this rank until the next epoch.
    fn append(&mut self, words: &[&[u64]]) {
        let part = self.part();
        let notifications = &mut self.notifications[part];
        let mut appended = notifications.extend_words(words);
        if notifications.len() / size_of::<u64>() > u32::MAX as usize {
            appended = Err(io::Error::other("too many notifications"));
        }
        if let Err(e) = appended {
            log::warn!("other ranks cannot see the writes of this one: {e}");
            self.is_lost = true;
        }
    }

    fn publish(&self) {
        let state = State {
            epoch: self.epoch,
            words: (self.notes_len() / 8) as u32,
        };
        let bits = if self.is_lost { LOST } else { state.to_bits() };
        self.word.get().store(bits, Ordering::Release);
    }

    /// Releases unused memory.
    pub fn shrink(&mut self) {
        self.data.shrink();
        self.notifications.iter_mut().for_each(Bytes::shrink);
    }
}

/// The memory of a rank whose log is closed, for the next opening by the same ranks.
#[derive(Debug)]
pub struct NodeMemory {
    pub(crate) shared: Box<Shared>,
    pub(crate) neighbours: Neighbours,
}

impl NodeMemory {
    /// The memory of a log that is completely flushed.
    pub(crate) fn new(mut shared: Box<Shared>, neighbours: Neighbours) -> Self {
        /// Bytes of each part that stay allocated.
        const MOST: usize = 256 << 10;
        shared.data.shrink_from(MOST);
        let notifications = shared.notifications.iter_mut();
        notifications.for_each(|notifications| notifications.shrink_from(MOST));
        NodeMemory { shared, neighbours }
    }

    /// Number of flushes of the log.
    pub(crate) fn flush(&self) -> u64 {
        self.shared.flush
    }
}

/// The place of a rank's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    process: u32,
    descriptor: i32,
    device: u64,
    inode: u64,
}

impl Place {
    fn of(file: &File) -> io::Result<Self> {
        let found = file.metadata()?;
        Ok(Place {
            process: std::process::id(),
            descriptor: file.as_raw_fd(),
            device: found.dev(),
            inode: found.ino(),
        })
    }

    fn to_words(&self) -> [u64; 3] {
        let number = u64::from(self.process) << 32 | u64::from(self.descriptor.cast_unsigned());
        [number, self.device, self.inode]
    }

    fn from_words([number, device, inode]: [u64; 3]) -> Self {
        Place {
            process: (number >> 32) as u32,
            descriptor: (number as u32).cast_signed(),
            device,
            inode,
        }
    }

    /// Opens the file. In another PID namespace, the process ID may belong to another process.
    fn open(&self) -> io::Result<(File, PathBuf)> {
        let path = PathBuf::from(format!("/proc/{}/fd/{}", self.process, self.descriptor));
        let file = File::open(&path)?;
        let found = file.metadata()?;
        if (found.dev(), found.ino()) != (self.device, self.inode) {
            return Err(io::Error::other("it leads to another file"));
        }
        Ok((file, path))
    }
}

/// The ranks of this node, and the places of their memory.
#[derive(Debug)]
pub struct Neighbours {
    own: u32,
    places: Vec<Place>,
}

/// The memory of another rank.
#[derive(Debug)]
pub(crate) struct Opened {
    pub rank: u32,
    pub file: File,
    pub path: PathBuf,
    word: Word,
}

impl Opened {
    /// The state of its notifications. `None`: they could not be stored.
    pub fn state(&self) -> Option<State> {
        let bits = self.word.get().load(Ordering::Acquire);
        (bits != LOST).then_some(State {
            epoch: (bits >> 32) as u32,
            words: bits as u32,
        })
    }
}

impl Neighbours {
    /// Lets these ranks see each other's writes from now on, after flush `flush`. `None`, on all ranks, if they cannot: one
    /// of them is on another node, or may not open another's memory. Collective.
    pub(crate) fn share(ranks: &Ranks, flush: u64) -> Option<(Shared, Self)> {
        if ranks.size() == 1 || ranks.node().of > 1 {
            return None;
        }
        let shared = Shared::new(flush);
        let place = shared.as_ref().ok();
        let place = place.and_then(|shared| Place::of(&shared.file).ok());
        // No process has the ID 0.
        let all = ranks.all_values(&place.as_ref().map_or([0; 3], Place::to_words));
        let places = all.as_chunks().0.iter().copied().map(Place::from_words);
        let neighbours = Neighbours {
            own: ranks.rank(),
            places: places.collect(),
        };
        // The first read opens them. Few programs read, and descriptors are scarce.
        let can_open = neighbours.others().all(|(_, place)| place.open().is_ok());
        let is_good = place.is_some() && can_open;
        let shared = shared
            .ok()
            .filter(|_| ranks.first(!is_good).is_none() && is_good);
        Some((shared?, neighbours))
    }

    fn others(&self) -> impl Iterator<Item = (u32, &Place)> {
        let own = self.own;
        (0..)
            .zip(&self.places)
            .filter(move |(rank, _)| *rank != own)
    }

    /// Number of this rank.
    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    /// Opens the memory of all other ranks, in order.
    pub(crate) fn open(&self) -> Result<Vec<Opened>, Fault> {
        let open = |(rank, place): (u32, &Place)| {
            let (file, path) = place.open()?;
            let word = Word::readable(&file)?;
            Ok(Opened {
                rank,
                file,
                path,
                word,
            })
        };
        let open = |(rank, place)| {
            let opened: io::Result<Opened> = open((rank, place));
            opened.map_err(|e| {
                Fault::from(e).at(format!("the writes of rank {rank} are not visible"))
            })
        };
        self.others().map(open).collect()
    }
}

#[cfg(test)]
mod tests;
