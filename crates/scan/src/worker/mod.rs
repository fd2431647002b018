//! Serves scans in confined processes: the zygote forks workers, and a worker scans.
//!
//! The daemon starts the zygote once, as another process of this program. The zygote opens no user's file. It gives up
//! its rights, and then forks a worker whenever the daemon asks. A fork takes less time than the start of a program,
//! especially of a program that is linked to the system's libhdf5 and its libraries. A worker does one scan after
//! another for as long as the daemon sends them. The daemon decides which files may share a process.
//!
//! A host that reads few logs has no zygote. It starts one worker for each scan ([`serve_one`]). A command that reads
//! one file forks its worker from itself.

mod allocator;
mod allowance;
mod confine;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::hdf5_sys as h5;
use allowance::Allowance;
use confine::NoFork;
use rustix::net::RecvFlags;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reservation;
use h5logfs_common::task::Task;
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::scan::protocol::{
    Channel, CloseTask, Forever, Patiently, READY, Request, Response, ScanOutcome, ScanTask, errno,
    receive_some,
};
use h5logfs_log::source_dir::{FileOpener, SourceDir, SourcePath};

/// The largest response of the daemon, in bytes. Only listings of directories are large.
const LARGEST_RESPONSE: usize = 64 << 20;

/// The first descriptor after standard input, output and error.
const FIRST: i32 = 3;

/// The channel from a worker to its daemon.
type Daemon = Channel<OwnedFd, Forever>;

/// The confinement of a zygote and its workers.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Bytes of address space.
    pub memory: u64,
    /// Seconds of processor time for each worker. A scan of small files may get less: see `allowance`.
    pub cpu: u64,
    /// The user and group that the process changes to.
    pub user: Option<(u32, u32)>,
    /// The kernel ends the process when the thread that started it ends.
    pub ends_with_parent: bool,
}

/// Runs the zygote: serves the daemon at the other end of standard input until the daemon closes it. The first message
/// is [`READY`], with what the system lacks for the confinement. If the confinement fails, the first and only message
/// is the reason.
pub fn serve(confinement: &Confinement) -> io::Result<()> {
    let control = rustix::stdio::stdin();
    match close_inherited().and_then(|()| confine(confinement)) {
        Ok(confined) => {
            allocator::keep_memory();
            let missing = confined.missing.unwrap_or_default();
            let ready = format!("{READY}{missing}");
            send(control, ready.as_bytes())?;
            fork_workers(control, confinement, &confined.no_fork)
        }
        Err(reason) => send(control, reason.to_string().as_bytes()),
    }
}

/// Runs a worker without a zygote: serves one scan to the process at the other end of standard input. The worker ends
/// with the process that started it. If the confinement fails, the outcome of the scan is the reason.
pub fn serve_one(confinement: &Confinement) -> io::Result<()> {
    close_inherited().map_err(io::Error::other)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    match confine(confinement) {
        Ok(confined) => {
            allocator::keep_memory();
            allocator::have_memory();
            let done = begin_work(socket, confinement, &confined.no_fork)
                .and_then(|client| scan_next(&client));
            // The client waits for the end, so no clean-up comes first.
            exit(done.is_ok())
        }
        Err(reason) => refuse(format!(
            "a scan must be confined, but the confinement fails: {reason}"
        )),
    }
}

/// Tells the process at the other end of standard input why this one does not scan.
pub fn refuse(reason: String) -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    let client = Channel::new(socket, Forever);
    let (task, _) = client.receive::<ScanTask>(LARGEST_RESPONSE, &mut unlimited())?;
    let error = Error::of(task.dir.join(&task.relative), reason);
    client.send_outcome(ScanOutcome::from(&error))
}

/// Lets the kernel end this process with the thread that started it.
pub fn end_with_parent() -> Result<()> {
    confine::end_with_parent().map_err(|e| Error::io("/proc/self", io::Error::other(e)))
}

/// The channel to a process that asks for logs to be closed, at the other end of standard input.
pub struct Closing(Channel<OwnedFd, Patiently>);

impl Closing {
    /// Takes this process's end of the channel, and closes all other inherited descriptors. This process may live long,
    /// and inherited descriptors would keep the host's file locks.
    pub fn new() -> io::Result<Self> {
        close_inherited().map_err(io::Error::other)?;
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
        Ok(Closing(Channel::new(socket, Patiently)))
    }

    /// The next log to close. `None` if the client is gone or has been silent for a while, or if the last close left
    /// objects open, because the next close would meet them.
    pub fn next(&self) -> io::Result<Option<CloseTask>> {
        if h5::has_open_objects() {
            return Ok(None);
        }
        match self.0.receive(LARGEST_RESPONSE, &mut unlimited()) {
            Ok((task, _)) => Ok(Some(task)),
            Err(e)
                if [io::ErrorKind::UnexpectedEof, io::ErrorKind::TimedOut].contains(&e.kind()) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Sends the outcome of a close, with what there is to say about it.
    pub fn tell(&self, outcome: Result<Option<String>>) -> io::Result<()> {
        let outcome = match outcome {
            Ok(said) => ScanOutcome::Scanned(said.unwrap_or_default().into_bytes()),
            Err(e) => ScanOutcome::from(&e),
        };
        self.0.send_outcome(outcome)
    }
}

/// The outcome of the confinement.
struct Confined {
    /// The filter for the workers.
    no_fork: NoFork,
    /// The parts of the confinement that the system lacks.
    missing: Option<String>,
}

fn confine(confinement: &Confinement) -> confine::Result<Confined> {
    // This comes before the change of the user, after which the process may not write below /proc.
    let unranked = confine::die_first();
    // This call loads the libraries that libhdf5 loads lazily. Nothing can be opened later.
    hdf5::library_version();
    let no_fork = NoFork::prepare()?;
    if let Some((uid, gid)) = confinement.user {
        confine::become_user(uid, gid)?;
    }
    if confinement.ends_with_parent {
        // The change of the user has reset this.
        confine::end_with_parent()?;
    }
    confine::drop_capabilities()?;
    confine::limit_memory(confinement.memory)?;
    let missing: Vec<String> = unranked
        .into_iter()
        .chain(confine::restrict_files()?)
        .collect();
    confine::filter_calls()?;
    Ok(Confined {
        no_fork,
        missing: (!missing.is_empty()).then(|| missing.join("; ")),
    })
}

/// Closes the descriptors that this process inherited from its daemon or host but does not need.
fn close_inherited() -> confine::Result<()> {
    // The C library has this function since glibc 2.34, the kernel since Linux 5.9.
    // SAFETY: this process has opened nothing yet. If it is a fork, the Rust values of descriptors belong to the
    // original process, and this one neither uses nor drops them.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    match closed {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENOSYS) => close_one_by_one(),
            e => Err(Fault::Refused(format!("close_range: {e}"))),
        },
    }
}

fn close_one_by_one() -> confine::Result<()> {
    const OPEN: &str = "/proc/self/fd";
    let failed = |e: io::Error| Fault::Refused(format!("{OPEN}: {e}"));
    let names = std::fs::read_dir(OPEN).map_err(failed)?;
    // These are closed after the directory, whose own descriptor is among them.
    let names = names.map(|name| Ok(name.map_err(failed)?.file_name()));
    let names = names.collect::<confine::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    for number in numbers.filter(|number: &i32| *number >= FIRST) {
        // SAFETY: as above. The descriptor of the directory is already closed.
        unsafe { libc::close(number) };
    }
    Ok(())
}

fn send(control: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    if rustix::io::write(control, message)? == message.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}

/// Forks a worker for each socket that the daemon sends. Answers with the worker's process number, or with the negative
/// number of a system error.
fn fork_workers(
    control: BorrowedFd<'_>,
    confinement: &Confinement,
    no_fork: &NoFork,
) -> io::Result<()> {
    while let Some(socket) = receive_socket(control)? {
        match fork() {
            Ok(0) => {
                let done = work(socket, confinement, no_fork);
                exit(done.is_ok());
            }
            Ok(process) => send(control, &process.to_le_bytes())?,
            Err(e) => send(control, &(-i64::from(errno(&e))).to_le_bytes())?,
        }
    }
    Ok(())
}

/// Receives a socket; `None` if the daemon has ended.
fn receive_socket(control: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let receive = || receive_some(control, &mut [0], RecvFlags::empty());
    match rustix::io::retry_on_intr(receive)? {
        (0, _) => Ok(None),
        (_, None) => Err(io::ErrorKind::InvalidData.into()),
        (_, socket) => Ok(socket),
    }
}

/// Forks this process. The daemon becomes the parent of the new process, so that the daemon can wait for it and kill
/// it. Returns 0 in the new process.
fn fork() -> io::Result<i64> {
    // SAFETY: no stack or pointer is passed, and without CLONE_VM the processes share no memory. This process has one
    // thread, so no other thread can hold a lock that the new process would wait for.
    let process = unsafe { libc::syscall(libc::SYS_clone, confine::FORK, 0, 0, 0, 0) };
    match process {
        -1 => Err(io::Error::last_os_error()),
        process => Ok(process),
    }
}

/// Ends this process at once, without exit handlers. In a forked process, the handlers would clean up objects of the
/// zygote, and copy its memory pages to do so.
fn exit(success: bool) -> ! {
    // SAFETY: the function takes a number and does not return.
    unsafe { libc::_exit(i32::from(!success)) }
}

/// Runs the worker of a zygote: scans for as long as the daemon sends requests.
fn work(socket: OwnedFd, confinement: &Confinement, no_fork: &NoFork) -> io::Result<()> {
    let daemon = begin_work(socket, confinement, no_fork)?;
    // Objects that libhdf5 has left open would be visible to the next scan.
    while scan_next(&daemon)? && !h5::has_open_objects() {}
    Ok(())
}

/// Gives up the last rights, and returns the channel to the daemon.
fn begin_work(
    socket: OwnedFd,
    confinement: &Confinement,
    no_fork: &NoFork,
) -> io::Result<Arc<Daemon>> {
    // The worker must not read the zygote's control socket.
    rustix::stdio::dup2_stdin(rustix::stdio::stdout())?;
    let confined = confine::limit_processor(confinement.cpu).and_then(|()| no_fork.apply());
    confined.map_err(io::Error::other)?;
    Ok(Arc::new(Channel::new(socket, Forever)))
}

/// Does one scan. Returns `false` if the daemon has no more.
fn scan_next(daemon: &Arc<Daemon>) -> io::Result<bool> {
    let (task, _) = match daemon.receive::<ScanTask>(LARGEST_RESPONSE, &mut unlimited()) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        received => received?,
    };
    let outcome = match scan(daemon, task) {
        Ok(bytes) => ScanOutcome::Scanned(bytes),
        Err(e) => ScanOutcome::from(&e),
    };
    daemon.send_outcome(outcome)?;
    Ok(true)
}

/// A reservation without a limit, for messages of the daemon, which is trusted. The limits of the process bound its
/// memory.
fn unlimited() -> Reservation {
    Task::unlimited().reservation()
}

/// Scans, and returns the snapshot as bytes.
fn scan(daemon: &Arc<Daemon>, task: ScanTask) -> Result<Vec<u8>> {
    let allowance = Allowance::begin().map_err(|e| Error::io(&task.relative, e))?;
    let opener = Arc::new(DaemonOpener {
        daemon: Arc::clone(daemon),
        allowance,
    });
    let dir = SourceDir::remote(task.dir, task.settings.log_dirs.clone(), opener);
    let bad = |fault: Fault| Error::of(dir.full_path(&task.relative), fault);
    h5::take_external_links_as_bytes().map_err(bad)?;
    let snapshot = crate::scan(ScanRequest {
        dir: &dir,
        relative: &task.relative,
        companions: task.companions.as_deref(),
        settings: &task.settings,
        known: task.known,
    })?;
    let bytes = snapshot.to_bytes().map_err(bad)?;
    let most = task.settings.most;
    if bytes.len() as u64 > most {
        let len = bytes.len();
        let reason = format!("{len} bytes of metadata exceed index_memory, {most} bytes");
        return Err(bad(reason.into()));
    }
    Ok(bytes)
}

/// Asks the daemon to open files, because the worker may open none.
#[derive(Debug)]
struct DaemonOpener {
    daemon: Arc<Daemon>,
    allowance: Allowance,
}

impl DaemonOpener {
    fn ask(&self, request: &Request) -> io::Result<(Response, Option<OwnedFd>)> {
        self.daemon.send(request, None)?;
        match self.daemon.receive(LARGEST_RESPONSE, &mut unlimited())? {
            (Response::Refused(errno), _) => Err(io::Error::from_raw_os_error(errno)),
            (Response::Foreign(reason), _) => Err(reason.into_io()),
            (Response::NotRegular(reason), _) => Err(reason.into_io()),
            response => Ok(response),
        }
    }
}

impl FileOpener for DaemonOpener {
    fn open_file(&self, place: &SourcePath) -> io::Result<File> {
        match self.ask(&Request::Open(place.clone()))? {
            (Response::Opened, Some(file)) => {
                let file = file.into();
                self.allowance.add(&file)?;
                Ok(file)
            }
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
