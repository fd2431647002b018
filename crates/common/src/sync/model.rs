//! Models, and the types that they need: those of shuttle, in the form of `parking_lot`.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LockResult, PoisonError};
use std::time::{Duration, Instant};

use shuttle::rand::{Rng, thread_rng};
pub use shuttle::sync::atomic;

/// Number of runs of a model with each kind of schedule, unless the environment says otherwise.
const RUNS: usize = 1000;
/// Environment variable with another number of runs.
const RUNS_VARIABLE: &str = "H5LOGFS_MODEL_RUNS";
/// Number of times that a schedule interrupts a thread that could go on. Few mistakes need more.
const PREEMPTIONS: usize = 3;

/// Runs `model` many times. Half of the runs interrupt threads anywhere, the other half rarely. Panics if a run panics, if
/// all threads wait, or if a run never ends. The message contains the schedule, which `shuttle::replay` runs again.
///
/// # Panics
///
/// Panics when the model fails: see above.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    let number = std::env::var(RUNS_VARIABLE);
    let runs = number.ok().and_then(|number| number.parse().ok());
    let runs = runs.unwrap_or(RUNS);
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    shuttle::check_random(move || again(), runs);
    shuttle::check_pct(move || model(), runs, PREEMPTIONS);
}

/// Threads of a model, with their own parking. Threads parked by shuttle may go on at any time. The standard library permits
/// that, too, but a missing wake-up would never show.
pub mod thread {
    use std::cell::RefCell;
    use std::io;
    use std::sync::Arc;

    pub use shuttle::thread::{current, scope, yield_now};

    use super::{Condvar, Duration, Mutex};

    /// The state of a parked thread.
    #[derive(Debug, Default)]
    struct Parking {
        may_go_on: Mutex<bool>,
        unparked: Condvar,
    }

    shuttle::thread_local! {
        static OWN: RefCell<Arc<Parking>> = RefCell::default();
    }

    /// A handle to a thread, for others to wake it.
    #[derive(Debug, Clone)]
    pub struct Thread(Arc<Parking>);

    impl Thread {
        /// Lets the thread go on, now or at its next park.
        pub fn unpark(&self) {
            *self.0.may_go_on.lock() = true;
            self.0.unparked.notify_one();
        }
    }

    /// Waits until another thread calls `unpark`.
    pub fn park() {
        let own = OWN.with(|own| Arc::clone(&own.borrow()));
        let mut may_go_on = own.may_go_on.lock();
        while !*may_go_on {
            own.unparked.wait(&mut may_go_on);
        }
        *may_go_on = false;
    }

    /// Lets other threads go on.
    pub fn sleep(_time: Duration) {
        yield_now();
    }

    /// Starts threads.
    #[derive(Debug, Default)]
    pub struct Builder(shuttle::thread::Builder);

    /// A started thread.
    #[derive(Debug)]
    pub struct JoinHandle<T> {
        handle: shuttle::thread::JoinHandle<T>,
        thread: Thread,
    }

    impl Builder {
        /// A builder of a thread without a name.
        pub fn new() -> Self {
            Builder::default()
        }

        /// Sets the name of the thread.
        pub fn name(self, name: String) -> Self {
            Builder(self.0.name(name))
        }

        /// Starts a thread.
        pub fn spawn<T: Send + 'static>(
            self,
            run: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<JoinHandle<T>> {
            let parking = Arc::<Parking>::default();
            let thread = Thread(Arc::clone(&parking));
            let run = move || {
                OWN.with(|own| own.replace(parking));
                run()
            };
            let handle = self.0.spawn(run)?;
            Ok(JoinHandle { handle, thread })
        }
    }

    impl<T> JoinHandle<T> {
        /// The handle to the thread.
        pub fn thread(&self) -> &Thread {
            &self.thread
        }

        /// Waits for the end of the thread.
        pub fn join(self) -> std::thread::Result<T> {
            self.handle.join()
        }
    }

    /// Starts a thread.
    ///
    /// # Panics
    ///
    /// Never: shuttle always starts it.
    pub fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let started = Builder::new().spawn(run);
        started.unwrap_or_else(|e| unreachable!("no thread of a model: {e}"))
    }
}

/// A mutex with the interface of `parking_lot`.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

/// The guard of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only during a wait for a condition.
    locked: Option<shuttle::sync::MutexGuard<'a, T>>,
}

/// Ignores poison, which `parking_lot` does not have.
fn in_spite_of_panics<T>(outcome: LockResult<T>) -> T {
    outcome.unwrap_or_else(PoisonError::into_inner)
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// Waits until no other thread holds the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            locked: Some(in_spite_of_panics(self.0.lock())),
        }
    }
}

impl<T: ?Sized> Debug for Mutex<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.locked {
            Some(locked) => locked,
            None => unreachable!("a guard that waits is borrowed"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.locked {
            Some(locked) => locked,
            None => unreachable!("a guard that waits is borrowed"),
        }
    }
}

/// A condition variable with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

/// The end of a wait with a time limit.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the time ran out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition for which no thread waits.
    pub const fn new() -> Self {
        Condvar(shuttle::sync::Condvar::new())
    }

    /// Waits for a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.locked = guard
            .locked
            .take()
            .map(|locked| in_spite_of_panics(self.0.wait(locked)));
    }

    /// Ends sooner or later, with or without a notification.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        drop(guard.locked.take());
        thread::yield_now();
        guard.locked = Some(in_spite_of_panics(guard.mutex.0.lock()));
        WaitTimeoutResult(thread_rng().gen_bool(0.5))
    }

    /// As [`Condvar::wait_for`].
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, Duration::ZERO)
    }

    /// Wakes one of the threads that wait without a time limit.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
