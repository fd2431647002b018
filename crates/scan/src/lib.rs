//! From a log file to a [`Snapshot`]. This crate alone uses libhdf5. It needs no more than a directory and a
//! path, so that a scan can run in another process.
//!
//! * [`layout_objects`] is what a walk has to know of a layout; [`logvol`] and [`classic`] know it, and find the log.
//! * [`netcdf`] makes the objects of a netCDF classic file.
//! * [`chunks`] tells where the chunks of a log dataset lie.
//! * [`tree`] walks the user's objects and makes them anew in an image.
//! * [`dataset`] makes the datasets among them.
//! * [`unclosed`] starts from the journal of a log that was not closed.
//! * [`references`] translates what points from one object to another.
//! * [`hdf5_sys`] wraps the raw calls of libhdf5.
//! * [`closing`] turns a log that is not closed into a closed one.
//! * [`worker`] serves scans in processes without rights.

mod chunks;
mod classic;
pub mod closing;
mod dataset;
mod hdf5_sys;
mod layout_objects;
mod logvol;
mod netcdf;
mod references;
mod tree;
mod unclosed;
pub mod worker;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::hdf5_sys::{self as h5, Id};
use h5logfs_core::error::{Error, Result};
use h5logfs_core::journal;
use h5logfs_core::log::netcdf as netcdf_log;
use h5logfs_core::log::source_dir::{SourceDir, SourcePath};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::log::{Tables, carries_mark, find_signature};
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::scan::{Chunking, ScanRequest, Scanner};
use h5logfs_core::snapshot::{Snapshot, Source};
use layout_objects::LayoutObjects;

/// User blocks up to this size are shown; they are kept in memory.
const LARGEST_USER_BLOCK: u64 = 64 << 20;

/// Scans with the libhdf5 of this process, one file at a time: for files that are trusted.
#[derive(Debug, Default)]
pub struct InProcess(Mutex<()>);

impl Scanner for InProcess {
    fn scan(&self, request: ScanRequest<'_>) -> Result<Snapshot> {
        let _one_at_a_time = self.0.lock();
        scan(request)
    }

    fn library(&self) -> String {
        library()
    }
}

/// Scans one file.
///
/// [`Error::NotALog`] says that the file is not a log; every other error is about a log file.
pub fn scan(request: ScanRequest<'_>) -> Result<Snapshot> {
    let ScanRequest {
        dir,
        relative,
        companions,
        settings,
    } = request;
    let chunking = settings.chunking;
    let source = SourceFile::open(dir, relative)?;
    let path = source.path().to_owned();
    let not_a_log = |reason: String| Error::NotALog {
        path: path.clone(),
        reason,
    };
    if let Some((path, journal)) = journal::of_file(dir, relative, &source)? {
        return unclosed::scan(dir, relative, source, (path, journal), chunking);
    }
    if source.is_empty() || netcdf_log::has_magic(&source)? {
        return netcdf::scan(dir, (relative, source), companions, settings);
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
    let found = find_log(dir, relative, &file, source);
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
    own: Box<dyn LayoutObjects>,
}

/// Asks each layout whether it knows the file.
fn find_log(
    dir: &SourceDir,
    relative: &Path,
    file: &Id,
    source: SourceFile,
) -> std::result::Result<Option<Found>, String> {
    if let Some(header) = logvol::Header::read(file)? {
        let (sources, tables) = logvol::find_log(dir, relative, (file, source), header)?;
        return Ok(Some(Found {
            sources,
            log: Tables::LogVol(tables),
            own: Box::new(logvol::Connector),
        }));
    }
    let classic = classic::find(dir, relative, file, &source)?;
    Ok(classic.map(|found| Found {
        sources: std::iter::once(source)
            .chain(found.sources)
            .map(|source| (relative.to_owned(), source))
            .collect(),
        log: Tables::Classic(found.tables),
        own: Box::new(found.own),
    }))
}

/// Name and version of the library that makes images.
pub fn library() -> String {
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
    let places = paths.into_iter().map(SourcePath::below).collect();
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
        diagnostics: copied.diagnostics,
    })
}

fn described(places: Vec<SourcePath>, sources: &[SourceFile]) -> Vec<Source> {
    let describe = |(place, file): (SourcePath, &SourceFile)| Source {
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
