//! File systems that do not show the locks of other nodes, as Lustre that is mounted with `localflock`: for a program, each `flock`
//! succeeds.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets a program, and all that it starts, take any lock that it asks for, whoever has it.
pub fn without_locks(command: &mut Command) -> &mut Command {
    // SAFETY: the filter is made before, and two system calls follow, which are allowed after a fork.
    unsafe { command.pre_exec(answer_locks) }
}

/// The kernel answers `flock` with success, and does nothing.
fn answer_locks() -> io::Result<()> {
    use libc::*;
    let code = |code: u32, value: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    // The number of a system call is the first word of what a filter sees.
    let mut program = [
        code(BPF_LD | BPF_W | BPF_ABS, 0),
        sock_filter {
            jf: 1,
            ..code(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock as u32)
        },
        // With this number of an error a call succeeds.
        code(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        code(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    ];
    let filter = sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the numbers are those of the two calls, and the filter lives until the second one has copied it.
    let set = unsafe {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if set {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
