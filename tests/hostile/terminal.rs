//! The output of commands about files and datasets whose names are terminal commands.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::encoder::{Dataset, Entry, LogFile, Type};
use crate::common::tested_program;

/// Clears the screen twice, sets the title, reverses text, hides a letter, and forges a line.
const NAME: &str = "a\u{1b}[2J\u{9b}2J\u{1b}]0;title\u{7}\u{7f}\u{202e}\u{e0041}\r\nother.h5: good";

fn log() -> LogFile {
    let good = Dataset::new(NAME, 0, Type::I32, &[8]);
    let bad = Dataset::new(&format!("bad {NAME}"), 1, Type::I32, &[8]);
    let entries = [0, 1].map(|id| Entry::one(id, &[0], &[8], vec![id as u8; 32]));
    let [first, second] = entries;
    // Its data lies far past the end of the file.
    let second = second.claiming(1 << 40, 32);
    LogFile::with(vec![good, bad], vec![first, second])
}

fn run(arguments: &[&str], file: &Path, more: &[&Path]) -> Output {
    let mut command = Command::new(tested_program());
    command.args(arguments).arg(file).args(more);
    // Including log messages.
    command.env("RUST_LOG", "debug").output().unwrap()
}

/// Both outputs. They must contain no control sequences for terminals.
fn text(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    for c in text.chars() {
        let hidden = ['\u{202e}', '\u{e0041}'].contains(&c);
        let commands = c != '\n' && c.is_control();
        assert!(!hidden && !commands, "{c:?} in {text:?}");
    }
    let forged = text.lines().find(|line| line.starts_with("other.h5: good"));
    assert_eq!(forged, None, "{text}");
    text
}

#[test]
fn names_are_no_commands() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(format!("{}.h5", NAME.replace('/', "")));
    log().write(&file);
    let escaped = r"a\u{1b}[2J\u{9b}2J\u{1b}]0;title\u{7}\u{7f}\u{202e}\u{e0041}\r\nother.h5: good";
    let map = format!("/{NAME}");
    let commands: [&[&str]; 5] = [
        &["inspect"],
        &["inspect", "--records"],
        &["inspect", "--map", &map],
        &["inspect", "--map", "/no such dataset"],
        &["check"],
    ];
    for command in commands {
        let output = run(command, &file, &[]);
        let text = text(&output);
        let names = command != ["inspect", "--map", &map];
        assert!(!names || text.contains(escaped), "{command:?}: {text}");
    }
    let out = dir.path().join("out\u{1b}.h5");
    let exported = run(&["export"], &file, &[&out]);
    assert!(text(&exported).contains(escaped) && !exported.status.success());
    let recovered = run(&["recover"], &file, &[]);
    assert!(text(&recovered).contains(escaped) && recovered.status.success());
    let missing = dir.path().join("missing\u{1b}[2J");
    let exported = run(&["export"], &missing, &[&out]);
    assert!(text(&exported).contains(r"missing\u{1b}[2J"));
}

#[test]
fn names_in_json_are_no_commands_and_stay_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("log.h5");
    log().write(&file);
    let output = run(&["inspect", "--json", "--records"], &file, &[]);
    text(&output);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["datasets"][0]["name"], format!("/{NAME}"));
    let bad = format!("/bad {NAME}");
    let output = run(&["inspect", "--json", "--map", &bad], &file, &[]);
    text(&output);
    serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap();
}
