//! The headers of the two logs, and the entries of the metadata log.

use super::DATA_LOG;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::fault::Fault;

/// The first bytes of the two logs. One character with the version follows.
const METADATA_MAGIC: &[u8] = b"logvol_metadata";
const DATA_MAGIC: &[u8] = b"logvol_data";

/// Bytes of the metadata log's header: magic and version, format, number of entries.
pub(super) const METADATA_HEADER: u64 = 16 + 4 + 8;
/// Bytes of the data log's header: magic and version, format. Data follows.
pub(super) const DATA_HEADER: u64 = 12 + 4;

/// The value of the field `format`.
const CLASSIC: i32 = 1;

/// Bytes of an entry before and after its selection.
const HEAD: u64 = 4 + 8 + 4;
const TAIL: u64 = 4 + 8 + 8;

const SUBARRAY: i32 = 0;
const POINTS: i32 = 1;

pub(super) const NO_FILTER: i32 = 0;
pub(super) const ZLIB: i32 = 1;

/// The byte order of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The number at byte `at`. The caller ensures that the bytes exist.
    fn i32_at(self, bytes: &[u8], at: usize) -> i32 {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[at..at + 4]);
        match self {
            ByteOrder::Little => i32::from_le_bytes(number),
            ByteOrder::Big => i32::from_be_bytes(number),
        }
    }

    pub fn i64_at(self, bytes: &[u8], at: usize) -> i64 {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[at..at + 8]);
        match self {
            ByteOrder::Little => i64::from_le_bytes(number),
            ByteOrder::Big => i64::from_be_bytes(number),
        }
    }

    /// The byte order in which the field `format` has its only valid value.
    fn of_format(bytes: &[u8], at: usize) -> Result<Self, Fault> {
        let orders = [ByteOrder::Little, ByteOrder::Big];
        let found = orders.into_iter().find(|o| o.i32_at(bytes, at) == CLASSIC);
        Ok(found.ok_or_else(|| format!("byte {at}: the format is unknown"))?)
    }
}

/// Whether both logs begin with their magic bytes.
pub fn has_magics(metadata: &SourceFile, data: &SourceFile) -> bool {
    let has = |log, magic: &[u8]| {
        let mut window = Window::over(log);
        window
            .bytes(0, magic.len() as u64 + 1)
            .and_then(|bytes| check_magic(bytes, magic))
            .is_ok()
    };
    has(metadata, METADATA_MAGIC) && has(data, DATA_MAGIC)
}

/// Checks the magic. `bytes` is one byte longer.
fn check_magic(bytes: &[u8], magic: &[u8]) -> Result<(), Fault> {
    match bytes.strip_prefix(magic) {
        Some([b'0'..=b'9' | b'.', ..]) => Ok(()),
        _ => Err("byte 0: the magic is wrong".into()),
    }
}

/// Reads the header of the metadata log. Returns the number of entries.
pub(super) fn read_metadata_header(window: &mut Window<'_>) -> Result<u64, Fault> {
    let bytes = window.bytes(0, METADATA_HEADER)?;
    check_magic(bytes, METADATA_MAGIC)?;
    let entries = ByteOrder::of_format(bytes, 16)?.i64_at(bytes, 20);
    Ok(u64::try_from(entries).map_err(|_| format!("byte 20: {entries} entries"))?)
}

/// Fails with the reason if the header of the data log is invalid.
pub(super) fn check_data_header(log: &SourceFile) -> Result<(), Fault> {
    let mut window = Window::over(log);
    let bytes = window.bytes(0, DATA_HEADER)?;
    check_magic(bytes, DATA_MAGIC)?;
    ByteOrder::of_format(bytes, 12).map(drop)
}

/// The selection of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntrySelection {
    /// One block: starts, then counts.
    Subarray,
    /// This many points.
    Points(u64),
}

/// An entry of the metadata log, without the coordinates of its selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Position in the log.
    pub at: u64,
    pub order: ByteOrder,
    pub id: i64,
    pub selection: EntrySelection,
    /// Offset of the coordinates, which have `len` bytes.
    pub coordinates: u64,
    pub len: u64,
    pub filter: i32,
    pub data: i64,
    pub next: i64,
}

impl Entry {
    /// Reads the entry at `at`. `rank_of` returns the rank of the dataset with an ID. Fails if the end of the entry
    /// cannot be determined.
    pub fn read(
        window: &mut Window<'_>,
        at: u64,
        rank_of: impl Fn(i64) -> Option<u64>,
    ) -> Result<Self, Fault> {
        let end_of = |at: u64, len: u64| at.checked_add(len).ok_or(PAST_END);
        let head = window.bytes(at, HEAD)?;
        // These values are the same in both byte orders: 0, or a 1 at either end.
        let order = match head[..4] {
            [0, 0, 0, 0] => ByteOrder::Little,
            [1, 0, 0, 0] | [0, 0, 0, 1] => ByteOrder::Big,
            _ => return Err("its byte order is neither 0 nor 1".into()),
        };
        let (id, kind) = (order.i64_at(head, 4), order.i32_at(head, 12));
        let rank = rank_of(id).ok_or_else(|| format!("no stub dataset has the id {id}"))?;
        let mut coordinates = end_of(at, HEAD)?;
        let (selection, len) = match kind {
            SUBARRAY => (EntrySelection::Subarray, 16 * rank),
            POINTS => {
                let points = order.i64_at(window.bytes(coordinates, 8)?, 0);
                let number = u64::try_from(points).map_err(|_| format!("{points} points"))?;
                coordinates = end_of(coordinates, 8)?;
                let len = number.checked_mul(8 * rank).ok_or(PAST_END)?;
                (EntrySelection::Points(number), len)
            }
            other => return Err(format!("unknown selection {other}").into()),
        };
        let tail = window.bytes(end_of(coordinates, len)?, TAIL)?;
        Ok(Entry {
            at,
            order,
            id,
            selection,
            coordinates,
            len,
            filter: order.i32_at(tail, 0),
            data: order.i64_at(tail, 4),
            next: order.i64_at(tail, 12),
        })
    }

    /// The reason why the filter, or the place of the data, is invalid.
    pub fn invalid_field(&self) -> Option<String> {
        match self.filter {
            _ if self.data < DATA_HEADER as i64 => {
                Some(format!("its data at {} of /{DATA_LOG}", self.data))
            }
            NO_FILTER | ZLIB => None,
            other => Some(format!("unknown filter {other}")),
        }
    }

    /// Offset of the next entry.
    pub fn end(&self) -> u64 {
        let end = self.coordinates.saturating_add(self.len);
        end.saturating_add(TAIL)
    }
}

const PAST_END: &str = "it ends past the log";
