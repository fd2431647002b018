//! The content of a journal, up to its last commit.

use std::collections::BTreeMap;

use super::definition::{Definition, Outline};
use super::line::{Commit, Header, LONGEST_LINE, Line};
use super::lines::{Lines, Torn};
use super::metadata_image::MetadataImage;
use crate::file_id::FileId;
use crate::front::FRONT;
use crate::source_file::{Identity, SourceFile};
use h5logfs_common::error::{Error, Result};
use h5logfs_common::fault::Fault;

/// The most ends of flushes held in memory: one per flush and data file, 8 bytes each.
pub const MOST_ENDS: usize = 1 << 27;

/// The content of a journal, up to its last commit.
#[derive(Debug)]
pub struct Recorded {
    /// The first line.
    pub header: Header,
    /// The identifier of the file.
    pub id: FileId,
    /// Definitions before the last commit, in order. Without a metadata image, the outline has the changes of datasets in
    /// their place. With one, `extents` has the extents, and all else is listed.
    pub definitions: Vec<Definition>,
    /// The objects that the definitions make, where there is no metadata image.
    pub outline: Outline,
    /// The metadata image, to which the definitions add; `None` for a journal with definitions alone, or without objects.
    pub metadata_image: Option<MetadataImage>,
    /// The last extents that definitions give to datasets, by ID, where there is a metadata image.
    pub extents: BTreeMap<u32, Vec<u64>>,
    /// The complete flushes, in order.
    pub commits: Vec<Commit>,
    /// Bytes of the journal up to the end of the last commit. They form a journal, too.
    pub len: u64,
    /// The first invalid line.
    pub torn: Option<Torn>,
    /// Identity of the journal as it was read.
    pub identity: Identity,
}

impl Recorded {
    /// Reads a journal. A torn last line belongs to a flush that did not return.
    pub fn read(source: &SourceFile) -> Result<Self> {
        Self::read_until(source, u64::MAX)
    }

    /// Reads a journal up to the end of flush `last`, but always the first commit of an append.
    pub fn read_until(source: &SourceFile, last: u64) -> Result<Self> {
        let broken = |fault: Fault| Error::of(source.path(), fault);
        let mut lines = Lines::new(source);
        let (header, id) = lines.header()?;
        let mut found = Recorded {
            header,
            id,
            definitions: Vec::new(),
            outline: Outline::default(),
            metadata_image: None,
            extents: BTreeMap::new(),
            commits: Vec::new(),
            len: lines.len,
            torn: None,
            identity: source.identity(),
        };
        let mut pending = Vec::new();
        while (found.flushes() < last || found.lacks_begin())
            && let Some(line) = lines.next(LONGEST_LINE)?
        {
            match line {
                Line::Commit(commit) => {
                    found.commit(commit, &mut pending).map_err(broken)?;
                    found.len = lines.len;
                }
                line => pending.push(line),
            }
        }
        if found.lacks_begin() {
            return Err(broken(
                "an append without the state that it continues".into(),
            ));
        }
        let next = found.flushes().checked_add(1);
        found.torn = lines.end()?.map(|torn| Torn {
            is_end: torn.is_end && torn.last_hidden == next,
            ..torn
        });
        Ok(found)
    }

    fn commit(
        &mut self,
        commit: Commit,
        pending: &mut Vec<Line>,
    ) -> std::result::Result<(), Fault> {
        let before = self.commits.last();
        let number = match before {
            Some(before) => before.flush.checked_add(1),
            None => Some(self.header.append.map_or(1, |append| append.flush)),
        };
        let grows = match before {
            Some(before) => commit.ends.iter().zip(&before.ends).all(|(e, b)| e >= b),
            None => commit.ends.iter().all(|e| *e >= FRONT),
        };
        let files = self.header.data_files() as usize;
        let has_tags = commit.tags.is_empty() || commit.tags.len() == files;
        if Some(commit.flush) != number || commit.ends.len() != files || !has_tags || !grows {
            return Err(
                format!("flush {} at {:?} cannot follow", commit.flush, commit.ends).into(),
            );
        }
        let is_known = |asked| {
            before.map_or(asked < commit.flush, |before: &Commit| {
                asked == before.asked()
            })
        };
        if !commit.asked.is_none_or(is_known) {
            return Err(format!(
                "flush {} cannot follow the requested flush that it names",
                commit.flush
            )
            .into());
        }
        let numbers = commit.ends.len() + commit.tags.len();
        if self.commits.len().saturating_mul(numbers) > MOST_ENDS {
            return Err("too many flushes to hold in memory".into());
        }
        for line in pending.drain(..) {
            self.add(line)?;
        }
        self.commits.push(commit);
        Ok(())
    }

    /// Adds a line that a commit covers.
    fn add(&mut self, line: Line) -> std::result::Result<(), Fault> {
        let mixed = match line {
            Line::Define(_) => self.metadata_image.is_some() && !self.header.has_base(),
            _ => self.has_definitions(),
        };
        if mixed {
            return Err("it has definitions and a metadata image".into());
        }
        match line {
            Line::Define(Definition::Extent { dataset, dims }) if self.metadata_image.is_some() => {
                self.extents.insert(dataset, dims);
            }
            Line::Define(definition) if self.metadata_image.is_some() => {
                self.definitions.push(definition);
            }
            Line::Define(definition) => {
                self.outline.add(&definition)?;
                if !definition.changes_dataset() {
                    self.definitions.push(definition);
                }
            }
            Line::Image(part) => self
                .metadata_image
                .get_or_insert_default()
                .change_image(&part)?,
            Line::Logged(dataset) => self
                .metadata_image
                .get_or_insert_default()
                .set_logged(&dataset)?,
            // The caller adds commits.
            Line::Commit(_) => {}
        }
        Ok(())
    }

    /// Whether there are definitions, with or without a metadata image to which they add.
    pub fn has_definitions(&self) -> bool {
        !self.definitions.is_empty() || !self.extents.is_empty()
    }

    /// Whether what the program defines next is told by definitions, and not by changes of the metadata image.
    pub fn takes_definitions(&self) -> bool {
        self.header.has_base() || self.metadata_image.is_none()
    }

    /// Whether the journal continues a log whose state is yet to be read.
    fn lacks_begin(&self) -> bool {
        self.header.append.is_some() && self.commits.is_empty()
    }

    /// Number of dataset IDs in use.
    pub fn dataset_ids(&self) -> usize {
        match &self.metadata_image {
            Some(metadata_image) => metadata_image.ids() + self.defined_datasets(),
            None => self.outline.datasets.len(),
        }
    }

    /// Number of datasets whose elements are in the log.
    pub fn datasets(&self) -> usize {
        match &self.metadata_image {
            Some(metadata_image) => {
                metadata_image.logged.values().flatten().count() + self.defined_datasets()
            }
            None => self.outline.datasets.len(),
        }
    }

    fn defined_datasets(&self) -> usize {
        let is_dataset =
            |definition: &&Definition| matches!(definition, Definition::Dataset { .. });
        self.definitions.iter().filter(is_dataset).count()
    }

    /// The flush that the journal continues, or 0. The state after any later flush can be restored.
    pub fn first_flush(&self) -> u64 {
        self.header.append.map_or(0, |append| append.flush)
    }

    /// Number of the last complete flush; 0 without one.
    pub fn flushes(&self) -> u64 {
        self.commits.last().map_or(0, |c| c.flush)
    }

    /// The last requested flush; 0 without one. Later flushes are automatic.
    pub fn asked(&self) -> u64 {
        self.commits.last().map_or(0, Commit::asked)
    }

    /// Number of each flush, and its end in one data file.
    pub fn ends(&self, file: usize) -> impl Iterator<Item = (u64, u64)> {
        self.commits.iter().map(move |c| (c.flush, c.ends[file]))
    }

    /// End of the log in one data file.
    pub fn end(&self, file: usize) -> u64 {
        let last = self.commits.last();
        last.map_or(FRONT, |c| c.ends[file])
    }
}
