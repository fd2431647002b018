//! The installed writer in other build systems: the Fortran module and the CMake package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::capi::{Installed, PREFIX, RANKS, pkg_config, run};
use crate::common::PROGRAM;
use crate::common::amount::each_variant;
use crate::common::mpirun::{Job, Mpi};
use crate::common::readers::{Python, project};

/// Whether a program is installed; prints if not.
pub fn there_is(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// Runs the Fortran program, and compares its log with the expected content.
fn check_fortran(program: &Path, dir: &Path, name: &str) {
    let (log, shown) = (dir.join(name), dir.join(name).with_extension("shown.h5"));
    Job::start(RANKS, program, &[log.to_str().unwrap()]).succeed();
    run(Command::new(PROGRAM).arg("export").arg(&log).arg(&shown));
    let check = fs::read_to_string(project().join("tests/fortran/writer.py")).unwrap();
    for python in Python::all() {
        python.run(&check, &[&shown, Path::new(&RANKS.to_string())]);
    }
}

/// Compiles a program of `tests/fortran` with the module. `None` where there is no Fortran.
pub fn compile_fortran(name: &str, flags: &[&str], dir: &Path) -> Option<PathBuf> {
    let fortran = Mpi::of_build().command("mpifort");
    if !there_is(&fortran) {
        return None;
    }
    let installed = Installed::get();
    let source = project().join("tests/fortran").join(name);
    let program = dir.join(name).with_extension("");
    run(Command::new(&fortran)
        // The compiled module goes there.
        .current_dir(dir)
        .args(["-std=f2018", "-Wall", "-Wextra", "-Werror", "-O2"])
        .args(flags)
        .arg(installed.path("include/h5logfs.F90"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(&installed.flags)
        .arg(format!("-Wl,-rpath,{}", installed.path("lib").display())));
    Some(program)
}

#[test]
fn programs_of_fortran_use_the_module() {
    let named = pkg_config(&Installed::get().root, &["--variable=fortran_module"]);
    let expected = format!("{PREFIX}/include/h5logfs.F90");
    assert!(named.trim().ends_with(&expected), "{named}");
    let old = ["-DOLD_MPI", "-DH5LOGFS_WITHOUT_MPI_F08"];
    each_variant(&[&[][..], &old], |flags| {
        let dir = tempfile::tempdir().unwrap();
        if let Some(program) = compile_fortran("writer.F90", flags, dir.path()) {
            check_fortran(&program, dir.path(), "log.h5");
        }
    });
}

/// The names of the fields of a struct, in their order.
fn fields<'a>(
    text: &'a str,
    begin: &str,
    end: &str,
    name_of: impl Fn(&'a str) -> Option<(&'a str, &'a str)>,
) -> Vec<&'a str> {
    let (_, text) = text.split_once(begin).unwrap();
    let (inner, _) = text.split_once(end).unwrap();
    let lines = inner.lines().map(str::trim);
    let code = lines.filter(|line| !line.starts_with(['*', '/']));
    code.filter_map(|line| Some(name_of(line)?.0)).collect()
}

/// The module has the functions, the options and the constants of the header.
#[test]
fn the_module_is_up_to_date() {
    let read = |file: &str| fs::read_to_string(project().join(file)).unwrap();
    let (header, module) = (
        read("include/h5logfs_writer.h"),
        read("include/h5logfs.F90"),
    );
    let symbols = read("packaging/libh5logfs_writer.symbols");
    let lines = symbols.lines().filter(|line| !line.starts_with('#'));
    let functions: Vec<&str> = lines
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(functions.len() > 30);
    // Fortran has no pointers to pointers: h5logfs_write_blocks takes the same blocks.
    let takes_lists = |name: &str| name.ends_with("_n");
    for function in functions.into_iter().filter(|name| !takes_lists(name)) {
        // The functions for Fortran communicators stand for both.
        let with_f = format!("'{function}_f'");
        let is_bound = module.contains(&format!("name='{function}'")) || module.contains(&with_f);
        assert!(is_bound, "the module lacks {function}");
    }
    assert_eq!(
        fields(
            &module,
            "type, bind(c), public :: h5logfs_options",
            "end type",
            |line| { line.split_once(" :: ")?.1.split_once(" = ") }
        ),
        fields(
            &header,
            "typedef struct h5logfs_options {",
            "} h5logfs_options;",
            |line| {
                line.strip_suffix(';')?
                    .rsplit_once([' ', '*'])
                    .map(|(ty, name)| (name, ty))
            }
        )
    );
    let mut constants = 0;
    for line in header.lines() {
        let line = line.trim();
        let defined = line
            .strip_prefix("#define ")
            .and_then(|rest| rest.split_once(' '));
        let counted = line
            .strip_suffix(',')
            .and_then(|line| line.split_once(" = "));
        let Some((name, value)) = defined.or(counted) else {
            continue;
        };
        if !name.starts_with("H5LOGFS_") {
            continue;
        }
        constants += 1;
        // UINT64_MAX has the bits of -1, and strings have other quotes.
        let value = value.replace("UINT64_MAX", "-1").replace('"', "'");
        let declared = format!(":: {name} = {value}");
        let is_there = module
            .lines()
            .any(|line| line.trim_end().ends_with(&declared));
        assert!(is_there, "the module has no {name} = {value}");
    }
    assert!(constants > 30, "{constants}");
}

const CMAKE: &str = "
cmake_minimum_required(VERSION 3.16)
project(uses_h5logfs C CXX Fortran)
find_package(h5logfs 1.0 QUIET)
if(h5logfs_FOUND)
  message(FATAL_ERROR \"this is not version 1\")
endif()
find_package(h5logfs 0.1 REQUIRED)
add_executable(in_c ${PROJECT}/examples/c/heat.c)
set_target_properties(in_c PROPERTIES C_STANDARD 99)
target_link_libraries(in_c PRIVATE h5logfs::writer)
add_executable(in_fortran ${PROJECT}/tests/fortran/writer.F90)
target_link_libraries(in_fortran PRIVATE h5logfs::fortran)
";

#[test]
fn cmake_finds_the_package() {
    let mpi = Mpi::of_build();
    let compilers = ["mpicc", "mpicxx", "mpifort"].map(|name| mpi.command(name));
    if !there_is("cmake") || !compilers.iter().all(|compiler| there_is(compiler)) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("CMakeLists.txt"), CMAKE).unwrap();
    let build: PathBuf = dir.path().join("build");
    let prefix = Installed::get().path("");
    let [c, cxx, fortran] = compilers;
    run(Command::new("cmake")
        .arg("-S")
        .arg(dir.path())
        .arg("-B")
        .arg(&build)
        .arg(format!("-DPROJECT={}", project().display()))
        .arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()))
        .arg(format!("-DMPI_C_COMPILER={c}"))
        .arg(format!("-DMPI_CXX_COMPILER={cxx}"))
        .arg(format!("-DMPI_Fortran_COMPILER={fortran}")));
    run(Command::new("cmake").arg("--build").arg(&build));
    let log = dir.path().join("c.h5");
    Job::start(2, &build.join("in_c"), &[log.to_str().unwrap()]).succeed();
    run(Command::new(PROGRAM).arg("check").arg(&log));
    check_fortran(&build.join("in_fortran"), dir.path(), "fortran.h5");
}
