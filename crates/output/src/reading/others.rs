//! Pending writes of another rank of this node.

use std::ops::Range;

use std::sync::atomic::{Ordering, fence};

use super::Pending;
use crate::entries::DatasetInfo;
use crate::joining::JoinedSection;
use crate::neighbours::notifications::{self, Notification, Slots};
use crate::neighbours::{DATA, Opened, State};
use crate::selection::Blocks;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;
use h5logfs_log::Logged;
use h5logfs_log::source_file::SourceFile;
use h5logfs_view::index::DatasetIndex;

/// An extent, and the number of its data file.
type Extent = (usize, Range<u64>);

/// Another rank, with the state of its notifications already read.
pub(super) struct Other {
    opened: Opened,
    /// Number of the source with its data.
    source: u16,
    /// The state up to which the notifications were read. `None`: no notification was read.
    known: Option<State>,
    /// Number of complete flushes at the start of the notifications.
    flush: u64,
    /// Bytes of data in the notifications read.
    data: u64,
    /// Lists of blocks that notifications can refer to.
    slots: [Blocks; Slots::NUMBER],
    /// Entries made from the notifications.
    section: JoinedSection,
    pending: Pending,
    /// Extents spilled since the flush, and the number of them that were taken.
    extents: Vec<Extent>,
    taken: usize,
}

impl Other {
    pub fn new(task: &Task, opened: Opened, source: u16) -> Self {
        Other {
            opened,
            source,
            known: None,
            flush: 0,
            data: 0,
            slots: Default::default(),
            section: empty_section(),
            pending: Pending::new(task, source),
            extents: Vec::new(),
            taken: 0,
        }
    }

    /// Number of the rank.
    pub fn rank(&self) -> u32 {
        self.opened.rank
    }

    pub fn source(&self) -> u16 {
        self.source
    }

    /// Reads the notifications since the last call from `memory`. `flush` is the last flush that this rank knows. Returns
    /// whether the earlier ones are no longer pending.
    pub fn update(&mut self, task: &Task, flush: u64, memory: &SourceFile) -> Result<bool, Fault> {
        let mut has_changed = false;
        loop {
            let state = self.state()?;
            let is_same_epoch = self.known.is_some_and(|known| known.epoch == state.epoch);
            if is_same_epoch && self.flush == flush && self.known == Some(state) {
                return Ok(has_changed);
            }
            let from = if is_same_epoch { self.known } else { None };
            let words = read_notifications(memory, state, from)?;
            if self.state()?.epoch != state.epoch {
                continue;
            }
            let mut words = &words[..];
            if from.is_none() {
                let (first, rest) = words.split_first().unwrap_or((&0, &[]));
                has_changed = true;
                self.forget(task, *first);
                words = rest;
            }
            self.known = Some(state);
            self.take(words)?;
            if self.flush != flush {
                // The writes were flushed, and the rank has not made new ones yet.
                self.forget(task, self.flush);
                return Ok(true);
            }
            self.pending.update(task, self.section.section())?;
            return Ok(has_changed);
        }
    }

    fn state(&self) -> Result<State, Fault> {
        self.opened.state().ok_or_else(|| {
            format!(
                "rank {} could not notify the others of its writes: a flush makes them visible",
                self.rank()
            )
            .into()
        })
    }

    /// Forgets the pending entries and, after another number of flushes, the spilled extents.
    fn forget(&mut self, task: &Task, flush: u64) {
        if flush != self.flush {
            self.taken = 0;
        }
        self.flush = flush;
        self.data = 0;
        self.slots = Default::default();
        self.section = empty_section();
        self.pending = Pending::new(task, self.source);
        self.extents.clear();
    }

    fn take(&mut self, mut words: &[u64]) -> Result<(), Fault> {
        while !words.is_empty() {
            match notifications::take(&mut words) {
                Some(Notification::Spilled { file, extent }) => self.extents.push((file, extent)),
                Some(Notification::Written {
                    dataset,
                    filtered,
                    slot,
                    blocks,
                    stored,
                }) => {
                    self.add(dataset, filtered, &blocks, stored);
                    if let Some(kept) = slot.checked_sub(1) {
                        self.slots[kept] = blocks;
                    }
                }
                Some(Notification::Again {
                    dataset,
                    filtered,
                    slot,
                    first,
                    stored,
                }) => {
                    let kept = slot.checked_sub(1);
                    let kept = kept.filter(|kept| self.slots[*kept].number > 0);
                    let kept = kept.ok_or_else(|| self.damaged())?;
                    let mut blocks = std::mem::take(&mut self.slots[kept]);
                    blocks.move_to(first);
                    self.add(dataset, filtered, &blocks, stored);
                    self.slots[kept] = blocks;
                }
                None => return Err(self.damaged()),
            }
        }
        Ok(())
    }

    fn damaged(&self) -> Fault {
        let rank = self.rank();
        format!("the notifications of rank {rank} are damaged").into()
    }

    fn add(&mut self, dataset: u32, filtered: bool, blocks: &Blocks, stored: u64) {
        // The extent does not matter here.
        let dims = vec![u64::MAX; blocks.rank];
        let info = DatasetInfo {
            id: dataset,
            dims: &dims,
            records: false,
            filtered,
        };
        self.section.push(info, blocks, self.data, stored);
        self.data = self.data.saturating_add(stored);
    }

    /// The extents spilled since the last call.
    pub fn new_extents(&mut self) -> impl Iterator<Item = &Extent> {
        let new = self.extents.get(self.taken..).unwrap_or_default();
        self.taken += new.len();
        new.iter()
    }

    /// Whether the data of the known entries were still intact, so that everything read before this call is valid.
    pub fn is_still_there(&self) -> bool {
        fence(Ordering::Acquire);
        let known = self.known.map(|known| known.epoch);
        self.opened.state().map(|state| state.epoch) == known
    }

    /// Indexes the entries of a dataset.
    pub fn index(&mut self, task: &Task, dataset: &Logged<'_>) -> Result<(), Fault> {
        self.pending.index(task, self.section.section(), dataset)
    }

    /// The indexes of a dataset.
    pub fn indexes_of(&self, dataset: i64) -> impl Iterator<Item = &DatasetIndex> {
        self.pending.indexes.of(dataset)
    }
}

/// An empty section for data in a rank's memory. Only this process reads it, so nothing in it is compressed.
fn empty_section() -> JoinedSection {
    let mut section = JoinedSection::new(false, false);
    section.section().set_base(DATA);
    section
}

/// The words of a state that follow an earlier state of its epoch.
fn read_notifications(
    memory: &SourceFile,
    state: State,
    from: Option<State>,
) -> Result<Vec<u64>, Fault> {
    const WORD: u64 = size_of::<u64>() as u64;
    let known = from.map_or(0, |from| from.words);
    let number = state.words.saturating_sub(known) as usize;
    let mut bytes = vec![0; number * WORD as usize];
    let begin = state.notifications() + u64::from(known) * WORD;
    let read = memory.read_exact_at(&mut bytes, begin);
    read?;
    fence(Ordering::Acquire);
    let words = bytes.as_chunks().0.iter();
    Ok(words.map(|word| u64::from_ne_bytes(*word)).collect())
}
