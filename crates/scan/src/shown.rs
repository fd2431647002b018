//! Makes the canonical image. Every dataset has its true shape there. Only small datasets that were never logged have
//! storage in it.

use std::collections::HashMap;

use super::chosen::with_scales;
use super::dataset::{NewLink, Template};
use super::elements::Elements;
use super::layout_objects::{Owner, StubDataset};
use super::original::{Object, Original};
use super::room::Room;
use super::tree::{self, Copied, Copier, Datasets, MadeAtOnce};
use crate::hdf5_sys::{self as h5, Format, Id, Shape, Space, StorageClass};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::filters::Filter;
use h5logfs_hdf5_format::{HeaderBytes, HeaderBytesMut, Image, ObjectTimes, Window};
use h5logfs_log::scan::Choice;
use h5logfs_log::scan::shape::Chooser;
use h5logfs_log::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, Fault>;

/// The least size of a contiguous, never logged dataset that the view reads from the log file.
const LARGE_EXTENT: u64 = 64 << 10;

/// The largest number of models. libhdf5 keeps the properties of each.
const MOST_MODELS: usize = 1024;

/// The objects of a log, as a view shows them.
#[derive(Debug, Default)]
pub struct ShownObjects {
    /// See [`Snapshot::image`](h5logfs_log::snapshot::Snapshot::image).
    pub image: Vec<u8>,
    pub datasets: Vec<Dataset>,
    /// Addresses of the objects in the file and in the image, sorted by the former.
    pub addresses: Vec<(u64, u64)>,
    pub diagnostics: Vec<Diagnostic>,
    /// Bytes of elements and attribute values in the image.
    pub large: u64,
    /// Addresses in the image of the logged datasets whose chunks the log does not tell: they were chosen.
    pub chosen: Vec<u64>,
}

/// The settings of an image.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub choice: &'a Choice,
    /// The file is the first source of the snapshot, so the view can read from it.
    pub is_source: bool,
    /// See [`Snapshot::image_at`](h5logfs_log::snapshot::Snapshot::image_at).
    pub at: Option<u64>,
    /// The limit for elements and attribute values.
    pub room: Room,
}

/// Makes the image of an open file.
pub fn image(original: Original<'_>, chooser: &Chooser<'_>, how: How<'_>) -> Result<ShownObjects> {
    let How {
        choice,
        is_source,
        at,
        room,
    } = how;
    let creation = original.creation_of_copy()?;
    let choice = with_scales(original, choice)?;
    let shown = Shown {
        chooser,
        choice: &choice,
        is_source,
        datasets: Vec::new(),
        chosen: Vec::new(),
        headers: Image::new(Window::new(original.bytes)),
        models: HashMap::new(),
    };
    let make = |image: &Id| shown.copy(original, image, room);
    let ((copied, datasets, chosen), image) = match at {
        None => {
            let image = h5::create_in_memory(&creation)?;
            let made = make(&image)?;
            let image = with_times(h5::file_image(&image)?, &made.0.times)?;
            (made, image)
        }
        Some(at) => {
            let (made, added) = h5::create_behind(at, &creation, make)?;
            let added = with_times(added, &made.0.times)?;
            (made, added.into_bytes())
        }
    };
    let mut addresses: Vec<_> = copied.objects.into_iter().collect();
    addresses.sort_unstable();
    Ok(ShownObjects {
        image,
        datasets,
        chosen,
        addresses,
        large: copied.large,
        diagnostics: copied.diagnostics,
    })
}

/// Sets the times of objects that libhdf5 has just made.
pub(super) fn with_times<B: HeaderBytesMut>(bytes: B, times: &[ObjectTimes]) -> Result<B> {
    let mut image = Image::new(bytes);
    times.iter().try_for_each(|times| image.set_times(times))?;
    Ok(image.into_bytes())
}

/// Copies datasets. Logged datasets get no storage.
struct Shown<'a> {
    chooser: &'a Chooser<'a>,
    choice: &'a Choice,
    is_source: bool,
    datasets: Vec<Dataset>,
    /// See [`ShownObjects::chosen`].
    chosen: Vec<u64>,
    /// The file, for object headers.
    headers: Image<Window<&'a dyn HeaderBytes>>,
    /// Models of logged datasets, by the header bytes that make stub datasets alike. Programs make thousands of
    /// datasets that are alike.
    models: HashMap<Vec<u8>, Model>,
}

impl Datasets for Shown<'_> {
    fn choice(&self) -> Option<&Choice> {
        Some(self.choice)
    }

    /// Makes the dataset of a stub dataset that is like one that libhdf5 has already opened.
    fn make_at_once(
        &mut self,
        copier: &mut Copier<'_>,
        header: u64,
        at: &NewLink<'_>,
    ) -> Result<Option<MadeAtOnce>> {
        // An unreadable header is left to libhdf5, which reports the damage.
        let Ok(Some(found)) = self.headers.dataset(header) else {
            return Ok(None);
        };
        let layout = copier.original.layout;
        let Some(stub_dataset) = layout.stub_dataset_in(&found) else {
            return Ok(None);
        };
        let Some(mut model) = self.models.remove(&found.like) else {
            return Ok(None);
        };
        copier.set_format(model.format)?;
        let made = self.logged(at, &mut model, stub_dataset);
        self.models.insert(found.like, model);
        let (new, address) = made?;
        let mut names = found.attributes.iter().map(|attribute| &attribute.name);
        if names.any(|name| layout.copied_attribute(name, Owner::StubDataset).is_some()) {
            let old = copier.object(h5::open_object(copier.original.file, header)?, at.path)?;
            copier.copy_attributes(&old, &new, at.path, Owner::StubDataset)?;
        }
        Ok(Some(MadeAtOnce {
            address,
            times: found.times,
        }))
    }

    fn make(
        &mut self,
        copier: &mut Copier<'_>,
        old: &Object,
        template: &Template<'_>,
    ) -> Result<(Id, Owner)> {
        match copier
            .original
            .layout
            .stub_dataset(&old.id, &old.attributes)
        {
            Ok(Some(stub_dataset)) => {
                let mut model = Model::of(copier, template)?;
                let (id, _) = self.logged(template.at, &mut model, stub_dataset)?;
                if let Ok(Some(found)) = self.headers.dataset(old.info.address)
                    && self.models.len() < MOST_MODELS
                {
                    self.models.insert(found.like, model);
                }
                Ok((id, Owner::StubDataset))
            }
            Ok(None) => Ok((self.plain(copier, old, template)?, Owner::Other)),
            // The dataset is shown as a scalar that cannot be read.
            Err(fault) => {
                let reason = fault.into_damage()?;
                let id = self.unreadable(copier, template, Space::scalar(), reason)?;
                Ok((id, Owner::StubDataset))
            }
        }
    }
}

impl Shown<'_> {
    /// Makes the objects of the image, and describes its datasets. The models are dropped with `self`: models with
    /// committed types would keep the image open, and libhdf5 could not finish it.
    fn copy(
        mut self,
        original: Original<'_>,
        image: &Id,
        room: Room,
    ) -> Result<(Copied, Vec<Dataset>, Vec<u64>)> {
        let copied = tree::copy(original, image, room, &mut self)?;
        Ok((copied, self.datasets, self.chosen))
    }

    /// Makes the dataset that a stub dataset stands for, and returns its address. If its description is damaged or
    /// cannot be served, its elements become unreadable. The rest of the file remains readable.
    fn logged(
        &mut self,
        at: &NewLink<'_>,
        model: &mut Model,
        mut stub_dataset: StubDataset,
    ) -> Result<(Id, u64)> {
        let chooser = self.chooser;
        let filtered = stub_dataset.filters.is_some();
        let mut problem = unservable(&model.shape, &stub_dataset);
        if let Some(reason) = too_large(&stub_dataset.dims, model.element_size) {
            // The dataset is shown as a scalar, because programs that query the storage of every object would fail for
            // any other form.
            (stub_dataset.dims, stub_dataset.max_dims) = (Vec::new(), Vec::new());
            problem = Some(reason);
        }
        let mut plan = DatasetPlan::logged(model, &stub_dataset, true, chooser);
        let filters = match (&self.choice.filters, &stub_dataset.filters) {
            _ if stub_dataset.dims.is_empty() => &[],
            (Some(chosen), _) => chosen.as_slice(),
            (None, Some(Ok(filters))) => filters.as_slice(),
            (None, _) => &[],
        };
        let id = match model.create(at, &plan, filters) {
            Ok(id) => id,
            Err(e) => {
                // libhdf5 refuses the recorded chunks or filters. The dataset is shown without them, and its elements
                // are unreadable.
                let refused = e.into_damage()?;
                problem.get_or_insert(refused);
                plan = DatasetPlan::logged(model, &stub_dataset, false, chooser);
                model.create(at, &plan, &[])?
            }
        };
        let mut references = Vec::new();
        let content = match problem {
            Some(reason) => Content::Unreadable(reason),
            None => {
                model.shape.object_references(0, &mut references);
                Content::Logged {
                    id: stub_dataset.id,
                    filtered,
                }
            }
        };
        let address = self.describe(at, model, &id, plan, content, references)?;
        Ok((id, address))
    }

    /// Adds a new dataset to the snapshot, and returns its address. `references` are the offsets of references in an
    /// element.
    fn describe(
        &mut self,
        at: &NewLink<'_>,
        model: &Model,
        id: &Id,
        plan: DatasetPlan,
        content: Content,
        references: Vec<u64>,
    ) -> Result<u64> {
        // A filter may have added client data when libhdf5 made the dataset.
        let filters = if h5::has_filters(&model.creation)? {
            h5::filters(&h5::dataset_creation(id)?)?
        } else {
            Vec::new()
        };
        let header = h5::address(id)?;
        if plan.is_chosen {
            self.chosen.push(header);
        }
        self.datasets.push(Dataset {
            name: at.path.to_owned(),
            header,
            datatype: model.described.clone(),
            element_size: model.element_size,
            fill: model.fill.clone(),
            filters,
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            references,
            content,
        });
        Ok(header)
    }

    /// Makes a dataset that was never logged. The view reads large contiguous datasets from the file. All others are
    /// copied with their elements.
    fn plain(
        &mut self,
        copier: &mut Copier<'_>,
        old: &Object,
        template: &Template<'_>,
    ) -> Result<Id> {
        let space = match template.space(copier.original, old) {
            Ok(space) => space,
            Err(fault) => {
                let reason = fault.into_damage()?;
                return self.unreadable(copier, template, Space::scalar(), reason);
            }
        };
        if let Some(content) = self.extent(old, template)? {
            let plan = DatasetPlan::contiguous(space);
            return self.without_storage(copier, template, plan, content);
        }
        if !template.has_elements(old)? {
            return copier.create_dataset(template, &space);
        }
        // The size also tells whether the elements can be read, because a dataset in the image cannot be removed.
        let size = Elements::of(copier.original, old)
            .and_then(|elements| elements.size(copier.room.left()));
        let taken = match size {
            Ok(size) => copier
                .room
                .take("its elements, which are not logged, take", size),
            Err(fault) => Err(fault.into_damage()?),
        };
        if let Err(reason) = taken {
            return self.unreadable(copier, template, space, reason);
        }
        let made = copier.create_dataset(template, &space).and_then(|new| {
            let copied = copier.copy_elements(old, &new, template.at);
            if copied.is_err() {
                let NewLink { parent, link, .. } = template.at;
                h5::delete_link(parent, link)?;
            }
            copied.map(|()| new)
        });
        match made {
            Ok(new) => Ok(new),
            Err(fault) => self.unreadable(copier, template, space, fault.into_damage()?),
        }
    }

    /// The place of the elements of a large contiguous dataset, if the view can read them from the file as they lie.
    fn extent(&self, old: &Object, template: &Template<'_>) -> Result<Option<Content>> {
        let shape = Shape::of(&template.datatype)?;
        let len = h5::storage_size(&old.id)?;
        let is_extent = self.is_source
            && h5::storage_class(&template.creation)? == StorageClass::Contiguous
            && !shape.has_pointers()
            && !shape.has_references()
            && len >= LARGE_EXTENT;
        let offset = h5::dataset_offset(&old.id)?.filter(|_| is_extent);
        Ok(offset.map(|offset| Content::Extent {
            source: 0,
            offset,
            len,
        }))
    }

    fn unreadable(
        &mut self,
        copier: &mut Copier<'_>,
        template: &Template<'_>,
        space: Space,
        reason: String,
    ) -> Result<Id> {
        let plan = DatasetPlan::chosen(template, space, self.chooser)?;
        self.without_storage(copier, template, plan, Content::Unreadable(reason))
    }

    /// Makes a dataset that was never logged and has no bytes in the image.
    fn without_storage(
        &mut self,
        copier: &mut Copier<'_>,
        template: &Template<'_>,
        plan: DatasetPlan,
        content: Content,
    ) -> Result<Id> {
        let mut model = Model::of(copier, template)?;
        let id = model.create(template.at, &plan, &[])?;
        self.describe(template.at, &model, &id, plan, content, Vec::new())?;
        Ok(id)
    }
}

/// The properties that datasets share if they are alike.
struct Model {
    /// The datatype with which objects of the image are made.
    datatype: Id,
    creation: Id,
    format: Option<Format>,
    /// The storage and filters of `creation`, if this module has set them.
    set: Option<(Storage, Vec<Filter>)>,
    shape: Shape,
    described: String,
    element_size: u64,
    /// See [`Dataset::fill`].
    fill: Vec<u8>,
}

impl Model {
    fn of(copier: &mut Copier<'_>, template: &Template<'_>) -> Result<Self> {
        let Template {
            datatype, creation, ..
        } = template;
        let shape = Shape::of(datatype)?;
        let fill = if shape.has_pointers() {
            Vec::new()
        } else {
            h5::unwritten_value(creation, datatype)?
        };
        Ok(Model {
            datatype: copier.type_in_copy(datatype)?,
            creation: creation.clone(),
            format: template.format,
            set: None,
            described: h5::describe_type(datatype),
            element_size: (h5::type_size(datatype)? + shape.more_in_file()) as u64,
            fill,
            shape,
        })
    }

    /// Makes a dataset without storage.
    fn create(&mut self, at: &NewLink<'_>, plan: &DatasetPlan, filters: &[Filter]) -> Result<Id> {
        let is_set = |(storage, set): &(Storage, Vec<Filter>)| {
            *storage == plan.storage && set.as_slice() == filters
        };
        if !self.set.as_ref().is_some_and(is_set) {
            self.set = None;
            h5::remove_filters(&self.creation)?;
            h5::set_storage(&self.creation, &plan.storage)?;
            for filter in filters {
                h5::add_filter(&self.creation, filter)?;
            }
            self.set = Some((plan.storage.clone(), filters.to_vec()));
        }
        let space = plan.space().create()?;
        h5::create_dataset(at.parent, at.link, &self.datatype, &space, &self.creation)
    }
}

/// The reason why the elements of a logged dataset cannot be shown, if there is one.
fn unservable(shape: &Shape, stub_dataset: &StubDataset) -> Option<String> {
    if shape.has_pointers() {
        let reason = "variable-length elements were logged as pointers of the writing program";
        return Some(reason.into());
    }
    if shape.has_regions() {
        return Some("region references among logged elements".into());
    }
    let chunk = stub_dataset.chunk.as_ref().and_then(|c| c.as_ref().err());
    let filters = stub_dataset.filters.as_ref().and_then(|f| f.as_ref().err());
    chunk.or(filters).map(Fault::to_string)
}

/// Whether every version of HDF5 allows chunks of this shape. Versions before 2.0 do not allow chunks of 4 GiB, nor
/// does a chunk index of the view.
fn is_for_all(chunk: &[u64], element: u64) -> bool {
    let bytes = chunk
        .iter()
        .try_fold(element, |n, side| n.checked_mul(*side));
    bytes.is_some_and(|bytes| u32::try_from(bytes).is_ok())
}

/// The reason why a dataset is too large for any file, if it is.
fn too_large(dims: &[u64], element: u64) -> Option<String> {
    if dims.contains(&0) {
        return None;
    }
    let bytes = dims.iter().try_fold(element, |n, d| n.checked_mul(*d));
    let is_possible = bytes.is_some_and(|bytes| i64::try_from(bytes).is_ok());
    let reason = || format!("{dims:?} elements of {element} bytes are more than a file can have");
    (!is_possible).then(reason)
}

/// Extent and storage of a dataset that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DatasetPlan {
    pub dims: Vec<u64>,
    pub max_dims: Vec<Option<u64>>,
    pub storage: Storage,
    /// The log does not tell the chunks of this logged dataset.
    pub is_chosen: bool,
}

impl DatasetPlan {
    /// A contiguous dataset that cannot grow.
    pub fn fixed(dims: Vec<u64>) -> Self {
        DatasetPlan {
            max_dims: dims.iter().copied().map(Some).collect(),
            dims,
            storage: Storage::Contiguous,
            is_chosen: false,
        }
    }

    /// The plan for the dataset of a stub dataset. `recorded`: use the chunk shape that the stub dataset records, if
    /// there is one.
    fn logged(
        model: &Model,
        stub_dataset: &StubDataset,
        recorded: bool,
        chooser: &Chooser<'_>,
    ) -> Self {
        let (dims, max_dims) = (stub_dataset.dims.clone(), stub_dataset.max_dims.clone());
        let element = model.element_size;
        let storage = match &stub_dataset.chunk {
            _ if dims.is_empty() => Storage::Contiguous,
            Some(Ok(chunk)) if recorded && is_for_all(chunk, element) => {
                Storage::Chunked(chunk.clone())
            }
            _ => Storage::Chunked(chooser.logged(stub_dataset.id, &dims, &max_dims, element)),
        };
        DatasetPlan {
            is_chosen: stub_dataset.chunk.is_none() && !dims.is_empty(),
            dims,
            max_dims,
            storage,
        }
    }

    fn contiguous(space: Space) -> Self {
        let limit = |max: u64| (max != h5::UNLIMITED).then_some(max);
        match space {
            Space::Null => Self::fixed(vec![0]),
            Space::Simple { dims, max } => DatasetPlan {
                max_dims: max.into_iter().map(limit).collect(),
                ..Self::fixed(dims)
            },
        }
    }

    fn chosen(template: &Template<'_>, space: Space, chooser: &Chooser<'_>) -> Result<Self> {
        let more = Shape::of(&template.datatype)?.more_in_file();
        let element = (h5::type_size(&template.datatype)? + more) as u64;
        let mut plan = Self::contiguous(space);
        if !plan.dims.is_empty() {
            plan.storage = Storage::Chunked(chooser.plain(&plan.dims, &plan.max_dims, element));
        }
        Ok(plan)
    }

    pub fn space(&self) -> Space {
        Space::with_limits(&self.dims, &self.max_dims)
    }
}
