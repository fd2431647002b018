//! The least that a FUSE daemon can do: `pread` of a plain file, and the reply. No daemon in user space
//! that copies reads faster by this way, so this is the limit that the mount is held against.

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

/// As the mount has it.
const TTL: Duration = Duration::from_secs(1);
const MAX_BACKGROUND: u16 = 64;
const READ_AHEAD_KB: u32 = 4096;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The files of one directory. Inode 1 is the directory, 2 its first file.
struct Bare {
    files: Vec<(OsString, File, u64)>,
    /// What the kernel is told at each opening: how it is to cache.
    flags: FopenFlags,
}

impl Bare {
    fn open(dir: &Path, flags: FopenFlags) -> io::Result<Self> {
        let mut files = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let file = File::open(entry.path())?;
            let size = file.metadata()?.len();
            files.push((entry.file_name(), file, size));
        }
        Ok(Bare { files, flags })
    }

    fn file(&self, inode: INodeNo) -> Option<&(OsString, File, u64)> {
        self.files
            .get(usize::try_from(inode.0.checked_sub(2)?).ok()?)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode.0 {
            1 => (FileType::Directory, 0o555, 0),
            _ => (FileType::RegularFile, 0o444, self.file(inode)?.2),
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
        // Wishes; on refusal the value that the kernel offers is taken.
        if let Err(most) = config.set_max_background(MAX_BACKGROUND) {
            let _ = config.set_max_background(most);
        }
        if let Err(most) = config.set_max_readahead(u32::MAX) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = self.files.iter().position(|(n, _, _)| n == name);
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
        let Some((_, file, end)) = self.file(ino) else {
            return reply.error(Errno::ENOENT);
        };
        let size = u64::from(size).min(end.saturating_sub(offset)) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match file.read_exact_at(&mut buffer[..size], offset) {
                Ok(()) => reply.data(&buffer[..size]),
                Err(_) => reply.error(Errno::EIO),
            }
        });
    }
}

/// Serves the files of `source` until somebody unmounts; says a word when they can be read. `direct`:
/// past the kernel's page cache.
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

/// As far as the user may.
fn raise_read_ahead(mount_point: &Path) -> Result<()> {
    let device = fs::metadata(mount_point)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if rustix::process::geteuid().is_root() {
        fs::write(setting, READ_AHEAD_KB.to_string())?;
    }
    Ok(())
}
