//! Commands on files of a mount: they report where the log itself is.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::people::{ALICE, copy, corpus, open_source, ready};
use crate::common::readers::said;
use crate::common::{Mounted, PROGRAM, User, can_mount, is_root, messages, tested_program};
use tempfile::TempDir;

const COMMANDS: [&[&str]; 4] = [
    &["inspect"],
    &["inspect", "--json"],
    &["check"],
    &["recover"],
];

fn logs() -> TempDir {
    let source = open_source();
    for (from, name) in [
        ("corpus/fill.log.h5", "log.h5"),
        ("corpus/truncated.log.h5", "broken.h5"),
        ("corpus/fill.expected.h5", "plain.h5"),
    ] {
        copy(&corpus(from), &source.path().join(name));
    }
    fs::create_dir(source.path().join("below")).unwrap();
    copy(
        &corpus("corpus/nd.log.h5"),
        &source.path().join("below/nd.h5"),
    );
    source
}

fn run(command: &[&str], file: &Path) -> Output {
    Command::new(PROGRAM)
        .args(command)
        .arg(file)
        .output()
        .unwrap()
}

/// Each command must refuse the view, and say where the log is.
#[track_caller]
fn assert_is_view(file: &Path, log: &str) {
    let out = tempfile::tempdir().unwrap();
    let exported = out.path().join("out");
    let mut outputs: Vec<Output> = COMMANDS.iter().map(|command| run(command, file)).collect();
    let mut export = Command::new(PROGRAM);
    export.arg("export").arg(file).arg(&exported);
    outputs.push(export.output().unwrap());
    for output in outputs {
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        let prefix = format!("{}: this is a view", file.display());
        assert!(said.contains(&prefix) && said.contains(log), "{said}");
        assert!(!said.contains("1 fault"), "{said}");
    }
    assert!(!exported.exists());
}

#[test]
fn a_view_is_told_from_its_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = logs();
    let real = source.path().canonicalize().unwrap();
    let options: &[&str] = if is_root() {
        &["", "allow_other"]
    } else {
        &[""]
    };
    for options in options {
        let mounted = Mounted::new(source.path(), options);
        for name in ["log.h5", "below/nd.h5"] {
            let log = format!("the file itself is {}", real.join(name).display());
            assert_is_view(&mounted.join(name), &log);
            std::os::unix::fs::symlink(mounted.join(name), source.path().join("link")).unwrap();
            assert_is_view(&source.path().join("link"), &log);
            fs::remove_file(source.path().join("link")).unwrap();
        }
        // Other files are judged by their own content, if the scan process may read them.
        let broken = said(&run(&["check"], &mounted.join("broken.h5")));
        let log = real.join("broken.h5").display().to_string();
        assert!(
            broken.contains(&log) && broken.contains("1 fault"),
            "{broken}"
        );
        let output = run(&["recover"], &mounted.join("plain.h5"));
        assert!(said(&output).contains("plain HDF5"), "{}", said(&output));
        let missing = said(&run(&["inspect"], &mounted.join("missing.h5")));
        assert!(
            missing.contains("No such file") && !missing.contains("itself"),
            "{missing}"
        );
        let text = said(&run(&["recover"], &mounted.join(".h5logfs/stats")));
        assert!(!text.contains("itself"), "{text}");
    }
    let mounted = Mounted::new(source.path(), if is_root() { "allow_other" } else { "" });
    let output = run(&["inspect"], &mounted.join("plain.h5"));
    assert!(
        said(&output).contains("not a log file: plain HDF5"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_single_file_is_told_from_its_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = logs();
    let log = source.path().canonicalize().unwrap().join("log.h5");
    let mounted = Mounted::new(&log, "");
    let words = format!("the file itself is {}, which", log.display());
    assert_is_view(&mounted.join("log.h5"), &words);
}

/// The mount hides the log, which has the same path.
#[test]
fn a_mount_on_top_of_its_source_covers_the_log() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = logs();
    let path = source.path().to_owned();
    let mut command = Command::new(tested_program());
    command.arg("mount").args([&path, &path]);
    let output = command
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, source);
    assert_is_view(
        &mounted.join("log.h5"),
        "which covers it: unmount that first",
    );
}

#[test]
fn a_bind_mount_of_a_part_is_told_from_its_log() {
    if !is_root() || !can_mount(User::Caller) {
        eprintln!("skipped: only root can make bind mounts");
        return;
    }
    let source = logs();
    let log = source.path().canonicalize().unwrap().join("below/nd.h5");
    let mounted = Mounted::new(source.path(), "");
    let elsewhere = tempfile::tempdir().unwrap();
    let script = format!(
        "mount --bind {} {dir} && $PROGRAM check {dir}/nd.h5",
        mounted.join("below").display(),
        dir = elsewhere.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation=private", "sh", "-c", &script]);
    let output = command.env("PROGRAM", PROGRAM).output().unwrap();
    let said = said(&output);
    if said.contains("unshare: ") {
        eprintln!("skipped: no mount namespace can be had");
        return;
    }
    assert!(
        said.contains("this is a view") && said.contains(&log.display().to_string()),
        "{said}"
    );
}

/// A mount of another user lets nobody else in, not even root.
#[test]
fn a_user_who_may_not_enter_a_mount_is_told_where_the_log_is() {
    if !ready() {
        return;
    }
    let source = logs();
    let log = source.path().canonicalize().unwrap().join("log.h5");
    let mounted = Mounted::new(source.path(), "");
    let mut command = ALICE.command(PROGRAM);
    let output = command
        .arg("inspect")
        .arg(mounted.join("log.h5"))
        .output()
        .unwrap();
    let said = said(&output);
    assert!(
        !output.status.success() && said.contains("Permission denied"),
        "{said}"
    );
    assert!(said.contains(&log.display().to_string()), "{said}");
    if !can_mount(User::Nobody) {
        return;
    }
    let mounted = Mounted::by(User::Nobody, source.path(), "");
    let output = run(&["check"], &mounted.join("log.h5"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Permission denied"), "{said}");
    assert!(said.contains(&log.display().to_string()), "{said}");
}
