//! Cleanup after a killed test: mounts, their daemons, jobs. A shell outlives the test, waits for the end of a pipe
//! from it, and cleans up. A test that ends normally cleans up itself.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Waits in its own process group: the test runner signals whole groups.
const WAIT: &str = "while read -r _; do :; done\n";

/// Unmounts `$1`, and kills the daemon that serves it or is about to.
const UNMOUNT: &str = r#"
for process in $(grep -lzxF -e "$1" /proc/[0-9]*/cmdline); do
    number=${process#/proc/} number=${number%/*}
    test "$number" = $$ || kill -KILL "$number"
done
while umount -l "$1"; do :; done
fusermount3 -u -z "$1"
rmdir "$1"
"#;

/// Kills all processes with `$1` in their environment, including those they start meanwhile.
const KILL: &str = r#"
for round in 1 2 3 4 5; do
    for process in $(grep -lzxF -e "$1" /proc/[0-9]*/environ); do
        number=${process#/proc/}
        kill -KILL "${number%/*}"
    done
    sleep 0.1
done
"#;

/// A program that runs until the test is done with it.
#[derive(Debug)]
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Cleans up after a killed test. Dropping it does nothing.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// A guard for a present or future mount at a path.
    pub fn of_mount(path: &Path) -> Self {
        Guard::start(UNMOUNT, path.as_os_str())
    }

    /// A guard for the processes with this variable in their environment.
    pub fn of_processes(variable: &str) -> Self {
        Guard::start(KILL, variable.as_ref())
    }

    fn start(script: &str, argument: &OsStr) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("{WAIT}{script}")).arg("sh");
        shell.arg(argument).process_group(0);
        shell.stdin(Stdio::piped());
        shell.stdout(Stdio::null()).stderr(Stdio::null());
        Guard(shell.spawn().unwrap())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
