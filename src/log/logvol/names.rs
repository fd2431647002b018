//! Names by which the layout's own objects and files are known (sections 1, 2 and 10, and
//! `docs/formats/logvol-extensions.md`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The root group that holds the log.
pub const LOG_GROUP: &str = "_LOG";
/// Which writer made the file (extension).
pub const WRITER: &str = "_h5logfs_writer";
/// Attributes of an anchor that are not the user's; the last two are extensions.
pub const ANCHOR: [&str; 5] = [DIMS, MAX_DIMS, ID, CHUNK, FILTERS];
pub const DIMS: &str = "_dims";
pub const MAX_DIMS: &str = "_mdims";
pub const ID: &str = "_ID";
pub const CHUNK: &str = "_h5logfs_chunk";
pub const FILTERS: &str = "_h5logfs_filters";

/// What the name of a subfile directory adds to that of its master.
pub const SUBFILE_FOLDER: &str = ".subfiles";

/// Directory of the subfiles of a log file.
pub fn subfile_folder(master: &Path) -> PathBuf {
    let mut name = master.as_os_str().to_owned();
    name.push(SUBFILE_FOLDER);
    name.into()
}

/// Path of one subfile.
pub fn subfile(master: &Path, number: u32) -> PathBuf {
    let name = master.file_name().unwrap_or_default();
    subfile_folder(master).join(numbered(name, number))
}

pub fn numbered(name: &OsStr, number: u32) -> OsString {
    let mut name = name.to_owned();
    name.push(format!(".{number}"));
    name
}
