//! Forks a worker from the program `h5logfs`, where nothing else runs in its process and it is about to scan one file.
//!
//! A fork has the program loaded already, which saves a third of the time of a small scan. It shares the program's
//! addresses and memory, too. So this is only for a program that has seen no more than its command line.

use std::ffi::c_char;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use h5logfs_log::scan::protocol;
use rustix::fs::{Mode, OFlags};
use rustix::net::SocketType;
use rustix::process::Pid;

use super::limits::{Limits, ScanUser};
use super::worker::Worker;

/// The serving side. A process that calls it does one scan within the limits, for the process at the other end of
/// standard input. It becomes the user and the group that are given.
pub type Serve = fn(&Limits, Option<(u32, u32)>) -> io::Result<()>;

/// Forks a worker that runs `serve`. Fails in a process of several threads.
pub fn fork(limits: &Limits, serve: Serve) -> io::Result<Worker> {
    let user = limits.user()?;
    let user = user.map(|ScanUser { uid, gid }| (uid, gid));
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "a process of several threads cannot be forked",
        ));
    }
    let (ours, theirs) = protocol::pair(SocketType::STREAM)?;
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    // SAFETY: this process has one thread, so no other one holds a lock that the fork would wait for.
    let process = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let work = || prepare(&theirs, &null).and_then(|()| serve(limits, user));
            // The fork must not unwind the stack of the program.
            let done = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: `_exit` takes a number, and runs none of the exit handlers of the program.
            unsafe { libc::_exit(i32::from(!matches!(done, Ok(Ok(()))))) }
        }
        process => process,
    };
    let process = Pid::from_raw(process).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Worker::of_child(process, ours))
}

unsafe extern "C" {
    /// Pointers to the texts of the environment, with a null pointer behind them (POSIX).
    static mut environ: *mut *mut c_char;
}

/// Overwrites the environment with zeros, and leaves this process without one. libhdf5 would heed its variables, and a
/// file that takes a worker over could put them into the output of the command.
fn forget_environment() {
    // SAFETY: this process has one thread, and its Rust code keeps no pointer into the environment. Each text lies in
    // memory of the process and ends with a zero byte.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            (*at).write_bytes(0, libc::strlen(*at));
            at = at.add(1);
        }
        libc::clearenv();
    }
}

/// Gives this process the state of a newly started program: no environment of the command, a process group of its own,
/// and the socket as its only standard stream.
fn prepare(socket: &OwnedFd, null: &OwnedFd) -> io::Result<()> {
    forget_environment();
    rustix::process::setpgid(None, None)?;
    rustix::process::chdir(c"/")?;
    rustix::stdio::dup2_stdin(socket)?;
    rustix::stdio::dup2_stdout(null)?;
    rustix::stdio::dup2_stderr(null)?;
    Ok(())
}
