//! The targets of the Makefile, for the tested build.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::PROGRAM;
use super::readers::project;

/// `make TARGET` with the directories and profile of the tests, in which everything is built.
pub fn make(target: &str) -> Command {
    let built = Path::new(PROGRAM).parent().unwrap();
    let profile = match built.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut make = Command::new("make");
    make.args(["--no-print-directory", target])
        .arg(format!("CARGO={}", env!("CARGO")))
        .arg(format!("PROFILE={profile}"))
        .arg(format!("DRIVER_FILE={}", built_driver().display()))
        .arg(format!("CONNECTOR_FILE={}", built_connector().display()))
        .arg(format!("VOL_API_FILE={}", built_vol_api().display()))
        .arg(format!(
            "CONNECTOR_MPI_FILE={}",
            built_parallel_connector().display()
        ))
        .env("CARGO_TARGET_DIR", built.parent().unwrap())
        .current_dir(project());
    make
}

/// The writer's C library, which cargo builds together with the Rust library.
pub fn built_library() -> PathBuf {
    beside_the_tests("libh5logfs_writer.so")
}

/// The file driver, built likewise.
pub fn built_driver() -> PathBuf {
    beside_the_tests("libh5logfs_driver.so")
}

/// The VOL connector for serial programs.
pub fn built_connector() -> PathBuf {
    beside_the_tests("libh5logfs_connector.so")
}

/// The VOL connector for parallel programs, built with the feature `mpi`.
pub fn built_parallel_connector() -> PathBuf {
    beside_the_tests("libh5logfs_connector_mpi.so")
}

/// The library for programs ported to the Log VOL.
pub fn built_vol_api() -> PathBuf {
    beside_the_tests("libh5logfs_vol_api.so")
}

/// The native module of the Python package.
pub fn built_python_module() -> PathBuf {
    beside_the_tests("libh5logfs_python.so")
}

fn beside_the_tests(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}
