//! Copies the user's objects into an image. There every dataset has its true shape. Only small datasets that were
//! never logged have storage there.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;

use super::dataset::{NewLink, copy_elements};
use super::layout_objects::{LayoutObjects, Owner};
use super::references::Translator;
use crate::hdf5_sys::{self as h5, Id, Kind, Link, Shape, Target};
use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::image::{Image, ObjectTimes};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::snapshot::Dataset;

type Result<T> = std::result::Result<T, String>;

/// Attributes of this size and more do not fit into an object header (64 KiB, less what describes them).
const LARGE_ATTRIBUTE: u64 = 64_000;

/// The log file that is copied.
pub(super) struct Original<'a> {
    /// The file as libhdf5 sees it.
    pub file: &'a Id,
    pub source: &'a SourceFile,
    /// Bytes of the user block.
    pub base: u64,
    pub layout: &'a dyn LayoutObjects,
    pub chooser: &'a Chooser<'a>,
}

/// What a walk through a file yields.
#[derive(Debug, Default)]
pub struct Copied {
    pub image: Vec<u8>,
    pub datasets: Vec<Dataset>,
    /// Addresses of the objects in the file and in the image.
    pub addresses: Vec<(u64, u64)>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Makes the image of an open log file.
pub(super) fn copy(original: Original<'_>) -> Result<Copied> {
    let root = Object::of(h5::open_group(original.file, c"/")?)?;
    let creation = h5::new_file_creation()?;
    h5::copy_group_properties(&h5::group_creation(&root.id)?, &creation)?;
    root.allow_large_attributes(&creation)?;
    let image = h5::create_in_memory(&creation)?;
    let new_root = h5::open_group(&image, c"/")?;
    let mut copier = Copier {
        original,
        image: image.clone(),
        objects: HashMap::new(),
        committed: HashMap::new(),
        postponed: Vec::new(),
        copied_bytes: 0,
        times: Vec::new(),
        out: Copied::default(),
    };
    copier.tree(root, new_root)?;
    copier.postponed_work()?;
    let mut out = copier.out;
    out.addresses = copier.objects.into_iter().collect();
    out.addresses.sort_unstable();
    drop(copier.committed);
    let mut image = Image::new(h5::file_image(&image)?);
    for times in &copier.times {
        image.set_times(times)?;
    }
    out.image = image.into_bytes();
    Ok(out)
}

/// An object of the log file.
pub(super) struct Object {
    pub id: Id,
    pub info: h5::ObjectInfo,
    pub attributes: Vec<CString>,
}

impl Object {
    fn of(id: Id) -> Result<Self> {
        Ok(Object {
            info: h5::object_info(&id)?,
            attributes: h5::attribute_names(&id)?,
            id,
        })
    }

    /// Lets the copy have large attributes if the object has some. Only version 2 object headers can hold them.
    pub fn allow_large_attributes(&self, creation: &Id) -> Result<()> {
        if self.info.version < 2 {
            return Ok(());
        }
        for name in &self.attributes {
            let attribute = h5::open_attribute(&self.id, name)?;
            if h5::attribute_storage(&attribute) >= LARGE_ATTRIBUTE {
                return h5::allow_large_attributes(creation);
            }
        }
        Ok(())
    }
}

/// A group whose links are still to be copied.
struct Group {
    old: Id,
    new: Id,
    /// Without a slash at the end: the root group has an empty path.
    path: String,
}

pub(super) struct Copier<'a> {
    pub original: Original<'a>,
    image: Id,
    /// Addresses of the objects made so far, by their addresses in the file.
    pub objects: HashMap<u64, u64>,
    /// Committed types in the image, by their addresses in the file.
    committed: HashMap<u64, Id>,
    /// References can be written only when all objects have their addresses.
    pub postponed: Vec<Postponed>,
    /// Bytes of elements copied into the image.
    pub copied_bytes: u64,
    /// libhdf5 stores the time of the scan. These times of the file's objects replace it.
    times: Vec<ObjectTimes>,
    pub out: Copied,
}

/// An object with references among its attributes or elements.
pub(super) struct Postponed {
    /// Its address in the file.
    pub old: u64,
    /// Its address in the image.
    pub new: u64,
    pub path: String,
    pub work: Work,
}

pub(super) enum Work {
    Attributes(Owner),
    Elements,
}

impl Copier<'_> {
    fn tree(&mut self, root: Object, new_root: Id) -> Result<()> {
        self.objects
            .insert(root.info.address, h5::address(&new_root)?);
        self.finish_object(&root, &new_root, "/", Owner::Root)?;
        let mut groups = vec![Group {
            old: root.id,
            new: new_root,
            path: String::new(),
        }];
        while let Some(group) = groups.pop() {
            let found = self.group(&group);
            let found = found.map_err(|e| format!("group {}/: {e}", group.path))?;
            // The first group found is walked next.
            groups.extend(found.into_iter().rev());
        }
        Ok(())
    }

    /// Makes the links of one group, and the objects that have no other link yet. Returns the groups among these.
    fn group(&mut self, group: &Group) -> Result<Vec<Group>> {
        let mut groups = Vec::new();
        for link in self.shown_links(group)? {
            let path = format!("{}/{}", group.path, String::from_utf8_lossy(&link.name));
            let made = self.link(&NewLink {
                parent: &group.new,
                link: &link,
                path: &path,
            });
            groups.extend(made.map_err(|e| format!("link {path}: {e}"))?);
        }
        Ok(groups)
    }

    /// Makes a link. Returns the group if it made one.
    fn link(&mut self, at: &NewLink<'_>) -> Result<Option<Group>> {
        let address = match at.link.target {
            Target::Hard(address) => address,
            Target::Soft(_) | Target::External { .. } => {
                return h5::create_symbolic_link(at.parent, at.link).map(|()| None);
            }
            Target::Other(kind) => {
                let text = format!("link {} of the unknown kind {kind} is not shown", at.path);
                self.out.diagnostics.push(Diagnostic::note(text));
                return Ok(None);
            }
        };
        if let Some(new) = self.objects.get(&address) {
            let object = h5::open_object(&self.image, *new)?;
            return h5::link_object(&object, at.parent, at.link).map(|()| None);
        }
        let old = Object::of(h5::open_object(self.original.file, address)?)?;
        match old.info.kind {
            Kind::Datatype => {
                let datatype = self.commit_type(&old)?;
                h5::link_object(&datatype, at.parent, at.link).map(|()| None)
            }
            Kind::Dataset => self.dataset(&old, at).map(|()| None),
            Kind::Group => self.make_group(old, at).map(Some),
        }
    }

    fn make_group(&mut self, old: Object, at: &NewLink<'_>) -> Result<Group> {
        let creation = h5::group_creation(&old.id)?;
        old.allow_large_attributes(&creation)?;
        let new = h5::create_group(at.parent, at.link, &creation)?;
        self.objects.insert(old.info.address, h5::address(&new)?);
        self.finish_object(&old, &new, at.path, Owner::Other)?;
        Ok(Group {
            old: old.id,
            new,
            path: at.path.to_owned(),
        })
    }

    /// The links that the copy of a group has. An escaped name keeps its stored form if its unescaped form is the
    /// name of another link.
    fn shown_links(&mut self, group: &Group) -> Result<Vec<Link>> {
        let mut links = h5::links(&group.old)?;
        let stored: HashSet<Vec<u8>> = links.iter().map(|l| l.name.clone()).collect();
        let in_root = group.path.is_empty();
        let layout = self.original.layout;
        links.retain_mut(|link| {
            let Some(shown) = layout.shown_link(&link.name, in_root) else {
                return false;
            };
            if shown == link.name {
                return true;
            }
            // Another link has this name only if it is shown under it.
            if stored.contains(shown) && layout.shown_link(shown, in_root) == Some(shown) {
                let name = String::from_utf8_lossy(&link.name);
                let text = format!("link {}/{name}: its unescaped name is taken", group.path);
                self.out.diagnostics.push(Diagnostic::note(text));
                return true;
            }
            link.name = shown.to_vec();
            true
        });
        Ok(links)
    }

    /// Copies what objects of all kinds have: attributes, comment and times.
    pub fn finish_object(
        &mut self,
        old: &Object,
        new: &Id,
        path: &str,
        owner: Owner,
    ) -> Result<()> {
        if let Some(text) = h5::comment(&old.id)? {
            h5::set_comment(new, &text)?;
        }
        let new_address = h5::address(new)?;
        let [access, modification, change, birth] = old.info.times;
        if change != 0 {
            let or_change = |time| if time == 0 { change } else { time };
            self.times.push(ObjectTimes {
                header: new_address,
                access: or_change(access),
                modification: or_change(modification),
                change,
                birth: or_change(birth),
            });
        }
        if !self.attributes(old, new, path, owner, None)? {
            self.postponed.push(Postponed {
                old: old.info.address,
                new: new_address,
                path: path.to_owned(),
                work: Work::Attributes(owner),
            });
        }
        Ok(())
    }

    // --- attributes ------------------------------------------------------------------------------

    /// Copies the attributes of an object. If one has references and there is no `translator`, it copies none and
    /// returns false.
    fn attributes(
        &mut self,
        old: &Object,
        new: &Id,
        path: &str,
        owner: Owner,
        mut translator: Option<&mut Translator<'_>>,
    ) -> Result<bool> {
        let shown = self.shown_attributes(old, owner)?;
        if translator.is_none() {
            for (_, attribute) in &shown {
                if Shape::of(&h5::attribute_type(attribute)?)?.has_references() {
                    return Ok(false);
                }
            }
        }
        for (name, attribute) in &shown {
            let copied = self.attribute(new, name, attribute, translator.as_deref_mut());
            copied.map_err(|e| {
                let name = String::from_utf8_lossy(name);
                format!("attribute {name} of {path}: {e}")
            })?;
        }
        Ok(true)
    }

    /// The attributes that the copy of an object has, with their names there.
    fn shown_attributes(&self, object: &Object, owner: Owner) -> Result<Vec<(Vec<u8>, Id)>> {
        let layout = self.original.layout;
        let names = &object.attributes;
        let mut shown = Vec::new();
        let mut taken = HashSet::new();
        for stored in names {
            let Some(name) = layout.shown_attribute(stored.to_bytes(), owner) else {
                continue;
            };
            // As for links: an escaped name keeps its stored form if the unescaped one is taken.
            let is_taken = name != stored.to_bytes()
                && names.iter().any(|n| n.to_bytes() == name)
                && layout.shown_attribute(name, owner) == Some(name);
            let name = if is_taken { stored.to_bytes() } else { name };
            if taken.insert(name) {
                shown.push((name.to_vec(), h5::open_attribute(&object.id, stored)?));
            }
        }
        Ok(shown)
    }

    fn attribute(
        &mut self,
        new: &Id,
        name: &[u8],
        attribute: &Id,
        translator: Option<&mut Translator<'_>>,
    ) -> Result<()> {
        let mut values = h5::read_attribute(attribute)?;
        if let Some(translator) = translator {
            values.change_references(&mut |r| translator.translate(r))?;
        }
        let datatype = self.type_in_image(values.datatype())?;
        let name = h5::Name {
            bytes: name,
            utf8: h5::attribute_is_utf8(attribute)?,
        };
        h5::write_attribute(new, name, &datatype, &values)
    }

    /// Writes what had to wait for the addresses of all objects.
    fn postponed_work(&mut self) -> Result<()> {
        let (objects, image) = (self.objects.clone(), self.image.clone());
        let mut translator = Translator {
            source: self.original.source,
            base: self.original.base,
            image: &image,
            objects: &objects,
            lost: 0,
        };
        for Postponed {
            old,
            new,
            path,
            work,
        } in std::mem::take(&mut self.postponed)
        {
            let old = Object::of(h5::open_object(self.original.file, old)?)?;
            let new = h5::open_object(&image, new)?;
            let lost_before = translator.lost;
            match work {
                Work::Attributes(owner) => {
                    self.attributes(&old, &new, &path, owner, Some(&mut translator))?;
                }
                Work::Elements => copy_elements(&old.id, &new, Some(&mut translator))
                    .map_err(|e| format!("dataset {path}: {e}"))?,
            }
            let lost = translator.lost - lost_before;
            if lost > 0 {
                let text = format!("{path}: {lost} references to nothing became null references");
                self.out.diagnostics.push(Diagnostic::note(text));
            }
        }
        Ok(())
    }

    // --- datatypes -------------------------------------------------------------------------------

    /// The form of a type of the file with which objects of the image can be made.
    pub fn type_in_image(&mut self, datatype: &Id) -> Result<Id> {
        let Some(address) = h5::committed(datatype)? else {
            return Ok(datatype.clone());
        };
        if let Some(known) = self.committed.get(&address) {
            return Ok(known.clone());
        }
        let old = h5::open_object(self.original.file, address)?;
        self.commit_type(&Object::of(old)?)
    }

    /// Makes the copy of a committed type that has none yet.
    fn commit_type(&mut self, old: &Object) -> Result<Id> {
        let new = h5::commit_copy(&self.image, &old.id)?;
        let address = old.info.address;
        self.objects.insert(address, h5::address(&new)?);
        self.committed.insert(address, new.clone());
        self.finish_object(old, &new, "a committed datatype", Owner::Other)?;
        Ok(new)
    }
}
