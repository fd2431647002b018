//! A bind mount of a file or directory.

use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, mount_bind};

use super::guard::Guard;

/// A bind mount, unmounted when dropped. Only root can make one.
pub struct Bound {
    place: PathBuf,
    _guard: Guard,
}

impl Bound {
    pub fn new(from: &Path, place: &Path) -> Self {
        let guard = Guard::of_mount(place);
        mount_bind(from, place).unwrap();
        Bound {
            place: place.to_owned(),
            _guard: guard,
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.place, UnmountFlags::DETACH);
    }
}
