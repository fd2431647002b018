//! Serves scans in confined processes: the zygote, which forks workers, and the worker.
//!
//! The daemon starts the zygote once, as another process of this program. The zygote opens no user's file. It gives
//! up its rights, and then forks a worker whenever the daemon asks. A fork takes less time than the start of a new
//! program, above all of one that is linked to the libhdf5 of the system with its libraries. A worker does one scan after the
//! other for as long as the daemon sends them; the daemon decides which files may share a process.
//!
//! A host that reads few logs has no zygote: it starts one worker for each scan ([`serve_one`]). A command for one file forks it from
//! itself.

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

/// The largest response of the daemon, in bytes. Listings of directories are the large ones.
const LARGEST_RESPONSE: usize = 64 << 20;

/// The first descriptor behind standard input, output and error.
const FIRST: i32 = 3;

/// The channel of a worker to its daemon.
type Daemon = Channel<OwnedFd, Forever>;

/// How a zygote confines itself and its workers.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// Bytes of address space.
    pub memory: u64,
    /// Seconds of processor time, for each worker. A scan of small files may take less: see `allowance`.
    pub cpu: u64,
    /// User and group to become.
    pub user: Option<(u32, u32)>,
    /// The kernel ends the process when the thread ends that has started it.
    pub ends_with_parent: bool,
}

/// Runs the zygote: serves the daemon at the other end of standard input until that closes. The first message is
/// [`READY`] and what the system lacks for the confinement. If the confinement fails, the first message
/// is the reason, and the last message, too.
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

/// Runs a worker without a zygote: serves one scan to the process at the other end of standard input. It ends with the
/// process that has started it. If the confinement fails, the outcome of the scan is the reason.
pub fn serve_one(confinement: &Confinement) -> io::Result<()> {
    close_inherited().map_err(io::Error::other)?;
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    match confine(confinement) {
        Ok(confined) => {
            allocator::keep_memory();
            allocator::have_memory();
            let done = begin_work(socket, confinement, &confined.no_fork)
                .and_then(|client| scan_next(&client));
            // The client waits for the end, so nothing is put in order before.
            exit(done.is_ok())
        }
        Err(reason) => refuse(format!("a scan needs confinement, which fails: {reason}")),
    }
}

/// Answers the process at the other end of standard input with the reason why this one does not scan.
pub fn refuse(reason: String) -> io::Result<()> {
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
    let client = Channel::new(socket, Forever);
    let (task, _) = client.receive::<ScanTask>(LARGEST_RESPONSE, &mut unlimited())?;
    let error = Error::of(task.dir.join(&task.relative), reason);
    client.send_outcome(ScanOutcome::from(&error))
}

/// Ends this process with the thread that has started it.
pub fn end_with_parent() -> Result<()> {
    confine::end_with_parent().map_err(|e| Error::io("/proc/self", io::Error::other(e)))
}

/// The process that wants to have logs closed, at the other end of standard input.
pub struct Closing(Channel<OwnedFd, Patiently>);

impl Closing {
    /// Its end of the channel. Closes all else that this process has inherited: it may stay for a while, and the locks of files
    /// that its host has open would, too.
    pub fn new() -> io::Result<Self> {
        close_inherited().map_err(io::Error::other)?;
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST)?;
        Ok(Closing(Channel::new(socket, Patiently)))
    }

    /// The next log. `None` where that process is gone, or has had none for a while. What was left open of the one before
    /// would be there in the next one.
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

    /// Tells that process how something has ended, and what there is to say of it.
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
    /// For the workers.
    no_fork: NoFork,
    /// What the system lacks for it.
    missing: Option<String>,
}

fn confine(confinement: &Confinement) -> confine::Result<Confined> {
    // Before the change of the user, after which this process may not write below /proc.
    let unranked = confine::die_first();
    // This loads what libhdf5 loads lazily. Later nothing can be opened.
    hdf5::library_version();
    let no_fork = NoFork::prepare()?;
    if let Some((uid, gid)) = confinement.user {
        confine::become_user(uid, gid)?;
    }
    if confinement.ends_with_parent {
        // A change of the user takes this back.
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

/// Closes the descriptors that this process inherited from its daemon or host. They are not for it.
fn close_inherited() -> confine::Result<()> {
    // The function of the C library is one of glibc 2.34. The call is one of Linux 5.9.
    // SAFETY: this process has opened nothing yet. It may be a fork; then the Rust values of descriptors are those of the process
    // that it was forked from, and this one neither uses nor drops them.
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
    // They are closed after the directory, whose own descriptor is among them.
    let names = names.map(|name| Ok(name.map_err(failed)?.file_name()));
    let names = names.collect::<confine::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse().ok());
    for number in numbers.filter(|number: &i32| *number >= FIRST) {
        // SAFETY: as above. That of the directory is closed already.
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

/// Forks a worker for each socket that the daemon sends. Answers with its process number, or the negative number of a
/// system error.
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

/// `None` if the daemon has ended.
fn receive_socket(control: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let receive = || receive_some(control, &mut [0], RecvFlags::empty());
    match rustix::io::retry_on_intr(receive)? {
        (0, _) => Ok(None),
        (_, None) => Err(io::ErrorKind::InvalidData.into()),
        (_, socket) => Ok(socket),
    }
}

/// Forks this process. The parent of the new one is the daemon, so that it can wait for it and kill it. Returns 0 in
/// the new process.
fn fork() -> io::Result<i64> {
    // SAFETY: no stack or pointer is passed, and without CLONE_VM the processes share no memory; this process has one
    // thread, so no other thread can hold a lock that the new process would wait for.
    let process = unsafe { libc::syscall(libc::SYS_clone, confine::FORK, 0, 0, 0, 0) };
    match process {
        -1 => Err(io::Error::last_os_error()),
        process => Ok(process),
    }
}

/// Ends this process at once, without exit handlers. In a process that was forked these would clean up what belongs to the zygote,
/// and copy its memory pages for it.
fn exit(success: bool) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(i32::from(!success)) }
}

/// Runs the worker of a zygote: one scan, and others as long as the daemon sends them.
fn work(socket: OwnedFd, confinement: &Confinement, no_fork: &NoFork) -> io::Result<()> {
    let daemon = begin_work(socket, confinement, no_fork)?;
    // Something of a scan that libhdf5 has not closed would be there in the next one.
    while scan_next(&daemon)? && !h5::has_open_objects() {}
    Ok(())
}

/// Gives up the last rights. Returns the channel to the daemon.
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

/// Does one scan. `false` where the daemon has no more.
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

/// For messages of the daemon, which is trusted. The limits of the process bound its memory.
fn unlimited() -> Reservation {
    Task::unlimited().reservation()
}

/// Returns the snapshot as bytes.
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
        let reason = format!("{len} bytes of metadata are more than index_memory, {most} bytes");
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
