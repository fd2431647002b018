//! `h5logfs mount`: parses the arguments, mounts, and serves the mount.

mod background;
pub mod helper;
mod logging;
mod notify;
pub mod options;
pub mod run;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use crate::cli::config::{self, no_source};
use crate::cli::output::fail_with_last;
use crate::cli::shared;
use crate::fs::{self, MountId};

use background::Started;
use notify::Notify;
use options::MountOptions;

/// Mount a directory of log files, so that every program reads them as HDF5 files.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "h5logfs mount [OPTIONS] SRC MNT\n       h5logfs mount [OPTIONS] MNT")]
pub struct MountArgs {
    /// The directory with the log files, or one log file; may be left out if the configuration file names it for MNT
    #[arg(value_name = "SRC")]
    pub source_or_point: PathBuf,

    /// The directory at which they appear
    #[arg(value_name = "MNT")]
    pub mount_point: Option<PathBuf>,

    #[arg(short = 'o', value_name = "OPTIONS", help = options_help(), long_help = options_long_help())]
    pub options: Vec<OsString>,

    /// Use FILE as the configuration file [default: root's /etc/h5logfs.toml, a user's
    /// ~/.config/h5logfs.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Stay in the foreground and log to standard error
    #[arg(short, long)]
    pub foreground: bool,

    /// This process is the daemon, started by the one that the user called
    #[arg(long, hide = true)]
    pub daemon_child: bool,

    /// One option for the daemon, which reads no other source of options
    #[arg(long = "option", hide = true, requires = "daemon_child")]
    pub resolved: Vec<OsString>,
}

/// The process that unmounts after a crash of the daemon. Only the daemon starts it.
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The mount, as MOUNT:MAJOR:MINOR
    pub mount: MountId,
}

/// Unmount an h5logfs at MNT whose daemon has died; leave anything else alone
#[derive(Debug, Clone, Args)]
pub struct UnmountDeadArgs {
    /// The mount point
    #[arg(value_name = "MNT")]
    pub mount_point: PathBuf,
}

/// Unmount, as the user who mounted or as root
#[derive(Debug, Clone, Args)]
pub struct UmountArgs {
    /// The mount points
    #[arg(value_name = "MNT", required = true)]
    pub mount_points: Vec<PathBuf>,

    /// Unmount even if programs have files open there, which stay readable
    #[arg(short = 'z', long)]
    pub lazy: bool,
}

/// A mount to be made, from the command line or from mount(8).
#[derive(Debug)]
struct Request {
    source: PathBuf,
    mount_point: PathBuf,
    /// Options as `name` or `name=value`. Later ones win.
    options: Vec<OsString>,
}

/// The usages of the mount's own options, or of those that other commands take, too.
fn usages(of_others: bool) -> String {
    let chosen = options::all().filter(|option| shared::has(option.name) == of_others);
    let usages: Vec<String> = chosen.map(|option| option.usage()).collect();
    usages.join(", ")
}

fn options_help() -> String {
    format!(
        "Mount options, separated by commas: {}; and those of `h5logfs help options`",
        usages(false)
    )
}

fn options_long_help() -> String {
    let own = options::all().filter(|option| !shared::has(option.name));
    let lines = own.map(|option| {
        let (usage, help, default) = (option.usage(), option.help, option.default);
        format!("  {usage}: {help} [{default}]\n")
    });
    let head = "Mount options, separated by commas. Those of mount(8) are accepted, too.";
    let others = usages(true);
    format!(
        "{head}\n\n{}\nDescribed by `h5logfs help options`: {others}",
        lines.collect::<String>()
    )
}

pub fn run(args: MountArgs) -> anyhow::Result<()> {
    let request = Request::of(&args)?;
    let options = request.parsed()?;
    if args.foreground {
        // Apptainer and similar programs run the user's command at the same time.
        logging::to_stderr(fs::given_device(&request.mount_point).is_some())?;
        let outcome = serve_in_foreground(&request, &options);
        log::logger().flush();
        outcome
    } else if args.daemon_child {
        serve_in_background(&request, &options)
    } else {
        match background::start_daemon(&request)? {
            Started::Serving => Ok(()),
            Started::Failed => std::process::exit(1),
        }
    }
}

pub fn watch(args: WatchArgs) -> anyhow::Result<()> {
    Ok(fs::run_watcher(args.mount)?)
}

/// Unmounts all mount points, even after a failure, and prints each error.
pub fn umount(args: UmountArgs) -> anyhow::Result<()> {
    let in_use = if args.lazy {
        fs::InUse::Detach
    } else {
        fs::InUse::Keep
    };
    let outcomes = args
        .mount_points
        .iter()
        .map(|point| fs::unmount(point, in_use));
    let failed = outcomes.filter_map(Result::err).map(Into::into);
    fail_with_last(failed.collect())
}

pub fn unmount_dead(args: UnmountDeadArgs) -> anyhow::Result<()> {
    Ok(fs::unmount_dead(&args.mount_point)?)
}

impl Request {
    fn of(args: &MountArgs) -> anyhow::Result<Self> {
        let first = args.source_or_point.as_path();
        let (source, mount_point) = match args.mount_point.as_deref() {
            Some(mount_point) => (Some(first), mount_point),
            None => (None, first),
        };
        if args.daemon_child {
            let source = source.context("the daemon was given no source")?;
            return Ok(Request {
                source: source.to_owned(),
                mount_point: mount_point.to_owned(),
                options: args.resolved.clone(),
            });
        }
        let options = options::split(&args.options);
        Request::with_config(source, mount_point, options, args.config.as_deref())
    }

    /// Makes the request. Options of the configuration file come first, so that `given` wins.
    fn with_config<'a>(
        source: Option<&Path>,
        mount_point: &Path,
        given: impl Iterator<Item = &'a OsStr>,
        config: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let config = config::read(config)?;
        let found = config.as_ref().and_then(|c| c.source_of(mount_point));
        let source = source.or(found);
        let source = source.with_context(|| no_source(mount_point))?;
        let settings = config.iter().flat_map(|c| c.settings(source, mount_point));
        let options = settings.map(|setting| setting.option.clone());
        Ok(Request {
            source: source.to_owned(),
            mount_point: mount_point.to_owned(),
            options: options.chain(given.map(OsStr::to_owned)).collect(),
        })
    }

    fn parsed(&self) -> anyhow::Result<MountOptions> {
        MountOptions::parse(self.options.iter().map(OsString::as_os_str))
    }
}

fn serve_in_foreground(request: &Request, options: &MountOptions) -> anyhow::Result<()> {
    let notify = Notify::from_environment();
    let running = fs::start(&session_options(request, options), &fs::SIGNALS)?;
    let (source, point) = (request.source.display(), request.mount_point.display());
    notify.say(&format!("READY=1\nSTATUS={source} mounted at {point}"));
    running.serve(|| notify.say("STOPPING=1\nSTATUS=unmounting"))?;
    Ok(())
}

fn serve_in_background(request: &Request, options: &MountOptions) -> anyhow::Result<()> {
    let no_log = logging::for_daemon(options.log_file.as_deref())?;
    let running = fs::start(&session_options(request, options), &fs::SIGNALS)?;
    if let Some(no_log) = no_log {
        eprintln!("h5logfs: {no_log}");
    }
    background::leave_session();
    background::report_ready()?;
    // Standard error is /dev/null from here on.
    let outcome = running.serve(|| ());
    let outcome = outcome.inspect_err(|error| log::error!("{error}"));
    log::logger().flush();
    Ok(outcome?)
}

fn session_options(request: &Request, options: &MountOptions) -> fs::Options {
    fs::Options {
        source: request.source.clone(),
        mount_point: request.mount_point.clone(),
        allow_other: options.allow_other,
        auto_unmount: options.auto_unmount,
        threads: options.threads,
        read_cpu: options.read_cpu,
        passthrough: options.passthrough,
        directory_logs: options.directory_logs,
        tiles: options.tiles,
        read: options.read.clone(),
        helper: fs::Helper::Fusermount,
    }
}
