//! A killed test leaves neither mounts nor processes.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::layer::Layer;
use crate::common::{Mounted, User, can_mount, is_running, mount_type, wait_until};

/// Set in the environment of the test to be killed.
const VICTIM: &str = "H5LOGFS_TEST_VICTIM";

#[test]
fn the_one_that_is_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "text").unwrap();
    let layer = Layer::over(dir.path());
    let mounted = Mounted::new(layer.path(), "");
    let daemon = mounted.daemon.as_raw_pid();
    let (layer, mounted) = (layer.path().display(), mounted.path().display());
    println!("\nready {layer} {mounted} {daemon}");
    std::thread::park();
}

#[test]
fn nothing_is_left_of_a_test_that_is_killed() {
    if !can_mount(User::Caller) {
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "killed::the_one_that_is_killed", "--nocapture"]);
    victim.env(VICTIM, "1").stdout(Stdio::piped());
    let mut victim = victim.spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.ok()?.strip_prefix("ready ")?.to_owned()));
    let line = line.unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let paths = [words[0], words[1]].map(PathBuf::from);
    let daemon = rustix::process::Pid::from_raw(words[2].parse().unwrap()).unwrap();
    let is_mounted = |path: &Path| mount_type(path).is_some();
    assert!(paths.iter().all(|path| is_mounted(path)) && is_running(daemon));
    victim.kill().unwrap();
    victim.wait().unwrap();
    wait_until("the mounts are gone", || {
        !paths.iter().any(|path| is_mounted(path))
    });
    wait_until("the daemon is gone", || !is_running(daemon));
    wait_until("the mount points are gone", || {
        !paths.iter().any(|path| path.exists())
    });
}
