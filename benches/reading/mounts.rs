//! Mounts and scratch directories. They are removed when dropped, and when a signal ends the benchmark.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Time limit for the end of a daemon.
const DEADLINE: Duration = Duration::from_secs(10);

/// Attempts to clean up after a signal. Another thread may just be mounting or writing.
const ATTEMPTS: u32 = 100;

/// Mount points and directories to be removed after a signal.
struct Cleanup {
    mounts: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
}

static CLEANUP: Mutex<Cleanup> = Mutex::new(Cleanup {
    mounts: Vec::new(),
    dirs: Vec::new(),
});

/// Makes SIGINT, SIGTERM and SIGHUP clean up before they end the process.
pub fn clean_up_at_signal() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            // Holds the lock to the end, so that no other thread mounts.
            let Cleanup { mounts, dirs } = &*CLEANUP.lock();
            for _ in 0..ATTEMPTS {
                mounts.iter().for_each(|path| unmount(path));
                let stays = |f: &&PathBuf| f.exists() && fs::remove_dir_all(f).is_err();
                if dirs.iter().filter(stays).count() == 0 {
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// A directory that is removed when this is dropped, or at a signal.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent)?;
        let dir = tempfile::Builder::new()
            .prefix("h5logfs-bench-")
            // The kernel's table of mounts has absolute paths without links.
            .tempdir_in(parent.canonicalize()?)?
            .keep();
        CLEANUP.lock().dirs.push(dir.clone());
        Ok(Scratch(dir))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {e}", self.0.display());
        }
    }
}

/// A mount and the process that serves it.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    daemon: Option<Pid>,
    /// The daemon, if it is a child of this process.
    child: Option<Child>,
    /// A directory that is removed with the mount.
    scratch: Option<PathBuf>,
}

impl Mount {
    /// Mounts a directory of logs with the program, as a user would.
    pub fn of_logs(program: &Path, source: &Path, at: &Path, options: &str) -> Result<Self> {
        let mount = Mount::prepare(at)?;
        let mut command = Command::new(program);
        command.arg("mount").arg(source).arg(at);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        let output = command
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        if !output.status.success() {
            let messages = String::from_utf8_lossy(&output.stderr);
            bail!("h5logfs mount: {}", messages.trim());
        }
        Ok(mount)
    }

    /// Mounts a directory of plain files with the minimal daemon. With `direct` reads bypass the kernel's
    /// page cache.
    pub fn bare(source: &Path, at: &Path, direct: bool) -> Result<Self> {
        let mut mount = Mount::prepare(at)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("bare")
            .args([source, at])
            .args(direct.then_some("--direct"))
            .stdout(Stdio::piped())
            .spawn()?;
        let said = child.stdout.take().context("no way to hear the daemon")?;
        mount.child = Some(child);
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the bare daemon does not serve");
        Ok(mount)
    }

    fn prepare(at: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        CLEANUP.lock().mounts.push(at.to_owned());
        Ok(Mount {
            path: at.to_owned(),
            daemon: None,
            child: None,
            scratch: None,
        })
    }

    /// Removes a directory together with the mount.
    pub fn remove_with_it(&mut self, dir: PathBuf) {
        self.scratch = Some(dir);
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// A line of the daemon's `/proc/PID/status` that is a number of KiB, in bytes.
    pub fn memory(&mut self, line: &str) -> Result<u64> {
        let daemon = self.daemon()?.as_raw_pid();
        let status = fs::read_to_string(format!("/proc/{daemon}/status"))?;
        let value = status
            .lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
        let kib = value.and_then(|v| v.trim().strip_suffix("kB"));
        let kib: u64 = kib.context("a line of /proc")?.trim().parse()?;
        Ok(kib << 10)
    }

    fn daemon(&mut self) -> Result<Pid> {
        if self.daemon.is_none() {
            self.daemon = daemon_of(&self.path);
        }
        self.daemon.context("no daemon serves the mount")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Look for the daemon before the unmount, while it can still be found.
        let daemon = self.daemon().ok();
        unmount(&self.path);
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        } else if let Some(daemon) = daemon {
            let start = Instant::now();
            while is_serving(daemon, &self.path) {
                if start.elapsed() > DEADLINE {
                    let _ = rustix::process::kill_process(daemon, Signal::KILL);
                    break;
                }
                thread::sleep(Duration::from_millis(1));
            }
        }
        let _ = fs::remove_dir(&self.path);
        if let Some(dir) = &self.scratch {
            let _ = fs::remove_dir_all(dir);
        }
        CLEANUP.lock().mounts.retain(|path| *path != self.path);
    }
}

/// Unmounts `path` if it is a mount point.
fn unmount(path: &Path) {
    if !is_mounted(path) {
        return;
    }
    if rustix::process::geteuid().is_root() {
        let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
    } else {
        let _ = Command::new("fusermount3")
            .args([OsStr::new("-uz"), path.as_os_str()])
            .output();
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let at = |line: &str| line.split(' ').nth(4).map(PathBuf::from);
    table.lines().any(|line| at(line).as_deref() == Some(path))
}

fn daemon_of(path: &Path) -> Option<Pid> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .find(|pid| is_serving(*pid, path))
}

fn is_serving(pid: Pid, path: &Path) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
    let has = |wanted: &[u8]| line.split(|b| *b == 0).any(|a| a == wanted);
    has(b"--daemon-child") && has(path.as_os_str().as_encoded_bytes())
}
