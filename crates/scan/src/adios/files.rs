//! The files of a directory while it is scanned.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::sources::Sources;
use h5logfs_adios::Place;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::File;
use h5logfs_adios::tree::Presence;
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
    /// `data.N`, by number, as far as blocks refer to them; `None` if the file does not exist.
    data: RefCell<BTreeMap<u32, Option<SourceFile>>>,
    /// The first failure to open one of them.
    failure: RefCell<Option<Error>>,
}

impl<'a> DirectoryFiles<'a> {
    /// Opens the metadata files. `index` is already open, so the others contain everything that it mentions.
    pub fn open(request: ScanRequest<'a>, index: SourceFile) -> Result<Self> {
        let relative = request.relative;
        let files = LogFiles::of(request.dir, relative, &index);
        let metadata = if_there(files.open(&place(relative, names::METADATA)))?;
        let metadata = metadata.ok_or_else(|| without_metadata(&index))?;
        Ok(DirectoryFiles {
            metadata,
            formats: if_there(files.open(&place(relative, names::FORMATS)))?,
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

    /// Whether all stored bytes at `place` exist. Opens their file. If that fails, except for a missing file,
    /// [`DirectoryFiles::check`] returns the error. `is_active`: a writer may still append to a file that is there.
    pub fn presence(&self, place: &Place, is_active: bool) -> Presence {
        let len = match place.file {
            File::Metadata => Some(self.metadata.len()),
            File::Data(number) => self.len_of(number),
        };
        match (len, place.end()) {
            (Some(len), Some(end)) if end <= len => Presence::There,
            (Some(_), Some(_)) if is_active => Presence::Awaited,
            (len, _) => Presence::Lost(len),
        }
    }

    /// Reads the stored bytes at `place`. Fails where some do not exist.
    pub fn read(&self, place: &Place, buffer: &mut [u8]) -> std::result::Result<(), Fault> {
        if let File::Data(number) = place.file {
            self.len_of(number);
        }
        let data = self.data.borrow();
        let file = match place.file {
            File::Metadata => Some(&self.metadata),
            File::Data(number) => data.get(&number).and_then(Option::as_ref),
        };
        let file = file.ok_or("its file is not there")?;
        Ok(file.read_exact_at(buffer, place.offset)?)
    }

    fn len_of(&self, number: u32) -> Option<u64> {
        let mut data = self.data.borrow_mut();
        if let Some(known) = data.get(&number) {
            return known.as_ref().map(SourceFile::len);
        }
        let opened = if data.len() < MOST_DATA_FILES {
            if_there(self.files.open(&place(self.relative, &names::data(number))))
        } else {
            let reason = "its blocks are in more files than can be read";
            Err(Error::of(self.index.path(), reason.to_owned()))
        };
        let file = opened.unwrap_or_else(|error| {
            self.failure.borrow_mut().get_or_insert(error);
            None
        });
        let len = file.as_ref().map(SourceFile::len);
        data.insert(number, file);
        len
    }

    /// Whether a file beside `md.idx` says that an object store has the data files.
    pub fn are_in_object_store(&self) -> bool {
        let place = place(self.relative, names::OBJECT_STORE);
        self.files.open(&place).is_ok()
    }

    /// Fails if a file could not be opened.
    pub fn check(&self) -> Result<()> {
        self.failure.borrow_mut().take().map_or(Ok(()), Err)
    }

    /// All files that exist. `grow`: a job may append to them.
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
            if let Some(file) = file {
                parts.data.push((number, next(&sources)));
                sources.push(place(relative, &names::data(number)), file);
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

/// The error of a directory without `md.0`: what is lost with it.
fn without_metadata(index: &SourceFile) -> Error {
    let fault = match Directory::steps_of(index) {
        Ok(steps) => format!("md.0 is not there: it has the metadata of all {steps} steps").into(),
        Err(fault) => fault,
    };
    Error::of(index.path(), fault)
}

fn next(sources: &Sources) -> u16 {
    // The number of open data files is limited.
    sources.files.len() as u16
}

/// A file beside `md.idx`.
fn place(index: &Path, name: &str) -> SourcePath {
    SourcePath::below(index.with_file_name(name))
}

fn if_there(opened: Result<SourceFile>) -> Result<Option<SourceFile>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Error::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
