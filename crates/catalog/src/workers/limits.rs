//! The limits of a scan, and the program and the user that run it.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use h5logfs_common::parallel;
use h5logfs_view::cache::MemoryLimits;

/// The limits of a scan, and the program and the user that run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The program `h5logfs`, which serves scans. Default: the one that the environment variable `H5LOGFS_PROGRAM`
    /// names, or else the first `h5logfs` in `PATH`.
    pub program: PathBuf,
    /// Address space of a worker in bytes, at least [`SMALLEST_MEMORY`]. Default: 2 GiB.
    pub memory: u64,
    /// Processor time of one scan, in whole seconds. Default: 60 s.
    pub cpu: Duration,
    /// Elapsed time of one scan. Default: 300 s.
    pub time: Duration,
    /// The largest snapshot of one file in bytes. Default: [`MemoryLimits::index_memory`], because a larger one could
    /// not be kept.
    pub metadata: u64,
    /// Scans at the same time, from 1 to [`MOST_WORKERS`]. Default: one more than there are processors, at most 16.
    pub workers: usize,
    /// Files that one worker scans while a directory is listed, from 1 to [`LARGEST_BATCH`]. They all have the same owner,
    /// group and mode, and lie in one directory. Default: 64.
    pub batch: usize,
    /// The name of the user that workers become if root starts them. Default: `h5logfs` if `/etc/passwd` has such a
    /// user, or else the user 65534, which owns nothing.
    pub user: Option<String>,
}

/// The user that workers become, if it exists.
const USUAL_USER: &str = "h5logfs";

/// The number of the user and the group that own nothing.
const NOBODY: u32 = 65534;

/// The least memory of a worker in bytes. Less is too little to load libhdf5.
pub const SMALLEST_MEMORY: u64 = 256 << 20;
/// The most workers that a pool can have.
pub const MOST_WORKERS: usize = 256;

/// The most files that one worker can scan.
pub const LARGEST_BATCH: usize = 1024;

const USUAL_BATCH: usize = 64;
const USUAL_MEMORY: u64 = 2 << 30;
const USUAL_CPU: Duration = Duration::from_secs(60);
const USUAL_TIME: Duration = Duration::from_secs(300);
const MOST_USUAL_WORKERS: usize = 16;

impl Limits {
    /// The default limits, with a given program and number of workers.
    pub fn of(program: PathBuf, workers: usize) -> Self {
        Limits {
            program,
            memory: USUAL_MEMORY,
            cpu: USUAL_CPU,
            time: USUAL_TIME,
            metadata: MemoryLimits::default().index_memory,
            workers,
            batch: USUAL_BATCH,
            user: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        // The files of one owner get all workers but one; see `Slots`.
        let workers = (parallel::cores() + 1).min(MOST_USUAL_WORKERS);
        Limits::of(find_program(), workers)
    }
}

/// The environment variable with the path of the program, for callers that are not `h5logfs`.
pub const PROGRAM_VARIABLE: &str = "H5LOGFS_PROGRAM";

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
    /// The usual user in a table of passwd(5), where our package makes it. Other services that know users are not
    /// asked. The user usually does not exist, and then asking them takes a tenth of a small scan.
    fn usual(table: &str) -> Option<Self> {
        let mut fields = table
            .lines()
            .map(|line| line.split(':'))
            .find_map(|mut fields| (fields.next() == Some(USUAL_USER)).then_some(fields))?
            .skip(1);
        let mut number = || fields.next()?.parse().ok();
        Some(ScanUser {
            uid: number()?,
            gid: number()?,
        })
    }

    /// Whether this user namespace has the user and the group.
    fn exists_here(&self) -> bool {
        is_mapped("/proc/self/uid_map", self.uid) && is_mapped("/proc/self/gid_map", self.gid)
    }
}

/// Whether a map of user_namespaces(7) contains `id`. Each line has the first number inside, the first number outside,
/// and a count. Without a readable map all numbers exist.
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

/// Whether this process has no capabilities besides the rights of its user.
fn has_no_capabilities() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.permitted.is_empty())
}

impl Limits {
    /// The arguments of a hidden subcommand of the program `h5logfs` that scans within these limits.
    pub(super) fn arguments(&self, subcommand: &str) -> io::Result<Vec<String>> {
        let user = self.user()?;
        let user = user.map(|ScanUser { uid, gid }| format!("--user={uid}:{gid}"));
        let limits = [
            subcommand.to_owned(),
            format!("--memory={}", self.memory),
            format!("--cpu={}", self.cpu.as_secs()),
        ];
        Ok(limits.into_iter().chain(user).collect())
    }

    /// The user that workers become. `None` keeps the user of this process, because only root can change the user. Not
    /// every root can. In a user namespace without other users, root has no more rights than its user outside. A helper
    /// of mount(8) may be root without capabilities.
    pub(super) fn user(&self) -> io::Result<Option<ScanUser>> {
        if !rustix::process::geteuid().is_root() || has_no_capabilities() {
            return Ok(None);
        }
        let Some(name) = &self.user else {
            let nobody = ScanUser {
                uid: NOBODY,
                gid: NOBODY,
            };
            let usual = fs::read_to_string("/etc/passwd").ok();
            let usual = usual.and_then(|table| ScanUser::usual(&table));
            return Ok(Some(usual.unwrap_or(nobody)).filter(ScanUser::exists_here));
        };
        match nix::unistd::User::from_name(name)? {
            Some(user) => Ok(Some(ScanUser {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
            })),
            None => Err(io::Error::other(format!("there is no user {name}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_user_is_that_of_the_table() {
        let table = "root:x:0:0:root:/root:/bin/sh\nh5logfs2:x:7:8::/:/bin/false\n\n\
                     h5logfs:x:998:997::/nonexistent:/usr/sbin/nologin\n";
        let user = ScanUser::usual(table);
        assert_eq!(user, Some(ScanUser { uid: 998, gid: 997 }));
        for without in [
            "",
            "root:x:0:0:root:/root:/bin/sh",
            "h5logfs:x",
            "h5logfs:x:-1:y",
        ] {
            assert_eq!(ScanUser::usual(without), None, "{without}");
        }
    }
}
