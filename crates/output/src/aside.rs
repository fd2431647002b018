//! Old files under the name of a new log. They are kept aside until the new log is made, or for good.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::existing::{Part, list};
use h5logfs_common::fault::Fault;
use h5logfs_log::file_id::FileId;
use h5logfs_log::journal::{self, rename_without_replacing};
use h5logfs_log::logvol::names::{spill_dir, subfile_dir};
use h5logfs_log::own_parts::OwnDir;

/// Part of a temporary name, between the name of the log and a number.
const MARK: &str = ".h5logfs-old-";
/// Part of the name of a log that stays aside.
const MARK_OF_KILLED: &str = ".killed-";
/// The most numbers that are tried for a log that stays aside.
const MOST_KILLED: u32 = 100_000;

/// Files kept aside. The log `NAME` becomes `.NAME.h5logfs-old-NUMBER`, or `NAME.killed-NUMBER` if it is to stay. Its
/// journal and subfiles follow the new name as those of any log. So a complete log remains if the job dies before it
/// restores or removes them.
pub(crate) struct Aside {
    /// The usual path of the log.
    log: PathBuf,
    name: PathBuf,
    stays: bool,
    kept: Vec<Kept>,
}

struct Kept {
    /// The part at its usual path.
    part: Part,
    /// Path while it is aside.
    aside: PathBuf,
}

impl Aside {
    /// A place for the log at `log` until the new log, with identifier `id`, is made.
    pub fn until_made(log: &Path, id: &FileId) -> Self {
        let mut name = OsString::from(".");
        name.push(log.file_name().unwrap_or_default());
        name.push(format!("{MARK}{}", id.number()));
        Aside {
            log: log.to_owned(),
            name: log.with_file_name(name),
            stays: false,
            kept: Vec::new(),
        }
    }

    /// A permanent place for the log at `log`. Fails if all names are taken.
    pub fn for_good(log: &Path) -> Result<Self, Fault> {
        let numbered = |number: u32| {
            let mut name = log.file_name().unwrap_or_default().to_owned();
            name.push(format!("{MARK_OF_KILLED}{number}"));
            log.with_file_name(name)
        };
        let is_free = |name: &PathBuf| {
            let parts = [
                name.clone(),
                journal::path_of(name),
                subfile_dir(name),
                spill_dir(name),
            ];
            parts.iter().all(|part| part.symlink_metadata().is_err())
        };
        let name = (1..MOST_KILLED).map(numbered).find(is_free);
        Ok(Aside {
            log: log.to_owned(),
            name: name.ok_or_else(|| {
                format!(
                    "{}: there are too many logs of killed jobs beside it",
                    log.display()
                )
            })?,
            stays: true,
            kept: Vec::new(),
        })
    }

    /// Gives `part` of the log (its file, its journal, or the directory of its subfiles) a name aside. A file also keeps its
    /// own name, until the new file takes that in one step. A directory cannot have two names, nor can a file on some file
    /// systems.
    pub fn keep(&mut self, part: &Part) -> Result<(), Fault> {
        let path = &part.path;
        let aside = self.name_of(path);
        let kept = match std::fs::hard_link(path, &aside) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                rename_without_replacing(path, &aside)
            }
            kept => kept,
        };
        kept.map_err(|e| {
            let fault = Fault::from(e);
            fault.told(format!(
                "{}: it cannot be moved aside: {fault}",
                path.display()
            ))
        })?;
        self.kept.push(Kept {
            part: part.clone(),
            aside,
        });
        Ok(())
    }

    fn name_of(&self, part: &Path) -> PathBuf {
        let log_name = self.log.file_name().unwrap_or_default();
        let part_name = part.file_name().unwrap_or_default().as_bytes();
        let suffix = part_name.strip_prefix(log_name.as_bytes());
        let mut name = self.name.clone().into_os_string();
        name.push(OsStr::from_bytes(suffix.unwrap_or(part_name)));
        name.into()
    }

    /// Whether the file that had this name is aside.
    pub fn has(&self, path: &Path) -> bool {
        self.kept.iter().any(|kept| kept.part.path == path)
    }

    /// Restores all parts. A file that has taken the name of a part is replaced if `is_new` accepts it as a file of the
    /// new log. Parts that cannot be restored stay aside; the returned text names them.
    pub fn put_back(&mut self, is_new: impl Fn(&Path) -> bool) -> String {
        let failures = self.kept.drain(..).rev().filter_map(|kept| {
            let Kept { part, aside } = &kept;
            let path = &part.path;
            let renamed = if is_same_file(path, aside) || is_new(path) {
                // `rename` does nothing if both names lead to one file, so the second name is removed.
                std::fs::rename(aside, path).and_then(|()| remove_if_there(aside))
            } else {
                rename_without_replacing(aside, path)
            };
            let failure = renamed.err()?;
            Some(format!(
                "{}, as it was before, is now {}: {failure}",
                path.display(),
                aside.display()
            ))
        });
        failures.collect::<Vec<_>>().join("; ")
    }

    /// The path of the log that stays aside; `None` if there is none.
    pub fn log_that_stays(&self) -> Option<&Path> {
        (self.stays && !self.kept.is_empty()).then_some(&*self.name)
    }

    /// Removes all parts, unless they are to stay. The new log is made, so a part that cannot be removed is no failure.
    pub fn remove(&mut self) {
        if self.stays {
            return;
        }
        for Kept { part, aside } in self.kept.drain(..) {
            if let Err(e) = remove(&aside, part.dir.as_ref()) {
                log::warn!(
                    "{}: it was replaced, and cannot be removed: {e}",
                    aside.display()
                );
            }
        }
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Whether two names lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.symlink_metadata(), other.symlink_metadata()) else {
        return false;
    };
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Removes a file, or a directory with parts of the log and nothing else.
fn remove(path: &Path, dir: Option<&OwnDir>) -> io::Result<()> {
    let Some(dir) = dir else {
        return std::fs::remove_file(path);
    };
    for part in list(path).map_err(io::Error::other)? {
        if dir.has(&part)? {
            std::fs::remove_file(part)?;
        }
    }
    std::fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use h5logfs_log::front::unclosed_front;
    use h5logfs_log::journal::path_of;
    use h5logfs_log::logvol::names::subfile;
    use std::fs;

    const ID: FileId = FileId([0xab; 16]);

    fn names(dir: &Path) -> Vec<String> {
        let found = list(dir).unwrap();
        let name = |p: &PathBuf| p.file_name().unwrap().to_str().unwrap().to_owned();
        found.iter().map(name).collect()
    }

    const ASIDE: [&str; 3] = [
        ".a.h5.h5logfs-old-abababab",
        ".a.h5.h5logfs-old-abababab.h5logfs-journal",
        ".a.h5.h5logfs-old-abababab.subfiles",
    ];
    const USUAL: [&str; 3] = ["a.h5", "a.h5.h5logfs-journal", "a.h5.subfiles"];

    /// A log with journal and subfiles, kept aside.
    fn kept(log: &Path) -> Aside {
        fs::write(log, "log").unwrap();
        fs::write(path_of(log), "journal").unwrap();
        fs::create_dir(subfile_dir(log)).unwrap();
        fs::write(subfile(log, 0), unclosed_front(&ID)).unwrap();
        let mut aside = Aside::until_made(log, &ID);
        keep_all(&mut aside, log);
        aside
    }

    fn keep_all(aside: &mut Aside, log: &Path) {
        let subfiles = OwnDir::Subfiles {
            base: log.file_name().unwrap().to_owned(),
            id: ID,
        };
        let parts = [
            (path_of(log), None),
            (subfile_dir(log), Some(subfiles)),
            (log.to_owned(), None),
        ];
        for (path, dir) in parts {
            aside
                .keep(&Part {
                    path: path.clone(),
                    dir,
                })
                .unwrap();
            assert!(aside.has(&path));
        }
    }

    #[test]
    fn what_is_aside_is_a_log_and_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        let mut aside = kept(&log);
        // The subfiles have moved; the files have two names.
        assert_eq!(names(dir.path()), [&ASIDE[..], &USUAL[..2]].concat());
        // The parts come back whether or not something has taken their place.
        fs::write(dir.path().join("new"), "new").unwrap();
        fs::rename(dir.path().join("new"), &log).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join(ASIDE[0])).unwrap(),
            "log"
        );
        assert_eq!(aside.put_back(|path| path == log), "");
        assert_eq!(names(dir.path()), USUAL);
        for (path, text) in [(log.clone(), "log"), (path_of(&log), "journal")] {
            assert_eq!(fs::read_to_string(path).unwrap(), text);
        }
        assert!(subfile(&log, 0).exists());
    }

    #[test]
    fn what_is_aside_for_good_takes_a_name_that_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        kept(&log).put_back(|_| false);
        // The log is missing, but nothing takes its place.
        fs::write(dir.path().join("a.h5.killed-1.h5logfs-journal"), "other").unwrap();
        let mut aside = Aside::for_good(&log).unwrap();
        keep_all(&mut aside, &log);
        aside.remove();
        let mut expected = vec!["a.h5.killed-1.h5logfs-journal".to_owned()];
        expected.extend(USUAL.map(|name| name.replace("a.h5", "a.h5.killed-2")));
        expected.extend(USUAL[..2].iter().map(|name| (*name).to_owned()));
        expected.sort();
        assert_eq!(names(dir.path()), expected);
    }

    #[test]
    fn what_cannot_come_back_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        let mut aside = kept(&log);
        fs::create_dir_all(subfile_dir(&log).join("other")).unwrap();
        // A program that knows nothing of logs has made this file.
        fs::remove_file(&log).unwrap();
        fs::write(&log, "result").unwrap();
        let failure = aside.put_back(|_| false);
        for name in [ASIDE[0], ASIDE[2]] {
            assert!(failure.contains(&format!("/{name}: ")), "{failure}");
        }
        assert_eq!(fs::read_to_string(&log).unwrap(), "result");
        let left = [ASIDE[0], ASIDE[2]];
        assert_eq!(names(dir.path()), [&left[..], &USUAL[..]].concat());
    }

    #[test]
    fn nothing_but_the_log_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.h5");
        kept(&log).remove();
        assert_eq!(names(dir.path()), USUAL[..2]);
        fs::remove_file(path_of(&log)).unwrap();
        let mut aside = kept(&log);
        let subfiles = dir.path().join(ASIDE[2]);
        let users = [
            "a.h5.",
            "a.h5.01",
            "a.h5.1",
            "notifications",
            "notifications.2024",
        ];
        for name in users {
            fs::write(subfiles.join(name), "").unwrap();
        }
        aside.remove();
        assert_eq!(names(&subfiles), users);
    }
}
