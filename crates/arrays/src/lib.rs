//! Arrays straight from logs: the objects of a log, and the elements of its datasets in memory of the caller. Several
//! threads read; libhdf5 is not used.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/read_slab.rs")]
#![doc = "```"]
//!
//! * `log`: an open log, and paths to its objects, whose types are those of [`objects`].
//! * `dataset`: a dataset and the source of its elements: the log, or (`stored`) the canonical file itself.
//! * `selection`: the elements to read. `parts` cuts a selection into pieces that are read at once. `reading` runs the
//!   threads. `points` reads single elements.
//! * `dataset::virtuals`: datasets whose elements lie in other datasets.
//! * `placed`: the places of chunks in the files of the log, for other readers of these files.
//! * `element`: Rust number types, and conversions to them. `numbers`: elements of any number type as `f64`.
//! * [`slices`]: selections as numpy writes them. [`thinned`]: a few cells of a dataset, for a picture. [`scales`]: names
//!   and coordinates of dimensions.
//!
//! The bytes come from [`Hyperslabs`](h5logfs_view::Hyperslabs), as the bytes of a mount come from the view.

#![deny(missing_docs)]

mod dataset;
mod element;
mod log;
mod numbers;
mod parts;
mod placed;
mod points;
mod reading;
pub mod scales;
mod selection;
pub mod slices;
mod stored;
pub mod thinned;

pub use dataset::Dataset;
pub use element::Element;
pub use h5logfs_catalog::direct::Options;
pub use h5logfs_common::task::StopFlag;
pub use h5logfs_hdf5_format as objects;
pub use log::{Log, Object};
pub use placed::Placed;
pub use reading::Reading;
pub use selection::{Axis, Selection};
