//! `h5logfs check --json`: what is wrong, for other programs.

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
