//! Scans in processes without rights. The tests show what a hostile file can do.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Mounted, PROGRAM, User, can_mount, errno, is_root, is_running, wait_until};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// A log on which libhdf5 1.10 follows a heap for ever.
const LOOP: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/hostile/heap-loop.log.h5"
);
const GOOD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/nd.log.h5");

/// A mounted directory with such logs, and the messages of its daemon.
struct Hostile {
    mounted: Mounted,
    source: TempDir,
    log: PathBuf,
}

impl Hostile {
    fn new(options: &str) -> Option<Self> {
        if !can_mount(User::Caller) {
            return None;
        }
        let source = tempfile::tempdir().unwrap();
        for name in ["loop.h5", "other.h5"] {
            fs::copy(LOOP, source.path().join(name)).unwrap();
        }
        for name in ["good.h5", "fine.h5"] {
            fs::copy(GOOD, source.path().join(name)).unwrap();
        }
        let log = source.path().join("log");
        let options = format!("index_dir=none,log_file={},{options}", log.display());
        let mounted = Mounted::new(source.path(), &options);
        Some(Hostile {
            mounted,
            source,
            log,
        })
    }

    fn errno(&self, name: &str) -> Option<Errno> {
        errno(fs::read(self.mounted.join(name)))
    }

    /// Number of log lines with this text.
    fn told(&self, what: &str) -> usize {
        let log = fs::read_to_string(&self.log).unwrap();
        log.lines().filter(|line| line.contains(what)).count()
    }

    fn children(&self) -> Vec<Pid> {
        children(self.mounted.daemon)
    }

    /// Runs `then` while a worker is busy with `name` and the zygote waits.
    fn while_scanning(&self, name: &str, then: impl FnOnce(Pid, Pid)) -> Option<Errno> {
        let [stem] = self.children()[..] else {
            panic!("{:?}", self.children());
        };
        let path = self.mounted.join(name);
        thread::scope(|scope| {
            let reader = scope.spawn(move || errno(fs::read(path)));
            wait_until("a worker is there", || self.children().len() == 2);
            let worker = self.children().into_iter().find(|child| *child != stem);
            then(stem, worker.unwrap());
            reader.join().unwrap()
        })
    }
}

fn children(process: Pid) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid()));
    let tasks = tasks.into_iter().flatten().flatten();
    let of_task = |task: DirEntry| fs::read_to_string(task.path().join("children")).ok();
    let numbers: Vec<i32> = tasks
        .filter_map(of_task)
        .flat_map(|text| {
            text.split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect::<Vec<_>>()
        })
        .collect();
    numbers.into_iter().filter_map(Pid::from_raw).collect()
}

fn kill(process: Pid, signal: Signal) {
    rustix::process::kill_process(process, signal).unwrap();
}

/// Whether this libhdf5 falls for the damage at all; prints if not.
fn loops(hostile: &Hostile) -> bool {
    let loops = hostile.told("scan_cpu") > 0;
    if !loops {
        eprintln!("skipped: this libhdf5 finds the damage in the heap");
    }
    loops
}

#[test]
fn a_scan_without_end_is_ended_and_not_tried_again() {
    let Some(hostile) = Hostile::new("scan_cpu=1") else {
        return;
    };
    // Only with a lookup, as `ls` does.
    let metadata = fs::metadata(hostile.mounted.join("loop.h5")).unwrap();
    assert_eq!(metadata.len(), fs::metadata(LOOP).unwrap().len());
    for _ in 0..3 {
        assert_eq!(hostile.errno("loop.h5"), Some(Errno::IO));
    }
    if !loops(&hostile) {
        return;
    }
    assert_eq!(hostile.told("loop.h5: it cannot be scanned"), 1);
    // Its neighbours are not affected, now or before.
    assert_eq!(hostile.errno("good.h5"), None);
    // A file in another state counts as another file.
    fs::copy(GOOD, hostile.source.path().join("loop.h5")).unwrap();
    wait_until("the new state shows", || hostile.errno("loop.h5").is_none());
}

#[test]
fn the_clock_ends_a_scan_too() {
    let Some(hostile) = Hostile::new("scan_time=1") else {
        return;
    };
    assert_eq!(hostile.errno("loop.h5"), Some(Errno::IO));
    assert!(hostile.told("scan_time") > 0 || !loops(&hostile));
    assert_eq!(hostile.errno("good.h5"), None);
}

#[test]
fn others_are_served_while_a_scan_goes_on() {
    let Some(hostile) = Hostile::new("scan_cpu=3,scan_workers=3") else {
        return;
    };
    let start = Instant::now();
    let seen = hostile.while_scanning("loop.h5", |_, _| {
        assert_eq!(hostile.errno("good.h5"), None);
        assert_eq!(hostile.errno("fine.h5"), None);
        assert!(hostile.children().len() == 2 || start.elapsed() > Duration::from_secs(2));
    });
    assert_eq!(seen, Some(Errno::IO));
}

#[test]
fn many_scans_without_end_stop_nobody_else() {
    if !is_root() {
        eprintln!("skipped: only root has files of two owners");
        return;
    }
    // One thread for all requests.
    let Some(hostile) = Hostile::new("threads=1,scan_cpu=2,scan_workers=3") else {
        return;
    };
    let names: Vec<String> = (0..8).map(|n| format!("loop{n}.h5")).collect();
    for name in &names {
        let path = hostile.source.path().join(name);
        fs::copy(LOOP, &path).unwrap();
        std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
    }
    thread::scope(|scope| {
        let readers: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| hostile.errno(name)))
            .collect();
        wait_until("two scans go on", || hostile.children().len() == 3);
        // Known files, new ones, and listings.
        assert_eq!(hostile.errno("good.h5"), None);
        assert_eq!(hostile.errno("fine.h5"), None);
        let busy = readers
            .iter()
            .filter(|reader| !reader.is_finished())
            .count();
        assert!(busy > 0 || hostile.told("scan_cpu") == 0);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), Some(Errno::IO));
        }
    });
}

#[test]
fn a_small_file_has_less_time_than_a_scan_may_have() {
    let Some(hostile) = Hostile::new("scan_cpu=60") else {
        return;
    };
    assert_eq!(hostile.errno("loop.h5"), Some(Errno::IO));
    if !loops(&hostile) {
        return;
    }
    // Time of ended children, in ticks of 10 ms.
    let stat = format!("/proc/{}/stat", hostile.mounted.daemon.as_raw_pid());
    let stat = fs::read_to_string(stat).unwrap();
    let fields = stat
        .rsplit(") ")
        .next()
        .unwrap()
        .split(' ')
        .skip(13)
        .take(2);
    let ticks: u64 = fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    let used = Duration::from_millis(10 * ticks);
    assert!(used < Duration::from_secs(8), "{used:?}");
}

#[test]
fn a_worker_that_is_killed_costs_its_file_an_error() {
    let Some(hostile) = Hostile::new("scan_cpu=20") else {
        return;
    };
    let seen = hostile.while_scanning("loop.h5", |_, worker| kill(worker, Signal::ILL));
    assert_eq!(seen, Some(Errno::IO));
    assert_eq!(hostile.told("killed by signal 4"), 1);
    // The signal by which libhdf5 dies without memory. Rust's handler returns from the first signal that no address
    // caused.
    let seen = hostile.while_scanning("other.h5", |_, worker| {
        wait_until("the worker is gone", || {
            let _ = rustix::process::kill_process(worker, Signal::SEGV);
            !is_running(worker)
        });
    });
    assert_eq!(seen, Some(Errno::IO));
    assert_eq!(
        hostile.told("crashed (signal 11): the file is damaged, or needs more than"),
        1
    );
    assert_eq!(hostile.errno("good.h5"), None);
}

#[test]
fn who_makes_workers_is_replaced() {
    let Some(hostile) = Hostile::new("scan_cpu=1") else {
        return;
    };
    let [stem] = hostile.children()[..] else {
        panic!("{:?}", hostile.children());
    };
    kill(stem, Signal::KILL);
    assert_eq!(hostile.errno("good.h5"), None);
    assert_eq!(hostile.told("it is started again"), 1);
    assert_eq!(hostile.errno("fine.h5"), None);
    assert_eq!(hostile.told("it is started again"), 1);
    // No zombie is left.
    assert_eq!(hostile.children().len(), 1);
}

#[test]
fn workers_go_with_their_daemon() {
    let Some(hostile) = Hostile::new("scan_cpu=2") else {
        return;
    };
    let mut processes = Vec::new();
    hostile.while_scanning("loop.h5", |stem, worker| {
        processes = vec![stem, worker];
        hostile.mounted.send(Signal::KILL);
    });
    // A busy worker ends when its time is over.
    wait_until("none is left", || !processes.iter().any(|p| is_running(*p)));
}

#[test]
fn a_worker_has_no_rights() {
    let Some(hostile) = Hostile::new("scan_cpu=20,scan_memory=1G") else {
        return;
    };
    hostile.while_scanning("loop.h5", |stem, worker| {
        for process in [stem, worker] {
            has_no_rights(process);
        }
        reads_one_file(worker, "loop.h5");
        kill(worker, Signal::KILL);
    });
}

/// A command for one file forks the worker from itself.
#[test]
fn the_worker_of_a_command_has_no_rights_and_goes_with_it() {
    let inspect = |log: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["inspect", "--scan-memory=1G", log]);
        // libhdf5 would look for this connector, and find none.
        command.env("HDF5_VOL_CONNECTOR", "none_of_this_name");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    assert!(inspect(GOOD).wait().unwrap().success());
    let mut command = inspect(LOOP);
    let process = Pid::from_child(&command);
    let is_over = |command: &mut Child| command.try_wait().unwrap().is_some();
    let mut worker = None;
    wait_until("the worker reads the log", || {
        worker = children(process).first().copied();
        worker.is_some_and(|worker| opens(worker, "heap-loop.log.h5")) || is_over(&mut command)
    });
    if is_over(&mut command) {
        eprintln!("skipped: this libhdf5 finds the damage in the heap");
        return;
    }
    let worker = worker.unwrap();
    has_no_rights(worker);
    reads_one_file(worker, "heap-loop.log.h5");
    let environment = fs::read(format!("/proc/{}/environ", worker.as_raw_pid()));
    assert!(environment.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) || !is_root());
    command.kill().unwrap();
    command.wait().unwrap();
    wait_until("the worker is gone", || !is_running(worker));
}

/// The targets of a process's descriptors.
fn descriptors(process: Pid) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{}/fd", process.as_raw_pid()));
    let all = all.into_iter().flatten().flatten();
    let targets = all.filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let targets = targets.map(|target| target.to_string_lossy().into_owned());
    targets.collect()
}

fn opens(process: Pid, file: &str) -> bool {
    descriptors(process).iter().any(|of| of.ends_with(file))
}

/// Checks that it has its channel, its file, and nothing for standard input and output.
fn reads_one_file(worker: Pid, file: &str) {
    for of in descriptors(worker) {
        let is_known = of.starts_with("socket:") || of.starts_with("/dev/null");
        assert!(is_known || of.ends_with(file), "{of}");
    }
}

fn has_no_rights(process: Pid) {
    let about = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", process.as_raw_pid()));
    let status = about("status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(capabilities), "0000000000000000", "{capabilities}");
    }
    assert_eq!(field("NoNewPrivs:"), "1");
    assert_eq!(field("Seccomp:"), "2");
    if is_root() {
        assert_eq!(field("Groups:"), "");
        for ids in ["Uid:", "Gid:"] {
            assert!(!field(ids).split_whitespace().any(|id| id == "0"), "{ids}");
        }
    }
    assert_eq!(about("oom_score_adj").unwrap().trim(), "1000");
    let limits = about("limits").unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(limit("Max address space"), (1u64 << 30).to_string());
    assert_eq!(limit("Max core file size"), "0");
    assert_eq!(limit("Max file size"), "0");
}

#[test]
fn metadata_have_to_fit_into_their_memory() {
    let Some(hostile) = Hostile::new("index_memory=16M,cache_size=16M") else {
        return;
    };
    // A chunked dataset that was never logged belongs to the image. It alone is unreadable if the image has no room
    // for it.
    for (name, size) in [("fits.h5", 10 << 20), ("large.h5", 20 << 20)] {
        let path = hostile.source.path().join(name);
        fs::copy(GOOD, &path).unwrap();
        let file = hdf5::File::append(&path).unwrap();
        let plain = file.new_dataset::<u8>().chunk(1 << 20).shape(size);
        let plain = plain.create("plain").unwrap();
        plain.write_raw(&vec![7u8; size]).unwrap();
        drop(plain);
        file.flush().unwrap();
        file.close().unwrap();
    }
    assert_eq!(hostile.errno("fits.h5"), None);
    assert_eq!(hostile.errno("large.h5"), Some(Errno::IO));
    assert!(hostile.told("that index_memory has left") > 0);
    assert_eq!(hostile.errno("good.h5"), None);
}

#[test]
fn names_need_not_be_text() {
    let Some(hostile) = Hostile::new("scan_cpu=5") else {
        return;
    };
    let name = Path::new(OsStr::from_bytes(b"n\xe9 \xff.h5"));
    fs::copy(GOOD, hostile.source.path().join(name)).unwrap();
    let path = hostile.mounted.join(name);
    wait_until("it is there", || path.exists());
    let bytes = fs::read(&path).unwrap();
    assert_eq!(bytes, fs::read(hostile.mounted.join("good.h5")).unwrap());
    assert_ne!(
        fs::metadata(&path).unwrap().size(),
        fs::metadata(GOOD).unwrap().size()
    );
}

#[test]
fn a_user_for_scans_has_to_exist() {
    if !can_mount(User::Caller) || !is_root() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let point = tempfile::tempdir().unwrap();
    let options = "scan_user=no-such-user-here";
    let output = crate::common::mount(User::Caller, source.path(), point.path(), options);
    assert!(!output.status.success());
    let messages = crate::common::messages(&output);
    assert!(messages.contains("no-such-user-here"), "{messages}");
}

#[test]
fn no_process_for_a_scan_is_an_error_of_that_scan() {
    if !is_root() {
        eprintln!("skipped: the processes of a worker's user cannot be limited");
        return;
    }
    let mut command = User::Caller.command("prlimit");
    // For several files, the command has a process that forks the workers.
    let output = command.args(["--nproc=1", PROGRAM, "check", GOOD, GOOD]);
    let output = output.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let reason = "scan worker: Resource temporarily unavailable";
    assert_eq!(messages.matches(reason).count(), 2, "{messages}");
    assert_eq!(output.status.code(), Some(1));
}

/// A container made by an ordinary user has such a namespace.
#[test]
fn the_root_of_a_namespace_without_other_users_can_scan() {
    let alone = |program: &[&str]| {
        let mut command = User::Caller.command("unshare");
        command.args(["--user", "--map-root-user", "--"]);
        command.args(program).output().unwrap()
    };
    if !alone(&["true"]).status.success() {
        eprintln!("skipped: no user namespace can be had");
        return;
    }
    let output = alone(&[PROGRAM, "inspect", GOOD]);
    assert!(
        output.status.success(),
        "{}",
        crate::common::messages(&output)
    );
}
