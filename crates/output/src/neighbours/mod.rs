//! What the ranks of one node see of each other between two flushes: a rank that reads sees what the others have written.
//!
//! Each rank has a file in memory that the others can open. It holds the buffer of the rank, and *notes* of what was written
//! there, or spilled from there. A write appends a note, and then stores how many there are: it sends no message, and waits
//! for nobody. A rank that reads looks at the number of each of the others. If a program orders a write before a read, as by
//! a barrier, it orders these two, too.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | the file, and what is mapped of it |
//! | `notes` | the notes as words |
//! | this one | the memory of a rank, and where that of the others is |
//!
//! The file has a state, two parts for notes, and one for the data. The state is a number: the *epoch*, and how many words
//! of notes there are in it. An epoch ends where the buffer becomes empty. Notes of even epochs are in one part, those of odd
//! ones in the other, so the next epoch begins with all that was spilled before others see that it has begun. A rank that has
//! read data looks at the epoch again: if it is another one, the data may have been written over, and it begins anew.

mod memory;
pub(crate) mod notes;

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
use notes::Slots;

/// The parts of a file: the state, notes, notes, data.
const PARTS: u64 = 4;
/// Where the data begin.
pub(crate) const DATA: u64 = 3 * PART;
/// Bytes of notes whose memory is kept for later ones.
const KEPT: usize = 1 << 20;
/// The state of a rank whose last notes could not be made.
const LOST: u64 = u64::MAX;

/// Epoch and words of notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub epoch: u32,
    pub words: u32,
}

impl State {
    fn to_bits(self) -> u64 {
        u64::from(self.epoch) << 32 | u64::from(self.words)
    }

    /// Where the notes of its epoch begin in the file.
    pub fn notes(self) -> u64 {
        (1 + u64::from(self.epoch % 2)) * PART
    }
}

/// The memory of this rank.
#[derive(Debug)]
pub(crate) struct Shared {
    file: Arc<HeldFile>,
    word: Word,
    epoch: u32,
    notes: [Bytes; 2],
    /// The lists of blocks that notes of this epoch can name.
    slots: Slots,
    data: Bytes,
    /// The number of complete flushes.
    flush: u64,
    /// What was spilled since then.
    spilled: Vec<[u64; 3]>,
    /// Notes of this epoch could not be made.
    is_lost: bool,
}

impl Shared {
    /// Memory of a rank that has written nothing since so many flushes.
    fn new(flush: u64) -> io::Result<Self> {
        let file = Arc::new(memory::new_file(PARTS)?);
        let mut shared = Shared {
            word: Word::writable(&file)?,
            epoch: 0,
            notes: [1, 2].map(|part| Bytes::new(&file, part)),
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

    /// Makes room for so many bytes of data more.
    pub fn reserve(&mut self, more: usize) -> io::Result<()> {
        self.data.reserve(more)
    }

    /// Bytes of the notes.
    pub fn notes_len(&self) -> u64 {
        self.notes[self.part()].len() as u64
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
        match notes::written(dataset, blocks, stored, &mut self.slots) {
            (head, true) => self.append(&[&head, &blocks.starts, &blocks.counts]),
            (head, false) => self.append(&[&head]),
        }
        self.publish();
        Ok(())
    }

    /// Takes note of an extent that has what was buffered, and empties the buffer.
    pub fn set_spilled(&mut self, file: usize, extent: &Range<u64>) {
        let note = notes::spilled(file, extent);
        let notes_of_extents = size_of::<u64>() + size_of_val(&self.spilled[..]);
        self.spilled.push(note);
        // Without data nothing changes for those who read now.
        if self.data.len() == 0 && self.notes_len() == notes_of_extents as u64 {
            self.append(&[&note]);
            self.publish();
        } else {
            self.begin_epoch();
        }
    }

    /// All of it was flushed.
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
        self.notes[part].clear();
        self.slots = Slots::default();
        let spilled = std::mem::take(&mut self.spilled);
        self.append(&[&[self.flush], spilled.as_flattened()]);
        self.spilled = spilled;
        self.data.clear();
        self.publish();
        // What is written over the old notes and data comes after that, for whoever sees any of it.
        fence(Ordering::SeqCst);
        let old = &mut self.notes[1 - part];
        let has_many = old.len() > KEPT;
        old.clear();
        if has_many {
            old.shrink();
        }
    }

    /// Appends words. Where there is no memory for them, the others cannot see what this rank writes before the next epoch.
    fn append(&mut self, words: &[&[u64]]) {
        let part = self.part();
        let notes = &mut self.notes[part];
        let mut appended = notes.extend_words(words);
        if notes.len() / size_of::<u64>() > u32::MAX as usize {
            appended = Err(io::Error::other("more notes than can be counted"));
        }
        if let Err(e) = appended {
            log::warn!("other ranks cannot see what is written: {e}");
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

    /// Gives back memory that is not in use.
    pub fn shrink(&mut self) {
        self.data.shrink();
        self.notes.iter_mut().for_each(Bytes::shrink);
    }
}

/// The memory of a rank whose log is closed, for the next opening by the same ranks: they see each other's then, too.
#[derive(Debug)]
pub struct NodeMemory {
    pub(crate) shared: Box<Shared>,
    pub(crate) neighbours: Neighbours,
}

impl NodeMemory {
    /// That of a log of which all is flushed.
    pub(crate) fn new(mut shared: Box<Shared>, neighbours: Neighbours) -> Self {
        /// Bytes of each part that stay.
        const MOST: usize = 256 << 10;
        shared.data.shrink_from(MOST);
        let notes = shared.notes.iter_mut();
        notes.for_each(|notes| notes.shrink_from(MOST));
        NodeMemory { shared, neighbours }
    }

    /// How many flushes the log had.
    pub(crate) fn flush(&self) -> u64 {
        self.shared.flush
    }
}

/// Where the memory of a rank is.
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

    /// Opens the file. Another process may have that number where this one sees others.
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

/// The ranks of this node, and where the memory of each is.
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
    /// How far its notes are. `None`: they could not be made.
    pub fn state(&self) -> Option<State> {
        let bits = self.word.get().load(Ordering::Acquire);
        (bits != LOST).then_some(State {
            epoch: (bits >> 32) as u32,
            words: bits as u32,
        })
    }
}

impl Neighbours {
    /// Lets these ranks see what the others write from now on, after so many flushes. `None`, on all of them, where they cannot:
    /// one of them is on another node, or may not open the memory of another. Collective.
    pub(crate) fn share(ranks: &Ranks, flush: u64) -> Option<(Shared, Self)> {
        if ranks.size() == 1 || ranks.node().of > 1 {
            return None;
        }
        let shared = Shared::new(flush);
        let place = shared.as_ref().ok();
        let place = place.and_then(|shared| Place::of(&shared.file).ok());
        // No process has the number 0.
        let all = ranks.all_values(&place.as_ref().map_or([0; 3], Place::to_words));
        let places = all.as_chunks().0.iter().copied().map(Place::from_words);
        let neighbours = Neighbours {
            own: ranks.rank(),
            places: places.collect(),
        };
        // Whoever reads opens them later. Few programs do, and descriptors are scarce.
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

    /// The number of this rank.
    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    /// Opens the memory of all other ranks, in their order.
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
                Fault::from(e).at(format!("what rank {rank} has written cannot be seen"))
            })
        };
        self.others().map(open).collect()
    }
}

#[cfg(test)]
mod tests;
