//! How the plug-in for parallel programs tells which ranks open a file together.

use std::sync::OnceLock;

use crate::session::FindRanks;

static FINDER: OnceLock<FindRanks> = OnceLock::new();

/// Lets the connector find ranks. The plug-in for parallel programs calls it before any file is opened.
pub fn set_finder(find: FindRanks) {
    // The plug-in may say so again.
    let _ = FINDER.set(find);
}

/// How ranks are found; `None` in the plug-in for serial programs.
pub fn finder() -> Option<FindRanks> {
    FINDER.get().copied()
}
