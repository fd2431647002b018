//! How far a command is, for a person at a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over so many bytes, with the rate and the time left. Hidden where standard error is no terminal.
pub fn bytes(len: u64) -> ProgressBar {
    const STYLE: &str = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}
