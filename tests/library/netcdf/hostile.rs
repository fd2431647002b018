//! netCDF files and logs that would need too much memory, time or descriptors are refused in time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::common::readers::project;
use crate::fuzz_regressions::{measured, targets::memory};
use h5logfs_log::scan::{ScanRequest, Settings};
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};
use tempfile::TempDir;

/// A file whose log has entries of 64 bytes, each for one value of 4 bytes of one record variable.
fn sample(name: &str) -> Vec<u8> {
    let case = project().join("tests/corpus-pnetcdf/uncounted-cdf1-np1");
    fs::read(case.join(name)).unwrap()
}

/// The file with a log of one entry, which `metadata` makes as long as needed; the files have these lengths.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new(entry: &[u8], metadata: u64, data: u64) -> Self {
        let site = Site {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(site.path("file.nc"), sample("file.nc")).unwrap();
        let mut log = sample("file.nc_0_0.meta");
        log.truncate(header_len(&log));
        log[56..64].copy_from_slice(&1u64.to_le_bytes());
        let begin = log.len() as u64;
        log.extend(entry);
        site.sparse("file.nc_0_0.meta", &log, begin + metadata);
        site.sparse("file.nc_0_0.data", b"PnetCDF0", data);
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file that begins with these bytes and continues with a hole.
    fn sparse(&self, name: &str, bytes: &[u8], len: u64) {
        fs::write(self.path(name), bytes).unwrap();
        let file = File::options().write(true).open(self.path(name)).unwrap();
        file.set_len(len.max(bytes.len() as u64)).unwrap();
    }

    fn view(&self) -> Arc<View> {
        self.view_within(1 << 30)
    }

    fn view_within(&self, limit: u64) -> Arc<View> {
        let dir = SourceDir::open(self.dir.path()).unwrap();
        let snapshot = scan(ScanRequest::alone(
            &dir,
            Path::new("file.nc"),
            &Settings::default(),
        ))
        .unwrap();
        let budget = Arc::new(Budget::new(MemoryLimits::each(limit)));
        memory::count(&budget.task(None));
        View::open(&dir, snapshot, budget, None).unwrap()
    }
}

/// Start of the entries: two names extend the header.
fn header_len(log: &[u8]) -> usize {
    let name = |at: usize| {
        usize::try_from(u32::from_le_bytes(log[at..at + 4].try_into().unwrap())).unwrap()
    };
    let path = name(64);
    (86 + path + name(73 + path)).next_multiple_of(16)
}

/// The fixed part of an entry of the record variable, with this type of payload.
fn entry(size: u64, call: i32, data: u64) -> Vec<u8> {
    let log = sample("file.nc_0_0.meta");
    let mut entry = log[header_len(&log)..][..40].to_vec();
    entry[..8].copy_from_slice(&size.to_le_bytes());
    entry[8..12].copy_from_slice(&call.to_le_bytes());
    entry[32..40].copy_from_slice(&data.to_le_bytes());
    entry
}

#[test]
fn requests_of_too_many_blocks_are_not_followed() {
    // Each block is the first element, without a byte on disk.
    let blocks = 1u64 << 25;
    let size = 40 + 8 * blocks;
    let site = Site::new(
        &entry(size, blocks as i32, 4 * blocks),
        size,
        8 + 4 * blocks,
    );
    let view = site.view();
    let index = view.indexes().of(0).unwrap();
    let said = index.diagnostics()[0].to_string();
    assert!(said.contains("33554432 blocks"), "{said}");
}

#[test]
fn requests_of_many_blocks_take_no_memory_that_was_not_reserved() {
    let blocks = 1u64 << 24;
    let size = 40 + 8 * blocks;
    let entry = entry(size, blocks as i32, 4 * blocks);
    let site = Site::new(&entry, size, 8 + 4 * blocks);
    let refused = measured(|| {
        let view = site.view_within(8 << 20);
        view.indexes().of(0).map(|_| ()).unwrap_err().to_string()
    });
    assert!(refused.contains("no memory for"), "{refused}");
}

/// A strided request for every second record; `stored` bytes of its payload exist.
fn far_and_wide(count: u64, stored: u64) -> Site {
    let stride = 2u64;
    let mut strided = entry(64, -4, 4 * count);
    for word in [0, count, stride] {
        strided.extend(word.to_le_bytes());
    }
    Site::new(&strided, 64, stored)
}

#[test]
fn commands_end_where_one_entry_spoils_very_many_chunks() {
    let said = |site: &Site, command: &str| {
        let mut run = Command::new("timeout");
        // A bound, not a speed: a busy machine may take long.
        let run = run.args(["500", env!("CARGO_BIN_EXE_h5logfs"), command]);
        let run = run.arg(site.path("file.nc"));
        String::from_utf8(run.output().unwrap().stdout).unwrap()
    };
    let no_log_holds = far_and_wide(1 << 30, 8);
    for (site, command, words) in [
        (
            &no_log_holds,
            "check",
            "it claims more than the log could hold",
        ),
        (&no_log_holds, "inspect", "1 in too many pieces to count"),
        (
            &far_and_wide(1 << 27, 1 << 20),
            "check",
            "checked no further after 1000 faults",
        ),
    ] {
        let said = said(site, command);
        assert!(said.contains(words), "no {words} in: {said}");
    }
}

/// The log of `number` processes.
fn of_processes(number: u64) -> Site {
    let site = Site::new(&[], 0, 8);
    fs::remove_file(site.path("file.nc_0_0.meta")).unwrap();
    let mut log = sample("file.nc_0_0.meta");
    log.truncate(header_len(&log));
    log[24..32].copy_from_slice(&number.to_le_bytes());
    log[56..64].fill(0);
    for rank in 0..number {
        log[32..40].copy_from_slice(&rank.to_le_bytes());
        fs::write(site.path(&format!("file.nc_0_{rank}.meta")), &log).unwrap();
        fs::write(site.path(&format!("file.nc_0_{rank}.data")), b"PnetCDF0").unwrap();
    }
    site
}

#[test]
fn commands_have_all_descriptors_that_they_may_have() {
    let site = of_processes(100);
    let check = |limits: &str, files: usize| {
        let line = format!("ulimit {limits} && exec \"$0\" check \"$@\"");
        let mut run = Command::new("bash");
        let run = run.args(["-c", &line, env!("CARGO_BIN_EXE_h5logfs")]);
        // The file is named twice: a command with several files has workers of another kind.
        let said = run
            .args(vec![site.path("file.nc"); files])
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    for files in [1, 2] {
        let said = check("-Sn 128", files);
        assert!(said.contains("file.nc: good"), "{said}");
    }
    // Half of them are for other files.
    let said = check("-n 300", 1);
    assert!(said.contains("than the 150 descriptors"), "{said}");
}
