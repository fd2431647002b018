//! The program under the name `mount.h5logfs`: the helper that mount(8) calls for the type h5logfs.
//!
//! mount(8) documents the arguments and the exit status under "External helpers".

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::Parser;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Request;
use super::background::{self, Started};
use super::options::{self, MountOptions, UnknownOption};
use crate::cli::output::{Output, print_error};
use h5logfs_log::log_dir;

/// Mount a directory of log files, called by mount(8) for the type h5logfs
#[derive(Debug, Clone, Parser)]
#[command(name = "mount.h5logfs", version)]
pub struct HelperArgs {
    /// The directory that holds the log files, or one log file
    #[arg(value_name = "SRC")]
    pub source: PathBuf,

    /// The directory at which they appear
    #[arg(value_name = "MNT")]
    pub mount_point: PathBuf,

    /// Mount options, as those of `h5logfs mount`
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<OsString>,

    /// Ignore unknown options, with a message
    #[arg(short = 's')]
    pub sloppy: bool,

    /// Check everything, but do not mount
    #[arg(short = 'f')]
    pub fake: bool,

    /// Do not write /etc/mtab: accepted, since none is ever written
    #[arg(short = 'n')]
    pub no_mtab: bool,

    /// Say what is mounted where
    #[arg(short = 'v')]
    pub verbose: bool,

    /// Mount in the mount namespace that this file of /proc/PID/ns stands for
    #[arg(short = 'N', value_name = "FILE")]
    pub namespace: Option<PathBuf>,

    /// The type: accepted, and a subtype changes nothing
    #[arg(short = 't', value_name = "TYPE")]
    pub fs_type: Option<OsString>,
}

/// Exit statuses of mount(8).
const USAGE: u8 = 1;
const MOUNT_FAILURE: u8 = 32;

/// Whether this is the name of the helper.
pub fn is_name(program: &OsStr) -> bool {
    let name = Path::new(program).file_name();
    name.is_some_and(|name| name == "mount.h5logfs")
}

/// Mounts. Prints the error, if there is one, and returns the exit status.
pub fn main(arguments: Vec<OsString>) -> u8 {
    let args = match HelperArgs::try_parse_from(arguments) {
        Ok(args) => args,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { USAGE } else { 0 };
        }
    };
    match run(&args) {
        Ok(status) => status,
        Err(error) => {
            print_error("mount.h5logfs", &error);
            MOUNT_FAILURE
        }
    }
}

fn run(args: &HelperArgs) -> anyhow::Result<u8> {
    if let Some(namespace) = &args.namespace {
        enter(namespace).with_context(|| format!("-N {}", namespace.display()))?;
    }
    let options = accepted(args)?;
    let point = &args.mount_point;
    let options = options.into_iter();
    let request = Request::with_config(Some(&args.source), point, options, None)?;
    request.parsed()?;
    if args.verbose {
        let (source, point) = (args.source.display(), point.display());
        writeln!(Output::stdout(), "mount.h5logfs: {source} at {point}")?;
    }
    if args.fake {
        return check_places(&request);
    }
    match background::start_daemon(&request)? {
        Started::Serving => Ok(0),
        Started::Failed => Ok(MOUNT_FAILURE),
    }
}

/// Checks source and mount point as far as possible without mounting.
fn check_places(request: &Request) -> anyhow::Result<u8> {
    let (source, point) = (&request.source, &request.mount_point);
    let named = |path: &Path| path.display().to_string();
    let found = log_dir::file_of(source).metadata();
    found.with_context(|| named(source))?;
    let found = point.metadata().with_context(|| named(point))?;
    ensure!(found.is_dir(), "{}: must be a directory", named(point));
    Ok(0)
}

/// The accepted options. With `-s` unknown ones are left out.
fn accepted(args: &HelperArgs) -> anyhow::Result<Vec<&OsStr>> {
    let mut accepted = Vec::new();
    for option in options::split(&args.options) {
        match MountOptions::default().set(option) {
            Err(e) if args.sloppy && e.is::<UnknownOption>() => print_error("mount.h5logfs", &e),
            Err(e) => bail!(e),
            Ok(()) => accepted.push(option),
        }
    }
    Ok(accepted)
}

/// Enters a mount namespace. The kernel requires that this process has only one thread.
fn enter(namespace: &Path) -> anyhow::Result<()> {
    let file = File::open(namespace)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))?;
    Ok(())
}
