//! Objects of the connector below, which no log is known for, and what is asked of them.
//!
//! | module | contents |
//! |---|---|
//! | `list` | property lists of ours |
//! | `apart` | calls that do not change what libhdf5 remembers for the call that we are in |
//! | `operations` | what the connector adds to HDF5's operations on datasets |
//! | `misspelt` | options of the environment that cannot be taken |
//! | `info` | what a file access property list says of the connector below, and the options |
//! | `request` | what a program asks for when it creates or opens a file |
//! | `ending` | what a program leaves open |
//! | `drivers` | the file drivers of file access property lists |
//! | `questions` | where an object lies, and what it is called |
//! | `opened` | objects that we open |
//! | `walk` | the datasets behind an object |

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
    /// As that connector knows it.
    pub under: *mut c_void,
    /// That connector, and the library whose object this is. Identifiers of another one must not reach it.
    pub info: Arc<Info>,
}

impl Below {
    /// An object of the connector of `info`.
    pub fn new(under: *mut c_void, info: &Arc<Info>) -> Self {
        Below {
            under,
            info: Arc::clone(info),
        }
    }

    /// The library whose object it is.
    pub fn library(&self) -> &Library {
        &self.info.library
    }

    /// Calls the connector below. It prints no errors: the outer call does.
    pub fn quietly<R>(&self, call: impl FnOnce(&Functions, *mut c_void, Id) -> R) -> R {
        self.library()
            .quietly(|f| call(f, self.under, self.info.under_vol))
    }

    /// Calls the connector below where functions of the program run within: their errors are printed as they would be
    /// without us. Or where nothing but a lack of memory lets it fail: to switch printing off takes four calls.
    pub fn call<R>(&self, call: impl FnOnce(&Functions, *mut c_void, Id) -> R) -> R {
        call(self.library().functions(), self.under, self.info.under_vol)
    }

    /// Fails where the objects belong to different connectors, so that none of these knows both.
    pub fn check_like(&self, other: &Below) -> Result<(), Fault> {
        if self.info.is_like(&other.info) {
            return Ok(());
        }
        Err("objects of two connectors cannot be used together".into())
    }
}
