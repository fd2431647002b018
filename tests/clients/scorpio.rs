//! SCORPIO directories as netCDF programs see them: those of the corpus, those of random programs, and what killed programs leave.
//! `table.rs` reads those of the corpus in all ways.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::amount::{either, first_seed, part, told};
use crate::common::cases::{Cases, Way};
use crate::common::package::Package;
use crate::common::readers::{Python, project, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, names_in};

fn corpus() -> PathBuf {
    project().join("tests/corpus-scorpio")
}

/// Names of the cases in a directory, without `.nc.bp`.
fn names(dir: &Path) -> Vec<String> {
    let names = names_in(dir).into_iter();
    let names = names.filter_map(|name| Some(name.strip_suffix(".nc.bp")?.to_owned()));
    let names: Vec<String> = names.collect();
    assert!(!names.is_empty(), "no cases in {}", dir.display());
    names
}

/// Runs a tool with two files of each name. It prints the differences, and fails if there are any.
fn compare(python: &Python, tool: &[&str], pairs: impl IntoIterator<Item = [PathBuf; 2]>) {
    let mut command = python.tool(tool[0]);
    command.args(&tool[1..]).args(pairs.into_iter().flatten());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

// --- the tests of the judges ---------------------------------------------------------------------

/// Each of these changes of a file must be noticed. Otherwise the other tests prove little.
#[test]
fn the_comparison_finds_what_differs() {
    let Some(python) = Python::new() else { return };
    let code = "
import os, sys
import netCDF4, numpy as np
directory, tools = sys.argv[1:]
sys.path.insert(0, tools)
import scorpiosame
def make(name, change=None):
    path = os.path.join(directory, f'{name}.nc')
    with netCDF4.Dataset(path, 'w') as file:
        is_ = lambda what: change == what
        file.createDimension('t', 2 if is_('limited') else None)
        file.createDimension('x', 4 if is_('length') else 3)
        if is_('dimension'):
            file.createDimension('more', 1)
        file.setncattr_string('title', 'a') if is_('string') else file.setncattr('title', 'b' if is_('text') else 'a')
        file.k = np.array([3, 4] if is_('values') else [3], 'i8' if is_('attribute type') else 'i4')
        v = file.createVariable('v', 'f8' if is_('type') else 'f4', ('t', 'x'), fill_value=-2 if is_('fill') else -1)
        v[0:2] = np.arange(2 * len(file.dimensions['x'])).reshape(2, -1) + is_('value') * 2.0**-20
        if is_('record'):
            v[2] = 0
        if is_('attribute'):
            v.units = 'm'
        file.createVariable('x', 'S1', ('t', 'x') if is_('coordinate') else ('x', 't'))
        file.createVariable('zero', 'f8')[...] = -0.0 if is_('sign') else 0.0
        if is_('variable'):
            file.createVariable('other', 'i1')
    return path
good, missed = make('good'), []
assert not list(scorpiosame.as_all_see(good, make('same')))
for change in ('limited', 'length', 'dimension', 'string', 'text', 'values', 'attribute type', 'type', 'fill', 'value', 'record',
               'attribute', 'coordinate', 'sign', 'variable'):
    changed = make(change, change)
    ways = [scorpiosame.compare, scorpiosame.by_ncdump]
    found = [list(way(changed, good)) for way in ways]
    missed += [(change, way.__name__) for way, texts in zip(ways, found) if not texts]
print(missed)
";
    let dir = tempfile::tempdir().unwrap();
    let missed = python.run(code, &[dir.path(), &project().join("tests/tools")]);
    assert_eq!(missed.trim(), "[]");
}

/// A decoder after the format page gives the expected file of each directory.
#[test]
fn the_format_page_gives_what_was_meant() {
    let Some(python) = Python::new() else { return };
    let dir = corpus();
    let pair = |name: String| {
        let paths = [format!("{name}.nc.bp"), format!("{name}.expected.nc")];
        paths.map(|name| dir.join(name))
    };
    compare(
        &python,
        &["scorpiorules.py"],
        names(&dir).into_iter().map(pair),
    );
}

// --- the tests -----------------------------------------------------------------------------------

#[test]
fn netcdf_programs_read_what_was_meant() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    let pairs = part(names(&corpus), 4).into_iter().map(|name| {
        let got = mounted.join(format!("{name}.nc"));
        [got, corpus.join(format!("{name}.expected.nc"))]
    });
    compare(&python, &["scorpiosame.py"], pairs);
}

#[test]
fn the_engine_for_xarray_reads_what_was_meant() {
    let Some(python) = Python::new() else { return };
    let (package, corpus) = (Package::new(), corpus());
    let pairs = part(names(&corpus), 4).into_iter().map(|name| {
        let paths = [format!("{name}.nc.bp"), format!("{name}.expected.nc")];
        paths.map(|name| corpus.join(name))
    });
    let python = package.used_by(&python);
    compare(&python, &["scorpiosame.py", "--engine"], pairs);
}

/// CDO reads what lies on a grid.
#[test]
#[ignore = "make test-all"]
fn nco_and_cdo_read_what_was_meant() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let corpus = corpus();
    let mounted = Mounted::new(&corpus, "");
    // NCO copies all of a file or nothing, and some variables of this one are refused.
    let others = || {
        names(&corpus)
            .into_iter()
            .filter(|name| name != "nodecomps_r2")
    };
    let gridded = || others().filter(|name| name.starts_with("eam_h0"));
    let pair = |name: String| {
        let got = mounted.join(format!("{name}.nc"));
        [got, corpus.join(format!("{name}.expected.nc"))]
    };
    for (program, option) in [("ncks", "--nco"), ("cdo", "--cdo")] {
        if Command::new(program).arg("--version").output().is_err() {
            eprintln!("skipped: there is no {program}; `scripts/setup.sh climate` installs it");
            continue;
        }
        let tool = ["scorpiosame.py", option];
        match program {
            "ncks" => compare(&python, &tool, others().map(pair)),
            _ => compare(&python, &tool, gridded().map(pair)),
        }
    }
}

/// `H5LOGFS_TEST_CASES` sets the number of programs, `H5LOGFS_TEST_SEED` the first one.
#[test]
fn random_directories_are_the_files_that_were_meant() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let made = tempfile::tempdir().unwrap();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(40, 1000));
    let mut make = python.tool("scorpio.py");
    make.arg(made.path());
    make.args([first_seed(), count].map(|number| number.to_string()));
    let output = make.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let pairs = |dir: &Path, end: &str| {
        let expected = |name: &String| made.path().join(format!("{name}.expected.nc"));
        let got = |name: &String| dir.join(format!("{name}{end}"));
        let pair = |name: String| [got(&name), expected(&name)];
        names(made.path()).into_iter().map(pair).collect::<Vec<_>>()
    };
    compare(&python, &["scorpiorules.py"], pairs(made.path(), ".nc.bp"));
    let cases = Cases::of_scorpio(made.path());
    for way in [Way::Driver, Way::Package, Way::Export] {
        for (path, difference) in cases.read(way, &cases.all).unwrap_or_default() {
            assert_eq!(difference, "", "{}, {path}", way.name());
        }
    }
    let mounted = Mounted::new(made.path(), "");
    let seen = pairs(mounted.path(), ".nc");
    compare(&python, &["scorpiosame.py", "--plain"], seen);
}

/// Exactly the frames of completed steps are there. `H5LOGFS_TEST_CASES` and `H5LOGFS_TEST_SEED` as above.
#[test]
fn programs_that_are_killed_leave_their_frames() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let count = told("H5LOGFS_TEST_CASES").unwrap_or(either(6, 300));
    let mut tool = python.tool("scorpiokill.py");
    tool.args([Path::new(PROGRAM), dir.path()]);
    let output = tool
        .args([first_seed(), count].map(|number| number.to_string()))
        .output()
        .unwrap();
    let said = said(&output);
    eprintln!("{said}");
    assert!(output.status.success(), "{said}");
}

/// Each fault of the format page's table of errors: it spoils its variable, which `check` names, and nothing else.
#[test]
fn what_is_faulty_is_refused_by_name_and_the_rest_is_shown() {
    let (Some(python), true) = (Python::new(), can_mount(User::Caller)) else {
        return;
    };
    let made = tempfile::tempdir().unwrap();
    let mut make = python.tool("scorpioerrors.py");
    let output = make.arg("make").arg(made.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mounted = Mounted::new(made.path(), "");
    let mut check = python.tool("scorpioerrors.py");
    check.args(["check", PROGRAM]).arg(made.path());
    let output = check.arg(mounted.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
