//! Answers in the form of fuser: attributes, extended attributes, pages of listings.

use std::sync::Arc;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus,
    ReplyXattr,
};

use parking_lot::Mutex;

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_common::error::Result;

use super::attributes::Attributes;
use super::service::{Added, NameCache, Service};

/// How long the kernel may use a name or attributes without asking again: the longest delay until a log shows its growth.
pub const TTL: Duration = Duration::from_secs(1);

/// How long the kernel may use a name without asking again.
pub fn lifetime(names: NameCache) -> Duration {
    match names {
        NameCache::Keep => TTL,
        NameCache::LookUp | NameCache::Unknown => Duration::ZERO,
    }
}

/// Read size recommended by `stat`, in bytes.
const BLOCK_SIZE: u32 = 4096;

pub fn file_attr(number: u64, attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.blocks(),
        atime: attributes.accessed,
        mtime: attributes.modified,
        ctime: attributes.changed,
        crtime: attributes.changed,
        kind: file_type(attributes.kind),
        perm: attributes.permissions,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device_number,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

pub fn file_type(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Kind;
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    }
}

/// Answers with `bytes`, or with their number if the caller's buffer has size 0.
pub fn reply_bytes(reply: ReplyXattr, buffer_size: u32, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(len) if buffer_size == 0 => reply.size(len),
        Ok(len) if len <= buffer_size => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}

/// A page of a listing. One thread may begin to fill it and another one finish. Nobody ever waits for its lock: the first
/// thread has released it when the other one begins.
#[derive(Debug)]
pub struct Page<R>(Arc<Mutex<Option<R>>>);

impl<R> Clone for Page<R> {
    fn clone(&self) -> Self {
        Page(Arc::clone(&self.0))
    }
}

impl<R> Page<R> {
    pub fn new(reply: R) -> Self {
        Page(Arc::new(Mutex::new(Some(reply))))
    }

    pub fn fill(&self, work: impl FnOnce(&mut R) -> Result<Lookup<()>>) -> Result<Lookup<()>> {
        let mut page = self.0.lock();
        page.as_mut().map_or(Ok(Lookup::Known(())), work)
    }

    /// Answers the request.
    pub fn send(self, answer: impl FnOnce(R)) {
        if let Some(reply) = self.0.lock().take() {
            answer(reply);
        }
    }
}

/// Adds names after `position` in an open directory to a page, as many as fit.
pub fn fill(
    page: &mut ReplyDirectory,
    service: &Service,
    handle: FileHandle,
    position: u64,
    wait: Wait,
) -> Result<Lookup<()>> {
    service.list(handle.0, position, wait, |listed| {
        let (inode, kind) = (INodeNo(listed.inode), file_type(listed.kind));
        added(page.add(inode, listed.next, kind, &listed.name))
    })
}

/// Adds names with attributes to a page, as [`fill`] does. The kernel counts a look-up for each name, except for `.` and
/// `..`.
pub fn fill_with_attributes(
    page: &mut ReplyDirectoryPlus,
    service: &Service,
    handle: FileHandle,
    position: u64,
    wait: Wait,
) -> Result<Lookup<()>> {
    service.list_with_attributes(handle.0, position, wait, |listed, found| {
        let attr = file_attr(found.number, &found.attributes);
        // A name that is not kept has no kept attributes: a reply has one time for both.
        let ttl = lifetime(found.names);
        added(page.add(
            attr.ino,
            listed.next,
            &listed.name,
            &ttl,
            &attr,
            Generation(0),
        ))
    })
}

fn added(is_full: bool) -> Added {
    if is_full { Added::Full } else { Added::Yes }
}
