//! Flushes that fail at each of their steps.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h5logfs_hdf5_format::Added;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::closed::{Closed, set_seal};
use h5logfs_log::journal::known_table::KnownTable;
use h5logfs_log::journal::visible::first_unseen;
use h5logfs_log::journal::{Recorded, of_file};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::extent::{ExtentHeader, sections};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;

use super::*;
use crate::base::Base;
use crate::files::Appendable;
use crate::found::FoundLog;
use crate::plain_close::{JustClosed, TabledLog};
use crate::ranks::{Access, Communicator, OwnFile, SharedFile, Word};
use crate::remembered::Memory;

/// Bytes of an entry with one block of one dimension.
const ENTRY: u64 = 44;
/// Bytes of data of each entry.
const DATA: u64 = 4;

/// The first of several ranks. The others write nothing.
#[derive(Clone)]
struct First {
    ranks: u32,
    /// Whether writes of a flush fail.
    fails: Arc<AtomicBool>,
    late: Arc<Late>,
}

/// Whether the other ranks are late when this one waits for them.
#[derive(Default)]
struct Late {
    /// Late with the words between flushes.
    words: AtomicBool,
    /// Late for a flush.
    flushes: AtomicBool,
    /// Sizes of the file when the others came.
    seen: Mutex<Vec<u64>>,
    path: PathBuf,
}

/// A word that comes late.
struct LateWord {
    value: u64,
    late: Arc<Late>,
}

impl Word for LateWord {
    fn comes_in(&mut self, longest: Duration) -> bool {
        std::thread::sleep(longest);
        false
    }

    fn wait(self: Box<Self>) -> u64 {
        let size = self.late.path.metadata().unwrap().len();
        self.late.seen.lock().unwrap().push(size);
        self.value
    }
}

/// A word that is there at once.
struct Prompt(u64);

impl Word for Prompt {
    fn comes_in(&mut self, _: Duration) -> bool {
        true
    }

    fn wait(self: Box<Self>) -> u64 {
        self.0
    }
}

impl First {
    fn word(&self, value: u64, is_late: &AtomicBool) -> Box<dyn Word> {
        if !is_late.load(Ordering::Relaxed) {
            return Box::new(Prompt(value));
        }
        let late = Arc::clone(&self.late);
        Box::new(LateWord { value, late })
    }
}

impl Communicator for First {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        self.ranks
    }

    fn split(&self, _: u32) -> Box<dyn Communicator> {
        Box::new(self.clone())
    }

    fn sums_before(&self, values: &[u64]) -> Vec<u64> {
        vec![0; values.len()]
    }

    fn minima(&self, values: &[u64]) -> Vec<u64> {
        values.to_vec()
    }

    fn gather_bytes(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        vec![bytes.to_vec()]
    }

    fn broadcast(&self, _: u32, _: &mut [u8]) {}

    fn begin_broadcast(&self, value: u64) -> Box<dyn Word> {
        self.word(value, &self.late.words)
    }

    fn begin_wait(&self) -> Box<dyn Word> {
        self.word(0, &self.late.flushes)
    }

    fn open(&self, _: &Path, file: Arc<File>, _: &Access<'_>) -> FaultResult<Box<dyn SharedFile>> {
        let fails = Arc::clone(&self.fails);
        let file = OwnFile(file);
        Ok(Box::new(Failing { file, fails }))
    }
}

struct Failing {
    file: OwnFile,
    fails: Arc<AtomicBool>,
}

impl SharedFile for Failing {
    /// A failed write leaves some bytes behind.
    fn write(&self, offset: u64, pieces: &[&[u8]]) -> FaultResult {
        self.file.write(offset, pieces)?;
        if self.fails.load(Ordering::Relaxed) {
            return Err("the disk is full".into());
        }
        Ok(())
    }

    fn sync(&self) -> FaultResult {
        self.file.sync()
    }
}

/// A log, and its writer.
struct Case {
    path: PathBuf,
    fails: Arc<AtomicBool>,
    late: Arc<Late>,
    writer: LogWriter,
    /// Number of logged entries.
    logged: u8,
}

impl Case {
    fn new(path: PathBuf, ranks: u32, is_read: bool, options: Options) -> Self {
        let fails = Arc::new(AtomicBool::new(false));
        let late = Arc::new(Late {
            path: path.clone(),
            ..Late::default()
        });
        let first = Ranks::new(First {
            ranks,
            fails: Arc::clone(&fails),
            late: Arc::clone(&late),
        });
        let files = Files::create(&path, &first, &options).unwrap();
        let new = if is_read {
            LogWriter::with_reads
        } else {
            LogWriter::new
        };
        Case {
            path,
            fails,
            late,
            writer: new(first, files, options),
            logged: 0,
        }
    }

    /// Logs one entry.
    fn log(&mut self) {
        self.logged += 1;
        push(&mut self.writer, self.logged);
    }

    /// Checks that the log holds `flushes` flushes, and the bytes of each entry in order.
    fn holds(&self, flushes: u64, entries: u8) {
        let (recorded, file) = recorded(&self.path);
        assert_eq!(recorded.flushes(), flushes);
        let found = sections(&file, 0, recorded.ends(0)).unwrap();
        assert!(found.diagnostics.is_empty(), "{found:?}");
        let pieces = found.sections.iter().flat_map(|section| &section.pieces);
        let bytes = File::open(&self.path).unwrap();
        let mut expected = 1..=entries;
        for piece in pieces {
            for at in (piece.offset..piece.offset + piece.len).step_by(ENTRY as usize) {
                assert_eq!(data_of(&bytes, at), expected.next());
            }
        }
        assert_eq!(expected.next(), None);
    }
}

/// The byte value of an entry's data, if all of its bytes are equal.
fn data_of(file: &File, entry: u64) -> Option<u8> {
    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, entry + 12).unwrap();
    let mut data = [0; DATA as usize];
    file.read_exact_at(&mut data, u64::from_le_bytes(offset))
        .unwrap();
    data.iter().all(|byte| *byte == data[0]).then_some(data[0])
}

fn push(writer: &mut LogWriter, value: u8) {
    let form = Form {
        element: 1,
        chunk: None,
        filters: &[],
    };
    let dataset = DatasetInfo::new(0, &[DATA], &[Some(DATA)]);
    let blocks = Blocks::one(&[0], &[DATA]);
    let pushed = writer.push(dataset, form, &blocks, vec![value; DATA as usize].into());
    pushed.unwrap();
}

/// Buffered bytes of data and entries.
fn buffered(writer: &mut LogWriter) -> (u64, usize) {
    (writer.data_len(), writer.section().pending().len())
}

fn part() -> Part<'static> {
    Part {
        data: Some(&[]),
        outcome: LocalOutcome::Good,
        cause: Cause::Asked,
        same: 0,
        numbers: Vec::new(),
    }
}

fn flush(writer: &mut LogWriter) -> Result<()> {
    writer.flush(part(), |_| Ok(Some(Vec::new()))).map(drop)
}

fn recorded(path: &Path) -> (Recorded, SourceFile) {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let found = of_file(&LogFiles::of(&dir, &name, &file), &file).unwrap();
    (found.unwrap().1, file)
}

/// The log shows the previous flush, spilled data stay, and the next flush has all of them.
#[test]
fn a_flush_that_failed_can_be_made_again() {
    let dir = tempfile::tempdir().unwrap();
    for (n, (ranks, is_read, checksums)) in [
        (1, false, false),
        (1, true, true),
        // The rank spills to a file of its own, and the data file has a lock.
        (2, false, true),
        (2, true, false),
    ]
    .into_iter()
    .enumerate()
    {
        let options = Options {
            checksums,
            ..Options::default()
        };
        let path = dir.path().join(format!("{n}.h5"));
        let mut case = Case::new(path, ranks, is_read, options);
        case.log();
        flush(&mut case.writer).unwrap();
        case.holds(1, 1);
        for round in 1..4 {
            let entries = case.logged;
            case.log();
            case.writer.spill(&[]).unwrap();
            case.log();
            let buffered = buffered(&mut case.writer);
            let failed = match round {
                1 => {
                    case.fails.store(true, Ordering::Relaxed);
                    let failed = flush(&mut case.writer);
                    case.fails.store(false, Ordering::Relaxed);
                    failed
                }
                // The ranks agree that one of them has failed.
                2 => {
                    let outcome = LocalOutcome::Failed("this rank fails".into());
                    let part = Part { outcome, ..part() };
                    let flushed = case.writer.flush(part, |_| panic!("nobody asks for lines"));
                    flushed.map(drop)
                }
                // All ranks fail after they have written.
                _ => {
                    let failed = GlobalOutcome::Failed {
                        rank: 0,
                        reason: "all fail".into(),
                    };
                    case.writer.flush(part(), |_| Err(failed)).map(drop)
                }
            };
            assert!(failed.is_err());
            assert_eq!(self::buffered(&mut case.writer), buffered);
            let committed = recorded(&case.path).0;
            assert_eq!(committed.flushes(), round);
            // After the last flush the file has only spilled data.
            let in_place = case.writer.files().spills_in_place();
            let spilled = ExtentHeader::SIZE + ENTRY + DATA;
            let end = committed.commits.last().unwrap().ends[0];
            let end = end + if in_place { spilled } else { 0 };
            assert_eq!(case.path.metadata().unwrap().len(), end);
            // Data spilled after the failure follow.
            case.writer.spill(&[]).unwrap();
            case.log();
            flush(&mut case.writer).unwrap();
            assert_eq!(case.logged, entries + 3);
            case.holds(round + 1, case.logged);
        }
        let entries = u64::from(case.logged) * ENTRY;
        let flushed = case.writer.entries().map(Flushed::len);
        assert_eq!(flushed, (!is_read).then_some(entries));
        if let Some(flushed) = case.writer.entries() {
            let mut buffer = Vec::new();
            flushed.reader().next(&mut buffer).unwrap();
            let file = case.writer.files().local();
            for (entry, value) in buffer.chunks(ENTRY as usize).zip(1..) {
                let mut data = [0; DATA as usize];
                let offset = entry[12..20].try_into().map(u64::from_le_bytes).unwrap();
                file.read_exact_at(&mut data, offset).unwrap();
                assert_eq!(data, [value; DATA as usize]);
            }
        }
    }
}

/// A flush without anything to commit leaves the log and the buffer as they were.
#[test]
fn a_flush_may_commit_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let mut case = Case::new(path, 1, false, Options::default());
    case.log();
    let buffered = buffered(&mut case.writer);
    let part = Part {
        data: None,
        numbers: vec![3, 0],
        ..part()
    };
    let flushed = case.writer.flush(part, |agreed| {
        assert!(agreed.same);
        assert_eq!(agreed.numbers, [3, 0]);
        Ok(None)
    });
    assert!(flushed.unwrap().is_none());
    assert_eq!(self::buffered(&mut case.writer), buffered);
    assert_eq!(recorded(&case.path).0.flushes(), 0);
    flush(&mut case.writer).unwrap();
    case.holds(1, 1);
}

/// A full buffer is spilled by any write, and never exceeds its limit.
#[test]
fn a_full_buffer_is_spilled() {
    let dir = tempfile::tempdir().unwrap();
    for (ranks, is_read) in [(1, false), (2, false), (1, true), (2, true)] {
        let options = Options {
            buffer_limit: 3 * (ENTRY + DATA),
            ..Options::default()
        };
        let path = dir.path().join(format!("{ranks}{is_read}.h5"));
        let mut case = Case::new(path, ranks, is_read, options.clone());
        for _ in 0..40 {
            case.log();
            assert!(case.writer.buffered() <= options.buffer_limit);
        }
        assert!(case.writer.files().spilled().len() >= 10);
        flush(&mut case.writer).unwrap();
        case.holds(1, 40);
        assert!(!case.writer.has_unflushed());
    }
}

#[test]
fn what_is_spilled_counts_with_the_flush_and_a_log_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let options = Options::default();
    let mut case = Case::new(path.clone(), 1, true, options.clone());
    for _ in 0..2 {
        case.log();
        case.writer.spill(&[]).unwrap();
    }
    assert_eq!(case.writer.files().spilled().len(), 2);
    assert_eq!(recorded(&path).0.flushes(), 0);
    case.log();
    flush(&mut case.writer).unwrap();
    case.holds(1, 3);
    // Data that are spilled and never flushed are lost with the job.
    push(&mut case.writer, 99);
    case.writer.spill(&[]).unwrap();
    let Case {
        writer,
        fails,
        late,
        ..
    } = case;
    drop(writer);
    let base = |recorded: Option<&Recorded>| Base::of_journal(recorded.unwrap(), Vec::new());
    let ranks = Ranks::one();
    let files = Files::append(&path, &ranks, &options, base).unwrap();
    let mut case = Case {
        path: path.clone(),
        fails,
        late,
        writer: LogWriter::with_reads(ranks, files, options.clone()),
        logged: 3,
    };
    case.holds(1, 3);
    case.log();
    flush(&mut case.writer).unwrap();
    case.holds(2, 4);
    let again = Files::append(&path, &Ranks::one(), &options, base);
    let refused = again.err().unwrap().to_string();
    assert!(refused.contains("another job writes it"), "{refused}");
}

/// The remembered state of a log equals the result of a look at its extents.
#[test]
fn a_log_that_is_closed_after_each_step_is_remembered() {
    static CLOSED: Memory<u8> = Memory::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let options = Options::default();
    for step in 0..4 {
        let ranks = Ranks::one();
        let mut known = KnownTable::default();
        let files = if step == 0 {
            Files::create(&path, &ranks, &options).unwrap()
        } else {
            let base = |log: &FoundLog, recorded: Option<&Recorded>| {
                assert!(recorded.is_none());
                let (last, base, table) = CLOSED.recall(&path, log).unwrap();
                assert_eq!(last + 1, step);
                known = table;
                Ok((base, Vec::new()))
            };
            let found = Appendable::find(&path, &ranks, &options, Ok(()), base).unwrap();
            found.append(&ranks, &options, Ok(())).unwrap()
        };
        assert_eq!(known.is_empty(), step == 0);
        let mut writer = LogWriter::new(ranks, files, options.clone());
        push(&mut writer, step);
        flush(&mut writer).unwrap();
        let files = writer.files();
        let table = |known| {
            let (mut tabled, written) = files.write_tables(0, writer.entries().unwrap(), known);
            written.unwrap();
            let tabled = tabled.pop().unwrap();
            let mut bytes = vec![0; tabled.table.len as usize];
            let at = tabled.table.offset;
            files.local().read_exact_at(&mut bytes, at).unwrap();
            (bytes, tabled)
        };
        let (looked_up, _) = table(KnownTable::default());
        let (bytes, tabled) = table(known);
        assert_eq!(bytes, looked_up);
        // The table has the number of sections, the end of the only one, and an entry of each step.
        assert_eq!(bytes.len() as u64, 16 + (u64::from(step) + 1) * ENTRY);
        let log = files.closed_log(&tabled);
        let start = tabled.table.offset + tabled.table.len;
        let (mut front, objects) = (vec![0; FRONT as usize], vec![step; 100]);
        files.id().mark(&mut front);
        let closed = Closed {
            flush: log.flush,
            end: log.end(),
            has_seals: log.has_seals,
        };
        set_seal(&mut front, closed, start, &objects);
        let close = TabledLog {
            path: &path,
            journal: files.journal().unwrap(),
            file: files.local(),
            log,
            is_synced: false,
        };
        let seal = close.finish(&Added::of(front, start, objects)).unwrap();
        let found = path.metadata().unwrap();
        let table = KnownTable::new(&found, log, tabled.entries);
        CLOSED.remember(&path, step, files.base(), JustClosed { table, seal });
        writer.close();
    }
    let found = FoundLog::at(&path).unwrap();
    // Another program changes the objects.
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[9], found.len() - 1).unwrap();
    assert!(CLOSED.recall(&path, &found).is_none());
}

#[test]
fn a_commit_is_about_the_extents_of_its_flush() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let options = Options {
        checksums: true,
        ..Options::default()
    };
    let mut case = Case::new(path.clone(), 1, true, options);
    let seen = || {
        let (recorded, file) = recorded(&path);
        assert_eq!(recorded.commits.last().unwrap().tags.len(), 1);
        first_unseen(&recorded, &[file], u64::MAX)
    };
    case.log();
    case.writer.spill(&[]).unwrap();
    case.log();
    case.fails.store(true, Ordering::Relaxed);
    assert!(flush(&mut case.writer).is_err());
    case.fails.store(false, Ordering::Relaxed);
    flush(&mut case.writer).unwrap();
    assert_eq!(seen(), None);
    case.log();
    flush(&mut case.writer).unwrap();
    let end = case.path.metadata().unwrap().len();
    // An empty flush is a flush, too.
    flush(&mut case.writer).unwrap();
    assert_eq!(seen(), None);
    case.writer
        .files()
        .local()
        .write_all_at(&[88], end - 1)
        .unwrap();
    assert_eq!(seen().map(|unseen| unseen.flush), Some(2));
}

/// Options with an interval shorter than any.
fn at_once() -> Options {
    Options {
        flush_every: Some(Duration::from_nanos(1)),
        ..Options::default()
    }
}

#[test]
fn the_journal_tells_which_flushes_are_automatic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    let mut case = Case::new(path, 1, false, at_once());
    let mut flushed = Vec::new();
    for cause in [
        Cause::Automatic,
        Cause::Automatic,
        Cause::Asked,
        Cause::Automatic,
    ] {
        case.log();
        assert!(case.writer.begin_call(Call::Own));
        let part = Part { cause, ..part() };
        let flush = case.writer.flush(part, |_| Ok(Some(Vec::new())));
        flush.unwrap();
        let recorded = recorded(&case.path).0;
        assert_eq!(recorded.asked(), case.writer.files().asked());
        flushed.push((recorded.flushes(), recorded.asked()));
    }
    assert_eq!(flushed, [(1, 0), (2, 0), (3, 3), (4, 3)]);
    case.holds(4, 4);
}

#[test]
fn what_has_waited_for_long_is_spilled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.h5");
    // There are two ranks, but only the first one makes calls.
    let mut case = Case::new(path, 2, false, at_once());
    case.log();
    assert!(!case.writer.begin_call(Call::Own));
    assert_eq!(buffered(&mut case.writer), (0, 0));
    assert_eq!(case.writer.files().spilled().len(), 1);
    // Nothing is left to spill.
    case.writer.begin_write();
    assert_eq!(case.writer.files().spilled().len(), 1);
    flush(&mut case.writer).unwrap();
    case.holds(1, 1);
}

/// A rank that waits for slower ranks makes no other call meanwhile.
#[test]
fn what_waits_for_other_ranks_is_spilled() {
    let dir = tempfile::tempdir().unwrap();
    for (name, at_flush) in [("word.h5", false), ("flush.h5", true)] {
        let mut case = Case::new(dir.path().join(name), 2, true, at_once());
        let is_late = |late: &Late, is| {
            let which = if at_flush { &late.flushes } else { &late.words };
            which.store(is, Ordering::Relaxed);
        };
        is_late(&case.late, true);
        // This call sends a word, and the next call waits for it.
        assert!(!case.writer.begin_call(Call::Collective));
        case.log();
        let before = case.path.metadata().unwrap().len();
        if at_flush {
            flush(&mut case.writer).unwrap();
        } else {
            case.writer.begin_call(Call::Collective);
        }
        let spilled = before + ExtentHeader::SIZE + ENTRY + DATA;
        assert_eq!(*case.late.seen.lock().unwrap(), [spilled], "{name}");
        is_late(&case.late, false);
        flush(&mut case.writer).unwrap();
        assert_eq!(
            recorded(&case.path).0.commits.last().unwrap().ends,
            [spilled]
        );
    }
}
