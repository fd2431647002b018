//! Starts the program `h5logfs` so that a host does not see it among its children. A socket to the program is its
//! standard input.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;

use h5logfs_log::scan::protocol;

use super::hidden_child::{HiddenChild, Program};

/// The first descriptor above those of standard input, output and error, which the host may have closed.
const FIRST_DESCRIPTOR: i32 = 3;

/// The argument that tells the program which release has started it.
pub fn release() -> String {
    format!("--release={}", env!("CARGO_PKG_VERSION"))
}

/// Starts the program with these arguments. Returns it with the socket for messages to it.
pub fn start(program: &Path, arguments: Vec<OsString>) -> io::Result<(HiddenChild, OwnedFd)> {
    let (ours, theirs) = protocol::pair(SocketType::STREAM)?;
    let input = above_standard(theirs)?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let output = above_standard(null)?;
    let arguments = [OsString::from("h5logfs")].into_iter().chain(arguments);
    let child = HiddenChild::start(&Program {
        path: text(program.as_os_str())?,
        arguments: arguments.map(text).collect::<io::Result<_>>()?,
        environment: environment()?,
        input: &input,
        output: &output,
    })?;
    Ok((child, ours))
}

fn above_standard(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(
        descriptor.as_fd(),
        FIRST_DESCRIPTOR,
    )?)
}

/// Settings of the allocator that keep freed memory. libhdf5 takes half a megabyte for each file that it opens, and gives
/// it back. Getting pages from the system and clearing them would take a third of the time of a process that closes one
/// log after the other.
const KEEP_MEMORY: [&str; 2] = [
    "MALLOC_TRIM_THRESHOLD_=33554432",
    "MALLOC_MMAP_THRESHOLD_=4194304",
];

/// The environment of the program. libhdf5 may not be in the usual directories.
fn environment() -> io::Result<Vec<CString>> {
    let path = std::env::var_os("LD_LIBRARY_PATH");
    let path = path.map(|path| {
        let mut variable = OsString::from("LD_LIBRARY_PATH=");
        variable.push(path);
        variable
    });
    let memory = KEEP_MEMORY.into_iter().map(OsString::from);
    path.into_iter().chain(memory).map(text).collect()
}

fn text(text: impl Into<OsString>) -> io::Result<CString> {
    CString::new(text.into().into_vec()).map_err(io::Error::other)
}
