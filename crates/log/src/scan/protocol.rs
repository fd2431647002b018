//! The messages between the daemon and a scan worker, over a socket that also carries descriptors.
//!
//! A message is its length in four bytes, little-endian, and its postcard form. A snapshot follows the message as it
//! is, so that it is not copied. A hostile file may control the worker, so the daemon bounds the length of messages,
//! and allocates memory only as bytes arrive.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::journal::sealed::KnownFlush;
use crate::log_files::foreign;
use crate::not_regular::{NotRegular, not_regular};
use crate::ownership::Foreign;
use crate::source_dir::{PathBytes, SourcePath, bytes_of_path};
use h5logfs_common::buffers;
use h5logfs_common::error::Error;
use h5logfs_common::memory::Reservation;

/// Longest wait of a process that closes logs for the next log.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Begin of the first message of a confined zygote. The means of confinement that the system lacks follow. Any other
/// first message is the reason why the zygote failed.
pub const READY: &str = "ready:";

/// The scan that a worker has to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct ScanTask {
    /// The log file, below the first directory.
    #[serde(with = "bytes_of_path")]
    pub relative: PathBuf,
    /// The path of that directory, as users know it.
    #[serde(with = "bytes_of_path")]
    pub dir: PathBuf,
    /// Companion files of the log: see [`ScanRequest::companions`](super::ScanRequest::companions).
    pub companions: Option<Vec<SourcePath>>,
    /// The user's options. Their log directories are those that the daemon holds, by the paths to which links lead.
    pub settings: Settings,
    /// See [`ScanRequest::known`](super::ScanRequest::known).
    pub known: Option<KnownFlush>,
}

/// Work on a log, for the program that writes it.
#[derive(Debug, Serialize, Deserialize)]
pub struct CloseTask {
    /// Absolute path of the log file.
    pub log: PathBytes,
    /// The work to be done.
    pub work: CloseWork,
}

/// The work to be done on a log.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum CloseWork {
    /// Closes the log.
    Close {
        /// Whether to wait until the log is on the disk.
        sync: bool,
        /// Makes the closed log an ordinary HDF5 file, with this many bytes of memory for each of its purposes. This
        /// step has an outcome of its own.
        settle: Option<u64>,
        /// The number of the journal's file, as the program knows it. A log with another journal is not closed.
        journal: Option<u64>,
    },
    /// Adds a flush of the unflushed data, and leaves the log unclosed, because the program goes on with it.
    TakeIn,
}

/// A request of a worker to the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// Asks for the descriptor of a file, open for reading.
    Open(SourcePath),
    /// Asks for the names in a directory.
    List(SourcePath),
    /// Asks for nothing more: the scan is over.
    Done(ScanOutcome),
}

/// The outcome of a scan.
#[derive(Debug, Serialize, Deserialize)]
pub enum ScanOutcome {
    /// A snapshot: [`Snapshot::to_bytes`](crate::snapshot::Snapshot::to_bytes). The bytes follow the message, and are
    /// not part of it.
    Scanned(#[serde(skip)] Vec<u8>),
    /// [`Error::Io`].
    Io {
        /// The file.
        path: PathBytes,
        /// The error number of the system.
        errno: i32,
    },
    /// [`Error::NotALog`].
    NotALog {
        /// The file.
        path: PathBytes,
        /// The reason, for a person to read.
        reason: String,
    },
    /// [`Error::BadFile`].
    BadFile {
        /// The file.
        path: PathBytes,
        /// The reason, for a person to read.
        reason: String,
    },
    /// [`Error::NoFlush`].
    NoFlush {
        /// The file.
        path: PathBytes,
        /// The reason, for a person to read.
        reason: String,
    },
    /// [`Error::Changed`].
    Changed {
        /// The file.
        path: PathBytes,
    },
}

/// The daemon's response to a request. It carries the descriptor of an opened file.
#[derive(Debug, Serialize, Deserialize)]
pub enum Response {
    /// The descriptor is attached.
    Opened,
    /// The names, without `.` and `..`.
    Listed(Vec<OsString>),
    /// The error number of the system.
    Refused(i32),
    /// The file does not belong to the log.
    Foreign(Foreign),
    /// It is no regular file.
    NotRegular(NotRegular),
}

impl From<&io::Error> for Response {
    fn from(error: &io::Error) -> Self {
        match (foreign(error), not_regular(error)) {
            (Some(reason), _) => Response::Foreign(reason),
            (None, Some(reason)) => Response::NotRegular(reason),
            (None, None) => Response::Refused(errno(error)),
        }
    }
}

/// The error number of an I/O error; `EIO` where it has none.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => Errno::NOENT.raw_os_error(),
        io::ErrorKind::InvalidInput => Errno::INVAL.raw_os_error(),
        io::ErrorKind::PermissionDenied => Errno::ACCESS.raw_os_error(),
        _ => Errno::IO.raw_os_error(),
    })
}

impl From<&Error> for ScanOutcome {
    fn from(error: &Error) -> Self {
        match error {
            Error::Io { path, cause } if cause.raw_os_error().is_some() => ScanOutcome::Io {
                path: path.as_path().into(),
                errno: errno(cause),
            },
            Error::NotALog { path, reason } => ScanOutcome::NotALog {
                path: path.as_path().into(),
                reason: reason.clone(),
            },
            Error::BadFile { path, reason } => ScanOutcome::BadFile {
                path: path.as_path().into(),
                reason: reason.clone(),
            },
            Error::NoFlush { path, reason } => ScanOutcome::NoFlush {
                path: path.as_path().into(),
                reason: reason.clone(),
            },
            // The next scan of the file has the same limits.
            Error::NoMemory { path, shortage } => ScanOutcome::BadFile {
                path: path.as_path().into(),
                reason: shortage.to_string(),
            },
            Error::Stopped { path, why } => ScanOutcome::BadFile {
                path: path.as_path().into(),
                reason: why.to_string(),
            },
            Error::Changed { path } => ScanOutcome::Changed {
                path: path.as_path().into(),
            },
            Error::Remembered(error) => ScanOutcome::from(&**error),
            Error::Io { path, cause } => ScanOutcome::BadFile {
                path: path.as_path().into(),
                reason: cause.to_string(),
            },
            Error::BadData { path, .. } | Error::ScanDied { path, .. } => ScanOutcome::BadFile {
                path: path.as_path().into(),
                reason: error.to_string(),
            },
        }
    }
}

impl ScanOutcome {
    /// The bytes of the snapshot, or the error of the scan.
    pub fn into_result(self) -> Result<Vec<u8>, Error> {
        Err(match self {
            ScanOutcome::Scanned(bytes) => return Ok(bytes),
            ScanOutcome::Io { path, errno } => {
                Error::io(path.0, io::Error::from_raw_os_error(errno))
            }
            ScanOutcome::NotALog { path, reason } => Error::NotALog {
                path: path.0,
                reason,
            },
            ScanOutcome::BadFile { path, reason } => Error::of(path.0, reason),
            ScanOutcome::NoFlush { path, reason } => Error::NoFlush {
                path: path.0,
                reason,
            },
            ScanOutcome::Changed { path } => Error::Changed { path: path.0 },
        })
    }
}

/// Two sockets of this kind, connected to each other. Programs that this process starts do not inherit them.
pub fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(
        AddressFamily::UNIX,
        kind,
        flags,
        None,
    )?)
}

/// Receives bytes. Returns their number, and the descriptor that was sent with them. Zero bytes mean that the other end
/// is closed.
pub fn receive_some(
    socket: impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = rustix::net::recvmsg(socket, &mut pieces, &mut ancillary, flags)?;
    let came = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, came))
}

/// One end of a socket that carries messages.
#[derive(Debug)]
pub struct Channel<S, W> {
    socket: S,
    wait: W,
}

/// The time that one end waits for the other.
pub trait Wait {
    /// Waits until the socket can be read from, or written to. Fails when that takes too long.
    fn wait(&self, socket: BorrowedFd<'_>, to: Direction) -> io::Result<()>;
}

/// The event for which an end of a channel waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Bytes to read.
    Read,
    /// Room to write.
    Write,
}

/// A wait without a limit, because the other end may be slow. If that ends, the socket closes.
#[derive(Debug)]
pub struct Forever;

impl Wait for Forever {
    fn wait(&self, socket: BorrowedFd<'_>, to: Direction) -> io::Result<()> {
        poll(socket, to, None).map(drop)
    }
}

/// A wait for the next task, of [`PATIENCE`] at most.
#[derive(Debug)]
pub struct Patiently;

impl Wait for Patiently {
    fn wait(&self, socket: BorrowedFd<'_>, to: Direction) -> io::Result<()> {
        if poll(socket, to, Some(Instant::now() + PATIENCE))? {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

impl<S: AsFd, W: Wait> Channel<S, W> {
    /// A channel over a connected stream socket.
    pub fn new(socket: S, wait: W) -> Self {
        Channel { socket, wait }
    }

    /// Sends a message, and a copy of `descriptor` with it.
    pub fn send(
        &self,
        message: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.send_with(message, &[], descriptor)
    }

    /// Sends the outcome of a scan.
    pub fn send_outcome(&self, mut outcome: ScanOutcome) -> io::Result<()> {
        let bytes = match &mut outcome {
            ScanOutcome::Scanned(bytes) => mem::take(bytes),
            _ => Vec::new(),
        };
        self.send_with(&Request::Done(outcome), &bytes, None)
    }

    /// Sends a message, and `bytes` behind it.
    fn send_with(
        &self,
        message: &impl Serialize,
        bytes: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let message = postcard::to_stdvec(message).map_err(io::Error::other)?;
        let len = u32::try_from(message.len() + bytes.len()).map_err(io::Error::other)?;
        let head = [&len.to_le_bytes(), message.as_slice()].concat();
        let mut descriptor = descriptor;
        for mut rest in [&head, bytes] {
            while !rest.is_empty() {
                let sent = self.send_some(rest, descriptor.take())?;
                rest = rest.get(sent..).unwrap_or_default();
            }
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        self.again(Direction::Write, || {
            rustix::net::sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut ancillary, flags)
        })
    }

    /// Receives a message of at most `most` bytes, with the descriptor that was sent with it. As bytes arrive, memory
    /// is reserved for them, and as much for the message that is made from them. It stays in `reservation`.
    pub fn receive<T: DeserializeOwned>(
        &self,
        most: usize,
        reservation: &mut Reservation,
    ) -> io::Result<(T, Option<OwnedFd>)> {
        match self.receive_with(most, reservation)? {
            (message, rest, descriptor) if rest.is_empty() => Ok((message, descriptor)),
            _ => Err(without_sense()),
        }
    }

    /// Receives a request, as [`Channel::receive`] does.
    pub fn receive_request(
        &self,
        most: usize,
        reservation: &mut Reservation,
    ) -> io::Result<Request> {
        let (mut request, rest, _) = self.receive_with(most, reservation)?;
        match &mut request {
            Request::Done(ScanOutcome::Scanned(bytes)) => *bytes = rest,
            _ if !rest.is_empty() => return Err(without_sense()),
            _ => {}
        }
        Ok(request)
    }

    /// Receives a message, and the bytes that follow it.
    fn receive_with<T: DeserializeOwned>(
        &self,
        most: usize,
        reservation: &mut Reservation,
    ) -> io::Result<(T, Vec<u8>, Option<OwnedFd>)> {
        let mut len = [0; 4];
        let descriptor = self.fill(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > most {
            let reason = format!("a message of {len} bytes, where {most} are the limit");
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let mut body = self.body(len, reservation)?;
        let message = postcard::take_from_bytes(&body);
        let (message, rest) = message.map_err(|_| without_sense())?;
        let message_len = len - rest.len();
        body.drain(..message_len);
        Ok((message, body, descriptor))
    }

    /// Receives the bytes of a message. Memory counts as bytes arrive, not by the length that the other end claims. The
    /// list has its room from the start, because a snapshot is large, and a growing list exists twice while its bytes
    /// move. Room that no byte has reached takes no memory.
    fn body(&self, len: usize, reservation: &mut Reservation) -> io::Result<Vec<u8>> {
        const PIECE: usize = 1 << 20;
        let no_memory = |e| io::Error::new(io::ErrorKind::OutOfMemory, e);
        let mut body = buffers::with_room(len).map_err(no_memory)?;
        while body.len() < len {
            let from = body.len();
            let to = len.min(from + PIECE);
            reservation.grow((to - from) as u64).map_err(no_memory)?;
            body.resize(to, 0);
            self.fill(&mut body[from..])?;
        }
        Ok(body)
    }

    fn fill(&self, mut bytes: &mut [u8]) -> io::Result<Option<OwnedFd>> {
        let mut descriptor = None;
        while !bytes.is_empty() {
            let receive = || receive_some(&self.socket, bytes, RecvFlags::DONTWAIT);
            let (received, came) = self.again(Direction::Read, receive)?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            descriptor = descriptor.or(came);
            bytes = bytes.get_mut(received..).unwrap_or_default();
        }
        Ok(descriptor)
    }

    fn again<T>(
        &self,
        to: Direction,
        mut call: impl FnMut() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match call() {
                Err(Errno::AGAIN) => self.wait.wait(self.socket.as_fd(), to)?,
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

fn without_sense() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a message that cannot be decoded",
    )
}

/// Waits until the socket can be read from, or written to. Returns `false` if `until` comes first.
pub fn poll(socket: BorrowedFd<'_>, to: Direction, until: Option<Instant>) -> io::Result<bool> {
    let flags = match to {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    };
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut fds = [PollFd::from_borrowed_fd(socket, flags)];
        match rustix::event::poll(&mut fds, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
