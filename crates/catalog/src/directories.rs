//! Directories of the user who mounts: for configuration, and for what later mounts use (XDG Base Directory
//! Specification).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use rustix::fs::Access;

/// Name of our directory in a directory for caches.
const NAME: &str = "h5logfs";

/// The directory for root's caches.
const SYSTEM_CACHE: &str = "/var/cache";

/// Directories that the environment and the user database name.
#[derive(Debug, Default)]
struct Directories {
    /// `XDG_CONFIG_HOME`.
    config: Option<PathBuf>,
    /// `XDG_CACHE_HOME`.
    cache: Option<PathBuf>,
    home: Option<PathBuf>,
    /// Set where root may write there. Root of a user namespace may not.
    system_cache: Option<PathBuf>,
}

/// The directory with this user's configuration files. `None` for a user without a home.
pub fn config() -> Option<PathBuf> {
    Directories::now().config()
}

/// The directory for indexes of log files, unless an option names another one. `None` for a user without a home.
pub fn indexes() -> Option<PathBuf> {
    Directories::now().indexes()
}

impl Directories {
    fn now() -> Self {
        let system_cache = Path::new(SYSTEM_CACHE);
        let is_root = rustix::process::geteuid().is_root();
        let is_ours = is_root && rustix::fs::access(system_cache, Access::WRITE_OK).is_ok();
        Directories {
            config: variable("XDG_CONFIG_HOME"),
            cache: variable("XDG_CACHE_HOME"),
            home: variable("HOME").or_else(home_of_the_user_database),
            system_cache: is_ours.then(|| system_cache.to_owned()),
        }
    }

    fn config(self) -> Option<PathBuf> {
        self.config.or_else(|| Some(self.home?.join(".config")))
    }

    fn indexes(self) -> Option<PathBuf> {
        // Under sudo the home may be another user's, and that user can write to it.
        let home = self.home.filter(|home| is_ours(home));
        let cache = self.cache.or(self.system_cache);
        let cache = cache.or_else(|| Some(home?.join(".cache")));
        Some(cache?.join(NAME))
    }
}

/// The directory in an environment variable. The specification ignores relative paths.
fn variable(name: &str) -> Option<PathBuf> {
    absolute(std::env::var_os(name)?)
}

fn absolute(path: OsString) -> Option<PathBuf> {
    Some(PathBuf::from(path)).filter(|path| path.is_absolute())
}

/// The home directory in the user database. mount(8) clears the environment, and a system service has none.
fn home_of_the_user_database() -> Option<PathBuf> {
    let user = User::from_uid(Uid::current()).ok().flatten()?;
    absolute(user.dir.into_os_string())
}

fn is_ours(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_home(home: &Path) -> Directories {
        Directories {
            home: Some(home.to_owned()),
            ..Directories::default()
        }
    }

    #[test]
    fn variables_come_before_the_home() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let named = || Directories {
            config: Some("/c".into()),
            cache: Some("/k".into()),
            system_cache: Some("/var/cache".into()),
            ..with_home(home)
        };
        assert_eq!(named().config(), Some("/c".into()));
        assert_eq!(named().indexes(), Some("/k/h5logfs".into()));
        assert_eq!(with_home(home).config(), Some(home.join(".config")));
        let in_home = home.join(".cache/h5logfs");
        assert_eq!(with_home(home).indexes(), Some(in_home));
        let nothing = Directories::default;
        assert_eq!((nothing().config(), nothing().indexes()), (None, None));
    }

    #[test]
    fn roots_indexes_are_in_no_home() {
        let home = tempfile::tempdir().unwrap();
        let root = Directories {
            system_cache: Some("/var/cache".into()),
            ..with_home(home.path())
        };
        assert_eq!(root.indexes(), Some("/var/cache/h5logfs".into()));
    }

    #[test]
    fn indexes_are_not_kept_in_the_home_of_another_user() {
        let home = tempfile::tempdir().unwrap();
        let mut home = home.path();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(home, Some(65534), None).unwrap();
        } else {
            home = Path::new("/");
        }
        assert_eq!(with_home(home).indexes(), None);
    }

    #[test]
    fn relative_directories_are_ignored() {
        assert_eq!(absolute("relative".into()), None);
        assert_eq!(absolute("".into()), None);
        assert_eq!(absolute("/a".into()), Some("/a".into()));
    }
}
