//! A child process that the host does not see: neither its waits nor its handler of SIGCHLD.
//!
//! A plug-in runs in a host that may wait for all its children, or count them. The kernel shows `wait` only children
//! that end with SIGCHLD, and a program that was started with `execve` always does. So a *parent* stands between host and
//! program, a process that ends without a signal and never calls `execve`:
//!
//! ```text
//! host ──clone, no signal──▶ parent ──clone, execve──▶ program
//! ```
//!
//! The parent shares the memory of the host. So nothing is copied, however large the host is, and memory that is
//! registered with a network adapter stays as it is. The parent waits for the program, notes how the program has ended,
//! and ends.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::process::{Pid, Signal};
use rustix::thread::futex;

/// Bytes of each stack. The functions that run on them call the system and little else.
const STACK: usize = 64 << 10;

/// A stack for one of the processes, aligned for any processor.
type Stack = Box<[u128]>;

/// Messages between the processes, in the memory that they share.
#[derive(Debug, Default)]
struct Notes {
    /// 1 once the program runs, or cannot be started.
    started: AtomicU32,
    /// Why the program does not run: an errno.
    errno: AtomicI32,
    /// End of the program: the status of `wait`.
    status: AtomicI32,
    /// 1 once `status` is set. The parent then ends.
    ended: AtomicU32,
}

/// A program and the state in which it begins.
#[derive(Debug)]
pub struct Program<'a> {
    pub path: CString,
    /// Arguments of the program. The first is its name.
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    /// Becomes standard input; descriptor 3 or higher.
    pub input: &'a OwnedFd,
    /// Becomes standard output and standard error; descriptor 3 or higher.
    pub output: &'a OwnedFd,
}

/// A [`Program`] in the form that the system wants. All of it is made in advance, because nothing may be allocated
/// between `clone` and `execve`.
struct Start {
    notes: *const Notes,
    path: *const c_char,
    /// Both lists end with a null pointer.
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    input: RawFd,
    output: RawFd,
    stack: *mut c_void,
}

/// A running program. Killed on drop.
#[derive(Debug)]
pub struct HiddenChild {
    parent: Pid,
    has_ended: bool,
    notes: Box<Notes>,
    /// The stack of the parent.
    _stack: Stack,
}

impl HiddenChild {
    /// Starts a program in a process group of its own, in the root directory, with the default handling of each signal.
    pub fn start(program: &Program<'_>) -> io::Result<Self> {
        let notes = Box::<Notes>::default();
        let (mut stack, mut stack_of_program) = (new_stack(), new_stack());
        let start = Start {
            notes: &raw const *notes,
            path: program.path.as_ptr(),
            arguments: pointers(&program.arguments),
            environment: pointers(&program.environment),
            input: program.input.as_raw_fd(),
            output: program.output.as_raw_fd(),
            stack: top(&mut stack_of_program),
        };
        let signals = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let flags = libc::CLONE_VM | libc::CLONE_FILES;
        // SAFETY: `run_parent` gets a pointer to a `Start`. The `Start` and all that it points to live until the parent
        // has said that it needs them no longer. Notes and stack live until the parent has ended (`collect`). The
        // parent shares the thread-local memory of this thread, which meanwhile only waits for a futex without the C
        // library. Afterwards the parent makes only calls that cannot fail, so it does not touch errno. It runs with
        // all signals blocked, so no handler of the host runs in it.
        let parent = unsafe {
            let argument = (&raw const start).cast::<c_void>().cast_mut();
            libc::clone(run_parent, top(&mut stack), flags, argument)
        };
        let refusal = io::Error::last_os_error();
        if parent > 0 {
            wait_for(&notes.started, Duration::MAX);
        }
        signals.thread_set_mask()?;
        let Some(parent) = Pid::from_raw(parent.max(0)) else {
            return Err(refusal);
        };
        let child = HiddenChild {
            parent,
            has_ended: false,
            notes,
            _stack: stack,
        };
        match child.notes.errno.load(Ordering::Acquire) {
            0 => Ok(child),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Waits for the end of the program, and kills it after `timeout`. Returns the signal that ended the program.
    /// `None` where no signal did, and where the program was killed here.
    pub fn end(mut self, timeout: Duration) -> Option<c_int> {
        if !wait_for(&self.notes.ended, timeout) {
            return None;
        }
        self.collect();
        let status = self.notes.status.load(Ordering::Acquire);
        libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
    }

    /// Waits for the end of the parent.
    fn collect(&mut self) {
        let parent = self.parent.as_raw_nonzero().get();
        // A host that waits for all kinds of children may have been faster.
        // SAFETY: a null pointer asks for no status. `__WALL` finds children that end without a signal.
        while unsafe { libc::waitpid(parent, ptr::null_mut(), libc::__WALL) } == -1
            && errno() == libc::EINTR
        {}
        self.has_ended = true;
    }
}

impl Drop for HiddenChild {
    fn drop(&mut self) {
        if !self.has_ended {
            // The program asks to be killed when its parent ends.
            let _ = rustix::process::kill_process(self.parent, Signal::KILL);
            self.collect();
        }
    }
}

/// Waits until `flag` is no longer 0. Returns `false` if it still is after `timeout`.
fn wait_for(flag: &AtomicU32, timeout: Duration) -> bool {
    // A time out of range means a wait without end.
    let until = Instant::now().checked_add(timeout);
    while flag.load(Ordering::Acquire) == 0 {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let left = left.and_then(|left| futex::Timespec::try_from(left).ok());
        // The loop looks again, whatever the call returns.
        let _ = futex::wait(flag, futex::Flags::empty(), 0, left.as_ref());
    }
    true
}

/// Sets `flag`, and wakes the thread that waits for it.
fn raise(flag: &AtomicU32) {
    flag.store(1, Ordering::Release);
    let _ = futex::wake(flag, futex::Flags::empty(), 1);
}

fn new_stack() -> Stack {
    vec![0; STACK / size_of::<u128>()].into()
}

/// The top of a stack, which grows downwards.
fn top(stack: &mut Stack) -> *mut c_void {
    stack.as_mut_ptr_range().end.cast()
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    let strings = strings.iter().map(|s| s.as_ptr());
    strings.chain([ptr::null()]).collect()
}

/// The process between host and program.
extern "C" fn run_parent(argument: *mut c_void) -> c_int {
    // SAFETY: `HiddenChild::start` passes a `Start`, which it keeps until `started` is set.
    let start = unsafe { &*argument.cast_const().cast::<Start>() };
    // SAFETY: the notes outlive this process.
    let notes = unsafe { &*start.notes };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: `prctl` takes a number. `run_program` gets the same `Start`, on a stack of its own; with `CLONE_VFORK` this
    // process goes on when that one has called `execve`, or has ended.
    let program = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::clone(run_program, start.stack, flags, argument)
    };
    if program == -1 {
        notes.errno.store(errno(), Ordering::Release);
    }
    raise(&notes.started);
    // `start` may be gone from here on.
    let mut status = 0;
    if program != -1 {
        // The function of the C library notes in the thread memory of the host that the thread can be cancelled, so
        // this is the system call itself.
        // SAFETY: `status` is valid, and the program is a child of this process. No signal interrupts the call.
        unsafe { libc::syscall(libc::SYS_wait4, program, &raw mut status, 0, 0) };
    }
    notes.status.store(status, Ordering::Release);
    raise(&notes.ended);
    // SAFETY: `_exit` takes a number, and runs none of the host's exit handlers.
    unsafe { libc::_exit(0) }
}

/// The process that becomes the program.
extern "C" fn run_program(argument: *mut c_void) -> c_int {
    // SAFETY: as in `run_parent`, which is suspended meanwhile.
    let start = unsafe { &*argument.cast_const().cast::<Start>() };
    // SAFETY: all pointers are those of `start`. The tables of signal handlers and of descriptors are copies, so the
    // host sees no change of them. All calls may be made after a fork.
    unsafe {
        libc::setpgid(0, 0);
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=libc::SIGRTMAX() {
            // Some signals cannot be changed.
            libc::sigaction(signal, &raw const default, ptr::null_mut());
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        let is_ready = libc::chdir(c"/".as_ptr()) == 0
            && libc::dup2(start.input, 0) == 0
            && libc::dup2(start.output, 1) == 1
            && libc::dup2(start.output, 2) == 2;
        if is_ready {
            let (arguments, environment) = (start.arguments.as_ptr(), start.environment.as_ptr());
            libc::execve(start.path, arguments, environment);
        }
        (*start.notes).errno.store(errno(), Ordering::Release);
        libc::_exit(127)
    }
}

fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// Longer than a test takes.
    const PATIENCE: Duration = Duration::from_secs(600);

    fn shell(script: &str, input: &OwnedFd, output: &OwnedFd) -> io::Result<HiddenChild> {
        let text = |text: &str| CString::new(text).unwrap();
        HiddenChild::start(&Program {
            path: text("/bin/sh"),
            arguments: ["sh", "-c", script].map(text).into(),
            environment: vec![text("NAME=value")],
            input,
            output,
        })
    }

    fn pipe() -> (File, OwnedFd) {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (from.into(), to)
    }

    #[test]
    fn a_program_runs_and_the_waits_of_the_host_do_not_see_it() {
        let (mut from, to) = pipe();
        let (stdin, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let child = shell("read word; echo $NAME $word; pwd; exit 3", &stdin, &to).unwrap();
        drop(to);
        // SAFETY: a null pointer asks for no status.
        let waited = unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) };
        assert_eq!(waited, -1, "the host sees a child");
        File::from(write).write_all(b"word\n").unwrap();
        let mut said = String::new();
        from.read_to_string(&mut said).unwrap();
        assert_eq!(said, "value word\n/\n");
        assert_eq!(child.end(PATIENCE), None);
    }

    #[test]
    fn the_signal_that_ends_a_program_is_told() {
        let (_from, to) = pipe();
        let child = shell("kill -XCPU $$", &to, &to).unwrap();
        assert_eq!(child.end(PATIENCE), Some(libc::SIGXCPU));
    }

    #[test]
    fn a_program_that_does_not_end_is_left_alone_after_a_while() {
        let (mut from, to) = pipe();
        let (stdin, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let child = shell("echo begun; read word", &stdin, &to).unwrap();
        from.read_exact(&mut [0; 6]).unwrap();
        assert_eq!(child.end(Duration::ZERO), None);
        // The shell does not ask to be killed. It ends when its input does.
        drop(write);
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let (_from, to) = pipe();
        let missing = HiddenChild::start(&Program {
            path: c"/nonexistent/h5logfs".into(),
            arguments: vec![c"h5logfs".into()],
            environment: Vec::new(),
            input: &to,
            output: &to,
        });
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
