//! A mount for one test, unmounted when dropped, after a failed assertion, and when the test is killed.

// Each test program uses a part of this module.
#![allow(dead_code)]

pub mod amount;
pub mod answering;
pub mod bound;
pub mod burst;
pub mod cases;
pub mod clock;
pub mod compacted;
pub mod connector;
pub mod damaged;
pub mod driver;
pub mod element;
pub mod encoder;
pub mod ended;
pub mod following;
pub mod gluster;
pub mod guard;
pub mod hosts;
pub mod jobs;
pub mod killed;
pub mod layer;
pub mod make;
pub mod metadata_image;
pub mod mpirun;
pub mod mutation;
pub mod nodes;
pub mod numbers;
pub mod once;
pub mod overwriting;
pub mod package;
pub mod people;
pub mod pnetcdf;
pub mod readers;
pub mod rows;
pub mod served;
pub mod settled;
pub mod slow;
pub mod striped;
pub mod suite;
pub mod team;
pub mod twice;
pub mod unclosed;
pub mod unseen;
pub mod ways;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use guard::Guard;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_h5logfs");

/// The program under test: the built one, or another build for comparison.
pub fn tested_program() -> String {
    std::env::var("H5LOGFS_TEST_PROGRAM").unwrap_or_else(|_| PROGRAM.to_owned())
}

/// Time limit of operations that are normally immediate.
const DEADLINE: Duration = Duration::from_secs(20);

const NOBODY: u32 = 65534;

/// The user who mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// The user who runs the tests.
    Caller,
    /// An ordinary user, although root runs the tests.
    Nobody,
}

impl User {
    /// Why this user cannot mount here.
    fn hindrance(self) -> Option<&'static str> {
        if !Path::new("/dev/fuse").exists() {
            return Some("there is no /dev/fuse");
        }
        if let Some(why) = self.hindrance_to_act() {
            return Some(why);
        }
        // fusermount3 opens the device with the rights of its caller.
        if !self.succeeds("sh", &["-c", ": <>/dev/fuse"]) {
            return Some("the user may not open /dev/fuse");
        }
        let needs_helper = self == User::Nobody || !is_root();
        if needs_helper && !is_installed("fusermount3") {
            return Some("fusermount3 is not installed");
        }
        None
    }

    /// Why no program can run as this user.
    fn hindrance_to_act(self) -> Option<&'static str> {
        match self {
            User::Caller => None,
            User::Nobody if !is_root() => Some("only root can act as another user"),
            User::Nobody if !is_installed("setpriv") => Some("setpriv is not installed"),
            User::Nobody if !self.succeeds(PROGRAM, &["--help"]) => {
                Some("the user nobody cannot run the program that was built")
            }
            User::Nobody => None,
        }
    }

    fn succeeds(self, program: &str, arguments: &[&str]) -> bool {
        let output = self.command(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// A command that runs as this user, and leaves nothing in the caller's home.
    pub fn command(self, program: &str) -> Command {
        match self {
            User::Caller => {
                let mut command = Command::new(program);
                command.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
                command
            }
            User::Nobody => {
                let mut command = Command::new("setpriv");
                command
                    .arg(format!("--reuid={NOBODY}"))
                    .arg(format!("--regid={NOBODY}"))
                    .args(["--clear-groups", "--", program]);
                command
            }
        }
    }

    /// A directory that belongs to this user.
    pub fn dir(self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        if self == User::Nobody {
            std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        dir
    }
}

/// Whether `user` can mount here; prints the reason if not.
pub fn can_mount(user: User) -> bool {
    no_hindrance(user.hindrance())
}

/// Whether programs can run as `user` here; prints the reason if not.
pub fn can_act(user: User) -> bool {
    no_hindrance(user.hindrance_to_act())
}

fn no_hindrance(hindrance: Option<&str>) -> bool {
    if let Some(why) = hindrance {
        eprintln!("skipped: {why}");
    }
    hindrance.is_none()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// A source and its mount.
#[derive(Debug)]
pub struct Mounted {
    pub user: User,
    pub daemon: Pid,
    mount_point: PathBuf,
    _guard: Guard,
    // Dropped last: the directory cannot be removed while it is a mount point.
    _dir: TempDir,
}

impl Mounted {
    pub fn new(source: &Path, options: &str) -> Self {
        Mounted::by(User::Caller, source, options)
    }

    /// Mounts a source. The mount must succeed.
    pub fn by(user: User, source: &Path, options: &str) -> Self {
        let dir = user.dir();
        let guard = Guard::of_mount(dir.path());
        let output = mount(user, source, dir.path(), options);
        assert!(output.status.success(), "{}", messages(&output));
        Mounted::guarded(user, dir, guard)
    }

    /// Takes over the mount at `dir`.
    pub fn at(user: User, dir: TempDir) -> Self {
        let guard = Guard::of_mount(dir.path());
        Mounted::guarded(user, dir, guard)
    }

    fn guarded(user: User, dir: TempDir, guard: Guard) -> Self {
        let mount_point = dir.path().to_owned();
        let daemon = daemon_of(&mount_point);
        let Some(daemon) = daemon else {
            let _ = rustix::mount::unmount(&mount_point, UnmountFlags::DETACH);
            panic!("no daemon serves {}", mount_point.display());
        };
        Mounted {
            user,
            daemon,
            mount_point,
            _guard: guard,
            _dir: dir,
        }
    }

    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.mount_point.join(name)
    }

    /// Number of scans that the daemon has started.
    pub fn scans(&self) -> u64 {
        let stats = fs::read(self.join(".h5logfs/stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
        stats["scans"]["started"].as_u64().unwrap()
    }

    pub fn send(&self, signal: Signal) {
        rustix::process::kill_process(self.daemon, signal).unwrap();
    }

    /// Waits until both the mount and its daemon are gone.
    pub fn expect_gone(&self) {
        let path = &self.mount_point;
        wait_until("the mount is gone", || mount_type(path).is_none());
        wait_until("the daemon is gone", || !is_running(self.daemon));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mount_type(&self.mount_point).as_deref() == Some("fuse.h5logfs") {
            unmount_by_force(self.user, &self.mount_point);
        }
        // Another process may have this number by now.
        if daemon_of(&self.mount_point) == Some(self.daemon) {
            let _ = rustix::process::kill_process(self.daemon, Signal::KILL);
        }
    }
}

/// Unmounts at once, even with open files.
pub fn unmount_by_force(user: User, path: &Path) {
    if is_root() {
        let _ = rustix::mount::unmount(path, UnmountFlags::DETACH);
    } else {
        let _ = user
            .command("fusermount3")
            .args(["-u", "-z", "--"])
            .arg(path)
            .output();
    }
}

/// Runs `h5logfs mount`, which returns once the mount is up.
pub fn mount(user: User, source: &Path, mount_point: &Path, options: &str) -> Output {
    let mut command = user.command(&tested_program());
    command.arg("mount").arg(source).arg(mount_point);
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    command.output().unwrap()
}

pub fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The type of the topmost mount at `path`.
pub fn mount_type(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.to_str().unwrap();
    let line = table
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some(path))?;
    let (_, after) = line.split_once(" - ")?;
    Some(after.split(' ').next()?.to_owned())
}

/// The process that serves `mount_point`, in the background or in the foreground.
fn daemon_of(mount_point: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .find(|pid| {
            let arguments = command_line(*pid);
            let has = |wanted: &[u8]| arguments.split(|b| *b == 0).any(|a| a == wanted);
            (has(b"--daemon-child") || has(b"-f")) && has(mount_point.as_os_str().as_bytes())
        })
}

/// The command line; empty for a process that is gone or a zombie.
fn command_line(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default()
}

pub fn is_running(pid: Pid) -> bool {
    !command_line(pid).is_empty()
}

pub fn wait_until(what: &str, done: impl FnMut() -> bool) {
    wait_for(what, DEADLINE, done);
}

/// Waits for something slow, or on a slow machine.
pub fn wait_long_until(what: &str, done: impl FnMut() -> bool) {
    wait_for(what, 6 * DEADLINE, done);
}

fn wait_for(what: &str, most: Duration, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < most, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A source with a file and a directory.
pub fn source(user: User) -> TempDir {
    let source = user.dir();
    fs::write(source.path().join("file"), "some text\n").unwrap();
    fs::create_dir(source.path().join("directory")).unwrap();
    fs::write(source.path().join("directory/inner"), vec![7; 300_000]).unwrap();
    source
}

/// The errno of a failure; `None` for success.
pub fn errno<T>(outcome: io::Result<T>) -> Option<Errno> {
    outcome.err().and_then(|e| Errno::from_io_error(&e))
}

/// Names in a directory, sorted.
pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
