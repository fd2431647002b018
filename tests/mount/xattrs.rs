//! Extended attributes: those that the mount adds to log files, and those of the source.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::common::people::*;
use crate::common::{Mounted, PROGRAM, User, can_mount, messages};

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1 << 16];
    let len = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn names(path: &Path) -> Vec<String> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect()
}

const OWN: [&str; 3] = [
    "user.h5logfs.layout",
    "user.h5logfs.records",
    "user.h5logfs.covered",
];

fn inspected(path: &Path) -> serde_json::Value {
    let output = Command::new(PROGRAM)
        .args(["inspect", "--json"])
        .arg(path)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn log_files_say_what_they_are() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    let logs = [
        ("corpus/fill.log.h5", "Log VOL"),
        ("corpus/subfile.log.h5", "Log VOL"),
        ("corpus/nd.log.h5", "Log VOL"),
        (
            "corpus-pnetcdf/records-cdf1-np1/file.nc",
            "PnetCDF burst buffer",
        ),
    ];
    copy(
        &corpus("corpus/subfile.log.h5.subfiles"),
        &source.path().join("subfile.log.h5.subfiles"),
    );
    for log in ["file.nc_0_0.data", "file.nc_0_0.meta"] {
        copy(
            &corpus("corpus-pnetcdf/records-cdf1-np1").join(log),
            &source.path().join(log),
        );
    }
    for (log, _) in logs {
        let log = corpus(log);
        copy(&log, &source.path().join(log.file_name().unwrap()));
    }
    copy(
        &corpus("corpus/fill.expected.h5"),
        &source.path().join("plain.h5"),
    );
    let mounted = Mounted::new(source.path(), "index_dir=none");
    for (log, layout) in logs {
        let name = Path::new(log).file_name().unwrap();
        let shown = mounted.join(name);
        let text = |name: &str| String::from_utf8(get(&shown, name).unwrap()).unwrap();
        assert_eq!(names(&shown), OWN);
        assert_eq!(text(OWN[0]), layout, "{log}");
        let report = inspected(&source.path().join(name));
        assert_eq!(report["layout"], layout);
        let (mut records, mut covered, mut total) = (0, 0.0, 0.0);
        for dataset in report["datasets"].as_array().unwrap() {
            let logged = &dataset["logged"];
            if logged.is_object() {
                let dims = dataset["shape"].as_array().unwrap().iter();
                let elements: f64 = dims.map(|dim| dim.as_f64().unwrap()).product();
                records += logged["records"].as_u64().unwrap();
                covered += logged["covered"].as_f64().unwrap() * elements;
                total += elements;
            }
        }
        assert!(records > 0);
        assert_eq!(text(OWN[1]), records.to_string(), "{log}");
        let share: f64 = text(OWN[2]).parse().unwrap();
        assert!((share - covered / total).abs() < 1e-9, "{log}: {share}");
        assert_eq!(text(OWN[2]), share.to_string());
    }
    let plain = mounted.join("plain.h5");
    assert_eq!(names(&plain), Vec::<String>::new());
    // `ls` then asks no more.
    assert_eq!(get(&plain, ACCESS_LIST), Err(Errno::OPNOTSUPP));
    for name in OWN {
        assert_eq!(get(&plain, name), Err(Errno::NODATA));
    }
}

fn printed(arguments: &[&str], path: &Path) -> String {
    let mut program = Command::new(PROGRAM);
    let output = program.args(arguments).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The data of a netCDF file below its logs counts as written, wherever coverage is reported.
#[test]
fn data_below_the_records_are_covered_everywhere() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = open_source();
    // The second has only its header: nothing lies below its logs.
    for (case, covered, percent) in [
        ("fill-cdf1-np1", 1, "100.0 %"),
        ("defmode-cdf2-np1", 0, "0.0 %"),
    ] {
        copy(
            &corpus("corpus-pnetcdf").join(case),
            &source.path().join(case),
        );
        let log = source.path().join(case).join("file.nc");
        let mounted = Mounted::new(source.path(), "index_dir=none,netcdf=hdf5");
        let shown = mounted.join(case).join("file.nc");
        let attribute = get(&shown, "user.h5logfs.covered").unwrap();
        assert_eq!(attribute, covered.to_string().into_bytes());
        let listed: serde_json::Value =
            serde_json::from_str(&printed(&["ls", "--json", "-o", "netcdf=hdf5"], &log)).unwrap();
        assert_eq!(listed[0]["covered"].as_f64(), Some(covered.into()));
        let told = inspected(&log);
        let datasets = told["datasets"].as_array().unwrap();
        let never = datasets.iter().find(|d| d["logged"]["records"] == 0);
        assert_eq!(
            never.unwrap()["logged"]["covered"].as_f64(),
            Some(covered.into())
        );
        let incomplete = printed(&["inspect", "--incomplete"], &log);
        assert_eq!(
            incomplete.contains("nothing written"),
            covered == 0,
            "{incomplete}"
        );
        let page = printed(&["report", "-o", "-"], &log);
        assert!(page.contains(&format!("{percent} written")), "{case}");
    }
}

#[test]
fn attributes_of_the_source_are_mirrored_for_those_who_may_read_it() {
    let source = open_source();
    if !ready() || !has_lists(source.path()) {
        return;
    }
    let at = |name: &str| source.path().join(name);
    copy(&corpus("corpus/fill.log.h5"), &at("log.h5"));
    fs::write(at("plain"), "text").unwrap();
    fs::create_dir(at("folder")).unwrap();
    let long = vec![b'x'; 3000];
    for name in ["log.h5", "plain", "folder"] {
        let set = |attribute: &str, value: &[u8]| {
            rustix::fs::setxattr(at(name), attribute, value, XattrFlags::empty()).unwrap();
        };
        set("user.colour", b"red");
        set("user.long", &long);
        set("user.empty", b"");
        // The mount's own prefix, and attributes that are not for users.
        set("user.h5logfs.layout", b"a lie");
        set("user.h5logfs.other", b"a lie");
        set("trusted.secret", b"no");
        set("security.test", b"no");
    }
    rustix::fs::setxattr(
        at("folder"),
        DEFAULT_LIST,
        &list([7, 5, 5, 5], &[Entry::User(BOB.uid, 4)]),
        XattrFlags::empty(),
    )
    .unwrap();
    set_list(&at("plain"), [6, 4, 4, 4], &[Entry::User(BOB.uid, 4)]);
    let mounted = mount_for_all(source.path());
    for name in ["log.h5", "plain", "folder"] {
        let shown = mounted.join(name);
        assert_eq!(get(&shown, "user.colour"), Ok(b"red".to_vec()), "{name}");
        assert_eq!(get(&shown, "user.long"), Ok(long.clone()), "{name}");
        assert_eq!(get(&shown, "user.empty"), Ok(Vec::new()), "{name}");
        assert_eq!(get(&shown, "user.none"), Err(Errno::NODATA), "{name}");
        assert_eq!(
            get(&shown, "user.h5logfs.other"),
            Err(Errno::NODATA),
            "{name}"
        );
        for hidden in ["trusted.secret", "security.test"] {
            assert_eq!(get(&shown, hidden), Err(Errno::OPNOTSUPP), "{name}");
        }
        let mut expected = vec!["user.colour", "user.empty", "user.long"];
        match name {
            "log.h5" => expected.extend(OWN),
            "plain" => expected.push(ACCESS_LIST),
            _ => expected.push(DEFAULT_LIST),
        }
        // A list that says no more than the mode counts as none.
        let mut listed = names(&shown);
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected, "{name}");
    }
    for (name, list) in [("plain", ACCESS_LIST), ("folder", DEFAULT_LIST)] {
        assert_eq!(get(&mounted.join(name), list), get(&at(name), list));
    }
    // Reading them means reading the file.
    let script = "import os, sys; print(os.getxattr(sys.argv[1], sys.argv[2]))";
    let bob_gets = |name: &str, attribute: &str| {
        let mut asking = BOB.command("/usr/bin/python3");
        asking
            .args(["-c", script])
            .arg(mounted.join(name))
            .arg(attribute);
        let output = asking.output().unwrap();
        let said = messages(&output);
        assert!(
            output.status.success() || said.contains("Permission denied"),
            "{said}"
        );
        output.status.success()
    };
    let asked = [
        ("log.h5", "user.colour"),
        ("log.h5", OWN[1]),
        ("plain", "user.colour"),
    ];
    for (name, attribute) in asked {
        assert!(bob_gets(name, attribute), "{name} {attribute}");
    }
    set_mode(&at("log.h5"), 0o600);
    let _ = rustix::fs::removexattr(at("plain"), ACCESS_LIST);
    set_mode(&at("plain"), 0o600);
    for (name, attribute) in asked {
        assert!(!bob_gets(name, attribute), "{name} {attribute}");
    }
}
