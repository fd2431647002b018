//! netCDF classic files with logs of PnetCDF's burst-buffering driver, through a real mount: the cases of
//! `tests/corpus-pnetcdf`, sound and damaged, as netCDF programs see them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::amount::part;
use crate::common::pnetcdf::*;
use crate::common::readers::{Python, check_all, said};
use crate::common::{Mounted, User, can_mount};
use serde_json::Value;

// --- the tests of the comparison -----------------------------------------------------------------

/// Each of these changes must be noticed in every way that it lists. Otherwise the other tests prove little.
#[test]
fn the_comparison_finds_what_differs() {
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let code = "
import h5py, json, netCDF4, os, shutil, subprocess, sys
dir, nc4, nc, records4, records = sys.argv[1:]
jobs, seen_by = [], {}
def job(name, ways, got, expected, nccopy, expect='same', **more):
    jobs.append(dict(name=name, got=got, expected=expected, nccopy=nccopy, expect=expect, filled=False, **more))
    seen_by[name] = ways
def changed(name, ways, change, of=(nc4, nc)):
    path = os.path.join(dir, name + '.nc')
    shutil.copyfile(of[0], path)
    os.chmod(path, 0o644)
    with h5py.File(path, 'r+') as f:
        change(f)
    job(name, ways, path, of[1], of[0])
def element(f):
    v = f['vint64'][...]
    v[3, 6] ^= 1
    f['vint64'][...] = v
def retyped(f):
    del f['vint'].attrs['valid']
    f['vint'].attrs['valid'] = [-1, 2, 32767]
def renamed(f):
    del f['vint'].attrs['units']
    f['vint'].attrs['units'] = b'unit4'
def fill(f):
    values = f['vint'][...]
    f['vint'].attrs['_FillValue'] = values[:1, 0]
def swapped(f):
    f.move('vchar', 'other')
    f.move('other', 'vchar')
def dimension(f):
    del f['y'].attrs['CLASS']
changed('element', 'h5py netcdf4 ncdump xarray h5netcdf', element)
changed('attribute type', 'h5py netcdf4 ncdump h5netcdf', retyped)
changed('attribute', 'h5py netcdf4 ncdump xarray h5netcdf', renamed)
changed('fill', 'h5py netcdf4 ncdump xarray h5netcdf', fill)
changed('order', 'netcdf4 ncdump h5netcdf', swapped)
changed('global', 'h5py netcdf4 ncdump xarray h5netcdf', lambda f: f.attrs.__delitem__('title'))
changed('dimension', 'h5py', dimension)
changed('records', 'h5py netcdf4 ncdump xarray h5netcdf', lambda f: f['rs'].resize(4, 0), (records4, records))
job('fewer', 'damaged', os.path.join(dir, 'records.nc'), records, records4, 'partial')
job('wrong', 'damaged', os.path.join(dir, 'element.nc'), nc, nc4, 'partial')
with netCDF4.Dataset(records) as f:
    text = subprocess.run(['ncdump', records], capture_output=True, text=True, check=True).stdout
subprocess.run(['ncgen', '-4', '-o', os.path.join(dir, 'more.nc')], input=text, text=True, check=True)
with h5py.File(os.path.join(dir, 'more.nc'), 'r+') as f:
    f['rs'].resize(6, 0)
job('more', 'damaged', os.path.join(dir, 'more.nc'), records, records4, 'partial')
job('sound', 'damaged', nc4, nc, nc4, 'refuse')
job('good', '', nc4, nc, nc4)
job('good damaged', '', nc4, nc, nc4, 'partial')
job('bad', '', os.path.join(dir, 'nothing'), nc, nc4, 'refuse')
job('left out', '', os.path.join(dir, 'element.nc'), nc, nc4, undefined=['vint64'])
print(json.dumps([jobs, seen_by]))
";
    let (types, records) = (case("types-cdf5-np1"), case("onerecvar-cdf1-np1"));
    let files = [
        types.file("expected.nc4"),
        types.file("expected.nc"),
        records.file("expected.nc4"),
        records.file("expected.nc"),
    ];
    let mut arguments = vec![dir.path()];
    arguments.extend(files.iter().map(PathBuf::as_path));
    let made: Value = serde_json::from_str(&python.run(code, &arguments)).unwrap();
    let jobs = part(made[0].as_array().unwrap().clone(), 3);
    let output = compare(&python, "h5py,netcdf4,ncdump,xarray,h5netcdf", &jobs);
    let text = said(&output);
    let is_sound = |job: &Value| made[1][job["name"].as_str().unwrap()] == "";
    assert_eq!(output.status.success(), jobs.iter().all(is_sound), "{text}");
    for job in &jobs {
        let name = job["name"].as_str().unwrap();
        let ways: Vec<&str> = made[1][name].as_str().unwrap().split(' ').collect();
        for way in ways.iter().filter(|way| !way.is_empty()) {
            assert!(
                text.contains(&format!("{name}, {way}: ")),
                "{way} does not see `{name}`:\n{text}"
            );
        }
        let sound = ways == [""];
        let seen = text
            .lines()
            .any(|line| line.starts_with(&format!("{name}, ")));
        assert!(seen != sound, "{name}:\n{text}");
    }
}

/// Every reader finds the nccopy form of each case as expected: nothing is required that a view cannot give.
#[test]
fn the_comparison_asks_for_nothing_more() {
    let cases = part(Case::all(), 8)
        .into_iter()
        .filter(|c| c.file("expected.nc4").exists());
    let as_same = |case: Case| Case {
        expect: "same".into(),
        ..case
    };
    let jobs = cases.map(as_same).map(|case| {
        let mut job = case.job(&case.file("expected.nc4"));
        job["filled"] = false.into();
        job
    });
    let jobs: Vec<Value> = jobs.collect();
    expect_no_difference(&jobs);
}

// --- the cases -----------------------------------------------------------------------------------

/// Cases whose entries are complete up to their end: these must be shown, not only reported.
fn shown(case: &Case) -> bool {
    let cut = ["cutmeta-cdf1-np1", "badcount-cdf1-np1"];
    case.expect == "same" || cut.contains(&case.name.as_str())
}

#[test]
fn each_case_reads_as_expected() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut cases = Case::all();
    cases.retain(|case| shown(case) && case.name != ELSEWHERE);
    let cases = part(cases, 8);
    let dir = lay_out(&cases);
    let mounted = Mounted::new(dir.path(), "");
    let without = Mounted::new(dir.path(), "incomplete_attribute=off");
    // Incomplete files have an attribute that the expected ones lack.
    let got = |case: &Case| {
        let mounted = if case.expect == "same" {
            &mounted
        } else {
            &without
        };
        mounted.join(&case.name).join("file.nc")
    };
    let jobs = cases.iter().map(|case| {
        let mut job = case.job(&got(case));
        job["expect"] = "same".into();
        job
    });
    expect_no_difference(&jobs.collect::<Vec<_>>());
    check_all(cases.clone(), |case| {
        // Any output on standard error is a complaint of libhdf5 1.10.
        let dump = Command::new("h5dump").arg(got(&case)).output().unwrap();
        if dump.status.success() && dump.stderr.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "h5dump {}: {}",
                case.name,
                String::from_utf8_lossy(&dump.stderr)
            ))
        }
    });
}

#[test]
fn sound_cases_are_good() {
    let cases = Case::that_expect("same");
    let dir = lay_out(&cases);
    check_all(cases, |case| {
        let file = dir.path().join(&case.name).join("file.nc");
        let elsewhere = format!("burst_dir={}", file.with_file_name("bb").display());
        let options: &[&str] = if case.name == ELSEWHERE {
            &["check", "-o", &elsewhere]
        } else {
            &["check"]
        };
        let output = h5logfs(options, &[&file]);
        if output.status.success() && said(&output).contains("good") {
            Ok(())
        } else {
            Err(format!("check {}: {}", case.name, said(&output)))
        }
    });
}

/// Each case must read as it expects, or be refused.
fn read_by_netcdf4(cases: &[Case], mounted: &Mounted) {
    let Some(python) = Python::new() else { return };
    let jobs = cases
        .iter()
        .map(|c| c.job(&mounted.join(&c.name).join("file.nc")));
    let output = compare(&python, "netcdf4", &jobs.collect::<Vec<_>>());
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn what_is_missing_is_told_and_never_made_up() {
    if !can_mount(User::Caller) {
        return;
    }
    let cases = Case::that_expect("partial");
    let dir = lay_out(&cases);
    let mounted = Mounted::new(dir.path(), "");
    read_by_netcdf4(&cases, &mounted);
    check_all(cases, |case| {
        let file = dir.path().join(&case.name).join("file.nc");
        let losses = losses(&file)?;
        if losses.is_empty() {
            return Err(format!("{}: inspect has nothing to tell", case.name));
        }
        // The header counts 20 entries, of which the first 12 are complete.
        let says_so = |text: &String| text.contains(" 8 are missing");
        if case.name.starts_with("cutmeta") && !losses.iter().any(says_so) {
            return Err(format!(
                "{}: 8 entries are missing, but {losses:?}",
                case.name
            ));
        }
        let inspect = said(&h5logfs(&["inspect"], &[&file]));
        let check = h5logfs(&["check"], &[&file]);
        if !losses.iter().all(|text| inspect.contains(text)) {
            Err(format!(
                "{}: inspect does not tell in words: {inspect}",
                case.name
            ))
        } else if check.status.success() {
            Err(format!("check {}: {}", case.name, said(&check)))
        } else {
            Ok(())
        }
    });
}

/// An attribute tells readers which data are missing, in the mount and in an export. Nothing else differs.
#[test]
fn what_is_missing_is_told_by_an_attribute() {
    if !can_mount(User::Caller) {
        return;
    }
    let Some(python) = Python::new() else { return };
    let cases = ["cutmeta-cdf1-np1", "badcount-cdf1-np1"].map(case);
    let dir = lay_out(&cases);
    let on = Mounted::new(dir.path(), "");
    let off = Mounted::new(dir.path(), "incomplete_attribute=off");
    let out = tempfile::tempdir().unwrap();
    for case in &cases {
        let below = Path::new(&case.name).join("file.nc");
        let (shown, without) = (on.join(&below), off.join(&below));
        for (view, option) in [(&shown, "on"), (&without, "off")] {
            let option = format!("incomplete_attribute={option}");
            let exported = export(&dir.path().join(&below), &["--option", &option]);
            assert!(exported == fs::read(view).unwrap(), "{option}");
        }
        // The attribute is the same for netCDF-C and xarray, and for tools of both generations of libhdf5.
        let code = "
import h5py, netCDF4, sys, xarray
name = '_h5logfs_incomplete'
for path in sys.argv[1:]:
    with netCDF4.Dataset(path) as f:
        text = f.getncattr(name) if name in f.ncattrs() else None
    for engine in ('netcdf4', 'h5netcdf'):
        assert xarray.open_dataset(path, engine=engine).attrs.get(name) == text, engine
    with h5py.File(path) as f:
        own = f.attrs.get(name)
        assert (own and own.decode()) == text
    print(text)
";
        let told = python.run(code, &[&shown, &without]);
        let start = "Data that were logged are missing here. They read as if they had not been written, or cannot be \
                     read.\nfile.nc_0_0.meta: of ";
        let end = "\n`h5logfs check` tells more when it is given the log.\nNone\n";
        assert!(told.starts_with(start) && told.ends_with(end), "{told}");
        assert_eq!(told.lines().count(), 4, "{told}");
        assert!(header(&shown).contains(":_h5logfs_incomplete = \"Data"));
        assert!(!header(&without).contains("_h5logfs_incomplete"));
        // netCDF sees the same file except for the attribute.
        let copy = out.path().join(&case.name);
        fs::copy(&shown, &copy).unwrap();
        let delete = "
import h5py, sys
with h5py.File(sys.argv[1], 'r+') as f:
    del f.attrs['_h5logfs_incomplete']
";
        python.run(delete, &[&copy]);
        let diff = Command::new("h5diff").arg(&copy).arg(&without).output();
        let diff = diff.unwrap();
        assert!(diff.status.success(), "{}", said(&diff));
    }
}

/// Payloads of the last entries are lost: their variables are unreadable, at least in part; the others are readable.
#[test]
fn lost_payloads_take_nothing_else_with_them() {
    if !can_mount(User::Caller) {
        return;
    }
    let Some(python) = Python::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut jobs = Vec::new();
    for name in [
        "rand-cdf1-np1",
        "types-cdf5-np1",
        "rand-cdf5-np4",
        "bigendian-cdf2-np1",
    ] {
        let case = case(name);
        let file = case.lay_out(dir.path());
        let log = file.with_file_name("file.nc_0_0.data");
        let len = log.metadata().unwrap().len();
        File::options()
            .write(true)
            .open(&log)
            .unwrap()
            .set_len(len - 3)
            .unwrap();
        let check = h5logfs(&["check"], &[&file]);
        assert!(!check.status.success(), "check {name}: {}", said(&check));
        let losses = losses(&file).unwrap();
        assert!(!losses.is_empty(), "{name}: inspect has nothing to tell");
        jobs.push(case);
    }
    let mounted = Mounted::new(dir.path(), "");
    let jobs = jobs.iter().map(|case| {
        let mut job = case.job(&mounted.join(&case.name).join("file.nc"));
        job["expect"] = "partial".into();
        job
    });
    let jobs: Vec<Value> = jobs.collect();
    let output = compare(&python, "netcdf4", &jobs);
    assert!(output.status.success(), "{}", said(&output));
    // A program that refuses everything would have passed so far.
    let code = "
import h5py, sys
for path in sys.argv[1:]:
    with h5py.File(path, 'r') as f:
        refused = []
        for name in f:
            try:
                f[name][()]
            except OSError:
                refused.append(name)
        print(len(refused))
";
    let files: Vec<PathBuf> = jobs
        .iter()
        .map(|job| job["got"].as_str().unwrap().into())
        .collect();
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    assert_eq!(python.run(code, &files), "1\n".repeat(files.len()));
}

/// An entry breaks a rule: its variable is unreadable, the others are readable. An entry for a missing variable may
/// belong to any.
#[test]
fn entries_that_break_a_rule_take_nothing_else_with_them() {
    if !can_mount(User::Caller) {
        return;
    }
    let Some(python) = Python::new() else { return };
    let cases = ["badrange-cdf1-np1", "badvarid-cdf1-np1"].map(case);
    let dir = lay_out(&cases);
    let mounted = Mounted::new(dir.path(), "");
    let code = "
import netCDF4, sys
for path in sys.argv[1:]:
    variables = netCDF4.Dataset(path).variables
    refused = []
    for name in variables:
        try:
            variables[name][()]
        except RuntimeError:
            refused.append(name)
    print(len(variables), *sorted(refused))
";
    let files = cases.map(|case| mounted.join(&case.name).join("file.nc"));
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    assert_eq!(python.run(code, &files), "8 vchar\n1 r\n");
}

#[test]
fn what_cannot_be_had_is_refused() {
    if !can_mount(User::Caller) {
        return;
    }
    let cases = Case::that_expect("refuse");
    let dir = lay_out(&cases);
    let mounted = Mounted::new(dir.path(), "");
    read_by_netcdf4(&cases, &mounted);
    for case in cases {
        let file = Path::new(&case.name).join("file.nc");
        let check = h5logfs(&["check"], &[&dir.path().join(&file)]);
        assert!(
            !check.status.success(),
            "check {}: {}",
            case.name,
            said(&check)
        );
        assert!(
            !check.stdout.is_empty(),
            "check {} does not say why",
            case.name
        );
        if [
            "badmagic-cdf1-np1",
            "cuthead-cdf1-np1",
            "emptyfile-cdf1-np1",
        ]
        .contains(&&*case.name)
        {
            let read = fs::read(mounted.join(&file));
            assert!(read.is_err(), "{} is served in spite of its log", case.name);
        }
    }
}
