//! The logs for a command: files, and those in directories.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, ensure};

use super::ViewArgs;
use super::ls::logs_in;
use super::output::fail_with_last;
use h5logfs_log::log_dir;
use h5logfs_log::part_names::log_of;
use h5logfs_log::tiles::named as tiles;

/// The files that the user has named, and why some of the arguments stand for none.
pub struct Named {
    pub files: Vec<PathBuf>,
    pub errors: Vec<Error>,
}

/// The files that the user has named. A directory stands for its logs, as `h5logfs ls` lists them. Fails if no argument stands for
/// a file.
pub fn named(paths: &[PathBuf], view: &ViewArgs) -> Result<Named> {
    let mut files = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        if !is_directory(path) {
            let file = joined_of(path);
            // A set may be named by each of its members.
            if file.as_ref().is_none_or(|joined| !files.contains(joined)) {
                files.push(file.unwrap_or_else(|| path.clone()));
            }
            continue;
        }
        match found_in(path, view) {
            Ok(found) => files.extend(found),
            Err(error) => errors.push(error),
        }
    }
    if files.is_empty() {
        fail_with_last(std::mem::take(&mut errors))?;
    }
    Ok(Named { files, errors })
}

/// The logs in a directory. One that has files of a log, but no index, stands for itself.
fn found_in(path: &Path, view: &ViewArgs) -> Result<Vec<PathBuf>> {
    if log_dir::check_complete(path).is_err() {
        return Ok(vec![path.to_owned()]);
    }
    let found = logs_in(path, view)?;
    let name = path.display();
    ensure!(
        !found.is_empty(),
        "{name}: no log in this directory; `h5logfs ls --recursive {name}` also searches below it"
    );
    Ok(found)
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
