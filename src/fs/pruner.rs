//! Asks the kernel to forget inodes when there are many.
//!
//! The kernel keeps an inode for each name that a program has looked up, as long as it has memory, and the daemon must keep one,
//! too. From Linux 6.18 on, `FUSE_NOTIFY_PRUNE` makes the kernel drop unused inodes and send FORGET.
//!
//! Older kernels lack this notification. They are notified that single names are out of date (`FUSE_NOTIFY_INVAL_ENTRY`): an
//! unused inode without a name goes at once. But before that, the kernel waits until nobody searches the directory, and new
//! look-ups wait behind it. A scan may take long, so a name stays while its directory is being searched. If the table still grows
//! far beyond its bound, threads wait for such a directory, and no new name comes in there meanwhile.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::inodes::{InodeTable, Name};

/// First protocol version of kernels with `FUSE_NOTIFY_PRUNE`.
const KNOWS_PRUNE: (u32, u32) = (7, 45);
/// From `linux/fuse.h`.
const FUSE_NOTIFY_INVAL_ENTRY: i32 = 3;
const FUSE_NOTIFY_PRUNE: i32 = 9;
/// Size of `fuse_out_header` and of the second header in both notifications, in bytes.
const HEADERS: usize = 32;

/// Pause when all inodes are in use.
const REST: Duration = Duration::from_secs(1);

/// Most threads that wait for searches to end, in one directory and in all.
const MOST_IN_DIRECTORY: usize = 16;
const MOST_WAITING: usize = 64;

/// Number of waiting threads by directory.
type WaitedFor = Arc<Mutex<HashMap<u64, usize>>>;

/// Prepares the table for a kernel with this protocol version.
pub fn prepare(inodes: &InodeTable, kernel: (u32, u32)) {
    if kernel < KNOWS_PRUNE {
        inodes.forget_by_name();
    }
}

/// Runs until the mount ends. `device`: a descriptor of the mount while it is served.
pub fn run(device: &Weak<File>, inodes: &Arc<InodeTable>) {
    let mut tried = 0;
    let waited_for = WaitedFor::default();
    loop {
        let Some(numbers) = inodes.wait_for_excess(&mut tried) else {
            thread::sleep(REST);
            continue;
        };
        let Some(device) = device.upgrade() else {
            return;
        };
        if !inodes.forgets_by_name()
            && let Err(e) = send(&device, &prune(&numbers))
        {
            log::debug!("cannot ask the kernel to forget inodes ({e}), only single names");
            inodes.forget_by_name();
        }
        if inodes.forgets_by_name()
            && let Err(e) = forget_names(&device, inodes, &waited_for, &numbers)
        {
            log::debug!("cannot ask the kernel to forget names: {e}");
            return;
        }
    }
}

fn forget_names(
    device: &Arc<File>,
    inodes: &Arc<InodeTable>,
    waited_for: &WaitedFor,
    numbers: &[u64],
) -> io::Result<()> {
    let mut searched: HashMap<u64, Vec<u64>> = HashMap::new();
    for number in numbers {
        // The names are read one by one, because a search may begin meanwhile.
        match inodes.name(*number) {
            Some(name) if name.is_searched => {
                searched.entry(name.directory).or_default().push(*number);
            }
            Some(name) => forget_name(device, &name)?,
            None => {}
        }
    }
    for (directory, numbers) in searched {
        let (device, inodes) = (Arc::clone(device), Arc::clone(inodes));
        wait_for(waited_for, directory, move || {
            let numbers = numbers.into_iter();
            let mut names = numbers.filter_map(|number| inodes.name(number));
            if let Err(e) = names.try_for_each(|name| forget_name(&device, &name)) {
                log::debug!("cannot ask the kernel to forget names: {e}");
            }
        });
    }
    Ok(())
}

/// Runs `forget`, which waits for the searches in a directory, in a separate thread. Skips it if too many wait already: those
/// names get their turn later. Each forgotten name may be replaced by as many as programs look up there at once, so several
/// threads wait for one directory.
fn wait_for(waited_for: &WaitedFor, directory: u64, forget: impl FnOnce() + Send + 'static) {
    let mut threads = waited_for.lock();
    let own = threads.get(&directory).copied().unwrap_or(0);
    if own == MOST_IN_DIRECTORY || threads.values().sum::<usize>() == MOST_WAITING {
        return;
    }
    threads.insert(directory, own + 1);
    drop(threads);
    let waiting = Waiting {
        waited_for: Arc::clone(waited_for),
        directory,
    };
    let thread = thread::Builder::new().name("pruner".into());
    let spawned = thread.spawn(move || {
        let _waiting = waiting;
        forget();
    });
    if let Err(e) = spawned {
        log::debug!("cannot start the thread that makes the kernel forget names: {e}");
    }
}

/// A thread that waits for a directory.
struct Waiting {
    waited_for: WaitedFor,
    directory: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut threads = self.waited_for.lock();
        if let Some(own) = threads.get_mut(&self.directory) {
            *own -= 1;
            if *own == 0 {
                threads.remove(&self.directory);
            }
        }
    }
}

fn forget_name(device: &File, name: &Name) -> io::Result<()> {
    match send(device, &out_of_date(name.directory, &name.name)) {
        // The kernel has already forgotten it.
        Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => Ok(()),
        sent => sent,
    }
}

fn send(mut device: &File, message: &[u8]) -> io::Result<()> {
    device.write_all(message)
}

/// The notification that the kernel may forget these inodes.
fn prune(numbers: &[u64]) -> Vec<u8> {
    let mut message = begin(FUSE_NOTIFY_PRUNE, size_of_val(numbers));
    message.extend((numbers.len() as u32).to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    message
}

/// The notification that the name of an inode is out of date.
fn out_of_date(directory: u64, name: &OsStr) -> Vec<u8> {
    let mut message = begin(FUSE_NOTIFY_INVAL_ENTRY, name.len() + 1);
    message.extend(directory.to_ne_bytes());
    message.extend((name.len() as u32).to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(name.as_bytes());
    message.push(0);
    message
}

/// The header of a notification: its length, its code, and that it answers no request. `rest`: number of bytes after both
/// headers.
fn begin(code: i32, rest: usize) -> Vec<u8> {
    let len = HEADERS + rest;
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(code.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message
}
