//! The client side of the zygote: the process that forks the workers.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::limits::{Limits, ScanUser};
use h5logfs_core::scan::protocol::{Direction, READY, poll};

/// The hidden subcommand of the program `h5logfs` that is a zygote.
pub const SUBCOMMAND: &str = "scan-zygote";

/// How long a zygote may take to answer; it has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running zygote, which is killed on drop.
#[derive(Debug)]
pub struct Zygote {
    control: OwnedFd,
    process: Child,
    /// Name and version of the library that its workers make images with.
    pub library: String,
    /// The means of confinement that the system lacks.
    pub lacking: Option<String>,
}

/// Why there is no worker.
#[derive(Debug)]
pub enum NoWorker {
    /// The zygote does not answer any more; a new one may.
    ZygoteDied,
    /// The system has no process or no descriptor for it. A new zygote would not help.
    Refused(io::Error),
}

impl Zygote {
    pub fn start(limits: &Limits) -> io::Result<Self> {
        let (control, theirs) = pair(SocketType::SEQPACKET)?;
        let process = command(limits)?.stdin(Stdio::from(theirs)).spawn()?;
        let mut zygote = Zygote {
            control,
            process,
            library: String::new(),
            lacking: None,
        };
        let word = String::from_utf8_lossy(&zygote.hear()?).into_owned();
        match word.strip_prefix(READY).and_then(|w| w.split_once('\n')) {
            Some((library, lacking)) => {
                zygote.library = library.to_owned();
                zygote.lacking = Some(lacking.to_owned()).filter(|lacking| !lacking.is_empty());
                Ok(zygote)
            }
            None if word.is_empty() => Err(io::Error::other("it ended before it was ready")),
            None => Err(io::Error::other(word)),
        }
    }

    /// A worker, and the socket that leads to it.
    pub fn worker(&self) -> Result<(Worker, OwnedFd), NoWorker> {
        let (ours, theirs) = pair(SocketType::STREAM).map_err(NoWorker::Refused)?;
        let number = self
            .ask_for_worker(theirs)
            .map_err(|_| NoWorker::ZygoteDied)?;
        // What is not positive is no process, but the number of an error.
        match Pid::from_raw(number.max(0)) {
            Some(process) => Ok((Worker(process), ours)),
            None => {
                let error = io::Error::from_raw_os_error(number.saturating_neg());
                Err(NoWorker::Refused(error))
            }
        }
    }

    /// The zygote's answer, which is a process number or less than one.
    fn ask_for_worker(&self, theirs: OwnedFd) -> io::Result<i32> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let word = [IoSlice::new(b"w")];
        rustix::net::sendmsg(&self.control, &word, &mut ancillary, SendFlags::NOSIGNAL)?;
        drop(theirs);
        let number = self.hear()?;
        let number = number.try_into().map(i64::from_le_bytes);
        let number = number.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        i32::try_from(number).map_err(io::Error::other)
    }

    fn hear(&self) -> io::Result<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        if !poll(self.control.as_fd(), Direction::Read, Some(until))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut word = vec![0; 4096];
        let len = rustix::io::retry_on_intr(|| rustix::io::read(&self.control, &mut word[..]))?;
        word.truncate(len);
        Ok(word)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // It may be gone already, and it holds nothing that could get lost.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(limits: &Limits) -> io::Result<Command> {
    let mut command = Command::new(&limits.program);
    command
        .arg0("h5logfs")
        .arg(SUBCOMMAND)
        .arg(format!("--memory={}", limits.memory))
        .arg(format!("--cpu={}", limits.cpu.as_secs()))
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        // Lazy binding would be done again by each worker.
        .env("LD_BIND_NOW", "1")
        // The zygote must find a libhdf5 that lies elsewhere.
        .envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)));
    if let Some(ScanUser { uid, gid }) = limits.user()? {
        command.arg(format!("--user={uid}:{gid}"));
    }
    Ok(command)
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// A running worker, which is killed on drop. It is a child of this process, because the zygote forks with `CLONE_PARENT`.
#[derive(Debug)]
pub struct Worker(Pid);

impl Worker {
    /// Waits for the end of a worker that has nothing to say any more; ends it, if it does not hurry.
    pub fn end(self, patience: Duration) -> Option<WaitStatus> {
        let until = Instant::now() + patience;
        let mut pause = Duration::from_micros(50);
        let status = loop {
            match rustix::process::waitpid(Some(self.0), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => break Some(status),
                Ok(None) if Instant::now() < until => std::thread::sleep(pause),
                Ok(None) => break self.kill(),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break None,
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        // Its number may be another process's from now on.
        std::mem::forget(self);
        status
    }

    fn kill(&self) -> Option<WaitStatus> {
        let _ = rustix::process::kill_process(self.0, Signal::KILL);
        loop {
            match rustix::process::waitpid(Some(self.0), WaitOptions::empty()) {
                Ok(ended) => return ended.map(|(_, status)| status),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
