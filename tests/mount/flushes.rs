//! A growing log: what an open file continues to show, what each flush changes for tools, and flushes as files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use tempfile::{NamedTempFile, TempDir, TempPath};

use crate::common::people::{ALICE, BOB, can_be_others, set_mode};
use crate::common::settled::{settle, unsettle};
use crate::common::unclosed::Log;
use crate::common::{
    Mounted, User, can_mount, errno, messages, names_in, tested_program, wait_until,
};
use h5logfs_catalog::{At, Catalog, Lookup, Presented, Wait};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::InProcess;
use h5logfs_view::cache::MemoryLimits;

/// Bytes of a flush.
const STEP: usize = 64 << 10;

/// A log in its own directory, below another one.
fn begin() -> (TempDir, Log) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("below")).unwrap();
    let log = Log::begin(&dir.path().join("below/run.h5"));
    (dir, log)
}

/// A mount of `dir`, and the file with the messages of its daemon. `options` follow those of every test.
fn mounted_with_messages(dir: &Path, options: &str) -> (Mounted, TempPath) {
    let told = NamedTempFile::new().unwrap().into_temp_path();
    let options = format!("index_dir=none,log_file={}{options}", told.display());
    (Mounted::new(dir, &options), told)
}

/// Writes a flush.
fn grow(log: &mut Log, flush: u64) {
    let start = (flush - 1) * STEP as u64;
    log.extend(start + STEP as u64);
    let value = b'a' + (flush % 26) as u8;
    log.extent(0, &[(start, &[value; STEP])]);
    log.flush();
}

fn recover(log: &Path) {
    let mut command = Command::new(tested_program());
    let output = command.arg("recover").arg(log).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
}

fn read(file: &File, from: usize, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, from as u64)?;
    Ok(bytes)
}

/// The file that shows the log as of a flush.
fn at(mounted: &Mounted, flush: impl ToString) -> PathBuf {
    let dir = mounted.join(".h5logfs/at").join(flush.to_string());
    dir.join("below/run.h5")
}

fn listed(dir: &Path) -> Vec<String> {
    let mut names = names_in(dir);
    names.sort();
    names
}

fn is_missing(path: &Path) -> bool {
    errno(fs::metadata(path)) == Some(Errno::NOENT)
}

#[test]
fn each_flush_is_a_file() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    fs::write(dir.path().join("below/plain"), "text").unwrap();
    let mounted = Mounted::new(dir.path(), "index_dir=none");
    let shown = mounted.join("below/run.h5");
    let mut states = Vec::new();
    for flush in 1..=5 {
        grow(&mut log, flush);
        states.push(fs::read(&shown).unwrap());
    }
    let held = File::open(at(&mounted, 2)).unwrap();
    grow(&mut log, 6);
    for (flush, state) in (1..).zip(&states) {
        assert!(fs::read(at(&mounted, flush)).unwrap() == *state, "{flush}");
    }
    assert_eq!(
        listed(&mounted.join(".h5logfs")),
        ["at", "stats", "stats.prom"]
    );
    assert!(listed(&mounted.join(".h5logfs/at")).is_empty());
    assert_eq!(listed(&mounted.join(".h5logfs/at/5")), ["below"]);
    assert_eq!(listed(&mounted.join(".h5logfs/at/5/below")), ["run.h5"]);
    assert!(listed(&mounted.join(".h5logfs/at/7/below")).is_empty());
    for none in ["7", "0", "01", "+1", "x", "99999999999999999999"] {
        assert!(is_missing(&at(&mounted, none)), "{none}");
    }
    let of_flush = mounted.join(".h5logfs/at/5");
    for none in ["below/plain", "below/run.h5.h5logfs-journal", ".h5logfs"] {
        assert!(is_missing(&of_flush.join(none)), "{none}");
    }
    // A program that needs the log itself is told where it is.
    let mut recover_shown = Command::new(tested_program());
    let output = recover_shown
        .arg("recover")
        .arg(at(&mounted, 5))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &messages(&output);
    let source = log.path().canonicalize().unwrap();
    assert!(said.contains(&source.display().to_string()), "{said}");
    // A closed log has its last flush. Open files stay.
    recover(&log.path());
    wait_until("the flushes are gone", || is_missing(&at(&mounted, 5)));
    assert!(fs::read(at(&mounted, 6)).unwrap() == fs::read(&shown).unwrap());
    assert!(listed(&of_flush.join("below")).is_empty());
    assert!(read(&held, 0, states[1].len()).unwrap() == states[1]);
}

#[test]
fn flushes_that_there_are_not_cost_no_scans_and_no_memory() {
    let (dir, mut log) = begin();
    grow(&mut log, 1);
    let source = SourceDir::open(dir.path()).unwrap();
    let catalog = Catalog::new(source, MemoryLimits::each(64 << 20), InProcess::default());
    let path = Path::new("below/run.h5");
    let of_flush = |flush| {
        let at = At {
            path,
            flush: Some(flush),
        };
        match catalog.look_up(at, None, Wait::Yes).unwrap() {
            Lookup::Known(Presented::View { generation, .. }) => Some(generation),
            Lookup::Known(Presented::Absent) => None,
            other => panic!("{other:?}"),
        }
    };
    for flush in 2..1000 {
        assert_eq!(of_flush(flush), None);
    }
    assert_eq!(catalog.scans(), 1);
    // A flush never changes, whatever follows.
    let first = of_flush(1).unwrap();
    let before = catalog.scans();
    for flush in 2..10 {
        grow(&mut log, flush);
        assert_eq!(of_flush(1), Some(first));
    }
    assert_eq!(catalog.scans(), before);
    let at_first = At {
        path,
        flush: Some(1),
    };
    let Ok(Lookup::Known(view)) = catalog.open_with(at_first, Wait::Yes) else {
        panic!("no view of flush 1");
    };
    assert_eq!((view.generation(), view.snapshot().flushes), (first, 1));
    recover(&log.path());
    for flush in 1..100 {
        assert_eq!(of_flush(flush).is_some(), flush == 9);
    }
}

/// A user sees the flushes of readable logs in listable directories.
#[test]
fn flushes_are_no_more_public_than_their_log() {
    if !can_be_others() || !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    grow(&mut log, 1);
    grow(&mut log, 2);
    let below = dir.path().join("below");
    set_mode(dir.path(), 0o755);
    set_mode(&below, 0o755);
    for path in [log.path(), log.journal_path()] {
        ALICE.owns(&path, 0o644);
    }
    let mounted = Mounted::new(dir.path(), "allow_other,index_dir=none");
    let first = at(&mounted, 1);
    let state = BOB.read(&first).unwrap();
    assert!(ALICE.read(&first).unwrap() == state);
    set_mode(&log.path(), 0o600);
    assert_eq!(BOB.read(&first), None);
    assert!(ALICE.read(&first).unwrap() == state);
    set_mode(&log.path(), 0o644);
    assert!(BOB.read(&first).unwrap() == state);
    ALICE.owns(&below, 0o700);
    wait_until("the directory is closed", || BOB.read(&first).is_none());
    set_mode(dir.path(), 0o711);
    let of_flush = mounted.join(".h5logfs/at/1");
    let list = |path: &Path| {
        let output = BOB.command("ls").arg(path).output().unwrap();
        output.status.success()
    };
    wait_until("the root is no longer listed", || {
        !list(mounted.path()) && !list(&of_flush)
    });
}

/// Including parts not read before the log grew or was closed.
#[test]
fn an_open_file_keeps_its_state_until_the_log_is_settled() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    let (mounted, told) = mounted_with_messages(dir.path(), "");
    let shown = mounted.join("below/run.h5");
    for flush in 1..=40 {
        grow(&mut log, flush);
    }
    let open = || File::open(&shown).unwrap();
    let (held, late) = (open(), open());
    let len = held.metadata().unwrap().len() as usize;
    let half = len / 2;
    let start = read(&held, 0, 4096).unwrap();
    for flush in 41..=60 {
        grow(&mut log, flush);
        assert!(open().metadata().unwrap().len() as usize > len);
    }
    let exported = dir.path().join("exported.h5");
    let mut export = Command::new(tested_program());
    export.args(["export", "--at-flush", "40"]);
    let output = export.arg(log.path()).arg(&exported).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let state = fs::read(&exported).unwrap();
    assert_eq!((len, &start[..]), (state.len(), &state[..4096]));
    assert!(read(&held, 0, half).unwrap() == state[..half]);
    recover(&log.path());
    // The kernel may have read ahead, but not to the end.
    let tail = len - 2 * STEP..len - STEP;
    assert!(read(&held, tail.start, STEP).unwrap() == state[tail.clone()]);
    assert_eq!(held.metadata().unwrap().len() as usize, len);
    let (_, _, settled) = settle(&log.path()).unwrap();
    assert!(settled.after > settled.before);
    // A program may write into the settled file, where the log's records lie.
    let bytes = fs::read(log.path()).unwrap();
    let first = bytes
        .windows(STEP)
        .position(|w| w.iter().all(|b| *b == b'b'));
    let file = File::options().write(true).open(log.path()).unwrap();
    file.write_all_at(&[b'!'; STEP], first.unwrap() as u64)
        .unwrap();
    let place = state
        .windows(STEP)
        .position(|w| w.iter().all(|b| *b == b'b'));
    drop_pages(&late);
    let outcome = read(&late, place.unwrap(), STEP);
    assert_eq!(errno(outcome), Some(Errno::IO));
    let said = fs::read_to_string(&told).unwrap();
    assert!(
        said.contains("it was settled since it was opened"),
        "{said}"
    );
    wait_until("the settled file is shown", || {
        fs::read(&shown).is_ok_and(|bytes| bytes == fs::read(log.path()).unwrap())
    });
}

/// As long as the file itself exists, whatever has its name. Changed bytes in it are an error, and are not shown.
#[test]
fn an_open_file_keeps_its_state_when_another_one_replaces_the_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    let (mounted, told) = mounted_with_messages(dir.path(), "");
    let shown = mounted.join("below/run.h5");
    (1..=3).for_each(|flush| grow(&mut log, flush));
    let state = fs::read(&shown).unwrap();
    let (held, late) = (File::open(&shown).unwrap(), File::open(&shown).unwrap());
    grow(&mut log, 4);
    recover(&log.path());
    let compacted = dir.path().join("compacted.h5");
    let mut compact = Command::new(tested_program());
    let output = compact
        .arg("compact")
        .arg(log.path())
        .arg(&compacted)
        .output();
    assert!(output.unwrap().status.success());
    let aside = dir.path().join("aside.h5");
    fs::rename(log.path(), &aside).unwrap();
    fs::rename(&compacted, log.path()).unwrap();
    wait_until("the other file is shown", || {
        fs::read(&shown).is_ok_and(|bytes| bytes == fs::read(log.path()).unwrap())
    });
    drop_pages(&held);
    assert!(read(&held, 0, state.len()).unwrap() == state);
    let longer = fs::metadata(&aside).unwrap().len() as usize + 1;
    fs::write(&aside, vec![b'x'; longer]).unwrap();
    drop_pages(&late);
    let outcome = read(&late, state.len() - STEP, STEP);
    assert_eq!(errno(outcome), Some(Errno::IO));
    let said = fs::read_to_string(&told).unwrap();
    assert!(said.contains("changed since it was opened"), "{said}");
}

/// A settled file keeps its state, or is an error, when it becomes a log again and is settled once more, with other
/// bytes in the same places. Writes of programs to the ordinary file are visible, as on disk.
#[test]
fn an_open_settled_file_never_shows_another_state() {
    if !can_mount(User::Caller) {
        return;
    }
    for options in ["", ",nopassthrough"] {
        let (dir, mut log) = begin();
        let (mounted, told) = mounted_with_messages(dir.path(), options);
        let shown = mounted.join("below/run.h5");
        (1..=3).for_each(|flush| grow(&mut log, flush));
        recover(&log.path());
        settle(&log.path()).unwrap();
        let state = fs::read(log.path()).unwrap();
        let open = || File::open(&shown).unwrap();
        let (held, late) = (open(), open());
        assert!(read(&held, 0, state.len()).unwrap() == state);
        let writer = OpenOptions::new().write(true).open(log.path()).unwrap();
        writer.write_all_at(b"!", 9000).unwrap();
        drop_pages(&held);
        assert_eq!(read(&held, 9000, 1).unwrap(), b"!");
        writer.write_all_at(&state[9000..9001], 9000).unwrap();
        drop_pages(&late);
        unsettle(&log.path()).unwrap();
        let is_error = |file: &File, about: &str| {
            drop_pages(file);
            for at in [0, 9000, state.len() - 10] {
                let outcome = read(file, at, 10);
                assert_eq!(errno(outcome), Some(Errno::IO), "{about}, byte {at}");
            }
        };
        is_error(&late, "a log again");
        // The same log settled again is the same file.
        settle(&log.path()).unwrap();
        assert!(fs::read(log.path()).unwrap() == state);
        drop_pages(&held);
        assert!(read(&held, 0, state.len()).unwrap() == state);
        unsettle(&log.path()).unwrap();
        // The state while a job has the log reopened.
        log.save();
        grow(&mut log, 4);
        is_error(&held, "an append");
        recover(&log.path());
        is_error(&held, "closed again");
        settle(&log.path()).unwrap();
        assert!(fs::read(&shown).unwrap() == fs::read(log.path()).unwrap());
        is_error(&held, "settled again");
        let said = fs::read_to_string(&told).unwrap();
        assert!(said.contains("it was settled when it was opened"), "{said}");
    }
}

/// A request for a flush of a closed or settled log is an error, and never shows another state.
#[test]
fn a_mount_at_a_flush_shows_it_until_the_log_is_closed() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    (1..=3).for_each(|flush| grow(&mut log, flush));
    let newest = Mounted::new(dir.path(), "index_dir=none");
    let state = fs::read(at(&newest, 2)).unwrap();
    let (mounted, told) = mounted_with_messages(dir.path(), ",at_flush=2");
    let shown = mounted.join("below/run.h5");
    assert!(fs::read(&shown).unwrap() == state);
    recover(&log.path());
    let is_told = |words: &str| {
        let is_error = errno(fs::read(&shown)) == Some(Errno::IO);
        is_error && fs::read_to_string(&told).unwrap().contains(words)
    };
    wait_until("the closed log is an error", || {
        is_told("only its last flush (3) is available")
    });
    settle(&log.path()).unwrap();
    wait_until("the settled log is an error", || is_told("it is settled"));
}

/// Drops the kernel's cache of a file.
fn drop_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// `make`, rsync and tail compare size and time.
#[test]
fn size_and_time_change_with_each_flush() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, mut log) = begin();
    let mounted = Mounted::new(dir.path(), "index_dir=none");
    let shown = mounted.join("below/run.h5");
    let state = || {
        let found = fs::metadata(&shown).unwrap();
        let modified = (found.mtime(), found.mtime_nsec());
        (found.len(), modified, (found.ctime(), found.ctime_nsec()))
    };
    let mut last = None;
    for flush in 1..=5 {
        grow(&mut log, flush);
        // As for a job whose data is in other files.
        let journal = File::open(log.journal_path()).unwrap();
        let data = File::open(log.path()).unwrap();
        data.set_modified(std::time::UNIX_EPOCH).unwrap();
        let now = journal.metadata().unwrap();
        let state = state();
        assert_eq!(state.1, (now.mtime(), now.mtime_nsec()));
        assert!(last < Some(state), "{last:?} {state:?}");
        last = Some(state);
    }
}
