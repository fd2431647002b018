//! Finds the streams in the reads of a chunk grid, and decides which chunks to make ahead of each. The answers depend
//! on the reads only: there are no threads and no clock here.
//!
//! Reads of three chunks at the same distance from each other are a stream. Where the distance is that of
//! neighbours along a dimension of the grid, other reads may come between them: several readers may take
//! turns, and several threads may serve one reader's requests slightly out of order. Three chunks at any
//! other distance have to be read directly after each other.
//!
//! The window ahead of a stream starts with one chunk and doubles with each chunk that the reader takes. A
//! reader of a rectangle goes through row after row of the same length. So a stream is expected to end where
//! the last stream of the same step did, and no chunk beyond is made before the reader has gone further.

/// Number of chunks that are remembered to find streams.
const RECENT: usize = 16;
/// Number of chunks that may be read in pieces at the same time. Further pieces of them are no news.
const PIECES: usize = 8;
/// The most streams of a dataset that are followed at the same time.
const STREAMS: usize = 8;
/// Number of steps by which requests may come too early or too late.
const DISORDER: i64 = 8;
/// Number of chunks after which a stream that did not go on counts as ended.
const LIFETIME: u64 = 32;
/// Number of chunks that make a stream.
const FIRST_RUN: u64 = 3;

#[derive(Debug)]
pub(super) struct Streams {
    /// Differences between the numbers of neighbours along each dimension.
    steps: Vec<i64>,
    /// Number of chunks in the grid.
    len: u64,
    /// The most chunks that are made ahead of all streams together.
    max_ahead: u64,
    /// Number of chunks that a new stream begins with.
    first_window: u64,
    /// The last chunks that were read, the newest at the end.
    recent: Vec<u64>,
    /// The streams. The one that went on last comes first.
    streams: Vec<Stream>,
    /// Number of chunks that were read.
    clock: u64,
}

#[derive(Debug, Clone, Copy)]
struct Stream {
    last: u64,
    step: i64,
    /// The clock when the stream last went on.
    seen: u64,
    /// Number of chunks that were read.
    run: u64,
    /// Number of chunks of the previous stream of the same step, or 0 where there was none.
    expected_run: u64,
    /// The most chunks that may be ahead.
    window: u64,
    /// Number of chunks that were made ahead, or are being made.
    ahead: u64,
}

/// Numbers of chunks to make, at equal distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prefetch {
    next: Option<u64>,
    step: i64,
    left: u64,
    /// Number of chunks in the grid.
    len: u64,
}

impl Iterator for Prefetch {
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
    /// `steps` are the differences between neighbours along each dimension of the grid, and `len` is its number of
    /// chunks. At most `max_ahead` chunks are made ahead.
    pub fn new(steps: Vec<u64>, len: u64, max_ahead: u64) -> Self {
        let steps = steps.into_iter().filter_map(|s| i64::try_from(s).ok());
        Streams {
            steps: steps.rev().filter(|step| *step > 0).collect(),
            len,
            max_ahead,
            first_window: 1,
            recent: Vec::new(),
            streams: Vec::new(),
            clock: 0,
        }
    }

    /// Has a new stream begin with several chunks, because they are made for little more than one.
    pub fn beginning_with(self, chunks: u64) -> Self {
        Streams {
            first_window: chunks.clamp(1, self.max_ahead.max(1)),
            ..self
        }
    }

    /// Notes that a reader asks for a chunk. Returns the chunks to make, if the chunk continues a stream.
    pub fn next_after(&mut self, chunk: u64) -> Option<Prefetch> {
        // Most requests are for another piece of a chunk that is being read, so this path has to be cheap.
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

    /// Finds the stream that the chunk belongs to. Returns whether the stream went on. It then comes first.
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

    /// Looks for a new stream that ends with the chunk. The stream comes first. Returns whether there is one.
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
        let expected_run = before.map_or(0, |before| before.run);
        self.streams.truncate(STREAMS - 1);
        let stream = Stream {
            last: chunk,
            step,
            seen: self.clock,
            run: FIRST_RUN,
            expected_run,
            window: self.first_window,
            ahead: 0,
        };
        self.streams.insert(0, stream);
        true
    }

    /// The distance from the last chunk to `chunk`, if it is also that between the last two chunks.
    fn last_distance(&self, chunk: u64) -> Option<i64> {
        let [.., first, second] = self.recent.as_slice() else {
            return None;
        };
        let step = distance(*first, *second)?;
        (distance(*second, chunk)? == step && step != 0).then_some(step)
    }

    /// The chunks to make now ahead of the first stream.
    fn extend(&mut self) -> Prefetch {
        let alive = |s: &&Stream| self.clock - s.seen < LIFETIME;
        let alive = self.streams.iter().filter(alive).count();
        let share = (self.max_ahead / alive.max(1) as u64).max(1);
        let stream = &mut self.streams[0];
        if stream.run == stream.expected_run {
            // The stream may end here. If it does not, its window grows anew.
            stream.window = 1;
        }
        let left = stream.expected_run.checked_sub(stream.run);
        let expected = left.unwrap_or(u64::MAX);
        let wanted = stream.window.min(expected).min(share);
        if expected > 0 {
            stream.window = stream.window.saturating_mul(2).min(self.max_ahead);
        }
        let first = i64::try_from(stream.ahead.saturating_add(1)).ok();
        let first = first.and_then(|steps| stream.step.checked_mul(steps));
        let prefetch = Prefetch {
            next: first.and_then(|way| stream.last.checked_add_signed(way)),
            step: stream.step,
            left: wanted.saturating_sub(stream.ahead),
            len: self.len,
        };
        stream.ahead = stream.ahead.max(wanted);
        prefetch
    }
}

impl Stream {
    /// Number of steps from the last chunk that was read to this one. `None` where no number of steps leads there.
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

    /// The streams of a grid of 100 × 50 chunks, with up to 16 chunks ahead.
    fn streams() -> Streams {
        Streams::new(vec![50, 1], 5000, 16)
    }

    fn ask(streams: &mut Streams, chunk: u64) -> Vec<u64> {
        streams.next_after(chunk).into_iter().flatten().collect()
    }

    /// The chunks that are made while all these are read.
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

    /// In the second and later rows of a rectangle, no chunk is made that the reader does not ask for.
    #[test]
    fn rows_of_the_same_length_end_where_they_are_expected_to() {
        let mut streams = Streams::new(vec![1], 5000, 16);
        let row = |y: u64| 1000 + y * 50..1008 + y * 50;
        made(&mut streams, row(0));
        for y in 1..10 {
            let expected: Vec<u64> = row(y).skip(3).collect();
            assert_eq!(made(&mut streams, row(y)), expected);
        }
        // A reader that goes on after that is followed again.
        assert!(made(&mut streams, 4000..4060).contains(&4070));
    }

    /// Rectangles of 3 × 3 to 12 × 12 chunks, one after the other. Most chunks are made ahead of their reader, and few
    /// have left a cache of `CACHED` chunks before they are read.
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
                    let share = 1.0 / read.len() as f64;
                    if read[at..soon].contains(&made) {
                        helped += share;
                    } else {
                        wasted += share;
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
        /// Whatever is read, all chunks to make lie in the grid, and their number is bounded.
        #[test]
        fn nothing_goes_wrong(
            steps in prop::collection::vec(any::<u64>(), 0..4),
            len in any::<u64>(),
            most in 1u64..20,
            asked in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..30, u64::MAX - 30..], 0..200),
        ) {
            let mut streams = Streams::new(steps, len, most);
            for chunk in asked {
                let made: Vec<u64> = streams.next_after(chunk).into_iter().flatten().collect();
                prop_assert!(made.len() as u64 <= most);
                prop_assert!(made.iter().all(|chunk| *chunk < len));
                prop_assert!(!made.contains(&chunk));
                prop_assert!(streams.streams.len() <= STREAMS && streams.recent.len() <= RECENT);
            }
        }

        /// A single reader in order has each chunk made once, and before it is read.
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
