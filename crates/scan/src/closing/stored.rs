//! Makes the objects of a closed log from its metadata image. The walk is that of a view, in the other direction: names
//! are escaped, and logged datasets become stub datasets. All other objects are copied unchanged.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;
use std::rc::Rc;

use super::stub_dataset::{StubNumbers, StubWriter, stub};
use crate::dataset::{NewLink, Template};
use crate::hdf5_sys::{self as h5, Format, Id};
use crate::layout_objects::{LayoutObjects, Owner, StubDataset};
use crate::metadata_image::{LoggedObjects, limits};
use crate::original::{Object, Original};
use crate::room::Room;
use crate::scales::is_scale;
use crate::tree::{self, Copied, Copier, Datasets, MadeAtOnce};
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::{Dataspace, Image};
use h5logfs_log::journal::Recorded;
use h5logfs_log::journal::metadata_image::MetadataImage;
use h5logfs_log::logvol::escaped;
use h5logfs_objects::defined::metadata_image;

type Result<T> = std::result::Result<T, Fault>;

/// The metadata image of a log that is being closed, open in libhdf5.
pub(super) struct OpenImage<'a> {
    file: Id,
    metadata_image: Cow<'a, MetadataImage>,
    objects: StoredObjects,
}

impl<'a> OpenImage<'a> {
    /// Opens the metadata image of a journal.
    pub fn of_journal(journal: &'a Recorded) -> Result<Self> {
        if journal.metadata_image.is_some() {
            // Only the program `h5logfs` closes logs of HDF5 programs, so these settings change no program of a user.
            h5::forbid_plugins()?;
            h5::take_external_links_as_bytes()?;
        }
        Self::open(metadata_image(journal)?)
    }

    pub fn open(metadata_image: Cow<'a, MetadataImage>) -> Result<Self> {
        Ok(OpenImage {
            file: h5::open_image(&metadata_image.image)?,
            objects: StoredObjects(LoggedObjects::of(&metadata_image)?),
            metadata_image,
        })
    }

    fn original(&self) -> Original<'_> {
        Original {
            file: &self.file,
            bytes: &self.metadata_image.image,
            layout: &self.objects,
            is_partial: false,
        }
    }

    /// Bytes of the image. The objects take about as many.
    pub fn size(&self) -> u64 {
        self.metadata_image.image.len() as u64
    }

    /// Creation properties for the file that gets the objects.
    pub fn creation(&self) -> Result<Id> {
        self.original().creation_of_copy()
    }

    /// Makes the objects in an open file.
    pub fn write(&self, target: &Id) -> Result<Copied> {
        let mut datasets = StoredDatasets {
            logged: &self.objects.0,
            image: Image::new(&self.metadata_image.image),
            null: stub(false, 0).create()?,
            stub_datasets: StubWriter::new()?,
            models: HashMap::new(),
        };
        tree::copy(self.original(), target, Room::ENDLESS, &mut datasets)
    }
}

/// The objects of a metadata image, with the names that they get in a log.
struct StoredObjects(LoggedObjects);

impl LayoutObjects for StoredObjects {
    fn copied_link<'n>(&self, name: &'n [u8], _: bool) -> Option<Cow<'n, [u8]>> {
        Some(escaped(name))
    }

    fn copied_attribute<'n>(&self, name: &'n [u8], _: Owner) -> Option<Cow<'n, [u8]>> {
        Some(escaped(name))
    }

    fn stub_dataset(&self, dataset: &Id, attributes: &[CString]) -> Result<Option<StubDataset>> {
        self.0.stub_dataset(dataset, attributes)
    }
}

/// Makes stub datasets, and copies datasets that were never logged.
struct StoredDatasets<'a> {
    logged: &'a LoggedObjects,
    image: Image<&'a Vec<u8>>,
    null: Id,
    stub_datasets: StubWriter,
    /// Models of stub datasets, by the header bytes that make datasets alike. Programs make thousands of datasets that
    /// are alike.
    models: HashMap<Vec<u8>, Rc<Model>>,
}

/// The properties that stub datasets share if their datasets are alike.
struct Model {
    datatype: Id,
    creation: Id,
    format: Option<Format>,
    chunk: Option<Vec<u64>>,
    filters: Vec<Filter>,
}

impl Datasets for StoredDatasets<'_> {
    fn make_at_once(
        &mut self,
        copier: &mut Copier<'_>,
        header: u64,
        at: &NewLink<'_>,
    ) -> Result<Option<MadeAtOnce>> {
        let Some(id) = self.logged.id(header) else {
            return Ok(None);
        };
        // An unreadable header is left to libhdf5, which reports the damage.
        let Ok(Some(found)) = self.image.dataset(header) else {
            return Ok(None);
        };
        let Dataspace::Simple { dims, max_dims } = found.space else {
            return Ok(None);
        };
        if !found.attributes.is_empty() {
            return Ok(None);
        }
        let model = match self.models.get(&found.like) {
            Some(known) => Rc::clone(known),
            None => {
                let old = h5::open_object(copier.original.file, header)?;
                let old = copier.object(old, at.path)?;
                let template = Template::of(&old, at, copier.is_sharing)?;
                let Some(stub_dataset) = copier
                    .original
                    .layout
                    .stub_dataset(&old.id, &old.attributes)?
                else {
                    return Ok(None);
                };
                let model = Rc::new(Model::of(
                    copier,
                    &template,
                    stub_dataset.chunk,
                    stub_dataset.filters,
                )?);
                self.models.insert(found.like, Rc::clone(&model));
                model
            }
        };
        copier.set_format(model.format)?;
        let new = self.stub_dataset(
            at,
            &model,
            &self.null.clone(),
            id.into(),
            &dims,
            &limits(&max_dims),
        )?;
        Ok(Some(MadeAtOnce {
            address: h5::address(&new)?,
            times: found.times,
        }))
    }

    fn make(
        &mut self,
        copier: &mut Copier<'_>,
        old: &Object,
        template: &Template<'_>,
    ) -> Result<(Id, Owner)> {
        let stub_dataset = copier
            .original
            .layout
            .stub_dataset(&old.id, &old.attributes)?;
        if let Some(StubDataset {
            id,
            dims,
            max_dims,
            chunk,
            filters,
        }) = stub_dataset
        {
            let model = Model::of(copier, template, chunk, filters)?;
            let space = if is_scale(&old.id, &old.attributes)? {
                stub(true, dims.len()).create()?
            } else {
                self.null.clone()
            };
            let new = self.stub_dataset(template.at, &model, &space, id, &dims, &max_dims)?;
            return Ok((new, Owner::StubDataset));
        }
        let space = template.space(copier.original, old)?;
        let new = copier.create_dataset(template, &space)?;
        if template.has_elements(old)? {
            copier.copy_elements(old, &new, template.at)?;
        }
        Ok((new, Owner::Other))
    }
}

impl Model {
    fn of(
        copier: &mut Copier<'_>,
        template: &Template<'_>,
        chunk: Option<Result<Vec<u64>>>,
        filters: Option<Result<Vec<Filter>>>,
    ) -> Result<Self> {
        h5::remove_filters(&template.creation)?;
        h5::set_contiguous(&template.creation)?;
        Ok(Model {
            datatype: copier.type_in_copy(&template.datatype)?,
            creation: template.creation.clone(),
            format: template.format,
            chunk: chunk.transpose()?,
            filters: filters.transpose()?.unwrap_or_default(),
        })
    }
}

impl StoredDatasets<'_> {
    fn stub_dataset(
        &mut self,
        at: &NewLink<'_>,
        model: &Model,
        space: &Id,
        id: i64,
        dims: &[u64],
        max_dims: &[Option<u64>],
    ) -> Result<Id> {
        let NewLink { parent, link, .. } = at;
        let new = h5::create_dataset(parent, link, &model.datatype, space, &model.creation)?;
        let numbers = StubNumbers {
            id,
            dims,
            max_dims,
            chunk: model.chunk.as_deref(),
            filters: &model.filters,
        };
        self.stub_datasets.write(&new, &numbers)?;
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::hdf5_sys::{Link, Name, Space};
    use h5logfs_hdf5_format::DatasetHeader;

    /// The object header of a dataset that is made with a type, a space and properties, and then changed.
    fn header(
        size: u32,
        space: &Space,
        set: impl Fn(&Id) -> Result<()>,
        change: impl Fn(&Id) -> Result<()>,
    ) -> Option<DatasetHeader> {
        let make = || {
            let file = h5::create_in_memory(&h5::new_file_creation()?)?;
            let root = h5::open_group(&file, c"/")?;
            let creation = h5::new_dataset_creation()?;
            h5::set_contiguous(&creation)?;
            set(&creation)?;
            let datatype = h5::integer_type(size, true, false)?;
            let link = Link::ascii("d");
            let space = space.create()?;
            let dataset = h5::create_dataset(&root, &link, &datatype, &space, &creation)?;
            change(&dataset)?;
            let header = h5::address(&dataset)?;
            drop(dataset);
            let image = h5::file_image(&file)?;
            Image::new(&image).dataset(header)
        };
        make().unwrap()
    }

    /// The object header in the old and in the new form.
    fn both(size: u32, space: &Space, set: impl Fn(&Id) -> Result<()>) -> [DatasetHeader; 2] {
        let newer = |creation: &Id| {
            set(creation)?;
            h5::order_attributes(creation)
        };
        [
            header(size, space, &set, |_| Ok(())).unwrap(),
            header(size, space, newer, |_| Ok(())).unwrap(),
        ]
    }

    fn simple(dims: &[u64], max_dims: &[u64]) -> Dataspace {
        Dataspace::Simple {
            dims: dims.to_vec(),
            max_dims: max_dims.to_vec(),
        }
    }

    fn nothing(_: &Id) -> Result<()> {
        Ok(())
    }

    fn chunked(creation: &Id, chunk: &[u64]) -> Result<()> {
        h5::set_storage(
            creation,
            &h5logfs_log::snapshot::Storage::Chunked(chunk.to_vec()),
        )
    }

    #[test]
    fn datasets_that_differ_in_their_extent_alone_are_alike() {
        let one = both(4, &Space::fixed(&[3, 4]), nothing);
        for (other, space) in [
            (&[7, 8][..], Space::fixed(&[7, 8])),
            (&[][..], Space::scalar()),
        ] {
            for (one, found) in one.iter().zip(both(4, &space, nothing)) {
                assert_eq!(one.like, found.like);
                assert_eq!(one.space, simple(&[3, 4], &[3, 4]));
                assert_eq!(found.space, simple(other, other));
                assert_ne!(found.times[2], 0);
            }
        }
        let limits = Space::with_limits(&[0, 5], &[None, Some(6)]);
        let [one, other] = both(4, &limits, |creation| chunked(creation, &[2, 3]));
        assert_eq!(one.space, simple(&[0, 5], &[h5::UNLIMITED, 6]));
        assert_eq!(one.space, other.space);
    }

    #[test]
    fn datasets_with_other_types_or_properties_are_not_alike() {
        let space = Space::fixed(&[3, 4]);
        let mut all = Vec::new();
        all.extend(both(4, &space, nothing));
        all.extend(both(8, &space, nothing));
        all.extend(both(4, &space, |creation| h5::track_times(creation, false)));
        all.extend(both(4, &space, |creation| {
            h5::set_fill_value(creation, &h5::integer_type(4, true, false)?, &[1; 4])
        }));
        all.extend(both(4, &space, |creation| chunked(creation, &[1, 2])));
        all.extend(both(4, &space, |creation| chunked(creation, &[2, 1])));
        for level in [1, 2] {
            all.extend(both(4, &space, |creation| {
                chunked(creation, &[1, 2])?;
                let filter = Filter {
                    id: 1,
                    flags: 0,
                    values: vec![level],
                };
                h5::add_filter(creation, &filter)
            }));
        }
        let mut different: Vec<_> = all.iter().map(|found| &found.like).collect();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn a_header_does_not_tell_all_of_a_dataset_with_a_comment_or_many_attributes() {
        let space = Space::fixed(&[3]);
        let comment = |dataset: &Id| h5::set_comment(dataset, c"text");
        let attributes = |number: u32| {
            move |dataset: &Id| {
                let (datatype, scalar) =
                    (h5::integer_type(1, true, false)?, Space::scalar().create()?);
                (0..number).try_for_each(|number| {
                    let name = number.to_string();
                    h5::write_plain_attribute(dataset, Name::ascii(&name), &datatype, &scalar, &[1])
                })
            }
        };
        for set in [nothing, h5::order_attributes] {
            assert!(header(1, &space, set, nothing).is_some());
            assert_eq!(header(1, &space, set, comment), None);
            let null = header(1, &Space::Null, set, nothing).unwrap();
            assert_eq!(null.space, Dataspace::Null);
            assert_eq!(
                header(1, &space, set, attributes(3))
                    .unwrap()
                    .attributes
                    .len(),
                3
            );
        }
        // More attributes lie in a heap.
        assert_eq!(
            header(1, &space, h5::order_attributes, attributes(30)),
            None
        );
    }

    #[test]
    fn the_integers_of_attributes_in_a_header_are_those_of_libhdf5() {
        let bytes: Vec<u8> = (0..48)
            .map(|n| 0xf0 + n % 32 * 7 / 2)
            .map(|n: u32| n as u8)
            .collect();
        for set in [nothing, h5::order_attributes] {
            for (size, signed, big) in [1, 2, 4, 8]
                .into_iter()
                .flat_map(|size| [true, false].map(|signed| (size, signed)))
                .flat_map(|(size, signed)| [true, false].map(|big| (size, signed, big)))
            {
                let read = RefCell::default();
                let make = |dataset: &Id| {
                    let datatype = h5::integer_type(size, signed, big)?;
                    let count = bytes.len() as u64 / u64::from(size) / 2;
                    let space = Space::fixed(&[count, 2]).create()?;
                    h5::write_plain_attribute(
                        dataset,
                        Name::ascii("n"),
                        &datatype,
                        &space,
                        &bytes,
                    )?;
                    let attribute = h5::open_attribute(dataset, c"n")?;
                    *read.borrow_mut() = h5::read_integers(&attribute, 1000)?;
                    Ok(())
                };
                let found = header(4, &Space::fixed(&[1]), set, make).unwrap();
                let [attribute] = found.attributes.as_slice() else {
                    panic!("{found:?}");
                };
                assert_eq!(attribute.name, b"n");
                let known = attribute.integers.clone();
                if size == 8 && !signed {
                    assert_eq!(known, None);
                } else {
                    assert_eq!(known, Some(read.into_inner()), "{size} {signed} {big}");
                }
            }
        }
    }
}
