//! A network that fails and returns, loses packets, or is slow. MPI over TCP resends lost data, so the job waits and
//! continues, and its log is unaffected.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, Shown};
use crate::common::nodes::{CARD, Nodes, Place};
use crate::common::readers::Python;
use crate::common::{User, can_mount};

/// Number of unanswered probes, one per second, after which Open MPI's `mpirun` ends a job.
const PROBES: u32 = 20;

/// Each node drops one in ten incoming packets.
const LOSSES: &str = "table ip losses { chain arriving { type filter hook input priority 0; \
                      iifname eth0 numgen random mod 10 == 0 counter drop; }; };";

/// Each node sends 12 kB per second.
const SLOW: [&str; 8] = [
    "root", "tbf", "rate", "100kbit", "burst", "2kb", "latency", "1s",
];

/// The rate in bytes.
const BYTES: f64 = 12_500.0;

/// A job that flushes until it is asked to end.
struct Flushing {
    place: Place,
    pattern: Pattern,
    python: Python,
    start: Instant,
}

impl Flushing {
    /// A job. `None`, after printing the reason, where nodes or one of their programs are missing.
    fn new(nodes: u32, subfiles: u32, needs: &str) -> Option<Self> {
        let python = Python::new().or_else(Python::old)?;
        if Command::new(needs).arg("-V").output().is_err() {
            eprintln!("skipped: there is no {needs}");
            return None;
        }
        let nodes = Nodes::new(nodes).filter(|_| can_mount(User::Caller))?;
        let place = Place::Nodes(nodes.with_keepalive_probes(PROBES));
        let places = Places::new(&place);
        let mut flushing = Flushing {
            pattern: Pattern::start_in(places, &place, 1_000_000, subfiles, &[]),
            place,
            python,
            start: Instant::now(),
        };
        flushing.goes_on(20);
        Some(flushing)
    }

    fn nodes(&self) -> &Nodes {
        self.place.nodes()
    }

    /// Waits for this many more flushes.
    #[track_caller]
    fn goes_on(&mut self, flushes: u64) {
        let last = self.pattern.acknowledged() + flushes;
        let victim = &mut self.pattern.victim;
        let goes_on = victim.wait_for(&last.to_string());
        assert!(goes_on, "{}", victim.job.said());
    }

    /// Runs a command in the network of each node. Returns the outputs.
    fn in_networks(&self, program: &str, arguments: &[&str]) -> Vec<String> {
        let run = |node| {
            let mut command = self.nodes().in_network_of(node, program);
            let output = command.args(arguments).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {said}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        (0..self.nodes().number()).map(run).collect()
    }

    /// Lets the job end, and reads its log.
    #[track_caller]
    fn ends(mut self, about: &str) {
        fs::write(self.pattern.places().notes.path().join("end"), "").unwrap();
        let closed = self.pattern.victim.wait_for("closed");
        assert!(closed, "{}", self.pattern.victim.job.said());
        let status = self.pattern.victim.job.wait();
        assert!(status.success(), "{}", self.pattern.victim.job.said());
        let acknowledged = self.pattern.acknowledged();
        let shown = self.pattern.shown(&self.python, true);
        assert_eq!(shown, Shown::Flush(acknowledged), "{about}");
        let seconds = self.start.elapsed();
        eprintln!("{about}: {acknowledged} flushes, closed, after {seconds:.1?}");
    }
}

/// Cuts a node off for each of these times in turn.
fn cut(nodes: u32, victim: usize, subfiles: u32, times: &[Duration]) {
    let Some(mut job) = Flushing::new(nodes, subfiles, "ip") else {
        return;
    };
    for time in times {
        job.nodes().cut(victim);
        let before = job.pattern.acknowledged();
        thread::sleep(*time);
        let after = job.pattern.acknowledged();
        // A flush that had reached its last message counts.
        assert!(
            after <= before + 1,
            "{before} and {after}: it flushes alone"
        );
        let shown = job.pattern.shown(&job.python, false);
        let is_it = [after, after + 1].map(Shown::Flush).contains(&shown);
        assert!(is_it, "{shown:?} after {after}");
        job.nodes().restore(victim);
        let back = Instant::now();
        job.goes_on(20);
        eprintln!("cut for {time:?}: 20 flushes {:.1?} later", back.elapsed());
    }
    let about = format!("node {} of {nodes} cut off for {times:?}", victim + 1);
    job.ends(&about);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_network_that_comes_back_delays_flushes() {
    let times = [1, 2, 3].map(Duration::from_secs);
    cut(2, 1, PER_NODE, &times);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_network_of_the_first_node_that_comes_back_delays_flushes() {
    cut(
        3,
        0,
        0,
        &[Duration::from_millis(300), Duration::from_secs(3)],
    );
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn packets_that_are_lost_delay_flushes() {
    let Some(mut job) = Flushing::new(2, PER_NODE, "nft") else {
        return;
    };
    job.in_networks("nft", &[LOSSES]);
    job.goes_on(40);
    for rules in job.in_networks("nft", &["list", "ruleset"]) {
        assert!(!rules.contains("packets 0 "), "nothing was lost: {rules}");
    }
    job.ends("one of ten packets lost");
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn a_slow_network_delays_flushes() {
    let Some(mut job) = Flushing::new(2, 0, "tc") else {
        return;
    };
    let limit: Vec<&str> = ["qdisc", "add", "dev", CARD]
        .into_iter()
        .chain(SLOW)
        .collect();
    job.in_networks("tc", &limit);
    let slow = Instant::now();
    job.goes_on(100);
    let seconds = slow.elapsed().as_secs_f64();
    for limits in job.in_networks("tc", &["-s", "qdisc", "show", "dev", CARD]) {
        let sent = limits
            .split("Sent ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let sent: f64 = sent.unwrap().parse().unwrap();
        eprintln!("{sent} bytes sent in {seconds:.1} s");
        assert!(
            sent < 2.0 * BYTES * (seconds + 1.0),
            "nothing was slow: {limits}"
        );
        assert!(sent > 0.2 * BYTES * seconds, "little was sent: {limits}");
    }
    job.ends("12 kB in a second");
}
