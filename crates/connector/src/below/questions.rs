//! Queries about objects of the connector below: address, path, properties.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;

use h5logfs_host::types::Id;

use super::Below;
use super::info::Info;
use super::list::PropertyList;
use crate::arguments::{
    DatasetGet, DatasetGetArguments, FileGet, FileGetArguments, Location, LocationData,
    ObjectCount, ObjectGet, ObjectGetArguments, ObjectInfo, ObjectName, Token, kind,
};
use h5logfs_common::fault::Fault;

/// The place of an object.
pub struct Place {
    /// The number of the file.
    pub file: u64,
    /// The address of its object header.
    pub header: u64,
}

/// The address of a dataset's object header.
pub fn header_of(object: &Below) -> Result<u64, Fault> {
    place_of(object, kind::DATASET).map(|place| place.header)
}

/// The place of an object. `object_type`: its kind.
pub fn place_of(object: &Below, object_type: c_int) -> Result<Place, Fault> {
    const BASIC: c_uint = 1;
    /// `H5O_info2_t` begins with the file number and the token. It has 104 bytes in HDF5 1.14 to 2.2.
    #[repr(C, align(8))]
    struct Facts {
        file: u64,
        token: Token,
        rest: [u8; 232],
    }
    let mut facts = Facts {
        file: 0,
        token: Token([0; 16]),
        rest: [0; 232],
    };
    let mut token = Token([0; 16]);
    let location = Location {
        from: object_type,
        by: Location::SELF,
        data: LocationData { token: &mut token },
    };
    let mut args = ObjectGet {
        operation: ObjectGet::INFO,
        arguments: ObjectGetArguments {
            info: ObjectInfo {
                fields: BASIC,
                info: (&raw mut facts).cast(),
            },
        },
    };
    // SAFETY: the object is open, and `facts` is larger than the structure.
    let status = object.quietly(|f, under, vol| unsafe {
        (f.H5VLobject_get)(under, &location, vol, &mut args, 0, ptr::null_mut())
    });
    if status < 0 {
        return Err("the address of an object in memory cannot be read".into());
    }
    let mut address = [0; 8];
    address.copy_from_slice(&facts.token.0[..8]);
    Ok(Place {
        file: facts.file,
        header: u64::from_le_bytes(address),
    })
}

/// The path of an object in its file, for messages.
pub fn name_of(object: &Below) -> String {
    path_of(object).map_or_else(
        |_| "without a name".into(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// The path of a dataset in its file.
pub fn path_of(object: &Below) -> Result<CString, Fault> {
    /// Longer paths are cut.
    const ROOM: usize = 1 << 16;
    let mut bytes = vec![0u8; ROOM];
    let mut length = 0;
    let location = Location {
        from: kind::DATASET,
        by: Location::SELF,
        data: LocationData {
            token: ptr::null_mut(),
        },
    };
    let mut args = ObjectGet {
        operation: ObjectGet::NAME,
        arguments: ObjectGetArguments {
            name: ObjectName {
                size: ROOM,
                name: bytes.as_mut_ptr().cast(),
                length: &mut length,
            },
        },
    };
    // SAFETY: the object is open, and `bytes` has room for the path and a zero byte.
    let status = object.quietly(|f, under, vol| unsafe {
        (f.H5VLobject_get)(under, &location, vol, &mut args, 0, ptr::null_mut())
    });
    let name = CStr::from_bytes_until_nul(&bytes);
    match name {
        Ok(name) if status >= 0 && !name.is_empty() => Ok(name.to_owned()),
        _ => Err("no path leads to it".into()),
    }
}

/// Queries a dataset. `operation`: one of those of [`DatasetGet`] that return an identifier.
pub fn ask(object: &Below, operation: c_int) -> Result<Id, Fault> {
    let mut args = DatasetGet {
        operation,
        arguments: DatasetGetArguments { space: -1 },
    };
    // SAFETY: the object is open. All operations used here return identifiers.
    let status = object.quietly(|f, under, vol| unsafe {
        (f.H5VLdataset_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    match status {
        // SAFETY: as above.
        0.. => Ok(unsafe { args.arguments.space }),
        _ => Err("libhdf5 does not answer a query about a dataset in memory".into()),
    }
}

/// A property list of a dataset. `operation`: [`DatasetGet::ACCESS`] or [`DatasetGet::CREATION`].
pub fn list_of(dataset: &Below, operation: c_int) -> Option<PropertyList> {
    let list = ask(dataset, operation).ok()?;
    Some(PropertyList::own(dataset.library(), list))
}

/// The number that the library assigned to an open native file.
pub fn number_of(info: &Info, file: *mut c_void) -> Result<u64, Fault> {
    let mut number = 0;
    let mut args = FileGet {
        operation: FileGet::NUMBER,
        arguments: FileGetArguments {
            number: &mut number,
        },
    };
    // SAFETY: the file is open, and the arguments belong to the operation.
    let status = info.library.quietly(|f| unsafe {
        (f.H5VLfile_get)(file, info.under_vol, &mut args, 0, ptr::null_mut())
    });
    match status {
        0.. => Ok(number),
        _ => Err("the number of a file cannot be read".into()),
    }
}

/// The number of objects that a program has opened through this handle of a file, and not closed.
pub fn opened_through(file: &Below) -> Result<usize, Fault> {
    /// `H5F_OBJ_DATASET`, `_GROUP`, `_DATATYPE`, `_ATTR`, and `_LOCAL`, which excludes objects of other handles.
    const OBJECTS_OF_HANDLE: c_uint = 0x3e;
    open_objects(file, OBJECTS_OF_HANDLE)
}

/// The number of open objects of a file. `kinds`: flags `H5F_OBJ_*`.
pub fn open_objects(file: &Below, kinds: c_uint) -> Result<usize, Fault> {
    let mut count = 0;
    let mut args = FileGet {
        operation: FileGet::OBJECT_COUNT,
        arguments: FileGetArguments {
            object_count: ObjectCount {
                kinds,
                count: &mut count,
            },
        },
    };
    // SAFETY: the file is open, and the place for the answer is valid.
    let status = file.quietly(|f, under, vol| unsafe {
        (f.H5VLfile_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    match status {
        0.. => Ok(count),
        _ => Err("the open objects of a file cannot be counted".into()),
    }
}
