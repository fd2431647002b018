//! The metadata log: its header, the number of valid entries, and the walk through them (2.1 to 2.3).

use super::entry::Entry;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;

/// The first bytes of both files of a log.
pub(super) const MAGIC: &[u8; 8] = b"PnetCDF0";
const FORMAT: &[u8; 8] = b"CDF0\0\0\0\0";

/// Bytes of the header before the path.
const FIXED: u64 = 72;
/// The longest path, and the longest host name, in bytes.
const MOST_NAME: u64 = 1 << 20;
/// Bytes of the shortest entry.
pub(super) const LEAST_ENTRY: u64 = 40;

/// The reason why an entry cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The file cannot be read, or memory is short.
    Unreadable(Fault),
    /// The entry breaks a rule of the format.
    Invalid(String),
}

/// A fault in the contents of an entry, not in reading it.
impl From<Fault> for EntryError {
    fn from(fault: Fault) -> Self {
        match fault.into_damage() {
            Ok(reason) => EntryError::Invalid(reason),
            Err(fault) => EntryError::Unreadable(fault),
        }
    }
}

impl EntryError {
    /// The fault, for callers that do not distinguish the two.
    pub fn fault(self) -> Fault {
        match self {
            EntryError::Unreadable(fault) => fault,
            EntryError::Invalid(reason) => reason.into(),
        }
    }
}

/// The fields of the header: the writer of the log, and the file that it wrote to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFields {
    /// Byte order of all numbers of the log.
    pub big_endian: bool,
    /// Number of processes that wrote to the file.
    pub ranks: u64,
    /// Rank of the writer.
    pub rank: u64,
    /// Absolute path of the netCDF file, as the writer saw it.
    pub path: Vec<u8>,
    /// Name of the writer's host.
    pub host: Vec<u8>,
    /// Bytes of the header. Entries follow it.
    pub len: u64,
    /// The header fields `num_entries` and `entry_begin`, at bytes 48 and 56, as stored.
    num_entries: i64,
    entry_begin: i64,
}

impl HeaderFields {
    /// Reads the header at byte `at` of a file or channel. Fails with the reason if it is invalid.
    pub fn read(source: &SourceFile, at: u64) -> Result<Self, Fault> {
        let room = source.len().saturating_sub(at);
        let bytes = |from: u64, len: u64| {
            if from.checked_add(len).is_none_or(|end| end > room) {
                return Err(
                    format!("{room} bytes are too few for the header of a metadata log").into(),
                );
            }
            let mut bytes = vec![0; len as usize];
            let read = source.read_exact_at(&mut bytes, at + from);
            read.map(|()| bytes).map_err(Fault::from)
        };
        let fixed = bytes(0, FIXED)?;
        if !fixed.starts_with(MAGIC) {
            return Err("lacks the magic bytes of a metadata log".into());
        }
        if fixed[8..16] != FORMAT[..] {
            return Err("is not the metadata log of a netCDF classic file".into());
        }
        let order = match &fixed[16..20] {
            [0, 0, 0, 0] => ByteOrder { big_endian: false },
            [0, 0, 0, 1] => ByteOrder { big_endian: true },
            other => return Err(format!("has the unknown byte order {other:?}").into()),
        };
        if fixed[20..24] != [0; 4] {
            return Err("has payloads in external representation".into());
        }
        let number = |at: usize| order.i64(&fixed[at..]);
        let (ranks, rank) = (u64::try_from(number(24)), u64::try_from(number(32)));
        let (Ok(ranks), Ok(rank)) = (ranks, rank) else {
            return Err("has numbers of processes below 0".into());
        };
        if rank >= ranks {
            return Err(format!("is of process {rank} of {ranks}").into());
        }
        let path_len = name_len(number(64))?;
        let path = without_end(bytes(FIXED, path_len + 1)?)?;
        let host_at = FIXED + path_len + 1;
        let host_len = name_len(i64::from(order.i32(&bytes(host_at, 4)?)))?;
        let host = without_end(bytes(host_at + 4, host_len + 1)?)?;
        // The structure counts as 80 bytes, including its padding.
        let len = (80 + path_len + 1 + 4 + host_len + 1).next_multiple_of(16);
        bytes(len, 0)?;
        Ok(HeaderFields {
            big_endian: order.big_endian,
            ranks,
            rank,
            path,
            host,
            len,
            num_entries: number(48),
            entry_begin: number(56),
        })
    }

    pub(super) fn order(&self) -> ByteOrder {
        ByteOrder {
            big_endian: self.big_endian,
        }
    }
}

fn name_len(len: i64) -> Result<u64, Fault> {
    let len = u64::try_from(len).ok().filter(|len| *len < MOST_NAME);
    len.ok_or_else(|| "has a name of an impossible length".into())
}

fn without_end(mut name: Vec<u8>) -> Result<Vec<u8>, Fault> {
    match name.pop() {
        Some(0) if !name.contains(&0) => Ok(name),
        _ => Err("has a name whose first zero byte is not its last byte".into()),
    }
}

/// The byte order of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteOrder {
    /// Big-endian; otherwise little-endian.
    pub big_endian: bool,
}

impl ByteOrder {
    /// The first 4 bytes as a number. The caller ensures that they exist.
    pub fn i32(self, bytes: &[u8]) -> i32 {
        let mut own = [0; 4];
        own.copy_from_slice(&bytes[..4]);
        if self.big_endian {
            i32::from_be_bytes(own)
        } else {
            i32::from_le_bytes(own)
        }
    }

    /// The first 8 bytes as a number. The caller ensures that they exist.
    pub fn i64(self, bytes: &[u8]) -> i64 {
        let mut own = [0; 8];
        own.copy_from_slice(&bytes[..8]);
        if self.big_endian {
            i64::from_be_bytes(own)
        } else {
            i64::from_le_bytes(own)
        }
    }
}

/// The header of a metadata log, and the number of its valid entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHeader {
    /// Fields of the header.
    pub fields: HeaderFields,
    /// Number of valid entries at the start. A truncated log has fewer: see `walk`.
    pub entries: u64,
    /// Set if entries are missing, or if valid entries may have been left out.
    pub diagnostic: Option<Diagnostic>,
}

impl LogHeader {
    /// Reads the header, and the entries if it does not state their number. Fails with the reason if the log
    /// cannot be used.
    pub fn read(source: &SourceFile) -> Result<Self, Fault> {
        let fields = HeaderFields::read(source, 0)?;
        count(source, fields)
    }
}

/// Counts the valid entries (2.2). PnetCDF writes their number one field too far, into the field for the offset of the
/// first entry.
fn count(source: &SourceFile, fields: HeaderFields) -> Result<LogHeader, Fault> {
    /// A mask without the byte that a redefinition overwrites.
    const NO_RANK: i64 = 0x00ff_ffff_ffff_ffff;
    let begin = fields.len as i64;
    let fits = (source.len() - fields.len) / LEAST_ENTRY;
    let is_fresh = fields.entry_begin == begin;
    // The program has written the number into the right field.
    let is_in_place = is_fresh && fields.num_entries & NO_RANK != 0;
    let claimed = if is_in_place {
        fields.num_entries
    } else {
        fields.entry_begin
    };
    let mut header = LogHeader {
        fields,
        entries: 0,
        diagnostic: None,
    };
    let fields = &header.fields;
    if is_fresh && !is_in_place {
        // Either there is no entry, or there are as many entries as the header has bytes.
        let found = chained(source, fields, fields.len)?;
        header.entries = if found == fields.len { found } else { 0 };
        // A single entry may belong to a call that did not return. With more entries, the number is ambiguous.
        let note = format!(
            "it has either no entry that counts, or {claimed}, of which {found} are there and complete: \
             none of them is shown, because they may belong to an older log"
        );
        header.diagnostic = (header.entries == 0 && found > 1).then(|| Diagnostic::note(note));
        return Ok(header);
    }
    let Some(entries) = u64::try_from(claimed).ok().filter(|n| *n <= fits) else {
        header.entries = chained(source, fields, fits)?;
        header.diagnostic = Some(Diagnostic::lost(missing(claimed, header.entries)));
        return Ok(header);
    };
    header.entries = entries;
    let was_redefined = !fields.big_endian && fields.num_entries & !NO_RANK != 0;
    if entries == 0 && was_redefined {
        let found = chained(source, fields, fits)?;
        let note = format!(
            "its number of entries was set to 0 when the file was redefined: those that are there and complete, {found}, \
             are not shown, because the file may already contain them"
        );
        header.diagnostic = (found > 0).then(|| Diagnostic::note(note));
    }
    Ok(header)
}

/// The diagnostic for an impossible number of entries.
fn missing(claimed: i64, found: u64) -> String {
    match u64::try_from(claimed) {
        Ok(claimed) if claimed > found => format!(
            "of {claimed} entries {found} are there and complete, and are shown; {} are missing, or \
             the number is damaged",
            claimed - found
        ),
        _ => format!(
            "{claimed} cannot be its number of entries: those that are there and complete, {found}, \
             are shown"
        ),
    }
}

/// Counts complete entries from the start, at most `most`. Each payload directly follows the payload of the previous
/// entry (2.5).
fn chained(source: &SourceFile, fields: &HeaderFields, most: u64) -> Result<u64, Fault> {
    let mut window = Window::over(source);
    let (mut at, mut end) = (fields.len, Some(FIRST_PAYLOAD));
    for number in 0..most {
        match Entry::read(&mut window, fields.order(), at, number) {
            Ok(entry) if entry.is_plausible() && end == Some(entry.data_offset) => {
                end = entry.data_end();
                at += entry.size;
            }
            Err(EntryError::Unreadable(reason)) => return Err(reason),
            _ => return Ok(number),
        }
    }
    Ok(most)
}

/// Offset of the first payload in a data log, which is behind its magic bytes.
pub(super) const FIRST_PAYLOAD: i64 = MAGIC.len() as i64;

/// Calls `visit` with the valid entries in order. If the log ends early, or an entry cannot be followed, this entry
/// and all later ones are lost, and the text of a diagnostic is returned. Fails if `visit` fails, and if the log
/// cannot be read.
pub(super) fn walk(
    source: &SourceFile,
    header: &LogHeader,
    mut visit: impl FnMut(&Entry, &mut Window<'_>) -> Result<(), Fault>,
) -> Result<Option<String>, Fault> {
    let mut window = Window::over(source);
    let mut at = header.fields.len;
    for number in 0..header.entries {
        match Entry::read(&mut window, header.fields.order(), at, number) {
            Ok(entry) => {
                visit(&entry, &mut window)?;
                at += entry.size;
            }
            Err(EntryError::Unreadable(reason)) => return Err(reason),
            Err(EntryError::Invalid(reason)) => {
                let lost = header.entries - number;
                return Ok(Some(format!(
                    "entry {number} at byte {at} {reason}: the last {lost} of {} entries are lost",
                    header.entries
                )));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netcdf::testing::{HOST, LogBytes, sources};

    fn read(bytes: &[u8]) -> Result<LogHeader, Fault> {
        let (_dir, sources) = sources(&[bytes]);
        LogHeader::read(&sources[0])
    }

    /// A header written by PnetCDF 1.15.0.
    const REAL: &[u8; 112] = b"PnetCDF0CDF0\0\0\0\0\
        \0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
        \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\
        \x11\0\0\0\0\0\0\0/data/run/file.nc\0\
        \x02\0\0\0vm\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

    #[test]
    fn a_real_header() {
        let mut log = LogBytes::new(false);
        log.entry_begin = Some(3);
        assert_eq!(log.metadata(), REAL);
        let header = read(REAL).unwrap();
        let fields = &header.fields;
        assert_eq!((fields.ranks, fields.rank, fields.len), (1, 0, 112));
        assert_eq!(fields.path, b"/data/run/file.nc");
        assert_eq!(fields.host, HOST.as_bytes());
        assert!(!fields.big_endian);
        // The entries are not included.
        assert_eq!(header.entries, 0);
        let loss = header.diagnostic.unwrap().what;
        assert!(loss.contains("of 3 entries"), "{loss}");
        (log.big_endian, log.ranks, log.rank) = (true, 300, 256);
        let other = read(&log.metadata()).unwrap();
        assert_eq!((other.fields.ranks, other.fields.rank), (300, 256));
        assert_eq!(
            (other.fields.big_endian, &other.fields.path),
            (true, &fields.path)
        );
    }

    #[test]
    fn headers_that_are_none() {
        for len in [0, 8, 71, 72, 93, 111] {
            assert!(read(&REAL[..len]).is_err(), "{len}");
        }
        let bent = |at: usize, bytes: &[u8]| {
            let mut header = REAL.to_vec();
            header[at..at + bytes.len()].copy_from_slice(bytes);
            read(&header)
        };
        assert!(bent(110, &[9]).is_ok());
        for (at, bytes) in [
            (0, &b"Q"[..]),
            (7, b"1"),
            (8, b"HDF"),
            (16, &[1]),
            (16, &[2]),
            (19, &[2]),
            (20, &[1]),
            // No ranks, a rank out of range, and a negative rank.
            (24, &[0]),
            (32, &[1]),
            (39, &[0x80]),
            // Names that are too long or do not end.
            (64, &[0x12]),
            (64, &[0x10]),
            (67, &[1]),
            (71, &[0xff]),
            (90, &[1]),
            (90, &[9]),
            (93, &[0xff]),
        ] {
            assert!(bent(at, bytes).is_err(), "{bytes:?} at {at}");
        }
    }

    /// A log with `entries` entries of 64 bytes, whose payloads are contiguous.
    fn with_entries(big_endian: bool, entries: i64) -> LogBytes {
        let mut log = LogBytes::new(big_endian);
        for at in 0..entries {
            log.put(-3, 4, 0, 1, &[at, 1, 0], &[1, 2]);
        }
        log
    }

    /// The number of valid entries, and of diagnostics.
    fn counted(log: &LogBytes) -> (u64, usize) {
        let header = read(&log.metadata()).unwrap();
        (header.entries, header.diagnostic.iter().count())
    }

    #[test]
    fn the_number_of_entries_is_in_the_next_field() {
        for big_endian in [false, true] {
            let mut log = with_entries(big_endian, 5);
            assert_eq!(counted(&log), (5, 0));
            // The other entries were flushed.
            log.entry_begin = Some(2);
            assert_eq!(counted(&log), (2, 0));
            log.entry_begin = Some(0);
            assert_eq!(counted(&log), (0, 0));
        }
    }

    #[test]
    fn a_fresh_log_says_where_entries_begin() {
        let begin = LogBytes::new(false).header_len() as i64;
        for (entries, expected, notes) in [
            (0, 0, 0),
            (1, 0, 0),
            // The log was truncated, or belongs to an older one. The user has to know.
            (begin - 1, 0, 1),
            (begin, begin, 0),
            (begin + 1, begin, 0),
        ] {
            for big_endian in [false, true] {
                let mut log = with_entries(big_endian, entries);
                log.entry_begin = Some(begin);
                assert_eq!(counted(&log), (expected as u64, notes), "{entries}");
            }
        }
        // The number is the same, but the last entry belongs to an older log.
        let mut log = with_entries(false, begin);
        log.entry_begin = Some(begin);
        log.bend(24, &9i64.to_le_bytes());
        assert_eq!(counted(&log), (0, 1));
    }

    #[test]
    fn a_number_that_cannot_be_is_replaced_by_what_is_there() {
        for number in [-1, i64::MIN, i64::MAX, 9, 1 << 32] {
            let mut log = with_entries(false, 5);
            log.entry_begin = Some(number);
            assert_eq!(counted(&log), (5, 1), "{number}");
            // The fourth entry belongs to an older log.
            log.entries[3][24] = 99;
            assert_eq!(counted(&log), (3, 1), "{number}");
            log.entries[0][0] = 63;
            assert_eq!(counted(&log), (0, 1), "{number}");
        }
    }

    #[test]
    fn a_redefinition_sets_the_number_to_zero() {
        let mut log = with_entries(false, 5);
        log.num_entries = 3 << 56;
        assert_eq!(counted(&log), (5, 0));
        log.entry_begin = Some(0);
        assert_eq!(counted(&log), (0, 1));
        let header = read(&log.metadata()).unwrap();
        let note = header.diagnostic.unwrap().what;
        assert!(note.contains("complete, 5,"), "{note}");
        log.entries.clear();
        assert_eq!(counted(&log), (0, 0));
        // A number in the right field is not a rank.
        let begin = log.header_len() as i64;
        let mut log = with_entries(false, 5);
        (log.num_entries, log.entry_begin) = (4, Some(begin));
        assert_eq!(counted(&log), (4, 0));
        log.num_entries = 100;
        assert_eq!(counted(&log), (5, 1));
        log.num_entries = 3 << 56;
        assert_eq!(counted(&log), (0, 1));
    }

    fn walked(log: &[u8]) -> (u64, Option<String>) {
        let (_dir, sources) = sources(&[log]);
        let header = LogHeader::read(&sources[0]).unwrap();
        let mut seen = 0;
        let lost = walk(&sources[0], &header, |entry, _| {
            assert_eq!(entry.number, seen);
            seen += 1;
            Ok(())
        });
        (seen, lost.unwrap())
    }

    #[test]
    fn an_entry_that_cannot_be_followed_loses_those_after_it() {
        let log = with_entries(true, 50);
        assert_eq!(walked(&log.metadata()), (50, None));
        let bytes = log.metadata();
        let (seen, lost) = walked(&bytes[..bytes.len() - 70]);
        let said = "entry 48 at byte 3184 does not end before the log does: the last 2 of 50 entries are lost";
        assert_eq!((seen, lost.as_deref()), (48, Some(said)));
        let (seen, lost) = walked(&bytes[..bytes.len() - 63]);
        assert_eq!(seen, 49);
        assert!(lost.unwrap().contains("has 1 bytes"));
        let bent = |at: usize, bytes: &[u8]| {
            let mut log = log.clone();
            log.entries[7][at..at + bytes.len()].copy_from_slice(bytes);
            walked(&log.metadata())
        };
        let int = |n: i32| n.to_be_bytes();
        let word = |n: i64| n.to_be_bytes();
        for (at, number) in [
            (0, word(63).to_vec()),
            (0, word(-64).to_vec()),
            (0, word(i64::MAX).to_vec()),
            (8, int(-1).to_vec()),
            (8, int(0).to_vec()),
            (8, int(7).to_vec()),
            (8, int(i32::MAX).to_vec()),
            (20, int(2).to_vec()),
            (20, int(-1).to_vec()),
            (20, int(i32::MAX).to_vec()),
        ] {
            let (seen, lost) = bent(at, &number);
            assert_eq!(seen, 7, "{at}");
            assert!(lost.unwrap().contains("entry 7 at byte 560 has "), "{at}");
        }
        // Three single elements take as many bytes, so the entry can be followed.
        assert_eq!(bent(8, &int(3)), (50, None));
    }
}
