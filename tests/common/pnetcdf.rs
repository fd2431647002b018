//! Real netCDF files with logs of PnetCDF's burst-buffering driver (`tests/corpus-pnetcdf`), and what programs see of
//! them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::readers::{Python, project, said};
use super::{PROGRAM, User};

/// The path in the headers of all logs of the corpus.
pub const WRITTEN_AT: &str = "/data/run/file.nc";
/// A case whose logs lie in another directory.
pub const ELSEWHERE: &str = "dirname-cdf2-np4";

// --- the corpus ----------------------------------------------------------------------------------

pub fn corpus() -> PathBuf {
    project().join("tests/corpus-pnetcdf")
}

#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub expect: String,
    pub undefined: Vec<String>,
}

impl Case {
    pub fn all() -> Vec<Case> {
        let dirs = fs::read_dir(corpus()).unwrap().flatten();
        let dirs = dirs.filter(|f| f.path().join("case.json").exists());
        let mut all: Vec<Case> = dirs.map(|f| Case::read(&f.path())).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(all.len() > 50, "{} cases", all.len());
        all
    }

    pub fn that_expect(expect: &str) -> Vec<Case> {
        let mut cases = Case::all();
        cases.retain(|case| case.expect == expect);
        cases
    }

    pub fn read(dir: &Path) -> Case {
        let text = fs::read(dir.join("case.json")).unwrap();
        let facts: Value = serde_json::from_slice(&text).unwrap();
        let undefined = facts["undefined"].as_array().unwrap().iter();
        Case {
            name: facts["name"].as_str().unwrap().to_owned(),
            expect: facts["expect"].as_str().unwrap().to_owned(),
            undefined: undefined.map(|v| v.as_str().unwrap().to_owned()).collect(),
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        corpus().join(&self.name).join(name)
    }

    /// The description of the case for `nclogs.py`.
    pub fn job(&self, got: &Path) -> Value {
        json!({
            "name": self.name,
            "got": got,
            "expected": self.file("expected.nc"),
            "nccopy": self.file("expected.nc4"),
            "undefined": self.undefined,
            "expect": self.expect,
        })
    }

    /// Copies the netCDF file and its logs to `directory`, as the job left them.
    pub fn lay_out(&self, dir: &Path) -> PathBuf {
        let to = dir.join(&self.name);
        copy_logs(&corpus().join(&self.name), &to);
        if self.name == ELSEWHERE {
            copy_logs(&self.file("bb"), &to.join("bb"));
        }
        to.join("file.nc")
    }
}

/// Copies `file.nc` and its logs; compressed logs become sparse files. The file is older than the logs, and logs with
/// lower numbers are older.
pub fn copy_logs(from: &Path, to: &Path) {
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

/// Sets the modification time to `age` seconds ago.
pub fn set_age(path: &Path, age: u64) {
    let file = File::options().write(true).open(path).unwrap();
    let modified = SystemTime::now() - Duration::from_secs(age);
    file.set_modified(modified).unwrap();
}

pub fn unpack(from: &Path, to: &Path) {
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

/// Lays out cases as subdirectories of one directory.
pub fn lay_out(cases: &[Case]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for case in cases {
        case.lay_out(dir.path());
    }
    dir
}

pub fn case(name: &str) -> Case {
    Case::read(&corpus().join(name))
}

// --- looking at it -------------------------------------------------------------------------------

/// Runs `nclogs.py` once for all jobs.
pub fn compare(python: &Python, ways: &str, jobs: &[Value]) -> Output {
    let mut command = python.tool("nclogs.py");
    command.args(["--ways", ways]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = serde_json::to_vec(jobs).unwrap();
    // The tool reads all its input before it prints.
    child.stdin.take().unwrap().write_all(&text).unwrap();
    child.wait_with_output().unwrap()
}

/// Compares in every way, with every Python available.
pub fn expect_no_difference(jobs: &[Value]) {
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

pub fn h5logfs(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = User::Caller.command(PROGRAM);
    command.args(arguments).args(files).output().unwrap()
}

/// All notes and faults that `inspect` reports.
pub fn complaints(file: &Path, options: &[&str]) -> Result<Vec<String>, String> {
    let output = h5logfs(&[&["inspect", "--json"], options].concat(), &[file]);
    if !output.status.success() {
        return Err(format!("inspect {}: {}", file.display(), said(&output)));
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let faults = report["datasets"].as_array().unwrap().iter();
    let faults = faults.flat_map(|d| d["faults"].as_array().unwrap());
    let said = ["losses", "warnings"].iter();
    let said = said.flat_map(|list| report[list].as_array().unwrap());
    let all = said.chain(faults);
    Ok(all.map(|text| text.as_str().unwrap().to_owned()).collect())
}

/// What is wrong with a case of the corpus, except that it was moved.
pub fn losses(file: &Path) -> Result<Vec<String>, String> {
    let mut told = complaints(file, &[])?;
    told.retain(|text| !text.contains(WRITTEN_AT));
    Ok(told)
}

pub fn header(file: &Path) -> String {
    let output = Command::new("ncdump").arg("-h").arg(file).output().unwrap();
    said(&output)
}

pub fn export(file: &Path, options: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.nc");
    let output = h5logfs(
        &[&["export", "--allow-incomplete"], options].concat(),
        &[file, &out],
    );
    assert!(
        output.status.success(),
        "export {}: {}",
        file.display(),
        said(&output)
    );
    fs::read(out).unwrap()
}
