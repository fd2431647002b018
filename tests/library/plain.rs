//! Files that are certainly no logs. The decision without libhdf5 is compared with files made by libhdf5, and with
//! its own reading. `H5LOGFS_TEST_CASES` sets the number of random files, and of the changes of each log,
//! `H5LOGFS_TEST_SEED` the first seed.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{find_signature, plain};

use crate::common::PROGRAM;
use crate::common::amount::{cases, first_seed};
use crate::common::numbers::Numbers;
use crate::common::readers::{Python, corpus, said, whole_corpus};

/// Default number of random files, and of changes of each log.
const FILES: usize = 40;
const CHANGES: usize = 40;

/// Whether the file at `path` is certainly no log.
fn is_certain(path: &Path) -> bool {
    let (dir, name) = SourceDir::of_file(path).unwrap();
    let file = SourceFile::open(&dir, &name).unwrap();
    let signature = find_signature(&file).unwrap();
    signature.is_some_and(|at| plain::is_certain(&file, at))
}

/// The logs of the corpora, or their canonical files.
fn known_files(end: &str) -> Vec<PathBuf> {
    let dirs = [Some(corpus()), whole_corpus()];
    let entries = dirs
        .into_iter()
        .flatten()
        .map(|dir| fs::read_dir(dir).unwrap());
    let paths = entries.flatten().map(|entry| entry.unwrap().path());
    paths.filter(|path| is_named(path, end)).collect()
}

fn is_named(path: &Path, end: &str) -> bool {
    path.to_str().unwrap().ends_with(end)
}

#[test]
fn files_of_libhdf5_are_plain_unless_they_have_the_names_of_a_layout() {
    for python in Python::all() {
        let dir = tempfile::tempdir().unwrap();
        let numbers = [first_seed() as usize, cases(FILES)].map(|n| n.to_string());
        let mut command = python.tool("plain.py");
        let output = command.arg(dir.path()).args(numbers).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let mut plain = 0;
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let is_plain = is_named(&path, ".plain.h5");
            plain += usize::from(is_plain);
            assert_eq!(
                is_certain(&path),
                is_plain,
                "{}: {}",
                python.name,
                path.display()
            );
        }
        assert!(plain > 0, "no plain files of {}", python.name);
    }
}

#[test]
fn no_log_is_certainly_plain() {
    let logs = known_files(".log.h5");
    assert!(logs.len() > 50, "{} logs", logs.len());
    for path in logs {
        assert!(!is_certain(&path), "{}", path.display());
    }
    for path in known_files(".expected.h5") {
        assert!(is_certain(&path), "{}", path.display());
    }
}

/// A block of the root group's header that continues in itself.
#[test]
fn object_headers_end() {
    const MESSAGES: usize = 112;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("loop.h5");
    let mut bytes = fs::read(corpus().join("tiny.expected.h5")).unwrap();
    fs::write(&path, &bytes).unwrap();
    assert!(is_certain(&path));
    for block in [0, 24, 1 << 16] {
        let len = u64::max(block, 24);
        let messages = [16_u64 << 16 | 16, MESSAGES as u64, block].map(u64::to_le_bytes);
        bytes[104..108].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[MESSAGES..MESSAGES + 24].copy_from_slice(messages.as_flattened());
        fs::write(&path, &bytes).unwrap();
        assert!(!is_certain(&path), "a block of {block} bytes");
    }
}

/// A file with flipped bits may be certainly plain only where libhdf5 opens it and finds no log.
#[test]
fn damaged_logs_are_not_certainly_plain_unless_their_names_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let changed = dir.path().join("changed.h5");
    let mut random = Numbers(first_seed());
    let mut refused = Vec::new();
    for path in known_files(".log.h5") {
        let bytes = fs::read(&path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        fs::write(&changed, &bytes).unwrap();
        let file = File::options().write(true).open(&changed).unwrap();
        let front = bytes.len().min(4096);
        for _ in 0..cases(CHANGES) {
            let at = random.index(front);
            let turned = bytes[at] ^ (1 << random.index(8));
            file.write_all_at(&[turned], at as u64).unwrap();
            if is_certain(&changed) && !is_plain_to_a_scan(&changed) {
                refused.push(format!("{}: byte {at} is {turned}", path.display()));
            }
            file.write_all_at(&bytes[at..=at], at as u64).unwrap();
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Whether a scan in another process says that the file is no log.
fn is_plain_to_a_scan(path: &Path) -> bool {
    let output = Command::new(PROGRAM).arg("inspect").arg(path).output();
    said(&output.unwrap()).contains("not a log file: plain HDF5")
}
