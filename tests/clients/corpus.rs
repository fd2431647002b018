//! Real files of the real writer, read through a real mount by real clients: each must equal what the program meant.

use std::path::Path;
use std::process::Command;

use crate::common::readers::{
    Python, check_all, corpus, netcdf_reads, reads_the_rest, said, sound_cases, whole_corpus,
};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// Every sound case, read by every Python and by h5dump.
fn reads_as_expected(corpus: &Path) {
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(corpus, "");
    let pythons = Python::all();
    check_all(sound_cases(corpus), |name| {
        let got = mounted.join(format!("{name}.log.h5"));
        let expected = corpus.join(format!("{name}.expected.h5"));
        for python in &pythons {
            python.same(&got, &expected)?;
        }
        let dump = Command::new("h5dump").arg(&got).output().unwrap();
        if dump.status.success() && dump.stderr.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "h5dump {name}: {}",
                String::from_utf8_lossy(&dump.stderr)
            ))
        }
    });
}

#[test]
fn the_small_cases_read_as_expected() {
    reads_as_expected(&corpus());
}

#[test]
fn the_whole_corpus_reads_as_expected() {
    if let Some(corpus) = whole_corpus() {
        reads_as_expected(&corpus);
    }
}

#[test]
fn h5diff_finds_no_difference() {
    if !can_mount(User::Caller) {
        return;
    }
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    // According to the corpus, object references and null dataspaces cannot be compared.
    let comparable = |n: &String| !["objref", "objref_dset", "nullspace"].contains(&n.as_str());
    let names = sound_cases(&corpus).into_iter().filter(comparable);
    check_all(names.collect(), |name| {
        let got = mounted.join(format!("{name}.log.h5"));
        let expected = corpus.join(format!("{name}.expected.h5"));
        let diff = Command::new("h5diff").arg(&got).arg(expected).output();
        let diff = diff.unwrap();
        if diff.status.success() {
            Ok(())
        } else {
            Err(format!("h5diff {name}: {}", said(&diff)))
        }
    });
}

#[test]
fn a_copy_and_an_export_are_the_mounted_bytes() {
    if !can_mount(User::Caller) {
        return;
    }
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    let out = tempfile::tempdir().unwrap();
    check_all(sound_cases(&corpus), |name| {
        let file = format!("{name}.log.h5");
        let (copied, exported) = (
            out.path().join(&file),
            out.path().join(format!("{name}.h5")),
        );
        let copy = Command::new("cp")
            .arg(mounted.join(&file))
            .arg(&copied)
            .output();
        let mut command = Command::new(PROGRAM);
        command.arg("export").arg(corpus.join(&file)).arg(&exported);
        for output in [copy.unwrap(), command.output().unwrap()] {
            if !output.status.success() {
                return Err(format!("{name}: {}", said(&output)));
            }
        }
        if std::fs::read(copied).unwrap() == std::fs::read(exported).unwrap() {
            Ok(())
        } else {
            Err(format!("{name}: cp and export differ"))
        }
    });
}

#[test]
fn netcdf_files_are_the_same_as_netcdf() {
    let Some(python) = Python::new() else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(&corpus(), "");
    netcdf_reads(&python, &mounted.join(""));
}

fn reads_the_rest_mounted(python: &Python, import: &str, open: &str, error: &str) {
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(&corpus(), "");
    reads_the_rest(python, &mounted.join(""), import, open, error);
}

#[test]
fn what_is_lost_or_damaged_is_refused_and_the_rest_is_read() {
    if let Some(python) = Python::old() {
        reads_the_rest_mounted(&python, "import h5py", "h5py.File(path, 'r')", "OSError");
    }
}

/// netCDF-C reads the first 4 MiB before it opens a file.
#[test]
fn netcdf_reads_the_rest_of_damaged_files_too() {
    if let Some(python) = Python::new() {
        let open = "netCDF4.Dataset(path).variables";
        reads_the_rest_mounted(&python, "import netCDF4", open, "RuntimeError");
    }
}
