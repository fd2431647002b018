//! The command line: one file a subcommand.

pub mod check;
pub mod export;
pub mod inspect;
#[cfg(feature = "mount")]
pub mod mount;
pub mod recover;

use std::path::Path;
use std::sync::Arc;

use crate::log::source::Folder;
use crate::scan::scan;
use crate::view::View;
use crate::view::cache::Budget;

/// Opens the view of one log file.
fn open(file: &Path, cache_size: u64) -> crate::error::Result<View> {
    let (folder, name) = Folder::of_file(file)?;
    let snapshot = scan(&folder, &name)?;
    View::open(&folder, snapshot, Arc::new(Budget::new(cache_size)))
}

/// A number of bytes: digits, and `K`, `M`, `G` or `T` for powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: expected a number, or one with K, M, G or T");
    let (digits, shift) = match text.to_ascii_uppercase().chars().last() {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        Some('T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}
