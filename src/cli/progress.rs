//! Progress of a command, for a person at a terminal, or in the output of a job.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// A bar over `len` bytes, with the rate and the time left. Hidden if standard error is no terminal.
pub fn bytes(len: u64) -> ProgressBar {
    const STYLE: &str = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}

/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_rate_and_the_time_left() {
        let lines = Lines::new("p", 3 << 30);
        let line = lines.line(1 << 30, Duration::from_secs(8));
        assert_eq!(line, "1.00 GiB of 3.00 GiB, 128.00 MiB/s, 16 seconds left");
    }
}
