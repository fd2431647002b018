//! Records the MPI of this build, which the bindings do not report.

use std::io::Write;
use std::process::{Command, Stdio};

/// The preprocessor keeps the names that the header does not define.
const QUESTION: &str = "#include <mpi.h>
h5logfs-open-mpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
h5logfs-mpich MPICH_VERSION
";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The crate mpi-sys reads this variable, too.
    println!("cargo::rerun-if-env-changed=MPICC");
    let compiler = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
    let name = answer(&compiler).as_deref().and_then(name_in);
    println!("cargo::rustc-env=H5LOGFS_MPI={}", name.unwrap_or_default());
}

/// The preprocessor's output for the question.
fn answer(compiler: &str) -> Option<String> {
    let mut preprocessor = Command::new(compiler)
        .args(["-E", "-P", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = preprocessor.stdin.take()?;
    input.write_all(QUESTION.as_bytes()).ok()?;
    drop(input);
    let output = preprocessor.wait_with_output().ok()?;
    String::from_utf8(output.stdout).ok()
}

/// Name and version of the MPI: the line whose version begins with a digit.
fn name_in(answer: &str) -> Option<String> {
    let names = [
        ("h5logfs-open-mpi ", "Open MPI"),
        ("h5logfs-mpich ", "MPICH"),
    ];
    names.into_iter().find_map(|(mark, name)| {
        let line = answer.lines().find_map(|line| line.strip_prefix(mark))?;
        // The preprocessor may insert spaces.
        let version: String = line
            .chars()
            .filter(|c| !c.is_whitespace() && *c != '"')
            .collect();
        let is_version = version.starts_with(|c: char| c.is_ascii_digit());
        is_version.then(|| format!("{name} {version}"))
    })
}
