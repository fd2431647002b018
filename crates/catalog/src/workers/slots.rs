//! Limits the number of scans at the same time, in all and for each owner of files.

use std::collections::HashMap;

use parking_lot::{Condvar, Mutex};

/// Slots for scans. The files of one owner get all slots but one, so that files which are slow to scan do not block
/// the files of other owners.
#[derive(Debug)]
pub struct Slots {
    all: usize,
    taken: Mutex<Taken>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By the user number of the owner. Owners without a slot have no entry.
    by_owner: HashMap<u32, usize>,
}

/// A slot in use. Becomes free on drop.
#[derive(Debug)]
pub struct Slot<'a> {
    slots: &'a Slots,
    owner: u32,
}

impl Slots {
    /// A number of slots, at least one.
    pub fn new(all: usize) -> Self {
        Slots {
            all: all.max(1),
            taken: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// The number of slots for the files of one owner.
    fn share(&self) -> usize {
        (self.all - 1).max(1)
    }

    /// Waits for a slot for a file of `owner`.
    pub fn take(&self, owner: u32) -> Slot<'_> {
        let mut taken = self.taken.lock();
        while !self.has_slot(&taken, owner) {
            self.changed.wait(&mut taken);
        }
        taken.all += 1;
        *taken.by_owner.entry(owner).or_default() += 1;
        Slot { slots: self, owner }
    }

    fn has_slot(&self, taken: &Taken, owner: u32) -> bool {
        let own = taken.by_owner.get(&owner).copied().unwrap_or(0);
        taken.all < self.all && own < self.share()
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock();
        taken.all -= 1;
        if let Some(own) = taken.by_owner.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                taken.by_owner.remove(&self.owner);
            }
        }
        // The slot may suit only some of the threads that wait.
        self.slots.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn no_owner_takes_all_places() {
        let slots = Slots::new(3);
        let mine = [slots.take(1), slots.take(1)];
        assert!(!slots.has_slot(&slots.taken.lock(), 1));
        let other = slots.take(2);
        assert!(!slots.has_slot(&slots.taken.lock(), 3));
        drop(other);
        assert!(!slots.has_slot(&slots.taken.lock(), 1));
        drop(mine);
        assert!(slots.has_slot(&slots.taken.lock(), 1));
        assert!(slots.taken.lock().by_owner.is_empty());
    }

    #[test]
    fn who_waits_gets_the_place_that_becomes_free() {
        let slots = Slots::new(1);
        let (told, heard) = mpsc::channel();
        thread::scope(|scope| {
            let first = slots.take(1);
            assert!(!slots.has_slot(&slots.taken.lock(), 2));
            scope.spawn(|| {
                let _second = slots.take(2);
                told.send(()).unwrap();
            });
            assert!(heard.try_recv().is_err());
            drop(first);
            heard.recv().unwrap();
        });
    }
}
