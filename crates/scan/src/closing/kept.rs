//! Tells whether unflushed data that were kept beside a closed log can still be taken in.

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

/// A file of unflushed data beside a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// The path of the file.
    pub path: PathBuf,
    /// What can be done with the file.
    pub state: KeptState,
}

/// What can be done with kept data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptState {
    /// The data can be taken in.
    Waits,
    /// The log has all data that it could take in. `rest`: the file holds more.
    TakenIn {
        /// The log could not take in some of the data.
        rest: bool,
    },
    /// The log has gone on since the flush that the data follow.
    Late {
        /// The flush that the data follow.
        follows: u64,
        /// The last flush of the log.
        last: u64,
    },
    /// The file cannot be read.
    Damaged,
}

/// The files of kept data beside a closed log, the newest last.
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

/// The headers of the extents of a flush that begins at `begin` in a closed data file. The list is empty if the extents
/// cannot be followed.
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

/// The header of an extent, without the fields that depend on the place of its data.
fn in_any_place(header: &ExtentHeader) -> ExtentHeader {
    ExtentHeader {
        entries_crc: 0,
        ..*header
    }
}

/// Removes kept files whose data the log has completely, and takes them out of the list. Returns their paths.
pub fn remove_taken_in(
    files: &LogFiles<'_>,
    kept: &mut Vec<(Kept, KeptFile)>,
) -> Result<Vec<PathBuf>> {
    let is_taken = |file: &KeptFile| file.state == KeptState::TakenIn { rest: false };
    let taken = kept.extract_if(.., |(_, file)| is_taken(file));
    taken.map(|(kept, _)| kept.remove(files)).collect()
}
