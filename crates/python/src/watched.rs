//! Reads that Ctrl-C ends, and that report their progress.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use h5logfs_arrays::StopFlag;
use h5logfs_common::error::Error;
use h5logfs_common::fault::Stop;
use parking_lot::{Condvar, Mutex};
use pyo3::intern;
use pyo3::prelude::*;

use crate::error::{exception, unlocked};

/// Time between checks for signals, and between calls of `progress`.
const STEP: Duration = Duration::from_millis(100);
/// Bytes from which on a read may take long.
pub const LONG: usize = 4 << 20;

/// Whether a signal may raise an exception in this thread: Python handles signals in its main thread.
pub fn may_be_interrupted(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    let own = threading.call_method0(intern!(py, "get_ident"))?;
    main.getattr(intern!(py, "ident"))?.eq(own)
}

/// The state of a read.
#[derive(Default)]
struct Watched {
    done: AtomicU64,
    stop: StopFlag,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Runs `read` in a thread of its own, with a function that takes the number of bytes read, and meanwhile checks for signals and calls `progress`. The read stops where
/// either raises. Code inside the log must not wait for the interpreter's lock: a forking thread holds the lock and waits
/// for those inside.
pub fn read<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    read: impl FnOnce(&(dyn Fn(u64) -> ControlFlow<()> + Sync), &StopFlag) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let state = &Watched::default();
    thread::scope(|scope| {
        let reader = thread::Builder::new().spawn_scoped(scope, move || {
            let _ended = Ended(state);
            let told = |done| {
                state.done.fetch_max(done, Ordering::Relaxed);
                ControlFlow::Continue(())
            };
            read(&told, &state.stop).map_err(|e| exception(&e))
        })?;
        let mut raised = None;
        while !py.detach(|| state.has_ended_within(STEP)) {
            let done = state.done.load(Ordering::Relaxed);
            let told = py.check_signals().and_then(|()| match progress {
                Some(progress) if raised.is_none() && done > 0 => {
                    progress.call1(py, (done,)).map(drop)
                }
                _ => Ok(()),
            });
            if let Err(error) = told {
                raised.get_or_insert(error);
                state.stop.stop(Stop::CallerGone);
            }
        }
        let outcome = unlocked(py, || {
            let outcome = reader.join();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let outcome = outcome?;
        // Reports reads shorter than a step, too.
        if let Some(progress) = progress {
            progress.call1(py, (state.done.load(Ordering::Relaxed),))?;
        }
        Ok(outcome)
    })
}

impl Watched {
    fn has_ended_within(&self, time: Duration) -> bool {
        let mut has_ended = self.has_ended.lock();
        if !*has_ended {
            self.ended.wait_for(&mut has_ended, time);
        }
        *has_ended
    }
}

/// Signals the end of a read, also after a panic.
struct Ended<'a>(&'a Watched);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0.has_ended.lock() = true;
        self.0.ended.notify_all();
    }
}
