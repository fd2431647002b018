//! Who may know of whom.

use std::fs;
use std::path::{Path, PathBuf};

/// Words by which log layouts are known.
const LAYOUTS: [&str; 6] = ["logvol", "log vol", "log_vol", "netcdf", "burst", "classic"];

/// Parts of the crate that may know layouts: those that read them, and the writer with what belongs to it,
/// which makes logs of one layout.
const MAY_KNOW: [&str; 6] = ["log", "scan", "writer", "journal", "closing", "capi"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// A layout is one module in `log/` and one in `scan/`: what stands above them works with any.
#[test]
fn nothing_above_the_log_and_the_scan_names_a_layout() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    let above = found.iter().filter(|path| {
        let first = path.strip_prefix(&root).unwrap().iter().next().unwrap();
        !MAY_KNOW.iter().any(|part| first == *part)
    });
    let (mut files, mut named) = (0, Vec::new());
    for path in above {
        files += 1;
        for (number, line) in fs::read_to_string(path).unwrap().lines().enumerate() {
            let line = line.to_lowercase();
            if LAYOUTS.iter().any(|layout| line.contains(layout)) {
                named.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(files > 50, "only {files} files looked at");
    assert!(named.is_empty(), "{}", named.join("\n"));
}
