//! The files of a directory while it is scanned.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::sources::Sources;
use h5logfs_adios::Place;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::header::{Header, Version};
use h5logfs_adios::model::File;
use h5logfs_adios::tree::{Loss, Presence};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;
use h5logfs_log::adios::{Parts, names};
use h5logfs_log::log_files::LogFiles;
use h5logfs_log::scan::ScanRequest;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

/// The most data files. Source numbers have 16 bits, and three sources may be other files than `data.N`.
const MOST_DATA_FILES: usize = (1 << 16) - 3;

/// The open files of a directory.
pub(super) struct DirectoryFiles<'a> {
    relative: &'a Path,
    files: LogFiles<'a>,
    /// `md.idx`.
    index: SourceFile,
    /// `md.0`.
    metadata: SourceFile,
    /// `mmd.0`, if there is one.
    formats: Option<SourceFile>,
    /// `data.N`, by number, as far as blocks refer to them, or the reason why a file cannot be used.
    data: RefCell<BTreeMap<u32, Opened>>,
    /// The first failure to open one of them.
    failure: RefCell<Option<Error>>,
}

/// An open file, or the reason why it cannot be used, which goes on after its name.
type Opened = std::result::Result<SourceFile, Arc<str>>;

impl<'a> DirectoryFiles<'a> {
    /// Opens the metadata files. `index` is already open, so the others contain everything that it mentions.
    pub fn open(request: ScanRequest<'a>, index: SourceFile) -> Result<Self> {
        let relative = request.relative;
        let files = LogFiles::of(request.dir, relative, &index);
        let metadata = files.open_if_usable(&place(relative, names::METADATA))?;
        let metadata = metadata.map_err(|reason| without_metadata(&index, &reason))?;
        let formats = files.open_if_usable(&place(relative, names::FORMATS))?;
        if let Err(reason) = &formats {
            check_needs_no_formats(&index, reason)?;
        }
        Ok(DirectoryFiles {
            metadata,
            formats: formats.ok(),
            relative,
            files,
            index,
            data: RefCell::default(),
            failure: RefCell::default(),
        })
    }

    /// The path of `md.idx`.
    pub fn index_path(&self) -> &Path {
        self.index.path()
    }

    /// The files that the steps are read from.
    pub fn metadata(&self) -> Files<'_> {
        Files {
            index: &self.index,
            metadata: &self.metadata,
            formats: self.formats.as_ref().map(|formats| formats as _),
        }
    }

    /// Whether all stored bytes at `place` exist. Opens their file. If the system fails to do that,
    /// [`DirectoryFiles::check`] returns the error. `is_active`: a writer may still append to a file that is there.
    pub fn presence(&self, place: &Place, is_active: bool) -> Presence {
        let len = match place.file {
            File::Metadata => Ok(self.metadata.len()),
            File::Data(number) => self.len_of(number),
        };
        match (len, place.end()) {
            (Ok(len), Some(end)) if end <= len => Presence::There,
            (Ok(_), Some(_)) if is_active => Presence::Awaited,
            (Ok(len), _) => Presence::Lost(Loss::Cut(len)),
            (Err(reason), _) => Presence::Lost(Loss::Unopened(reason)),
        }
    }

    /// Reads the stored bytes at `place`. Fails where some do not exist.
    pub fn read(&self, place: &Place, buffer: &mut [u8]) -> std::result::Result<(), Fault> {
        if let File::Data(number) = place.file {
            let _known = self.len_of(number);
        }
        let data = self.data.borrow();
        let file = match place.file {
            File::Metadata => Some(&self.metadata),
            File::Data(number) => data.get(&number).and_then(|file| file.as_ref().ok()),
        };
        let file = file.ok_or("its file is not there")?;
        Ok(file.read_exact_at(buffer, place.offset)?)
    }

    fn len_of(&self, number: u32) -> std::result::Result<u64, Arc<str>> {
        let len = |file: &Opened| file.as_ref().map(SourceFile::len).map_err(Arc::clone);
        let mut data = self.data.borrow_mut();
        if let Some(known) = data.get(&number) {
            return len(known);
        }
        let opened = if data.len() < MOST_DATA_FILES {
            let place = place(self.relative, &names::data(number));
            self.files.open_if_usable(&place)
        } else {
            let reason = "its blocks are in more files than can be read";
            Err(Error::of(self.index.path(), reason.to_owned()))
        };
        let file = opened.unwrap_or_else(|error| {
            let reason = error.to_string();
            self.failure.borrow_mut().get_or_insert(error);
            Err(reason)
        });
        len(data.entry(number).or_insert(file.map_err(Arc::from)))
    }

    /// Whether a file beside `md.idx` says that an object store has the data files.
    pub fn are_in_object_store(&self) -> bool {
        let place = place(self.relative, names::OBJECT_STORE);
        self.files.open(&place).is_ok()
    }

    /// Fails if the system could not open a file.
    pub fn check(&self) -> Result<()> {
        self.failure.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// All files that can be used. `grow`: a job may append to them.
    pub fn into_sources(self, grow: bool) -> Result<(Sources, Parts)> {
        let mut parts = Parts::default();
        let mut sources = Sources::default();
        let relative = self.relative;
        // The source numbers are those of `log::adios`.
        sources.push(SourcePath::below(relative), self.index);
        sources.push(place(relative, names::METADATA), self.metadata);
        if let Some(formats) = self.formats {
            parts.formats = Some(next(&sources));
            sources.push(place(relative, names::FORMATS), formats);
        }
        for (number, file) in self.data.into_inner() {
            match file {
                Ok(file) => {
                    parts.data.push((number, next(&sources)));
                    sources.push(place(relative, &names::data(number)), file);
                }
                Err(reason) => {
                    parts.unopened.insert(number, reason.to_string());
                }
            }
        }
        if grow {
            for file in &mut sources.files {
                file.set_len(file.len())?;
            }
        }
        Ok((sources, parts))
    }
}

/// The error of a directory whose `md.0` cannot be used: what is lost with it.
fn without_metadata(index: &SourceFile, reason: &str) -> Error {
    let fault = match Directory::steps_of(index) {
        Ok(steps) => format!("md.0 {reason}: it has the metadata of all {steps} steps").into(),
        Err(fault) => fault,
    };
    Error::of(index.path(), fault)
}

/// Fails where a directory needs `mmd.0`, which cannot be used: BP5 does, unless it has no steps.
fn check_needs_no_formats(index: &SourceFile, reason: &str) -> Result<()> {
    let bad = |fault: Fault| Error::of(index.path(), fault);
    let header = Header::read(index).map_err(|fault| bad(fault.at(names::INDEX)))?;
    let steps = Directory::steps_of(index).map_err(bad)?;
    if header.version == Version::Bp4 || steps == 0 {
        return Ok(());
    }
    let what = "it has the formats of the metadata of all";
    Err(bad(format!("mmd.0 {reason}: {what} {steps} steps").into()))
}

fn next(sources: &Sources) -> u16 {
    // The number of open data files is limited.
    sources.files.len() as u16
}

/// A file beside `md.idx`.
fn place(index: &Path, name: &str) -> SourcePath {
    SourcePath::below(index.with_file_name(name))
}
