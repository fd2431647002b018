//! `h5logfs run`: a command with a private mount, which ends with the command.
//!
//! This process makes a mount namespace, serves the mount in it, and starts the command there. If this process ends, the
//! kernel ends the command. The mount disappears with the last process of the namespace.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getppid, getrlimit, setrlimit};

use super::options::{self, MountOptions};
use super::{Request, logging, session_options};
use crate::fs;

/// Run a command with SRC mounted at MNT for it alone, then unmount
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "h5logfs run [OPTIONS] SRC MNT -- COMMAND [ARGUMENT]...",
    after_help = "\
Only COMMAND and the processes that it starts see the mount, which ends with the last of them. This needs neither root \
nor fusermount3, but the kernel must let users create namespaces. MNT can be any directory, even SRC itself. Signals to \
`h5logfs run` are passed on to COMMAND. The exit status is that of COMMAND; 128 plus the number of the signal that ended \
it; 127 if there is no such program; 126 if it cannot be started; 125 if nothing was mounted."
)]
pub struct RunArgs {
    /// The directory that holds the log files, or one log file
    #[arg(value_name = "SRC")]
    pub source: PathBuf,

    /// The directory at which they appear
    #[arg(value_name = "MNT")]
    pub mount_point: PathBuf,

    /// The command, and its arguments
    #[arg(value_name = "COMMAND", required = true, last = true)]
    pub command: Vec<OsString>,

    #[arg(short = 'o', value_name = "OPTIONS", help = super::options_help(), long_help = super::options_long_help())]
    pub options: Vec<OsString>,

    /// Use FILE as the configuration file [default: root's /etc/h5logfs.toml, a user's
    /// ~/.config/h5logfs.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The command did not run. Contains the exit status for that.
#[derive(Debug, thiserror::Error)]
#[error("the command was not run")]
pub struct NotRun(pub u8);

const NOT_MOUNTED: NotRun = NotRun(125);

/// Runs the command. Returns the exit status.
pub fn run(args: &RunArgs) -> Result<u8> {
    let open_files = getrlimit(Resource::Nofile);
    let mounted = mount(args).context(NOT_MOUNTED)?;
    let child = start(&args.command, open_files).map_err(|e| {
        let program = &args.command[0];
        let name = program.to_string_lossy().into_owned();
        // A directory in PATH that may not be searched makes the error another one.
        if e.kind() == io::ErrorKind::NotFound || is_nowhere(program) {
            let e = io::Error::from_raw_os_error(libc::ENOENT);
            return anyhow::Error::new(e).context(name).context(NotRun(127));
        }
        anyhow::Error::new(e).context(name).context(NotRun(126))
    })?;
    let status = mounted.serve_command(child)?;
    log::logger().flush();
    Ok(shown(status))
}

fn mount(args: &RunArgs) -> Result<fs::Running> {
    let given = options::split(&args.options);
    let (source, point) = (&args.source, &args.mount_point);
    // The configuration is read before, because its owner may be nobody in the namespace.
    let request = Request::with_config(Some(source), point, given, args.config.as_deref())?;
    let options: MountOptions = request.parsed()?;
    fs::enter_namespace()?;
    if let Some(no_log) = logging::for_daemon(options.log_file.as_deref())? {
        log::debug!("{no_log}");
    }
    let options = fs::Options {
        // The mount disappears with the namespace.
        auto_unmount: false,
        helper: fs::Helper::None,
        ..session_options(&request, &options)
    };
    Ok(fs::start(&options, &fs::PASSED_ON)?)
}

/// Starts the command as the user would have started it. `open_files`: the limit before this process raised its own.
fn start(command: &[OsString], open_files: Rlimit) -> io::Result<Child> {
    let parent = getpid();
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]);
    // If the mount covers the working directory, this is still the directory under the mount.
    if let Ok(here) = std::env::current_dir() {
        child.current_dir(here);
    }
    // SAFETY: the closure only makes system calls, and allocates nothing.
    unsafe {
        child.pre_exec(move || {
            setrlimit(Resource::Nofile, open_files)?;
            end_with(parent)
        });
    }
    child.spawn()
}

/// Whether no directory of PATH has a program of this name, as far as this process may look.
fn is_nowhere(program: &OsStr) -> bool {
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(program));
    !is_path && !places.any(|place| place.symlink_metadata().is_ok())
}

/// Lets the kernel kill this process when its parent ends.
fn end_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before.
    if getppid() != Some(parent) {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    Ok(())
}

/// The exit status in the form of a shell.
fn shown(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_nowhere_if_no_directory_of_path_has_it() {
        assert!(is_nowhere(OsStr::new("no-such-program")));
        assert!(!is_nowhere(OsStr::new("sh")) && !is_nowhere(OsStr::new("/no/such")));
    }

    #[test]
    fn a_status_is_that_of_a_shell() {
        assert_eq!(shown(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(shown(ExitStatus::from_raw(0)), 0);
        assert_eq!(shown(ExitStatus::from_raw(9)), 137);
    }
}
