//! A node dies while the others live: its power or its network fails. The job ends once its MPI has noticed, and
//! acknowledged flushes are there.
//!
//! Open MPI notices a silent node by the keepalive of the connection between `mpirun` and its daemon there, which
//! `mpirun.rs` sets to some seconds. MPICH never does, and the test ends its job.

use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, RANKS, Shown};
use crate::common::mpirun::{Mpi, Rank};
use crate::common::nodes::{Nodes, Place};
use crate::common::readers::Python;
use crate::common::{User, can_mount, wait_until};

/// Time limit for MPI to end the job. The keepalive takes five seconds.
const MOST: Duration = Duration::from_secs(30);

/// The death of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// All its processes end without a word.
    Power,
    /// Its processes live on, alone.
    Network,
}

/// Kills one of several nodes once flush 20 is acknowledged.
fn die(nodes: u32, victim: usize, death: Death, subfiles: u32) {
    if let Some(nodes) = Nodes::new(nodes).filter(|_| can_mount(User::Caller)) {
        die_in(&mut Place::Nodes(nodes), victim, death, subfiles, &[]);
    }
}

/// Kills a node of a place, where the job has these options.
pub fn die_in(place: &mut Place, victim: usize, death: Death, subfiles: u32, options: &[&str]) {
    let Some(python) = Python::new().or_else(Python::old) else {
        return;
    };
    let places = Places::new(place);
    let mut pattern = Pattern::start_in(places, place, 1_000_000, subfiles, options);
    let ranks = pattern.victim.ranks();
    assert!(
        pattern.victim.wait_for("20"),
        "{}",
        pattern.victim.job.said()
    );
    let nodes = place.nodes_mut();
    let start = Instant::now();
    match death {
        Death::Power => nodes.kill(victim),
        Death::Network => nodes.cut(victim),
    }
    let nodes = &*nodes;
    if death == Death::Network {
        // The first rank lives and holds the lock of the journal.
        let (good, said) = pattern.places().h5logfs("recover");
        assert!(!good && said.contains("still running"), "{said}");
    }
    let job = &mut pattern.victim.job;
    job.end_without_node();
    while !job.has_ended() {
        assert!(start.elapsed() < MOST, "{death:?}: {}", job.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = start.elapsed();
    if death == Death::Network && Mpi::of_build().is_mpich() {
        end_behind_network(nodes, victim, &ranks);
    }
    // Processes that have lost the network end by themselves.
    wait_until("all ranks are gone", || {
        ranks.iter().all(|rank| rank.has_ended())
    });
    let acknowledged = pattern.acknowledged();
    eprintln!(
        "{RANKS} ranks on {} nodes: {death:?} of node {} gone, {acknowledged} flushes acknowledged, mpirun ended \
         after {ended:.1?}, all ranks after {:.1?}",
        nodes.number(),
        victim + 1,
        start.elapsed()
    );
    let mut shown = Shown::Nothing;
    let mut is_shown = || {
        shown = pattern.shown(&python, false);
        [acknowledged, acknowledged + 1]
            .map(Shown::Flush)
            .contains(&shown)
    };
    if place.shows_late() {
        wait_until("all flushes are shown", is_shown);
    } else {
        assert!(
            is_shown(),
            "{acknowledged} flushes were acknowledged, and it shows {shown:?}"
        );
    }
    let (mut good, mut said) = (false, String::new());
    // A file server keeps the locks of a lost node for some seconds.
    wait_until("the log is recovered", || {
        (good, said) = pattern.places().h5logfs("recover");
        good || !place.shows_late() || !said.contains("still running")
    });
    assert!(good && !pattern.has_journal(), "{said}");
    assert_eq!(pattern.shown(&python, true), shown);
}

/// With MPICH, processes on other nodes end with mpirun, but processes without a network live on.
fn end_behind_network(nodes: &Nodes, victim: usize, ranks: &[Rank]) {
    let is_behind = |rank: &&Rank| nodes.has(victim, rank.pid);
    let (behind, others): (Vec<&Rank>, _) = ranks.iter().partition(is_behind);
    wait_until("the ranks of other nodes are gone", || {
        others.iter().all(|rank| rank.has_ended())
    });
    for rank in behind {
        assert!(!rank.has_ended());
        let _ = pidfd_send_signal(&rank.handle, Signal::KILL);
    }
}

#[test]
fn power_of_a_node_fails() {
    die(2, 1, Death::Power, PER_NODE);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn power_of_the_first_node_fails() {
    die(2, 0, Death::Power, 0);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn power_of_one_node_of_four_fails() {
    die(4, 2, Death::Power, PER_NODE);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn network_of_a_node_fails() {
    die(2, 1, Death::Network, PER_NODE);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn network_of_the_first_node_fails() {
    die(3, 0, Death::Network, 0);
}
