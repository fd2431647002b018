//! Names of the files of a directory (section 1).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use h5logfs_adios::model::File;

/// The index, which is the file of the log.
pub const INDEX: &str = "md.idx";
/// The metadata of the steps.
pub const METADATA: &str = "md.0";
/// The formats of the metadata; BP4 has none.
pub const FORMATS: &str = "mmd.0";

/// Says which object store has the data files, in place of the directory.
pub const OBJECT_STORE: &str = "s3.json";

/// The name of a data file.
pub fn data(number: u32) -> String {
    File::Data(number).to_string()
}

/// Whether `path` is another file of the directory whose index is `index`, judged by name.
pub fn is_beside(index: &Path, path: &Path) -> bool {
    let others = [METADATA, FORMATS, OBJECT_STORE];
    let is_part = |name: &OsStr| others.iter().any(|other| name == *other) || is_data(name);
    index.file_name() == Some(OsStr::new(INDEX))
        && path.parent() == index.parent()
        && path.file_name().is_some_and(is_part)
}

fn is_data(name: &OsStr) -> bool {
    let number = str::from_utf8(name.as_bytes()).ok();
    let number = number.and_then(|name| name.strip_prefix("data.")?.parse().ok());
    number.is_some_and(|number| name == OsStr::new(&data(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_beside_an_index() {
        let is_beside = |path: &str| is_beside(Path::new("run.bp/md.idx"), Path::new(path));
        for part in ["md.0", "mmd.0", "s3.json", "data.0", "data.4294967295"] {
            assert!(is_beside(&format!("run.bp/{part}")), "{part}");
            assert!(!is_beside(part));
            assert!(!super::is_beside(
                Path::new("run.bp/index"),
                Path::new(&format!("run.bp/{part}"))
            ));
        }
        for other in [
            "md.1",
            "data.",
            "data.00",
            "data.4294967296",
            "data.+1",
            "data.0.x",
            "md.idx",
        ] {
            assert!(!is_beside(&format!("run.bp/{other}")), "{other}");
        }
    }
}
