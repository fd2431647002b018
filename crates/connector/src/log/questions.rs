//! Queries about a logged dataset that the metadata image cannot answer.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::slice;

use h5logfs_host::types::{Address, SUCCESS, Status};

use super::WrittenLog;
use super::chunks::StoredChunk;
use super::dataset::{Dataset, Wanted};
use crate::arguments::{
    ChunkInfo, ChunkInfoByCoord, ChunkIter, ChunkRead, ChunkStorageSize, ChunkWrite, ChunkWrite2,
    DatasetGet, NumChunks, Optional, Size, dataset_optional as operation,
};
use crate::below::Below;
use crate::below::questions::ask;
use h5logfs_common::fault::Fault;

/// `H5D_ALLOC_TIME_EARLY`.
const EARLY: c_int = 1;
/// `HADDR_UNDEF`.
const NO_ADDRESS: Address = Address::MAX;

/// Queries about the logged datasets of a log.
#[derive(Debug, Clone, Copy)]
pub struct Questions<'a> {
    log: &'a WrittenLog,
}

impl<'a> Questions<'a> {
    #[inline]
    pub(super) fn new(log: &'a WrittenLog) -> Self {
        Questions { log }
    }

    /// `H5Dget_space`, `H5Dget_create_plist`, `H5Dget_storage_size`, `H5Dget_space_status` of a logged dataset.
    pub fn get(
        self,
        below: &Below,
        dataset: &Dataset,
        args: &mut DatasetGet,
    ) -> Result<Option<Status>, Fault> {
        const NOT_ALLOCATED: c_int = 0;
        const ALLOCATED: c_int = 2;
        let is_allocated = dataset.is_written() || dataset.wanted.allocation == Some(EARLY);
        match args.operation {
            DatasetGet::SPACE => {
                // SAFETY: the arguments come from the library.
                let status = below.call(|f, under, vol| unsafe {
                    (f.H5VLdataset_get)(under, vol, args, 0, ptr::null_mut())
                });
                return Ok(Some(status));
            }
            DatasetGet::CREATION => {
                let list = ask(below, DatasetGet::CREATION)?;
                let Wanted {
                    allocation,
                    chunk_options,
                } = dataset.wanted;
                // SAFETY: this function owns the list until it returns it.
                self.log.library.nested(|f| unsafe {
                    if let Some(allocation) = allocation {
                        (f.H5Pset_alloc_time)(list, allocation);
                    }
                    if chunk_options != 0 {
                        (f.H5Pset_chunk_opts)(list, chunk_options);
                    }
                });
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
                // SAFETY: as above.
                unsafe { *args.arguments.stored = stored };
            }
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// The bytes that a native file would allocate for the elements, before filters.
    fn stored(self, dataset: &Dataset) -> Result<u64, Fault> {
        let Some(shape) = &dataset.chunk else {
            return Ok(dataset.bytes(&dataset.dims()));
        };
        if dataset.wanted.allocation == Some(EARLY) {
            let dims = dataset.dims();
            let chunks = dims
                .iter()
                .zip(shape)
                .map(|(d, c)| d.div_ceil(*c))
                .product::<u64>();
            return Ok(chunks.saturating_mul(dataset.bytes(shape)));
        }
        let chunks = self.log.chunks().written(dataset)?.len() as u64;
        Ok(chunks.saturating_mul(dataset.bytes(shape)))
    }

    /// The bytes that a native file would allocate for one chunk, before filters.
    fn allocated_chunk(dataset: &Dataset) -> u64 {
        let shape = dataset.chunk.as_ref();
        shape.map_or(0, |shape| dataset.bytes(shape))
    }

    /// Answers operations of the native connector on a logged dataset.
    ///
    /// # Safety
    ///
    /// The arguments belong to the operation. `is_version_2` says whether they come from HDF5 2.0 or later.
    pub unsafe fn optional(
        self,
        dataset: &Dataset,
        args: &Optional,
        is_version_2: bool,
    ) -> Result<Option<Status>, Fault> {
        let rank = dataset.max_dims.len();
        // SAFETY (all blocks here): guaranteed by the caller; coordinates have a number for each dimension.
        let at = |offset: *const Size| unsafe { slice::from_raw_parts(offset, rank) };
        match args.operation {
            operation::CHUNK_WRITE => {
                let (offset, mask, bytes) = unsafe { chunk_to_write(args.arguments, is_version_2) };
                let chunk = StoredChunk {
                    offset: at(offset),
                    mask,
                    bytes,
                };
                self.log.chunks().write(dataset, chunk)?;
            }
            operation::CHUNK_READ => unsafe {
                let asked = &mut *args.arguments.cast::<ChunkRead>();
                let bytes = self.log.chunks().read(dataset, at(asked.offset))?;
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
                *asked.size = match self.log.chunks().size(dataset, at(asked.offset))? {
                    0 if dataset.wanted.allocation == Some(EARLY) => Self::allocated_chunk(dataset),
                    0 => return Err("the chunk has no storage: nothing was written to it".into()),
                    size => size,
                };
            },
            operation::NUM_CHUNKS => unsafe {
                let asked = &*args.arguments.cast::<NumChunks>();
                *asked.count = self.log.chunks().written(dataset)?.len() as u64;
            },
            operation::CHUNK_INFO => unsafe {
                let asked = &*args.arguments.cast::<ChunkInfo>();
                let chunks = self.log.chunks().written(dataset)?;
                let found = usize::try_from(asked.index)
                    .ok()
                    .and_then(|index| chunks.get(index));
                let found = found.ok_or("there is no chunk of that number")?;
                if !asked.offset.is_null() {
                    ptr::copy_nonoverlapping(found.as_ptr(), asked.offset, rank);
                }
                let size = self.log.chunks().size(dataset, found)?;
                let address = self.address(dataset, found, size, asked.address)?;
                give_facts(asked.filters, asked.address, asked.size, (address, size));
            },
            operation::CHUNK_INFO_BY_COORD => unsafe {
                let asked = &*args.arguments.cast::<ChunkInfoByCoord>();
                let found = self.log.chunks().at(dataset, at(asked.offset))?;
                let facts = match found {
                    Some(chunk) => {
                        let size = self.log.chunks().size(dataset, &chunk)?;
                        (self.address(dataset, &chunk, size, asked.address)?, size)
                    }
                    None => (NO_ADDRESS, 0),
                };
                give_facts(asked.filters, asked.address, asked.size, facts);
            },
            operation::CHUNK_ITER => unsafe {
                let asked = &*args.arguments.cast::<ChunkIter>();
                for chunk in self.log.chunks().written(dataset)? {
                    let size = self.log.chunks().size(dataset, &chunk)?;
                    let place = self.log.chunks().offset(dataset, &chunk, size)?;
                    let address = place.unwrap_or(NO_ADDRESS);
                    let said = (asked.operation)(chunk.as_ptr(), 0, address, size, asked.data);
                    if said != 0 {
                        return Ok(Some(said));
                    }
                }
            },
            operation::OFFSET => unsafe {
                let place = *args.arguments.cast::<*mut Address>();
                *place = self
                    .log
                    .chunks()
                    .offset_of_all(dataset)?
                    .unwrap_or(NO_ADDRESS);
            },
            _ => return Ok(None),
        }
        Ok(Some(SUCCESS))
    }

    /// The address of a chunk, if the program asks for it.
    fn address(
        self,
        dataset: &Dataset,
        offset: &[Size],
        size: Size,
        place: *const Address,
    ) -> Result<Address, Fault> {
        if place.is_null() {
            return Ok(NO_ADDRESS);
        }
        let found = self.log.chunks().offset(dataset, offset, size)?;
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
    // SAFETY: guaranteed by the caller.
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

/// Stores properties of a chunk where the program asks for them.
///
/// # Safety
///
/// Each place is valid, or null.
unsafe fn give_facts(
    filters: *mut c_uint,
    address: *mut Address,
    place: *mut Size,
    (found, size): (Address, Size),
) {
    // SAFETY: guaranteed by the caller.
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
