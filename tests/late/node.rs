//! The mount of a [`Cluster`] on one node.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL,
    TimeOrNow, WriteFlags,
};
use tempfile::TempDir;

use super::common::guard::Guard;
use super::common::{User, is_root, unmount_by_force};
use super::model::{Answer, Cluster, Found, Refusal};

/// The file system on one node, unmounted when dropped.
pub struct Node {
    _guard: Guard,
    mount_point: TempDir,
    _session: BackgroundSession,
}

impl Node {
    /// Nodes have numbers from 1 on.
    pub fn new(cluster: &Arc<Mutex<Cluster>>, number: usize) -> Self {
        let mount_point = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(mount_point.path());
        let mut config = Config::default();
        // Processes that scan for root run as another user.
        if is_root() {
            config.acl = SessionACL::All;
        }
        let shown = Shown {
            cluster: Arc::clone(cluster),
            node: number,
        };
        let session = fuser::spawn_mount(shown, mount_point.path(), &config).unwrap();
        Node {
            _guard: guard,
            mount_point,
            _session: session,
        }
    }

    pub fn path(&self) -> &Path {
        self.mount_point.path()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        unmount_by_force(User::Caller, self.mount_point.path());
    }
}

/// The kernel caches neither attributes nor bytes: what is late is up to the cluster.
const TTL: Duration = Duration::ZERO;
const OPEN: FopenFlags = FopenFlags::FOPEN_DIRECT_IO;

struct Shown {
    cluster: Arc<Mutex<Cluster>>,
    node: usize,
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NoEntry => Errno::ENOENT,
            Refusal::Exists => Errno::EEXIST,
            Refusal::Stale => Errno::ESTALE,
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

impl Shown {
    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.cluster.lock().unwrap()
    }

    fn found(&self, inode: u64) -> Answer<FileAttr> {
        let found = self.cluster().find(self.node, inode)?;
        Ok(attributes(&found))
    }

    fn create_in(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        is_directory: bool,
        mode: u32,
    ) -> Answer<FileAttr> {
        let place = (parent.0, name.as_bytes());
        let owner = (request.uid(), request.gid());
        let mode = (mode & 0o7777) as u16;
        let created = self
            .cluster()
            .create(self.node, place, is_directory, mode, owner);
        self.found(created?)
    }
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

impl Filesystem for Shown {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.cluster().look_up(self.node, parent.0, name.as_bytes());
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
            set = self.cluster().set_mode(self.node, inode.0, mode);
        }
        if let (Ok(()), Some(size)) = (set, size) {
            set = self.cluster().set_len(self.node, inode.0, size);
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
        match self.create_in(request, parent, name, false, mode) {
            Ok(attributes) => {
                let handle = FileHandle(self.cluster().handle(self.node));
                reply.created(&TTL, &attributes, Generation(0), handle, OPEN);
            }
            Err(refusal) => reply.error(refusal.into()),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.cluster().remove(self.node, parent.0, name.as_bytes());
        empty(removed, reply);
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
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (
            (parent.0, name.as_bytes()),
            (new_parent.0, new_name.as_bytes()),
        );
        let renamed = self.cluster().rename(self.node, from, to);
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
        let linked = self
            .cluster()
            .link(self.node, inode.0, new_parent.0, new_name.as_bytes());
        entry(linked.and_then(|()| self.found(inode.0)), reply);
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.cluster().open(self.node, inode.0) {
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
        let opened = (self.node, handle.0);
        let read = self
            .cluster()
            .read_open(opened, inode.0, offset, size.into());
        match read {
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
        let opened = (self.node, handle.0);
        match self.cluster().write_open(opened, inode.0, offset, data) {
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
            self.cluster().sync(inode.0);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(
            self.cluster().sync_open(self.node, inode.0, handle.0),
            reply,
        );
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = self.cluster().names(self.node, inode.0);
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
