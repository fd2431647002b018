//! Runs the samples in the README and all other documents. They must print what the documents show.
//!
//! A comment before a block explains a special case. `<!-- not run: REASON -->` says why the block cannot run.
//! `<!-- part of: PATH -->` names the file that contains the lines of a block of Rust, or of a part of a C program. In
//! the output shown, `…` stands for variable text: within a line, or for any number of lines. `samples/place.rs` makes
//! the files that samples name.

mod blocks;
mod guide_program;
mod place;

use std::fs;
use std::process::{Command, Output};

use crate::COMPACT_MPI;
use crate::common::mpirun::Mpi;
use crate::common::readers::{Python, project, said};
use crate::common::{PROGRAM, User, can_mount};
use blocks::{Block, to_be_run};
use place::Place;

/// Languages whose blocks are run or compiled. A block without a language is a drawing or a format.
const LANGUAGES: [&str; 6] = ["console", "sh", "python", "toml", "rust", "c"];

/// Printed between the outputs of two commands.
const SEPARATOR: &str = "--- next command ---";

/// Checks blocks, and fails with all errors.
fn check_each(blocks: Vec<Block>, check: impl Fn(&Block) -> Result<(), String>) {
    let wrong = blocks.iter().filter_map(|block| {
        let reason = check(block).err()?;
        Some(format!("{}: {reason}", block.place))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

fn succeeded(output: &Output) -> Result<(), String> {
    let outcome = output.status.success().then_some(());
    outcome.ok_or_else(|| said(output))
}

/// Whether the programs that samples call are installed; prints if not.
fn can_run() -> bool {
    let mpirun = Mpi::of_build().command("mpirun");
    let missing = ["h5dump", "ncdump", &mpirun];
    let missing = missing.into_iter().find(|program| {
        let found = Command::new("which").arg(program).output();
        !found.is_ok_and(|output| output.status.success())
    });
    if let Some(program) = missing {
        eprintln!("skipped: there is no {program}");
    }
    missing.is_none() && can_mount(User::Caller)
}

#[test]
fn each_block_is_tested_or_says_why_not() {
    check_each(blocks::of_documents(), |block| {
        let language = block.language.as_str();
        let has_command = block.text.lines().any(|line| line.starts_with("$ "));
        if language.is_empty() && has_command {
            return Err("a block with `$ command` has to be one of ```console".into());
        }
        if !language.is_empty() && !LANGUAGES.contains(&language) {
            return Err(format!("no test knows the language {language}"));
        }
        let calls_h5logfs = block.text.lines().any(|line| line.starts_with("h5logfs "));
        if block.not_run.is_some() && calls_h5logfs {
            return Err("calls h5logfs, so it has to be run".into());
        }
        Ok(())
    });
}

#[test]
fn commands_print_what_the_documents_show() {
    if can_run() {
        check_each(to_be_run("console"), prints_what_it_shows);
    }
}

fn prints_what_it_shows(block: &Block) -> Result<(), String> {
    let place = Place::of(&block.text);
    let steps = block.steps();
    let commands = steps.iter().map(|step| &step.command);
    let script: String = commands
        .map(|command| format!("{command}\necho '{SEPARATOR}'\n"))
        .collect();
    let output = place.run(&format!("exec 2>&1\n{script}"));
    let output = place.shortened(&output);
    let outputs: Vec<&str> = output.split(&format!("{SEPARATOR}\n")).collect();
    for (step, output) in steps.iter().zip(outputs) {
        let shown: Vec<&str> = step.shown.iter().map(String::as_str).collect();
        if !blocks::is_shown(&shown, &output.lines().collect::<Vec<_>>()) {
            let (command, shown) = (&step.command, shown.join("\n"));
            return Err(format!("$ {command}\nshown:\n{shown}\nprinted:\n{output}"));
        }
    }
    Ok(())
}

#[test]
fn commands_of_the_documents_succeed() {
    if can_run() {
        check_each(to_be_run("sh"), |block| {
            let place = Place::of(&block.text);
            succeeded(&place.run(&format!("set -e\n{}", block.text)))
        });
    }
}

/// The lines below `Examples:` in the long help of each command. Manual pages have them, too.
#[test]
fn examples_of_the_commands_succeed() {
    if !can_run() {
        return;
    }
    let help = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = help(PROGRAM, &["--help"]);
    let (_, commands) = commands.split_once("Commands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    let lines = commands.lines().filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names = names.filter(|name| *name != "help");
    let helps = names.map(|name| help(PROGRAM, &[name, "--help"]));
    for help in helps.chain([help(COMPACT_MPI, &["--help"])]) {
        let (_, examples) = help.split_once("Examples:\n").expect(&help);
        let is_call = |line: &&str| line.starts_with("h5logfs ") || line.starts_with("mpirun ");
        let calls = examples.lines().map(str::trim);
        let calls: Vec<&str> = calls.filter(is_call).collect();
        assert!(!calls.is_empty(), "{help}");
        for call in calls {
            let place = Place::of(call);
            let output = place.run(&format!("set -e -o pipefail\n{call}"));
            assert_eq!(succeeded(&output), Ok(()), "{call}");
        }
    }
}

#[test]
fn python_of_the_documents_runs() {
    let (true, Some(python)) = (can_run(), Python::new()) else {
        return;
    };
    check_each(to_be_run("python"), |block| {
        let place = Place::of(&block.text);
        succeeded(&place.run_python(&python, &block.text))
    });
}

#[test]
fn configuration_files_of_the_documents_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("h5logfs.toml");
    check_each(to_be_run("toml"), |block| {
        fs::write(&path, &block.text).unwrap();
        let mut check = Command::new(PROGRAM);
        succeeded(
            &check
                .args(["config", "--check"])
                .arg(&path)
                .output()
                .unwrap(),
        )
    });
}

#[test]
fn parts_of_programs_are_in_programs_that_are_built() {
    let is_part = |b: &Block| b.not_run.is_none() && (b.language == "rust" || b.part_of.is_some());
    let parts = blocks::of_documents().into_iter().filter(is_part);
    check_each(parts.collect(), |block| {
        let path = block.part_of.as_ref();
        let path = path.ok_or("says not which file has its lines: `<!-- part of: PATH -->`")?;
        let program = fs::read_to_string(project().join(path));
        let program = program.map_err(|e| format!("{path}: {e}"))?;
        let is_part = blocks::is_part(&block.text, &program);
        let outcome = is_part.then_some(());
        outcome.ok_or_else(|| format!("{path} does not have these lines in this order"))
    });
}

#[test]
fn programs_of_the_guide_write_the_same() {
    if can_run() {
        guide_program::check();
    }
}
