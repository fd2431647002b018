//! Files under the user's names: a message about `run.h5` says `run.h5`, and not its resolved path.

use std::path::{Path, PathBuf};

use h5logfs_common::error::Error;

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
        let real = called.canonicalize();
        let real = real.or_else(|_| std::path::absolute(&called));
        Called {
            real: real.unwrap_or_else(|_| called.clone()),
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
    use super::*;

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
