//! Plain files that the kernel reads without the daemon.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::readers::corpus;
use crate::common::striped::{copy, corpus as corpus_of_parts};
use crate::common::{Mounted, User, can_mount};

/// Whether root's mounts have passthrough: from Linux 6.9 on.
fn kernel_has_it() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|n| n.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    rustix::process::geteuid().is_root() && version >= (6, 9)
}

fn reads(mounted: &Mounted) -> u64 {
    let stats = fs::read(mounted.join(".h5logfs/stats")).unwrap();
    let stats: Value = serde_json::from_slice(&stats).unwrap();
    stats
        .pointer("/reads/bytes_returned")
        .and_then(Value::as_u64)
        .unwrap()
}

/// A source with a plain file of these bytes, and a log.
fn source(plain: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plain"), plain).unwrap();
    fs::copy(corpus().join("nd.log.h5"), dir.path().join("log.h5")).unwrap();
    dir
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 % 251) as u8).collect()
}

#[test]
fn the_kernel_reads_plain_files_and_the_daemon_reads_views() {
    if !can_mount(User::Caller) {
        return;
    }
    let plain = bytes(3_000_001);
    let source = source(&plain);
    for options in ["", "nopassthrough"] {
        let mounted = Mounted::new(source.path(), options);
        assert_eq!(fs::read(mounted.join("plain")).unwrap(), plain);
        let read = reads(&mounted);
        if options.is_empty() && kernel_has_it() {
            assert_eq!(read, 0);
        } else {
            assert!(read >= plain.len() as u64, "{read} with {options:?}");
        }
        let view = fs::read(mounted.join("log.h5")).unwrap();
        assert!(reads(&mounted) >= read + view.len() as u64);
    }
}

/// A set with one subfile has the bytes of its file in it.
#[test]
fn the_kernel_reads_a_file_that_has_all_bytes_of_a_view() {
    if !can_mount(User::Caller) {
        return;
    }
    for (name, is_one) in [("one_subfile", true), ("contig_2", false)] {
        let source = tempfile::tempdir().unwrap();
        copy(name, source.path());
        let mounted = Mounted::new(source.path(), "");
        let expected = fs::read(corpus_of_parts().join(format!("{name}.expected.h5"))).unwrap();
        assert_eq!(fs::read(mounted.join("data.h5")).unwrap(), expected);
        assert_eq!(reads(&mounted) == 0, is_one && kernel_has_it(), "{name}");
    }
}

/// All handles of an inode read in the same way, even if one is opened while another closes.
#[test]
fn a_plain_file_may_be_open_many_times() {
    if !can_mount(User::Caller) {
        return;
    }
    let plain = bytes(100_000);
    let source = source(&plain);
    let mounted = Mounted::new(source.path(), "");
    let path = mounted.join("plain");
    let read = |file: &File| {
        let mut found = vec![0; 1000];
        file.read_exact_at(&mut found, 5000).unwrap();
        assert_eq!(found, plain[5000..6000]);
    };
    let first = File::open(&path).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| (0..50).for_each(|_| read(&File::open(&path).unwrap())));
        }
    });
    read(&first);
    drop(first);
    assert_eq!(fs::read(&path).unwrap(), plain);
}

/// An open file stays the file that was opened. The next open shows the present source.
#[test]
fn changes_of_the_source_are_seen() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(b"before");
    let mounted = Mounted::new(source.path(), "");
    let (path, own) = (mounted.join("plain"), source.path().join("plain"));
    let open = File::open(&path).unwrap();
    fs::write(&own, b"longer than before").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"longer than before");
    let new = source.path().join("new");
    fs::write(&new, b"another file").unwrap();
    fs::rename(&new, &own).unwrap();
    let mut found = [0; 6];
    open.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"longer");
    assert_eq!(fs::read(&path).unwrap(), b"another file");
    // A log that replaces it is a view from then on, even while the plain file is open.
    fs::copy(corpus().join("nd.log.h5"), &new).unwrap();
    fs::rename(&new, &own).unwrap();
    let view = fs::read(mounted.join("log.h5")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), view);
    drop(open);
    assert_eq!(fs::read(&path).unwrap(), view);
}
