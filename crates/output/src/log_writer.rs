//! A rank's part in writing a log: its buffer, and the collective flush.
//!
//! Every flush has the same order, whatever its cause. Each rank writes its extent. All ranks agree on the outcome and on the
//! ends of the data files. The first rank commits the flush in the journal, and the others follow. Until then each rank keeps
//! its buffer, and can repeat the flush. After a failure the data files are cut off after the last flush and the spilled
//! data.

use std::borrow::Cow;
use std::sync::Arc;

use h5logfs_log::journal::Line;

use crate::automatic::{self, Automatic, Call, Cause};
use crate::buffer::Buffer;
use crate::check_outcome;
use crate::entries::{DatasetInfo, Section};
use crate::error::{Error, FaultResult, Result, forked};
use crate::files::Files;
use crate::flushed::Flushed;
use crate::joining::JoinedSection;
use crate::neighbours::{Neighbours, NodeMemory};
use crate::options::Options;
use crate::plain_close::Ended;
use crate::ranks::{Agreement, GlobalOutcome, LocalOutcome, Ranks};
use crate::reading::Written;
use crate::selection::Blocks;
use crate::stored::{self, Form};
use h5logfs_common::fault::Fault;

/// Writes of at least this size go directly to the data file if they can. For smaller ones an extent costs more than a copy.
const LARGE: u64 = 512 << 10;

/// Size at which a buffer goes to the data file if it can. Its data are still in the processor's caches then, and
/// little is left for the flush.
const EARLY: u64 = 4 << 20;

/// A log that this process writes, alone or with other ranks.
pub struct LogWriter {
    ranks: Ranks,
    files: Files,
    section: JoinedSection,
    /// The data of the pending entries.
    data: Buffer,
    /// Shows this rank the pending writes of others, and others its own.
    neighbours: Option<Neighbours>,
    options: Options,
    /// Whether the buffer goes to the data file long before it is full.
    spills_early: bool,
    /// `None`: only the user of the log flushes.
    automatic: Option<Automatic>,
    peaks: Peaks,
}

/// The most bytes of data and of entries since memory was released.
#[derive(Default)]
struct Peaks {
    data: u64,
    entries: u64,
}

/// A rank's contribution to a flush, besides its buffer.
pub struct Part<'a> {
    /// Data of the last pending entries, after those of the buffer. `None`: the rank writes nothing, because this flush will
    /// not be committed.
    pub data: Option<&'a [&'a [u8]]>,
    /// Whether this rank lets the flush be committed.
    pub outcome: LocalOutcome,
    /// The cause of the flush, the same on all ranks.
    pub cause: Cause,
    /// A number that should be equal on all ranks.
    pub same: u64,
    /// Numbers whose maximum over all ranks is computed. All ranks have the same count of them.
    pub numbers: Vec<u64>,
}

/// The agreement of all ranks about a flush that they have written.
pub struct Agreed<'a> {
    /// The ranks, for further communication.
    pub ranks: &'a Ranks,
    /// Whether [`Part::same`] was equal on all ranks.
    pub same: bool,
    /// The maximum of each of the [`Part::numbers`].
    pub numbers: &'a [u64],
}

impl LogWriter {
    /// A log whose entries leave the memory with each flush. [`LogWriter::entries`] returns them for the close. Collective.
    pub fn new(ranks: Ranks, mut files: Files, options: Options) -> Self {
        files.share_spills();
        let mut writer = Self::with_entries(ranks, files, options);
        let file = Arc::clone(writer.files.local());
        writer.section().keep_in(file);
        writer
    }

    /// A log that this rank also reads. Ranks of one node see each other's pending writes. Collective.
    pub fn with_reads(ranks: Ranks, files: Files, options: Options) -> Self {
        Self::with_memory(ranks, files, options, None)
    }

    /// [`LogWriter::with_reads`] with the memory that these ranks had when they closed the log in its present state. All
    /// ranks have it, or none. Collective.
    pub fn with_memory(
        ranks: Ranks,
        mut files: Files,
        options: Options,
        memory: Option<NodeMemory>,
    ) -> Self {
        files.share_spills();
        let flushes = files.flushes();
        let memory = memory
            .filter(|memory| memory.flush() == flushes)
            .or_else(|| {
                let (shared, neighbours) = Neighbours::share(&ranks, flushes)?;
                Some(NodeMemory {
                    shared: shared.into(),
                    neighbours,
                })
            });
        let (data, neighbours) = match memory {
            Some(memory) => (Buffer::Shared(memory.shared), Some(memory.neighbours)),
            None => (Buffer::Own(Vec::new()), None),
        };
        LogWriter {
            data,
            neighbours,
            ..Self::with_entries(ranks, files, options)
        }
    }

    fn with_entries(ranks: Ranks, files: Files, options: Options) -> Self {
        let mut section = JoinedSection::new(options.share_selections, options.encode_selections);
        if options.deflate_selections {
            section.deflate_regular();
        }
        LogWriter {
            section,
            ranks,
            files,
            data: Buffer::Own(Vec::new()),
            neighbours: None,
            automatic: Automatic::of(&options, automatic::now()),
            options,
            spills_early: true,
            peaks: Peaks::default(),
        }
    }

    /// The ranks of the job.
    pub fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Whether this process was forked from the rank that opened the log. Such a process changes nothing of the log, and
    /// takes part in no collective call: its memory is as old as the fork.
    pub fn is_forked(&self) -> bool {
        !self.ranks.process().is_this()
    }

    /// Fails if [`LogWriter::is_forked`].
    pub fn check_process(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Error::Forked {
            file: self.files.path().to_owned(),
            process: self.ranks.process().id(),
        })
    }

    /// [`LogWriter::check_process`] for the action of one rank.
    fn check_own(&self) -> FaultResult {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Fault::Refused(forked(self.ranks.process().id())))
    }

    /// Fails if a forked process would read data that have changed since the fork. Call it before and after a read.
    pub fn check_read(&self) -> FaultResult {
        if !self.is_forked() {
            return Ok(());
        }
        if self.ranks.size() > 1 {
            return Err(Fault::Refused(
                "this process was forked from a rank of a parallel job, and cannot read their writes: it has to \
                 open the file by itself"
                    .into(),
            ));
        }
        self.files.check_unclosed()
    }

    /// The files of the log.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The options of the log.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The entries of this rank, for entries without data in the buffer.
    pub fn section(&mut self) -> &mut Section {
        self.section.section()
    }

    /// The flushed entries; `None` if they stay in memory.
    pub fn entries(&self) -> Option<&Flushed> {
        self.section.in_file()
    }

    /// The reader's view of the log.
    pub fn written(&mut self) -> Written<'_> {
        Written {
            files: &self.files,
            section: self.section.section(),
            data: self.data.bytes(),
            neighbours: self.neighbours.as_ref(),
        }
    }

    /// Whether this rank sees all pending writes of all others. The same on all ranks.
    pub fn sees_all(&self) -> bool {
        self.ranks.size() == 1 || self.neighbours.is_some()
    }

    /// Begins a call of the program. Returns whether all ranks must flush in it [automatically](Cause::Automatic), which is
    /// the same on all ranks. Otherwise spills data that have been in the buffer too long.
    pub fn begin_call(&mut self, call: Call) -> bool {
        if self.is_forked() {
            return false;
        }
        if call == Call::Collective {
            self.spill_while_waiting();
        }
        let Some(automatic) = &mut self.automatic else {
            return false;
        };
        let has_room = self.files.has_room_for_more();
        let must_flush = automatic.begin_call(&self.ranks, call, automatic::now(), has_room);
        if !must_flush {
            self.spill_old();
        }
        must_flush
    }

    /// Begins a call that tells the other ranks nothing. Spills data that have been in the buffer too long. Local.
    pub fn begin_write(&mut self) {
        if self.is_forked() {
            return;
        }
        if let Some(automatic) = &mut self.automatic {
            automatic.set_now(automatic::now());
            self.spill_old();
        }
    }

    /// Age at which the buffer is spilled, in flush intervals.
    fn patience(&self) -> u32 {
        // Data that wait in another file are written twice, so flushes get the chance to come in time.
        if self.files.spills_in_place() { 1 } else { 2 }
    }

    /// Spills old data before a long wait for the next word, which comes late if another rank is late. A waiting rank makes
    /// no other call.
    fn spill_while_waiting(&mut self) {
        let patience = self.patience();
        if let Some(automatic) = &mut self.automatic
            && !automatic.wait_for_word(patience)
        {
            self.begin_write();
        }
    }

    /// Brings all ranks to a flush. Afterwards no word is pending.
    fn go_to_flush(&mut self) {
        loop {
            self.spill_while_waiting();
            let automatic = self.automatic.as_mut();
            if !automatic.is_some_and(|automatic| automatic.step_to_flush(&self.ranks)) {
                return;
            }
        }
    }

    /// Spills the buffer if it has waited for a flush too long.
    fn spill_old(&mut self) {
        let patience = self.patience();
        let is_old = |automatic: &Automatic| automatic.is_old(patience);
        if self.section.pending_len() == 0 || !self.automatic.as_ref().is_some_and(is_old) {
            return;
        }
        let spilled = self.spill(&[]);
        // The buffer is unchanged. If it still cannot be written, the next flush, or a full buffer, reports why.
        if spilled.is_err()
            && let Some(automatic) = &mut self.automatic
        {
            automatic.set_spilled(false);
        }
    }

    /// Bytes of data and entries in the buffer.
    pub fn buffered(&self) -> u64 {
        self.data_len() + self.entries_len()
    }

    /// Bytes of the entries in the buffer, and of the notifications about them.
    fn entries_len(&self) -> u64 {
        self.section.pending_len() + self.data.notes_len()
    }

    /// Bytes of data in the buffer.
    pub fn data_len(&self) -> u64 {
        self.data.len()
    }

    /// Whether this rank has pending writes.
    pub fn has_unflushed(&self) -> bool {
        !self.files.spilled().is_empty() || self.section.pending_len() > 0
    }

    /// Whether a write takes no room in the buffer: a large one, or one larger than the whole buffer, goes directly to the
    /// file. Filtered data become small first.
    pub fn goes_through(&self, form: Form<'_>, blocks: &Blocks) -> bool {
        let bytes = blocks.elements.saturating_mul(form.element);
        let is_large = bytes >= LARGE && form.filters.is_empty() && self.files.spills_in_place();
        is_large || self.is_larger_than_all(blocks, bytes)
    }

    /// Whether a record of `bytes` bytes does not fit into an empty buffer.
    fn is_larger_than_all(&self, blocks: &Blocks, bytes: u64) -> bool {
        bytes.saturating_add(blocks.max_encoded_len()) > self.options.buffer_limit
    }

    /// Logs the elements of `blocks` of a dataset, in the type of the file. Makes room for them if the buffer is full. After
    /// an error none of them is logged, except for a write that [goes to the file](Self::goes_through) in several records:
    /// the records before the failed one remain.
    pub fn push(
        &mut self,
        dataset: DatasetInfo<'_>,
        form: Form<'_>,
        blocks: &Blocks,
        elements: Cow<'_, [u8]>,
    ) -> FaultResult {
        self.check_own()?;
        if let Some(automatic) = &mut self.automatic {
            automatic.add_logged(elements.len() as u64);
        }
        let goes_through = self.goes_through(form, blocks);
        if !goes_through {
            self.reserve(elements.len(), blocks)?;
            if stored::is_one_record(form, blocks, elements.len() as u64) {
                return self.push_record(dataset, blocks, &elements);
            }
        }
        let mut pushed = Ok(());
        stored::records(
            form,
            self.options.threads,
            blocks,
            elements,
            &mut |blocks, bytes| {
                if pushed.is_ok() {
                    pushed = if goes_through {
                        self.push_through(dataset, blocks, &bytes)
                    } else {
                        self.push_record(dataset, blocks, &bytes)
                    };
                }
            },
        );
        pushed
    }

    /// Makes room in the buffer for `bytes` bytes, and for the entries of these blocks.
    fn reserve(&mut self, bytes: usize, blocks: &Blocks) -> FaultResult {
        self.make_room((bytes as u64).saturating_add(blocks.max_encoded_len()), 0)?;
        self.data.reserve(bytes)
    }

    /// Logs a record in the buffer, which has room for it.
    fn push_record(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        bytes: &[u8],
    ) -> FaultResult {
        let len = bytes.len() as u64;
        self.section.push(dataset, blocks, self.data.len(), len);
        self.data.push(dataset, blocks, bytes)
    }

    /// Logs a record after the buffered ones, and spills all of them. A small record waits in the buffer.
    fn push_through(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        bytes: &[u8],
    ) -> FaultResult {
        let len = bytes.len() as u64;
        if len < LARGE && !self.is_larger_than_all(blocks, len) {
            self.reserve(bytes.len(), blocks)?;
            return self.push_record(dataset, blocks, bytes);
        }
        let offset = self.data_len();
        let section = self.section.section();
        let before = section.len();
        section.push(dataset, blocks, offset, len);
        let spilled = self.spill(&[bytes]);
        if spilled.is_err() {
            self.section().truncate(before);
        }
        spilled
    }

    /// Adds entries whose data come with the flush: see [`Part::data`]. Their data begin at `offset` in the data of the
    /// flush.
    pub fn push_entry(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        offset: u64,
        stored: u64,
    ) {
        self.section.push(dataset, blocks, offset, stored);
    }

    /// Adds data whose entries exist. Not for a log that is read.
    pub fn push_data(&mut self, data: &[u8]) {
        self.data.extend(data);
    }

    /// Spills the buffer if it has no room for `wanted` more bytes. `beside`: other bytes that count against its limit.
    pub fn make_room(&mut self, wanted: u64, beside: u64) -> FaultResult {
        let all = self.buffered().saturating_add(wanted);
        let is_full = all.saturating_add(beside) > self.options.buffer_limit;
        let is_early = all > EARLY && self.spills_early && self.files.spills_in_place();
        let mut spilled = Ok(());
        if (is_full || is_early) && self.section.pending_len() > 0 {
            spilled = self.spill(&[]);
            // After a failure the buffer may fill up.
            self.spills_early = spilled.is_ok();
        }
        self.give_back();
        if is_full { spilled } else { Ok(()) }
    }

    /// Releases memory that data or entries took in earlier flushes, if both together would take more than the limit.
    fn give_back(&mut self) {
        const MORE: u64 = 16 << 20;
        let (data, entries) = (self.data_len(), self.entries_len());
        let peaks = &mut self.peaks;
        peaks.data = peaks.data.max(data);
        peaks.entries = peaks.entries.max(entries);
        if peaks.data + peaks.entries > self.options.buffer_limit.saturating_add(MORE) {
            self.data.shrink();
            self.section.shrink();
            self.peaks = Peaks { data, entries };
        }
    }

    /// Writes the buffer, followed by `more` data of the last pending entries, before the flush. They count with the next
    /// flush. Local. After an error nothing is written, and the buffer is unchanged.
    pub fn spill(&mut self, more: &[&[u8]]) -> FaultResult {
        self.check_own()?;
        let pieces = [&[self.data.bytes()], more].concat();
        let section = self.section.section();
        self.files.spill(self.ranks.rank(), section, &pieces)?;
        section.forget_flushed();
        if let Some(automatic) = &mut self.automatic {
            automatic.set_spilled(true);
        }
        let extent = self.files.spilled().last();
        self.data.set_spilled(self.files.file_number(), extent);
        Ok(())
    }

    /// Writes the buffers of all ranks, and commits them together. From then on they survive any failure of the processes.
    ///
    /// Each rank calls `lines` after it has written its part. The lines of the first rank go into the journal before the
    /// commit. `None` (on all ranks) commits nothing; a failure must be the same on all ranks. After a failure, or without a
    /// commit, the buffer is unchanged.
    ///
    /// Returns the outcome, which may be a refusal; `None` without a commit. Collective.
    pub fn flush(
        &mut self,
        part: Part<'_>,
        lines: impl FnOnce(Agreed<'_>) -> std::result::Result<Option<Vec<Line>>, GlobalOutcome>,
    ) -> Result<Option<GlobalOutcome>> {
        self.check_process()?;
        self.go_to_flush();
        let flushed = self.write_and_commit(part, lines);
        if let Some(automatic) = &mut self.automatic {
            automatic.set_flushed(automatic::now(), matches!(flushed, Ok(Some(_))));
        }
        let failed = match flushed {
            Ok(outcome) => return Ok(outcome),
            Err(failed) => failed,
        };
        self.files.cut();
        check_outcome(self.files.path(), "flush", failed).map(|()| None)
    }

    fn write_and_commit(
        &mut self,
        part: Part<'_>,
        lines: impl FnOnce(Agreed<'_>) -> std::result::Result<Option<Vec<Line>>, GlobalOutcome>,
    ) -> std::result::Result<Option<GlobalOutcome>, GlobalOutcome> {
        self.spills_early = true;
        let Self {
            ranks,
            files,
            section,
            data,
            options,
            ..
        } = self;
        let section = section.section();
        let pieces = part.data.map(|more| [&[data.bytes()], more].concat());
        let written = files.write_extent(ranks.rank(), section, pieces.as_deref(), options.fsync);
        let outcome = match written.written {
            Ok(()) => part.outcome,
            Err(reason) => LocalOutcome::Failed(reason),
        };
        let mut ends = files.ends_with(written.end);
        let number = ends.len();
        ends.extend(part.numbers);
        let Agreement { outcome, same } = ranks.agree_on(outcome, part.same, &mut ends);
        if matches!(outcome, GlobalOutcome::Failed { .. }) {
            return Err(outcome);
        }
        let numbers = ends.split_off(number);
        let numbers = &numbers[..];
        let Some(lines) = lines(Agreed {
            ranks,
            same,
            numbers,
        })?
        else {
            return Ok(None);
        };
        let committed = files.commit(&ends, lines, part.cause, options.fsync);
        match ranks.follow_root(committed) {
            GlobalOutcome::Good => {}
            failed => return Err(failed),
        }
        files.set_committed(ends, part.cause);
        section.set_moved(written.moved);
        section.set_flushed();
        section.forget_flushed();
        data.set_flushed(files.flushes());
        Ok(Some(outcome))
    }

    /// Closes the files, and releases the lock of the journal. Collective.
    pub fn close(self) -> Ranks {
        self.files.close();
        self.ranks
    }

    /// Closes the files, and keeps the lock. Also returns the memory that the ranks of a node share. Collective.
    pub fn finish(self) -> (Ranks, Ended, Option<NodeMemory>) {
        let memory = match (self.data, self.neighbours) {
            (Buffer::Shared(shared), Some(neighbours)) => Some(NodeMemory::new(shared, neighbours)),
            _ => None,
        };
        (self.ranks, self.files.finish(), memory)
    }

    /// Leaks the objects that only collective calls could free.
    pub fn leak(self) {
        self.files.leak();
        self.ranks.leak();
    }
}

#[cfg(test)]
mod tests;
