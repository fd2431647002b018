//! Makes the objects of a closed log from the shadow of the log: the same walk as that of a view, in the other direction.
//! Names are escaped, and logged datasets become anchors. All else is copied as it is.

use std::borrow::Cow;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::anchor::{AnchorNumbers, AnchorWriter};
use crate::dataset::Template;
use crate::hdf5_sys::{self as h5, Id, Space};
use crate::layout_objects::{Anchor, LayoutObjects, Owner};
use crate::logvol::escape;
use crate::shadow::ShadowObjects;
use crate::tree::{self, Copied, Copier, Datasets, Object, Original};
use h5logfs_core::image::{HeaderBytes, HeaderBytesMut, Image, ObjectTimes};
use h5logfs_core::journal::extent::FRONT;
use h5logfs_core::journal::shadow::Shadow;

type Result<T> = std::result::Result<T, String>;

/// The shadow of a log that is closed.
pub(super) struct OpenShadow<'a> {
    file: Id,
    image: &'a Vec<u8>,
    objects: StoredObjects,
}

impl<'a> OpenShadow<'a> {
    pub fn open(shadow: &'a Shadow) -> Result<Self> {
        h5::forbid_plugins()?;
        Ok(OpenShadow {
            file: h5::open_image(&shadow.image)?,
            image: &shadow.image,
            objects: StoredObjects(ShadowObjects::of(shadow)?),
        })
    }

    fn original(&self) -> Original<'_> {
        Original {
            file: &self.file,
            bytes: self.image,
            layout: &self.objects,
            is_partial: false,
        }
    }

    /// Bytes of the shadow: about those of the objects.
    pub fn size(&self) -> u64 {
        self.image.len() as u64
    }

    /// Creation properties of the file that gets the objects.
    pub fn creation(&self) -> Result<Id> {
        self.original().creation_of_copy()
    }

    /// Makes the objects in an open file.
    pub fn write(&self, target: &Id) -> Result<Copied> {
        let mut datasets = StoredDatasets {
            null: Space::Null,
            anchors: AnchorWriter::new()?,
        };
        tree::copy(self.original(), target, &mut datasets)
    }
}

/// The objects of a shadow with the names that they get in a log.
struct StoredObjects(ShadowObjects);

impl LayoutObjects for StoredObjects {
    fn copied_link<'n>(&self, name: &'n [u8], _: bool) -> Option<Cow<'n, [u8]>> {
        Some(escape(name))
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], _: Owner) -> Option<Cow<'n, [u8]>> {
        Some(escape(name))
    }

    fn anchor(&self, dataset: &Id, attributes: &[CString]) -> Result<Option<Anchor>> {
        self.0.anchor(dataset, attributes)
    }
}

/// Makes anchors, and copies of the datasets that were never logged.
struct StoredDatasets {
    null: Space,
    anchors: AnchorWriter,
}

impl Datasets for StoredDatasets {
    fn make(
        &mut self,
        copier: &mut Copier<'_>,
        old: &Object,
        template: &Template<'_>,
    ) -> Result<(Id, Owner)> {
        let anchor = copier.original.layout.anchor(&old.id, &old.attributes)?;
        if let Some(anchor) = anchor {
            return Ok((self.anchor(copier, template, anchor)?, Owner::Anchor));
        }
        let new = copier.create_dataset(template, &h5::dataset_space(&old.id)?)?;
        if template.has_elements(old)? {
            copier.copy_elements(old, &new, template.at)?;
        }
        Ok((new, Owner::Other))
    }
}

impl StoredDatasets {
    fn anchor(
        &mut self,
        copier: &mut Copier<'_>,
        template: &Template<'_>,
        anchor: Anchor,
    ) -> Result<Id> {
        h5::remove_filters(&template.creation)?;
        h5::set_contiguous(&template.creation)?;
        let new = copier.create_dataset(template, &self.null)?;
        let chunk = anchor.chunk.transpose()?;
        let numbers = AnchorNumbers {
            id: anchor.id,
            dims: &anchor.dims,
            max_dims: &anchor.max_dims,
            chunk: chunk.as_deref(),
            filters: &anchor.filters.transpose()?.unwrap_or_default(),
        };
        self.anchors.write(&new, &numbers)?;
        Ok(new)
    }
}

/// Sets the times of objects in a file, which must not be open in libhdf5. They lie in its front, and behind `start`.
pub(super) fn set_times(file: &File, start: u64, times: &[ObjectTimes]) -> Result<()> {
    if times.is_empty() {
        return Ok(());
    }
    let mut image = Image::new(Metadata::read(file, start).map_err(|e| e.to_string())?);
    times.iter().try_for_each(|times| image.set_times(times))?;
    let written = image.into_bytes().write(file);
    written.map_err(|e: io::Error| e.to_string())
}

/// The metadata of a file, in memory: thousands of objects lie side by side.
struct Metadata {
    size: u64,
    front: Vec<u8>,
    start: u64,
    rest: Vec<u8>,
}

impl Metadata {
    fn read(file: &File, start: u64) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut front = vec![0; FRONT.min(size) as usize];
        file.read_exact_at(&mut front, 0)?;
        let mut rest = vec![0; size.saturating_sub(start) as usize];
        file.read_exact_at(&mut rest, start)?;
        Ok(Metadata {
            size,
            front,
            start,
            rest,
        })
    }

    fn write(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.rest, self.start)?;
        file.write_all_at(&self.front, 0)
    }
}

impl HeaderBytes for Metadata {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => self.rest.read(at, buf),
            None => self.front.read(at, buf),
        }
    }
}

impl HeaderBytesMut for Metadata {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        match at.checked_sub(self.start) {
            Some(at) => HeaderBytesMut::write(&mut self.rest, at, bytes),
            None => HeaderBytesMut::write(&mut self.front, at, bytes),
        }
    }
}
