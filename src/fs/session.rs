//! The life of one mount: start, serve, end.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use fuser::{Config, Session, SessionACL};
use rustix::process::{Pid, PidfdFlags, Signal};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use h5logfs_catalog::Catalog;
use h5logfs_catalog::options::ReadOptions;
use h5logfs_catalog::workers::Workers;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::descriptors;
use h5logfs_log::log_dir;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::tiles::named::{self as tiles, NamedSet};

use super::allocator;
use super::auto_unmount::Watcher;
use super::filesystem::LogFilesystem;
use super::memory_limit;
use super::monitor::Monitor;
use super::mounting::{self, Helper, Mounted, Request};
use super::mounts::MountId;
use super::pruner;
use super::scheduler::Rules;
use super::service::Service;
use super::source_tree::{DirectoryLogs, PathFilter, SourceTree, Tiles};
use super::watch::Watch;

/// Signals that a mount handles: two end it, one drops caches, and one writes the state to the log.
pub const SIGNALS: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1];

/// Signals that [`Running::serve_command`] passes on to the command.
pub const PASSED_ON: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

/// How long open files stay readable after a stop signal.
const GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Read-ahead of the kernel. 4 MiB keep all threads busy for a sequential reader. The default of 128 KiB leaves most of the
/// throughput unused.
const READ_AHEAD_KB: u64 = 4096;

/// The options of one mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// The source: a directory, or one log.
    pub source: PathBuf,
    /// The mount point: a directory, or `/dev/fd/N` if the caller has mounted and passes the device.
    pub mount_point: PathBuf,
    /// Whether other users may use the mount, within the permissions of the files.
    pub allow_other: bool,
    /// Whether to unmount after a crash of the daemon, too.
    pub auto_unmount: bool,
    /// Number of threads that serve the kernel.
    pub threads: usize,
    /// Processor time allowed for one request.
    pub read_cpu: Duration,
    /// Whether the kernel reads plain files without the daemon, where it can.
    pub passthrough: bool,
    pub directory_logs: DirectoryLogs,
    pub tiles: Tiles,
    pub read: ReadOptions,
    pub helper: Helper,
}

/// A working mount. A drop unmounts it.
#[derive(Debug)]
pub struct Running {
    /// The mount; `None` for one that the caller made and unmounts.
    mounted: Option<Mounted>,
    watcher: Option<Watcher>,
    signals: Signals,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    monitor: Arc<Monitor>,
    watch: Arc<Watch>,
    terminal: Terminal,
}

#[derive(Debug)]
enum Event {
    /// The session has ended, normally by an unmount.
    Ended(io::Result<()>),
    Signal(i32),
}

/// Mounts. On return the mount is in place and answers. `signals`: the signals handled from now on.
pub fn start(options: &Options, signals: &[i32]) -> Result<Running> {
    // The terminal may close as soon as the mount is visible, so its state is read before.
    let terminal = Terminal::now();
    // From here on these signals are queued until a thread reads them.
    let signals = Signals::new(signals).map_err(|e| Error::io("signal handler", e))?;
    descriptors::raise_limit();
    allocator::bound_spare_memory();
    if let Some(shortage) = memory_limit::shortage(options.read.memory) {
        log::warn!("{shortage}");
    }
    memory_limit::check_room(options.threads)?;
    expect_source(&options.source)?;
    let place = MountPoint::of(options)?;
    // The source is opened before the mount, because the mount point may be the same directory.
    let (source, source_tree) = open_source(options, place.path())?;
    let mount_point = place.path().unwrap_or(&options.mount_point).to_owned();
    let service = Service::new(source_tree, &mount_point)?;
    let monitor = Arc::clone(service.monitor());
    let rules = Rules::new(options.threads, options.allow_other, options.read_cpu);
    let inodes = Arc::clone(service.inodes());
    let filesystem = LogFilesystem::new(service, rules, options.passthrough);
    let watch = Arc::clone(filesystem.watch());
    let (device, mounted) = place.mount(&source, options)?;
    let notices = device.try_clone().map_err(|e| Error::io(&mount_point, e))?;
    let notices = Arc::new(File::from(notices));
    let for_pruner = Arc::downgrade(&notices);
    let session = Session::from_fd(filesystem, device, acl(options), config(options, rules))
        .map_err(|e| Error::io(&mount_point, e))?;
    let mut watcher = None;
    if let Some(mounted) = &mounted {
        raise_read_ahead(mounted.id());
        if options.auto_unmount {
            watcher = Some(Watcher::start(mounted.id())?);
        }
    }
    let (events, inbox) = mpsc::channel();
    serve_in_thread(session, notices, events.clone())?;
    spawn("pruner", move || pruner::run(&for_pruner, &inodes))?;
    // A mount of the caller has had its first answer when the session was negotiated.
    if mounted.is_some() {
        await_answer(&mount_point, &inbox)?;
    }
    log::info!("{} mounted at {}", source.display(), mount_point.display());
    Ok(Running {
        mounted,
        watcher,
        signals,
        events,
        inbox,
        monitor,
        watch,
        terminal,
    })
}

/// The place of the file system.
enum MountPoint {
    /// This process mounts at this directory, given by its real path.
    At(PathBuf),
    /// The caller has mounted, and passes this device.
    Given(OwnedFd),
}

impl MountPoint {
    fn of(options: &Options) -> Result<Self> {
        let path = &options.mount_point;
        let Some(number) = mounting::given_device(path) else {
            return mounting::checked_mount_point(path).map(MountPoint::At);
        };
        // The kernel acts on the caller's options: it checks users only with default_permissions.
        for (is_set, name) in [
            (options.allow_other, "allow_other"),
            (options.auto_unmount, "auto_unmount"),
        ] {
            if is_set {
                let reason = format!(
                    "{name} works only for a mount that h5logfs makes, and this one is the caller's"
                );
                return Err(Error::of(path, reason));
            }
        }
        mounting::take_device(number).map(MountPoint::Given)
    }

    /// The directory, if it is known.
    fn path(&self) -> Option<&Path> {
        match self {
            MountPoint::At(path) => Some(path),
            MountPoint::Given(_) => None,
        }
    }

    fn mount(self, source: &Path, options: &Options) -> Result<(OwnedFd, Option<Mounted>)> {
        let mount_point = match self {
            MountPoint::At(path) => path,
            MountPoint::Given(device) => return Ok((device, None)),
        };
        let (device, mounted) = mounting::mount(&Request {
            source,
            mount_point: &mount_point,
            allow_other: options.allow_other,
            helper: options.helper,
        })?;
        Ok((device, Some(mounted)))
    }
}

/// Fails if the source is missing. The command may be mistyped, so this is more helpful than an error about the mount point.
/// The path of a dead mount has other errors, which `checked_mount_point` explains.
fn expect_source(source: &Path) -> Result<()> {
    match log_dir::file_of(source).metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::io(source, e)),
        _ => Ok(()),
    }
}

/// The real path of the source, and the source as the mount shows it. `mount_point`: the mount point, if it is known.
fn open_source(options: &Options, mount_point: Option<&Path>) -> Result<(PathBuf, SourceTree)> {
    let source = &options.source;
    let set = tiles::named_by(source).filter(|set| {
        let may_be_file = set.refused.is_some() || options.tiles == Tiles::Members;
        !(set.is_member && may_be_file)
    });
    let joined = set.as_ref().map(NamedSet::name).transpose()?;
    let named = set
        .map(|set| set.first)
        .or_else(|| log_dir::named_by(source));
    let real = named.as_deref().unwrap_or(source).canonicalize();
    let real = real.map_err(|e| Error::io(source, e))?;
    let metadata = fs::metadata(&real).map_err(|e| Error::io(source, e))?;
    let (dir, filter) = if is_log_file(&real, &metadata) {
        let (dir, name) = SourceDir::of_file(&real)?;
        let name = joined.unwrap_or(name);
        let filter = PathFilter {
            without: mount_point.and_then(|at| inside(at, dir.path())),
            only: Some(name.into_os_string()),
        };
        (dir, filter)
    } else if metadata.is_dir() {
        let filter = PathFilter {
            only: None,
            without: mount_point.and_then(|at| inside(at, &real)),
        };
        (SourceDir::open(&real)?, filter)
    } else {
        return Err(Error::of(
            source,
            "only a directory or a regular file can be mounted",
        ));
    };
    let read = &options.read;
    let dir = dir.with_further(&read.settings.log_dirs)?;
    let dir = match mount_point {
        Some(mount_point) => dir.covered_by(mount_point),
        None => dir,
    };
    let scanner = Workers::pooled(read.scan_limits())?;
    let mut catalog = Catalog::new(dir, read.memory, scanner).with_settings(read.settings.clone());
    // The store is opened before the mount, which may cover its directory.
    if let Some(store) = read.index_dir.open(read.index_dir_size)? {
        let tidied = Arc::clone(&store);
        // This may take long, and the mount does not wait for it.
        spawn("index_dir", move || tidied.evict())?;
        catalog = catalog.with_store(store);
    }
    let tree = SourceTree::new(catalog, filter)
        .with_directory_logs(options.directory_logs)
        .with_tiles(options.tiles);
    Ok((real, tree))
}

/// Whether the source is a single file, or a log that is a directory.
fn is_log_file(source: &Path, found: &fs::Metadata) -> bool {
    found.is_file() || log_dir::named_by(source).is_some()
}

/// The path of `inner` below `dir`. `None` also for `dir` itself: a mount over it does no harm, because the daemon has it
/// open.
fn inside(inner: &Path, dir: &Path) -> Option<PathBuf> {
    let below = inner.strip_prefix(dir).ok()?;
    (!below.as_os_str().is_empty()).then(|| below.to_owned())
}

fn acl(options: &Options) -> SessionACL {
    if options.allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    }
}

fn config(options: &Options, rules: Rules) -> Config {
    let mut config = Config::default();
    config.acl = acl(options);
    config.n_threads = Some(rules.threads);
    // A device descriptor for each thread makes reading a little faster. Not all users may open the device.
    config.clone_fd = mounting::open_device().is_ok();
    config
}

/// Raises the read-ahead of the kernel, which only root may do. For other users an administrator can set up a udev rule.
fn raise_read_ahead(id: MountId) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let setting = format!("/sys/class/bdi/{}/read_ahead_kb", id.device());
    let now = fs::read_to_string(&setting).map(|text| text.trim().parse().unwrap_or(0));
    let outcome = match now {
        Ok(kb) if kb >= READ_AHEAD_KB => Ok(()),
        Ok(_) => fs::write(&setting, READ_AHEAD_KB.to_string()),
        Err(e) => Err(e),
    };
    if let Err(e) = outcome {
        // Root of a user namespace is an ordinary user.
        let level = match e.kind() {
            io::ErrorKind::PermissionDenied => log::Level::Debug,
            _ => log::Level::Warn,
        };
        log::log!(
            level,
            "{setting}: cannot raise the read-ahead, reading will be slower: {e}"
        );
    }
}

impl Running {
    /// Serves until the mount is gone or a stop signal has ended it. Calls `stopping` when the end begins.
    pub fn serve(self, stopping: impl FnOnce()) -> Result<()> {
        let Running {
            mounted,
            watcher,
            signals,
            events,
            inbox,
            monitor,
            watch,
            terminal,
        } = self;
        handle_signals(signals, events, monitor, terminal)?;
        let outcome = wait_for_end(&inbox, mounted.as_ref(), &watch, stopping);
        let gone = mounted.is_none_or(Mounted::clean_up);
        if let Some(watcher) = watcher.filter(|_| gone) {
            watcher.dismiss();
        }
        log::info!("unmounted");
        outcome.map_err(|e| Error::io("FUSE session", e))
    }

    /// Serves until a command has ended, passes the signals of this process to it, and unmounts. Returns its exit status.
    pub fn serve_command(self, mut command: Child) -> Result<ExitStatus> {
        pass_on(self.signals, &command)?;
        let status = command.wait().map_err(|e| Error::io("the command", e))?;
        if let Some(mounted) = &self.mounted {
            mounted.unmount()?;
        }
        // Processes that the command has left behind get errors from now on.
        self.watch.end();
        Ok(status)
    }
}

/// Passes the signals of this process on to another one, except those of a shared terminal, which both get.
fn pass_on(mut signals: Signals, command: &Child) -> Result<()> {
    let failed = |e: rustix::io::Errno| Error::io("the command", e.into());
    // Unlike a process ID, this never refers to another process.
    let process = rustix::process::pidfd_open(Pid::from_child(command), PidfdFlags::empty());
    let process = process.map_err(failed)?;
    spawn("signals", move || {
        for number in signals.forever() {
            if matches!(number, SIGINT | SIGQUIT) && has_terminal() {
                continue;
            }
            // The command may have ended meanwhile.
            if let Some(signal) = Signal::from_named_raw(number) {
                let _ = rustix::process::pidfd_send_signal(&process, signal);
            }
        }
    })
}

/// Whether the keys of a terminal signal this process and its process group. Standard input may be something else.
fn has_terminal() -> bool {
    let front = File::open("/dev/tty").ok();
    let front = front.and_then(|terminal| rustix::termios::tcgetpgrp(&terminal).ok());
    front.is_some_and(|front| front == rustix::process::getpgrp())
}

/// Serves in a thread. `device`: another descriptor of the mount. It is closed at the end of the session, because the kernel
/// waits for answers while one is open.
fn serve_in_thread(
    session: Session<LogFilesystem>,
    device: Arc<File>,
    events: Sender<Event>,
) -> Result<()> {
    spawn("session", move || {
        let outcome = session.run();
        drop(device);
        // At the end of the process the receiver is gone.
        let _ = events.send(Event::Ended(outcome));
    })
}

/// Returns when the mount has answered a first request. Fails if the session has ended instead, for example because the
/// system lacks threads or memory.
fn await_answer(mount_point: &Path, inbox: &Receiver<Event>) -> Result<()> {
    if !mounting::is_dead(mount_point) {
        return Ok(());
    }
    let why = match inbox.recv_timeout(GRACE_PERIOD) {
        Ok(Event::Ended(Err(e))) => e,
        _ => io::ErrorKind::NotConnected.into(),
    };
    Err(Error::io("FUSE session", why))
}

/// Handles signals. Those that end the mount become events.
fn handle_signals(
    mut signals: Signals,
    events: Sender<Event>,
    monitor: Arc<Monitor>,
    terminal: Terminal,
) -> Result<()> {
    spawn("signals", move || {
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => monitor.log_state(),
                SIGHUP if !terminal.is_gone() => monitor.drop_caches(),
                _ => {
                    if events.send(Event::Signal(signal)).is_err() {
                        return;
                    }
                }
            }
        }
    })
}

/// The terminal of a mount in the foreground. When the terminal closes, the system sends SIGHUP, too, and the mount must end
/// like any program of that terminal.
#[derive(Debug, Clone, Copy)]
struct Terminal {
    was_there: bool,
}

impl Terminal {
    fn now() -> Self {
        Terminal {
            was_there: io::stdin().is_terminal(),
        }
    }

    /// Whether the terminal has closed: after a hang-up, standard input is no terminal any more.
    fn is_gone(self) -> bool {
        self.was_there && !io::stdin().is_terminal()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|e| Error::io(format!("thread {name}"), e))
}

/// Waits for the end of the session. A stop signal unmounts. Open files then stay readable for a grace period, which a second
/// signal ends. Long requests fail from the start of this period on. A mount of the caller ends with the session, because
/// this process cannot unmount it.
fn wait_for_end(
    inbox: &Receiver<Event>,
    mounted: Option<&Mounted>,
    watch: &Watch,
    stopping: impl FnOnce(),
) -> io::Result<()> {
    let first = inbox.recv();
    stopping();
    match first {
        Ok(Event::Ended(outcome)) => return outcome,
        Ok(Event::Signal(signal)) => log::info!("signal {signal}: unmounting"),
        Err(_) => return Ok(()),
    }
    let Some(mounted) = mounted else {
        watch.end();
        return Ok(());
    };
    if let Err(error) = mounted.unmount() {
        log::error!("cannot unmount: {error}");
    }
    watch.end();
    match inbox.recv_timeout(GRACE_PERIOD) {
        Ok(Event::Ended(outcome)) => outcome,
        Ok(Event::Signal(_)) | Err(RecvTimeoutError::Timeout) => {
            log::warn!("files are still open; further reads of them will fail");
            Ok(())
        }
        Err(RecvTimeoutError::Disconnected) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_below_the_source_is_left_out() {
        let inside = |inner, dir| inside(Path::new(inner), Path::new(dir));
        assert_eq!(inside("/a/b/c", "/a"), Some("b/c".into()));
        assert_eq!(inside("/a", "/a"), None);
        assert_eq!(inside("/ab", "/a"), None);
    }
}
