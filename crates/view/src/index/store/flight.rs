//! Single flight between processes: of several that lack the items of an entry, one makes them.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::StoreEntry;

/// The first pause between two looks at the lock. A waiting process must not sleep in the system call, because the
/// holder may be stopped.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The right to make the items of an entry. It ends on drop, and with the process.
#[derive(Debug)]
pub struct Flight {
    /// The directory of the entry, locked.
    _locked: OwnedFd,
    /// Whether another process had the right before, so that the items may be there now.
    pub has_waited: bool,
}

impl StoreEntry {
    /// Waits until no other process makes the items of this entry, but at most for `longest`. `None` after that time,
    /// and where the directory cannot be locked. This process then makes the items, too.
    pub fn flight(&self, longest: Duration) -> Option<Flight> {
        let directory = self.dir().ok()?;
        let until = Instant::now() + longest;
        let (mut pause, mut has_waited) = (FIRST_PAUSE, false);
        loop {
            match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Some(Flight {
                        _locked: directory,
                        has_waited,
                    });
                }
                Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                    has_waited = true;
                    thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Store;
    use super::super::tests::key;
    use super::*;

    #[test]
    fn one_flight_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("indexes");
        let stores = [(); 2].map(|()| Arc::new(Store::open(&path, 1 << 20).unwrap()));
        let [one, other] = stores.each_ref().map(|store| store.entry(&key(1)));
        let first = one.flight(Duration::ZERO).unwrap();
        assert!(!first.has_waited);
        assert!(other.flight(Duration::ZERO).is_none());
        // The flight of another entry is not waited for.
        let third = stores[1].entry(&key(2));
        assert!(!third.flight(Duration::ZERO).unwrap().has_waited);
        let waiting = thread::spawn(move || other.flight(Duration::from_secs(60)));
        thread::sleep(FIRST_PAUSE);
        drop(first);
        let second = waiting.join().unwrap().unwrap();
        assert!(one.flight(Duration::ZERO).is_none());
        drop(second);
        assert!(one.flight(Duration::ZERO).is_some());
    }
}
