//! HDF5's own format: reads and writes the structures of HDF5 files from their bytes, without libhdf5. The crate knows nothing of
//! logs. Sections in comments are those of the HDF5 File Format Specification 3.0.
//!
#![doc = "```ignore"]
#![doc = include_str!("../examples/show_dataset.rs")]
#![doc = "```"]
//!
//! | module | contents |
//! |---|---|
//! | `bytes`, `fields`, `window`, `checksum` | bytes of a file, their fields and checksums |
//! | [`superblock`] | the superblock, the signature in front of it |
//! | `driver_info` | driver information of superblocks |
//! | [`object_header`], `messages` | object headers: the walk over their messages, and the messages that a reader asks for |
//! | `objects` | [`Objects`]: what the object at an address is |
//! | `group` | links and paths of groups |
//! | [`link`], [`symbol_table`] | link messages; symbol tables of old groups |
//! | `attribute`, `dataset`, `datatype`, `dataspace` | attributes and datasets |
//! | `chunks` | the chunks of a dataset by any chunk index |
//! | [`btree`], [`btree2`] | B-trees of version 1 over chunks, read and written; B-trees of version 2 |
//! | `heap`, `name_index` | local, global and fractal heaps; the index of names of a fractal heap |
//! | `value`, `virtuals` | elements as plain values; the mappings of virtual datasets |
//! | [`filters`], [`deflate`], `szip` | filters of chunks |
//! | [`written`], `space` | objects written into new bytes of a file |
//! | `image` | [`Image`]: fields of a file found by their object header, and changed |
//! | `added` | [`Added`]: the front of a file and what is added at its end |
//! | `bounds` | how much a walk may read |
//!
//! **Names** are bytes. Nearly all are UTF-8; HDF5 does not ask for that.
//!
//! **Bytes may be hostile.** Each call ends, and takes memory and time that are bounded by the number of bytes: in a sound file
//! structures lie side by side. For a view, pass the bytes of the image alone where its end is known. A broken rule of the format
//! is [`Fault::Damage`](h5logfs_common::fault::Fault). So is a structure that this crate does not read: messages in the heap of
//! shared messages, fractal heaps with filters, addresses of other than eight bytes.
//!
//! **Nothing is kept between calls**, so many threads can read objects at once if the bytes can be read so. Headers are read field
//! by field: put a [`Window`] around bytes that are slow to read.

#![deny(missing_docs)]

mod added;
mod attribute;
mod bounds;
pub mod btree;
pub mod btree2;
mod bytes;
mod checksum;
mod chunks;
mod dataset;
mod dataspace;
mod datatype;
pub mod deflate;
mod driver_info;
mod fields;
pub mod filters;
mod group;
mod heap;
mod image;
pub mod link;
mod messages;
mod name_index;
pub mod object_header;
mod objects;
mod space;
pub mod superblock;
pub mod symbol_table;
mod szip;
mod value;
mod virtuals;
mod window;
pub mod written;

pub use added::Added;
pub use attribute::{Attribute, AttributeParts};
pub use bytes::{HeaderBytes, HeaderBytesMut, read_checked, read_vec};
pub use checksum::lookup3;
pub use chunks::{Chunk, ChunkIndex};
pub use dataset::{DatasetInfo, Layout, fill_value};
pub use dataspace::Dataspace;
pub use datatype::{
    Bits, Class, Datatype, FloatFormat, Member, Normalization, Padding, ReferenceKind,
};
pub use driver_info::DriverInfo;
pub use fields::Fields;
pub use group::Place;
pub use heap::{GlobalHeaps, LocalHeap};
pub use image::{DatasetHeader, HeaderAttribute, Image, NewLinks, ObjectTimes};
pub use link::{Link, LinkTarget};
pub use name_index::{Dense, NameIndex};
pub use objects::{Object, ObjectKind, Objects};
pub use space::Space;
pub use superblock::{SUPERBLOCK, Superblock};
pub use value::{Region, Value};
pub use virtuals::{Mapping, Picked, Steps, UNLIMITED};
pub use window::Window;

use objects::at;

/// The undefined address (I.B).
pub const UNDEFINED: u64 = u64::MAX;

/// The largest rank of a dataspace (`H5S_MAX_RANK`).
pub const MAX_RANK: usize = 32;

type Result<T> = std::result::Result<T, h5logfs_common::fault::Fault>;
