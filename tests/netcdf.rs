//! netCDF classic files with the logs of PnetCDF's burst-buffering driver, through a real mount: the cases of
//! `tests/corpus-pnetcdf` as netCDF programs see them, and what is asked of the commands.

#![cfg(feature = "mount")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use common::readers::{Python, check_all, project, said};
use common::{Mounted, PROGRAM, User, can_mount, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";
/// The path that the headers of all logs of the corpus have.
const WRITTEN_AT: &str = "/data/run/file.nc";
/// Its logs lie in a directory of their own.
const ELSEWHERE: &str = "dirname-cdf2-np4";

// --- the corpus ----------------------------------------------------------------------------------

fn corpus() -> PathBuf {
    project().join("tests/corpus-pnetcdf")
}

#[derive(Debug, Clone)]
struct Case {
    name: String,
    expect: String,
    undefined: Vec<String>,
}

impl Case {
    fn all() -> Vec<Case> {
        let folders = fs::read_dir(corpus()).unwrap().flatten();
        let folders = folders.filter(|f| f.path().join("case.json").exists());
        let mut all: Vec<Case> = folders.map(|f| Case::read(&f.path())).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(all.len() > 50, "{} cases", all.len());
        all
    }

    fn that_expect(expect: &str) -> Vec<Case> {
        let mut cases = Case::all();
        cases.retain(|case| case.expect == expect);
        cases
    }

    fn read(folder: &Path) -> Case {
        let text = fs::read(folder.join("case.json")).unwrap();
        let facts: Value = serde_json::from_slice(&text).unwrap();
        let undefined = facts["undefined"].as_array().unwrap().iter();
        Case {
            name: facts["name"].as_str().unwrap().to_owned(),
            expect: facts["expect"].as_str().unwrap().to_owned(),
            undefined: undefined.map(|v| v.as_str().unwrap().to_owned()).collect(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        corpus().join(&self.name).join(name)
    }

    /// What a job of `nclogs.py` needs to know.
    fn job(&self, got: &Path) -> Value {
        json!({
            "name": self.name,
            "got": got,
            "expected": self.file("expected.nc"),
            "nccopy": self.file("expected.nc4"),
            "undefined": self.undefined,
            "expect": self.expect,
        })
    }

    /// Puts the netCDF file and its logs below `folder`, as the job left them.
    fn lay_out(&self, folder: &Path) -> PathBuf {
        let to = folder.join(&self.name);
        copy_logs(&corpus().join(&self.name), &to);
        if self.name == ELSEWHERE {
            copy_logs(&self.file("bb"), &to.join("bb"));
        }
        to.join("file.nc")
    }
}

/// Copies `file.nc` and its logs; compressed ones become sparse files. The file is older than the logs, and
/// of these the ones with the lowest number are the oldest.
fn copy_logs(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap().flatten() {
        let name = file.file_name().into_string().unwrap();
        if !name.starts_with("file.nc") {
            continue;
        }
        let copy = to.join(name.strip_suffix(".gz").unwrap_or(&name));
        if name.ends_with(".gz") {
            unpack(&file.path(), &copy);
        } else {
            fs::write(&copy, fs::read(file.path()).unwrap()).unwrap();
        }
        let generation = name
            .split('_')
            .nth(1)
            .map_or(0, |n| 1 + n.parse::<u64>().unwrap());
        set_age(&copy, 3600 - 60 * generation);
    }
}

/// Sets the time of modification: `age` seconds ago.
fn set_age(path: &Path, age: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(age);
    file.set_modified(modified).unwrap();
}

fn unpack(from: &Path, to: &Path) {
    let mut bytes = flate2::read::GzDecoder::new(File::open(from).unwrap());
    let mut file = File::create(to).unwrap();
    let mut block = vec![0; 64 << 10];
    let mut len = 0;
    loop {
        let mut filled = 0;
        while let n @ 1.. = bytes.read(&mut block[filled..]).unwrap() {
            filled += n;
        }
        if block[..filled].iter().any(|b| *b != 0) {
            file.seek(SeekFrom::Start(len)).unwrap();
            file.write_all(&block[..filled]).unwrap();
        }
        len += filled as u64;
        if filled < block.len() {
            break;
        }
    }
    file.set_len(len).unwrap();
}

/// Lays out cases below one directory; a case is a directory there.
fn lay_out(cases: &[Case]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for case in cases {
        case.lay_out(folder.path());
    }
    folder
}

fn case(name: &str) -> Case {
    Case::read(&corpus().join(name))
}

// --- looking at it -------------------------------------------------------------------------------

/// Runs `nclogs.py`: one interpreter for all jobs.
fn compare(python: &Python, ways: &str, jobs: &[Value]) -> Output {
    let mut command = python.tool("nclogs.py");
    command.args(["--ways", ways]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = serde_json::to_vec(jobs).unwrap();
    // All of it is read before anything is said.
    child.stdin.take().unwrap().write_all(&text).unwrap();
    child.wait_with_output().unwrap()
}

/// Every way of every Python that is here.
fn expect_no_difference(jobs: &[Value]) {
    assert!(!jobs.is_empty());
    let mut failures = String::new();
    for (python, ways) in [
        (Python::old(), "h5py"),
        (Python::new(), "h5py,netcdf4,ncdump,xarray,h5netcdf"),
    ] {
        let Some(python) = python else { continue };
        let output = compare(&python, ways, jobs);
        if !output.status.success() {
            failures += &format!("{}: {}", python.name, said(&output));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn h5logfs(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = User::Caller.command(PROGRAM);
    command.args(arguments).args(files).output().unwrap()
}

/// All notes and faults that `inspect` has to tell.
fn complaints(file: &Path, options: &[&str]) -> Result<Vec<String>, String> {
    let output = h5logfs(&[&["inspect", "--json"], options].concat(), &[file]);
    if !output.status.success() {
        return Err(format!("inspect {}: {}", file.display(), said(&output)));
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let faults = report["datasets"].as_array().unwrap().iter();
    let faults = faults.flat_map(|d| d["faults"].as_array().unwrap());
    let all = report["warnings"].as_array().unwrap().iter().chain(faults);
    Ok(all.map(|text| text.as_str().unwrap().to_owned()).collect())
}

/// What is wrong with a case of the corpus, beside that all of it was moved.
fn losses(file: &Path) -> Result<Vec<String>, String> {
    let mut told = complaints(file, &[])?;
    told.retain(|text| !text.contains(WRITTEN_AT));
    Ok(told)
}

fn header(file: &Path) -> String {
    let output = Command::new("ncdump").arg("-h").arg(file).output().unwrap();
    said(&output)
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn export(file: &Path, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.nc");
    let output = h5logfs(&[&["export"], options].concat(), &[file, &out]);
    assert!(
        output.status.success(),
        "export {}: {}",
        file.display(),
        said(&output)
    );
    fs::read(out).unwrap()
}

// --- the tests of the comparison -----------------------------------------------------------------

/// Each of these changes must be seen, by each of the ways that it names; or nothing else here is worth much.
#[test]
fn the_comparison_finds_what_differs() {
    let Some(python) = Python::new() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let code = "
import h5py, json, netCDF4, os, shutil, subprocess, sys
folder, nc4, nc, records4, records = sys.argv[1:]
jobs, seen_by = [], {}
def job(name, ways, got, expected, nccopy, expect='same', **more):
    jobs.append(dict(name=name, got=got, expected=expected, nccopy=nccopy, expect=expect, filled=False, **more))
    seen_by[name] = ways
def changed(name, ways, change, of=(nc4, nc)):
    path = os.path.join(folder, name + '.nc')
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
job('fewer', 'damaged', os.path.join(folder, 'records.nc'), records, records4, 'partial')
job('wrong', 'damaged', os.path.join(folder, 'element.nc'), nc, nc4, 'partial')
with netCDF4.Dataset(records) as f:
    text = subprocess.run(['ncdump', records], capture_output=True, text=True, check=True).stdout
subprocess.run(['ncgen', '-4', '-o', os.path.join(folder, 'more.nc')], input=text, text=True, check=True)
with h5py.File(os.path.join(folder, 'more.nc'), 'r+') as f:
    f['rs'].resize(6, 0)
job('more', 'damaged', os.path.join(folder, 'more.nc'), records, records4, 'partial')
job('sound', 'damaged', nc4, nc, nc4, 'refuse')
job('good', '', nc4, nc, nc4)
job('good damaged', '', nc4, nc, nc4, 'partial')
job('bad', '', os.path.join(folder, 'nothing'), nc, nc4, 'refuse')
job('left out', '', os.path.join(folder, 'element.nc'), nc, nc4, undefined=['vint64'])
print(json.dumps([jobs, seen_by]))
";
    let (types, records) = (case("types-cdf5-np1"), case("onerecvar-cdf1-np1"));
    let files = [
        types.file("expected.nc4"),
        types.file("expected.nc"),
        records.file("expected.nc4"),
        records.file("expected.nc"),
    ];
    let mut arguments = vec![folder.path()];
    arguments.extend(files.iter().map(PathBuf::as_path));
    let made: Value = serde_json::from_str(&python.run(code, &arguments)).unwrap();
    let jobs = made[0].as_array().unwrap();
    let output = compare(&python, "h5py,netcdf4,ncdump,xarray,h5netcdf", jobs);
    let text = said(&output);
    assert!(!output.status.success(), "{text}");
    for (name, ways) in made[1].as_object().unwrap() {
        let ways: Vec<&str> = ways.as_str().unwrap().split(' ').collect();
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

/// The nccopy form of each case is what the case expects, to every reader: nothing is asked that a view cannot give.
#[test]
fn the_comparison_asks_for_nothing_more() {
    let cases = Case::all()
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

/// Cases whose entries are all there up to where they end: what is there must be shown, not only reported.
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
    let folder = lay_out(&cases);
    let mounted = Mounted::new(folder.path(), "");
    let got = |case: &Case| mounted.join(&case.name).join("file.nc");
    let jobs = cases.iter().map(|case| {
        let mut job = case.job(&got(case));
        job["expect"] = "same".into();
        job
    });
    expect_no_difference(&jobs.collect::<Vec<_>>());
    check_all(cases.clone(), |case| {
        // What is not silent is a complaint of libhdf5 1.10.
        let dump = Command::new("h5dump").arg(got(&case)).output().unwrap();
        match dump.status.success() && dump.stderr.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "h5dump {}: {}",
                case.name,
                String::from_utf8_lossy(&dump.stderr)
            )),
        }
    });
}

#[test]
fn a_copy_and_an_export_are_the_mounted_bytes() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut cases = Case::that_expect("same");
    cases.retain(|case| case.name != ELSEWHERE);
    let folder = lay_out(&cases);
    let mounted = Mounted::new(folder.path(), "");
    let out = tempfile::tempdir().unwrap();
    check_all(cases.clone(), |case| {
        let file = Path::new(&case.name).join("file.nc");
        let exported = out.path().join(&case.name);
        let output = h5logfs(&["export"], &[&folder.path().join(&file), &exported]);
        if !output.status.success() {
            return Err(format!("export {}: {}", case.name, said(&output)));
        }
        let shown = fs::read(mounted.join(&file)).map_err(|e| format!("{}: {e}", case.name))?;
        match shown == fs::read(&exported).unwrap() {
            true => Ok(()),
            false => Err(format!("{}: the mount and the export differ", case.name)),
        }
    });
    let jobs = cases
        .iter()
        .map(|case| case.job(&out.path().join(&case.name)));
    expect_no_difference(&jobs.collect::<Vec<_>>());
}

#[test]
fn sound_cases_are_good() {
    let cases = Case::that_expect("same");
    let folder = lay_out(&cases);
    check_all(cases, |case| {
        let file = folder.path().join(&case.name).join("file.nc");
        let elsewhere = format!("burst_dir={}", file.with_file_name("bb").display());
        let options: &[&str] = match case.name == ELSEWHERE {
            true => &["check", "-o", &elsewhere],
            false => &["check"],
        };
        let output = h5logfs(options, &[&file]);
        match output.status.success() && said(&output).contains("good") {
            true => Ok(()),
            false => Err(format!("check {}: {}", case.name, said(&output))),
        }
    });
}

#[test]
fn what_is_missing_is_told_and_never_made_up() {
    if !can_mount(User::Caller) {
        return;
    }
    let cases = Case::that_expect("partial");
    let folder = lay_out(&cases);
    let mounted = Mounted::new(folder.path(), "");
    if let Some(python) = Python::new() {
        let jobs = cases
            .iter()
            .map(|c| c.job(&mounted.join(&c.name).join("file.nc")));
        let output = compare(&python, "netcdf4", &jobs.collect::<Vec<_>>());
        assert!(output.status.success(), "{}", said(&output));
    }
    check_all(cases, |case| {
        let file = folder.path().join(&case.name).join("file.nc");
        let losses = losses(&file)?;
        if losses.is_empty() {
            return Err(format!("{}: inspect has nothing to tell", case.name));
        }
        // Of 20 entries that are counted the first 12 are complete.
        let numbers = |text: &String| text.contains(" 12 ") && text.contains(" 20");
        if case.name.starts_with("cutmeta") && !losses.iter().any(numbers) {
            return Err(format!(
                "{}: of 20 entries 12 are there, but {losses:?}",
                case.name
            ));
        }
        let inspect = said(&h5logfs(&["inspect"], &[&file]));
        let check = h5logfs(&["check"], &[&file]);
        let is_noted = losses.iter().all(|text| said(&check).contains(text));
        match losses.iter().all(|text| inspect.contains(text)) {
            false => Err(format!(
                "{}: inspect does not tell in words: {inspect}",
                case.name
            )),
            true if check.status.success() && !is_noted => {
                Err(format!("check {}: {}", case.name, said(&check)))
            }
            true => Ok(()),
        }
    });
}

/// Payloads of the last entries are lost: their variables cannot be read, or only in part; the others can.
#[test]
fn lost_payloads_take_nothing_else_with_them() {
    if !can_mount(User::Caller) {
        return;
    }
    let Some(python) = Python::new() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut jobs = Vec::new();
    for name in [
        "rand-cdf1-np1",
        "types-cdf5-np1",
        "rand-cdf5-np4",
        "bigendian-cdf2-np1",
    ] {
        let case = case(name);
        let file = case.lay_out(folder.path());
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
    let mounted = Mounted::new(folder.path(), "");
    let jobs = jobs.iter().map(|case| {
        let mut job = case.job(&mounted.join(&case.name).join("file.nc"));
        job["expect"] = "partial".into();
        job
    });
    let jobs: Vec<Value> = jobs.collect();
    let output = compare(&python, "netcdf4", &jobs);
    assert!(output.status.success(), "{}", said(&output));
    // Who refused everything would have passed until here.
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

#[test]
fn what_cannot_be_had_is_refused() {
    if !can_mount(User::Caller) {
        return;
    }
    let cases = Case::that_expect("refuse");
    let folder = lay_out(&cases);
    let mounted = Mounted::new(folder.path(), "");
    if let Some(python) = Python::new() {
        let jobs = cases
            .iter()
            .map(|c| c.job(&mounted.join(&c.name).join("file.nc")));
        let output = compare(&python, "netcdf4", &jobs.collect::<Vec<_>>());
        assert!(output.status.success(), "{}", said(&output));
    }
    for case in cases {
        let file = Path::new(&case.name).join("file.nc");
        let check = h5logfs(&["check"], &[&folder.path().join(&file)]);
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

// --- what else is in the directory ---------------------------------------------------------------

#[test]
fn logs_are_hidden_beside_their_file_and_plain_without_it() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut cases = Case::all();
    cases.retain(|case| case.name != ELSEWHERE);
    let folder = lay_out(&cases);
    let mounted = Mounted::new(folder.path(), "");
    for case in cases {
        let names = names_in(&mounted.join(&case.name));
        if case.name != "nofile-cdf1-np1" {
            assert_eq!(names, ["file.nc"], "{}", case.name);
            let log = mounted.join(&case.name).join("file.nc_0_0.meta");
            assert!(fs::metadata(log).is_err(), "{}", case.name);
            continue;
        }
        assert_eq!(names, ["file.nc_0_0.data", "file.nc_0_0.meta"]);
        for name in names {
            let file = Path::new(&case.name).join(name);
            let (shown, own) = (mounted.join(&file), folder.path().join(&file));
            assert!(fs::read(shown).unwrap() == fs::read(own).unwrap());
        }
    }
}

/// Names that only look like those of a log, and a file whose own name does.
#[test]
fn strangers_pass_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let case = case("records-cdf1-np1");
    let path = |name: &str| folder.path().join(name);
    let classic = fs::read(case.file("expected.nc")).unwrap();
    let others = [
        "other_0_0.meta",
        "f_0_0.nc",
        "file.nc_0_0.txt",
        "file.nc_0_x.meta",
        "a.nc_0.data",
        "short.nc",
    ];
    for name in others {
        fs::write(path(name), name).unwrap();
    }
    fs::write(path("cut.nc"), &classic[..40]).unwrap();
    fs::write(path("f_1_2.nc"), &classic).unwrap();
    let mounted = Mounted::new(folder.path(), "");
    let mut names = [&others[..], &["cut.nc", "f_1_2.nc"]].concat();
    names.sort_unstable();
    assert_eq!(names_in(mounted.path()), names);
    for name in names {
        assert!(
            fs::read(mounted.join(name)).unwrap() == fs::read(path(name)).unwrap(),
            "{name}"
        );
    }
}

// --- files without logs --------------------------------------------------------------------------

/// `expected.nc` of every case that has one, by the case's name, and what closed jobs left.
fn classic_files() -> (TempDir, Vec<Case>) {
    let folder = tempfile::tempdir().unwrap();
    let mut cases = Case::all();
    cases.retain(|case| case.file("expected.nc").exists());
    for case in &cases {
        let from = match case.name.starts_with("closed") {
            true => "file.nc",
            false => "expected.nc",
        };
        fs::write(
            folder.path().join(&case.name),
            fs::read(case.file(from)).unwrap(),
        )
        .unwrap();
    }
    (folder, cases)
}

#[test]
fn a_classic_file_without_logs_passes_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let (folder, cases) = classic_files();
    for options in ["", "netcdf=plain"] {
        let mounted = Mounted::new(folder.path(), options);
        for case in &cases {
            let shown = fs::read(mounted.join(&case.name)).unwrap();
            assert!(
                shown == fs::read(folder.path().join(&case.name)).unwrap(),
                "{}",
                case.name
            );
        }
    }
}

#[test]
fn a_classic_file_without_logs_is_hdf5_where_that_is_asked_for() {
    if !can_mount(User::Caller) {
        return;
    }
    let (folder, cases) = classic_files();
    let mounted = Mounted::new(folder.path(), "netcdf=hdf5");
    let jobs = cases.iter().map(|case| {
        let shown = mounted.join(&case.name);
        assert!(fs::read(&shown).unwrap().starts_with(HDF5), "{}", case.name);
        let mut job = case.job(&shown);
        job["expect"] = "same".into();
        job
    });
    let jobs: Vec<Value> = jobs.collect();
    expect_no_difference(&jobs);
    let case = &cases[0];
    let file = folder.path().join(&case.name);
    let options = ["-o", "netcdf=hdf5"];
    let shown = fs::read(mounted.join(&case.name)).unwrap();
    assert!(export(&file, &options) == shown);
    for command in ["check", "inspect"] {
        let output = h5logfs(&[command, "-o", "netcdf=hdf5"], &[&file]);
        assert!(output.status.success(), "{command}: {}", said(&output));
        let output = h5logfs(&[command], &[&file]);
        assert!(
            !output.status.success(),
            "{command} without the option: {}",
            said(&output)
        );
    }
}

// --- the commands --------------------------------------------------------------------------------

#[test]
fn inspect_tells_what_a_file_and_its_logs_hold() {
    let folder = lay_out(&[case("onerecvar-cdf1-np1"), case("types-cdf1-np4")]);
    let file = |case: &str| folder.path().join(case).join("file.nc");
    let output = h5logfs(&["inspect"], &[&file("onerecvar-cdf1-np1")]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("PnetCDF burst buffer"), "{text}");
    assert!(
        text.contains("/rs: ") && text.contains("[5, 7]") && text.contains("unlimited"),
        "{text}"
    );

    let output = h5logfs(
        &["inspect", "--json", "--records"],
        &[&file("types-cdf1-np4")],
    );
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["layout"], "PnetCDF burst buffer");
    // The netCDF file, and two logs of four ranks.
    assert_eq!(report["sources"].as_array().unwrap().len(), 9, "{report:#}");
    let datasets = report["datasets"].as_array().unwrap();
    let dataset = datasets
        .iter()
        .find(|d| d["name"] == "/vint")
        .expect("vint");
    let logged = &dataset["logged"];
    assert_eq!(
        logged["list"].as_array().unwrap().len() as u64,
        logged["records"].as_u64().unwrap()
    );
    assert!(logged["bytes"].as_u64().unwrap() > 0, "{report:#}");

    for format in [&[][..], &["--json"]] {
        let arguments = [&["inspect", "--map", "vint"], format].concat();
        let output = h5logfs(&arguments, &[&file("types-cdf1-np4")]);
        assert!(
            output.status.success() && !output.stdout.is_empty(),
            "{}",
            said(&output)
        );
    }
}

// --- logs in another directory -------------------------------------------------------------------

#[test]
fn logs_in_another_directory() {
    if !can_mount(User::Caller) {
        return;
    }
    let case = case(ELSEWHERE);
    let folder = lay_out(std::slice::from_ref(&case));
    let file = folder.path().join(&case.name).join("file.nc");
    let option = format!("burst_dir={}", file.with_file_name("bb").display());
    let options = ["-o", &option];
    let mounted = Mounted::new(folder.path(), &option);
    let shown = mounted.join(&case.name).join("file.nc");
    expect_no_difference(&[case.job(&shown)]);
    assert!(export(&file, &options) == fs::read(&shown).unwrap());
    let inspect = h5logfs(&["inspect", "-o", &option], &[&file]);
    assert!(
        said(&inspect).contains("PnetCDF burst buffer"),
        "{}",
        said(&inspect)
    );
    let check = h5logfs(&["check", "-o", &option], &[&file]);
    assert!(check.status.success(), "{}", said(&check));
    drop(mounted);

    // Nobody looks there without being told to.
    let mounted = Mounted::new(folder.path(), "");
    let shown = fs::read(mounted.join(&case.name).join("file.nc")).unwrap();
    assert!(shown == fs::read(&file).unwrap());
}

/// The metadata log with another path of the netCDF file in its header (2.1).
fn written_at(metadata: &[u8], path: &str) -> Vec<u8> {
    let number = |at: usize, len: usize| -> usize {
        let bytes = metadata[at..at + len].iter().rev();
        bytes.fold(0, |n, b| n << 8 | usize::from(*b))
    };
    let old = number(64, 8);
    let host = number(73 + old, 4);
    let mut new = metadata[..64].to_vec();
    new.extend((path.len() as u64).to_le_bytes());
    new.extend(path.as_bytes());
    new.push(0);
    new.extend(&metadata[73 + old..][..4 + host + 1]);
    new.resize((86 + path.len() + host).next_multiple_of(16), 0);
    new.extend(&metadata[(86 + old + host).next_multiple_of(16)..]);
    new
}

/// Two files of one name, and logs of one of them in a directory of their own.
struct Namesakes {
    source: TempDir,
    logs: TempDir,
}

impl Namesakes {
    /// `path`: what the header of the metadata log says. 19 records are logged.
    fn new(path: impl FnOnce(&Path) -> String) -> Self {
        let (source, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let case = case("uncounted-cdf1-np1");
        copy_logs(&corpus().join(&case.name), logs.path());
        let classic = logs.path().join("file.nc");
        for folder in ["run", "other"] {
            fs::create_dir(source.path().join(folder)).unwrap();
            let copy = source.path().join(folder).join("file.nc");
            fs::copy(&classic, &copy).unwrap();
            set_age(&copy, 3600);
        }
        fs::remove_file(&classic).unwrap();
        let metadata = logs.path().join("file.nc_0_0.meta");
        let path = path(&source.path().canonicalize().unwrap());
        let bytes = written_at(&fs::read(&metadata).unwrap(), &path);
        fs::write(&metadata, bytes).unwrap();
        set_age(&metadata, 3540);
        Namesakes { source, logs }
    }

    fn option(&self) -> String {
        format!("burst_dir={}", self.logs.path().display())
    }

    fn file(&self, folder: &str) -> PathBuf {
        self.source.path().join(folder).join("file.nc")
    }

    /// Of which of the two files are the logs?
    fn check(&self, owner: &str) {
        let mounted = Mounted::new(self.source.path(), &self.option());
        for folder in ["run", "other"] {
            let shown = mounted.join(folder).join("file.nc");
            let header = header(&shown);
            if folder == owner {
                assert!(header.contains("(19 currently)"), "{folder}: {header}");
            } else {
                assert!(
                    fs::read(&shown).unwrap() == fs::read(self.file(folder)).unwrap(),
                    "{folder}: {header}"
                );
            }
        }
    }
}

#[test]
fn logs_belong_to_the_file_that_their_header_names() {
    if !can_mount(User::Caller) {
        return;
    }
    // The whole path; the path below the directory that is mounted, wherever that was when they were written.
    Namesakes::new(|source| format!("{}/other/file.nc", source.display())).check("other");
    Namesakes::new(|_| WRITTEN_AT.to_owned()).check("run");
    Namesakes::new(|_| "/scratch/a/b/other/file.nc".to_owned()).check("other");
    Namesakes::new(|_| "/scratch/xother/file.nc".to_owned()).check("neither");
    Namesakes::new(|_| "/scratch/third/file.nc".to_owned()).check("neither");
}

/// `inspect` has the file's directory and no mounted one to go by.
#[test]
fn inspect_tells_of_logs_that_belong_to_another_file() {
    let namesakes = Namesakes::new(|source| format!("{}/other/file.nc", source.display()));
    let option = format!("{},netcdf=hdf5", namesakes.option());
    let told = complaints(&namesakes.file("run"), &["-o", &option]).unwrap();
    assert!(
        told.iter().any(|text| text.contains("other/file.nc")),
        "{told:?}"
    );
    let told = complaints(&namesakes.file("other"), &["-o", &option]).unwrap();
    assert!(
        !told.iter().any(|text| text.contains("other/file.nc")),
        "{told:?}"
    );
}

// --- logs that come and go -----------------------------------------------------------------------

#[test]
fn logs_that_appear_grow_and_vanish_are_noticed() {
    if !can_mount(User::Caller) {
        return;
    }
    let case = case("uncounted-cdf1-np1");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let classic = fs::read(case.file("file.nc")).unwrap();
    let metadata = fs::read(case.file("file.nc_0_0.meta")).unwrap();
    let data = fs::read(case.file("file.nc_0_0.data")).unwrap();
    fs::write(path("file.nc"), &classic).unwrap();
    set_age(&path("file.nc"), 3600);
    let mounted = Mounted::new(folder.path(), "");
    let shown = mounted.join("file.nc");
    assert!(fs::read(&shown).unwrap() == classic);
    let has_records = |number: u32| {
        let wanted = format!("({number} currently)");
        header(&shown).contains(&wanted) && fs::read(&shown).is_ok_and(|b| b.starts_with(HDF5))
    };

    // One entry for one value each, of 64 bytes and 4; the last one is not counted.
    let (entry, value) = (64, 4);
    fs::write(path("file.nc_0_0.data"), &data[..data.len() - value]).unwrap();
    fs::write(
        path("file.nc_0_0.meta"),
        &metadata[..metadata.len() - entry],
    )
    .unwrap();
    wait_until("the log is noticed", || has_records(19));
    assert_eq!(names_in(mounted.path()), ["file.nc"]);
    assert!(export(&path("file.nc"), &[]) == fs::read(&shown).unwrap());

    // As the driver does it: payload, entry, count.
    let append = |name: &str, bytes: &[u8]| {
        let mut file = File::options().append(true).open(path(name)).unwrap();
        file.write_all(bytes).unwrap();
    };
    append("file.nc_0_0.data", &data[data.len() - value..]);
    append("file.nc_0_0.meta", &metadata[metadata.len() - entry..]);
    let mut file = File::options()
        .write(true)
        .open(path("file.nc_0_0.meta"))
        .unwrap();
    file.seek(SeekFrom::Start(56)).unwrap();
    file.write_all(&20u64.to_le_bytes()).unwrap();
    drop(file);
    wait_until("the log has grown", || has_records(20));

    fs::remove_file(path("file.nc_0_0.meta")).unwrap();
    fs::remove_file(path("file.nc_0_0.data")).unwrap();
    wait_until("the log is gone", || {
        fs::read(&shown).is_ok_and(|b| b == classic)
    });
}
