use proptest::prelude::*;

use super::super::queue::OVERHEAD;
use super::*;

mod windows;

fn whole(size: u64) -> Asked {
    Asked { size, bytes: size }
}

/// Asks for some bytes of an entry, as a reader does. Says whether it was there.
fn ask(policy: &mut Policy<u64, u64>, key: u64, asked: Asked) -> bool {
    match policy.get(&key, |_| asked) {
        Some(value) => {
            assert_eq!(value, key);
            true
        }
        None => {
            policy.insert(key, key, asked, false);
            false
        }
    }
}

const SIZE: u64 = 1000;

/// A cache with room for `entries` of [`SIZE`] bytes.
fn room_for(entries: u64) -> Policy<u64, u64> {
    Policy::new(entries * weight(SIZE))
}

#[test]
fn a_pass_through_much_pushes_out_nothing_that_is_used_again_and_again() {
    let mut policy = room_for(100);
    for _ in 0..10 {
        for key in 0..50 {
            ask(&mut policy, key, whole(SIZE));
        }
    }
    // Other readers go to sleep while somebody reads everything once, in pieces.
    for key in 1000..3000 {
        for _ in 0..4 {
            let quarter = Asked {
                size: SIZE,
                bytes: SIZE / 4,
            };
            ask(&mut policy, key, quarter);
        }
    }
    let there = (0..50).filter(|key| policy.contains(key)).count();
    assert_eq!(there, 50);
}

#[test]
fn what_is_used_beside_a_pass_comes_to_stay() {
    let mut policy = room_for(100);
    let mut missed = 0;
    for step in 0..3000 {
        // Each of fifty comes round while a hundred others pass.
        if step % 2 == 0 {
            let hit = ask(&mut policy, step / 2 % 50, whole(SIZE));
            missed += u64::from(!hit && step > 1000);
        }
        ask(&mut policy, 10_000 + step, whole(SIZE));
    }
    assert_eq!(missed, 0);
}

#[test]
fn of_a_round_through_more_than_fits_a_part_is_kept() {
    let mut policy = room_for(100);
    let mut hits = 0;
    for _ in 0..20 {
        hits = (0..150)
            .filter(|key| ask(&mut policy, *key, whole(SIZE)))
            .count();
    }
    assert!(hits >= 80, "{hits} of 150");
}

/// A reader of columns takes a piece of each chunk, and comes back for the next: those in work must
/// not give way to those that are done with.
#[test]
fn what_was_read_in_part_outlives_what_was_read_whole() {
    let mut policy = room_for(100);
    let mut missed = 0;
    for pass in 0..4 {
        for key in 0..60 {
            let piece = Asked {
                size: SIZE,
                bytes: SIZE / 4,
            };
            missed += u64::from(!ask(&mut policy, key, piece));
            ask(&mut policy, 1000 + pass * 60 + key, whole(SIZE));
        }
    }
    assert_eq!(missed, 60);
}

#[test]
fn what_does_not_fit_is_not_kept_and_pushes_out_nothing() {
    let mut policy = room_for(2);
    ask(&mut policy, 1, whole(SIZE));
    policy.insert(2, 2, whole(3 * SIZE + OVERHEAD), false);
    policy.insert(3, 3, whole(u64::MAX), false);
    assert!(policy.contains(&1) && !policy.contains(&2) && !policy.contains(&3));
}

/// The rules of the experts in as few words as possible, on vectors; youngest entries last.
#[derive(Default)]
struct Naive {
    /// Key, size, bytes handed out.
    begun: Vec<(u64, u64, u64)>,
    finished: Vec<(u64, u64)>,
    recent: Vec<(u64, u64)>,
}

fn total(list: impl Iterator<Item = u64>) -> u64 {
    list.map(weight).sum()
}

impl Naive {
    fn finished(&mut self, capacity: u64, key: u64, asked: Asked) -> bool {
        if self.finished.iter().any(|e| e.0 == key) {
            return true;
        }
        let had = self.begun.iter().any(|e| e.0 == key);
        if !had {
            while total(self.begun.iter().map(|e| e.1))
                + total(self.finished.iter().map(|e| e.1))
                + weight(asked.size)
                > capacity
            {
                match self.finished.is_empty() {
                    true => drop(self.begun.remove(0)),
                    false => drop(self.finished.remove(0)),
                }
            }
            self.begun.push((key, asked.size, 0));
        }
        let at = self.begun.iter().position(|e| e.0 == key).unwrap();
        self.begun[at].2 += asked.bytes;
        if self.begun[at].2 >= asked.size {
            let (key, size, _) = self.begun.remove(at);
            self.finished.push((key, size));
        }
        had
    }

    fn recent(&mut self, capacity: u64, key: u64, asked: Asked) -> bool {
        let at = self.recent.iter().position(|e| e.0 == key);
        let entry = at.map(|at| self.recent.remove(at));
        self.recent.push((key, asked.size));
        while total(self.recent.iter().map(|e| e.1)) > capacity {
            self.recent.remove(0);
        }
        entry.is_some()
    }
}

fn size_of(key: u64) -> u64 {
    key * 37 % 5 * 400
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn experts_do_as_the_naive_ones(
        capacity in 3000u64..20_000,
        steps in prop::collection::vec((0u64..40, 0u64..2000), 1..400),
    ) {
        let mut naive = Naive::default();
        let mut finished = Finished::new(capacity);
        let mut recent = Recent::new(capacity);
        let mut fallen = Vec::new();
        for (key, bytes) in steps {
            let asked = Asked { size: size_of(key), bytes: bytes.min(size_of(key)) };
            prop_assert_eq!(
                finished.ask(&key, asked, &mut fallen),
                naive.finished(capacity, key, asked)
            );
            prop_assert_eq!(
                recent.ask(&key, asked, &mut fallen),
                naive.recent(capacity, key, asked)
            );
        }
    }

    /// Whatever the experts say: values come back as they were put in, the newest is there, no more is
    /// kept than may be, and what is counted is what is there.
    #[test]
    fn the_budget_holds(
        capacity in 0u64..20_000,
        steps in prop::collection::vec((0u64..60, 0u64..2000, any::<bool>()), 1..600),
    ) {
        let mut policy = Policy::new(capacity);
        for (key, bytes, ahead) in steps {
            let asked = Asked { size: size_of(key), bytes: bytes.min(size_of(key)) };
            match ahead {
                true => policy.insert(key, key, Asked { bytes: 0, ..asked }, true),
                false => drop(ask(&mut policy, key, asked)),
            }
            prop_assert_eq!(policy.contains(&key), weight(asked.size) <= capacity);
            let there = (0..60).filter(|key| policy.contains(key));
            prop_assert_eq!(total(there.map(size_of)), policy.weight());
            prop_assert!(policy.weight() <= capacity);
            for outside in &policy.outside {
                prop_assert!(outside.iter().all(|(key, ())| policy.kept.contains(key)));
            }
        }
    }

    /// What an expert says that it has, and what it says has left, are the same.
    #[test]
    fn experts_tell_of_all_that_leaves(
        capacity in 3000u64..20_000,
        steps in prop::collection::vec((0u64..60, 0u64..2000), 1..600),
    ) {
        let experts: [Box<dyn Expert<u64>>; 3] = [
            Box::new(Finished::new(capacity)),
            Box::new(Recent::new(capacity)),
            Box::new(Reused::new(capacity)),
        ];
        for mut expert in experts {
            let mut there = std::collections::BTreeSet::new();
            let mut fallen = Vec::new();
            for (key, bytes) in &steps {
                let asked = Asked { size: size_of(*key), bytes: (*bytes).min(size_of(*key)) };
                prop_assert_eq!(expert.ask(key, asked, &mut fallen), there.contains(key));
                for gone in fallen.drain(..) {
                    prop_assert!(there.remove(&gone));
                }
                there.insert(*key);
                prop_assert!(total(there.iter().map(|key| size_of(*key))) <= capacity);
            }
        }
    }
}
