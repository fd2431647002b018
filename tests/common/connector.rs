//! The VOL connector, as programs load it.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::PROGRAM;
use super::make::{built_connector, built_driver, built_parallel_connector};
use super::readers::Python;

/// The file of the plug-in for parallel programs.
pub const PARALLEL: &str = "libh5logfs_connector_mpi.so";

/// A directory with the built plug-ins, as installed: the file driver, and one or two connectors.
pub struct Connector {
    plugins: TempDir,
}

impl Connector {
    pub fn new() -> Self {
        let mut connector = Connector::serial();
        if built_parallel_connector().exists() {
            connector.add(&built_parallel_connector(), PARALLEL);
        }
        connector
    }

    /// The plug-ins without the one for parallel programs.
    pub fn serial() -> Self {
        let mut connector = Connector {
            plugins: tempfile::tempdir().unwrap(),
        };
        connector.add(&built_driver(), "libh5logfs_driver.so");
        connector.add(&built_connector(), "libh5logfs_connector.so");
        connector
    }

    fn add(&mut self, built: &Path, name: &str) {
        assert!(built.exists(), "{} is not there", built.display());
        symlink(built, self.plugins.path().join(name)).unwrap();
    }

    /// The directory.
    pub fn plugins(&self) -> PathBuf {
        self.plugins.path().to_owned()
    }

    /// Environment that makes the connector known to programs with HDF5 1.14 and later.
    pub fn known(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("HDF5_PLUGIN_PATH", self.plugins.path().into()),
            ("H5LOGFS_PROGRAM", PROGRAM.into()),
            ("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR").into()),
            // The result of a test must not depend on its duration.
            ("H5LOGFS_FLUSH_EVERY", "1h".into()),
        ]
    }

    /// Environment that makes such programs use the connector for all files.
    pub fn used(&self) -> Vec<(&'static str, OsString)> {
        self.used_as("h5logfs")
    }

    /// Environment that makes such programs use the connector with this information.
    pub fn used_as(&self, connector: &str) -> Vec<(&'static str, OsString)> {
        let mut variables = self.known();
        variables.push(("HDF5_VOL_CONNECTOR", connector.into()));
        variables
    }

    /// Environment that makes such programs use the connector, but make no logs.
    pub fn passing(&self) -> Vec<(&'static str, OsString)> {
        let mut variables = self.used();
        variables.push(("H5LOGFS_MATCH", "".into()));
        variables
    }

    /// The Python with a current HDF5 that uses the connector for all files; prints the reason if there is none.
    pub fn python(&self) -> Option<Python> {
        Some(Python::new()?.with_variables(self.used()))
    }

    /// The Python with a current HDF5 that uses the connector, but makes no logs.
    pub fn passing_python(&self) -> Option<Python> {
        Some(Python::new()?.with_variables(self.passing()))
    }
}
