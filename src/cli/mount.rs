//! `h5logfs mount`: the arguments, and the way from them to a mount that is served.

mod background;
mod logging;
mod options;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::fs::{self, MountId};
use crate::scan::LAYOUT_OPTIONS_HELP;

use options::MountOptions;

/// Mount a directory of log files; each of them reads as a canonical HDF5 file.
#[derive(Debug, Clone, Args)]
pub struct MountArgs {
    /// The directory that holds the log files, or one log file
    #[arg(value_name = "SRC")]
    pub source: PathBuf,

    /// The directory at which they appear
    #[arg(value_name = "MNT")]
    pub mount_point: PathBuf,

    #[arg(short = 'o', value_name = "OPTIONS", help = options_help())]
    pub options: Vec<OsString>,

    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    pub foreground: bool,

    /// This process is the daemon, started by the one that the user called
    #[arg(long, hide = true)]
    pub daemon_child: bool,
}

/// The process that unmounts after a crash of the daemon; started by the daemon only.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The mount, as MOUNT:MAJOR:MINOR
    pub mount: MountId,
}

fn options_help() -> String {
    format!(
        "Mount options, separated by commas: allow_other, auto_unmount, cache_size=SIZE[K|M|G|T], \
         index_memory=SIZE[K|M|G|T], chunk=auto|SIZE, threads=N, log_file=PATH, \
         index_dir=PATH|none, index_dir_size=SIZE; {LAYOUT_OPTIONS_HELP}; those of mount(8) are \
         accepted"
    )
}

pub fn run(args: MountArgs) -> anyhow::Result<()> {
    let options = MountOptions::parse(&args.options)?;
    if args.foreground {
        logging::to_stderr()?;
        let outcome = fs::start(&session_options(&args, &options))?.serve();
        log::logger().flush();
        Ok(outcome?)
    } else if args.daemon_child {
        serve_in_background(&args, &options)
    } else {
        background::start_daemon(&args)
    }
}

pub fn watch(args: WatchArgs) -> anyhow::Result<()> {
    Ok(fs::watch(args.mount)?)
}

fn serve_in_background(args: &MountArgs, options: &MountOptions) -> anyhow::Result<()> {
    background::leave_session();
    logging::for_daemon(options.log_file.as_deref())?;
    let running = fs::start(&session_options(args, options))?;
    background::report_ready()?;
    // Nobody sees standard error from here on.
    let outcome = running.serve();
    let outcome = outcome.inspect_err(|error| log::error!("{error}"));
    log::logger().flush();
    Ok(outcome?)
}

fn session_options(args: &MountArgs, options: &MountOptions) -> fs::Options {
    fs::Options {
        source: args.source.clone(),
        mount_point: args.mount_point.clone(),
        allow_other: options.allow_other,
        auto_unmount: options.auto_unmount,
        threads: options.threads,
        memory: options.memory,
        settings: options.settings.clone(),
        scans: options.scans.clone(),
        index_dir: options.index_dir.clone(),
        index_dir_size: options.index_dir_size,
    }
}
