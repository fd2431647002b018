//! Sets of netCDF files, one for each process of a model, as netCDF programs see them: those of the corpus, and random ones.
//! `table.rs` reads those of the corpus in all ways.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::amount::{either, first_seed, part, told};
use crate::common::cases::{Case, Cases, Way};
use crate::common::package::Package;
use crate::common::readers::{Python, project, said};
use crate::common::{Mounted, PROGRAM, User, can_mount};

fn corpus() -> PathBuf {
    project().join("tests/corpus-tiles")
}

/// Compares what is at the paths of these cases below `dir` with what is expected. `option`: one of `scorpiosame.py`, which compares
/// any netCDF files.
fn compare(python: &Python, option: Option<&str>, dir: &Path, cases: &[Case]) {
    let mut command = python.tool("scorpiosame.py");
    command.args(option);
    for case in cases {
        command.args([dir.join(&case.path), case.expected()]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn netcdf_programs_read_what_the_model_meant() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let cases = Cases::of_tiles(&corpus());
    let mounted = Mounted::new(cases.dir.path(), "");
    compare(&python, None, mounted.path(), &cases.all);
}

#[test]
fn the_engine_for_xarray_reads_what_the_model_meant() {
    let Some(python) = Python::new() else { return };
    let (package, cases) = (Package::new(), Cases::of_tiles(&corpus()));
    let python = package.used_by(&python);
    let some = part(cases.all.clone(), 4);
    compare(&python, Some("--engine"), cases.dir.path(), &some);
}

#[test]
#[ignore = "make test-all"]
fn nco_and_cdo_read_what_the_model_meant() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let cases = Cases::of_tiles(&corpus());
    let mounted = Mounted::new(cases.dir.path(), "");
    for (program, option) in [("ncks", "--nco"), ("cdo", "--cdo")] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {program}; `scripts/setup.sh climate` installs it");
            continue;
        }
        compare(&python, Some(option), mounted.path(), &cases.all);
    }
}

/// `H5LOGFS_TEST_CASES` sets the number of sets, `H5LOGFS_TEST_SEED` the first one.
#[test]
fn random_sets_are_the_files_from_which_they_were_cut() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let made = tempfile::tempdir().unwrap();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(40, 2000));
    let mut make = python.tool("tiles.py");
    make.arg(made.path());
    make.args([first_seed(), count].map(|number| number.to_string()));
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let cases = Cases::of_tiles(made.path());
    for way in [Way::Driver, Way::Package, Way::Export] {
        for (path, difference) in cases.read(way, &cases.all).unwrap_or_default() {
            assert_eq!(difference, "", "{}, {path}", way.name());
        }
    }
    let mounted = Mounted::new(cases.dir.path(), "");
    compare(&python, Some("--plain"), mounted.path(), &cases.all);
}

/// Each faulty set of the corpus is refused, or its faulty elements are, in words that tell the file and the reason; kinds of files
/// that are not joined are said to be so.
#[test]
fn what_is_faulty_is_refused_by_name() {
    let corpus = corpus();
    let mut seen = 0;
    for file in std::fs::read_dir(&corpus).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let about: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        if about["expect"] == "same" {
            continue;
        }
        seen += 1;
        let text = |name: &str| about[name].as_str().unwrap().to_owned();
        let first = path.with_extension("").join(text("first"));
        let said = Command::new(PROGRAM)
            .arg("check")
            .arg(&first)
            .output()
            .unwrap();
        let told = format!(
            "{}{}",
            String::from_utf8_lossy(&said.stdout),
            String::from_utf8_lossy(&said.stderr)
        );
        assert!(!said.status.success(), "{}: {told}", first.display());
        // The words of the corpus, without their order: each file and each number must be there.
        for word in text("says")
            .split([' ', ',', ':', '(', ')'])
            .filter(|word| word.contains(['.', '_']) && !word.ends_with('.'))
        {
            assert!(
                told.contains(word),
                "{}: no {word} in {told}",
                first.display()
            );
        }
    }
    assert_eq!(seen, 7);
}

/// A copy of a set of the corpus that may be changed.
fn copy_of(set: &str, to: &Path) {
    let mut copy = Command::new("cp");
    copy.args(["-r", "--no-preserve=mode"]);
    assert!(
        copy.arg(corpus().join(set))
            .arg(to)
            .status()
            .unwrap()
            .success()
    );
}

fn h5logfs(arguments: &[&str], paths: &[&Path]) -> (bool, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(paths)
        .output()
        .unwrap();
    (output.status.success(), said(&output))
}

/// A link would lead into another set. What a set lacks is said where a file is made of it.
#[test]
fn a_link_is_no_member() {
    let dir = tempfile::tempdir().unwrap();
    let (other, own, out) = (
        dir.path().join("s"),
        dir.path().join("t"),
        dir.path().join("o.nc"),
    );
    copy_of("fms_scatter", &other);
    copy_of("fms_scatter", &own);
    std::fs::remove_file(own.join("ocean.nc.0000")).unwrap();
    std::os::unix::fs::symlink("../s/ocean.nc.0000", own.join("ocean.nc.0000")).unwrap();
    let (is_good, told) = h5logfs(&["export"], &[&own.join("ocean.nc"), &out]);
    assert!(is_good && told.contains("5 of 6 members"), "{told}");
    let (is_good, told) = h5logfs(&["inspect"], &[&own.join("ocean.nc.0000")]);
    assert!(!is_good && !told.contains("/s/ocean.nc "), "{told}");
}

/// Records are those of which some file has bytes.
#[test]
fn a_header_cannot_claim_records() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("t");
    copy_of("fms_six_digits", &set);
    let names = crate::common::names_in(&set);
    let member = set.join(&names[1]);
    let mut bytes = std::fs::read(&member).unwrap();
    bytes[4..8].copy_from_slice(&i32::MAX.to_be_bytes());
    std::fs::write(&member, bytes).unwrap();
    let (_, told) = h5logfs(&["inspect"], &[&member]);
    assert!(told.len() < 20_000, "{} bytes", told.len());
    let (is_good, told) = h5logfs(&["check"], &[&member]);
    assert!(!is_good && told.contains("ends at byte"), "{told}");
}
