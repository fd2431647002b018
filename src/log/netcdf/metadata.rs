//! The metadata log: its header, how many entries count, and the walk through them (2.1 to 2.3).

use super::entry::Entry;
use crate::log::source::SourceFile;
use crate::log::window::Window;

/// How each of the two files of a log begins.
pub(super) const MAGIC: &[u8; 8] = b"PnetCDF0";
const FORMAT: &[u8; 8] = b"CDF0\0\0\0\0";

/// Bytes of the header in front of the path.
const FIXED: u64 = 72;
/// Bytes of a path or of the name of a host, and what no header has more of.
const MOST_NAME: u64 = 1 << 20;
/// Bytes of the shortest entry.
pub(super) const LEAST_ENTRY: u64 = 40;

/// Why an entry, or what it says, cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The file cannot be read.
    Unreadable(String),
    /// It breaks a rule of the format.
    Broken(String),
}

impl Trouble {
    pub fn reason(self) -> String {
        match self {
            Trouble::Unreadable(reason) | Trouble::Broken(reason) => reason,
        }
    }
}

/// What the header says of who wrote the log, and to what file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    pub big_endian: bool,
    /// How many processes wrote to the file.
    pub ranks: u64,
    pub rank: u64,
    /// Absolute, as the writer saw the netCDF file.
    pub path: Vec<u8>,
    /// Name of the writer's host.
    pub host: Vec<u8>,
    /// Bytes of the header: where the entries begin.
    pub len: u64,
    /// The fields of these names, at 48 and 56, as they are on disk.
    num_entries: i64,
    entry_begin: i64,
}

impl Front {
    /// The header at byte `at`, of a file or of a channel. Fails with the reason why it is none.
    pub fn read(source: &SourceFile, at: u64) -> Result<Self, String> {
        let room = source.len().saturating_sub(at);
        let bytes = |from: u64, len: u64| {
            if from.checked_add(len).is_none_or(|end| end > room) {
                return Err(format!("{room} bytes are no header of a metadata log"));
            }
            let mut bytes = vec![0; len as usize];
            let read = source.read_exact_at(&mut bytes, at + from);
            read.map(|()| bytes).map_err(|e| e.to_string())
        };
        let fixed = bytes(0, FIXED)?;
        if !fixed.starts_with(MAGIC) {
            return Err("has not the magic bytes of a metadata log".into());
        }
        if fixed[8..16] != FORMAT[..] {
            return Err("is the metadata log of no netCDF classic file".into());
        }
        let order = match &fixed[16..20] {
            [0, 0, 0, 0] => Order { big_endian: false },
            [0, 0, 0, 1] => Order { big_endian: true },
            other => return Err(format!("has no byte order, but {other:?}")),
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
            return Err(format!("is of process {rank} of {ranks}"));
        }
        let path_len = name_len(number(64))?;
        let path = without_end(bytes(FIXED, path_len + 1)?)?;
        let host_at = FIXED + path_len + 1;
        let host_len = name_len(i64::from(order.i32(&bytes(host_at, 4)?)))?;
        let host = without_end(bytes(host_at + 4, host_len + 1)?)?;
        // Of the structure 80 bytes count, with its padding.
        let len = (80 + path_len + 1 + 4 + host_len + 1).next_multiple_of(16);
        bytes(len, 0)?;
        Ok(Front {
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

    pub(super) fn order(&self) -> Order {
        Order {
            big_endian: self.big_endian,
        }
    }
}

fn name_len(len: i64) -> Result<u64, String> {
    let len = u64::try_from(len).ok().filter(|len| *len < MOST_NAME);
    len.ok_or_else(|| "has a name of a length that cannot be".into())
}

fn without_end(mut name: Vec<u8>) -> Result<Vec<u8>, String> {
    match name.pop() {
        Some(0) => Ok(name),
        _ => Err("has a name without an end".into()),
    }
}

/// The byte order of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    pub big_endian: bool,
}

impl Order {
    /// The first bytes as a number; a caller has made sure that they are there.
    pub fn i32(self, bytes: &[u8]) -> i32 {
        let mut own = [0; 4];
        own.copy_from_slice(&bytes[..4]);
        match self.big_endian {
            true => i32::from_be_bytes(own),
            false => i32::from_le_bytes(own),
        }
    }

    pub fn i64(self, bytes: &[u8]) -> i64 {
        let mut own = [0; 8];
        own.copy_from_slice(&bytes[..8]);
        match self.big_endian {
            true => i64::from_be_bytes(own),
            false => i64::from_le_bytes(own),
        }
    }
}

/// The header of a metadata log, and what it says about the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHeader {
    pub front: Front,
    /// How many entries count, from the first one on. A log that was cut has fewer: see [`walk`].
    pub entries: u64,
    /// What the field with the number of entries says; it may be anything.
    pub claimed: i64,
    /// What a person should know of the number of entries.
    pub notes: Vec<String>,
}

impl LogHeader {
    /// Reads the header, and where it leaves open how many entries count, looks at these. Fails with
    /// the reason where this is no log that could be used.
    pub fn read(source: &SourceFile) -> Result<Self, String> {
        let front = Front::read(source, 0)?;
        let (claimed, entries, notes) = count(source, &front)?;
        Ok(LogHeader {
            front,
            entries,
            claimed,
            notes: notes.into_iter().collect(),
        })
    }
}

/// What the field says, how many entries count, and what is to be said about it (2.2). The program rewrites
/// the number of entries one field too far, where the header says where they begin.
fn count(source: &SourceFile, front: &Front) -> Result<(i64, u64, Option<String>), String> {
    /// All but the byte that a redefinition overwrites.
    const NO_RANK: i64 = 0x00ff_ffff_ffff_ffff;
    let begin = front.len as i64;
    let fits = (source.len() - front.len) / LEAST_ENTRY;
    let is_fresh = front.entry_begin == begin;
    // Of a program that writes the number where it belongs.
    let is_in_place = is_fresh && front.num_entries & NO_RANK != 0;
    let claimed = match is_in_place {
        true => front.num_entries,
        false => front.entry_begin,
    };
    if is_fresh && !is_in_place {
        // No entry at all, or as many as the header has bytes.
        let found = chained(source, front, front.len)?;
        let entries = if found == front.len { found } else { 0 };
        return Ok((claimed, entries, None));
    }
    let Some(entries) = u64::try_from(claimed).ok().filter(|n| *n <= fits) else {
        let found = chained(source, front, fits)?;
        let note = format!(
            "its number of entries, {claimed}, cannot be: the log was cut, or the number is damaged; \
             the {found} complete entries that are there are shown"
        );
        return Ok((claimed, found, Some(note)));
    };
    let was_redefined = !front.big_endian && front.num_entries & !NO_RANK != 0;
    let mut note = None;
    if entries == 0 && was_redefined {
        let found = chained(source, front, fits)?;
        note = (found > 0).then(|| {
            format!(
                "its number of entries was set to 0 when the file was defined anew: {found} complete \
                 entries are there and not shown, for they may be in the file already"
            )
        });
    }
    Ok((claimed, entries, note))
}

/// How many complete entries follow each other from the first one on, at most `most`, of which each has its
/// payload behind that of the one before (2.5).
fn chained(source: &SourceFile, front: &Front, most: u64) -> Result<u64, String> {
    let mut window = Window::over(source);
    let (mut at, mut end) = (front.len, Some(FIRST_PAYLOAD));
    for number in 0..most {
        match Entry::read(&mut window, front.order(), at, number) {
            Ok(entry) if entry.is_plausible() && end == Some(entry.data_offset) => {
                end = entry.data_end();
                at += entry.size;
            }
            Err(Trouble::Unreadable(reason)) => return Err(reason),
            _ => return Ok(number),
        }
    }
    Ok(most)
}

/// Where the first payload of a data log begins, behind its magic bytes.
pub(super) const FIRST_PAYLOAD: i64 = MAGIC.len() as i64;

/// Shows `visit` the entries that count, in their order. Returns what is to be said where the log ends
/// before the last of them, or one of them cannot be followed: it and those after it are lost. Fails
/// where `visit` does, and where the log cannot be read.
pub(super) fn walk(
    source: &SourceFile,
    header: &LogHeader,
    mut visit: impl FnMut(&Entry, &mut Window<'_>) -> Result<(), String>,
) -> Result<Option<String>, String> {
    let mut window = Window::over(source);
    let mut at = header.front.len;
    for number in 0..header.entries {
        match Entry::read(&mut window, header.front.order(), at, number) {
            Ok(entry) => {
                visit(&entry, &mut window)?;
                at += entry.size;
            }
            Err(Trouble::Unreadable(reason)) => return Err(reason),
            Err(Trouble::Broken(reason)) => {
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
