//! The file behind a path in a mount, for programs that need the log itself.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};

use h5logfs_log::log_dir;
use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::mounts::{Mounts, Shown};
use super::{virtual_files, xattr};

/// A file of a source, and its path in a mount. Its text says where the file itself is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownFile {
    path: PathBuf,
    mount_point: PathBuf,
    source: PathBuf,
}

impl ShownFile {
    /// The file shown at `path`; `None` outside of h5logfs mounts. This asks the kernel, not the daemon, which may be another
    /// user's.
    pub fn at(path: &Path) -> Option<Self> {
        let (mount, real) = mount_of(path)?;
        let mut shown = Mounts::now().ok()?.shown_at(mount, &real)?;
        shown.relative = virtual_files::path_in_source(&shown.relative)?.to_owned();
        Some(ShownFile {
            path: path.to_owned(),
            source: source_of(&shown),
            mount_point: shown.mount_point,
        })
    }

    /// Path in the mount.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Mount point of the mount.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Path of the file itself, as the mount knew it.
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// Whether the file is shown as canonical HDF5.
    pub fn is_view(&self) -> bool {
        rustix::fs::getxattr(&self.path, xattr::LAYOUT, &mut [0; 256][..]).is_ok()
    }
}

impl fmt::Display for ShownFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mount_point = self.mount_point.display();
        if self.source.starts_with(&self.mount_point) {
            return write!(
                f,
                "the file itself lies below the mount {mount_point}, which covers it: unmount that first"
            );
        }
        write!(
            f,
            "the file itself is {}, which the mount {mount_point} shows here",
            self.source.display()
        )
    }
}

/// The number of the mount that contains `path`, and the real path. A user without access to the mount gets them, too.
fn mount_of(path: &Path) -> Option<(u64, PathBuf)> {
    let absolute = std::path::absolute(path).ok()?;
    let (reached, number) = absolute.ancestors().find_map(|reached| {
        // Requests no attributes, because the root of another user's mount does not answer.
        let found = rustix::fs::statx(CWD, reached, AtFlags::empty(), StatxFlags::empty());
        found.ok().map(|found| (reached, found.stx_mnt_id))
    })?;
    let rest = absolute.strip_prefix(reached).ok()?;
    let is_name = |part| matches!(part, Component::Normal(_));
    let real = reached.canonicalize().ok()?;
    rest.components()
        .all(is_name)
        .then(|| (number, real.components().chain(rest.components()).collect()))
}

/// The source. It may be a single log, which the mount shows by its name.
fn source_of(shown: &Shown) -> PathBuf {
    let is_named = shown.source.file_name() == Some(shown.relative.as_os_str());
    let is_file = fs::metadata(&shown.source).map_or(is_named, |found| found.is_file());
    if is_file {
        return shown.source.clone();
    }
    let is_single = log_dir::named_by(&shown.source).is_some();
    let dir = shown.source.parent().filter(|_| is_single);
    let source = dir.unwrap_or(&shown.source).join(&shown.relative);
    log_dir::named_by(&source).unwrap_or(source)
}
