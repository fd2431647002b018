//! The small process that unmounts after the daemon has crashed (`auto_unmount`).
//!
//! It holds the reading end of a pipe whose writing end the daemon alone holds. The kernel closes
//! that end when the daemon dies, however it dies; that is when the watcher looks for the mount.
//! A daemon that ends in good order says so first.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use h5logfs_core::error::{Error, Result};

use super::mounting::{command, unmount_if_dead};
use super::mounts::MountId;
use super::session::SIGNALS;

/// The hidden subcommand that runs `watch`.
const SUBCOMMAND: &str = "unmount-watch";

/// The daemon's side: the watcher that stands by.
#[derive(Debug)]
pub struct Watcher {
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts this same program as the watcher of the mount `id`.
    pub fn start(id: MountId) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("/proc/self/exe", e))?;
        // The watcher outlives the daemon: it must not keep the terminal, or a pipe to somebody
        // who waits for the end of our messages.
        let mut child = command(&program)
            .arg(SUBCOMMAND)
            .arg(id.to_string())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Error::io(&program, e))?;
        match child.stdin.take() {
            Some(pipe) => Ok(Watcher { pipe }),
            None => Err(Error::bad_file(program, "has no standard input")),
        }
    }

    /// The mount is gone: nothing is left to do for the watcher, and what will be mounted at the
    /// same place next is none of its business.
    pub fn dismiss(mut self) {
        if let Err(e) = self.pipe.write_all(b"done\n") {
            log::debug!("the watcher is gone already: {e}");
        }
    }
}

/// The watcher's side: waits on standard input for the end of the daemon.
pub fn watch(id: MountId) -> Result<()> {
    ignore_signals()?;
    // Fails only when this process leads a session already, which is just as well.
    let _ = rustix::process::setsid();
    let mut said = Vec::new();
    std::io::stdin()
        .read_to_end(&mut said)
        .map_err(|e| Error::io(PathBuf::from("standard input"), e))?;
    if said.is_empty() {
        unmount_if_dead(id)?;
    }
    Ok(())
}

/// Whoever sends a signal to the whole group of the daemon must not stop the watcher: the daemon may
/// need it yet.
fn ignore_signals() -> Result<()> {
    for signal in SIGNALS {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|e| Error::io("signal handler", e))?;
    }
    Ok(())
}
