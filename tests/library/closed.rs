//! Logs after crashes: a closed file beside a stale journal, a partly written close or append, a torn end of the
//! journal. No complete flush is lost, nothing else is shown, and the user can go on from every state.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use h5logfs_common::error::Result;
use h5logfs_log::journal::definition::Definition;
use h5logfs_log::journal::kept::path_of_kept;
use h5logfs_log::journal::{Line, Recorded, path_of};
use h5logfs_log::logvol::names::subfile;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_objects::defined::metadata_image;
use h5logfs_output::automatic::Cause;
use h5logfs_output::files::Files;
use h5logfs_output::log_writer::{LogWriter, Part};
use h5logfs_output::{Base, LocalOutcome, Options, Ranks, Subfiles};
use h5logfs_scan::closing::{Did, Handled, How, Outcome, recover};
use h5logfs_scan::reopened::ClosedLog;
use h5logfs_scan::scan;
use tempfile::TempDir;

use crate::common::encoder::{open_view, read_whole};
use crate::common::names_in;
use crate::common::settled::{settle, unsettle};
use crate::common::unclosed::{FRONT, Log};

/// A log of two flushes, as its job left it, and as `recover` closes it.
struct Place {
    dir: TempDir,
    unclosed: Vec<u8>,
    journal: Vec<u8>,
    closed: Vec<u8>,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.h5");
        let log = Log::usual(&path);
        // The journal without the incomplete flush.
        let end = log.journal.rfind(r#"{"commit""#).unwrap();
        let end = end + log.journal[end..].find('\n').unwrap() + 1;
        fs::write(path_of(&path), &log.journal[..end]).unwrap();
        let unclosed = fs::read(&path).unwrap();
        assert_eq!(recovered(&path), 2);
        fs::remove_file(path_of_kept(&path, 1)).unwrap();
        Place {
            unclosed,
            journal: log.journal.as_bytes()[..end].to_vec(),
            closed: fs::read(&path).unwrap(),
            dir,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("log.h5")
    }

    fn put(&self, data: &[u8], journal: &[u8]) {
        fs::write(self.path(), data).unwrap();
        fs::write(path_of(&self.path()), journal).unwrap();
    }

    fn has_journal(&self) -> bool {
        path_of(&self.path()).exists()
    }

    /// The end of the last flush.
    fn end(&self) -> usize {
        self.ends()[1]
    }

    fn ends(&self) -> Vec<usize> {
        let text = String::from_utf8(self.journal.clone()).unwrap();
        let ends = text.split("\"ends\":[").skip(1);
        ends.map(|rest| rest.split(']').next().unwrap().parse().unwrap())
            .collect()
    }

    /// The length of the journal after each line.
    fn line_ends(&self) -> Vec<usize> {
        let bytes = self.journal.iter().enumerate();
        bytes
            .filter(|(_, b)| **b == b'\n')
            .map(|(at, _)| at + 1)
            .collect()
    }
}

fn try_snapshot(path: &Path) -> Result<Snapshot> {
    let (dir, name) = SourceDir::of_file(path)?;
    scan(ScanRequest::alone(&dir, &name, &Settings::default()))
}

/// The flush that an unclosed log shows, if any, and the extent of the first dataset.
fn shown(path: &Path) -> (Option<u64>, Vec<u64>) {
    let snapshot = try_snapshot(path).unwrap();
    assert!(!snapshot.has_losses(), "{:?}", snapshot.diagnostics);
    let flushes = snapshot.journal.is_some().then_some(snapshot.flushes);
    let first = snapshot.datasets.first();
    (
        flushes,
        first.map(|first| first.dims.clone()).unwrap_or_default(),
    )
}

#[track_caller]
fn recovered(path: &Path) -> u64 {
    match recover(path, How::default()).unwrap() {
        Outcome::Recovered(recovered) => recovered.flushes,
        other => panic!("{other:?}"),
    }
}

/// Reopens a log with a single rank. Returns the flush that it continues.
fn append(path: &Path) -> std::result::Result<LogWriter, String> {
    let options = Options::default();
    let base = |recorded: Option<&Recorded>| match recorded {
        Some(recorded) => Base::of_journal(recorded, Vec::new())?.onto(&*metadata_image(recorded)?),
        None => {
            let (dir, name) = SourceDir::of_file(path).map_err(|e| e.to_string())?;
            let log = ClosedLog::read(&dir, &name).map_err(|e| e.to_string())?;
            Base::of_closed(&dir, &log.sources, &log.tables, Vec::new())?.onto(&log.image)
        }
    };
    let files = Files::append(path, &Ranks::one(), &options, base);
    let files = files.map_err(|e| e.to_string())?;
    Ok(LogWriter::new(Ranks::one(), files, options))
}

/// Flushes a new extent of the first dataset and nothing else.
fn flush(writer: &mut LogWriter, dims: &[u64]) {
    let extent = Line::Define(Definition::Extent {
        dataset: 0,
        dims: dims.to_vec(),
    });
    let part = Part {
        data: Some(&[]),
        outcome: LocalOutcome::Good,
        cause: Cause::Asked,
        same: 0,
        numbers: Vec::new(),
    };
    writer.flush(part, |_| Ok(Some(vec![extent]))).unwrap();
}

#[test]
fn a_closed_log_wins_over_any_journal_of_an_earlier_time() {
    let place = Place::new();
    let cut = |len: usize| place.journal[..len].to_vec();
    let mut journals: Vec<Vec<u8>> = place.line_ends().into_iter().map(cut).collect();
    journals.extend([0, 20, place.journal.len() - 5].map(cut));
    // An append of which only a part is on disk.
    fs::write(place.path(), &place.closed).unwrap();
    drop(append(&place.path()).unwrap());
    let begun = fs::read(path_of(&place.path())).unwrap();
    journals.extend(
        [50, begun.len() / 2, begun.len() - 1, begun.len()].map(|len| begun[..len].to_vec()),
    );
    journals.push([&begun[..begun.len() - 30], &[0; 30][..]].concat());
    journals.push(vec![0; 700]);
    for (number, journal) in journals.iter().enumerate() {
        place.put(&place.closed, journal);
        assert_eq!(shown(&place.path()), (None, vec![8]), "{number}");
        // The state does not hinder the next job, which continues at the end of the closed log.
        let mut writer = append(&place.path()).unwrap();
        flush(&mut writer, &[9]);
        drop(writer);
        assert_eq!(shown(&place.path()), (Some(3), vec![9]), "{number}");
        place.put(&place.closed, journal);
        let said = recover(&place.path(), How::default()).unwrap();
        assert!(matches!(said, Outcome::Cleared(_)), "{number}: {said:?}");
        assert!(!place.has_journal());
        assert!(fs::read(place.path()).unwrap() == place.closed);
    }
}

#[test]
fn a_flush_after_the_close_wins_over_the_closed_file() {
    let place = Place::new();
    fs::write(place.path(), &place.closed).unwrap();
    let mut writer = append(&place.path()).unwrap();
    flush(&mut writer, &[10]);
    drop(writer);
    let journal = fs::read(path_of(&place.path())).unwrap();
    // Neither the new front nor the truncation reached the disk.
    place.put(&place.closed, &journal);
    assert_eq!(shown(&place.path()), (Some(3), vec![10]));
    assert_eq!(recovered(&place.path()), 3);
    assert_eq!(shown(&place.path()), (None, vec![10]));
    // A complete flush also wins if data before it are damaged. The user must decide to drop it.
    let damaged = |at: usize| {
        let mut journal = journal.clone();
        journal[at] ^= 1;
        journal
    };
    place.put(&place.closed, &damaged(journal.len() - 3));
    assert_eq!(shown(&place.path()), (None, vec![8]));
    let commit = String::from_utf8_lossy(&journal).rfind("commit").unwrap();
    place.put(&place.closed, &damaged(commit - 20));
    let snapshot = try_snapshot(&place.path()).unwrap();
    assert!(snapshot.has_losses() && snapshot.journal.is_some());
    // The last flush has no extent, but counts.
    place.put(&place.closed, &journal);
    assert_eq!(recovered(&place.path()), 3);
    let writer = append(&place.path()).unwrap();
    assert_eq!(writer.files().flushes(), 3);
}

#[test]
fn a_file_of_which_not_all_is_there_does_not_win() {
    let place = Place::new();
    let (end, len) = (place.end(), place.closed.len());
    let damage = |at: usize| {
        let mut bytes = place.closed.clone();
        bytes[at] ^= 1;
        bytes
    };
    // Damage in front, seal, table and objects.
    let mut states: Vec<Vec<u8>> = [10, 4050, 5000, end, end + 30, len - 10].map(damage).into();
    // Fronts of which one part is old and the other new.
    for at in [512, 4032, 4096] {
        states.push([&place.unclosed[..at], &place.closed[at..]].concat());
        states.push(
            [
                &place.closed[..at],
                &place.unclosed[at..FRONT],
                &place.closed[FRONT..],
            ]
            .concat(),
        );
    }
    states.push(place.closed[..end].to_vec());
    states.push(place.closed[..len - 1].to_vec());
    for (number, data) in states.iter().enumerate() {
        place.put(data, &place.journal);
        if data[..] == place.closed[..] {
            continue;
        }
        assert_eq!(shown(&place.path()), (Some(2), vec![8]), "{number}");
        assert_eq!(recovered(&place.path()), 2, "{number}");
        assert_eq!(shown(&place.path()), (None, vec![8]), "{number}");
    }
}

/// A file closed by an earlier version has no seal, or an incomplete one.
#[test]
fn beside_a_log_that_an_earlier_version_closed_the_journal_decides() {
    let place = Place::new();
    let mut closed = place.closed.clone();
    closed[4032..4096].fill(0);
    place.put(&closed, &place.journal);
    assert_eq!(shown(&place.path()), (Some(2), vec![8]));
    place.put(&closed, b"");
    assert_eq!(shown(&place.path()), (None, vec![8]));
    assert!(append(&place.path()).is_ok());
}

#[test]
fn the_torn_end_of_a_journal_is_an_ordinary_state() {
    let place = Place::new();
    let one = place.line_ends()[3];
    let (first, second) = place.journal.split_at(one);
    assert!(first.ends_with(b"]}}\n"));
    let half = &second[..second.len() / 2];
    let torn: [Vec<u8>; 5] = [
        half.to_vec(),
        vec![0; 512],
        [half, &[0; 4096][..]].concat(),
        b"\xff\xfe garbage\n more of it\n".to_vec(),
        [half, b"\n00000000 {}\n"].concat(),
    ];
    for (number, torn) in torn.iter().enumerate() {
        let journal = [first, torn].concat();
        place.put(&place.unclosed, &journal);
        assert_eq!(shown(&place.path()), (Some(1), vec![6]), "{number}");
        let mut writer = append(&place.path()).unwrap();
        flush(&mut writer, &[7]);
        drop(writer);
        assert_eq!(shown(&place.path()), (Some(2), vec![7]), "{number}");
        place.put(&place.unclosed, &journal);
        let Outcome::Recovered(recovered) = recover(&place.path(), How::default()).unwrap() else {
            panic!("{number}");
        };
        assert!(
            recovered.flushes == 1 && recovered.torn.is_some(),
            "{recovered:?}"
        );
    }
    let commit = &second[second.iter().position(|b| *b == b'\n').unwrap() + 1..];
    // A part of the last flush did not reach the disk, so the flush was never acknowledged. The part on the disk is
    // kept.
    place.put(&place.unclosed, &[first, &[0; 512][..], commit].concat());
    let Outcome::Recovered(recovered) = recover(&place.path(), How::default()).unwrap() else {
        panic!("it was closed");
    };
    assert!(recovered.flushes == 1 && recovered.torn.is_some_and(|torn| torn.is_end));
    assert!(matches!(
        recovered.unflushed,
        Some(Handled {
            did: Did::Kept(_),
            ..
        })
    ));
    fs::remove_file(path_of_kept(&place.path(), 1)).unwrap();
    place.put(&place.unclosed, &[first, &[0; 512][..], commit].concat());
    let mut writer = append(&place.path()).unwrap();
    flush(&mut writer, &[7]);
    drop(writer);
    assert_eq!(shown(&place.path()), (Some(2), vec![7]));
    // Any other commit after damage belongs to a complete flush.
    let behind = |damage: &[u8], commits: usize| [damage, &commit.repeat(commits)].concat();
    for damage in [
        behind(b"x", 1),
        behind(b"00000000 {}\n", 1),
        behind(&[0; 512], 2),
        [&behind(&[0; 512], 1)[..], b"more\n"].concat(),
    ] {
        place.put(&place.unclosed, &[first, &damage].concat());
        let refused = recover(&place.path(), How::default()).unwrap_err();
        assert!(
            refused.to_string().contains("`--last-flush 1` drops them"),
            "{refused}"
        );
        let refused = append(&place.path()).map(drop).unwrap_err();
        assert!(refused.contains("--last-flush 1"), "{refused}");
    }
}

/// `recover --last-flush 1` may be interrupted at any point. The flush that it keeps can be read.
#[test]
fn while_flushes_are_dropped_those_that_are_kept_can_be_read() {
    let place = Place::new();
    let first = &place.journal[..place.line_ends()[3]];
    for data in [&place.unclosed[..], &place.unclosed[..place.ends()[0]]] {
        place.put(data, first);
        assert_eq!(shown(&place.path()), (Some(1), vec![6]));
        assert_eq!(recovered(&place.path()), 1);
    }
    // The dropped flush is then unflushed data.
    let kept = path_of_kept(&place.path(), 1);
    fs::remove_file(&kept).unwrap();
    // States follow the real order of writes: the journal never refers to more than the data file has.
    place.put(&place.unclosed, &place.journal);
    let journal = path_of(&place.path());
    let old = SourceFile::open(
        &SourceDir::open(place.dir.path()).unwrap(),
        journal.file_name().unwrap().as_ref(),
    )
    .unwrap();
    let until = Recorded::read_until(&old, 1).unwrap();
    assert_eq!(until.len, first.len() as u64);
    let how = How {
        last_flush: Some(1),
        ..How::default()
    };
    let outcome = recover(&place.path(), how).unwrap();
    assert!(matches!(outcome, Outcome::Recovered(ref r) if r.flushes == 1));
    assert!(!place.has_journal());
    assert_eq!(shown(&place.path()), (None, vec![6]));
    let names = names_in(place.dir.path());
    assert_eq!(names.len(), 1, "{names:?}");
    // A journal that returns refers to no more than this.
    place.put(&fs::read(place.path()).unwrap(), first);
    assert_eq!(shown(&place.path()), (None, vec![6]));
    // A closed log has no flushes to drop, and a request to drop some loses nothing.
    place.put(&place.closed, &place.journal);
    let refused = recover(&place.path(), how).unwrap_err().to_string();
    assert!(refused.contains("it is closed already"), "{refused}");
    assert!(place.has_journal());
}

#[test]
fn a_log_with_subfiles_is_closed_when_all_its_files_prove_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    let options = Options {
        subfiles: Subfiles::Number(1),
        ..Options::default()
    };
    let files = Files::create(&path, &Ranks::one(), &options).unwrap();
    let mut writer = LogWriter::new(Ranks::one(), files, options);
    let define = r#"{"dataset":{"path":"/d","layout":{"datatype":{"integer":{"size":1,"signed":false}},"dims":[0],"max_dims":[null]}}}"#;
    let define: Definition = serde_json::from_str(define).unwrap();
    let part = Part {
        data: Some(&[]),
        outcome: LocalOutcome::Good,
        cause: Cause::Asked,
        same: 0,
        numbers: Vec::new(),
    };
    let lines = vec![Line::Define(define)];
    writer.flush(part, |_| Ok(Some(lines))).unwrap();
    flush(&mut writer, &[5]);
    drop(writer);
    let journal = fs::read(path_of(&path)).unwrap();
    assert_eq!(recovered(&path), 2);
    fs::write(path_of(&path), &journal).unwrap();
    assert_eq!(shown(&path), (None, vec![5]));
    let of_subfile = subfile(&path, 0);
    for file in [&path, &of_subfile] {
        let bytes = fs::read(file).unwrap();
        let mut damaged = bytes.clone();
        damaged[20] ^= 1;
        fs::write(file, damaged).unwrap();
        assert_eq!(shown(&path), (Some(2), vec![5]));
        fs::write(file, bytes).unwrap();
    }
    let said = recover(&path, How::default()).unwrap();
    assert!(matches!(said, Outcome::Cleared(_)), "{said:?}");
}

/// Nothing was flushed, so the log can be replaced. The files of an interrupted creation hinder nobody.
#[test]
fn what_a_crash_at_the_creation_leaves_is_no_dead_end() {
    let place = Place::new();
    let front = &place.unclosed[..FRONT];
    for journal in [&b""[..], &[0; 300]] {
        place.put(front, journal);
        let said = recover(&place.path(), How::default())
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("nothing is lost when it is removed or replaced"),
            "{said}"
        );
        let options = Options {
            overwrite: true,
            ..Options::default()
        };
        drop(Files::create(&place.path(), &Ranks::one(), &options).unwrap());
        fs::remove_file(path_of(&place.path())).unwrap();
    }
    place.put(&place.closed, b"");
    let left = [
        ".log.h5.h5logfs-new-30313233",
        ".log.h5.h5logfs-journal.h5logfs-new-30313233",
    ];
    let left = left.map(|name| place.dir.path().join(name));
    fs::write(&left[0], &front[..300]).unwrap();
    fs::write(&left[1], &place.journal[..30]).unwrap();
    append(&place.path()).unwrap();
    assert_eq!(recovered(&place.path()), 2);
    assert!(left.iter().all(|left| !left.exists()));
}

/// A user's file with the name of the journal, beside a closed log and beside an unclosed one.
#[test]
fn a_file_that_is_no_journal_is_left_alone() {
    let place = Place::new();
    let notes = b"\xffnotes";
    for (log, words) in [
        (&place.closed, "it is closed"),
        (&place.unclosed, "a journal without a first line"),
    ] {
        place.put(log, notes);
        let refused = append(&place.path()).map(drop).unwrap_err();
        assert!(refused.contains("journal does not belong"), "{refused}");
        match recover(&place.path(), How::default()) {
            Ok(said) => assert!(matches!(said, Outcome::Closed(kept) if kept.is_empty())),
            Err(e) => assert!(e.to_string().contains(words), "{e}"),
        }
        assert_eq!(fs::read(path_of(&place.path())).unwrap(), notes);
        assert!(fs::read(place.path()).unwrap() == *log);
    }
}

#[test]
fn a_log_with_a_journal_of_an_earlier_time_is_not_settled_before_that_is_gone() {
    let place = Place::new();
    place.put(&place.closed, &place.journal);
    let settle = || {
        let memory = h5logfs_view::cache::MemoryLimits::each(64 << 20);
        let scanner = h5logfs_scan::InProcess::default();
        h5logfs_convert::settle::settle(&place.path(), &scanner, memory)
    };
    let refused = settle().unwrap_err().to_string();
    assert!(
        refused.contains("an older journal is beside it"),
        "{refused}"
    );
    assert!(fs::read(place.path()).unwrap() == place.closed);
    recover(&place.path(), How::default()).unwrap();
    settle().unwrap();
}

/// A change of a closed log, and the message that readers get afterwards.
type Case<'a> = (&'a str, &'a dyn Fn(), Option<&'static str>);

/// A view of a closed log reads the rest after the log was reopened, even where the table was overwritten. If the
/// file may have other bytes, the read is an error.
#[test]
fn a_view_of_a_closed_log_outlives_what_is_appended() {
    let place = Place::new();
    let path = place.path();
    let file = || File::options().write(true).open(place.path()).unwrap();
    let write = |at: usize, bytes: &[u8]| file().write_all_at(bytes, at as u64).unwrap();
    let opened = || append(&place.path()).unwrap();
    let closed_again = || {
        flush(&mut opened(), &[9]);
        assert_eq!(recovered(&place.path()), 3);
    };
    let (changed, settled) = ("changed since it was opened", "it was settled since");
    let is_settled = || {
        settle(&place.path()).unwrap();
    };
    let cases: [Case; 11] = [
        ("nothing", &|| (), None),
        ("opened", &|| drop(opened()), None),
        (
            "written",
            &|| {
                drop(opened());
                write(place.end(), &[7; 3000]);
            },
            None,
        ),
        ("closed again", &closed_again, None),
        ("settled", &is_settled, Some(settled)),
        (
            "a log again",
            &|| {
                is_settled();
                unsettle(&path).unwrap();
            },
            None,
        ),
        (
            "closed again and settled",
            &|| {
                closed_again();
                is_settled();
            },
            Some(settled),
        ),
        (
            "shorter",
            &|| {
                drop(opened());
                file().set_len(place.end() as u64 - 1).unwrap();
            },
            Some(changed),
        ),
        ("another one", &|| write(8176, b"?"), Some(changed)),
        ("another front", &|| write(100, b"?"), Some(changed)),
        ("without a seal", &|| write(4032, &[0; 64]), Some(changed)),
    ];
    for (about, change, error) in cases {
        fs::write(&path, &place.closed).unwrap();
        let _ = fs::remove_file(path_of(&path));
        let [unread, indexed, again] = [(); 3].map(|()| open_view(&path).unwrap());
        let wanted = read_whole(&open_view(&path).unwrap()).unwrap();
        indexed.indexes().records(0).unwrap();
        change();
        for view in [&unread, &indexed, &again] {
            match (read_whole(view), error) {
                (Ok(bytes), None) => assert!(bytes == wanted, "{about}"),
                (Err(e), Some(error)) => assert!(e.to_string().contains(error), "{about}: {e}"),
                (other, _) => panic!("{about}: {:?}", other.map(drop)),
            }
        }
    }
}
