//! Logs that are directories: those of ADIOS2 (`docs/formats/adios-bp.md`, §1).
//!
//! The log file is the index in the directory. It stands for the whole log: for its owner, for changes, and for the
//! files that belong to it. Only the name of the log is the directory's.

mod scorpio;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat};
use rustix::io::Errno;

use crate::adios::names;
use crate::ownership::{Ownership, belongs};
use crate::source_dir::SourceDir;
use crate::tiles::named::{self as tiles, NamedSet};
use crate::tiles::names::MemberName;
use crate::walk;
use h5logfs_adios::header::Header;
use h5logfs_common::error::{Error, Result};

use scorpio::AtName;
pub use scorpio::linked;

/// Name of the log file in the directory.
pub const FILE: &str = "md.idx";
/// The suffix of a second name of the log, for programs that choose files by their suffix.
pub const ENDING: &str = ".h5";

const SEARCH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The relation of a name to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Naming {
    /// The name is the file's.
    File,
    /// The name is that of the directory in which the file lies.
    Directory,
    /// The name is the directory's, with [`ENDING`].
    Ending,
    /// The name is that of the file that the program meant, which SCORPIO made a directory: that without `.bp`.
    Meant,
    /// The name is that of the file that a set of netCDF files makes up. The first of these is the log file.
    Joined,
}

impl Naming {
    /// The directory to which a name or path refers in this way; `None` where it cannot be one.
    pub fn directory(self, path: &Path) -> Option<PathBuf> {
        match self {
            Naming::File | Naming::Joined => None,
            Naming::Directory => Some(path.to_owned()),
            Naming::Ending => {
                let name = path.file_name()?.as_bytes();
                let name = name.strip_suffix(ENDING.as_bytes())?;
                (!name.is_empty()).then(|| path.with_file_name(OsStr::from_bytes(name)))
            }
            Naming::Meant => {
                let name = with(path.file_name()?, scorpio::ADDED);
                Some(path.with_file_name(name))
            }
        }
    }

    /// The name that leads in this way to the log in a directory of the name `directory`, or to that whose first member has this
    /// name; `None` if there is none.
    pub fn name_for(self, directory: &OsStr) -> Option<OsString> {
        match self {
            Naming::File => None,
            Naming::Joined => MemberName::parse(directory).map(|member| member.joined()),
            Naming::Directory => Some(directory.to_owned()),
            Naming::Ending => Some(with(directory, ENDING)),
            Naming::Meant => {
                let name = directory
                    .as_bytes()
                    .strip_suffix(scorpio::ADDED.as_bytes())?;
                (!name.is_empty()).then(|| OsStr::from_bytes(name).to_owned())
            }
        }
    }

    /// Opens the directory of the log to which `name` in an open directory leads in this way, as [`open_in`] does. The
    /// caller knows whether a name with [`ENDING`] is free.
    pub fn open_in(self, directory: impl AsFd, name: &OsStr) -> Option<OwnedFd> {
        let log = self.directory(Path::new(name))?;
        let log = log.file_name()?;
        if self != Naming::Meant {
            return open_in(directory, log);
        }
        let at_name = AtName::in_directory(&directory, name, log);
        if at_name == AtName::Taken {
            return None;
        }
        open_in(directory, log).filter(|opened| at_name.stands_for(opened))
    }

    /// The file to which a path refers in this way.
    pub fn file(self, path: &Path) -> Cow<'_, Path> {
        let directory = self.directory(path);
        directory.map_or(Cow::Borrowed(path), |directory| directory.join(FILE).into())
    }
}

/// Opens `name` in an open directory as a path only (`O_PATH`), if it is a log. Returns `None` for anything else,
/// mostly after one system call. Does not enter another file system, which might not answer.
pub fn open_in(directory: impl AsFd, name: &OsStr) -> Option<OwnedFd> {
    open(&directory, &Path::new(name).join(FILE), OFlags::PATH)?;
    let opened = open(&directory, Path::new(name), SEARCH)?;
    has_index(&opened).then_some(opened)
}

/// Whether `name` in an open directory is a log.
pub fn is_in(directory: impl AsFd, name: &OsStr) -> bool {
    open_in(directory, name).is_some()
}

/// The way in which a listing names the log in the directory `name` of an open directory. `log` is that directory, open.
pub fn listed_in(directory: impl AsFd, name: &OsStr, log: impl AsFd) -> Naming {
    let meant = Naming::Meant.name_for(name);
    let is_meant = |meant: OsString| AtName::in_directory(directory, &meant, name).stands_for(log);
    if meant.is_some_and(is_meant) {
        Naming::Meant
    } else {
        Naming::Directory
    }
}

/// Whether `name` in an open directory is a symbolic link that stands for the log of SCORPIO beside it.
pub fn is_link_in(directory: impl AsFd, name: &OsStr) -> bool {
    let is_link = readlinkat(&directory, name, Vec::new()).is_ok();
    is_link && Naming::Meant.open_in(directory, name).is_some()
}

/// Whether `name` in an open directory is the index that makes this directory a log.
pub fn is_file_in(directory: impl AsFd, name: &OsStr) -> bool {
    name == FILE && has_index(directory)
}

/// Whether the directory at `path` is a log; symbolic links are followed.
fn is_log(path: &Path) -> bool {
    open_path(path).is_some_and(has_index)
}

/// Opens the directory at `path` as a path only; symbolic links are followed.
fn open_path(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, SEARCH | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn open(directory: impl AsFd, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let below = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    loop {
        let flags = flags | OFlags::CLOEXEC;
        match openat2(&directory, path, flags, Mode::empty(), below) {
            // A rename elsewhere in the tree raced with the look-up. The kernel asks for another try.
            Err(Errno::AGAIN) => continue,
            opened => return opened.ok(),
        }
    }
}

/// Whether an open directory has an index that belongs to the directory's owner. Any user may be able to create an
/// index, and the other files of the directory must not disappear behind it.
fn has_index(directory: impl AsFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Some(index) = open(&directory, Path::new(FILE), flags).map(File::from) else {
        return false;
    };
    let owned = || -> io::Result<bool> {
        let directory = Ownership::from(&fstat(&directory)?);
        let found = index.metadata()?;
        let belongs = belongs(&Ownership::from(&found), directory.owner, &directory);
        Ok(found.is_file() && belongs.is_ok())
    };
    owned().unwrap_or(false) && has_header(&index)
}

fn has_header(index: &File) -> bool {
    let mut header = [0; Header::LEN];
    index.read_exact_at(&mut header, 0).is_ok() && Header::is_one(&header)
}

/// The directory of the log that `path` names in one of the ways of [`Naming`], except as a file; symbolic links are
/// followed. `None` for any other path.
pub fn named_by(path: &Path) -> Option<PathBuf> {
    naming_of(path).map(|(_, directory)| directory)
}

/// The way in which `path` names a log that is a directory, and the directory.
pub fn naming_of(path: &Path) -> Option<(Naming, PathBuf)> {
    let is_missing = || {
        path.symlink_metadata()
            .is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    };
    let ways = [Naming::Directory, Naming::Meant, Naming::Ending];
    ways.into_iter().find_map(|naming| {
        let directory = naming.directory(path)?;
        let leads_there = match naming {
            Naming::File | Naming::Joined => false,
            Naming::Directory => is_log(&directory),
            Naming::Ending => is_log(&directory) && is_missing(),
            Naming::Meant => scorpio::is_meant(path, &directory),
        };
        leads_there.then_some((naming, directory))
    })
}

/// The log file of the log at `path`: `path` itself, the index in it where it is a directory, or the first member where it names
/// a set of netCDF files.
pub fn file_of(path: &Path) -> PathBuf {
    if let Some(directory) = named_by(path) {
        return directory.join(FILE);
    }
    let set = tiles::named_by(path).filter(|set| set.refused.is_none() || !set.is_member);
    set.map_or_else(|| path.to_owned(), |set| set.first)
}

/// [`SourceDir::of_file`] for the log file of the log at `path`. The log file of a directory is found below the parent
/// of this directory. For a set of netCDF files the path is the joined one, which no file has. A member of a set that is refused
/// counts as the file that it is.
pub fn place_of(path: &Path) -> Result<(SourceDir, PathBuf)> {
    let set = tiles::named_by(path).filter(|set| set.refused.is_none() || !set.is_member);
    place_by(path, set, SourceDir::of_file)
}

/// [`place_of`] by [`walk::directory_of`], for a user who names a log. Fails where [`check_complete`] does, and for each file of a
/// set that is refused.
pub fn walk_to(path: &Path) -> Result<(SourceDir, PathBuf)> {
    place_by(path, tiles::named_by(path), |path| {
        check_complete(path)?;
        walk::directory_of(path)
    })
}

/// Fails where `path` is a directory that has files of a log, but no valid index, or SCORPIO's link to such a
/// directory. The error gives the reason.
pub fn check_complete(path: &Path) -> Result<()> {
    let linked = scorpio::linked(path);
    let directories = linked.as_deref().into_iter().chain([path]);
    for directory in directories {
        if let Some(reason) = why_none(directory) {
            return Err(Error::of(directory, reason));
        }
    }
    Ok(())
}

/// The reason why `name` in an open directory is a directory that has files of a log, but no valid index; `None` for anything
/// else.
pub fn is_incomplete_in(directory: impl AsFd, name: &OsStr) -> Option<String> {
    is_incomplete(open(&directory, Path::new(name), SEARCH)?)
}

/// The reason why an open directory has files of a log, but no index, or a damaged one; `None` for any other directory. Unlike
/// [`check_complete`] it takes more than one usual name as a sign, because it is about any directory, and not about one that a user
/// has named as a log.
pub fn is_incomplete(directory: impl AsFd) -> Option<String> {
    let has = |name: &str| open(&directory, Path::new(name), OFlags::PATH).is_some();
    let is_usual = has("data.0") && (has(names::METADATA) || has(FILE));
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    // An index that cannot be opened, or belongs to another user, may be sound.
    let may_be_sound = match open(&directory, Path::new(FILE), flags) {
        Some(index) => has_header(&File::from(index)),
        None => has(FILE),
    };
    if is_usual && !may_be_sound {
        why_not(&directory)
    } else {
        None
    }
}

/// The reason why a directory is no log, though it has files of one.
fn why_none(path: &Path) -> Option<String> {
    why_not(&open_path(path)?)
}

fn why_not(directory: &impl AsFd) -> Option<String> {
    let has = |name: &str| open(directory, Path::new(name), OFlags::PATH).is_some();
    if has_index(directory)
        || ![names::METADATA, names::FORMATS, "data.0"]
            .into_iter()
            .any(has)
    {
        return None;
    }
    let what = "is a directory of ADIOS2";
    if !has(FILE) {
        let reason = "no step was complete, or the index is lost";
        return Some(format!("{what} without its index, {FILE}: {reason}"));
    }
    let mut header = Vec::new();
    let index = open(
        directory,
        Path::new(FILE),
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY,
    );
    let index = index
        .map(File::from)
        .filter(|index| index.metadata().is_ok_and(|found| found.is_file()));
    let read = index.map(|index| index.take(Header::LEN as u64).read_to_end(&mut header));
    Some(match (read, Header::read(&header)) {
        (Some(Ok(0)), _) => {
            format!("{what}, and its index, {FILE}, has no bytes: no step is complete")
        }
        (Some(Ok(_)), Err(fault)) => format!("{what} that cannot be read: {FILE} {fault}"),
        (Some(Ok(_)), Ok(_)) => {
            format!("{what}, but its index, {FILE}, belongs to another user than the directory")
        }
        _ => format!("{what} whose index, {FILE}, is not a regular file, or cannot be opened"),
    })
}

fn place_by(
    path: &Path,
    set: Option<NamedSet>,
    find: impl Fn(&Path) -> Result<(SourceDir, PathBuf)>,
) -> Result<(SourceDir, PathBuf)> {
    if let Some(set) = set {
        return set.place(path, find);
    }
    let Some(mut directory) = named_by(path) else {
        return find(path);
    };
    if directory.file_name().is_none() {
        // A path such as `.` or `..`.
        let real = directory.canonicalize();
        directory = real.map_err(|e| Error::io(path, e))?;
    }
    find(&directory).map(|(dir, name)| (dir, name.join(FILE)))
}

/// The directory of the log whose log file is `file`; `None` where the log is no directory. The name of the file
/// decides.
pub fn directory_of(file: &Path) -> Option<&Path> {
    file.parent()
        .filter(|_| file.file_name() == Some(OsStr::new(FILE)))
}

/// The path by which users call the log whose log file is `file`.
pub fn name_of(file: &Path) -> &Path {
    let named = directory_of(file).filter(|directory| directory.file_name().is_some());
    named.unwrap_or(file)
}

/// The name of the log `name` for programs that choose files by their suffix.
pub fn with_ending(name: &OsStr) -> OsString {
    with(name, ENDING)
}

fn with(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}

/// Fails where `path` is a log that is a directory, or lies in one. Only ADIOS2 changes such logs.
pub fn check_change(path: &Path) -> Result<()> {
    check_change_for(path, INSTEAD)
}

/// The usual advice to users who try to change such a log.
const INSTEAD: &str = "`h5logfs compact` and `h5logfs export` make HDF5 files of it";

/// [`check_change`] with advice: `instead` tells the user what to do instead.
pub fn check_change_for(path: &Path, instead: &str) -> Result<()> {
    check_unchanged(&[path, parent(path)], instead)?;
    // A change acts on the file to which a link leads.
    match path.read_link().and_then(|_| path.canonicalize()) {
        Ok(real) => check_unchanged(&[parent(&real)], instead),
        Err(_) => Ok(()),
    }
}

/// [`check_change`] for a new file that takes the name `path`: where that is a link, it replaces the link.
pub fn check_new(path: &Path) -> Result<()> {
    if path.is_symlink() {
        check_unchanged(&[parent(path)], INSTEAD)
    } else {
        check_change(path)
    }
}

fn check_unchanged(directories: &[&Path], instead: &str) -> Result<()> {
    match directories.iter().find(|dir| is_log(dir)) {
        Some(directory) => Err(Error::of(
            *directory,
            format!("is a directory of ADIOS2, which h5logfs never changes: {instead}"),
        )),
        None => Ok(()),
    }
}

fn parent(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn header(version: u8) -> Vec<u8> {
        let mut header = vec![0; Header::LEN];
        header[..10].copy_from_slice(b"ADIOS-BP v");
        header[37] = version;
        header
    }

    fn directory_with(index: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("run.bp")).unwrap();
        fs::write(dir.path().join("run.bp").join(FILE), index).unwrap();
        dir
    }

    #[test]
    fn the_index_tells_which_directories_are_logs() {
        let told = |index: &[u8]| {
            let dir = directory_with(index);
            let held = File::open(dir.path()).unwrap();
            let is_log = is_in(&held, OsStr::new("run.bp"));
            let path = dir.path().join("run.bp");
            assert_eq!(is_log, named_by(&path).is_some());
            let inside = File::open(path).unwrap();
            assert_eq!(is_log, is_file_in(inside, OsStr::new(FILE)));
            is_log
        };
        assert!(told(&header(4)) && told(&header(5)));
        assert!(told(&[header(5), vec![1; 100]].concat()));
        assert!(!told(&header(3)) && !told(&header(5)[..Header::LEN - 1]));
        assert!(!told(b"") && !told(&[0; Header::LEN]));
    }

    #[test]
    fn why_a_directory_is_no_log_is_told() {
        let told = |index: Option<&[u8]>| {
            let dir = directory_with(index.unwrap_or_default());
            let path = dir.path().join("run.bp");
            assert!(check_complete(&path).is_ok(), "another program's directory");
            fs::write(path.join("data.0"), "").unwrap();
            if index.is_none() {
                fs::remove_file(path.join(FILE)).unwrap();
            }
            let refused = walk_to(&path)
                .map(|_| ())
                .map_err(|error| error.to_string());
            refused.map_err(|said| said.replace(&*path.to_string_lossy(), "run.bp"))
        };
        assert_eq!(told(Some(&header(5))), Ok(()));
        for (index, words) in [
            (
                None,
                "run.bp: is a directory of ADIOS2 without its index, md.idx",
            ),
            (Some(&[][..]), "has no bytes: no step is complete"),
            (
                Some(&header(5)[..63]),
                "md.idx is not an ADIOS2 index: it has fewer than 64 bytes",
            ),
            (Some(&header(3)), "md.idx is of version BP3"),
        ] {
            let said = told(index).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn only_a_file_in_the_directory_is_an_index() {
        let dir = directory_with(&header(5));
        let at = |name: &str| dir.path().join(name);
        symlink("run.bp", at("link")).unwrap();
        fs::create_dir(at("linked")).unwrap();
        symlink("../run.bp/md.idx", at("linked/md.idx")).unwrap();
        fs::create_dir_all(at("nested/md.idx")).unwrap();
        let held = File::open(dir.path()).unwrap();
        for name in ["link", "linked", "nested", "none", "run.bp/md.idx", ".."] {
            assert!(!is_in(&held, OsStr::new(name)), "{name}");
        }
        // A user's path is followed, but not the index itself.
        assert_eq!(named_by(&at("link")), Some(at("link")));
        assert_eq!(named_by(&at("linked")), None);
    }

    #[test]
    fn no_user_makes_a_log_of_a_directory_of_others() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of several users");
            return;
        }
        let dir = directory_with(&header(5));
        let own = |path: &Path, owner| chown(path, Some(owner), None).unwrap();
        let path = dir.path().join("run.bp");
        let told = |directory, index| {
            own(&path, directory);
            own(&path.join(FILE), index);
            named_by(&path).is_some()
        };
        for mode in [0o755, 0o1777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(told(61_001, 61_001) && told(61_001, 0), "{mode:o}");
            assert!(!told(61_001, 61_002) && !told(0, 61_001), "{mode:o}");
        }
        // Another user may have linked an index of the owner to this name.
        fs::hard_link(path.join(FILE), dir.path().join("index")).unwrap();
        assert!(!told(61_001, 61_001));
    }

    #[test]
    fn a_log_has_the_name_of_its_directory_also_with_an_ending() {
        let dir = directory_with(&header(4));
        let at = |name: &str| dir.path().join(name);
        let file = at("run.bp/md.idx");
        for name in ["run.bp", "run.bp/", "run.bp.h5", "run.bp/md.idx"] {
            assert_eq!(file_of(&at(name)), file, "{name}");
            let (held, below) = place_of(&at(name)).unwrap();
            assert_eq!(
                held.full_path(&below).canonicalize().unwrap(),
                file.canonicalize().unwrap()
            );
        }
        assert_eq!(name_of(&file), at("run.bp"));
        for other in ["md.idx", "a.h5", "/md.idx"] {
            assert_eq!(name_of(Path::new(other)), Path::new(other));
        }
        fs::write(at("run.bp.h5"), "another file").unwrap();
        assert_eq!(file_of(&at("run.bp.h5")), at("run.bp.h5"));
        assert_eq!(file_of(&at("none.h5")), at("none.h5"));
        assert_eq!(Naming::Ending.directory(Path::new("a/.h5")), None);
    }

    #[test]
    fn nothing_in_such_a_directory_is_changed() {
        let dir = directory_with(&header(5));
        for name in ["run.bp", "run.bp/md.idx", "run.bp/data.0", "run.bp/new"] {
            let refused = check_change(&dir.path().join(name))
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains("/run.bp: is a directory of ADIOS2"),
                "{refused}"
            );
        }
        for name in ["", "other", "run.bpx", "run.bp.h5"] {
            assert!(check_change(&dir.path().join(name)).is_ok(), "{name}");
        }
    }
}
