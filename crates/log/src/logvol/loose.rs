//! Finds unflushed data (`docs/formats/journal.md`, section 3.2): extents that ranks have written since the last flush,
//! on their own or in a flush that was not completed.
//!
//! No journal records the places of these extents. Anything may lie between them: reserved space that was never
//! written, a part of a write, or older bytes. So the search looks for headers, and verifies the checksums of each
//! extent. All bytes may be hostile.

use std::collections::BTreeSet;
use std::ops::Range;

use super::entries::{EntryHeader, i64_at};
use super::extent::{ExtentHeader, Located};
use super::flags::REF;
use crate::source_file::SourceFile;
use crate::window::Window;
use h5logfs_common::fault::Fault;

/// The most bytes of entries in one extent. Writers keep entries in memory.
const MOST_ENTRIES: u64 = 1 << 30;
/// The most unknown datasets recorded for one extent.
const MOST_UNKNOWN: usize = 16;
/// Bytes that are searched together.
const STEP: u64 = 1 << 20;

/// The conditions that an unflushed extent must meet.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The number of the flush that would have covered the extent.
    pub flush: u64,
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The number of dataset IDs in the journal.
    pub datasets: u64,
    /// Whether the checksum of the data is verified, too.
    pub data: bool,
}

/// An unflushed extent.
#[derive(Debug, Clone)]
pub struct Loose {
    /// Place of the extent.
    pub place: Located,
    /// IDs of datasets that the journal does not have. The list may be incomplete.
    pub unknown: BTreeSet<u64>,
    /// The largest dataset ID in the extent.
    pub highest: u64,
    /// Bytes of the rank's entries that must precede the entries of the extent, because the extent shares their
    /// selections.
    pub reach: u64,
}

/// The contents of a range of bytes.
#[derive(Debug, Default)]
pub struct LooseExtents {
    /// Extents in the order of the file.
    pub extents: Vec<Loose>,
    /// Bytes outside unflushed extents, without zeros at the end.
    pub rest: u64,
}

/// Finds the extents in a range of bytes. Fails if there are more than `most`.
pub fn find(
    file: &SourceFile,
    range: Range<u64>,
    wanted: Wanted,
    most: usize,
) -> Result<LooseExtents, Fault> {
    let mut found = LooseExtents::default();
    let mut at = range.start;
    while at < range.end {
        let extent = header_at(file, at, range.end)?;
        let extent = extent.filter(|extent| is_wanted(&extent.header, wanted));
        let next = match extent {
            // A gap: space that a rank could not write.
            Some(gap) if gap.header.entries == 0 => gap.bytes().end,
            Some(place) => match examine(file, place, wanted) {
                Ok(_) if found.extents.len() == most => {
                    return Err("too many extents to hold in memory".into());
                }
                Ok(loose) => {
                    found.extents.push(loose);
                    place.bytes().end
                }
                Err(fault) => {
                    // This fails if the file cannot be read.
                    let reason = fault.into_damage()?;
                    log::debug!("{}: byte {at}: {reason}", file.path().display());
                    found.skip(file, at..range.end)?
                }
            },
            None => found.skip(file, at..range.end)?,
        };
        at = next;
    }
    Ok(found)
}

impl LooseExtents {
    /// Counts the bytes before the next possible header, and returns its offset.
    fn skip(&mut self, file: &SourceFile, range: Range<u64>) -> Result<u64, Fault> {
        let magic = ExtentHeader::MAGIC;
        let overlap = magic.len() as u64 - 1;
        let mut buffer = Vec::new();
        let mut from = range.start + 1;
        let mut written = range.start;
        while from < range.end {
            buffer.resize(STEP.min(range.end - from) as usize, 0);
            file.read_unguarded(&mut buffer, from)?;
            let next = buffer.windows(magic.len()).position(|part| part == magic);
            if let Some(next) = next {
                let next = from + next as u64;
                self.rest += next - range.start;
                return Ok(next);
            }
            if let Some(last) = buffer.iter().rposition(|byte| *byte != 0) {
                written = from + last as u64 + 1;
            }
            if buffer.len() as u64 <= overlap {
                break;
            }
            from += buffer.len() as u64 - overlap;
        }
        self.rest += written - range.start;
        Ok(range.end)
    }
}

fn header_at(file: &SourceFile, at: u64, end: u64) -> Result<Option<Located>, Fault> {
    if end - at < ExtentHeader::SIZE {
        return Ok(None);
    }
    let mut bytes = [0; ExtentHeader::SIZE as usize];
    file.read_unguarded(&mut bytes, at)?;
    let header = ExtentHeader::from_bytes(&bytes);
    Ok(header.and_then(|header| Located::new(at, header, end)))
}

fn is_wanted(header: &ExtentHeader, wanted: Wanted) -> bool {
    header.flush == wanted.flush && header.rank < wanted.ranks && header.entries <= MOST_ENTRIES
}

/// Examines an extent. Fails if it is incomplete or invalid.
fn examine(file: &SourceFile, place: Located, wanted: Wanted) -> Result<Loose, Fault> {
    place.check_entries(file)?;
    let mut loose = Loose {
        place,
        unknown: BTreeSet::new(),
        highest: 0,
        reach: 0,
    };
    let data = place.data();
    let entries = place.entries();
    let (begin, end) = (entries.offset, entries.offset + entries.len);
    let mut window = Window::over(file);
    let mut at = begin;
    while at < end {
        let head = EntryHeader::read(&mut window, at, end)?;
        let from = u64::try_from(head.data_offset).ok();
        let to = from.and_then(|from| from.checked_add(u64::try_from(head.data_size).ok()?));
        let inside = from.zip(to);
        if !inside.is_some_and(|(from, to)| data.start <= from && to <= data.end) {
            return Err(format!("an entry at byte {at} leads out of its extent").into());
        }
        let id = u64::try_from(head.dataset).map_err(|_| "an entry of no dataset")?;
        loose.highest = loose.highest.max(id);
        if id >= wanted.datasets && loose.unknown.len() < MOST_UNKNOWN {
            loose.unknown.insert(id);
        }
        if head.has(REF) && head.body_len() == 8 {
            let back = i64_at(window.bytes(at + head.len(), 8)?, 0).unsigned_abs();
            loose.reach = loose.reach.max(back.saturating_sub(at - begin));
        }
        at += head.size;
    }
    if wanted.data {
        place.check_proof(file)?;
    }
    Ok(loose)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logvol::extent::{Proof, crc32, data_sum};
    use crate::source_dir::SourceDir;

    const WANTED: Wanted = Wanted {
        flush: 3,
        ranks: 2,
        datasets: 1,
        data: true,
    };

    /// An extent of one entry at `at`, for an element of a one-dimensional dataset.
    fn extent(at: u64, rank: u32, dataset: i32, data: &[u8]) -> Vec<u8> {
        let mut entries = Vec::new();
        entries.extend(44i32.to_le_bytes());
        entries.extend(dataset.to_le_bytes());
        entries.extend(0i32.to_le_bytes());
        entries.extend((at + ExtentHeader::SIZE + 44).to_le_bytes());
        entries.extend((data.len() as u64).to_le_bytes());
        entries.extend([0u64, data.len() as u64].map(u64::to_le_bytes).concat());
        let header = ExtentHeader {
            rank,
            flush: 3,
            entries: entries.len() as u64,
            data: data.len() as u64,
            entries_crc: crc32(&entries),
            seal: None,
            proof: Proof::new(data_sum(&[data]), 0),
        };
        [&header.to_bytes()[..], &entries, data].concat()
    }

    fn found(bytes: &[u8], wanted: Wanted) -> (Vec<u64>, u64) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("log"), bytes).unwrap();
        let dir = SourceDir::open(dir.path()).unwrap();
        let file = SourceFile::open(&dir, "log".as_ref()).unwrap();
        let found = find(&file, 100..file.len(), wanted, 10).unwrap();
        let begins = found.extents.iter().map(|loose| loose.place.at);
        (begins.collect(), found.rest)
    }

    #[test]
    fn whole_extents_are_found_whatever_lies_between_them() {
        let mut bytes = vec![7; 100];
        let first = extent(100, 0, 0, b"first");
        bytes.extend(&first);
        let hole = bytes.len() as u64;
        // A rank has reserved this space and written a part of it. The part contains a copy of another extent.
        bytes.extend(&extent(hole, 1, 0, &[5; 300])[..200]);
        bytes.extend(&first);
        bytes.extend(vec![0; 2 << 20]);
        let last = bytes.len() as u64;
        bytes.extend(extent(last, 1, 4, b"last"));
        let end = bytes.len() as u64;
        bytes.extend([0; 50]);
        let (begins, rest) = found(&bytes, WANTED);
        assert_eq!((begins, rest), (vec![100, last], last - hole));
        bytes.push(1);
        assert_eq!(found(&bytes, WANTED).1, last - hole + 51);
        // A header, an entry, and the data.
        assert_eq!(end, last + 64 + 44 + 4);
        for other in [
            Wanted { flush: 2, ..WANTED },
            Wanted { flush: 4, ..WANTED },
            Wanted { ranks: 0, ..WANTED },
        ] {
            assert_eq!(found(&bytes, other).0, Vec::<u64>::new());
        }
    }

    #[test]
    fn an_extent_with_any_other_byte_is_none() {
        let mut bytes = vec![7; 100];
        bytes.extend(extent(100, 1, 0, b"some data"));
        assert_eq!(found(&bytes, WANTED).0, [100]);
        for at in 100..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 0x20;
            assert_eq!(found(&other, WANTED).0, Vec::<u64>::new(), "byte {at}");
            other.truncate(at);
            assert_eq!(found(&other, WANTED).0, Vec::<u64>::new(), "cut at {at}");
        }
        // At another place, the entries would point to other data.
        bytes.insert(100, 0);
        assert_eq!(found(&bytes, WANTED).0, Vec::<u64>::new());
    }
}
