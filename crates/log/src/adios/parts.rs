//! The bytes of blocks in the files of a directory.

use super::steps::read;
use super::{INDEX, METADATA, Parts};
use crate::model::{Encoding, StoredBytes};
use crate::origins::{Origins, Span};
use crate::source_file::SourceFile;
use h5logfs_adios::Bytes;
use h5logfs_adios::directory::{Directory, Files};
use h5logfs_adios::model::{Block, File, Place};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_common::task::Task;

impl Parts {
    /// The metadata files among the sources.
    pub(crate) fn files<'a>(&self, sources: &'a [SourceFile]) -> Result<Files<'a>, Fault> {
        let source = |number: u16| -> Result<&dyn Bytes, Fault> {
            let source = sources.get(usize::from(number));
            Ok(source.ok_or("a directory without its files")?)
        };
        Ok(Files {
            index: source(INDEX)?,
            metadata: source(METADATA)?,
            formats: self.formats.map(source).transpose()?,
        })
    }

    /// Bytes of the metadata files.
    pub(crate) fn metadata_len(&self, sources: &[SourceFile]) -> u64 {
        let files = [Some(INDEX), Some(METADATA), self.formats];
        let sources = files
            .iter()
            .flatten()
            .filter_map(|n| sources.get(usize::from(*n)));
        sources.map(SourceFile::len).fold(0, u64::saturating_add)
    }

    /// The number of the source file that holds these bytes; `None` where the scan did not find the file.
    fn source_of(&self, place: &Place) -> Option<u16> {
        match place.file {
            File::Metadata => Some(METADATA),
            File::Data(number) => {
                let at = self
                    .data
                    .binary_search_by_key(&number, |(number, _)| *number);
                at.ok().map(|at| self.data[at].1)
            }
        }
    }

    /// Why the scan did not open this file.
    fn why_unopened(&self, file: File) -> String {
        let reason = match file {
            File::Metadata => None,
            File::Data(number) => self.unopened.get(&number),
        };
        format!("{file} {}", reason.map_or("is not there", String::as_str))
    }

    /// The stored bytes of a block, and the reason if some of them are not there.
    pub(crate) fn stored(
        &self,
        block: &Block,
        sources: &[SourceFile],
    ) -> (StoredBytes, Option<String>) {
        let source = self.source_of(&block.place);
        let stored = StoredBytes {
            source: source.unwrap_or(INDEX),
            offset: block.place.offset,
            len: block.place.len,
            encoding: if block.has_operator {
                Encoding::Operator
            } else {
                Encoding::Raw
            },
        };
        let reason = match source {
            None => Some(self.why_unopened(block.place.file)),
            Some(source) => why_lost(sources.get(usize::from(source)), &block.place),
        };
        (stored, reason)
    }

    /// Reads stored bytes. Fails where some are not there.
    pub(crate) fn read(
        &self,
        place: &Place,
        sources: &[SourceFile],
        buffer: &mut [u8],
    ) -> Result<(), Fault> {
        let source = self.source_of(place).map(usize::from);
        let source = source.and_then(|source| sources.get(source));
        let source = source.ok_or_else(|| self.why_unopened(place.file))?;
        Ok(source.read_exact_at(buffer, place.offset)?)
    }

    /// The rank of each writer, with steps as flushes.
    pub(crate) fn origins(&self, task: &Task, sources: &[SourceFile]) -> Origins {
        let mut origins = Origins::default();
        if let Err(fault) = self.find_origins(task, sources, &mut origins) {
            let diagnostic = Diagnostic::note(fault.to_string());
            origins.diagnostics.push(diagnostic);
        }
        origins.sort();
        origins
    }

    fn find_origins(
        &self,
        task: &Task,
        sources: &[SourceFile],
        origins: &mut Origins,
    ) -> Result<(), Fault> {
        let files = self.files(sources)?;
        let directory = Directory::open(files)?;
        let _reservation = task.reserve(directory.bytes() as u64)?;
        for number in directory.numbers() {
            let read = read(task, &directory, files, number as u64)?;
            for block in read
                .step
                .variables
                .iter()
                .flat_map(|variable| &variable.blocks)
            {
                let (Some(source), Some(end)) = (self.source_of(&block.place), block.place.end())
                else {
                    continue;
                };
                origins.push(Span {
                    source,
                    start: block.place.offset,
                    end,
                    rank: Some(block.writer),
                    flush: Some(number as u64),
                })?;
            }
        }
        Ok(())
    }
}

/// Why the bytes of a block are missing from their file.
fn why_lost(file: Option<&SourceFile>, place: &Place) -> Option<String> {
    let len = file.map_or(0, SourceFile::len);
    let is_there = place.end().is_some_and(|end| end <= len);
    (!is_there).then(|| {
        let file = file.map(|file| file.path().display().to_string());
        let file = file.unwrap_or_default();
        let begin = place.offset;
        format!("{file} ends at byte {len}, before those of the block from byte {begin}")
    })
}
