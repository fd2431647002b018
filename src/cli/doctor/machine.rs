//! This machine's support for mounts, Python, MPI and kept indexes.

use std::env;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use h5logfs_catalog::index_dir::IndexDir;
use h5logfs_catalog::options::ReadOptions;
use rustix::process::{Resource, geteuid, getrlimit};

use super::{RELEASE, Report, in_path};
use crate::cli::THIS_PROGRAM;
use crate::fs::{self as mount, WITHOUT_MOUNT};

/// The hidden subcommand that mounts in its own namespace, and ends.
const SUBCOMMAND: &str = "probe-mount";

/// Tests whether this user can mount in a user namespace.
#[derive(Debug, Clone, Args)]
pub struct ProbeMountArgs {}

pub fn probe_mount(_: &ProbeMountArgs) -> anyhow::Result<()> {
    Ok(mount::try_mount()?)
}

/// Open files needed for a log of a large job: a subfile for each node, and the index.
const FEW_FILES: u64 = 1024;

/// Checks mounts: the device, and a way for this user to mount.
pub fn fuse(report: &mut Report) -> io::Result<()> {
    if let Err(e) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        let help = match e.kind() {
            io::ErrorKind::NotFound => {
                "the kernel module fuse is not loaded (as root: modprobe fuse), or the container has no such device (--device \
                 /dev/fuse)"
            }
            io::ErrorKind::PermissionDenied => {
                "this user may not open it (Debian's default is mode 666; as root: chmod 666 /dev/fuse)"
            }
            _ => "the kernel has no FUSE, or the container may not use it",
        };
        return report.bad(format_args!(
            "/dev/fuse: {e}: {help}: nothing can be mounted here; {WITHOUT_MOUNT}"
        ));
    }
    report.good("/dev/fuse can be opened")?;
    let helper = helper();
    let namespace = in_namespace();
    let can_mount = geteuid().is_root() || helper.is_ok() || namespace.is_ok();
    match &helper {
        Ok(path) => report.good(format_args!(
            "{} is there: users can mount with `h5logfs mount`",
            path.display()
        ))?,
        Err(reason) => report.note(format_args!(
            "{reason}: only root can mount with `h5logfs mount` (Debian has it in the package fuse3)"
        ))?,
    }
    match &namespace {
        Ok(()) => report.good(
            "users can create namespaces: `h5logfs run` mounts for a command, without fusermount3",
        )?,
        Err(reason) => report.note(format_args!("`h5logfs run` cannot mount here: {reason}"))?,
    }
    if can_mount {
        return Ok(());
    }
    report.bad(format_args!(
        "this user can mount neither with fusermount3 nor in a namespace: {WITHOUT_MOUNT}"
    ))
}

/// The program that mounts for users, or why there is none.
fn helper() -> Result<PathBuf, String> {
    let name = "fusermount3";
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(|dir| Path::new(dir).join(name));
    let found = in_path(name).or_else(|| usual.into_iter().find(|path| path.is_file()));
    let path = found.ok_or("fusermount3 is not there")?;
    let is_set_uid = path
        .metadata()
        .is_ok_and(|found| found.uid() == 0 && found.permissions().mode() & 0o4000 != 0);
    if is_set_uid {
        Ok(path)
    } else {
        Err(format!("{} is not set-uid root", path.display()))
    }
}

/// Whether a process of this user can mount in a namespace. The error is its message.
fn in_namespace() -> Result<(), String> {
    let tried = Command::new(THIS_PROGRAM).arg(SUBCOMMAND).output();
    let tried = tried.map_err(|e| e.to_string())?;
    if tried.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&tried.stderr);
    let said = said.lines().last().unwrap_or("it printed nothing");
    // The advice has a line of its own.
    let said = said.trim_start_matches("h5logfs: ");
    Err(said.split("; ").next().unwrap_or(said).to_owned())
}

/// Finds the packages of the Python in PATH.
const ASK_PYTHON: &str = "
import sys
# The working directory is no place of packages.
sys.path[:] = [place for place in sys.path if place]
print('python', sys.version.split()[0])
for name in ('h5logfs', 'h5py'):
    try:
        module = __import__(name)
        if getattr(module, '__file__', None) is None:
            raise ModuleNotFoundError(name=name)  # a directory of this name
        about = getattr(module, '__version__', 'without a version')
        if name == 'h5py':
            about += ', with HDF5 ' + module.version.hdf5_version
        print(name, about)
    except ModuleNotFoundError as e:
        print(name, 'missing' if e.name == name else 'fails: ' + str(e))
    except BaseException as e:
        print(name, 'fails:', type(e).__name__, str(e).splitlines()[0] if str(e) else '')
";

pub fn python(report: &mut Report) -> io::Result<()> {
    let Some(program) = in_path("python3") else {
        return report.note("python3 is not in PATH");
    };
    let asked = Command::new(&program).args(["-c", ASK_PYTHON]).output();
    let text = match &asked {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or_default();
            return report.bad(format_args!("{} does not work: {last}", program.display()));
        }
        Err(e) => return report.bad(format_args!("{}: {e}", program.display())),
    };
    let about = |name: &str| {
        let of = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
        text.lines().find_map(of).unwrap_or_default()
    };
    let (version, ours, h5py) = (about("python"), about("h5logfs"), about("h5py"));
    let python = format!("Python {version} ({})", program.display());
    match &*ours {
        "missing" => report.note(format_args!(
            "{python} has no package h5logfs: without it, h5py and others read logs by a mount or with the file driver"
        ))?,
        RELEASE => report.good(format_args!("{python} has h5logfs {ours}"))?,
        broken if broken.starts_with("fails") => report.bad(format_args!(
            "{python}: import h5logfs {broken}: reinstall the wheel of this release for this Python"
        ))?,
        other => report.bad(format_args!(
            "{python} has h5logfs {other}, and this program is {RELEASE}: install the wheel of the same release"
        ))?,
    }
    match &*h5py {
        "missing" => report.note(format_args!("{python} has no h5py")),
        broken if broken.starts_with("fails") => {
            report.bad(format_args!("{python}: import h5py {broken}"))
        }
        found => report.good(format_args!("{python} has h5py {found}")),
    }
}

/// Checks the MPI in PATH.
pub fn mpi(report: &mut Report) -> io::Result<()> {
    let programs = ["mpirun", "mpiexec", "srun"];
    let Some(program) = programs.into_iter().find_map(in_path) else {
        return report.note(
            "neither mpirun nor mpiexec nor srun is in PATH: the writer for MPI programs and the connector for parallel \
             ones need the MPI that they were built for (a module of your site may provide it)",
        );
    };
    let asked = Command::new(&program).arg("--version").output();
    match asked {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            // MPICH reports its version in the second line.
            let lines = said.lines().map(str::trim).take(2);
            let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
            report.good(format_args!("{}: {}", program.display(), lines.join(", ")))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("it prints nothing");
            report.bad(format_args!("{} does not work: {first}", program.display()))
        }
        Err(e) => report.bad(format_args!("{}: {e}", program.display())),
    }
}

/// Checks the directory of this user's kept indexes.
pub fn index_dir(report: &mut Report) -> io::Result<()> {
    let options = ReadOptions::default();
    match IndexDir::usual(options.index_dir_size) {
        Ok((path, _)) => {
            let free = rustix::fs::statvfs(&path).map_or(0, |found| found.f_bavail * found.f_frsize);
            let (path, free) = (path.display(), free >> 20);
            let line = format!("indexes of logs are kept in {path}, where {free} MiB are free");
            if free < FREE_ENOUGH {
                report.bad(format!("{line}: the option index_dir names another directory"))
            } else {
                report.good(line)
            }
        }
        Err(reason) => report.bad(format_args!(
            "{reason}: every reader scans logs again; choose another directory with the option index_dir (-o of a mount, \
             HDF5_DRIVER_CONFIG)"
        )),
    }
}

/// Free space for an index, in MiB, with some reserve.
const FREE_ENOUGH: u64 = 64;

/// Checks the limits of this user's processes.
pub fn limits(report: &mut Report) -> io::Result<()> {
    let options = ReadOptions::default();
    let most = |resource| getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let files = most(Resource::Nofile);
    let mut is_good = true;
    if files < FEW_FILES {
        is_good = false;
        report.bad(format_args!(
            "a process may have {files} files open (ulimit -Hn): a log may have one for each node of its job; raise it to {FEW_FILES} \
             or more"
        ))?;
    }
    let memory = most(Resource::As);
    if memory < options.scans.memory {
        is_good = false;
        report.bad(format_args!(
            "a process may have {} MiB of address space (ulimit -Hv), and a scan needs up to {}: raise it, or set the \
             option scan_memory",
            memory >> 20,
            options.scans.memory >> 20
        ))?;
    }
    if let Some(shortage) = mount::memory_shortage(options.memory) {
        is_good = false;
        report.bad(format_args!("{shortage}: set these options lower"))?;
    }
    if is_good {
        report.good("limits of open files and memory are high enough")?;
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    report.note(format_args!(
        "Linux {}, {} processors, user {} ({})",
        kernel.trim(),
        std::thread::available_parallelism().map_or(1, usize::from),
        geteuid().as_raw(),
        env::consts::ARCH
    ))
}
