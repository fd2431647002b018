//! The header of an entry (section 5).

/// Bytes of the fixed part of an entry.
pub const HEADER: u64 = 28;

/// The selection has several blocks.
pub const MUL: i32 = 0x01;
/// The coordinates of several blocks are encoded (section 6.2).
pub const ENC: i32 = 0x04;
/// The selection is deflated (section 6.4).
pub const DEFL: i32 = 0x08;
/// The entry shares the selection of an earlier one (section 6.3).
pub const REF: i32 = 0x10;
/// A record number precedes the selection.
pub const REC: i32 = 0x20;
