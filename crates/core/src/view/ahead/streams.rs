//! Who reads a chunk grid in order, and how far ahead of whom it is worth to make chunks. No threads and
//! no clock: what was asked decides.
//!
//! Three chunks at the same distance from each other are a stream. The distance may be that between
//! neighbours along any dimension of the grid; then the three need not follow each other directly, for
//! several readers may take turns, and one reader's requests come in slightly wrong order where several
//! threads serve them. Any other distance counts if the three do.
//!
//! What is made ahead of a stream grows from one chunk, doubling with each that the reader takes. A
//! reader of windows goes through row after row of the same length: so the length of the last stream
//! of the same step is where the next one is expected to end, and nothing beyond is made before it has
//! gone on.

/// Chunks that are remembered to find streams.
const RECENT: usize = 16;
/// Chunks that are read in pieces at the same time.
const PIECES: usize = 8;
/// Readers of a dataset that are followed at the same time.
const STREAMS: usize = 8;
/// How many steps a request may come too early or too late.
const DISORDER: i64 = 8;
/// A stream that did not go on for that many chunks has ended, or waits.
const ALIVE: u64 = 32;
/// Chunks that make a stream.
const FIRST_RUN: u64 = 3;

#[derive(Debug)]
pub(super) struct Streams {
    /// Distances of neighbours along each dimension.
    steps: Vec<i64>,
    /// Chunks in the grid.
    len: u64,
    /// The most chunks that are made ahead of all streams together.
    most: u64,
    /// What was asked of late, the newest last.
    recent: Vec<u64>,
    /// The one that went on last is in front.
    streams: Vec<Stream>,
    /// Counts what is asked.
    clock: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    last: u64,
    step: i64,
    /// When it went on.
    seen: u64,
    /// Chunks read.
    run: u64,
    /// Chunks that the stream of the same step before it had; 0 where there was none.
    usual: u64,
    /// How many chunks may be ahead.
    window: u64,
    /// How many are ahead.
    ahead: u64,
}

/// Chunks to be made: numbers in equal distance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ahead {
    next: Option<u64>,
    step: i64,
    left: u64,
    /// Chunks in the grid.
    len: u64,
}

impl Iterator for Ahead {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let chunk = self
            .next
            .filter(|chunk| *chunk < self.len && self.left > 0)?;
        self.left -= 1;
        self.next = chunk.checked_add_signed(self.step);
        Some(chunk)
    }
}

impl Streams {
    /// `steps`: how far apart neighbours along each dimension of a grid of `len` chunks are; `most`: the
    /// most chunks that may be made ahead.
    pub fn new(steps: Vec<u64>, len: u64, most: u64) -> Self {
        let steps = steps.into_iter().filter_map(|s| i64::try_from(s).ok());
        Streams {
            steps: steps.rev().filter(|step| *step > 0).collect(),
            len,
            most,
            recent: Vec::new(),
            streams: Vec::new(),
            clock: 0,
        }
    }

    /// Somebody reads a chunk. Where that continues a stream, says which chunks to make, if any.
    pub fn ask(&mut self, chunk: u64) -> Option<Ahead> {
        // Mostly another piece of what somebody is reading: let that cost next to nothing.
        if self.recent.iter().rev().take(PIECES).any(|c| *c == chunk) {
            return None;
        }
        self.clock += 1;
        let begun = match self.advance(chunk) {
            Some(went_on) => went_on,
            None => self.begin(chunk),
        };
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(chunk);
        begun.then(|| self.extend())
    }

    /// Finds the stream that the chunk belongs to and says whether it went on, in which case it is in
    /// front now.
    fn advance(&mut self, chunk: u64) -> Option<bool> {
        let found = self.streams.iter().enumerate().find_map(|(at, stream)| {
            let steps = stream.steps_to(chunk)?;
            let early = DISORDER.saturating_add_unsigned(stream.ahead);
            (-DISORDER..=early).contains(&steps).then_some((at, steps))
        });
        let (at, steps) = found?;
        let Ok(steps @ 1..) = u64::try_from(steps) else {
            return Some(false);
        };
        self.streams[..=at].rotate_right(1);
        let stream = &mut self.streams[0];
        stream.last = chunk;
        stream.seen = self.clock;
        stream.run = stream.run.saturating_add(steps);
        stream.ahead = stream.ahead.saturating_sub(steps);
        Some(true)
    }

    /// Looks for a new stream that ends with the chunk; it comes to the front.
    fn begin(&mut self, chunk: u64) -> bool {
        let was_read = |steps: i64, step: i64| {
            let before = step.checked_mul(steps).map(i64::wrapping_neg);
            let before = before.and_then(|way| chunk.checked_add_signed(way));
            before.is_some_and(|before| self.recent.contains(&before))
        };
        let ends_here = |step: &i64| was_read(1, *step) && was_read(2, *step);
        let along = self.steps.iter().flat_map(|step| [*step, -step]);
        let step = along.into_iter().find(ends_here);
        let Some(step) = step.or_else(|| self.last_distance(chunk)) else {
            return false;
        };
        let before = self.streams.iter().find(|s| s.step == step);
        let usual = before.map_or(0, |before| before.run);
        self.streams.truncate(STREAMS - 1);
        let stream = Stream {
            last: chunk,
            step,
            seen: self.clock,
            run: FIRST_RUN,
            usual,
            window: 1,
            ahead: 0,
        };
        self.streams.insert(0, stream);
        true
    }

    /// The distance from each of the last chunks to the next, if it is the same.
    fn last_distance(&self, chunk: u64) -> Option<i64> {
        let [.., first, second] = self.recent.as_slice() else {
            return None;
        };
        let step = distance(*first, *second)?;
        (distance(*second, chunk)? == step && step != 0).then_some(step)
    }

    /// What to make now ahead of the stream in front.
    fn extend(&mut self) -> Ahead {
        let alive = |s: &&Stream| self.clock - s.seen < ALIVE;
        let alive = self.streams.iter().filter(alive).count();
        let share = (self.most / alive.max(1) as u64).max(1);
        let stream = &mut self.streams[0];
        if stream.run == stream.usual {
            // Perhaps it ends here; if not, it is a new one.
            stream.window = 1;
        }
        let expected = match stream.run <= stream.usual {
            true => stream.usual - stream.run,
            false => u64::MAX,
        };
        let wanted = stream.window.min(expected).min(share);
        if expected > 0 {
            stream.window = stream.window.saturating_mul(2).min(self.most);
        }
        let first = i64::try_from(stream.ahead.saturating_add(1)).ok();
        let first = first.and_then(|steps| stream.step.checked_mul(steps));
        let ahead = Ahead {
            next: first.and_then(|way| stream.last.checked_add_signed(way)),
            step: stream.step,
            left: wanted.saturating_sub(stream.ahead),
            len: self.len,
        };
        stream.ahead = stream.ahead.max(wanted);
        ahead
    }
}

impl Stream {
    /// How many steps the chunk lies before the last one that was read; `None` where it is not on the way.
    fn steps_to(&self, chunk: u64) -> Option<i64> {
        let way = distance(self.last, chunk)?;
        (way.checked_rem(self.step)? == 0).then_some(way.checked_div(self.step)?)
    }
}

fn distance(from: u64, to: u64) -> Option<i64> {
    i64::try_from(i128::from(to) - i128::from(from)).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a grid of 100 × 50 chunks, up to 16 ahead.
    fn streams() -> Streams {
        Streams::new(vec![50, 1], 5000, 16)
    }

    fn ask(streams: &mut Streams, chunk: u64) -> Vec<u64> {
        streams.ask(chunk).into_iter().flatten().collect()
    }

    /// What is made, without repetitions, after all these were asked.
    fn made(streams: &mut Streams, chunks: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let all = chunks.into_iter().flat_map(|chunk| ask(streams, chunk));
        all.collect()
    }

    #[test]
    fn what_is_ahead_grows_from_one_chunk_to_the_bound() {
        let streams = &mut streams();
        assert!(made(streams, [10, 11]).is_empty());
        assert_eq!(ask(streams, 12), [13]);
        assert!(ask(streams, 12).is_empty());
        assert_eq!(ask(streams, 13), [14, 15]);
        assert_eq!(ask(streams, 14), [16, 17, 18]);
        assert_eq!(made(streams, 15..20).last(), Some(&35));
        assert_eq!(ask(streams, 20), [36]);
    }

    #[test]
    fn all_directions_are_seen() {
        for step in [50, -50, -1, 7] {
            let streams = &mut streams();
            let at = |n: i64| (2000 + n * step) as u64;
            assert_eq!(made(streams, [at(0), at(1), at(2)]), [at(3)], "{step}");
            assert_eq!(ask(streams, at(3)), [at(4), at(5)]);
        }
    }

    #[test]
    fn nothing_lies_outside_of_the_grid() {
        assert_eq!(made(&mut streams(), 4990..5000).last(), Some(&4999));
        assert_eq!(made(&mut streams(), (0..6).rev()).last(), Some(&0));
        let mut small = Streams::new(vec![1], 3, 16);
        assert!(made(&mut small, 0..3).is_empty());
    }

    #[test]
    fn readers_that_take_turns_are_told_apart() {
        let streams = &mut streams();
        let turns = (0..6).flat_map(|n| [n, 1000 + n, 3000 + 50 * n, 4000 - n]);
        let made = made(streams, turns);
        for chunk in [6, 1006, 3300, 3994] {
            assert!(made.contains(&chunk), "{chunk}: {made:?}");
        }
    }

    #[test]
    fn chunks_may_be_read_in_pieces_that_alternate() {
        let streams = &mut streams();
        let mut made = made(streams, (0..20).flat_map(|n| [n, n + 1, n, n + 1, n + 2]));
        assert!(made.contains(&25), "{made:?}");
        let count = made.len();
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), count);
    }

    #[test]
    fn requests_that_overtake_each_other_are_one_stream() {
        let streams = &mut streams();
        let made = made(streams, [0, 2, 1, 3, 5, 4, 7, 6, 9, 8, 10]);
        assert_eq!(streams.streams.len(), 1);
        assert!(made.contains(&20), "{made:?}");
        let mut once = made.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), made.len());
    }

    /// The second and later rows of a window cost nothing that the reader does not want.
    #[test]
    fn rows_of_the_same_length_end_where_they_are_expected_to() {
        let mut streams = Streams::new(vec![1], 5000, 16);
        let row = |y: u64| 1000 + y * 50..1008 + y * 50;
        made(&mut streams, row(0));
        for y in 1..10 {
            let expected: Vec<u64> = row(y).skip(3).collect();
            assert_eq!(made(&mut streams, row(y)), expected);
        }
        // Whoever goes on after that is followed again.
        assert!(made(&mut streams, 4000..4060).contains(&4070));
    }

    /// Windows of 3 × 3 to 12 × 12 chunks, one after the other: most of what is read was made ahead, and
    /// little of what was made is not read while a cache of four times as many chunks keeps it.
    #[test]
    fn windows_waste_little() {
        const CACHED: usize = 64;
        for side in 3..=12u64 {
            let mut streams = streams();
            let corners = (0..4).flat_map(|y| (0..50 / side).map(move |x| (y * side, x * side)));
            let window = |(y, x): (u64, u64)| {
                let cells = (0..side).flat_map(move |r| (0..side).map(move |c| (y + r, x + c)));
                cells.map(|(row, column)| row * 50 + column)
            };
            let read: Vec<u64> = corners.flat_map(window).collect();
            let (mut helped, mut wasted) = (0.0, 0.0);
            for at in 0..read.len() {
                for made in ask(&mut streams, read[at]) {
                    let soon = read.len().min(at + CACHED);
                    match read[at..soon].contains(&made) {
                        true => helped += 1.0 / read.len() as f64,
                        false => wasted += 1.0 / read.len() as f64,
                    }
                }
            }
            assert!(helped > 0.6 && wasted < 0.15, "{side}: {helped}, {wasted}");
        }
    }

    #[test]
    fn random_reads_cause_next_to_nothing() {
        let mut streams = Streams::new(vec![50, 1], 5000, 16);
        let mut number = 1u64;
        let random = (0..10_000).map(|_| {
            number = number
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (number >> 33) % 5000
        });
        let made = made(&mut streams, random);
        assert!(made.len() < 300, "{}", made.len());
    }

    proptest! {
        /// Whatever is asked: what is made lies in the grid, and is bounded.
        #[test]
        fn nothing_goes_wrong(
            steps in prop::collection::vec(any::<u64>(), 0..4),
            len in any::<u64>(),
            most in 1u64..20,
            asked in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..30, u64::MAX - 30..], 0..200),
        ) {
            let mut streams = Streams::new(steps, len, most);
            for chunk in asked {
                let made: Vec<u64> = streams.ask(chunk).into_iter().flatten().collect();
                prop_assert!(made.len() as u64 <= most);
                prop_assert!(made.iter().all(|chunk| *chunk < len));
                prop_assert!(!made.contains(&chunk));
                prop_assert!(streams.streams.len() <= STREAMS && streams.recent.len() <= RECENT);
            }
        }

        /// A single reader in order is offered each chunk once, and no chunk too late.
        #[test]
        fn each_chunk_is_made_once(first in 0u64..1000, count in 3u64..300, most in 1u64..40) {
            let mut streams = Streams::new(vec![1], 5000, most);
            let mut made = Vec::new();
            for chunk in first..first + count {
                let late = made.len() > 3 && !made.contains(&chunk);
                prop_assert!(!late, "{}", chunk);
                made.extend(ask(&mut streams, chunk));
            }
            let expected: Vec<u64> = (first + 3..).take(made.len()).collect();
            prop_assert_eq!(made, expected);
        }
    }
}
