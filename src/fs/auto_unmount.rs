//! The option `auto_unmount`: a small process, the watcher, unmounts after a crash of the daemon.
//!
//! The watcher reads from a pipe that only the daemon can write to. When the daemon dies, the kernel closes the pipe, and the
//! watcher unmounts. A daemon that ends normally writes to the pipe first.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use h5logfs_common::error::{Error, Result};

use super::mounting::{command, unmount_if_dead};
use super::mounts::MountId;
use super::session::SIGNALS;

/// Hidden subcommand that calls [`run_watcher`].
const SUBCOMMAND: &str = "unmount-watch";

/// The daemon's handle to the running watcher.
#[derive(Debug)]
pub struct Watcher {
    pipe: ChildStdin,
}

impl Watcher {
    /// Starts this program as the watcher of the mount `id`.
    pub fn start(id: MountId) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| Error::io("/proc/self/exe", e))?;
        // The watcher outlives the daemon. It must keep neither the terminal nor a pipe whose reader waits for the end of the
        // daemon's messages.
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
            None => Err(Error::of(program, "has no standard input")),
        }
    }

    /// Ends the watcher of an unmounted file system, so that it does not unmount the next one at the same path.
    pub fn dismiss(mut self) {
        if let Err(e) = self.pipe.write_all(b"done\n") {
            log::debug!("the watcher is gone already: {e}");
        }
    }
}

/// Runs the watcher: waits on standard input for the end of the daemon.
pub fn run_watcher(id: MountId) -> Result<()> {
    ignore_signals()?;
    // This fails only if the process already leads a session.
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

/// Ignores signals to the daemon's process group, because the daemon may still need the watcher.
fn ignore_signals() -> Result<()> {
    for signal in SIGNALS {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .map_err(|e| Error::io("signal handler", e))?;
    }
    Ok(())
}
