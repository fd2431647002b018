//! Compaction in one process: threads make parts. The thread that completes a gap in their order places and writes
//! them.
//!
//! A part has a ticket. Addresses are assigned in the order of tickets, so an early part waits. The number of parts
//! that are made or wait is limited, which bounds the memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::Source;
use super::making::{Made, Spare};
use super::parts::{Part, Parts};
use super::sequence::{Compacted, Sequence};
use crate::error::{Error, Result};

/// Parts per thread that are made or wait.
const PARTS_EACH: u64 = 4;
/// Parts per thread for which written buffers are kept.
const SPARE_EACH: usize = 2;

/// Writes the file of `source` with `threads` threads. `progress` takes the number of bytes done, of
/// [`Source::total`].
pub fn write(
    source: &Source,
    file: &File,
    jobs: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Compacted> {
    let work = Work {
        source,
        file,
        progress,
        window: PARTS_EACH * jobs as u64,
        spare: Spare::of_parts(SPARE_EACH * jobs),
        moved: Condvar::new(),
        state: Mutex::new(State {
            parts: Parts::new(source),
            sequence: Sequence::new(source),
            next: 0,
            turn: 0,
            waiting: BTreeMap::new(),
            outcome: Outcome::Going,
        }),
    };
    thread::scope(|scope| -> io::Result<()> {
        for _ in 1..jobs {
            let start = || thread::Builder::new().spawn_scoped(scope, || work.run());
            // If a thread cannot be started, the others do its work.
            if start().is_err() {
                break;
            }
        }
        work.run();
        Ok(())
    })?;
    let state = work.state.into_inner();
    if let Outcome::Failed(error) = state.outcome {
        return Err(error);
    }
    source.view.references().check_sources()?;
    state.sequence.finish(state.parts, file)
}

struct Work<'a> {
    source: &'a Source,
    file: &'a File,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Largest number of parts that are made or wait.
    window: u64,
    spare: Spare,
    state: Mutex<State<'a>>,
    /// Signals that the turn has moved, or that work has ended.
    moved: Condvar,
}

struct State<'a> {
    parts: Parts<'a>,
    sequence: Sequence<'a>,
    /// Ticket of the next part.
    next: u64,
    /// Ticket of the part to be placed next.
    turn: u64,
    /// Finished parts that wait for their turn.
    waiting: BTreeMap<u64, Made>,
    outcome: Outcome,
}

enum Outcome {
    Going,
    /// No parts are left.
    AllTaken,
    Failed(Error),
}

struct Ticket {
    number: u64,
    part: Part,
}

/// A part with its place in the file.
struct Placed {
    made: Made,
    offset: u64,
}

impl Work<'_> {
    /// Makes parts until none are left.
    fn run(&self) {
        let _guard = EndAtPanic(self);
        while let Some(ticket) = self.take() {
            if let Err(error) = self.do_part(ticket) {
                self.fail(error);
            }
        }
    }

    fn do_part(&self, ticket: Ticket) -> Result<()> {
        let task = self.source.view.task(None);
        let made = self.source.make(&task, &ticket.part, &self.spare)?;
        for placed in self.pass(ticket.number, made)? {
            placed.made.write(self.file, placed.offset, &self.spare)?;
        }
        Ok(())
    }

    /// The next part to make. Waits until there is room for it.
    fn take(&self) -> Option<Ticket> {
        let mut state = self.state.lock();
        loop {
            if !matches!(state.outcome, Outcome::Going) {
                return None;
            }
            if state.next - state.turn < self.window {
                break;
            }
            self.moved.wait(&mut state);
        }
        match state.parts.next_part() {
            Ok(Some(part)) => {
                let number = state.next;
                state.next += 1;
                Some(Ticket { number, part })
            }
            Ok(None) => {
                state.outcome = Outcome::AllTaken;
                self.moved.notify_all();
                None
            }
            Err(error) => {
                drop(state);
                self.fail(error);
                None
            }
        }
    }

    /// Takes a finished part. Returns the parts whose turn has come, for the caller to write.
    fn pass(&self, number: u64, made: Made) -> Result<Vec<Placed>> {
        let mut state = self.state.lock();
        state.waiting.insert(number, made);
        let mut placed = Vec::new();
        loop {
            let turn = state.turn;
            let Some(mut made) = state.waiting.remove(&turn) else {
                break;
            };
            let offset = state.sequence.add(&mut made.outline)?;
            state.turn += 1;
            (self.progress)(state.sequence.done());
            placed.push(Placed { made, offset });
        }
        self.moved.notify_all();
        Ok(placed)
    }

    /// Ends the work of all threads. The first error counts.
    fn fail(&self, error: Error) {
        let mut state = self.state.lock();
        if !matches!(state.outcome, Outcome::Failed(_)) {
            state.outcome = Outcome::Failed(error);
        }
        self.moved.notify_all();
    }
}

/// Ends the work if a thread panics: the others must not wait for its part.
struct EndAtPanic<'a, 'b>(&'a Work<'b>);

impl Drop for EndAtPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(Error::Other("a thread has panicked".into()));
        }
    }
}
