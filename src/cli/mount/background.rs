//! Going to the background: the process that the user has called starts this program again as the
//! daemon and waits until the mount is up, or has failed.
//!
//! The daemon reports through its standard output, a pipe. Its messages go to the same standard
//! error as ours until then.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::Request;

const READY: &str = "ready";

/// What became of a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// The mount is up.
    Serving,
    /// It has not mounted anything, and has said why.
    Failed,
}

/// Starts the daemon and returns when the mount is up, or has failed.
pub fn start_daemon(request: &Request) -> anyhow::Result<Started> {
    let daemon = command(request)?.spawn();
    let mut daemon = daemon.context("cannot start the daemon")?;
    if says_ready(&mut daemon)? {
        return Ok(Started::Serving);
    }
    let status = daemon.wait().context("waiting for the daemon")?;
    // One that ended well, or by a signal, has not said anything.
    if matches!(status.code(), Some(0) | None) {
        eprintln!("h5logfs: the daemon ended before the mount was up ({status})");
    }
    Ok(Started::Failed)
}

fn command(request: &Request) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(["mount", "--daemon-child"]);
    for option in &request.options {
        // In one word, whatever the option begins with.
        let mut word = OsString::from("--option=");
        word.push(option);
        command.arg(word);
    }
    // The daemon starts in this same directory, so relative paths mean the same there.
    command
        .arg("--")
        .args([&request.source, &request.mount_point])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    Ok(command)
}

/// Waits for the daemon's word, or for its end.
fn says_ready(daemon: &mut Child) -> anyhow::Result<bool> {
    let stdout = daemon.stdout.take().context("the daemon has no output")?;
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .context("waiting for the daemon")?;
    Ok(line.trim_end() == READY)
}

/// The daemon's side: no terminal may send it signals. Not before the mount is there: below autofs,
/// who comes to the mount point from outside of the process group that mounts has to wait for the
/// mount, and the daemon would wait for itself. Fails only for the leader of a process
/// group, which a freshly started daemon is not.
pub fn leave_session() {
    if let Err(e) = rustix::process::setsid() {
        log::debug!("cannot start a session: {e}");
    }
}

/// The daemon's side: tells the waiting process that the mount is up, and lets go of everything
/// that belongs to the user's terminal.
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
