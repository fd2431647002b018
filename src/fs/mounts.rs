//! The kernel's table of mounts, `/proc/self/mountinfo`.
//!
//! The table tells which mount belongs to this process. A request to the mounted file system itself would go to its daemon, which
//! may be this process, or dead.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// Type under which our mounts are listed (`findmnt -t fuse.h5logfs`).
pub const MOUNT_TYPE: &str = "fuse.h5logfs";

const TABLE: &str = "/proc/self/mountinfo";

/// Usual size of the table, in bytes. The kernel does not report the length, and makes the table for each read.
const USUAL_SIZE: usize = 16 << 10;

/// The identity of a mount while it exists. Later the kernel reuses the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    mount: u32,
    /// Device number in the `stat` of its files.
    major: u32,
    minor: u32,
}

impl MountId {
    /// The kernel's number of the mount.
    pub fn number(&self) -> u32 {
        self.mount
    }

    /// The device number in the form of names in `/sys`.
    pub fn device(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.mount, self.major, self.minor)
    }
}

impl FromStr for MountId {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let numbers: Option<Vec<u32>> = text.split(':').map(|n| n.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[mount, major, minor]) => Ok(MountId {
                mount,
                major,
                minor,
            }),
            _ => Err(Fault::Refused(format!(
                "{text}: not of the form MOUNT:MAJOR:MINOR"
            ))),
        }
    }
}

/// A line of the table.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    id: MountId,
    parent: u32,
    /// The mounted directory of the file system: `/`, or another one for a bind mount.
    root: PathBuf,
    mount_point: PathBuf,
    fs_type: String,
    source: PathBuf,
}

/// A file shown by an h5logfs mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub mount_point: PathBuf,
    /// Source of the mount.
    pub source: PathBuf,
    /// Path of the file below the source.
    pub relative: PathBuf,
}

/// A snapshot of the mounts.
#[derive(Debug)]
pub struct Mounts(Vec<Line>);

/// The table as an open file, which a process without free descriptors can still read.
#[derive(Debug)]
pub struct Table(File);

impl Table {
    pub fn open() -> Result<Self> {
        File::open(TABLE)
            .map(Table)
            .map_err(|e| Error::io(TABLE, e))
    }

    /// The present mounts.
    pub fn read(&self) -> Result<Mounts> {
        let mut file = &self.0;
        let mut table = Vec::with_capacity(USUAL_SIZE);
        let outcome = file.rewind().and_then(|()| file.read_to_end(&mut table));
        outcome.map_err(|e| Error::io(TABLE, e))?;
        Ok(Mounts::parse(&table))
    }
}

impl Mounts {
    pub fn now() -> Result<Self> {
        Table::open()?.read()
    }

    fn parse(table: &[u8]) -> Self {
        let lines = table.split(|b| *b == b'\n');
        Mounts(lines.filter_map(Line::parse).collect())
    }

    /// The mount at `mount_point`, if it is an h5logfs and no other mount covers it.
    pub fn ours_at(&self, mount_point: &Path) -> Option<MountId> {
        let at_path = self.0.iter().filter(|m| m.mount_point == mount_point);
        at_path
            .filter(|m| !self.is_covered(m))
            .find(|m| m.fs_type == MOUNT_TYPE)
            .map(|m| m.id)
    }

    /// The path of the mount `id`, if it still exists and no other mount covers it.
    pub fn path_of(&self, id: MountId) -> Option<&Path> {
        self.0
            .iter()
            .find(|m| m.id == id && m.fs_type == MOUNT_TYPE)
            .filter(|m| !self.is_covered(m))
            .map(|m| m.mount_point.as_path())
    }

    /// The file at `path` in the mount with this number, if the mount is an h5logfs.
    pub fn shown_at(&self, mount: u64, path: &Path) -> Option<Shown> {
        let line = self.0.iter().find(|m| u64::from(m.id.mount) == mount)?;
        let line = (line.fs_type == MOUNT_TYPE).then_some(line)?;
        let below = path.strip_prefix(&line.mount_point).ok()?;
        let root = line.root.strip_prefix("/").ok()?;
        Some(Shown {
            mount_point: line.mount_point.clone(),
            source: line.source.clone(),
            relative: root.components().chain(below.components()).collect(),
        })
    }

    /// Whether another mount covers the mount of the line `below`.
    fn is_covered(&self, below: &Line) -> bool {
        self.0
            .iter()
            .any(|m| m.parent == below.id.mount && m.mount_point == below.mount_point)
    }
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let mount = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let mut device = fields.next()?.split(|b| *b == b':');
        let (major, minor) = (number(device.next()?)?, number(device.next()?)?);
        let (root, mount_point) = (unescape(fields.next()?), unescape(fields.next()?));
        // A dash ends the optional fields.
        fields.find(|field| *field == b"-")?;
        let fs_type = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let source = unescape(fields.next()?);
        Some(Line {
            id: MountId {
                mount,
                major,
                minor,
            },
            parent,
            root,
            mount_point,
            fs_type,
            source,
        })
    }
}

fn number(text: &[u8]) -> Option<u32> {
    OsStr::from_bytes(text).to_str()?.parse().ok()
}

/// Undoes the kernel's escapes: blanks and backslashes are a backslash and three octal digits.
fn unescape(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| after.get(..3).and_then(octal))
            .flatten();
        match octal {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:50 / /mnt/a\\040b rw,nosuid,nodev master:3 shared:7 - fuse.h5logfs /data ro,user_id=0
41 22 0:51 / /mnt/covered rw - fuse.h5logfs /data ro
42 41 0:52 / /mnt/covered rw - tmpfs none rw
43 22 0:53 / /mnt/auto rw - autofs systemd-1 rw
44 43 0:54 / /mnt/auto ro - fuse.h5logfs /data ro
45 22 0:50 /run\\0401 /bound ro - fuse.h5logfs /data ro
46 22 0:50 /run\\0401/x.h5 /file ro - fuse.h5logfs /data ro
";

    fn id(text: &str) -> MountId {
        text.parse().unwrap()
    }

    #[test]
    fn our_mount_is_found_by_path_and_by_id() {
        let mounts = Mounts::parse(TABLE);
        let ours = id("40:0:50");
        assert_eq!(mounts.ours_at(Path::new("/mnt/a b")), Some(ours));
        assert_eq!(mounts.path_of(ours), Some(Path::new("/mnt/a b")));
        assert_eq!(mounts.path_of(id("40:0:51")), None);
    }

    #[test]
    fn a_covered_mount_is_not_at_its_path() {
        let mounts = Mounts::parse(TABLE);
        assert_eq!(mounts.ours_at(Path::new("/mnt/covered")), None);
        assert_eq!(mounts.path_of(id("41:0:51")), None);
    }

    #[test]
    fn a_mount_over_an_autofs_trigger_is_found() {
        let mounts = Mounts::parse(TABLE);
        assert_eq!(mounts.ours_at(Path::new("/mnt/auto")), Some(id("44:0:54")));
    }

    #[test]
    fn numbers_that_another_type_uses_now_are_not_ours() {
        let mounts = Mounts::parse(TABLE);
        assert_eq!(mounts.path_of(id("42:0:52")), None);
    }

    #[test]
    fn what_is_shown_is_known_by_the_mount() {
        let mounts = Mounts::parse(TABLE);
        let shown = |mount, path: &str| {
            let shown = mounts.shown_at(mount, Path::new(path))?;
            assert_eq!(shown.source, Path::new("/data"));
            Some(shown.relative)
        };
        assert_eq!(shown(40, "/mnt/a b/x/y.h5"), Some("x/y.h5".into()));
        assert_eq!(shown(40, "/mnt/a b"), Some("".into()));
        assert_eq!(shown(45, "/bound/x.h5"), Some("run 1/x.h5".into()));
        assert_eq!(shown(46, "/file"), Some("run 1/x.h5".into()));
        for (mount, path) in [
            (22, "/mnt/x"),
            (42, "/mnt/covered/x"),
            (40, "/else"),
            (99, "/"),
        ] {
            assert_eq!(shown(mount, path), None, "{path}");
        }
    }

    #[test]
    fn ids_can_be_written_and_read_again() {
        assert_eq!(id("40:0:50").to_string(), "40:0:50");
        assert_eq!(id("40:0:50").device(), "0:50");
        assert!("40:0".parse::<MountId>().is_err());
        assert!("a:b:c".parse::<MountId>().is_err());
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape(b"a\\134b\\011c"), Path::new("a\\b\tc"));
        assert_eq!(unescape(b"a\\9"), Path::new("a\\9"));
    }
}
