//! Progress of a command and its last line, in one form everywhere: a bar for a person at a terminal, and a line now and then
//! in the output of a job.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::output::plain;

/// Time between two lines, and the least time of a command that has a last line where there is no terminal.
const INTERVAL: Duration = Duration::from_secs(10);

/// Progress over a number of bytes.
pub enum Progress {
    Bar(ProgressBar),
    Lines(Lines),
}

impl Progress {
    /// Progress of `program` over `len` bytes: a bar if standard error is a terminal.
    pub fn new(program: &'static str, len: u64) -> Self {
        const STYLE: &str = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        if !std::io::stderr().is_terminal() {
            return Progress::Lines(Lines::new(program, len));
        }
        let style =
            ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
        Progress::Bar(ProgressBar::new(len).with_style(style))
    }

    pub fn set_position(&self, done: u64) {
        match self {
            Progress::Bar(bar) => bar.set_position(done),
            Progress::Lines(lines) => lines.set_position(done),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Progress of a job, as occasional lines. Its standard error is a file, or goes to the program that has started it.
pub struct Lines {
    program: &'static str,
    len: u64,
    begun: Instant,
    /// Time of the last line.
    last: Mutex<Instant>,
}

impl Lines {
    /// Progress over `len` bytes.
    pub fn new(program: &'static str, len: u64) -> Self {
        let begun = Instant::now();
        Lines {
            program,
            len,
            begun,
            last: Mutex::new(begun),
        }
    }

    pub fn set_position(&self, done: u64) {
        let mut last = self.last.lock();
        if last.elapsed() >= INTERVAL {
            *last = Instant::now();
            eprintln!(
                "{}: {}",
                self.program,
                self.line(done, self.begun.elapsed())
            );
        }
    }

    fn line(&self, done: u64, took: Duration) -> String {
        let rate = done as f64 / took.as_secs_f64();
        let left = self.len.saturating_sub(done) as f64 / rate;
        // At a rate of zero it takes forever.
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        format!(
            "{} of {}, {}/s, {} left",
            HumanBytes(done),
            HumanBytes(self.len),
            HumanBytes(rate as u64),
            HumanDuration(left)
        )
    }
}

/// The last line of a command that has made a file: its size, that of what it was made from, and the time.
pub struct Summary {
    begun: Instant,
    before: u64,
}

impl Summary {
    /// Begins with a log whose files have `before` bytes.
    pub fn begin(before: u64) -> Self {
        Summary {
            begun: Instant::now(),
            before,
        }
    }

    /// Prints the line to standard error, for a person at a terminal, and after some time for the output of a job. `name`:
    /// the file, which has `after` bytes now.
    pub fn print(&self, name: &str, after: u64) {
        let took = self.begun.elapsed();
        if std::io::stderr().is_terminal() || took >= INTERVAL {
            eprintln!("{}", plain(&self.line(name, after, took)));
        }
    }

    fn line(&self, name: &str, after: u64, took: Duration) -> String {
        let (before, now) = (self.before as f64, after as f64);
        let ratio = match (self.before, after) {
            (0, _) | (_, 0) => String::new(),
            (old, new) if new < old => format!(", {:.1} times smaller", before / now),
            (old, new) if new > old => format!(", {:.1} times as large", now / before),
            _ => ", as large".to_owned(),
        };
        format!(
            "{name}: {} from {}{ratio}, in {}",
            HumanBytes(after),
            HumanBytes(self.before),
            duration(took)
        )
    }
}

/// A time in a few characters: `0.4 s`, `75 s`, `12 min`.
fn duration(took: Duration) -> String {
    match took.as_secs() {
        0..10 => format!("{:.1} s", took.as_secs_f64()),
        seconds @ 10..600 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_time_left() {
        let lines = Lines::new("p", 3 << 30);
        let line = lines.line(1 << 30, Duration::from_secs(8));
        assert_eq!(line, "1.00 GiB of 3.00 GiB, 128.00 MiB/s, 16 seconds left");
    }

    #[test]
    fn the_last_line_compares_the_sizes() {
        let line = |before, after, took| {
            Summary::begin(before).line("a.h5", after, Duration::from_millis(took))
        };
        assert_eq!(
            line(3 << 30, 1 << 30, 4210),
            "a.h5: 1.00 GiB from 3.00 GiB, 3.0 times smaller, in 4.2 s"
        );
        assert_eq!(
            line(1 << 20, 3 << 20, 75_000),
            "a.h5: 3.00 MiB from 1.00 MiB, 3.0 times as large, in 75 s"
        );
        assert_eq!(line(0, 5, 720_000), "a.h5: 5 B from 0 B, in 12 min");
    }
}
