//! The part of a rank in the writing of a log: its buffer, and the flush that all ranks make together.
//!
//! A flush has one order, whoever asks for it. Each rank writes its extent. All ranks agree on the outcome, and on how far
//! the data files reach. The first rank commits the flush in the journal, and the others follow it. Up to that every rank
//! keeps what it has, and can make the flush again. After a failure the data files are cut off behind the last flush and
//! what was spilled since.

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

/// Writes of so many bytes or more go to the data file at once where they can: below that, an extent costs more than a copy.
const LARGE: u64 = 512 << 10;

/// A buffer of so many bytes goes to the data file where it can: it is still in the caches of the processor then, and the flush
/// has little left to write.
const EARLY: u64 = 4 << 20;

/// A log that this process writes, alone or with other ranks.
pub struct LogWriter {
    ranks: Ranks,
    files: Files,
    section: JoinedSection,
    /// The data of the pending entries.
    data: Buffer,
    /// Where this rank sees what others write, and they see what it writes.
    neighbours: Option<Neighbours>,
    options: Options,
    /// The buffer goes to the data file long before it is full.
    spills_early: bool,
    /// `None`: it is flushed only when its user says so.
    automatic: Option<Automatic>,
    peaks: Peaks,
}

/// The most bytes that data and entries had since memory was given back.
#[derive(Default)]
struct Peaks {
    data: u64,
    entries: u64,
}

/// What a rank brings to a flush, besides its buffer.
pub struct Part<'a> {
    /// Data of the last pending entries, which follow those of the buffer. `None`: the rank writes nothing, because this
    /// flush will not be committed.
    pub data: Option<&'a [&'a [u8]]>,
    /// Whether this rank lets the flush be committed.
    pub outcome: LocalOutcome,
    /// Who wants the flush. The same on all ranks.
    pub cause: Cause,
    /// A number that should be the same on all ranks.
    pub same: u64,
    /// Numbers of which all ranks want to know the largest. All ranks have as many.
    pub numbers: Vec<u64>,
}

/// What all ranks know of a flush that they have written.
pub struct Agreed<'a> {
    /// The ranks, which may have to say more.
    pub ranks: &'a Ranks,
    /// [`Part::same`] was the same on all of them.
    pub same: bool,
    /// The largest of each of the [`Part::numbers`].
    pub numbers: &'a [u64],
}

impl LogWriter {
    /// Writes a log whose entries leave the memory with each flush. [`LogWriter::entries`] has them for the close. Collective.
    pub fn new(ranks: Ranks, mut files: Files, options: Options) -> Self {
        files.share_spills();
        let mut writer = Self::with_entries(ranks, files, options);
        let file = Arc::clone(writer.files.local());
        writer.section().keep_in(file);
        writer
    }

    /// Writes a log that this rank reads, too. Ranks of one node see what the others write. Collective.
    pub fn with_reads(ranks: Ranks, files: Files, options: Options) -> Self {
        Self::with_memory(ranks, files, options, None)
    }

    /// The same with the memory that these ranks had when they closed the log as it is, on all of them or none. Collective.
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

    /// Whether this process was forked from the rank that has opened the log. It changes nothing of the log, and takes part in no
    /// collective call: its memory says what was true when it was forked.
    pub fn is_forked(&self) -> bool {
        !self.ranks.process().is_this()
    }

    /// Fails where [`LogWriter::is_forked`].
    pub fn check_process(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Error::Forked {
            file: self.files.path().to_owned(),
            process: self.ranks.process().id(),
        })
    }

    /// The same for what one rank does by itself.
    fn check_own(&self) -> FaultResult {
        if !self.is_forked() {
            return Ok(());
        }
        Err(Fault::Refused(forked(self.ranks.process().id())))
    }

    /// Fails where a forked process would read what is no longer as it knows it. To be asked before and after a read.
    pub fn check_read(&self) -> FaultResult {
        if !self.is_forked() {
            return Ok(());
        }
        if self.ranks.size() > 1 {
            return Err(Fault::Refused(
                "this process was forked from a rank of a parallel job, and cannot read what the ranks write: it has to \
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

    /// The entries of this rank, for such that have no data in the buffer.
    pub fn section(&mut self) -> &mut Section {
        self.section.section()
    }

    /// The entries that were flushed; `None` where they are kept in memory.
    pub fn entries(&self) -> Option<&Flushed> {
        self.section.in_file()
    }

    /// What a reader sees of the log.
    pub fn written(&mut self) -> Written<'_> {
        Written {
            files: &self.files,
            section: self.section.section(),
            data: self.data.bytes(),
            neighbours: self.neighbours.as_ref(),
        }
    }

    /// Whether this rank sees what all others have written and not flushed. The same on all ranks.
    pub fn sees_all(&self) -> bool {
        self.ranks.size() == 1 || self.neighbours.is_some()
    }

    /// A call of the program begins. Returns whether all ranks have to flush in it, [automatically](Cause::Automatic): the
    /// same on all of them. Else spills what has been in the buffer for long.
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
        let is_told = automatic.is_told(&self.ranks, call, automatic::now(), has_room);
        if !is_told {
            self.spill_old();
        }
        is_told
    }

    /// A call begins that tells the other ranks nothing: spills what has been in the buffer for long. Local.
    pub fn begin_write(&mut self) {
        if self.is_forked() {
            return;
        }
        if let Some(automatic) = &mut self.automatic {
            automatic.set_now(automatic::now());
            self.spill_old();
        }
    }

    /// After how many times the time between flushes the buffer is spilled.
    fn patience(&self) -> u32 {
        // What waits in another file is written twice, so that is left to flushes where they come in time.
        if self.files.spills_in_place() { 1 } else { 2 }
    }

    /// Where the word that comes next takes long, because another rank does, spills what is old before then. A rank that
    /// waits makes no other call.
    fn spill_while_waiting(&mut self) {
        let patience = self.patience();
        if let Some(automatic) = &mut self.automatic
            && !automatic.waits_in_time(patience)
        {
            self.begin_write();
        }
    }

    /// All ranks come to a flush, and none has a word under way then.
    fn go_to_flush(&mut self) {
        loop {
            self.spill_while_waiting();
            let automatic = self.automatic.as_mut();
            if !automatic.is_some_and(|automatic| automatic.goes_to_flush(&self.ranks)) {
                return;
            }
        }
    }

    /// Spills the buffer where it has waited for a flush for long.
    fn spill_old(&mut self) {
        let patience = self.patience();
        let is_old = |automatic: &Automatic| automatic.is_old(patience);
        if self.section.pending_len() == 0 || !self.automatic.as_ref().is_some_and(is_old) {
            return;
        }
        let spilled = self.spill(&[]);
        // The buffer has what it had. If that still cannot be written, the flush, or a full buffer, tells why.
        if spilled.is_err()
            && let Some(automatic) = &mut self.automatic
        {
            automatic.set_spilled(false);
        }
    }

    /// Bytes in the buffer, data and entries.
    pub fn buffered(&self) -> u64 {
        self.data_len() + self.entries_len()
    }

    /// Bytes of the entries in the buffer, and of what others are told of them.
    fn entries_len(&self) -> u64 {
        self.section.pending_len() + self.data.notes_len()
    }

    /// Bytes of the data in the buffer.
    pub fn data_len(&self) -> u64 {
        self.data.len()
    }

    /// Whether this rank has written what is not flushed.
    pub fn has_unflushed(&self) -> bool {
        !self.files.spilled().is_empty() || self.section.pending_len() > 0
    }

    /// Whether such a write takes no room in the buffer: it goes to the file at once, because it is large, or larger than the
    /// whole buffer. What is filtered becomes small first.
    pub fn goes_through(&self, form: Form<'_>, blocks: &Blocks) -> bool {
        let bytes = blocks.elements.saturating_mul(form.element);
        let is_large = bytes >= LARGE && form.filters.is_empty() && self.files.spills_in_place();
        is_large || self.is_larger_than_all(blocks, bytes)
    }

    /// Whether a record of so many bytes has no room in an empty buffer.
    fn is_larger_than_all(&self, blocks: &Blocks, bytes: u64) -> bool {
        bytes.saturating_add(blocks.max_encoded_len()) > self.options.buffer_limit
    }

    /// Logs the elements of blocks of a dataset, of the type in the file. Makes room for them first, where the buffer is full.
    /// After an error nothing of them is logged; but of a write that [goes to the file](Self::goes_through) in several records,
    /// those in front of the one that failed are.
    pub fn push(
        &mut self,
        dataset: DatasetInfo<'_>,
        form: Form<'_>,
        blocks: &Blocks,
        elements: Cow<'_, [u8]>,
    ) -> FaultResult {
        self.check_own()?;
        if let Some(automatic) = &mut self.automatic {
            automatic.note(elements.len() as u64);
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

    /// Makes room in the buffer for so many bytes, and for the entries of these blocks.
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

    /// Logs a record behind what is buffered, and spills both. Where it is small, it waits in the buffer.
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

    /// Adds entries whose data come with the flush: see [`Part::data`]. Their data begin at `offset` in those of the flush.
    pub fn push_entry(
        &mut self,
        dataset: DatasetInfo<'_>,
        blocks: &Blocks,
        offset: u64,
        stored: u64,
    ) {
        self.section.push(dataset, blocks, offset, stored);
    }

    /// Adds data to the buffer, whose entries are there. Not for logs that are read.
    pub fn push_data(&mut self, data: &[u8]) {
        self.data.extend(data);
    }

    /// Spills what is buffered, where the buffer has no room for so many bytes more. `beside`: others that count against its
    /// limit.
    pub fn make_room(&mut self, wanted: u64, beside: u64) -> FaultResult {
        let all = self.buffered().saturating_add(wanted);
        let is_full = all.saturating_add(beside) > self.options.buffer_limit;
        let is_early = all > EARLY && self.spills_early && self.files.spills_in_place();
        let mut spilled = Ok(());
        if (is_full || is_early) && self.section.pending_len() > 0 {
            spilled = self.spill(&[]);
            // Where that fails, the buffer may fill up.
            self.spills_early = spilled.is_ok();
        }
        self.give_back();
        if is_full { spilled } else { Ok(()) }
    }

    /// Gives back memory that data or entries took in earlier flushes, where both together would take more than the limit.
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

    /// Writes what is buffered, and `more` data of the last pending entries, before the flush. They count with the next
    /// one. Local. After an error nothing is written, and the buffer has what it had.
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

    /// Writes the buffers of all ranks, and commits them together. Once that is done, they survive whatever happens to the
    /// processes.
    ///
    /// `lines` is called on all ranks when each has written its part. It returns the lines of the journal that go in front
    /// of the commit, which only those of the first rank do; or `None`, on all ranks, where nothing is to be committed; or a
    /// failure, the same on all ranks. After a failure, and where nothing was committed, the buffer has what it had.
    ///
    /// Returns the outcome, which may be a refusal; `None` where nothing was committed. Collective.
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

    /// Closes the files, and gives up the lock of the journal. Collective.
    pub fn close(self) -> Ranks {
        self.files.close();
        self.ranks
    }

    /// The same, and keeps the lock. Gives the memory that the ranks of a node share. Collective.
    pub fn finish(self) -> (Ranks, Ended, Option<NodeMemory>) {
        let memory = match (self.data, self.neighbours) {
            (Buffer::Shared(shared), Some(neighbours)) => Some(NodeMemory::new(shared, neighbours)),
            _ => None,
        };
        (self.ranks, self.files.finish(), memory)
    }

    /// Leaks what only collective calls could free.
    pub fn leak(self) {
        self.files.leak();
        self.ranks.leak();
    }
}

#[cfg(test)]
mod tests;
