//! Companion files: they make a log of another file, which does not change when they come and go.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::listings::Listings;
use super::sets::Set;
use h5logfs_common::error::Result;
use h5logfs_log::journal::{self, kept::path_of_kept};
use h5logfs_log::log_dir;
use h5logfs_log::log_files::{LogFiles, foreign};
use h5logfs_log::ownership::Foreign;
use h5logfs_log::part_names;
use h5logfs_log::source_dir::{SourceDir, SourcePath};

/// The companion files of one file. They may come and go without a change of it.
#[derive(Debug, Clone, Default)]
pub struct Companions {
    /// All files with names of companion files: sorted, those of a set by number.
    pub named: Vec<SourcePath>,
    /// The files that belong to the log (see [`ownership`](h5logfs_log::ownership)).
    pub own: Vec<SourcePath>,
    /// The set of files whose members these are. They are all of the log.
    pub set: Option<Arc<Set>>,
}

impl Companions {
    /// Whether some of the files do not belong to the log.
    pub fn has_foreign(&self) -> bool {
        self.own.len() < self.named.len()
    }

    /// The companion files after the names have become `named`. Only files with new names are examined.
    pub fn renamed(&self, files: &LogFiles<'_>, named: Vec<SourcePath>) -> Self {
        let known: HashSet<&SourcePath> = self.named.iter().collect();
        let known_own: HashSet<&SourcePath> = self.own.iter().collect();
        let is_own = |place: &&SourcePath| {
            known_own.contains(place) || (!known.contains(place) && !is_foreign(files, place))
        };
        Companions {
            own: named.iter().filter(is_own).cloned().collect(),
            named,
            set: self.set.clone(),
        }
    }

    /// The names of these files now, for the log at `relative`.
    pub fn names_now(
        &self,
        dir: &SourceDir,
        relative: &Path,
        listings: &Listings,
    ) -> Result<NamesNow> {
        let Some(set) = &self.set else {
            let now = named(dir, relative, listings)?;
            return Ok(if now == self.named {
                NamesNow::Same
            } else {
                NamesNow::Other(now)
            });
        };
        // A file of the joined name counts as itself.
        if dir.stat(relative).is_ok() {
            return Ok(NamesNow::Gone);
        }
        let parent = relative.parent().unwrap_or(Path::new(""));
        Ok(match listings.set_at(dir, relative) {
            Some(now) if now.candidate == set.candidate => NamesNow::Same,
            Some(now) => NamesNow::Other(now.places(parent)),
            None => NamesNow::Gone,
        })
    }
}

/// The names of companion files, compared with earlier ones.
#[derive(Debug)]
pub enum NamesNow {
    /// They are the same.
    Same,
    /// They are these.
    Other(Vec<SourcePath>),
    /// The set of files is gone.
    Gone,
}

fn is_foreign(files: &LogFiles<'_>, place: &SourcePath) -> bool {
    files.check(place).is_err_and(|e| foreign(&e).is_some())
}

/// Files with names of companion files that do not belong to the log. There may be any number of them, so only the
/// first is named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignFiles {
    first: Option<(PathBuf, Foreign)>,
    others: usize,
}

impl ForeignFiles {
    /// Adds the file at `place` if it does not belong to the log. Returns whether it was added.
    pub(super) fn add_if_foreign(&mut self, files: &LogFiles<'_>, place: &SourcePath) -> bool {
        let error = files.check(place).err();
        let Some(reason) = error.and_then(|e| foreign(&e)) else {
            return false;
        };
        match self.first {
            Some(_) => self.others += 1,
            None => self.first = Some((files.full_path(place), reason)),
        }
        true
    }

    /// A message for users about these files. `None` where there are none.
    pub fn text(&self) -> Option<String> {
        let (path, reason) = self.first.as_ref()?;
        let others = match self.others {
            0 => String::new(),
            n => format!(" (and {n} more files)"),
        };
        Some(format!("{}: not used{others}: {reason}", path.display()))
    }
}

/// The companion files of a log that come and go, and the foreign files with such names. The contents are not examined.
pub fn companions(files: &LogFiles<'_>, listings: &Listings) -> Result<(Companions, ForeignFiles)> {
    let named = named(files.dir(), files.log(), listings)?;
    Ok(owned(files, named, None))
}

/// Tells the files of the log from those of other users. `set`: the set whose members they are.
pub(super) fn owned(
    files: &LogFiles<'_>,
    named: Vec<SourcePath>,
    set: Option<Arc<Set>>,
) -> (Companions, ForeignFiles) {
    let mut foreign = ForeignFiles::default();
    let is_own = |place: &&SourcePath| !foreign.add_if_foreign(files, place);
    let own = named.iter().filter(is_own).cloned().collect();
    (Companions { named, own, set }, foreign)
}

/// The files whose names make them companions of the file at `relative`, sorted. They lie in its directory or in the
/// further ones.
pub fn named(dir: &SourceDir, relative: &Path, listings: &Listings) -> Result<Vec<SourcePath>> {
    part_names::companions_of(dir, relative, |place, number, directory, name| {
        listings.logs_of(place, number, directory, name)
    })
}

/// All existing files that are part of the log at `relative` by their names: the log file, its journal, its subfiles,
/// the spill files of its ranks, unflushed data that a close kept, its companion files, and the other files of a
/// directory that is the log. Names alone decide, so some of the files may belong to no log. This is for programs that
/// must leave alone any file that may be a part.
///
/// A directory that cannot be listed adds no files, because no part in it could be read either.
pub fn all_files(dir: &SourceDir, relative: &Path) -> Vec<SourcePath> {
    let mut files = vec![SourcePath::below(relative)];
    files.extend(parts(dir, relative));
    files
}

/// [`all_files`] without the log file.
pub(super) fn parts(dir: &SourceDir, relative: &Path) -> Vec<SourcePath> {
    let journal = SourcePath::below(journal::path_of(relative));
    let has_journal = dir.stat(&journal.path).is_ok();
    let mut parts: Vec<SourcePath> = has_journal.then_some(journal).into_iter().collect();
    for below in part_names::own_dirs(relative) {
        let mut names = dir.list(&below).unwrap_or_default();
        names.sort();
        parts.extend(names.iter().map(|n| SourcePath::below(below.join(n))));
    }
    let kept = (1..).map(|number| path_of_kept(relative, number));
    let kept = kept.take_while(|path| dir.stat(path).is_ok());
    parts.extend(kept.map(SourcePath::below));
    parts.extend(named(dir, relative, &Listings::default()).unwrap_or_default());
    if dir.stat(relative).is_err()
        && let Some(set) = Listings::default().set_at(dir, relative)
    {
        parts.extend(set.places(relative.parent().unwrap_or(Path::new(""))));
    }
    if let Some(directory) = log_dir::directory_of(relative) {
        let names = dir.list(directory).unwrap_or_default();
        let others = names.into_iter().filter(|name| name != log_dir::FILE);
        parts.extend(others.map(|name| SourcePath::below(directory.join(name))));
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A file system's clock ticks more often than this.
    const TICK: Duration = Duration::from_millis(100);

    #[test]
    fn all_files_of_a_log_are_found() {
        let source = tempfile::tempdir().unwrap();
        for part in ["subfiles", "h5logfs-spill"] {
            std::fs::create_dir_all(source.path().join(format!("below/a.h5.{part}"))).unwrap();
        }
        let own = [
            "below/a.h5",
            "below/a.h5.h5logfs-journal",
            "below/a.h5.h5logfs-spill/0.1",
            "below/a.h5.h5logfs-unflushed",
            "below/a.h5.h5logfs-unflushed-2",
            "below/a.h5.subfiles/renamed.0",
            "below/a.h5.subfiles/renamed.1",
            "below/a.h5_0_0.data",
            "below/a.h5_0_0.meta",
        ];
        for name in own.iter().chain(&["below/b.h5", "below/b.h5_0_0.meta"]) {
            std::fs::write(source.path().join(name), "").unwrap();
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let found = || {
            let mut found = all_files(&dir, Path::new("below/a.h5"));
            found.sort();
            found
        };
        assert_eq!(found(), own.map(SourcePath::below));
        let below = |file: &SourcePath| part_names::log_of(&file.path);
        let log = Some(PathBuf::from("below/a.h5"));
        assert!(found()[1..].iter().all(|file| below(file) == log));
        for name in &own[1..] {
            std::fs::remove_file(source.path().join(name)).unwrap();
        }
        assert_eq!(found(), [SourcePath::below("below/a.h5")]);
    }

    #[test]
    fn only_new_names_are_examined_again() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of several users");
            return;
        }
        let source = tempfile::tempdir().unwrap();
        let own = |name: &str, owner: u32| {
            let path = source.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        };
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(source.path(), mode).unwrap();
        let names = [
            "a.nc_0_0.data",
            "a.nc_0_0.meta",
            "a.nc_1_0.data",
            "a.nc_1_0.meta",
        ];
        let [own_data, own_meta, foreign_data, foreign_meta] = names.map(SourcePath::below);
        for (name, owner) in names.iter().zip([61_001, 61_001, 61_002, 61_002]) {
            own(name, owner);
        }
        let dir = SourceDir::open(source.path()).unwrap();
        let files = LogFiles::of_owner(&dir, Path::new("a.nc"), 61_001);
        let named = [&own_data, &foreign_data].map(Clone::clone).to_vec();
        let known = Companions::default().renamed(&files, named);
        assert_eq!(known.own, std::slice::from_ref(&own_data));
        assert!(known.has_foreign());
        // Neither a known file nor a missing one is examined.
        own(names[2], 61_001);
        std::fs::remove_file(source.path().join(names[0])).unwrap();
        let named = vec![
            own_data.clone(),
            own_meta.clone(),
            foreign_data,
            foreign_meta,
        ];
        let now = known.renamed(&files, named.clone());
        assert_eq!(
            (now.own, now.named),
            (vec![own_data, own_meta.clone()], named)
        );
        let gone = known.renamed(&files, vec![own_meta.clone()]);
        assert!(gone.own == [own_meta] && !gone.has_foreign());
    }

    #[test]
    fn companions_come_and_go() {
        let (source, further) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |directory: &tempfile::TempDir, name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        write(&source, "below/a.nc");
        write(&source, "a.nc_0_0.meta");
        write(&further, "a.nc_0_1.data");
        let dir = SourceDir::open(source.path()).unwrap();
        let dir = dir.with_further(&[further.path().to_owned()]).unwrap();
        let listings = Listings::default();
        let names = || {
            let places = named(&dir, Path::new("below/a.nc"), &listings).unwrap();
            let name = |p: SourcePath| (p.dir, p.path.to_str().unwrap().to_owned());
            places.into_iter().map(name).collect::<Vec<_>>()
        };
        let elsewhere = (1, "a.nc_0_1.data".to_owned());
        assert_eq!(names(), std::slice::from_ref(&elsewhere));
        write(&source, "below/a.nc_2_0.meta");
        write(&source, "below/other.nc_2_0.meta");
        std::thread::sleep(2 * TICK);
        let own = (0, "below/a.nc_2_0.meta".to_owned());
        assert_eq!(names(), [own, elsewhere.clone()]);
        let many = ["a.nc_10_0.meta", "a.nc_9_0.data", "a.nc_2_0.data"];
        many.iter()
            .for_each(|name| write(&source, &format!("below/{name}")));
        std::thread::sleep(2 * TICK);
        assert_eq!(names().len(), 5);
        assert!(
            named(&dir, Path::new("below/a.nc"), &listings)
                .unwrap()
                .is_sorted()
        );
        many.iter().for_each(|name| {
            std::fs::remove_file(source.path().join("below").join(name)).unwrap();
        });
        std::fs::remove_file(source.path().join("below/a.nc_2_0.meta")).unwrap();
        std::thread::sleep(2 * TICK);
        assert_eq!(names(), [elsewhere]);
    }
}
