//! What the objects of a canonical file can have at most.

/// The most bytes of a value. Attributes and fill values are messages of an object header, whose length has 16 bits.
pub const LARGEST_VALUE: u64 = 60_000;
/// The most bytes of a name.
pub const LONGEST_NAME: usize = 1024;
/// The most bytes of a path.
pub const LONGEST_PATH: usize = 16 << 10;
/// The most bytes of all datasets in the canonical file, whose addresses have 63 bits.
pub const LARGEST_FILE: u128 = 1 << 61;
/// The most bytes of a chunk in HDF5.
pub const LARGEST_CHUNK: u64 = u32::MAX as u64;
