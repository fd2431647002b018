//! A FUSE file system for a test. A [`Served`] implements its state.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
    TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

use super::guard::Guard;
use super::{User, is_root, unmount_by_force};

/// The inode number of the mounted directory.
pub const ROOT: u64 = 1;

/// The error of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NoEntry,
    Exists,
    NotEmpty,
    /// The file system does not support the request.
    Invalid,
    /// The file was removed on another node.
    Stale,
    /// The disk is full.
    NoSpace,
    /// The disk fails.
    Failed,
}

pub type Answer<T> = Result<T, Refusal>;

/// Attributes of a file.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub inode: u64,
    pub is_directory: bool,
    pub mode: u16,
    pub owner: (u32, u32),
    pub links: u32,
    pub attributes: Attributes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub size: u64,
    pub modified: SystemTime,
}

/// A directory and a name in it.
pub type Place<'a> = (u64, &'a [u8]);

/// A file system. Files have numbers, the mounted directory has [`ROOT`]. An open file has a handle as well.
pub trait Served: Send + Sync + 'static {
    fn find(&self, inode: u64) -> Answer<Found>;
    fn look_up(&self, place: Place<'_>) -> Answer<u64>;
    fn names(&self, directory: u64) -> Vec<(u64, Vec<u8>)>;
    fn create(
        &self,
        place: Place<'_>,
        is_directory: bool,
        mode: u16,
        owner: (u32, u32),
    ) -> Answer<u64>;
    fn link(&self, inode: u64, place: Place<'_>) -> Answer<()>;
    fn remove(&self, place: Place<'_>) -> Answer<()>;
    /// Renames a file. With `replaces` the new name may exist.
    fn rename(&self, from: Place<'_>, to: Place<'_>, replaces: bool) -> Answer<()>;
    fn open(&self, inode: u64) -> Answer<u64>;
    fn read(&self, inode: u64, handle: u64, offset: u64, len: u64) -> Answer<Vec<u8>>;
    fn write(&self, inode: u64, handle: u64, offset: u64, data: &[u8]) -> Answer<()>;
    fn set_len(&self, inode: u64, len: u64) -> Answer<()>;
    fn set_mode(&self, inode: u64, mode: u16) -> Answer<()>;
    fn sync(&self, inode: u64, handle: u64) -> Answer<()>;
    fn sync_directory(&self, _: u64) -> Answer<()> {
        Ok(())
    }
    /// Called when a file that was open for writing is closed.
    fn written(&self, _: u64) {}
}

/// A file system, mounted until it is dropped.
pub struct ServedMount {
    _guard: Guard,
    mount_point: TempDir,
    _session: BackgroundSession,
}

impl ServedMount {
    pub fn new(served: impl Served) -> Self {
        let mount_point = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(mount_point.path());
        let mut config = Config::default();
        // Scan processes of root run as another user.
        if is_root() {
            config.acl = SessionACL::All;
        }
        let session = fuser::spawn_mount(Requests(served), mount_point.path(), &config).unwrap();
        ServedMount {
            _guard: guard,
            mount_point,
            _session: session,
        }
    }

    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }
}

impl Drop for ServedMount {
    fn drop(&mut self) {
        unmount_by_force(User::Caller, self.mount_point.path());
    }
}

/// The kernel caches neither attributes nor content: the file system decides what is shown.
const TTL: Duration = Duration::ZERO;
const OPEN: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

struct Requests<S>(S);

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoEntry => Errno::ENOENT,
            Refusal::Exists => Errno::EEXIST,
            Refusal::NotEmpty => Errno::ENOTEMPTY,
            Refusal::Invalid => Errno::EINVAL,
            Refusal::Stale => Errno::ESTALE,
            Refusal::NoSpace => Errno::ENOSPC,
            Refusal::Failed => Errno::EIO,
        }
    }
}

fn attributes(found: &Found) -> FileAttr {
    let Found { attributes, .. } = found;
    FileAttr {
        ino: INodeNo(found.inode),
        size: attributes.size,
        blocks: attributes.size.div_ceil(512),
        atime: attributes.modified,
        mtime: attributes.modified,
        ctime: attributes.modified,
        crtime: attributes.modified,
        kind: kind(found.is_directory),
        perm: found.mode,
        nlink: found.links,
        uid: found.owner.0,
        gid: found.owner.1,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn kind(is_directory: bool) -> FileType {
    if is_directory {
        FileType::Directory
    } else {
        FileType::RegularFile
    }
}

impl<S: Served> Requests<S> {
    fn found(&self, inode: u64) -> Answer<FileAttr> {
        Ok(attributes(&self.0.find(inode)?))
    }

    fn create_in(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        is_directory: bool,
        mode: u32,
    ) -> Answer<FileAttr> {
        let owner = (request.uid(), request.gid());
        let mode = (mode & 0o7777) as u16;
        let created = self
            .0
            .create(place(parent, name), is_directory, mode, owner);
        self.found(created?)
    }
}

fn place(parent: INodeNo, name: &OsStr) -> Place<'_> {
    (parent.0, name.as_bytes())
}

fn entry(outcome: Answer<FileAttr>, reply: ReplyEntry) {
    match outcome {
        Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
        Err(refusal) => reply.error(refusal.into()),
    }
}

fn attr(outcome: Answer<FileAttr>, reply: ReplyAttr) {
    match outcome {
        Ok(attributes) => reply.attr(&TTL, &attributes),
        Err(refusal) => reply.error(refusal.into()),
    }
}

fn empty(outcome: Answer<()>, reply: ReplyEmpty) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(refusal) => reply.error(refusal.into()),
    }
}

impl<S: Served> Filesystem for Requests<S> {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.look_up(place(parent, name));
        entry(found.and_then(|inode| self.found(inode)), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attr(self.found(inode.0), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut set = Ok(());
        if let Some(mode) = mode {
            let mode = (mode & 0o7777) as u16;
            set = self.0.set_mode(inode.0, mode);
        }
        if let (Ok(()), Some(size)) = (set, size) {
            set = self.0.set_len(inode.0, size);
        }
        attr(set.and_then(|()| self.found(inode.0)), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(self.create_in(request, parent, name, true, mode), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let created = self.create_in(request, parent, name, false, mode);
        let opened = created.and_then(|found| Ok((found, self.0.open(found.ino.0)?)));
        match opened {
            Ok((attributes, handle)) => {
                reply.created(&TTL, &attributes, Generation(0), FileHandle(handle), OPEN);
            }
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.0.remove(place(parent, name)), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.unlink(request, parent, name, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (place(parent, name), place(new_parent, new_name));
        let renamed = match flags {
            RenameFlags::RENAME_NOREPLACE => self.0.rename(from, to, false),
            flags if flags.is_empty() => self.0.rename(from, to, true),
            _ => Err(Refusal::Invalid),
        };
        empty(renamed, reply);
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.0.link(inode.0, place(new_parent, new_name));
        entry(linked.and_then(|()| self.found(inode.0)), reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open(inode.0) {
            Ok(handle) => reply.opened(FileHandle(handle), OPEN),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(inode.0, handle.0, offset, size.into()) {
            Ok(bytes) => reply.data(&bytes),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.write(inode.0, handle.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        flags: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        const ACCESS: i32 = 3;
        if flags.0 & ACCESS != 0 {
            self.0.written(inode.0);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.0.sync(inode.0, handle.0), reply);
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(self.0.sync_directory(inode.0), reply);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = self.0.names(inode.0);
        for (at, (number, name)) in names.iter().enumerate().skip(offset as usize) {
            let found = self
                .found(*number)
                .map_or(FileType::RegularFile, |f| f.kind);
            if reply.add(
                INodeNo(*number),
                at as u64 + 1,
                found,
                OsStr::from_bytes(name),
            ) {
                break;
            }
        }
        reply.ok();
    }
}
