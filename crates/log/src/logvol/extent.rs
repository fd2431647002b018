//! The extents of a data file (`docs/formats/journal.md`, section 3.1): one or more per rank and flush.
//!
//! An extent is a header, the rank's new entries, and the data of these entries. An extent without entries is a gap.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use flate2::Crc;
use xxhash_rust::xxh3::Xxh3;

use super::Section;
use super::flags::HEADER;
use crate::front::FRONT;
use crate::source_file::SourceFile;
use crate::window::Piece;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;

/// The header of an extent. An extent holds the data and entries that one rank adds in one flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentHeader {
    /// The rank that wrote the extent.
    pub rank: u32,
    /// Number of the flush, from 1.
    pub flush: u64,
    /// Bytes of entries, after the header.
    pub entries: u64,
    /// Bytes of data, after the entries.
    pub data: u64,
    /// CRC-32 of the entries.
    pub entries_crc: u32,
    /// Seal of the extent. Not all writers add one.
    pub seal: Option<Seal>,
    /// The proof of an extent that no flush covers. Earlier versions write none.
    pub proof: Option<Proof>,
}

/// The seal distinguishes a whole extent from older bytes at its place, and from an extent that a file system shows
/// only in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seal {
    /// [`data_sum`] of the data.
    pub data: u64,
    /// A random number. The commit contains the sum of the tags of a flush's extents. It thereby rejects extents that
    /// were at their place before: those of a job that died, or of a failed flush.
    pub tag: u64,
}

/// The proof of an extent that no flush covers. Without it, neither a truncated extent nor a missing earlier extent
/// could be detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// [`data_sum`] of the data.
    pub data: u64,
    /// Number of extents that the rank had already written since the last flush; at most [`Proof::MOST`].
    pub number: u32,
}

impl Proof {
    /// The largest number that fits into a header.
    pub const MOST: u32 = (1 << 24) - 1;

    /// A proof with the sum of the extent's data; `None` if `number` is too large.
    pub fn new(data: u64, number: usize) -> Option<Self> {
        let number = u32::try_from(number).ok();
        let number = number.filter(|number| *number <= Self::MOST)?;
        Some(Proof { data, number })
    }
}

impl ExtentHeader {
    /// Bytes of the header.
    pub const SIZE: u64 = 64;
    pub(crate) const MAGIC: &[u8; 8] = b"h5lgxtnt";
    /// Flag of a header with a seal.
    const SEALED: u32 = 1;
    /// Flag of a header with a proof. The number of the proof is in the bits from [`Self::NUMBER`] on.
    const PROVEN: u32 = 2;
    const NUMBER: u32 = 8;

    /// Bytes of the whole extent; `None` on overflow.
    pub fn extent(&self) -> Option<u64> {
        Self::SIZE.checked_add(self.entries)?.checked_add(self.data)
    }

    /// The stored header, with its own checksum.
    pub fn to_bytes(self) -> [u8; Self::SIZE as usize] {
        let mut bytes = [0; Self::SIZE as usize];
        bytes[..8].copy_from_slice(Self::MAGIC);
        bytes[8..12].copy_from_slice(&self.rank.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.entries_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.flush.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.entries.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.data.to_le_bytes());
        let mut flags = 0;
        if let Some(seal) = self.seal {
            bytes[40..48].copy_from_slice(&seal.data.to_le_bytes());
            bytes[48..56].copy_from_slice(&seal.tag.to_le_bytes());
            flags |= Self::SEALED;
        }
        if let Some(proof) = self.proof {
            bytes[40..48].copy_from_slice(&proof.data.to_le_bytes());
            flags |= Self::PROVEN | proof.number << Self::NUMBER;
        }
        bytes[56..60].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8; Self::SIZE as usize]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..8] != *Self::MAGIC || u32_at(60) != crc32(&bytes[..60]) {
            return None;
        }
        Some(ExtentHeader {
            rank: u32_at(8),
            entries_crc: u32_at(12),
            flush: u64_at(16),
            entries: u64_at(24),
            data: u64_at(32),
            seal: (u32_at(56) & Self::SEALED != 0).then(|| Seal {
                data: u64_at(40),
                tag: u64_at(48),
            }),
            proof: (u32_at(56) & Self::PROVEN != 0).then(|| Proof {
                data: u64_at(40),
                number: u32_at(56) >> Self::NUMBER,
            }),
        })
    }
}

/// Adds `by`, modulo 2^64, to the data offsets of entries.
pub fn shift_offsets(entries: &mut [u8], by: u64) {
    let mut rest = entries;
    while let Some((head, _)) = rest.split_first_chunk_mut::<{ HEADER as usize }>() {
        let (fields, offset) = head.split_at_mut(12);
        let mut value = [0; 8];
        value.copy_from_slice(&offset[..8]);
        let moved = u64::from_le_bytes(value).wrapping_add(by);
        offset[..8].copy_from_slice(&moved.to_le_bytes());
        let mut len = [0; 4];
        len.copy_from_slice(&fields[..4]);
        let len = (u32::from_le_bytes(len) as usize).clamp(HEADER as usize, rest.len());
        rest = &mut rest[len..];
    }
}

/// Copies the extent at `from` to the offset `to` of another file, and makes its entries point to the data there.
pub fn move_extent(file: &File, from: u64, target: &File, to: u64) -> io::Result<()> {
    /// Bytes that are copied together.
    const MOVED: u64 = 4 << 20;
    let changed = || io::Error::other("an extent that is to be moved has changed");
    let mut bytes = [0; ExtentHeader::SIZE as usize];
    file.read_exact_at(&mut bytes, from)?;
    let mut header = ExtentHeader::from_bytes(&bytes).ok_or_else(changed)?;
    let len = header.extent().ok_or_else(changed)?;
    let mut entries = vec![0; header.entries as usize];
    file.read_exact_at(&mut entries, from + ExtentHeader::SIZE)?;
    shift_offsets(&mut entries, to.wrapping_sub(from));
    header.entries_crc = crc32(&entries);
    target.write_all_at(&header.to_bytes(), to)?;
    target.write_all_at(&entries, to + ExtentHeader::SIZE)?;
    let mut at = ExtentHeader::SIZE + header.entries;
    let mut data = vec![0; MOVED.min(len - at) as usize];
    while at < len {
        let piece = MOVED.min(len - at) as usize;
        file.read_exact_at(&mut data[..piece], from + at)?;
        target.write_all_at(&data[..piece], to + at)?;
        at += piece as u64;
    }
    Ok(())
}

/// The checksum of an extent's entries and header.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// The checksum of an extent's data, given in pieces.
pub fn data_sum(pieces: &[&[u8]]) -> u64 {
    let mut sum = Xxh3::new();
    pieces.iter().for_each(|piece| sum.update(piece));
    sum.digest()
}

/// The contents of a data file's extents.
#[derive(Debug, Default)]
pub struct DataFileContent {
    /// The entries: one section per rank, as in the table of the closed file.
    pub sections: Vec<Section>,
    /// Bytes of extents without entries.
    pub gaps: u64,
    /// Whether an extent has a seal.
    pub has_seals: bool,
    /// The flushes that cannot be followed.
    pub diagnostics: Vec<Diagnostic>,
}

/// Finds the entries of committed flushes in a data file. `ends` lists the number and the end of each commit. `source`
/// is the file's number in the log.
pub fn sections(
    file: &SourceFile,
    source: u16,
    ends: impl Iterator<Item = (u64, u64)>,
) -> Result<DataFileContent> {
    sections_after(file, source, (0, FRONT), ends)
}

/// Finds the entries of the commits after a commit with known number and end.
pub fn sections_after(
    file: &SourceFile,
    source: u16,
    (mut before, mut start): (u64, u64),
    ends: impl Iterator<Item = (u64, u64)>,
) -> Result<DataFileContent> {
    let mut sections = Sections::default();
    let mut diagnostics = Vec::new();
    for (flush, end) in ends {
        if end > file.len() {
            let reason = format!(
                "the file has {} bytes, but flush {flush} ended at {end}",
                file.len()
            );
            return Err(Error::of(file.path(), reason));
        }
        // The first commit of an append covers several flushes.
        let extents = Extents::new(file, start..end, before..flush);
        let added = sections.add(extents, |extent| extent.check_entries(file));
        if let Err(fault) = added {
            let reason = fault
                .into_damage()
                .map_err(|fault| Error::of(file.path(), fault))?;
            let place = match flush - before {
                0 | 1 => format!("flush {flush}"),
                _ => format!("flushes {} to {flush}", before + 1),
            };
            diagnostics.push(Diagnostic::unreadable(reason).at(place));
        }
        (start, before) = (end, flush);
    }
    let section = |(rank, pieces)| Section {
        source,
        rank,
        pieces,
    };
    Ok(DataFileContent {
        gaps: sections.gaps,
        has_seals: sections.has_seals,
        sections: sections.by_rank.into_iter().map(section).collect(),
        diagnostics,
    })
}

/// Bytes of memory for a rank's section, besides its pieces.
const OF_SECTION: u64 = 128;

/// The most extents of a data file kept in memory, at 16 bytes each.
pub const MOST_EXTENTS: usize = 1 << 26;

#[derive(Default)]
struct Sections {
    by_rank: BTreeMap<u32, Vec<Piece>>,
    extents: usize,
    gaps: u64,
    has_seals: bool,
}

impl Sections {
    /// Adds the entries of all extents. Fails if `check` fails.
    fn add(
        &mut self,
        extents: Extents<'_>,
        check: impl Fn(&Located) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for extent in extents {
            let extent = extent?;
            check(&extent)?;
            let (header, piece) = (extent.header, extent.entries());
            self.has_seals |= header.seal.is_some();
            if piece.len > 0 {
                self.push(header.rank, piece)?;
            } else {
                self.gaps = self.gaps.saturating_add(header.data);
            }
        }
        Ok(())
    }

    fn push(&mut self, rank: u32, piece: Piece) -> Result<(), Fault> {
        self.extents += 1;
        if self.extents > MOST_EXTENTS {
            return Err("too many extents to hold in memory".into());
        }
        self.by_rank.entry(rank).or_default().push(piece);
        Ok(())
    }
}

/// The places of the entries in a range of bytes, by rank, for flushes up to `last`. Reads headers only, and does not
/// verify checksums.
pub fn entries_by_rank(
    file: &SourceFile,
    range: Range<u64>,
    last: u64,
) -> Result<BTreeMap<u32, Vec<Piece>>, Fault> {
    let mut sections = Sections::default();
    sections.add(Extents::new(file, range, 0..last), |_| Ok(()))?;
    Ok(sections.by_rank)
}

/// The places of the entries of all extents in a range of bytes, by rank. Verifies the entries' checksums. The lists
/// count in `reservation`.
pub(super) fn sections_in(
    task: &Task,
    file: &SourceFile,
    range: Range<u64>,
    reservation: &mut Reservation,
) -> Result<BTreeMap<u32, Vec<Piece>>, Fault> {
    let mut by_rank = BTreeMap::<u32, Vec<Piece>>::new();
    for extent in Extents::any(file, range) {
        task.check()?;
        let extent = extent?;
        let piece = extent.entries();
        if piece.len == 0 {
            continue;
        }
        extent.check_entries(file)?;
        let rank = extent.header.rank;
        if !by_rank.contains_key(&rank) {
            reservation.grow(OF_SECTION)?;
        }
        reservation.push(by_rank.entry(rank).or_default(), piece)?;
    }
    Ok(by_rank)
}

/// Number of the last flush with an extent before `end`; 0 if there is none. An append to a closed log needs it. Fails
/// if the extents cannot be followed.
pub fn last_flush(file: &SourceFile, end: u64) -> Result<u64> {
    let mut last = 0;
    for extent in Extents::any(file, FRONT..end) {
        let extent = extent.map_err(|reason| Error::of(file.path(), reason))?;
        last = extent.header.flush;
    }
    Ok(last)
}

/// Calls `visit` with each extent with data in a range of bytes: its header, and the place of its data. Fails if the
/// extents cannot be followed.
pub fn each_with_data(
    file: &SourceFile,
    range: Range<u64>,
    mut visit: impl FnMut(ExtentHeader, Range<u64>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for extent in Extents::any(file, range) {
        let extent = extent?;
        if extent.header.entries > 0 && extent.header.data > 0 {
            visit(extent.header, extent.data())?;
        }
    }
    Ok(())
}

/// An extent and its place.
#[derive(Debug, Clone, Copy)]
pub struct Located {
    /// Offset in the file.
    pub at: u64,
    /// The header at that offset.
    pub header: ExtentHeader,
    end: u64,
}

impl Located {
    /// The extent at `at` with this header; `None` if it would end past `end`.
    pub(super) fn new(at: u64, header: ExtentHeader, end: u64) -> Option<Self> {
        let behind = at.checked_add(header.extent()?)?;
        (behind <= end).then_some(Located {
            at,
            header,
            end: behind,
        })
    }

    /// The byte range of the extent.
    pub fn bytes(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Bytes of the extent.
    pub fn size(&self) -> u64 {
        self.end - self.at
    }

    /// The byte range of the data.
    pub fn data(&self) -> Range<u64> {
        self.end - self.header.data..self.end
    }

    /// The place of the entries.
    pub fn entries(&self) -> Piece {
        Piece {
            offset: self.at + ExtentHeader::SIZE,
            len: self.header.entries,
        }
    }

    /// Fails if the entries do not match their checksum.
    pub(super) fn check_entries(&self, file: &SourceFile) -> Result<(), Fault> {
        check_entries(file, self.entries(), self.header.entries_crc)
    }

    /// Fails if a copy of the entries at `offset` does not match their checksum.
    pub fn check_copy(&self, file: &SourceFile, offset: u64) -> Result<(), Fault> {
        let len = self.header.entries;
        check_entries(file, Piece { offset, len }, self.header.entries_crc)
    }

    /// Fails if the data do not match their checksum, or if `is_wanted` fails. A gap, or an extent without a seal,
    /// always matches.
    pub fn check_data(
        &self,
        file: &SourceFile,
        is_wanted: impl Fn() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.header.seal.filter(|_| self.header.entries > 0) {
            Some(seal) => self.check_sum(file, seal.data, is_wanted),
            None => Ok(()),
        }
    }

    /// Fails if an extent that no flush covers has no proof, or if its data do not match the proof.
    pub fn check_proof(&self, file: &SourceFile) -> Result<(), Fault> {
        let ExtentHeader { rank, proof, .. } = self.header;
        let proof = proof.ok_or_else(|| {
            format!(
                "the extent of rank {rank} at byte {} has no checksum",
                self.at
            )
        })?;
        self.check_sum(file, proof.data, || Ok(()))
    }

    fn check_sum(
        &self,
        file: &SourceFile,
        wanted: u64,
        is_wanted: impl Fn() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let data = Piece {
            offset: self.data().start,
            len: self.header.data,
        };
        let mut sum = Xxh3::new();
        each_piece(file, data, |part| {
            sum.update(part);
            is_wanted()
        })?;
        if sum.digest() == wanted {
            return Ok(());
        }
        let ExtentHeader { rank, flush, .. } = self.header;
        Err(format!(
            "the {} bytes of data of rank {rank} in flush {flush}, at byte {}, do not match their checksum",
            data.len, data.offset
        ).into())
    }
}

/// A walk through the extents of one or more flushes.
pub(crate) struct Extents<'a> {
    file: &'a SourceFile,
    at: u64,
    end: u64,
    /// Flushes that the next extent may belong to.
    first: u64,
    last: u64,
}

impl<'a> Extents<'a> {
    /// The extents in a range of bytes. They belong to flushes after `flushes.start`, up to `flushes.end`.
    fn new(file: &'a SourceFile, range: Range<u64>, flushes: Range<u64>) -> Self {
        Extents {
            file,
            at: range.start,
            end: range.end,
            first: flushes.start.saturating_add(1),
            last: flushes.end,
        }
    }

    /// The extents in a range of bytes, of any flush.
    pub fn any(file: &'a SourceFile, range: Range<u64>) -> Self {
        Extents::new(file, range, 0..u64::MAX)
    }

    fn find(&mut self) -> Result<Option<Located>, Fault> {
        let at = self.at;
        let left = self.end.saturating_sub(at);
        if left == 0 {
            return Ok(None);
        }
        let flushes = self.first..=self.last;
        let found = self.header(left)?.and_then(|header| {
            let len = header.extent().filter(|len| *len <= left)?;
            flushes.contains(&header.flush).then_some((header, len))
        });
        let (header, len) = found.ok_or_else(|| format!("no extent of that flush at byte {at}"))?;
        self.first = header.flush;
        self.at += len;
        let end = self.at;
        Ok(Some(Located { at, header, end }))
    }

    fn header(&self, left: u64) -> Result<Option<ExtentHeader>, Fault> {
        if left < ExtentHeader::SIZE {
            return Ok(None);
        }
        let mut bytes = [0; ExtentHeader::SIZE as usize];
        let read = self.file.read_unguarded(&mut bytes, self.at);
        read?;
        Ok(ExtentHeader::from_bytes(&bytes))
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Located, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.find();
        if found.is_err() {
            self.at = self.end;
        }
        found.transpose()
    }
}

/// The bytes that a flush adds to a data file, according to its commit.
#[derive(Debug, Clone)]
pub struct FlushRange {
    /// Number of the flush.
    pub flush: u64,
    /// Byte range.
    pub bytes: Range<u64>,
    /// Sum of the tags of the extents.
    pub tags: u64,
}

/// Checks that a flush is complete. Fails if the extents are not those of the commit, or if entries or data do not
/// match their checksums. Data are verified for extents from the offset `data_from` on. Returns the start of the first
/// of these, or the end of the flush.
pub fn check_flush(file: &SourceFile, range: &FlushRange, data_from: u64) -> Result<u64, Fault> {
    let flush = range.flush;
    let extents = Extents::new(file, range.bytes.clone(), flush.saturating_sub(1)..flush);
    let mut tags = 0u64;
    let mut compared = range.bytes.end;
    for extent in extents {
        let extent = extent?;
        extent.check_entries(file)?;
        let seal = extent.header.seal;
        tags = tags.wrapping_add(seal.map_or(0, |seal| seal.tag));
        if extent.at >= data_from {
            extent.check_data(file, || Ok(()))?;
            compared = compared.min(extent.at);
        }
    }
    if tags == range.tags {
        Ok(compared)
    } else {
        Err(format!(
            "the extents from byte {} on do not belong to flush {flush}",
            range.bytes.start
        )
        .into())
    }
}

/// Calls `visit` with a range of bytes, piece by piece, until it fails.
pub(crate) fn each_piece(
    file: &SourceFile,
    range: Piece,
    mut visit: impl FnMut(&[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    const STEP: u64 = 1 << 20;
    let mut buffer = vec![0; STEP.min(range.len) as usize];
    let mut at = 0;
    while at < range.len {
        let part = &mut buffer[..STEP.min(range.len - at) as usize];
        let read = file.read_unguarded(part, range.offset + at);
        read?;
        visit(part)?;
        at += part.len() as u64;
    }
    Ok(())
}

fn check_entries(file: &SourceFile, piece: Piece, crc: u32) -> Result<(), Fault> {
    let mut sum = Crc::new();
    each_piece(file, piece, |part| {
        sum.update(part);
        Ok(())
    })?;
    if sum.sum() == crc {
        Ok(())
    } else {
        Err(format!(
            "the entries at byte {} do not match their checksum",
            piece.offset
        )
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_id::FileId;
    use crate::front::unclosed_front;
    use crate::source_dir::SourceDir;

    /// A data file of extents without data. `extents`: rank, flush and entries of each. Returns the ends of the
    /// extents, too.
    fn data_file(dir: &std::path::Path, extents: &[(u32, u64, &[u8])]) -> (SourceFile, Vec<u64>) {
        let mut bytes = unclosed_front(&FileId([7; 16]));
        let mut ends = Vec::new();
        for (rank, flush, entries) in extents {
            let header = ExtentHeader {
                rank: *rank,
                flush: *flush,
                entries: entries.len() as u64,
                data: 5,
                entries_crc: crc32(entries),
                seal: None,
                proof: None,
            };
            bytes.extend(header.to_bytes());
            bytes.extend_from_slice(entries);
            bytes.extend([0xff; 5]);
            ends.push(bytes.len() as u64);
        }
        std::fs::write(dir.join("log"), bytes).unwrap();
        let dir = SourceDir::open(dir).unwrap();
        (SourceFile::open(&dir, "log".as_ref()).unwrap(), ends)
    }

    #[test]
    fn commits_have_their_extents() {
        let dir = tempfile::tempdir().unwrap();
        // Rank 1 has two extents in flush 3. Between them is a gap.
        let extents: [(u32, u64, &[u8]); 6] = [
            (0, 1, b"a"),
            (1, 1, b"b"),
            (1, 3, b"c"),
            (0, 3, b""),
            (1, 3, b"d"),
            (0, 4, b"e"),
        ];
        let (file, ends) = data_file(dir.path(), &extents);
        let ranks = |commits: &[(u64, u64)]| {
            let found = sections(&file, 0, commits.iter().copied()).unwrap();
            let of = |s: Section| (s.rank, s.pieces.len());
            let places = found.diagnostics.iter().map(|d| d.to_string());
            let places: Vec<_> = places.collect();
            assert!(!places.is_empty() || found.gaps == 5);
            let sections: Vec<_> = found.sections.into_iter().map(of).collect();
            (sections, places)
        };
        let all = (vec![(0, 2), (1, 3)], vec![]);
        let [_, one, .., three, four] = ends[..] else {
            panic!();
        };
        assert_eq!(ranks(&[(1, one), (2, one), (3, three), (4, four)]), all);
        // An append, after all flushes or after some of them.
        assert_eq!(ranks(&[(4, four)]), all);
        assert_eq!(ranks(&[(9, four), (10, four)]), all);
        assert_eq!(ranks(&[(3, three), (4, four)]), all);
        for (commits, place) in [
            (&[(2, three), (3, three), (4, four)][..], "flushes 1 to 2: "),
            (&[(1, one), (2, three), (3, three), (4, four)], "flush 2: "),
            (&[(4, three), (5, four)], "flush 5: "),
            (
                &[(0, one), (1, one), (2, one), (3, three), (4, four)],
                "flush 0: ",
            ),
        ] {
            let said = ranks(commits).1;
            assert!(said.len() == 1 && said[0].contains(place), "{said:?}");
        }
        assert_eq!(last_flush(&file, four).unwrap(), 4);
        assert_eq!(last_flush(&file, three).unwrap(), 3);
        assert_eq!(last_flush(&file, FRONT).unwrap(), 0);
        assert!(last_flush(&file, four - 1).is_err());
        let (file, ends) = data_file(dir.path(), &[(0, 2, b"a"), (0, 1, b"b")]);
        assert!(last_flush(&file, ends[1]).is_err());
    }

    #[test]
    fn headers_survive_and_damage_is_seen() {
        let header = ExtentHeader {
            rank: 3,
            flush: 1 << 40,
            entries: 52,
            data: u64::MAX / 2,
            entries_crc: 0xdead_beef,
            seal: Some(Seal {
                data: u64::MAX - 7,
                tag: 1 << 63,
            }),
            proof: Proof::new(u64::MAX - 7, Proof::MOST as usize),
        };
        assert!(header.proof.is_some() && Proof::new(1, Proof::MOST as usize + 1).is_none());
        let proven = ExtentHeader {
            seal: None,
            ..header
        };
        assert_eq!(ExtentHeader::from_bytes(&proven.to_bytes()), Some(proven));
        let unsealed = ExtentHeader {
            proof: None,
            ..proven
        };
        assert_eq!(
            ExtentHeader::from_bytes(&unsealed.to_bytes()),
            Some(unsealed)
        );
        assert_eq!(unsealed.to_bytes()[40..60], [0; 20]);
        let bytes = header.to_bytes();
        assert_eq!(ExtentHeader::from_bytes(&bytes), Some(header));
        for i in 0..bytes.len() {
            let mut damaged = bytes;
            damaged[i] ^= 0x10;
            assert_eq!(ExtentHeader::from_bytes(&damaged), None, "byte {i}");
        }
        let endless = ExtentHeader {
            entries: u64::MAX,
            ..header
        };
        assert_eq!(endless.extent(), None);
    }
}
