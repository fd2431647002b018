//! The targets of the Makefile, on what the tests were built as.

use std::path::Path;
use std::process::Command;

use super::PROGRAM;
use super::readers::project;

/// `make TARGET` for the build that is tested: it finds everything built.
pub fn make(target: &str) -> Command {
    let built = Path::new(PROGRAM).parent().unwrap();
    let profile = match built.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut make = Command::new("make");
    make.args(["--no-print-directory", target])
        .arg(format!("CARGO={}", env!("CARGO")))
        .arg(format!("PROFILE={profile}"))
        .env("CARGO_TARGET_DIR", built.parent().unwrap())
        .current_dir(project());
    make
}
