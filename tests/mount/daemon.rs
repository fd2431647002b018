//! Mounting end to end: the built program, the kernel, and real processes.
//!
//! Every test has its own source and mount point, so all can run at the same time. Where something cannot be tried
//! (no /dev/fuse, no fusermount3, not root) a test says so and passes.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{
    Mounted, PROGRAM, User, can_act, can_mount, errno, is_root, is_running, messages, mount,
    mount_type, source, wait_until,
};

/// Makes a directory readable by others: temporary directories are private.
fn open_to_all(dir: &TempDir) {
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
}

fn as_each_user(test: impl Fn(User)) {
    for user in [User::Caller, User::Nobody] {
        if can_mount(user) {
            test(user);
        }
    }
}

fn run(user: User, program: &str, arguments: &[&str], path: &Path) -> Output {
    user.command(program)
        .args(arguments)
        .arg(path)
        .output()
        .unwrap()
}

/// Unmounts as this user.
fn unmount(user: User, path: &Path) {
    let output = if user == User::Caller && is_root() {
        run(user, "umount", &[], path)
    } else {
        run(user, "fusermount3", &["-u"], path)
    };
    assert!(output.status.success(), "{}", messages(&output));
}

/// A program that keeps a file open until its standard input ends.
fn keep_open(user: User, path: &Path) -> std::process::Child {
    let mut child = user
        .command("sh")
        .args(["-c", "exec 3<\"$1\" && echo open && read nothing", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut said)
        .unwrap();
    assert_eq!(&said, b"open\n");
    child
}

// The end of a mount.

#[test]
fn it_ends_when_it_is_unmounted() {
    as_each_user(|user| {
        let source = source(user);
        let mounted = Mounted::by(user, source.path(), "");
        assert_eq!(mount_type(mounted.path()).as_deref(), Some("fuse.h5logfs"));
        unmount(user, mounted.path());
        mounted.expect_gone();
    });
}

#[test]
fn it_ends_with_each_stop_signal() {
    as_each_user(|user| {
        for signal in [Signal::TERM, Signal::INT] {
            let source = source(user);
            let mounted = Mounted::by(user, source.path(), "");
            mounted.send(signal);
            mounted.expect_gone();
        }
    });
}

#[test]
fn it_ends_with_a_signal_while_a_file_is_open() {
    as_each_user(|user| {
        let source = source(user);
        let mounted = Mounted::by(user, source.path(), "");
        let mut reader = keep_open(user, &mounted.join("file"));
        mounted.send(Signal::TERM);
        mounted.expect_gone();
        drop(reader.stdin.take());
        reader.wait().unwrap();
    });
}

#[test]
fn a_reader_may_finish_after_a_signal() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    let mut file = File::open(mounted.join("directory/inner")).unwrap();
    mounted.send(Signal::TERM);
    wait_until("the mount is gone", || mount_type(mounted.path()).is_none());
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 300_000);
    drop(file);
    mounted.expect_gone();
}

#[test]
fn auto_unmount_cleans_up_after_a_crash() {
    as_each_user(|user| {
        let source = source(user);
        let mounted = Mounted::by(user, source.path(), "auto_unmount");
        // Attributes cached by the kernel must not make the dead mount look alive.
        let listing = run(user, "ls", &["-l"], mounted.path());
        assert!(listing.status.success(), "{}", messages(&listing));
        mounted.send(Signal::KILL);
        mounted.expect_gone();
    });
}

#[test]
fn auto_unmount_cleans_up_after_a_crash_while_a_file_is_open() {
    as_each_user(|user| {
        let source = source(user);
        let mounted = Mounted::by(user, source.path(), "auto_unmount");
        let mut reader = keep_open(user, &mounted.join("file"));
        mounted.send(Signal::KILL);
        mounted.expect_gone();
        drop(reader.stdin.take());
        reader.wait().unwrap();
    });
}

#[test]
fn the_processes_of_a_daemon_go_with_it() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "auto_unmount");
    let children = format!("/proc/{0}/task/{0}/children", mounted.daemon.as_raw_pid());
    let children = fs::read_to_string(children).unwrap();
    let number = |text: &str| rustix::process::Pid::from_raw(text.parse().unwrap()).unwrap();
    // The watcher, and the zygote of scan workers.
    let children: Vec<_> = children.split_whitespace().map(number).collect();
    assert_eq!(children.len(), 2);
    let all = |running: bool| children.iter().all(|child| is_running(*child) == running);
    // A process just started has no arguments for a moment.
    wait_until("they run", || all(true));
    unmount(User::Caller, mounted.path());
    mounted.expect_gone();
    wait_until("they are gone", || all(false));
}

#[test]
fn without_auto_unmount_a_crash_leaves_a_dead_mount_that_is_refused() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mounted = Mounted::new(source.path(), "");
    mounted.send(Signal::KILL);
    wait_until("the daemon is gone", || !is_running(mounted.daemon));
    wait_until("the mount is dead", || {
        errno(fs::read_dir(mounted.path())) == Some(Errno::NOTCONN)
    });
    let again = mount(User::Caller, source.path(), mounted.path(), "");
    assert!(!again.status.success());
    assert!(
        messages(&again).contains("has died"),
        "{}",
        messages(&again)
    );
}

#[test]
fn what_is_mounted_later_at_the_same_path_stays() {
    if !can_mount(User::Caller) || !is_root() {
        eprintln!("skipped: only root can mount something else");
        return;
    }
    for options in ["", "auto_unmount"] {
        let source = source(User::Caller);
        let mounted = Mounted::new(source.path(), options);
        unmount(User::Caller, mounted.path());
        let flags = MountFlags::empty();
        rustix::mount::mount("later", mounted.path(), "tmpfs", flags, None).unwrap();
        wait_until("the daemon is gone", || !is_running(mounted.daemon));
        // The watcher has no work either; it gets a moment to be wrong.
        std::thread::sleep(Duration::from_millis(300));
        let left = mount_type(mounted.path());
        let _ = rustix::mount::unmount(mounted.path(), UnmountFlags::DETACH);
        assert_eq!(left.as_deref(), Some("tmpfs"));
    }
}

#[test]
fn a_new_mount_may_follow_at_once() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let first = Mounted::new(source.path(), "auto_unmount");
    unmount(User::Caller, first.path());
    let again = mount(User::Caller, source.path(), first.path(), "auto_unmount");
    assert!(again.status.success(), "{}", messages(&again));
    wait_until("the first daemon is gone", || !is_running(first.daemon));
    std::thread::sleep(Duration::from_millis(300));
    assert!(fs::read(first.join("file")).is_ok());
    unmount(User::Caller, first.path());
}

// The start of a mount.

#[test]
fn options_that_mount_adds_are_accepted() {
    as_each_user(|user| {
        let source = source(user);
        let options = "rw,dev,suid,noatime,_netdev,x-systemd.automount,threads=2,cache_size=16M";
        let mounted = Mounted::by(user, source.path(), options);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table
            .lines()
            .find(|line| line.contains(mounted.path().to_str().unwrap()))
            .unwrap();
        assert!(line.contains(" ro,nosuid,nodev"), "{line}");
        assert!(line.contains(source.path().to_str().unwrap()), "{line}");
    });
}

#[test]
fn the_source_may_have_any_name() {
    as_each_user(|user| {
        let outer = user.dir();
        let source = outer.path().join("a,suid b\\");
        fs::create_dir(&source).unwrap();
        fs::write(source.join("file"), "text").unwrap();
        let mounted = Mounted::by(user, &source, "");
        let read = run(user, "cat", &[], &mounted.join("file"));
        assert_eq!(read.stdout, b"text", "{}", messages(&read));
    });
}

#[test]
fn an_unknown_option_is_an_error_that_names_it() {
    let source = source(User::Caller);
    let output = mount(
        User::Caller,
        source.path(),
        source.path(),
        "rw,frobnicate=3",
    );
    assert!(!output.status.success());
    assert!(
        messages(&output).contains("frobnicate"),
        "{}",
        messages(&output)
    );
}

#[test]
fn a_bad_mount_point_or_source_is_an_error_that_names_it() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let missing = source.path().join("missing");
    let file = source.path().join("file");
    for (from, to, message) in [
        (
            source.path(),
            &missing,
            "missing: the mount point does not exist",
        ),
        (source.path(), &file, "must be a directory"),
        (
            &missing,
            &source.path().join("directory"),
            "missing: No such file",
        ),
    ] {
        let output = mount(User::Caller, from, to, "");
        assert!(!output.status.success());
        assert!(messages(&output).contains(message), "{}", messages(&output));
    }
}

#[test]
fn a_mount_point_in_use_is_refused() {
    as_each_user(|user| {
        let source = source(user);
        let mounted = Mounted::by(user, source.path(), "");
        let again = mount(user, source.path(), mounted.path(), "");
        assert!(!again.status.success());
        let said = messages(&again);
        assert!(said.contains("mounted here already"), "{said}");
    });
}

#[test]
fn in_the_foreground_it_stays_and_logs() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let dir = User::Caller.dir();
    let child = User::Caller
        .command(PROGRAM)
        .args(["mount", "-f"])
        .args([source.path(), dir.path()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is mounted", || mount_type(dir.path()).is_some());
    let mounted = Mounted::at(User::Caller, dir);
    unmount(User::Caller, mounted.path());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(
        messages(&output).contains("mounted at"),
        "{}",
        messages(&output)
    );
}

#[test]
fn a_daemon_logs_to_its_file() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let logs = User::Caller.dir();
    let log = logs.path().join("log");
    let mounted = Mounted::new(source.path(), &format!("log_file={}", log.display()));
    unmount(User::Caller, mounted.path());
    mounted.expect_gone();
    let text = fs::read_to_string(log).unwrap();
    assert!(
        text.contains("mounted at") && text.contains("unmounted"),
        "{text}"
    );
}

#[test]
fn relative_paths_are_those_of_the_caller() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let dir = User::Caller.dir();
    let output = User::Caller
        .command(PROGRAM)
        .current_dir(dir.path())
        .args(["mount", "-o", "log_file=.", "."])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        messages(&output).contains("log file"),
        "{}",
        messages(&output)
    );
    let output = User::Caller
        .command(PROGRAM)
        .current_dir(source.path())
        .args(["mount", "."])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    let mounted = Mounted::at(User::Caller, dir);
    assert_eq!(fs::read(mounted.join("file")).unwrap(), b"some text\n");
}

#[test]
fn others_get_in_with_allow_other_only_and_past_permissions_only() {
    if !can_mount(User::Caller) || !can_act(User::Nobody) {
        return;
    }
    for (options, may_read) in [("", false), ("allow_other", true)] {
        let source = source(User::Caller);
        open_to_all(&source);
        let private = source.path().join("private");
        fs::write(&private, "secret").unwrap();
        fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
        let outer = User::Caller.dir();
        open_to_all(&outer);
        let dir = tempfile::tempdir_in(outer.path()).unwrap();
        let output = mount(User::Caller, source.path(), dir.path(), options);
        assert!(output.status.success(), "{}", messages(&output));
        let mounted = Mounted::at(User::Caller, dir);
        let reads = |name| {
            run(User::Nobody, "cat", &[], &mounted.join(name))
                .status
                .success()
        };
        assert_eq!(reads("file"), may_read);
        assert!(!reads("private"));
        assert_eq!(fs::read(mounted.join("private")).unwrap(), b"secret");
    }
}

/// With few descriptors, either the mount answers, or the command fails and leaves nothing.
#[test]
fn who_is_told_of_a_mount_has_one() {
    if !can_mount(User::Caller) {
        return;
    }
    let source = source(User::Caller);
    let mut failed = 0;
    for descriptors in 4..32 {
        let dir = User::Caller.dir();
        let mut command = User::Caller.command("prlimit");
        command.arg(format!("--nofile={descriptors}"));
        command.args([PROGRAM, "mount"]);
        command.args([source.path(), dir.path()]);
        // A search of the index directory briefly needs a descriptor, too.
        let output = command
            .args(["-o", "threads=4,index_dir=none"])
            .output()
            .unwrap();
        if output.status.success() {
            let mounted = Mounted::at(User::Caller, dir);
            let seen = errno(mounted.path().metadata());
            assert_eq!(seen, None, "with {descriptors} descriptors");
        } else {
            failed += 1;
            let said = messages(&output);
            assert!(!said.is_empty(), "{descriptors}: nothing is said");
            let left = mount_type(dir.path());
            crate::common::unmount_by_force(User::Caller, dir.path());
            assert_eq!(left, None, "{descriptors}: {said}");
        }
    }
    assert!((1..28).contains(&failed), "{failed} of 28 failed");
}
