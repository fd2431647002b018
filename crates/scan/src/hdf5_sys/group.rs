//! Groups and the links in them.

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Address of an object.
    Hard(u64),
    Soft(CString),
    External {
        file: CString,
        path: CString,
    },
    /// A class of links that only the writing program knew.
    Other(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: Vec<u8>,
    pub utf8: bool,
    pub target: Target,
}

/// The links of a group, by creation order where the group keeps it, else by name.
pub fn links(group: &Id) -> Result<Vec<Link>> {
    struct Seen {
        links: Vec<(Vec<u8>, bool, i32, u64)>,
    }
    unsafe extern "C" fn visit(
        _: hid_t,
        name: *const c_char,
        info: *const H5L_info1_t,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: libhdf5 passes a name, a filled info and our own `Seen`. The kind is read as a
        // number, for it may be none of the enumeration; `u` is 8 bytes in every case.
        unsafe {
            let seen = &mut *data.cast::<Seen>();
            let kind = (&raw const (*info).type_).cast::<c_int>().read();
            let utf8 = (&raw const (*info).cset).cast::<c_int>().read() == 1;
            let value = (&raw const (*info).u).cast::<u64>().read();
            let name = CStr::from_ptr(name).to_bytes().to_vec();
            seen.links.push((name, utf8, kind, value));
        }
        0
    }
    let index = match creation_order(&group_creation(group)?)? & H5P_CRT_ORDER_INDEXED {
        0 => H5_index_t::H5_INDEX_NAME,
        _ => H5_index_t::H5_INDEX_CRT_ORDER,
    };
    let mut seen = Seen { links: Vec::new() };
    let mut position = 0;
    h5!(H5Literate(
        group.0,
        index,
        H5_iter_order_t::H5_ITER_INC,
        &mut position,
        Some(visit),
        (&raw mut seen).cast()
    ))?;
    seen.links
        .into_iter()
        .map(|(name, utf8, kind, value)| {
            let target = match kind {
                0 => Target::Hard(value),
                1 => soft_target(group, &name, value as usize)?,
                64 => external_target(group, &name, value as usize)?,
                other => Target::Other(other),
            };
            Ok(Link { name, utf8, target })
        })
        .collect()
}

fn link_value(group: &Id, name: &[u8], size: usize) -> Result<Vec<u8>> {
    const LARGEST: usize = 1 << 20;
    if size > LARGEST {
        return Err(format!("a link value of {size} bytes"));
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

fn soft_target(group: &Id, name: &[u8], size: usize) -> Result<Target> {
    let mut value = link_value(group, name, size)?;
    let len = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    value.truncate(len);
    c_name(&value).map(Target::Soft)
}

/// The value of an external link: a byte of version and flags, then file name and object path, each
/// ended by a zero byte (HDF5 File Format Specification, IV.A.2.g).
fn external_target(group: &Id, name: &[u8], size: usize) -> Result<Target> {
    let value = link_value(group, name, size)?;
    let mut parts = value.get(1..).unwrap_or_default().split(|b| *b == 0);
    match (parts.next(), parts.next()) {
        (Some(file), Some(path)) => Ok(Target::External {
            file: c_name(file)?,
            path: c_name(path)?,
        }),
        _ => Err("a broken external link".into()),
    }
}

/// Of a file's root group too: the file's own list does not know what the group was made with.
pub fn group_creation(group: &Id) -> Result<Id> {
    Id::new(h5!(H5Gget_create_plist(group.0)))
}

fn creation_order(creation: &Id) -> Result<c_uint> {
    let mut flags = 0;
    h5!(H5Pget_link_creation_order(creation.0, &mut flags))?;
    Ok(flags)
}

/// Copies what a group's creation properties say of its links and attributes.
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

/// Makes an object keep attributes that are too large for its header: only headers that track the
/// order of attributes can.
pub fn allow_large_attributes(creation: &Id) -> Result<()> {
    let mut flags = 0;
    h5!(H5Pget_attr_creation_order(creation.0, &mut flags))?;
    h5!(H5Pset_attr_creation_order(
        creation.0,
        flags | H5P_CRT_ORDER_TRACKED
    ))
    .map(drop)
}

/// Makes a group keep the order in which its links were made, so that readers can list them in it.
pub fn order_links(creation: &Id) -> Result<()> {
    let flags = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    h5!(H5Pset_link_creation_order(creation.0, flags)).map(drop)
}

/// The same for the attributes of an object; they may be of any size then.
pub fn order_attributes(creation: &Id) -> Result<()> {
    let flags = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;
    h5!(H5Pset_attr_creation_order(creation.0, flags)).map(drop)
}

pub fn open_group(file: &Id, path: &CStr) -> Result<Id> {
    Id::new(h5!(H5Gopen2(file.0, path.as_ptr(), DEFAULT)))
}

pub fn create_group(parent: &Id, link: &Link, creation: &Id) -> Result<Id> {
    let (name, lcpl) = (
        c_name(&link.name)?,
        name_properties(Named::Link, link.utf8)?,
    );
    let name = name.as_ptr();
    Id::new(h5!(H5Gcreate2(parent.0, name, lcpl, creation.0, DEFAULT)))
}

/// One more name for an object, or the first one for an anonymous one.
pub fn link_object(object: &Id, parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = (
        c_name(&link.name)?,
        name_properties(Named::Link, link.utf8)?,
    );
    let name = name.as_ptr();
    h5!(H5Olink(object.0, parent.0, name, lcpl, DEFAULT)).map(drop)
}

/// A soft or an external link.
pub fn create_symbolic_link(parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = (
        c_name(&link.name)?,
        name_properties(Named::Link, link.utf8)?,
    );
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
        Target::Hard(_) | Target::Other(_) => Err("not a symbolic link".into()),
    }
}

/// Takes a name away, and with its last name the object.
pub fn delete_link(parent: &Id, link: &Link) -> Result<()> {
    let name = c_name(&link.name)?;
    h5!(H5Ldelete(parent.0, name.as_ptr(), DEFAULT)).map(drop)
}

/// Whether a hard link of this name exists in the group. A link of another kind is an error: to
/// follow it could lead libhdf5 anywhere in the file system.
pub fn hard_link_exists(group: &Id, name: &CStr) -> Result<bool> {
    if h5!(H5Lexists(group.0, name.as_ptr(), DEFAULT))? == 0 {
        return Ok(false);
    }
    let mut info = H5L_info1_t::default();
    h5!(H5Lget_info1(group.0, name.as_ptr(), &mut info, DEFAULT))?;
    // SAFETY: `info` is ours; the kind is read as a number, for it may be none of the enumeration.
    match unsafe { (&raw const info.type_).cast::<c_int>().read() } {
        0 => Ok(true),
        _ => Err(format!("{name:?} is no hard link")),
    }
}
