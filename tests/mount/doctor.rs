//! `h5logfs doctor` in broken environments. It reports each problem, with a remedy.

use std::fs;
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::people::{ALICE, can_be_others, set_mode};
use crate::namespaces::DEVICE;
use tempfile::TempDir;

/// The lines printed to an ordinary user. `before` is a script of root that breaks something in its own mount
/// namespace, in which all may open the FUSE device. `around` starts the program.
fn lines(home: &TempDir, before: &str, around: &[&str]) -> Vec<String> {
    let user = ALICE.command(PROGRAM);
    let device = home.path().join("device");
    fs::create_dir_all(&device).unwrap();
    let script = DEVICE.replace("exec \"$@\"", &format!("{before}\nexec \"$@\""));
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh"]).arg(&device);
    let arguments: Vec<_> = user.get_args().collect();
    // The program comes last.
    let (program, rights) = arguments.split_last().unwrap();
    command.arg(user.get_program()).args(rights);
    command.args(around).arg(program).arg("doctor");
    command.env_clear().env("HOME", home.path().join("alice"));
    let output = command.env("PATH", "/usr/bin:/bin").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        !text.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let has_bad = text.lines().any(|line| line.starts_with("bad: "));
    assert_eq!(output.status.success(), !has_bad, "{text}");
    text.lines().map(str::to_owned).collect()
}

/// The only line that begins with `begin`; it must have these words.
#[track_caller]
fn expect(lines: &[String], begin: &str, words: &[&str]) {
    let has =
        |line: &&String| line.starts_with(begin) && words.iter().all(|word| line.contains(word));
    let found = lines.iter().filter(has).count();
    assert_eq!(found, 1, "{begin} {words:?} in {lines:#?}");
}

/// The home of an ordinary user; `None`, with the reason, where no test can act as one.
fn home() -> Option<TempDir> {
    if !can_be_others() {
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    set_mode(home.path(), 0o755);
    let alice = home.path().join("alice");
    fs::create_dir(&alice).unwrap();
    ALICE.owns(&alice, 0o755);
    Some(home)
}

#[test]
fn what_works_is_good() {
    let Some(home) = home() else { return };
    let good = lines(&home, "", &[]);
    expect(&good, "good: /dev/fuse can be opened", &[]);
    expect(&good, "good: users can create namespaces", &["h5logfs run"]);
    expect(
        &good,
        "good: indexes of logs are kept in",
        &["/alice/.cache/h5logfs", "MiB are free"],
    );
    expect(&good, "good: limits of open files and memory", &[]);
    expect(&good, "note: Linux", &["processors"]);
}

#[test]
fn without_a_device_the_way_out_is_told() {
    let Some(home) = home() else { return };
    let missing = lines(
        &home,
        "umount /dev/fuse; mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3",
        &[],
    );
    expect(
        &missing,
        "bad: /dev/fuse: No such file",
        &["modprobe fuse", "HDF5_DRIVER=h5logfs"],
    );
    let closed = lines(&home, "chmod 600 /dev/fuse", &[]);
    expect(
        &closed,
        "bad: /dev/fuse: Permission denied",
        &["chmod 666 /dev/fuse", "HDF5_DRIVER=h5logfs"],
    );
}

#[test]
fn ways_to_mount_are_told_apart() {
    let Some(home) = home() else { return };
    // A program of this name that is not set-uid root.
    let has_helper = std::path::Path::new("/usr/bin/fusermount3").exists();
    let without_set_uid = "mount --bind /usr/bin/true /usr/bin/fusermount3";
    let before = if has_helper { without_set_uid } else { "" };
    let only_namespace = lines(&home, before, &[]);
    expect(
        &only_namespace,
        "note: ",
        &["only root can mount with `h5logfs mount`", "fuse3"],
    );
    expect(&only_namespace, "good: users can create namespaces", &[]);
    // Neither a helper nor a namespace is available.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
    let around = ["unshare", "-Uc", "--keep-caps", "sh", "-c", script, "sh"];
    let neither = lines(&home, before, &around);
    expect(
        &neither,
        "note: `h5logfs run` cannot mount here",
        &["max_user_namespaces is 0"],
    );
    expect(
        &neither,
        "bad: this user can mount neither",
        &["HDF5_DRIVER=h5logfs"],
    );
}

#[test]
fn an_index_directory_that_cannot_be_used_is_told() {
    let Some(home) = home() else { return };
    let cache = home.path().join("alice/.cache");
    fs::create_dir(&cache).unwrap();
    let of_root = lines(&home, "", &[]);
    expect(
        &of_root,
        "bad: ",
        &[
            "indexes cannot be kept there",
            "Permission denied",
            "index_dir",
        ],
    );
    let open = cache.join("h5logfs");
    fs::create_dir(&open).unwrap();
    ALICE.owns(&open, 0o777);
    let open = lines(&home, "", &[]);
    expect(&open, "bad: ", &["others can get in", "index_dir"]);
}

#[test]
fn limits_that_are_too_low_are_told() {
    let Some(home) = home() else { return };
    let low = lines(&home, "ulimit -n 64; ulimit -v 1000000", &[]);
    expect(
        &low,
        "bad: a process may have 64 files open",
        &["ulimit -Hn", "1024"],
    );
    expect(
        &low,
        "bad: a process may have 976 MiB of address space",
        &["scan_memory"],
    );
}

#[test]
fn a_python_package_that_does_not_fit_is_told() {
    let Some(home) = home() else { return };
    let packages = home.path().join("packages");
    fs::create_dir(&packages).unwrap();
    let around = format!("PYTHONPATH={}", packages.display());
    let around = ["env", around.as_str()];
    let module = packages.join("h5logfs.py");
    fs::write(&module, "__version__ = '0.0.9'\n").unwrap();
    let other = lines(&home, "", &around);
    expect(
        &other,
        "bad: Python ",
        &["has h5logfs 0.0.9", "wheel of the same release"],
    );
    fs::write(&module, "raise ImportError('libhdf5.so.42: cannot open')\n").unwrap();
    fs::write(
        packages.join("h5py.py"),
        "raise ValueError('numpy is too old')\n",
    )
    .unwrap();
    let broken = lines(&home, "", &around);
    expect(
        &broken,
        "bad: Python ",
        &["import h5logfs fails", "libhdf5.so.42", "wheel"],
    );
    expect(
        &broken,
        "bad: Python ",
        &["import h5py fails", "numpy is too old"],
    );
    // A directory of this name is no package: the working directory may have one.
    fs::remove_file(&module).unwrap();
    fs::create_dir(packages.join("h5logfs")).unwrap();
    let none = lines(&home, "", &around);
    expect(&none, "note: Python ", &["has no package h5logfs"]);
    // mpirun of another installation, without its libraries.
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let mpirun = bin.join("mpirun");
    fs::write(
        &mpirun,
        "#!/bin/sh\necho 'libopen-rte.so.40: cannot open' >&2\nexit 127\n",
    )
    .unwrap();
    set_mode(&mpirun, 0o755);
    let path = format!("PATH={}:/usr/bin:/bin", bin.display());
    let broken = lines(&home, "", &["env", &path]);
    expect(&broken, "bad: ", &["mpirun does not work", "libopen-rte"]);
}
