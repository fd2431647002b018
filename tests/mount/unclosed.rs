//! Unclosed logs: their views, refused operations, and their later close.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::clock::settle;
use crate::common::metadata_image::Made;
use crate::common::people::{ALICE, BOB, can_be_others, set_mode};
use crate::common::readers::Python;
use crate::common::unclosed::{self, FRONT};
use crate::common::{Mounted, PROGRAM, User, can_mount, messages, tested_program, wait_until};
use h5logfs_catalog::Catalog;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::scan::incomplete::INCOMPLETE;
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::InProcess;
use h5logfs_scan::scan;
use h5logfs_view::ChunkId;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use h5logfs_view::index::store::Store;
use rustix::process::Signal;
use tempfile::TempDir;

/// A log in its own directory.
struct Log {
    dir: TempDir,
    log: unclosed::Log,
}

impl Deref for Log {
    type Target = unclosed::Log;

    fn deref(&self) -> &Self::Target {
        &self.log
    }
}

impl DerefMut for Log {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.log
    }
}

impl Log {
    fn begin() -> Self {
        Self::with(unclosed::Log::begin)
    }

    fn usual() -> Self {
        Self::with(unclosed::Log::usual)
    }

    fn with(make: impl FnOnce(&Path) -> unclosed::Log) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = make(&dir.path().join("log.h5"));
        Log { dir, log }
    }

    fn view(&self) -> Result<Arc<View>> {
        open(&self.path())
    }

    fn shown(&self) -> String {
        shown(&self.view().unwrap())
    }

    fn recover(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(tested_program());
        command.arg("recover").args(arguments).arg(self.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &messages(&output);
        (output.status.success(), said)
    }
}

fn open(path: &Path) -> Result<Arc<View>> {
    let (dir, name) = SourceDir::of_file(path)?;
    let snapshot = scan(ScanRequest::alone(&dir, &name, &Settings::default()))?;
    View::open(
        &dir,
        snapshot,
        Arc::new(Budget::new(MemoryLimits::each(64 << 20))),
        None,
    )
}

/// The elements of `/d`, as text.
fn shown(view: &View) -> String {
    try_shown(view).unwrap()
}

fn try_shown(view: &View) -> Result<String> {
    assert_eq!(view.snapshot().datasets[0].name, "/d");
    let len = view.snapshot().datasets[0].dims[0] as usize;
    let mut bytes = Vec::new();
    for chunk in 0..view.grid(0).len() {
        bytes.extend_from_slice(&view.chunks().stored(ChunkId::new(0, chunk))?);
    }
    bytes.truncate(len);
    Ok(String::from_utf8(bytes).unwrap())
}

#[track_caller]
fn assert_refused(outcome: Result<Arc<View>>, words: &str) {
    let error = outcome.err().map(|e| e.to_string()).unwrap();
    assert!(error.contains("log.h5"), "no file in: {error}");
    assert!(error.contains(words), "\"{words}\" is not in: {error}");
}

#[test]
fn the_last_complete_flush_is_shown_and_nothing_behind_it() {
    let log = Log::usual();
    let view = log.view().unwrap();
    assert_eq!(shown(&view), "aabbaacc");
    let diagnostics = &view.snapshot().diagnostics;
    let said = Diagnostic::note("not closed: shown as flush 2 left it");
    assert_eq!(diagnostics, &[said]);
    let nothing = Log::begin();
    assert!(nothing.view().unwrap().snapshot().datasets.is_empty());
}

#[test]
fn a_torn_journal_shows_the_flush_before() {
    let mut log = Log::usual();
    let end = log.journal.rfind(r#""commit""#).unwrap();
    log.journal.truncate(end);
    log.save();
    let view = log.view().unwrap();
    assert_eq!(shown(&view), "aabbaa");
    assert!(
        view.snapshot().diagnostics[1]
            .what
            .contains("line 6 of the journal is torn")
    );
    // The torn flush did not return, so nothing is missing.
    assert!(!has_attribute(&view) && !view.snapshot().has_losses());
}

/// Whether the root has the attribute about missing data.
fn has_attribute(view: &View) -> bool {
    let mut metadata = vec![0; view.len().min(4096) as usize];
    view.read_at(0, &mut metadata).unwrap();
    let name = INCOMPLETE.as_bytes();
    metadata.windows(name.len()).any(|bytes| bytes == name)
}

#[test]
fn flushes_behind_a_damaged_line_are_not_dropped_unasked() {
    let mut log = Log::usual();
    log.journal = log.journal.replacen(r#""flush":1"#, r#""flush":3"#, 1);
    log.save();
    let view = log.view().unwrap();
    assert!(view.snapshot().datasets.is_empty());
    assert!(
        view.snapshot().diagnostics[1]
            .what
            .contains("line 4 of the journal is damaged")
    );
    assert!(
        view.snapshot().has_losses(),
        "{:?}",
        view.snapshot().diagnostics
    );
    assert!(has_attribute(&view));
    let (good, said) = log.recover(&[]);
    assert!(
        !good && said.contains("`--last-flush 0` drops them"),
        "{said}"
    );
    assert!(log.recover(&["--last-flush", "0"]).0);
}

/// The attribute is set in a mount and in an export. A program's own attribute of this name keeps the name that it has
/// in the layout.
#[test]
fn a_damaged_journal_is_told_by_an_attribute() {
    let Some(python) = Python::new() else { return };
    if !can_mount(User::Caller) {
        return;
    }
    let mut log = Log::begin();
    log.line(
        r#"{"define":{"attribute":{"object":"/","name":"_h5logfs_incomplete","value":{"text":"mine"}}}}"#,
    );
    log.extend(2);
    log.extent(0, &[(0, b"aa")]);
    log.commit();
    log.extend(4);
    log.extent(0, &[(2, b"bb")]);
    log.commit();
    let mounted = Mounted::new(log.dir.path(), "index_dir=none");
    let code = "
import h5py, sys
for path in sys.argv[1:]:
    with h5py.File(path) as f:
        print(*f['d'][()], *(f'{name}={value}' for name, value in sorted(f.attrs.items())))
";
    let own = "97 97 98 98 _h5logfs_incomplete=mine\n";
    assert_eq!(python.run(code, &[&mounted.join("log.h5")]), own);
    drop(mounted);
    log.journal = log.journal.replacen(r#""flush":2"#, r#""flush":3"#, 1);
    log.extend(6);
    log.save();
    let out = tempfile::tempdir().unwrap();
    let exported = out.path().join("exported.h5");
    let export = |option: &str| {
        let mut command = Command::new(tested_program());
        command.args([
            "export",
            "--option",
            option,
            "--force",
            "--allow-incomplete",
        ]);
        let output = command.arg(log.path()).arg(&exported).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        python.run(code, &[&exported])
    };
    let told = export("incomplete_attribute=on");
    let start =
        "97 97 __h5logfs_incomplete=mine _h5logfs_incomplete=b'Data that were logged are missing";
    assert!(told.starts_with(start), "{told}");
    assert!(told.contains("line 7 of the journal is damaged"), "{told}");
    let mounted = Mounted::new(log.dir.path(), "index_dir=none");
    assert_eq!(python.run(code, &[&mounted.join("log.h5")]), told);
    assert_eq!(
        export("incomplete_attribute=off"),
        "97 97 _h5logfs_incomplete=mine\n"
    );
}

#[test]
fn a_log_without_its_journal_is_refused() {
    let log = Log::usual();
    fs::rename(log.journal_path(), log.dir.path().join("elsewhere")).unwrap();
    assert_refused(log.view(), "it was not closed, and its journal");
    fs::write(log.journal_path(), "nonsense\n").unwrap();
    assert_refused(log.view(), "a journal without a first line");
    let mut other = Log::begin();
    other.journal.clear();
    other.said = unclosed::Crc::default();
    let id = "ff".repeat(16);
    other.line(&format!(
        r#"{{"journal":1,"file":"{id}","writer":"","ranks":1,"subfiles":0,"config":0}}"#
    ));
    other.save();
    assert_refused(other.view(), "belongs to another file");
    let mut newer = Log::begin();
    newer.journal.clear();
    newer.said = unclosed::Crc::default();
    newer.line(r#"{"journal":3,"file":"","writer":"","ranks":1,"subfiles":0,"config":0}"#);
    newer.save();
    assert_refused(newer.view(), "a journal of version 3");
}

#[test]
fn a_data_file_that_is_too_short_is_refused() {
    let mut log = Log::usual();
    log.data.truncate(FRONT + 200);
    log.save();
    assert_refused(log.view(), "where the journal speaks of");
    let (good, said) = log.recover(&[]);
    assert!(!good && said.contains("flush 1 ended at 8416"), "{said}");
}

#[test]
fn a_damaged_extent_is_an_error_of_the_data_and_not_of_the_file() {
    // Damage in the header of the first extent, and in its entries.
    for at in [FRONT + 30, FRONT + 64 + 20] {
        let mut log = Log::usual();
        log.data[at] ^= 1;
        log.save();
        let view = log.view().unwrap();
        let error = try_shown(&view).unwrap_err().to_string();
        assert!(
            error.contains("dataset /d: ") && error.contains("flush 1: "),
            "{error}"
        );
        let before = fs::read(log.path()).unwrap();
        let (good, said) = log.recover(&[]);
        assert!(!good && said.contains("flush 1: "), "{said}");
        assert_eq!(fs::read(log.path()).unwrap(), before);
        assert!(log.journal_path().exists());
    }
    // Undamaged parts can be kept.
    let mut log = Log::usual();
    let second = log.data.windows(8).rposition(|w| w == b"h5lgxtnt").unwrap() - 64 - 46;
    log.data[second + 20] ^= 1;
    log.save();
    assert!(
        try_shown(&log.view().unwrap())
            .unwrap_err()
            .to_string()
            .contains("flush 2: ")
    );
    let (good, said) = log.recover(&["--last-flush", "1"]);
    assert!(good, "{said}");
    assert_eq!(log.shown(), "aabbaa");
}

#[test]
fn what_is_recovered_is_a_closed_file() {
    let log = Log::usual();
    let (good, said) = log.recover(&[]);
    assert!(
        good && said.contains("recovered 2 flushes of 1 dataset"),
        "{said}"
    );
    assert!(!log.journal_path().exists());
    let view = log.view().unwrap();
    assert_eq!(shown(&view), "aabbaacc");
    assert!(view.snapshot().diagnostics.is_empty());
    assert!(view.snapshot().journal.is_none());
    // The command can be repeated, but a closed log has no flushes to drop.
    let (good, said) = log.recover(&[]);
    assert!(
        good && said.contains("already closed, nothing to do"),
        "{said}"
    );
    let (good, said) = log.recover(&["--last-flush", "1"]);
    assert!(!good && said.contains("it is closed already"), "{said}");
    assert_eq!(log.shown(), "aabbaacc");
}

#[test]
fn a_recovery_that_was_interrupted_is_done_again() {
    let closed = Log::usual();
    assert!(closed.recover(&[]).0);
    let closed = fs::read(closed.path()).unwrap();
    let end = Log::usual().view().unwrap().snapshot().sources[0]
        .identity
        .size as usize;
    // Only the table; a half-written front; no objects; some of the objects; and everything except the removal of the
    // journal.
    let table_only = {
        let mut data = Log::usual().data.clone();
        data.truncate(end);
        data.extend(&closed[end..]);
        data
    };
    let mut half_front = table_only.clone();
    half_front[..1000].copy_from_slice(&closed[..1000]);
    let lens = [end, end + 100, closed.len() - 100, closed.len()];
    let with_front = lens.map(|len| closed[..len].to_vec());
    for data in [table_only, half_front].into_iter().chain(with_front) {
        let mut log = Log::usual();
        log.data = data;
        log.save();
        assert_eq!(log.shown(), "aabbaacc");
        let (good, said) = log.recover(&[]);
        assert!(good, "{said}");
        assert_eq!(log.shown(), "aabbaacc");
        assert!(log.view().unwrap().snapshot().journal.is_none());
    }
}

#[test]
fn a_running_job_is_not_disturbed() {
    let log = Log::usual();
    let journal = fs::File::open(log.journal_path()).unwrap();
    rustix::fs::flock(&journal, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let before = fs::read(log.path()).unwrap();
    let (good, said) = log.recover(&[]);
    assert!(!good && said.contains("still running"), "{said}");
    assert_eq!(fs::read(log.path()).unwrap(), before);
    assert_eq!(log.shown(), "aabbaacc");
}

#[test]
fn flushes_that_there_are_not_are_not_kept() {
    let log = Log::usual();
    let (good, said) = log.recover(&["--last-flush", "3"]);
    assert!(!good && said.contains("it has 2 flushes, not 3"), "{said}");
    let (good, said) = log.recover(&["--last-flush", "0"]);
    assert!(good, "{said}");
    assert!(log.view().unwrap().snapshot().datasets.is_empty());
}

#[test]
fn an_open_view_keeps_the_flushes_that_a_recovery_drops() {
    let mut log = Log::usual();
    log.commit();
    let view = log.view().unwrap();
    assert!(log.recover(&["--last-flush", "1"]).0);
    assert_eq!(log.shown(), "aabbaa");
    assert!(shown(&view).starts_with("xxxxxxxxyyyy"));
}

#[test]
fn an_open_view_stays_while_the_log_grows() {
    let mut log = Log::begin();
    log.extend(2);
    log.extent(0, &[(0, b"aa")]);
    log.commit();
    let (dir, name) = SourceDir::of_file(&log.path()).unwrap();
    let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default());
    let first = catalog.open(&name).unwrap();
    // Bytes that no commit covers change nothing.
    log.extent(0, &[(1, b"bb")]);
    fs::write(log.path(), &log.data).unwrap();
    assert_eq!(
        catalog.open(&name).unwrap().generation(),
        first.generation()
    );
    log.extend(3);
    log.commit();
    let second = catalog.open(&name).unwrap();
    assert_eq!(
        (shown(&first).as_str(), shown(&second).as_str()),
        ("aa", "abb")
    );
    assert!(log.recover(&[]).0);
    let closed = catalog.open(&name).unwrap();
    assert_eq!(shown(&closed), "abb");
    assert_eq!(shown(&second), "abb");
    assert_ne!(closed.generation(), second.generation());
    // Another file takes the name of the log.
    fs::rename(log.path(), log.dir.path().join("old.h5")).unwrap();
    assert!(matches!(catalog.open(&name), Err(Error::Io { .. })));
}

#[test]
fn a_log_that_may_still_grow_is_not_kept_until_it_is_closed() {
    let log = Log::usual();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("kept");
    let see = || {
        let (dir, name) = SourceDir::of_file(&log.path()).unwrap();
        let store = Store::open(&place, 64 << 20).unwrap();
        let catalog = Catalog::new(dir, MemoryLimits::each(64 << 20), InProcess::default())
            .with_store(Arc::new(store));
        let view = catalog.open(&name).unwrap();
        (shown(&view), view.saved().is_some(), catalog.scans())
    };
    settle(log.dir.path());
    assert_eq!(see(), ("aabbaacc".into(), false, 1));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    assert!(log.recover(&[]).0);
    settle(log.dir.path());
    assert_eq!(see(), ("aabbaacc".into(), true, 1));
    assert_eq!(see(), ("aabbaacc".into(), true, 0));
}

#[test]
fn a_mount_follows_a_running_job_and_hides_its_journal() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut log = Log::usual();
    let mounted = Mounted::new(log.dir.path(), "");
    let names = || {
        let entries = fs::read_dir(mounted.path()).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["log.h5"]);
    assert!(fs::metadata(mounted.join("log.h5.h5logfs-journal")).is_err());
    let value = |wanted: &str| {
        let script = "import h5py, sys; print(bytes(h5py.File(sys.argv[1])['d'][()]).decode())";
        let python = std::env::var("H5LOGFS_TEST_PYTHON_OLD").unwrap_or("/usr/bin/python3".into());
        let output = Command::new(python)
            .args(["-c", script])
            .arg(mounted.join("log.h5"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text == wanted
    };
    wait_until("two flushes are shown", || value("aabbaacc"));
    log.commit();
    wait_until("the third flush is shown", || {
        value("xxxxxxxxyyyy\0\0\0\0\0\0\0\0")
    });
    assert!(log.recover(&[]).0);
    wait_until("the closed file is shown", || {
        names() == ["log.h5"] && value("xxxxxxxxyyyy\0\0\0\0\0\0\0\0")
    });
    // An orphan is an ordinary file.
    fs::write(log.dir.path().join("gone.h5.h5logfs-journal"), "text").unwrap();
    wait_until("the orphan is shown", || names().len() == 2);
}

/// A reader may come while a job creates the files of its log. The log must not count as broken any longer than that.
/// The messages of the daemon do not grow with the flushes of a job.
#[test]
fn a_log_of_which_not_all_was_there_is_shown_when_it_is() {
    if !can_mount(User::Caller) {
        return;
    }
    let log = Log::usual();
    let journal = fs::read(log.journal_path()).unwrap();
    fs::write(log.journal_path(), &journal[..20]).unwrap();
    let mounted = Mounted::new(log.dir.path(), "");
    let read = || fs::read(mounted.join("log.h5"));
    read().unwrap_err();
    fs::write(log.journal_path(), &journal).unwrap();
    let start = Instant::now();
    wait_until("the log is shown", || read().is_ok());
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn all_states_of_a_growing_log_are_one_line() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut log = Log::usual();
    let dir = tempfile::tempdir().unwrap();
    let messages = dir.path().join("messages");
    let mounted = Mounted::new(log.dir.path(), &format!("log_file={}", messages.display()));
    let read = |scans: u64| {
        wait_until("the flush is shown", || {
            fs::read(mounted.join("log.h5")).is_ok() && mounted.scans() >= scans
        });
    };
    let lines = || {
        let text = fs::read_to_string(&messages).unwrap();
        let lines = text.lines().filter(|line| line.contains("log.h5"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for flush in 1..=4 {
        read(flush);
        log.commit();
    }
    let first = lines();
    assert_eq!(first.len(), 1, "{first:#?}");
    let expected = "; not closed: shown as flush 2 left it";
    assert!(
        first[0].contains("INFO") && first[0].contains(expected),
        "{first:#?}"
    );
    // A signal makes the daemon forget this, too.
    mounted.send(Signal::HUP);
    wait_until("it is told anew", || {
        fs::read(mounted.join("log.h5")).is_ok() && lines().len() == 2
    });
}

#[test]
fn a_log_is_no_more_public_than_its_journal() {
    if !can_be_others() || !can_mount(User::Caller) {
        return;
    }
    let log = Log::usual();
    set_mode(log.dir.path(), 0o755);
    let mounted = Mounted::new(log.dir.path(), "allow_other,index_dir=none");
    let shown = mounted.join("log.h5");
    ALICE.owns(&log.path(), 0o644);
    ALICE.owns(&log.journal_path(), 0o644);
    let all = BOB.read(&shown).unwrap();
    assert!(all.starts_with(b"\x89HDF"));
    set_mode(&log.journal_path(), 0o600);
    assert_eq!(BOB.read(&shown), None);
    assert!(ALICE.read(&shown).unwrap() == all);
    set_mode(&log.journal_path(), 0o644);
    assert!(BOB.read(&shown).unwrap() == all);
    set_mode(&log.path(), 0o600);
    assert_eq!(BOB.read(&shown), None);
}

/// Puts the log into a directory where all users may create files.
fn in_a_shared_directory(log: &Log) {
    set_mode(log.dir.path(), 0o1777);
    BOB.owns(&log.path(), 0o644);
    BOB.owns(&log.journal_path(), 0o644);
}

#[test]
fn a_journal_of_another_user_is_not_acted_upon() {
    if !can_be_others() {
        return;
    }
    let log = Log::usual();
    in_a_shared_directory(&log);
    assert_eq!(log.shown(), "aabbaacc");
    ALICE.owns(&log.journal_path(), 0o644);
    let before = (
        fs::read(log.path()).unwrap(),
        fs::read(log.journal_path()).unwrap(),
    );
    assert_refused(
        log.view(),
        "user 61101 owns it, and user 61102 owns the log file",
    );
    let (good, said) = log.recover(&[]);
    for word in ["log.h5.h5logfs-journal", "user 61101 owns it", "user 61102"] {
        assert!(!good && said.contains(word), "no {word} in: {said}");
    }
    let after = (
        fs::read(log.path()).unwrap(),
        fs::read(log.journal_path()).unwrap(),
    );
    assert!(after == before);
    // Root may have written it.
    std::os::unix::fs::chown(log.journal_path(), Some(0), None).unwrap();
    assert_eq!(log.shown(), "aabbaacc");
    // To recover, root takes the rights of the owner, who cannot write to the directory.
    let (good, said) = log.recover(&[]);
    assert!(
        !good && said.contains("and has to own the journal"),
        "{said}"
    );
    BOB.owns(&log.journal_path(), 0o644);
    assert!(log.recover(&[]).0);
}

/// A closed log needs no journal, so one put there by another user changes nothing.
#[test]
fn nothing_that_another_user_puts_beside_a_closed_log_changes_it() {
    if !can_be_others() || !can_mount(User::Caller) {
        return;
    }
    let log = Log::usual();
    in_a_shared_directory(&log);
    let journal = fs::read(log.journal_path()).unwrap();
    assert!(log.recover(&["--discard-unflushed"]).0);
    let path = log.journal_path();
    let put: [(&str, &dyn Fn()); 4] = [
        ("the journal of an earlier flush", &|| {
            let end = journal.windows(8).position(|w| w == b"\"commit\"").unwrap();
            let end = end + journal[end..].iter().position(|b| *b == b'\n').unwrap();
            fs::write(&path, &journal[..=end]).unwrap();
        }),
        ("a directory", &|| fs::create_dir(&path).unwrap()),
        ("a link", &|| {
            std::os::unix::fs::symlink("log.h5", &path).unwrap()
        }),
        ("a private file", &|| {
            fs::write(&path, "").unwrap();
            set_mode(&path, 0o000);
        }),
    ];
    for (what, put) in put {
        put();
        std::os::unix::fs::lchown(&path, Some(ALICE.uid), None).unwrap();
        assert_eq!(log.shown(), "aabbaacc", "{what}");
        let mounted = Mounted::new(log.dir.path(), "allow_other,index_dir=none");
        let read = BOB.read(&mounted.join("log.h5")).unwrap();
        assert!(read.starts_with(b"\x89HDF"), "{what}");
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 2, "{what}");
        drop(mounted);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir(&path);
    }
}

/// The chunks of each state are its records, in the tables of all ranks and flushes.
#[test]
fn chunks_of_a_growing_log_are_its_records() {
    const TILE: u64 = 70_000;
    let values = |letter: u8| vec![letter; TILE as usize];
    let mut log = Log::begin();
    log.extend(3 * TILE);
    log.extent(0, &[(0, &values(b'a'))]);
    log.extent(1, &[(2 * TILE, &values(b'c'))]);
    log.commit();
    log.extent(0, &[(TILE, &values(b'b'))]);
    log.extend(3 * TILE + 1);
    log.extent(1, &[(3 * TILE, b"d")]);
    log.commit();
    let view = log.view().unwrap();
    assert_eq!(view.grid(0).chunk, [TILE]);
    let all = [values(b'a'), values(b'b'), values(b'c'), vec![b'd']].concat();
    assert!(shown(&view).as_bytes() == all);
    // A record that is no tile.
    log.extent(1, &[(5, b"e")]);
    log.commit();
    assert_eq!(log.view().unwrap().grid(0).chunk, [3 * TILE + 1]);
}

/// The log is mounted before its close, and is closed under the mount.
#[test]
fn a_log_of_an_hdf5_program_is_mounted() {
    let Some(python) = Python::old() else { return };
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let made = Made::by(&python, dir.path(), "v110");
    let path = dir.path().join("log.h5");
    drop(made.log(&path));
    let mounted = Mounted::new(dir.path(), "index_dir=none");
    let shown = mounted.join("log.h5");
    python.same_with(&[], &shown, &made.native).unwrap();
    let recovered = Command::new(PROGRAM)
        .arg("recover")
        .arg(&path)
        .output()
        .unwrap();
    assert!(recovered.status.success(), "{}", messages(&recovered));
    python.same_with(&[], &shown, &made.native).unwrap();
}
