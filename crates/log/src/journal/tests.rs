//! Journals written as jobs do, and read as readers do.

use std::fs::{self, File};

use super::definition::Definition;
use super::metadata_image::{LoggedDataset, Packing};
use super::*;
use crate::file_id::FileId;
use crate::own_parts::{BEGIN, begins_as_journal};
use crate::source_dir::SourceDir;

const ID: FileId = FileId([7; 16]);

fn group(name: &str) -> Line {
    Line::Define(Definition::Group { path: name.into() })
}

fn commit(flush: u64, end: u64) -> Line {
    Line::Commit(Commit::new(flush, vec![end]))
}

fn read(path: &Path) -> Result<Recorded> {
    let (dir, name) = SourceDir::of_file(path)?;
    Recorded::read(&SourceFile::open(&dir, &name)?)
}

/// A journal of two flushes, followed by a definition.
fn written(dir: &Path) -> PathBuf {
    let path = dir.join("log.h5.h5logfs-journal");
    let header = Header::new(&ID, 4, 0, 10);
    let mut journal = Journal::create(&path, &header, false).unwrap();
    let first = [group("/a"), commit(1, 9000)];
    journal.append_lines(&first, true).unwrap();
    let second = [group("/b"), commit(2, 9500)];
    journal.append_lines(&second, false).unwrap();
    journal.append_lines(&[group("/c")], false).unwrap();
    path
}

#[test]
fn what_the_last_commit_covers_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let found = read(&path).unwrap();
    assert_eq!((found.id, found.header.ranks), (ID, 4));
    assert_eq!(found.definitions.len(), 2);
    assert_eq!((found.flushes(), found.end(0)), (2, 9500));
    assert_eq!(found.torn, None);
    let (below, name) = SourceDir::of_file(&path).unwrap();
    let source = SourceFile::open(&below, &name).unwrap();
    let first = Recorded::read_until(&source, 1).unwrap();
    assert_eq!((first.definitions.len(), first.end(0)), (1, 9000));
    let none = Recorded::read_until(&source, 0).unwrap();
    assert_eq!((none.flushes(), none.end(0)), (0, front::FRONT));
}

#[test]
fn a_journal_cut_anywhere_tells_no_more_than_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let lines = ends.iter().filter(|end| **end < len).count();
        match read(&path) {
            Ok(found) => {
                assert!(found.torn.is_none_or(|torn| !torn.hides_flushes()));
                // Header, group, commit, group, commit, group.
                assert_eq!(
                    found.flushes(),
                    (lines as u64).saturating_sub(1) / 2,
                    "{len}"
                );
                let whole_lines = len == 0 || whole[len - 1] == b'\n';
                assert_eq!(found.torn.is_none(), whole_lines, "{len}");
            }
            Err(_) => assert_eq!(lines, 0, "{len}"),
        }
    }
}

#[test]
fn damage_anywhere_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        let line = whole[..at].iter().filter(|b| **b == b'\n').count() as u64;
        match read(&path) {
            Ok(found) => {
                // After the header every second line is a commit. Without its line end a line joins the next one.
                let is_commit = |line: &u64| *line > 0 && line.is_multiple_of(2);
                let lines = whole.iter().filter(|b| **b == b'\n').count() as u64;
                let torn = found.torn.unwrap();
                assert_eq!(torn.line, line + 1, "byte {at}");
                let hides = torn.last_hidden.is_some();
                assert_eq!(hides, torn.cause == Cause::Damaged, "byte {at}");
                let is_followed = (line + 1..lines).any(|line| is_commit(&line));
                // A damaged commit may still parse as one.
                if is_followed || !is_commit(&line) {
                    assert_eq!(hides, is_followed, "byte {at}");
                }
                assert_eq!(found.flushes(), (line.saturating_sub(1)) / 2, "byte {at}");
            }
            Err(_) => assert_eq!(line, 0, "byte {at}"),
        }
    }
}

/// The checksum distinguishes such a line from damage.
#[test]
fn a_line_of_a_later_version_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
    let known = [group("/a"), commit(1, 9000)];
    journal.append_lines(&known, false).unwrap();
    let later = serde_json::json!({"define": {"colour": {"dataset": 0}}});
    journal.append(&[later], false).unwrap();
    journal.append_lines(&[commit(2, 9000)], false).unwrap();
    let found = read(&path).unwrap();
    let torn = found.torn.unwrap();
    assert_eq!((found.flushes(), torn.line), (1, 4));
    assert_eq!(torn.cause, Cause::Unknown);
    assert!(torn.hides_flushes() && torn.to_string().contains("a later version"));
}

#[test]
fn what_cannot_follow_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let attempt = |lines: &[Line]| {
        let _ = fs::remove_file(&path);
        let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
        journal.append_lines(lines, false).unwrap();
        read(&path).map(|found| found.flushes())
    };
    assert_eq!(attempt(&[commit(1, 9000), commit(2, 9000)]).unwrap(), 2);
    assert!(attempt(&[commit(1, 9000), commit(3, 9000)]).is_err());
    assert!(attempt(&[commit(1, 9000), commit(2, 8999)]).is_err());
    assert!(attempt(&[commit(1, 100)]).is_err());
    assert!(attempt(&[group("/a"), group("/a"), commit(1, 9000)]).is_err());
    let two = Line::Commit(Commit::new(1, vec![9000, 9000]));
    assert!(attempt(&[two]).is_err());
    let tags = |tags| {
        Line::Commit(Commit {
            tags,
            ..Commit::new(1, vec![9000])
        })
    };
    assert_eq!(attempt(&[tags(vec![7])]).unwrap(), 1);
    assert!(attempt(&[tags(vec![7, 7])]).is_err());
}

/// The header of a journal that continues a log of `flush` flushes.
fn append(flush: u64) -> Header {
    Header {
        append: Some(Append { flush }),
        ..Header::new(&ID, 1, 0, 0)
    }
}

#[test]
fn an_append_begins_with_the_state_that_it_continues() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let begin = |header: &Header, lines: &[Line]| {
        let _ = fs::remove_file(&path);
        Journal::create_with(&path, header, lines, false, true).unwrap()
    };
    let mut journal = begin(&append(7), &[group("/a"), commit(7, 9000)]);
    let found = read(&path).unwrap();
    assert_eq!((found.flushes(), found.end(0)), (7, 9000));
    assert_eq!((found.definitions.len(), found.first_flush()), (1, 7));
    let next = [group("/b"), commit(8, 9100)];
    journal.append_lines(&next, false).unwrap();
    assert_eq!(read(&path).unwrap().flushes(), 8);
    let (below, name) = SourceDir::of_file(&path).unwrap();
    let source = SourceFile::open(&below, &name).unwrap();
    for (last, wanted) in [(0, 7), (6, 7), (7, 7), (8, 8)] {
        let found = Recorded::read_until(&source, last).unwrap();
        assert_eq!(found.flushes(), wanted);
    }
    // A log without flushes.
    begin(&append(0), &[commit(0, 8192), commit(1, 9000)]);
    assert_eq!(read(&path).unwrap().flushes(), 1);
    // Another state than that of the header, no state, and the largest numbers.
    begin(&append(7), &[commit(1, 9000)]);
    assert!(read(&path).is_err());
    begin(&append(7), &[group("/a")]);
    let missing = read(&path).unwrap_err().to_string();
    assert!(missing.contains("without the state"), "{missing}");
    begin(
        &append(u64::MAX),
        &[commit(u64::MAX, 9000), commit(0, 9000)],
    );
    assert!(read(&path).is_err());
}

fn logged(id: u32, header: Option<u64>) -> Line {
    Line::Logged(LoggedDataset { id, header })
}

#[test]
fn an_image_counts_with_the_commit_that_follows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let mut journal = Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
    let images: [Vec<u8>; 3] = [vec![1; 10_000], vec![2; 300], vec![3; 20_000]];
    let mut last: &[u8] = &[];
    for (image, flush) in images.iter().zip(1..) {
        let packing = [Packing::Quick, Packing::Small][flush as usize % 2];
        let mut lines = metadata_image::packed_image_lines(last, image, packing).unwrap();
        lines.push(logged(flush as u32, Some(flush)));
        journal.append_lines(&lines, false).unwrap();
        let before = read(&path).unwrap().metadata_image.unwrap_or_default();
        assert_eq!(before.image, last);
        journal.append_lines(&[commit(flush, 9000)], false).unwrap();
        let metadata_image = read(&path).unwrap().metadata_image.unwrap();
        assert_eq!(
            (&metadata_image.image, metadata_image.logged.len()),
            (image, flush as usize)
        );
        last = image;
    }
    journal
        .append_lines(&[logged(2, None), commit(4, 9000)], false)
        .unwrap();
    let found = read(&path).unwrap();
    assert_eq!((found.dataset_ids(), found.definitions.len()), (4, 0));
    let metadata_image = found.metadata_image.unwrap();
    let headers: Vec<_> = metadata_image.logged.values().copied().collect();
    assert_eq!(headers, [Some(1), None, Some(3)]);
    // Invalid: both kinds of lines, in any order, and a part without an image.
    for lines in [
        [group("/a"), logged(0, None)],
        [logged(0, None), group("/a")],
    ] {
        let _ = fs::remove_file(&path);
        let header = Header::new(&ID, 1, 0, 0);
        let [one, other] = lines;
        let lines = [one, commit(1, 9000), other, commit(2, 9000)];
        Journal::create_with(&path, &header, &lines, false, true).unwrap();
        assert!(read(&path).is_err());
    }
    let Line::Image(mut part) = metadata_image::image_lines(&[], &[1; 10])
        .unwrap()
        .remove(0)
    else {
        panic!();
    };
    part.at = 1;
    let lines = [Line::Image(part), commit(1, 9000)];
    Journal::create_with(&path, &Header::new(&ID, 1, 0, 0), &lines, true, true).unwrap();
    assert!(read(&path).is_err());
}

#[test]
fn an_append_that_fails_leaves_the_journal_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path());
    // The journal's file is on a device that is always full.
    let header = Header::new(&ID, 1, 0, 0);
    let other = dir.path().join("other");
    let mut journal = Journal::create(&other, &header, false).unwrap();
    let mut options = fs::OpenOptions::new();
    let full = options.write(true).open("/dev/full").unwrap();
    let good = journal.held.swap_file(full);
    assert!(journal.append_lines(&[commit(1, 9000)], false).is_err());
    journal.held.swap_file(good);
    journal.append_lines(&[commit(1, 9100)], false).unwrap();
    let found = read(&other).unwrap();
    assert_eq!((found.end(0), found.torn), (9100, None));
    assert_eq!(read(&path).unwrap().flushes(), 2);
}

#[test]
fn a_journal_says_who_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let job = Job::of_this_process();
    let header = Header {
        job: Some(job.clone()),
        ..Header::new(&ID, 1, 0, 0)
    };
    let journal = Journal::create(&path, &header, false).unwrap();
    assert_eq!(read(&path).unwrap().header.job.as_ref(), Some(&job));
    let (below, name) = SourceDir::of_file(&path).unwrap();
    let source = SourceFile::open(&below, &name).unwrap();
    assert_eq!(job_of(&source), Some(job));
    let other = File::open(&path).unwrap();
    assert_eq!(JobState::of(&other), JobState::Running);
    drop(journal);
    assert_eq!(JobState::of(&other), JobState::Ended);
    // Older writers do not record the job.
    assert_eq!(read(&written(dir.path())).unwrap().header.job, None);
}

#[test]
fn automatic_flushes_tell_the_last_one_that_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let asked = |flush, asked| {
        Line::Commit(Commit {
            asked,
            ..Commit::new(flush, vec![9000])
        })
    };
    let write = |header: &Header, lines: &[Line]| {
        Journal::create_with(&path, header, lines, path.exists(), true).unwrap();
    };
    let new = Header::new(&ID, 1, 0, 0);
    let good = [
        asked(1, Some(0)),
        asked(2, Some(0)),
        asked(3, None),
        asked(4, Some(3)),
    ];
    for (end, wanted) in [0, 0, 3, 3].into_iter().enumerate() {
        write(&new, &good[..=end]);
        assert_eq!(read(&path).unwrap().asked(), wanted);
    }
    // An older reader sees no difference if these are absent.
    assert_eq!(
        serde_json::to_string(&good[2]).unwrap(),
        r#"{"commit":{"flush":3,"ends":[9000]}}"#
    );
    // An append begins with the state of its log, even one whose last flush was automatic.
    write(&append(7), &[asked(7, Some(4)), asked(8, Some(4))]);
    assert_eq!(read(&path).unwrap().asked(), 4);
    for bad in [
        vec![asked(1, Some(1))],
        vec![asked(1, None), asked(2, Some(0))],
        vec![asked(1, Some(0)), asked(2, Some(1))],
    ] {
        write(&new, &bad);
        assert!(read(&path).is_err(), "{bad:?}");
    }
}

#[test]
fn a_journal_begins_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    Journal::create(&path, &Header::new(&ID, 1, 0, 0), false).unwrap();
    let bytes = fs::read(&path).unwrap();
    for len in [0, 1, 8, 9, 15, BEGIN] {
        assert!(begins_as_journal(&bytes[..len]), "{len}");
    }
    assert!(begins_as_journal(&[0; BEGIN]));
    for other in [
        "notes",
        "{\"journal\":1",
        "0123456 {\"journal\":",
        "01234567 {\"commit\"",
    ] {
        assert!(!begins_as_journal(other.as_bytes()), "{other}");
    }
}

/// An append of the writer: definitions add to the image with which the journal begins, and nothing changes that any more.
#[test]
fn definitions_may_follow_an_image_in_version_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let extent = |rows| {
        Line::Define(Definition::Extent {
            dataset: 4,
            dims: vec![rows],
        })
    };
    let image = metadata_image::image_lines(&[], &[1; 10]).unwrap();
    let logged = Line::Logged(LoggedDataset {
        id: 4,
        header: Some(8),
    });
    let begun = [&image[..], &[logged.clone(), commit(3, 9000)]].concat();
    let more = [
        group("/a"),
        extent(7),
        commit(4, 9000),
        extent(9),
        commit(5, 9000),
    ];
    let lines = [&begun[..], &more].concat();
    let mut header = Header::new(&ID, 1, 0, 0);
    header.append = Some(Append { flush: 3 });
    let create = |header: &Header, lines: &[Line]| {
        Journal::create_with(&path, header, lines, path.exists(), true).map(drop)
    };
    create(&header, &lines).unwrap();
    let refused = read(&path).unwrap_err().to_string();
    assert!(
        refused.contains("definitions and a metadata image"),
        "{refused}"
    );
    let header = header.with_base();
    create(&header, &lines).unwrap();
    let found = read(&path).unwrap();
    assert_eq!(found.metadata_image.as_ref().unwrap().image, [1; 10]);
    assert_eq!(found.definitions.len(), 1);
    assert_eq!(found.extents[&4], [9]);
    assert!(found.has_definitions() && found.takes_definitions());
    assert_eq!((found.dataset_ids(), found.datasets()), (5, 1));
    let (below, name) = SourceDir::of_file(&path).unwrap();
    let source = SourceFile::open(&below, &name).unwrap();
    assert_eq!(Recorded::read_until(&source, 4).unwrap().extents[&4], [7]);
    assert!(!Recorded::read_until(&source, 3).unwrap().has_definitions());
    create(&header, &[&lines[..], &[logged, commit(6, 9000)]].concat()).unwrap();
    assert!(read(&path).is_err());
    // A later version.
    let later = Header {
        journal: 3,
        ..header
    };
    create(&later, &lines).unwrap();
    let refused = read(&path).unwrap_err().to_string();
    assert!(refused.contains("a journal of version 3"), "{refused}");
}
