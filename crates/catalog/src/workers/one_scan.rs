//! A scanner for hosts that do not know us: each scan runs in a process of its own, which the host does not see.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;

use h5logfs_core::error::{Error, Result};
use h5logfs_core::memory::Reserved;
use h5logfs_core::scan::{ScanRequest, Scanner, protocol};
use h5logfs_core::snapshot::Snapshot;
use h5logfs_core::task::Task;

use super::broker::Broker;
use super::hidden_child::{HiddenChild, Program};
use super::limits::{Limits, PROGRAM_VARIABLE, ScanUser};
use super::{EXIT_TIMEOUT, outcome, owner_of};

/// The hidden subcommand of the program `h5logfs` that does one scan.
const SUBCOMMAND: &str = "scan-worker";

/// Descriptors 0 to 2 are those of standard input, output and error, also where the host has closed them.
const FIRST_DESCRIPTOR: i32 = 3;

/// Scans in processes without rights, of which each does one scan. Nothing is left of it between scans: no process, no
/// descriptor, no thread.
#[derive(Debug)]
pub struct OneScan {
    limits: Limits,
}

impl OneScan {
    /// A scanner with these limits. The program is looked for when there is something to scan.
    pub fn new(limits: Limits) -> Self {
        OneScan { limits }
    }
}

impl Scanner for OneScan {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let owner = owner_of(&request)?;
        let until = Instant::now() + self.limits.time;
        let (worker, socket) = start(&self.limits).map_err(|e| {
            let (path, program) = (request.dir.full_path(request.relative), &self.limits.program);
            let program = program.display();
            Error::bad_file(
                path,
                format!(
                    "a log is scanned by the program h5logfs, and {program} cannot be started: {e}; \
                     {PROGRAM_VARIABLE} can name another one"
                ),
            )
        })?;
        let broker = Broker::new(request, self.limits.metadata, owner);
        let served = broker.serve(task, socket, until);
        let end = || worker.end(EXIT_TIMEOUT);
        outcome(&self.limits, task, &broker, served, end)
    }
}

/// Starts a worker. Returns it with the socket for messages to it.
fn start(limits: &Limits) -> io::Result<(HiddenChild, OwnedFd)> {
    let (ours, theirs) = protocol::pair(SocketType::STREAM)?;
    let input = above_standard(theirs)?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let output = above_standard(null)?;
    let worker = HiddenChild::start(&Program {
        path: text(limits.program.clone().into_os_string())?,
        arguments: arguments(limits)?,
        environment: environment()?,
        input: &input,
        output: &output,
    })?;
    Ok((worker, ours))
}

fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(
        descriptor.as_fd(),
        FIRST_DESCRIPTOR,
    )?)
}

fn arguments(limits: &Limits) -> io::Result<Vec<CString>> {
    let mut arguments = vec![
        "h5logfs".to_owned(),
        SUBCOMMAND.to_owned(),
        format!("--memory={}", limits.memory),
        format!("--cpu={}", limits.cpu.as_secs()),
        format!("--release={}", env!("CARGO_PKG_VERSION")),
    ];
    if let Some(ScanUser { uid, gid }) = limits.user()? {
        arguments.push(format!("--user={uid}:{gid}"));
    }
    arguments.into_iter().map(text).collect()
}

/// libhdf5 may not be in the usual directories.
fn environment() -> io::Result<Vec<CString>> {
    let path = std::env::var_os("LD_LIBRARY_PATH");
    let variable = path.map(|path| {
        let mut variable = OsString::from("LD_LIBRARY_PATH=");
        variable.push(path);
        text(variable)
    });
    variable.into_iter().collect()
}

fn text(text: impl Into<OsString>) -> io::Result<CString> {
    CString::new(text.into().into_vec()).map_err(io::Error::other)
}
