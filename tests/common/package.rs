//! The Python package, from its sources and the native module that cargo builds with the tests.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::PROGRAM;
use super::make::built_python_module;
use super::readers::{Python, project};

/// The entry point, as in `pyproject.toml`.
const ENGINE: &str = "[xarray.backends]\nh5logfs = h5logfs._xarray:LogBackendEntrypoint\n";

/// A directory with only the package `h5logfs`.
pub struct Package {
    dir: TempDir,
}

impl Package {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let package = dir.path().join("h5logfs");
        fs::create_dir(&package).unwrap();
        let sources = project().join("crates/python/python/h5logfs");
        for source in fs::read_dir(sources).unwrap() {
            let source = source.unwrap();
            symlink(source.path(), package.join(source.file_name())).unwrap();
        }
        symlink(built_python_module(), package.join("_native.abi3.so")).unwrap();
        // xarray finds the engine by this.
        let about = dir.path().join("h5logfs-0.dist-info");
        fs::create_dir(&about).unwrap();
        fs::write(
            about.join("METADATA"),
            "Metadata-Version: 2.1\nName: h5logfs\nVersion: 0\n",
        )
        .unwrap();
        fs::write(about.join("entry_points.txt"), ENGINE).unwrap();
        Package { dir }
    }

    /// The Python with the package in its path.
    pub fn used_by(&self, python: &Python) -> Python {
        let variables: Vec<(&str, OsString)> = vec![
            ("PYTHONPATH", self.dir.path().into()),
            ("H5LOGFS_PROGRAM", PROGRAM.into()),
            ("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR").into()),
        ];
        python.with_variables(variables)
    }
}
