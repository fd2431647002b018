//! Upper bounds for the objects of a canonical file.

/// The largest value in bytes. Attributes and fill values are messages of an object header, whose length has 16 bits.
pub const LARGEST_VALUE: u64 = 60_000;
/// The longest name in bytes.
pub const LONGEST_NAME: usize = 1024;
/// The longest path in bytes.
pub const LONGEST_PATH: usize = 16 << 10;
/// The largest total of all datasets in the canonical file in bytes. Addresses have 63 bits.
pub const LARGEST_FILE: u128 = 1 << 61;
/// HDF5's largest chunk in bytes.
pub const LARGEST_CHUNK: u64 = u32::MAX as u64;
