//! Jobs and readers on NFS: the server and the client of Linux. `make test-nfs` runs these tests in a virtual machine.

mod site;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use self::site::{READER, Site};
use crate::common::following::{Readers, Seen};
use crate::common::jobs::faults::Run;
use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, RANKS, Shown};
use crate::common::readers::Python;
use crate::common::{PROGRAM, names_in, wait_long_until};
use crate::readers::NodeMount;

const FLUSHES: u64 = 1_000_000;

/// A job of four ranks on two nodes, after one flush.
struct Work {
    pattern: Pattern,
    site: Site,
}

impl Work {
    fn new(subfiles: u32, options: &[&str]) -> Option<Self> {
        let site = Site::new()?;
        let places = Places::new(&site.place);
        let all = [&["pause=1000"], options].concat();
        let pattern = Pattern::start_in(places, &site.place, FLUSHES, subfiles, &all);
        let work = Work { pattern, site };
        work.wait_for("1");
        Some(work)
    }

    /// Waits until the job has reached a point.
    fn wait_for(&self, line: &str) {
        wait_long_until(line, || self.pattern.places().has(line));
    }

    /// Waits for more flushes.
    fn wait_for_flushes(&self, number: u64) {
        let wanted = self.pattern.acknowledged() + number;
        wait_long_until("flushes", || self.pattern.acknowledged() >= wanted);
    }

    fn log(&self) -> String {
        self.pattern.places().log().to_str().unwrap().to_owned()
    }

    fn mount(&self) -> NodeMount<'_> {
        let dir = self.pattern.places().logs.path();
        NodeMount::new(self.site.nodes(), READER, dir)
    }

    /// Programs on the third node: with old and new HDF5 through a mount, and with the driver.
    fn readers(&self, mount: &NodeMount<'_>) -> Readers {
        let places = self.pattern.places();
        let logs = [mount.path().join("log.h5"), places.log()];
        Readers::on(self.site.nodes(), READER, logs, places.notes.path(), RANKS)
    }

    /// Lets the job close the log.
    fn close(&self) -> u64 {
        fs::write(self.pattern.places().notes.path().join("end"), "").unwrap();
        self.wait_for("closed");
        self.pattern.acknowledged()
    }

    /// Runs a command of the program on a node.
    fn h5logfs(&self, node: usize, arguments: &[&str]) -> (bool, String) {
        let log = self.log();
        self.site.on(node, PROGRAM, &[arguments, &[&log]].concat())
    }

    /// Checks the file on the server's disk, after the job has closed it.
    fn check_closed(&self, last: u64) {
        let python = Python::new().or_else(Python::old).unwrap();
        assert_eq!(self.pattern.shown(&python, true), Shown::Flush(last));
        let (good, said) = self.pattern.places().h5logfs("check");
        assert!(good, "{said}");
    }
}

/// Readers look at a job until it has closed the log. Returns their views; the server has everything.
fn read_while_written(subfiles: u32, options: &[&str], looks: usize) -> Option<Seen> {
    let work = Work::new(subfiles, options)?;
    let mount = work.mount();
    let readers = work.readers(&mount);
    (0..looks).for_each(|_| readers.wait_for(1));
    let closed = work.close();
    let seen = readers.end(closed);
    eprintln!("{options:?}: {closed} flushes, {seen:?}");
    work.check_closed(closed);
    Some(seen)
}

#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn readers_see_whole_flushes_of_a_job_with_checksums() {
    for options in [&["checksums", "fsync"][..], &["checksums"]] {
        let Some(seen) = read_while_written(PER_NODE, options, 4) else {
            return;
        };
        assert_eq!((seen.mixed, seen.refused), (0, 0), "{options:?}");
    }
}

/// The result for readers here is not promised.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn readers_of_a_job_without_checksums() {
    for options in [&["fsync"][..], &[]] {
        read_while_written(PER_NODE, options, 4);
    }
}

/// A node would overwrite another node's data next to its own.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn two_nodes_do_not_write_one_file() {
    let Some(site) = Site::new() else { return };
    let dir = site.place.dir();
    let mut run = Run::start(&site.place, "one-file-of-nodes", dir.path());
    run.at("refused");
    assert_eq!(names_in(dir.path()), [""; 0]);
    run.go("refused");
    run.at("closed");
    run.shows_closed("own.h5", 1);
    run.go("closed");
    run.job.succeed();
}

/// Other clients see the lock of a job, which disappears with the job.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn a_job_is_known_on_another_node() {
    let Some(mut work) = Work::new(PER_NODE, &["checksums"]) else {
        return;
    };
    let (good, said) = work.h5logfs(READER, &["recover"]);
    assert!(!good && said.contains("still running"), "{said}");
    work.wait_for_flushes(2);
    let mut ranks = work.pattern.victim.ranks();
    work.pattern.victim.kill(&mut ranks, 0);
    let start = Instant::now();
    wait_long_until("the log is recovered", || {
        work.h5logfs(READER, &["recover"]).0
    });
    eprintln!("recovered {:.1?} after the job was killed", start.elapsed());
    let python = Python::new().or_else(Python::old).unwrap();
    let acknowledged = work.pattern.acknowledged();
    let Shown::Flush(shown) = work.pattern.shown(&python, true) else {
        panic!("nothing is shown");
    };
    eprintln!("{acknowledged} flushes were acknowledged, {shown} are there");
    assert!(shown == acknowledged || shown == acknowledged + 1);
}

/// A restarted server gives its clients a grace period to reclaim open files and locks.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn a_server_starts_anew_while_a_job_writes() {
    let Some(work) = Work::new(PER_NODE, &["checksums", "fsync"]) else {
        return;
    };
    let mount = work.mount();
    let readers = work.readers(&mount);
    readers.wait_for(1);
    work.site.stop();
    let before = work.pattern.acknowledged();
    std::thread::sleep(Duration::from_secs(3));
    let stopped = work.pattern.acknowledged();
    assert!(stopped <= before + 1, "{stopped} flushes after {before}");
    work.site.start();
    work.wait_for_flushes(2);
    let (good, said) = work.h5logfs(READER, &["recover"]);
    assert!(!good && said.contains("still running"), "{said}");
    readers.wait_for(1);
    let closed = work.close();
    let seen = readers.end(closed);
    eprintln!("{closed} flushes, {seen:?}");
    work.check_closed(closed);
}

/// The server rejects all handles, and then accepts them again.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn flushes_fail_and_can_be_repeated() {
    let Some(site) = Site::new() else { return };
    let dir = site.place.dir();
    let run = Run::start(&site.place, "server-of-all", dir.path());
    run.flush_again(|| site.withdraw(), || site.export());
}

/// Without `fsync=flush` a flush leaves data in a node's memory, which is lost if the server refuses it later. No
/// reader sees a mixture.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn what_was_not_synced_may_be_lost() {
    let Some(mut work) = Work::new(PER_NODE, &["checksums"]) else {
        return;
    };
    work.wait_for_flushes(2);
    work.site.withdraw();
    let job = &mut work.pattern.victim.job;
    wait_long_until("the job has ended", || job.has_ended());
    let said = job.said();
    assert!(said.contains("Permission denied"), "{said}");
    work.site.export();
    let python = Python::new().or_else(Python::old).unwrap();
    let acknowledged = work.pattern.acknowledged();
    let shown = work.pattern.shown(&python, false);
    eprintln!("{acknowledged} flushes were acknowledged, the log shows {shown:?}");
    let has_no_more = |flush| flush <= acknowledged;
    assert!(matches!(shown, Shown::Nothing) || matches!(shown, Shown::Flush(f) if has_no_more(f)));
    let (good, said) = work.h5logfs(READER, &["recover"]);
    eprintln!("recover on another node: {good} {said}");
}

/// A program with an open log, of which it reads on demand.
struct Holder(Child, BufReader<std::process::ChildStdout>);

const HOLD: &str = "
import sys, zlib, h5py
file = h5py.File(sys.argv[1])
print('open', flush=True)
for line in sys.stdin:
    try:
        print(zlib.crc32(file[line.strip()][()].tobytes()), flush=True)
    except (OSError, KeyError) as error:
        print('error', str(error).replace(chr(10), ' '), flush=True)
";

impl Holder {
    fn new(work: &Work, mount: &NodeMount<'_>) -> Self {
        let python = Python::new().or_else(Python::old).unwrap();
        let mut command: Command = work.site.nodes().moved(READER, &python.command());
        command.args(["-c", HOLD]).arg(mount.path().join("log.h5"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder(child, output);
        assert_eq!(holder.line(), "open");
        holder
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn read(&mut self, dataset: &str) -> String {
        let input = self.0.stdin.as_mut().unwrap();
        input.write_all(format!("{dataset}\n").as_bytes()).unwrap();
        self.line()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Datasets of a job after eight flushes.
const DATASETS: [&str; 4] = ["steps", "state", "bulk", "air/field"];

/// The log is removed while a program has it open. The program can read on, or gets an error.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn a_log_is_removed_while_it_is_read() {
    for node in [0, READER] {
        let Some(work) = Work::new(PER_NODE, &["checksums"]) else {
            return;
        };
        work.wait_for("8");
        work.close();
        let mount = work.mount();
        let mut holder = Holder::new(&work, &mount);
        let before = DATASETS.map(|name| holder.read(name));
        let dir = work.pattern.places().logs.path();
        let log = work.log();
        let (_, said) = work
            .site
            .on(node, "rm", &["-r", &log, &format!("{log}.subfiles")]);
        // Caches of the node prove nothing.
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let after = DATASETS.map(|name| holder.read(name));
        for (before, after) in before.iter().zip(&after) {
            assert!(after == before || after.starts_with("error"), "{after}");
        }
        holder.end();
        let left = names_in(dir);
        let shown = names_in_mount(&work, &mount);
        let node = node + 1;
        eprintln!("removed on node {node} {said:?}: {after:?}; left {left:?}, shown {shown}");
    }
}

/// The names in a mount of the third node.
fn names_in_mount(work: &Work, mount: &NodeMount<'_>) -> String {
    let path = mount.path().to_str().unwrap();
    work.site.on(READER, "ls", &["-A", path]).1
}

/// The server keeps the lock of a lost node until its lease ends.
#[test]
#[ignore = "in a virtual machine: make test-nfs"]
fn the_network_of_a_node_fails() {
    let Some(mut work) = Work::new(PER_NODE, &["checksums", "fsync"]) else {
        return;
    };
    work.wait_for_flushes(2);
    let start = Instant::now();
    work.site.nodes().cut(0);
    let (good, said) = work.h5logfs(READER, &["recover"]);
    assert!(!good && said.contains("still running"), "{said}");
    let job = &mut work.pattern.victim.job;
    wait_long_until("the job has ended", || job.has_ended());
    let ended = start.elapsed();
    wait_long_until("the log is recovered", || {
        work.h5logfs(READER, &["recover"]).0
    });
    let recovered = start.elapsed();
    let python = Python::new().or_else(Python::old).unwrap();
    let acknowledged = work.pattern.acknowledged();
    let shown = work.pattern.shown(&python, true);
    eprintln!(
        "mpirun ended after {ended:.1?}, the log was recovered after {recovered:.1?}; {acknowledged} flushes were \
         acknowledged, it shows {shown:?}"
    );
    let is_it = |flush| shown == Shown::Flush(flush);
    assert!(is_it(acknowledged) || is_it(acknowledged + 1));
}
