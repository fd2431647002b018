//! The libhdf5 libraries of a machine: those known to the linker, and those in Python packages.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of C libraries after `lib`, as HDF5 installs them and as distributions with several versions do.
const NAMES: [&str; 5] = [
    "hdf5",
    "hdf5_serial",
    "hdf5_openmpi",
    "hdf5_mpich",
    "hdf5_parallel",
];

/// The libraries of this machine, and of the Python in PATH.
pub fn of_machine() -> Vec<PathBuf> {
    let variable = |name| env::var_os(name).unwrap_or_default();
    let linked = env::split_paths(&variable("LD_LIBRARY_PATH")).collect::<Vec<_>>();
    let conda = env::var_os("CONDA_PREFIX").map(|prefix| PathBuf::from(prefix).join("lib"));
    let dirs = linked.into_iter().chain(conda).chain(dirs_of_python());
    let mut found: Vec<PathBuf> = dirs.flat_map(|dir| in_dir(&dir)).collect();
    found.extend(of_linker());
    found
}

/// Drops duplicates under other names.
pub fn distinct(libraries: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut libraries = libraries;
    libraries.retain(|path| seen.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())));
    libraries
}

/// Whether the name is that of a libhdf5 for C: `libhdf5.so.310`, or `libhdf5-9e18f0c6.so.320.0.0` as in wheels.
fn is_library(name: &str) -> bool {
    let Some((name, _)) = name.split_once(".so") else {
        return false;
    };
    let Some(name) = name.strip_prefix("lib") else {
        return false;
    };
    let name = name.split_once('-').map_or(name, |(name, _)| name);
    NAMES.contains(&name)
}

fn in_dir(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_library));
    named.map(|entry| entry.path()).collect()
}

/// Directories with the libraries of Python wheels.
fn dirs_of_python() -> Vec<PathBuf> {
    let script = "import sys; print(*sys.path, sep='\\n')";
    let asked = Command::new("python3").args(["-I", "-c", script]).output();
    let Ok(asked) = asked else {
        return Vec::new();
    };
    let paths = String::from_utf8_lossy(&asked.stdout).into_owned();
    let packages = paths.lines().map(Path::new).filter(|dir| dir.is_dir());
    let inside = packages.flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let inside = inside.map(|entry| entry.path());
    inside
        .filter(|path| path.extension().is_some_and(|end| end == "libs"))
        .collect()
}

/// The libraries in the linker's cache. The path of ordinary users may lack `/sbin`.
fn of_linker() -> Vec<PathBuf> {
    let programs = ["/sbin/ldconfig", "ldconfig"];
    let mut listed = programs
        .iter()
        .filter_map(|program| Command::new(program).arg("-p").output().ok());
    let Some(listed) = listed.next() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once(" => "));
    let named = lines.filter(|(name, _)| {
        let name = name.split_whitespace().next().unwrap_or_default();
        is_library(name)
    });
    named.map(|(_, path)| PathBuf::from(path.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_c_are_known_by_their_names() {
        for (name, expected) in [
            ("libhdf5.so", true),
            ("libhdf5.so.310.5.1", true),
            ("libhdf5-9e18f0c6.so.320.0.0", true),
            ("libhdf5_serial.so.103", true),
            ("libhdf5_openmpi.so.103", true),
            ("libhdf5_hl.so.310", false),
            ("libhdf5_hl-69da89c9.so.320", false),
            ("libhdf5_serial_fortran.so.102", false),
            ("libhdf5.a", false),
            ("hdf5.so", false),
        ] {
            assert_eq!(is_library(name), expected, "{name}");
        }
    }
}
