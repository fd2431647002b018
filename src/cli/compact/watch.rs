//! A process that removes a file after its parent has ended, however that ended. MPICH, for example, kills all other ranks with
//! SIGKILL when one dies, and no process can catch that signal.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::THIS_PROGRAM;

/// Name of the hidden subcommand.
pub const NAME: &str = "remove-at-end";

/// Removes a file when standard input ends.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The file, which need not be there
    path: PathBuf,
}

/// Runs the process.
pub fn run(args: &WatchArgs) -> anyhow::Result<()> {
    // These signals are meant for the job. This process waits for the end of the job instead.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    match fs::remove_file(&args.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// The watching process. A drop removes the file.
pub struct Watch(Child);

impl Watch {
    /// Starts the process in its own process group, so that it outlives the job.
    pub fn start(path: &Path) -> io::Result<Self> {
        let mut command = Command::new(THIS_PROGRAM);
        command.arg(NAME).arg(path).process_group(0);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Watch)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // A failure to remove the file cannot be handled.
        let _ = self.0.wait();
    }
}
