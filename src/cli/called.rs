//! Files under the user's names: a message about `run.h5` says `run.h5`, and not its resolved path.

use std::path::{Path, PathBuf};

use h5logfs_common::error::Error;
use h5logfs_log::log_dir;
use h5logfs_log::source_dir::resolved;

/// A file, and the user's name for it.
#[derive(Debug)]
pub struct Called {
    real: PathBuf,
    called: PathBuf,
}

impl Called {
    pub fn of(file: &Path) -> Self {
        // Drops a slash at the end.
        let called: PathBuf = file.components().collect();
        // SCORPIO's link leads into a directory that lies beside it.
        let is_scorpio = log_dir::linked(&called).is_some();
        let real = called.canonicalize().ok().filter(|_| !is_scorpio);
        Called {
            real: real.unwrap_or_else(|| resolved(&called)),
            called,
        }
    }

    /// The user's name for the path of this file, or of a file beside it. Other paths stay.
    pub fn path(&self, path: &Path) -> PathBuf {
        // The files of a log that is a directory are inside.
        let inside =
            |(real, called): (&Path, &Path)| Some(joined(called, path.strip_prefix(real).ok()?));
        let beside = || {
            self.real
                .parent()
                .zip(self.called.parent())
                .and_then(inside)
        };
        let found = inside((&self.real, &self.called)).or_else(beside);
        found.unwrap_or_else(|| path.to_owned())
    }

    /// Replaces the path in an error by the user's name for the file.
    pub fn error(&self, error: Error) -> Error {
        error.about(|path| self.path(path))
    }
}

/// A path below another one, or that path itself.
fn joined(dir: &Path, below: &Path) -> PathBuf {
    let mut joined = dir.to_owned();
    joined.extend(below);
    joined
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The link that SCORPIO makes leads into the directory, and messages are about the files beside the link.
    #[test]
    fn files_of_scorpio_lie_beside_the_name_that_was_meant() {
        let dir = tempfile::tempdir().unwrap();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus-scorpio/basic_r1.nc.bp");
        fs::create_dir(dir.path().join("X.nc.bp")).unwrap();
        for file in fs::read_dir(own).unwrap().map(Result::unwrap) {
            let copy = dir.path().join("X.nc.bp").join(file.file_name());
            fs::copy(file.path(), copy).unwrap();
        }
        let named = dir.path().join("X.nc");
        let real = dir.path().canonicalize().unwrap().join("X.nc.bp");
        for link in [None, Some("X.nc.bp/md.0"), Some("a/X.nc.bp/md.0")] {
            if let Some(text) = link {
                let _none = fs::remove_file(&named);
                symlink(text, &named).unwrap();
            }
            let called = Called::of(&named);
            for part in ["", "data.0"] {
                let expected = dir.path().join("X.nc.bp").join(part);
                assert_eq!(called.path(&real.join(part)), expected, "{link:?}");
            }
        }
    }

    #[test]
    fn files_have_the_names_that_users_give_them() {
        let called = |called: &str| Called {
            real: "/data/run.h5".into(),
            called: called.into(),
        };
        let path = |as_called: &str, path: &str| called(as_called).path(Path::new(path));
        assert_eq!(path("run.h5", "/data/run.h5"), Path::new("run.h5"));
        assert_eq!(path("link.h5", "/data/run.h5"), Path::new("link.h5"));
        assert_eq!(
            path("../run.h5", "/data/run.h5.subfiles/a"),
            Path::new("../run.h5.subfiles/a")
        );
        assert_eq!(
            path("run.bp", "/data/run.h5/md.0"),
            Path::new("run.bp/md.0")
        );
        // The index file in such a directory stands for it.
        let index = Called {
            real: "/data/run.bp/md.idx".into(),
            called: "../run.bp/md.idx".into(),
        };
        assert_eq!(
            index.path(Path::new("/data/run.bp")).to_str(),
            Some("../run.bp")
        );
        assert_eq!(path("run.h5", "/dev/fuse"), Path::new("/dev/fuse"));
        assert_eq!(
            path("/data/run.h5", "/data/run.h5"),
            Path::new("/data/run.h5")
        );
    }
}
