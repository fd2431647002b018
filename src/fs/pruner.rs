//! Asks the kernel to forget inodes when there are many.
//!
//! The kernel keeps an inode for each name that a program has asked for, as long as it has memory, and so must we. With
//! `FUSE_NOTIFY_PRUNE` (Linux 6.18) it drops those that no program uses, and sends FORGET. Older kernels do not know this
//! message. There the table of inodes becomes smaller only when the system needs memory.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::inodes::InodeTable;

/// From `linux/fuse.h`.
const FUSE_NOTIFY_PRUNE: i32 = 9;
/// The bytes of `fuse_out_header` and `fuse_notify_prune_out`.
const HEADERS: usize = 32;

/// How long the pruner rests when all inodes are in use.
const REST: Duration = Duration::from_secs(1);

/// Runs until the mount ends, or the kernel refuses the message. `device`: a descriptor of the mount, as long as that is
/// served.
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
        if let Err(e) = prune(&device, &numbers) {
            log::debug!("the kernel cannot be asked to forget inodes: {e}");
            return;
        }
    }
}

fn prune(mut device: &File, numbers: &[u64]) -> io::Result<()> {
    let message = message(numbers);
    device.write_all(&message)
}

/// The message to the kernel: its length, its code, no request, and the inode numbers.
fn message(numbers: &[u64]) -> Vec<u8> {
    let len = HEADERS + size_of_val(numbers);
    let mut message = Vec::with_capacity(len);
    message.extend((len as u32).to_ne_bytes());
    message.extend(FUSE_NOTIFY_PRUNE.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend((numbers.len() as u32).to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(0u64.to_ne_bytes());
    message.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    message
}
