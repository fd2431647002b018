//! Logs compacted by the library, with the libhdf5 of the test.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use h5logfs_convert::compact::Source;
use h5logfs_convert::compact::left_out::LeftOut;
use h5logfs_convert::compact::metadata::Metadata;
use h5logfs_convert::compact::threads;
use h5logfs_convert::compact::verify::verify;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_log::scan::{Choice, ScanRequest, Settings};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_dir::SourceDir;
use h5logfs_scan::scan;
use h5logfs_view::View;
use h5logfs_view::cache::{Budget, MemoryLimits};

use super::encoder::BUDGET;

type Result<T> = std::result::Result<T, String>;

/// The source that `h5logfs compact` uses. `filters` replaces the filters of all datasets.
pub fn source(log: &Path, filters: Option<Vec<Filter>>, skips_damaged: bool) -> Result<Source> {
    let said = |e: &dyn std::fmt::Display| e.to_string();
    let (dir, name) = SourceDir::of_file(log).map_err(|e| said(&e))?;
    let scanned = |choice: Choice| -> Result<Snapshot> {
        let settings = Settings {
            choice,
            ..Settings::default()
        };
        scan(ScanRequest::alone(&dir, &name, &settings)).map_err(|e| said(&e))
    };
    let mut snapshot = scanned(Choice::default())?;
    let other = filters.map(|filters| {
        let other = scanned(Choice::default().with_filters(filters))?;
        Metadata::of_scan(&mut snapshot, other).map_err(|e| said(&e))
    });
    let budget = Arc::new(Budget::new(MemoryLimits::each(BUDGET)));
    let view = View::open(&dir, snapshot, budget, None).map_err(|e| said(&e))?;
    let metadata = match other {
        Some(other) => other?,
        None => Metadata::of_view(&view).map_err(|e| said(&e))?,
    };
    Ok(Source {
        view,
        metadata,
        skips_damaged,
    })
}

/// Writes the file and reads it back. Returns what is missing from it.
pub fn write(source: &Source, out: &Path, jobs: usize) -> Result<Vec<LeftOut>> {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(out)
        .map_err(|e| e.to_string())?;
    let written = threads::write(source, &file, jobs, &|_| ()).map_err(|e| e.to_string())?;
    file.set_len(written.file.len).map_err(|e| e.to_string())?;
    verify(source, &file, &written, jobs, &|_| ()).map_err(|e| e.to_string())?;
    Ok(written.left_out)
}
