//! Wrong options in `HDF5_VOL_CONNECTOR`.
//!
//! libhdf5 ignores a connector that refuses its options, and reports it only in the program's first call. Most programs do not
//! check that call, and would write ordinary HDF5 files. So the connector loads all the same, and refuses to create files. A
//! program that passes options itself gets an error from the call that parses them.

use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::sync::Once;

/// The variable with the name of the connector and, behind it, the options.
const VARIABLE: &str = "HDF5_VOL_CONNECTOR";

/// Options of the environment that the connector cannot use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misspelt {
    /// The options, as given.
    pub options: String,
    /// The fault in them.
    pub reason: String,
}

/// Whether these options come from the environment.
pub fn are_of_environment(options: &CStr) -> bool {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    behind_name(&value) == options.to_bytes().trim_ascii()
}

/// The text behind the name, in the first line. libhdf5 reads it likewise.
fn behind_name(value: &OsStr) -> &[u8] {
    let value = value.as_encoded_bytes().trim_ascii_start();
    let name = value.iter().position(u8::is_ascii_whitespace);
    let rest = &value[name.unwrap_or(value.len())..];
    let lines = rest.split(|byte| b"\r\n".contains(byte));
    let mut lines = lines.filter(|line| !line.is_empty());
    lines.next().unwrap_or_default().trim_ascii()
}

impl Misspelt {
    /// The error message for a file that is not created.
    pub fn sentence(&self) -> String {
        format!(
            "{}. No file is created or opened for writing as a log until {VARIABLE} is corrected",
            self.reason
        )
    }

    /// Prints the message on standard error, once in a process. The error stack alone would not do: libhdf5 initializes itself
    /// within the program's first call, and clears the stack when that call returns.
    pub fn tell(&self) {
        static TOLD: Once = Once::new();
        // Standard error may be closed.
        TOLD.call_once(|| drop(writeln!(io::stderr(), "h5logfs: {}", self.sentence())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_stand_behind_the_name() {
        for (value, expected) in [
            ("h5logfs", ""),
            ("h5logfs ", ""),
            (" h5logfs\tfsync=flush;match=a b ", "fsync=flush;match=a b"),
            ("h5logfs x=1\nmore", "x=1"),
            ("", ""),
        ] {
            assert_eq!(behind_name(value.as_ref()), expected.as_bytes(), "{value}");
        }
    }
}
