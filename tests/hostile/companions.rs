//! Files with names of companion files that belong to another user: burst-buffer logs, subfiles, journals. They must
//! neither become bytes of a user's file nor hide that user's files.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;

use crate::arena::Arena;
use crate::common::people::{
    ALICE, BOB, CAROL, Person, copy, corpus, open_source, ready, set_mode,
};
use crate::common::readers::said;
use crate::common::{Mounted, names_in, tested_program, wait_until};

const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
const CLASSIC: &str = "corpus-pnetcdf/records-cdf1-np1";
const LOGS: [&str; 2] = ["file.nc_0_0.data", "file.nc_0_0.meta"];
/// A log file with a directory of subfiles.
const SUBFILED: &str = "subfile.log.h5";
/// A broken log.
const BROKEN: &str = "corpus/truncated.log.h5";

/// A source in which all users may create files, and none may remove the files of others.
struct Shared {
    source: TempDir,
    dir: PathBuf,
    further: TempDir,
}

impl Shared {
    /// A source; `None` where files of several users cannot be mounted.
    fn new() -> Option<Self> {
        if !ready() {
            return None;
        }
        let (source, further) = (open_source(), open_source());
        let dir = source.path().join("run");
        fs::create_dir(&dir).unwrap();
        set_mode(&dir, 0o1777);
        set_mode(further.path(), 0o1777);
        Some(Shared {
            source,
            dir,
            further,
        })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Copies `from`, a path below `tests`, for `person`.
    fn put(&self, from: &str, to: &Path, person: Person, mode: u32) {
        copy(&corpus(from), to);
        person.owns(to, mode);
    }

    /// BOB's netCDF file, readable only for him.
    fn put_classic(&self) -> Vec<u8> {
        let file = self.at("file.nc");
        self.put(&format!("{CLASSIC}/file.nc"), &file, BOB, 0o600);
        fs::read(file).unwrap()
    }

    fn put_logs(&self, dir: &Path, person: Person) {
        for log in LOGS {
            self.put(&format!("{CLASSIC}/{log}"), &dir.join(log), person, 0o644);
        }
    }

    fn options(&self) -> String {
        format!("burst_dir={}", self.further.path().display())
    }

    fn mount(&self, options: &str) -> Mounted {
        let options = [options, "index_dir=none", &self.options()].join(",");
        Mounted::new(self.source.path(), options.trim_start_matches(','))
    }

    fn mount_for_all(&self) -> Mounted {
        self.mount("allow_other")
    }

    fn run(&self, command: &str, file: &str) -> Output {
        let mut run = Command::new(tested_program());
        run.args([command, "--option", &self.options()]);
        run.arg(self.at(file)).output().unwrap()
    }
}

/// Fails unless `text` names the file and both users.
#[track_caller]
fn assert_told(text: &str, file: &str) {
    for word in [file, "61101", "61102"] {
        assert!(text.contains(word), "no {word} in: {text}");
    }
}

/// Number of differing bytes, for a message.
fn difference(seen: &[u8], expected: &[u8]) -> String {
    let differ = seen.iter().zip(expected).filter(|(a, b)| a != b).count();
    format!("{differ} of {} bytes differ", expected.len())
}

// --- burst-buffer logs ----------------------------------------------------------------------------

#[test]
fn logs_of_another_user_are_not_applied() {
    for is_beside in [true, false] {
        let Some(shared) = Shared::new() else { return };
        let bytes = shared.put_classic();
        let dir = if is_beside {
            shared.dir.as_path()
        } else {
            shared.further.path()
        };
        shared.put_logs(dir, ALICE);
        for options in ["allow_other", ""] {
            let mounted = shared.mount(options);
            let shown = mounted.join("run/file.nc");
            let seen = match options {
                "" => fs::read(&shown).unwrap(),
                _ => BOB.read(&shown).unwrap(),
            };
            assert!(
                seen == bytes,
                "beside: {is_beside}, options: {options}: {}",
                difference(&seen, &bytes)
            );
            let logs = if is_beside { &LOGS[..] } else { &[] };
            let names = [&["file.nc"], logs].concat();
            assert_eq!(names_in(&mounted.join("run")), names);
        }
        for command in ["inspect", "check"] {
            let output = shared.run(command, "file.nc");
            assert!(!output.status.success());
            assert_told(&said(&output), "file.nc_0_0.");
        }
    }
}

/// BOB's own logs are applied, and another user's log beside them changes no byte.
#[test]
fn a_log_of_another_user_changes_nothing_of_ones_own() {
    let Some(shared) = Shared::new() else { return };
    shared.put_classic();
    shared.put_logs(&shared.dir, BOB);
    let mounted = shared.mount_for_all();
    let before = BOB.read(&mounted.join("run/file.nc")).unwrap();
    assert!(before.starts_with(HDF5));
    assert_eq!(names_in(&mounted.join("run")), ["file.nc"]);
    for (log, other) in LOGS.iter().zip(["file.nc_7_0.data", "file.nc_7_0.meta"]) {
        copy(&shared.at(log), &shared.at(other));
        ALICE.owns(&shared.at(other), 0o644);
    }
    drop(mounted);
    let mounted = shared.mount_for_all();
    let after = BOB.read(&mounted.join("run/file.nc")).unwrap();
    assert!(after == before, "{}", difference(&after, &before));
    let names = ["file.nc", "file.nc_7_0.data", "file.nc_7_0.meta"];
    assert_eq!(names_in(&mounted.join("run")), names);
    assert_eq!(
        BOB.read(&mounted.join("run/file.nc_7_0.meta")),
        fs::read(shared.at("file.nc_7_0.meta")).ok()
    );
    let inspect = shared.run("inspect", "file.nc");
    assert!(inspect.status.success(), "{}", said(&inspect));
    assert_told(&said(&inspect), "file.nc_7_0.data");
    // Otherwise any user could make a check of another user's file fail.
    assert!(shared.run("check", "file.nc").status.success());
}

#[test]
fn the_log_of_the_daemon_tells_of_logs_that_are_not_applied() {
    let Some(arena) = Arena::new() else { return };
    let dir = arena.source(BOB);
    for name in ["file.nc", LOGS[0], LOGS[1]] {
        copy(&corpus(&format!("{CLASSIC}/{name}")), &dir.join(name));
    }
    arena.give(BOB);
    set_mode(&dir, 0o1777);
    for log in LOGS {
        ALICE.owns(&dir.join(log), 0o644);
    }
    let shown = BOB.read(&arena.shown(BOB).join("file.nc"));
    assert_eq!(shown, fs::read(dir.join("file.nc")).ok());
    assert_told(&arena.messages(), "file.nc_0_0.data");
}

/// Root may have written them, or a service that owns the directory.
#[test]
fn logs_of_root_and_of_the_owner_of_their_directory_are_applied() {
    let Some(shared) = Shared::new() else { return };
    let bytes = shared.put_classic();
    shared.put_logs(&shared.dir, CAROL);
    let is_applied = || {
        let mounted = shared.mount_for_all();
        let seen = BOB.read(&mounted.join("run/file.nc")).unwrap();
        assert!(seen.starts_with(HDF5) || seen == bytes);
        seen != bytes
    };
    for (owner, mode, expected) in [
        (0, 0o1777, false),
        (CAROL.uid, 0o755, true),
        (CAROL.uid, 0o775, false),
        (CAROL.uid, 0o1777, false),
        (ALICE.uid, 0o755, false),
    ] {
        chown(&shared.dir, Some(owner), None).unwrap();
        set_mode(&shared.dir, mode);
        assert_eq!(is_applied(), expected, "{owner}, {mode:o}");
    }
    for log in LOGS {
        chown(shared.at(log), Some(0), None).unwrap();
    }
    set_mode(&shared.dir, 0o1777);
    assert!(is_applied());
}

#[test]
fn a_change_of_the_owner_is_noticed() {
    let Some(shared) = Shared::new() else { return };
    let bytes = shared.put_classic();
    shared.put_logs(&shared.dir, BOB);
    let mounted = shared.mount_for_all();
    let shown = mounted.join("run/file.nc");
    let is_applied = || BOB.read(&shown).is_some_and(|seen| seen != bytes);
    let give = |name: &str, person: Person| chown(shared.at(name), Some(person.uid), None).unwrap();
    assert!(is_applied());
    LOGS.iter().for_each(|log| give(log, ALICE));
    wait_until("the logs are of another user", || !is_applied());
    LOGS.iter().for_each(|log| give(log, BOB));
    wait_until("the logs are of the same user again", is_applied);
    // The owner of the file counts, too.
    give("file.nc", ALICE);
    wait_until("the file is of another user", || {
        ALICE.read(&shown).is_some_and(|seen| seen == bytes)
    });
}

/// Links that another user makes where the system does not forbid them.
#[test]
fn links_to_files_of_the_same_user_are_not_applied() {
    let Some(shared) = Shared::new() else { return };
    let bytes = shared.put_classic();
    let private = shared.source.path().join("private");
    fs::create_dir(&private).unwrap();
    shared.put_logs(&private, BOB);
    BOB.owns(&private, 0o755);
    let reads_own_bytes = || {
        let mounted = shared.mount_for_all();
        BOB.read(&mounted.join("run/file.nc")).unwrap() == bytes
    };
    for log in LOGS {
        fs::hard_link(private.join(log), shared.at(log)).unwrap();
    }
    assert!(reads_own_bytes(), "hard links");
    for log in LOGS {
        fs::remove_file(shared.at(log)).unwrap();
        symlink(private.join(log), shared.at(log)).unwrap();
        std::os::unix::fs::lchown(shared.at(log), Some(ALICE.uid), None).unwrap();
    }
    assert!(reads_own_bytes(), "symbolic links");
}

/// In a directory without the sticky bit, another user can replace BOB's log at any time.
#[test]
fn logs_that_change_places_with_those_of_another_user_are_never_read() {
    let Some(shared) = Shared::new() else { return };
    const MARK: u8 = 0xee;
    let bytes = shared.put_classic();
    shared.put_logs(&shared.dir, BOB);
    set_mode(&shared.dir, 0o777);
    let others = LOGS.map(|log| shared.at(&format!("other-{log}")));
    for (log, other) in LOGS.iter().zip(&others) {
        let mut forged = fs::read(shared.at(log)).unwrap();
        if log.ends_with(".data") {
            forged[8..].fill(MARK);
        }
        fs::write(other, forged).unwrap();
        ALICE.owns(other, 0o644);
    }
    let mounted = shared.mount_for_all();
    let shown = mounted.join("run/file.nc");
    let applied = BOB.read(&shown).unwrap();
    assert!(applied.starts_with(HDF5));
    let stop = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            ALICE.act(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (log, other) in LOGS.iter().zip(&others) {
                        let (log, exchange) = (shared.at(log), RenameFlags::EXCHANGE);
                        renameat_with(CWD, &log, CWD, other, exchange).unwrap();
                    }
                }
            });
        });
        let seen: Vec<_> = BOB.act(|| (0..1000).filter_map(|_| fs::read(&shown).ok()).collect());
        stop.store(true, Ordering::Relaxed);
        seen
    });
    assert!(!seen.is_empty());
    let forged = |bytes: &&Vec<u8>| bytes.windows(8).any(|some| some == [MARK; 8]);
    let (all, forged) = (seen.len(), seen.iter().filter(forged).count());
    assert!(forged == 0, "{forged} of {all} reads");
    let is_known = |read: &Vec<u8>| read.starts_with(HDF5) || *read == bytes;
    assert!(seen.iter().all(is_known));
}

// --- subfiles -------------------------------------------------------------------------------------

#[test]
fn subfiles_of_another_user_are_not_read() {
    let Some(shared) = Shared::new() else { return };
    let log = shared.at(SUBFILED);
    shared.put(&format!("corpus/{SUBFILED}"), &log, BOB, 0o600);
    let subfiles = shared.at(&format!("{SUBFILED}.subfiles"));
    shared.put(
        &format!("corpus/{SUBFILED}.subfiles"),
        &subfiles,
        BOB,
        0o755,
    );
    let give = |person: Person| {
        let owner = format!("{}:{}", person.uid, person.gid);
        let mut chown = Command::new("chown");
        assert!(
            chown
                .args(["-R", &owner])
                .arg(&subfiles)
                .status()
                .unwrap()
                .success()
        );
    };
    let reads = || {
        let mounted = shared.mount_for_all();
        let names = names_in(&mounted.join("run"));
        let shown = mounted.join("run").join(SUBFILED);
        let read = BOB.command("cat").arg(shown).output().unwrap();
        (read.status.success(), names.len() == 1)
    };
    give(BOB);
    assert_eq!(reads(), (true, true));
    // Anybody may add files to it, but only BOB's count.
    set_mode(&subfiles, 0o1777);
    assert_eq!(reads(), (true, true));
    let second = subfiles.join(format!("{SUBFILED}.1"));
    ALICE.owns(&second, 0o644);
    assert!(!reads().0, "a subfile of another user");
    assert_told(
        &said(&shared.run("inspect", SUBFILED)),
        &format!("{SUBFILED}.1"),
    );
    give(ALICE);
    assert_eq!(reads(), (false, false), "a directory of another user");
    assert_told(&said(&shared.run("inspect", SUBFILED)), ".subfiles");
    // A log without subfiles is unaffected.
    shared.put("corpus/fill.log.h5", &log, BOB, 0o600);
    assert_eq!(reads(), (true, false));
    let inspect = shared.run("inspect", SUBFILED);
    assert!(inspect.status.success());
    assert_told(&said(&inspect), ".subfiles");
}

// --- names that disappear -------------------------------------------------------------------------

/// BOB's files, each with the name of a companion file of a broken log of ALICE.
#[test]
fn a_broken_log_hides_no_file_of_another_user() {
    let Some(shared) = Shared::new() else { return };
    let logs = ["sim", "run7", "notes", "a.subfiles", "a.h5logfs-journal"];
    let mut names = Vec::new();
    for log in logs {
        shared.put(BROKEN, &shared.at(log), ALICE, 0o644);
        names.push(log.to_owned());
        for end in ["_0_0.meta", "_0_0.data", ".h5logfs-journal"] {
            let name = format!("{log}{end}");
            fs::write(shared.at(&name), "BOB's\n").unwrap();
            BOB.owns(&shared.at(&name), 0o644);
            names.push(name);
        }
        let dir = format!("{log}.subfiles");
        fs::create_dir(shared.at(&dir)).unwrap();
        fs::write(shared.at(&dir).join("file"), "BOB's\n").unwrap();
        BOB.owns(&shared.at(&dir), 0o755);
        names.push(dir);
    }
    names.sort();
    for sharing in [0o1777, 0o777] {
        set_mode(&shared.dir, sharing);
        for options in ["allow_other", ""] {
            let mounted = shared.mount(options);
            let run = mounted.join("run");
            let missing = |shown: &[String]| -> Vec<_> {
                names
                    .iter()
                    .filter(|n| !shown.contains(n))
                    .cloned()
                    .collect()
            };
            let missing = missing(&names_in(&run));
            assert!(
                missing.is_empty(),
                "{} names are not listed: {missing:?}",
                missing.len()
            );
            for name in names.iter().filter(|name| !logs.contains(&name.as_str())) {
                let path = if name.ends_with(".subfiles") {
                    run.join(name).join("file")
                } else {
                    run.join(name)
                };
                let read = fs::read(path);
                assert!(read.is_ok_and(|text| text == b"BOB's\n"), "{name}");
            }
        }
    }
}

/// The reverse: ALICE's files named like a part of BOB's log, or like its log file.
#[test]
fn companion_names_of_another_user_hide_nothing() {
    let Some(shared) = Shared::new() else { return };
    let good = fs::read(corpus("corpus/fill.log.h5")).unwrap();
    for name in ["run7", "notes", "sim"] {
        fs::write(shared.at(name), &good).unwrap();
        BOB.owns(&shared.at(name), 0o644);
    }
    fs::create_dir(shared.at("run7.subfiles")).unwrap();
    ALICE.owns(&shared.at("run7.subfiles"), 0o700);
    shared.put(BROKEN, &shared.at("notes.h5logfs-journal"), ALICE, 0o600);
    let pipe = shared.at("sim.h5logfs-journal");
    mknodat(CWD, &pipe, FileType::Fifo, 0o600.into(), 0).unwrap();
    ALICE.owns(&pipe, 0o600);
    let mounted = shared.mount_for_all();
    let run = mounted.join("run");
    assert_eq!(names_in(&run), names_in(&shared.dir));
    for name in ["run7", "notes", "sim"] {
        let seen = BOB.read(&run.join(name)).unwrap();
        assert!(seen.starts_with(HDF5) && seen != good, "{name}");
    }
}

/// ALICE's file is a good log only with files that root owns, and must not hide these.
#[test]
fn a_log_hides_no_files_of_root_in_a_shared_directory() {
    let Some(shared) = Shared::new() else { return };
    let file = shared.at("file.nc");
    shared.put(&format!("{CLASSIC}/file.nc"), &file, ALICE, 0o644);
    for log in LOGS {
        copy(&corpus(&format!("{CLASSIC}/{log}")), &shared.at(log));
    }
    let mounted = shared.mount_for_all();
    assert!(
        ALICE
            .read(&mounted.join("run/file.nc"))
            .unwrap()
            .starts_with(HDF5)
    );
    assert_eq!(
        names_in(&mounted.join("run")),
        ["file.nc", LOGS[0], LOGS[1]]
    );
}

// --- many of them ---------------------------------------------------------------------------------

/// Each lookup of a file compares the names of its companion files.
#[test]
fn companion_names_by_the_ten_thousand() {
    let Some(arena) = Arena::new() else { return };
    let dir = arena.source(BOB);
    let file = dir.join("file.nc");
    copy(&corpus(&format!("{CLASSIC}/file.nc")), &file);
    for log in LOGS {
        copy(&corpus(&format!("{CLASSIC}/{log}")), &dir.join(log));
    }
    arena.give(BOB);
    set_mode(&dir, 0o1777);
    let shown = arena.shown(BOB).join("file.nc");
    let before = BOB.read(&shown).unwrap();
    for number in 0..20_000 {
        let name = dir.join(format!("file.nc_{number}_1.meta"));
        fs::write(&name, "").unwrap();
        chown(&name, Some(ALICE.uid), None).unwrap();
    }
    arena.attack("20,000 names of logs", |attack| {
        attack.together(4, |number| {
            while !attack.is_over() {
                let name = dir.join(format!("file.nc_{number}_2.meta"));
                fs::write(&name, "").unwrap();
                let _ = fs::metadata(&shown);
                fs::remove_file(&name).unwrap();
            }
        });
    });
    let after = BOB.read(&shown).unwrap();
    assert!(after == before, "{}", difference(&after, &before));
}
