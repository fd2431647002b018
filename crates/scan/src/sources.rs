//! The files of a log while it is scanned.

use h5logfs_common::error::Result;
use h5logfs_log::snapshot::Source;
use h5logfs_log::source_dir::SourcePath;
use h5logfs_log::source_file::SourceFile;

/// Open files and their paths. The position of a file is its source number.
#[derive(Debug, Default)]
pub struct Sources {
    places: Vec<SourcePath>,
    pub files: Vec<SourceFile>,
}

impl Sources {
    pub fn push(&mut self, place: SourcePath, file: SourceFile) {
        self.places.push(place);
        self.files.push(file);
    }

    pub fn append(&mut self, mut others: Sources) {
        self.places.append(&mut others.places);
        self.files.append(&mut others.files);
    }

    /// Fails if a file has changed since it was opened.
    pub fn check_unchanged(&self) -> Result<()> {
        self.files.iter().try_for_each(SourceFile::check_unchanged)
    }

    /// The entries of the snapshot for these files.
    pub fn describe(self) -> Vec<Source> {
        let describe = |(place, file): (SourcePath, &SourceFile)| Source {
            place,
            identity: file.identity(),
            grows: file.grows(),
            arrangement: file.arrangement().clone(),
        };
        self.places
            .into_iter()
            .zip(&self.files)
            .map(describe)
            .collect()
    }
}
