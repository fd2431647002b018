//! Datasets of the metadata image: creation, look-up, and their properties.

use std::ffi::c_int;
use std::sync::Arc;

use h5logfs_host::types::Id;

use super::WrittenLog;
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

/// A dataset that is about to be made.
#[derive(Debug)]
pub struct NewDataset {
    /// The creation property list for the metadata image.
    pub dcpl: Id,
    /// The owner of that list, if it is a changed copy of the program's list.
    _own: Option<PropertyList>,
    /// The properties of a logged dataset. `None` if its elements will not be logged.
    parts: Option<Parts>,
    /// Creation properties that the program asked for and the metadata image lacks.
    wanted: Wanted,
}

/// The datasets in the metadata image of a log.
#[derive(Debug, Clone, Copy)]
pub struct Datasets<'a> {
    log: &'a WrittenLog,
}

impl<'a> Datasets<'a> {
    #[inline]
    pub(super) fn new(log: &'a WrittenLog) -> Self {
        Datasets { log }
    }

    /// Prepares the creation of a dataset with this type, extent and creation property list.
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

    /// Registers a dataset that was made in the metadata image.
    pub fn made(self, object: &Below, mut new: NewDataset) -> Result<Option<Arc<Dataset>>, Fault> {
        let filtered = new.parts.as_mut();
        if let Some(parts) = filtered.filter(|parts| parts.storage.has_filters()) {
            // libhdf5 may have completed the properties on creation, so they are read back.
            parts.storage = storage_of(object, &parts.file_type)?;
        }
        Ok(self
            .log
            .add_dataset(header_of(object)?, new.parts, new.wanted))
    }

    /// The logged dataset behind an object. `None` if it is not logged.
    pub fn find(self, object: &Below) -> Result<Option<Arc<Dataset>>, Fault> {
        let header = header_of(object)?;
        if !self.log.has(header) {
            return Ok(None);
        }
        match self.log.dataset(header) {
            Some(dataset) => Ok(Some(dataset)),
            // An earlier job made the dataset, and this one uses it for the first time.
            None => self.log.load(header, self.parts_of(object)?),
        }
    }

    /// Reads the properties of a dataset in the metadata image.
    pub fn parts_of(self, object: &Below) -> Result<Parts, Fault> {
        let library = &self.log.library;
        let datatype = ask(object, DatasetGet::TYPE)?;
        // SAFETY: `ask` gave this function the identifier, which is closed once.
        let file_type = library.nested(|f| unsafe {
            let like = self
                .log
                .types
                .like(library, f, datatype, &self.log.constants.predefined);
            (f.H5Tclose)(datatype);
            like
        })?;
        let space = ask(object, DatasetGet::SPACE)?;
        // SAFETY: as above.
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

/// Changes to the creation property list of a logged dataset. Most lists need none.
#[derive(Default)]
struct Changes {
    wanted: Wanted,
    /// An allocation time (`H5D_alloc_time_t`) so late that the metadata image never allocates space for elements.
    late: c_int,
}

impl Changes {
    /// The changes that a list needs. `layout`: the layout in the list.
    fn of(f: &Functions, dcpl: Id, layout: c_int) -> Self {
        const LATE: c_int = 2;
        const INCREMENTAL: c_int = 3;
        const COMPACT: c_int = 0;
        const CHUNKED: c_int = 2;
        let (mut allocation, mut chunk_options) = (0, 0);
        // SAFETY: the library checks any identifier, and the places for the answers are valid.
        let is_told = unsafe { (f.H5Pget_alloc_time)(dcpl, &mut allocation) } >= 0;
        let late = match layout {
            // Elements of a compact dataset lie in the object header. libhdf5 accepts no other allocation time for them.
            COMPACT => return Changes::default(),
            CHUNKED => {
                // SAFETY: as above.
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

    /// Applies the changes to a list that this crate owns.
    fn make(&self, f: &Functions, list: Id) {
        // SAFETY: the library checks any identifier.
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

/// Copies a creation property list for the metadata image, and changes the copy.
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

/// Whether a dataset has an extent. A dataset without one has no elements to write.
pub fn has_extent(object: &Below) -> bool {
    let Ok(space) = ask(object, DatasetGet::SPACE) else {
        return true;
    };
    // SAFETY: `ask` gave this function the identifier, which is closed once.
    object.info.library.nested(|f| unsafe {
        let found = extent_of(f, space).is_some();
        (f.H5Sclose)(space);
        found
    })
}

/// Whether the extent of a dataset may change.
pub fn can_change(object: &Below) -> bool {
    let Ok(space) = ask(object, DatasetGet::SPACE) else {
        return false;
    };
    // SAFETY: `ask` gave this function the identifier, which is closed once.
    object.info.library.nested(|f| unsafe {
        let found = extent_of(f, space);
        (f.H5Sclose)(space);
        found.is_some_and(|(dims, max_dims)| dims != max_dims)
    })
}

/// Reads the creation property list of a dataset in the metadata image.
fn storage_of(object: &Below, datatype: &OwnedType) -> Result<Storage, Fault> {
    let dcpl = ask(object, DatasetGet::CREATION)?;
    // SAFETY: `ask` gave this function the identifier, which is closed once.
    Ok(object.info.library.nested(|f| unsafe {
        let storage = Storage::of(f, Creation::of(f, dcpl), datatype);
        (f.H5Pclose)(dcpl);
        storage
    }))
}
