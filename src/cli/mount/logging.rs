//! Where messages go. `RUST_LOG` tells which, in all cases.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context;
use env_logger::{Builder, Env, Logger, Target};
use log::{Log, Metadata, Record};
use syslog::{BasicLogger, Facility, Formatter3164};

fn builder() -> Builder {
    Builder::from_env(Env::default().default_filter_or("info"))
}

pub fn to_stderr() {
    builder().init();
    log_panics();
}

/// A panic in a request is answered and survived; where it happened must not get lost with the
/// standard error of a daemon.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

/// A daemon logs to `file`, else to the system's log; standard error is not there for long.
pub fn for_daemon(file: Option<&Path>) -> anyhow::Result<()> {
    log_panics();
    if let Some(path) = file {
        return to_file(path);
    }
    match system_log() {
        Ok(system) => to_system_log(builder().build(), system),
        Err(e) => {
            eprintln!(
                "h5logfs: no system log ({e}): messages will be lost; the option log_file=PATH keeps them"
            );
            Ok(())
        }
    }
}

fn to_file(path: &Path) -> anyhow::Result<()> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write the log file {}", path.display()))?;
    builder().target(Target::Pipe(Box::new(file))).init();
    Ok(())
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
    log::set_max_level(filter.filter());
    log::set_boxed_logger(Box::new(Filtered { filter, system })).context("a logger is set already")
}

/// The system's log, with the choice of messages that env_logger makes from `RUST_LOG`.
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
