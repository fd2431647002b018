//! Whether what was kept beside a closed log, of what no flush covered, can still be taken in.

use std::path::PathBuf;

use super::unflushed::split;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::journal::Unflushed;
use h5logfs_log::journal::closed::sealed;
use h5logfs_log::journal::kept::Kept;
use h5logfs_log::journal::unflushed::open_data_files;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::extent::{ExtentHeader, each_with_data};
use h5logfs_log::source_file::SourceFile;

/// A file beside a log, with what no flush covered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What can be done with it.
    pub state: KeptState,
}

/// What can be done with what was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptState {
    /// It can be taken in.
    Waits,
    /// The log has all of it that could be taken in. `rest`: there is more in the file.
    TakenIn {
        /// Some of it could not.
        rest: bool,
    },
    /// It follows one flush, and the log has gone on to another one since.
    Late {
        /// The flush that it follows.
        follows: u64,
        /// The last flush of the log.
        last: u64,
    },
    /// It cannot be read.
    Damaged,
}

/// What was kept beside a closed log, the newest last.
pub fn all_kept(files: &LogFiles<'_>, master: &SourceFile) -> Result<Vec<(Kept, KeptFile)>> {
    let id = master.file_id()?;
    let kept = Kept::all(files)?.into_iter();
    kept.filter(|kept| Some(kept.id) == id)
        .map(|kept| {
            let path = files.full_path(&kept.place);
            let state = match state(files, master, &kept) {
                Err(e @ Error::BadFile { .. }) => {
                    log::debug!("{e}");
                    KeptState::Damaged
                }
                state => state?,
            };
            Ok((kept, KeptFile { path, state }))
        })
        .collect()
}

fn state(files: &LogFiles<'_>, master: &SourceFile, kept: &Kept) -> Result<KeptState> {
    let journal = kept.journal(&files.open(&kept.place)?)?;
    let closed = sealed(master).map_err(|fault| Error::of(master.path(), fault))?;
    let (follows, last) = (journal.flushes(), closed.map_or(0, |closed| closed.flush));
    let found = split(&journal, Unflushed::only_kept(files, &journal, kept)?);
    if follows == last && !found.ranks.is_empty() {
        return Ok(KeptState::Waits);
    }
    let mut there = Vec::new();
    for (number, file) in open_data_files(files, &journal.header)?.iter().enumerate() {
        there.extend(headers_after(file, journal.end(number), follows + 1)?);
    }
    let is_there = |header: &ExtentHeader| there.contains(&in_any_place(header));
    let mut wanted = found.ranks.values().flatten();
    Ok(
        if wanted.all(|extent| is_there(&extent.loose.place.header)) {
            let rest = !found.apart.is_empty();
            KeptState::TakenIn { rest }
        } else {
            KeptState::Late { follows, last }
        },
    )
}

/// The extents of a flush that begins at this byte of a closed data file. None where they cannot be followed.
fn headers_after(file: &SourceFile, begin: u64, flush: u64) -> Result<Vec<ExtentHeader>> {
    let about = |fault| Error::of(file.path(), fault);
    let end = sealed(file).map_err(about)?.map_or(begin, |seal| seal.end);
    let mut headers = Vec::new();
    let visited = each_with_data(file, begin..end.max(begin), |header, _| {
        if header.flush == flush {
            headers.push(in_any_place(&header));
        }
        Ok(())
    });
    match visited {
        Ok(()) => Ok(headers),
        Err(fault) if fault.ends_work() => Err(about(fault)),
        Err(_) => Ok(Vec::new()),
    }
}

/// The header of an extent without what depends on the place of its data.
fn in_any_place(header: &ExtentHeader) -> ExtentHeader {
    ExtentHeader {
        entries_crc: 0,
        ..*header
    }
}

/// Removes what was kept of which the log has all, and takes it out of the list. Returns where it lay.
pub fn remove_taken_in(
    files: &LogFiles<'_>,
    kept: &mut Vec<(Kept, KeptFile)>,
) -> Result<Vec<PathBuf>> {
    let is_taken = |file: &KeptFile| file.state == KeptState::TakenIn { rest: false };
    let taken = kept.extract_if(.., |(_, file)| is_taken(file));
    taken.map(|(kept, _)| kept.remove(files)).collect()
}
