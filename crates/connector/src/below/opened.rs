//! Objects of the connector below that we open, and close.

use std::ffi::c_int;
use std::ptr;

use super::Below;
use crate::arguments::{Location, kind};

/// An object that is closed when this is dropped.
#[derive(Debug)]
pub struct Opened {
    /// The object.
    pub below: Below,
    /// Its kind.
    pub kind: c_int,
}

impl Opened {
    /// The object at a path that starts in another. `None` if there is none.
    pub fn at(from: &Below, location: &Location) -> Option<Self> {
        let mut kind = 0;
        // SAFETY: the object is open, and the path of the location a C string.
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
        // SAFETY: it is ours, and closed once, as what it is.
        self.below.quietly(|f, under, vol| unsafe {
            match self.kind {
                kind::DATASET => (f.H5VLdataset_close)(under, vol, 0, ptr::null_mut()),
                kind::GROUP => (f.H5VLgroup_close)(under, vol, 0, ptr::null_mut()),
                _ => (f.H5VLdatatype_close)(under, vol, 0, ptr::null_mut()),
            }
        });
    }
}
