//! The shipped units under a systemd that is process 1. The tests cover order, ends, crashes, the journal, and the
//! limits of the sandboxed daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::container::{Container, Files};
use crate::common::people::corpus;
use crate::common::{PROGRAM, messages, wait_until};

/// The instance for /mnt/logs.
const SERVICE: &str = "h5logfs@mnt-logs.service";

fn shipped(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("systemd")
        .join(path)
}

/// A log below /data/logs, to be mounted at /mnt/logs.
fn files() -> Files {
    let files = Files::new();
    files.copy(&corpus("corpus/fill.log.h5"), "data/logs/fill.h5");
    fs::create_dir_all(files.at("mnt/logs")).unwrap();
    let mount = "[[mount]]\npoint = \"/mnt/logs\"\nsource = \"/data/logs\"\nallow_other = true\n";
    files.write("etc/h5logfs.toml", mount);
    let unit = "h5logfs@.service";
    files.copy(&shipped(unit), &format!("etc/systemd/system/{unit}"));
    files
}

/// The canonical file of that log, made without a mount.
fn canonical() -> Vec<u8> {
    let mut export = Command::new(PROGRAM);
    let log = corpus("corpus/fill.log.h5");
    let output = export.arg("export").arg(log).arg("-").output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    output.stdout
}

/// A unit that starts with the system, needs `needs`, and copies the log at `path` once.
fn add_reader(files: &Files, name: &str, needs: &str, path: &str) {
    let unit = format!(
        "[Unit]\n{needs}\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=cp {path} /run/{name}\n"
    );
    files.write(&format!("etc/systemd/system/{name}.service"), &unit);
    files.enable(&format!("{name}.service"), &format!("{name}.service"));
}

/// Priority and text of the unit's messages in the journal.
fn journal(container: &Container, unit: &str) -> Vec<(String, String)> {
    container.run("journalctl --sync");
    let lines = container.run(&format!("journalctl --output=json --unit={unit}"));
    let entry = |line: &str| {
        let entry: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        (text("PRIORITY"), text("MESSAGE"))
    };
    lines.lines().map(entry).collect()
}

#[track_caller]
fn assert_in_journal(container: &Container, unit: &str, priority: &str, words: &str) {
    let entries = journal(container, unit);
    let is_it = |(level, text): &(String, String)| level == priority && text.contains(words);
    assert!(
        entries.iter().any(is_it),
        "no {words:?} of {priority} in {entries:?}"
    );
}

#[test]
fn the_service_starts_in_order_ends_and_comes_back() {
    let files = files();
    let needs = format!("Requires={SERVICE}\nAfter={SERVICE}");
    add_reader(&files, "reader", &needs, "/mnt/logs/fill.h5");
    files.enable("h5logfs@.service", SERVICE);
    let Some(container) = Container::boot(&files) else {
        return;
    };
    let expected = canonical();
    let reads = || fs::read(container.path("/mnt/logs/fill.h5")).is_ok_and(|read| read == expected);
    let state = |name: &str| container.property(SERVICE, name);
    assert_eq!(container.run("systemctl is-system-running"), "running");
    // The reader started when the mount answered.
    assert!(fs::read(container.path("/run/reader")).unwrap() == expected);
    assert_eq!(state("StatusText"), "/data/logs mounted at /mnt/logs");
    assert_in_journal(&container, SERVICE, "6", "/data/logs mounted at /mnt/logs");
    // In a container /sys is read-only. Nothing else fails: scans are sandboxed, and files are passed through.
    let mut warnings = journal(&container, SERVICE);
    warnings.retain(|(priority, text)| &**priority < "6" && !text.contains("read-ahead"));
    assert_eq!(warnings, []);
    let cache = fs::metadata(container.path("/var/cache/h5logfs")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&cache.permissions()) & 0o777,
        0o700
    );

    container.run(&format!("systemctl stop {SERVICE}"));
    assert_eq!(container.mounts("/mnt/logs"), Vec::<String>::new());
    assert_eq!(
        (state("ActiveState"), state("Result")),
        ("inactive".into(), "success".into())
    );
    container.run(&format!("systemctl start {SERVICE}"));
    assert!(reads(), "it does not answer after the start");
    let first = state("MainPID");
    container.run(&format!("systemctl restart {SERVICE}"));
    assert!(reads() && state("MainPID") != first);
    container.run(&format!("systemctl reload {SERVICE}"));
    assert!(reads());

    // An open file keeps the dead mount busy.
    let _open = fs::File::open(container.path("/mnt/logs/fill.h5")).unwrap();
    container.run(&format!(
        "systemctl kill --signal=KILL --kill-who=main {SERVICE}"
    ));
    wait_until("the service was restarted", || {
        state("NRestarts") == "1" && state("ActiveState") == "active"
    });
    assert!(reads(), "it does not answer after a crash");
    assert_eq!(container.mounts("/mnt/logs").len(), 1);

    // This mount point has no configuration.
    let failed = container.output("systemctl start h5logfs@mnt-other.service");
    assert!(!failed.status.success());
    assert_in_journal(&container, "h5logfs@mnt-other.service", "3", "/mnt/other");

    let said = container.power_off();
    assert!(!said.contains("Failed unmounting mnt-logs"), "{said}");
    // This was the crash.
    let failure = format!("{SERVICE}: Failed with result");
    assert_eq!(said.matches(&failure).count(), 1, "{said}");
}

/// Parts of `sandbox.py` that a mount for all users needs.
const NEEDED: [&str; 4] = [
    "mount",
    "open a Unix socket",
    "open the device of fuse",
    "read a private file of another user",
];

/// CAP_DAC_READ_SEARCH, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP and CAP_SYS_ADMIN, by their bits.
const CAPABILITIES: &str = "CapBnd:\t00000000002001e4";

/// Whether root may protect processes from the out-of-memory killer.
fn may_spare_processes() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:\t"));
    u64::from_str_radix(line.unwrap(), 16).unwrap() >> 24 & 1 == 1
}

/// Each action is tried with and without the unit: an action that fails without it proves nothing.
#[test]
fn the_daemon_cannot_do_what_the_unit_forbids() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: sandbox.py knows the system calls of x86-64");
        return;
    }
    let files = files();
    files.copy(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/sandbox.py"),
        "sandbox.py",
    );
    fs::create_dir_all(files.at("data/other")).unwrap();
    files.write("data/other/secret", "text");
    files.enable("h5logfs@.service", SERVICE);
    // The unit is unchanged except for its program.
    let probe = "[Service]\nType=oneshot\nRestart=no\nExecStartPre=\nExecStopPost=\nExecStart=\n\
        ExecStart=python3 /sandbox.py /run/sandboxed\n";
    files.write(
        "etc/systemd/system/h5logfs@probe.service.d/probe.conf",
        probe,
    );
    let Some(container) = Container::boot(&files) else {
        return;
    };
    container.run("chown -R 1000:1000 /data/other && chmod 600 /data/other/secret");
    // The kernel log.
    container.run("mknod /data/device c 1 11");
    container.run("python3 /sandbox.py /run/free");
    container.run("systemctl start h5logfs@probe.service");
    let tried = |path: &str| -> serde_json::Map<String, Value> {
        serde_json::from_slice(&fs::read(container.path(path)).unwrap()).unwrap()
    };
    let (free, sandboxed) = (tried("/run/free"), tried("/run/sandboxed"));
    let refusals = ["EPERM", "EACCES", "EAFNOSUPPORT"].map(Value::from);
    let mut done: Vec<&str> = Vec::new();
    for (what, outcome) in &sandboxed {
        assert!(
            !refusals.contains(&free[what]),
            "{what}: {} without the unit",
            free[what]
        );
        if !refusals.contains(outcome) {
            done.push(what);
        }
    }
    assert_eq!(done, NEEDED);

    // The daemon is confined like this from its start.
    let daemon = container.property(SERVICE, "MainPID");
    let status = fs::read_to_string(container.path(&format!("/proc/{daemon}/status"))).unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", CAPABILITIES] {
        assert!(status.contains(line), "no {line:?} in {status}");
    }
    assert_eq!(container.property(SERVICE, "OOMScoreAdjust"), "-500");
    if may_spare_processes() {
        let score = container.run(&format!("cat /proc/{daemon}/oom_score_adj"));
        assert_eq!(score, "-500");
    } else {
        eprintln!("not looked at: oom_score_adj: root has no CAP_SYS_RESOURCE here");
    }
    let group = container.property(SERVICE, "ControlGroup");
    let limit = container.path(&format!("/sys/fs/cgroup{group}/memory.max"));
    match fs::read_to_string(limit) {
        Ok(limit) => assert_eq!(limit.trim(), (4u64 << 30).to_string()),
        Err(_) => eprintln!(
            "not looked at: the limit of memory: this system has no cgroup of version 2 for it"
        ),
    }
}

/// A mount in fstab comes before what needs it; one on demand is mounted at its first use.
#[test]
fn lines_of_fstab_and_the_examples_are_mounted() {
    let files = files();
    for point in ["mnt/boot", "mnt/net", "mnt/use"] {
        fs::create_dir_all(files.at(point)).unwrap();
    }
    files.write(
        "etc/fstab",
        "/data/logs /mnt/boot h5logfs defaults 0 0\n\
         /data/logs /mnt/net fuse.h5logfs _netdev 0 0\n\
         /data/logs /mnt/use h5logfs noauto,x-systemd.automount 0 0\n",
    );
    add_reader(
        &files,
        "boot",
        "RequiresMountsFor=/mnt/boot",
        "/mnt/boot/fill.h5",
    );
    add_reader(&files, "net", "After=remote-fs.target", "/mnt/net/fill.h5");
    for unit in ["mnt-logs.mount", "mnt-logs.automount"] {
        files.copy(
            &shipped("examples").join(unit),
            &format!("etc/systemd/system/{unit}"),
        );
    }
    files.enable("mnt-logs.automount", "mnt-logs.automount");
    let Some(container) = Container::boot(&files) else {
        return;
    };
    let expected = canonical();
    assert_eq!(
        container.run("systemctl is-system-running"),
        "running",
        "{}",
        container.said()
    );
    for name in ["boot", "net"] {
        assert!(
            fs::read(container.path(&format!("/run/{name}"))).unwrap() == expected,
            "{name}"
        );
    }
    for name in ["logs", "use"] {
        let state = || container.property(&format!("mnt-{name}.mount"), "ActiveState");
        assert_eq!(state(), "inactive", "{name}");
        container.run(&format!("cp /mnt/{name}/fill.h5 /run/{name}"));
        assert!(
            fs::read(container.path(&format!("/run/{name}"))).unwrap() == expected,
            "{name}"
        );
        assert_eq!(state(), "active", "{name}");
    }

    // The daemon lives as long as the mount.
    let group = container.property("mnt-boot.mount", "ControlGroup");
    let processes = container.path(&format!("/sys/fs/cgroup{group}/cgroup.procs"));
    assert!(!fs::read_to_string(&processes).unwrap().is_empty());
    container.run("systemctl stop mnt-boot.mount");
    assert_eq!(container.mounts("/mnt/boot"), Vec::<String>::new());
    wait_until("the daemon is gone", || {
        fs::read_to_string(&processes)
            .unwrap_or_default()
            .is_empty()
    });

    // A crash leaves a dead mount, which a restart replaces.
    container.run("systemctl kill --signal=KILL mnt-net.mount");
    assert!(!container.output("cat /mnt/net/fill.h5").status.success());
    container.run("systemctl restart mnt-net.mount");
    assert!(fs::read(container.path("/mnt/net/fill.h5")).unwrap() == expected);
    let said = container.power_off();
    assert!(!said.contains("Failed unmounting mnt-"), "{said}");
}

#[test]
fn users_have_services_of_their_own() {
    let files = files();
    let unit = "h5logfs-user@.service";
    files.copy(
        &shipped("user").join(unit),
        &format!("etc/systemd/user/{unit}"),
    );
    files.copy(&corpus("corpus/fill.log.h5"), "home/user/data/fill.h5");
    fs::create_dir_all(files.at("home/user/logs")).unwrap();
    let mount = "[[mount]]\npoint = \"/home/user/logs\"\nsource = \"/home/user/data\"\n";
    files.write("home/user/.config/h5logfs.toml", mount);
    let Some(container) = Container::boot(&files) else {
        return;
    };
    container.run("chown -R 1000:1000 /home/user && systemctl start user@1000.service");
    let as_user = |words: &str| {
        container.run(&format!(
            "setpriv --reuid=1000 --regid=1000 --clear-groups env HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000 {words}"
        ))
    };
    let instance = "h5logfs-user@home-user-logs.service";
    let of_user = |command: &str| as_user(&format!("systemctl --user {command} {instance}"));
    of_user("start");
    as_user("cp /home/user/logs/fill.h5 /home/user/read");
    let expected = canonical();
    assert!(fs::read(container.path("/home/user/read")).unwrap() == expected);
    let restarts = || of_user("show --value --property=NRestarts,ActiveState");
    of_user("kill --signal=KILL --kill-who=main");
    wait_until("the service was restarted", || restarts() == "1\nactive");
    as_user("cp /home/user/logs/fill.h5 /home/user/again");
    assert!(fs::read(container.path("/home/user/again")).unwrap() == expected);
    of_user("stop");
    assert_eq!(container.mounts("/home/user/logs"), Vec::<String>::new());
}
