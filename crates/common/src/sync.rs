//! Locks, atomic numbers and threads, for code whose concurrency is checked by models.
//!
//! A model (`model::check`) is a test that runs such code thousands of times, each time with the steps of its threads in
//! another order. For that the code must take what it needs from here. It gets the types of `parking_lot` and of the standard
//! library. With the feature `model`, which only models are built with, it gets types of the same names with which
//! shuttle decides at each step which thread goes on.
//!
//! Of memory, a model knows sequential consistency only: orderings weaker than `SeqCst` count as that. And no time passes
//! in it: what waits with a time limit may go on at once, with or without reason.

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
