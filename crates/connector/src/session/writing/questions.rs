//! What a program asks of a log that it writes, or of a dataset of it, and the shadow cannot answer.

use std::ffi::{CStr, c_int, c_uint, c_void};
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
use crate::class::{
    ChunkInfo, ChunkInfoByCoord, ChunkIter, ChunkRead, ChunkStorageSize, ChunkWrite, ChunkWrite2,
    DatasetGet, DatasetGetArguments, FileName, Location, LocationData, NumChunks, ObjectGet,
    ObjectGetArguments, ObjectInfo, ObjectName, Optional, Size, Token,
    dataset_optional as operation, kind,
};
use crate::info::{Info, PropertyList};
use crate::library::Library;
use crate::object::{Effect, Object};

/// `H5D_ALLOC_TIME_EARLY`.
const EARLY: c_int = 1;
/// `HADDR_UNDEF`.
const NO_ADDRESS: Address = Address::MAX;

/// What a dataset that is about to be made becomes.
#[derive(Debug)]
pub struct NewDataset {
    /// Its creation property list in the shadow.
    pub dcpl: PropertyList,
    /// The elements will be logged.
    is_logged: bool,
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
        let is_parallel = self.is_parallel();
        let list = PropertyList::copy(&info.library, dcpl);
        let list = list.ok_or("the dataset creation property list cannot be copied")?;
        let is_logged = info.library.nested(|f| {
            is_loggable_type(f, datatype)
                && is_loggable_layout(f, list.id, is_parallel)
                && extent_of(f, space).is_some()
        });
        let mut new = NewDataset {
            dcpl: list,
            is_logged,
            allocation: None,
        };
        if is_logged {
            new.allocation = late_allocation(info, new.dcpl.id);
        } else {
            info.library
                .nested(|f| remove_foreign_filters(f, new.dcpl.id));
        }
        Ok(new)
    }

    /// A dataset was made in the shadow.
    pub fn made(
        &self,
        object: &Object,
        new: &NewDataset,
    ) -> Result<Option<std::sync::Arc<Dataset>>, String> {
        let parts = if new.is_logged {
            Some(parts_of(object)?)
        } else {
            None
        };
        Ok(self.add_dataset(header_of(object)?, parts, new.allocation))
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

/// Lets the shadow give no space to elements. Returns what the program has asked for, if that is something else.
fn late_allocation(info: &Info, dcpl: Id) -> Option<c_int> {
    const LATE: c_int = 2;
    const INCREMENTAL: c_int = 3;
    const COMPACT: c_int = 0;
    const CHUNKED: c_int = 2;
    let mut wanted = 0;
    // SAFETY: the list is ours.
    info.library.nested(|f| unsafe {
        (f.H5Pget_alloc_time)(dcpl, &mut wanted);
        let late = match (f.H5Pget_layout)(dcpl) {
            // Their elements lie in the header. libhdf5 takes no other time for them.
            COMPACT => return None,
            CHUNKED => INCREMENTAL,
            _ => LATE,
        };
        (wanted != late).then(|| (f.H5Pset_alloc_time)(dcpl, late));
        (wanted != late).then_some(wanted)
    })
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
    /// Longer paths are cut.
    const ROOM: usize = 1024;
    let mut bytes = [0u8; ROOM];
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
        Ok(name) if status >= 0 && !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => "without a name".into(),
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

/// A type that is no object of a file. A committed one would keep the session open in which it is kept.
fn transient(datatype: OwnedType, library: Library) -> Result<OwnedType, String> {
    // SAFETY: the identifier is ours.
    let copy = library.nested(|f| unsafe { (f.H5Tcopy)(datatype.id) });
    match copy {
        0.. => Ok(OwnedType::new(copy, library)),
        _ => Err("a datatype cannot be copied".into()),
    }
}

/// What a dataset of the shadow is made of.
pub fn parts_of(object: &Object) -> Result<Parts, String> {
    let library = object.info.library;
    let datatype = transient(
        OwnedType::new(ask(object, DatasetGet::TYPE)?, library),
        library,
    )?;
    let space = ask(object, DatasetGet::SPACE)?;
    let dcpl = ask(object, DatasetGet::CREATION)?;
    // SAFETY: the identifiers are ours, and closed once.
    library.nested(|f| unsafe {
        let element = (f.H5Tget_size)(datatype.id);
        let extent = extent_of(f, space);
        let storage = Storage::of(f, dcpl, &datatype, element);
        (f.H5Sclose)(space);
        (f.H5Pclose)(dcpl);
        let (dims, max_dims) = extent.ok_or("a dataset without an extent")?;
        Ok(Parts {
            file_type: datatype,
            dims,
            max_dims,
            storage,
        })
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
            return Ok(dataset.bytes(&dataset.extent.lock().dims));
        };
        if dataset.allocation == Some(EARLY) {
            let dims = dataset.extent.lock().dims.clone();
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
                give_facts(asked.filters, asked.address, asked.size, size);
            },
            operation::CHUNK_INFO_BY_COORD => unsafe {
                let asked = &*args.arguments.cast::<ChunkInfoByCoord>();
                let size = self.chunk_size_at(dataset, at(asked.offset))?;
                give_facts(asked.filters, asked.address, asked.size, size);
            },
            operation::CHUNK_ITER => unsafe {
                let asked = &*args.arguments.cast::<ChunkIter>();
                for chunk in self.written_chunks(dataset)? {
                    let size = self.chunk_size(dataset, &chunk)?;
                    let said = (asked.operation)(chunk.as_ptr(), 0, NO_ADDRESS, size, asked.data);
                    if said != 0 {
                        return Ok(Some(said));
                    }
                }
            },
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
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

/// Tells facts on a chunk where a program asks for them. It has no address in a file.
///
/// # Safety
///
/// The places are those of a program, or null.
unsafe fn give_facts(filters: *mut c_uint, address: *mut Address, place: *mut Size, size: Size) {
    // SAFETY: the caller says so.
    unsafe {
        if !filters.is_null() {
            *filters = 0;
        }
        if !address.is_null() {
            *address = NO_ADDRESS;
        }
        if !place.is_null() {
            *place = size;
        }
    }
}
