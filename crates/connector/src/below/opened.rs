//! Objects of the connector below that this crate opens and closes.

use std::ffi::c_int;
use std::ptr;

use super::Below;
use crate::arguments::{Location, kind};

/// An open object. Dropping it closes the object.
#[derive(Debug)]
pub struct Opened {
    /// The object.
    pub below: Below,
    /// Its kind.
    pub kind: c_int,
}

impl Opened {
    /// Opens the object at `location`, which starts at `from`. `None` if there is none.
    pub fn at(from: &Below, location: &Location) -> Option<Self> {
        let mut kind = 0;
        // SAFETY: the object is open, and the path of the location is a C string.
        let under = from.quietly(|f, under, vol| unsafe {
            (f.H5VLobject_open)(under, location, vol, &mut kind, 0, ptr::null_mut())
        });
        (!under.is_null()).then(|| Opened {
            below: Below::new(under, &from.info),
            kind,
        })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: the object is open, and closed once, by the function for its kind.
        self.below.quietly(|f, under, vol| unsafe {
            match self.kind {
                kind::DATASET => (f.H5VLdataset_close)(under, vol, 0, ptr::null_mut()),
                kind::GROUP => (f.H5VLgroup_close)(under, vol, 0, ptr::null_mut()),
                _ => (f.H5VLdatatype_close)(under, vol, 0, ptr::null_mut()),
            }
        });
    }
}
