//! The code blocks in the documents, and the comparison of the output that they show.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::readers::project;

/// Precedes a block that is not run: `<!-- not run: REASON -->`.
const NOT_RUN: &str = "<!-- not run: ";

/// Precedes a block of Rust, or of a part of a C program: `<!-- part of: PATH -->`.
const PART_OF: &str = "<!-- part of: ";

/// Stands for any text within a line, or for any number of lines if alone in a line.
const ANYTHING: char = '…';

/// A code block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Document and line, for messages.
    pub place: String,
    /// The word after the first fence; empty if there is none.
    pub language: String,
    pub text: String,
    /// Why the block is not run.
    pub not_run: Option<String>,
    /// The file that contains its lines.
    pub part_of: Option<String>,
}

/// A command of a `console` block, and its lines of output.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    pub shown: Vec<String>,
}

impl Block {
    pub fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for line in self.text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    shown: Vec::new(),
                }),
                (None, Some(step)) => step.shown.push(line.to_owned()),
                (None, None) => panic!("{}: begins with no `$ command`", self.place),
            }
        }
        steps
    }
}

/// All blocks of a language that are neither exempt nor part of a program.
pub fn to_be_run(language: &str) -> Vec<Block> {
    let blocks = of_documents().into_iter();
    let is_whole = |b: &Block| b.not_run.is_none() && b.part_of.is_none();
    let blocks = blocks.filter(|b| b.language == language && is_whole(b));
    let blocks: Vec<_> = blocks.collect();
    assert!(!blocks.is_empty(), "no document has a block of {language}");
    blocks
}

/// The blocks of all documents of the project.
pub fn of_documents() -> Vec<Block> {
    let mut documents = Vec::new();
    find_documents(project(), &mut documents);
    documents.sort();
    let blocks = documents.iter().flat_map(|path| {
        let name = path.strip_prefix(project()).unwrap();
        parse(name, &fs::read_to_string(path).unwrap())
    });
    blocks.collect()
}

fn find_documents(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let is_source = !name.starts_with('.') && name != "target";
        if is_source && entry.file_type().unwrap().is_dir() {
            find_documents(&entry.path(), found);
        } else if name.ends_with(".md") {
            found.push(entry.path());
        }
    }
}

fn parse(document: &Path, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut is_inside, mut before) = (false, "");
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), is_inside) {
            (Some(language), false) => {
                let remark = |start| before.strip_prefix(start)?.strip_suffix(" -->");
                blocks.push(Block {
                    place: format!("{}:{}", document.display(), number + 1),
                    language: language.to_owned(),
                    text: String::new(),
                    not_run: remark(NOT_RUN).map(str::to_owned),
                    part_of: remark(PART_OF).map(str::to_owned),
                });
                is_inside = true;
            }
            (Some(_), true) => is_inside = false,
            (None, true) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
        before = line.trim();
    }
    blocks
}

/// Whether the output is what a document shows.
pub fn is_shown(shown: &[&str], output: &[&str]) -> bool {
    let Some((first, rest)) = shown.split_first() else {
        return output.is_empty();
    };
    if first.trim() == ANYTHING.to_string() {
        return (0..=output.len()).any(|skipped| is_shown(rest, &output[skipped..]));
    }
    output
        .split_first()
        .is_some_and(|(line, after)| line_is_shown(first, line) && is_shown(rest, after))
}

fn line_is_shown(shown: &str, line: &str) -> bool {
    let (shown, line) = (shown.trim_end(), line.trim_end());
    let Some((start, rest)) = shown.split_once(ANYTHING) else {
        return shown == line;
    };
    let Some(mut line) = line.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split(ANYTHING).collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match line.split_once(part) {
            Some((_, after)) => line = after,
            None => return false,
        }
    }
    line.ends_with(end)
}

/// Whether `whole` contains the lines of `part` in order. Comments and white space do not count, because rustfmt
/// breaks lines elsewhere.
pub fn is_part(part: &str, whole: &str) -> bool {
    let code = |line: &str| {
        let line = line.trim().trim_start_matches("///");
        let code = line.split("//").next().unwrap_or_default();
        code.split_whitespace().collect::<String>()
    };
    let whole: String = whole.lines().map(code).collect();
    let mut rest = whole.as_str();
    part.lines()
        .map(code)
        .all(|line| match rest.split_once(&line) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
}

#[test]
fn blocks_are_found_with_their_remarks() {
    let text = "a\n<!-- not run: it is long -->\n```sh\nx\ny\n```\n```\nplain\n```\n\
                <!-- part of: a/b.rs -->\n```rust\nz\n```\n";
    let blocks = parse(Path::new("d.md"), text);
    let block = |place: &str, language: &str, text: &str| Block {
        place: place.into(),
        language: language.into(),
        text: text.into(),
        not_run: None,
        part_of: None,
    };
    let expected = [
        Block {
            not_run: Some("it is long".into()),
            ..block("d.md:3", "sh", "x\ny\n")
        },
        block("d.md:7", "", "plain\n"),
        Block {
            part_of: Some("a/b.rs".into()),
            ..block("d.md:11", "rust", "z\n")
        },
    ];
    assert_eq!(blocks, expected);
}

#[test]
fn commands_have_the_lines_that_follow_them() {
    let text = "```console\n$ a b\n1\n2\n$ c\n```\n";
    let steps = parse(Path::new("d.md"), text)[0].steps();
    let step = |command: &str, shown: &[&str]| Step {
        command: command.into(),
        shown: shown.iter().map(|line| line.to_string()).collect(),
    };
    assert_eq!(steps, [step("a b", &["1", "2"]), step("c", &[])]);
}

#[test]
fn an_ellipsis_stands_for_what_varies() {
    for (shown, line, expected) in [
        ("a b", "a b  ", true),
        ("a b", "a c", false),
        ("a … c", "a b c", true),
        ("a … c", "a b d", false),
        ("… of … at …", "1 of 2 at 3", true),
        ("… of … at …", "1 at 2 of 3", false),
        ("a…a", "a", false),
    ] {
        assert_eq!(line_is_shown(shown, line), expected, "{shown}, {line}");
    }
    assert!(is_shown(&["a", "…", "d"], &["a", "b", "c", "d"]));
    assert!(is_shown(&["a", "…"], &["a"]));
    assert!(!is_shown(&["a", "…", "d"], &["a", "b", "c"]));
    assert!(!is_shown(&["a"], &["a", "b"]));
    assert!(!is_shown(&["a", "b"], &["a"]));
}

#[test]
fn a_part_has_lines_of_the_whole_in_their_order() {
    let whole = "fn main() {\n    /// let a = 1;\n    b(\n        a);   // why\n    c();\n}\n";
    assert!(is_part(
        "let a = 1;\n// later:\nc();    // and so on\n",
        whole
    ));
    assert!(!is_part("c();\nb(a);\n", whole));
    assert!(!is_part("b(b);\n", whole));
}
