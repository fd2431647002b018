//! How a process that will see hostile files gives up everything that it does not need for that.
//!
//! What is left: the memory and the processor time that it was granted, the descriptors that it is
//! handed, and answers on its socket. Each layer holds where another one fails.

use std::collections::BTreeMap;

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

pub type Result<T> = std::result::Result<T, String>;

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |e| format!("{what}: {e}")
}

/// Becomes `uid` and `gid`, without further groups and without any capability. Needs the right to do
/// so.
pub fn become_user(uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[]).map_err(failed("setgroups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("setresgid"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("setresuid"))
}

/// Whoever this process is: no capability is left, and none comes back.
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

/// `memory`: bytes of address space.
pub fn limit_memory(memory: u64) -> Result<()> {
    limit(Resource::As, memory, 0)?;
    // Nothing of a user's file shall lie about as a core dump, and nothing is to be written at all.
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)
}

/// The kernel ends the process after so many seconds of processor time: with a signal of its own, and should
/// that be ignored, a second later.
pub fn limit_processor(seconds: u64) -> Result<()> {
    limit(Resource::Cpu, seconds, 1)
}

fn limit(resource: Resource, most: u64, grace: u64) -> Result<()> {
    let before = rustix::process::getrlimit(resource).maximum;
    let within = |most: u64| Some(before.map_or(most, |before| before.min(most)));
    let limits = Rlimit {
        current: within(most),
        maximum: within(most.saturating_add(grace)),
    };
    rustix::process::setrlimit(resource, limits).map_err(failed("setrlimit"))
}

/// Shuts the process off from the file system, from TCP, and from signalling others: with Landlock, as
/// far as the kernel knows that. Returns what is lacking, for the log.
pub fn shut_off_files() -> Result<Option<String>> {
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
        (_, status) => Some(format!("Landlock cannot be had ({status:?})")),
    })
}

/// The calls that a worker needs.
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
    // More filters, which only forbid more.
    libc::SYS_seccomp,
    // Answered by another filter.
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

/// A filter: `matching` for the calls of `rules`, `other` for all others.
fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram> {
    let filter = SeccompFilter::new(rules, other, matching, arch()?).map_err(failed("seccomp"))?;
    filter.try_into().map_err(failed("seccomp"))
}

/// What a worker may do to a descriptor with `fcntl`. The rest of it reaches others: locks and leases keep those
/// waiting who write to the file, and `F_SETOWN` sends any process of the same user a signal.
const DESCRIPTOR_COMMANDS: [i32; 5] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
];

/// How a process makes another one that is its sibling: the flags of `clone` for that.
pub const FORK: c_long = (libc::CLONE_PARENT | libc::SIGCHLD) as c_long;

fn refusal(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno as u32)
}

/// Only the calls that a worker needs, and the one that makes workers. What is forbidden fails, and with
/// it the scan: no network, no exec, no opening of files.
fn allowed() -> Result<BpfProgram> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let (is, masked) = (|| SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq);
    let not_executable = |argument| {
        let exec = libc::PROT_EXEC as u64;
        rule(vec![condition(argument, masked(exec), 0)?])
    };
    let own_descriptor = |command: &i32| rule(vec![condition(1, is(), *command as u64)?]);
    let own_descriptor = DESCRIPTOR_COMMANDS.iter().map(own_descriptor);
    rules.extend([
        (libc::SYS_fcntl, own_descriptor.collect::<Result<_>>()?),
        (libc::SYS_mmap, vec![not_executable(2)?]),
        (libc::SYS_mprotect, vec![not_executable(2)?]),
        (
            libc::SYS_clone,
            vec![rule(vec![condition(0, is(), FORK as u64)?])?],
        ),
        // Its own limits, which it can only lower.
        (
            libc::SYS_prlimit64,
            vec![rule(vec![condition(0, is(), 0)?])?],
        ),
        (
            libc::SYS_prctl,
            vec![rule(vec![condition(
                0,
                is(),
                libc::PR_SET_NO_NEW_PRIVS as u64,
            )?])?],
        ),
    ]);
    filter(rules, refusal(libc::EPERM), SeccompAction::Allow)
}

/// Nobody can look into the arguments of `clone3`: the C library does without it when it is not there.
fn without_clone3() -> Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    filter(rules, SeccompAction::Allow, refusal(libc::ENOSYS))
}

/// Forbids to make processes and threads: no limit of memory or of processor time counts what the kernel holds for these.
fn without_fork() -> Result<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone, Vec::new())]);
    filter(rules, SeccompAction::Allow, refusal(libc::EPERM))
}

/// Forbids all system calls that neither a worker nor the one who makes workers needs.
pub fn filter_calls() -> Result<()> {
    seccompiler::apply_filter(&without_clone3()?).map_err(failed("seccomp"))?;
    seccompiler::apply_filter(&allowed()?).map_err(failed("seccomp"))
}

/// What a worker has to do to forbid itself to make others; prepared once for all of them.
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

    /// What `attempt` comes to in a thread that has shut itself in: filters and Landlock are of threads.
    fn confined<T: Send + 'static>(attempt: impl FnOnce() -> T + Send + 'static) -> T {
        let attempt = move || {
            let no_fork = NoFork::prepare().unwrap();
            drop_capabilities().unwrap();
            shut_off_files().unwrap();
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
                // SAFETY: none of the commands takes a pointer, but for the lock, where the kernel refuses address 0.
                match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            };
            // The C library's crate has no name for it.
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
                // SAFETY: the kernel chooses the place, and nobody looks at it.
                unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE) }
            };
            let code = map(ProtFlags::READ | ProtFlags::EXEC);
            assert_eq!(code.err(), Some(Errno::PERM));
            let data = map(ProtFlags::READ | ProtFlags::WRITE).unwrap();
            // SAFETY: it was mapped just now.
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
