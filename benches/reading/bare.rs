//! The minimal FUSE daemon: `pread` of a plain file, and the reply. No daemon that copies its data is
//! faster, so this is the limit for the mount.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen,
    Request,
};

/// The mount uses the same values.
const TTL: Duration = Duration::from_secs(1);
const MAX_BACKGROUND: u16 = 64;
const READ_AHEAD_KB: u32 = 4096;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The files of one directory. Inode 1 is the directory, 2 its first file.
struct Bare {
    files: Vec<BareFile>,
    /// Tells the kernel at each open how to cache.
    flags: FopenFlags,
}

struct BareFile {
    name: OsString,
    file: File,
    size: u64,
}

impl Bare {
    fn open(dir: &Path, flags: FopenFlags) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let file = File::open(entry.path())?;
            let size = file.metadata()?.len();
            let name = entry.file_name();
            files.push(BareFile { name, file, size });
        }
        Ok(Bare { files, flags })
    }

    fn file(&self, inode: INodeNo) -> Option<&BareFile> {
        self.files
            .get(usize::try_from(inode.0.checked_sub(2)?).ok()?)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode.0 {
            1 => (FileType::Directory, 0o555, 0),
            _ => (FileType::RegularFile, 0o444, self.file(inode)?.size),
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for Bare {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // If the kernel refuses a value, it offers the largest one that it takes.
        if let Err(most) = config.set_max_background(MAX_BACKGROUND) {
            let _ = config.set_max_background(most);
        }
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.files.iter().position(|file| file.name == name);
        let attributes = number.and_then(|n| self.attributes(INodeNo(n as u64 + 2)));
        match attributes {
            Some(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&TTL, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), self.flags);
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(ino) else {
            return reply.error(Errno::ENOENT);
        };
        let size = u64::from(size).min(file.size.saturating_sub(offset)) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match file.file.read_exact_at(&mut buffer[..size], offset) {
                Ok(()) => reply.data(&buffer[..size]),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}

/// Serves the files of `source` until the mount is gone. Prints a line when they can be read. With
/// `direct` reads bypass the kernel's page cache.
pub fn serve(source: &Path, mount_point: &Path, direct: bool) -> Result<()> {
    let flags = if direct {
        FopenFlags::FOPEN_DIRECT_IO
    } else {
        FopenFlags::FOPEN_KEEP_CACHE
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName("h5logfs-bench".to_owned()),
    ];
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    config.n_threads = Some((2 * threads).max(4));
    config.clone_fd = true;
    let session = fuser::spawn_mount(Bare::open(source, flags)?, mount_point, &config)?;
    raise_read_ahead(mount_point)?;
    println!("serving");
    Ok(session.join()?)
}

/// Only root may do this.
fn raise_read_ahead(mount_point: &Path) -> Result<()> {
    let device = fs::metadata(mount_point)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if rustix::process::geteuid().is_root() {
        fs::write(setting, READ_AHEAD_KB.to_string())?;
    }
    Ok(())
}
