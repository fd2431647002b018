//! Answers as fuser wants them: attributes, extended attributes, pages of listings.

use std::ffi::OsStr;
use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Generation, INodeNo, ReplyDirectoryPlus, ReplyXattr,
};

use h5logfs_core::error::{Error, Result};

use super::attributes::Attributes;
use super::service::{SCANNED_AHEAD, Service};

/// How long the kernel may use a name or attributes without asking again; the time it takes at
/// most until a grown log shows.
pub const TTL: Duration = Duration::from_secs(1);

/// What `stat` recommends for one read.
const BLOCK_SIZE: u32 = 4096;

/// What `stat` tells of the inode `number`.
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

/// Answers with `bytes`, or with how many they are, which is what no room for them asks.
pub fn reply_bytes(reply: ReplyXattr, room: u32, bytes: &[u8]) {
    match u32::try_from(bytes.len()) {
        Ok(len) if room == 0 => reply.size(len),
        Ok(len) if len <= room => reply.data(bytes),
        _ => reply.error(Errno::ERANGE),
    }
}

/// The place of an entry in a listing, from what the kernel was told to come back with.
pub fn position(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// A page of a listing with attributes.
pub struct Page {
    pub directory: INodeNo,
    pub handle: FileHandle,
    /// Behind which entry it begins.
    pub offset: u64,
    pub reply: ReplyDirectoryPlus,
}

impl Page {
    /// Adds what follows `offset`, as far as there is room. The kernel counts each as looked up, but for
    /// the first two.
    pub fn fill(&mut self, service: &Service) -> Result<()> {
        let listing = service.listing(self.handle.0, self.offset == 0)?;
        let parent = service.parent(self.directory.0)?;
        let itself = file_attr(self.directory.0, &parent.attributes);
        let dots = [".", ".."];
        for (name, next) in dots.iter().zip(1..).skip(position(self.offset)) {
            if self.add(next, OsStr::new(name), &TTL, &itself) {
                return Ok(());
            }
        }
        let first = position(self.offset).saturating_sub(dots.len());
        let after_dots = dots.len() as u64 + 1;
        for (listed, next) in listing.iter().zip(after_dots..).skip(first) {
            let found = match service.look_up_listed(&parent, listed) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                // What is there already need not wait for the rest, which the kernel asks for next.
                Err(Error::Unscanned { .. }) if next > self.offset + 1 => return Ok(()),
                Err(error) => return Err(error),
            };
            let attr = file_attr(found.number, &found.attributes);
            let ttl = if found.is_known { TTL } else { Duration::ZERO };
            if self.add(next, &listed.name, &ttl, &attr) {
                // The kernel does not hear of this one.
                service.forget(found.number, 1);
                break;
            }
        }
        Ok(())
    }

    /// Whether there was no room for it.
    fn add(&mut self, next: u64, name: &OsStr, ttl: &Duration, attr: &FileAttr) -> bool {
        self.reply
            .add(attr.ino, next, name, ttl, attr, Generation(0))
    }

    /// The same for whoever has time: scans what is needed first.
    pub fn scan_and_fill(&mut self, service: &Service) -> Result<()> {
        let listing = service.listing(self.handle.0, self.offset == 0)?;
        let parent = service.parent(self.directory.0)?;
        let first = position(self.offset).saturating_sub(2).min(listing.len());
        let end = listing.len().min(first + SCANNED_AHEAD);
        service.scan_listed(&parent, &listing[first..end]);
        self.fill(service)
    }

    pub fn send(self, filled: Result<(), Errno>) {
        match filled {
            Ok(()) => self.reply.ok(),
            Err(errno) => self.reply.error(errno),
        }
    }
}
