//! The header of an entry (section 5).

/// Bytes of an entry's fixed part.
pub const HEADER: u64 = 28;

/// Several blocks.
pub const MUL: i32 = 0x01;
/// Their coordinates are encoded (section 6.2).
pub const ENC: i32 = 0x04;
/// The selection is deflated (section 6.4).
pub const DEFL: i32 = 0x08;
/// The selection is that of an earlier entry (section 6.3).
pub const REF: i32 = 0x10;
/// A record number comes first.
pub const REC: i32 = 0x20;
