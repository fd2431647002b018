//! Seeds and regressions of fuzzing, run again with the targets of `make fuzz`.

#[path = "../../fuzz/targets/mod.rs"]
pub mod targets;

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use targets::{ALL, Seeds, Target, memory};

fn regressions() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions")
}

/// The inputs found for a target.
fn found(target: &Target) -> Seeds {
    let files = fs::read_dir(regressions().join(target.name));
    let files = files.into_iter().flatten().flatten();
    files
        .map(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            (name, fs::read(file.path()).unwrap())
        })
        .collect()
}

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// cargo-nextest runs each test in its own process. Only there all memory of the process belongs to the test.
fn is_alone() -> bool {
    env::var("NEXTEST_EXECUTION_MODE").is_ok_and(|mode| mode == "process-per-test")
}

/// Runs `work`, and checks its memory.
pub fn measured<T>(work: impl FnOnce() -> T) -> T {
    if is_alone() {
        memory::measured(work)
    } else {
        work()
    }
}

fn run(target: &Target, bytes: &[u8]) {
    if is_alone() {
        memory::run(target, bytes);
    } else {
        (target.run)(bytes);
    }
}

/// The names of the inputs on which a target panics.
fn failing(target: &Target, inputs: Seeds) -> Vec<String> {
    let fails = |bytes: &[u8]| catch_unwind(AssertUnwindSafe(|| run(target, bytes))).is_err();
    let failing = inputs.into_iter().filter(|(_, bytes)| fails(bytes));
    failing
        .map(|(name, _)| format!("{}/{name}", target.name))
        .collect()
}

#[test]
fn seeds_are_good() {
    for target in &ALL {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        assert_eq!(failing(target, seeds), [""; 0]);
    }
}

#[test]
fn nothing_that_was_found_is_found_again() {
    for target in &ALL {
        assert_eq!(failing(target, found(target)), [""; 0]);
    }
}

/// No test would run inputs in a directory with another name.
#[test]
fn inputs_belong_to_targets() {
    for dir in fs::read_dir(regressions()).into_iter().flatten().flatten() {
        let name = dir.file_name();
        let is_known = ALL.iter().any(|target| name == target.name);
        assert!(is_known, "{}", dir.path().display());
    }
}
