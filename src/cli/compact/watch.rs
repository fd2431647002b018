//! A process that removes a file when the one that has started it is gone, however that has ended. MPICH, for one, kills all
//! ranks that are left when one dies, with the signal that cannot be caught.

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

/// The hidden subcommand of this program.
pub const NAME: &str = "remove-at-end";

/// Removes a file when standard input ends.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The file, which need not be there
    path: PathBuf,
}

/// What the process does.
pub fn run(args: &WatchArgs) -> anyhow::Result<()> {
    // These are for the job, which ends by them, and whose end is what matters here.
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    match fs::remove_file(&args.path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// The process, seen from the one that has started it. Dropped, it removes the file.
pub struct Watch(Child);

impl Watch {
    /// It has a process group of its own, so that it does not end with the job.
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
        // Nothing can be done about a file that cannot be removed.
        let _ = self.0.wait();
    }
}
