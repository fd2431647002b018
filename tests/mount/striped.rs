//! HDF5 files in several parts, in a mount and in the commands.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::striped::{CASES, copy, corpus};
use crate::common::{Mounted, PROGRAM, User, can_mount, messages, names_in};

fn run(command: &str, options: &str, arguments: &[&Path]) -> Output {
    let mut program = Command::new(PROGRAM);
    program.arg(command);
    if !options.is_empty() {
        program.args(["--option", options]);
    }
    program.args(arguments).output().unwrap()
}

#[test]
fn each_file_is_shown_as_the_one_that_it_is() {
    if !can_mount(User::Caller) {
        return;
    }
    let options: Vec<String> = CASES.iter().map(|case| case.options()).collect();
    let options: Vec<String> = options.into_iter().filter(|o| !o.is_empty()).collect();
    let mount = Mounted::new(&corpus(), &options.join(","));
    for case in CASES {
        let path = case.path();
        let shown = mount.join(path.strip_prefix(corpus()).unwrap());
        let expected = fs::read(case.expected()).unwrap();
        assert_eq!(
            shown.metadata().unwrap().len(),
            expected.len() as u64,
            "{}",
            case.name
        );
        assert!(fs::read(shown).unwrap() == expected, "{}", case.name);
    }
    assert_eq!(names_in(&mount.join("contig_2")), ["data.h5"]);
    let family = names_in(&mount.join("family"));
    assert!(
        family.len() == 2 && family.iter().all(|name| name.contains("000.h5")),
        "{family:?}"
    );
    // Each with its own driver.
    assert_eq!(names_in(&mount.join("split")).len(), 2);
    assert_eq!(mount.scans(), 0);
}

/// The daemon notices when subfiles appear and disappear, and never shows the stub's bytes instead.
#[test]
fn subfiles_come_and_go() {
    if !can_mount(User::Caller) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    copy("v220_zero_stub", dir.path());
    let mount = Mounted::new(dir.path(), "");
    let (stub, expected) = (
        mount.join("data.h5"),
        corpus().join("v220_zero_stub.expected.h5"),
    );
    let expected = fs::read(expected).unwrap();
    assert!(fs::read(&stub).unwrap() == expected);
    let away = tempfile::tempdir().unwrap();
    let parts = || {
        let names = names_in(dir.path()).into_iter();
        names.filter(|name| name != "data.h5").collect::<Vec<_>>()
    };
    let names = parts();
    for name in &names {
        fs::copy(dir.path().join(name), away.path().join(name)).unwrap();
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    crate::common::wait_until("the stub alone is refused", || fs::read(&stub).is_err());
    for name in &names {
        fs::copy(away.path().join(name), dir.path().join(name)).unwrap();
    }
    crate::common::wait_until("the subfiles are back", || {
        fs::read(&stub).is_ok_and(|bytes| bytes == expected)
    });
}

#[test]
fn no_file_is_made_where_parts_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    for (name, words) in [
        ("killed_unflushed", "no HDF5 superblock"),
        ("missing_2of3", "_2_of_3, which is missing"),
        (
            "truncated_1of3",
            "has 37960 bytes, where it should have 40960",
        ),
    ] {
        let made = dir.path().join(name);
        let output = run("export", "", &[&corpus().join(name).join("data.h5"), &made]);
        let said = messages(&output);
        assert!(
            !output.status.success() && said.contains(words),
            "{name}: {said}"
        );
        assert!(!made.exists());
    }
}

#[test]
fn commands_tell_what_is_missing() {
    let path = |name: &str| corpus().join(name).join("data.h5");
    let check = |name: &str| {
        let output = run("check", "", &[&path(name)]);
        (
            output.status.success(),
            messages(&output) + &String::from_utf8_lossy(&output.stdout),
        )
    };
    let (good, said) = check("contig_2");
    assert!(good && said.contains("data.h5: good"), "{said}");
    let (good, said) = check("missing_2of3");
    assert!(!good && said.contains("2_of_3: it is missing"), "{said}");
    let (good, said) = check("truncated_1of3");
    assert!(!good && said.contains("it has 37960 bytes"), "{said}");
    let output = run("inspect", "", &[&path("odd_stripe_6")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in [
        "HDF5 subfiling file",
        "as HDF5: 99898 bytes",
        "in 6 parts, with stripes of 5000 bytes; each part has 15000 to 20000 bytes",
        "it is a copy",
        "/z       f64   {128, 160}  {16, 40}  shuffle deflate",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let output = run(
        "report",
        "",
        &[&path("odd_stripe_6"), Path::new("--output=-")],
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("each part has 15000 to 20000 bytes"),
        "{said}"
    );
    let output = run("ls", "", &[&corpus().join("contig_2")]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("HDF5 subfiling") && !said.contains("_of_2"),
        "{said}"
    );
    for command in ["compact", "settle"] {
        let dir = tempfile::tempdir().unwrap();
        copy("contig_2", dir.path());
        let (stub, made) = (dir.path().join("data.h5"), dir.path().join("made.h5"));
        let before = fs::read(&stub).unwrap();
        let arguments: &[&Path] = match command {
            "compact" => &[&stub, &made],
            _ => &[&stub],
        };
        let output = run(command, "", arguments);
        let said = messages(&output);
        assert!(
            !output.status.success() && said.contains("h5logfs export"),
            "{command}: {said}"
        );
        assert!(fs::read(&stub).unwrap() == before);
    }
}
