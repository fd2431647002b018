//! The files that one worker scans in sequence.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use h5logfs_catalog::workers::{Limits, Workers};
use h5logfs_common::error::Error;
use h5logfs_common::task::Task;
use h5logfs_log::scan::{ListingScans, ScanRequest, Scanner, Settings};
use h5logfs_log::source_dir::SourceDir;
use tempfile::TempDir;

use crate::common::tested_program;

const LOGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
const LOOP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/hostile/heap-loop.log.h5"
);

struct Listed {
    pool: Workers,
    held: SourceDir,
    files: TempDir,
}

fn pool(batch: usize) -> Workers {
    let limits = Limits {
        program: tested_program().into(),
        batch,
        cpu: Duration::from_secs(1),
        ..Limits::default()
    };
    Workers::pooled(limits).unwrap()
}

impl Listed {
    fn new(batch: usize) -> Self {
        let files = tempfile::tempdir().unwrap();
        Listed {
            pool: pool(batch),
            held: SourceDir::open(files.path()).unwrap(),
            files,
        }
    }

    fn add(&self, name: &str, from: impl AsRef<Path>, mode: u32) {
        let path = self.files.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(from, &path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn good(&self, name: &str, mode: u32) {
        self.add(name, format!("{LOGS}/nd.log.h5"), mode);
    }

    /// Lets one more user read a file.
    fn give_right_to(&self, user: u32, name: &str) {
        // linux/posix_acl_xattr.h: the version, then tag, rights and number of each entry.
        let nobody = u32::MAX;
        let entries: [(u16, u16, u32); 5] = [
            (0x01, 6, nobody),
            (0x02, 4, user),
            (0x04, 4, nobody),
            (0x10, 4, nobody),
            (0x20, 4, nobody),
        ];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, rights, number) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        let path = self.files.path().join(name);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, "system.posix_acl_access", &list, flags).unwrap();
    }

    fn scan(&self, name: &str) -> Result<Vec<u8>, Error> {
        let settings = Settings::default();
        let request = ScanRequest::alone(&self.held, Path::new(name), &settings);
        let scanned = self.pool.scan(&Task::unlimited(), request)?;
        Ok(scanned.image.clone())
    }

    /// The idle workers: children of this process, without the zygote.
    fn idle(&self) -> BTreeSet<String> {
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap());
        let all: String = children.collect();
        let mut all: Vec<u32> = all.split_whitespace().map(|n| n.parse().unwrap()).collect();
        all.sort_unstable();
        // The zygote started first.
        all.iter().skip(1).map(u32::to_string).collect()
    }
}

/// A single test, because it looks at the children of its process.
#[test]
fn files_of_equal_rights_share_a_worker_while_they_are_listed() {
    let listed = Listed::new(3);
    for n in 0..5 {
        listed.good(&format!("{n}.h5"), 0o644);
    }
    listed.good("private.h5", 0o600);
    listed.good("below/other.h5", 0o644);
    let alone = listed.scan("0.h5").unwrap();
    assert_eq!(listed.idle().len(), 0, "a worker is kept without a listing");

    let listing = ListingScans::begin(&listed.pool);
    let scan = |name: &str| assert_eq!(listed.scan(name).unwrap(), alone, "{name}");
    scan("0.h5");
    let first = listed.idle();
    assert_eq!(first.len(), 1);
    scan("1.h5");
    assert_eq!(listed.idle(), first);
    scan("private.h5");
    let two = listed.idle();
    assert!(two.len() == 2 && two.is_superset(&first), "{two:?}");
    scan("below/other.h5");
    assert!(listed.idle().len() == 3 && listed.idle().is_superset(&two));
    // Its third scan is its last.
    scan("2.h5");
    assert!(listed.idle().is_disjoint(&first));
    scan("3.h5");
    let next = listed.idle();
    let inner = ListingScans::begin(&listed.pool);
    drop(listing);
    assert_eq!(listed.idle(), next, "another listing goes on");
    drop(inner);
    assert_eq!(listed.idle().len(), 0, "no listing goes on");

    listed.good("with_list.h5", 0o644);
    listed.give_right_to(4711, "with_list.h5");
    listed.add("damaged.h5", format!("{LOGS}/bad_nproc.log.h5"), 0o644);
    listed.add("loop.h5", LOOP, 0o644);
    let listing = ListingScans::begin(&listed.pool);
    scan("with_list.h5");
    assert_eq!(listed.idle().len(), 0, "others may read this one");
    scan("0.h5");
    let first = listed.idle();
    let _ = listed.scan("damaged.h5");
    assert!(listed.idle().is_disjoint(&first), "something was wrong");
    scan("1.h5");
    assert!(listed.scan("loop.h5").is_err());
    assert_eq!(listed.idle().len(), 0, "its worker has ended");
    scan("2.h5");
    drop(listing);

    let mut apart = listed;
    apart.pool = pool(1);
    let _listing = ListingScans::begin(&apart.pool);
    assert_eq!(apart.scan("0.h5").unwrap(), alone);
    assert_eq!(apart.idle().len(), 0, "each scan has its own worker");
}
