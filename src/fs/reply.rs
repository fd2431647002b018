//! Answers in the form of fuser: attributes, extended attributes, pages of listings.

use std::ffi::OsStr;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Generation, INodeNo, ReplyDirectoryPlus, ReplyXattr,
};

use h5logfs_catalog::{Lookup, Wait};
use h5logfs_core::error::Result;

use super::attributes::Attributes;
use super::service::{NameCache, SCANNED_AHEAD, Service};

/// How long the kernel may use a name or attributes without asking again. A log that has grown shows after this time
/// at the latest.
pub const TTL: Duration = Duration::from_secs(1);

/// How long the kernel may use a name without asking again.
pub fn lifetime(names: NameCache) -> Duration {
    match names {
        NameCache::Keep => TTL,
        NameCache::LookUp | NameCache::Unknown => Duration::ZERO,
    }
}

/// The size of one read that `stat` recommends, in bytes.
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

/// The position in a listing that the kernel continues from.
pub fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// A page of a listing with attributes.
pub struct Page {
    pub directory: INodeNo,
    pub handle: FileHandle,
    /// The page begins after the entry with this offset.
    pub offset: u64,
    pub reply: ReplyDirectoryPlus,
}

impl Page {
    /// Adds the entries after `offset` that fit. The kernel counts a look-up for each, except for `.` and `..`. A request
    /// that may wait first scans a number of files at a time.
    pub fn fill(&mut self, service: &Service, wait: Wait) -> Result<Lookup<()>> {
        let Lookup::Known(listing) = service.listing(self.handle.0, self.offset == 0, wait)? else {
            return Ok(Lookup::NeedsScan);
        };
        let parent = service.parent(self.directory.0)?;
        let dots = [".", ".."];
        let first = position(self.offset).saturating_sub(dots.len());
        if wait == Wait::Yes {
            let rest = listing.get(first..).unwrap_or_default();
            service.scan_listed(&parent, &rest[..rest.len().min(SCANNED_AHEAD)]);
        }
        let attr = file_attr(self.directory.0, &parent.attributes);
        for (name, next) in dots.iter().zip(1..).skip(position(self.offset)) {
            if self.add(next, OsStr::new(name), &TTL, &attr) {
                return Ok(Lookup::Known(()));
            }
        }
        let after_dots = dots.len() as u64 + 1;
        for (listed, next) in listing.iter().zip(after_dots..).skip(first) {
            let found = match service.look_up_listed(&parent, listed, wait)? {
                Lookup::Known(Some(found)) => found,
                Lookup::Known(None) => continue,
                // The page is sent as far as it is known. The kernel asks for the rest next.
                Lookup::NeedsScan if next > self.offset + 1 => break,
                Lookup::NeedsScan => return Ok(Lookup::NeedsScan),
            };
            let attr = file_attr(found.number, &found.attributes);
            // The attributes of a name that is not kept are not kept either: a reply has one time for both.
            if self.add(next, &listed.name, &lifetime(found.names), &attr) {
                // The entry did not fit, so the kernel counts no look-up.
                service.forget(found.number, 1);
                break;
            }
        }
        Ok(Lookup::Known(()))
    }

    /// Returns true if the entry does not fit.
    fn add(&mut self, next: u64, name: &OsStr, ttl: &Duration, attr: &FileAttr) -> bool {
        self.reply
            .add(attr.ino, next, name, ttl, attr, Generation(0))
    }

    pub fn send(self, filled: Result<(), Errno>) {
        match filled {
            Ok(()) => self.reply.ok(),
            Err(errno) => self.reply.error(errno),
        }
    }
}
