//! Real files of the real writer, read through a real mount by real clients: each must come out as
//! the program meant it.

use std::path::Path;
use std::process::Command;

use crate::common::readers::{Python, cases, check_all, corpus, said, whole_corpus};
use crate::common::{Mounted, PROGRAM, User, can_mount};

/// Valid logs that cannot come out as expected: the writer lost the data before it was logged.
const LOST_BY_THE_WRITER: [&str; 2] = ["damaged_interleave", "damaged_vlen"];

fn sound_cases(corpus: &Path) -> Vec<String> {
    let mut names = cases(corpus);
    names.retain(|n| !LOST_BY_THE_WRITER.contains(&n.as_str()));
    names
}

/// Every sound case by every Python, and by h5dump.
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
    // Object references and null dataspaces cannot be compared, says the corpus.
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

/// Dimensions, coordinate variables, attributes and data, as netCDF readers see them.
#[test]
fn netcdf_files_are_the_same_as_netcdf() {
    let Some(python) = Python::new() else {
        return;
    };
    if !can_mount(User::Caller) {
        return;
    }
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    for name in ["netcdf4_wrf", "netcdf4_sub"] {
        let mut command = python.tool("ncsame.py");
        command.arg(mounted.join(format!("{name}.log.h5")));
        command.arg(corpus.join(format!("{name}.expected.h5")));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{name}: {}", said(&output));
    }
}

/// Files of the corpus that are damaged, and one that is not.
const DAMAGED: [&str; 13] = [
    "bad_foff",
    "bad_nproc",
    "bad_nsel",
    "bad_refself",
    "bad_roff",
    "bad_size0",
    "bad_step0",
    "crash_flush",
    "crash_md",
    "crash_noflush",
    "damaged_vlen",
    "truncated",
    "tiny",
];

/// What each dataset of each of them gives.
const REFUSED: &str = "\
bad_foff a refused
bad_foff r ok
bad_nproc a refused
bad_nproc r refused
bad_nsel a refused
bad_nsel r refused
bad_refself a ok
bad_refself r refused
bad_roff a ok
bad_roff r refused
bad_size0 a refused
bad_size0 r refused
bad_step0 a refused
bad_step0 r ok
crash_flush not opened
crash_md not opened
crash_noflush not opened
damaged_vlen vl refused
truncated not opened
tiny a ok
tiny r ok
";

/// Reads all of them. `open`: from a path to a mapping of names to datasets. `error`: the exception of a read.
fn reads_the_rest(python: &Python, import: &str, open: &str, error: &str) {
    if !can_mount(User::Caller) {
        return;
    }
    let mounted = Mounted::new(&corpus(), "");
    let code = format!(
        "
import sys
{import}
for path in sys.argv[1:]:
    name = path.rsplit('/', 1)[1].split('.')[0]
    try:
        f = {open}
    except OSError as e:
        print(name, 'not opened')
        continue
    for n in sorted(f):
        try:
            f[n][()]
            print(name, n, 'ok')
        except {error} as e:
            print(name, n, 'refused')
"
    );
    let path = |name: &&str| mounted.join(format!("{name}.log.h5"));
    let files: Vec<_> = DAMAGED.iter().map(path).collect();
    let paths: Vec<&Path> = files.iter().map(|p| p.as_path()).collect();
    assert_eq!(python.run(&code, &paths), REFUSED);
}

#[test]
fn what_is_lost_or_damaged_is_refused_and_the_rest_is_read() {
    if let Some(python) = Python::old() {
        reads_the_rest(&python, "import h5py", "h5py.File(path, 'r')", "OSError");
    }
}

/// netCDF-C reads the first 4 MiB before it opens a file.
#[test]
fn netcdf_reads_the_rest_of_damaged_files_too() {
    if let Some(python) = Python::new() {
        let open = "netCDF4.Dataset(path).variables";
        reads_the_rest(&python, "import netCDF4", open, "RuntimeError");
    }
}
