//! Copies the objects of an HDF5 file into another one. The caller decides how datasets are copied, because the
//! canonical image needs another form of them than a closed log.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;

use super::dataset::{NewLink, Template};
use super::elements::Elements;
use super::layout_objects::Owner;
use super::original::{Object, Original};
use super::references::Translator;
use super::room::Room;
use crate::hdf5_sys::{self as h5, Format, Id, Kind, Link, Shape, Target};
use h5logfs_common::diagnostic::Diagnostic;
use h5logfs_common::fault::Fault;
use h5logfs_hdf5_format::ObjectTimes;
use h5logfs_log::scan::Choice;

type Result<T> = std::result::Result<T, Fault>;

/// The attribute of a dimension scale that lists the datasets that use it. A netCDF reader needs all of them.
const USES_OF_SCALE: &[u8] = b"REFERENCE_LIST";

/// Makes the copies of datasets.
pub trait Datasets {
    /// The links to copy; `None` for all links.
    fn choice(&self) -> Option<&Choice> {
        None
    }

    /// Makes the copy of a dataset from its object header at `header`, without opening the dataset in libhdf5. `None`
    /// if libhdf5 has to open it.
    fn make_at_once(
        &mut self,
        _copier: &mut Copier<'_>,
        _header: u64,
        _at: &NewLink<'_>,
    ) -> Result<Option<MadeAtOnce>> {
        Ok(None)
    }

    /// Makes the copy of a dataset, without its attributes.
    fn make(
        &mut self,
        copier: &mut Copier<'_>,
        old: &Object,
        template: &Template<'_>,
    ) -> Result<(Id, Owner)>;
}

/// A finished copy, except for its times.
pub struct MadeAtOnce {
    /// The address of the copy.
    pub address: u64,
    /// The times of the original, as in [`h5::ObjectInfo`].
    pub times: [u32; 4],
}

/// The result of a walk through a file.
#[derive(Debug, Default)]
pub struct Copied {
    /// Addresses of the objects in the copy, by their addresses in the file.
    pub objects: HashMap<u64, u64>,
    /// The times of the original objects. They replace the time of the copying, which libhdf5 stores.
    pub times: Vec<ObjectTimes>,
    pub diagnostics: Vec<Diagnostic>,
    /// Bytes of elements and attribute values.
    pub large: u64,
}

/// Copies the objects of a file into another one. The target may have a root group, but no objects with the names of
/// copies.
pub fn copy(
    original: Original<'_>,
    target: &Id,
    room: Room,
    datasets: &mut dyn Datasets,
) -> Result<Copied> {
    let mut copier = Copier {
        original,
        room,
        target: target.clone(),
        format: Format::Oldest,
        is_sharing: h5::shares_messages(&h5::file_creation(original.file)?)?,
        committed: HashMap::new(),
        is_part: datasets.choice().is_some_and(|choice| !choice.has_all()),
        postponed: Vec::new(),
        chosen: HashSet::new(),
        out: Copied::default(),
    };
    copier.tree(datasets)?;
    if let Some(choice) = datasets.choice() {
        choice.check_found(|path| copier.chosen.contains(path))?;
    }
    copier.postponed_work()?;
    copier.out.large = copier.room.taken();
    Ok(copier.out)
}

/// A group whose links have not been copied yet.
struct Group {
    old: Id,
    new: Id,
    /// The path without a slash at its end. The root group has an empty path.
    path: String,
}

/// A copy that is being made.
pub struct Copier<'a> {
    pub original: Original<'a>,
    /// The limit for elements and attribute values. Those that exceed it are left out.
    pub room: Room,
    target: Id,
    /// The format in which libhdf5 makes the next object of the copy.
    format: Format,
    /// Objects of the file share messages.
    pub is_sharing: bool,
    /// Committed types in the copy, by their addresses in the file.
    committed: HashMap<u64, Id>,
    /// Whether only some of the objects are copied.
    is_part: bool,
    /// Objects with references. References are written last, when all objects have their addresses.
    postponed: Vec<Postponed>,
    /// The paths of [`Datasets::choice`] found so far.
    chosen: HashSet<String>,
    pub out: Copied,
}

/// An object with references among its attributes or elements.
struct Postponed {
    /// The address in the file.
    old: u64,
    /// The address in the copy.
    new: u64,
    path: String,
    work: Work,
}

enum Work {
    Attributes(Owner),
    Elements,
}

impl Copier<'_> {
    fn tree(&mut self, datasets: &mut dyn Datasets) -> Result<()> {
        let root = self.object(h5::open_group(self.original.file, c"/")?, "/")?;
        let new_root = h5::open_group(&self.target, c"/")?;
        self.out
            .objects
            .insert(root.info.address, h5::address(&new_root)?);
        self.finish_object(&root, &new_root, "/", Owner::Root)?;
        let mut groups = vec![Group {
            old: root.id,
            new: new_root,
            path: String::new(),
        }];
        while let Some(group) = groups.pop() {
            let mut found = Vec::new();
            match self.group(&group, datasets, &mut found) {
                Err(Fault::Damage(reason)) if self.original.is_partial => {
                    self.leave_out(&format!("{}/", group.path), "its links", &reason);
                }
                walked => walked.map_err(|e| e.at(format_args!("group {}/", group.path)))?,
            }
            // The first group found is visited next.
            groups.extend(found.into_iter().rev());
        }
        Ok(())
    }

    /// Makes the links of one group, and the objects that have no other link yet. Adds new groups to `groups`.
    fn group(
        &mut self,
        group: &Group,
        datasets: &mut dyn Datasets,
        groups: &mut Vec<Group>,
    ) -> Result<()> {
        for link in self.copied_links(group)? {
            let path = format!("{}/{}", group.path, String::from_utf8_lossy(&link.name));
            if let Some(choice) = datasets.choice() {
                if !choice.has(&path) {
                    continue;
                }
                if choice.names(&path) {
                    self.chosen.insert(path.clone());
                }
            }
            let at = NewLink {
                parent: &group.new,
                link: &link,
                path: &path,
            };
            match self.link(&at, datasets) {
                Ok(made) => groups.extend(made),
                Err(Fault::Damage(reason)) if self.original.is_partial => {
                    self.leave_out(&path, "the object", &reason);
                }
                Err(e) => return Err(e.at(format_args!("link {path}"))),
            }
        }
        Ok(())
    }

    /// Opens an object of the file. `path` is its path.
    pub fn object(&mut self, id: Id, path: &str) -> Result<Object> {
        let (object, reason) = self.original.object(id)?;
        if let Some(reason) = reason {
            self.leave_out(path, "its attributes", &reason);
        }
        Ok(object)
    }

    fn leave_out(&mut self, path: &str, what: &str, reason: &str) {
        let text = format!("{path}: {what} cannot be read here: {reason}");
        self.out.diagnostics.push(Diagnostic::lost(text));
    }

    /// Makes a link. Returns the group if the link made one.
    fn link(&mut self, at: &NewLink<'_>, datasets: &mut dyn Datasets) -> Result<Option<Group>> {
        let address = match &at.link.target {
            Target::Hard(address) => *address,
            Target::Soft(_) | Target::External { .. } => {
                return match h5::create_symbolic_link(at.parent, at.link) {
                    // A program can make links that libhdf5 cannot make again, such as one without a path.
                    Err(Fault::Damage(reason)) => {
                        let text = format!("link {} is not shown: {reason}", at.path);
                        self.out.diagnostics.push(Diagnostic::note(text));
                        Ok(None)
                    }
                    made => made.map(|()| None),
                };
            }
            Target::Other(kind) => {
                let text = format!("link {} of the unknown kind {kind} is not shown", at.path);
                self.out.diagnostics.push(Diagnostic::note(text));
                return Ok(None);
            }
            Target::Broken(reason) => {
                let text = format!("link {} is broken and is not shown: {reason}", at.path);
                self.out.diagnostics.push(Diagnostic::note(text));
                return Ok(None);
            }
        };
        if let Some(new) = self.out.objects.get(&address) {
            let object = h5::open_object(&self.target, *new)?;
            return h5::link_object(&object, at.parent, at.link).map(|()| None);
        }
        if let Some(made) = datasets.make_at_once(self, address, at)? {
            self.out.objects.insert(address, made.address);
            self.keep_times(made.address, made.times);
            return Ok(None);
        }
        let old = self.object(h5::open_object(self.original.file, address)?, at.path)?;
        match old.info.kind {
            Kind::Datatype => {
                let datatype = self.commit_type(&old)?;
                h5::link_object(&datatype, at.parent, at.link).map(|()| None)
            }
            Kind::Dataset => self.dataset(&old, at, datasets).map(|()| None),
            Kind::Group => self.make_group(old, at).map(Some),
        }
    }

    fn dataset(
        &mut self,
        old: &Object,
        at: &NewLink<'_>,
        datasets: &mut dyn Datasets,
    ) -> Result<()> {
        let template = Template::of(old, at, self.is_sharing)?;
        self.set_format(template.format)?;
        let (new, owner) = datasets.make(self, old, &template)?;
        let new_address = h5::address(&new)?;
        self.out.objects.insert(old.info.address, new_address);
        self.finish_object(old, &new, at.path, owner)
    }

    fn make_group(&mut self, old: Object, at: &NewLink<'_>) -> Result<Group> {
        let creation = h5::creation_of_copy(&old.id)?;
        old.prepare(&creation)?;
        self.set_format(old.format(&creation)?)?;
        let new = h5::create_group(at.parent, at.link, &creation)?;
        let new_address = h5::address(&new)?;
        self.out.objects.insert(old.info.address, new_address);
        self.finish_object(&old, &new, at.path, Owner::Other)?;
        Ok(Group {
            old: old.id,
            new,
            path: at.path.to_owned(),
        })
    }

    /// Sets the format of the next objects; `None` keeps the current format. A change costs a flush of the copy, so
    /// objects that may have any format cause no change.
    pub fn set_format(&mut self, format: Option<Format>) -> Result<()> {
        if let Some(format) = format.filter(|format| *format != self.format) {
            h5::set_format(&self.target, format)?;
            self.format = format;
        }
        Ok(())
    }

    /// The links that the copy of a group gets. A link keeps its name if its new name is the name of another link.
    fn copied_links(&mut self, group: &Group) -> Result<Vec<Link>> {
        let mut links = h5::links(&group.old)?;
        let all: HashSet<Vec<u8>> = links.iter().map(|l| l.name.clone()).collect();
        let in_root = group.path.is_empty();
        let layout = self.original.layout;
        links.retain_mut(|link| {
            let Some(name) = layout.copied_link(&link.name, in_root) else {
                return false;
            };
            if *name == *link.name {
                return true;
            }
            // Another link keeps this name only if its copy has it, too.
            if all.contains(&*name) && layout.copied_link(&name, in_root).as_deref() == Some(&*name)
            {
                let name = String::from_utf8_lossy(&link.name);
                let text = format!("link {}/{name}: its unescaped name is taken", group.path);
                self.out.diagnostics.push(Diagnostic::note(text));
                return true;
            }
            link.name = name.into_owned();
            true
        });
        Ok(links)
    }

    /// Copies the parts that objects of all kinds have: attributes, comment and times.
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
        self.keep_times(h5::address(new)?, old.info.times);
        self.copy_attributes(old, new, path, owner)
    }

    /// Copies the attributes of an object. Attributes with references follow once all objects exist.
    pub fn copy_attributes(
        &mut self,
        old: &Object,
        new: &Id,
        path: &str,
        owner: Owner,
    ) -> Result<()> {
        if !self.attributes(old, new, path, owner, None)? {
            self.postponed.push(Postponed {
                old: old.info.address,
                new: h5::address(new)?,
                path: path.to_owned(),
                work: Work::Attributes(owner),
            });
        }
        Ok(())
    }

    /// Records the times of the copy at `header`.
    fn keep_times(&mut self, header: u64, [access, modification, change, birth]: [u32; 4]) {
        if change == 0 {
            return;
        }
        let or_change = |time| if time == 0 { change } else { time };
        self.out.times.push(ObjectTimes {
            header,
            access: or_change(access),
            modification: or_change(modification),
            change,
            birth: or_change(birth),
        });
    }

    // --- attributes ------------------------------------------------------------------------------

    /// Copies the attributes of an object. Without a `translator`, it copies none if one of them has references, and
    /// returns false.
    fn attributes(
        &mut self,
        old: &Object,
        new: &Id,
        path: &str,
        owner: Owner,
        mut translator: Option<&mut Translator<'_>>,
    ) -> Result<bool> {
        // Only one attribute is open at a time, because libhdf5 searches all open attributes each time it opens one.
        let copied = self.copied_attributes(old, owner)?;
        let open = |name: &CStr| h5::open_attribute(&old.id, name);
        if translator.is_none() {
            for (old, _) in &copied {
                let shape =
                    h5::attribute_type(&open(old)?).and_then(|datatype| Shape::of(&datatype));
                let has_references = match shape {
                    // The attribute is left out below.
                    Err(Fault::Damage(_)) if self.original.is_partial => false,
                    shape => shape?.has_references(),
                };
                if has_references {
                    return Ok(false);
                }
            }
        }
        for (old, name) in &copied {
            let attribute = open(old)?;
            let made = match self.value(&attribute) {
                Ok(Ok(values)) => {
                    self.attribute(new, name, &attribute, values, translator.as_deref_mut())
                }
                Ok(Err(reason)) => {
                    let name = String::from_utf8_lossy(name);
                    self.leave_out(path, &format!("the attribute {name}"), &reason);
                    continue;
                }
                Err(fault) => Err(fault),
            };
            let name = String::from_utf8_lossy(name);
            match made {
                Err(Fault::Damage(reason)) if self.original.is_partial => {
                    self.leave_out(path, &format!("the attribute {name}"), &reason);
                }
                made => made.map_err(|e| e.at(format_args!("attribute {name} of {path}")))?,
            }
        }
        Ok(true)
    }

    /// The names of the attributes that are copied, and their names in the copy.
    fn copied_attributes<'o>(
        &self,
        object: &'o Object,
        owner: Owner,
    ) -> Result<Vec<(&'o CStr, Vec<u8>)>> {
        let layout = self.original.layout;
        let names = object.names_in_order()?;
        let all: HashSet<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
        let mut copied = Vec::new();
        let mut taken = HashSet::new();
        for old in names {
            let Some(name) = layout.copied_attribute(old.to_bytes(), owner) else {
                continue;
            };
            // An attribute keeps its name as a link does.
            let is_taken = *name != *old.to_bytes()
                && all.contains(&*name)
                && layout.copied_attribute(&name, owner).as_deref() == Some(&*name);
            let name = if is_taken {
                old.to_bytes().to_vec()
            } else {
                name.into_owned()
            };
            if taken.insert(name.clone()) {
                copied.push((old, name));
            }
        }
        Ok(copied)
    }

    /// The value of an attribute, or the reason why there is no room for it.
    fn value(&mut self, attribute: &Id) -> Result<std::result::Result<h5::Values, String>> {
        const OF: &str = "its value takes";
        let own = h5::attribute_storage(attribute)?;
        if let Err(reason) = self.room.take(OF, own) {
            return Ok(Err(reason));
        }
        let values = h5::read_attribute(attribute)?;
        let more = self.room.take(OF, values.bytes_elsewhere());
        Ok(more.map(|()| values))
    }

    fn attribute(
        &mut self,
        new: &Id,
        name: &[u8],
        attribute: &Id,
        mut values: h5::Values,
        translator: Option<&mut Translator<'_>>,
    ) -> Result<()> {
        if let Some(translator) = translator {
            if self.is_part && name == USES_OF_SCALE {
                values.retain(&|reference| translator.has(reference))?;
                if values.bytes().is_empty() {
                    return Ok(());
                }
            }
            values.change_references(&mut |r| translator.translate(r))?;
        }
        let datatype = self.type_in_copy(values.datatype())?;
        let name = h5::Name {
            bytes: name,
            utf8: h5::attribute_is_utf8(attribute)?,
        };
        h5::write_attribute(new, name, &datatype, &values)
    }

    /// Postpones the elements of a dataset until all objects have their addresses.
    pub fn postpone_elements(&mut self, old: &Object, new: &Id, path: &str) -> Result<()> {
        self.postponed.push(Postponed {
            old: old.info.address,
            new: h5::address(new)?,
            path: path.to_owned(),
            work: Work::Elements,
        });
        Ok(())
    }

    /// Writes the postponed attributes and elements, once all objects have addresses.
    fn postponed_work(&mut self) -> Result<()> {
        self.set_format(Some(Format::Oldest))?;
        let (objects, target) = (self.out.objects.clone(), self.target.clone());
        let mut translator = Translator {
            file: self.original.file,
            bytes: self.original.bytes,
            target: &target,
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
            let old = self.object(h5::open_object(self.original.file, old)?, &path)?;
            let new = h5::open_object(&target, new)?;
            let lost_before = translator.lost;
            match work {
                Work::Attributes(owner) => {
                    self.attributes(&old, &new, &path, owner, Some(&mut translator))?;
                }
                Work::Elements => Elements::of(self.original, &old)
                    .and_then(|elements| elements.copy_to(&new, Some(&mut translator)))
                    .map_err(|e| e.at(format_args!("dataset {path}")))?,
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

    /// The datatype with which objects of the copy are made, for a datatype of the file.
    pub fn type_in_copy(&mut self, datatype: &Id) -> Result<Id> {
        let Some(address) = h5::committed(datatype)? else {
            return h5::unshared(datatype);
        };
        if let Some(known) = self.committed.get(&address) {
            return Ok(known.clone());
        }
        let old = h5::open_object(self.original.file, address)?;
        let old = self.object(old, "a committed datatype")?;
        self.commit_type(&old)
    }

    /// Makes the copy of a committed type that has none yet. The dataset that uses the type is then made in its own
    /// format.
    fn commit_type(&mut self, old: &Object) -> Result<Id> {
        let format = self.format;
        let new = self.commit_type_in_its_format(old);
        self.set_format(Some(format))?;
        new
    }

    fn commit_type_in_its_format(&mut self, old: &Object) -> Result<Id> {
        let creation = h5::type_creation(&old.id)?;
        old.prepare(&creation)?;
        self.set_format(old.format(&creation)?)?;
        let new = h5::commit_copy(&self.target, &old.id, &creation)?;
        let address = old.info.address;
        self.out.objects.insert(address, h5::address(&new)?);
        self.committed.insert(address, new.clone());
        self.finish_object(old, &new, "a committed datatype", Owner::Other)?;
        Ok(new)
    }
}
