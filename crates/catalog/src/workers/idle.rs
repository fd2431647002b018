//! Workers that have done a scan and may do another one, while directories are listed.
//!
//! Most of the time that a small scan takes goes into its process: the fork, and some five hundred page faults. So a worker
//! serves several files of a listing. A file that makes libhdf5 do what it wants could then falsify what is scanned
//! after it, in the same process. That reaches no further than the rights of a user who can write such a file: all files of
//! one worker lie in one directory and have the same owner, group and mode, and so the same writers and readers.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::Stat;
use rustix::io::Errno;

use h5logfs_log::scan::ScanRequest;
use h5logfs_log::snapshot::Snapshot;

use super::worker::Worker;

/// Extended attributes that may give further users a right to a file.
const ACCESS_LISTS: [&str; 2] = ["system.posix_acl_access", "system.nfs4_acl"];

/// A snapshot of more bytes ends its worker, so that the memory of a worker does not grow.
const LARGEST_SNAPSHOT: usize = 1 << 20;

/// What decides which users may read and write a file, besides the directories above its own. One worker scans files with
/// equal ones only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    owner: u32,
    group: u32,
    mode: u32,
    directory: PathBuf,
}

impl Rights {
    /// `None` where an access list tells more than the mode, or may do so.
    fn of(request: &ScanRequest<'_>, file: &Stat) -> Option<Self> {
        let open = request.dir.open_file(request.relative).ok()?;
        let has_list = ACCESS_LISTS.iter().any(|name| {
            let found = rustix::fs::fgetxattr(&open, *name, &mut [0; 0]);
            !matches!(found, Err(Errno::NODATA | Errno::OPNOTSUPP))
        });
        let path = request.dir.full_path(request.relative);
        (!has_list).then(|| Rights {
            owner: file.st_uid,
            group: file.st_gid,
            mode: file.st_mode,
            directory: path.parent().unwrap_or(Path::new("")).to_owned(),
        })
    }
}

/// The idle workers of a pool.
#[derive(Debug)]
pub struct IdleWorkers {
    /// How many scans one worker does at most, and how many workers are kept.
    most_scans: usize,
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// How many directories are being listed. Without one, no worker is kept.
    listings: usize,
    workers: Vec<(Rights, Worker)>,
}

impl IdleWorkers {
    /// `most_scans`: that one worker does; `most`: workers that are kept.
    pub fn new(most_scans: usize, most: usize) -> Self {
        IdleWorkers {
            most_scans,
            most,
            kept: Mutex::default(),
        }
    }

    /// From now on workers are kept.
    pub fn begin_listing(&self) {
        self.kept.lock().listings += 1;
    }

    /// Ends the workers, if this was the last listing.
    pub fn end_listing(&self) {
        let mut kept = self.kept.lock();
        kept.listings = kept.listings.saturating_sub(1);
        let ended = match kept.listings {
            0 => std::mem::take(&mut kept.workers),
            _ => Vec::new(),
        };
        drop(kept);
        drop(ended);
    }

    /// What another scan by the same worker would have to have in common with this one. `None` where there will be none.
    pub fn rights(&self, request: &ScanRequest<'_>, file: &Stat) -> Option<Rights> {
        let is_used = self.most_scans > 1 && self.kept.lock().listings > 0;
        is_used.then(|| Rights::of(request, file)).flatten()
    }

    /// A worker that has scanned such files.
    pub fn take(&self, rights: &Rights) -> Option<Worker> {
        let mut kept = self.kept.lock();
        let at = kept.workers.iter().position(|(of, _)| of == rights)?;
        Some(kept.workers.swap_remove(at).1)
    }

    /// Keeps a worker that has made `snapshot`, or ends it. It is not kept after a file in which something is wrong.
    pub fn put(&self, rights: Rights, worker: Worker, snapshot: &Snapshot) {
        let is_sound = snapshot.diagnostics.is_empty() && !snapshot.has_unreadable;
        let is_small = snapshot.bytes() <= LARGEST_SNAPSHOT;
        if !is_sound || !is_small || worker.scans >= self.most_scans {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.listings == 0 {
            return;
        }
        kept.workers.push((rights, worker));
        // The one that has waited longest.
        let ended = (kept.workers.len() > self.most).then(|| kept.workers.remove(0));
        drop(kept);
        drop(ended);
    }
}
