//! What a target of cargo-fuzz needs beside its body, which is in `targets` and also run by
//! `tests/library/fuzz_regressions.rs`.

use std::fs;
use std::path::Path;

pub use libfuzzer_sys;

#[path = "../targets/mod.rs"]
pub mod targets;

/// Makes a target of the body of that name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::plant(&$crate::find($name)),
            |bytes: &[u8]| ($crate::find($name).run)(bytes)
        );
    };
}

pub fn find(name: &str) -> targets::Target {
    let found = targets::ALL.iter().find(|target| target.name == name);
    *found.expect("a target of that name")
}

/// Puts the seeds of a target where cargo-fuzz looks for its corpus, before the corpus is read: they are
/// made of log files that the tests have, and not worth having twice.
pub fn plant(target: &targets::Target) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let dir = dir.join(target.name);
    fs::create_dir_all(&dir).expect("a folder for the corpus");
    for (name, bytes) in (target.seeds)() {
        fs::write(dir.join(format!("seed-{name}")), bytes).expect("a seed");
    }
}
