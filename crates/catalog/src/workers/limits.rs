//! What a scan may take, and which program and user make it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use h5logfs_core::view::cache::MemoryLimits;

/// What a scan may take, and which program and user make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The program `h5logfs`, which serves scans.
    pub program: PathBuf,
    /// Address space of a worker, in bytes.
    pub memory: u64,
    /// Processor time of one scan.
    pub cpu: Duration,
    /// Time of one scan by the clock.
    pub time: Duration,
    /// Bytes of metadata that a scan may yield: no more can be kept of a file.
    pub metadata: u64,
    /// Scans at once.
    pub workers: usize,
    /// Who the workers are, where root starts them; `None` is [`USUAL_USER`] or [`NOBODY`].
    pub user: Option<String>,
}

/// The user that workers become, where there is one of this name.
pub const USUAL_USER: &str = "h5logfs";

/// Number of the user and the group that own nothing.
const NOBODY: u32 = 65534;

/// With less libhdf5 cannot even be loaded.
pub const SMALLEST_MEMORY: u64 = 256 << 20;
/// The most workers that a pool can have.
pub const MOST_WORKERS: usize = 256;

const USUAL_MEMORY: u64 = 2 << 30;
const USUAL_CPU: Duration = Duration::from_secs(60);
const USUAL_TIME: Duration = Duration::from_secs(300);
const MOST_USUAL_WORKERS: usize = 16;

impl Default for Limits {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Limits {
            program: find_program(),
            memory: USUAL_MEMORY,
            cpu: USUAL_CPU,
            time: USUAL_TIME,
            metadata: MemoryLimits::default().index_memory,
            // One more than can work at once, for one of them is kept for others: see `Slots`.
            workers: (cores + 1).min(MOST_USUAL_WORKERS),
            user: None,
        }
    }
}

/// The environment variable that names the program, for hosts that are not `h5logfs` themselves.
const PROGRAM_VARIABLE: &str = "H5LOGFS_PROGRAM";

/// The program that [`PROGRAM_VARIABLE`] names, or else the first `h5logfs` in `PATH`.
fn find_program() -> PathBuf {
    if let Some(program) = std::env::var_os(PROGRAM_VARIABLE) {
        return program.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join("h5logfs"));
    let found = candidates.find(|candidate| candidate.is_file());
    found.unwrap_or_else(|| "h5logfs".into())
}

/// The user that a worker becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScanUser {
    pub uid: u32,
    pub gid: u32,
}

impl ScanUser {
    /// Whether this user namespace has such a user and such a group.
    fn exists_here(&self) -> bool {
        is_mapped("/proc/self/uid_map", self.uid) && is_mapped("/proc/self/gid_map", self.gid)
    }
}

/// Whether a map of user_namespaces(7) leads anywhere from `id`: a line each for its first number inside, the first
/// one outside, and how many there are. Where no map can be read all numbers stand for themselves.
fn is_mapped(map: &str, id: u32) -> bool {
    let Ok(text) = fs::read_to_string(map) else {
        return true;
    };
    text.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let (Some(Ok(first)), Some(Ok(count))) = (first, count) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&id.into())
    })
}

impl Limits {
    /// Only root can become somebody else; workers of others stay who they are. So does one who is root only in a
    /// user namespace of its own, in which there is nobody else: it has no more rights than its user.
    pub(super) fn user(&self) -> io::Result<Option<ScanUser>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let named = |name: &str| {
            let found = nix::unistd::User::from_name(name)?;
            Ok::<_, io::Error>(found.map(|user| ScanUser {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
            }))
        };
        let nobody = ScanUser {
            uid: NOBODY,
            gid: NOBODY,
        };
        match &self.user {
            None => {
                let usual = named(USUAL_USER).ok().flatten().unwrap_or(nobody);
                Ok(Some(usual).filter(ScanUser::exists_here))
            }
            Some(name) => match named(name)? {
                Some(user) => Ok(Some(user)),
                None => Err(io::Error::other(format!("there is no user {name}"))),
            },
        }
    }
}
