//! The side without rights: the stem, which makes a worker for each scan, and the worker.
//!
//! The stem is this program, started once by the daemon. It sees no user's file: it gives up its rights,
//! and then forks a worker whenever it is asked to. That costs less than a millisecond, where a program
//! that is started anew needs five to load libhdf5 and what that needs. Each worker does one scan and
//! ends, so that no file can do anything to the scan of another one.

mod confine;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use confine::NoFork;
use rustix::net::RecvFlags;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::source_dir::{FileOpener, SourceDir, SourcePath};
use h5logfs_core::scan::protocol::{
    Channel, Direction, READY, Request, Response, ScanOutcome, ScanTask, Wait, errno, poll,
    receive_some,
};
use h5logfs_core::scan::{ScanRequest, Settings};

/// Directory listings that the daemon answers with are not longer than this, in bytes.
const LONGEST_ANSWER: usize = 64 << 20;

/// What a zygote grants itself and its workers.
#[derive(Debug, Clone)]
pub struct Granted {
    /// Bytes of address space.
    pub memory: u64,
    /// Seconds of processor time, for each worker.
    pub cpu: u64,
    /// User and group to become.
    pub user: Option<(u32, u32)>,
}

/// The stem: serves the daemon at the other end of standard input until that goes. Its first word is
/// [`READY`] and what the system lacks; anything else is a complaint, and its last.
pub fn serve(granted: &Granted) -> io::Result<()> {
    let control = rustix::stdio::stdin();
    match confine(granted) {
        Ok((no_fork, lacking)) => {
            say(
                control,
                format!(
                    "{READY}{}\n{}",
                    crate::library(),
                    lacking.unwrap_or_default()
                )
                .as_bytes(),
            )?;
            serve_confined(control, granted, &no_fork)
        }
        Err(complaint) => say(control, complaint.as_bytes()),
    }
}

fn confine(granted: &Granted) -> confine::Result<(NoFork, Option<String>)> {
    close_inherited()?;
    // Whatever is loaded lazily has to be there before nothing can be opened any more.
    crate::library();
    let no_fork = NoFork::prepare()?;
    if let Some((uid, gid)) = granted.user {
        confine::become_user(uid, gid)?;
    }
    confine::drop_capabilities()?;
    confine::limit_memory(granted.memory)?;
    let lacking = confine::shut_off_files()?;
    confine::filter_calls()?;
    Ok((no_fork, lacking))
}

/// Whoever started the daemon may have left descriptors open; what they lead to is not for workers.
fn close_inherited() -> confine::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: nothing was opened by this process yet but the standard ones, so nobody's descriptor is
    // closed behind their back.
    match unsafe { libc::close_range(FIRST, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(format!("close_range: {}", io::Error::last_os_error())),
    }
}

fn say(control: BorrowedFd<'_>, words: &[u8]) -> io::Result<()> {
    let sent = rustix::io::write(control, words)?;
    match sent == words.len() {
        true => Ok(()),
        false => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// For each socket that comes, a worker; the answer is its process number, or the negative number of an
/// error of the system.
fn serve_confined(control: BorrowedFd<'_>, granted: &Granted, no_fork: &NoFork) -> io::Result<()> {
    while let Some(socket) = next_socket(control)? {
        match fork() {
            Ok(0) => {
                let done = work(socket, granted, no_fork);
                end(done.is_ok());
            }
            Ok(process) => say(control, &process.to_le_bytes())?,
            Err(e) => say(control, &(-i64::from(errno(&e))).to_le_bytes())?,
        }
    }
    Ok(())
}

/// `None` when the daemon has gone.
fn next_socket(control: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let receive = || receive_some(control, &mut [0], RecvFlags::empty());
    match rustix::io::retry_on_intr(receive)? {
        (0, _) => Ok(None),
        (_, None) => Err(io::ErrorKind::InvalidData.into()),
        (_, socket) => Ok(socket),
    }
}

/// Makes a process like this one, whose parent is the daemon: that can tell how it ended, and end it. 0 in
/// the new process.
fn fork() -> io::Result<i64> {
    // SAFETY: this process has one thread, so that nobody holds a lock which the new process would wait
    // for; without CLONE_VM both have memory of their own, and no stack or pointer is passed.
    let process = unsafe { libc::syscall(libc::SYS_clone, confine::FORK, 0, 0, 0, 0) };
    match process {
        -1 => Err(io::Error::last_os_error()),
        process => Ok(process),
    }
}

/// Ends this process at once: what the libraries would tidy up is the stem's, and looking at it would copy
/// it.
fn end(well: bool) -> ! {
    // SAFETY: it takes a number, and does not come back.
    unsafe { libc::_exit(i32::from(!well)) }
}

/// The worker: one scan.
fn work(socket: OwnedFd, granted: &Granted, no_fork: &NoFork) -> io::Result<()> {
    // The way to the stem's daemon is not the worker's.
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    let confined = confine::limit_processor(granted.cpu).and_then(|()| no_fork.apply());
    confined.map_err(io::Error::other)?;
    let daemon = Arc::new(Channel::new(socket, Patiently));
    let (task, _) = daemon.receive::<ScanTask>(LONGEST_ANSWER)?;
    let outcome = match scan(&daemon, task) {
        Ok(bytes) => ScanOutcome::Scanned(bytes),
        Err(e) => ScanOutcome::from(&e),
    };
    daemon.send(&Request::Done(outcome), None)
}

/// The bytes of a snapshot.
fn scan(daemon: &Arc<Channel<Patiently>>, task: ScanTask) -> Result<Vec<u8>> {
    let mut dirs = task.dirs.into_iter().map(|shown| shown.0);
    let path = dirs.next().unwrap_or_default();
    let further: Vec<_> = dirs.collect();
    let settings = Settings {
        chunking: task.chunking,
        log_dirs: further.clone(),
        without_logs: task.without_logs,
    };
    let lender = Arc::new(Daemon(Arc::clone(daemon)));
    let dir = SourceDir::remote(path, further, lender);
    let companions = task.companions.as_deref();
    let snapshot = crate::scan(ScanRequest {
        dir: &dir,
        relative: &task.relative,
        companions,
        settings: &settings,
    })?;
    let bad = |reason: String| Error::bad_file(dir.full_path(&task.relative), reason);
    let bytes = snapshot.to_bytes().map_err(bad)?;
    match bytes.len() as u64 > task.most {
        true => Err(bad(format!(
            "{} bytes of metadata are more than index_memory, {} bytes",
            bytes.len(),
            task.most
        ))),
        false => Ok(bytes),
    }
}

/// The daemon may take its time; when it goes, the socket tells.
#[derive(Debug)]
struct Patiently;

impl Wait for Patiently {
    fn wait(&self, socket: BorrowedFd<'_>, to: Direction) -> io::Result<()> {
        poll(socket, to, None).map(drop)
    }
}

/// Opens what the worker may not.
#[derive(Debug)]
struct Daemon(Arc<Channel<Patiently>>);

impl Daemon {
    fn ask(&self, ask: &Request) -> io::Result<(Response, Option<OwnedFd>)> {
        self.0.send(ask, None)?;
        match self.0.receive(LONGEST_ANSWER)? {
            (Response::Refused(errno), _) => Err(io::Error::from_raw_os_error(errno)),
            granted => Ok(granted),
        }
    }
}

impl FileOpener for Daemon {
    fn open_file(&self, place: &SourcePath) -> io::Result<File> {
        match self.ask(&Request::Open(place.clone()))? {
            (Response::Opened, Some(file)) => Ok(file.into()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn list(&self, place: &SourcePath) -> io::Result<Vec<OsString>> {
        match self.ask(&Request::List(place.clone()))? {
            (Response::Listed(names), _) => Ok(names),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
