//! Which logs a netCDF file has, and in which order they apply (`docs/formats/pnetcdf-burst-buffer.md`,
//! sections 1, 5 and 6).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::descriptors;
use h5logfs_core::log::netcdf::channels::{Channels, arrangement, channels, doubt};
use h5logfs_core::log::netcdf::metadata::HeaderFields;
use h5logfs_core::log::netcdf::names::{LogFileKind, LogName};
use h5logfs_core::log::netcdf::{Log, has_log_magic};
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::SourceFile;

/// Bytes of a data log without data.
const EMPTY_DATA: u64 = 8;

/// The logs of one netCDF file.
#[derive(Debug, Default)]
pub struct Logs {
    /// Their files: those of each channel a source by itself, to be numbered from `first` on.
    pub sources: Vec<(SourcePath, SourceFile)>,
    /// In the order in which they apply.
    pub logs: Vec<Log>,
    pub diagnostics: Vec<Diagnostic>,
}

/// The two files of one log, as their names tell.
#[derive(Debug, Default)]
struct Pair {
    generation: u32,
    metadata: Option<SourcePath>,
    data: Option<SourcePath>,
}

/// One channel of a pair, opened.
struct Found {
    generation: u32,
    fields: HeaderFields,
    metadata: (SourcePath, SourceFile),
    data: Option<(SourcePath, SourceFile)>,
}

/// Looks through the files whose names make them logs of the one at `relative`. `first`: the number that the first of
/// their sources will have. Fails where one of them is a log that cannot be read: what it holds would be
/// missing.
pub fn find(
    dir: &SourceDir,
    relative: &Path,
    companions: &[SourcePath],
    first: u16,
) -> Result<Logs> {
    let mut diagnostics = Vec::new();
    let mut found = Vec::new();
    // The other half is for other files.
    let most = descriptors::limit() / 2;
    for pair in pairs(companions) {
        let left = most.saturating_sub(2 * found.len() as u64);
        found.extend(open((dir, relative), &pair, left, &mut diagnostics)?);
    }
    put_in_order(&mut found);
    diagnostics.extend(missing_ranks(&found).into_iter().map(Diagnostic::lost));
    let mut said = HashSet::new();
    diagnostics.retain(|diagnostic| said.insert(diagnostic.clone()));
    let mut logs = Logs {
        diagnostics,
        ..Logs::default()
    };
    for one in found {
        logs.add(one, first, dir, relative)?;
    }
    Ok(logs)
}

impl Logs {
    fn add(&mut self, found: Found, first: u16, dir: &SourceDir, relative: &Path) -> Result<()> {
        let number = |sources: usize| {
            let number = u16::try_from(sources).ok();
            number.and_then(|n| n.checked_add(first)).ok_or_else(|| {
                let file = dir.full_path(relative);
                Error::bad_file(file, "more log files than there are numbers for")
            })
        };
        let metadata = number(self.sources.len())?;
        self.sources.push(found.metadata);
        let data = match found.data {
            Some(data) => {
                let number = number(self.sources.len())?;
                self.sources.push(data);
                Some(number)
            }
            None => None,
        };
        self.logs.push(Log {
            metadata,
            data,
            generation: found.generation,
            rank: found.fields.rank,
        });
        Ok(())
    }
}

/// Pairs of files, by directory, generation, and rank.
fn pairs(companions: &[SourcePath]) -> Vec<Pair> {
    let mut pairs: BTreeMap<_, Pair> = BTreeMap::new();
    for place in companions {
        let Some(name) = place.path.file_name().and_then(LogName::parse) else {
            continue;
        };
        let pair = pairs
            .entry((place.dir, name.generation, name.rank))
            .or_default();
        pair.generation = name.generation;
        match name.part {
            LogFileKind::Metadata => pair.metadata = Some(place.clone()),
            LogFileKind::Data => pair.data = Some(place.clone()),
        }
    }
    pairs.into_values().collect()
}

/// The channels of a pair; none where it is no log of this file. Fails where they take more descriptors than are
/// `left`.
fn open(
    (dir, relative): (&SourceDir, &Path),
    pair: &Pair,
    left: u64,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Vec<Found>> {
    let open = |place: &SourcePath| SourceFile::open_at(dir, place);
    let data = pair.data.as_ref().map(open).transpose()?;
    let Some(place) = &pair.metadata else {
        diagnostics.extend(data.and_then(without_metadata).map(Diagnostic::lost));
        return Ok(Vec::new());
    };
    let metadata = open(place)?;
    if let Some(note) = no_log(&metadata, data.as_ref())? {
        diagnostics.push(Diagnostic::note(note));
        return Ok(Vec::new());
    }
    let channels = channels(&metadata).map_err(|e| Error::bad_file(metadata.path(), e))?;
    let written_for = channels.found.first();
    let written_for = written_for.map_or(&[][..], |(_, fields)| &fields.path);
    let path = String::from_utf8_lossy(written_for);
    match belongs(dir, place, relative, written_for) {
        Belongs::Yes => {}
        // Said once, however many there are.
        Belongs::Moved => {
            let note = format!("its logs were written for {path}");
            diagnostics.push(Diagnostic::note(note));
        }
        Belongs::No => {
            let name = metadata.path().display();
            let note = format!("{name}: the log of {path}, not applied to this file");
            diagnostics.push(Diagnostic::note(note));
            return Ok(Vec::new());
        }
    }
    let number = channels.number;
    if 2 * channels.found.len() as u64 > left {
        let reason = format!(
            "its logs have more files or channels than the {} descriptors that one file may take (ulimit -n)",
            descriptors::limit() / 2
        );
        return Err(Error::bad_file(dir.full_path(relative), reason));
    }
    let gaps = gaps(&channels, &metadata, data.as_ref())?;
    diagnostics.extend(gaps.map(Diagnostic::lost));
    let doubt = data.and_then(|data| {
        let doubt = doubt(&data, number)?;
        Some(format!("{}: {doubt}", data.path().display()))
    });
    diagnostics.extend(doubt.map(Diagnostic::note));
    let found = channels.found.into_iter().map(|(channel, fields)| {
        // Each channel is a source by itself.
        let part = |place: &SourcePath| {
            let file = open(place)?.arranged(arrangement(channel, number))?;
            Ok((place.clone(), file))
        };
        Ok(Found {
            generation: pair.generation,
            fields,
            metadata: part(place)?,
            data: pair.data.as_ref().map(part).transpose()?,
        })
    });
    found.collect()
}

/// What is to be said of channels that have no header. Fails where nobody knows then where the blocks of the others lie.
fn gaps(
    channels: &Channels,
    metadata: &SourceFile,
    data: Option<&SourceFile>,
) -> Result<Option<String>> {
    if !channels.has_gaps() {
        return Ok(None);
    }
    let missing = channels.number as usize - channels.found.len();
    let text = format!(
        "{missing} of its {} or more channels have no header",
        channels.number
    );
    let mut files = std::iter::once(metadata).chain(data);
    match files.all(|file| channels.has_first_blocks_only(file)) {
        true => Ok(Some(format!("{}: {text}", metadata.path().display()))),
        false => {
            let reason = format!("{text}: where the blocks of the others lie is not known");
            Err(Error::bad_file(metadata.path(), reason))
        }
    }
}

/// What is to be said of a data log alone.
fn without_metadata(data: SourceFile) -> Option<String> {
    // Of one that cannot be read nobody knows better.
    let is_log = has_log_magic(&data).unwrap_or(true);
    is_log.then(|| {
        let name = data.path().display();
        format!("{name}: its metadata log is not there, which says what it holds")
    })
}

/// Why files with the names of a log are none, or one without anything in it.
fn no_log(metadata: &SourceFile, data: Option<&SourceFile>) -> Result<Option<String>> {
    let name = metadata.path().display();
    if metadata.is_empty() && data.map_or(0, SourceFile::len) <= EMPTY_DATA {
        return Ok(Some(format!("{name}: empty, like its data log")));
    }
    // One of the two may be damaged.
    let is_data_log = data.map(has_log_magic).transpose()? == Some(true);
    match is_data_log || has_log_magic(metadata)? {
        true => Ok(None),
        false => Ok(Some(format!("{name}: no log, in spite of its name"))),
    }
}

/// Whether a log is that of a file.
#[derive(Debug, PartialEq, Eq)]
enum Belongs {
    Yes,
    /// The file, or both, are no longer where they were when the log was written.
    Moved,
    No,
}

/// `written_for`: the path of the netCDF file as the log has it. Beside the file the name of the log
/// decides; in a further directory there may be logs of many files that have one name.
fn belongs(dir: &SourceDir, log: &SourcePath, relative: &Path, written_for: &[u8]) -> Belongs {
    let written_for = Path::new(OsStr::from_bytes(written_for));
    let own = dir.full_path(relative);
    if own == written_for {
        return Belongs::Yes;
    }
    let is_beside = log.dir == 0;
    let is_below = dir.of(log).is_ok_and(|further| {
        let beside = own.parent();
        let same_name = written_for.file_name() == own.file_name();
        same_name && beside.is_some_and(|beside| further.path().starts_with(beside))
    });
    match is_beside || is_below || written_for.ends_with(relative) {
        true => Belongs::Moved,
        false => Belongs::No,
    }
}

/// Section 6: generations by the time of their last entry, ranks in ascending order.
fn put_in_order(found: &mut [Found]) {
    let mut times: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for one in found.iter() {
        let modified = one.metadata.1.identity().modified;
        let time = times.entry(one.generation).or_insert(modified);
        *time = modified.max(*time);
    }
    found.sort_by_key(|one| {
        let time = times.get(&one.generation).copied();
        let place = one.metadata.0.dir;
        (time, one.generation, one.fields.rank, place)
    });
}

/// What is known to be lost: the logs of other nodes may lie where we do not look.
fn missing_ranks(found: &[Found]) -> Vec<String> {
    let mut generations: BTreeMap<u32, (u64, BTreeSet<u64>)> = BTreeMap::new();
    for one in found {
        let header = &one.fields;
        let (ranks, there) = generations.entry(one.generation).or_default();
        *ranks = header.ranks.max(*ranks);
        there.insert(header.rank);
    }
    let mut missing = Vec::new();
    for (generation, (ranks, there)) in generations {
        let there = there.len() as u64;
        if there < ranks {
            let left = ranks - there;
            missing.push(format!(
                "of {ranks} processes {left} have no log here (number {generation}): what they wrote may be missing"
            ));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_belongs_to_the_file_that_it_was_written_for() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let (source, further) = (real.join("run"), real.join("fast"));
        let below = source.join("job/bb");
        for path in [&source, &further, &below] {
            std::fs::create_dir_all(path).unwrap();
        }
        let dir = SourceDir::open(&source).unwrap();
        let dir = dir.with_further(&[further, below]).unwrap();
        let check = |number: u16, file: &str, written_for: &Path| {
            let log = SourcePath {
                dir: number,
                path: "a.nc_0_0.meta".into(),
            };
            belongs(
                &dir,
                &log,
                Path::new(file),
                written_for.as_os_str().as_bytes(),
            )
        };
        let own = source.join("job/a.nc");
        let elsewhere = Path::new("/data/job/a.nc");
        let other = Path::new("/data/other/a.nc");
        for number in 0..3 {
            assert_eq!(check(number, "job/a.nc", &own), Belongs::Yes);
            assert_eq!(check(number, "job/a.nc", elsewhere), Belongs::Moved);
        }
        assert_eq!(check(0, "job/a.nc", other), Belongs::Moved);
        assert_eq!(check(1, "job/a.nc", other), Belongs::No);
        assert_eq!(check(2, "job/a.nc", other), Belongs::Moved);
        assert_eq!(check(2, "second/a.nc", other), Belongs::No);
        assert_eq!(check(1, "second/a.nc", &own), Belongs::No);
    }

    #[test]
    fn files_are_paired_by_their_names() {
        let names = ["a_0_1.meta", "a_0_1.data", "a_0_0.data", "a_1_0.meta"];
        let places: Vec<SourcePath> = names.iter().map(|name| SourcePath::below(*name)).collect();
        let pairs = pairs(&places);
        let there = |pair: &Pair| {
            (
                pair.generation,
                pair.metadata.is_some(),
                pair.data.is_some(),
            )
        };
        let there: Vec<_> = pairs.iter().map(there).collect();
        assert_eq!(there, [(0, false, true), (0, true, true), (1, true, false)]);
    }
}
