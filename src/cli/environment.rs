//! Removes libhdf5's variables from the environment. They are meant for the user's programs and their HDF5. A command that closed
//! a log through the VOL connector would call itself.

use std::ffi::{CStr, OsStr, c_char};

use h5logfs_log::scan::SUBFILE_VARIABLES;

/// Prefixes of the variables that libhdf5 reads, in any version: 1.10 to 2.2 have some thirty.
const PREFIXES: [&str; 4] = ["HDF5_", "H5_", "H5D_", "H5FD_"];

/// Removes the variables that libhdf5 would read. Child processes lose them, too, so a command that starts programs of the
/// user does not call this. Call it only while the process has one thread.
pub fn forget_hdf5() {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| is_of_hdf5(name)) {
        forget(&name);
    }
}

unsafe extern "C" {
    /// Pointers to the texts of the environment, followed by a null pointer (POSIX).
    static mut environ: *mut *mut c_char;
}

/// Removes a variable, and overwrites its text: a forked process would still contain it, where nothing could find it any
/// more.
fn forget(name: &OsStr) {
    // SAFETY: no other thread reads the environment, and nothing here keeps a pointer into it. A text is in memory of the
    // process and ends with a zero byte.
    unsafe {
        let text = text_of(name);
        std::env::remove_var(name);
        if let Some(text) = text {
            text.write_bytes(0, libc::strlen(text));
        }
    }
}

/// The text of a variable: its name, `=`, its value.
///
/// # Safety
///
/// No thread changes the environment meanwhile.
unsafe fn text_of(name: &OsStr) -> Option<*mut c_char> {
    // SAFETY: the list ends with a null pointer, and each text with a zero byte.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            let rest = text.strip_prefix(name.as_encoded_bytes());
            if rest.is_some_and(|rest| rest.starts_with(b"=")) {
                return Some(*at);
            }
            at = at.add(1);
        }
    }
    None
}

/// Variables about the place of subfiles are excepted: they are the defaults of an option.
fn is_of_hdf5(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let has_prefix = PREFIXES
        .iter()
        .any(|prefix| bytes.starts_with(prefix.as_bytes()));
    has_prefix && !SUBFILE_VARIABLES.iter().any(|own| name == *own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_libhdf5_are_known_by_their_names() {
        for name in [
            "HDF5_VOL_CONNECTOR",
            "H5FD_mpio_Debug",
            "H5D_mpio_Debug",
            "H5_REQUIRE_IOC",
        ] {
            assert!(is_of_hdf5(OsStr::new(name)), "{name}");
        }
        for name in ["H5LOGFS_PROGRAM", "PATH", "HDF5", SUBFILE_VARIABLES[0]] {
            assert!(!is_of_hdf5(OsStr::new(name)), "{name}");
        }
    }
}
