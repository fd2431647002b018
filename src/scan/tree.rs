//! Walking the user's objects and making them anew in an image, in which every dataset has its true
//! shape and none has a byte of storage, but for small ones that were never logged.

use std::collections::HashMap;
use std::ffi::CString;

use super::logvol::{self, Anchor, Owner};
use super::references::Translator;
use super::shape;
use crate::hdf5_sys::{self as h5, Id, Kind, Link, Shape, Space, StorageClass, Target, Values};
use crate::log::source::SourceFile;
use crate::snapshot::{Content, Dataset, Filter, ObjectTimes, Storage};

type Result<T> = std::result::Result<T, String>;

/// Attributes from this size on do not fit into the header of an object (64 KiB, less its own words).
const LARGE_ATTRIBUTE: u64 = 64_000;
/// Contiguous datasets that were never logged are served from the log file from this size on.
const WORTH_AN_EXTENT: u64 = 64 << 10;
/// The most bytes of such datasets that are copied into the image.
const MOST_COPIED: u64 = 256 << 20;
/// Bytes of them that are moved at once.
const STRETCH: u64 = 8 << 20;

/// What a walk through a file yields.
#[derive(Debug, Default)]
pub struct Copied {
    pub image: Vec<u8>,
    pub datasets: Vec<Dataset>,
    pub addresses: Vec<(u64, u64)>,
    pub times: Vec<ObjectTimes>,
    pub warnings: Vec<String>,
}

/// Makes the image of an open log file. `base`: bytes of its user block.
pub fn copy(file: &Id, source: &SourceFile, base: u64) -> Result<Copied> {
    let root = h5::open_group(file, c"/")?;
    let creation = h5::new_file_creation()?;
    h5::copy_group_properties(&h5::group_creation(&root)?, &creation)?;
    let names = h5::attribute_names(&root)?;
    if has_large_attribute(&root, &h5::object_info(&root)?, &names)? {
        h5::allow_large_attributes(&creation)?;
    }
    let image = h5::create_in_memory(&creation)?;
    let mut copier = Copier {
        file,
        source,
        base,
        image: image.clone(),
        objects: HashMap::new(),
        committed: HashMap::new(),
        later: Vec::new(),
        copied_bytes: 0,
        out: Copied::default(),
    };
    let new_root = h5::open_group(&image, c"/")?;
    copier.tree(root, new_root)?;
    copier.references()?;
    let mut out = copier.out;
    out.addresses = copier.objects.into_iter().collect();
    out.addresses.sort_unstable();
    drop(copier.committed);
    out.image = h5::file_image(&image)?;
    Ok(out)
}

struct Copier<'a> {
    file: &'a Id,
    source: &'a SourceFile,
    base: u64,
    image: Id,
    /// Addresses of the objects made so far, by those in the file.
    objects: HashMap<u64, u64>,
    /// Committed types in the image, by their addresses in the file.
    committed: HashMap<u64, Id>,
    /// Objects with references among their attributes or elements: these can be written only when
    /// all objects have their addresses.
    later: Vec<Later>,
    copied_bytes: u64,
    out: Copied,
}

struct Later {
    old: u64,
    new: u64,
    path: String,
    work: Work,
}

enum Work {
    Attributes(Owner),
    Elements,
}

/// Where a new object gets its first name.
struct Spot<'a> {
    parent: &'a Id,
    link: &'a Link,
    /// The whole path, for messages.
    path: &'a str,
}

/// One object on both sides.
struct Pair<'a> {
    old: &'a Id,
    new: &'a Id,
    path: &'a str,
}

impl Copier<'_> {
    fn tree(&mut self, root: Id, new_root: Id) -> Result<()> {
        let info = h5::object_info(&root)?;
        self.objects.insert(info.address, h5::address(&new_root)?);
        let pair = Pair {
            old: &root,
            new: &new_root,
            path: "/",
        };
        let names = h5::attribute_names(&root)?;
        self.finish_object(&pair, Owner::Root, (&info, &names))?;
        let mut groups = vec![(root, new_root, String::new())];
        while let Some((old, new, path)) = groups.pop() {
            let mut found = Vec::new();
            self.group(&old, &new, &path, &mut found)
                .map_err(|e| format!("group {}/: {e}", path))?;
            // The first group met is the next one walked.
            found.reverse();
            groups.extend(found);
        }
        Ok(())
    }

    /// Makes the links of one group, and the objects that they are the first to name. Groups among
    /// them are left to the caller.
    fn group(
        &mut self,
        old: &Id,
        new: &Id,
        path: &str,
        groups: &mut Vec<(Id, Id, String)>,
    ) -> Result<()> {
        for link in self.presented_links(old, path)? {
            let shown = format!("{path}/{}", String::from_utf8_lossy(&link.name));
            let made = self.link(new, &link, &shown, groups);
            made.map_err(|e| format!("link {shown}: {e}"))?;
        }
        Ok(())
    }

    fn link(
        &mut self,
        parent: &Id,
        link: &Link,
        path: &str,
        groups: &mut Vec<(Id, Id, String)>,
    ) -> Result<()> {
        let address = match link.target {
            Target::Hard(address) => address,
            Target::Soft(_) | Target::External { .. } => {
                return h5::create_symbolic_link(parent, link);
            }
            Target::Other(kind) => {
                let text = format!("link {path} of the unknown kind {kind} is not shown");
                self.out.warnings.push(text);
                return Ok(());
            }
        };
        if let Some(new) = self.objects.get(&address) {
            return h5::link_object(&h5::open_object(&self.image, *new)?, parent, link);
        }
        let old = h5::open_object(self.file, address)?;
        let info = h5::object_info(&old)?;
        match info.kind {
            Kind::Datatype => {
                let datatype = self.committed_type(&old, address)?;
                h5::link_object(&datatype, parent, link)
            }
            Kind::Dataset => {
                let spot = Spot { parent, link, path };
                self.dataset(&old, &info, &spot)
            }
            Kind::Group => {
                let creation = h5::group_creation(&old)?;
                let names = h5::attribute_names(&old)?;
                if has_large_attribute(&old, &info, &names)? {
                    h5::allow_large_attributes(&creation)?;
                }
                let new = h5::create_group(parent, link, &creation)?;
                self.objects.insert(address, h5::address(&new)?);
                let pair = Pair {
                    old: &old,
                    new: &new,
                    path,
                };
                self.finish_object(&pair, Owner::Other, (&info, &names))?;
                groups.push((old, new, path.to_owned()));
                Ok(())
            }
        }
    }

    /// The links that a group shows, under the names that it shows. Where an escaped name falls on
    /// one that was never escaped, the escaped one keeps its stored form.
    fn presented_links(&mut self, group: &Id, path: &str) -> Result<Vec<Link>> {
        let mut links = h5::links(group)?;
        let stored: Vec<Vec<u8>> = links.iter().map(|l| l.name.clone()).collect();
        let taken: std::collections::HashSet<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        let in_root = path.is_empty();
        links.retain_mut(|link| {
            let Some(shown) = logvol::present_link(&link.name, in_root) else {
                return false;
            };
            let hidden = logvol::present_link(shown, in_root).is_none();
            if shown == link.name.as_slice() {
                return true;
            }
            if taken.contains(shown) && !hidden {
                let name = String::from_utf8_lossy(&link.name);
                let text = format!("link {path}/{name}: its unescaped name is taken");
                self.out.warnings.push(text);
                return true;
            }
            link.name = shown.to_vec();
            true
        });
        Ok(links)
    }

    /// What all objects have besides their content: attributes, comment, times.
    fn finish_object(
        &mut self,
        pair: &Pair<'_>,
        owner: Owner,
        (info, names): (&h5::ObjectInfo, &[CString]),
    ) -> Result<()> {
        if let Some(text) = h5::comment(pair.old)? {
            h5::set_comment(pair.new, &text)?;
        }
        let new = h5::address(pair.new)?;
        let [access, modification, change, birth] = info.times;
        if change != 0 {
            let or_change = |time| if time == 0 { change } else { time };
            self.out.times.push(ObjectTimes {
                header: new,
                access: or_change(access),
                modification: or_change(modification),
                change,
                birth: or_change(birth),
            });
        }
        if !self.attributes(pair, owner, names, None)? {
            self.later.push(Later {
                old: info.address,
                new,
                path: pair.path.to_owned(),
                work: Work::Attributes(owner),
            });
        }
        Ok(())
    }

    // --- attributes ------------------------------------------------------------------------------

    /// Copies the attributes of an object; without a `translator` only if none has references.
    /// Returns whether it did.
    fn attributes(
        &mut self,
        pair: &Pair<'_>,
        owner: Owner,
        names: &[CString],
        mut translator: Option<&mut Translator<'_>>,
    ) -> Result<bool> {
        let mut shown = Vec::new();
        for stored in names {
            if let Some(name) = logvol::present_attribute(stored.to_bytes(), owner) {
                shown.push((name.to_vec(), h5::open_attribute(pair.old, stored)?));
            }
        }
        if translator.is_none() {
            for (_, attribute) in &shown {
                if Shape::of(&h5::attribute_type(attribute)?)?.has_references() {
                    return Ok(false);
                }
            }
        }
        for (name, attribute) in &shown {
            self.attribute(pair, name, attribute, translator.as_deref_mut())
                .map_err(|e| {
                    let name = String::from_utf8_lossy(name);
                    format!("attribute {name} of {}: {e}", pair.path)
                })?;
        }
        Ok(true)
    }

    fn attribute(
        &mut self,
        pair: &Pair<'_>,
        name: &[u8],
        attribute: &Id,
        translator: Option<&mut Translator<'_>>,
    ) -> Result<()> {
        let mut values = h5::read_attribute(attribute)?;
        if let Some(translator) = translator {
            values.change_references(&mut |r| translator.translate(r))?;
        }
        let datatype = self.type_in_image(values.datatype())?;
        let name = (name, h5::attribute_is_utf8(attribute)?);
        h5::write_attribute(pair.new, name, &datatype, &values)
    }

    /// Writes what had to wait for the addresses of all objects.
    fn references(&mut self) -> Result<()> {
        let (objects, image) = (self.objects.clone(), self.image.clone());
        let mut translator = Translator {
            source: self.source,
            base: self.base,
            image: &image,
            objects: &objects,
            lost: 0,
        };
        for later in std::mem::take(&mut self.later) {
            let old = h5::open_object(self.file, later.old)?;
            let new = h5::open_object(&self.image, later.new)?;
            let pair = Pair {
                old: &old,
                new: &new,
                path: &later.path,
            };
            let lost = translator.lost;
            match later.work {
                Work::Attributes(owner) => {
                    let names = h5::attribute_names(&old)?;
                    self.attributes(&pair, owner, &names, Some(&mut translator))?;
                }
                Work::Elements => elements(&old, &new, Some(&mut translator))
                    .map_err(|e| format!("dataset {}: {e}", later.path))?,
            }
            if translator.lost > lost {
                let text = format!(
                    "{}: {} references to nothing became null references",
                    later.path,
                    translator.lost - lost
                );
                self.out.warnings.push(text);
            }
        }
        Ok(())
    }

    // --- datatypes -------------------------------------------------------------------------------

    /// The form of a type of the file that objects of the image can be made with.
    fn type_in_image(&mut self, datatype: &Id) -> Result<Id> {
        match h5::committed(datatype)? {
            Some(address) => {
                let old = h5::open_object(self.file, address)?;
                self.committed_type(&old, address)
            }
            None => Ok(datatype.clone()),
        }
    }

    fn committed_type(&mut self, old: &Id, address: u64) -> Result<Id> {
        if let Some(known) = self.committed.get(&address) {
            return Ok(known.clone());
        }
        let new = h5::commit_copy(&self.image, old)?;
        self.objects.insert(address, h5::address(&new)?);
        self.committed.insert(address, new.clone());
        let pair = Pair {
            old,
            new: &new,
            path: "a committed datatype",
        };
        let (info, names) = (h5::object_info(old)?, h5::attribute_names(old)?);
        self.finish_object(&pair, Owner::Other, (&info, &names))?;
        Ok(new)
    }

    // --- datasets --------------------------------------------------------------------------------

    fn dataset(&mut self, old: &Id, info: &h5::ObjectInfo, spot: &Spot<'_>) -> Result<()> {
        let creation = h5::dataset_creation(old)?;
        let names = h5::attribute_names(old)?;
        if has_large_attribute(old, info, &names)? {
            h5::allow_large_attributes(&creation)?;
        }
        h5::track_times(&creation, info.times[2] != 0)?;
        let new = match Anchor::read(old, &names)? {
            Some(anchor) => self.logged(old, &creation, anchor, spot)?,
            None => self.plain(old, &creation, spot)?,
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
        let mut plan = Plan::of(&datatype, &anchor, anchor.chunk.clone())?;
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
                plan = Plan::of(&datatype, &anchor, None)?;
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
        let dataset = self.describe(&id, creation, &datatype, plan, spot.path)?;
        self.out.datasets.push(Dataset {
            references,
            content,
            ..dataset
        });
        Ok(New {
            id,
            anchor: true,
            later: None,
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

    /// What the snapshot says of a dataset just made, but for its content.
    fn describe(
        &self,
        id: &Id,
        creation: &Id,
        datatype: &Id,
        plan: Plan,
        path: &str,
    ) -> Result<Dataset> {
        // Filters may have put values of their own into the pipeline when the dataset was made.
        let filters = match h5::has_filters(creation)? {
            true => h5::filters(&h5::dataset_creation(id)?)?,
            false => Vec::new(),
        };
        let filters = filters.into_iter();
        let filters = filters.map(|(id, flags, values)| Filter { id, flags, values });
        let has_pointers = Shape::of(datatype)?.has_pointers();
        Ok(Dataset {
            name: path.to_owned(),
            header: h5::address(id)?,
            datatype: h5::describe_type(datatype),
            element: h5::type_size(datatype)? as u64,
            fill: match has_pointers {
                true => Vec::new(),
                false => h5::fill_value(creation, datatype)?,
            },
            filters: filters.collect(),
            dims: plan.dims,
            max_dims: plan.max_dims,
            storage: plan.storage,
            references: Vec::new(),
            content: Content::Unreadable(String::new()),
        })
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
        let nothing = stored == 0 && class != StorageClass::Compact;
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
        if nothing || class == StorageClass::Elsewhere {
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
        let plan = Plan::chosen(space, h5::type_size(datatype)? as u64);
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
        let dataset = self.describe(&id, creation, datatype, plan, spot.path)?;
        self.out.datasets.push(Dataset { content, ..dataset });
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
    fn of(datatype: &Id, anchor: &Anchor, recorded: Option<Result<Vec<u64>>>) -> Result<Self> {
        let element = h5::type_size(datatype)? as u64;
        let chosen = || shape::choose(&anchor.dims, &anchor.max_dims, element);
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

    fn chosen(space: Space, element: u64) -> Self {
        let mut plan = Self::contiguous(space);
        if !plan.dims.is_empty() {
            plan.storage = Storage::Chunked(shape::choose(&plan.dims, &plan.max_dims, element));
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

/// Whether an object has an attribute that only the newer object headers can hold. In the older
/// ones there can be none.
fn has_large_attribute(object: &Id, info: &h5::ObjectInfo, names: &[CString]) -> Result<bool> {
    if info.version < 2 {
        return Ok(false);
    }
    for name in names {
        if h5::attribute_storage(&h5::open_attribute(object, name)?) >= LARGE_ATTRIBUTE {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Copies the elements of a dataset, some rows at a time.
fn elements(old: &Id, new: &Id, mut translator: Option<&mut Translator<'_>>) -> Result<()> {
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
