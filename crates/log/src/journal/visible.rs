//! The flushes of a log that are fully visible.
//!
//! A file system may show the writes of another node late, and in another order: the commit of a flush before its
//! data, the size of a file before its bytes. If extents have [seals](extent::Seal), a reader notices: it verifies
//! flush by flush, up to the first incomplete one.

use xxhash_rust::xxh3::Xxh3;

use super::fresh::or_afresh;
use super::sealed::KnownFlush;
use super::{Commit, Recorded};
use crate::front::FRONT;
use crate::logvol::extent::{self, FlushRange};
use crate::source_file::SourceFile;
use h5logfs_common::fault::Fault;

/// The most data of a log, in bytes, that is verified before the log is shown: the newest data of each data file. For
/// older data only the extents and entries are verified; the data itself is when [first read](super::guard).
pub const MOST_DATA: u64 = 256 << 20;

/// A flush that is in the journal but not fully in the data files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unseen {
    /// Number of the flush.
    pub flush: u64,
    /// The missing part, in words.
    pub reason: String,
}

/// The visible part of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visible {
    /// The first flush that is not fully visible; `None` if all are.
    pub unseen: Option<Unseen>,
    /// Whether the flushes up to the known one are those of this journal, and were not verified again.
    pub goes_on: bool,
    /// For each data file the offset from which on all data before the unseen flush is verified.
    pub seen_from: Vec<u64>,
}

/// The first flush that is not fully visible; `None` if all are. `files` are the data files. Flushes without seals
/// count as visible. `most` bytes of data are verified.
pub fn first_unseen(journal: &Recorded, files: &[SourceFile], most: u64) -> Option<Unseen> {
    visible(journal, files, most, None).unseen
}

/// The visible part of a log. `known`: all flushes up to this one were visible before.
pub fn visible(
    journal: &Recorded,
    files: &[SourceFile],
    most: u64,
    known: Option<KnownFlush>,
) -> Visible {
    let share = most / files.len().max(1) as u64;
    let (seen, new) = journal.commits.split_at(known_commits(journal, known));
    let mut begins = match seen.last() {
        Some(commit) => commit.ends.clone(),
        None => vec![FRONT; files.len()],
    };
    let mut visible = Visible {
        unseen: None,
        goes_on: !seen.is_empty(),
        seen_from: begins.clone(),
    };
    for commit in new {
        let mut seen_from = visible.seen_from.clone();
        for (number, file) in files.iter().enumerate() {
            let range = begins[number]..commit.ends[number];
            let Some(tags) = commit.tags.get(number) else {
                seen_from[number] = range.end;
                continue;
            };
            let range = FlushRange {
                flush: commit.flush,
                bytes: range,
                tags: *tags,
            };
            let data_from = journal.end(number).saturating_sub(share);
            match or_afresh(file, || check(file, &range, data_from)) {
                Ok(compared) if compared == range.bytes.start => {}
                Ok(compared) => seen_from[number] = compared,
                Err(reason) => {
                    visible.unseen = Some(Unseen {
                        flush: commit.flush,
                        reason: format!("{}: {reason}", file.path().display()),
                    });
                    return visible;
                }
            }
        }
        visible.seen_from = seen_from;
        begins.clone_from(&commit.ends);
    }
    visible
}

/// The identification of this journal's flushes for a later scan.
pub fn known_flush(journal: &Recorded) -> Option<KnownFlush> {
    let last = journal.commits.last()?;
    Some(KnownFlush {
        flush: last.flush,
        sum: sum(journal, &journal.commits),
    })
}

/// Number of the journal's commits up to the known flush.
fn known_commits(journal: &Recorded, known: Option<KnownFlush>) -> usize {
    let Some(known) = known else {
        return 0;
    };
    let count = (journal.commits).partition_point(|commit| commit.flush <= known.flush);
    let commits = &journal.commits[..count];
    let is_there = commits.last().map(|last| last.flush) == Some(known.flush);
    if is_there && sum(journal, commits) == known.sum {
        count
    } else {
        0
    }
}

/// A sum over the ends of flushes, and the tags of their extents.
fn sum(journal: &Recorded, commits: &[Commit]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&journal.id.0);
    for commit in commits {
        let numbers = [&[commit.flush][..], &commit.ends, &commit.tags];
        for number in numbers.into_iter().flatten() {
            sum.update(&number.to_le_bytes());
        }
    }
    sum.digest()
}

/// Whether any flush can be distinguished from an incomplete one.
pub fn is_sealed(journal: &Recorded) -> bool {
    journal.commits.iter().any(|commit| !commit.tags.is_empty())
}

/// Verifies a flush. Returns the offset from which on its data was verified.
fn check(file: &SourceFile, range: &FlushRange, data_from: u64) -> Result<u64, Fault> {
    let len = file.metadata()?.len();
    let end = range.bytes.end;
    if len < end {
        return Err(format!("it has {len} bytes of {end}").into());
    }
    extent::check_flush(file, range, data_from)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::file_id::FileId;
    use crate::front::unclosed_front;
    use crate::journal::{Commit, Header, Journal, Line};
    use crate::logvol::extent::{ExtentHeader, Seal, crc32, data_sum};
    use crate::source_dir::SourceDir;

    const ID: FileId = FileId([7; 16]);
    const DATA: usize = 5000;

    fn extent(flush: u64, rank: u32, tag: u64) -> Vec<u8> {
        let (entries, data) = (b"entries", vec![flush as u8; DATA]);
        let header = ExtentHeader {
            rank,
            flush,
            entries: entries.len() as u64,
            data: DATA as u64,
            entries_crc: crc32(entries),
            seal: Some(Seal {
                data: data_sum(&[&data[..7], &data[7..]]),
                tag,
            }),
            proof: None,
        };
        [&header.to_bytes()[..], entries, &data].concat()
    }

    /// A log of three flushes with two extents each: its bytes, the ends of flushes, and its journal.
    fn log(dir: &Path) -> (Vec<u8>, Vec<u64>, Recorded) {
        let mut bytes = unclosed_front(&ID);
        let (mut ends, mut lines) = (Vec::new(), Vec::new());
        for flush in 1..=3 {
            bytes.extend(extent(flush, 0, u64::MAX - 1));
            bytes.extend(extent(flush, 1, flush));
            ends.push(bytes.len() as u64);
            lines.push(Line::Commit(Commit {
                // Modulo 2^64.
                tags: vec![flush.wrapping_sub(2)],
                ..Commit::new(flush, vec![bytes.len() as u64])
            }));
        }
        let path = dir.join("journal");
        let header = Header::new(&ID, 2, 0, 0);
        drop(Journal::create_with(&path, &header, &lines, true, true).unwrap());
        let journal = Recorded::read(&source(&path)).unwrap();
        (bytes, ends, journal)
    }

    fn source(path: &Path) -> SourceFile {
        let (dir, name) = SourceDir::of_file(path).unwrap();
        SourceFile::open(&dir, &name).unwrap()
    }

    #[test]
    fn what_is_not_all_there_is_not_seen() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ends, journal) = log(dir.path());
        assert!(is_sealed(&journal));
        let path = dir.path().join("data");
        let unseen = |bytes: &[u8], most| {
            fs::write(&path, bytes).unwrap();
            first_unseen(&journal, &[source(&path)], most).map(|unseen| unseen.flush)
        };
        assert_eq!(unseen(&bytes, MOST_DATA), None);
        // Every byte of a flush counts, as a hole and as another value.
        for at in (FRONT as usize..bytes.len()).step_by(97) {
            let mut other = bytes.clone();
            other[at] ^= 0x5a;
            let flush = ends.iter().filter(|end| **end <= at as u64).count() as u64 + 1;
            assert_eq!(unseen(&other, MOST_DATA), Some(flush), "byte {at}");
        }
        for (end, flush) in ends.iter().zip(1..) {
            let short = &bytes[..*end as usize - 1];
            assert_eq!(unseen(short, MOST_DATA), Some(flush));
        }
        // An extent with valid checksums takes the place of another.
        let mut other = bytes.clone();
        let len = extent(2, 1, 0).len();
        let end = ends[1] as usize;
        other[end - len..end].copy_from_slice(&extent(2, 1, 77));
        assert_eq!(unseen(&other, MOST_DATA), Some(2));
        // Of two faults the first counts. Far from the end only the data is not verified.
        let mut other = bytes.clone();
        other[ends[0] as usize - 1] = 0;
        other[ends[1] as usize - 1] = 0;
        assert_eq!(unseen(&other, MOST_DATA), Some(1));
        assert_eq!(unseen(&other, 3 * len as u64), Some(2));
        assert_eq!(unseen(&other, 0), None);
        other[FRONT as usize] = 0;
        assert_eq!(unseen(&other, 0), Some(1));
    }

    #[test]
    fn what_is_known_is_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ends, journal) = log(dir.path());
        let path = dir.path().join("data");
        fs::write(&path, &bytes).unwrap();
        let until = |flush: usize| Recorded {
            commits: journal.commits[..flush].to_vec(),
            ..Recorded::read(&source(&dir.path().join("journal"))).unwrap()
        };
        let known = known_flush(&until(2));
        let file = [source(&path)];
        let seen = visible(&journal, &file, MOST_DATA, known);
        assert!(seen.goes_on && seen.unseen.is_none());
        assert_eq!(seen.seen_from, [ends[1]]);
        assert_eq!(file[0].bytes_read(), ends[2] - ends[1]);
        // Nothing is known of other flushes with the same numbers.
        for damage in [
            |journal: &mut Recorded| journal.commits[0].tags[0] ^= 1,
            |journal: &mut Recorded| journal.commits[1].ends[0] -= 1,
            |journal: &mut Recorded| journal.id.0[0] ^= 1,
            |journal: &mut Recorded| journal.commits.truncate(1),
        ] {
            let mut other = until(2);
            damage(&mut other);
            let file = [source(&path)];
            let seen = visible(&other, &file, MOST_DATA, known);
            assert!(!seen.goes_on && file[0].bytes_read() > 0);
        }
    }

    #[test]
    fn where_the_comparison_began_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, ends, mut journal) = log(dir.path());
        let path = dir.path().join("data");
        fs::write(&path, &bytes).unwrap();
        let from =
            |journal: &Recorded, most| visible(journal, &[source(&path)], most, None).seen_from[0];
        let len = extent(1, 0, 0).len() as u64;
        assert_eq!(from(&journal, MOST_DATA), FRONT);
        assert_eq!(from(&journal, 0), ends[2]);
        assert_eq!(from(&journal, len - 1), ends[2]);
        assert_eq!(from(&journal, len), ends[2] - len);
        assert_eq!(from(&journal, 3 * len + 5), ends[2] - 3 * len);
        // A flush without seals is not verified.
        journal.commits[1].tags.clear();
        assert_eq!(from(&journal, MOST_DATA), ends[1]);
    }

    #[test]
    fn flushes_without_seals_are_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (_, _, mut journal) = log(dir.path());
        journal
            .commits
            .iter_mut()
            .for_each(|commit| commit.tags.clear());
        let path = dir.path().join("data");
        fs::write(&path, "").unwrap();
        assert!(!is_sealed(&journal));
        assert_eq!(first_unseen(&journal, &[source(&path)], MOST_DATA), None);
    }
}
