//! Log layouts, and views of them as canonical HDF5 files, byte for byte.
//!
//! HPC codes write fastest when every process appends what it has to a log. This crate reads such logs and
//! makes the bytes of the HDF5 file that the program meant, on demand. It needs neither libhdf5 nor FUSE nor
//! MPI. The crate `h5logfs-catalog` finds the logs below a directory and opens views of them; most users of
//! this crate start there.
//!
//! ```text
//! Snapshot ─▶ View ◀─read_at─ FUSE, file drivers, programs
//!              │ miss
//!              └▶ index ─▶ log
//! ```
//!
//! * [`log`] reads records, one module a layout.
//! * [`snapshot::Snapshot`] is plain data: what the scan of one log file found.
//! * [`index`] finds the records that touch a chunk.
//! * [`view::View`] is the canonical file as random-access bytes.
//! * [`scan`] is what both halves of a scan share: the client in `h5logfs-catalog`, and the server, which
//!   needs libhdf5, in `h5logfs-scan`.
//! * [`journal`] is the form of a log that is not closed.
//!
//! Modules use what stands below them: `view`, `index`, `scan`, `snapshot`, `journal`, `filters`, `log`. `boxes`,
//! `btree`, `diagnostic`, `error`, `image`, `memory`, `parallel`, `stats` and `task` may be used by all.

#![deny(missing_docs)]

pub mod boxes;
pub mod btree;
pub(crate) mod buffers;
pub mod diagnostic;
pub mod error;
pub mod filters;
pub(crate) mod held_file;
pub mod image;
pub mod index;
pub mod journal;
pub mod log;
pub mod memory;
pub mod messages;
pub mod parallel;
pub mod scan;
pub mod single_flight;
pub mod snapshot;
pub mod stats;
pub mod task;
pub mod view;
