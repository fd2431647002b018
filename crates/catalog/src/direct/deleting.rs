//! Deletes a log with all its files.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use h5logfs_common::error::{Error, Result};
use h5logfs_log::journal::{self, unflushed::spilled};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::part_names::is_own_file;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;
use rustix::fs::{AtFlags, OFlags, fsync, unlinkat};
use rustix::io::Errno;

/// Deletes the log at `log` below `dir`. `files` are its own files, as a scan has found them.
///
/// The log file goes first, and its removal is on the disk before another file goes. So an interruption leaves the
/// whole log or none, and the names of leftover files tell which log they were part of. The journal goes last, because
/// it keeps others from making a log of that name.
pub(super) fn delete(dir: &SourceDir, log: &Path, mut files: Vec<SourcePath>) -> Result<()> {
    let path = dir.full_path(log);
    let source = SourceFile::open(dir, log)?;
    let own = LogFiles::of(dir, log, &source);
    files.retain(|file| *file != SourcePath::below(log));
    for file in &files {
        if file.dir != 0 || !is_own_file(log, &file.path) {
            let part = own.full_path(file);
            let reason = format!(
                "{} is part of it, and no lock shows whether a job writes it: delete both by hand",
                part.display()
            );
            return Err(Error::of(&path, reason));
        }
        let checked = own.check(file);
        checked.map_err(|e| Error::io(own.full_path(file), e))?;
    }
    let journal = SourcePath::below(journal::path_of(log));
    let _lock = lock(&path, &own, &journal, files.contains(&journal))?;
    files.extend(spilled(&own));
    // The journal goes last.
    files.sort_by_key(|file| *file == journal);

    let held = directory(dir, Path::new(""))?;
    remove(&path, &held, log, AtFlags::empty())?;
    fsync(&held).map_err(|e| Error::io(&path, e.into()))?;
    let mut below: Option<(PathBuf, OwnedFd)> = None;
    for file in &files {
        let (Some(parent), Some(name)) = (file.path.parent(), file.path.file_name()) else {
            continue;
        };
        let path = own.full_path(file);
        if parent == Path::new("") {
            close_directory(dir, &held, below.take())?;
            remove(&path, &held, Path::new(name), AtFlags::empty())?;
            continue;
        }
        let opened = match below.take().filter(|(known, _)| known == parent) {
            Some((_, opened)) => opened,
            None => directory(dir, parent)?,
        };
        remove(&path, &opened, Path::new(name), AtFlags::empty())?;
        below = Some((parent.to_owned(), opened));
    }
    close_directory(dir, &held, below)?;
    fsync(&held).map_err(|e| Error::io(dir.path(), e.into()))
}

/// Takes the lock of the journal, if the log has one. Fails where a job writes the log.
fn lock(
    path: &Path,
    own: &LogFiles<'_>,
    journal: &SourcePath,
    has_journal: bool,
) -> Result<Option<File>> {
    if !has_journal {
        // A journal of another user does not belong to this log.
        return match own.check(journal) {
            Ok(()) => Err(Error::of(
                path,
                "a job has started to write it in the meantime",
            )),
            Err(_) => Ok(None),
        };
    }
    let name = own.full_path(journal);
    // NFS locks only files that are open for writing.
    let opened = own.open_file(journal, OFlags::RDWR);
    let file = opened.map_err(|e| Error::io(&name, e))?;
    match journal::lock(&file) {
        Ok(_) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let reason = format!("a job writes it: the lock of {} shows it", name.display());
            Err(Error::of(path, reason))
        }
        Err(e) => Err(Error::io(&name, e)),
    }
}

fn directory(dir: &SourceDir, relative: &Path) -> Result<OwnedFd> {
    let opened = dir.open_below(relative, OFlags::RDONLY | OFlags::DIRECTORY);
    opened.map_err(|e| Error::io(dir.full_path(relative), e))
}

/// Removes a directory after the files of the log in it, unless it has other files.
fn close_directory(
    dir: &SourceDir,
    held: &OwnedFd,
    directory: Option<(PathBuf, OwnedFd)>,
) -> Result<()> {
    let Some((name, _)) = directory else {
        return Ok(());
    };
    match unlinkat(held, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        Err(e) => Err(Error::io(dir.full_path(&name), e.into())),
    }
}

fn remove(path: &Path, directory: &OwnedFd, name: &Path, flags: AtFlags) -> Result<()> {
    unlinkat(directory, name, flags).map_err(|e| Error::io(path, e.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use h5logfs_log::file_id::FileId;
    use h5logfs_log::front::unclosed_front;

    use super::*;

    /// The names in a directory and in those below it.
    fn names(dir: &Path) -> Vec<String> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                found.extend(
                    self::names(&path)
                        .iter()
                        .map(|below| format!("{name}/{below}")),
                );
            }
            found.push(name);
        }
        found.sort();
        found
    }

    /// A log with a journal and subfiles, and files that are not its own.
    fn place() -> (tempfile::TempDir, SourceDir, Vec<SourcePath>) {
        let dir = tempfile::tempdir().unwrap();
        let own = [
            "a.h5",
            "a.h5.h5logfs-journal",
            "a.h5.subfiles/a.h5.0",
            "a.h5.subfiles/a.h5.1",
        ];
        fs::create_dir(dir.path().join("a.h5.subfiles")).unwrap();
        for name in own.iter().chain(&["b.h5", "a.h5_0_0.meta"]) {
            fs::write(dir.path().join(name), unclosed_front(&FileId([7; 16]))).unwrap();
        }
        let held = SourceDir::open(dir.path()).unwrap();
        (dir, held, own.map(SourcePath::below).to_vec())
    }

    #[test]
    fn all_files_of_the_log_are_deleted_and_no_others() {
        let (dir, held, files) = place();
        delete(&held, Path::new("a.h5"), files).unwrap();
        assert_eq!(names(dir.path()), ["a.h5_0_0.meta", "b.h5"]);
        let (dir, held, files) = place();
        fs::write(dir.path().join("a.h5.subfiles/notes"), "").unwrap();
        // A spilled extent, and a file of a user with such a name.
        let spills = dir.path().join("a.h5.h5logfs-spill");
        fs::create_dir(&spills).unwrap();
        fs::write(spills.join("0.1"), "h5lgxtnt").unwrap();
        fs::write(spills.join("0.2"), "notes").unwrap();
        delete(&held, Path::new("a.h5"), files).unwrap();
        assert_eq!(
            names(dir.path()),
            [
                "a.h5.h5logfs-spill",
                "a.h5.h5logfs-spill/0.2",
                "a.h5.subfiles",
                "a.h5.subfiles/notes",
                "a.h5_0_0.meta",
                "b.h5"
            ]
        );
    }

    #[test]
    fn a_log_that_a_job_writes_stays_and_so_does_one_with_files_of_other_kinds() {
        let (dir, held, files) = place();
        let before = names(dir.path());
        let refused = |files: Vec<SourcePath>, words: &str| {
            let reason = delete(&held, Path::new("a.h5"), files).unwrap_err();
            assert!(reason.to_string().contains(words), "{reason}");
            assert_eq!(names(dir.path()), before);
        };
        let job = fs::OpenOptions::new()
            .write(true)
            .open(dir.path().join("a.h5.h5logfs-journal"))
            .unwrap();
        journal::lock(&job).unwrap();
        refused(files.clone(), "a job writes it");
        drop(job);
        let without = |name: &str| {
            let mut files = files.clone();
            files.retain(|file| file.path != Path::new(name));
            files
        };
        refused(
            without("a.h5.h5logfs-journal"),
            "a job has started to write it",
        );
        let other = SourcePath::below("a.h5_0_0.meta");
        refused([files, vec![other]].concat(), "a.h5_0_0.meta is part of it");
    }
}
