//! Looks for the program `h5logfs`, which scans logs, from within a library that was installed with it.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use crate::workers::PROGRAM_VARIABLE;

/// Places of the program relative to the directory of a library. The library may lie in a directory of builds, be the
/// native module or the plug-in of the Python package, or lie in PREFIX/lib or PREFIX/lib/h5logfs/plugins.
const PLACES: [&str; 5] = [
    "h5logfs",
    "bin/h5logfs",
    "../bin/h5logfs",
    "../../bin/h5logfs",
    "../../../bin/h5logfs",
];

/// The program that belongs to the library with this code. `None` where there is none, and where the environment names
/// another program.
pub fn beside_this_code() -> Option<PathBuf> {
    if std::env::var_os(PROGRAM_VARIABLE).is_some() {
        return None;
    }
    beside_library(&this_library()?)
}

/// The program that was installed with a library.
pub fn beside_library(library: &Path) -> Option<PathBuf> {
    // A link to a library leads to the directory in which it was installed.
    let library = library.canonicalize().ok()?;
    beside(library.parent()?)
}

fn beside(directory: &Path) -> Option<PathBuf> {
    let mut candidates = PLACES.iter().map(|place| directory.join(place));
    candidates.find(|candidate| candidate.is_file())
}

/// The file from which this code was loaded.
fn this_library() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let here: *const c_void = this_library as *const c_void;
    // SAFETY: `info` is valid. `dladdr` looks for the address, and reads nothing there.
    let found = unsafe { libc::dladdr(here, &raw mut info) } != 0 && !info.dli_fname.is_null();
    // SAFETY: the name is a string that lives as long as the library is loaded.
    let name = found.then(|| unsafe { CStr::from_ptr(info.dli_fname) })?;
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_from_where_libraries_are() {
        let prefix = tempfile::tempdir().unwrap();
        let prefix = prefix.path();
        let plugins = prefix.join("lib/h5logfs/plugins");
        std::fs::create_dir_all(&plugins).unwrap();
        std::fs::create_dir(prefix.join("bin")).unwrap();
        assert_eq!(beside(&plugins), None);
        std::fs::write(prefix.join("bin/h5logfs"), "").unwrap();
        for directory in [&plugins, &prefix.join("lib"), &prefix.join("bin"), prefix] {
            let found = beside(directory).unwrap();
            let found = found.canonicalize().unwrap();
            assert_eq!(found, prefix.canonicalize().unwrap().join("bin/h5logfs"));
        }
    }

    #[test]
    fn this_code_is_in_a_file() {
        let library = this_library().unwrap();
        assert_eq!(
            library.canonicalize().unwrap(),
            std::env::current_exe().unwrap().canonicalize().unwrap()
        );
    }
}
