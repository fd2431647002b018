//! What a program asks of a log that it writes, or of a dataset of it, and the shadow cannot answer.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::slice;

use h5logfs_host::types::{Address, Id, SUCCESS, Status};

use super::Log;
use super::chunks::StoredChunk;
use super::dataset::{
    Dataset, OwnedType, Parts, Storage, extent_of, is_loggable_layout, is_loggable_type,
    remove_foreign_filters,
};
use crate::arguments::{
    ChunkInfo, ChunkInfoByCoord, ChunkIter, ChunkRead, ChunkStorageSize, ChunkWrite, ChunkWrite2,
    DatasetGet, DatasetGetArguments, FileName, Location, LocationData, NumChunks, ObjectGet,
    ObjectGetArguments, ObjectInfo, ObjectName, Optional, Size, Token,
    dataset_optional as operation, kind,
};
use crate::info::{Info, PropertyList};
use crate::library::{Functions, Library};
use crate::object::{Effect, Object};

/// `H5D_ALLOC_TIME_EARLY`.
const EARLY: c_int = 1;
/// `HADDR_UNDEF`.
const NO_ADDRESS: Address = Address::MAX;
/// `H5S_UNLIMITED`.
const UNLIMITED: u64 = u64::MAX;

/// What a dataset that is about to be made becomes.
#[derive(Debug)]
pub struct NewDataset {
    /// Its creation property list in the shadow.
    pub dcpl: Id,
    /// That list, where it is not the program's own.
    _own: Option<PropertyList>,
    /// `None` if its elements will not be logged.
    parts: Option<Parts>,
    /// `H5D_alloc_time_t` that the program asked for.
    allocation: Option<c_int>,
}

impl Log {
    /// Prepares a dataset of this type, with this creation property list.
    pub fn prepare(
        &self,
        info: &Info,
        datatype: Id,
        space: Id,
        dcpl: Id,
    ) -> Result<NewDataset, String> {
        let library = &info.library;
        let is_parallel = self.is_parallel();
        let (parts, late) = library.nested(|f| {
            if !is_loggable_type(f, datatype) || !is_loggable_layout(f, dcpl, is_parallel) {
                return Ok((None, None));
            }
            let Some((dims, max_dims)) = extent_of(f, space) else {
                return Ok((None, None));
            };
            let file_type = self.types.copy(library, f, datatype)?;
            let parts = Parts {
                dims,
                max_dims,
                storage: Storage::of(f, dcpl, &file_type),
                file_type,
            };
            Ok::<_, String>((Some(parts), late_allocation(f, dcpl)))
        })?;
        let own = match (&parts, &late) {
            (Some(_), None) => None,
            (_, late) => Some(shadow_list(library, dcpl, late.as_ref())?),
        };
        Ok(NewDataset {
            dcpl: own.as_ref().map_or(dcpl, |list| list.id),
            _own: own,
            parts,
            allocation: late.map(|late| late.wanted),
        })
    }

    /// A dataset was made in the shadow.
    pub fn made(
        &self,
        object: &Object,
        mut new: NewDataset,
    ) -> Result<Option<std::sync::Arc<Dataset>>, String> {
        let filtered = new.parts.as_mut();
        if let Some(parts) = filtered.filter(|parts| parts.storage.has_filters()) {
            // libhdf5 has told them more.
            parts.storage = storage_of(object, &parts.file_type)?;
        }
        Ok(self.add_dataset(header_of(object)?, new.parts, new.allocation))
    }

    /// The logged dataset that an object is, where it is one.
    pub fn find(&self, object: &Object) -> Result<Option<std::sync::Arc<Dataset>>, String> {
        let header = header_of(object)?;
        if !self.has(header) {
            return Ok(None);
        }
        match self.dataset(header) {
            Some(dataset) => Ok(Some(dataset)),
            // One of an earlier job.
            None => self.load(header, parts_of(object)?),
        }
    }
}

/// Another time at which space is given to elements (`H5D_alloc_time_t`), so that the shadow gives none.
struct LateAllocation {
    /// What the program has asked for.
    wanted: c_int,
    late: c_int,
}

/// A copy of a creation property list for the shadow: with another time of allocation, or for a dataset that is not logged.
fn shadow_list(
    library: &Library,
    dcpl: Id,
    late: Option<&LateAllocation>,
) -> Result<PropertyList, String> {
    let list = PropertyList::copy(library, dcpl);
    let list = list.ok_or("the dataset creation property list cannot be copied")?;
    library.nested(|f| match late {
        // SAFETY: the list is ours.
        Some(LateAllocation { late, .. }) => unsafe {
            (f.H5Pset_alloc_time)(list.id, *late);
        },
        None => remove_foreign_filters(f, list.id),
    });
    Ok(list)
}

/// What has to be changed in the list of a logged dataset. Mostly that is nothing.
fn late_allocation(f: &Functions, dcpl: Id) -> Option<LateAllocation> {
    const LATE: c_int = 2;
    const INCREMENTAL: c_int = 3;
    const COMPACT: c_int = 0;
    const CHUNKED: c_int = 2;
    let mut wanted = 0;
    // SAFETY: the library answers for any identifier, and there is a place for a number.
    let layout = unsafe {
        (f.H5Pget_alloc_time)(dcpl, &mut wanted);
        (f.H5Pget_layout)(dcpl)
    };
    let late = match layout {
        // Their elements lie in the header. libhdf5 takes no other time for them.
        COMPACT => return None,
        CHUNKED => INCREMENTAL,
        _ => LATE,
    };
    (wanted != late).then_some(LateAllocation { wanted, late })
}

/// Where an object lies.
pub struct Place {
    /// The number of its file.
    pub file: u64,
    /// The address of its object header.
    pub header: u64,
}

/// Address of the object header of a dataset of the shadow.
pub fn header_of(object: &Object) -> Result<u64, String> {
    place_of(object, kind::DATASET).map(|place| place.header)
}

/// Where an object of the connector below lies.
pub fn place_of(object: &Object, object_type: c_int) -> Result<Place, String> {
    const BASIC: c_uint = 1;
    /// `H5O_info2_t` begins with the number of the file and the token; it has 104 bytes in HDF5 1.14 to 2.2.
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
    // SAFETY: the object is open, and there is room for the facts.
    let status = object.call(Effect::Reads, |f, under, vol| unsafe {
        (f.H5VLobject_get)(under, &location, vol, &mut args, 0, ptr::null_mut())
    });
    if status < 0 {
        return Err("the place of an object in memory cannot be had".into());
    }
    let mut address = [0; 8];
    address.copy_from_slice(&facts.token.0[..8]);
    Ok(Place {
        file: facts.file,
        header: u64::from_le_bytes(address),
    })
}

/// The path of an object in its file, as a person is told it.
pub fn name_of(object: &Object) -> String {
    path_of(object).map_or_else(
        |_| "without a name".into(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// The path of a dataset in its file.
pub fn path_of(object: &Object) -> Result<CString, String> {
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
    // SAFETY: the object is open, and there is room for the path with a zero byte.
    let status = object.call(Effect::Reads, |f, under, vol| unsafe {
        (f.H5VLobject_get)(under, &location, vol, &mut args, 0, ptr::null_mut())
    });
    let name = CStr::from_bytes_until_nul(&bytes);
    match name {
        Ok(name) if status >= 0 && !name.is_empty() => Ok(name.to_owned()),
        _ => Err("no path leads to it".into()),
    }
}

/// Whether a dataset has an extent. One without has no elements to write.
pub fn has_extent(object: &Object) -> bool {
    let Ok(space) = ask(object, DatasetGet::SPACE) else {
        return true;
    };
    // SAFETY: the identifier is ours, and closed once.
    object.info.library.nested(|f| unsafe {
        let found = extent_of(f, space).is_some();
        (f.H5Sclose)(space);
        found
    })
}

/// Whether an extent has a dimension without a limit.
pub fn is_unlimited(object: &Object) -> bool {
    let Ok(space) = ask(object, DatasetGet::SPACE) else {
        return false;
    };
    // SAFETY: the identifier is ours, and closed once.
    object.info.library.nested(|f| unsafe {
        let found = extent_of(f, space);
        (f.H5Sclose)(space);
        found.is_some_and(|(_, max_dims)| max_dims.contains(&UNLIMITED))
    })
}

/// Asks the shadow for something of a dataset.
fn ask(object: &Object, operation: c_int) -> Result<Id, String> {
    let mut args = DatasetGet {
        operation,
        arguments: DatasetGetArguments { space: -1 },
    };
    // SAFETY: the object is open; all answers that are asked for here are identifiers.
    let status = object.call(Effect::Reads, |f, under, vol| unsafe {
        (f.H5VLdataset_get)(under, vol, &mut args, 0, ptr::null_mut())
    });
    match status {
        // SAFETY: see above.
        0.. => Ok(unsafe { args.arguments.space }),
        _ => Err("a dataset in memory does not say what it is".into()),
    }
}

/// What the creation property list of a dataset of the shadow says.
fn storage_of(object: &Object, datatype: &OwnedType) -> Result<Storage, String> {
    let dcpl = ask(object, DatasetGet::CREATION)?;
    // SAFETY: the identifier is ours, and closed once.
    Ok(object.info.library.nested(|f| unsafe {
        let storage = Storage::of(f, dcpl, datatype);
        (f.H5Pclose)(dcpl);
        storage
    }))
}

/// What a dataset of the shadow is made of.
pub fn parts_of(object: &Object) -> Result<Parts, String> {
    let library = object.info.library;
    let datatype = ask(object, DatasetGet::TYPE)?;
    // SAFETY: the identifier is ours, and closed once.
    let file_type = library.nested(|f| unsafe {
        let copy = OwnedType::copy(&library, f, datatype);
        (f.H5Tclose)(datatype);
        copy
    })?;
    let space = ask(object, DatasetGet::SPACE)?;
    // SAFETY: see above.
    let extent = library.nested(|f| unsafe {
        let extent = extent_of(f, space);
        (f.H5Sclose)(space);
        extent
    });
    let (dims, max_dims) = extent.ok_or("a dataset without an extent")?;
    Ok(Parts {
        dims,
        max_dims,
        storage: storage_of(object, &file_type)?,
        file_type: file_type.into(),
    })
}

/// Whether a library is HDF5 2.0 or later, where some arguments are others.
pub fn is_version_2(library: &Library) -> bool {
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: all three are places for a number.
    library.nested(|f| unsafe { (f.H5get_libversion)(&mut major, &mut minor, &mut release) });
    major >= 2
}

/// Puts the path of a log where a program asks for the name of its file.
pub fn give_name(path: &Path, asked: &FileName) -> Status {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: the library gives a place for the length, and room for `size` bytes or none.
    unsafe {
        if !asked.length.is_null() {
            *asked.length = bytes.len();
        }
        if !asked.name.is_null() && asked.size > 0 {
            let kept = bytes.len().min(asked.size - 1);
            ptr::copy_nonoverlapping(bytes.as_ptr(), asked.name.cast(), kept);
            *asked.name.add(kept) = 0;
        }
    }
    SUCCESS
}

impl Log {
    /// `H5Dget_create_plist`, `H5Dget_storage_size`, `H5Dget_space_status` of a logged dataset.
    pub fn dataset_get(
        &self,
        object: &Object,
        dataset: &Dataset,
        args: &mut DatasetGet,
    ) -> Result<Option<Status>, String> {
        const NOT_ALLOCATED: c_int = 0;
        const ALLOCATED: c_int = 2;
        let is_allocated = dataset.is_written() || dataset.allocation == Some(EARLY);
        match args.operation {
            DatasetGet::CREATION => {
                let list = ask(object, DatasetGet::CREATION)?;
                if let Some(wanted) = dataset.allocation {
                    // SAFETY: the list is ours until it is given away below.
                    object
                        .info
                        .library
                        .nested(|f| unsafe { (f.H5Pset_alloc_time)(list, wanted) });
                }
                args.arguments.creation = list;
            }
            DatasetGet::STATUS => {
                let status = if is_allocated {
                    ALLOCATED
                } else {
                    NOT_ALLOCATED
                };
                // SAFETY: the library gives a place for the answer.
                unsafe { *args.arguments.status = status };
            }
            DatasetGet::STORED => {
                let stored = if is_allocated {
                    self.stored(dataset)?
                } else {
                    0
                };
                // SAFETY: see above.
                unsafe { *args.arguments.stored = stored };
            }
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// Bytes that a native file would give to the elements, before filters.
    fn stored(&self, dataset: &Dataset) -> Result<u64, String> {
        let Some(shape) = &dataset.chunk else {
            return Ok(dataset.bytes(&dataset.dims()));
        };
        if dataset.allocation == Some(EARLY) {
            let dims = dataset.dims();
            let chunks = dims
                .iter()
                .zip(shape)
                .map(|(d, c)| d.div_ceil(*c))
                .product::<u64>();
            return Ok(chunks.saturating_mul(dataset.bytes(shape)));
        }
        let chunks = self.written_chunks(dataset)?.len() as u64;
        Ok(chunks.saturating_mul(dataset.bytes(shape)))
    }

    /// Operations of the native connector on a logged dataset.
    ///
    /// # Safety
    ///
    /// The arguments are those of the operation, of a library whose number is `version`.
    pub unsafe fn dataset_optional(
        &self,
        dataset: &Dataset,
        args: &Optional,
        is_version_2: bool,
    ) -> Result<Option<Status>, String> {
        let rank = dataset.max_dims.len();
        // SAFETY (all blocks here): the caller says so; coordinates have a number for each dimension.
        let at = |offset: *const Size| unsafe { slice::from_raw_parts(offset, rank) };
        match args.operation {
            operation::CHUNK_WRITE => {
                let (offset, mask, bytes) = unsafe { chunk_to_write(args.arguments, is_version_2) };
                let chunk = StoredChunk {
                    offset: at(offset),
                    mask,
                    bytes,
                };
                self.write_chunk(dataset, chunk)?;
            }
            operation::CHUNK_READ => unsafe {
                let asked = &mut *args.arguments.cast::<ChunkRead>();
                let bytes = self.read_chunk(dataset, at(asked.offset))?;
                asked.filters = 0;
                let room = is_version_2
                    .then(|| {
                        *args
                            .arguments
                            .cast::<ChunkRead>()
                            .add(1)
                            .cast::<*mut usize>()
                    })
                    .filter(|place| !place.is_null());
                let fits = room.is_none_or(|room| *room >= bytes.len());
                if let Some(room) = room {
                    *room = bytes.len();
                }
                if fits && !asked.buf.is_null() {
                    ptr::copy_nonoverlapping(bytes.as_ptr(), asked.buf.cast(), bytes.len());
                }
            },
            operation::CHUNK_STORAGE_SIZE => unsafe {
                let asked = &*args.arguments.cast::<ChunkStorageSize>();
                *asked.size = self.chunk_size(dataset, at(asked.offset))?;
            },
            operation::NUM_CHUNKS => unsafe {
                let asked = &*args.arguments.cast::<NumChunks>();
                *asked.count = self.written_chunks(dataset)?.len() as u64;
            },
            operation::CHUNK_INFO => unsafe {
                let asked = &*args.arguments.cast::<ChunkInfo>();
                let chunks = self.written_chunks(dataset)?;
                let found = usize::try_from(asked.index)
                    .ok()
                    .and_then(|index| chunks.get(index));
                let found = found.ok_or("there is no chunk of that number")?;
                if !asked.offset.is_null() {
                    ptr::copy_nonoverlapping(found.as_ptr(), asked.offset, rank);
                }
                let size = self.chunk_size(dataset, found)?;
                let address = self.address(dataset, found, size, asked.address)?;
                give_facts(asked.filters, asked.address, asked.size, (address, size));
            },
            operation::CHUNK_INFO_BY_COORD => unsafe {
                let asked = &*args.arguments.cast::<ChunkInfoByCoord>();
                let found = self.chunk_at(dataset, at(asked.offset))?;
                let facts = match found {
                    Some(chunk) => {
                        let size = self.chunk_size(dataset, &chunk)?;
                        (self.address(dataset, &chunk, size, asked.address)?, size)
                    }
                    None => (NO_ADDRESS, 0),
                };
                give_facts(asked.filters, asked.address, asked.size, facts);
            },
            operation::CHUNK_ITER => unsafe {
                let asked = &*args.arguments.cast::<ChunkIter>();
                for chunk in self.written_chunks(dataset)? {
                    let size = self.chunk_size(dataset, &chunk)?;
                    let place = self.chunk_offset(dataset, &chunk, size)?;
                    let address = place.unwrap_or(NO_ADDRESS);
                    let said = (asked.operation)(chunk.as_ptr(), 0, address, size, asked.data);
                    if said != 0 {
                        return Ok(Some(said));
                    }
                }
            },
            operation::OFFSET => unsafe {
                let place = *args.arguments.cast::<*mut Address>();
                *place = self.offset(dataset)?.unwrap_or(NO_ADDRESS);
            },
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// The address of a chunk, if it is asked for.
    fn address(
        &self,
        dataset: &Dataset,
        offset: &[Size],
        size: Size,
        place: *const Address,
    ) -> Result<Address, String> {
        if place.is_null() {
            return Ok(NO_ADDRESS);
        }
        let found = self.chunk_offset(dataset, offset, size)?;
        Ok(found.unwrap_or(NO_ADDRESS))
    }
}

/// A chunk that a program writes.
///
/// # Safety
///
/// The arguments are those of `H5Dwrite_chunk`.
unsafe fn chunk_to_write<'a>(
    arguments: *const c_void,
    is_version_2: bool,
) -> (*const Size, u32, &'a [u8]) {
    // SAFETY: the caller says so.
    unsafe {
        if is_version_2 {
            let asked = &*arguments.cast::<ChunkWrite2>();
            let bytes = slice::from_raw_parts(asked.buf.cast(), asked.size);
            return (asked.offset, asked.filters, bytes);
        }
        let asked = &*arguments.cast::<ChunkWrite>();
        let bytes = slice::from_raw_parts(asked.buf.cast(), asked.size as usize);
        (asked.offset, asked.filters, bytes)
    }
}

/// Tells facts on a chunk where a program asks for them.
///
/// # Safety
///
/// The places are those of a program, or null.
unsafe fn give_facts(
    filters: *mut c_uint,
    address: *mut Address,
    place: *mut Size,
    (found, size): (Address, Size),
) {
    // SAFETY: the caller says so.
    unsafe {
        if !filters.is_null() {
            *filters = 0;
        }
        if !address.is_null() {
            *address = found;
        }
        if !place.is_null() {
            *place = size;
        }
    }
}
