//! A power failure right after `close` has returned: a copy of the block device as of then.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::killed::Shown;
use crate::common::mpirun::{Job, program};
use crate::common::readers::Python;
use crate::common::{Mounted, PROGRAM, is_root, wait_until};

const RANKS: u32 = 4;

/// A mounted image of a file system.
struct Disk(PathBuf);

impl Disk {
    fn mount(image: &Path) -> Self {
        let at = image.with_extension("mnt");
        fs::create_dir(&at).unwrap();
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(image)
            .arg(&at));
        Disk(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The content of a log through its own mount.
fn shown(python: &Python, dir: &Path) -> Shown {
    let mounted = Mounted::new(dir, "");
    let mut command = python.tool("pattern.py");
    command.arg(mounted.join("log.h5")).arg(RANKS.to_string());
    Shown::by(&command.output().unwrap())
}

/// With `fsync=close` nothing is forced to disk before the close. The system may write data back at any time, as here
/// after flush 4. The disk then has the journal as of that time.
fn closed_logs_survive(subfiles: &str, python: &Python) {
    let dir = TempDir::new().unwrap();
    let image = dir.path().join("disk");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    run(Command::new("mkfs.ext4").arg("-q").arg(&image));
    let disk = Disk::mount(&image);
    let (log, notes) = (disk.0.join("log.h5"), dir.path().join("notes"));
    fs::create_dir(&notes).unwrap();
    let acknowledged = || fs::read_to_string(notes.join("acknowledged")).unwrap_or_default();
    let has = |stage: &str| acknowledged().lines().any(|line| line == stage);
    let places = [&log, &notes].map(|path| path.to_str().unwrap());
    let arguments = [places[0], places[1], "8", subfiles, "1", "pause=300"];
    let job = Job::start(RANKS, &program("writer-pattern"), &arguments);
    wait_until("flush 4", || has("4"));
    run(Command::new("sync").arg("-f").arg(&disk.0));
    wait_until("the close", || has("closed"));
    let cut = dir.path().join("cut");
    fs::copy(&image, &cut).unwrap();
    job.succeed();
    let cut = Disk::mount(&cut);
    let now = shown(python, &cut.0);
    assert_eq!(now, shown(python, &disk.0), "{subfiles} subfiles");
    assert!(matches!(now, Shown::Flush(flush) if flush >= 8), "{now:?}");
    let said = run(Command::new(PROGRAM)
        .arg("recover")
        .arg(cut.0.join("log.h5")));
    assert!(said.contains("already closed"), "{said}");
}

#[test]
#[ignore = "mounts file systems, and needs their tools"]
fn a_log_stays_closed_after_a_loss_of_power() {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    if !is_root() || !Path::new("/dev/loop-control").exists() {
        eprintln!(
            "skipped: only root can mount a file system, and only where there are loop devices"
        );
        return;
    }
    closed_logs_survive("0", &python);
    closed_logs_survive("2", &python);
}
