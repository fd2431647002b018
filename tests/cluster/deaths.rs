//! A node dies while the others live: power fails, or its network. The job ends as soon as its MPI has noticed, and what was
//! acknowledged is there.
//!
//! Open MPI notices that a node does not answer by the keepalive of the connection between `mpirun` and its daemon there.
//! `mpirun.rs` sets that to some seconds. MPICH never does, and the test ends its job.

use std::time::{Duration, Instant};

use rustix::process::{Signal, pidfd_send_signal};

use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, RANKS, Shown};
use crate::common::mpirun::{Mpi, Rank};
use crate::common::nodes::{Nodes, Place};
use crate::common::readers::Python;
use crate::common::{User, can_mount, wait_until};

/// Until MPI has ended the job. The keepalive takes five seconds.
const MOST: Duration = Duration::from_secs(30);

/// What happens to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// All its processes end, and none of them can say so.
    Power,
    /// They live on, alone.
    Network,
}

/// Lets one of several nodes die when flush 20 was acknowledged.
fn die(nodes: u32, victim: usize, death: Death, subfiles: u32) {
    if let Some(nodes) = Nodes::new(nodes).filter(|_| can_mount(User::Caller)) {
        die_in(&mut Place::Nodes(nodes), victim, death, subfiles, &[]);
    }
}

/// The same of a place, where the job has these options.
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
        // The first rank lives, and has the journal locked.
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
    // Where the network is gone, the processes behind it end by themselves.
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
    // A file server keeps the locks of a node for some seconds after it has gone.
    wait_until("the log is recovered", || {
        (good, said) = pattern.places().h5logfs("recover");
        good || !place.shows_late() || !said.contains("still running")
    });
    assert!(good && !pattern.has_journal(), "{said}");
    assert_eq!(pattern.shown(&python, true), shown);
}

/// With MPICH the processes of the other nodes end with mpirun, but those behind the network live on.
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
