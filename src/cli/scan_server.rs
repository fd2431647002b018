//! Three hidden commands: `h5logfs scan-zygote` forks scan workers, `h5logfs scan-worker` is a single worker, and `h5logfs
//! close-log` closes a log. Readers and writers of logs start them.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use clap::{Args, Parser};
use h5logfs_catalog::workers::{Limits, Workers};
use h5logfs_common::error::Error;
use h5logfs_log::scan::protocol::CloseWork;
use h5logfs_scan::closing::{Asked, How, KnownTable, recover_knowing, take_in_unflushed};
use h5logfs_scan::worker::{self, Closing, Confinement};
use h5logfs_view::cache::MemoryLimits;

use super::THIS_PROGRAM;
use super::rights::with_owners_rights;

/// Commands that other processes of h5logfs start. They are parsed separately from the user's commands, because building that
/// whole command line takes as long as a small scan.
#[derive(Debug, Parser)]
#[command(name = "h5logfs")]
pub enum Served {
    ScanZygote(ScanArgs),
    ScanWorker(OneScanArgs),
    CloseLog(CloseArgs),
}

impl Served {
    /// Parses hidden commands; `None` for the arguments of a user.
    pub fn of(arguments: &[OsString]) -> Option<Self> {
        let names = ["scan-zygote", "scan-worker", "close-log"];
        let first = arguments.get(1)?;
        let is_served = names.iter().any(|name| first == name);
        is_served.then(|| Self::parse_from(arguments))
    }

    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::ScanZygote(args) => zygote(args),
            Self::ScanWorker(args) => worker(args),
            Self::CloseLog(args) => close(args),
        }
    }
}

/// Serves scans for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct ScanArgs {
    /// Bytes of address space
    #[arg(long)]
    memory: u64,
    /// Seconds of processor time, for each worker
    #[arg(long)]
    cpu: u64,
    /// User and group to become, as UID:GID
    #[arg(long, value_parser = parse_user)]
    user: Option<(u32, u32)>,
}

/// Serves one scan for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct OneScanArgs {
    #[command(flatten)]
    scan: ScanArgs,
    #[command(flatten)]
    caller: CallerArgs,
}

/// Closes logs, or adds data that no flush covers to them, for the process at the other end of standard input.
#[derive(Debug, Clone, Args)]
pub struct CloseArgs {
    #[command(flatten)]
    caller: CallerArgs,
}

/// The process at the other end of standard input.
#[derive(Debug, Clone, Args)]
struct CallerArgs {
    /// The release of the calling h5logfs
    #[arg(long)]
    release: String,
}

impl CallerArgs {
    /// Why this program cannot serve the caller.
    fn refusal(&self) -> anyhow::Result<Option<String>> {
        let (own, other) = (env!("CARGO_PKG_VERSION"), &self.release);
        if own == other {
            return Ok(None);
        }
        let program = std::env::current_exe()?;
        let program = program.display();
        Ok(Some(format!(
            "{program} is h5logfs {own}, but its caller is release {other}"
        )))
    }
}

impl ScanArgs {
    fn confinement(&self) -> Confinement {
        Confinement {
            memory: self.memory,
            cpu: self.cpu,
            user: self.user,
            ends_with_parent: false,
        }
    }
}

pub fn zygote(args: &ScanArgs) -> anyhow::Result<()> {
    Ok(worker::serve(&args.confinement())?)
}

/// Serves one scan in a fork of this program.
pub fn serve_one(limits: &Limits, user: Option<(u32, u32)>) -> io::Result<()> {
    worker::serve_one(&Confinement {
        memory: limits.memory,
        cpu: limits.cpu.as_secs(),
        user,
        ends_with_parent: true,
    })
}

fn worker(args: &OneScanArgs) -> anyhow::Result<()> {
    if let Some(reason) = args.caller.refusal()? {
        return Ok(worker::refuse(reason)?);
    }
    Ok(worker::serve_one(&Confinement {
        ends_with_parent: true,
        ..args.scan.confinement()
    })?)
}

fn close(args: &CloseArgs) -> anyhow::Result<()> {
    let refusal = args.caller.refusal()?;
    worker::end_with_parent()?;
    let caller = Closing::new()?;
    let mut tables = KnownTable::default();
    while let Some(task) = caller.next()? {
        let log = &task.log.0;
        let done = match (&refusal, task.work) {
            (Some(reason), _) => Err(Error::of(log, reason.clone())),
            (None, CloseWork::TakeIn) => take_in(log),
            (None, CloseWork::Close { sync, journal, .. }) => {
                let how = How {
                    asked: Asked::CloseOwn { sync },
                    journal,
                    ..How::default()
                };
                recover_knowing(log, how, &mut tables).map(|_| None)
            }
        };
        let is_done = done.is_ok();
        caller.tell(done)?;
        if let CloseWork::Close {
            settle: Some(memory),
            ..
        } = task.work
            && is_done
        {
            caller.tell(settle(log, MemoryLimits::each(memory)).map(|()| None))?;
        }
    }
    Ok(())
}

/// Adds unflushed data to a log. The caller has not written the log, so the rules of `h5logfs recover` about rights apply.
fn take_in(log: &Path) -> Result<Option<String>, Error> {
    let taken = with_owners_rights(log, || Ok(take_in_unflushed(log)));
    taken.unwrap_or_else(|e| Err(Error::of(log, format!("{e:#}"))))
}

fn settle(log: &Path, memory: MemoryLimits) -> Result<(), Error> {
    let limits = Limits::of(THIS_PROGRAM.into(), 1);
    h5logfs_convert::settle::settle(log, &Workers::pooled(limits)?, memory)
}

fn parse_user(text: &str) -> Result<(u32, u32), String> {
    let pair = text.split_once(':');
    let pair = pair.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not UID:GID"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_two_numbers() {
        assert_eq!(parse_user("7:8"), Ok((7, 8)));
        for bad in ["", "7", ":", "7:", "-1:0", "nobody:nogroup"] {
            assert!(parse_user(bad).is_err(), "{bad}");
        }
    }
}
