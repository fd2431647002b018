//! Names of the files that make up a log. A name makes a file a candidate. Its owner (`ownership`) and its content
//! decide.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::adios;
use crate::journal;
use crate::logvol::names::{SPILL_DIR, SUBFILE_DIR, spill_dir, subfile_dir};
use crate::netcdf::names::LogName;
use crate::source_dir::{SourceDir, SourcePath};
use crate::striped::names::{SubfileName, first_members};
use crate::striped::subfiles;
use h5logfs_common::error::Result;

/// The name of the file to which `name` belongs, for a burst-buffer log, a subfile, or the configuration of subfiles.
/// These files may come and go while the file itself does not change.
pub fn named_after(name: &OsStr) -> Option<&OsStr> {
    let log = LogName::parse(name).map(|log| log.master);
    log.or_else(|| SubfileName::parse(name).map(|part| part.stub))
}

/// Whether the file at `place` is a subfile of a striped file, or the configuration of its subfiles.
pub fn is_subfile(place: &SourcePath) -> bool {
    let name = place.path.file_name();
    name.is_some_and(|name| SubfileName::parse(name).is_some())
}

/// Lists the files whose names make them companions of the file at `relative`, in its directory and in the further
/// ones. `list` returns the sorted names in one of these directories that are [named after](named_after) a file. Its
/// arguments are the source directory, its number, the path below it, and the name of the file.
pub fn companions_of(
    dir: &SourceDir,
    relative: &Path,
    list: impl Fn(&SourceDir, u16, &Path, &OsStr) -> Result<Vec<OsString>>,
) -> Result<Vec<SourcePath>> {
    let name = subfiles::stub_of(relative.file_name().unwrap_or_default());
    let beside = relative.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (number, place) in dir.all().enumerate() {
        let directory = if number == 0 { beside } else { Path::new("") };
        let names = list(place, number as u16, directory, name)?;
        found.extend(names.into_iter().map(|name| SourcePath {
            dir: number as u16,
            path: directory.join(name),
        }));
    }
    Ok(found)
}

/// The directories beside the log file at `master` that hold its files: the directory of its subfiles, and that of its
/// spill files.
pub fn own_dirs(master: &Path) -> [PathBuf; 2] {
    [subfile_dir(master), spill_dir(master)]
}

/// The path of the log file to which the file at `path` belongs, by its name or that of its directory.
pub fn log_of(path: &Path) -> Option<PathBuf> {
    let beside = path.file_name().and_then(master_of);
    if let Some(master) = beside {
        return Some(path.with_file_name(master));
    }
    let dir = path.parent()?;
    let name = dir.file_name()?.as_bytes();
    let master = without_suffix(name, &[SUBFILE_DIR, SPILL_DIR])?;
    let has_name = !master.is_empty();
    has_name.then(|| dir.with_file_name(OsStr::from_bytes(master)))
}

/// The names of first members of families that may have `name` as a member. Such files are listed under their own
/// names. Only their content tells whether `name` is a member.
pub fn may_be_member_of(name: &OsStr) -> Vec<OsString> {
    first_members(name)
}

/// The name of the log file to which `name` belongs. `name` may be a burst-buffer log, a subfile, the configuration of
/// subfiles, a directory of subfiles or of spill files, a journal, or a saved copy of a journal. Only the name decides.
pub fn master_of(name: &OsStr) -> Option<&OsStr> {
    let bytes = name.as_bytes();
    let master = without_suffix(bytes, &[SUBFILE_DIR, SPILL_DIR, journal::SUFFIX]);
    let master = master.or_else(|| {
        let digits = bytes.iter().rev().take_while(|b| b.is_ascii_digit());
        let (front, digits) = bytes.split_at(bytes.len() - digits.count());
        let is_numbered = !digits.is_empty();
        let front = if is_numbered {
            front.strip_suffix(b"-")?
        } else {
            front
        };
        without_suffix(front, &[journal::kept::SUFFIX])
    });
    let master = master.map(OsStr::from_bytes);
    let master = master.or_else(|| named_after(name));
    master.filter(|master| !master.is_empty())
}

fn without_suffix<'n>(name: &'n [u8], suffixes: &[&str]) -> Option<&'n [u8]> {
    let mut cut = suffixes
        .iter()
        .filter_map(|suffix| name.strip_suffix(suffix.as_bytes()));
    cut.next()
}

/// Whether the file at `path` is the log file at `master`, its journal, one of its subfiles, or one of its spill files.
pub fn is_own_file(master: &Path, path: &Path) -> bool {
    path == master
        || path == journal::path_of(master)
        || path.parent().is_some_and(|dir| is_own_dir(master, dir))
}

/// Whether a scan of the log file at `master` may open the file at `path`. The scan may open files of its own and,
/// where the log file is the index of a directory, the files in this directory.
pub fn may_be_read(master: &Path, path: &Path) -> bool {
    is_own_file(master, path) || adios::names::is_beside(master, path)
}

/// Whether `path` is the directory of the subfiles of the log file at `master`, or of its spill files.
pub fn is_own_dir(master: &Path, path: &Path) -> bool {
    own_dirs(master).iter().any(|dir| dir == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_logs_are_known_by_their_names() {
        let master = |name| master_of(OsStr::new(name)).and_then(OsStr::to_str);
        assert_eq!(master("a.h5.subfiles"), Some("a.h5"));
        assert_eq!(master("a_1.nc_0_12.meta"), Some("a_1.nc"));
        assert_eq!(master("a.nc_0_12.data"), Some("a.nc"));
        assert_eq!(master("a.h5.h5logfs-spill"), Some("a.h5"));
        assert_eq!(master("a.h5.h5logfs-unflushed"), Some("a.h5"));
        assert_eq!(master("a.h5.h5logfs-unflushed-12"), Some("a.h5"));
        for other in [
            ".h5logfs-unflushed-2",
            "a.h5.h5logfs-unflushed-",
            "a.h5-2",
            "2",
        ] {
            assert_eq!(master(other), None, "{other}");
        }
        for other in ["a.h5", ".subfiles", "_0_1.meta", "a.nc_0.meta", "a_0_1.txt"] {
            assert_eq!(master(other), None, "{other}");
        }
    }

    #[test]
    fn the_log_of_a_part_is_known_by_its_path() {
        let log = |path: &str| log_of(Path::new(path));
        let own = Some(PathBuf::from("/d/a.h5"));
        assert_eq!(log("/d/a.h5.h5logfs-journal"), own);
        assert_eq!(log("/d/a.h5.subfiles/a.h5.0"), own);
        assert_eq!(log("/d/a.h5.subfiles/anything"), own);
        assert_eq!(log("/d/a.h5.h5logfs-spill/0.3"), own);
        assert_eq!(log("/d/a.h5_0_7.meta"), own);
        for other in [
            "/d/a.h5",
            "/d/.subfiles/a.h5.0",
            "/",
            "a.h5",
            "/a.h5.subfilesx/b",
        ] {
            assert_eq!(log(other), None, "{other}");
        }
    }
}
