//! A log that was not closed, or is still being written: its objects are made of the journal's
//! definitions, in memory, and then walked as those of any other log.

use std::path::{Path, PathBuf};

use super::logvol::Connector;
use super::{described, tree};
use crate::closing::objects;
use crate::hdf5_sys as h5;
use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::Recorded;
use h5logfs_core::journal::extent::{FRONT, file_id, sections};
use h5logfs_core::log::Tables;
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::log::logvol::{self, Extent};
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::{Chunking, shape::Chooser};
use h5logfs_core::snapshot::{Snapshot, Source};

/// Scans what the last complete flush left.
pub fn scan(
    dir: &SourceDir,
    relative: &Path,
    master: SourceFile,
    (journal, found): (PathBuf, Recorded),
    chunking: Chunking,
) -> Result<Snapshot> {
    let path = master.path().to_owned();
    let bad = |e: String| Error::bad_file(&path, e);
    let objects = make_objects(&found).map_err(bad)?;

    let mut files = vec![(relative.to_owned(), master)];
    for path in found.header.subfile_paths(dir, relative)? {
        let source = SourceFile::open(dir, &path)?;
        if file_id(&source)? != Some(found.id) {
            return Err(Error::bad_file(source.path(), "it belongs to another log"));
        }
        files.push((path, source));
    }
    let mut tables = logvol::Tables {
        config: found.header.config,
        ..logvol::Tables::default()
    };
    let subfiled = found.header.subfiles > 0;
    let (mut places, mut sources) = (Vec::new(), Vec::new());
    for (number, (path, source)) in files.into_iter().enumerate() {
        let log = match (subfiled, number) {
            (false, _) => Some(0),
            (true, 0) => None,
            (true, n) => Some(n - 1),
        };
        let len = log.map_or(FRONT, |log| found.end(log));
        let source = source.first_bytes(len)?;
        if let Some(log) = log {
            add_log(&source, number as u16, &found, log, &mut tables)?;
        }
        places.push(SourcePath::below(path));
        sources.push(source);
    }
    let log = Tables::LogVol(tables);
    let chooser = Chooser::new(chunking, log.layout(), &sources);
    let copied = tree::copy(&objects, &sources[0], 0, (&Connector, &chooser)).map_err(bad)?;
    let mut diagnostics = copied.diagnostics;
    let shown = format!("not closed: shown as flush {} left it", found.flushes());
    diagnostics.push(Diagnostic::note(shown));
    diagnostics.extend(found.torn.map(|torn| Diagnostic::note(torn.to_string())));
    Ok(Snapshot {
        sources: described(places, &sources),
        journal: Some(Source {
            place: SourcePath::below(journal),
            identity: found.identity,
            grows: false,
            arrangement: Arrangement::Whole,
        }),
        user_block: Vec::new(),
        image: copied.image,
        datasets: copied.datasets,
        log,
        addresses: copied.addresses,
        diagnostics,
    })
}

fn make_objects(found: &Recorded) -> std::result::Result<h5::Id, String> {
    let file = h5::create_in_memory(&h5::new_file_creation()?)?;
    objects::create(&file, &found.definitions, &found.outline.datasets)?;
    Ok(file)
}

/// What the data file `log` holds. `number`: of the file among the sources.
fn add_log(
    source: &SourceFile,
    number: u16,
    found: &Recorded,
    log: usize,
    tables: &mut logvol::Tables,
) -> Result<()> {
    let (sections, diagnostics) = sections(source, number, found.ends(log))?;
    tables.sections.extend(sections);
    tables.diagnostics.extend(diagnostics);
    let end = found.end(log);
    if end > FRONT {
        tables.data.push(Extent {
            source: number,
            number: 0,
            offset: FRONT,
            len: end - FRONT,
        });
    }
    Ok(())
}
