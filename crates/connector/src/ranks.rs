//! Ranks that open a file together. The plug-in for parallel programs supplies the function that finds them.

use std::sync::OnceLock;

use h5logfs_host::types::Id;
use h5logfs_output::Ranks;

use crate::library::Library;
use h5logfs_common::fault::Fault;

/// Finds the ranks that open a file together, from its file access property list.
pub type FindRanks = fn(&Library, Id) -> Result<Option<Ranks>, Fault>;

static FINDER: OnceLock<FindRanks> = OnceLock::new();

/// Sets the function that finds ranks. The plug-in for parallel programs calls this before any file is opened.
pub fn set_finder(find: FindRanks) {
    // The plug-in may call again, with the same function.
    let _ = FINDER.set(find);
}

/// The ranks that open a file together with this file access property list. `None`: this process opens it alone.
pub fn find(library: &Library, fapl: Id) -> Result<Option<Ranks>, Fault> {
    match FINDER.get() {
        Some(find) => find(library, fapl),
        // The plug-in for serial programs sets no function.
        None => Ok(None),
    }
}
