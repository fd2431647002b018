//! Work in equal shares, done by a few threads in parallel.

use std::cell::Cell;
use std::sync::OnceLock;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::sync::Mutex;

/// Largest number of threads, including the caller. Other readers of a large node need cores, too, and limits bound the
/// threads of a process.
const MOST: usize = 16;

thread_local! {
    /// Whether this thread works on a share. Then all cores are busy.
    static HAS_SHARE: Cell<bool> = const { Cell::new(false) };
}

/// Best number of shares for work that starts now; at least one.
pub fn shares() -> usize {
    if HAS_SHARE.get() {
        return 1;
    }
    cores().min(MOST)
}

/// Number of cores that this thread may use; at least one.
///
/// The limits of the control group are read once, because that takes a dozen system calls. The binding to cores is read each
/// time: ranks and workers are bound later.
pub fn cores() -> usize {
    static ALL: OnceLock<usize> = OnceLock::new();
    let all = *ALL.get_or_init(|| thread::available_parallelism().map_or(1, |n| n.get()));
    let bound = rustix::thread::sched_getaffinity(None).map_or(all, |set| set.count() as usize);
    all.min(bound).max(1)
}

/// Runs `work` for the shares `0..shares` (at least one), and returns the results in this order. The calling thread does the
/// first share, and the shares whose thread could not start or has panicked.
///
/// The threads block all signals, which are meant for the threads of the host.
pub fn share<T: Send>(shares: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = |number| {
        let _marked = Marked::new();
        work(number)
    };
    if shares <= 1 {
        return vec![work(0)];
    }
    let work = &work;
    thread::scope(|scope| {
        let start = |number| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || work(number));
            (number, thread)
        };
        let others: Vec<_> = without_signals(|| (1..shares).map(start).collect());
        let mut done = vec![work(0)];
        done.extend(others.into_iter().map(|(number, thread)| {
            let outcome = thread.ok().and_then(|thread| thread.join().ok());
            outcome.unwrap_or_else(|| work(number))
        }));
        done
    })
}

/// Fills a list in `shares` parts. `fill` gets the index of the first element of a part, and the part.
pub fn fill<T: Send>(shares: usize, list: &mut [T], fill: impl Fn(usize, &mut [T]) + Sync) {
    let each = list.len().div_ceil(shares.max(1)).max(1);
    let parts: Vec<_> = list.chunks_mut(each).map(Mutex::new).collect();
    share(parts.len(), |number| {
        if let Some(part) = parts.get(number) {
            fill(number * each, &mut part.lock());
        }
    });
}

/// Runs `work`, and `aside` in another thread at the same time. Without a thread or a core for it, `aside` runs afterwards.
pub fn beside<T>(aside: impl Fn() + Sync, work: impl FnOnce() -> T) -> T {
    if cores() == 1 {
        let done = work();
        aside();
        return done;
    }
    along(2, |_| aside(), work)
}

/// Runs `work`, and `aside` for the shares `1..shares` in other threads at the same time. The calling thread does the shares whose
/// thread could not start, afterwards.
pub fn along<T>(shares: usize, aside: impl Fn(usize) + Sync, work: impl FnOnce() -> T) -> T {
    let aside = |number| {
        let _marked = Marked::new();
        aside(number);
    };
    let aside = &aside;
    thread::scope(|scope| {
        let start = |number| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || aside(number));
            (number, thread)
        };
        let others: Vec<_> = without_signals(|| (1..shares).map(start).collect());
        let done = work();
        for (number, thread) in others {
            match thread {
                // Nobody needs the payload of the panic.
                Ok(thread) => _ = thread.join(),
                Err(_) => aside(number),
            }
        }
        done
    })
}

/// Runs `start`, such as the start of threads, with all signals blocked. New threads inherit the blocked signals.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let started = start();
    if let Ok(before) = before {
        // This mask was in force before, so it is valid.
        let _ = before.thread_set_mask();
    }
    started
}

/// Marks a thread that works on a share, for as long as it lives.
struct Marked {
    before: bool,
}

impl Marked {
    fn new() -> Self {
        Marked {
            before: HAS_SHARE.replace(true),
        }
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        HAS_SHARE.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn shares_come_back_in_order_and_are_not_shared_again() {
        let done = share(5, |number| (number, shares()));
        assert_eq!(done, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
        assert!((1..=MOST).contains(&shares()));
        assert!(shares() == 1 || thread::available_parallelism().unwrap().get() > 1);
    }

    #[test]
    fn a_list_is_filled_whatever_the_shares() {
        for (shares, len) in [(1, 5), (3, 10), (4, 2), (0, 1), (2, 0)] {
            let mut list = vec![0; len];
            fill(shares, &mut list, |first, part| {
                for (place, element) in (first..).zip(part) {
                    *element += place + 1;
                }
            });
            assert!(list.iter().copied().eq(1..=len));
        }
    }

    #[test]
    fn what_is_done_aside_is_done_at_the_end() {
        let done = AtomicUsize::new(0);
        let aside = || _ = done.fetch_add(1, Ordering::Relaxed);
        assert_eq!(beside(aside, || 7), 7);
        assert_eq!(done.into_inner(), 1);
        assert_eq!(beside(|| panic!("aside"), || 8), 8);
    }

    #[test]
    fn a_share_whose_thread_panics_is_done_by_the_caller() {
        let tried = AtomicUsize::new(0);
        let done = share(3, |number| {
            if number == 2 && tried.fetch_add(1, Ordering::Relaxed) == 0 {
                panic!("in a thread");
            }
            number
        });
        assert_eq!(done, [0, 1, 2]);
    }
}
