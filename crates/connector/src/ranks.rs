//! How the plug-in for parallel programs tells which ranks open a file together.

use std::sync::OnceLock;

use h5logfs_host::types::Id;
use h5logfs_output::Ranks;

use crate::library::Library;
use h5logfs_common::fault::Fault;

/// How ranks that open a file together are found: by its file access property list.
pub type FindRanks = fn(&Library, Id) -> Result<Option<Ranks>, Fault>;

static FINDER: OnceLock<FindRanks> = OnceLock::new();

/// Lets the connector find ranks. The plug-in for parallel programs calls it before any file is opened.
pub fn set_finder(find: FindRanks) {
    // The plug-in may say so again.
    let _ = FINDER.set(find);
}

/// The ranks that open a file with this file access property list together. `None`: this process alone.
pub fn find(library: &Library, fapl: Id) -> Result<Option<Ranks>, Fault> {
    match FINDER.get() {
        Some(find) => find(library, fapl),
        // The plug-in for serial programs has told of none.
        None => Ok(None),
    }
}
