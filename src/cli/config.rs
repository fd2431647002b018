//! The configuration file: mount options for every mount, or for the mounts of one source or at one
//! mount point.
//!
//! ```toml
//! [defaults]
//! cache_size = "2G"
//!
//! [[mount]]
//! source = "/data/logs"
//! point = "/mnt/logs"
//! allow_other = true
//! ```
//!
//! The keys are the mount options (`options::all`), with values as in `-o`.

mod command;
mod parse;

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use h5logfs_catalog::directories;

pub(super) use command::no_source;
pub use command::{ConfigArgs, run};

/// Configuration file for root's mounts only.
pub const SYSTEM_FILE: &str = "/etc/h5logfs.toml";

/// Name of an ordinary user's configuration file.
const USER_FILE: &str = "h5logfs.toml";

/// Size limit of a configuration file, in bytes.
const LARGEST: u64 = 1 << 20;

/// The content of one file.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    path: PathBuf,
    defaults: Vec<Setting>,
    mounts: Vec<Section>,
}

/// A `[[mount]]` section. It has a source, or a point, or both.
#[derive(Debug, Default, PartialEq, Eq)]
struct Section {
    line: usize,
    source: Option<PathBuf>,
    point: Option<PathBuf>,
    settings: Vec<Setting>,
}

/// A mount option and the line of the file that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub line: usize,
    /// The option as for `-o`: `name`, `noname` or `name=value`.
    pub option: OsString,
}

/// All errors of a file, each with file, line and key.
#[derive(Debug, thiserror::Error)]
pub struct ConfigErrors(Vec<String>);

impl ConfigErrors {
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// The default file for this user's mounts, if it exists. `--config` overrides it.
pub fn usual_file() -> Option<PathBuf> {
    let path = if rustix::process::geteuid().is_root() {
        PathBuf::from(SYSTEM_FILE)
    } else {
        directories::config()?.join(USER_FILE)
    };
    // A dangling link counts as a file, so that the user learns of it by an error.
    path.symlink_metadata().is_ok().then_some(path)
}

/// Reads the named file, otherwise the default one. `None` if there is neither.
pub fn read(named: Option<&Path>) -> Result<Option<Config>, ConfigErrors> {
    let path = named.map(Path::to_owned).or_else(usual_file);
    path.map(|path| Config::read(&path)).transpose()
}

impl Config {
    /// Reads a file. Fails with all of its errors, or if users other than root and the reader can write it.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let text = trusted_text(path)
            .map_err(|e| ConfigErrors(vec![format!("{}: {e}", path.display())]))?;
        Config::parse(path, &text)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The source in the last section that has `point` and a source.
    pub fn source_of(&self, point: &Path) -> Option<&Path> {
        let point = GivenPath::new(point);
        let sections = self.mounts.iter().rev();
        let at_point = |section: &&Section| section.point.as_deref().is_some_and(|p| point.is(p));
        sections
            .filter(at_point)
            .find_map(|section| section.source.as_deref())
    }

    /// The settings for a mount: the defaults, then those of each matching section. Later ones win.
    pub fn settings(&self, source: &Path, point: &Path) -> impl Iterator<Item = &Setting> {
        let (source, point) = (GivenPath::new(source), GivenPath::new(point));
        let applies = move |section: &&Section| {
            section.source.as_deref().is_none_or(|s| source.is(s))
                && section.point.as_deref().is_none_or(|p| point.is(p))
        };
        let sections = self.mounts.iter().filter(applies);
        self.defaults
            .iter()
            .chain(sections.flat_map(|section| &section.settings))
    }
}

/// A path of the command line, as given and with links resolved. The file may contain either form. Paths in the file are not
/// resolved, because the server of another mount's source may be down.
struct GivenPath {
    given: PathBuf,
    real: Option<PathBuf>,
}

impl GivenPath {
    fn new(path: &Path) -> Self {
        GivenPath {
            given: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            real: path.canonicalize().ok(),
        }
    }

    fn is(&self, name: &Path) -> bool {
        self.given == name || self.real.as_deref() == Some(name)
    }
}

/// Reads a file that only root and the reader can have written.
fn trusted_text(path: &Path) -> io::Result<String> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    // Without NONBLOCK, opening a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return refused("is not a regular file".into());
    }
    let reader = rustix::process::geteuid().as_raw();
    if found.uid() != 0 && found.uid() != reader {
        return refused(format!("belongs to user {}: not trusted", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        return refused(format!(
            "other users may write to it (mode {mode:04o}): not trusted"
        ));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return refused(format!("has more than {LARGEST} bytes"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("/c"), text).unwrap()
    }

    fn options(config: &Config, source: &str, point: &str) -> Vec<String> {
        let settings = config.settings(Path::new(source), Path::new(point));
        let text = |setting: &Setting| setting.option.clone().into_string().unwrap();
        settings.map(text).collect()
    }

    const TEXT: &str = r#"
        [[mount]]
        source = "/data/a"
        threads = 5
        allow_other = false

        [defaults]
        threads = 3
        allow_other = true

        [[mount]]
        source = "/data/a"
        point = "/mnt/a/"
        threads = 7

        [[mount]]
        point = "/mnt/b"
        chunk = "auto"
    "#;

    #[test]
    fn sections_hold_for_their_mounts_and_come_after_the_defaults() {
        let config = config(TEXT);
        let defaults = ["threads=3", "allow_other"];
        let with = |more: &[&'static str]| [&defaults, more].concat();
        assert_eq!(options(&config, "/data/c", "/mnt/c"), defaults);
        let source = ["threads=5", "noallow_other"];
        assert_eq!(options(&config, "/data/a", "/mnt/c"), with(&source));
        let both = [&source[..], &["threads=7"]].concat();
        assert_eq!(options(&config, "/data/a/", "/mnt/a"), with(&both));
        assert_eq!(options(&config, "/x", "/mnt/b"), with(&["chunk=auto"]));
    }

    #[test]
    fn the_mount_point_leads_to_the_source() {
        let config = config(TEXT);
        let source = Some(Path::new("/data/a"));
        assert_eq!(config.source_of(Path::new("/mnt/a")), source);
        assert_eq!(config.source_of(Path::new("/mnt/b")), None);
    }

    #[test]
    fn a_place_may_be_named_by_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        let link = dir.path().join("link");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let path = GivenPath::new(&link);
        assert!(path.is(&link) && path.is(&real));
        assert!(!path.is(dir.path()));
    }

    #[test]
    fn a_file_that_others_may_write_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file.toml");
        fs::write(&path, "[defaults]\nthreads = 2\n").unwrap();
        let with_mode = |mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Config::read(&path).map_err(|e| e.to_string())
        };
        assert!(with_mode(0o644).is_ok());
        for mode in [0o664, 0o646] {
            assert!(
                with_mode(mode)
                    .unwrap_err()
                    .contains("other users may write")
            );
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(with_mode(0o644).unwrap_err().contains("user 65534"));
        }
        let missing = Config::read(&dir.path().join("missing")).unwrap_err();
        assert!(missing.to_string().contains("missing: No such file"));
        let directory = Config::read(dir.path()).unwrap_err();
        assert!(directory.to_string().contains("not a regular file"));
    }
}
