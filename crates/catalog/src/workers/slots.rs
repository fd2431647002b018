//! Limits the number of scans at the same time, in all and for each owner of files.

use std::collections::{HashMap, VecDeque};

use parking_lot::{Condvar, Mutex};

/// Slots for scans. The files of one owner get all slots but one, and waiting owners take turns. An owner without a
/// slot gets one at once, even where all slots are taken, up to twice their number. So files that are slow to scan do
/// not block the files of other owners, however many owners have slow files.
#[derive(Debug)]
pub struct Slots {
    all: usize,
    taken: Mutex<Taken>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Slots in use, by the user number of the owner. Owners without a slot have no entry.
    by_owner: HashMap<u32, usize>,
    /// Owners of waiting files, once for each file, in the order in which they get slots.
    waiting: VecDeque<u32>,
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
        taken.waiting.push_back(owner);
        while self.next(&taken) != Some(owner) {
            self.changed.wait(&mut taken);
        }
        taken.begin(owner);
        drop(taken);
        // Another thread may get a slot, too.
        self.changed.notify_all();
        Slot { slots: self, owner }
    }

    /// The owner who gets the next slot, if one is free. Owners without a slot come first.
    fn next(&self, taken: &Taken) -> Option<u32> {
        let waiting = || taken.waiting.iter().copied();
        let first = waiting().find(|owner| taken.of(*owner) == 0 && self.has_slot(taken, *owner));
        first.or_else(|| waiting().find(|owner| self.has_slot(taken, *owner)))
    }

    fn has_slot(&self, taken: &Taken, owner: u32) -> bool {
        match taken.of(owner) {
            0 => taken.all < 2 * self.all,
            own => own < self.share() && taken.all < self.all,
        }
    }
}

impl Taken {
    fn of(&self, owner: u32) -> usize {
        self.by_owner.get(&owner).copied().unwrap_or(0)
    }

    /// Gives a slot to a waiting file of this owner. The owner's other files then wait behind those of other owners.
    fn begin(&mut self, owner: u32) {
        let is_others = |waiting: &u32| *waiting != owner;
        let (others, mut own): (VecDeque<u32>, VecDeque<u32>) =
            self.waiting.drain(..).partition(is_others);
        own.pop_front();
        self.waiting = others;
        self.waiting.append(&mut own);
        self.all += 1;
        *self.by_owner.entry(owner).or_default() += 1;
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
    fn owners_have_slots_together_and_each_one_at_once() {
        let slots = Slots::new(3);
        let may = |owner| slots.has_slot(&slots.taken.lock(), owner);
        let mine = [slots.take(1), slots.take(1)];
        assert!(!may(1));
        let other = slots.take(2);
        // All slots are taken. An owner without a slot gets one, and no owner gets a second one.
        let further = [slots.take(3), slots.take(4), slots.take(5)];
        assert!(!may(2) && !may(3) && !may(6));
        drop(other);
        assert!(!may(1) && may(6));
        drop(further);
        drop(mine);
        assert!(may(1));
        assert!(slots.taken.lock().by_owner.is_empty());
    }

    #[test]
    fn owners_who_wait_take_turns() {
        let slots = Slots::new(3);
        let mut taken = slots.taken.lock();
        taken.waiting.extend([1, 1, 1, 1, 2, 2]);
        let mut begin = || {
            let next = slots.next(&taken);
            taken.begin(next?);
            next
        };
        // The last slot goes to either owner, and then none is left.
        assert_eq!(
            [begin(), begin(), begin(), begin()],
            [Some(1), Some(2), Some(1), None]
        );
        assert_eq!(taken.waiting, [2, 1, 1]);
    }

    #[test]
    fn who_waits_gets_the_place_that_becomes_free() {
        let slots = Slots::new(1);
        let (told, heard) = mpsc::channel();
        thread::scope(|scope| {
            let first = slots.take(1);
            assert!(!slots.has_slot(&slots.taken.lock(), 1));
            scope.spawn(|| {
                let _second = slots.take(1);
                told.send(()).unwrap();
            });
            assert!(heard.try_recv().is_err());
            drop(first);
            heard.recv().unwrap();
        });
    }
}
