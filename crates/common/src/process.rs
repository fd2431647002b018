//! The identity of this process. A forked process is another process, and does not own the resources that it inherits.
//!
//! Process IDs are reused, and the C library reports only forks made by its own `fork`. So the kernel reports forks: it
//! clears one page of memory in each new process (`MADV_WIPEONFORK`).

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A process, told apart from its ancestors and descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// A number that no ancestor of the process has. If the kernel cannot clear pages, this is the process ID.
    number: u64,
    id: u32,
}

impl Process {
    /// This process.
    pub fn this() -> Self {
        Process {
            number: number(),
            id: std::process::id(),
        }
    }

    /// Whether this is the calling process. Costs a load, and no system call.
    #[inline]
    pub fn is_this(self) -> bool {
        self.number == number()
    }

    /// The process ID.
    pub fn id(self) -> u32 {
        self.id
    }
}

/// The page that forks clear. Null until it is first used, and where the kernel cannot clear pages.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// Last number given. A fork copies it, so a new process gets a number that none of its ancestors has.
static LAST: AtomicU64 = AtomicU64::new(0);

#[inline]
fn number() -> u64 {
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the page is never unmapped.
    match unsafe { page.as_ref() } {
        Some(own) => match own.load(Ordering::Relaxed) {
            0 => first_number(own),
            number => number,
        },
        None => without_page(),
    }
}

#[cold]
fn first_number(own: &AtomicU64) -> u64 {
    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match own.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => number,
        // Another thread was faster.
        Err(number) => number,
    }
}

/// Makes the page, without a lock: a lock would stay locked in a process that is forked meanwhile.
#[cold]
fn without_page() -> u64 {
    let Some(new) = new_page() else {
        return u64::from(std::process::id());
    };
    let placed = PAGE.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    if placed.is_err() {
        // SAFETY: another thread was faster, and nothing uses this page.
        let _ = unsafe { munmap(new.cast(), LEN) };
    }
    number()
}

/// Length of one page on most machines. The kernel rounds it up to whole pages.
const LEN: usize = 4096;

fn new_page() -> Option<*mut AtomicU64> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses the place of new memory.
    let page = unsafe { mmap_anonymous(ptr::null_mut(), LEN, protection, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: this code owns the memory, which holds nothing yet.
    if unsafe { madvise(page, LEN, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: nothing uses this page.
        let _ = unsafe { munmap(page, LEN) };
        return None;
    }
    Some(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a check in a process that `fork` makes. Returns whether it holds there.
    fn holds_in(fork: impl Fn() -> i32, check: impl Fn() -> bool) -> bool {
        let child = fork();
        if child == 0 {
            let status = i32::from(!check());
            // SAFETY: `_exit` takes a number, and runs no code of this process.
            unsafe { libc::_exit(status) };
        }
        let mut status = -1;
        // SAFETY: there is room for the status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status == 0
    }

    #[test]
    fn a_process_is_itself_and_no_descendant_however_it_was_made() {
        let own = Process::this();
        assert!(own.is_this() && own == Process::this());
        assert_eq!(own.id(), std::process::id());
        // SAFETY: the new process only compares numbers, forks and ends.
        let fork = || unsafe { libc::fork() };
        // The C library does not know of this fork.
        // SAFETY: see above; without flags, `clone` copies the process as `fork` does.
        let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 };
        for fork in [&fork as &dyn Fn() -> i32, &clone] {
            assert!(holds_in(fork, || {
                let child = Process::this();
                let grandchild = || !own.is_this() && !child.is_this() && Process::this().is_this();
                !own.is_this() && child.is_this() && holds_in(fork, grandchild) && child.is_this()
            }));
        }
        assert!(own.is_this());
    }
}
