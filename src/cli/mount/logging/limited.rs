//! Limits the messages of the daemon: each becomes one line of limited length, and their number is limited.
//!
//! Messages contain names of files and datasets, which users choose. Without limits, a user could fill
//! the disk with a million broken files, forge a line, or send commands to the terminal of a reader.
//!
//! Messages about different subjects ([`messages`]) have separate shares. So neither a user's broken files nor a user's
//! requests suppress a message about another user's files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};
use parking_lot::Mutex;

use crate::cli::output::plain;
use h5logfs_common::messages::{self, Subject};

/// Most messages of one share in a row.
const MAX_AT_ONCE: u32 = 200;
/// Time between messages of one share after these. With lines of 200 bytes, it allows 35 MB a day.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time between reports of the number of suppressed messages.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Most shares at the same time. Further users have one in common.
const MAX_SHARES: usize = 1024;
/// Longest message, in characters. A longer one loses its middle.
const MAX_LEN: usize = 2048;

pub struct Limited<L> {
    inner: L,
    buckets: Mutex<Buckets>,
}

impl<L: Log> Limited<L> {
    pub fn new(inner: L) -> Self {
        Limited {
            inner,
            buckets: Mutex::default(),
        }
    }

    fn report(&self, suppressed: &[(Share, u64)]) {
        for (share, number) in suppressed {
            self.inner.log(
                &Record::builder()
                    .level(share.level)
                    .target(module_path!())
                    .args(format_args!("{number} messages {share} suppressed"))
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
        let share = Share {
            level: record.level(),
            about: About::Subject(messages::subject()),
        };
        let admitted = self.buckets.lock().admit(share, Instant::now());
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

/// The subjects that share one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum About {
    Subject(Subject),
    /// Users without a share of their own.
    OtherUsers,
}

/// Messages that suppress only each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Share {
    level: Level,
    about: About,
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of level {}", self.level)?;
        match self.about {
            About::Subject(Subject::Program) => Ok(()),
            About::Subject(Subject::FilesOf(user)) => write!(f, " about files of user {user}"),
            About::Subject(Subject::RequestsOf(user)) => {
                write!(f, " about requests of user {user} for files of others")
            }
            About::OtherUsers => write!(f, " about other users"),
        }
    }
}

/// A leaky bucket for each share. A share without an entry has an empty bucket.
#[derive(Default)]
struct Buckets(HashMap<Share, Bucket>);

struct Bucket {
    /// Time at which the bucket will be empty. Each message adds one `INTERVAL`.
    empty_at: Instant,
    suppressed: u64,
    /// Time of the first suppressed message.
    since: Instant,
}

impl Buckets {
    /// Admits a message. Returns the numbers to be reported before it; `None` if it must be suppressed.
    fn admit(&mut self, share: Share, now: Instant) -> Option<Vec<(Share, u64)>> {
        let bucket = self.bucket(share, now);
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

    /// The bucket of a share, or the common bucket of further users.
    fn bucket(&mut self, mut share: Share, now: Instant) -> &mut Bucket {
        if self.0.len() >= MAX_SHARES && !self.0.contains_key(&share) {
            self.0
                .retain(|_, bucket| bucket.empty_at > now || bucket.suppressed > 0);
            if self.0.len() >= MAX_SHARES && share.about != About::Subject(Subject::Program) {
                share.about = About::OtherUsers;
            }
        }
        self.0.entry(share).or_insert(Bucket {
            empty_at: now,
            suppressed: 0,
            since: now,
        })
    }

    /// Takes the numbers of suppressed messages of the shares whose first one is `due`.
    fn take_suppressed(&mut self, due: impl Fn(Instant) -> bool) -> Vec<(Share, u64)> {
        let buckets = self.0.iter_mut();
        let due = buckets.filter(|(_, bucket)| bucket.suppressed > 0 && due(bucket.since));
        let mut due: Vec<_> = due
            .map(|(share, bucket)| (*share, std::mem::take(&mut bucket.suppressed)))
            .collect();
        due.sort_unstable();
        due
    }
}

/// Shortens a line in the middle: the file name is at its start, and the reason at its end.
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

    fn share(level: Level, subject: Subject) -> Share {
        Share {
            level,
            about: About::Subject(subject),
        }
    }

    #[test]
    fn after_many_at_once_there_are_few() {
        let start = Instant::now();
        let mut buckets = Buckets::default();
        let admitted = |buckets: &mut Buckets, milliseconds: u64| {
            let now = start + Duration::from_millis(milliseconds);
            buckets.admit(share(Level::Error, Subject::FilesOf(7)), now)
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
    fn a_share_leaves_the_others_alone() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        let full = share(Level::Info, Subject::FilesOf(7));
        while buckets.admit(full, now).is_some() {}
        let others = [
            share(Level::Error, Subject::FilesOf(7)),
            share(Level::Info, Subject::FilesOf(8)),
            share(Level::Info, Subject::RequestsOf(7)),
            share(Level::Info, Subject::Program),
        ];
        for other in others {
            assert_eq!(buckets.admit(other, now), Some(Vec::new()));
        }
        let later = now + REPORT_INTERVAL;
        // A report does not wait for a message of the same share.
        let reported = buckets.admit(others[0], later);
        assert_eq!(reported, Some(vec![(full, 1)]));
        let text = format!("1 messages {full} suppressed");
        assert_eq!(
            text,
            "1 messages of level INFO about files of user 7 suppressed"
        );
    }

    #[test]
    fn the_number_of_shares_is_limited() {
        let now = Instant::now();
        let mut buckets = Buckets::default();
        let of = |user| share(Level::Error, Subject::FilesOf(user));
        let admitted = (0..10_000).filter(|user| buckets.admit(of(*user), now).is_some());
        assert_eq!(admitted.count(), MAX_SHARES + MAX_AT_ONCE as usize);
        assert!(buckets.admit(of(0), now).is_some());
        assert!(
            buckets
                .admit(share(Level::Error, Subject::Program), now)
                .is_some()
        );
        assert!(buckets.0.len() <= MAX_SHARES + 2);
        // When the others have been silent for a while, there is room.
        let later = now + Duration::from_secs(100);
        assert!(buckets.admit(of(10_000), later).is_some());
        assert!(buckets.0.len() <= 2 + 1);
    }

    #[test]
    fn long_messages_keep_both_ends() {
        let long = format!("start{}end", "ü".repeat(10_000));
        let line = shortened(long.as_str().into());
        assert!(line.starts_with("start") && line.ends_with("end"));
        assert_eq!(line.chars().count(), MAX_LEN + 3);
    }
}
