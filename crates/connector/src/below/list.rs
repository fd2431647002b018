//! Property lists that this crate owns.

use std::ffi::{CStr, c_int};

use h5logfs_host::lists::Property;
use h5logfs_host::types::{DEFAULT, Id};

use crate::library::Library;
use h5logfs_common::fault::Fault;

/// A property list that this crate owns. Dropping it closes the list.
#[derive(Debug)]
pub struct PropertyList {
    library: Library,
    /// Its identifier.
    pub id: Id,
}

impl PropertyList {
    /// Copies a list. `None` if libhdf5 fails.
    pub fn copy(library: &Library, fapl: Id) -> Option<Self> {
        // SAFETY: `fapl` is an identifier of this library.
        let id = library.nested(|f| unsafe { (f.H5Pcopy)(fapl) });
        (id >= 0).then_some(PropertyList {
            library: *library,
            id,
        })
    }

    /// Takes over an identifier from its owner.
    pub fn own(library: &Library, id: Id) -> Self {
        PropertyList {
            library: *library,
            id,
        }
    }

    /// Copies this list. `None` if libhdf5 fails.
    pub fn duplicate(&self) -> Option<Self> {
        PropertyList::copy(&self.library, self.id)
    }

    /// Removes the page buffer from a file access property list. Only files with paged allocation can have one.
    pub fn forget_page_buffer(&self) {
        // SAFETY: the list is open.
        self.library
            .nested(|f| unsafe { (f.H5Pset_page_buffer_size)(self.id, 0, 0, 0) });
    }

    /// Sets the close degree (`H5F_close_degree_t`) in a file access property list.
    pub fn set_close_degree(&self, degree: c_int) {
        // SAFETY: the list is open.
        self.library
            .nested(|f| unsafe { (f.H5Pset_fclose_degree)(self.id, degree) });
    }

    /// Gives the identifier to the caller, who closes it.
    pub fn into_id(self) -> Id {
        let id = self.id;
        std::mem::forget(self);
        id
    }
}

impl Drop for PropertyList {
    fn drop(&mut self) {
        // SAFETY: the list is open, and closed once.
        self.library.nested(|f| unsafe { (f.H5Pclose)(self.id) });
    }
}

/// A property that a program has set in its list, if it has.
pub fn property<T: Copy>(library: &Library, list: Id, property: &Property<T>) -> Option<T> {
    // `DEFAULT` is not a list; a query would put an error on the stack.
    if list == DEFAULT {
        return None;
    }
    let mut value = property.default;
    let (name, place) = (property.name.as_ptr(), (&raw mut value).cast());
    // SAFETY: the name is a C string. Whoever sets a property of this name gives it a value of this type.
    let is_set = library
        .nested(|f| unsafe { (f.H5Pexist)(list, name) > 0 && (f.H5Pget)(list, name, place) >= 0 });
    is_set.then_some(value)
}

/// A default property list. Functions for connectors need its identifier and do not accept `H5P_DEFAULT`.
pub fn default_list(library: &Library, variable: &CStr) -> Result<Id, Fault> {
    let list = library.identifier(variable);
    list.ok_or_else(|| "the library has no default property lists".into())
}
