//! Takes from a process that reads hostile files every right that it does not need.
//!
//! The process keeps limited memory and processor time, the descriptors that it is sent, and its socket. Each layer of
//! the confinement holds even if another one fails.

use std::collections::BTreeMap;

use h5logfs_common::fault::Fault;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use libc::c_long;
use rustix::process::{Gid, Resource, Rlimit, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

pub type Result<T> = std::result::Result<T, Fault>;

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Fault {
    move |e| Fault::Refused(format!("{what}: {e}"))
}

/// Changes to `uid` and `gid`, without supplementary groups. The process needs the right to change users.
pub fn become_user(uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[]).map_err(failed("setgroups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("setresgid"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("setresuid"))
}

/// Lets the kernel end this process when the thread that started it ends.
pub fn end_with_parent() -> Result<()> {
    let signal = Some(rustix::process::Signal::KILL);
    rustix::process::set_parent_process_death_signal(signal).map_err(failed("PR_SET_PDEATHSIG"))
}

/// Drops all capabilities for good, whatever user the process has.
pub fn drop_capabilities() -> Result<()> {
    rustix::thread::clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(failed("capset"))?;
    rustix::thread::set_no_new_privs(true).map_err(failed("no_new_privs"))
}

/// Makes the kernel end a scan first when memory runs out. A scan serves one file; the daemon and the user's programs
/// serve more. Returns what is missing, for the log.
pub fn die_first() -> Option<String> {
    const SCORE: &str = "/proc/self/oom_score_adj";
    let written = std::fs::write(SCORE, "1000");
    written.err().map(|e| format!("{SCORE}: {e}"))
}

/// Limits the address space to `memory` bytes.
pub fn limit_memory(memory: u64) -> Result<()> {
    limit(Resource::As, memory, 0)?;
    // A core dump would hold parts of a user's file. The process must not write any other file, either.
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)
}

/// Limits the processor time. After `seconds` the kernel sends SIGXCPU, and a second later SIGKILL.
pub fn limit_processor(seconds: u64) -> Result<()> {
    limit(Resource::Cpu, seconds, 1)
}

/// Lowers the limit that [`limit_processor`] has set: the kernel sends SIGXCPU after `seconds`, if that is earlier.
pub fn end_after(seconds: u64) -> Result<()> {
    let before = rustix::process::getrlimit(Resource::Cpu);
    let most = before
        .maximum
        .map_or(seconds, |most| seconds.min(most.saturating_sub(1)));
    let limits = Rlimit {
        current: Some(most),
        ..before
    };
    rustix::process::setrlimit(Resource::Cpu, limits).map_err(failed("setrlimit"))
}

/// Lowers a limit. The hard limit is higher than the soft one by `grace`.
fn limit(resource: Resource, most: u64, grace: u64) -> Result<()> {
    let before = rustix::process::getrlimit(resource).maximum;
    let within = |most: u64| Some(before.map_or(most, |before| before.min(most)));
    let limits = Rlimit {
        current: within(most),
        maximum: within(most.saturating_add(grace)),
    };
    rustix::process::setrlimit(resource, limits).map_err(failed("setrlimit"))
}

/// Uses Landlock to forbid the file system, TCP and signals, as far as the kernel supports it. Returns what is
/// missing, for the log.
pub fn restrict_files() -> Result<Option<String>> {
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .and_then(|r| r.scope(Scope::from_all(abi)))
        .and_then(|r| r.create());
    let status = ruleset
        .and_then(|r| r.no_new_privs(true).restrict_self())
        .map_err(failed("Landlock"))?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::FullyEnforced, _) => None,
        (RulesetStatus::PartiallyEnforced, LandlockStatus::Available { .. }) => None,
        (_, status) => Some(format!("Landlock is not available ({status:?})")),
    })
}

/// The system calls that a worker needs.
const CALLS: &[c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_dup3,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_set_robust_list,
    libc::SYS_ppoll,
    libc::SYS_membarrier,
    // Another filter can only forbid more.
    libc::SYS_seccomp,
    // Another filter handles this call.
    libc::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

fn arch() -> Result<TargetArch> {
    std::env::consts::ARCH.try_into().map_err(failed("seccomp"))
}

fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
        .map_err(failed("seccomp"))
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(failed("seccomp"))
}

/// A filter that applies `matching` to the calls of `rules`, and `other` to all other calls.
fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram> {
    let filter = SeccompFilter::new(rules, other, matching, arch()?).map_err(failed("seccomp"))?;
    filter.try_into().map_err(failed("seccomp"))
}

/// The `fcntl` commands that a worker may use. The others affect other processes: locks and leases delay programs that
/// write to the file, and `F_SETOWN` sends signals to any process of the same user.
const DESCRIPTOR_COMMANDS: [i32; 5] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
];

/// The flags of `clone` that fork a sibling: the new process has the parent of the old one.
pub const FORK: c_long = (libc::CLONE_PARENT | libc::SIGCHLD) as c_long;

fn refusal(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno as u32)
}

/// Allows the system calls that a worker needs, and the fork of the zygote. Every other call fails with EPERM, and the
/// scan fails with it. So there is no network, no exec, and no opening of files.
fn allowed_calls() -> Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let equals = |argument, value: u64| {
        let condition = condition(argument, SeccompCmpOp::Eq, value)?;
        rule(vec![condition])
    };
    let not_executable = |argument| {
        let exec = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        rule(vec![condition(argument, exec, 0)?])
    };
    let commands = DESCRIPTOR_COMMANDS.iter();
    let commands = commands.map(|command| equals(1, *command as u64));
    let no_new_privs = libc::PR_SET_NO_NEW_PRIVS as u64;
    rules.extend([
        (libc::SYS_fcntl, commands.collect::<Result<_>>()?),
        (libc::SYS_mmap, vec![not_executable(2)?]),
        (libc::SYS_mprotect, vec![not_executable(2)?]),
        (libc::SYS_clone, vec![equals(0, FORK as u64)?]),
        // The limits of the process itself, which it can only lower.
        (libc::SYS_prlimit64, vec![equals(0, 0)?]),
        (libc::SYS_prctl, vec![equals(0, no_new_privs)?]),
        // Drops cached pages, so that data written by another node are read anew.
        (
            libc::SYS_fadvise64,
            vec![equals(3, libc::POSIX_FADV_DONTNEED as u64)?],
        ),
    ]);
    filter(rules, refusal(libc::EPERM), SeccompAction::Allow)
}

/// Hides `clone3`, because filters cannot look into its arguments. The C library then uses `clone`.
fn without_clone3() -> Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    filter(rules, SeccompAction::Allow, refusal(libc::ENOSYS))
}

/// Forbids new processes and threads: no limit counts the memory and time that the kernel spends on them.
fn without_fork() -> Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone, Vec::new())]);
    filter(rules, SeccompAction::Allow, refusal(libc::EPERM))
}

/// Forbids all system calls that neither zygote nor worker needs.
pub fn filter_calls() -> Result<()> {
    seccompiler::apply_filter(&without_clone3()?).map_err(failed("seccomp"))?;
    seccompiler::apply_filter(&allowed_calls()?).map_err(failed("seccomp"))
}

/// The filter with which a worker forbids itself to fork. The zygote prepares it once for all workers.
#[derive(Debug)]
pub struct NoFork(BpfProgram);

impl NoFork {
    pub fn prepare() -> Result<Self> {
        without_fork().map(NoFork)
    }

    pub fn apply(&self) -> Result<()> {
        seccompiler::apply_filter(&self.0).map_err(failed("seccomp"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::net::{TcpStream, UdpSocket};
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    use rustix::io::Errno;

    use super::*;

    /// Runs `attempt` in a confined thread. Filters and Landlock apply to single threads.
    fn confined<T: Send + 'static>(attempt: impl FnOnce() -> T + Send + 'static) -> T {
        let attempt = move || {
            let no_fork = NoFork::prepare().unwrap();
            drop_capabilities().unwrap();
            restrict_files().unwrap();
            filter_calls().unwrap();
            no_fork.apply().unwrap();
            attempt()
        };
        thread::spawn(attempt).join().unwrap()
    }

    fn is_refused<T>(outcome: io::Result<T>) -> bool {
        let errno = outcome.err().as_ref().and_then(Errno::from_io_error);
        matches!(errno, Some(Errno::PERM | Errno::ACCESS))
    }

    #[test]
    fn nothing_can_be_opened_made_or_started() {
        assert!(fs::read("/etc/hostname").is_ok() || fs::read("/etc/passwd").is_ok());
        confined(|| {
            assert!(is_refused(fs::File::open("/etc/passwd")));
            assert!(is_refused(fs::File::open("/proc/self/status")));
            assert!(is_refused(fs::read_dir("/")));
            assert!(is_refused(fs::write("/tmp/h5logfs-confined", "")));
            assert!(is_refused(fs::remove_file("/tmp/h5logfs-confined")));
            assert!(is_refused(fs::create_dir("/tmp/h5logfs-confined")));
            assert!(is_refused(Command::new("/bin/true").spawn()));
            assert!(thread::Builder::new().spawn(|| ()).is_err());
        });
    }

    #[test]
    fn nobody_can_be_reached() {
        confined(|| {
            assert!(is_refused(UdpSocket::bind("127.0.0.1:0")));
            assert!(is_refused(TcpStream::connect("127.0.0.1:1")));
            assert!(is_refused(UnixStream::connect("/run/nobody")));
            assert!(is_refused(UnixStream::pair()));
            let itself = rustix::process::getpid();
            let none = rustix::process::test_kill_process(itself);
            assert!(is_refused(none.map_err(io::Error::from)));
        });
    }

    #[test]
    fn who_uses_a_file_too_is_not_disturbed() {
        let file = tempfile::tempfile().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        confined(move || {
            use std::os::fd::{AsRawFd, BorrowedFd};
            let fcntl = |fd: BorrowedFd<'_>, command, argument: libc::c_long| {
                // SAFETY: only the lock command takes a pointer, and the kernel refuses address 0.
                match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            };
            // The crate `libc` lacks this name.
            const F_SETSIG: i32 = 10;
            let itself = rustix::process::getpid().as_raw_nonzero().get().into();
            let (file, socket) = (file.as_fd(), socket.as_fd());
            assert!(is_refused(fcntl(socket, libc::F_SETOWN, itself)));
            assert!(is_refused(fcntl(socket, F_SETSIG, libc::SIGKILL.into())));
            assert!(is_refused(fcntl(
                socket,
                libc::F_SETFL,
                libc::O_ASYNC.into()
            )));
            assert!(is_refused(fcntl(
                file,
                libc::F_SETLEASE,
                libc::F_RDLCK.into()
            )));
            assert!(is_refused(fcntl(file, libc::F_OFD_SETLK, 0)));
            assert!(fcntl(file, libc::F_GETFD, 0).is_ok());
        });
    }

    #[test]
    fn memory_cannot_become_code() {
        confined(|| {
            use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
            let map = |protection| {
                // SAFETY: the kernel chooses the address, and no code uses the memory.
                unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE) }
            };
            let code = map(ProtFlags::READ | ProtFlags::EXEC);
            assert_eq!(code.err(), Some(Errno::PERM));
            let data = map(ProtFlags::READ | ProtFlags::WRITE).unwrap();
            // SAFETY: the memory was mapped above, and no code uses it.
            unsafe { munmap(data, 4096) }.unwrap();
        });
    }

    #[test]
    fn what_a_scan_needs_is_left() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        confined(move || {
            use std::io::{Read, Write};
            let file_of = |socket: UnixStream| fs::File::from(OwnedFd::from(socket));
            let (mut reader, mut writer) = (file_of(reader), file_of(writer));
            writer.write_all(b"word").unwrap();
            let mut word = [0; 4];
            reader.read_exact(&mut word).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 0);
            assert_eq!(vec![1u8; 64 << 20].len(), 64 << 20);
        });
    }
}
