//! The Python package, from its sources and a native module that is built for the test.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::PROGRAM;
use super::readers::{Python, project, said};

/// A directory with the package `h5logfs` and nothing else.
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
        symlink(native_module(), package.join("_native.abi3.so")).unwrap();
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

/// Builds the module, which no test links: so cargo does not build it with them.
fn native_module() -> std::path::PathBuf {
    let built = Path::new(PROGRAM).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "-p", "h5logfs-python"]);
    if built.ends_with("release") {
        cargo.arg("--release");
    }
    cargo.env("CARGO_TARGET_DIR", built.parent().unwrap());
    // It finds Python's functions in the program that loads it, as in the wheel.
    cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1");
    let output = cargo.current_dir(project()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    built.join("libh5logfs_python.so")
}
