//! A log that was not closed, or is still written: makes its objects in memory from the definitions in the journal,
//! and then walks them like those of any other log.

use super::logvol::LogVolObjects;
use super::sources::Sources;
use super::tree;
use crate::closing::make_objects;
use crate::hdf5_sys as h5;
use h5logfs_core::diagnostic::{Diagnostic, Severity};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal::extent::{FRONT, file_id, sections};
use h5logfs_core::journal::{Recorded, Torn};
use h5logfs_core::log::Tables;
use h5logfs_core::log::arrangement::Arrangement;
use h5logfs_core::log::log_files::LogFiles;
use h5logfs_core::log::logvol::{self, Extent};
use h5logfs_core::log::source_dir::SourcePath;
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::incomplete::{self, INCOMPLETE};
use h5logfs_core::scan::{ScanRequest, damage, shape::Chooser};
use h5logfs_core::snapshot::{Snapshot, Source};

/// Scans the log up to its last complete flush.
pub fn scan(
    request: ScanRequest<'_>,
    master: SourceFile,
    journal_place: SourcePath,
    journal: Recorded,
) -> Result<Snapshot> {
    let path = master.path().to_owned();
    let bad = |e: String| Error::bad_file(&path, e);
    let mut diagnostics = Vec::new();
    let shown = format!("not closed: shown as flush {} left it", journal.flushes());
    diagnostics.push(Diagnostic::note(shown));
    diagnostics.extend(journal.torn.map(torn));
    let objects = objects_in_memory(&journal).map_err(bad)?;
    let incomplete = request.settings.incomplete_attribute;
    if let Some(text) = incomplete.then(|| incomplete::text(&diagnostics)).flatten() {
        add_incomplete(&objects, &text).map_err(bad)?;
    }
    let mut sources = Sources::default();
    let mut tables = logvol::Tables {
        config: journal.header.config,
        ..logvol::Tables::default()
    };
    let log_files = LogFiles::of(request.dir, request.relative, &master);
    let subfiles = journal.header.subfiles_of(&log_files)?;
    let master = if subfiles.is_empty() {
        add_log(master, 0, &journal, 0, &mut tables)?
    } else {
        master.first_bytes(FRONT)?
    };
    sources.push(SourcePath::below(request.relative), master);
    for (log, place) in subfiles.into_iter().enumerate() {
        let subfile = log_files.open(&place)?;
        if file_id(&subfile)? != Some(journal.id) {
            return Err(Error::bad_file(subfile.path(), "it belongs to another log"));
        }
        let number = sources.files.len() as u16;
        let subfile = add_log(subfile, number, &journal, log, &mut tables)?;
        sources.push(place, subfile);
    }
    let log = Tables::LogVol(tables);
    let files = &sources.files;
    let chooser = Chooser::new(request.settings.chunking, log.layout(), files);
    let copied = tree::copy(tree::Original {
        file: &objects,
        source: &files[0],
        base: 0,
        layout: &LogVolObjects,
        chooser: &chooser,
    });
    let copied = copied.map_err(bad)?;
    let has_unreadable = damage::is_known(&chooser, &copied.datasets);
    diagnostics.extend(copied.diagnostics);
    Ok(Snapshot {
        sources: sources.describe(),
        journal: Some(Source {
            place: journal_place,
            identity: journal.identity,
            grows: false,
            arrangement: Arrangement::Whole,
        }),
        flushes: journal.flushes(),
        user_block: 0,
        image: copied.image,
        datasets: copied.datasets,
        log,
        addresses: copied.addresses,
        diagnostics,
        has_unreadable,
    })
}

fn objects_in_memory(journal: &Recorded) -> std::result::Result<h5::Id, String> {
    let file = h5::create_in_memory(&h5::new_file_creation()?)?;
    make_objects(&file, &journal.definitions, &journal.outline.datasets)?;
    Ok(file)
}

/// What is to be said about a line that is not valid. A flush that did not return is no loss.
fn torn(torn: Torn) -> Diagnostic {
    let severity = if torn.hides_flushes() {
        Severity::Lost
    } else {
        Severity::Note
    };
    Diagnostic::new(severity, torn.to_string())
}

/// Adds the attribute that says what is missing. A program's own attribute of this name has another one in the
/// layout, and keeps that in the view.
fn add_incomplete(file: &h5::Id, text: &str) -> std::result::Result<(), String> {
    let root = h5::open_group(file, c"/")?;
    let size = u32::try_from(text.len()).map_err(|e| e.to_string())?;
    let datatype = h5::text_type(size, !text.is_ascii())?;
    let scalar = h5::Space::scalar().create()?;
    let name = h5::Name::ascii(INCOMPLETE);
    h5::write_plain_attribute(&root, name, &datatype, &scalar, text.as_bytes())
}

/// Adds what the data file `log` holds to the tables. `number` is the source number of the file. Returns the file up
/// to its last complete flush.
fn add_log(
    file: SourceFile,
    number: u16,
    journal: &Recorded,
    log: usize,
    tables: &mut logvol::Tables,
) -> Result<SourceFile> {
    let end = journal.end(log);
    let file = file.first_bytes(end)?;
    let (sections, diagnostics) = sections(&file, number, journal.ends(log))?;
    tables.sections.extend(sections);
    tables.diagnostics.extend(diagnostics);
    if end > FRONT {
        tables.data.push(Extent {
            source: number,
            number: 0,
            offset: FRONT,
            len: end - FRONT,
        });
    }
    Ok(file)
}
