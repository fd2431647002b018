//! The base of all parts of h5logfs. It knows nothing of logs or HDF5.
//!
//! | module | contents |
//! |---|---|
//! | [`fault`] | the reasons for failures |
//! | [`error`] | a fault with its file and object |
//! | [`memory`] | memory whose size depends on files: reserved before it is allocated |
//! | [`task`] | work for a caller: its memory, and whether it is still wanted |
//! | [`single_flight`] | one thread makes a value that several threads need |
//! | [`lru`] | a bounded cache |
//! | [`sync`] | locks and threads, for code checked by models |
//! | [`parallel`] | work in equal shares, done by a few threads |
//! | [`buffers`] | allocations that can fail |
//! | [`diagnostic`] | findings about a log |
//! | [`messages`] | the subject of a message, which has a share of the program's log |
//! | [`stats`] | counts and times of a process |
//! | [`held_file`] | files that stay open in a process that may belong to others |
//! | [`process`] | the identity of this process, distinct from its forks |

#![deny(missing_docs)]

pub mod buffers;
pub mod diagnostic;
pub mod error;
pub mod fault;
pub mod held_file;
pub mod lru;
pub mod memory;
pub mod messages;
pub mod parallel;
pub mod process;
pub mod single_flight;
pub mod stats;
pub mod sync;
pub mod task;
