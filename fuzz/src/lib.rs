//! Makes cargo-fuzz targets from the bodies in `targets`, which `tests/library/fuzz_regressions.rs` runs, too.

use std::fs;
use std::path::Path;

pub use libfuzzer_sys;

#[path = "../targets/mod.rs"]
pub mod targets;

#[global_allocator]
static ALLOCATOR: targets::memory::Counting = targets::memory::Counting;

/// Makes a fuzz target from the body of that name.
#[macro_export]
macro_rules! fuzz {
    ($name:literal) => {
        $crate::libfuzzer_sys::fuzz_target!(
            init: $crate::write_seeds(&$crate::find($name)),
            |bytes: &[u8]| $crate::targets::memory::run(&$crate::find($name), bytes)
        );
    };
}

pub fn find(name: &str) -> targets::Target {
    let found = targets::ALL.iter().find(|target| target.name == name);
    *found.expect("a target of that name")
}

/// Writes the seeds of a target to its corpus directory before cargo-fuzz reads it. The seeds are made from the log files
/// of the tests, so they need not be stored.
pub fn write_seeds(target: &targets::Target) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let dir = dir.join(target.name);
    fs::create_dir_all(&dir).expect("a directory for the corpus");
    for (name, bytes) in (target.seeds)() {
        fs::write(dir.join(format!("seed-{name}")), bytes).expect("a seed");
    }
}
