//! The adapter between fuser and `service`: it decodes requests and encodes answers.
//!
//! Requests that this file system does not need are answered with `ENOSYS`, without a log line. The kernel remembers that for
//! the life of the mount, and stops asking.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags,
    PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_common::task::StopFlag;

use super::access::Caller;
use super::errno::{guarded, guarded_until};
use super::handles::Handle;
use super::passthrough::Passthrough;
use super::pruner;
use super::reply::{Page, TTL, file_attr, fill, fill_with_attributes, lifetime, reply_bytes};
use super::scheduler::{Rules, Scheduler};
use super::service::{NamedInode, PageCache, Service};
use super::watch::Watch;

/// Number of background requests, such as read-ahead, that the kernel may have pending. All users share it, and beyond it the
/// reads of all wait. So it is as large as possible, and each user is limited elsewhere. An ordinary user's mount gets the
/// kernel's offer (`max_user_bgreq`).
const MAX_BACKGROUND: u16 = u16::MAX;

thread_local! {
    /// Buffer of a thread. Its reuse saves an allocation and zeroing for each read.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub struct LogFilesystem {
    service: Arc<Service>,
    scheduler: Scheduler,
    /// Whether other users may use the mount.
    allow_other: bool,
    /// `None`: the daemon reads all files.
    passthrough: Option<Arc<Passthrough>>,
}

impl LogFilesystem {
    /// `passthrough`: lets the kernel read plain files itself, where it can.
    pub fn new(service: Service, rules: Rules, passthrough: bool) -> Self {
        let service = Arc::new(service);
        LogFilesystem {
            scheduler: Scheduler::new(Arc::clone(&service), rules),
            service,
            allow_other: rules.is_shared,
            passthrough: passthrough.then(Arc::default),
        }
    }

    /// Stops requests.
    pub fn watch(&self) -> &Arc<Watch> {
        self.scheduler.watch()
    }

    /// The calling user, if it may differ from the user of this process.
    fn caller(&self, request: &Request) -> Option<Caller> {
        let caller = || Caller::new(request.uid(), request.gid(), request.pid());
        self.allow_other.then(caller)
    }

    /// The number of the calling user, if it may differ from the user of this process.
    fn user(&self, request: &Request) -> Option<u32> {
        self.allow_other.then(|| request.uid())
    }
}

/// Requests capabilities one at a time: fuser refuses a whole set if the kernel lacks one of them.
fn request_capabilities(config: &mut KernelConfig, allow_other: bool) {
    let mut wanted = vec![
        // A listing includes attributes when the kernel expects to need them: at the start of a directory, and while listed
        // names are looked up.
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        // Look-ups and listings in one directory run in parallel.
        InitFlags::FUSE_PARALLEL_DIROPS,
        // The kernel drops the cached pages of a plain file when its time stamp or size changes.
        InitFlags::FUSE_AUTO_INVAL_DATA,
    ];
    if allow_other {
        // The kernel then also checks access control lists, and caches them as long as attributes. A mount for one user does
        // not need this: the system checks when that user's daemon opens a file.
        wanted.push(InitFlags::FUSE_POSIX_ACL);
    }
    for capability in wanted {
        if config.add_capabilities(capability).is_err() {
            log::debug!("the kernel lacks {capability:?}");
        }
    }
}

impl Filesystem for LogFilesystem {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        request_capabilities(config, self.allow_other);
        if let Some(passthrough) = &self.passthrough {
            passthrough.request(config);
        }
        // If the kernel refuses a value, it offers another one.
        if let Err(most) = config.set_max_background(MAX_BACKGROUND) {
            let _ = config.set_max_background(most);
        }
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        let version = config.kernel_abi();
        pruner::prepare(self.service.inodes(), (version.0, version.1));
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let search = self.service.inodes().search(parent.0);
        let answer = |found: Result<NamedInode, Errno>| {
            match found {
                Ok(NamedInode {
                    number,
                    attributes,
                    names,
                }) => {
                    let attr = file_attr(number, &attributes);
                    // Inode numbers are never reused, so one generation is enough.
                    reply.entry_with_ttls(&TTL, &lifetime(names), &attr, Generation(0));
                }
                Err(errno) => reply.error(errno),
            }
            drop(search);
        };
        let (name, last) = (name.to_owned(), name.to_owned());
        let work = move |service: &Service, wait| service.look_up(parent.0, &name, wait);
        let then = move |service: &Service| service.scan_after(parent.0, &last);
        self.scheduler.run_then(req.into(), work, answer, then);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, count: u64) {
        self.service.forget(ino.0, count);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let work = move |service: &Service, wait| service.attributes(ino.0, wait);
        self.scheduler
            .run(req.into(), work, move |found| match found {
                Ok(attributes) => reply.attr(&TTL, &file_attr(ino.0, &attributes)),
                Err(errno) => reply.error(errno),
            });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let work = move |service: &Service, _| service.link_target(ino.0).map(Lookup::Known);
        self.scheduler.run(req.into(), work, |target| match target {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let caller = self.caller(req);
        let work = move |service: &Service, wait| service.open_file(ino.0, caller.as_ref(), wait);
        let passthrough = self.passthrough.clone();
        self.scheduler
            .run(req.into(), work, move |opened| match opened {
                Ok(open) => {
                    let handle = FileHandle(open.handle);
                    if let Some(passthrough) = passthrough
                        && let Some(file) = open.content.as_deref().and_then(Handle::only_file)
                        && let Some(backing) = passthrough.open(ino.0, file, &reply)
                    {
                        return reply.opened_passthrough(handle, FopenFlags::empty(), &backing);
                    }
                    let flags = match open.pages {
                        PageCache::Keep => FopenFlags::FOPEN_KEEP_CACHE,
                        PageCache::Refresh => FopenFlags::empty(),
                        PageCache::Bypass => FopenFlags::FOPEN_DIRECT_IO,
                    };
                    reply.opened(handle, flags);
                }
                Err(errno) => reply.error(errno),
            });
    }

    fn read(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let user = self.user(req);
        self.scheduler.read(req.into(), move |service, stop| {
            let stop = match stop {
                Ok(stop) => stop,
                Err(errno) => return reply.error(errno),
            };
            let task = service.task(user, stop);
            BUFFER.with_borrow_mut(|buffer| {
                let size = size as usize;
                if buffer.len() < size {
                    buffer.resize(size, 0);
                }
                let wanted = &mut buffer[..size];
                match guarded_until(stop, || service.read(&task, fh.0, offset, wanted)) {
                    Ok(filled) => reply.data(&buffer[..filled.min(size)]),
                    Err(errno) => reply.error(errno),
                }
            });
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.service.close(ino.0, fh.0);
        if let Some(passthrough) = &self.passthrough {
            passthrough.close(ino.0);
        }
        reply.ok();
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let caller = self.caller(req);
        let work = move |service: &Service, _| {
            let handle = service.open_directory(ino.0, caller.as_ref());
            handle.map(Lookup::Known)
        };
        self.scheduler.run(req.into(), work, |opened| match opened {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        });
    }

    fn readdir(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let page = Page::new(reply);
        let work = {
            let page = page.clone();
            move |service: &Service, wait| page.fill(|page| fill(page, service, fh, offset, wait))
        };
        self.scheduler.run(req.into(), work, move |filled| {
            page.send(|page| match filled {
                Ok(()) => page.ok(),
                Err(errno) => page.error(errno),
            });
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let search = self.service.inodes().search(ino.0);
        let page = Page::new(reply);
        let work = {
            let page = page.clone();
            move |service: &Service, wait| {
                page.fill(|page| fill_with_attributes(page, service, fh, offset, wait))
            }
        };
        self.scheduler.run(req.into(), work, move |filled| {
            page.send(|page| match filled {
                Ok(()) => page.ok(),
                Err(errno) => page.error(errno),
            });
            drop(search);
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.service.close(ino.0, fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let space = match guarded(|| self.service.space()) {
            Ok(space) => space,
            Err(errno) => return reply.error(errno),
        };
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        reply.statfs(
            space.f_blocks,
            space.f_bfree,
            space.f_bavail,
            space.f_files,
            space.f_ffree,
            narrow(space.f_bsize),
            narrow(space.f_namemax),
            narrow(space.f_frsize),
        );
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (caller, user) = (self.caller(req), self.user(req));
        let name = name.to_owned();
        let scan = move |service: &Service| {
            // The following work reports an error.
            let _ = service.attributes(ino.0, Wait::Yes);
        };
        let work = move |service: &Service, wait, stop: &StopFlag| {
            service.xattr(
                ino.0,
                &name,
                caller.as_ref(),
                wait,
                &service.task(user, stop),
            )
        };
        self.scheduler
            .run_long(req.into(), scan, work, move |value| match value {
                Ok(value) => reply_bytes(reply, size, &value),
                Err(errno) => reply.error(errno),
            });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = self.caller(req);
        let work = move |service: &Service, _| {
            let names = service.xattrs(ino.0, caller.as_ref());
            names.map(Lookup::Known)
        };
        self.scheduler
            .run(req.into(), work, move |names| match names {
                Ok(names) => reply_bytes(reply, size, &names),
                Err(errno) => reply.error(errno),
            });
    }

    // Requests that are not needed here. The kernel remembers the answer.

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _req: &Request, _ino: INodeNo, _block: u32, _index: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }

    fn getlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn setlk(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    // Requests that would change something. The mount is read-only, and the kernel refuses most of them. After a remount as
    // writable they arrive here.

    fn setattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mknod(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn mkdir(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn rmdir(&self, _req: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }

    fn symlink(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn rename(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn link(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EROFS);
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EROFS);
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::EROFS);
    }

    fn setxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EROFS);
    }

    fn removexattr(&self, _req: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EROFS);
    }
}
