//! Datasets that are made in the shadow, or found there: what they are made of.

use std::ffi::c_int;
use std::sync::Arc;

use h5logfs_host::types::Id;

use super::Log;
use super::dataset::{
    Dataset, OwnedType, Parts, Storage, extent_of, is_loggable_layout, is_loggable_type,
    remove_foreign_filters,
};
use crate::arguments::DatasetGet;
use crate::below::Below;
use crate::below::list::PropertyList;
use crate::below::questions::{ask, header_of};
use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;

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
    pub fn prepare(&self, datatype: Id, space: Id, dcpl: Id) -> Result<NewDataset, Fault> {
        let library = &self.library;
        let is_parallel = self.is_parallel();
        let (parts, late) = library.nested(|f| {
            if !is_loggable_type(f, datatype) || !is_loggable_layout(f, dcpl, is_parallel) {
                return Ok((None, None));
            }
            let Some((dims, max_dims)) = extent_of(f, space) else {
                return Ok((None, None));
            };
            let file_type = self.types.like(library, f, datatype, &self.predefined)?;
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
    pub fn made(&self, object: &Below, mut new: NewDataset) -> Result<Option<Arc<Dataset>>, Fault> {
        let filtered = new.parts.as_mut();
        if let Some(parts) = filtered.filter(|parts| parts.storage.has_filters()) {
            // libhdf5 has told them more.
            parts.storage = storage_of(object, &parts.file_type)?;
        }
        Ok(self.add_dataset(header_of(object)?, new.parts, new.allocation))
    }

    /// The logged dataset that an object is, where it is one.
    pub fn find(&self, object: &Below) -> Result<Option<Arc<Dataset>>, Fault> {
        let header = header_of(object)?;
        if !self.has(header) {
            return Ok(None);
        }
        match self.dataset(header) {
            Some(dataset) => Ok(Some(dataset)),
            // One of an earlier job.
            None => self.load(header, self.parts_of(object)?),
        }
    }

    /// What a dataset of the shadow is made of.
    pub fn parts_of(&self, object: &Below) -> Result<Parts, Fault> {
        let library = &self.library;
        let datatype = ask(object, DatasetGet::TYPE)?;
        // SAFETY: the identifier is ours, and closed once.
        let file_type = library.nested(|f| unsafe {
            let like = self.types.like(library, f, datatype, &self.predefined);
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
) -> Result<PropertyList, Fault> {
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

/// Whether an extent has a dimension without a limit.
pub fn is_unlimited(object: &Below) -> bool {
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

/// What the creation property list of a dataset of the shadow says.
fn storage_of(object: &Below, datatype: &OwnedType) -> Result<Storage, Fault> {
    let dcpl = ask(object, DatasetGet::CREATION)?;
    // SAFETY: the identifier is ours, and closed once.
    Ok(object.info.library.nested(|f| unsafe {
        let storage = Storage::of(f, dcpl, datatype);
        (f.H5Pclose)(dcpl);
        storage
    }))
}
