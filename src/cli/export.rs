//! `h5logfs export`: writes the canonical file to disk.

use std::io::{IsTerminal, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ViewArgs;
use h5logfs_core::view::View;

/// Bytes written at once.
const STEP: u64 = 4 << 20;

/// Write a log file's canonical HDF5 form to a file, sparse where nothing was logged
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The log file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The file to write; it appears when it is complete
    #[arg(value_name = "OUT")]
    pub out: PathBuf,

    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,

    #[command(flatten)]
    pub view: ViewArgs,
}

pub fn run(args: ExportArgs) -> Result<()> {
    let name = args.out.display();
    if let Ok(existing) = args.out.symlink_metadata() {
        ensure!(args.force, "{name}: exists already (--force replaces it)");
        ensure!(existing.is_file(), "{name}: is not a regular file");
    }
    let view = args.view.open(&args.file)?;
    write_file(&view, &args).with_context(|| format!("cannot write {name}"))
}

/// Writes a temporary file and renames it, so that OUT is complete as soon as it appears.
fn write_file(view: &View, args: &ExportArgs) -> Result<()> {
    // A rename works within one file system only, so the temporary file lies in the same directory.
    let dir = match args.out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut temporary = tempfile::Builder::new()
        .prefix(".h5logfs-export-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(dir)?;
    remove_at_signal(temporary.path().to_owned())?;
    write(view, temporary.as_file_mut())?;
    temporary.as_file().sync_all()?;
    let named = if args.force {
        temporary.persist(&args.out).map_err(|e| e.error)
    } else {
        temporary.persist_noclobber(&args.out).map_err(|e| e.error)
    };
    Ok(named.map(drop)?)
}

/// An interrupted export leaves no file behind.
fn remove_at_signal(temporary: PathBuf) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let _ = std::fs::remove_file(temporary);
            // Ends the process as the signal would have done.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

fn write(view: &View, out: &mut std::fs::File) -> Result<()> {
    let progress = progress(view.len());
    let mut buf = vec![0; STEP as usize];
    let mut at = 0;
    while at < view.len() {
        let segment = view.segment_at(at)?;
        if segment.is_hole {
            at = segment.range.end;
            out.seek(SeekFrom::Start(at))?;
            continue;
        }
        while at < segment.range.end {
            let len = STEP.min(segment.range.end - at) as usize;
            view.read_at(at, &mut buf[..len])?;
            out.write_all(&buf[..len])?;
            at += len as u64;
            progress.set_position(at);
        }
    }
    // The seek over a hole at the end did not make the file longer.
    out.set_len(view.len())?;
    progress.finish_and_clear();
    Ok(())
}

fn progress(len: u64) -> ProgressBar {
    const STYLE: &str = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template(STYLE).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style)
}
