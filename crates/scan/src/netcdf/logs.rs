//! Finds the logs of a netCDF file, and their order (`docs/formats/pnetcdf-burst-buffer.md`, sections 1, 5 and 6).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::sources::Sources;
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::descriptors;
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::netcdf::channels::{Channels, arrangement, channels, doubt};
use h5logfs_log::netcdf::metadata::HeaderFields;
use h5logfs_log::netcdf::names::{LogFileKind, LogName};
use h5logfs_log::netcdf::{ProcessLog, has_log_magic};
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::source_dir::{SourceDir, SourcePath};
use h5logfs_log::source_file::SourceFile;

/// Length of a data log without data.
const EMPTY_DATA: u64 = 8;

/// The logs of one netCDF file.
#[derive(Debug, Default)]
pub struct Logs {
    /// The files of the logs. Each channel is one source. Source numbers begin at 1, because 0 is the netCDF file.
    pub sources: Sources,
    /// The logs in the order in which they apply.
    pub logs: Vec<ProcessLog>,
    pub diagnostics: Vec<Diagnostic>,
}

/// The two files of one log, by their names.
#[derive(Debug, Default)]
struct Pair {
    generation: u32,
    metadata: Option<SourcePath>,
    data: Option<SourcePath>,
}

/// The open files of one channel of a pair.
struct OpenLog {
    generation: u32,
    fields: HeaderFields,
    metadata: OpenFile,
    data: Option<OpenFile>,
}

struct OpenFile {
    place: SourcePath,
    file: SourceFile,
}

/// Finds the logs of a file among its companion files. Fails if a log cannot be read, because its data would be
/// missing.
pub fn find(
    request: ScanRequest<'_>,
    file: &SourceFile,
    companions: &[SourcePath],
) -> Result<Logs> {
    let files = LogFiles::of(request.dir, request.relative, file);
    let mut logs = Logs::default();
    let mut found = Vec::new();
    // The other half of the descriptors remains for other files.
    let most = descriptors::limit() / 2;
    for pair in pairs(companions) {
        let left = most.saturating_sub(2 * found.len() as u64);
        found.extend(open(&files, &pair, left, &mut logs.diagnostics)?);
    }
    put_in_order(&mut found);
    logs.diagnostics.extend(missing_ranks(&found));
    let mut known = HashSet::new();
    logs.diagnostics.retain(|one| known.insert(one.clone()));
    for log in found {
        logs.add(request, log)?;
    }
    Ok(logs)
}

impl Logs {
    fn add(&mut self, request: ScanRequest<'_>, log: OpenLog) -> Result<()> {
        let metadata = self.add_source(request, log.metadata)?;
        let data = log.data.map(|data| self.add_source(request, data));
        self.logs.push(ProcessLog {
            metadata,
            data: data.transpose()?,
            generation: log.generation,
            rank: log.fields.rank,
        });
        Ok(())
    }

    /// Adds a file and returns its source number.
    fn add_source(&mut self, request: ScanRequest<'_>, open: OpenFile) -> Result<u16> {
        self.sources.push(open.place, open.file);
        u16::try_from(self.sources.files.len()).map_err(|_| {
            let file = request.dir.full_path(request.relative);
            Error::of(file, "more log files than source numbers")
        })
    }
}

/// The pairs of files, in the order of directory, generation and rank.
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
        match name.kind {
            LogFileKind::Metadata => pair.metadata = Some(place.clone()),
            LogFileKind::Data => pair.data = Some(place.clone()),
        }
    }
    pairs.into_values().collect()
}

/// Opens the channels of a pair. A pair that is no log of this file has none. Fails if they need more than `left`
/// descriptors.
fn open(
    files: &LogFiles<'_>,
    pair: &Pair,
    left: u64,
    diagnostics: &mut Vec<Diagnostic>,
) -> Result<Vec<OpenLog>> {
    let (dir, relative) = (files.dir(), files.log());
    let open = |place: &SourcePath| files.open(place);
    let data = pair.data.as_ref().map(open).transpose()?;
    let Some(place) = &pair.metadata else {
        diagnostics.extend(data.and_then(without_metadata));
        return Ok(Vec::new());
    };
    let metadata = open(place)?;
    if let Some(note) = not_a_log(&metadata, data.as_ref())? {
        diagnostics.push(note);
        return Ok(Vec::new());
    }
    let channels = channels(&metadata).map_err(|e| Error::of(metadata.path(), e))?;
    let written_for = channels.found.first();
    let written_for = written_for.map_or(&[][..], |(_, fields)| &fields.path);
    let path = String::from_utf8_lossy(written_for);
    match belongs(dir, place, relative, written_for) {
        Belongs::Yes => {}
        // `find` keeps only one of these notes.
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
        return Err(Error::of(dir.full_path(relative), reason));
    }
    diagnostics.extend(gaps(&channels, &metadata, data.as_ref())?);
    let doubt = data.and_then(|data| {
        let doubt = doubt(&data, number)?;
        let text = format!("{}: {doubt}", data.path().display());
        Some(Diagnostic::note(text))
    });
    diagnostics.extend(doubt);
    let logs = channels.found.into_iter().map(|(channel, fields)| {
        // Each channel is one source.
        let part = |place: &SourcePath| {
            Ok(OpenFile {
                file: open(place)?.arranged(arrangement(channel, number))?,
                place: place.clone(),
            })
        };
        Ok(OpenLog {
            generation: pair.generation,
            fields,
            metadata: part(place)?,
            data: pair.data.as_ref().map(part).transpose()?,
        })
    });
    logs.collect()
}

/// The diagnostic for channels without a header. Fails if the blocks of the other channels cannot be located without
/// them.
fn gaps(
    channels: &Channels,
    metadata: &SourceFile,
    data: Option<&SourceFile>,
) -> Result<Option<Diagnostic>> {
    if !channels.has_gaps() {
        return Ok(None);
    }
    let missing = channels.number as usize - channels.found.len();
    let text = format!(
        "{missing} of its {} or more channels have no header",
        channels.number
    );
    let mut files = std::iter::once(metadata).chain(data);
    if files.all(|file| channels.has_first_blocks_only(file)) {
        let place = metadata.path().display().to_string();
        Ok(Some(Diagnostic::lost(text).at(place)))
    } else {
        let reason = format!("{text}: the places of the others' blocks are unknown");
        Err(Error::of(metadata.path(), reason))
    }
}

/// The diagnostic for a data log without its metadata log.
fn without_metadata(data: SourceFile) -> Option<Diagnostic> {
    // An unreadable file may be a log.
    let is_log = has_log_magic(&data).unwrap_or(true);
    is_log.then(|| {
        let text = "its metadata log is not there, so the places of its data are unknown";
        Diagnostic::lost(text).at(data.path().display().to_string())
    })
}

/// The reason why files named like a log are not a log, or are an empty one.
fn not_a_log(metadata: &SourceFile, data: Option<&SourceFile>) -> Result<Option<Diagnostic>> {
    let note = |reason| Diagnostic::note(format!("{}: {reason}", metadata.path().display()));
    if metadata.is_empty() && data.map_or(0, SourceFile::len) <= EMPTY_DATA {
        return Ok(Some(note("empty, like its data log")));
    }
    // One of the two files may be damaged.
    let is_data_log = data.map(has_log_magic).transpose()? == Some(true);
    let is_log = is_data_log || has_log_magic(metadata)?;
    Ok((!is_log).then(|| note("no log, despite its name")))
}

/// The relation of a log to a file.
#[derive(Debug, PartialEq, Eq)]
enum Belongs {
    Yes,
    /// The file, or both, were moved after the log was written.
    Moved,
    No,
}

/// Decides whether a log belongs to a file. `written_for` is the path of the netCDF file in the log. In the file's own
/// directory the name of the log decides. A further directory may hold the logs of many files with one name.
fn belongs(dir: &SourceDir, log: &SourcePath, relative: &Path, written_for: &[u8]) -> Belongs {
    let written_for = Path::new(OsStr::from_bytes(written_for));
    let own = dir.full_path(relative);
    if own == written_for {
        return Belongs::Yes;
    }
    let is_in_same_dir = log.dir == 0;
    let is_below = dir.of(log).is_ok_and(|further| {
        let same_name = written_for.file_name() == own.file_name();
        let own_dir = own.parent();
        same_name && own_dir.is_some_and(|own_dir| further.path().starts_with(own_dir))
    });
    if is_in_same_dir || is_below || written_for.ends_with(relative) {
        Belongs::Moved
    } else {
        Belongs::No
    }
}

/// Sorts the logs (section 6): generations by the time of their last entry, ranks in ascending order.
fn put_in_order(logs: &mut [OpenLog]) {
    let mut times: BTreeMap<u32, (i64, i64)> = BTreeMap::new();
    for log in logs.iter() {
        let modified = log.metadata.file.identity().modified;
        let time = times.entry(log.generation).or_insert(modified);
        *time = modified.max(*time);
    }
    logs.sort_by_key(|log| {
        let time = times.get(&log.generation).copied();
        let dir = log.metadata.place.dir;
        (time, log.generation, log.fields.rank, dir)
    });
}

/// Most ranks without a log that a message names.
const MOST_NAMED: usize = 8;

/// The diagnostics for missing ranks: processes may have written logs to directories that are not searched.
fn missing_ranks(logs: &[OpenLog]) -> Vec<Diagnostic> {
    #[derive(Default)]
    struct Generation {
        /// Number of processes in the job.
        ranks: u64,
        /// Processes whose log is here.
        present: BTreeSet<u64>,
    }
    let mut generations: BTreeMap<u32, Generation> = BTreeMap::new();
    for log in logs {
        let generation = generations.entry(log.generation).or_default();
        generation.ranks = generation.ranks.max(log.fields.ranks);
        generation.present.insert(log.fields.rank);
    }
    let mut missing = Vec::new();
    for (number, Generation { ranks, present }) in generations {
        let left = ranks.saturating_sub(present.len() as u64);
        if left > 0 {
            let lost = (0..ranks).filter(|rank| !present.contains(rank));
            let named: Vec<String> = lost.take(MOST_NAMED).map(|rank| rank.to_string()).collect();
            let named = named.join(", ");
            let more = if left > MOST_NAMED as u64 {
                ", …"
            } else {
                ""
            };
            missing.push(Diagnostic::lost(format!(
                "{left} of {ranks} processes have left no log number {number} here: data of ranks {named}{more} may be missing"
            )));
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
