//! Turns a log file into a [`Snapshot`]. No other crate uses libhdf5 on files.
//!
//! [`scan`] opens the file, recognizes its layout, and calls one of these:
//!
//! * `unclosed`: a log that was not closed. It makes the objects from the journal.
//! * `adios`: an ADIOS2 directory, by its index. It makes the objects from the metadata of all steps.
//! * `netcdf`: a netCDF classic file. It turns the header into netCDF's data model and finds the logs beside the file.
//! * `netcdf4`: the netCDF-4 form of a file of netCDF's data model.
//! * `tiles`: a set of netCDF files, one for each process. It turns their headers into that of the joined file.
//! * `scan_hdf5` below: an HDF5 file. It asks `logvol` and `classic` for the log, and walks the objects.
//!
//! The parts that these share:
//!
//! * `layout_objects`: the trait of an HDF5 layout, for a walk through the objects of a file. Each layout implements
//!   it.
//! * `tree` copies the objects of a file into another one. `original` is the file that is copied. `dataset` serves all
//!   copies of datasets, and `elements` copies the elements of datasets that are not logged. `references` translates
//!   references between objects. `room` bounds the bytes that are copied.
//! * `shown` makes the canonical image with them.
//! * `metadata_image`: the objects of a log that a program writes through HDF5 itself.
//! * `chosen`: the objects that a copy of a part of a log contains.
//! * `chunks`: the places of the chunks of a log dataset.
//! * `sources`: the open files of a log.
//! * `hdf5_sys`: the raw calls of libhdf5.
//!
//! Besides scans:
//!
//! * [`closing`] closes a log, for the writer and for `h5logfs recover`.
//! * [`reopened`] reads the objects of a closed log, for the writer, which opens it again.
//! * [`worker`] serves scans in confined processes (feature `worker`).

mod adios;
mod chosen;
mod chunks;
mod classic;
pub mod closing;
mod dataset;
mod elements;
mod extents;
mod hdf5_sys;
mod layout_objects;
mod logvol;
mod metadata_image;
mod netcdf;
mod netcdf4;
mod original;
#[cfg(test)]
mod read_back;
mod references;
pub mod reopened;
mod room;
mod scales;
mod shown;
mod shown_unflushed;
mod sources;
mod tiles;
mod tree;
mod unclosed;
#[cfg(feature = "worker")]
pub mod worker;

use std::fmt::Display;
use std::path::Path;

use parking_lot::Mutex;

use crate::hdf5_sys::{self as h5, Id};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_common::memory::Reserved;
use h5logfs_common::task::Task;
use h5logfs_log::adios as adios_log;
use h5logfs_log::hdf5_bytes::Hdf5;
use h5logfs_log::journal::closed::{CloseSeal, sealed};
use h5logfs_log::journal::sealed::{Sealed, SealedFile};
use h5logfs_log::journal::{self, SETTLED, ShownFlush};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::logvol::remains::Remains;
use h5logfs_log::netcdf as netcdf_log;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::scan::{ScanRequest, Scanner, Settings, damage};
use h5logfs_log::snapshot::Snapshot;
use h5logfs_log::source_file::SourceFile;
use h5logfs_log::{Tables, carries_mark, find_signature, striped};
use layout_objects::LayoutObjects;
use original::Original;
use room::Room;
use sources::Sources;

/// A scanner of trusted files that uses the libhdf5 of this process, one file at a time. The process keeps its setting
/// of which plug-ins libhdf5 may load.
#[derive(Debug, Default)]
pub struct InProcess(Mutex<()>);

impl Scanner for InProcess {
    fn scan(&self, task: &Task, request: ScanRequest<'_>) -> Result<Reserved<Snapshot>> {
        let _one_at_a_time = self.0.lock();
        let path = || request.dir.full_path(request.relative);
        let plugins = h5::PluginState::keep();
        let _plugins = plugins.map_err(|reason| Error::of(path(), reason))?;
        let snapshot = scan(request)?;
        let reservation = task.reserve(snapshot.bytes() as u64);
        let reservation = reservation.map_err(|reason| Error::of(path(), reason))?;
        Ok(Reserved::new(snapshot, reservation))
    }
}

/// Scans one file.
///
/// [`Error::NotALog`] says that the file is not a log. Every other error is about a log file.
pub fn scan(request: ScanRequest<'_>) -> Result<Snapshot> {
    let scanned = scan_with(request, Room::of(request.settings.most))?;
    match scanned.too_much(request.settings.most) {
        Some(more) if scanned.large > 0 => {
            let left = scanned.large.saturating_sub(more);
            Ok(scan_with(request, Room::of(left))?.snapshot)
        }
        _ => Ok(scanned.snapshot),
    }
}

/// A log that was scanned.
struct Scanned {
    snapshot: Snapshot,
    /// Bytes of elements and attribute values in the image.
    large: u64,
}

impl Scanned {
    /// The bytes by which the scan exceeds `most`, the limit for a snapshot and its view. Readers keep more about each
    /// dataset than the snapshot does.
    fn too_much(&self, most: u64) -> Option<u64> {
        const EACH_DATASET: usize = 512;
        const BESIDE: usize = 64 << 10;
        let more = self.snapshot.datasets.len() * EACH_DATASET + BESIDE;
        ((self.snapshot.bytes() + more) as u64)
            .checked_sub(most)
            .filter(|more| *more > 0)
    }
}

impl From<Snapshot> for Scanned {
    fn from(snapshot: Snapshot) -> Self {
        Scanned { snapshot, large: 0 }
    }
}

/// Scans one file. `room` limits the elements and attribute values among its metadata.
fn scan_with(request: ScanRequest<'_>, room: Room) -> Result<Scanned> {
    if let Some(first) = tiles::first_member(request) {
        return tiles::scan(request, first).map(Scanned::from);
    }
    let source = SourceFile::open(request.dir, request.relative)?;
    let files = LogFiles::of(request.dir, request.relative, &source);
    if let Some((place, journal)) = journal::of_file(&files, &source)? {
        return unclosed::scan(request, room, source, place, journal);
    }
    if adios_log::is_index(request.relative, &source)? {
        return adios::scan(request, source).map(Scanned::from);
    }
    if source.is_empty() || netcdf_log::has_magic(&source)? {
        return netcdf::scan(request, source).map(Scanned::from);
    }
    if let Some(reason) = adios_log::why_no_log(&source)? {
        return Err(not_a_log(source.path(), reason));
    }
    scan_hdf5(request, room, source)
}

fn not_a_log(path: &Path, reason: impl Into<String>) -> Error {
    Error::NotALog {
        path: path.to_owned(),
        reason: reason.into(),
    }
}

fn no_flush(path: &Path, reason: impl Display) -> Error {
    Error::NoFlush {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The error for an HDF5 file that is not a log.
fn plain(path: &Path, is_settled: bool, shown_flush: ShownFlush) -> Error {
    match (is_settled, shown_flush) {
        (false, _) => not_a_log(path, "plain HDF5"),
        (true, ShownFlush::Newest) => not_a_log(path, "plain HDF5, a log that was settled"),
        (true, _) => no_flush(path, SETTLED),
    }
}

fn scan_hdf5(request: ScanRequest<'_>, room: Room, source: SourceFile) -> Result<Scanned> {
    let path = source.path().to_owned();
    let Some(signature) = find_signature(&source)? else {
        if netcdf_log::has_log_magic(&source)? {
            let reason =
                "a log of PnetCDF's burst buffer: it can be understood only with its netCDF file";
            return Err(not_a_log(&path, reason));
        }
        let remains = Remains::of(&source).map_err(|e| Error::of(&path, e))?;
        let reason = remains.map_or("no HDF5 signature".to_owned(), |remains| {
            remains.to_string()
        });
        return Err(not_a_log(&path, reason));
    };
    if striped::is_stub(&source)? {
        // The look at the file has recognized the layout. A scan would take the file for plain HDF5.
        let reason = "its data are in subfiles, which no scan reads";
        return Err(Error::of(path, reason));
    }
    // The seal is read before libhdf5 reads anything. A file that is no log yields no error here.
    let seal = logvol::seal(&source, request.settings);
    let opened = open(&source).and_then(|file| Ok((logvol::find_mark(&file)?, file)));
    let (mark, file) = match opened {
        Ok(opened) => opened,
        // A file that cannot be understood is passed through, because its program may be writing it. A file with the
        // marks of a log is refused.
        Err(Fault::Damage(reason)) => {
            return Err(if carries_mark(&source, signature)? {
                Error::of(path, reason)
            } else {
                not_a_log(&path, reason)
            });
        }
        Err(fault) => return Err(Error::of(path, fault)),
    };
    let is_settled = mark.is_none() && source.is_settled()?;
    let log = find_log(request, &file, source, mark, seal);
    let of_log = |fault| Error::of(&path, fault);
    let Some(log) = log.map_err(of_log)? else {
        return Err(plain(&path, is_settled, request.settings.shown_flush));
    };
    let last = log.last_flush().map_err(of_log)?;
    let shown_flush = request.settings.shown_flush.check_closed(last);
    shown_flush.map_err(|reason| no_flush(&path, reason))?;
    scan_log(&file, log, last, request.settings, room).map_err(of_log)
}

/// Opens the file of the held descriptor. Its path may lead to another file by now.
fn open(source: &SourceFile) -> std::result::Result<Id, Fault> {
    h5::forbid_plugins()?;
    // Forget earlier refusals of the system: they belong to other files.
    h5::take_refusal();
    let descriptor = source.descriptor().ok_or("a file that is not open")?;
    h5::open_descriptor(descriptor)
}

/// The log in an HDF5 file.
struct Log {
    /// The HDF5 file is the first source.
    sources: Sources,
    tables: Tables,
    layout: Box<dyn LayoutObjects>,
    /// Data files that were closed with seals.
    sealed: Vec<SealedFile>,
    /// The seal of each file.
    seals: Vec<Option<CloseSeal>>,
}

impl Log {
    /// The number of the last flush, if the close recorded it.
    fn last_flush(&self) -> std::result::Result<Option<u64>, Fault> {
        match (&self.tables, self.sources.files.first()) {
            (Tables::LogVol(_), Some(file)) => Ok(sealed(file)?.map(|closed| closed.flush)),
            _ => Ok(None),
        }
    }

    /// Fails if a seal has changed since its file was opened: libhdf5 may then have read another state of the log.
    fn check_seals(&self, settings: &Settings) -> std::result::Result<(), Fault> {
        for (file, before) in self.sources.files.iter().zip(&self.seals) {
            // This includes files that had no seal: a close may have written the front while libhdf5 read the file.
            if logvol::seal(file, settings)? != *before {
                return Err("it was closed meanwhile".into());
            }
        }
        Ok(())
    }
}

/// Asks each layout whether it knows the file.
fn find_log(
    request: ScanRequest<'_>,
    file: &Id,
    source: SourceFile,
    mark: Option<Id>,
    seal: std::result::Result<Option<CloseSeal>, Fault>,
) -> std::result::Result<Option<Log>, Fault> {
    if let Some(mark) = mark {
        let header = logvol::Header::read(&mark)?;
        return logvol::find_log(request, file, source, header, seal?).map(Some);
    }
    classic::find_log(request, file, source)
}

fn scan_log(
    file: &Id,
    log: Log,
    last: Option<u64>,
    settings: &Settings,
    room: Room,
) -> std::result::Result<Scanned, Fault> {
    let files = &log.sources.files;
    let source = files.first().ok_or("a log without files")?;
    let user_block = h5::user_block(&h5::file_creation(file)?)?;
    let chooser = Chooser::new(settings.chunking, log.tables.layout(), files);
    let original = Original {
        file,
        bytes: &Hdf5 {
            source,
            base: user_block,
        },
        layout: log.layout.as_ref(),
        is_partial: false,
    };
    let at = settings.image_at;
    let how = shown::How {
        choice: &settings.choice,
        is_source: true,
        at,
        room,
    };
    let shown = shown::image(original, &chooser, how)?;
    let has_unreadable = damage::is_known(&chooser, &shown.datasets);
    let has_large_tables = chooser.has_large_tables();
    log.sources.check_unchanged()?;
    log.check_seals(settings)?;
    let mut sources = log.sources.describe();
    for source in &mut sources {
        source.grows = settings.image_at.is_some();
    }
    let snapshot = Snapshot {
        sources,
        newest: last.unwrap_or(0),
        sealed: (!log.sealed.is_empty()).then_some(Sealed {
            last: None,
            goes_on: false,
            files: log.sealed,
        }),
        user_block,
        image: shown.image,
        image_at: settings.image_at,
        datasets: shown.datasets,
        log: log.tables,
        addresses: shown.addresses,
        diagnostics: shown.diagnostics,
        has_unreadable,
        has_large_tables,
        ..Snapshot::default()
    };
    Ok(Scanned {
        snapshot,
        large: shown.large,
    })
}
