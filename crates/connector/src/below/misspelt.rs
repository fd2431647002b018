//! Options that `HDF5_VOL_CONNECTOR` has, and that the connector cannot take.
//!
//! libhdf5 goes on without a connector that refuses its options, and says so in the first call of the program alone, which
//! most programs do not look at: they would write files of HDF5's own kind. So the connector is there all the same, and
//! refuses to create files. A program that gives options by itself gets an error from the call that takes them.

use std::ffi::{CStr, OsStr};
use std::io::{self, Write};
use std::sync::Once;

/// The variable that names the connector, and has its options behind the name.
const VARIABLE: &str = "HDF5_VOL_CONNECTOR";

/// What is said of options that the connector cannot take.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Misspelt {
    /// The options, as they were given.
    pub options: String,
    /// Why they cannot be taken.
    pub reason: String,
}

/// Whether these options are those of the environment.
pub fn are_of_environment(options: &CStr) -> bool {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    behind_name(&value) == options.to_bytes().trim_ascii()
}

/// What stands behind the name, as libhdf5 reads it: in the first line.
fn behind_name(value: &OsStr) -> &[u8] {
    let value = value.as_encoded_bytes().trim_ascii_start();
    let name = value.iter().position(u8::is_ascii_whitespace);
    let rest = &value[name.unwrap_or(value.len())..];
    let lines = rest.split(|byte| b"\r\n".contains(byte));
    let mut lines = lines.filter(|line| !line.is_empty());
    lines.next().unwrap_or_default().trim_ascii()
}

impl Misspelt {
    /// The reason why no file is created.
    pub fn sentence(&self) -> String {
        format!(
            "{}. No file is created or opened for writing as a log until {VARIABLE} is right",
            self.reason
        )
    }

    /// Says it on standard error, once in a process: the error stack of the first call, in which libhdf5 starts, is empty
    /// when that call returns.
    pub fn tell(&self) {
        static TOLD: Once = Once::new();
        // Nobody may read it.
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
