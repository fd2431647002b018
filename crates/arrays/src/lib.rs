//! Arrays straight from logs: the objects of a log, and the elements of its datasets in memory of the caller, by several threads
//! and without libhdf5.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/read_slab.rs")]
#![doc = "```"]
//!
//! * `log`: an open log, and paths to its objects. The objects themselves are those of [`objects`].
//! * `dataset`: what a dataset is, and where its elements come from: the log, or (`stored`) the canonical file itself.
//! * `selection`: what is read. `parts`: that in pieces, each of which is read at once. `reading`: the threads that read them.
//!   `points`: single elements.
//! * `dataset::virtuals`: datasets whose elements are those of others.
//! * `placed`: where chunks lie in the files of the log, for other readers of these.
//! * `boxes`: copies of boxes between arrays.
//! * `element`: numbers of Rust, and conversions to them.
//!
//! The bytes come from [`Hyperslabs`](h5logfs_view::Hyperslabs), as those of a mount come from the view.

#![deny(missing_docs)]

mod boxes;
mod dataset;
mod element;
mod log;
mod parts;
mod placed;
mod points;
mod reading;
mod selection;
mod stored;

pub use dataset::Dataset;
pub use element::Element;
pub use h5logfs_catalog::direct::Options;
pub use h5logfs_objects as objects;
pub use log::{Log, Object};
pub use placed::Placed;
pub use reading::Reading;
pub use selection::{Axis, Selection};
