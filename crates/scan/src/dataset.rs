//! Making datasets: those that anchors stand for, without storage, and those that were never logged.

use super::layout_objects::{Anchor, Owner};
use super::references::Translator;
use super::tree::{Copier, Later, Pair, Work, has_large_attribute};
use crate::hdf5_sys::{self as h5, Id, Link, Shape, Space, StorageClass, Values};
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::snapshot::{Content, Dataset, Filter, Storage};

type Result<T> = std::result::Result<T, String>;

/// Contiguous datasets that were never logged are served from the log file from this size on.
const WORTH_AN_EXTENT: u64 = 64 << 10;
/// The most bytes of such datasets that are copied into the image.
const MOST_COPIED: u64 = 256 << 20;
/// Bytes of them that are moved at once.
const STRETCH: u64 = 8 << 20;

/// Where a new object gets its first name.
pub(super) struct Spot<'a> {
    pub parent: &'a Id,
    pub link: &'a Link,
    /// The whole path, for messages.
    pub path: &'a str,
}

impl Copier<'_> {
    /// Makes the dataset `old` anew.
    pub(super) fn dataset(
        &mut self,
        old: &Id,
        info: &h5::ObjectInfo,
        spot: &Spot<'_>,
    ) -> Result<()> {
        let creation = h5::dataset_creation(old)?;
        let names = h5::attribute_names(old)?;
        if has_large_attribute(old, info, &names)? {
            h5::allow_large_attributes(&creation)?;
        }
        h5::track_times(&creation, info.times[2] != 0)?;
        let new = match self.own.anchor(old, &names) {
            Ok(Some(anchor)) => self.logged(old, &creation, anchor, spot)?,
            Ok(None) => self.plain(old, &creation, spot)?,
            Err(reason) => self.unbelievable(old, &creation, reason, spot)?,
        };
        self.objects.insert(info.address, h5::address(&new.id)?);
        if let Some(work) = new.later {
            self.later.push(Later {
                old: info.address,
                new: h5::address(&new.id)?,
                path: spot.path.to_owned(),
                work,
            });
        }
        let pair = Pair {
            old,
            new: &new.id,
            path: spot.path,
        };
        let owner = if new.anchor {
            Owner::Anchor
        } else {
            Owner::Other
        };
        self.finish_object(&pair, owner, (info, &names))
    }

    /// The dataset that an anchor stands for. What of it cannot be believed or served makes its
    /// elements unreadable, not the file.
    fn logged(&mut self, old: &Id, creation: &Id, anchor: Anchor, spot: &Spot<'_>) -> Result<New> {
        let datatype = h5::dataset_type(old)?;
        let shape = Shape::of(&datatype)?;
        let filtered = anchor.filters.is_some();
        let mut plan = Plan::of(&datatype, &anchor, anchor.chunk.clone(), self.chunks)?;
        let recorded = anchor.filters.clone().unwrap_or(Ok(Vec::new()));
        let mut trouble = match (&shape, &anchor.chunk, &recorded) {
            (s, ..) if s.has_pointers() => Some(
                "variable-length elements were logged as pointers of the writing program".into(),
            ),
            (s, ..) if s.has_regions() => Some("region references among logged elements".into()),
            (_, Some(Err(e)), _) | (_, _, Err(e)) => Some(e.clone()),
            _ => None,
        };
        let filters = match anchor.dims.is_empty() {
            true => Vec::new(),
            false => recorded.unwrap_or_default(),
        };
        let made = self.create(creation, &datatype, &plan, &filters, spot);
        let id = match made {
            Ok(id) => id,
            Err(e) => {
                // What was recorded is not accepted by libhdf5: show the dataset, not its elements.
                trouble.get_or_insert(e);
                plan = Plan::of(&datatype, &anchor, None, self.chunks)?;
                self.create(creation, &datatype, &plan, &[], spot)?
            }
        };
        let mut references = Vec::new();
        if trouble.is_none() {
            shape.object_references(0, &mut references);
        }
        let content = match trouble {
            Some(reason) => Content::Unreadable(reason),
            None => Content::Logged {
                id: anchor.id,
                filtered,
            },
        };
        let content = (content, references);
        self.describe((&id, spot.path), creation, &datatype, plan, content)?;
        Ok(New {
            id,
            anchor: true,
            later: None,
        })
    }

    /// A dataset whose anchor does not say what it is: shown as a scalar that cannot be read.
    fn unbelievable(
        &mut self,
        old: &Id,
        creation: &Id,
        reason: String,
        spot: &Spot<'_>,
    ) -> Result<New> {
        let scalar = Space::Simple {
            dims: Vec::new(),
            max: Vec::new(),
        };
        let datatype = h5::dataset_type(old)?;
        let new = self.unreadable(&datatype, creation, scalar, reason, spot)?;
        Ok(New {
            anchor: true,
            ..new
        })
    }

    /// Makes a dataset without storage.
    fn create(
        &mut self,
        creation: &Id,
        datatype: &Id,
        plan: &Plan,
        filters: &[Filter],
        spot: &Spot<'_>,
    ) -> Result<Id> {
        h5::remove_filters(creation)?;
        match &plan.storage {
            Storage::Contiguous => h5::set_contiguous(creation)?,
            Storage::Chunked(chunk) => h5::set_chunked(creation, chunk)?,
        }
        for filter in filters {
            h5::add_filter(creation, filter.id, filter.flags, &filter.values)?;
        }
        let datatype = self.type_in_image(datatype)?;
        h5::create_dataset(
            spot.parent,
            spot.link,
            &datatype,
            &plan.space().create()?,
            creation,
        )
    }

    /// Puts a dataset just made into the snapshot. `references`: where in an element they lie.
    fn describe(
        &mut self,
        (id, path): (&Id, &str),
        creation: &Id,
        datatype: &Id,
        plan: Plan,
        (content, references): (Content, Vec<u64>),
    ) -> Result<()> {
        // Filters may have put values of their own into the pipeline when the dataset was made.
        let filters = match h5::has_filters(creation)? {
            true => h5::filters(&h5::dataset_creation(id)?)?,
            false => Vec::new(),
        };
        let filters = filters.into_iter();
        let filters = filters.map(|(id, flags, values)| Filter { id, flags, values });
        let has_pointers = Shape::of(datatype)?.has_pointers();
        self.out.datasets.push(Dataset {
            name: path.to_owned(),
            header: h5::address(id)?,
            datatype: h5::describe_type(datatype),
            element_size: h5::type_size(datatype)? as u64,
            fill: match has_pointers {
                true => Vec::new(),
                false => h5::fill_value(creation, datatype)?,
            },
            filters: filters.collect(),
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            references,
            content,
        });
        Ok(())
    }

    /// A dataset that was never logged: copied with its elements; a large contiguous one is served
    /// from where it lies.
    fn plain(&mut self, old: &Id, creation: &Id, spot: &Spot<'_>) -> Result<New> {
        let datatype = h5::dataset_type(old)?;
        let space = h5::dataset_space(old)?;
        let shape = Shape::of(&datatype)?;
        let class = h5::storage_class(creation)?;
        let stored = h5::storage_size(old);
        let movable = !shape.has_pointers() && !shape.has_references();
        if class == StorageClass::Contiguous
            && movable
            && stored >= WORTH_AN_EXTENT
            && let Some(offset) = h5::dataset_offset(old)
        {
            let content = Content::Extent {
                source: 0,
                offset,
                len: stored,
            };
            let plan = Plan::contiguous(space);
            return self.placed(&datatype, creation, plan, content, spot);
        }
        let bytes = space
            .elements()
            .and_then(|n| n.checked_mul(h5::type_size(&datatype).unwrap_or(1) as u64));
        let total = bytes.and_then(|b| b.checked_add(self.copied_bytes));
        let elsewhere = class == StorageClass::Elsewhere;
        let nothing = elsewhere || (stored == 0 && class != StorageClass::Compact);
        if !nothing && total.is_none_or(|t| t > MOST_COPIED) {
            let reason = format!("a dataset of {bytes:?} bytes that was never logged is too large");
            return self.unreadable(&datatype, creation, space, reason, spot);
        }
        let in_image = self.type_in_image(&datatype)?;
        let new = h5::create_dataset(
            spot.parent,
            spot.link,
            &in_image,
            &space.create()?,
            creation,
        )?;
        let mut made = New {
            id: new,
            anchor: false,
            later: None,
        };
        if nothing {
            return Ok(made);
        }
        self.copied_bytes = total.unwrap_or(MOST_COPIED);
        if shape.has_references() {
            made.later = Some(Work::Elements);
            return Ok(made);
        }
        match elements(old, &made.id, None) {
            Ok(()) => Ok(made),
            Err(reason) => {
                drop(made);
                h5::delete_link(spot.parent, spot.link)?;
                self.unreadable(&datatype, creation, space, reason, spot)
            }
        }
    }

    fn unreadable(
        &mut self,
        datatype: &Id,
        creation: &Id,
        space: Space,
        reason: String,
        spot: &Spot<'_>,
    ) -> Result<New> {
        let plan = Plan::chosen(space, h5::type_size(datatype)? as u64, self.chunks);
        let content = Content::Unreadable(reason);
        self.placed(datatype, creation, plan, content, spot)
    }

    /// A dataset that was never logged, and whose bytes are not in the image.
    fn placed(
        &mut self,
        datatype: &Id,
        creation: &Id,
        plan: Plan,
        content: Content,
        spot: &Spot<'_>,
    ) -> Result<New> {
        let id = self.create(creation, datatype, &plan, &[], spot)?;
        let content = (content, Vec::new());
        self.describe((&id, spot.path), creation, datatype, plan, content)?;
        Ok(New {
            id,
            anchor: false,
            later: None,
        })
    }
}

/// A dataset just made in the image.
struct New {
    id: Id,
    anchor: bool,
    /// What is left to do when all objects are there.
    later: Option<Work>,
}

/// Extent and storage of a dataset to be made.
struct Plan {
    dims: Vec<u64>,
    max_dims: Vec<Option<u64>>,
    storage: Storage,
}

impl Plan {
    fn of(
        datatype: &Id,
        anchor: &Anchor,
        recorded: Option<Result<Vec<u64>>>,
        chunks: &Chooser<'_>,
    ) -> Result<Self> {
        let element = h5::type_size(datatype)? as u64;
        let chosen = || chunks.logged(anchor.id, &anchor.dims, &anchor.max_dims, element);
        let storage = match (anchor.dims.is_empty(), recorded) {
            (true, _) => Storage::Contiguous,
            (false, Some(Ok(chunk))) => Storage::Chunked(chunk),
            (false, _) => Storage::Chunked(chosen()),
        };
        Ok(Plan {
            dims: anchor.dims.clone(),
            max_dims: anchor.max_dims.clone(),
            storage,
        })
    }

    fn contiguous(space: Space) -> Self {
        let (dims, max_dims) = match space {
            Space::Null => (vec![0], vec![Some(0)]),
            Space::Simple { dims, max } => (dims, max.into_iter().map(limit).collect()),
        };
        Plan {
            dims,
            max_dims,
            storage: Storage::Contiguous,
        }
    }

    fn chosen(space: Space, element: u64, chunks: &Chooser<'_>) -> Self {
        let mut plan = Self::contiguous(space);
        if !plan.dims.is_empty() {
            plan.storage = Storage::Chunked(chunks.plain(&plan.dims, &plan.max_dims, element));
        }
        plan
    }

    fn space(&self) -> Space {
        let max = self.max_dims.iter().map(|m| m.unwrap_or(h5::UNLIMITED));
        Space::Simple {
            dims: self.dims.clone(),
            max: max.collect(),
        }
    }
}

fn limit(max: u64) -> Option<u64> {
    (max != h5::UNLIMITED).then_some(max)
}

/// Copies the elements of a dataset, some rows at a time.
pub(super) fn elements(
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
    let step = (STRETCH / row.max(1)).max(1);
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
        let memory = Space::Simple {
            max: count.clone(),
            dims: count,
        };
        let memory = memory.create()?;
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
