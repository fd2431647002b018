//! `h5logfs check --json`: faults for other programs.

use std::process::Command;

use serde_json::{Value, json};

use crate::common::people::{copy, corpus};
use crate::common::unclosed::Log;
use crate::common::{Mounted, PROGRAM, User, can_mount};

#[test]
fn faults_and_notes_are_told_apart_in_json() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    copy(&corpus("corpus/fill.log.h5"), &at("good.h5"));
    copy(&corpus("corpus/bad_foff.log.h5"), &at("bad.h5"));
    let _log = Log::usual(&at("left.h5"));
    let mounted = Mounted::new(dir.path(), "");
    let view = mounted.join("good.h5");
    let check = |files: &[&str]| {
        let mut check = Command::new(PROGRAM);
        let check = check.args(["check", "--json"]).args(files);
        let output = check.current_dir(dir.path()).output().unwrap();
        let reports: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.success(), reports)
    };

    let good = json!([{"file": "good.h5", "is_view": false, "notes": [], "faults": []}]);
    assert_eq!(check(&["good.h5"]), (true, good));
    let (is_good, left) = check(&["left.h5"]);
    let note = left[0]["notes"][1].as_str().unwrap();
    assert!(is_good && note.contains("its job has ended"), "{left}");
    assert_eq!(left[0]["faults"], json!([]));

    let (is_good, all) = check(&["bad.h5", "good.h5", "none.h5", view.to_str().unwrap()]);
    assert!(!is_good);
    let files = all.as_array().unwrap();
    let faults = |n: usize| files[n]["faults"].as_array().unwrap();
    assert!(
        faults(0)[0].as_str().unwrap().contains("dataset /a"),
        "{all}"
    );
    assert_eq!(faults(1).len(), 0);
    assert!(
        faults(2)[0].as_str().unwrap().contains("No such file"),
        "{all}"
    );
    assert_eq!((files.len(), &files[3]["is_view"]), (4, &json!(true)));
}

/// `check *.h5` and `check DIR`: other files are no faults, and a directory stands for the logs in it.
#[test]
fn other_files_and_directories_are_understood() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in [
        "fill.log.h5",
        "fill.expected.h5",
        "subfile.log.h5",
        "subfile.log.h5.subfiles",
    ] {
        copy(&corpus(&format!("corpus/{name}")), &at(name));
    }
    std::fs::create_dir(at("empty")).unwrap();
    let run = |line: &str| {
        let mut command = Command::new(PROGRAM);
        let output = command
            .args(line.split(' '))
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), said)
    };
    let plain = "fill.expected.h5: not a log file: plain HDF5\n";
    assert_eq!(
        run("check fill.log.h5 fill.expected.h5"),
        (true, format!("fill.log.h5: good\n{plain}"))
    );
    let none = format!("{plain}h5logfs: none of these files is a log\n");
    assert_eq!(run("check fill.expected.h5"), (false, none));
    let all = "fill.log.h5: good\nsubfile.log.h5: good\n";
    assert_eq!(run("check ."), (true, all.to_owned()));

    let part = "this is a part of the log subfile.log.h5: inspect that log";
    let subfile = "subfile.log.h5.subfiles/subfile.log.h5.0";
    for command in ["check", "inspect"] {
        let (is_good, said) = run(&format!("{command} {subfile}"));
        assert!(
            is_good && said.contains(subfile) && said.contains(part),
            "{said}"
        );
    }
    let (is_good, both) = run("inspect --json .");
    let both: Value = serde_json::from_str(&both).unwrap();
    let names: Vec<_> = both
        .as_array()
        .unwrap()
        .iter()
        .map(|log| &log["file"])
        .collect();
    assert!(
        is_good && names == ["fill.log.h5", "subfile.log.h5"],
        "{names:?}"
    );
    let (is_good, page) = run("report . -o -");
    assert!(is_good && page.contains("Report on 2 logs"));

    let (is_good, said) = run("check empty");
    assert!(
        !is_good && said.contains("empty: no log in this directory"),
        "{said}"
    );
    // It does not end the others' turn.
    let (is_good, said) = run("check empty fill.log.h5");
    assert!(!is_good && said.contains("fill.log.h5: good"), "{said}");
    assert!(said.contains("empty: no log in this directory"), "{said}");
    let (is_good, page) = run("report empty fill.log.h5 -o -");
    assert!(!is_good && page.contains("Report on a log"));
    for line in [
        "recover empty",
        "settle empty",
        "follow empty",
        "export empty out.h5",
        "compact empty out.h5",
    ] {
        let (is_good, said) = run(line);
        let pointer = "empty: is a directory: give a log in it; `h5logfs ls empty` lists them";
        assert!(!is_good && said.contains(pointer), "{line}: {said}");
    }
}

/// Messages name files as the user has.
#[test]
fn faults_name_files_as_they_were_given() {
    let dir = tempfile::tempdir().unwrap();
    copy(
        &corpus("corpus/bad_foff.log.h5"),
        &dir.path().join("bad.h5"),
    );
    for command in ["check", "inspect", "compact"] {
        let mut program = Command::new(PROGRAM);
        let program = program
            .args([command, "bad.h5"])
            .args((command == "compact").then_some("out.h5"));
        let output = program.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let full = dir.path().canonicalize().unwrap();
        assert!(
            said.contains("bad.h5") && !said.contains(full.to_str().unwrap()),
            "{said}"
        );
    }
}
