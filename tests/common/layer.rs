//! A file system with faults: it shows the files of a directory, and requests fail as a test demands: as on a broken
//! disk, or on a file server that has lost its state.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyOpen, Request, SessionACL,
};
use rustix::io::Errno as Os;
use tempfile::TempDir;

use super::guard::Guard;
use super::{User, is_root, unmount_by_force};

/// The requests that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failing {
    /// Reads.
    Reads,
    /// Reads of bytes from this offset on.
    ReadsFrom(u64),
    /// Reads, opens, and requests for attributes.
    Everything,
}

/// Faults by file name.
type Faults = Arc<Mutex<HashMap<OsString, (Failing, Os)>>>;

/// The files of a directory, mounted elsewhere until dropped.
pub struct Layer {
    faults: Faults,
    _guard: Guard,
    mount_point: TempDir,
    _session: BackgroundSession,
}

impl Layer {
    pub fn over(dir: &Path) -> Self {
        let mount_point = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(mount_point.path());
        let faults = Faults::default();
        let files = Files::of(dir, &faults);
        let mut config = Config::default();
        // Scan processes of root run as another user.
        if is_root() {
            config.acl = SessionACL::All;
        }
        let session = fuser::spawn_mount(files, mount_point.path(), &config).unwrap();
        Layer {
            faults,
            _guard: guard,
            mount_point,
            _session: session,
        }
    }

    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// Makes requests for a file fail from now on.
    pub fn fail(&self, name: &str, failing: Failing, errno: Os) {
        self.faults
            .lock()
            .unwrap()
            .insert(name.into(), (failing, errno));
    }

    /// Ends all faults.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        // The tested daemon may hold files a little longer.
        unmount_by_force(User::Caller, self.mount_point.path());
    }
}

/// The kernel caches neither attributes nor content.
const TTL: Duration = Duration::ZERO;

struct Files {
    dir: PathBuf,
    /// The file with inode number n + 2.
    names: Vec<OsString>,
    faults: Faults,
}

impl Files {
    fn of(dir: &Path, faults: &Faults) -> Self {
        let entries = fs::read_dir(dir).unwrap();
        Files {
            dir: dir.to_owned(),
            names: entries.map(|entry| entry.unwrap().file_name()).collect(),
            faults: faults.clone(),
        }
    }

    fn name(&self, number: INodeNo) -> Option<&OsStr> {
        let at = usize::try_from(number.0).unwrap().checked_sub(2)?;
        self.names.get(at).map(OsString::as_os_str)
    }

    /// Fails if the test demands it. `read` is the end of the range of a read request.
    fn check(&self, name: &OsStr, read: Option<u64>) -> Result<(), Errno> {
        let faults = self.faults.lock().unwrap();
        let Some((failing, errno)) = faults.get(name) else {
            return Ok(());
        };
        let fails = match failing {
            Failing::Reads => read.is_some(),
            Failing::ReadsFrom(sound) => read.is_some_and(|end| end > *sound),
            Failing::Everything => true,
        };
        if fails {
            Err(Errno::from_i32(errno.raw_os_error()))
        } else {
            Ok(())
        }
    }

    fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let (path, kind) = match self.name(number) {
            Some(name) => {
                self.check(name, None)?;
                (self.dir.join(name), FileType::RegularFile)
            }
            None => (self.dir.clone(), FileType::Directory),
        };
        let found = fs::metadata(path)?;
        let changed = Duration::new(found.ctime() as u64, found.ctime_nsec() as u32);
        Ok(FileAttr {
            ino: number,
            size: found.len(),
            blocks: found.blocks(),
            atime: found.accessed()?,
            mtime: found.modified()?,
            ctime: std::time::UNIX_EPOCH + changed,
            crtime: found.modified()?,
            kind,
            perm: (found.mode() & 0o7777) as u16,
            nlink: 1,
            uid: found.uid(),
            gid: found.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn bytes(&self, number: INodeNo, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let name = self.name(number).ok_or(Errno::EISDIR)?;
        self.check(name, Some(offset.saturating_add(u64::from(size))))?;
        let file = File::open(self.dir.join(name))?;
        let mut bytes = vec![0; size as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], offset + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(at) = self.names.iter().position(|known| known == name) else {
            return reply.error(Errno::ENOENT);
        };
        match self.attributes(INodeNo(at as u64 + 2)) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self
            .name(number)
            .map_or(Ok(()), |name| self.check(name, None))
        {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.bytes(number, offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        for (at, name) in self.names.iter().enumerate().skip(offset as usize) {
            let number = INodeNo(at as u64 + 2);
            if reply.add(number, at as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }
}
