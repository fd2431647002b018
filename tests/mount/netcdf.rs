//! netCDF classic files in a mount: neighbours of their logs, files without logs, logs in other directories, logs
//! that appear and disappear; and the commands.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::common::amount::part;
use crate::common::pnetcdf::*;
use crate::common::readers::said;
use crate::common::{Mounted, User, can_mount, names_in, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

// --- what else is in the directory ---------------------------------------------------------------

#[test]
fn logs_are_hidden_beside_their_file_and_plain_without_it() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut cases = Case::all();
    cases.retain(|case| case.name != ELSEWHERE);
    let dir = lay_out(&cases);
    let mounted = Mounted::new(dir.path(), "");
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
            let (shown, own) = (mounted.join(&file), dir.path().join(&file));
            assert!(fs::read(shown).unwrap() == fs::read(own).unwrap());
        }
    }
}

/// Names that only resemble those of a log, and a file that itself has the name of a log.
#[test]
fn strangers_pass_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let case = case("records-cdf1-np1");
    let path = |name: &str| dir.path().join(name);
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
    let mounted = Mounted::new(dir.path(), "");
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

/// `expected.nc` of every case that has one, by name, and the files of closed jobs.
fn classic_files() -> (TempDir, Vec<Case>) {
    let dir = tempfile::tempdir().unwrap();
    let mut cases = Case::all();
    cases.retain(|case| case.file("expected.nc").exists());
    for case in &cases {
        let from = if case.name.starts_with("closed") {
            "file.nc"
        } else {
            "expected.nc"
        };
        fs::write(
            dir.path().join(&case.name),
            fs::read(case.file(from)).unwrap(),
        )
        .unwrap();
    }
    (dir, cases)
}

#[test]
fn a_classic_file_without_logs_passes_through() {
    if !can_mount(User::Caller) {
        return;
    }
    let (dir, cases) = classic_files();
    for options in ["", "netcdf=plain"] {
        let mounted = Mounted::new(dir.path(), options);
        for case in &cases {
            let shown = fs::read(mounted.join(&case.name)).unwrap();
            assert!(
                shown == fs::read(dir.path().join(&case.name)).unwrap(),
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
    let (dir, cases) = classic_files();
    let cases = part(cases, 6);
    let mounted = Mounted::new(dir.path(), "netcdf=hdf5");
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
    let file = dir.path().join(&case.name);
    let options = ["--option", "netcdf=hdf5"];
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
fn inspect_tells_where_logs_may_have_been_applied() {
    let dir = lay_out(&[case("closed-cdf1-np1")]);
    let file = dir.path().join("closed-cdf1-np1/file.nc");
    for (age, is_told) in [(0, true), (1 << 20, false)] {
        set_age(&file, age);
        let notes = complaints(&file, &[]).unwrap();
        let told = notes.iter().any(|n| n.contains("changed after its logs"));
        assert_eq!(told, is_told, "{notes:?}");
        // Neither case is a fault.
        assert!(h5logfs(&["check"], &[&file]).status.success());
    }
}

#[test]
fn a_log_alone_is_told_from_other_files() {
    let dir = lay_out(&[case("nofile-cdf1-np1")]);
    let log = dir.path().join("nofile-cdf1-np1/file.nc_0_0.meta");
    let output = h5logfs(&["inspect"], &[&log]);
    assert!(!output.status.success());
    assert!(
        said(&output).contains("only with its netCDF file"),
        "{}",
        said(&output)
    );
}

/// Ranks 0 and 2 of 4 have left logs. The log of rank 3 has no metadata.
#[test]
fn processes_without_logs_are_told() {
    let dir = lay_out(&[case("types-cdf1-np4")]);
    let dir = dir.path().join("types-cdf1-np4");
    for name in ["file.nc_0_1.meta", "file.nc_0_1.data", "file.nc_0_3.meta"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    let file = dir.join("file.nc");
    let said = complaints(&file, &[]).unwrap().join("\n");
    assert!(
        said.contains("2 of 4 processes have left no log number 0 here: data of ranks 1, 3 may be"),
        "{said}"
    );
    assert!(
        said.contains("file.nc_0_3.data: its metadata log is not there"),
        "{said}"
    );
    assert!(!h5logfs(&["check"], &[&file]).status.success());
}

#[test]
fn inspect_tells_what_a_file_and_its_logs_hold() {
    let dir = lay_out(&[case("onerecvar-cdf1-np1"), case("types-cdf1-np4")]);
    let file = |case: &str| dir.path().join(case).join("file.nc");
    let output = h5logfs(&["inspect"], &[&file("onerecvar-cdf1-np1")]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("PnetCDF burst buffer"), "{text}");
    assert!(
        text.contains("/rs  ") && text.contains("{5/Inf, 7}"),
        "{text}"
    );

    let output = h5logfs(
        &["inspect", "--json", "--records"],
        &[&file("types-cdf1-np4")],
    );
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["layout"], "PnetCDF burst buffer");
    // The netCDF file, and two logs of each of four ranks.
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
    let dir = lay_out(std::slice::from_ref(&case));
    let file = dir.path().join(&case.name).join("file.nc");
    let option = format!("burst_dir={}", file.with_file_name("bb").display());
    let options = ["--option", &option];
    let mounted = Mounted::new(dir.path(), &option);
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

    // The daemon looks there only with the option.
    let mounted = Mounted::new(dir.path(), "");
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

/// Two files with one name, and logs of one of them in another directory.
struct Namesakes {
    source: TempDir,
    logs: TempDir,
}

impl Namesakes {
    /// `path` is the path in the header of the metadata log. 19 records are logged.
    fn new(path: impl FnOnce(&Path) -> String) -> Self {
        let (source, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let case = case("uncounted-cdf1-np1");
        copy_logs(&corpus().join(&case.name), logs.path());
        let classic = logs.path().join("file.nc");
        for dir in ["run", "other"] {
            fs::create_dir(source.path().join(dir)).unwrap();
            let copy = source.path().join(dir).join("file.nc");
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

    fn file(&self, dir: &str) -> PathBuf {
        self.source.path().join(dir).join("file.nc")
    }

    /// Checks which of the two files owns the logs.
    fn check(&self, owner: &str) {
        let mounted = Mounted::new(self.source.path(), &self.option());
        for dir in ["run", "other"] {
            let shown = mounted.join(dir).join("file.nc");
            let header = header(&shown);
            if dir == owner {
                assert!(header.contains("(19 currently)"), "{dir}: {header}");
            } else {
                assert!(
                    fs::read(&shown).unwrap() == fs::read(self.file(dir)).unwrap(),
                    "{dir}: {header}"
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
    // The whole path, or the path below the mounted directory, wherever that was at the time of writing.
    Namesakes::new(|source| format!("{}/other/file.nc", source.display())).check("other");
    Namesakes::new(|_| WRITTEN_AT.to_owned()).check("run");
    Namesakes::new(|_| "/scratch/a/b/other/file.nc".to_owned()).check("other");
    Namesakes::new(|_| "/scratch/xother/file.nc".to_owned()).check("neither");
    Namesakes::new(|_| "/scratch/third/file.nc".to_owned()).check("neither");
}

/// `inspect` knows the file's directory but no mounted one.
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
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let classic = fs::read(case.file("file.nc")).unwrap();
    let metadata = fs::read(case.file("file.nc_0_0.meta")).unwrap();
    let data = fs::read(case.file("file.nc_0_0.data")).unwrap();
    fs::write(path("file.nc"), &classic).unwrap();
    set_age(&path("file.nc"), 3600);
    let mounted = Mounted::new(dir.path(), "");
    let shown = mounted.join("file.nc");
    assert!(fs::read(&shown).unwrap() == classic);
    let has_records = |number: u32| {
        let wanted = format!("({number} currently)");
        header(&shown).contains(&wanted) && fs::read(&shown).is_ok_and(|b| b.starts_with(HDF5))
    };

    // Entries for one value each, with 64 bytes and 4; the last one is not counted.
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

    // The driver writes in this order: payload, entry, count.
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
