//! The raw libhdf5 calls that the safe crate lacks, each wrapped once.
//!
//! libhdf5 is not reentrant: every call takes the process-wide lock. Errors are libhdf5's own words.
//! Names that come from a file are bytes, not necessarily UTF-8.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5a::*;
use hdf5_metno_sys::h5d::*;
use hdf5_metno_sys::h5f::*;
use hdf5_metno_sys::h5g::*;
use hdf5_metno_sys::h5i::{H5Idec_ref, H5Iget_type, H5Iinc_ref, hid_t};
use hdf5_metno_sys::h5l::*;
use hdf5_metno_sys::h5o::*;
use hdf5_metno_sys::h5p::*;
use hdf5_metno_sys::h5pl::H5PLset_loading_state;
use hdf5_metno_sys::h5r::*;
use hdf5_metno_sys::h5s::*;
use hdf5_metno_sys::h5t::*;

pub use hdf5_metno_sys::h5s::H5S_UNLIMITED as UNLIMITED;

pub type Result<T> = std::result::Result<T, String>;

/// An address that libhdf5 has not assigned.
const UNDEFINED: u64 = u64::MAX;

const DEFAULT: hid_t = H5P_DEFAULT;

/// Calls libhdf5 under its lock; a negative result is an error.
///
/// SAFETY of the calls: identifiers come from libhdf5 itself and are held by an [`Id`], so that they
/// are alive; pointers are to memory of this process that outlives the call, of the size that the
/// call is told or documents.
macro_rules! h5 {
    ($call:expr) => {
        hdf5::sync::sync(|| check(unsafe { $call }))
    };
}

fn check<T: PartialOrd + From<i8>>(result: T) -> Result<T> {
    if result >= T::from(0) {
        return Ok(result);
    }
    Err(hdf5::Error::query().map_or_else(
        |_| "libhdf5 failed and does not say why".to_owned(),
        |e| e.to_string(),
    ))
}

/// An identifier that is given back when dropped.
#[derive(Debug)]
pub struct Id(hid_t);

impl Id {
    fn new(id: Result<hid_t>) -> Result<Self> {
        id.map(Id)
    }
}

impl Clone for Id {
    fn clone(&self) -> Self {
        // Fails for a dead identifier only, which an Id never is.
        let _ = h5!(H5Iinc_ref(self.0));
        Id(self.0)
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        let _ = h5!(H5Idec_ref(self.0));
    }
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| "a name with a zero byte".to_owned())
}

/// Forbids libhdf5 to load filter plugins: code that a user's file or environment names.
pub fn forbid_plugins() -> Result<()> {
    let mut none: c_int = 0;
    h5!(H5PLset_loading_state(&mut none)).map(drop)
}

// --- files ---------------------------------------------------------------------------------------

/// Opens a file for reading; never locks it.
pub fn open_file(path: &CStr) -> Result<Id> {
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_file_locking(access.0, 0, 1))?;
    Id::new(h5!(H5Fopen(path.as_ptr(), H5F_ACC_RDONLY, access.0)))
}

/// Creates a file in memory only, of the oldest format that can hold what is put into it.
/// `creation`: of the root group.
pub fn create_in_memory(creation: &Id) -> Result<Id> {
    const INCREMENT: usize = 1 << 20;
    let access = Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_ACCESS)))?;
    h5!(H5Pset_fapl_core(access.0, INCREMENT, 0))?;
    h5!(H5Pset_libver_bounds(
        access.0,
        H5F_libver_t::H5F_LIBVER_EARLIEST,
        H5F_LIBVER_LATEST
    ))?;
    let name = c"image";
    Id::new(h5!(H5Fcreate(
        name.as_ptr(),
        H5F_ACC_TRUNC,
        creation.0,
        access.0
    )))
}

/// The bytes of an in-memory file.
pub fn file_image(file: &Id) -> Result<Vec<u8>> {
    h5!(H5Fflush(file.0, H5F_scope_t::H5F_SCOPE_LOCAL))?;
    let len = h5!(H5Fget_file_image(file.0, ptr::null_mut(), 0))?;
    let mut image = vec![0u8; len as usize];
    h5!(H5Fget_file_image(
        file.0,
        image.as_mut_ptr().cast(),
        image.len()
    ))?;
    Ok(image)
}

pub fn file_creation(file: &Id) -> Result<Id> {
    Id::new(h5!(H5Fget_create_plist(file.0)))
}

pub fn new_file_creation() -> Result<Id> {
    Id::new(h5!(H5Pcreate(*H5P_CLS_FILE_CREATE)))
}

/// Bytes of the user block in front of a file.
pub fn user_block(creation: &Id) -> Result<u64> {
    let mut size = 0;
    h5!(H5Pget_userblock(creation.0, &mut size))?;
    Ok(size)
}

// --- objects -------------------------------------------------------------------------------------

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
    pub attributes: u64,
    /// Version of the object header.
    pub version: u32,
    /// Access, modification, change, birth, in seconds since 1970; 0 where not kept.
    pub times: [u32; 4],
}

pub fn open_object(file: &Id, address: u64) -> Result<Id> {
    Id::new(h5!(H5Oopen_by_addr(file.0, address)))
}

pub fn object_info(object: &Id) -> Result<ObjectInfo> {
    const FIELDS: c_uint = H5O_INFO_BASIC | H5O_INFO_TIME | H5O_INFO_NUM_ATTRS | H5O_INFO_HDR;
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
        attributes: info.num_attrs,
        version: info.hdr.version,
        times: times.map(|t| u32::try_from(t).unwrap_or(0)),
    })
}

/// The address of an open object, in its file.
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
    #[allow(deprecated)] // The comment is what the user's file has.
    h5!(H5Oset_comment(object.0, text.as_ptr())).map(drop)
}

/// Properties of links and attributes to be made: the character set of their names.
pub fn named(class_of_attributes: bool, utf8: bool) -> Result<Id> {
    let class = match class_of_attributes {
        true => &H5P_CLS_ATTRIBUTE_CREATE,
        false => &H5P_CLS_LINK_CREATE,
    };
    let plist = Id::new(h5!(H5Pcreate(**class)))?;
    let set = match utf8 {
        true => H5T_cset_t::H5T_CSET_UTF8,
        false => H5T_cset_t::H5T_CSET_ASCII,
    };
    h5!(H5Pset_char_encoding(plist.0, set))?;
    Ok(plist)
}

// --- groups and links ----------------------------------------------------------------------------

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

pub fn group_creation(group: &Id) -> Result<Id> {
    // A file identifier stands for its root group.
    let is_file = hdf5::sync::sync(|| unsafe { H5Iget_type(group.0) })
        == hdf5_metno_sys::h5i::H5I_type_t::H5I_FILE;
    match is_file {
        true => file_creation(group),
        false => Id::new(h5!(H5Gget_create_plist(group.0))),
    }
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

pub fn open_group(file: &Id, path: &CStr) -> Result<Id> {
    Id::new(h5!(H5Gopen2(file.0, path.as_ptr(), DEFAULT)))
}

pub fn create_group(parent: &Id, link: &Link, creation: &Id) -> Result<Id> {
    let (name, lcpl) = (c_name(&link.name)?, named(false, link.utf8)?);
    let name = name.as_ptr();
    Id::new(h5!(H5Gcreate2(parent.0, name, lcpl.0, creation.0, DEFAULT)))
}

/// One more name for an object, or the first one for an anonymous one.
pub fn link_object(object: &Id, parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = (c_name(&link.name)?, named(false, link.utf8)?);
    let name = name.as_ptr();
    h5!(H5Olink(object.0, parent.0, name, lcpl.0, DEFAULT)).map(drop)
}

/// A soft or an external link.
pub fn create_symbolic_link(parent: &Id, link: &Link) -> Result<()> {
    let (name, lcpl) = (c_name(&link.name)?, named(false, link.utf8)?);
    let name = name.as_ptr();
    match &link.target {
        Target::Soft(path) => h5!(H5Lcreate_soft(
            path.as_ptr(),
            parent.0,
            name,
            lcpl.0,
            DEFAULT
        ))
        .map(drop),
        Target::External { file, path } => h5!(H5Lcreate_external(
            file.as_ptr(),
            path.as_ptr(),
            parent.0,
            name,
            lcpl.0,
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

/// Whether a link of this name exists in the group.
pub fn link_exists(group: &Id, name: &CStr) -> Result<bool> {
    h5!(H5Lexists(group.0, name.as_ptr(), DEFAULT)).map(|found| found > 0)
}

// --- datatypes -----------------------------------------------------------------------------------

/// What matters of a datatype for moving values: where references and variable-length parts lie.
/// Offsets and sizes are those of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// Bytes that can be copied as they are.
    Plain,
    /// A variable-length string: a pointer in memory.
    VariableString,
    ObjectReference,
    RegionReference,
    /// Members that are not plain.
    Compound(Vec<(usize, Shape)>),
    Array {
        count: usize,
        size: usize,
        base: Box<Shape>,
    },
    /// A variable-length sequence: in memory a length and a pointer.
    Sequence {
        size: usize,
        base: Box<Shape>,
    },
}

/// Nesting that no sane type has.
const DEEPEST: usize = 64;

impl Shape {
    pub fn of(datatype: &Id) -> Result<Self> {
        Self::nested(datatype, 0)
    }

    fn nested(datatype: &Id, depth: usize) -> Result<Self> {
        if depth > DEEPEST {
            return Err("a datatype nested too deeply".into());
        }
        let class = hdf5::sync::sync(|| unsafe { H5Tget_class(datatype.0) });
        let base = || {
            let base = Id::new(h5!(H5Tget_super(datatype.0)))?;
            Ok::<_, String>((type_size(&base)?, Self::nested(&base, depth + 1)?))
        };
        Ok(match class {
            H5T_class_t::H5T_STRING if h5!(H5Tis_variable_str(datatype.0))? > 0 => {
                Shape::VariableString
            }
            H5T_class_t::H5T_REFERENCE => match type_size(datatype)? {
                8 => Shape::ObjectReference,
                12 => Shape::RegionReference,
                other => return Err(format!("a reference of {other} bytes")),
            },
            H5T_class_t::H5T_COMPOUND => {
                let mut members = Vec::new();
                for number in 0..h5!(H5Tget_nmembers(datatype.0))? as c_uint {
                    let member = Id::new(h5!(H5Tget_member_type(datatype.0, number)))?;
                    let shape = Self::nested(&member, depth + 1)?;
                    if shape != Shape::Plain {
                        let offset = hdf5::sync::sync(|| unsafe {
                            H5Tget_member_offset(datatype.0, number)
                        });
                        members.push((offset, shape));
                    }
                }
                match members.is_empty() {
                    true => Shape::Plain,
                    false => Shape::Compound(members),
                }
            }
            H5T_class_t::H5T_ARRAY => match base()? {
                (_, Shape::Plain) => Shape::Plain,
                (size, base) => Shape::Array {
                    count: type_size(datatype)? / size.max(1),
                    size,
                    base: Box::new(base),
                },
            },
            H5T_class_t::H5T_VLEN => {
                let (size, base) = base()?;
                Shape::Sequence {
                    size,
                    base: Box::new(base),
                }
            }
            _ => Shape::Plain,
        })
    }

    /// Whether values hold pointers to memory of libhdf5.
    pub fn has_pointers(&self) -> bool {
        match self {
            Shape::VariableString | Shape::Sequence { .. } => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_pointers()),
            Shape::Array { base, .. } => base.has_pointers(),
            _ => false,
        }
    }

    pub fn has_references(&self) -> bool {
        match self {
            Shape::ObjectReference | Shape::RegionReference => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_references()),
            Shape::Array { base, .. } | Shape::Sequence { base, .. } => base.has_references(),
            _ => false,
        }
    }

    pub fn has_regions(&self) -> bool {
        match self {
            Shape::RegionReference => true,
            Shape::Compound(members) => members.iter().any(|(_, m)| m.has_regions()),
            Shape::Array { base, .. } | Shape::Sequence { base, .. } => base.has_regions(),
            _ => false,
        }
    }

    /// Offsets of the object references in an element without pointers.
    pub fn object_references(&self, at: usize, found: &mut Vec<u64>) {
        match self {
            Shape::ObjectReference => found.push(at as u64),
            Shape::Compound(members) => {
                for (offset, member) in members {
                    member.object_references(at + offset, found);
                }
            }
            Shape::Array { count, size, base } => {
                for i in 0..*count {
                    base.object_references(at + i * size, found);
                }
            }
            _ => {}
        }
    }
}

pub fn type_size(datatype: &Id) -> Result<usize> {
    match hdf5::sync::sync(|| unsafe { H5Tget_size(datatype.0) }) {
        0 => Err("a datatype without a size".into()),
        size => Ok(size),
    }
}

/// The address of a committed type; `None` for one that belongs to its user alone.
pub fn committed(datatype: &Id) -> Result<Option<u64>> {
    match h5!(H5Tcommitted(datatype.0))? > 0 {
        true => address(datatype).map(Some),
        false => Ok(None),
    }
}

/// Commits a copy of a type to a file, as yet without a name.
pub fn commit_copy(file: &Id, datatype: &Id) -> Result<Id> {
    let copy = Id::new(h5!(H5Tcopy(datatype.0)))?;
    let creation = Id::new(h5!(H5Tget_create_plist(datatype.0)))?;
    h5!(H5Tcommit_anon(file.0, copy.0, creation.0, DEFAULT))?;
    Ok(copy)
}

/// The type in the words of a person: `32-bit integer`, `compound of 24 bytes`.
pub fn describe_type(datatype: &Id) -> String {
    let size = type_size(datatype).unwrap_or(0);
    let big = hdf5::sync::sync(|| unsafe { H5Tget_order(datatype.0) }) == H5T_order_t::H5T_ORDER_BE;
    let order = if big { ", big-endian" } else { "" };
    match hdf5::sync::sync(|| unsafe { H5Tget_class(datatype.0) }) {
        H5T_class_t::H5T_INTEGER => {
            let sign = hdf5::sync::sync(|| unsafe { H5Tget_sign(datatype.0) });
            let letter = if sign == H5T_sign_t::H5T_SGN_NONE {
                'u'
            } else {
                'i'
            };
            format!("{letter}{}{order}", size * 8)
        }
        H5T_class_t::H5T_FLOAT => format!("f{}{order}", size * 8),
        H5T_class_t::H5T_STRING => match h5!(H5Tis_variable_str(datatype.0)) {
            Ok(found) if found > 0 => "string".into(),
            _ => format!("string of {size}"),
        },
        H5T_class_t::H5T_BITFIELD => format!("bits {}{order}", size * 8),
        H5T_class_t::H5T_OPAQUE => format!("opaque of {size}"),
        H5T_class_t::H5T_COMPOUND => format!("compound of {size}"),
        H5T_class_t::H5T_REFERENCE if size == 8 => "object reference".into(),
        H5T_class_t::H5T_REFERENCE => "region reference".into(),
        H5T_class_t::H5T_ENUM => format!("enum {}{order}", size * 8),
        H5T_class_t::H5T_VLEN => "sequence".into(),
        H5T_class_t::H5T_ARRAY => format!("array of {size}"),
        _ => format!("{size} bytes"),
    }
}

// --- dataspaces ----------------------------------------------------------------------------------

/// The extent of a dataspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Space {
    Null,
    /// Without dimensions: a scalar. `max` holds [`UNLIMITED`] for unlimited dimensions.
    Simple {
        dims: Vec<u64>,
        max: Vec<u64>,
    },
}

impl Space {
    pub fn of(id: &Id) -> Result<Self> {
        let class = hdf5::sync::sync(|| unsafe { H5Sget_simple_extent_type(id.0) });
        if class == H5S_class_t::H5S_NULL {
            return Ok(Space::Null);
        }
        let rank = h5!(H5Sget_simple_extent_ndims(id.0))? as usize;
        let (mut dims, mut max) = (vec![0; rank], vec![0; rank]);
        h5!(H5Sget_simple_extent_dims(
            id.0,
            dims.as_mut_ptr(),
            max.as_mut_ptr()
        ))?;
        Ok(Space::Simple { dims, max })
    }

    /// Number of elements; `None` past what can be counted.
    pub fn elements(&self) -> Option<u64> {
        match self {
            Space::Null => Some(0),
            Space::Simple { dims, .. } => dims.iter().try_fold(1u64, |n, d| n.checked_mul(*d)),
        }
    }

    pub fn create(&self) -> Result<Id> {
        match self {
            Space::Null => Id::new(h5!(H5Screate(H5S_class_t::H5S_NULL))),
            Space::Simple { dims, .. } if dims.is_empty() => {
                Id::new(h5!(H5Screate(H5S_class_t::H5S_SCALAR)))
            }
            Space::Simple { dims, max } => {
                let rank = dims.len() as c_int;
                Id::new(h5!(H5Screate_simple(rank, dims.as_ptr(), max.as_ptr())))
            }
        }
    }
}

pub fn select_block(space: &Id, start: &[u64], count: &[u64], add: bool) -> Result<()> {
    let how = match add {
        true => H5S_seloper_t::H5S_SELECT_OR,
        false => H5S_seloper_t::H5S_SELECT_SET,
    };
    h5!(H5Sselect_hyperslab(
        space.0,
        how,
        start.as_ptr(),
        ptr::null(),
        count.as_ptr(),
        ptr::null()
    ))
    .map(drop)
}

/// A hyperslab in libhdf5's own four terms.
pub fn select_regular(space: &Id, [start, stride, count, block]: [&[u64]; 4]) -> Result<()> {
    h5!(H5Sselect_hyperslab(
        space.0,
        H5S_seloper_t::H5S_SELECT_SET,
        start.as_ptr(),
        stride.as_ptr(),
        count.as_ptr(),
        block.as_ptr()
    ))
    .map(drop)
}

/// Points, the coordinates of each in turn.
pub fn select_points(space: &Id, number: usize, coordinates: &[u64]) -> Result<()> {
    h5!(H5Sselect_elements(
        space.0,
        H5S_seloper_t::H5S_SELECT_SET,
        number,
        coordinates.as_ptr()
    ))
    .map(drop)
}

pub fn select_none(space: &Id) -> Result<()> {
    h5!(H5Sselect_none(space.0)).map(drop)
}

/// A reference to the selected elements of a dataset.
pub fn create_region_reference(dataset: &Id, space: &Id) -> Result<[u8; 12]> {
    let mut reference = [0u8; 12];
    h5!(H5Rcreate(
        reference.as_mut_ptr().cast(),
        dataset.0,
        c".".as_ptr(),
        H5R_type_t::H5R_DATASET_REGION,
        space.0
    ))?;
    Ok(reference)
}

// --- datasets ------------------------------------------------------------------------------------

pub fn open_dataset(group: &Id, name: &CStr) -> Result<Id> {
    Id::new(h5!(H5Dopen2(group.0, name.as_ptr(), DEFAULT)))
}

pub fn dataset_space(dataset: &Id) -> Result<Space> {
    Space::of(&Id::new(h5!(H5Dget_space(dataset.0)))?)
}

pub fn dataset_type(dataset: &Id) -> Result<Id> {
    Id::new(h5!(H5Dget_type(dataset.0)))
}

pub fn dataset_creation(dataset: &Id) -> Result<Id> {
    Id::new(h5!(H5Dget_create_plist(dataset.0)))
}

/// Where the bytes of a contiguous dataset start, from byte 0 of the file; `None` where it has none.
pub fn dataset_offset(dataset: &Id) -> Option<u64> {
    let offset = hdf5::sync::sync(|| unsafe { H5Dget_offset(dataset.0) });
    (offset != UNDEFINED).then_some(offset)
}

pub fn storage_size(dataset: &Id) -> u64 {
    hdf5::sync::sync(|| unsafe { H5Dget_storage_size(dataset.0) })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageClass {
    Compact,
    Contiguous,
    Chunked,
    /// Its elements lie in other files.
    Elsewhere,
}

pub fn storage_class(creation: &Id) -> Result<StorageClass> {
    if h5!(H5Pget_external_count(creation.0))? > 0 {
        return Ok(StorageClass::Elsewhere);
    }
    Ok(match h5!(H5Pget_layout(creation.0) as c_int)? {
        0 => StorageClass::Compact,
        1 => StorageClass::Contiguous,
        2 => StorageClass::Chunked,
        _ => StorageClass::Elsewhere,
    })
}

pub fn set_contiguous(creation: &Id) -> Result<()> {
    h5!(H5Pset_layout(creation.0, H5D_layout_t::H5D_CONTIGUOUS))?;
    h5!(H5Pset_alloc_time(
        creation.0,
        H5D_alloc_time_t::H5D_ALLOC_TIME_LATE
    ))
    .map(drop)
}

pub fn set_chunked(creation: &Id, chunk: &[u64]) -> Result<()> {
    h5!(H5Pset_chunk(
        creation.0,
        chunk.len() as c_int,
        chunk.as_ptr()
    ))?;
    h5!(H5Pset_alloc_time(
        creation.0,
        H5D_alloc_time_t::H5D_ALLOC_TIME_INCR
    ))
    .map(drop)
}

/// Whether the dataset keeps the time of its last change.
pub fn track_times(creation: &Id, track: bool) -> Result<()> {
    h5!(H5Pset_obj_track_times(creation.0, track.into())).map(drop)
}

pub fn remove_filters(creation: &Id) -> Result<()> {
    const ALL: c_int = 0;
    match h5!(H5Pget_nfilters(creation.0))? {
        0 => Ok(()),
        _ => h5!(H5Premove_filter(creation.0, ALL)).map(drop),
    }
}

pub fn add_filter(creation: &Id, id: i32, flags: u32, values: &[u32]) -> Result<()> {
    h5!(H5Pset_filter(
        creation.0,
        id,
        flags,
        values.len(),
        values.as_ptr()
    ))
    .map(drop)
}

/// The filters of a pipeline: identifier, flags, values.
pub fn filters(creation: &Id) -> Result<Vec<(i32, u32, Vec<u32>)>> {
    const MOST_VALUES: usize = 256;
    let mut filters = Vec::new();
    for number in 0..h5!(H5Pget_nfilters(creation.0))? as c_uint {
        let (mut flags, mut config) = (0, 0);
        let mut count = MOST_VALUES;
        let mut values = vec![0; MOST_VALUES];
        let id = h5!(H5Pget_filter2(
            creation.0,
            number,
            &mut flags,
            &mut count,
            values.as_mut_ptr(),
            0,
            ptr::null_mut(),
            &mut config
        ))?;
        if count > MOST_VALUES {
            return Err(format!("filter {id} has {count} values"));
        }
        values.truncate(count);
        filters.push((id, flags, values));
    }
    Ok(filters)
}

/// One element of fill value in the given type; empty where none was defined by the user.
pub fn fill_value(creation: &Id, datatype: &Id) -> Result<Vec<u8>> {
    let mut state = H5D_fill_value_t::H5D_FILL_VALUE_DEFAULT;
    h5!(H5Pfill_value_defined(creation.0, &mut state))?;
    if state != H5D_fill_value_t::H5D_FILL_VALUE_USER_DEFINED {
        return Ok(Vec::new());
    }
    let mut value = vec![0u8; type_size(datatype)?];
    h5!(H5Pget_fill_value(
        creation.0,
        datatype.0,
        value.as_mut_ptr().cast()
    ))?;
    Ok(value)
}

pub fn create_dataset(
    parent: &Id,
    link: &Link,
    datatype: &Id,
    space: &Id,
    creation: &Id,
) -> Result<Id> {
    let (name, lcpl) = (c_name(&link.name)?, named(false, link.utf8)?);
    Id::new(h5!(H5Dcreate2(
        parent.0,
        name.as_ptr(),
        datatype.0,
        space.0,
        lcpl.0,
        creation.0,
        DEFAULT
    )))
}

/// The selected elements of a dataset, in its own type.
pub fn read_elements(dataset: &Id, values: &mut Values, memory: &Id, file: &Id) -> Result<()> {
    h5!(H5Dread(
        dataset.0,
        values.datatype.0,
        memory.0,
        file.0,
        DEFAULT,
        values.bytes.as_mut_ptr().cast()
    ))
    .map(drop)
}

pub fn write_elements(dataset: &Id, values: &Values, memory: &Id, file: &Id) -> Result<()> {
    h5!(H5Dwrite(
        dataset.0,
        values.datatype.0,
        memory.0,
        file.0,
        DEFAULT,
        values.bytes.as_ptr().cast()
    ))
    .map(drop)
}

// --- attributes ----------------------------------------------------------------------------------

/// The attributes of an object, opened: in creation order where the object keeps it, else by name.
pub fn open_attributes(object: &Id, count: u64) -> Result<Vec<Id>> {
    // By creation order libhdf5 answers for every object; where it is not kept the order is that of
    // the header.
    (0..count)
        .map(|number| {
            Id::new(h5!(H5Aopen_by_idx(
                object.0,
                c".".as_ptr(),
                H5_index_t::H5_INDEX_CRT_ORDER,
                H5_iter_order_t::H5_ITER_INC,
                number,
                DEFAULT,
                DEFAULT
            )))
        })
        .collect()
}

/// An attribute by its name, if there is one.
pub fn open_attribute(object: &Id, name: &CStr) -> Result<Option<Id>> {
    if h5!(H5Aexists(object.0, name.as_ptr()))? == 0 {
        return Ok(None);
    }
    Id::new(h5!(H5Aopen(object.0, name.as_ptr(), DEFAULT))).map(Some)
}

pub fn attribute_name(attribute: &Id) -> Result<Vec<u8>> {
    let len = h5!(H5Aget_name(attribute.0, 0, ptr::null_mut()))? as usize;
    let mut name = vec![0u8; len + 1];
    let buffer = name.as_mut_ptr().cast::<c_char>();
    h5!(H5Aget_name(attribute.0, len + 1, buffer))?;
    name.truncate(len);
    Ok(name)
}

pub fn attribute_is_utf8(attribute: &Id) -> Result<bool> {
    let mut info = H5A_info_t::default();
    h5!(H5Aget_info(attribute.0, &mut info))?;
    Ok(info.cset == H5T_cset_t::H5T_CSET_UTF8)
}

pub fn attribute_storage(attribute: &Id) -> u64 {
    hdf5::sync::sync(|| unsafe { H5Aget_storage_size(attribute.0) })
}

pub fn attribute_space(attribute: &Id) -> Result<Id> {
    Id::new(h5!(H5Aget_space(attribute.0)))
}

pub fn attribute_type(attribute: &Id) -> Result<Id> {
    Id::new(h5!(H5Aget_type(attribute.0)))
}

/// The values of an attribute, in its own type.
pub fn read_attribute(attribute: &Id) -> Result<Values> {
    let space = attribute_space(attribute)?;
    let datatype = attribute_type(attribute)?;
    let mut values = Values::zeros(datatype, space)?;
    if !values.bytes.is_empty() {
        let buffer = values.bytes.as_mut_ptr().cast();
        h5!(H5Aread(attribute.0, values.datatype.0, buffer))?;
    }
    Ok(values)
}

/// The integers of an attribute, whatever their width in the file; at most `most` of them.
pub fn read_integers(attribute: &Id, most: u64) -> Result<Vec<i64>> {
    let count = Space::of(&attribute_space(attribute)?)?.elements();
    let count = count.filter(|n| *n <= most).ok_or("too many values")?;
    let datatype = attribute_type(attribute)?;
    let class = hdf5::sync::sync(|| unsafe { H5Tget_class(datatype.0) });
    if class != H5T_class_t::H5T_INTEGER {
        return Err("not integers".into());
    }
    let mut values = vec![0i64; count as usize];
    if count > 0 {
        let buffer = values.as_mut_ptr().cast();
        h5!(H5Aread(attribute.0, *H5T_NATIVE_INT64, buffer))?;
    }
    Ok(values)
}

/// Makes an attribute of the values' type (or `datatype`, its committed form) and space.
pub fn write_attribute(
    object: &Id,
    (name, utf8): (&[u8], bool),
    datatype: &Id,
    values: &Values,
) -> Result<()> {
    let (name, acpl) = (c_name(name)?, named(true, utf8)?);
    let attribute = Id::new(h5!(H5Acreate2(
        object.0,
        name.as_ptr(),
        datatype.0,
        values.space.0,
        acpl.0,
        DEFAULT
    )))?;
    if values.bytes.is_empty() {
        return Ok(());
    }
    let buffer = values.bytes.as_ptr().cast();
    h5!(H5Awrite(attribute.0, values.datatype.0, buffer)).map(drop)
}

/// Values in memory as libhdf5 lays them out; variable-length parts are its own allocations.
#[derive(Debug)]
pub struct Values {
    datatype: Id,
    space: Id,
    shape: Shape,
    size: usize,
    bytes: Vec<u8>,
}

/// Bytes of one attribute, or of one stretch of a dataset, that are moved at once.
const LARGEST_VALUES: u64 = 1 << 30;

impl Values {
    /// Room for the elements of `space`.
    pub fn zeros(datatype: Id, space: Id) -> Result<Self> {
        let size = type_size(&datatype)?;
        let bytes = Space::of(&space)?
            .elements()
            .and_then(|n| n.checked_mul(size as u64))
            .filter(|n| *n <= LARGEST_VALUES)
            .ok_or("too many values")?;
        Ok(Values {
            shape: Shape::of(&datatype)?,
            datatype,
            space,
            size,
            bytes: vec![0; bytes as usize],
        })
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    pub fn datatype(&self) -> &Id {
        &self.datatype
    }

    /// Calls `change` with every reference: 8 bytes of an object's, 12 of a region's.
    pub fn change_references(
        &mut self,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if !self.shape.has_references() {
            return Ok(());
        }
        for element in self.bytes.chunks_exact_mut(self.size) {
            change_in(&self.shape, element, change)?;
        }
        Ok(())
    }
}

fn change_in(
    shape: &Shape,
    value: &mut [u8],
    change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    match shape {
        Shape::ObjectReference => change(&mut value[..8]),
        Shape::RegionReference => change(&mut value[..12]),
        Shape::Compound(members) => members
            .iter()
            .try_for_each(|(offset, member)| change_in(member, &mut value[*offset..], change)),
        Shape::Array { count, size, base } => value
            .chunks_exact_mut(*size)
            .take(*count)
            .try_for_each(|element| change_in(base, element, change)),
        Shape::Sequence { size, base } if base.has_references() => {
            let mut sequence = hvl_t {
                len: 0,
                p: ptr::null_mut(),
            };
            // SAFETY: a sequence in memory is one `hvl_t`, which libhdf5 filled when it read the
            // value: `len` elements of `size` bytes at `p`, or nothing.
            let elements = unsafe {
                ptr::copy_nonoverlapping(
                    value.as_ptr(),
                    (&raw mut sequence).cast(),
                    size_of::<hvl_t>(),
                );
                match sequence.p.is_null() {
                    true => &mut [],
                    false => std::slice::from_raw_parts_mut(
                        sequence.p.cast::<u8>(),
                        sequence.len.saturating_mul(*size),
                    ),
                }
            };
            elements
                .chunks_exact_mut(*size)
                .try_for_each(|element| change_in(base, element, change))
        }
        Shape::Plain | Shape::VariableString | Shape::Sequence { .. } => Ok(()),
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if self.shape.has_pointers() && !self.bytes.is_empty() {
            let buffer = self.bytes.as_mut_ptr().cast();
            // What libhdf5 allocated it frees; there is nobody to tell if it cannot.
            let _ = h5!(H5Dvlen_reclaim(
                self.datatype.0,
                self.space.0,
                DEFAULT,
                buffer
            ));
        }
    }
}
