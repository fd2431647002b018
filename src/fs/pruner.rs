//! Asks the kernel to forget inodes when there are many.
//!
//! The kernel keeps an inode for each name that a program has asked for, as long as it has memory, and so must we. With
//! `FUSE_NOTIFY_PRUNE` (Linux 6.18) it drops those that no program uses, and sends FORGET. Older kernels do not know this
//! message. They are told that single names are out of date (`FUSE_NOTIFY_INVAL_ENTRY`): an inode without a name goes at once
//! if no program uses it. For that the kernel waits until nobody looks for a name in the directory, and new look-ups wait
//! behind it. So a name stays as long as its directory is searched: a scan may take its time there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use super::inodes::InodeTable;

/// The first version of the protocol whose kernels know `FUSE_NOTIFY_PRUNE`.
const KNOWS_PRUNE: (u32, u32) = (7, 45);
/// From `linux/fuse.h`.
const FUSE_NOTIFY_INVAL_ENTRY: i32 = 3;
const FUSE_NOTIFY_PRUNE: i32 = 9;
/// The bytes of `fuse_out_header`, and of what follows it in both messages.
const HEADERS: usize = 32;

/// How long the pruner rests when all inodes are in use.
const REST: Duration = Duration::from_secs(1);

/// Prepares the table for a kernel of this version of the protocol.
pub fn prepare(inodes: &InodeTable, kernel: (u32, u32)) {
    if kernel < KNOWS_PRUNE {
        inodes.forget_by_name();
    }
}

/// Runs until the mount ends. `device`: a descriptor of the mount, as long as that is served.
pub fn run(device: &Weak<File>, inodes: &Arc<InodeTable>) {
    let mut tried = 0;
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
            log::debug!("the kernel cannot be asked to forget inodes ({e}), but single names");
            inodes.forget_by_name();
        }
        if inodes.forgets_by_name()
            && let Err(e) = forget_names(&device, inodes, &numbers)
        {
            log::debug!("the kernel cannot be asked to forget names: {e}");
            return;
        }
    }
}

fn forget_names(device: &File, inodes: &InodeTable, numbers: &[u64]) -> io::Result<()> {
    for number in numbers {
        // Not all at once: a search may begin meanwhile.
        for (directory, name) in inodes.names(&[*number]) {
            match send(device, &out_of_date(directory, &name)) {
                // The kernel has forgotten it already.
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NOENT) => {}
                sent => sent?,
            }
        }
    }
    Ok(())
}

fn send(mut device: &File, message: &[u8]) -> io::Result<()> {
    device.write_all(message)
}

/// That the kernel may forget these inodes.
fn prune(numbers: &[u64]) -> Vec<u8> {
    let mut message = begin(FUSE_NOTIFY_PRUNE, size_of_val(numbers));
    message.extend((numbers.len() as u32).to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    message
}

/// That the name of an inode is out of date.
fn out_of_date(directory: u64, name: &OsStr) -> Vec<u8> {
    let mut message = begin(FUSE_NOTIFY_INVAL_ENTRY, name.len() + 1);
    message.extend(directory.to_ne_bytes());
    message.extend((name.len() as u32).to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(name.as_bytes());
    message.push(0);
    message
}

/// The header of a message to the kernel: its length, its code, and that it answers no request. `rest`: the bytes behind both
/// headers.
fn begin(code: i32, rest: usize) -> Vec<u8> {
    let len = HEADERS + rest;
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(code.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message
}
