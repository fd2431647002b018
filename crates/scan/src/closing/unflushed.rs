//! Unflushed data in the close of a log whose job has died. They are kept beside the log, discarded, or turned into one
//! more flush.
//!
//! The flush is made of the extents where they lie. Extents of other files move to the end of the data file, and bytes
//! between extents become gaps. Then a commit goes into the journal. An interruption leaves the state that an
//! interrupted flush leaves, and the close goes on from there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::extents::{self, Extended};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::front::{FRONT, unclosed_front};
use h5logfs_log::journal::closed::sealed;
use h5logfs_log::journal::definition::Definition;
use h5logfs_log::journal::kept::Kept;
use h5logfs_log::journal::metadata_image::{LoggedDataset, image_lines};
use h5logfs_log::journal::unflushed::{Extent, Summary, open_data_files};
use h5logfs_log::journal::{self, Commit, HeldFile, Line, Recorded, Unflushed, sync};
use h5logfs_log::journal::{extended, parent};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::extent::{ExtentHeader, crc32, move_extent, sections};
use h5logfs_log::logvol::{LogDataset, Tables};
use h5logfs_log::source_file::SourceFile;
use h5logfs_objects::defined::set_extents;

/// The treatment of unflushed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unflushing {
    /// Keep the data beside the log.
    #[default]
    Keep,
    /// Make one more flush of the data.
    TakeIn,
    /// Throw the data away.
    Discard,
}

/// The outcome for unflushed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handled {
    /// The data that there were.
    pub summary: Summary,
    /// What became of the data.
    pub did: Did,
}

impl Handled {
    /// A sentence about the data that could not be taken in, if there are any.
    pub(super) fn left(&self) -> Option<String> {
        let Did::TakenIn {
            left: Some(left), ..
        } = &self.did
        else {
            return None;
        };
        let (summary, left) = (&self.summary, left.display());
        Some(format!(
            "{summary}: the part that cannot be merged is kept in {left}"
        ))
    }
}

/// What became of unflushed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Did {
    /// The data are now in this file.
    Kept(PathBuf),
    /// The data are in the log, as one more flush.
    TakenIn {
        /// Sentences about the datasets that have grown.
        grown: Vec<String>,
        /// The file that keeps data that could not be taken in.
        left: Option<PathBuf>,
    },
    /// The data are gone.
    Discarded,
}

/// Separates the extents that cannot be taken in. In a log of definitions, these are a rank's extents from the first
/// entry of an unknown dataset on, because no definition can stand for that dataset.
pub fn split(journal: &Recorded, mut all: Unflushed) -> Unflushed {
    if !journal.takes_definitions() {
        return all;
    }
    for extents in all.ranks.values_mut() {
        let known = extents
            .iter()
            .take_while(|extent| extent.loose.unknown.is_empty());
        let known = known.count();
        all.apart.extend(extents.split_off(known));
    }
    all.ranks.retain(|_, extents| !extents.is_empty());
    all
}

/// Makes a flush of unflushed data, and writes a new journal with it. The caller holds the lock of the present journal.
/// Returns the new journal, locked, and sentences about the datasets that have grown.
pub fn take_in(
    path: &Path,
    files: &LogFiles<'_>,
    journal: &Recorded,
    unflushed: &Unflushed,
    mut lock: &File,
) -> Result<(HeldFile, Vec<String>)> {
    let journal_path = journal::path_of(path);
    let mut ends = Vec::new();
    let mut tags = Vec::new();
    for (number, holder) in unflushed.files.iter().enumerate() {
        if !holder.is_data_file {
            continue;
        }
        let placed = place(journal, unflushed, number as u32);
        let placed = placed.map_err(|e| Error::io(holder.file.path(), e))?;
        ends.push(placed.end);
        tags.push(placed.tags);
    }
    let extents = unflushed.ranks.values().flatten();
    let mut headers = extents.map(|extent| &extent.loose.place.header);
    let have_seals = headers.all(|header| header.seal.is_some());
    let commit = Commit {
        tags: if have_seals { tags } else { Vec::new() },
        // No program asked for this flush.
        asked: Some(journal.asked()),
        ..Commit::new(journal.flushes() + 1, ends).now()
    };
    let datasets = extents::logged(journal).map_err(|fault| Error::of(path, fault))?;
    let (mut lines, grown) = growth(files, journal, &datasets, &commit)?;
    if !journal.takes_definitions() {
        // Numbers up to this one are in use.
        let highest = unflushed.highest().unwrap_or_default();
        if highest >= journal.dataset_ids() as u64 {
            let id = u32::try_from(highest).map_err(|e| Error::of(path, e.to_string()))?;
            lines.push(Line::Logged(LoggedDataset { id, header: None }));
        }
    }
    lines.push(Line::Commit(commit));
    let mut renew = || {
        io::Seek::rewind(&mut lock)?;
        extended(&journal_path, lock, journal, &lines)
    };
    let renewed = renew().map_err(|e| Error::io(&journal_path, e))?;
    sync(parent(path))?;
    Ok((renewed, grown))
}

/// The extents of a flush in a data file.
struct Placed {
    end: u64,
    /// The sum of the tags of the extents.
    tags: u64,
}

/// Moves the extents of a data file to their places, and makes gaps of the bytes between them. This step can be
/// repeated.
fn place(journal: &Recorded, unflushed: &Unflushed, number: u32) -> io::Result<Placed> {
    let holder = &unflushed.files[number as usize];
    let target = OpenOptions::new()
        .read(true)
        .write(true)
        .open(holder.file.path())?;
    journal.id.check(&target)?;
    let (begin, flush) = (journal.end(number as usize), journal.flushes() + 1);
    let Arranged { in_place, others } = Arranged::of(unflushed, number, begin);
    let mut placed = Placed {
        end: begin,
        tags: 0,
    };
    for extent in in_place {
        let at = extent.loose.place.at;
        placed.close_gap(&target, at, flush)?;
        placed.add(extent, at);
    }
    for extent in others {
        let at = match holder.file.len() {
            len if len <= placed.end => placed.end,
            // The place lies behind all bytes that are copied.
            len => len.max(placed.end + ExtentHeader::SIZE),
        };
        placed.close_gap(&target, at, flush)?;
        let from = unflushed.files[extent.file].file.to_file()?;
        move_extent(&from, extent.loose.place.at, &target, at)?;
        placed.add(extent, at);
    }
    target.sync_all()?;
    Ok(placed)
}

/// The extents of a data file.
struct Arranged<'a> {
    /// Extents that stay in their places.
    in_place: Vec<&'a Extent>,
    /// Extents that follow those, in the order of each rank.
    others: Vec<&'a Extent>,
}

impl<'a> Arranged<'a> {
    /// Arranges the extents of a data file whose last flush ends at `begin`.
    fn of(unflushed: &'a Unflushed, number: u32, begin: u64) -> Self {
        let of_file = |extent: &Extent| unflushed.files[extent.file].data_file == number;
        let ranks = unflushed.ranks.values();
        let ranks = ranks.filter(|extents| extents.first().is_some_and(of_file));
        // Counts the extents that stay. An extent that follows one of another file has to follow it here, too.
        let is_there = |extent: &&Extent| extent.file == number as usize;
        let mut ranks: Vec<(&[Extent], usize)> = ranks
            .map(|extents| (&extents[..], extents.iter().take_while(is_there).count()))
            .collect();
        loop {
            let stay = ranks.iter().flat_map(|(extents, stay)| &extents[..*stay]);
            let mut in_place: Vec<&Extent> = stay.collect();
            in_place.sort_by_key(|extent| extent.loose.place.at);
            let mut end = begin;
            // A gap holds at least one header.
            let too_near = in_place.iter().find(|extent| {
                let bytes = extent.loose.place.bytes();
                let gap = bytes.start - std::mem::replace(&mut end, bytes.end);
                (1..ExtentHeader::SIZE).contains(&gap)
            });
            let Some(moves) = too_near.map(|extent| extent.loose.place.at) else {
                let others = ranks.iter().flat_map(|(extents, stay)| &extents[*stay..]);
                return Arranged {
                    in_place,
                    others: others.collect(),
                };
            };
            for (extents, stay) in &mut ranks {
                let own = extents[..*stay].iter();
                *stay = own.take_while(|e| e.loose.place.at != moves).count();
            }
        }
    }
}

impl Placed {
    fn add(&mut self, extent: &Extent, at: u64) {
        self.end = at + extent.loose.place.size();
        let seal = extent.loose.place.header.seal;
        self.tags = self.tags.wrapping_add(seal.map_or(0, |seal| seal.tag));
    }

    /// Makes a gap of the bytes in front of `at`.
    fn close_gap(&mut self, file: &File, at: u64, flush: u64) -> io::Result<()> {
        let len = at - self.end;
        if len == 0 {
            return Ok(());
        }
        let data = len.checked_sub(ExtentHeader::SIZE);
        let data = data.ok_or_else(|| {
            io::Error::other(format!("{len} bytes at {} are no extent", self.end))
        })?;
        let header = ExtentHeader {
            rank: 0,
            flush,
            entries: 0,
            data,
            entries_crc: crc32(&[]),
            seal: None,
            proof: None,
        };
        file.write_all_at(&header.to_bytes(), self.end)?;
        self.end = at;
        Ok(())
    }
}

/// The journal lines that make datasets large enough for the new flush, and sentences that say so.
fn growth(
    files: &LogFiles<'_>,
    journal: &Recorded,
    datasets: &[Extended],
    commit: &Commit,
) -> Result<(Vec<Line>, Vec<String>)> {
    let larger = larger(files, journal, datasets, commit)?;
    let words = larger.iter().map(|(dataset, dims)| {
        format!("{} grows from {:?} to {dims:?}", dataset.name, dataset.dims)
    });
    let words = words.collect();
    let extents = larger.into_iter();
    let extents = extents.map(|(dataset, dims)| (dataset.id, dims));
    let lines = match &journal.metadata_image {
        Some(image) if !journal.takes_definitions() => {
            let changed = || {
                let mut new = image.clone();
                set_extents(&mut new, &extents.collect())?;
                Ok(image_lines(&image.image, &new.image)?)
            };
            let log = || files.dir().full_path(files.log());
            changed().map_err(|fault: Fault| Error::of(log(), fault))?
        }
        _ => extents
            .map(|(dataset, dims)| Line::Define(Definition::Extent { dataset, dims }))
            .collect(),
    };
    Ok((lines, words))
}

/// The datasets that have to grow, with their new extents.
fn larger<'a>(
    files: &LogFiles<'_>,
    journal: &Recorded,
    datasets: &'a [Extended],
    commit: &Commit,
) -> Result<Vec<(&'a Extended, Vec<u64>)>> {
    let mut tables = Tables {
        config: journal.header.config,
        ..Tables::default()
    };
    let mut sources = Vec::new();
    for (number, file) in open_data_files(files, &journal.header)?
        .into_iter()
        .enumerate()
    {
        let file = file.first_bytes(commit.ends[number])?;
        let ends = journal.ends(number);
        let ends = ends.chain([(commit.flush, commit.ends[number])]);
        let found = sections(&file, number as u16, ends)?;
        tables.sections.extend(found.sections);
        tables.diagnostics.extend(found.diagnostics);
        tables.data.push(LogDataset {
            source: number as u16,
            number: 0,
            offset: FRONT,
            len: commit.ends[number] - FRONT,
        });
        sources.push(file);
    }
    let is_new = |source: u16, offset| offset >= journal.end(usize::from(source));
    let larger = extents::larger(&tables, &sources, datasets, is_new);
    larger.map_err(|fault| Error::of(files.dir().full_path(files.log()), fault))
}

/// Makes a closed log unclosed again, in the state after the flush that `kept` follows. Returns the journal, locked.
/// After an interruption, either the journal exists or the log is unchanged.
pub fn restore(
    path: &Path,
    files: &LogFiles<'_>,
    master: &SourceFile,
    kept: &Kept,
) -> Result<HeldFile> {
    let source = files.open(&kept.place)?;
    let journal = kept.journal(&source)?;
    let journal_path = journal::path_of(path);
    let created = HeldFile::create(&journal_path, &kept.id.number(), false, |file| {
        journal::lock(file)?;
        kept.write_journal(&source, file)?;
        file.sync_all()
    });
    let held = created.map_err(|e| Error::io(&journal_path, e))?;
    sync(parent(path))?;
    // Another job may have continued the log in the meantime.
    let closed = sealed(master).map_err(|fault| Error::of(path, fault))?;
    if closed.map(|closed| closed.flush) != Some(journal.flushes()) {
        let removed = held
            .check_name()
            .and_then(|()| std::fs::remove_file(&journal_path));
        removed.map_err(|e| Error::io(&journal_path, e))?;
        return Err(Error::of(
            path,
            "a job continues the log while its kept data are merged",
        ));
    }
    for (number, file) in open_data_files(files, &journal.header)?.iter().enumerate() {
        make_unclosed(file, &journal, journal.end(number))?;
    }
    if journal.header.subfiles > 0 {
        make_unclosed(master, &journal, FRONT)?;
    }
    Ok(held)
}

/// Gives a file the front of an unclosed one, and cuts off what the close put behind its data.
fn make_unclosed(file: &SourceFile, journal: &Recorded, end: u64) -> Result<()> {
    let write = || {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(file.path())?;
        journal.id.check(&file)?;
        file.write_all_at(&unclosed_front(&journal.id), 0)?;
        // From here on, the journal describes the file.
        file.sync_all()?;
        file.set_len(end)
    };
    write().map_err(|e: io::Error| Error::io(file.path(), e))
}
