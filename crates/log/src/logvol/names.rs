//! Names of the layout's own objects and files (sections 1, 2 and 10, and `docs/formats/logvol-extensions.md`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::log_files::LogFiles;
use crate::source_dir::SourcePath;
use h5logfs_common::error::Error;
use h5logfs_common::fault::Fault;

/// The root group that holds the log.
pub const LOG_GROUP: &str = "_LOG";
/// Root attribute with the name of the writer (extension).
pub const WRITER: &str = "_h5logfs_writer";

/// The text of the attribute [`WRITER`]: the name of the writer, and what a program without h5logfs has before it.
pub fn about(writer: &str) -> String {
    format!(
        "{writer}. This is an h5logfs log: its datasets look empty without h5logfs. `h5logfs mount` or HDF5_DRIVER=h5logfs shows \
         them, `h5logfs export` makes an ordinary HDF5 file."
    )
}
/// Attributes of a stub dataset that belong to the layout. The last two are extensions.
pub const ANCHOR: [&str; 5] = [DIMS, MAX_DIMS, ID, CHUNK, FILTERS];
/// The current extent of the dataset.
pub const DIMS: &str = "_dims";
/// The maximum extent.
pub const MAX_DIMS: &str = "_mdims";
/// The number of the dataset in entries.
pub const ID: &str = "_ID";
/// The chunk shape (extension).
pub const CHUNK: &str = "_h5logfs_chunk";
/// The filter pipeline (extension).
pub const FILTERS: &str = "_h5logfs_filters";

/// The suffix that a subfile directory appends to the name of its master.
pub const SUBFILE_DIR: &str = ".subfiles";

/// Directory of the subfiles of a log file.
pub fn subfile_dir(master: &Path) -> PathBuf {
    let mut name = master.as_os_str().to_owned();
    name.push(SUBFILE_DIR);
    name.into()
}

/// The suffix that the directory of spill files appends to the name of the log.
pub const SPILL_DIR: &str = ".h5logfs-spill";

/// Directory of the spill files of ranks that share a data file.
pub fn spill_dir(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(SPILL_DIR);
    name.into()
}

/// Path of the spill file of a rank that writes to the data file `file`.
pub fn spill_file(log: &Path, file: u32, rank: u32) -> PathBuf {
    spill_dir(log).join(format!("{file}.{rank}"))
}

/// The data file and rank in the name of a spill file.
pub fn spilled_by(name: &OsStr) -> Option<(u32, u32)> {
    let (file, rank) = name.to_str()?.split_once('.')?;
    let (file, rank) = (file.parse().ok()?, rank.parse().ok()?);
    let is_canonical = name.as_bytes() == format!("{file}.{rank}").as_bytes();
    is_canonical.then_some((file, rank))
}

/// Path of a subfile.
pub fn subfile(master: &Path, number: u32) -> PathBuf {
    let name = master.file_name().unwrap_or_default();
    subfile_dir(master).join(numbered(name, number))
}

/// The number that follows `base` in the name of a subfile; `None` for any other name.
pub fn subfile_number(base: &OsStr, name: &OsStr) -> Option<u32> {
    let number = name.as_bytes().strip_prefix(base.as_bytes())?;
    let number = std::str::from_utf8(number.strip_prefix(b".")?).ok()?;
    let number = number.parse().ok()?;
    (numbered(base, number) == name).then_some(number)
}

/// The base name of the subfiles of the log `own`: the name of the log, or, if the log was renamed, the only base name
/// in use. `names` lists the subfile directory.
pub fn base_of<'n>(own: &'n OsStr, names: &[&'n OsStr]) -> Option<&'n OsStr> {
    if names.contains(&numbered(own, 0).as_os_str()) {
        return Some(own);
    }
    let firsts = names
        .iter()
        .filter_map(|n| n.as_bytes().strip_suffix(b".0"));
    let firsts: Vec<&OsStr> = firsts.map(OsStr::from_bytes).collect();
    match firsts[..] {
        [one] => Some(one),
        _ => None,
    }
}

fn numbered(name: &OsStr, number: u32) -> OsString {
    let mut name = name.to_owned();
    name.push(format!(".{number}"));
    name
}

/// Paths of the subfiles (section 10): `NAME.subfiles/BASENAME.i`. If the master was renamed, `BASENAME` is the only
/// base name in use there.
pub fn find_subfiles(files: &LogFiles<'_>, count: i64) -> Result<Vec<SourcePath>, Fault> {
    let count = u16::try_from(count)
        .ok()
        .filter(|n| (1..u16::MAX).contains(n))
        .ok_or_else(|| format!("{count} subfiles"))?;
    let directory = subfile_dir(files.log());
    let shown = files.dir().full_path(&directory);
    let listed = files.list(&SourcePath::below(&directory));
    let names = listed.map_err(|e| match e.kind() {
        // The log announces the directory, so the log is damaged.
        io::ErrorKind::NotFound => Fault::Damage(format!("{}: {e}", shown.display())),
        _ => Error::io(&shown, e).into(),
    })?;
    let own = files.log().file_name().unwrap_or_default();
    let names: Vec<&OsStr> = names.iter().map(OsString::as_os_str).collect();
    let base = base_of(own, &names).ok_or_else(|| {
        let first = shown.join(numbered(own, 0));
        format!("{} is missing", first.display())
    })?;
    let path = |i| directory.join(numbered(base, u32::from(i)));
    Ok((0..count).map(|i| SourcePath::below(path(i))).collect())
}
