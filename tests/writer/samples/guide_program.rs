//! The program of the user guide, in C, in Rust and in Fortran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::blocks::to_be_run;
use crate::builders::compile_fortran;
use crate::capi::Installed;
use crate::common::PROGRAM;
use crate::common::mpirun::{Job, program};
use crate::common::readers::said;

const RANKS: u32 = 4;

/// The file that the program writes.
const FILE: &str = "run.h5";

/// The program's action in each step. It dies after enough of them.
const FLUSH: &str = "check(h5logfs_flush(file));";
const FLUSH_AND_DIE: &str = "check(h5logfs_flush(file)); if (step == 6) raise(9);";

/// The C programs in the documents, each with its place.
fn sources() -> Vec<String> {
    to_be_run("c").into_iter().map(|block| block.text).collect()
}

fn compile(source: &str, dir: &TempDir) -> PathBuf {
    let path = dir.path().join("run.c");
    fs::write(&path, source).unwrap();
    Installed::get().compile(&path, dir.path())
}

fn start(program: &Path, dir: &TempDir) -> Job {
    let (program, dir) = (program.display(), dir.path().display());
    let script = format!("cd '{dir}' && exec '{program}'");
    Job::start(RANKS, "/bin/sh".as_ref(), &["-c", &script])
}

/// Runs the program and kills it after the seventh flush. The log is then at `path`.
pub fn leave_unclosed(path: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let source = sources().remove(0);
    assert!(
        source.contains(FLUSH),
        "the program of the guide has no {FLUSH}"
    );
    let dying = source.replace(FLUSH, FLUSH_AND_DIE);
    let program = compile(&format!("#include <signal.h>\n{dying}"), &dir);
    start(&program, &dir).wait_for_killed();
    for suffix in ["", ".h5logfs-journal"] {
        let from = dir.path().join(format!("{FILE}{suffix}"));
        fs::copy(from, format!("{}{suffix}", path.display())).unwrap();
    }
}

/// All versions succeed and write the same elements.
pub fn check() {
    let programs = sources().into_iter().map(|source| {
        let dir = tempfile::tempdir().unwrap();
        (compile(&source, &dir), dir)
    });
    let rust = (program("writer-guide"), tempfile::tempdir().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let fortran = compile_fortran("guide.F90", &[], dir.path()).map(|program| (program, dir));
    let written = programs.chain([rust]).chain(fortran).map(|(program, dir)| {
        start(&program, &dir).succeed();
        run("h5logfs check run.h5", &dir);
        run("h5logfs export run.h5 plain.h5 && h5dump plain.h5", &dir)
    });
    let written: Vec<String> = written.collect();
    assert!(written.len() > 1 && written[0].contains("SIMPLE { ( 10, 4000 )"));
    assert!(written.windows(2).all(|pair| pair[0] == pair[1]));
}

fn run(script: &str, dir: &TempDir) -> String {
    let script = script.replace("h5logfs ", &format!("'{PROGRAM}' "));
    let mut command = Command::new("sh");
    command.args(["-ec", &script]).current_dir(dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", said(&output));
    said(&output)
}
