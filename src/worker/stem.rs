//! The daemon's side of the stem: the process that makes workers.

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
use super::message::Direction;
use super::poll;
use super::serve::READY;

/// The hidden subcommand that is a stem.
pub const SUBCOMMAND: &str = "scan-stem";

/// This very program, also where its file has been replaced since.
const PROGRAM: &str = "/proc/self/exe";

/// A stem has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running stem. It ends when this goes.
#[derive(Debug)]
pub struct Stem {
    control: OwnedFd,
    process: Child,
    /// What the system lacks for the stem to be shut in as it should be.
    pub lacking: Option<String>,
}

/// Why there is no worker.
#[derive(Debug)]
pub enum NoWorker {
    /// The stem does not answer any more; another one may.
    StemGone,
    /// The system has no process or no descriptor for it, which another stem would meet, too.
    Refused(io::Error),
}

impl Stem {
    pub fn start(limits: &Limits) -> io::Result<Self> {
        let (control, theirs) = pair(SocketType::SEQPACKET)?;
        let process = command(limits)?.stdin(Stdio::from(theirs)).spawn()?;
        let mut stem = Stem {
            control,
            process,
            lacking: None,
        };
        let word = String::from_utf8_lossy(&stem.hear()?).into_owned();
        match word.strip_prefix(READY) {
            Some(lacking) => {
                stem.lacking = Some(lacking.to_owned()).filter(|lacking| !lacking.is_empty());
                Ok(stem)
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
            .map_err(|_| NoWorker::StemGone)?;
        // What is not positive is no process, but the number of an error.
        match Pid::from_raw(number.max(0)) {
            Some(process) => Ok((Worker(process), ours)),
            None => {
                let error = io::Error::from_raw_os_error(number.saturating_neg());
                Err(NoWorker::Refused(error))
            }
        }
    }

    /// The stem's answer, which is a process number or less than one.
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

impl Drop for Stem {
    fn drop(&mut self) {
        // It may be at a loss; it has nothing that could get lost.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(limits: &Limits) -> io::Result<Command> {
    let mut command = Command::new(PROGRAM);
    command
        .arg0("h5logfs")
        .arg(SUBCOMMAND)
        .arg(format!("--memory={}", limits.memory))
        .arg(format!("--cpu={}", limits.cpu.as_secs()))
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        // What the loader puts off until it is needed each worker would have to do for itself.
        .env("LD_BIND_NOW", "1")
        // A libhdf5 that lies elsewhere has to be found again.
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

/// A worker that runs: a child of this process, since the stem made it so. It is ended when this goes.
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
