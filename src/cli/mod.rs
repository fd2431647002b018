//! The command line: one file a subcommand.

pub mod check;
pub mod export;
pub mod inspect;
#[cfg(feature = "mount")]
pub mod mount;
pub mod recover;

use std::path::Path;
use std::sync::Arc;

use clap::Args;

use crate::log::source::Folder;
use crate::scan::scan;
use crate::view::View;
use crate::view::cache::{Budget, MemoryLimits};

/// How much memory a command may use.
#[derive(Debug, Clone, Copy, Args)]
pub struct MemoryArgs {
    /// Memory for chunks and decoded records
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub cache_size: u64,

    /// Memory for the file's metadata, record tables and indexes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub index_memory: u64,
}

impl From<MemoryArgs> for MemoryLimits {
    fn from(args: MemoryArgs) -> Self {
        MemoryLimits {
            cache_size: args.cache_size,
            index_memory: args.index_memory,
        }
    }
}

/// Opens the view of one log file.
fn open(file: &Path, memory: MemoryArgs) -> crate::error::Result<Arc<View>> {
    let (folder, name) = Folder::of_file(file)?;
    let snapshot = scan(&folder, &name)?;
    View::open(
        &folder,
        snapshot,
        Arc::new(Budget::new(memory.into())),
        None,
    )
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
