//! The scan of an unclosed log: opens its metadata image in memory, and walks the objects like those of any other log.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::metadata_image::LoggedObjects;
use super::room::Room;
use super::shown_unflushed::{RankShown, Shown};
use super::sources::Sources;
use super::{Original, Scanned, no_flush, shown};
use crate::hdf5_sys as h5;
use h5logfs_common::diagnostic::{Diagnostic, Severity};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::Tables;
use h5logfs_log::front::FRONT;
use h5logfs_log::journal::sealed::{Sealed, SealedFile};
use h5logfs_log::journal::visible::{Unseen, Visible, is_sealed, known_flush, visible};
use h5logfs_log::journal::words::asked_for;
use h5logfs_log::journal::{Cause, Recorded, Torn};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::extent::sections;
use h5logfs_log::logvol::{self, LogDataset, Section};
use h5logfs_log::scan::incomplete::{self, INCOMPLETE};
use h5logfs_log::scan::{ScanRequest, damage, shape::Chooser};
use h5logfs_log::snapshot::{Snapshot, Source};
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::{Identity, SourceFile};
use h5logfs_objects::defined::{metadata_image, set_extents};

/// Scans the log up to its last complete flush that is wholly visible here.
pub fn scan(
    request: ScanRequest<'_>,
    room: Room,
    master: SourceFile,
    journal_place: SourcePath,
    journal: Recorded,
) -> Result<Scanned> {
    let path = master.path().to_owned();
    let bad = |fault: Fault| Error::of(&path, fault);
    let mut diagnostics = Vec::new();
    let is_recent = is_recent(&journal.identity);
    let newest = journal.flushes();
    let journal = up_to_shown(request, &master, &journal_place, journal)?;
    let Seen {
        journal,
        unseen,
        goes_on,
        seen_from,
    } = Seen::of(request, &master, &journal_place, journal)?;
    diagnostics.push(state(&journal, newest));
    let late = unseen.map(|unseen| not_seen(&unseen, is_recent));
    let hole = journal.torn.filter(|torn| torn.cause == Cause::Missing);
    let is_late = late.is_some() || hole.is_some();
    diagnostics.extend(late);
    diagnostics.extend(journal.torn.map(|found| torn(found, is_recent)));
    let mut unflushed = None;
    if request.settings.unflushed && !is_late {
        unflushed = Shown::of(request, &master, &journal)?;
        diagnostics.extend(unflushed.as_ref().map(Shown::diagnostic));
    }
    let unflushed = unflushed.unwrap_or_default();
    let ids = journal.dataset_ids() as u32;
    let flushed_at = journal.commits.last().and_then(|commit| commit.time);
    let objects = Objects::of(&journal, &unflushed.growth).map_err(bad)?;
    let incomplete = request.settings.incomplete_attribute;
    if let Some(text) = incomplete.then(|| incomplete::text(&diagnostics)).flatten() {
        add_incomplete(&objects.file, &text).map_err(bad)?;
    }
    let data = DataFiles::of(request, master, &journal, &seen_from, unflushed)?;
    diagnostics.extend(data.gaps());
    let sealed = (!data.sealed.is_empty()).then(|| Sealed {
        last: known_flush(&journal),
        goes_on,
        files: data.sealed,
    });
    let (mut tables, sources) = (data.tables, data.sources);
    tables.ids = ids;
    let log = Tables::LogVol(tables);
    let files = &sources.files;
    let chooser = Chooser::new(request.settings.chunking, log.layout(), files);
    let original = Original {
        file: &objects.file,
        bytes: &objects.bytes,
        layout: &objects.layout,
        is_partial: true,
    };
    let how = shown::How {
        choice: &request.settings.choice,
        is_source: false,
        at: None,
        room,
    };
    let shown = shown::image(original, &chooser, how).map_err(bad)?;
    let has_unreadable = damage::is_known(&chooser, &shown.datasets);
    let has_large_tables = chooser.has_large_tables();
    diagnostics.extend(shown.diagnostics);
    let snapshot = Snapshot {
        sources: sources.describe(),
        journal: Some(Source::whole(journal_place, journal.identity)),
        flushes: journal.flushes(),
        asked: journal.asked(),
        newest,
        flushed_at,
        is_late,
        sealed,
        image: shown.image,
        datasets: shown.datasets,
        log,
        addresses: shown.addresses,
        diagnostics,
        has_unreadable,
        has_large_tables,
        ..Snapshot::default()
    };
    Ok(Scanned {
        snapshot,
        large: shown.large,
    })
}

/// The objects of the log.
struct Objects {
    /// The metadata image, as a file in memory.
    file: h5::Id,
    /// The image with references to regions that lead to their heap.
    bytes: Vec<u8>,
    layout: LoggedObjects,
}

impl Objects {
    /// `growth`: the extents of datasets that have grown beyond the journal, by ID.
    fn of(
        journal: &Recorded,
        growth: &BTreeMap<u32, Vec<u64>>,
    ) -> std::result::Result<Self, Fault> {
        if journal.metadata_image.is_some() {
            h5::forbid_plugins()?;
        }
        let mut image = metadata_image(journal)?.into_owned();
        // libhdf5 cannot extend datasets without chunks.
        set_extents(&mut image, growth)?;
        let (file, metadata_image) = (h5::open_image(&image.image)?, image);
        Ok(Objects {
            file,
            layout: LoggedObjects::of(&metadata_image)?,
            bytes: metadata_image.image,
        })
    }
}

/// The journal up to the requested flush.
fn up_to_shown(
    request: ScanRequest<'_>,
    master: &SourceFile,
    place: &SourcePath,
    journal: Recorded,
) -> Result<Recorded> {
    let flush = request.settings.shown_flush.flush_in(&journal.commits);
    let Some(flush) = flush.map_err(|reason| no_flush(master.path(), reason))? else {
        return Ok(journal);
    };
    if request.settings.unflushed {
        let reason = "unflushed data can be shown only behind the newest flush";
        return Err(Error::of(master.path(), reason));
    }
    if flush == journal.flushes() {
        return Ok(journal);
    }
    Ok(Recorded {
        torn: None,
        ..read_until(request, master, place, &journal, flush)?
    })
}

/// Reads the journal up to a flush. The identity and the invalid line come from the first read: the identity decides whether the
/// journal has changed.
fn read_until(
    request: ScanRequest<'_>,
    master: &SourceFile,
    place: &SourcePath,
    first: &Recorded,
    flush: u64,
) -> Result<Recorded> {
    let files = LogFiles::of(request.dir, request.relative, master);
    Ok(Recorded {
        identity: first.identity,
        torn: first.torn,
        ..Recorded::read_until(&files.open(place)?, flush)?
    })
}

/// The diagnostic that names the shown state of the log.
fn state(journal: &Recorded, newest: u64) -> Diagnostic {
    let flush = journal.flushes();
    let of = if newest > flush {
        format!(" of {newest}")
    } else {
        String::new()
    };
    let automatic = asked_for(flush, journal.asked());
    let mut text = format!("not closed: shown as flush {flush}{of} left it{automatic}");
    if let Some(append) = journal.header.append {
        text += &format!(", in an append that began after flush {}", append.flush);
    }
    let of_hdf5 = journal.metadata_image.as_ref();
    if let Some(metadata_image) = of_hdf5.filter(|_| !journal.takes_definitions()) {
        let bytes = metadata_image.image.len();
        text += &format!(". An HDF5 program writes it: {bytes} bytes of metadata");
    }
    Diagnostic::note(text)
}

/// The diagnostic for an invalid line. A flush that did not return is no loss, and missing bytes may still arrive.
fn torn(torn: Torn, is_recent: bool) -> Diagnostic {
    let may_come = torn.cause == Cause::Missing && is_recent;
    let severity = if torn.hides_flushes() && !may_come {
        Severity::Lost
    } else {
        Severity::Note
    };
    Diagnostic::new(severity, torn.to_string())
}

/// The diagnostic for a flush that is only partly visible.
fn not_seen(unseen: &Unseen, is_recent: bool) -> Diagnostic {
    let Unseen { flush, reason } = unseen;
    let (severity, why) = if is_recent {
        (
            Severity::Note,
            "The file system may show late what other nodes write",
        )
    } else {
        (
            Severity::Lost,
            "The last flush is so long ago that it is damaged, rather than late",
        )
    };
    let what = format!("not all of flush {flush} can be read here: {reason}. {why}");
    Diagnostic::new(severity, what)
}

/// The longest time that a file system may take to show what another node has written. Slow ones cache attributes for a minute,
/// and nodes write their pages back within another minute.
const LATEST: Duration = Duration::from_secs(600);

/// Whether a journal changed so recently that some nodes may not see the change yet. The clocks of nodes differ, so a time in the
/// future is recent.
fn is_recent(journal: &Identity) -> bool {
    let seconds = u64::try_from(journal.modified.0).unwrap_or(0);
    let age = (SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
        .and_then(|modified| modified.elapsed().ok());
    age.is_none_or(|age| age < LATEST)
}

/// The journal up to the last wholly visible flush.
struct Seen {
    journal: Recorded,
    unseen: Option<Unseen>,
    /// See [`Visible`].
    goes_on: bool,
    /// See [`Visible`]. Empty if no flush has seals.
    seen_from: Vec<u64>,
}

impl Seen {
    fn of(
        request: ScanRequest<'_>,
        master: &SourceFile,
        place: &SourcePath,
        journal: Recorded,
    ) -> Result<Self> {
        if !is_sealed(&journal) {
            return Ok(Seen {
                journal,
                unseen: None,
                goes_on: false,
                seen_from: Vec::new(),
            });
        }
        let files = sealed_files(request, master, &journal)?;
        let Visible {
            unseen,
            goes_on,
            seen_from,
        } = visible(&journal, &files, request.settings.compared, request.known);
        let Some(unseen) = unseen else {
            return Ok(Seen {
                journal,
                unseen: None,
                goes_on,
                seen_from,
            });
        };
        // A file that the file server no longer knows is gone, not late.
        files
            .iter()
            .try_for_each(|file| file.metadata().map(drop))?;
        let last = unseen.flush.saturating_sub(1);
        Ok(Seen {
            journal: read_until(request, master, place, &journal, last)?,
            unseen: Some(unseen),
            goes_on,
            seen_from,
        })
    }
}

/// The data files, opened again. The view opens them with only the parts that it needs.
fn sealed_files(
    request: ScanRequest<'_>,
    master: &SourceFile,
    journal: &Recorded,
) -> Result<Vec<SourceFile>> {
    let files = LogFiles::of(request.dir, request.relative, master);
    let subfiles = journal.header.subfiles_of(&files)?;
    if subfiles.is_empty() {
        return Ok(vec![SourceFile::open(request.dir, request.relative)?]);
    }
    subfiles.iter().map(|place| files.open(place)).collect()
}

/// Adds the attribute that lists what is missing. An attribute of the program with the same name gets an underscore in front.
fn add_incomplete(file: &h5::Id, text: &str) -> std::result::Result<(), Fault> {
    let root = h5::open_group(file, c"/")?;
    let wanted = h5::c_name(INCOMPLETE.as_bytes())?;
    let mut free = INCOMPLETE.to_owned();
    while h5::find_attribute(&root, &h5::c_name(free.as_bytes())?)?.is_some() {
        free.insert(0, '_');
    }
    if free != INCOMPLETE {
        h5::rename_attribute(&root, &wanted, &h5::c_name(free.as_bytes())?)?;
    }
    let size = u32::try_from(text.len())?;
    let datatype = h5::text_type(size, !text.is_ascii())?;
    let scalar = h5::Space::scalar().create()?;
    let name = h5::Name::ascii(INCOMPLETE);
    h5::write_plain_attribute(&root, name, &datatype, &scalar, text.as_bytes())
}

/// The data files of the log, up to its last complete flush.
struct DataFiles<'a> {
    journal: &'a Recorded,
    sources: Sources,
    tables: logvol::Tables,
    gaps: u64,
    /// The files that have seals.
    sealed: Vec<SealedFile>,
}

impl<'a> DataFiles<'a> {
    /// `seen_from`: see [`Visible`].
    fn of(
        request: ScanRequest<'_>,
        master: SourceFile,
        journal: &'a Recorded,
        seen_from: &[u64],
        shown: Shown,
    ) -> Result<Self> {
        let mut files = DataFiles {
            journal,
            sources: Sources::default(),
            tables: logvol::Tables {
                config: journal.header.config,
                ..logvol::Tables::default()
            },
            gaps: 0,
            sealed: Vec::new(),
        };
        let log_files = LogFiles::of(request.dir, request.relative, &master);
        let subfiles = journal.header.subfiles_of(&log_files)?;
        let place = SourcePath::below(request.relative);
        if subfiles.is_empty() {
            files.add(place, master, 0, seen_from, &shown)?;
        } else {
            files.sources.push(place, master.first_bytes(FRONT)?);
        }
        for (log, place) in subfiles.into_iter().enumerate() {
            let subfile = log_files.open(&place)?;
            if subfile.file_id()? != Some(journal.id) {
                return Err(Error::of(subfile.path(), "it belongs to another log"));
            }
            files.add(place, subfile, log, seen_from, &shown)?;
        }
        for (place, sections) in shown.spilled {
            files.add_spilled(log_files.open(&place)?, place, sections);
        }
        Ok(files)
    }

    /// Adds the data file `log`.
    fn add(
        &mut self,
        place: SourcePath,
        file: SourceFile,
        log: usize,
        seen_from: &[u64],
        shown: &Shown,
    ) -> Result<()> {
        let source = self.sources.files.len() as u16;
        let mut end = self.journal.end(log);
        let behind = shown.behind.get(&log);
        // Unflushed data may change, and each change alters the identity of the file.
        let file = match behind {
            Some(_) => file,
            None => file.first_bytes(end)?,
        };
        let mut found = sections(&file, source, self.journal.ends(log))?;
        for section in behind.into_iter().flatten() {
            let pieces = section.pieces.iter();
            end = pieces.clone().fold(end, |end, piece| end.max(piece.end));
            let entries = pieces.map(|piece| piece.entries);
            Section::add(&mut found.sections, source, section.rank, entries);
        }
        self.tables.sections.extend(found.sections);
        self.tables.diagnostics.extend(found.diagnostics);
        self.gaps = self.gaps.saturating_add(found.gaps);
        if found.has_seals {
            let ends = self.journal.ends(log).map(|(_, end)| end);
            let seen_from = seen_from.get(log).copied().unwrap_or(end);
            self.sealed.push(SealedFile::new(source, ends, seen_from));
        }
        if end > FRONT {
            self.tables.data.push(LogDataset {
                source,
                number: 0,
                offset: FRONT,
                len: end - FRONT,
            });
        }
        self.sources.push(place, file);
        Ok(())
    }

    /// Adds extents that ranks have spilled into a file.
    fn add_spilled(&mut self, file: SourceFile, place: SourcePath, spilled: Vec<RankShown>) {
        let source = self.sources.files.len() as u16;
        self.tables.data.push(LogDataset {
            source,
            number: 0,
            offset: 0,
            len: file.len(),
        });
        let section = |spilled: RankShown| Section {
            source,
            rank: spilled.rank,
            pieces: spilled.pieces.iter().map(|piece| piece.entries).collect(),
        };
        self.tables
            .sections
            .extend(spilled.into_iter().map(section));
        self.sources.push(place, file);
    }

    /// The diagnostic for bytes that no entry uses.
    fn gaps(&self) -> Option<Diagnostic> {
        let text = format!(
            "{} bytes of its files are gaps between what ranks wrote",
            self.gaps
        );
        (self.gaps > 0).then(|| Diagnostic::note(text))
    }
}
