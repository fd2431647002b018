//! Automatic flushes: a job that never flushes loses only seconds of work.
//!
//! A flush is collective. Several ranks therefore flush in a call that all of them make in the same order, and the clock of
//! the first rank decides. In each such call it broadcasts a *word*, which says whether the next call flushes. In the next
//! call all ranks read that word, so all flush in the same call. A rank waits for the word only until the first rank has come
//! to the previous call. Calls of a single rank send nothing. A process that writes alone can flush in any call.
//!
//! Each flush, automatic or not, reads all words sent since the previous flush, and ends with a last word. So no word
//! is in transit when a flush begins, even if a rank has made fewer or more calls than the first one. The flush may
//! find such a difference to be an error.
//!
//! The first flush follows soon after the first spill of the first rank. Before it, nothing on the disk defines the objects
//! of the log, so nobody could read spilled data.
//!
//! A rank whose buffer has waited too long spills it by itself. It does so even while it waits for slower ranks: for a word
//! of the first rank, or for all ranks before a flush.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::options::Options;
use crate::ranks::{Ranks, Word};

/// Values of a word.
const GO_ON: u64 = 0;
const FLUSH: u64 = 1;
const END: u64 = 2;

/// Largest delay of the coarse clock.
const TICK: Duration = Duration::from_millis(10);

/// A time of the coarse clock.
pub(crate) type Time = Duration;

/// The current time. Each write reads it, and a clock of milliseconds costs a fifth of an exact one.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}

/// A call of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A call that all ranks make, in the same order.
    Collective,
    /// A call of one rank alone.
    Own,
}

/// The cause of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program. It wants to keep this state.
    Asked,
    /// A clock, or the needs of the writer.
    Automatic,
}

/// Decides on automatic flushes.
pub(crate) struct Automatic {
    every: Option<Duration>,
    bytes: Option<u64>,
    /// The time of the present call.
    now: Time,
    /// The end of the last flush, or of the last attempt to make one.
    flushed: Time,
    /// Time of the oldest data in the buffer.
    oldest: Option<Time>,
    /// Bytes that this rank has logged since the last flush.
    logged: u64,
    /// Whether no flush has been tried.
    is_first: bool,
    /// Whether this rank has spilled.
    has_spilled: bool,
    /// The word sent in the last collective call.
    word: Option<Box<dyn Word>>,
    /// Whether the first rank has begun a flush that this rank has not reached.
    is_ended: bool,
}

impl Automatic {
    /// `None` if only the program flushes.
    pub fn of(options: &Options, now: Time) -> Option<Self> {
        let Options {
            flush_every: every,
            flush_bytes: bytes,
            ..
        } = *options;
        (every.is_some() || bytes.is_some()).then_some(Automatic {
            every: every.map(|every| every.saturating_sub(TICK)),
            bytes,
            now,
            flushed: now,
            oldest: None,
            logged: 0,
            is_first: true,
            has_spilled: false,
            word: None,
            is_ended: false,
        })
    }

    /// Begins a call. Returns whether all ranks flush in it, which is the same on all ranks. `has_room`: the log can take
    /// automatic flushes.
    pub fn begin_call(&mut self, ranks: &Ranks, call: Call, now: Time, has_room: bool) -> bool {
        self.set_now(now);
        let is_due = has_room && self.is_due();
        if ranks.size() == 1 {
            return is_due;
        }
        if call == Call::Own || self.is_ended || !ranks.is_usable() {
            return false;
        }
        let told = self.word.take().map_or(GO_ON, |word| word.wait());
        self.is_ended = told == END;
        if told == GO_ON {
            self.word = Some(ranks.begin_broadcast(if is_due { FLUSH } else { GO_ON }));
        }
        told == FLUSH
    }

    /// Sets the time of the call that begins.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    fn is_due(&self) -> bool {
        self.has_passed(self.flushed, 1)
            || self.bytes.is_some_and(|bytes| self.logged >= bytes)
            || (self.is_first && self.has_spilled)
    }

    /// Whether the buffer has waited for `times` times the flush interval.
    pub fn is_old(&self, times: u32) -> bool {
        self.oldest
            .is_some_and(|oldest| self.has_passed(oldest, times))
    }

    /// Waits for the pending word, but not until the buffer [is old](Self::is_old). Returns whether it has come.
    pub fn wait_for_word(&mut self, times: u32) -> bool {
        let (Some(word), Some(oldest), Some(every)) = (&mut self.word, self.oldest, self.every)
        else {
            return true;
        };
        let old = oldest.saturating_add(every.saturating_mul(times));
        // The coarse clock may be behind.
        let left = old.saturating_sub(now()).saturating_add(TICK);
        word.comes_in(left)
    }

    fn has_passed(&self, since: Time, times: u32) -> bool {
        let passed = self.now.saturating_sub(since);
        self.every
            .is_some_and(|every| passed >= every.saturating_mul(times))
    }

    /// Counts `bytes` logged in the present call.
    pub fn add_logged(&mut self, bytes: u64) {
        self.logged = self.logged.saturating_add(bytes);
        self.oldest.get_or_insert(self.now);
    }

    /// Records a spill, or an attempt: a buffer that could not be spilled is tried again after another interval.
    pub fn set_spilled(&mut self, is_empty: bool) {
        self.oldest = (!is_empty).then_some(self.now);
        self.has_spilled |= is_empty;
    }

    /// Goes one step towards a flush: takes the pending word, and waits for all ranks. Returns whether another step follows,
    /// which begins with a pending word. Collective.
    pub fn step_to_flush(&mut self, ranks: &Ranks) -> bool {
        if ranks.size() == 1 {
            return false;
        }
        let told = self.word.take().map(|word| word.wait());
        if self.is_ended && told.is_some() {
            // All ranks have come.
            self.is_ended = false;
            return false;
        }
        self.is_ended |= told == Some(END);
        self.word = Some(if self.is_ended {
            ranks.begin_wait()
        } else {
            ranks.begin_broadcast(END)
        });
        true
    }

    /// Records the end of a flush. After a failure the next one is due after another interval, or after another
    /// `flush_bytes`.
    pub fn set_flushed(&mut self, now: Time, is_complete: bool) {
        self.set_now(now);
        self.flushed = now;
        self.logged = 0;
        self.is_first = false;
        if is_complete {
            self.oldest = None;
        }
    }
}

#[cfg(test)]
mod tests;
