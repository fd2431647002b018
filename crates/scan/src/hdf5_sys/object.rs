//! Objects of any kind, and the properties of their names.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Group,
    Dataset,
    Datatype,
}

#[derive(Debug, Clone, Copy)]
pub struct ObjectInfo {
    pub address: u64,
    pub kind: Kind,
    /// Version of the object header.
    pub version: u32,
    /// Number of pieces of the object header.
    pub pieces: u32,
    /// Access, modification, change and birth in seconds since 1970; 0 if not stored.
    pub times: [u32; 4],
}

pub fn open_object(file: &Id, address: u64) -> Result<Id> {
    Id::new(h5!(H5Oopen_by_addr(file.0, address)))
}

/// Opens the object at a path below `group`.
pub fn open_path(group: &Id, path: &CStr) -> Result<Id> {
    Id::new(h5!(H5Oopen(group.0, path.as_ptr(), DEFAULT)))
}

/// `H5O_INFO_HDR`. The binding has it for libhdf5 1.10 alone, but later versions accept it in the functions of 1.10,
/// too.
const H5O_INFO_HDR: c_uint = 8;

pub fn object_info(object: &Id) -> Result<ObjectInfo> {
    const FIELDS: c_uint = H5O_INFO_BASIC | H5O_INFO_TIME | H5O_INFO_HDR;
    let mut info = H5O_info1_t::default();
    h5!(H5Oget_info2(object.0, &mut info, FIELDS))?;
    let kind = match info.type_ {
        H5O_type_t::H5O_TYPE_GROUP => Kind::Group,
        H5O_type_t::H5O_TYPE_DATASET => Kind::Dataset,
        H5O_type_t::H5O_TYPE_NAMED_DATATYPE => Kind::Datatype,
        _ => return Err("an object of unknown kind".into()),
    };
    let times = [info.atime, info.mtime, info.ctime, info.btime];
    Ok(ObjectInfo {
        address: info.addr,
        kind,
        version: info.hdr.version,
        pieces: info.hdr.nchunks,
        times: times.map(|t| u32::try_from(t).unwrap_or(0)),
    })
}

/// The address of an open object in its file.
pub fn address(object: &Id) -> Result<u64> {
    let mut info = H5O_info1_t::default();
    h5!(H5Oget_info2(object.0, &mut info, H5O_INFO_BASIC))?;
    Ok(info.addr)
}

pub fn comment(object: &Id) -> Result<Option<CString>> {
    let len = h5!(H5Oget_comment(object.0, ptr::null_mut(), 0))? as usize;
    if len == 0 {
        return Ok(None);
    }
    let mut text = vec![0u8; len + 1];
    h5!(H5Oget_comment(
        object.0,
        text.as_mut_ptr().cast::<c_char>(),
        text.len()
    ))?;
    text.truncate(len);
    Ok(CString::new(text).ok())
}

pub fn set_comment(object: &Id, text: &CStr) -> Result<()> {
    #[allow(deprecated)] // The user's file has the comment, so the view has it.
    h5!(H5Oset_comment(object.0, text.as_ptr())).map(drop)
}

/// The kinds of things with names.
#[derive(Clone, Copy)]
pub(super) enum Named {
    Link,
    Attribute,
}

/// The property list for a new link or attribute, with the character set of its name. Only four such lists exist,
/// because a new one for every name would take as long as the rest of a scan.
pub(super) fn name_properties(named: Named, utf8: bool) -> Result<hid_t> {
    static LISTS: [OnceLock<Id>; 4] = [const { OnceLock::new() }; 4];
    let list = &LISTS[2 * named as usize + usize::from(utf8)];
    if let Some(known) = list.get() {
        return Ok(known.0);
    }
    let class = match named {
        Named::Link => &H5P_CLS_LINK_CREATE,
        Named::Attribute => &H5P_CLS_ATTRIBUTE_CREATE,
    };
    let set = if utf8 {
        H5T_cset_t::H5T_CSET_UTF8
    } else {
        H5T_cset_t::H5T_CSET_ASCII
    };
    let new = Id::new(h5!(H5Pcreate(**class)))?;
    h5!(H5Pset_char_encoding(new.0, set))?;
    Ok(list.get_or_init(|| new).0)
}
