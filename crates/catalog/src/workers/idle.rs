//! Workers that have done a scan and may do another one, while directories are listed.
//!
//! Most of the time of a small scan goes into its process: the fork, and some five hundred page faults. So a worker
//! serves several files of a listing. A file that takes libhdf5 over could then falsify later scans of the same
//! process. This adds nothing to the rights of a user who can write such a file: all files of one worker lie in
//! one directory and have the same owner, group and mode, and so the same writers and readers.

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

/// The rights to a file, apart from those of the directories above its own. One worker scans only files with equal
/// rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    owner: u32,
    group: u32,
    mode: u32,
    directory: PathBuf,
}

impl Rights {
    /// The rights to the file. `None` where an access list may grant more than the mode.
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
    /// Limits of the scans of one worker, and of the workers that are kept.
    most_scans: usize,
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Number of directories that are being listed. Workers are kept only during a listing.
    listings: usize,
    workers: Vec<(Rights, Worker)>,
}

impl IdleWorkers {
    /// `most_scans` limits the scans of one worker, and `most` the workers that are kept.
    pub fn new(most_scans: usize, most: usize) -> Self {
        IdleWorkers {
            most_scans,
            most,
            kept: Mutex::default(),
        }
    }

    /// Begins a listing, during which workers are kept.
    pub fn begin_listing(&self) {
        self.kept.lock().listings += 1;
    }

    /// Ends a listing. Ends the workers, too, if this was the last listing.
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

    /// The rights that another scan by the same worker must have. `None` where there is no other scan.
    pub fn rights(&self, request: &ScanRequest<'_>, file: &Stat) -> Option<Rights> {
        let is_used = self.most_scans > 1 && self.kept.lock().listings > 0;
        is_used.then(|| Rights::of(request, file)).flatten()
    }

    /// A worker that has scanned files with these rights.
    pub fn take(&self, rights: &Rights) -> Option<Worker> {
        let mut kept = self.kept.lock();
        let at = kept.workers.iter().position(|(of, _)| of == rights)?;
        Some(kept.workers.swap_remove(at).1)
    }

    /// Keeps the worker that has made `snapshot`, or ends it. A worker that has seen a damaged file is not kept.
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
        // The worker that has waited longest ends.
        let ended = (kept.workers.len() > self.most).then(|| kept.workers.remove(0));
        drop(kept);
        drop(ended);
    }
}
