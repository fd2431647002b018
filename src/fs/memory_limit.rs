//! The memory limit of this process's control groups, such as a service's `MemoryMax=`, and the limit of its address space
//! (`ulimit -v`).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

use h5logfs_common::error::{Error, Result};
use h5logfs_view::cache::MemoryLimits;

/// Memory of the daemon besides its caches, in bytes.
const BESIDES: u64 = 192 << 20;

/// Address space of each thread that serves the kernel: its buffer, as long as the longest request, and its stack.
const OF_THREAD: u64 = (16 + 2 + 1) << 20;

const ROOT: &str = "/sys/fs/cgroup";

/// A limit that is too low.
#[derive(Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The file that sets the limit.
    file: PathBuf,
    limit: u64,
    needed: u64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage {
            file,
            limit,
            needed,
        } = self;
        write!(
            f,
            "{}: {} MiB are less than the {} MiB that the daemon may take with these cache_size and index_memory; the \
             kernel may kill it",
            file.display(),
            limit >> 20,
            needed >> 20
        )
    }
}

/// Fails if the limited address space leaves no room for the threads. A process without memory ends at once, and would leave
/// a mount that nobody serves.
pub fn check_room(threads: usize) -> Result<()> {
    let Some(limit) = getrlimit(Resource::As).current else {
        return Ok(());
    };
    let pages = fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    let taken = pages.unwrap_or_default().saturating_mul(page_size() as u64);
    let needed = (threads as u64)
        .saturating_mul(OF_THREAD)
        .saturating_add(BESIDES);
    if taken.saturating_add(needed) <= limit {
        return Ok(());
    }
    let reason = format!(
        "{} KiB are too few for {threads} threads: {} KiB are needed to begin. Raise it, or mount with the option threads",
        limit >> 10,
        taken.saturating_add(needed) >> 10
    );
    Err(Error::of(
        "the limit of the address space (ulimit -v)",
        reason,
    ))
}

/// The shortage if control groups limit this process to less than it may take.
pub fn shortage(memory: MemoryLimits) -> Option<Shortage> {
    let caches = memory.cache_size.saturating_add(memory.index_memory);
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    // The unified hierarchy has this line, cgroups(7).
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    shortage_below(
        Path::new(ROOT),
        Path::new(group),
        caches.saturating_add(BESIDES),
    )
}

/// Finds the lowest limit of `group` and its ancestors.
fn shortage_below(root: &Path, group: &Path, needed: u64) -> Option<Shortage> {
    let limits = group.ancestors().filter_map(|group| {
        let file = root.join(group).join("memory.max");
        // `max` is no limit. The root has no such file.
        let limit = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        Some((limit, file))
    });
    let (limit, file) = limits.min()?;
    (limit < needed).then_some(Shortage {
        file,
        limit,
        needed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = Path::new("system.slice/h5logfs@mnt.service");
        let slice = root.path().join("system.slice");
        fs::create_dir_all(root.path().join(group)).unwrap();
        let shortage = |needed| shortage_below(root.path(), group, needed);
        assert_eq!(shortage(u64::MAX), None);
        fs::write(root.path().join(group).join("memory.max"), "max\n").unwrap();
        assert_eq!(shortage(u64::MAX), None);
        fs::write(slice.join("memory.max"), "1073741824\n").unwrap();
        assert_eq!(shortage(1 << 30), None);
        let found = shortage((1 << 30) + (1 << 20)).unwrap().to_string();
        assert!(
            found.contains("system.slice/memory.max: 1024 MiB are less than the 1025 MiB"),
            "{found}"
        );
        fs::write(root.path().join(group).join("memory.max"), "1048576\n").unwrap();
        assert_eq!(shortage(1 << 30).unwrap().limit, 1 << 20);
    }
}
