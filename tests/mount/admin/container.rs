//! A container in which systemd is process 1. `container.sh` makes it from the system's own /usr, without network.
//!
//! The container ends with the test, even after a failure. All its processes end with the first one, and so do all
//! mounts.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{PROGRAM, User, can_mount, is_root, messages, wait_until};

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/mount/admin/container.sh"
);
const SYSTEMD: &str = "/lib/systemd/systemd";

/// Time limit of a start, which takes two seconds on a quiet machine.
const BOOT_SECONDS: u32 = 120;

/// The initial files of a container, besides those of the system.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Self {
        let files = Files(tempfile::tempdir().unwrap());
        for dir in ["mnt", "data", "etc/systemd/system"] {
            fs::create_dir_all(files.0.path().join(dir)).unwrap();
        }
        crate::common::people::set_mode(files.0.path(), 0o755);
        files
    }

    /// The path of a file before the start. Creates parent directories.
    pub fn at(&self, path: &str) -> PathBuf {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).unwrap();
    }

    pub fn copy(&self, from: &Path, to: &str) {
        fs::copy(from, self.at(to)).unwrap();
    }

    /// Makes a unit start with the system.
    pub fn enable(&self, unit: &str, instance: &str) {
        let link = format!("etc/systemd/system/multi-user.target.wants/{instance}");
        let unit = format!("/etc/systemd/system/{unit}");
        std::os::unix::fs::symlink(unit, self.at(&link)).unwrap();
    }
}

/// A cgroup with its subgroups, removed on drop once it has no processes.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let root = Path::new(mount.split(' ').nth(4)?);
        let group = tempfile::Builder::new()
            .prefix("h5logfs-test-")
            .tempdir_in(root);
        Some(Group(group.ok()?.keep()))
    }

    fn remove(dir: &Path) -> bool {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let is_empty = below.all(|entry| Group::remove(&entry.path()));
        is_empty && fs::remove_dir(dir).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Killed processes stay in the group for a short time.
        for _ in 0..100 {
            if Group::remove(&self.0) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

pub struct Container {
    /// The parent of process 1. Process 1 ends with it.
    parent: Child,
    /// Process 1, by its number outside.
    first: i32,
    /// The root directory and the journal of the container.
    dirs: [TempDir; 2],
    _group: Group,
}

/// Whether containers can be made here. Prints the reason if not.
fn can_boot() -> bool {
    let mut missing = None;
    if !is_root() {
        missing = Some("only root can make a container");
    } else if !Path::new(SYSTEMD).exists() {
        missing = Some("systemd (package systemd) is not installed");
    } else if !fs::read_link("/bin").is_ok_and(|usr| usr.ends_with("usr/bin")) {
        missing = Some("/bin is not that of /usr");
    }
    if let Some(missing) = missing {
        eprintln!("skipped: {missing}");
    }
    missing.is_none() && can_mount(User::Caller)
}

impl Container {
    /// Starts a container, and waits until all units that start with the system have started, or failed. `None`, after
    /// printing the reason, where this is impossible.
    ///
    /// systemd 252 now and then stops for ever in the middle of a start, with local-fs.target waiting. So another
    /// container gets a second chance.
    pub fn boot(files: &Files) -> Option<Self> {
        let mut jobs = String::new();
        for _ in 0..2 {
            let container = Container::start(files)?;
            match container.wait_for_boot() {
                Ok(()) => return Some(container),
                Err(pending) => jobs = pending,
            }
            eprintln!("the container did not start within {BOOT_SECONDS} s: {jobs}");
        }
        panic!(
            "two containers in turn did not start within {BOOT_SECONDS} s; the last one: {jobs}"
        );
    }

    /// Starts a container, and waits until systemd takes commands.
    fn start(files: &Files) -> Option<Self> {
        if !can_boot() {
            return None;
        }
        let Some(group) = Group::new() else {
            eprintln!("skipped: no cgroup of version 2 can be made");
            return None;
        };
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let output = File::create(dirs[1].path().join("output")).unwrap();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup"])
            .args(["--fork", "--kill-child=KILL", "sh", SCRIPT])
            .args([dirs[0].path(), files.0.path()])
            .args([Path::new(PROGRAM), dirs[1].path()])
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let members = group.0.join("cgroup.procs");
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // The container ends with the test in any case.
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                fs::write(&members, "0")
            });
        }
        let parent = command.spawn().unwrap();
        let mut container = Container {
            first: 0,
            parent,
            dirs,
            _group: group,
        };
        container.wait_for_systemd().then_some(container)
    }

    fn wait_for_systemd(&mut self) -> bool {
        let id = self.parent.id();
        let children = format!("/proc/{id}/task/{id}/children");
        let mut is_refused = false;
        wait_until("systemd takes commands", || {
            is_refused = self.parent.try_wait().unwrap().is_some();
            let child = fs::read_to_string(&children).unwrap_or_default();
            self.first = child.trim().parse().unwrap_or(0);
            is_refused || self.path("/run/systemd/private").exists()
        });
        if is_refused {
            eprintln!("skipped: no container can be made: {}", self.said());
        }
        !is_refused
    }

    /// A path in the container, as seen from outside.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    /// The output of its programs, also after the shutdown.
    pub fn said(&self) -> String {
        let journal = self.dirs[1].path();
        let output = fs::read_to_string(journal.join("output")).unwrap();
        let mut journalctl = Command::new("journalctl");
        let entries = journalctl.arg("--no-pager").arg("--directory").arg(journal);
        output + &String::from_utf8_lossy(&entries.output().unwrap().stdout)
    }

    /// Runs a shell command in the container.
    pub fn output(&self, script: &str) -> Output {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.first))
            .args(["--all", "--", "sh", "-c", script])
            .env("LC_ALL", "C")
            .env("SYSTEMD_PAGER", "");
        command.output().unwrap()
    }

    /// The output of a shell command, which must succeed.
    #[track_caller]
    pub fn run(&self, script: &str) -> String {
        let output = self.output(script);
        let said = messages(&output);
        assert!(output.status.success(), "{script}: {said}\n{}", self.said());
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    /// One property of a unit.
    #[track_caller]
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.run(&format!("systemctl show --value --property={name} {unit}"))
    }

    /// Fails with the jobs that wait, and what the container has said.
    fn wait_for_boot(&self) -> Result<(), String> {
        // It fails if a unit has failed, too. The status of `timeout` is 124 where the time is over.
        let waited = self.output(&format!(
            "timeout {BOOT_SECONDS} systemctl is-system-running --wait"
        ));
        if waited.status.code() != Some(124) {
            return Ok(());
        }
        let jobs = self.output("timeout 10 systemctl list-jobs");
        Err(String::from_utf8_lossy(&jobs.stdout).into_owned() + &self.said())
    }

    /// The lines of the mount table for this mount point.
    pub fn mounts(&self, point: &str) -> Vec<String> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.first)).unwrap();
        let here = table.lines().filter(|l| l.split(' ').nth(4) == Some(point));
        here.map(str::to_owned).collect()
    }

    /// Shuts the container down, and returns the output of its programs.
    pub fn power_off(mut self) -> String {
        let _ = self.output("systemctl poweroff");
        let mut parent = self.parent.try_wait().unwrap();
        wait_until("the system is down", || {
            parent = self.parent.try_wait().unwrap();
            parent.is_some()
        });
        self.said()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}
