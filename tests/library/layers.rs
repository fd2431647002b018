//! Who may know of whom.

use std::fs;
use std::path::{Path, PathBuf};

/// Words by which log layouts are known.
const LAYOUTS: [&str; 6] = ["logvol", "log vol", "log_vol", "netcdf", "burst", "classic"];

/// What stands above the layouts. The other parts read a layout, or belong to the writer, which makes logs of
/// one.
const ABOVE: [&str; 6] = [
    "src/cli",
    "src/fs",
    "crates/catalog/src",
    "crates/core/src/view",
    "crates/core/src/index",
    "crates/core/src/boxes",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// A layout is one module of `h5logfs_core::log` and one of `h5logfs_scan`: what stands above them works with any.
#[test]
fn nothing_above_the_log_and_the_scan_names_a_layout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut above = Vec::new();
    for part in ABOVE {
        sources(&root.join(part), &mut above);
    }
    let (mut files, mut named) = (0, Vec::new());
    for path in above {
        files += 1;
        for (number, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let line = line.to_lowercase();
            if LAYOUTS.iter().any(|layout| line.contains(layout)) {
                named.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(files > 50, "only {files} files looked at");
    assert!(named.is_empty(), "{}", named.join("\n"));
}
