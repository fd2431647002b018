//! Starting in the background: the process that the user has called starts this program again as the daemon, and waits until
//! the mount is up or has failed.
//!
//! The daemon reports through its standard output, a pipe. Until then its messages go to the standard error of both
//! processes.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::Request;
use crate::fs;

const READY: &str = "ready";

/// The outcome of starting a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The mount is up.
    Serving,
    /// Nothing is mounted. The daemon has printed the reason.
    Failed,
}

/// Starts the daemon. Returns when the mount is up, or has failed.
pub fn start_daemon(request: &Request) -> anyhow::Result<Started> {
    // The daemon checks the mount point, and reports why it cannot mount.
    let before = fs::mount_at(&request.mount_point).ok().flatten();
    let daemon = command(request)?.spawn();
    let mut daemon = daemon.context("cannot start the daemon")?;
    if says_ready(&mut daemon)? {
        return Ok(Started::Serving);
    }
    let status = daemon.wait().context("waiting for the daemon")?;
    // At any other status, the daemon has printed an error.
    if matches!(status.code(), Some(0) | None) {
        eprintln!("h5logfs: the daemon ended before the mount was up ({status})");
    }
    // The daemon may have mounted before it ended.
    if let Err(e) = fs::unmount_dead_since(&request.mount_point, before) {
        log::debug!("{e}");
    }
    Ok(Started::Failed)
}

fn command(request: &Request) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["mount", "--daemon-child"]);
    for option in &request.options {
        // One argument, because an option that begins with `-` would be taken for a flag.
        let mut argument = OsString::from("--option=");
        argument.push(option);
        command.arg(argument);
    }
    // Relative paths keep their meaning: the daemon starts in the same directory.
    command
        .arg("--")
        .args([&request.source, &request.mount_point])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Waits until the daemon reports, or ends.
fn says_ready(daemon: &mut Child) -> anyhow::Result<bool> {
    let stdout = daemon.stdout.take().context("the daemon has no output")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("waiting for the daemon")?;
    Ok(line.trim_end() == READY)
}

/// In the daemon: leaves the session of the terminal, so that the terminal sends no signals.
///
/// The mount must be up before. Under autofs, a process outside of the mounting process group has to wait for the mount when
/// it accesses the mount point. The daemon would wait for itself.
pub fn leave_session() {
    // Fails only for the leader of a process group, which a newly started daemon is not.
    if let Err(e) = rustix::process::setsid() {
        log::debug!("cannot start a session: {e}");
    }
}

/// In the daemon: reports to the waiting process that the mount is up, and closes all that belongs to the user's terminal.
pub fn report_ready() -> anyhow::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("/dev/null")?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{READY}")
        .and_then(|()| stdout.flush())
        .context("the process that waited for the mount is gone")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir(Path::new("/")).context("/")?;
    Ok(())
}
