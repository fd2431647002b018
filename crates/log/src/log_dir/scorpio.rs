//! Directories of SCORPIO, E3SM's I/O library (`docs/formats/scorpio-bp.md`, §1 and §11).
//!
//! A program that creates `X.nc` gets the directory `X.nc.bp`, and beside it a symbolic link `X.nc` that leads into the
//! directory or, with a relative path, nowhere. So `X.nc` names the netCDF file that the program meant, unless another
//! file has taken this name since.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstat, readlink, readlinkat};
use rustix::io::Errno;

use super::{Naming, open, open_path, parent};
use crate::adios::names;
use crate::ownership::{Ownership, may_hide};
use crate::source_dir::stat_in;
use h5logfs_adios::scorpio::PROCESSES;
use h5logfs_adios::{Bytes, Files, first_step};
use h5logfs_common::fault::Fault;

/// The ending that SCORPIO adds to a name.
pub const ADDED: &str = ".bp";

/// The object at the name of the file that the program meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtName {
    Nothing,
    /// A link as SCORPIO makes it.
    Link {
        to: Target,
        link: Ownership,
        /// The directory in which the link lies.
        directory: Ownership,
    },
    /// A file, or another link.
    Taken,
}

/// The object that the text of a link names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The directory, in versions before 1.7.
    Directory,
    /// The metadata in the directory.
    Metadata,
}

impl Target {
    /// Only the last names of a text count: SCORPIO writes the path as the program gave it. `log` is the name of the
    /// directory.
    fn of(text: &CString, log: &OsStr) -> Option<Self> {
        let text = Path::new(OsStr::from_bytes(text.as_bytes()));
        let names_log = |path: &Path| path.file_name() == Some(log);
        let is_metadata = text.file_name() == Some(OsStr::new(names::METADATA));
        if names_log(text) {
            Some(Target::Directory)
        } else if is_metadata && text.parent().is_some_and(names_log) {
            Some(Target::Metadata)
        } else {
            None
        }
    }
}

impl AtName {
    /// The object at `name` in an open directory. `log` is the name of the log's directory.
    pub fn in_directory(directory: impl AsFd, name: &OsStr, log: &OsStr) -> Self {
        AtName::of(readlinkat(&directory, name, Vec::new()), log, || {
            let link = stat_in(&directory, name)?;
            Ok([Ownership::from(&link), Ownership::from(&fstat(&directory)?)])
        })
    }

    /// The object at a path.
    pub fn at(path: &Path, log: &OsStr) -> Self {
        // A slash at the end would follow the link.
        let path: PathBuf = path.components().collect();
        AtName::of(readlink(&path, Vec::new()), log, || {
            let (link, directory) = (path.symlink_metadata()?, parent(&path).metadata()?);
            Ok([Ownership::from(&link), Ownership::from(&directory)])
        })
    }

    /// `owners` tells those of the link and of its directory.
    fn of(
        link: Result<CString, Errno>,
        log: &OsStr,
        owners: impl FnOnce() -> io::Result<[Ownership; 2]>,
    ) -> Self {
        let to = match link {
            Ok(text) => Target::of(&text, log),
            Err(Errno::NOENT) => return AtName::Nothing,
            Err(_) => None,
        };
        match to.map(|to| (to, owners())) {
            Some((to, Ok([link, directory]))) => AtName::Link {
                to,
                link,
                directory,
            },
            _ => AtName::Taken,
        }
    }

    /// Whether the name stands for the log in this open directory.
    pub fn stands_for(self, log: impl AsFd) -> bool {
        let to = match self {
            AtName::Nothing => None,
            // Another user must not put a directory in front of what the link leads to.
            AtName::Link {
                to,
                link,
                directory,
            } => match fstat(&log) {
                Ok(log) if may_hide(&Ownership::from(&log), &link, &directory) => Some(to),
                _ => return false,
            },
            AtName::Taken => return false,
        };
        match first_step_is_marked(log) {
            Ok(Some(is_marked)) => is_marked,
            // No other library makes such a link.
            Ok(None) => to == Some(Target::Metadata),
            Err(_) => false,
        }
    }
}

/// The directory beside `path`, if `path` is a link to it as SCORPIO makes one. It need not be a log.
pub fn linked(path: &Path) -> Option<PathBuf> {
    let directory = Naming::Meant.directory(path)?;
    let at = AtName::at(path, directory.file_name()?);
    matches!(at, AtName::Link { .. }).then_some(directory)
}

/// Whether `path` stands for the log in `directory`, the directory of its name; symbolic links to that are followed.
pub(super) fn is_meant(path: &Path, directory: &Path) -> bool {
    let Some(name) = directory.file_name() else {
        return false;
    };
    let at = AtName::at(path, name);
    at != AtName::Taken
        && open_path(directory).is_some_and(|log| super::has_index(&log) && at.stands_for(log))
}

/// Whether the first step has [`MARK`]. `None` before the first step is complete.
fn first_step_is_marked(log: impl AsFd) -> Result<Option<bool>, Fault> {
    let file = |name| Held::open(&log, name);
    let index = file(names::INDEX)?;
    let metadata = file(names::METADATA)?;
    // BP4 has none.
    let formats = file(names::FORMATS).ok();
    let files = Files {
        index: &index,
        metadata: &metadata,
        formats: formats.as_ref().map(|formats| formats as &dyn Bytes),
    };
    first_step::has_variable(files, PROCESSES)
}

/// A regular file of a directory.
struct Held {
    file: File,
    /// Its length when it was opened.
    len: u64,
}

impl Held {
    fn open(directory: impl AsFd, name: &str) -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(directory, Path::new(name), flags).map(File::from);
        let file = file.ok_or_else(|| format!("{name} is not there"))?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(format!("{name} is not a regular file").into());
        }
        Ok(Held {
            file,
            len: found.len(),
        })
    }
}

impl Bytes for Held {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> Result<(), Fault> {
        Ok(self.file.read_exact_at(buffer, at)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::super::{
        FILE, Naming, check_change, check_complete, check_new, file_of, is_link_in, listed_in,
        name_of, naming_of, open_in, place_of, walk_to,
    };
    use super::*;

    /// A place with one directory of ADIOS2, a copy from the tests of the project.
    struct Case(tempfile::TempDir);

    impl Case {
        fn new(corpus: &str, directory: &str) -> Self {
            let case = Case(tempfile::tempdir().unwrap());
            let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
            fs::create_dir(case.at(directory)).unwrap();
            for file in fs::read_dir(tests.join(corpus)).unwrap() {
                let file = file.unwrap();
                let copy = case.at(directory).join(file.file_name());
                fs::copy(file.path(), copy).unwrap();
            }
            case
        }

        fn of_scorpio() -> Self {
            Case::new("corpus-scorpio/basic_r1.nc.bp", "X.nc.bp")
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn link(&self, text: &str) {
            let _none = fs::remove_file(self.at("X.nc"));
            symlink(text, self.at("X.nc")).unwrap();
        }

        /// Whether `X.nc` stands for the log, asked in each way.
        #[track_caller]
        fn is_meant(&self) -> bool {
            let held = File::open(self.0.path()).unwrap();
            let (name, log) = (OsStr::new("X.nc"), OsStr::new("X.nc.bp"));
            let is_meant = Naming::Meant.open_in(&held, name).is_some();
            let is_link = self.at("X.nc").is_symlink();
            assert_eq!(is_link_in(&held, name), is_meant && is_link);
            let opened = open_in(&held, log).unwrap();
            let listed = listed_in(&held, log, opened).name_for(log);
            assert_eq!(listed.as_deref(), Some(if is_meant { name } else { log }));
            let named = naming_of(&self.at("X.nc"));
            let naming = named.as_ref().map(|(naming, _)| *naming);
            assert_eq!(naming == Some(Naming::Meant), is_meant, "{named:?}");
            is_meant
        }
    }

    #[test]
    fn the_name_is_free_or_a_link_into_the_directory() {
        let case = Case::of_scorpio();
        assert!(case.is_meant(), "nothing is there");
        for text in [
            "X.nc.bp/md.0",
            "nowhere/X.nc.bp/md.0",
            "/nowhere/X.nc.bp/md.0",
            "nowhere/X.nc.bp",
            "./X.nc.bp/./md.0",
        ] {
            case.link(text);
            assert!(case.is_meant(), "{text}");
            assert_eq!(file_of(&case.at("X.nc")), case.at("X.nc.bp/md.idx"));
        }
        for text in [
            "Y.nc.bp/md.0",
            "X.nc.bp/data.0",
            "X.nc.bp/md.idx",
            "X.nc.bp/md.0/more",
            "X.nc.bp/..",
            "md.0",
            "X.nc",
        ] {
            case.link(text);
            assert!(!case.is_meant(), "{text}");
        }
        fs::remove_file(case.at("X.nc")).unwrap();
        fs::write(case.at("X.nc"), "a file").unwrap();
        assert!(!case.is_meant());
        fs::remove_file(case.at("X.nc")).unwrap();
        fs::create_dir(case.at("X.nc")).unwrap();
        assert!(!case.is_meant());
    }

    #[test]
    fn each_name_leads_to_the_log() {
        for corpus in ["basic_r1", "tiny_r4io4", "b4_tiny_r2"] {
            let case = Case::new(&format!("corpus-scorpio/{corpus}.nc.bp"), "X.nc.bp");
            let file = case.at("X.nc.bp").join(FILE);
            // Also the link of versions before 1.7, which leads to the directory itself.
            for link in [
                None,
                Some("X.nc.bp/md.0"),
                Some("X.nc.bp"),
                Some("a/X.nc.bp"),
            ] {
                link.into_iter().for_each(|text| case.link(text));
                for name in ["X.nc", "X.nc/", "X.nc.bp", "X.nc.bp/", "X.nc.bp.h5"] {
                    let found = file_of(&case.at(name)).canonicalize().unwrap();
                    assert_eq!(found, file.canonicalize().unwrap(), "{name} {link:?}");
                    for (held, below) in [
                        place_of(&case.at(name)).unwrap(),
                        walk_to(&case.at(name)).unwrap(),
                    ] {
                        let full = held.full_path(&below);
                        assert_eq!(full, found, "{name} {link:?}");
                    }
                }
            }
            assert_eq!(name_of(&file), case.at("X.nc.bp"));
        }
    }

    #[test]
    fn other_directories_have_their_own_names_alone() {
        let case = Case::new("corpus-adios/b5_steps.bp", "X.nc.bp");
        assert!(!case.is_meant());
        for text in ["X.nc.bp/md.0", "a/X.nc.bp"] {
            case.link(text);
            assert!(!case.is_meant(), "{text}");
            assert_eq!(file_of(&case.at("X.nc")), case.at("X.nc"));
        }
        for directory in ["X.nc", ".bp"] {
            let case = Case::new("corpus-scorpio/basic_r1.nc.bp", directory);
            let held = File::open(case.0.path()).unwrap();
            let name = OsStr::new(directory);
            let log = open_in(&held, name).unwrap();
            assert_eq!(listed_in(&held, name, log), Naming::Directory);
        }
        assert_eq!(Naming::Meant.directory(Path::new("a/..")), None);
    }

    #[test]
    fn no_user_puts_a_directory_in_front_of_the_link_of_another() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can make files of several users");
            return;
        }
        let case = Case::of_scorpio();
        case.link("elsewhere/X.nc.bp/md.0");
        let is_meant = |mode, of_link, of_log| {
            fs::set_permissions(case.0.path(), fs::Permissions::from_mode(mode)).unwrap();
            for path in ["X.nc", "X.nc.bp", "X.nc.bp/md.idx"] {
                let owner = if path == "X.nc" { of_link } else { of_log };
                lchown(case.at(path), Some(owner), None).unwrap();
            }
            case.is_meant()
        };
        for mode in [0o755, 0o775, 0o1777] {
            assert!(is_meant(mode, 61_001, 61_001), "{mode:o}");
        }
        for mode in [0o775, 0o1777] {
            assert!(!is_meant(mode, 61_001, 61_002), "{mode:o}");
            assert!(!is_meant(mode, 0, 61_002), "{mode:o}");
        }
        assert!(is_meant(0o755, 0, 61_002));
    }

    #[test]
    fn before_the_first_step_the_link_to_the_metadata_decides() {
        let case = Case::of_scorpio();
        let index = fs::read(case.at("X.nc.bp/md.idx")).unwrap();
        fs::write(case.at("X.nc.bp/md.idx"), &index[..64]).unwrap();
        assert!(!case.is_meant());
        case.link("X.nc.bp/md.0");
        assert!(case.is_meant());
        case.link("a/X.nc.bp");
        assert!(!case.is_meant());
    }

    #[test]
    fn damaged_and_missing_metadata_leave_the_directory_its_own_name() {
        let case = Case::of_scorpio();
        for part in ["md.0", "mmd.0"] {
            let path = case.at("X.nc.bp").join(part);
            let whole = fs::read(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert!(!case.is_meant(), "without {part}");
            symlink("elsewhere", &path).unwrap();
            assert!(!case.is_meant(), "{part} is a link");
            fs::remove_file(&path).unwrap();
            fs::write(&path, vec![0xff; whole.len()]).unwrap();
            assert!(!case.is_meant(), "damaged {part}");
            fs::write(&path, whole).unwrap();
            assert!(case.is_meant());
        }
    }

    #[test]
    fn a_link_to_a_directory_without_index_tells_the_reason() {
        let case = Case::of_scorpio();
        case.link("X.nc.bp/md.0");
        fs::remove_file(case.at("X.nc.bp/md.idx")).unwrap();
        let refused = check_complete(&case.at("X.nc")).unwrap_err().to_string();
        let words = "X.nc.bp: is a directory of ADIOS2 without its index";
        assert!(refused.contains(words), "{refused}");
    }

    #[test]
    fn no_change_goes_through_the_link() {
        let case = Case::of_scorpio();
        assert!(check_change(&case.at("X.nc")).is_ok() && check_new(&case.at("X.nc")).is_ok());
        for text in ["X.nc.bp/md.0", "X.nc.bp"] {
            case.link(text);
            let refused = check_change(&case.at("X.nc")).unwrap_err().to_string();
            assert!(refused.contains("is a directory of ADIOS2"), "{refused}");
            // A new file replaces the link.
            check_new(&case.at("X.nc")).unwrap();
        }
        symlink("data.0", case.at("X.nc.bp/link")).unwrap();
        assert!(check_new(&case.at("X.nc.bp/link")).is_err());
    }
}
