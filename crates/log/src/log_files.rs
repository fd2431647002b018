//! Opens the files of one log: those that belong to it, and no others (see [`ownership`]).

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::not_regular::{NotRegular, not_regular};
use super::ownership::{self, Foreign, Ownership, belongs};
use super::source_dir::{SourceDir, SourcePath, list_open, open_beneath, regular, stat_in};
use super::source_file::SourceFile;
use h5logfs_common::error::{Error, Result, is_stale};

const SEARCH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The files of one log besides the log file. Checks apply to the open file, so a file that takes another one's name in
/// between is checked as well.
///
/// In a process that must not open files, the process that opens files on its behalf does the checks.
#[derive(Debug)]
pub struct LogFiles<'a> {
    dir: &'a SourceDir,
    log: &'a Path,
    owner: u32,
    only_public: bool,
    /// The directory that was used last. Most files of a log lie in one directory.
    last: RefCell<Option<Rc<OpenDirectory>>>,
}

#[derive(Debug)]
struct OpenDirectory {
    number: u16,
    path: PathBuf,
    fd: OwnedFd,
}

impl<'a> LogFiles<'a> {
    /// The files of the log file `file`, which was opened at `log` below `dir`.
    pub fn of(dir: &'a SourceDir, log: &'a Path, file: &SourceFile) -> Self {
        LogFiles::of_owner(dir, log, file.identity().owner)
    }

    /// The files of the log file at `log` below `dir`, which `owner` owns.
    pub fn of_owner(dir: &'a SourceDir, log: &'a Path, owner: u32) -> Self {
        LogFiles {
            dir,
            log,
            owner,
            only_public: false,
            last: RefCell::default(),
        }
    }

    /// Refuses files of users other than the owner of the log file, unless all users may read them. This is for a
    /// process that may read more than that owner.
    pub fn only_public(self) -> Self {
        LogFiles {
            only_public: true,
            ..self
        }
    }

    /// The directory below which the log file lies.
    pub fn dir(&self) -> &'a SourceDir {
        self.dir
    }

    /// The path of the log file below that directory.
    pub fn log(&self) -> &'a Path {
        self.log
    }

    /// Opens the regular file at `place` for reading. Fails with [`Error::BadFile`] if it does not belong to the log.
    pub fn open(&self, place: &SourcePath) -> Result<SourceFile> {
        let opened = self.open_source(place);
        opened.map_err(|e| failure(self.full_path(place), e))
    }

    /// Opens the regular file at `place` for reading, where a log can be shown without it. If the fault lies in what is
    /// at `place`, the inner error is the reason, which goes on after the name of the file. Fails where the system may
    /// allow the same at another time.
    pub fn open_if_usable(&self, place: &SourcePath) -> Result<Result<SourceFile, String>> {
        match self.open_source(place) {
            Ok(file) => Ok(Ok(file)),
            Err(e) => match why_unusable(&e) {
                Some(reason) => Ok(Err(reason)),
                None => Err(failure(self.full_path(place), e)),
            },
        }
    }

    fn open_source(&self, place: &SourcePath) -> io::Result<SourceFile> {
        let opened = self.open_file(place, OFlags::RDONLY)?;
        let opened = SourceFile::new(opened, self.full_path(place))?;
        Ok(opened.opened_at(self.dir.of(place)?, &place.path))
    }

    /// Opens the regular file at `place` with these flags. Does not wait, whatever is there. The error has a [`Foreign`]
    /// inside if the file does not belong to the log (see [`foreign`]), and a [`NotRegular`] if it is no regular file.
    pub fn open_file(&self, place: &SourcePath, flags: OFlags) -> io::Result<File> {
        let dir = self.dir.of(place)?;
        if dir.is_remote() {
            return dir.open_file(&place.path);
        }
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
        self.in_directory(place, |directory, name| {
            let opened = self.open_in(directory, name, flags);
            regular(opened.map_err(|e| why_not_opened(e, directory, name))?)
        })
    }

    /// The names in the directory at `place`, without `.` and `..`.
    pub fn list(&self, place: &SourcePath) -> io::Result<Vec<OsString>> {
        let dir = self.dir.of(place)?;
        if dir.is_remote() {
            return dir.list(&place.path);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.in_directory(place, |directory, name| {
            list_open(self.open_in(directory, name, flags)?)
        })
    }

    /// Checks whether what is at `place` belongs to the log, without opening it.
    pub fn check(&self, place: &SourcePath) -> io::Result<()> {
        self.in_directory(place, |directory, name| {
            let part = Ownership::from(&stat_in(directory, name)?);
            self.check_part(&part, directory)
        })
    }

    /// The path of `place` as a user knows it.
    pub fn full_path(&self, place: &SourcePath) -> PathBuf {
        let dir = self.dir.of(place);
        dir.map_or_else(|_| place.path.clone(), |dir| dir.full_path(&place.path))
    }

    /// Calls `act` with the directory of `place` and the name in it. Opens the directory again, and repeats the call,
    /// where a file server no longer knows the directory of the last call.
    fn in_directory<T>(
        &self,
        place: &SourcePath,
        act: impl Fn(BorrowedFd<'_>, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        let act = || {
            let (directory, name) = self.directory_of(place)?;
            act(directory.fd.as_fd(), name)
        };
        let outcome = match act() {
            Err(e) if is_stale(&e) => {
                self.last.take();
                act()
            }
            outcome => outcome,
        };
        // A log with a long name has no journal: the journal's name would be too long.
        outcome.map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::NAMETOOLONG) => Errno::NOENT.into(),
            _ => e,
        })
    }

    /// The directory of `place`, and the name in it.
    fn directory_of<'p>(
        &self,
        place: &'p SourcePath,
    ) -> io::Result<(Rc<OpenDirectory>, &'p OsStr)> {
        let (Some(parent), Some(name)) = (place.path.parent(), place.path.file_name()) else {
            return Err(Errno::ACCESS.into());
        };
        let mut last = self.last.borrow_mut();
        let known = last.take();
        let known = known.filter(|known| known.number == place.dir && known.path == parent);
        let directory = match known {
            Some(known) => known,
            None => Rc::new(OpenDirectory {
                number: place.dir,
                path: parent.to_owned(),
                fd: self.open_directory(place, parent)?,
            }),
        };
        *last = Some(Rc::clone(&directory));
        Ok((directory, name))
    }

    /// Opens the directory at `path`. A directory below that of the log file must belong to the log, like its files.
    fn open_directory(&self, place: &SourcePath, path: &Path) -> io::Result<OwnedFd> {
        let beside = self.log.parent().filter(|_| place.dir == 0);
        let start = beside.filter(|beside| path.starts_with(beside));
        let start = start.unwrap_or(Path::new(""));
        let below = path.strip_prefix(start).unwrap_or(path);
        let mut directory = self.dir.of(place)?.open_below(start, SEARCH)?;
        for part in below.components() {
            let Component::Normal(name) = part else {
                return Err(Errno::XDEV.into());
            };
            directory = self.open_in(directory.as_fd(), name, SEARCH)?;
        }
        Ok(directory)
    }

    /// Opens `name` in `directory` if it belongs to the log.
    fn open_in(
        &self,
        directory: BorrowedFd<'_>,
        name: &OsStr,
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        match open_beneath(directory, Path::new(name), flags) {
            Ok(fd) => {
                let part = Ownership::from(&rustix::fs::fstat(&fd)?);
                self.check_part(&part, directory)?;
                Ok(fd)
            }
            Err(e) => {
                // A failure to open it does not matter if the file does not belong to the log.
                if let Ok(there) = stat_in(directory, name) {
                    self.check_part(&Ownership::from(&there), directory)?;
                }
                Err(e)
            }
        }
    }

    fn check_part(&self, part: &Ownership, directory: BorrowedFd<'_>) -> io::Result<()> {
        let directory = Ownership::from(&rustix::fs::fstat(directory)?);
        let (owner, log_owner) = (part.owner, self.owner);
        let outcome = belongs(part, log_owner, &directory);
        let is_private = self.only_public && owner != log_owner && !part.is_public();
        let outcome = outcome.and(if is_private {
            Err(Foreign::Private { owner, log_owner })
        } else {
            Ok(())
        });
        outcome.map_err(Foreign::into_io)
    }
}

/// Whether the log file `log` in an open directory may take `name` out of listings of this directory.
pub fn may_hide(directory: impl AsFd, log: &OsStr, name: &OsStr) -> io::Result<bool> {
    let ownership = |name| stat_in(&directory, name).map(|stat| Ownership::from(&stat));
    let (log, part) = (ownership(log)?, ownership(name)?);
    let directory = Ownership::from(&rustix::fs::fstat(&directory)?);
    Ok(ownership::may_hide(&log, &part, &directory))
}

impl Foreign {
    /// The reason as an I/O error, as system calls return it. [`foreign`] extracts it.
    pub fn into_io(self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self)
    }
}

/// The reason why a file does not belong to a log, if the error has one.
pub fn foreign(error: &io::Error) -> Option<Foreign> {
    let inner = error.get_ref()?;
    inner.downcast_ref().copied()
}

/// The error of a file that was not opened, with a [`NotRegular`] inside if it is no regular file. Sockets, links and
/// some devices cannot be opened at all.
fn why_not_opened(error: io::Error, directory: BorrowedFd<'_>, name: &OsStr) -> io::Error {
    if foreign(&error).is_some() {
        return error;
    }
    let there = stat_in(directory, name).ok();
    let other = there.and_then(|there| NotRegular::of(&there));
    other.map_or(error, NotRegular::into_io)
}

/// Why a file cannot be opened, in words that go on after its name. `None` for errors that do not lie in the file.
fn why_unusable(error: &io::Error) -> Option<String> {
    if let Some(reason) = foreign(error) {
        return Some(format!("does not belong to the log: {reason}"));
    }
    if let Some(reason) = not_regular(error) {
        return Some(reason.to_string());
    }
    match error.kind() {
        io::ErrorKind::NotFound => Some("is not there".to_owned()),
        io::ErrorKind::PermissionDenied => Some(format!("cannot be opened: {error}")),
        _ => None,
    }
}

/// The system allows what a [`Foreign`] refuses. The fault is therefore in the files, and another try does not help.
fn failure(path: PathBuf, error: io::Error) -> Error {
    match foreign(&error) {
        Some(reason) => Error::of(path, reason.to_string()),
        None => Error::io(path, error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const OWNER: u32 = 61_001;
    const OTHER: u32 = 61_002;

    /// A directory with the log file `log`, and files of the log; `None` where files of several users cannot be made.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                eprintln!("skipped: only root can make files of several users");
                return None;
            }
            let place = Place(tempfile::tempdir().unwrap());
            place.own("", OWNER, 0o755);
            place.file("log", OWNER);
            Some(place)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn own(&self, name: &str, owner: u32, mode: u32) {
            chown(self.at(name), Some(owner), Some(owner)).unwrap();
            fs::set_permissions(self.at(name), Permissions::from_mode(mode)).unwrap();
        }

        fn file(&self, name: &str, owner: u32) {
            fs::write(self.at(name), name).unwrap();
            self.own(name, owner, 0o644);
        }

        fn opens(&self, name: &str) -> Result<Vec<u8>, String> {
            self.with_files(|files| {
                let place = SourcePath::below(name);
                let checked = files.check(&place);
                let opened = files.open(&place);
                let is_foreign = |e: &io::Error| foreign(e).is_some();
                assert_eq!(
                    checked.as_ref().is_err_and(is_foreign),
                    matches!(opened, Err(Error::BadFile { .. })),
                    "{name}: {checked:?}"
                );
                let file = opened.map_err(|e| e.to_string())?;
                let mut bytes = vec![0; file.len() as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                Ok(bytes)
            })
        }

        fn lists(&self, name: &str) -> bool {
            self.with_files(|files| files.list(&SourcePath::below(name)).is_ok())
        }

        fn with_files<T>(&self, act: impl FnOnce(&LogFiles<'_>) -> T) -> T {
            let dir = SourceDir::open(self.0.path()).unwrap();
            let log = SourceFile::open(&dir, Path::new("log")).unwrap();
            act(&LogFiles::of(&dir, Path::new("log"), &log))
        }
    }

    #[track_caller]
    fn assert_foreign(outcome: Result<Vec<u8>, String>) {
        let error = outcome.expect_err("it was opened");
        assert!(
            error.contains("61002") && error.contains("61001"),
            "{error}"
        );
    }

    #[test]
    fn owners_decide_which_files_are_opened() {
        let Some(place) = Place::new() else { return };
        for (name, owner) in [("own", OWNER), ("roots", 0), ("other", OTHER)] {
            place.file(name, owner);
        }
        for mode in [0o755, 0o775, 0o1777] {
            place.own("", OWNER, mode);
            assert_eq!(place.opens("own"), Ok(b"own".to_vec()), "{mode:o}");
            assert_eq!(place.opens("roots"), Ok(b"roots".to_vec()), "{mode:o}");
            assert_foreign(place.opens("other"));
        }
        // The owner of the directory may do so while no other user can write there.
        place.own("", OTHER, 0o755);
        assert_eq!(place.opens("other"), Ok(b"other".to_vec()));
        for mode in [0o775, 0o757, 0o1777] {
            place.own("", OTHER, mode);
            assert_foreign(place.opens("other"));
        }
    }

    #[test]
    fn a_directory_of_the_log_belongs_to_it_like_a_file() {
        let Some(place) = Place::new() else { return };
        place.own("", 0, 0o1777);
        fs::create_dir(place.at("parts")).unwrap();
        place.own("parts", OWNER, 0o755);
        place.file("parts/own", OWNER);
        place.file("parts/other", OTHER);
        assert!(place.opens("parts/own").is_ok() && place.lists("parts"));
        assert_foreign(place.opens("parts/other"));
        place.own("parts", OTHER, 0o755);
        assert_foreign(place.opens("parts/own"));
        assert_foreign(place.opens("parts/other"));
        assert!(!place.lists("parts"));
        for path in ["parts/../log", "../log", "/log", ".."] {
            assert!(place.opens(path).is_err(), "{path}");
        }
    }

    #[test]
    fn links_lead_to_no_other_file() {
        let Some(place) = Place::new() else { return };
        place.file("own", OWNER);
        symlink("own", place.at("link")).unwrap();
        assert!(place.opens("link").is_err());
        fs::hard_link(place.at("own"), place.at("second")).unwrap();
        place.own("", OWNER, 0o755);
        assert!(place.opens("second").is_ok());
        place.own("", 0, 0o1777);
        let refused = place.opens("second").unwrap_err();
        assert!(refused.contains("2 hard links"), "{refused}");
    }

    /// Another user's file is reported as such, even if it cannot be opened or is no regular file.
    #[test]
    fn what_belongs_to_another_user_is_not_in_the_way() {
        let Some(place) = Place::new() else { return };
        place.own("", 0, 0o1777);
        fs::create_dir(place.at("directory")).unwrap();
        place.own("directory", OTHER, 0o700);
        assert_foreign(place.opens("directory"));
        let pipe = rustix::fs::mknodat(
            rustix::fs::CWD,
            place.at("pipe"),
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        );
        pipe.unwrap();
        place.own("pipe", OTHER, 0o600);
        assert_foreign(place.opens("pipe"));
        symlink("log", place.at("link")).unwrap();
        std::os::unix::fs::lchown(place.at("link"), Some(OTHER), None).unwrap();
        assert_foreign(place.opens("link"));
    }

    #[test]
    fn files_that_only_root_may_read_are_not_for_users() {
        let Some(place) = Place::new() else { return };
        place.file("roots", 0);
        let opens = || {
            let dir = SourceDir::open(place.0.path()).unwrap();
            let files = LogFiles::of_owner(&dir, Path::new("log"), OWNER).only_public();
            files.open(&SourcePath::below("roots")).is_ok()
        };
        assert!(opens());
        place.own("roots", 0, 0o640);
        assert!(!opens());
        assert!(place.opens("roots").is_ok());
    }

    /// A mask without write permission takes it from all named entries; the mode shows the mask.
    #[test]
    fn access_control_lists_that_let_others_write_show_in_the_mode() {
        let Some(place) = Place::new() else { return };
        place.file("other", OTHER);
        place.own("", OTHER, 0o755);
        assert!(place.opens("other").is_ok());
        // Owner, user 61003, group, mask, and others: tag, permissions, and number.
        let none = u32::MAX;
        for (mask, is_private) in [(7_u16, false), (5, true)] {
            let entries = [
                (1_u16, 7_u16, none),
                (2, 7, 61_003),
                (4, 5, none),
                (16, mask, none),
                (32, 5, none),
            ];
            let mut list = 2_u32.to_le_bytes().to_vec();
            for (tag, bits, id) in entries {
                list.extend(tag.to_le_bytes());
                list.extend(bits.to_le_bytes());
                list.extend(id.to_le_bytes());
            }
            let set = rustix::fs::setxattr(
                place.at(""),
                "system.posix_acl_access",
                &list,
                rustix::fs::XattrFlags::empty(),
            );
            if set == Err(Errno::OPNOTSUPP) {
                eprintln!("skipped: no access control lists here");
                return;
            }
            set.unwrap();
            assert_eq!(place.opens("other").is_ok(), is_private, "mask {mask}");
        }
    }
}
