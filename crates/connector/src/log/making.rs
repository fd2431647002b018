//! Datasets that are made in the metadata image, or found there: what they are made of.

use std::ffi::c_int;
use std::sync::Arc;

use h5logfs_host::types::Id;

use super::Log;
use super::dataset::{
    Creation, Dataset, OwnedType, Parts, Storage, Wanted, extent_of, is_loggable_type,
    remove_foreign_filters,
};
use crate::arguments::DatasetGet;
use crate::below::Below;
use crate::below::list::PropertyList;
use crate::below::questions::{ask, header_of};
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

/// What a dataset that is about to be made becomes.
#[derive(Debug)]
pub struct NewDataset {
    /// Its creation property list in the metadata image.
    pub dcpl: Id,
    /// That list, where it is not the program's own.
    _own: Option<PropertyList>,
    /// `None` if its elements will not be logged.
    parts: Option<Parts>,
    /// What the program asked for, and its list in the metadata image has not.
    wanted: Wanted,
}

/// The datasets of a log: made in the metadata image, or found there.
#[derive(Debug, Clone, Copy)]
pub struct Datasets<'a> {
    log: &'a Log,
}

impl<'a> Datasets<'a> {
    #[inline]
    pub(super) fn new(log: &'a Log) -> Self {
        Datasets { log }
    }

    /// Prepares a dataset of this type, with this creation property list.
    pub fn prepare(self, datatype: Id, space: Id, dcpl: Id) -> Result<NewDataset, Fault> {
        let library = &self.log.library;
        let is_parallel = self.log.is_parallel();
        let (parts, changes) = library.nested(|f| {
            if !is_loggable_type(f, datatype) {
                return Ok((None, Changes::default()));
            }
            let creation = Creation::of(f, dcpl);
            if !creation.is_loggable(f, is_parallel) {
                return Ok((None, Changes::default()));
            }
            let Some((dims, max_dims)) = extent_of(f, space) else {
                return Ok((None, Changes::default()));
            };
            let file_type =
                self.log
                    .types
                    .like(library, f, datatype, &self.log.constants.predefined)?;
            let changes = Changes::of(f, dcpl, creation.layout);
            let parts = Parts {
                dims,
                max_dims,
                storage: Storage::of(f, creation, &file_type),
                file_type,
            };
            Ok::<_, String>((Some(parts), changes))
        })?;
        let own = match parts {
            Some(_) if changes.wanted == Wanted::default() => None,
            Some(_) => Some(logged_list(library, dcpl, |f, list| changes.make(f, list))?),
            None => Some(logged_list(library, dcpl, remove_foreign_filters)?),
        };
        Ok(NewDataset {
            dcpl: own.as_ref().map_or(dcpl, |list| list.id),
            _own: own,
            parts,
            wanted: changes.wanted,
        })
    }

    /// A dataset was made in the metadata image.
    pub fn made(self, object: &Below, mut new: NewDataset) -> Result<Option<Arc<Dataset>>, Fault> {
        let filtered = new.parts.as_mut();
        if let Some(parts) = filtered.filter(|parts| parts.storage.has_filters()) {
            // libhdf5 has told them more.
            parts.storage = storage_of(object, &parts.file_type)?;
        }
        Ok(self
            .log
            .add_dataset(header_of(object)?, new.parts, new.wanted))
    }

    /// The logged dataset that an object is, where it is one.
    pub fn find(self, object: &Below) -> Result<Option<Arc<Dataset>>, Fault> {
        let header = header_of(object)?;
        if !self.log.has(header) {
            return Ok(None);
        }
        match self.log.dataset(header) {
            Some(dataset) => Ok(Some(dataset)),
            // One of an earlier job.
            None => self.log.load(header, self.parts_of(object)?),
        }
    }

    /// What a dataset of the metadata image is made of.
    pub fn parts_of(self, object: &Below) -> Result<Parts, Fault> {
        let library = &self.log.library;
        let datatype = ask(object, DatasetGet::TYPE)?;
        // SAFETY: the identifier is ours, and closed once.
        let file_type = library.nested(|f| unsafe {
            let like = self
                .log
                .types
                .like(library, f, datatype, &self.log.constants.predefined);
            (f.H5Tclose)(datatype);
            like
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
            file_type,
        })
    }
}

/// What has to be changed in the creation property list of a logged dataset. Mostly that is nothing.
#[derive(Default)]
struct Changes {
    wanted: Wanted,
    /// The time at which space is given to elements (`H5D_alloc_time_t`), so that the metadata image gives none.
    late: c_int,
}

impl Changes {
    /// `layout`: that of the list.
    fn of(f: &Functions, dcpl: Id, layout: c_int) -> Self {
        const LATE: c_int = 2;
        const INCREMENTAL: c_int = 3;
        const COMPACT: c_int = 0;
        const CHUNKED: c_int = 2;
        let (mut allocation, mut chunk_options) = (0, 0);
        // SAFETY: the library answers for any identifier, and there are places for numbers.
        let is_told = unsafe { (f.H5Pget_alloc_time)(dcpl, &mut allocation) } >= 0;
        let late = match layout {
            // Their elements lie in the header. libhdf5 takes no other time for them.
            COMPACT => return Changes::default(),
            CHUNKED => {
                // SAFETY: see above.
                if unsafe { (f.H5Pget_chunk_opts)(dcpl, &mut chunk_options) } < 0 {
                    chunk_options = 0;
                }
                INCREMENTAL
            }
            _ => LATE,
        };
        let wanted = Wanted {
            allocation: (is_told && allocation != late).then_some(allocation),
            chunk_options,
        };
        Changes { wanted, late }
    }

    /// Makes them in a list of ours.
    fn make(&self, f: &Functions, list: Id) {
        // SAFETY: the library answers for any identifier.
        unsafe {
            if self.wanted.allocation.is_some() {
                (f.H5Pset_alloc_time)(list, self.late);
            }
            if self.wanted.chunk_options != 0 {
                (f.H5Pset_chunk_opts)(list, 0);
            }
        }
    }
}

/// A changed copy of a creation property list for the metadata image.
fn logged_list(
    library: &Library,
    dcpl: Id,
    change: impl FnOnce(&Functions, Id),
) -> Result<PropertyList, Fault> {
    let list = PropertyList::copy(library, dcpl);
    let list = list.ok_or("the dataset creation property list cannot be copied")?;
    library.nested(|f| change(f, list.id));
    Ok(list)
}

/// Whether a dataset has an extent. One without has no elements to write.
pub fn has_extent(object: &Below) -> bool {
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

/// Whether an extent may be another one at another time.
pub fn can_change(object: &Below) -> bool {
    let Ok(space) = ask(object, DatasetGet::SPACE) else {
        return false;
    };
    // SAFETY: the identifier is ours, and closed once.
    object.info.library.nested(|f| unsafe {
        let found = extent_of(f, space);
        (f.H5Sclose)(space);
        found.is_some_and(|(dims, max_dims)| dims != max_dims)
    })
}

/// What the creation property list of a dataset of the metadata image says.
fn storage_of(object: &Below, datatype: &OwnedType) -> Result<Storage, Fault> {
    let dcpl = ask(object, DatasetGet::CREATION)?;
    // SAFETY: the identifier is ours, and closed once.
    Ok(object.info.library.nested(|f| unsafe {
        let storage = Storage::of(f, Creation::of(f, dcpl), datatype);
        (f.H5Pclose)(dcpl);
        storage
    }))
}
