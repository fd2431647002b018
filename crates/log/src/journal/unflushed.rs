//! Unflushed data, which ranks have written to files and no complete flush covers (`docs/formats/journal.md`, section
//! 3.2).
//!
//! The data lie in three kinds of places: in the data files after the last flush, in spill files, and in files that
//! `h5logfs recover` has [kept](super::kept). The extents of a rank have numbers, so an extent in several places counts
//! once. Where an extent is missing, later ones do not count: they may share its selections.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;

use super::kept::Kept;
use super::{Header, Recorded};
use crate::log_files::LogFiles;
use crate::logvol::extent::Proof;
use crate::logvol::loose::{self, Loose, Wanted};
use crate::logvol::names::{spill_dir, spilled_by};
use crate::own_parts::{self, OwnDir};
use crate::source_dir::SourcePath;
use crate::source_file::SourceFile;
use h5logfs_common::error::{Error, Result};

/// The most extents held in memory, a few hundred bytes each.
const MOST_EXTENTS: usize = 1 << 20;

/// A file with extents that no flush covers.
#[derive(Debug)]
pub struct Holder {
    /// Place of the file.
    pub place: SourcePath,
    /// The file in its present state.
    pub file: SourceFile,
    /// The data file that the extents belong to, or that the file is.
    pub data_file: u32,
    /// Whether the file is a data file.
    pub is_data_file: bool,
}

/// The flushed state of a log.
#[derive(Debug, Clone)]
pub struct Flushed {
    /// Number of the last complete flush.
    pub flush: u64,
    /// The number of ranks of the job.
    pub ranks: u32,
    /// The number of dataset IDs in use.
    pub datasets: u64,
    /// The data files, and the end of the flush in each.
    pub ends: Vec<(SourcePath, u64)>,
}

impl Flushed {
    /// The flushed state according to a journal.
    pub fn of(files: &LogFiles<'_>, journal: &Recorded) -> Result<Self> {
        let data_files = data_files(files, &journal.header)?;
        let ends = (0..data_files.len()).map(|number| journal.end(number));
        Ok(Flushed {
            flush: journal.flushes(),
            ranks: journal.header.ranks,
            datasets: journal.dataset_ids() as u64,
            ends: data_files.into_iter().zip(ends).collect(),
        })
    }

    fn wanted(&self, data: bool) -> Wanted {
        Wanted {
            flush: self.flush.saturating_add(1),
            ranks: self.ranks,
            datasets: self.datasets,
            data,
        }
    }
}

/// An extent, and the file that has it.
#[derive(Debug, Clone)]
pub struct Extent {
    /// Index of the file in [`Unflushed::files`].
    pub file: usize,
    /// The extent.
    pub loose: Loose,
}

/// The data of a log that no flush covers.
#[derive(Debug, Default)]
pub struct Unflushed {
    /// The files with the data. All data files come first.
    pub files: Vec<Holder>,
    /// Extents of each rank, in the order of writing.
    pub ranks: BTreeMap<u32, Vec<Extent>>,
    /// Extents that do not count: an earlier extent is missing, or they come from an earlier version, which wrote no
    /// proof.
    pub apart: Vec<Extent>,
    /// Bytes outside of whole extents.
    pub rest: u64,
}

/// Amounts of unflushed data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Bytes of data.
    pub bytes: u64,
    /// Number of ranks that have written them.
    pub ranks: usize,
    /// IDs of datasets created after the last flush, to which some of the data belongs.
    pub unknown_datasets: BTreeSet<u64>,
    /// Bytes of data that do not count, because earlier extents are missing, or they have no checksum.
    pub apart: u64,
    /// Bytes after the last flush that are no whole write.
    pub incomplete: u64,
}

impl Unflushed {
    /// Finds the unflushed data of a log. It reads all entries. With `data` it reads the data as well, and extents
    /// whose data does not match the checksum count as incomplete.
    pub fn of(files: &LogFiles<'_>, journal: &Recorded, data: bool) -> Result<Self> {
        Self::with_kept(files, journal, data, None)
    }

    /// Finds the data after a flush that the caller knows.
    pub fn behind(files: &LogFiles<'_>, flushed: &Flushed, data: bool) -> Result<Self> {
        Self::find(files, flushed, data, None)
    }

    /// Finds the unflushed data, including kept data.
    pub fn with_kept(
        files: &LogFiles<'_>,
        journal: &Recorded,
        data: bool,
        kept: Option<&Kept>,
    ) -> Result<Self> {
        Self::find(files, &Flushed::of(files, journal)?, data, kept)
    }

    fn find(
        files: &LogFiles<'_>,
        flushed: &Flushed,
        data: bool,
        kept: Option<&Kept>,
    ) -> Result<Self> {
        let wanted = flushed.wanted(data);
        let mut found = Unflushed::default();
        let mut extents = Vec::new();
        for (number, (place, end)) in flushed.ends.iter().enumerate() {
            let file = open(files, place)?;
            let range = (*end).min(file.len())..file.len();
            let holder = Holder {
                place: place.clone(),
                file,
                data_file: number as u32,
                is_data_file: true,
            };
            found.add(holder, range, wanted, &mut extents)?;
        }
        for (place, data_file) in spill_files(files, flushed)? {
            let file = files.open(&place)?;
            let range = 0..file.len();
            let holder = Holder {
                place,
                file,
                data_file,
                is_data_file: false,
            };
            found.add(holder, range, wanted, &mut extents)?;
        }
        if let Some(kept) = kept {
            found.add_kept(files, kept, wanted, &mut extents)?;
        }
        found.put_in_order(extents);
        Ok(found)
    }

    /// Finds only kept data.
    pub fn only_kept(files: &LogFiles<'_>, journal: &Recorded, kept: &Kept) -> Result<Self> {
        let mut found = Unflushed::default();
        let mut extents = Vec::new();
        let wanted = Flushed::of(files, journal)?.wanted(false);
        found.add_kept(files, kept, wanted, &mut extents)?;
        found.put_in_order(extents);
        Ok(found)
    }

    fn add_kept(
        &mut self,
        files: &LogFiles<'_>,
        kept: &Kept,
        wanted: Wanted,
        extents: &mut Vec<Extent>,
    ) -> Result<()> {
        for (data_file, range) in kept.ranges() {
            let holder = Holder {
                place: kept.place.clone(),
                file: files.open(&kept.place)?,
                data_file,
                is_data_file: false,
            };
            self.add(holder, range, wanted, extents)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        holder: Holder,
        range: Range<u64>,
        wanted: Wanted,
        extents: &mut Vec<Extent>,
    ) -> Result<()> {
        let file = self.files.len();
        let room = MOST_EXTENTS.saturating_sub(extents.len());
        let found = loose::find(&holder.file, range, wanted, room);
        let found = found.map_err(|fault| Error::of(holder.file.path(), fault))?;
        self.rest = self.rest.saturating_add(found.rest);
        extents.extend(
            found
                .extents
                .into_iter()
                .map(|loose| Extent { file, loose }),
        );
        self.files.push(holder);
        Ok(())
    }

    /// Assigns to each rank its extents that follow the last flush without a gap.
    fn put_in_order(&mut self, extents: Vec<Extent>) {
        let mut ranks: BTreeMap<u32, BTreeMap<u32, Extent>> = BTreeMap::new();
        for extent in extents {
            let header = &extent.loose.place.header;
            let Some(Proof { number, .. }) = header.proof else {
                self.apart.push(extent);
                continue;
            };
            let own = ranks.entry(header.rank).or_default();
            // Extents in data files come first, and stay in place.
            own.entry(number).or_insert(extent);
        }
        for (rank, extents) in ranks {
            let mut good = Vec::new();
            for (wanted, (number, extent)) in (0..).zip(extents) {
                let data_file = |extent: &Extent| self.files[extent.file].data_file;
                let goes_on = number == wanted
                    && good
                        .last()
                        .is_none_or(|last| data_file(last) == data_file(&extent));
                if goes_on && good.len() == wanted as usize {
                    good.push(extent);
                } else {
                    self.apart.push(extent);
                }
            }
            if !good.is_empty() {
                self.ranks.insert(rank, good);
            }
        }
    }

    /// Whether there are no extents of a rank.
    pub fn is_empty(&self) -> bool {
        self.ranks.is_empty() && self.apart.is_empty()
    }

    /// All extents.
    pub fn all(&self) -> impl Iterator<Item = &Extent> {
        self.ranks.values().flatten().chain(&self.apart)
    }

    /// The largest dataset ID in use, including IDs that the journal does not have.
    pub fn highest(&self) -> Option<u64> {
        self.all().map(|extent| extent.loose.highest).max()
    }

    /// The amounts.
    pub fn summary(&self) -> Summary {
        let bytes = |extent: &Extent| extent.loose.place.header.data;
        let sum = |sum: u64, extent| sum.saturating_add(bytes(extent));
        let unknown = self.all().flat_map(|extent| &extent.loose.unknown);
        Summary {
            bytes: self.ranks.values().flatten().fold(0, sum),
            ranks: self.ranks.len(),
            unknown_datasets: unknown.copied().collect(),
            apart: self.apart.iter().fold(0, sum),
            incomplete: self.rest,
        }
    }
}

impl Summary {
    /// Whether there are no extents of a rank.
    pub fn is_empty(&self) -> bool {
        self.ranks == 0 && self.apart == 0
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            let bytes = Size(self.incomplete);
            return write!(f, "{bytes} of incomplete writes after the last flush");
        }
        let ranks = match self.ranks {
            1 => "1 rank".to_owned(),
            n => format!("{n} ranks"),
        };
        let apart = Size(self.apart);
        if self.ranks == 0 {
            write!(f, "{apart} that no flush covers, which may be incomplete")?;
        } else {
            write!(f, "{} in {ranks} that no flush covers", Size(self.bytes))?;
        }
        let ids: Vec<String> = self.unknown_datasets.iter().map(u64::to_string).collect();
        match &ids[..] {
            [] => {}
            [id] => write!(
                f,
                ", some of a dataset made after the last flush (number {id})"
            )?,
            ids => {
                const MOST: usize = 8;
                let more = if ids.len() > MOST { ", …" } else { "" };
                let shown = ids[..ids.len().min(MOST)].join(", ");
                let number = ids.len();
                write!(
                    f,
                    ", some of {number} datasets made after the last flush (numbers {shown}{more})"
                )?;
            }
        }
        if self.apart > 0 && self.ranks > 0 {
            write!(f, "; {apart} that may be incomplete")?;
        }
        if self.incomplete > 0 {
            let bytes = Size(self.incomplete);
            write!(f, "; {bytes} of incomplete writes")?;
        }
        Ok(())
    }
}

/// A number of bytes for human readers.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
        if self.0 < 10_000 {
            return write!(f, "{} bytes", self.0);
        }
        let mut size = self.0 as f64 / 1e3;
        let mut unit = 0;
        while size >= 999.5 && unit + 1 < UNITS.len() {
            size /= 1e3;
            unit += 1;
        }
        let digits = if size < 10.0 { 1 } else { 0 };
        write!(f, "{size:.digits$} {}", UNITS[unit])
    }
}

/// The data files of a log.
pub fn data_files(files: &LogFiles<'_>, header: &Header) -> Result<Vec<SourcePath>> {
    let subfiles = header.subfiles_of(files)?;
    Ok(match &subfiles[..] {
        [] => vec![SourcePath::below(files.log())],
        _ => subfiles,
    })
}

/// Opens a data file.
fn open(files: &LogFiles<'_>, place: &SourcePath) -> Result<SourceFile> {
    if place.path == files.log() {
        return SourceFile::open(files.dir(), files.log());
    }
    files.open(place)
}

/// Opens the data files of a log.
pub fn open_data_files(files: &LogFiles<'_>, header: &Header) -> Result<Vec<SourceFile>> {
    let places = data_files(files, header)?;
    places.iter().map(|place| open(files, place)).collect()
}

/// The spill files, with the data file of each.
fn spill_files(files: &LogFiles<'_>, flushed: &Flushed) -> Result<Vec<(SourcePath, u32)>> {
    let dir = spill_dir(files.log());
    let names = match files.list(&SourcePath::below(&dir)) {
        Ok(names) => names,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(files.dir().full_path(&dir), e)),
    };
    let count = flushed.ends.len() as u32;
    let mut found: Vec<(u32, u32)> = names.iter().filter_map(|name| spilled_by(name)).collect();
    found.retain(|(file, rank)| *file < count && *rank < flushed.ranks);
    found.sort_unstable();
    let place = |(file, rank)| (SourcePath::below(dir.join(format!("{file}.{rank}"))), file);
    Ok(found.into_iter().map(place).collect())
}

/// The spill files of the log at `files`.
pub fn spilled(files: &LogFiles<'_>) -> Vec<SourcePath> {
    let dir = spill_dir(files.log());
    let names = files.list(&SourcePath::below(&dir)).unwrap_or_default();
    let names = names.into_iter().filter(|name| spilled_by(name).is_some());
    let places = names.map(|name| SourcePath::below(dir.join(name)));
    let is_own = |place: &SourcePath| {
        let file = files.open_file(place, OFlags::RDONLY);
        file.and_then(|file| own_parts::is_spilled(&file))
            .unwrap_or(false)
    };
    places.filter(is_own).collect()
}

/// Whether `name` is that of the spill directory of the log `log`.
pub fn is_spill_dir(log: &OsStr, name: &OsStr) -> bool {
    spill_dir(Path::new(log)).as_os_str() == name
}

/// Removes the spill files of the log at `log`, once nothing in them counts, and no other files. The caller holds the
/// lock of the journal.
pub fn remove_spills(log: &Path) -> io::Result<()> {
    let dir = spill_dir(log);
    let entries = match std::fs::read_dir(&dir) {
        Err(e) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&e.kind()) => {
            return Ok(());
        }
        entries => entries?,
    };
    // Readers do not follow a symbolic link to the directory.
    if dir.symlink_metadata()?.is_symlink() {
        return Ok(());
    }
    for entry in entries {
        let entry = entry?;
        if OwnDir::Spilled.has(&entry.path())? {
            std::fs::remove_file(entry.path())?;
        }
    }
    match std::fs::remove_dir(&dir) {
        // The directory has files of others.
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}
