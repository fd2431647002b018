//! Groups and the links in them.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The address of an object. Links that are to be made do not use it.
    Hard(u64),
    Soft(CString),
    External {
        file: CString,
        path: CString,
    },
    /// A link class that only the writing program understands.
    Other(i32),
    /// A link whose value leads nowhere, with the reason.
    Broken(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: Vec<u8>,
    pub utf8: bool,
    pub target: Target,
}

impl Link {
    /// A hard link that is to be made.
    pub fn ascii(name: &str) -> Self {
        Link {
            name: name.as_bytes().to_vec(),
            utf8: false,
            target: Target::Hard(0),
        }
    }

    /// The arguments of calls that make the link: its name, and the property list for its character set.
    pub(super) fn name_and_properties(&self) -> Result<(CString, hid_t)> {
        let properties = name_properties(Named::Link, self.utf8)?;
        Ok((c_name(&self.name)?, properties))
    }
}

/// A link as libhdf5 reports it.
struct RawLink {
    name: Vec<u8>,
    utf8: bool,
    class: c_int,
    /// The address of a hard link, or the length of the value of another link.
    value: u64,
}

impl RawLink {
    fn target(&self, group: &Id) -> Result<Target> {
        const HARD: c_int = 0;
        const SOFT: c_int = 1;
        const EXTERNAL: c_int = 64;
        let value = || link_value(group, &self.name, self.value as usize);
        let target = match self.class {
            HARD => Ok(Target::Hard(self.value)),
            SOFT => value().and_then(soft_target),
            EXTERNAL => value().and_then(|value| external_target(&value)),
            other => Ok(Target::Other(other)),
        };
        match target {
            Err(Fault::Damage(reason)) => Ok(Target::Broken(reason)),
            target => target,
        }
    }
}

/// The links of a group: in creation order if the group tracks it, otherwise by name.
pub fn links(group: &Id) -> Result<Vec<Link>> {
    unsafe extern "C" fn visit(
        _: hid_t,
        name: *const c_char,
        info: *const H5L_info1_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: libhdf5 passes a C string, a filled info, and the pointer to `found` that it was given. Class and
        // character set are read as numbers, because a file may hold values outside the enumerations. `u` has 8 bytes
        // in every case.
        unsafe {
            let found = &mut *data.cast::<Vec<RawLink>>();
            found.push(RawLink {
                name: CStr::from_ptr(name).to_bytes().to_vec(),
                utf8: (&raw const (*info).cset).cast::<c_int>().read() == 1,
                class: (&raw const (*info).type_).cast::<c_int>().read(),
                value: (&raw const (*info).u).cast::<u64>().read(),
            });
        }
        0
    }
    let index = match creation_order(&group_creation(group)?)? & H5P_CRT_ORDER_INDEXED {
        0 => H5_index_t::H5_INDEX_NAME,
        _ => H5_index_t::H5_INDEX_CRT_ORDER,
    };
    let mut found: Vec<RawLink> = Vec::new();
    let mut position = 0;
    #[allow(deprecated)] // libhdf5 1.10 has no other.
    h5!(H5Literate1(
        group.0,
        index,
        H5_iter_order_t::H5_ITER_INC,
        &mut position,
        Some(visit),
        (&raw mut found).cast()
    ))?;
    let link = |raw: RawLink| {
        Ok(Link {
            target: raw.target(group)?,
            name: raw.name,
            utf8: raw.utf8,
        })
    };
    found.into_iter().map(link).collect()
}

/// Makes libhdf5 treat the values of external links as bytes, and follow none of them, for the life of the process. By
/// default, libhdf5 parses them. An invalid value then fails the walk through a group, and an empty one crashes libhdf5
/// 1.10.
///
/// Call this only in a process of our own: other code in the process could not follow links any more.
pub fn take_external_links_as_bytes() -> Result<()> {
    extern "C" fn follow(
        _: *const c_char,
        _: hid_t,
        _: *const c_void,
        _: usize,
        _: hid_t,
    ) -> hid_t {
        -1
    }
    extern "C" fn query(
        _: *const c_char,
        value: *const c_void,
        size: usize,
        buf: *mut c_void,
        room: usize,
    ) -> isize {
        let copied = size.min(room);
        if copied > 0 && !value.is_null() && !buf.is_null() {
            // SAFETY: libhdf5 passes a value of `size` bytes, and a buffer of the length that it states.
            unsafe { ptr::copy_nonoverlapping(value.cast::<u8>(), buf.cast::<u8>(), copied) };
        }
        size as isize
    }
    let class = H5L_class_t {
        id: H5L_type_t::H5L_TYPE_EXTERNAL,
        comment: c"bytes".as_ptr(),
        trav_func: Some(follow),
        query_func: Some(query),
        ..H5L_class_t::default()
    };
    // libhdf5 copies the class.
    h5!(H5Lregister(&class)).map(drop)
}

fn link_value(group: &Id, name: &[u8], size: usize) -> Result<Vec<u8>> {
    const LARGEST: usize = 1 << 20;
    if size > LARGEST {
        return Err(format!("a link value of {size} bytes").into());
    }
    let name = c_name(name)?;
    let mut value = vec![0u8; size.max(1)];
    h5!(H5Lget_val(
        group.0,
        name.as_ptr(),
        value.as_mut_ptr().cast(),
        value.len(),
        DEFAULT
    ))?;
    Ok(value)
}

fn soft_target(mut value: Vec<u8>) -> Result<Target> {
    let len = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    value.truncate(len);
    c_name(&value).map(Target::Soft)
}

/// Parses the value of an external link: a byte with version and flags, then the file name and the object path, each
/// with a zero byte at its end (HDF5 File Format Specification, IV.A.2.g).
fn external_target(value: &[u8]) -> Result<Target> {
    // The version, in the upper half, is 0.
    let broken = || Err("its value is not that of an external link".into());
    let Some((0..=0x0f, names)) = value.split_first() else {
        return broken();
    };
    let mut parts = names.split(|b| *b == 0);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(path), Some(_)) if !file.is_empty() && !path.is_empty() => {
            Ok(Target::External {
                file: c_name(file)?,
                path: c_name(path)?,
            })
        }
        _ => broken(),
    }
}

/// Creation properties for a group of another file that resembles this one.
pub fn creation_of_copy(group: &Id) -> Result<Id> {
    let new = new_group_creation()?;
    let old = group_creation(group)?;
    copy_group_properties(&old, &new)?;
    let (mut links, mut name) = (0, 0);
    h5!(H5Pget_est_link_info(old.0, &mut links, &mut name))?;
    h5!(H5Pset_est_link_info(new.0, links, name))?;
    let mut heap = 0;
    h5!(H5Pget_local_heap_size_hint(old.0, &mut heap))?;
    h5!(H5Pset_local_heap_size_hint(new.0, heap))?;
    Ok(new)
}

pub fn new_group_creation() -> Result<Id> {
    Id::new(h5!(H5Pcreate(*H5P_CLS_GROUP_CREATE)))
}

/// The creation properties of a group. For the root group they say more than those of the file. No other group may be
/// made with them, because libhdf5 stores the place of this group's links in them.
pub fn group_creation(group: &Id) -> Result<Id> {
    Id::new(h5!(H5Gget_create_plist(group.0)))
}

fn creation_order(creation: &Id) -> Result<c_uint> {
    let mut flags = 0;
    h5!(H5Pget_link_creation_order(creation.0, &mut flags))?;
    Ok(flags)
}

/// Copies the creation properties that concern the links, attributes and times of a group.
pub fn copy_group_properties(from: &Id, to: &Id) -> Result<()> {
    h5!(H5Pset_link_creation_order(to.0, creation_order(from)?))?;
    let (mut compact, mut dense) = (0, 0);
    h5!(H5Pget_link_phase_change(from.0, &mut compact, &mut dense))?;
    h5!(H5Pset_link_phase_change(to.0, compact, dense))?;
    let mut flags = 0;
    h5!(H5Pget_attr_creation_order(from.0, &mut flags))?;
    h5!(H5Pset_attr_creation_order(to.0, flags))?;
    h5!(H5Pget_attr_phase_change(from.0, &mut compact, &mut dense))?;
    h5!(H5Pset_attr_phase_change(to.0, compact, dense))?;
    let mut times = 0;
    h5!(H5Pget_obj_track_times(from.0, &mut times))?;
    h5!(H5Pset_obj_track_times(to.0, times)).map(drop)
}

/// Whether the order in which an object got its attributes can be asked for. That of an object with large attributes is
/// known, but is no index.
#[cfg(test)]
pub fn orders_attributes(creation: &Id) -> Result<bool> {
    let mut flags = 0;
    h5!(H5Pget_attr_creation_order(creation.0, &mut flags))?;
    Ok(flags & H5P_CRT_ORDER_INDEXED != 0)
}

/// Whether an object tracks the order in which it got its attributes.
pub fn tracks_attributes(creation: &Id) -> Result<bool> {
    let mut flags = 0;
    h5!(H5Pget_attr_creation_order(creation.0, &mut flags))?;
    Ok(flags & H5P_CRT_ORDER_TRACKED != 0)
}

/// Whether a group keeps the order in which it got its links.
#[cfg(test)]
pub fn orders_links(creation: &Id) -> Result<bool> {
    creation_order(creation).map(|flags| flags != 0)
}

/// Allows attributes that are too large for the header of an object. Only objects that track the order of their
/// attributes can have them.
pub fn allow_large_attributes(creation: &Id) -> Result<()> {
    let mut flags = 0;
    h5!(H5Pget_attr_creation_order(creation.0, &mut flags))?;
    h5!(H5Pset_attr_creation_order(
        creation.0,
        flags | H5P_CRT_ORDER_TRACKED
    ))
    .map(drop)
}

/// Lets readers list the links of a group in creation order.
pub fn order_links(creation: &Id) -> Result<()> {
    let flags = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    h5!(H5Pset_link_creation_order(creation.0, flags)).map(drop)
}

/// Lets readers list the attributes of an object in creation order. The attributes may then have any size.
pub fn order_attributes(creation: &Id) -> Result<()> {
    let flags = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    h5!(H5Pset_attr_creation_order(creation.0, flags)).map(drop)
}

pub fn open_group(file: &Id, path: &CStr) -> Result<Id> {
    Id::new(h5!(H5Gopen2(file.0, path.as_ptr(), DEFAULT)))
}

pub fn create_group(parent: &Id, link: &Link, creation: &Id) -> Result<Id> {
    let (name, lcpl) = link.name_and_properties()?;
    let name = name.as_ptr();
    Id::new(h5!(H5Gcreate2(parent.0, name, lcpl, creation.0, DEFAULT)))
}

/// Adds a hard link to an object.
pub fn link_object(object: &Id, parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = link.name_and_properties()?;
    let name = name.as_ptr();
    h5!(H5Olink(object.0, parent.0, name, lcpl, DEFAULT)).map(drop)
}

/// Makes a soft or an external link.
pub fn create_symbolic_link(parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = link.name_and_properties()?;
    let name = name.as_ptr();
    match &link.target {
        Target::Soft(path) => {
            h5!(H5Lcreate_soft(path.as_ptr(), parent.0, name, lcpl, DEFAULT)).map(drop)
        }
        Target::External { file, path } => h5!(H5Lcreate_external(
            file.as_ptr(),
            path.as_ptr(),
            parent.0,
            name,
            lcpl,
            DEFAULT
        ))
        .map(drop),
        Target::Hard(_) | Target::Other(_) | Target::Broken(_) => Err("not a symbolic link".into()),
    }
}

/// Deletes a link. With its last link, the object is deleted.
pub fn delete_link(parent: &Id, link: &Link) -> Result<()> {
    let name = c_name(&link.name)?;
    h5!(H5Ldelete(parent.0, name.as_ptr(), DEFAULT)).map(drop)
}

/// Whether the group has a hard link of this name. A link of another class is an error, because libhdf5 would follow it
/// to any file of the system.
pub fn hard_link_exists(group: &Id, name: &CStr) -> Result<bool> {
    if h5!(H5Lexists(group.0, name.as_ptr(), DEFAULT))? == 0 {
        return Ok(false);
    }
    let mut info = H5L_info1_t::default();
    #[allow(deprecated)] // libhdf5 1.10 has no other.
    h5!(H5Lget_info1(group.0, name.as_ptr(), &mut info, DEFAULT))?;
    // SAFETY: `info` is a local variable; the class is read as a number, because it may lie outside the enumeration.
    match unsafe { (&raw const info.type_).cast::<c_int>().read() } {
        0 => Ok(true),
        _ => Err(format!("{name:?} is no hard link").into()),
    }
}
