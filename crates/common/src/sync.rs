//! Locks, atomic numbers and threads, for code whose concurrency is checked by models.
//!
//! A model (`model::check`) is a test that runs such code thousands of times, each time with the steps of its threads in
//! another order. The code must take its locks, atomics and threads from here. These are the types of `parking_lot` and of
//! the standard library. With the feature `model`, which only models enable, they are types of the same names from shuttle,
//! which decides at each step which thread goes on.
//!
//! A model knows sequential consistency only: it treats weaker orderings as `SeqCst`. No time passes in a model: a wait with
//! a time limit may end at once, with or without reason.

#[cfg(feature = "model")]
pub mod model;

#[cfg(feature = "model")]
pub use model::{Condvar, Mutex, MutexGuard, WaitTimeoutResult, atomic, thread};
#[cfg(not(feature = "model"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
#[cfg(feature = "model")]
pub use shuttle::thread_local;
#[cfg(not(feature = "model"))]
pub use std::{sync::atomic, thread, thread_local};
