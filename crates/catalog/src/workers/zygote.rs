//! The client side of the zygote, the process that forks the workers.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use rustix::process::Pid;

use super::limits::Limits;
use super::worker::Worker;
use h5logfs_log::scan::protocol::{self, Direction, READY, poll};

/// The hidden subcommand of the program `h5logfs` that runs the zygote.
const SUBCOMMAND: &str = "scan-zygote";

/// Longest time for an answer of the zygote, which waits for nothing else.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A running zygote. Killed on drop.
#[derive(Debug)]
pub struct Zygote {
    control: OwnedFd,
    process: Child,
    /// Means of confinement that the system lacks.
    pub lacking: Option<String>,
}

/// Why there is no worker.
#[derive(Debug)]
pub enum NoWorker {
    /// The zygote does not answer any more. A new one may.
    ZygoteDied,
    /// The system refused a process or a descriptor. A new zygote would not help.
    Refused(io::Error),
}

impl Zygote {
    pub fn start(limits: &Limits) -> io::Result<Self> {
        let (control, theirs) = protocol::pair(SocketType::SEQPACKET)?;
        let process = command(limits)?.stdin(Stdio::from(theirs)).spawn()?;
        let mut zygote = Zygote {
            control,
            process,
            lacking: None,
        };
        let message = String::from_utf8_lossy(&zygote.receive()?).into_owned();
        match message.strip_prefix(READY) {
            Some(lacking) => {
                zygote.lacking = Some(lacking.to_owned()).filter(|lacking| !lacking.is_empty());
                Ok(zygote)
            }
            None if message.is_empty() => {
                Err(io::Error::other("the zygote ended before it was ready"))
            }
            None => Err(io::Error::other(message)),
        }
    }

    /// Starts a worker.
    pub fn worker(&self) -> Result<Worker, NoWorker> {
        let (ours, theirs) = protocol::pair(SocketType::STREAM).map_err(NoWorker::Refused)?;
        let number = self
            .ask_for_worker(theirs)
            .map_err(|_| NoWorker::ZygoteDied)?;
        // A negative number is an errno.
        match Pid::from_raw(number.max(0)) {
            Some(process) => Ok(Worker::of_child(process, ours)),
            None => {
                let error = io::Error::from_raw_os_error(number.saturating_neg());
                Err(NoWorker::Refused(error))
            }
        }
    }

    /// Sends the socket of a worker, and returns the answer of the zygote: the number of a process, or a negative
    /// errno.
    fn ask_for_worker(&self, theirs: OwnedFd) -> io::Result<i32> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let message = [IoSlice::new(b"w")];
        rustix::net::sendmsg(&self.control, &message, &mut ancillary, SendFlags::NOSIGNAL)?;
        drop(theirs);
        let number = self.receive()?;
        let number = number.try_into().map(i64::from_le_bytes);
        let number = number.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        i32::try_from(number).map_err(io::Error::other)
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        if !poll(self.control.as_fd(), Direction::Read, Some(until))? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut message = vec![0; 4096];
        let len = rustix::io::retry_on_intr(|| rustix::io::read(&self.control, &mut message[..]))?;
        message.truncate(len);
        Ok(message)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        // The zygote may have died already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(limits: &Limits) -> io::Result<Command> {
    let mut command = Command::new(&limits.program);
    command
        .arg0("h5logfs")
        .args(limits.arguments(SUBCOMMAND)?)
        .current_dir("/")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .env_clear()
        // With lazy binding, each worker would bind symbols again.
        .env("LD_BIND_NOW", "1")
        // libhdf5 may not be in the usual directories.
        .envs(std::env::var_os("LD_LIBRARY_PATH").map(|path| ("LD_LIBRARY_PATH", path)));
    Ok(command)
}
