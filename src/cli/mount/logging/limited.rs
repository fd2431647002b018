//! Limits the messages of the daemon: each becomes one line of limited length, and their number is
//! limited, too.
//!
//! Messages contain names of files and datasets, which users choose. Without limits, a user could fill
//! the disk with a million broken files, forge a line, or send commands to the terminal of a reader.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};
use parking_lot::Mutex;

use crate::cli::output::plain;

/// Messages of one level that may come at once.
const MAX_AT_ONCE: u32 = 200;
/// The time between messages of one level after that. With lines of 200 bytes, it allows 35 MB a day.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time between reports of the number of suppressed messages.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Characters of a message. A longer one loses its middle.
const MAX_LEN: usize = 2048;

pub struct Limited<L> {
    inner: L,
    buckets: Mutex<Buckets>,
}

impl<L: Log> Limited<L> {
    pub fn new(inner: L) -> Self {
        Limited {
            inner,
            buckets: Mutex::new(Buckets::new(Instant::now())),
        }
    }

    fn report(&self, suppressed: &[(Level, u64)]) {
        for (level, number) in suppressed {
            self.inner.log(
                &Record::builder()
                    .level(*level)
                    .target(module_path!())
                    .args(format_args!(
                        "{number} messages of level {level} suppressed"
                    ))
                    .build(),
            );
        }
    }
}

impl<L: Log> Log for Limited<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.inner.enabled(record.metadata()) {
            return;
        }
        let admitted = self.buckets.lock().admit(record.level(), Instant::now());
        let Some(suppressed) = admitted else {
            return;
        };
        self.report(&suppressed);
        let message = record.args().to_string();
        let line = shortened(plain(&message));
        self.inner.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .args(format_args!("{line}"))
                .build(),
        );
    }

    fn flush(&self) {
        let suppressed = self.buckets.lock().take_suppressed(|_| true);
        self.report(&suppressed);
        self.inner.flush();
    }
}

/// A leaky bucket for each level, so that no level crowds out another one.
struct Buckets(Vec<Bucket>);

struct Bucket {
    level: Level,
    /// When the bucket will be empty. Each message adds one `INTERVAL`.
    empty_at: Instant,
    suppressed: u64,
    /// When the first of them was suppressed.
    since: Instant,
}

impl Buckets {
    fn new(now: Instant) -> Self {
        let bucket = |level| Bucket {
            level,
            empty_at: now,
            suppressed: 0,
            since: now,
        };
        Buckets(Level::iter().map(bucket).collect())
    }

    /// `None` if the message must be suppressed. Otherwise the numbers to be reported before it.
    fn admit(&mut self, level: Level, now: Instant) -> Option<Vec<(Level, u64)>> {
        let bucket = self.0.iter_mut().find(|bucket| bucket.level == level)?;
        let empty_at = bucket.empty_at.max(now) + INTERVAL;
        if empty_at > now + MAX_AT_ONCE * INTERVAL {
            if bucket.suppressed == 0 {
                bucket.since = now;
            }
            bucket.suppressed += 1;
            return None;
        }
        bucket.empty_at = empty_at;
        Some(self.take_suppressed(|since| now.duration_since(since) >= REPORT_INTERVAL))
    }

    /// Takes the numbers of suppressed messages, of the levels where the time of the first is `due`.
    fn take_suppressed(&mut self, due: impl Fn(Instant) -> bool) -> Vec<(Level, u64)> {
        let buckets = self.0.iter_mut();
        let due = buckets.filter(|bucket| bucket.suppressed > 0 && due(bucket.since));
        due.map(|bucket| (bucket.level, std::mem::take(&mut bucket.suppressed)))
            .collect()
    }
}

/// Keeps both ends: the name of a file is at the start of a message, and the reason at the end.
fn shortened(line: Cow<'_, str>) -> Cow<'_, str> {
    let length = line.chars().count();
    if length <= MAX_LEN {
        return line;
    }
    let head = line.chars().take(MAX_LEN / 2);
    let tail = line.chars().skip(length - MAX_LEN / 2);
    Cow::Owned(head.chain(" … ".chars()).chain(tail).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_many_at_once_there_are_few() {
        let start = Instant::now();
        let mut buckets = Buckets::new(start);
        let admitted = |buckets: &mut Buckets, milliseconds: u64| {
            let now = start + Duration::from_millis(milliseconds);
            buckets.admit(Level::Error, now)
        };
        for number in 0..1000 {
            assert_eq!(admitted(&mut buckets, 0).is_some(), number < 200);
        }
        let mut reported = Vec::new();
        let mut lines = 0;
        for millisecond in 1..=60_000 {
            if let Some(suppressed) = admitted(&mut buckets, millisecond) {
                lines += 1;
                reported.extend(suppressed);
            }
        }
        assert_eq!(lines, 120);
        assert_eq!(reported.len(), 5);
        let number: u64 = reported.iter().map(|(_, number)| number).sum();
        let rest: u64 = buckets
            .take_suppressed(|_| true)
            .iter()
            .map(|(_, n)| n)
            .sum();
        assert_eq!(number + rest, 1000 - 200 + 60_000 - 120);
    }

    #[test]
    fn one_level_leaves_the_others_alone() {
        let now = Instant::now();
        let mut buckets = Buckets::new(now);
        while buckets.admit(Level::Info, now).is_some() {}
        assert!(buckets.admit(Level::Error, now).is_some());
        let later = now + REPORT_INTERVAL;
        // A report does not wait for a message of the same level.
        assert_eq!(
            buckets.admit(Level::Error, later),
            Some(vec![(Level::Info, 1)])
        );
    }

    #[test]
    fn long_messages_keep_both_ends() {
        let long = format!("start{}end", "ü".repeat(10_000));
        let line = shortened(long.as_str().into());
        assert!(line.starts_with("start") && line.ends_with("end"));
        assert_eq!(line.chars().count(), MAX_LEN + 3);
    }
}
