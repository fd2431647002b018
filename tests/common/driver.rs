//! The file driver, as programs load it.

use std::ffi::OsString;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::PROGRAM;
use super::make::built_driver;
use super::readers::Python;

/// A directory with only the driver: libhdf5 loads every library in it to find out what it is.
pub struct Driver {
    plugins: TempDir,
}

impl Driver {
    pub fn new() -> Self {
        let driver = built_driver();
        assert!(driver.exists(), "{} is not there", driver.display());
        let plugins = tempfile::tempdir().unwrap();
        symlink(&driver, plugins.path().join("libh5logfs_driver.so")).unwrap();
        Driver { plugins }
    }

    /// Environment that makes the driver known to programs with HDF5 1.14 and later.
    pub fn known(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("HDF5_PLUGIN_PATH", self.plugins.path().into()),
            ("H5LOGFS_PROGRAM", PROGRAM.into()),
            ("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR").into()),
        ]
    }

    /// Environment that makes such programs open all files by the driver.
    pub fn used(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = self.known();
        variables.push(("HDF5_DRIVER", "h5logfs".into()));
        variables
    }

    /// The Python with a current HDF5 that opens all files by the driver; prints the reason if there is none.
    pub fn python(&self) -> Option<Python> {
        Some(Python::new()?.with_variables(self.used()))
    }
}
