//! From a log file to a [`Snapshot`]. The only place where libhdf5 sees a user's file; it needs no
//! more than a folder and a path, so that it can run in another process.
//!
//! * [`beside`] knows which files make a log of another one.
//! * [`own`] is what a walk has to know of a layout; [`logvol`] and [`classic`] know it, and find the log.
//! * [`netcdf`] makes the objects of a netCDF classic file.
//! * [`chunks`] tells where the chunks of a log dataset lie.
//! * [`tree`] walks the user's objects and makes them anew in an image.
//! * [`dataset`] makes the datasets among them.
//! * [`unclosed`] starts from the journal of a log that was not closed.
//! * [`references`] translates what points from one object to another.
//! * [`shape`] chooses chunk shapes where none was recorded.

mod beside;
mod chunks;
mod classic;
mod dataset;
mod logvol;
mod netcdf;
mod own;
mod references;
mod settings;
mod shape;
mod tree;
mod unclosed;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

pub use beside::{Listings, Look, companions, is_own_file, is_own_folder, look, master_of};
use own::Own;
pub use settings::{LayoutOption, OPTIONS as LAYOUT_OPTIONS, Settings};
use shape::Chooser;
pub use shape::{Chunking, choose as choose_chunk};

use crate::error::{Error, Result};
use crate::hdf5_sys::{self as h5, Id};
use crate::journal;
use crate::log::netcdf as netcdf_log;
use crate::log::source::{Folder, Place, SourceFile};
use crate::log::{Tables, carries_mark, find_signature};
use crate::snapshot::{Snapshot, Source};

/// User blocks up to this size are shown; they are kept in memory.
const LARGEST_USER_BLOCK: u64 = 64 << 20;

/// Scans the file at `relative` below `folder`.
///
/// [`Error::NotALog`] says that the file is none of ours; every other error is about a log file.
pub fn scan(folder: &Folder, relative: &Path, settings: &Settings) -> Result<Snapshot> {
    scan_beside(folder, relative, None, settings)
}

/// The same for who has just looked which files beside it could make a log of it, where such files can
/// ([`companions`]).
pub fn scan_beside(
    folder: &Folder,
    relative: &Path,
    companions: Option<&[Place]>,
    settings: &Settings,
) -> Result<Snapshot> {
    let chunking = settings.chunking;
    let source = SourceFile::open(folder, relative)?;
    let path = source.path().to_owned();
    let not_a_log = |reason: String| Error::NotALog {
        path: path.clone(),
        reason,
    };
    if let Some((path, journal)) = journal::of_file(folder, relative, &source)? {
        return unclosed::scan(folder, relative, source, (path, journal), chunking);
    }
    if source.is_empty() || netcdf_log::has_magic(&source)? {
        return netcdf::scan(folder, (relative, source), companions, settings);
    }
    let Some(signature) = find_signature(&source)? else {
        let reason = match netcdf_log::has_log_magic(&source)? {
            true => {
                "a log of PnetCDF's burst buffer: only with its netCDF file it can be understood"
            }
            false => "no HDF5 signature (a log file that was never closed has none either)",
        };
        return Err(not_a_log(reason.into()));
    };
    let file = match open(&source) {
        Ok(file) => file,
        Err(e) => {
            granted(&path)?;
            return Err(match carries_mark(&source, signature)? {
                true => Error::bad_file(path, e),
                false => not_a_log(e),
            });
        }
    };
    let found = find_log(folder, relative, &file, source);
    let scan = |found: Found| scan_log(&file, found, chunking);
    match found.and_then(|found| found.map(scan).transpose()) {
        Ok(Some(snapshot)) => Ok(snapshot),
        Ok(None) => Err(not_a_log("plain HDF5".into())),
        Err(e) => {
            granted(&path)?;
            Err(Error::bad_file(path, e))
        }
    }
}

/// Fails where it was the system that refused something to libhdf5, which does not tell: a lack of
/// descriptors or a bad disk says nothing about the file, and must not make it a plain one.
fn granted(path: &Path) -> Result<()> {
    let refused = h5::refused().map(|errno| Error::io(path, errno.into()));
    refused.map_or(Ok(()), Err)
}

/// A log in an HDF5 file.
struct Found {
    /// The file itself is the first.
    sources: Vec<(PathBuf, SourceFile)>,
    log: Tables,
    /// What of the file is the layout's own.
    own: Box<dyn Own>,
}

/// Asks each layout whether it knows the file.
fn find_log(
    folder: &Folder,
    relative: &Path,
    file: &Id,
    source: SourceFile,
) -> std::result::Result<Option<Found>, String> {
    if let Some(header) = logvol::Header::read(file)? {
        let (sources, tables) = logvol::find_log(folder, relative, (file, source), header)?;
        return Ok(Some(Found {
            sources,
            log: Tables::LogVol(tables),
            own: Box::new(logvol::Connector),
        }));
    }
    let classic = classic::find(folder, relative, file, &source)?;
    Ok(classic.map(|found| Found {
        sources: std::iter::once(source)
            .chain(found.sources)
            .map(|source| (relative.to_owned(), source))
            .collect(),
        log: Tables::Classic(found.tables),
        own: Box::new(found.own),
    }))
}

/// What else decides the outcome of a scan, beside the file: the image is libhdf5's work.
pub fn made_by() -> String {
    let (major, minor, release) = hdf5::library_version();
    format!("libhdf5 {major}.{minor}.{release}")
}

/// The very file that we hold, whatever its path leads to by now.
fn open(source: &SourceFile) -> std::result::Result<Id, String> {
    h5::forbid_plugins()?;
    // What was refused before is none of this file's business.
    h5::refused();
    h5::open_descriptor(source.as_fd())
}

fn scan_log(
    file: &Id,
    Found { sources, log, own }: Found,
    chunking: Chunking,
) -> std::result::Result<Snapshot, String> {
    let (paths, sources): (Vec<_>, Vec<_>) = sources.into_iter().unzip();
    let user_block = read_user_block(file, &sources[0])?;
    let places = paths.into_iter().map(Place::below).collect();
    let chooser = Chooser::new(chunking, log.layout(), &sources);
    let layout = (own.as_ref(), &chooser);
    let copied = tree::copy(file, &sources[0], user_block.len() as u64, layout)?;
    for source in &sources {
        source.check_unchanged().map_err(|e| e.to_string())?;
    }
    Ok(Snapshot {
        sources: described(places, &sources),
        journal: None,
        user_block,
        image: copied.image,
        datasets: copied.datasets,
        log,
        addresses: copied.addresses,
        losses: Vec::new(),
        warnings: copied.warnings,
    })
}

fn described(places: Vec<Place>, sources: &[SourceFile]) -> Vec<Source> {
    let describe = |(place, file): (Place, &SourceFile)| Source {
        place,
        identity: file.identity(),
        grows: file.grows(),
        arrangement: file.arrangement().clone(),
    };
    places.into_iter().zip(sources).map(describe).collect()
}

fn read_user_block(file: &Id, source: &SourceFile) -> std::result::Result<Vec<u8>, String> {
    let size = h5::user_block(&h5::file_creation(file)?)?;
    if size > LARGEST_USER_BLOCK {
        return Err(format!("a user block of {size} bytes"));
    }
    let mut bytes = vec![0; size as usize];
    source
        .read_exact_at(&mut bytes, 0)
        .map_err(|e| e.to_string())?;
    Ok(bytes)
}
