//! Objects of the connector below, and queries to it. Nothing here knows of logs.
//!
//! | module | contents |
//! |---|---|
//! | `list` | property lists that this crate owns |
//! | `apart` | calls of libhdf5 in an API context of their own |
//! | `operations` | numbers of the operations that the connector adds to HDF5 |
//! | `misspelt` | wrong options in the environment |
//! | `info` | the connector's information in a file access property list |
//! | `request` | arguments of `H5Fcreate` and `H5Fopen` |
//! | `ending` | objects that a program leaves open |
//! | `drivers` | file drivers of file access property lists |
//! | `questions` | queries about objects: address, path, properties |
//! | `opened` | objects that this crate opens |
//! | `walk` | datasets below an object |

pub mod apart;
pub mod drivers;
pub mod ending;
pub mod info;
pub mod list;
mod misspelt;
pub mod opened;
pub mod operations;
pub mod questions;
pub mod request;
pub mod walk;

use std::ffi::c_void;
use std::sync::Arc;

use h5logfs_host::types::Id;

use crate::library::{Functions, Library};
use h5logfs_common::fault::Fault;
use info::Info;

/// An object of the connector below.
#[derive(Debug)]
pub struct Below {
    /// The object, as the connector below holds it.
    pub under: *mut c_void,
    /// The connector below and its library. Identifiers of another library must not reach it.
    pub info: Arc<Info>,
}

impl Below {
    /// Wraps an object of the connector below. `info` names that connector.
    pub fn new(under: *mut c_void, info: &Arc<Info>) -> Self {
        Below {
            under,
            info: Arc::clone(info),
        }
    }

    /// The library of the object.
    pub fn library(&self) -> &Library {
        &self.info.library
    }

    /// Calls the connector below with error printing off. The outer call prints errors.
    pub fn quietly<R>(&self, call: impl FnOnce(&Functions, *mut c_void, Id) -> R) -> R {
        self.library()
            .quietly(|f| call(f, self.under, self.info.under_vol))
    }

    /// Calls the connector below with error printing on. For calls that run functions of the program, whose errors must be
    /// printed as without this connector. Also for calls that fail only without memory: switching printing off takes four calls.
    pub fn call<R>(&self, call: impl FnOnce(&Functions, *mut c_void, Id) -> R) -> R {
        call(self.library().functions(), self.under, self.info.under_vol)
    }

    /// Fails if the objects belong to different connectors. No connector could use both.
    pub fn check_like(&self, other: &Below) -> Result<(), Fault> {
        if self.info.is_like(&other.info) {
            return Ok(());
        }
        Err("objects of two connectors cannot be used together".into())
    }
}
