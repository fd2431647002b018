//! Walking the user's objects and making them anew in an image, in which every dataset has its true
//! shape and none has a byte of storage, but for small ones that were never logged.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;

use super::dataset::{Spot, elements};
use super::layout_objects::{LayoutObjects, Owner};
use super::references::Translator;
use crate::hdf5_sys::{self as h5, Id, Kind, Link, Shape, Target};
use h5logfs_core::diagnostic::Diagnostic;
use h5logfs_core::image::{Image, ObjectTimes};
use h5logfs_core::log::source_file::SourceFile;
use h5logfs_core::scan::shape::Chooser;
use h5logfs_core::snapshot::Dataset;

type Result<T> = std::result::Result<T, String>;

/// Attributes from this size on do not fit into the header of an object (64 KiB, less its own words).
const LARGE_ATTRIBUTE: u64 = 64_000;

/// What a walk through a file yields.
#[derive(Debug, Default)]
pub struct Copied {
    pub image: Vec<u8>,
    pub datasets: Vec<Dataset>,
    pub addresses: Vec<(u64, u64)>,
    pub diagnostics: Vec<Diagnostic>,
}

/// Makes the image of an open log file. `base`: bytes of its user block. `own`: what of it is the layout's.
pub(super) fn copy(
    file: &Id,
    source: &SourceFile,
    base: u64,
    (own, chunks): (&dyn LayoutObjects, &Chooser<'_>),
) -> Result<Copied> {
    let root = h5::open_group(file, c"/")?;
    let creation = h5::new_file_creation()?;
    h5::copy_group_properties(&h5::group_creation(&root)?, &creation)?;
    let (info, names) = (h5::object_info(&root)?, h5::attribute_names(&root)?);
    if has_large_attribute(&root, &info, &names)? {
        h5::allow_large_attributes(&creation)?;
    }
    let image = h5::create_in_memory(&creation)?;
    let mut copier = Copier {
        file,
        source,
        base,
        own,
        chunks,
        image: image.clone(),
        objects: HashMap::new(),
        committed: HashMap::new(),
        later: Vec::new(),
        copied_bytes: 0,
        times: Vec::new(),
        out: Copied::default(),
    };
    let new_root = h5::open_group(&image, c"/")?;
    copier.tree(root, new_root, (&info, &names))?;
    copier.references()?;
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

pub(super) struct Copier<'a> {
    pub(super) file: &'a Id,
    pub(super) source: &'a SourceFile,
    pub(super) base: u64,
    pub(super) own: &'a dyn LayoutObjects,
    pub(super) chunks: &'a Chooser<'a>,
    pub(super) image: Id,
    /// Addresses of the objects made so far, by those in the file.
    pub(super) objects: HashMap<u64, u64>,
    /// Committed types in the image, by their addresses in the file.
    pub(super) committed: HashMap<u64, Id>,
    /// Objects with references among their attributes or elements: these can be written only when
    /// all objects have their addresses.
    pub(super) later: Vec<Later>,
    pub(super) copied_bytes: u64,
    /// libhdf5 writes the time of the scan; the user wants those of the objects.
    times: Vec<ObjectTimes>,
    pub(super) out: Copied,
}

pub(super) struct Later {
    pub(super) old: u64,
    pub(super) new: u64,
    pub(super) path: String,
    pub(super) work: Work,
}

pub(super) enum Work {
    Attributes(Owner),
    Elements,
}

/// One object on both sides.
pub(super) struct Pair<'a> {
    pub(super) old: &'a Id,
    pub(super) new: &'a Id,
    pub(super) path: &'a str,
}

impl Copier<'_> {
    fn tree(
        &mut self,
        root: Id,
        new_root: Id,
        (info, names): (&h5::ObjectInfo, &[CString]),
    ) -> Result<()> {
        self.objects.insert(info.address, h5::address(&new_root)?);
        let pair = Pair {
            old: &root,
            new: &new_root,
            path: "/",
        };
        self.finish_object(&pair, Owner::Root, (info, names))?;
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
                self.out.diagnostics.push(Diagnostic::note(text));
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
        let taken: HashSet<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        let in_root = path.is_empty();
        links.retain_mut(|link| {
            let Some(shown) = self.own.present_link(&link.name, in_root) else {
                return false;
            };
            if shown == link.name.as_slice() {
                return true;
            }
            // Only one that is itself shown as it is stands in the way.
            if taken.contains(shown) && self.own.present_link(shown, in_root) == Some(shown) {
                let name = String::from_utf8_lossy(&link.name);
                let text = format!("link {path}/{name}: its unescaped name is taken");
                self.out.diagnostics.push(Diagnostic::note(text));
                return true;
            }
            link.name = shown.to_vec();
            true
        });
        Ok(links)
    }

    /// What all objects have besides their content: attributes, comment, times.
    pub(super) fn finish_object(
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
            self.times.push(ObjectTimes {
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
        let mut taken = HashSet::new();
        for stored in names {
            let Some(name) = self.own.present_attribute(stored.to_bytes(), owner) else {
                continue;
            };
            // An escaped name that falls on one that was never escaped keeps its stored form.
            let clashes = name != stored.to_bytes()
                && names.iter().any(|n| n.to_bytes() == name)
                && self.own.present_attribute(name, owner) == Some(name);
            let name = if clashes { stored.to_bytes() } else { name };
            if taken.insert(name) {
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
                self.out.diagnostics.push(Diagnostic::note(text));
            }
        }
        Ok(())
    }

    // --- datatypes -------------------------------------------------------------------------------

    /// The form of a type of the file that objects of the image can be made with.
    pub(super) fn type_in_image(&mut self, datatype: &Id) -> Result<Id> {
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
}

/// Whether an object has an attribute that only the newer object headers can hold. In the older
/// ones there can be none.
pub(super) fn has_large_attribute(
    object: &Id,
    info: &h5::ObjectInfo,
    names: &[CString],
) -> Result<bool> {
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
