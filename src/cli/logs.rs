//! The logs for a command: files, and those in directories.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::ViewArgs;
use super::ls::logs_in;
use h5logfs_log::log_dir;
use h5logfs_log::part_names::log_of;
use h5logfs_log::tiles::named as tiles;

/// The files that the user has named. A directory stands for its logs, as `h5logfs ls` lists them.
pub fn named(paths: &[PathBuf], view: &ViewArgs) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !is_directory(path) {
            let file = joined_of(path);
            // A set may be named by each of its members.
            if file.as_ref().is_none_or(|joined| !files.contains(joined)) {
                files.push(file.unwrap_or_else(|| path.clone()));
            }
            continue;
        }
        let found = logs_in(path, view)?;
        let name = path.display();
        ensure!(
            !found.is_empty(),
            "{name}: no log in this directory; `h5logfs ls --recursive {name}` also searches below it"
        );
        files.extend(found);
    }
    Ok(files)
}

/// The path of the file that a set of files makes up, where `path` is that or a member.
pub fn joined_of(path: &Path) -> Option<PathBuf> {
    tiles::named_by(path).map(|set| set.joined)
}

/// Whether a path leads to a directory that is no log.
pub fn is_directory(path: &Path) -> bool {
    path.is_dir() && log_dir::named_by(path).is_none()
}

/// The note about a file that is a part of another log, but is examined alone.
pub fn part_of(file: &Path) -> Option<String> {
    let real = file.canonicalize().ok()?;
    let log = log_of(&real).filter(|log| log.exists())?;
    let name = log.file_name()?;
    let dir = file.parent().unwrap_or(Path::new(""));
    let called = if log.parent() == real.parent() {
        dir.join(name)
    } else if dir.file_name().is_some() {
        dir.with_file_name(name)
    } else {
        dir.join("..").join(name)
    };
    let called = called.display();
    Some(format!(
        "this is a part of the log {called}: inspect that log"
    ))
}
