//! `make release-check`: what prevents the tagging of a version.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Files that the script reads, relative to the project.
const FILES: &str = "Cargo.toml Cargo.lock CHANGELOG.md CITATION.cff crates/*/Cargo.toml crates/plugins/*/Cargo.toml \
    docs/formats/versions.md crates/log/src/journal/line.rs crates/log/src/settled/record.rs crates/view/src/index/store.rs \
    include/h5logfs_writer.h packaging/libh5logfs_writer.symbols scripts/release-check.sh";

/// A copy of these files.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Tree(tempfile::tempdir().unwrap());
        let copied = Command::new("sh")
            .args(["-c", &format!("cp --parents {FILES} \"$1\""), "sh"])
            .arg(tree.0.path())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(copied.unwrap().success());
        tree
    }

    /// A copy ready for release, as version 9.8.7.
    fn to_be_released() -> Self {
        let tree = Tree::new();
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        tree.change("Cargo.toml", |text| {
            text.replace(&version, "version = \"9.8.7\"")
        });
        let of_package = |text: String| {
            let packages = text.split("[[package]]").map(|package| {
                let is_ours = package.starts_with("\nname = \"h5logfs");
                if is_ours {
                    package.replace(&version, "version = \"9.8.7\"")
                } else {
                    package.to_owned()
                }
            });
            packages.collect::<Vec<_>>().join("[[package]]")
        };
        tree.change("Cargo.lock", of_package);
        tree.change("CHANGELOG.md", |text| {
            let (before, after) = text.split_once("\n## ").unwrap();
            let after = after.split_once('\n').unwrap().1;
            format!("{before}\n## 9.8.7 (2031-02-03)\n{after}")
        });
        let lines = |text: String| {
            let lines = text.lines().map(|line| match line.split_once(": ") {
                Some(("version", _)) => "version: 9.8.7".to_owned(),
                Some(("date-released", _)) => "date-released: 2031-02-03".to_owned(),
                _ => line.to_owned(),
            });
            lines.map(|line| line + "\n").collect()
        };
        tree.change("CITATION.cff", lines);
        tree
    }

    fn change(&self, file: &str, change: impl FnOnce(String) -> String) {
        let path = self.0.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        let changed = change(text.clone());
        assert_ne!(changed, text, "{file}");
        fs::write(path, changed).unwrap();
    }

    /// Whether it can be tagged, and the output of the script.
    fn check(&self) -> (bool, String) {
        let script = self.0.path().join("scripts/release-check.sh");
        let output = Command::new(Path::new("bash"))
            .arg(script)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    }
}

#[test]
fn a_version_can_be_tagged_when_all_parts_have_it() {
    let (can_be, said) = Tree::to_be_released().check();
    assert!(can_be && said.contains("9.8.7 can be tagged"), "{said}");
}

#[test]
fn what_keeps_a_version_from_being_tagged_is_told() {
    let at_end = |line: &'static str| move |text: String| format!("{text}{line}\n");
    type Change = Box<dyn FnOnce(String) -> String>;
    let cases: [(&str, Change, &str); 8] = [
        (
            "crates/view/Cargo.toml",
            Box::new(|text: String| {
                text.replace("version.workspace = true", "version = \"9.8.6\"")
            }),
            "crates/view/Cargo.toml: its version is not that of the workspace",
        ),
        (
            "Cargo.toml",
            Box::new(|text: String| {
                text.replacen(
                    "crates/log\", version = \"9.8.7\"",
                    "crates/log\", version = \"9.8.6\"",
                    1,
                )
            }),
            "another version than 9.8.7",
        ),
        (
            "CHANGELOG.md",
            Box::new(|text: String| {
                text.replacen("\n## ", "\n## Unreleased\n\n* A change.\n\n## ", 1)
            }),
            "9.8.7 is released already, and there are changes under Unreleased",
        ),
        (
            "CITATION.cff",
            Box::new(|text: String| text.replace("2031-02-03", "2031-02-04")),
            "date-released is 2031-02-04",
        ),
        (
            "docs/formats/versions.md",
            Box::new(|text: String| text.replacen("| 1 |", "| 2 |", 1)),
            "the table has 2, and crates/log/src/journal/line.rs has 1",
        ),
        (
            "packaging/libh5logfs_writer.symbols",
            Box::new(at_end("h5logfs_lost 0.1.0")),
            "h5logfs_lost is gone from the header",
        ),
        (
            "packaging/libh5logfs_writer.symbols",
            Box::new(|text: String| text.replace("h5logfs_append 0.1.0\n", "")),
            "h5logfs_append is new",
        ),
        (
            "packaging/libh5logfs_writer.symbols",
            Box::new(|text: String| text.replace("h5logfs_append 0.1.0", "h5logfs_append 10.0.0")),
            "h5logfs_append is there since 10.0.0, and this is 9.8.7",
        ),
    ];
    for (file, change, expected) in cases {
        let tree = Tree::to_be_released();
        tree.change(file, change);
        let (can_be, said) = tree.check();
        assert!(!can_be && said.contains(expected), "{file}: {said}");
    }
}
