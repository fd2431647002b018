//! Work on behalf of a caller. A task knows whose memory it takes, and whether the caller still wants it.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::fault::{Fault, Shortage, Stop};
use crate::memory::{Account, Memory, Reservation};

/// A flag that asks work in other threads to stop. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    own: Arc<AtomicU8>,
    /// The flag of the work that this is a part of.
    outer: Option<Arc<StopFlag>>,
}

impl StopFlag {
    /// A flag for a part of some work, which stops with all of it.
    pub fn within(outer: &StopFlag) -> Self {
        StopFlag {
            own: Arc::default(),
            outer: Some(Arc::new(outer.clone())),
        }
    }

    /// Asks the work to stop. Only the first reason counts.
    pub fn stop(&self, why: Stop) {
        let _ = self
            .own
            .compare_exchange(0, why as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The reason why the work must stop, if it must.
    #[inline]
    pub fn stopped(&self) -> Option<Stop> {
        match self.own.load(Ordering::Relaxed) {
            0 => self.outer.as_ref().and_then(|outer| outer.stopped()),
            1 => Some(Stop::CallerGone),
            2 => Some(Stop::Deadline),
            3 => Some(Stop::Ending),
            _ => Some(Stop::DeadlineBefore),
        }
    }
}

/// A piece of work, such as a read or the construction of an index. It reserves memory before it allocates, and
/// regularly checks whether it is still wanted.
#[derive(Debug, Clone)]
pub struct Task {
    account: Account,
    stop: StopFlag,
    patience: Option<Arc<Patience>>,
    allowance: Option<Allowance>,
    reader_keeps: bool,
}

/// The deadline of work for which no caller waits.
#[derive(Debug)]
struct Patience {
    end: Instant,
    checks: AtomicU32,
}

/// One check in `CHECKS` reads the clock, which takes longer than a check.
const CHECKS: u32 = 1024;

impl Patience {
    /// Whether the deadline had passed at the last look at the clock.
    fn is_over(&self) -> bool {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed);
        checks.is_multiple_of(CHECKS) && Instant::now() >= self.end
    }
}

/// Processor time allowed for work on files with `bytes_on_disk` bytes. The bytes on the disk bound it, whatever the files
/// claim.
pub fn processor_time(bytes_on_disk: u64) -> Duration {
    const ANY_FILE: Duration = Duration::from_secs(5);
    const BYTES_A_SECOND: u64 = 4 << 20;
    ANY_FILE + Duration::from_secs(bytes_on_disk / BYTES_A_SECOND)
}

/// Checks before the first look at the thread's clock, which is a system call. Short work, such as the read of a cached
/// chunk, ends before.
const FEW: u64 = 16;

/// The processor time that each thread may spend on one piece of work.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    /// Unique number of the piece of work.
    number: u64,
    most: Duration,
}

/// The processor time that a thread has spent on its last piece of work.
#[derive(Debug, Clone, Copy, Default)]
struct Spending {
    work: u64,
    /// The thread's clock after [`FEW`] checks of this work.
    begin: Duration,
    /// Number of checks. It never overflows.
    checks: u64,
}

thread_local! {
    static SPENDING: Cell<Spending> = const {
        Cell::new(Spending {
            work: 0,
            begin: Duration::ZERO,
            checks: 0,
        })
    };
}

impl Allowance {
    fn new(most: Duration) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Allowance {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            most,
        }
    }

    /// Whether this thread had spent its time at the last look at its clock.
    #[inline]
    fn is_spent(self) -> bool {
        let mut spending = SPENDING.get();
        if spending.work != self.number {
            spending = Spending {
                work: self.number,
                ..Spending::default()
            };
        }
        spending.checks += 1;
        if spending.checks == FEW {
            spending.begin = time_of_thread();
        }
        SPENDING.set(spending);
        let looks = spending.checks.is_multiple_of(CHECKS.into());
        looks && time_of_thread().saturating_sub(spending.begin) >= self.most
    }
}

fn time_of_thread() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Task {
    /// Work that takes its memory from `memory`. `user` is the user who is charged, where users share the memory.
    pub fn new(memory: &Arc<Memory>, user: Option<u32>) -> Self {
        Task {
            account: Account::new(memory, user),
            stop: StopFlag::default(),
            patience: None,
            allowance: None,
            reader_keeps: false,
        }
    }

    /// Work of at most `bytes` of memory on its own, for tools and tests that read tables without a view.
    pub fn limited(bytes: u64) -> Self {
        Task::new(&Memory::new(bytes, None), None)
    }

    /// Work whose size the system limits, as in a process for one scan. It has no limits of its own.
    pub fn unlimited() -> Self {
        Task::limited(u64::MAX)
    }

    /// Stops when `stop` is set.
    pub fn stopped_by(self, stop: StopFlag) -> Self {
        Task { stop, ..self }
    }

    /// The flag that stops it.
    pub fn stop_flag(&self) -> &StopFlag {
        &self.stop
    }

    /// Stops after `time`.
    pub fn for_at_most(self, time: Duration) -> Self {
        let patience = Patience {
            end: Instant::now() + time,
            checks: AtomicU32::new(0),
        };
        Task {
            patience: Some(Arc::new(patience)),
            ..self
        }
    }

    /// Stops when a thread has spent `most` processor time on it. A limit set earlier holds.
    pub fn within(self, most: Duration) -> Self {
        Task {
            allowance: Some(self.allowance.unwrap_or_else(|| Allowance::new(most))),
            ..self
        }
    }

    /// Marks the work of a reader that keeps its data, as the kernel does in the page cache.
    pub fn for_keeper(self) -> Self {
        Task {
            reader_keeps: true,
            ..self
        }
    }

    /// Whether the reader keeps its data.
    pub fn reader_keeps(&self) -> bool {
        self.reader_keeps
    }

    /// The user who is charged, where users share the memory.
    pub fn user(&self) -> Option<u32> {
        self.account.user()
    }

    /// The reason why the work must stop, if it must. Waiting work asks regularly.
    pub fn stopped(&self) -> Option<Stop> {
        if let Some(time) = &self.patience
            && Instant::now() >= time.end
        {
            self.stop.stop(Stop::CallerGone);
        }
        self.stop.stopped()
    }

    /// Fails if the work must stop. Costs next to nothing: long loops call it in each round.
    #[inline]
    pub fn check(&self) -> Result<(), Stop> {
        if self.patience.as_ref().is_some_and(|time| time.is_over()) {
            self.stop.stop(Stop::CallerGone);
        }
        if self.allowance.is_some_and(Allowance::is_spent) {
            self.stop.stop(Stop::Deadline);
        }
        match self.stop.stopped() {
            None => Ok(()),
            Some(stop) => Err(stop),
        }
    }

    /// An empty reservation, which grows as the work goes on.
    pub fn reservation(&self) -> Reservation {
        self.account.reservation()
    }

    /// Reserves `bytes`.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, Shortage> {
        let mut reservation = self.reservation();
        reservation.grow(bytes)?;
        Ok(reservation)
    }

    /// The most bytes that all work had reserved at one time in its memory. Tests compare it with the bytes allocated.
    pub fn most_reserved(&self) -> u64 {
        self.account.memory().most_used()
    }

    /// Fails if the work was stopped, or if memory was refused to it since its last attempt began. Neither is damage,
    /// so code that counts or skips unreadable data calls this at its end.
    pub fn finish(&self) -> Result<(), Fault> {
        self.check()?;
        self.account
            .refusal()
            .map_or(Ok(()), |refused| Err(refused.into()))
    }

    /// Runs `job`. If it fails only because other work holds the memory, waits for memory and runs it again. `job` must not
    /// hold memory of this task between its runs.
    pub fn retry<T, E>(&self, job: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        self.account.retry(job, || self.stopped().is_none())
    }
}

thread_local! {
    /// The work that this thread does.
    static RUNNING: RefCell<Option<Task>> = const { RefCell::new(None) };
}

/// Marks the work of a thread until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Running {
    before: Option<Task>,
}

impl Task {
    /// Makes this the work of the thread, so that code without a task can call [`check_running`].
    pub fn running(&self) -> Running {
        let task = Some(self.clone());
        Running {
            before: RUNNING.with(|running| running.replace(task)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with(|running| running.replace(self.before.take()));
    }
}

/// Fails if the work of this thread must stop.
pub fn check_running() -> Result<(), Stop> {
    RUNNING.with(|running| running.borrow().as_ref().map_or(Ok(()), Task::check))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_to_stop_counts() {
        let stop = StopFlag::default();
        let task = Task::unlimited().stopped_by(stop.clone());
        assert!(task.check().is_ok());
        stop.stop(Stop::Deadline);
        stop.stop(Stop::Ending);
        assert_eq!(task.stopped(), Some(Stop::Deadline));
        assert_eq!(task.check(), Err(Stop::Deadline));
    }

    #[test]
    fn a_part_stops_with_the_whole_and_not_the_whole_with_a_part() {
        let whole = StopFlag::default();
        let (one, other) = (StopFlag::within(&whole), StopFlag::within(&whole));
        one.stop(Stop::Deadline);
        assert_eq!(
            (one.stopped(), other.stopped(), whole.stopped()),
            (Some(Stop::Deadline), None, None)
        );
        whole.stop(Stop::CallerGone);
        assert_eq!(
            (one.stopped(), other.stopped()),
            (Some(Stop::Deadline), Some(Stop::CallerGone))
        );
    }

    #[test]
    fn a_thread_knows_what_it_works_on() {
        let stop = StopFlag::default();
        stop.stop(Stop::Ending);
        let (stopped, other) = (Task::unlimited().stopped_by(stop), Task::unlimited());
        assert!(check_running().is_ok());
        let running = stopped.running();
        assert!(check_running().is_err());
        let within = other.running();
        assert!(check_running().is_ok());
        drop(within);
        assert!(check_running().is_err());
        drop(running);
        assert!(check_running().is_ok());
    }

    #[test]
    fn what_a_file_has_bounds_the_work_on_it() {
        assert!(processor_time(u64::MAX) > processor_time(1 << 30));
        let until_stopped = |task: &Task, most: u32| (0..most).all(|_| task.check().is_ok());
        let task = Task::unlimited().within(processor_time(0));
        assert!(until_stopped(&task, 3 * CHECKS));
        let task = Task::unlimited()
            .within(Duration::ZERO)
            .within(processor_time(0));
        assert!(!until_stopped(&task, 3 * CHECKS));
        assert_eq!(task.stopped(), Some(Stop::Deadline));
        // Short work does not read the clock.
        let task = Task::unlimited().within(Duration::ZERO);
        assert!(until_stopped(&task, FEW as u32 - 1) && SPENDING.get().begin.is_zero());
        assert!(until_stopped(&task, 1) && !SPENDING.get().begin.is_zero());
        // Each thread has the whole time.
        let task = Task::unlimited().within(Duration::ZERO);
        let clone = task.clone();
        let other = std::thread::spawn(move || clone.check().is_ok());
        assert!(other.join().unwrap() && !until_stopped(&task, 3 * CHECKS));
    }

    #[test]
    fn work_for_no_caller_stops_after_a_while() {
        let task = Task::unlimited().for_at_most(Duration::from_secs(1000));
        assert!((0..2 * CHECKS).all(|_| task.check().is_ok()));
        let task = Task::unlimited().for_at_most(Duration::ZERO);
        assert!(task.check().is_err() && task.stopped().is_some());
        // A deadline also stops work that waits and makes no checks.
        let task = Task::unlimited().for_at_most(Duration::ZERO);
        assert_eq!(task.stopped(), Some(Stop::CallerGone));
    }
}
