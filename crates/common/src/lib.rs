//! The base of all parts of h5logfs. It knows nothing of logs or HDF5.
//!
//! | module | contents |
//! |---|---|
//! | [`fault`] | why something failed |
//! | [`error`] | the same with the file and the object |
//! | [`memory`] | the memory that numbers in files ask for: reserved before it is allocated |
//! | [`task`] | work on behalf of a caller: whose memory it takes, whether it is still wanted |
//! | [`single_flight`] | one thread makes what several lack |
//! | [`lru`] | what may be wanted again, within a bound |
//! | [`sync`] | locks and threads, for code that models check |
//! | [`parallel`] | work in equal shares, done by a few threads |
//! | [`buffers`] | allocations that can fail |
//! | [`diagnostic`] | what is wrong with a log |
//! | [`messages`] | whose share of the program's log a message takes |
//! | [`stats`] | what a process counts and times |
//! | [`held_file`] | files that stay open in a process that may belong to others |
//! | [`process`] | this process, told apart from those that are forked from it |

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
