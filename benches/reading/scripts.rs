//! The scripts of this directory, and what programs take that they run.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::work::adios::done;

/// What a program took.
pub struct Used {
    pub seconds: f64,
    pub processor: f64,
    /// Its peak in bytes.
    pub memory: f64,
}

/// Runs a program, and tells what it took.
pub fn measured<'a>(bench: &Bench, command: impl IntoIterator<Item = &'a str>) -> Result<Used> {
    let told = script(bench, "measured.py", command)?;
    let mut numbers = told.split_whitespace().map(str::parse);
    let mut next = || numbers.next().context("no figure")?.context("no figure");
    Ok(Used {
        seconds: next()?,
        processor: next()?,
        memory: next()?,
    })
}

/// Runs a script of this directory, and returns its output.
pub fn script<'a>(
    bench: &Bench,
    name: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Result<String> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("benches/reading")
        .join(name);
    let mut command = Command::new(bench.clients.python());
    done(command.arg(script).args(arguments))
}
