//! The set of netCDF files that a path of a user names: by the joined name, which no file has, or by that of a member.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::names::{Candidate, Candidates, ENDING, MemberName};
use super::recognition::{Recognized, recognize_any};
use crate::source_dir::SourceDir;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};

/// A set that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSet {
    /// The path of the file that the set makes up, in the same directory.
    pub joined: PathBuf,
    /// The path of the first member.
    pub first: PathBuf,
    /// Whether the path is that of a member.
    pub is_member: bool,
    /// Why the members are not shown as one file, in words that go on after the joined name.
    pub refused: Option<String>,
}

/// Words for a set with names of two families.
pub const TWO_FAMILIES: &str =
    "is no file, and the files that might make it up have names of two kinds of models";

/// The set that `path` names. `None` for any other path, mostly without a look at its directory. A file with the joined name
/// always counts as itself, and then its members do, too.
pub fn named_by(path: &Path) -> Option<NamedSet> {
    let (real, member) = match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
        Err(_) => return None,
        Ok(found) => {
            // A link with the name of a member may lead to a member of another set.
            let real = match found.is_symlink() {
                true if MemberName::parse(path.file_name()?).is_some() => return None,
                true => path.canonicalize().ok()?,
                false => path.to_owned(),
            };
            if !real.is_file() {
                return None;
            }
            let name = real.file_name()?.to_owned();
            (real, Some(name))
        }
    };
    let joined = match &member {
        Some(name) => MemberName::parse(name)?.joined(),
        None => real.file_name().filter(|name| may_be_joined(name))?.into(),
    };
    let joined_path = real.with_file_name(&joined);
    if member.is_some() && joined_path.symlink_metadata().is_ok() {
        return None;
    }
    let directory = directory_of(&real);
    let Some(candidate) = candidate_in(directory, &joined)? else {
        return Some(NamedSet {
            first: real,
            joined: joined_path,
            is_member: member.is_some(),
            refused: Some(TWO_FAMILIES.to_owned()),
        });
    };
    if member.as_ref().is_some_and(|name| !candidate.has(name)) {
        return None;
    }
    let refused = match judge(directory, &candidate) {
        Ok(Recognized::Set) => None,
        Ok(Recognized::Refused(reason)) => {
            let first = candidate.first();
            Some(format!("{}: {reason}", first.display()))
        }
        Err(e) if member.is_none() => Some(e.to_string()),
        Ok(Recognized::No) | Err(_) => return None,
    };
    Some(NamedSet {
        first: real.with_file_name(candidate.first()),
        joined: joined_path,
        is_member: member.is_some(),
        refused,
    })
}

/// The sets in a directory that make up a file. Fails where the directory cannot be listed.
pub fn sets_in(directory: &Path) -> io::Result<Vec<Candidate>> {
    let mut all = Candidates::default();
    for entry in fs::read_dir(directory)? {
        all.add(&entry?.file_name());
    }
    let found = all.into_sets().into_values().flatten();
    let is_joined = |set: &Candidate| {
        let is_free = directory.join(&set.joined).symlink_metadata().is_err();
        is_free && judge(directory, set).is_ok_and(|found| found == Recognized::Set)
    };
    Ok(found.filter(is_joined).collect())
}

/// Whether a set may have this joined name.
pub fn may_be_joined(name: &OsStr) -> bool {
    name.len() > ENDING.len() && name.as_bytes().ends_with(ENDING)
}

fn directory_of(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The outer value is `None` where no names make a candidate, the inner one where they are of two families.
fn candidate_in(directory: &Path, joined: &OsStr) -> Option<Option<Candidate>> {
    let entries = fs::read_dir(directory).ok()?;
    let names = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        entry.file_type().ok()?.is_file().then(|| entry.file_name())
    });
    Candidates::one(joined, names)
}

/// What the members of a candidate show.
fn judge(directory: &Path, candidate: &Candidate) -> Result<Recognized> {
    let dir = SourceDir::open(directory)?;
    recognize_any(candidate, |name| SourceFile::open(&dir, Path::new(name)))
}

impl NamedSet {
    /// The joined name. Fails with the reason for a set that is refused.
    pub fn name(&self) -> Result<PathBuf> {
        match &self.refused {
            Some(reason) => Err(Error::of(&self.joined, reason.clone())),
            None => Ok(self.joined.file_name().unwrap_or_default().into()),
        }
    }

    /// Finds the set by `find`, which leads to the directory of a file and to its name there. Fails with the reason for a set
    /// that is refused.
    pub fn place(
        &self,
        path: &Path,
        find: impl Fn(&Path) -> Result<(SourceDir, PathBuf)>,
    ) -> Result<(SourceDir, PathBuf)> {
        let name = self.name()?;
        let member = if self.is_member { path } else { &self.first };
        Ok((find(member)?.0, name))
    }
}

/// Fails where `path` is a member of a set, or its joined name: nothing here changes such files. `instead` tells the user what
/// to do instead.
pub fn check_change(path: &Path, instead: &str) -> Result<()> {
    match named_by(path).filter(|set| set.refused.is_none()) {
        Some(set) => {
            let first = set.first.display();
            let reason = format!(
                "is made up by netCDF files, of which {first} is the first, and h5logfs never changes them: {instead}"
            );
            Err(Error::of(&set.joined, reason))
        }
        None => Ok(()),
    }
}
