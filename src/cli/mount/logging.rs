//! The destinations of messages. `RUST_LOG` selects messages for each of them, and `limited` limits their number.

mod file;
mod limited;

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use env_logger::{Builder, Env, Logger, Target};
use log::{Level, LevelFilter, Log, Metadata, Record};
use syslog::{BasicLogger, Facility, Formatter3164};

use file::LogFile;
use limited::Limited;

/// Default level of messages.
const USUAL_LEVEL: &str = "info";

/// What a user learns who has asked for messages.
const NO_LOG: &str =
    "this machine has no system log, so messages are lost; the option log_file=PATH keeps them";

/// Level of messages on the standard error of somebody else's command.
const QUIET_LEVEL: &str = "warn";

fn builder() -> Builder {
    builder_from(USUAL_LEVEL)
}

/// A logger whose default `level` `RUST_LOG` overrides.
fn builder_from(level: &str) -> Builder {
    // The kernel accepts no answer to an interrupted request. That is no error.
    let filter = format!("{level},fuser::reply=off");
    Builder::from_env(Env::default().default_filter_or(filter))
}

/// Logs to standard error. `is_quiet`: it belongs to a command that somebody else runs on the mount.
pub fn to_stderr(is_quiet: bool) -> anyhow::Result<()> {
    log_panics();
    let level = if is_quiet { QUIET_LEVEL } else { USUAL_LEVEL };
    let mut builder = builder_from(level);
    if is_journal() {
        builder.format(|line, record| {
            writeln!(line, "<{}>{}", priority(record.level()), record.args())
        });
    }
    install(builder.build())
}

fn install(logger: Logger) -> anyhow::Result<()> {
    let level = logger.filter();
    install_as(logger, level)
}

fn install_as(logger: impl Log + 'static, level: LevelFilter) -> anyhow::Result<()> {
    log::set_boxed_logger(Box::new(Limited::new(logger))).context("a logger is set already")?;
    log::set_max_level(level);
    Ok(())
}

/// Whether standard error is a stream of systemd's journal. The journal adds the time itself, and reads the priority at the
/// start of each line (sd-daemon(3), systemd.exec(5)).
fn is_journal() -> bool {
    let Some(stream) = std::env::var_os("JOURNAL_STREAM") else {
        return false;
    };
    let here = rustix::fs::fstat(std::io::stderr());
    here.is_ok_and(|stat| *format!("{}:{}", stat.st_dev, stat.st_ino) == *stream)
}

/// The priority of a level in syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// Logs panics. The daemon survives a panic in a request, and has no standard error, so the log must say where it happened.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

/// Logs to `file`, or else to the system's log.
///
/// Without a system log, warnings go to standard error until the mount is up. The caller then shows the returned text to the
/// user.
pub fn for_daemon(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    log_panics();
    if let Some(path) = file {
        return to_file(path).map(|()| None);
    }
    match system_log() {
        Ok(system) => to_system_log(builder().build(), system).map(|()| None),
        Err(e) => {
            install(builder_from(QUIET_LEVEL).build())?;
            log::debug!("no system log: {e}");
            // Who has not asked for a log need not know that there is none.
            let is_asked = std::env::var_os("RUST_LOG").is_some();
            Ok(is_asked.then(|| NO_LOG.to_owned()))
        }
    }
}

fn to_file(path: &Path) -> anyhow::Result<()> {
    let file = LogFile::open(path)
        .with_context(|| format!("cannot write the log file {}", path.display()))?;
    install(builder().target(Target::Pipe(Box::new(file))).build())
}

fn system_log() -> syslog::Result<BasicLogger> {
    let formatter = Formatter3164 {
        facility: Facility::LOG_DAEMON,
        hostname: None,
        process: "h5logfs".to_owned(),
        pid: std::process::id(),
    };
    syslog::unix(formatter).map(BasicLogger::new)
}

fn to_system_log(filter: Logger, system: BasicLogger) -> anyhow::Result<()> {
    let level = filter.filter();
    install_as(Filtered { filter, system }, level)
}

/// The system's log, for the messages that env_logger selects by `RUST_LOG`.
struct Filtered {
    filter: Logger,
    system: BasicLogger,
}

impl Log for Filtered {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.filter.matches(record) {
            self.system.log(record);
        }
    }

    fn flush(&self) {
        self.system.flush();
    }
}
