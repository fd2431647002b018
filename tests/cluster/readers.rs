//! Many processes on several nodes read one log while a job writes it: each with the file driver, or all of a node
//! through its mount. All see whole flushes, in order, none older than one acknowledged before.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::driver::Driver;
use crate::common::jobs::kill::Pattern;
use crate::common::killed::RANKS;
use crate::common::mpirun::program;
use crate::common::nodes::{Nodes, Place};
use crate::common::readers::Python;
use crate::common::{PROGRAM, User, can_mount};

/// Ways in which the readers of a test open the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Mount,
    Driver,
}

/// A mount of one node, which ends with the node.
pub struct NodeMount<'n> {
    nodes: &'n Nodes,
    node: usize,
    dir: TempDir,
}

impl<'n> NodeMount<'n> {
    pub fn new(nodes: &'n Nodes, node: usize, source: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = nodes.on(node, PROGRAM);
        mount.env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"));
        mount.arg("mount").arg(source).arg(dir.path());
        mount
            .arg("-o")
            .arg(format!("log_file={}", log_of(dir.path()).display()));
        let mounted = mount.output();
        let mounted = mounted.unwrap();
        let said = String::from_utf8_lossy(&mounted.stderr);
        assert!(mounted.status.success(), "{said}");
        NodeMount { nodes, node, dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Number of scans that its daemon has started.
    fn scans(&self) -> u64 {
        let stats = self.dir.path().join(".h5logfs/stats");
        let read = self.nodes.on(self.node, "cat").arg(stats).output().unwrap();
        let stats: Value = serde_json::from_slice(&read.stdout).unwrap();
        stats["scans"]["started"].as_u64().unwrap()
    }
}

/// The messages of a mount's daemon.
fn log_of(mount: &Path) -> PathBuf {
    mount.with_extension("log")
}

impl Drop for NodeMount<'_> {
    fn drop(&mut self) {
        let log = log_of(self.dir.path());
        if std::thread::panicking() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            eprintln!("node {} said:\n{said}", self.node + 1);
        }
        let _ = fs::remove_file(log);
    }
}

/// A process that runs `tests/tools/follow.py`.
struct Reader {
    process: Child,
    said: PathBuf,
}

/// The observations of a reader.
struct Seen {
    opens: u64,
    flushes: u64,
    last: u64,
}

impl Reader {
    fn start(mut command: Command, said: PathBuf) -> Self {
        let output = fs::File::create(&said).unwrap();
        command.stdin(Stdio::null());
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let process = command.spawn().unwrap();
        Reader { process, said }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Whether it has seen two flushes.
    fn has_followed(&mut self) -> bool {
        let ended = self.process.try_wait().unwrap();
        assert!(ended.is_none(), "{}", self.said());
        self.said().contains("two")
    }

    fn wait(&mut self) -> Seen {
        let status = self.process.wait().unwrap();
        let said = self.said();
        assert!(status.success(), "{said}");
        let last = said.lines().last().unwrap_or_default();
        let mut numbers = last.split_whitespace().map(|n| n.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        Seen {
            opens: next(),
            flushes: next(),
            last: next(),
        }
    }
}

/// A job flushes at least `least` times with pauses, while `readers` processes on each node read.
fn follow(nodes: u32, readers: usize, way: Way, least: u64, pause: Duration) {
    // Seconds between two looks. Very many readers share two cores.
    let looks = if readers > 4 { "1" } else { "0.2" };
    let Some(python) = Python::new().filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let Some(nodes) = Nodes::new(nodes) else {
        return;
    };
    let driver = Driver::new();
    let place = Place::Nodes(nodes);
    let mut pattern = Pattern::start_slowly(&place, 1_000_000, pause);
    let nodes = place.nodes();
    let (logs, notes) = (pattern.places().logs.path(), pattern.places().notes.path());
    let mounts: Vec<NodeMount<'_>> = match way {
        Way::Mount => (0..nodes.number())
            .map(|node| NodeMount::new(nodes, node, logs))
            .collect(),
        Way::Driver => Vec::new(),
    };
    let start = Instant::now();
    let said = tempfile::tempdir().unwrap();
    let reader = |node: usize, number: usize| {
        let (python, log) = match way {
            Way::Mount => (python.clone(), mounts[node].dir.path().join("log.h5")),
            Way::Driver => (python.with_variables(driver.used()), pattern.places().log()),
        };
        let mut command = nodes.moved(node, &python.tool("follow.py"));
        command.arg(log).arg(notes);
        command.args([&RANKS.to_string(), looks]);
        Reader::start(command, said.path().join(format!("{node}.{number}")))
    };
    let mut all: Vec<Reader> = (0..nodes.number())
        .flat_map(|node| (0..readers).map(move |number| (node, number)))
        .map(|(node, number)| reader(node, number))
        .collect();
    while pattern.acknowledged() < least || !all.iter_mut().all(Reader::has_followed) {
        let said = pattern.victim.job.said();
        assert!(start.elapsed() < Duration::from_secs(300), "{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let folder = notes.to_owned();
    let tell = |what| fs::write(folder.join(what), "").unwrap();
    tell("end");
    let closed = pattern.victim.wait_for("closed");
    assert!(closed, "{}", pattern.victim.job.said());
    let wrote = start.elapsed();
    tell("stop");
    let seen: Vec<Seen> = all.iter_mut().map(Reader::wait).collect();
    // The acknowledged flushes include the one of the close.
    let flushes = pattern.acknowledged();
    assert!(seen.iter().all(|seen| seen.last == flushes));
    let opens: u64 = seen.iter().map(|seen| seen.opens).sum();
    let least = seen.iter().map(|seen| seen.flushes).min();
    let scans: Vec<u64> = mounts.iter().map(NodeMount::scans).collect();
    eprintln!(
        "{} readers on {} nodes ({way:?}): {flushes} flushes in {wrote:.1?}, {opens} opens, each saw {} flushes or more; \
         scans by node: {scans:?}",
        all.len(),
        nodes.number(),
        least.unwrap_or(0)
    );
    // The readers of a node share the scan of a flush.
    assert!(
        scans.iter().all(|scans| *scans <= flushes + 10),
        "{scans:?}"
    );
}

/// Looks for a file through a mount this often, for this many seconds; or holds it open.
const ASK: &str = "
import os, sys, time
import h5py
path, manner, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
if manner == 'hold':
    file = h5py.File(path)
    file['state'][()]
print(flush=True)
asked, end = 0, time.time() + seconds
while time.time() < end:
    if manner == 'stat':
        os.stat(path)
    elif manner == 'open':
        with h5py.File(path) as file:
            file['state'][()]
    asked += manner != 'hold'
    time.sleep(0.1)
print(asked)
";

/// The load of readers on the disk: calls of a daemon that name a file, counted by strace.
struct Load {
    asked: u64,
    /// All calls that open a file, or ask for its state, by name or descriptor.
    calls: u64,
    /// Calls that name a subfile.
    of_subfiles: u64,
}

impl NodeMount<'_> {
    /// The daemon's load for this number of readers.
    fn load(&self, python: &Python, manner: &str, readers: usize) -> Option<Load> {
        const SECONDS: &str = "3";
        let log = self.dir.path().join("log.h5");
        let start = |_| {
            let mut reader = self
                .nodes
                .on(self.node, python.command().get_program().to_str()?);
            reader.args(["-c", ASK]).arg(&log).args([manner, SECONDS]);
            reader.stdout(Stdio::piped()).spawn().ok()
        };
        let mut all: Vec<Child> = (0..readers).filter_map(start).collect();
        assert_eq!(all.len(), readers);
        let mut outputs: Vec<_> = all
            .iter_mut()
            .map(|r| BufReader::new(r.stdout.take().unwrap()))
            .collect();
        // All readers are active.
        for output in &mut outputs {
            output.read_line(&mut String::new()).unwrap();
        }
        let trace = self.dir.path().with_extension("trace");
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "-e",
            "trace=%file,%stat,%fstat,%lstat,faccessat2,openat2",
        ]);
        strace
            .arg("-o")
            .arg(&trace)
            .args(["-p", &self.daemon().as_raw_pid().to_string()]);
        let Ok(mut strace) = strace.stderr(Stdio::null()).spawn() else {
            eprintln!("skipped: there is no strace");
            return None;
        };
        let asked = outputs.iter_mut().map(|output| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            line.trim().parse::<u64>().unwrap()
        });
        let asked = asked.sum();
        let _ = kill_process(Pid::from_child(&strace), Signal::INT);
        strace.wait().unwrap();
        all.iter_mut().for_each(|reader| drop(reader.wait()));
        let lines = fs::read_to_string(&trace).unwrap_or_default();
        let _ = fs::remove_file(trace);
        let of_subfiles = lines
            .lines()
            .filter(|line| line.contains("log.h5.subfiles/log"));
        Some(Load {
            asked,
            calls: lines.lines().count() as u64,
            of_subfiles: of_subfiles.count() as u64,
        })
    }

    fn daemon(&self) -> Pid {
        let source = self.dir.path().as_os_str().as_encoded_bytes();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut pids =
            processes.filter_map(|p| Pid::from_raw(p.file_name().to_str()?.parse().ok()?));
        let is_it = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
            let has = |wanted: &[u8]| line.split(|b| *b == 0).any(|a| a == wanted);
            has(b"--daemon-child") && has(source)
        };
        pids.find(is_it).unwrap()
    }
}

/// Readers with an open log cost the disk nothing. Readers that look for a new flush cost some calls. The number of
/// calls does not grow with the number of subfiles.
#[test]
#[ignore = "takes long: make test-cluster"]
fn readers_ask_the_disk_for_little() {
    let Some(python) = Python::new().filter(|_| can_mount(User::Caller)) else {
        return;
    };
    let Some(nodes) = Nodes::new(2) else {
        return;
    };
    let place = Place::Nodes(nodes);
    let mut pattern = Pattern::start(&place, 1_000_000, 4, 1);
    assert!(
        pattern.victim.wait_for("9"),
        "{}",
        pattern.victim.job.said()
    );
    // The job does not flush any more, but readers cannot know that.
    pattern.victim.job.stop(&program("writer-pattern"));
    let nodes = place.nodes();
    let mount = NodeMount::new(nodes, 0, pattern.places().logs.path());
    for manner in ["hold", "stat", "open"] {
        const READERS: usize = 8;
        let Some(load) = mount.load(&python, manner, READERS) else {
            return;
        };
        let Load {
            asked,
            calls,
            of_subfiles,
        } = load;
        eprintln!(
            "{READERS} readers ({manner}) of a log of 4 subfiles, for 3 seconds: asked {asked} times; the daemon made \
             {calls} calls, {of_subfiles} of them for subfiles by name"
        );
        // Calls per look; in addition each subfile is compared ten times a second, independent of the number of
        // readers.
        let (each, each_subfile) = match manner {
            "hold" => (0, 0),
            "stat" => (12, 0),
            // Each open checks whether its caller may read all files.
            _ => (60, 2),
        };
        let compared = 4 * 10 * 3 + 20;
        let most = each_subfile * 4 * asked + compared;
        assert!(of_subfiles <= most, "{manner}: {of_subfiles} for subfiles");
        assert!(calls <= each * asked + compared, "{manner}: {calls} calls");
    }
}

#[test]
fn readers_of_two_mounts_see_flushes_in_order() {
    follow(2, 2, Way::Mount, 12, Duration::from_millis(100));
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn readers_with_the_driver_see_flushes_in_order() {
    follow(2, 1, Way::Driver, 20, Duration::from_millis(100));
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn many_readers_of_four_mounts_see_flushes_in_order() {
    follow(4, 16, Way::Mount, 100, Duration::from_millis(200));
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn many_readers_with_the_driver_see_flushes_in_order() {
    follow(4, 16, Way::Driver, 40, Duration::from_millis(200));
}
