//! Hashes the sources that decide the kept scans and indexes. A build with other sources does not use them, while the program,
//! the file driver and the Python package of one build share it.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

/// Sources of scans and indexes, and the versions of the crates that they use.
const SOURCES: [&str; 8] = [
    "src",
    "../adios/src",
    "../common/src",
    "../log/src",
    "../objects/src",
    "../view/src",
    "../scan/src",
    "../../Cargo.lock",
];

fn main() {
    let mut hasher = DefaultHasher::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        let mut files = Vec::new();
        find(Path::new(source), &mut files);
        files.sort();
        for file in files {
            hasher.write(&fs::read(file).unwrap_or_default());
        }
    }
    println!("cargo:rustc-env=H5LOGFS_BUILD={:016x}", hasher.finish());
}

fn find(path: &Path, found: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|e| find(&e.path(), found)),
        Err(_) => found.push(path.to_owned()),
    }
}
