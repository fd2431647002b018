//! netCDF classic files, with what their logs add to them (`docs/formats/pnetcdf-burst-buffer.md`).
//! libhdf5 does not see such a file; it only makes the image.
//!
//! * [`logs`] finds the logs of a file.
//! * [`image`] presents the header as netCDF-4 does.

mod image;
mod logs;

use std::borrow::Cow;
use std::path::Path;

use super::described;
use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::error::{Error, Result};
use h5logfs_core::log::Tables;
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::log::netcdf;
use h5logfs_core::log::netcdf::header::Header;
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::companions::companions;
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::scan::{Listings, Settings};
use h5logfs_core::snapshot::Snapshot;

/// Scans the netCDF file at `relative`, which is `file`: empty, or with the magic of such a file. `beside`: its
/// companions, for who knows them.
/// [`Error::NotALog`] says that it has no logs and is not to be presented without.
pub fn scan(
    dir: &SourceDir,
    (relative, file): (&Path, SourceFile),
    beside: Option<&[SourcePath]>,
    settings: &Settings,
) -> Result<Snapshot> {
    let path = file.path().to_owned();
    let not_a_log = |reason: String| Error::NotALog {
        path: path.clone(),
        reason,
    };
    let beside = match beside {
        Some(known) => Cow::Borrowed(known),
        None => Cow::Owned(companions(dir, relative, &Listings::default())?),
    };
    let found = logs::find(dir, relative, &beside, 1)?;
    let has_logs = !found.logs.is_empty();
    if !has_logs && file.is_empty() {
        return Err(not_a_log(
            "empty (a log file that was never closed may be so, too)".into(),
        ));
    }
    if !has_logs && !settings.without_logs {
        let reason = "a netCDF classic file without logs (netcdf=hdf5 presents it all the same)";
        return Err(not_a_log(reason.into()));
    }
    let header = Header::read(&file).map_err(|e| match has_logs {
        true => Error::bad_file(&path, format!("{e}; its logs are of no use without")),
        false => not_a_log(e.to_string()),
    })?;
    present((relative, file), &header, found, settings)
}

/// `file`: that of which the header was read.
fn present(
    (relative, file): (&Path, SourceFile),
    header: &Header,
    found: logs::Logs,
    settings: &Settings,
) -> Result<Snapshot> {
    let path = file.path().to_owned();
    let file = file.arranged(Arrangement::ZerosAfter)?;
    let tables = netcdf::Tables {
        version: header.version,
        record_size: header.record_size(),
        variables: header.described(),
        logs: found.logs,
    };
    let (mut places, mut sources) = (vec![SourcePath::below(relative)], vec![file]);
    for (place, source) in found.sources {
        places.push(place);
        sources.push(source);
    }
    let mut diagnostics = found.diagnostics;
    diagnostics.extend(applied_before(&sources).map(Diagnostic::note));
    let survey = netcdf::summarize(&sources, &tables)?;
    diagnostics.extend(survey.diagnostics);
    let in_file = header.records_in(sources[0].len());
    let log = Tables::Netcdf(tables);
    let chooser = Chooser::new(settings.chunking, log.layout(), &sources);
    let made = image::make(header, in_file.max(survey.records), &chooser);
    let made = made.map_err(|e| Error::bad_file(path, e))?;
    for source in &sources {
        source.check_unchanged()?;
    }
    diagnostics.extend(made.diagnostics);
    Ok(Snapshot {
        sources: described(places, &sources),
        journal: None,
        user_block: Vec::new(),
        image: made.image,
        datasets: made.datasets,
        log,
        addresses: made.addresses,
        diagnostics,
    })
}

/// Section 4: nothing in a log says that it was applied; only the times give a hint.
fn applied_before(sources: &[SourceFile]) -> Option<String> {
    let (file, logs) = sources.split_first()?;
    let modified = |source: &SourceFile| source.identity().modified;
    let last = logs.iter().map(modified).max()?;
    (modified(file) > last).then(|| {
        "changed after its logs were: they are applied all the same, whether they were before or not".into()
    })
}
