//! Protects the files of logs, in every program that writes a file at a path that a user names.
//!
//! Names cannot tell whether two paths lead to the same file: there are hard links, bind mounts, and file systems that
//! ignore case. So files are compared by device and inode. Files of other logs are known by their names.

use std::io;
use std::path::{Path, PathBuf};

use super::companions::{all_files, parts};
use h5logfs_common::error::{Error, Result};
use h5logfs_log::front::is_unclosed;
use h5logfs_log::log_dir;
use h5logfs_log::part_names::log_of;
use h5logfs_log::recognition;
use h5logfs_log::rights;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_log::tiles::names::MemberName;

/// The files of a log that is read, while a new file is made from it.
#[derive(Debug, Default)]
pub struct Originals(Vec<Original>);

#[derive(Debug)]
struct Original {
    path: PathBuf,
    identity: Identity,
    /// Whether the file has the owner of the log. Any user may have given another file such a name.
    is_own: bool,
}

impl Originals {
    /// All files of the log at `relative`.
    pub fn of(dir: &SourceDir, relative: &Path) -> Self {
        let places = all_files(dir, relative).into_iter();
        let found = places.filter_map(|place| {
            let dir = dir.of(&place).ok()?;
            // A file that cannot be looked at cannot be replaced either.
            let stat = dir.stat(&place.path).ok()?;
            Some(Original {
                path: dir.full_path(&place.path),
                identity: Identity::from(&stat),
                is_own: true,
            })
        });
        let mut found: Vec<Original> = found.collect();
        // The log file is the first.
        let owner = found.first().map(|log| log.identity.owner);
        for original in &mut found {
            original.is_own = Some(original.identity.owner) == owner;
        }
        Originals(found)
    }

    /// Permissions of a file in this group that is made from these files. Other users than its owner may do no more
    /// with it than with each of these. A file that cannot be looked at takes all permissions from them.
    pub fn permissions(&self, group: u32) -> u32 {
        const OF_OWNER: u32 = 0o700;
        let own = self.0.iter().filter(|original| original.is_own);
        let each = own.map(|original| rights::permissions(&original.path, group).unwrap_or(0));
        each.fold(0o777, |all, own| all & (own | OF_OWNER))
    }

    /// Adds the files of another log.
    pub fn with(mut self, other: Originals) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Fails if `file` is one of these files. `path` is its name for the user.
    pub fn check_other(&self, path: &Path, file: Identity) -> Result<()> {
        let is_same = |original: &&Original| original.identity.is_same_file(file);
        let Some(own) = self.0.iter().find(is_same) else {
            return Ok(());
        };
        let mut reason = "is the input, so it is not overwritten".to_owned();
        if own.path != path {
            reason = format!("this is {}, which {reason}", own.path.display());
        }
        Err(Error::of(path, reason))
    }
}

/// Fails if a new file at `relative` below `dir` would take the place of one of the `originals`, or of a file of another
/// log that needs it, or if its name would make it part of a log.
///
/// A closed log without other files may be replaced: it is one file like any other.
pub fn check_target(dir: &SourceDir, relative: &Path, originals: &Originals) -> Result<()> {
    let path = &dir.full_path(relative);
    let refused = |reason: String| Err(Error::of(path, reason));
    log_dir::check_new(path)?;
    let there = dir.stat(relative).ok();
    if let Some(stat) = &there {
        originals.check_other(path, Identity::from(stat))?;
    }
    if let Some(log) = log_of(path).filter(|log| there.is_some() || log.exists()) {
        let log = log.display();
        return refused(format!(
            "its name makes it a file of the log {log}: choose another name"
        ));
    }
    if let Some(part) = parts(dir, relative).first() {
        let part = dir
            .of(part)
            .map_or_else(|_| part.path.clone(), |dir| dir.full_path(&part.path));
        let member = part.file_name().and_then(MemberName::parse);
        if member.is_some_and(|member| relative.file_name() == Some(&member.joined())) {
            let part = part.display();
            return refused(format!(
                "this is the name of the file that {part} and others make up: choose another name"
            ));
        }
        return refused(format!(
            "this is the name of a log, and {} is part of it: choose another name, or remove the whole log first",
            part.display()
        ));
    }
    // An unclosed log cannot be read without its journal. But the journal may be elsewhere, and no other file has these
    // data.
    let unclosed = SourceFile::open(dir, relative).and_then(|file| is_unclosed(&file));
    if unclosed.unwrap_or(false) {
        return refused("this is a log that was not closed: choose another name".into());
    }
    Ok(())
}

/// Fails if text must not be appended to the file at `path`, because it holds data or its name makes it part of a log.
pub fn check_text(path: &Path) -> io::Result<()> {
    log_dir::check_change(path).map_err(io::Error::other)?;
    if let Some(log) = log_of(path).filter(|log| log.exists()) {
        let reason = format!("its name makes it a file of the log {}", log.display());
        return Err(io::Error::other(reason));
    }
    // A new file, a terminal or a pipe holds nothing.
    let opened = SourceDir::of_file(path).and_then(|(dir, name)| SourceFile::open(&dir, &name));
    let holds_data = opened.and_then(|file| recognition::holds_data(&file));
    if holds_data.unwrap_or(false) {
        return Err(io::Error::other("this file holds data, not text"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use h5logfs_log::file_id::FileId;
    use h5logfs_log::front::unclosed_front;

    /// A directory with the log `a.h5`, and the checks of targets in it.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Place(tempfile::tempdir().unwrap());
            place.write("a.h5");
            place
        }

        fn write(&self, name: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }

        fn check(&self, target: &str) -> Result<(), String> {
            let dir = SourceDir::open(self.0.path()).unwrap();
            let originals = Originals::of(&dir, Path::new("a.h5"));
            let checked = check_target(&dir, Path::new(target), &originals);
            checked.map_err(|e| e.to_string())
        }

        #[track_caller]
        fn refuses(&self, target: &str, words: &str) {
            let refused = self.check(target).expect_err("it was not refused");
            assert!(refused.contains(words), "no \"{words}\" in: {refused}");
        }
    }

    #[test]
    fn other_files_may_be_replaced() {
        let place = Place::new();
        for name in ["b.h5", "a.h5x", "below/a.h5", "run_0_1.data"] {
            assert_eq!(place.check(name), Ok(()), "{name}");
        }
        for name in ["b.h5", "below/a.h5"] {
            place.write(name);
            assert_eq!(place.check(name), Ok(()), "{name}");
        }
        // The new file replaces a link, not the file that it leads to.
        symlink("a.h5", place.0.path().join("link")).unwrap();
        assert_eq!(place.check("link"), Ok(()));
    }

    #[test]
    fn no_file_that_is_read_is_replaced_by_whatever_name() {
        let place = Place::new();
        let own = ["a.h5.h5logfs-journal", "a.h5.subfiles/x.0", "a.h5_0_3.meta"];
        for (number, name) in own.iter().chain(&["a.h5"]).enumerate() {
            place.write(name);
            place.refuses(name, &format!("/{name}: is the input"));
            let link = format!("link-{number}");
            fs::hard_link(place.0.path().join(name), place.0.path().join(&link)).unwrap();
            place.refuses(&link, &format!("/{name}, which is the input"));
        }
    }

    #[test]
    fn no_part_of_another_log_is_replaced_or_made() {
        let place = Place::new();
        place.write("b.h5");
        for part in ["b.h5.h5logfs-journal", "b.h5.subfiles/x.0", "b.h5_0_3.meta"] {
            // The name alone would make it a part.
            place.refuses(part, "a file of the log");
            place.write(part);
            place.refuses(part, "a file of the log");
            place.refuses("b.h5", "is part of it");
            // The log itself may lie elsewhere.
            fs::remove_file(place.0.path().join("b.h5")).unwrap();
            place.refuses(part, "a file of the log");
            place.refuses("b.h5", "is part of it");
            place.write("b.h5");
            fs::remove_file(place.0.path().join(part)).unwrap();
            assert_eq!(place.check("b.h5"), Ok(()));
        }
    }

    #[test]
    fn text_is_not_appended_to_data() {
        let place = Place::new();
        let at = |name: &str| place.0.path().join(name);
        for text in ["new", "a.h5", "messages.h5logfs-journal"] {
            assert!(check_text(&at(text)).is_ok(), "{text}");
        }
        for part in ["a.h5.h5logfs-journal", "a.h5.subfiles/x.0"] {
            place.write(part);
            assert!(check_text(&at(part)).is_err(), "{part}");
        }
        for (name, front) in [("hdf5", "\u{89}HDF\r\n\x1a\n"), ("cdf", "CDF\x01")] {
            let latin: Vec<u8> = front.chars().map(|c| c as u8).collect();
            fs::write(at(name), latin).unwrap();
            assert!(check_text(&at(name)).is_err(), "{name}");
        }
        fs::write(at("unclosed"), unclosed_front(&FileId([7; 16]))).unwrap();
        assert!(check_text(&at("unclosed")).is_err());
    }

    #[test]
    fn a_log_whose_journal_is_lost_is_not_replaced() {
        let place = Place::new();
        let path = place.0.path().join("b.h5");
        fs::write(path, unclosed_front(&FileId([7; 16]))).unwrap();
        place.refuses("b.h5", "was not closed");
    }
}
