//! Reads bytes that other nodes have written, and that this node may not see yet.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use h5logfs_common::fault::Fault;
use h5logfs_log::journal::fresh::refresh;

/// Longest time for which a node caches bytes that another node has changed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Calls `read`, and repeats it while it fails, each time after this node has dropped its cache of the file.
pub(crate) fn patiently<T>(
    file: &File,
    mut read: impl FnMut() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let start = Instant::now();
    let mut outcome = read();
    while outcome.is_err() && start.elapsed() < PATIENCE {
        refresh(file);
        outcome = read();
        if outcome.is_err() {
            thread::sleep(Duration::from_millis(100));
        }
    }
    outcome
}

/// Looks for a name that another node has just created, and repeats while it is not found.
pub(crate) fn when_there<T>(mut look: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match look() {
            Err(e) if e.kind() == ErrorKind::NotFound && start.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_repeated_until_it_succeeds() {
        let file = tempfile::tempfile().unwrap();
        let mut reads = 0;
        let read = patiently(&file, || {
            reads += 1;
            if reads < 3 {
                Err("late".into())
            } else {
                Ok(())
            }
        });
        assert_eq!((read, reads), (Ok(()), 3));
    }

    #[test]
    fn a_name_is_looked_for_until_it_is_there() {
        let mut looks = 0;
        let found = when_there(|| {
            looks += 1;
            match looks {
                3 => Ok("here"),
                _ => Err(ErrorKind::NotFound.into()),
            }
        });
        assert_eq!((found.unwrap(), looks), ("here", 3));
        let refused = when_there(|| Err::<(), _>(ErrorKind::PermissionDenied.into()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
