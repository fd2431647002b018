//! Root reads, changes and creates files in directories of other users. Meanwhile these users replace the directories
//! by links to directories of third users.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::common::amount::either;
use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::people::{ALICE, BOB, Person};
use crate::common::readers::{corpus, said};
use crate::common::{PROGRAM, unclosed};

/// The least number of races, even on a slow machine.
const FEWEST_RACES: usize = 10;

/// A directory of one person, which others may search.
fn home(of: Person, parent: &Path) -> PathBuf {
    let dir = parent.join(of.name);
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    own(&dir, of);
    dir
}

/// A directory with the home directories of the attacker and the victim; prints the reason if there is none.
fn homes() -> Option<(TempDir, [PathBuf; 2])> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root has the rights of all users");
        return None;
    }
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
    let homes = [ALICE, BOB].map(|person| home(person, parent.path()));
    Some((parent, homes))
}

fn own(path: &Path, of: Person) {
    chown(path, Some(of.uid), Some(of.gid)).unwrap();
}

/// A person's closed log and unclosed log.
fn logs(of: Person, dir: &Path) -> [Vec<u8>; 3] {
    let closed = dir.join("closed.h5");
    let _ = fs::remove_file(&closed);
    fs::copy(corpus().join("tiny.log.h5"), &closed).unwrap();
    let log = unclosed::Log::usual(&dir.join("unclosed.h5"));
    let files = [closed, log.path(), log.journal_path()];
    files.map(|file| {
        own(&file, of);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        fs::read(&file).unwrap()
    })
}

fn files(dir: &Path) -> [Option<Vec<u8>>; 3] {
    let names = ["closed.h5", "unclosed.h5", "unclosed.h5.h5logfs-journal"];
    names.map(|name| fs::read(dir.join(name)).ok())
}

fn root(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(arguments).arg(file).output().unwrap()
}

#[test]
fn root_changes_no_log_of_a_third_user() {
    let Some((_parent, [attacker, victim])) = homes() else {
        return;
    };
    let of_victim = logs(BOB, &victim).map(Some);
    let _ = logs(ALICE, &attacker);

    // Links that appear and disappear: the directory itself, a name in the attacker's, leads elsewhere now and then.
    let mut done = 0;
    races("settle and recover", &attacker, &victim, |run, own_run| {
        ALICE.act(|| logs_again(own_run));
        done += usize::from(root(&["settle"], &run.join("closed.h5")).status.success());
        done += usize::from(
            root(&["recover"], &run.join("unclosed.h5"))
                .status
                .success(),
        );
        let is_changed = files(&victim) != of_victim;
        if is_changed {
            let _ = logs(BOB, &victim);
        }
        is_changed
    });
    eprintln!("{done} logs of the attacker were changed meanwhile");

    // A permanent link.
    let link = attacker.join("link.h5");
    ALICE.act(|| symlink(victim.join("closed.h5"), &link).unwrap());
    for command in ["settle", "recover"] {
        let output = root(&[command], &link);
        let text = said(&output);
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("is a link of another user"), "{text}");
    }

    // Without links the command works, and the owner gets the result.
    let output = root(&["settle"], &attacker.join("closed.h5"));
    assert!(output.status.success(), "{}", said(&output));
    let output = root(&["recover"], &attacker.join("unclosed.h5"));
    assert!(output.status.success(), "{}", said(&output));
    let [_, recovered, journal] = files(&attacker);
    assert!(recovered.is_some() && journal.is_none());
}

#[test]
fn root_has_its_own_rights_again_after_the_log_of_another_user() {
    let Some((parent, [home, _])) = homes() else {
        return;
    };
    let _ = logs(ALICE, &home);
    let own_log = parent.path().join("own.h5");
    fs::copy(corpus().join("tiny.log.h5"), &own_log).unwrap();
    fs::set_permissions(&own_log, Permissions::from_mode(0o600)).unwrap();
    // Only the effective user is root, as in a set-user-ID program.
    let output = Command::new("setpriv")
        .args(["--ruid=65534", "--", PROGRAM, "settle"])
        .args([&home.join("closed.h5"), &own_log])
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

/// The attacker has a directory, and repeatedly replaces it by a link to the victim's directory. `act` gets its name,
/// and a path that leads to it in any case. Fails once `act` reports that the attacker has won.
fn races(what: &str, attacker: &Path, victim: &Path, mut act: impl FnMut(&Path, &Path) -> bool) {
    let run = attacker.join("run");
    let (own_run, spare) = (attacker.join("own"), attacker.join("spare"));
    fs::create_dir(&own_run).unwrap();
    own(&own_run, ALICE);
    let held = fs::File::open(&own_run).unwrap();
    let always = format!("/proc/self/fd/{}", held.as_raw_fd());
    let begin = Instant::now();
    let is_over = AtomicBool::new(false);
    let swap = || {
        while !is_over.load(Ordering::Relaxed) {
            let _ = symlink(victim, &spare);
            let _ = fs::rename(&own_run, &run);
            thread::yield_now();
            let _ = fs::rename(&run, &own_run);
            let _ = fs::rename(&spare, &run);
            thread::yield_now();
            let _ = fs::remove_file(&run);
        }
    };
    let (mut all, mut lost) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| ALICE.act(swap));
        let time = either(Duration::from_secs(2), Duration::from_secs(30));
        while all < FEWEST_RACES || begin.elapsed() < time {
            all += 1;
            lost += usize::from(act(&run, Path::new(&always)));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    fs::remove_dir_all(&own_run)
        .or_else(|_| fs::remove_dir_all(&run))
        .unwrap();
    eprintln!("{what}: lost {lost} of {all} races");
    assert_eq!(lost, 0, "{what}");
}

/// All that is in a directory.
fn contents(dir: &Path) -> Vec<(OsString, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().flatten();
    let mut all: Vec<_> = entries
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn root_makes_files_of_no_log_of_a_third_user_and_none_in_its_place() {
    let Some((parent, [attacker, victim])) = homes() else {
        return;
    };
    let secret = victim.join("closed.h5");
    fs::copy(corpus().join("nd.log.h5"), &secret).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    fs::write(victim.join("out.h5"), "of the victim").unwrap();
    let of_victim = contents(&victim);
    let _ = logs(ALICE, &attacker);
    let of_root = parent.path().join("out.h5");
    let log = attacker.join("closed.h5");

    let make = |command: &str, log: &Path, out: &Path| {
        let output = root(&[command, "--force", log.to_str().unwrap()], out);
        let told = said(&output);
        (output.status.success(), told)
    };
    for command in ["export", "compact"] {
        let (is_done, told) = make(command, &log, &of_root);
        assert!(is_done, "{told}");
        let expected = fs::read(&of_root).unwrap();
        let mut made = [0; 2];
        races(command, &attacker, &victim, |run, own_run| {
            ALICE.act(|| logs_again(own_run));
            let _ = fs::remove_file(&of_root);
            made[0] += u32::from(make(command, &run.join("closed.h5"), &of_root).0);
            let is_other = fs::read(&of_root).is_ok_and(|read| read != expected);
            made[1] += u32::from(make(command, &log, &run.join("out.h5")).0);
            let is_changed = contents(&victim) != of_victim;
            if is_changed {
                fs::write(victim.join("out.h5"), "of the victim").unwrap();
            }
            is_other || is_changed
        });
        eprintln!("{command}: {made:?} files made meanwhile");
    }
}

#[test]
fn root_reads_no_log_of_a_third_user_in_its_place() {
    let Some((_parent, [attacker, victim])) = homes() else {
        return;
    };
    let secret = victim.join("closed.h5");
    damaged_log().write(&secret);
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    own(&secret, BOB);
    // Each command, and its output for this log alone.
    let commands: [(&[&str], &str); 4] = [
        (&["check"], "secret-0"),
        (&["inspect"], "secret-0"),
        (&["report", "-o", "-"], "secret-0"),
        (&["ls", "--json"], "\"datasets\":7"),
    ];
    let tells =
        |(command, words): (&[&str], &str), log: &Path| said(&root(command, log)).contains(words);
    for command in commands {
        assert!(tells(command, &secret), "{command:?}");
    }

    let mut turns = commands.iter().cycle();
    races("reading", &attacker, &victim, |run, own_run| {
        ALICE.act(|| logs_again(own_run));
        tells(*turns.next().unwrap(), &run.join("closed.h5"))
    });

    let link = attacker.join("link.h5");
    ALICE.act(|| symlink(&secret, &link).unwrap());
    for command in commands {
        assert!(!tells(command, &link), "{command:?} has followed a link");
    }
}

/// A log with seven datasets, all elements of which are elsewhere.
fn damaged_log() -> LogFile {
    let datasets = (0..7).map(|id| Dataset::new(&format!("secret-{id}"), id, Type::I32, &[4]));
    let entry = |id| Entry::one(id, &[0], &[4], vec![0; 16]).claiming(1 << 40, 16);
    LogFile::with(datasets.collect(), (0..7).map(entry).collect())
}

/// Restores fresh logs in the directory, and nothing else.
fn logs_again(dir: &Path) {
    for old in fs::read_dir(dir).unwrap() {
        fs::remove_file(old.unwrap().path()).unwrap();
    }
    fs::copy(corpus().join("tiny.log.h5"), dir.join("closed.h5")).unwrap();
    unclosed::Log::usual(&dir.join("unclosed.h5"));
}
