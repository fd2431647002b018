//! Mounts of users who may mount only in their own namespace: `h5logfs run`, `unshare`, and a device that the caller
//! has opened and mounted. All belong to an ordinary user, and work without fusermount3.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::common::guard::Running;
use crate::common::people::{ALICE, can_be_others, copy, corpus, set_mode};
use crate::common::readers::said;
use crate::common::{PROGRAM, is_running, mount_type, wait_until};

/// A source with a log, a mount point, and a FUSE device that all users may open.
struct Place {
    dir: TempDir,
}

const LOG: &str = "fill.log.h5";

/// Runs the rest of the line with a FUSE device that all users may open, in a mount namespace that disappears with
/// it. `$1` is an empty directory.
pub(crate) const DEVICE: &str = r#"
set -e
mount -t tmpfs none "$1"
mknod "$1/fuse" c 10 229
chmod 666 "$1/fuse"
mount --bind "$1/fuse" /dev/fuse
shift
exec "$@"
"#;

impl Place {
    /// A place. `None`, after printing the reason, where users get no namespaces, or files of several users cannot be
    /// made.
    fn new() -> Option<Self> {
        if !can_be_others() {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: there is no /dev/fuse");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        let place = Place { dir };
        for name in ["source", "mnt", "home", "device"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        ALICE.owns(&place.path("home"), 0o700);
        copy(
            &corpus(&format!("corpus/{LOG}")),
            &place.path("source").join(LOG),
        );
        let tried = place.output(&["unshare", "-Urm", "true"]);
        if !tried.status.success() {
            eprintln!("skipped: users get no namespaces here: {}", said(&tried));
            return None;
        }
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A command of an ordinary user.
    fn command(&self, line: &[&str]) -> Command {
        let user = ALICE.command(line[0]);
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", DEVICE, "sh"]);
        command.arg(self.path("device")).arg(user.get_program());
        command.args(user.get_args()).args(&line[1..]);
        command.env("HOME", self.path("home")).env("LC_ALL", "C");
        command.current_dir("/");
        command
    }

    fn output(&self, line: &[&str]) -> Output {
        self.command(line).output().unwrap()
    }

    /// `h5logfs run` of a command.
    fn run(&self, line: &[&str]) -> Output {
        let (source, point) = (self.text("source"), self.text("mnt"));
        self.output(&[&[PROGRAM, "run", &source, &point, "--"], line].concat())
    }

    /// `h5logfs run` of a shell script, which reports when it runs.
    fn start(&self, script: &str) -> Started {
        let (source, point) = (self.text("source"), self.text("mnt"));
        let script = format!("echo $$; {script}");
        let line = [PROGRAM, "run", &source, &point, "--", "sh", "-c", &script];
        let child = self.command(&line).stdout(Stdio::piped()).spawn().unwrap();
        let mut running = Running(child);
        let mut lines = BufReader::new(running.0.stdout.take().unwrap());
        let mut number = String::new();
        lines.read_line(&mut number).unwrap();
        let command = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
        Started {
            running,
            command,
            lines,
        }
    }
}

/// A `run` with a running command.
struct Started {
    running: Running,
    command: Pid,
    lines: BufReader<std::process::ChildStdout>,
}

impl Started {
    fn child(&mut self) -> &mut Child {
        &mut self.running.0
    }

    /// unshare, the shell, setpriv and `run` replace each other in one process.
    fn signal(&mut self, signal: Signal) {
        let run = Pid::from_child(self.child());
        rustix::process::kill_process(run, signal).unwrap();
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_command_sees_a_mount_that_nobody_else_sees() {
    let Some(place) = Place::new() else { return };
    let script = r#"
cd "$1" && head -c 8 fill.log.h5 | od -An -c && grep -c " $1 .*fuse.h5logfs" /proc/self/mountinfo
id -u; ulimit -n
grep CapEff /proc/self/status
exit 7
"#;
    let output = place.run(&["sh", "-c", script, "sh", &place.text("mnt")]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let shown = stdout(&output);
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    let limit = stdout(&place.output(&["sh", "-c", "ulimit -n"]));
    // The HDF5 signature, one mount, and the rights and limits of the user.
    assert!(lines[0].ends_with(r"H   D   F  \r  \n 032  \n"), "{shown}");
    assert_eq!(lines[1..4], ["1", &ALICE.uid.to_string(), limit.trim()]);
    assert_eq!(lines[4], "CapEff:\t0000000000000000");
    assert_eq!(mount_type(&place.path("mnt")), None);
}

#[test]
fn a_mount_may_cover_its_source_and_the_working_directory() {
    let Some(place) = Place::new() else { return };
    let source = place.text("source");
    let line = [PROGRAM, "run", ".", ".", "--", "ls", "-A", ".", ".h5logfs"];
    let mut command = place.command(&line);
    let output = command.current_dir(&source).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(stdout(&output).contains("stats"), "{}", stdout(&output));
    assert_eq!(fs::read_dir(&source).unwrap().count(), 1);
}

#[test]
fn what_is_wrong_has_a_status_of_its_own() {
    let Some(place) = Place::new() else { return };
    let script = "kill -TERM $$";
    assert_eq!(
        place.run(&["sh", "-c", script]).status.code(),
        Some(128 + 15)
    );
    let missing = place.run(&["/no/such/program"]);
    assert_eq!(missing.status.code(), Some(127), "{}", said(&missing));
    let directory = place.run(&["/tmp"]);
    assert_eq!(directory.status.code(), Some(126), "{}", said(&directory));
    let (source, nowhere) = (place.text("source"), place.text("nowhere"));
    let line = [PROGRAM, "run", &source, &nowhere, "--", "touch", "/tmp"];
    let no_point = place.output(&line);
    assert_eq!(no_point.status.code(), Some(125), "{}", said(&no_point));
    assert!(said(&no_point).contains("the mount point does not exist"));
}

#[test]
fn signals_reach_the_command() {
    let Some(place) = Place::new() else { return };
    for signal in [Signal::USR1, Signal::TERM, Signal::INT] {
        let number = signal.as_raw();
        let script = format!(
            "trap 'echo caught; exit 9' {number}; echo ready; while :; do sleep 0.05; done"
        );
        let mut started = place.start(&script);
        let mut line = String::new();
        started.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        started.signal(signal);
        line.clear();
        started.lines.read_line(&mut line).unwrap();
        assert_eq!(line, "caught\n", "{signal:?}");
        assert_eq!(
            started.child().wait().unwrap().code(),
            Some(9),
            "{signal:?}"
        );
    }
}

/// The terminal sends an interrupt to both processes, so it is not forwarded.
#[test]
fn keys_of_a_terminal_reach_the_command_once() {
    let Some(place) = Place::new() else { return };
    const PRESS: &str = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
said = b""
while b"ready" not in said:
    said += os.read(terminal, 1024)
os.write(terminal, b"\x03")
try:
    while True:
        said += os.read(terminal, 1024)
except OSError:
    pass
status = os.waitpid(child, 0)[1]
print(said.decode().replace("\r", ""), os.waitstatus_to_exitcode(status))
"#;
    // A second interrupt would arrive long before the end.
    const COUNT: &str = r#"
import signal, time
count = 0
def interrupted(*_):
    global count
    count += 1
signal.signal(signal.SIGINT, interrupted)
print("ready", flush=True)
while not count:
    time.sleep(0.05)
time.sleep(0.5)
print("interrupted", count)
raise SystemExit(5)
"#;
    let (source, point) = (place.text("source"), place.text("mnt"));
    let python = "/usr/bin/python3";
    let run = [PROGRAM, "run", &source, &point, "--", python, "-c", COUNT];
    let output = place.output(&[&[python, "-c", PRESS], &run[..]].concat());
    let shown = stdout(&output);
    assert!(
        shown.ends_with("interrupted 1\n 5\n"),
        "{shown}{}",
        said(&output)
    );
}

/// The command ends with `run`, and their namespace with both.
#[test]
fn nothing_is_left_when_it_is_killed() {
    let Some(place) = Place::new() else { return };
    let mut started = place.start("trap '' TERM; while :; do sleep 0.05; done");
    let command = started.command;
    let table = fs::read_to_string(format!("/proc/{}/mountinfo", command.as_raw_pid()));
    let point = place.text("mnt");
    let is_ours = |line: &&str| line.contains(&point) && line.contains("fuse.h5logfs");
    assert_eq!(table.unwrap().lines().filter(is_ours).count(), 1);
    started.signal(Signal::KILL);
    started.child().wait().unwrap();
    wait_until("the command is gone", || !is_running(command));
    let source = place.text("source");
    wait_until("no process has anything to do with it", || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let tables = processes.filter_map(|process| {
            let number: u32 = process.file_name().to_str()?.parse().ok()?;
            fs::read_to_string(format!("/proc/{number}/mountinfo")).ok()
        });
        !tables
            .flat_map(|table| table.lines().map(str::to_owned).collect::<Vec<_>>())
            .any(|line| line.contains("fuse.h5logfs") && line.contains(&source))
    });
}

/// Root of a user namespace mounts. Its helper has no further rights.
#[test]
fn root_of_a_user_namespace_mounts_and_unmounts() {
    let Some(place) = Place::new() else { return };
    let script = r#"
set -e
"$1" mount -o index_dir=none,log_file="$HOME/log" "$2" "$3"
head -c 8 "$3/fill.log.h5" | od -An -c
"$1" umount "$3"
ls -A "$3"
"#;
    let (source, point) = (place.text("source"), place.text("mnt"));
    let line = [
        "unshare", "-Urm", "sh", "-c", script, "sh", PROGRAM, &source, &point,
    ];
    let output = place.output(&line);
    assert!(output.status.success(), "{}", said(&output));
    let shown = stdout(&output);
    assert!(shown.ends_with("H   D   F  \\r  \\n 032  \\n\n"), "{shown}");
}

/// The caller opens the device, mounts, and passes the descriptor in libfuse's way.
#[test]
fn a_device_that_the_caller_has_mounted_is_served() {
    let Some(place) = Place::new() else { return };
    const MOUNTS: &str = r#"
import ctypes, os, subprocess, sys
program, source, point, *form = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
device = os.open("/dev/fuse", os.O_RDWR)
os.set_inheritable(device, True)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
flags = 1 | 2 | 4
assert libc.mount(b"logs", point.encode(), b"fuse.h5logfs", flags, options) == 0, os.strerror(ctypes.get_errno())
options = ["-o", "index_dir=none,log_file=" + os.environ["HOME"] + "/log"]
daemon = subprocess.Popen([program, *form, source, f"/dev/fd/{device}", *options], close_fds=False)
os.close(device)
if "-f" not in form:
    assert daemon.wait() == 0
with open(point + "/fill.log.h5", "rb") as log:
    print(log.read(8))
assert libc.umount2(point.encode(), 0) == 0, os.strerror(ctypes.get_errno())
print("unmounted", daemon.wait(), os.listdir(point))
"#;
    let (source, point) = (place.text("source"), place.text("mnt"));
    for form in [&["mount", "-f"][..], &["mount"], &[]] {
        let line = [
            "unshare",
            "-Urm",
            "/usr/bin/python3",
            "-c",
            MOUNTS,
            PROGRAM,
            &source,
            &point,
        ];
        let output = place.output(&[&line, form].concat());
        let shown = stdout(&output);
        let expected = "b'\\x89HDF\\r\\n\\x1a\\n'\nunmounted 0 []\n";
        assert_eq!(shown, expected, "{form:?}: {}", said(&output));
        // The caller may run a command, which shares its standard error with the daemon.
        assert!(output.stderr.is_empty(), "{form:?}: {}", said(&output));
    }
}

#[test]
fn what_is_no_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mount = |script: &str| {
        let mut shell = Command::new("sh");
        let shell = shell.arg("-c").arg(script).arg("sh").arg(PROGRAM);
        let output = shell.arg(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        said(&output)
    };
    let other = mount(r#""$1" mount "$2" /dev/fd/9 9</dev/null"#);
    assert!(other.contains("not a descriptor of /dev/fuse"), "{other}");
    let closed = mount(r#""$1" mount "$2" /dev/fd/9"#);
    assert!(
        closed.contains("/dev/fd/9: Bad file descriptor"),
        "{closed}"
    );
}

/// Each refusal of a mount names the alternative.
#[test]
fn where_nothing_can_be_mounted_the_driver_is_named() {
    let Some(place) = Place::new() else { return };
    let (source, point) = (place.text("source"), place.text("mnt"));
    let (device, uid) = (place.text("device"), ALICE.uid.to_string());
    let refused = |before: &str, command: &str| {
        let script = DEVICE.replace("exec \"$@\"", before);
        let script = format!(
            "{script}\nexec setpriv --reuid={uid} --regid={uid} --clear-groups -- \"$1\" {command}"
        );
        let mut shell = Command::new("unshare");
        shell.args([
            "-m", "sh", "-c", &script, "sh", &device, PROGRAM, &source, &point,
        ]);
        let output = shell.env("HOME", place.path("home")).output().unwrap();
        assert!(!output.status.success());
        let said = said(&output);
        assert!(said.contains("HDF5_DRIVER=h5logfs"), "{said}");
        said
    };
    let run = "run \"$2\" \"$3\" -- true";
    let said = refused("chmod 600 /dev/fuse", run);
    assert!(said.contains("/dev/fuse: Permission denied"), "{said}");
    let said = refused("chmod 600 /dev/fuse", "mount \"$2\" \"$3\"");
    assert!(said.contains("Permission denied"), "{said}");
    let said = refused(
        "umount /dev/fuse; mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3",
        run,
    );
    assert!(said.contains("there is no FUSE device"), "{said}");
    // No user namespaces: the rights of the outer one allow this limit to be lowered.
    let script = "echo 0 >/proc/sys/user/max_user_namespaces; exec \"$@\"";
    let line = [
        "unshare",
        "-Uc",
        "--keep-caps",
        "sh",
        "-c",
        script,
        "sh",
        PROGRAM,
    ];
    let run = ["run", &source, &point, "--", "true"];
    let output = place.output(&[&line[..], &run].concat());
    let said = crate::common::readers::said(&output);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("max_user_namespaces is 0") && said.contains("HDF5_DRIVER"),
        "{said}"
    );
}
