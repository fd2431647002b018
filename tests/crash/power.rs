//! Power failures on a kernel file system: the device of an ext4, copied without waiting for anything, and mounted
//! again.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use h5logfs_scan::closing::{How, recover};
use tempfile::TempDir;

use super::common::guard::Guard;
use super::common::readers::said;
use super::common::{User, is_root, unmount_by_force};
use super::judge::{Found, read};
use super::scenario::{NAME, SILENT, run_writer};

/// An ext4 in a file, mounted until it is dropped.
struct Mounted {
    _guard: Guard,
    dir: TempDir,
}

impl Mounted {
    fn new(image: &Path) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        let guard = Guard::of_mount(dir.path());
        let mut mount = Command::new("mount");
        // Data must not reach the device by itself during the test.
        mount.args(["-o", "loop,commit=300"]).arg(image);
        succeeds(mount.arg(dir.path()).output())?;
        Ok(Mounted { _guard: guard, dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_by_force(User::Caller, self.path());
    }
}

fn succeeds(ran: std::io::Result<Output>) -> Result<(), String> {
    let output = ran.map_err(|e| e.to_string())?;
    output.status.success().then_some(()).ok_or(said(&output))
}

/// An empty ext4 in a file, mounted. Fails where this machine cannot do it.
fn device(dir: &Path) -> Result<Mounted, String> {
    if !is_root() {
        return Err("only root can mount an ext4".into());
    }
    let image = dir.join("device");
    let file = fs::File::create(&image).unwrap();
    file.set_len(64 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-qF").arg(&image).output();
    succeeds(made).and_then(|()| Mounted::new(&image))
}

/// The result of a power failure after the steps of `writer-crash`. `dir` has the device.
fn after(dir: &Path, mounted: Mounted, options: &str, steps: &[(u64, &str)]) -> Found {
    for (flush, steps) in steps {
        run_writer(
            1,
            &mounted.path().join(NAME),
            SILENT,
            *flush,
            options,
            steps,
        );
    }
    let copy = dir.join("copy");
    fs::copy(dir.join("device"), &copy).unwrap();
    drop(mounted);
    let mounted = Mounted::new(&copy).unwrap();
    let path = mounted.path().join(NAME);
    let found = read(&path, None);
    recover(&path, How::default()).unwrap();
    assert_eq!(read(&path, None), found);
    found
}

/// Everything is written back in the middle, as in any job of more than half a minute.
#[test]
#[ignore = "needs root and a loop device"]
fn logs_on_ext4_have_what_was_promised() {
    let close = "create flush flush flush flush writeback flush flush flush flush close";
    let leave = "create flush flush writeback flush leave";
    for (options, steps, flushes) in [
        ("fsync=close", &[(0, close)][..], 8),
        ("fsync=flush", &[(0, close)], 8),
        ("fsync=close,checksums", &[(0, close)], 8),
        ("fsync=close,subfiles", &[(0, close)], 8),
        ("fsync=close,settle", &[(0, close)], 8),
        ("fsync=flush", &[(0, leave)], 3),
        ("fsync=flush", &[(0, leave), (3, "open flush leave")], 4),
        (
            "fsync=close",
            &[(0, close), (8, "open writeback flush close")],
            9,
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mounted = match device(dir.path()) {
            Ok(mounted) => mounted,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let found = after(dir.path(), mounted, options, steps);
        assert_eq!(found, Found::Flush(flushes), "{options}: {steps:?}");
        eprintln!("{options}: {steps:?}: {flushes} flushes");
    }
}
