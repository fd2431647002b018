//! A log that was not closed, or is still written: has its objects in memory, from the definitions or the shadow in the
//! journal, and walks them like those of any other log.

use super::layout_objects::LayoutObjects;
use super::logvol::LogVolObjects;
use super::shadow::ShadowObjects;
use super::sources::Sources;
use super::{Original, shown};
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
    mut journal: Recorded,
) -> Result<Snapshot> {
    let path = master.path().to_owned();
    let bad = |e: String| Error::bad_file(&path, e);
    let mut diagnostics = Vec::new();
    let shown = format!("not closed: shown as flush {} left it", journal.flushes());
    diagnostics.push(Diagnostic::note(shown));
    diagnostics.extend(journal.torn.map(torn));
    let objects = Objects::of(&mut journal).map_err(bad)?;
    let incomplete = request.settings.incomplete_attribute;
    if let Some(text) = incomplete.then(|| incomplete::text(&diagnostics)).flatten() {
        add_incomplete(&objects.file, &text).map_err(bad)?;
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
    let original = Original {
        file: &objects.file,
        bytes: &objects.bytes,
        layout: objects.layout.as_ref(),
    };
    let shown = shown::image(original, &chooser, false).map_err(bad)?;
    let has_unreadable = damage::is_known(&chooser, &shown.datasets);
    diagnostics.extend(shown.diagnostics);
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
        image: shown.image,
        datasets: shown.datasets,
        log,
        addresses: shown.addresses,
        diagnostics,
        has_unreadable,
    })
}

/// The objects of the log.
struct Objects {
    /// A file in memory.
    file: h5::Id,
    /// Its bytes, in which references to regions lead to their heap.
    bytes: Vec<u8>,
    layout: Box<dyn LayoutObjects>,
}

impl Objects {
    fn of(journal: &mut Recorded) -> std::result::Result<Self, String> {
        if let Some(shadow) = journal.shadow.take() {
            h5::forbid_plugins()?;
            return Ok(Objects {
                file: h5::open_image(&shadow.image)?,
                layout: Box::new(ShadowObjects::of(&shadow)?),
                bytes: shadow.image,
            });
        }
        let file = h5::create_in_memory(&h5::new_file_creation()?)?;
        make_objects(&file, &journal.definitions, &journal.outline.datasets)?;
        Ok(Objects {
            file,
            // No region is defined.
            bytes: Vec::new(),
            layout: Box::new(LogVolObjects),
        })
    }
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
/// layout, and keeps that in the view. In a shadow it has this one, and stays alone.
fn add_incomplete(file: &h5::Id, text: &str) -> std::result::Result<(), String> {
    let root = h5::open_group(file, c"/")?;
    if h5::find_attribute(&root, &h5::c_name(INCOMPLETE.as_bytes())?)?.is_some() {
        return Ok(());
    }
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
