//! netCDF classic files with their logs (`docs/formats/pnetcdf-burst-buffer.md`). libhdf5 does not read such a file; it
//! only makes the image.
//!
//! * [`logs`] finds the logs of a file.
//! * [`model`] turns the header into netCDF's data model.

mod logs;
mod model;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use super::sources::Sources;
use super::{netcdf4, no_flush, not_a_log};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::error::{Error, Result};
use h5logfs_log::Tables;
use h5logfs_log::arrangement::Arrangement;
use h5logfs_log::log_files::{LogFiles, foreign};
use h5logfs_log::netcdf::{self, header::Header};
use h5logfs_log::part_names::{companions_of, named_after};
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::scan::{ScanRequest, damage, incomplete};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

/// Scans a netCDF file. The file is empty or begins with netCDF's magic. [`Error::NotALog`] says that it has no logs
/// and must not be shown without them.
pub fn scan(request: ScanRequest<'_>, file: SourceFile) -> Result<Snapshot> {
    let path = file.path().to_owned();
    let companions = match request.companions {
        Some(known) => Cow::Borrowed(known),
        // The process that opens the files lists the companions of every netCDF file. It listed none, so the file was
        // of another kind then.
        None if request.dir.is_remote() => return Err(Error::Changed { path }),
        None => {
            let files = LogFiles::of(request.dir, request.relative, &file);
            Cow::Owned(companions(&files)?)
        }
    };
    let found = logs::find(request, &file, &companions)?;
    let has_logs = !found.logs.is_empty();
    if !has_logs && file.is_empty() {
        let reason = "empty (a log file that was never closed can be empty, too)";
        return Err(not_a_log(&path, reason));
    }
    if !has_logs && !request.settings.without_logs {
        let reason = "a netCDF classic file without logs (the option netcdf=hdf5 shows it anyway)";
        return Err(not_a_log(&path, reason));
    }
    let header = Header::read(&file).map_err(|e| {
        if has_logs {
            Error::of(&path, format!("{e}; its logs are of no use without"))
        } else {
            not_a_log(&path, e.to_string())
        }
    })?;
    let shown_flush = request.settings.shown_flush.check_closed(None);
    shown_flush.map_err(|reason| no_flush(&path, reason))?;
    present(request, file, &header, found)
}

/// Finds the companion files of a file, for a request that does not name them.
fn companions(files: &LogFiles<'_>) -> Result<Vec<SourcePath>> {
    let named = companions_of(files.dir(), files.log(), |dir, _, directory, name| {
        let mut found = dir.list(directory);
        if let Ok(found) = &mut found {
            found.retain(|file| named_after(file) == Some(name));
            found.sort();
        }
        found.map_err(|e| Error::io(dir.full_path(directory), e))
    })?;
    let is_own = |place: &SourcePath| {
        let checked = files.check(place);
        !checked.is_err_and(|e| foreign(&e).is_some())
    };
    Ok(named.into_iter().filter(is_own).collect())
}

/// Makes the snapshot of `file`, whose header has been read.
fn present(
    request: ScanRequest<'_>,
    file: SourceFile,
    header: &Header,
    found: logs::Logs,
) -> Result<Snapshot> {
    let path = file.path().to_owned();
    let tables = netcdf::Tables {
        version: header.version,
        record_size: header.record_size(),
        variables: header.described(),
        logs: found.logs,
    };
    let mut sources = Sources::default();
    let file = file.arranged(Arrangement::ZerosAfter)?;
    sources.push(SourcePath::below(request.relative), file);
    sources.append(found.sources);
    let files = &sources.files;
    let mut diagnostics = found.diagnostics;
    diagnostics.extend(changed_after_logs(files));
    let summary = netcdf::summarize(files, &tables)?;
    diagnostics.extend(summary.diagnostics);
    let in_file = header.records_in(files[0].len());
    let log = Tables::Netcdf(tables);
    let chooser = Chooser::new(request.settings.chunking, log.layout(), files);
    let records = in_file.max(summary.records);
    let incomplete = request.settings.incomplete_attribute;
    let incomplete = incomplete.then(|| incomplete::text(&diagnostics)).flatten();
    let choice = &request.settings.choice;
    let model = model::model(header, records);
    let made = netcdf4::make(&model, &chooser, choice, incomplete.as_deref());
    let made = made.map_err(|e| Error::of(path, e))?;
    let has_unreadable = damage::is_known(&chooser, &made.datasets);
    let has_large_tables = chooser.has_large_tables();
    sources.check_unchanged()?;
    diagnostics.extend(made.diagnostics);
    Ok(Snapshot {
        sources: sources.describe(),
        image: made.image,
        datasets: made.datasets,
        log,
        addresses: made.addresses,
        diagnostics,
        has_unreadable,
        has_large_tables,
        ..Snapshot::default()
    })
}

/// A note if the file was changed after its logs. Section 4: nothing in a log says whether it was already applied to
/// the file. The times are only a hint.
fn changed_after_logs(sources: &[SourceFile]) -> Option<Diagnostic> {
    let (file, logs) = sources.split_first()?;
    let modified = |source: &SourceFile| source.identity().modified;
    let last = logs.iter().map(modified).max()?;
    let text =
        "changed after its logs were: they are applied even if the file already contains them";
    (modified(file) > last).then(|| Diagnostic::note(text))
}
