//! Flushes that the program has not asked for, so that a job that never flushes loses seconds only.
//!
//! A flush is collective, so several ranks make it in a call that all of them make, in the same order. The clock of the
//! first rank decides. In each such call it sends a *word* to all: whether to flush in the next one. There all look at
//! what they were told, so all flush in the same call, and whoever has not got the word yet waits for it: until the first
//! rank has come to the call before, and no longer. A call that a rank makes by itself sends nothing. A process that
//! writes alone flushes in any call.
//!
//! A flush, whoever has asked for it, ends with a last word the words since the flush before. So it begins with none under
//! way, also where a rank has made fewer or more of the calls than the first one, which the flush may find to be an error.
//!
//! The first flush comes soon after the first spill of the first rank: until then nothing on the disk tells which objects there
//! are, and what is spilled could not be had by anybody.
//!
//! A rank whose buffer is not flushed for long spills it by itself, also while it waits for slower ranks: for a word of the
//! first one, or, before a flush, for all.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::options::Options;
use crate::ranks::{Ranks, Word};

/// Words.
const GO_ON: u64 = 0;
const FLUSH: u64 = 1;
const END: u64 = 2;

/// How far the coarse clock may be behind.
const TICK: Duration = Duration::from_millis(10);

/// A time of the coarse clock.
pub(crate) type Time = Duration;

/// The time. Each write asks for it, and a clock of some milliseconds takes a fifth of what an exact one does.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}

/// A call of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// All ranks make it, in the same order.
    Collective,
    /// A rank makes it by itself.
    Own,
}

/// Who wants a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The program: this is a moment that it means.
    Asked,
    /// A clock, or what the writer has to do.
    Automatic,
}

/// When a log is flushed without being asked.
pub(crate) struct Automatic {
    every: Option<Duration>,
    bytes: Option<u64>,
    /// The time of the present call.
    now: Time,
    /// The end of the last flush, or of the last attempt to make one.
    flushed: Time,
    /// When the first of what is in the buffer was logged.
    oldest: Option<Time>,
    /// Bytes that this rank has logged since then.
    logged: u64,
    /// No flush was tried yet.
    is_first: bool,
    /// This rank has spilled.
    has_spilled: bool,
    /// What was sent in the last collective call.
    word: Option<Box<dyn Word>>,
    /// The first rank makes a flush, to which this one has not come.
    is_ended: bool,
}

impl Automatic {
    /// `None` where flushes are the program's affair alone.
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

    /// A call begins. Returns whether all ranks flush in it: the same on all of them. `has_room`: whether the log can take
    /// flushes that are not asked for.
    pub fn is_told(&mut self, ranks: &Ranks, call: Call, now: Time, has_room: bool) -> bool {
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

    /// A call begins at this time.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    fn is_due(&self) -> bool {
        self.has_passed(self.flushed, 1)
            || self.bytes.is_some_and(|bytes| self.logged >= bytes)
            || (self.is_first && self.has_spilled)
    }

    /// Whether the buffer has waited for so many times the time between flushes.
    pub fn is_old(&self, times: u32) -> bool {
        self.oldest
            .is_some_and(|oldest| self.has_passed(oldest, times))
    }

    /// Waits for the word that is under way, but not until the buffer [is old](Self::is_old). Returns whether it has come.
    pub fn waits_in_time(&mut self, times: u32) -> bool {
        let (Some(word), Some(oldest), Some(every)) = (&mut self.word, self.oldest, self.every)
        else {
            return true;
        };
        let old = oldest.saturating_add(every.saturating_mul(times));
        // The clock may be behind.
        let left = old.saturating_sub(now()).saturating_add(TICK);
        word.comes_in(left)
    }

    fn has_passed(&self, since: Time, times: u32) -> bool {
        let passed = self.now.saturating_sub(since);
        self.every
            .is_some_and(|every| passed >= every.saturating_mul(times))
    }

    /// So many bytes were logged in the present call.
    pub fn note(&mut self, bytes: u64) {
        self.logged = self.logged.saturating_add(bytes);
        self.oldest.get_or_insert(self.now);
    }

    /// The buffer is empty, or what it has cannot be spilled now: it is tried again when as much time has passed.
    pub fn set_spilled(&mut self, is_empty: bool) {
        self.oldest = (!is_empty).then_some(self.now);
        self.has_spilled |= is_empty;
    }

    /// A flush begins. Takes the words that are under way, and waits for all ranks, one step at each call. Returns whether
    /// there is one more, which begins with a word that is under way. Collective.
    pub fn goes_to_flush(&mut self, ranks: &Ranks) -> bool {
        if ranks.size() == 1 {
            return false;
        }
        let told = self.word.take().map(|word| word.wait());
        if self.is_ended && told.is_some() {
            // All are here.
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

    /// A flush has ended. After a failure the next one is due when as much time has passed, or as much was logged.
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
