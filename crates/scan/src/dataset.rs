//! Copies datasets: those that anchors stand for, without storage, and those that were never logged.

use super::layout_objects::{Anchor, Owner};
use super::references::Translator;
use super::tree::{Copier, Object, Postponed, Work};
use crate::hdf5_sys::{self as h5, Id, Link, Shape, Space, StorageClass, Values};
use h5logfs_core::filters::Filter;
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::snapshot::{Content, Dataset, Storage};

type Result<T> = std::result::Result<T, String>;

/// From this size on, the view reads a contiguous dataset that was never logged from the log file.
const LARGE_EXTENT: u64 = 64 << 10;
/// The most bytes of other such datasets that are copied into the image.
const MOST_COPIED: u64 = 256 << 20;
/// Bytes that are copied at once.
const COPY_STEP: u64 = 8 << 20;

/// The first link to an object that is to be made.
pub(super) struct NewLink<'a> {
    pub parent: &'a Id,
    pub link: &'a Link,
    /// The whole path, for messages.
    pub path: &'a str,
}

/// What the copy of a dataset takes from the dataset of the file.
struct Template<'a> {
    datatype: Id,
    creation: Id,
    at: &'a NewLink<'a>,
}

impl Copier<'_> {
    pub(super) fn dataset(&mut self, old: &Object, at: &NewLink<'_>) -> Result<()> {
        let template = Template {
            datatype: h5::dataset_type(&old.id)?,
            creation: h5::dataset_creation(&old.id)?,
            at,
        };
        old.allow_large_attributes(&template.creation)?;
        h5::track_times(&template.creation, old.info.times[2] != 0)?;
        let (new, owner) = match self.original.layout.anchor(&old.id, &old.attributes) {
            Ok(Some(anchor)) => (self.logged(&template, anchor)?, Owner::Anchor),
            Ok(None) => (self.plain(old, &template)?, Owner::Other),
            Err(reason) => (self.bad_anchor(&template, reason)?, Owner::Anchor),
        };
        self.objects.insert(old.info.address, h5::address(&new)?);
        self.finish_object(old, &new, at.path, owner)
    }

    /// Makes the dataset that an anchor stands for. If its description is damaged or cannot be served, its elements
    /// become unreadable; the rest of the file does not.
    fn logged(&mut self, template: &Template<'_>, anchor: Anchor) -> Result<Id> {
        let chooser = self.original.chooser;
        let shape = Shape::of(&template.datatype)?;
        let filtered = anchor.filters.is_some();
        let mut problem = unservable(&shape, &anchor);
        let mut plan = DatasetPlan::logged(template, &anchor, true, chooser)?;
        let filters = match &anchor.filters {
            Some(Ok(filters)) if !anchor.dims.is_empty() => filters.as_slice(),
            _ => &[],
        };
        let id = match self.create(template, &plan, filters) {
            Ok(id) => id,
            Err(e) => {
                // libhdf5 refuses the recorded chunks or filters. Show the dataset without them, unreadable.
                problem.get_or_insert(e);
                plan = DatasetPlan::logged(template, &anchor, false, chooser)?;
                self.create(template, &plan, &[])?
            }
        };
        let mut references = Vec::new();
        let content = match problem {
            Some(reason) => Content::Unreadable(reason),
            None => {
                shape.object_references(0, &mut references);
                Content::Logged {
                    id: anchor.id,
                    filtered,
                }
            }
        };
        self.describe(template, &id, plan, content, references)?;
        Ok(id)
    }

    /// A dataset whose anchor is damaged: shown as a scalar that cannot be read.
    fn bad_anchor(&mut self, template: &Template<'_>, reason: String) -> Result<Id> {
        self.unreadable(template, Space::scalar(), reason)
    }

    /// Makes a dataset without storage.
    fn create(
        &mut self,
        template: &Template<'_>,
        plan: &DatasetPlan,
        filters: &[Filter],
    ) -> Result<Id> {
        let creation = &template.creation;
        h5::remove_filters(creation)?;
        h5::set_storage(creation, &plan.storage)?;
        for filter in filters {
            h5::add_filter(creation, filter)?;
        }
        self.create_as_is(template, &plan.space())
    }

    /// Makes a dataset with the creation properties of the template.
    fn create_as_is(&mut self, template: &Template<'_>, space: &Space) -> Result<Id> {
        let datatype = self.type_in_image(&template.datatype)?;
        let NewLink { parent, link, .. } = template.at;
        h5::create_dataset(
            parent,
            link,
            &datatype,
            &space.create()?,
            &template.creation,
        )
    }

    /// Puts a dataset just made into the snapshot. `references`: their offsets in an element.
    fn describe(
        &mut self,
        template: &Template<'_>,
        id: &Id,
        plan: DatasetPlan,
        content: Content,
        references: Vec<u64>,
    ) -> Result<()> {
        let Template {
            datatype, creation, ..
        } = template;
        // A filter may have added values of its own when libhdf5 made the dataset.
        let filters = if h5::has_filters(creation)? {
            h5::filters(&h5::dataset_creation(id)?)?
        } else {
            Vec::new()
        };
        let fill = if Shape::of(datatype)?.has_pointers() {
            Vec::new()
        } else {
            h5::fill_value(creation, datatype)?
        };
        self.out.datasets.push(Dataset {
            name: template.at.path.to_owned(),
            header: h5::address(id)?,
            datatype: h5::describe_type(datatype),
            element_size: h5::type_size(datatype)? as u64,
            fill,
            filters,
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            references,
            content,
        });
        Ok(())
    }

    /// Makes a dataset that was never logged. The view reads a large contiguous one from the file; others are copied
    /// with their elements.
    fn plain(&mut self, old: &Object, template: &Template<'_>) -> Result<Id> {
        let space = h5::dataset_space(&old.id)?;
        let shape = Shape::of(&template.datatype)?;
        let class = h5::storage_class(&template.creation)?;
        let stored = h5::storage_size(&old.id);
        if class == StorageClass::Contiguous
            && !shape.has_pointers()
            && !shape.has_references()
            && stored >= LARGE_EXTENT
            && let Some(offset) = h5::dataset_offset(&old.id)
        {
            let content = Content::Extent {
                source: 0,
                offset,
                len: stored,
            };
            return self.without_storage(template, DatasetPlan::contiguous(space), content);
        }
        let has_elements = match class {
            StorageClass::Elsewhere => false,
            StorageClass::Compact => true,
            _ => stored > 0,
        };
        if !has_elements {
            return self.create_as_is(template, &space);
        }
        let element = h5::type_size(&template.datatype)? as u64;
        let bytes = space.elements().and_then(|n| n.checked_mul(element));
        let total = bytes.and_then(|b| b.checked_add(self.copied_bytes));
        let Some(total) = total.filter(|total| *total <= MOST_COPIED) else {
            let reason = format!("a dataset of {bytes:?} bytes that was never logged is too large");
            return self.unreadable(template, space, reason);
        };
        let new = self.create_as_is(template, &space)?;
        self.copied_bytes = total;
        if shape.has_references() {
            self.postponed.push(Postponed {
                old: old.info.address,
                new: h5::address(&new)?,
                path: template.at.path.to_owned(),
                work: Work::Elements,
            });
            return Ok(new);
        }
        match copy_elements(&old.id, &new, None) {
            Ok(()) => Ok(new),
            Err(reason) => {
                drop(new);
                h5::delete_link(template.at.parent, template.at.link)?;
                self.unreadable(template, space, reason)
            }
        }
    }

    fn unreadable(&mut self, template: &Template<'_>, space: Space, reason: String) -> Result<Id> {
        let plan = DatasetPlan::chosen(template, space, self.original.chooser)?;
        self.without_storage(template, plan, Content::Unreadable(reason))
    }

    /// Makes a dataset that was never logged and has no bytes in the image.
    fn without_storage(
        &mut self,
        template: &Template<'_>,
        plan: DatasetPlan,
        content: Content,
    ) -> Result<Id> {
        let id = self.create(template, &plan, &[])?;
        self.describe(template, &id, plan, content, Vec::new())?;
        Ok(id)
    }
}

/// Why the elements of a logged dataset cannot be shown.
fn unservable(shape: &Shape, anchor: &Anchor) -> Option<String> {
    if shape.has_pointers() {
        let reason = "variable-length elements were logged as pointers of the writing program";
        return Some(reason.into());
    }
    if shape.has_regions() {
        return Some("region references among logged elements".into());
    }
    let chunk = anchor.chunk.as_ref().and_then(|c| c.as_ref().err());
    let filters = anchor.filters.as_ref().and_then(|f| f.as_ref().err());
    chunk.or(filters).cloned()
}

/// Extent and storage of a dataset to be made.
pub(super) struct DatasetPlan {
    pub dims: Vec<u64>,
    pub max_dims: Vec<Option<u64>>,
    pub storage: Storage,
}

impl DatasetPlan {
    /// A contiguous dataset that cannot grow.
    pub fn fixed(dims: Vec<u64>) -> Self {
        DatasetPlan {
            max_dims: dims.iter().copied().map(Some).collect(),
            dims,
            storage: Storage::Contiguous,
        }
    }

    /// For the dataset of an anchor. `recorded`: in the chunks that the anchor records, if it does.
    fn logged(
        template: &Template<'_>,
        anchor: &Anchor,
        recorded: bool,
        chooser: &Chooser<'_>,
    ) -> Result<Self> {
        let (dims, max_dims) = (anchor.dims.clone(), anchor.max_dims.clone());
        let element = h5::type_size(&template.datatype)? as u64;
        let storage = match &anchor.chunk {
            _ if dims.is_empty() => Storage::Contiguous,
            Some(Ok(chunk)) if recorded => Storage::Chunked(chunk.clone()),
            _ => Storage::Chunked(chooser.logged(anchor.id, &dims, &max_dims, element)),
        };
        Ok(DatasetPlan {
            dims,
            max_dims,
            storage,
        })
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
        let element = h5::type_size(&template.datatype)? as u64;
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

/// Copies the elements of a dataset, some rows at a time.
pub(super) fn copy_elements(
    old: &Id,
    new: &Id,
    mut translator: Option<&mut Translator<'_>>,
) -> Result<()> {
    let Space::Simple { dims, .. } = h5::dataset_space(old)? else {
        return Ok(());
    };
    if dims.contains(&0) {
        return Ok(());
    }
    let datatype = h5::dataset_type(old)?;
    let row = dims.iter().skip(1).product::<u64>() * h5::type_size(&datatype)? as u64;
    let step = (COPY_STEP / row.max(1)).max(1);
    let rows = dims.first().copied().unwrap_or(1);
    let mut at = 0;
    while at < rows {
        let mut count = dims.clone();
        let mut start = vec![0; dims.len()];
        if let (Some(c), Some(s)) = (count.first_mut(), start.first_mut()) {
            *c = step.min(rows - at);
            *s = at;
        }
        let file_space = h5::dataset_space(old)?.create()?;
        if !dims.is_empty() {
            h5::select_block(&file_space, &start, &count, false)?;
        }
        let memory = Space::fixed(&count).create()?;
        let mut values = Values::zeros(datatype.clone(), memory.clone())?;
        h5::read_elements(old, &mut values, &memory, &file_space)?;
        if let Some(translator) = translator.as_deref_mut() {
            values.change_references(&mut |r| translator.translate(r))?;
        }
        h5::write_elements(new, &values, &memory, &file_space)?;
        at += step;
    }
    Ok(())
}
