//! Automatic flushes of ranks. Ranks are threads here, each with its own clock.

use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use super::*;
use crate::ranks::Communicator;

const EVERY: Duration = Duration::from_secs(1);

/// Words that the first rank has sent.
#[derive(Default)]
struct Sent {
    words: Mutex<Vec<u64>>,
    more: Condvar,
}

/// A rank that only exchanges words.
struct Member {
    rank: u32,
    size: u32,
    sent: Arc<Sent>,
    /// Number of words that this rank has begun to send or receive.
    begun: Mutex<usize>,
}

/// The word with this number.
struct Numbered {
    number: usize,
    sent: Arc<Sent>,
}

impl Word for Numbered {
    fn comes_in(&mut self, _: Duration) -> bool {
        unreachable!()
    }

    fn wait(self: Box<Self>) -> u64 {
        let words = self.sent.words.lock().unwrap();
        let has_come = |words: &mut Vec<u64>| words.len() <= self.number;
        let words = self.sent.more.wait_while(words, has_come).unwrap();
        words[self.number]
    }
}

impl Communicator for Member {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn begin_broadcast(&self, value: u64) -> Box<dyn Word> {
        if self.rank == 0 {
            self.sent.words.lock().unwrap().push(value);
            self.sent.more.notify_all();
        }
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        Box::new(Numbered {
            number: *begun - 1,
            sent: Arc::clone(&self.sent),
        })
    }
    fn wait(&self) {}
    fn split(&self, _: u32) -> Box<dyn Communicator> {
        unreachable!()
    }
    fn sums_before(&self, _: &[u64]) -> Vec<u64> {
        unreachable!()
    }
    fn minima(&self, _: &[u64]) -> Vec<u64> {
        unreachable!()
    }
    fn gather_bytes(&self, _: &[u8]) -> Vec<Vec<u8>> {
        unreachable!()
    }
    fn broadcast(&self, _: u32, _: &mut [u8]) {
        unreachable!()
    }
}

/// A rank, its clock, and its flushes.
struct Rank {
    ranks: Ranks,
    automatic: Automatic,
    now: Time,
    calls: u32,
    /// Collective calls in which it has flushed.
    flushed: Vec<u32>,
}

impl Rank {
    fn new(rank: u32, size: u32, sent: &Arc<Sent>, options: &Options) -> Self {
        let now = now();
        Rank {
            ranks: Ranks::new(Member {
                rank,
                size,
                sent: Arc::clone(sent),
                begun: Mutex::new(0),
            }),
            automatic: Automatic::of(options, now).unwrap(),
            now,
            calls: 0,
            flushed: Vec::new(),
        }
    }

    fn call(&mut self, call: Call) {
        self.calls += u32::from(call == Call::Collective);
        if self.automatic.begin_call(&self.ranks, call, self.now, true) {
            self.flushed.push(self.calls);
            self.flush();
        }
    }

    fn flush(&mut self) {
        while self.automatic.step_to_flush(&self.ranks) {}
        self.automatic.set_flushed(self.now, true);
    }
}

fn every() -> Options {
    Options {
        flush_every: Some(EVERY),
        ..Options::default()
    }
}

/// Runs `size` ranks. Returns the ranks, and the words sent.
fn run(size: u32, options: &Options, act: impl Fn(&mut Rank) + Sync) -> (Vec<Rank>, Vec<u64>) {
    let sent = Arc::new(Sent::default());
    let done = thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (sent, act) = (&sent, &act);
                scope.spawn(move || {
                    let mut rank = Rank::new(rank, size, sent, options);
                    act(&mut rank);
                    rank
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let words = sent.words.lock().unwrap().clone();
    (done, words)
}

/// A pseudo-random number.
fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    *state >> 33
}

#[test]
fn all_ranks_flush_in_the_same_calls() {
    const CALLS: u32 = 200;
    for seed in 0..20 {
        let (ranks, words) = run(4, &every(), |rank| {
            let mut state = seed * 4 + u64::from(rank.ranks.rank());
            for call in 1..=CALLS {
                // Calls of one rank take time, and no other rank knows of them.
                for _ in 0..random(&mut state) % 5 {
                    rank.now += Duration::from_millis(random(&mut state) % 100);
                    rank.call(Call::Own);
                    thread::yield_now();
                }
                rank.call(Call::Collective);
                if call % 77 == 0 {
                    rank.flush();
                }
            }
        });
        let flushed = &ranks[0].flushed;
        assert!(
            (5..CALLS as usize / 2).contains(&flushed.len()),
            "{flushed:?}"
        );
        for rank in &ranks {
            assert_eq!(rank.flushed, *flushed, "seed {seed}");
        }
        // One word for each collective call that does not flush, and one more for each flush.
        assert_eq!(words.len(), (CALLS + CALLS / 77) as usize);
    }
}

/// A rank waits for the first one only if it is more than one call ahead.
#[test]
fn no_rank_waits_for_one_that_has_come_to_the_call_before() {
    let sent = Arc::new(Sent::default());
    let [mut first, mut other] = [0, 1].map(|rank| Rank::new(rank, 2, &sent, &every()));
    other.call(Call::Collective);
    for _ in 0..10 {
        first.call(Call::Collective);
        other.call(Call::Own);
        other.call(Call::Collective);
    }
    // The first rank does not wait for others, whatever it does by itself.
    first.now += EVERY;
    first.call(Call::Own);
    first.call(Call::Collective);
    assert_eq!(sent.words.lock().unwrap().last(), Some(&FLUSH));
    first.call(Call::Collective);
    assert_eq!(first.flushed, [12]);
    other.call(Call::Collective);
    assert_eq!(other.flushed, [12]);
}

/// Ranks that make different calls do not hang. The flush reports them.
#[test]
fn ranks_that_do_not_make_the_same_calls_come_to_the_flush() {
    let (ranks, _) = run(3, &every(), |rank| {
        for round in 0..5 {
            let calls = [3, 9, 0][rank.ranks.rank() as usize] * (round % 2);
            (0..calls).for_each(|_| rank.call(Call::Collective));
            rank.flush();
        }
        // Now the ranks make the same calls again.
        rank.now += EVERY;
        rank.calls = 0;
        (0..4).for_each(|_| rank.call(Call::Collective));
    });
    for rank in ranks {
        assert_eq!(rank.flushed, [2]);
    }
}

#[test]
fn what_the_first_rank_has_logged_makes_all_flush() {
    let options = Options {
        flush_bytes: Some(1000),
        ..Options::default()
    };
    let (ranks, _) = run(2, &options, |rank| {
        rank.now += 100 * EVERY;
        for _ in 0..12 {
            let bytes = [300, 5000][rank.ranks.rank() as usize];
            rank.automatic.add_logged(bytes);
            rank.call(Call::Collective);
        }
    });
    for rank in ranks {
        assert_eq!(rank.flushed, [5, 10]);
    }
}

#[test]
fn a_process_alone_flushes_in_any_call() {
    let mut automatic = Automatic::of(&every(), now()).unwrap();
    let (ranks, begin) = (Ranks::one(), automatic.flushed);
    let mut must_flush = |call, after, has_room| {
        let told = automatic.begin_call(&ranks, call, begin + after, has_room);
        if told {
            assert!(!automatic.step_to_flush(&ranks));
            automatic.set_flushed(begin + after, true);
        }
        told
    };
    assert!(!must_flush(Call::Own, EVERY / 2, true));
    assert!(must_flush(Call::Own, EVERY, true));
    assert!(!must_flush(Call::Collective, EVERY + EVERY / 2, true));
    assert!(!must_flush(Call::Own, 2 * EVERY, false));
    assert!(must_flush(Call::Collective, 2 * EVERY, true));
    assert!(Automatic::of(&Options::default(), begin).is_none());
}

/// Before the first flush, nothing defines the objects of the first rank's spilled data. A failed attempt is not
/// repeated at once.
#[test]
fn the_first_flush_follows_the_first_spill() {
    for is_complete in [true, false] {
        let mut automatic = Automatic::of(&every(), now()).unwrap();
        let (ranks, begin) = (Ranks::one(), automatic.now);
        let must_flush =
            |automatic: &mut Automatic| automatic.begin_call(&ranks, Call::Own, begin, true);
        automatic.add_logged(1);
        automatic.set_spilled(false);
        assert!(!must_flush(&mut automatic));
        automatic.set_spilled(true);
        assert!(must_flush(&mut automatic));
        automatic.set_flushed(begin, is_complete);
        automatic.set_spilled(true);
        assert!(!must_flush(&mut automatic));
    }
}

#[test]
fn a_buffer_is_as_old_as_the_first_of_what_it_has() {
    let mut automatic = Automatic::of(&every(), now()).unwrap();
    let begin = automatic.now;
    let is_old = |automatic: &mut Automatic, after, times| {
        automatic.set_now(begin + after);
        automatic.is_old(times)
    };
    assert!(!is_old(&mut automatic, 9 * EVERY, 1));
    automatic.add_logged(1);
    assert!(!is_old(&mut automatic, 9 * EVERY + EVERY / 2, 1));
    automatic.add_logged(1);
    assert!(is_old(&mut automatic, 10 * EVERY, 1));
    assert!(!is_old(&mut automatic, 10 * EVERY, 2));
    // The buffer could not be spilled.
    automatic.set_spilled(false);
    assert!(!is_old(&mut automatic, 10 * EVERY, 1));
    assert!(is_old(&mut automatic, 11 * EVERY, 1));
    automatic.set_spilled(true);
    assert!(!is_old(&mut automatic, 20 * EVERY, 1));
    automatic.add_logged(1);
    automatic.set_flushed(begin + 21 * EVERY, true);
    assert!(!is_old(&mut automatic, 30 * EVERY, 1));
}
