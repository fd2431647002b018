//! `Subfiles::PerNode` makes one file per node, which no other node writes to.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use rustix::process::Pid;

use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::RANKS;
use crate::common::names_in;
use crate::common::nodes::{Nodes, Place};

/// The subfiles that a process has open.
fn open_subfiles(process: Pid) -> BTreeSet<PathBuf> {
    let open = fs::read_dir(format!("/proc/{}/fd", process.as_raw_pid())).unwrap();
    let paths = open
        .flatten()
        .filter_map(|fd| fs::read_link(fd.path()).ok());
    // A deleted temporary name is shown here with a mark.
    let is_subfile = |path: &PathBuf| {
        let shown = path.to_string_lossy();
        shown.contains("log.h5.subfiles/log.h5.") && !shown.ends_with(" (deleted)")
    };
    paths.filter(is_subfile).collect()
}

fn each_node_has_its_own(shares: &[u32]) {
    assert_eq!(shares.iter().sum::<u32>(), RANKS);
    let Some(nodes) = Nodes::new(shares.len() as u32) else {
        return;
    };
    let place = Place::Nodes(nodes.with_shares(shares));
    let mut pattern = Pattern::start(&place, 1_000_000, PER_NODE, 1);
    let mut ranks = pattern.victim.ranks();
    assert!(
        pattern.victim.wait_for("3"),
        "{}",
        pattern.victim.job.said()
    );
    let nodes = place.nodes();
    let dir = pattern.places().logs.path().join("log.h5.subfiles");
    let names = (0..shares.len()).map(|node| format!("log.h5.{node}"));
    assert!(names_in(&dir).into_iter().eq(names));
    for (node, share) in shares.iter().enumerate() {
        let own = BTreeSet::from([dir.join(format!("log.h5.{node}"))]);
        let here = ranks.iter().filter(|rank| nodes.has(node, rank.pid));
        let files: Vec<_> = here.map(|rank| open_subfiles(rank.pid)).collect();
        assert_eq!(files, vec![own; *share as usize], "node {}", node + 1);
    }
    pattern.victim.kill(&mut ranks, 0);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn two_nodes() {
    each_node_has_its_own(&[2, 2]);
}

/// The layout's rule would assign the second rank of the first node to the second file.
#[test]
fn two_nodes_with_different_numbers_of_ranks() {
    each_node_has_its_own(&[3, 1]);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn four_nodes() {
    each_node_has_its_own(&[1, 1, 1, 1]);
}
