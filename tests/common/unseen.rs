//! File systems that hide the locks of other nodes, like Lustre mounted with `localflock`: each `flock` of a program
//! succeeds.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets a program and its children take any lock, whoever holds it.
pub fn without_locks(command: &mut Command) -> &mut Command {
    // SAFETY: the filter is made before; two system calls follow, which are allowed after a fork.
    unsafe { command.pre_exec(answer_locks) }
}

/// Makes the kernel answer `flock` with success, and do nothing.
fn answer_locks() -> io::Result<()> {
    use libc::*;
    let code = |code: u32, value: u32| sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k: value,
    };
    // The first word that a filter sees is the number of the system call.
    let mut program = [
        code(BPF_LD | BPF_W | BPF_ABS, 0),
        sock_filter {
            jf: 1,
            ..code(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock as u32)
        },
        // A call with this error number succeeds.
        code(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
        code(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    ];
    let filter = sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the numbers are those of the two calls, and the filter lives until the second call has copied it.
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
