//! Files as the user calls them: a user who gives `run.h5` is told of `run.h5`, and not of the path that it has.

use std::path::{Path, PathBuf};

use h5logfs_common::error::Error;

/// A file, and what the user calls it.
#[derive(Debug)]
pub struct Called {
    real: PathBuf,
    called: PathBuf,
}

impl Called {
    pub fn of(file: &Path) -> Self {
        // Without a slash at its end.
        let called: PathBuf = file.components().collect();
        let real = called.canonicalize();
        let real = real.or_else(|_| std::path::absolute(&called));
        Called {
            real: real.unwrap_or_else(|_| called.clone()),
            called,
        }
    }

    /// The path of this file or of one that lies beside it, as the user would call it. Other paths stay.
    pub fn path(&self, path: &Path) -> PathBuf {
        // A log that is a directory has its files inside.
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

    /// The same error, about the file as the user calls it.
    pub fn error(&self, error: Error) -> Error {
        error.about(|path| self.path(path))
    }
}

/// A path below another one, or that one itself.
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
        // The file in such a directory stands for it.
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
