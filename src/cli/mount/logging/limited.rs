//! What every message goes through on its way to the log: it becomes one line of bounded length, and
//! there are not too many of them.
//!
//! Messages contain names that users have given, to files and to datasets. Nobody shall be able to fill
//! the disk with a million broken files, to forge a line, or to send commands to the terminal of whoever
//! reads the log.

use std::time::{Duration, Instant};

use log::{Level, Log, Metadata, Record};
use parking_lot::Mutex;

/// Messages of one level that may come at once.
const AT_ONCE: f64 = 200.0;
/// Messages of one level a second after that: 35 MB a day, of lines of 200 bytes.
const A_SECOND: f64 = 2.0;
/// How often it is said how many were suppressed.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Characters of a message; of a longer one the middle is left out.
const LONGEST: usize = 2048;

pub struct Limited<L> {
    inner: L,
    levels: Mutex<Levels>,
}

impl<L: Log> Limited<L> {
    pub fn new(inner: L) -> Self {
        Limited {
            inner,
            levels: Mutex::new(Levels::new(Instant::now())),
        }
    }

    fn tell(&self, suppressed: &[(Level, u64)]) {
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
        let Some(suppressed) = self.levels.lock().admit(record.level(), Instant::now()) else {
            return;
        };
        self.tell(&suppressed);
        let line = one_line(&record.args().to_string());
        self.inner.log(
            &Record::builder()
                .metadata(record.metadata().clone())
                .module_path(record.module_path())
                .args(format_args!("{line}"))
                .build(),
        );
    }

    fn flush(&self) {
        let suppressed = self.levels.lock().suppressed(|_| true);
        self.tell(&suppressed);
        self.inner.flush();
    }
}

/// Each level has messages of its own: many of one crowd out none of another.
struct Levels([Bucket; 5]);

/// As many messages are free as it holds; it fills with time.
struct Bucket {
    level: Level,
    free: f64,
    filled: Instant,
    suppressed: u64,
    /// When the first one of them was.
    since: Instant,
}

impl Levels {
    fn new(now: Instant) -> Self {
        let levels = [
            Level::Error,
            Level::Warn,
            Level::Info,
            Level::Debug,
            Level::Trace,
        ];
        Levels(levels.map(|level| Bucket {
            level,
            free: AT_ONCE,
            filled: now,
            suppressed: 0,
            since: now,
        }))
    }

    /// Whether there may be a message now: `None` if not, else what is to be told before it.
    fn admit(&mut self, level: Level, now: Instant) -> Option<Vec<(Level, u64)>> {
        let bucket = self.0.iter_mut().find(|bucket| bucket.level == level)?;
        if !bucket.admits(now) {
            return None;
        }
        Some(self.suppressed(|since| now.duration_since(since) >= TOLD_EVERY))
    }

    /// How many were suppressed and not told yet, since a time that is `due`.
    fn suppressed(&mut self, due: impl Fn(Instant) -> bool) -> Vec<(Level, u64)> {
        let buckets = self.0.iter_mut();
        let due = buckets.filter(|bucket| bucket.suppressed > 0 && due(bucket.since));
        due.map(|bucket| (bucket.level, std::mem::take(&mut bucket.suppressed)))
            .collect()
    }
}

impl Bucket {
    fn admits(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.free = (self.free + passed * A_SECOND).min(AT_ONCE);
        self.filled = now;
        if self.free >= 1.0 {
            self.free -= 1.0;
            return true;
        }
        if self.suppressed == 0 {
            self.since = now;
        }
        self.suppressed += 1;
        false
    }
}

/// The message with all that is no plain text spelled out, and not too long.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len());
    for c in message.chars() {
        if is_plain(c) {
            line.push(c)
        } else {
            line.extend(c.escape_default())
        }
    }
    shortened(line)
}

/// Whether a character can neither end a line, nor control a terminal, nor change the order in which
/// others are shown.
fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The name of a file is at the start of a message, the reason at the end.
fn shortened(line: String) -> String {
    let length = line.chars().count();
    if length <= LONGEST {
        return line;
    }
    let head = line.chars().take(LONGEST / 2);
    let tail = line.chars().skip(length - LONGEST / 2);
    head.chain(" … ".chars()).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_many_at_once_there_are_few() {
        let start = Instant::now();
        let mut levels = Levels::new(start);
        let admitted = |levels: &mut Levels, milliseconds: u64| {
            let now = start + Duration::from_millis(milliseconds);
            levels.admit(Level::Error, now)
        };
        for number in 0..1000 {
            assert_eq!(admitted(&mut levels, 0).is_some(), number < 200);
        }
        // Nothing is told in the first ten seconds.
        let mut told = Vec::new();
        let mut lines = 0;
        for millisecond in 1..=60_000 {
            if let Some(suppressed) = admitted(&mut levels, millisecond) {
                lines += 1;
                told.extend(suppressed);
            }
        }
        assert_eq!(lines, 120);
        assert_eq!(told.len(), 5);
        let number: u64 = told.iter().map(|(_, number)| number).sum();
        let rest: u64 = levels.suppressed(|_| true).iter().map(|(_, n)| n).sum();
        assert_eq!(number + rest, 1000 - 200 + 60_000 - 120);
    }

    #[test]
    fn one_level_leaves_the_others_alone() {
        let now = Instant::now();
        let mut levels = Levels::new(now);
        while levels.admit(Level::Info, now).is_some() {}
        assert!(levels.admit(Level::Error, now).is_some());
        let later = now + TOLD_EVERY;
        // What is told does not wait for a message of the same level.
        assert_eq!(
            levels.admit(Level::Error, later),
            Some(vec![(Level::Info, 1)])
        );
    }

    #[test]
    fn a_message_is_one_line_of_plain_text() {
        assert_eq!(one_line("ordinary: text, ü, 文"), "ordinary: text, ü, 文");
        let forged = "a\n[2026-01-01T00:00:00Z INFO] b\r\u{1b}[2J\u{9b}\u{202e}\u{2028}\0";
        let line = one_line(forged);
        assert!(line.chars().all(is_plain));
        assert!(line.starts_with(r"a\n[2026"), "{line}");
        assert!(
            line.ends_with(r"b\r\u{1b}[2J\u{9b}\u{202e}\u{2028}\u{0}"),
            "{line}"
        );
    }

    #[test]
    fn long_messages_keep_both_ends() {
        let line = one_line(&format!("start{}end", "ü".repeat(10_000)));
        assert!(line.starts_with("start") && line.ends_with("end"));
        assert_eq!(line.chars().count(), LONGEST + 3);
    }
}
