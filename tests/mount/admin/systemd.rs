//! The shipped units, as far as they can be tried without a running systemd: systemd's own checks, the daemon's
//! messages to a service manager, and the daemon with the rights that the unit leaves it.
//!
//! `booted` tries them under a systemd.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use h5logfs_catalog::options::parse_size;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::{
    Mounted, PROGRAM, User, can_mount, is_root, messages, mount_type, source, wait_until,
};

/// Limit of the exposure that `systemd-analyze security` finds, in tenths: 10 is everything. A service that may mount
/// for all users cannot be as low as one with its own file system.
const MOST_EXPOSED: &str = "45";

fn unit(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("systemd")
        .join(path)
}

/// Whether systemd-analyze supports `what`; prints if not.
fn can_analyze(what: &str) -> bool {
    match Command::new("systemd-analyze").arg("--help").output() {
        Err(_) => eprintln!("skipped: systemd-analyze (package systemd) is not installed"),
        Ok(help) if !String::from_utf8_lossy(&help.stdout).contains(what) => {
            eprintln!("skipped: this systemd-analyze knows no {what}");
        }
        Ok(_) => return true,
    }
    false
}

/// A copy that names the program by its real path, because verify looks for it.
fn with_program(from: &str, dir: &TempDir, name: &str) -> PathBuf {
    let text = fs::read_to_string(unit(from)).unwrap();
    let copy = dir.path().join(name);
    fs::write(&copy, text.replace("=h5logfs ", &format!("={PROGRAM} "))).unwrap();
    copy
}

#[test]
fn systemd_accepts_the_units() {
    if !can_analyze("verify") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let units = [
        ("h5logfs@.service", "h5logfs@mnt-logs.service", false),
        (
            "user/h5logfs-user@.service",
            "h5logfs-user@home-logs.service",
            true,
        ),
        ("examples/mnt-logs.mount", "mnt-logs.mount", false),
        ("examples/mnt-logs.automount", "mnt-logs.automount", false),
    ];
    // All copies first: the automount needs its mount.
    let copies = units.map(|(from, name, user)| (with_program(from, &dir, name), user));
    for (copy, user) in copies {
        let output = Command::new("systemd-analyze")
            .args([
                "verify",
                "--man=no",
                if user { "--user" } else { "--system" },
            ])
            .arg(&copy)
            // The command only asks for the path of this directory.
            .env("XDG_RUNTIME_DIR", dir.path())
            .output()
            .unwrap();
        let said = messages(&output);
        // The command skips unknown settings, with a message and status 0.
        assert!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            copy.display()
        );
    }
}

#[test]
fn the_service_is_not_too_exposed() {
    if !can_analyze("--offline") {
        return;
    }
    let threshold = format!("--threshold={MOST_EXPOSED}");
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold])
        .arg(unit("h5logfs@.service"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &messages(&output);
    assert!(said.contains("Overall exposure level"), "{said}");
    assert!(output.status.success(), "{said}");
}

/// The settings for which systemd gives a service its own mount namespace (systemd.exec(5)): other processes do not
/// see mounts in it.
#[test]
fn nothing_hides_the_mount_from_others() {
    const HIDING: [&str; 20] = [
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "PrivateUsers",
        "PrivateIPC",
        "ProtectSystem",
        "ProtectHome",
        "ProtectProc",
        "ProcSubset",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "BindPaths",
        "TemporaryFileSystem",
        "RootDirectory",
        "DynamicUser",
    ];
    for path in ["h5logfs@.service", "user/h5logfs-user@.service"] {
        let text = fs::read_to_string(unit(path)).unwrap();
        let keys = text
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0));
        let hiding: Vec<&str> = keys.filter(|key| HIDING.contains(key)).collect();
        assert!(hiding.is_empty(), "{path}: {hiding:?}");
    }
}

/// The value of a setting that occurs once in a unit.
fn setting(unit_path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(unit(unit_path)).unwrap();
    let values = text
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let mut values = values.map(str::to_owned);
    let value = values.next();
    assert_eq!(values.next(), None, "{unit_path}: {key}");
    value
}

/// When memory runs out, a scan ends before the daemon, and the daemon has the memory that its options allow.
#[test]
fn the_kernel_ends_scans_before_the_daemon() {
    let daemon = (256 + 256 + 192) << 20;
    let scan = 2 << 30;
    for path in ["h5logfs@.service", "user/h5logfs-user@.service"] {
        let limit = setting(path, "MemoryMax").unwrap();
        let limit = parse_size(&limit).unwrap();
        assert!(limit >= daemon + scan, "{path}: {limit}");
        assert_eq!(setting(path, "MemoryHigh"), None, "{path}");
        assert_eq!(
            setting(path, "OOMPolicy").as_deref(),
            Some("continue"),
            "{path}"
        );
    }
    let score: i32 = setting("h5logfs@.service", "OOMScoreAdjust")
        .unwrap()
        .parse()
        .unwrap();
    assert!((-999..0).contains(&score), "{score}");
    assert_eq!(
        setting("user/h5logfs-user@.service", "OOMScoreAdjust"),
        None
    );
}

/// Listens like a service manager.
struct Manager {
    dir: TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Manager { dir, socket }
    }

    fn next(&self) -> String {
        let mut buf = [0; 4096];
        let len = self.socket.recv(&mut buf).expect("the daemon says nothing");
        String::from_utf8_lossy(&buf[..len]).into_owned()
    }

    /// Mounts `source` at `mount_point`, in the foreground, by `command`.
    fn start(&self, command: &mut Command, source: &Path, mount_point: &Path) -> Child {
        command
            .args(["mount", "-f"])
            .args([source, mount_point])
            .args(["-o", "auto_unmount,index_dir=none"])
            .env("NOTIFY_SOCKET", self.dir.path().join("notify"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

#[test]
fn the_service_manager_is_told() {
    if !can_mount(User::Caller) {
        return;
    }
    let (manager, source, dir) = (Manager::new(), source(User::Caller), User::Caller.dir());
    let mut command = User::Caller.command(PROGRAM);
    let child = manager.start(&mut command, source.path(), dir.path());
    let ready = manager.next();
    // This message means that the mount is there.
    assert_eq!(mount_type(dir.path()).as_deref(), Some("fuse.h5logfs"));
    let mounted = Mounted::at(User::Caller, dir);
    let mut lines = ready.lines();
    assert_eq!(lines.next(), Some("READY=1"));
    let status = lines.next().unwrap();
    let words = [source.path(), mounted.path()].map(|path| path.to_str().unwrap());
    assert!(
        status.starts_with("STATUS=") && words.iter().all(|w| status.contains(w)),
        "{status}"
    );

    // The watcher of auto_unmount is a child, and must not be able to speak for the daemon.
    let children = format!("/proc/{0}/task/{0}/children", mounted.daemon.as_raw_pid());
    let watcher = fs::read_to_string(children).unwrap();
    let environment = format!(
        "/proc/{}/environ",
        watcher.split_whitespace().next().unwrap()
    );
    wait_until("the watcher has its own environment", || {
        let environment = fs::read_to_string(&environment).unwrap();
        !environment.is_empty() && !environment.contains("NOTIFY_SOCKET")
    });

    mounted.send(Signal::TERM);
    assert!(manager.next().starts_with("STOPPING=1\n"));
    mounted.expect_gone();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
}

#[test]
fn a_mount_that_fails_is_not_ready() {
    let (manager, source) = (Manager::new(), source(User::Caller));
    let mut command = User::Caller.command(PROGRAM);
    let missing = source.path().join("missing");
    let child = manager.start(&mut command, source.path(), &missing);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    manager.socket.set_nonblocking(true).unwrap();
    assert!(manager.socket.recv(&mut [0; 10]).is_err());
}

/// The unit's capabilities suffice, without a way to more: for the mount, for a file that root does not own, and for
/// the end.
#[test]
fn the_rights_that_the_unit_leaves_are_enough() {
    if !is_root() || !can_mount(User::Caller) {
        eprintln!("skipped: only root has rights to give up");
        return;
    }
    let text = fs::read_to_string(unit("h5logfs@.service")).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let capabilities: Vec<String> = line
        .unwrap()
        .split(' ')
        .map(|name| name.replace("CAP_", "+").to_lowercase())
        .collect();
    let set = format!("--bounding-set=-all,{}", capabilities.join(","));
    let (manager, source, dir) = (Manager::new(), source(User::Nobody), User::Caller.dir());
    let private = source.path().join("file");
    fs::set_permissions(
        &private,
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    std::os::unix::fs::chown(&private, Some(65534), Some(65534)).unwrap();
    let mut command = User::Caller.command("setpriv");
    command.args([&set, "--no-new-privs", "--", PROGRAM]);
    let child = manager.start(&mut command, source.path(), dir.path());
    assert!(manager.next().starts_with("READY=1"));
    let mounted = Mounted::at(User::Caller, dir);
    let status = format!("/proc/{}/status", mounted.daemon.as_raw_pid());
    assert!(
        fs::read_to_string(status)
            .unwrap()
            .contains("NoNewPrivs:\t1")
    );
    assert_eq!(fs::read(mounted.join("file")).unwrap(), b"some text\n");
    mounted.send(Signal::TERM);
    mounted.expect_gone();
    let output = child.wait_with_output().unwrap();
    assert!(
        !messages(&output).contains("cannot"),
        "{}",
        messages(&output)
    );
}
