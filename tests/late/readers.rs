//! Programs read a growing log through the daemon of a mount, and with the file driver. The job runs on other nodes:
//! its ranks are threads, or a job of `mpirun` on two nodes, each with its own mount of the file system.

use std::fs;
use std::path::Path;

use super::*;
use crate::common::following::{Readers, Seen};
use crate::common::jobs::kill::{PER_NODE, Pattern};
use crate::common::killed::{Places, RANKS};
use crate::common::nodes::{self, Nodes};

/// By NFS's rules a flush may become visible as soon as it is on disk.
fn check_late(mode: Mode, seen: &Seen) {
    let is_late = seen.behind > 0 || mode == Mode::CloseToOpen;
    assert!(is_late, "the file system shows everything at once");
    assert_eq!(seen.mixed, 0);
}

/// Ranks are threads of this process.
fn threads_write(mode: Mode, seed: u64, flushes: u64) {
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(3, mode, seed);
    let notes = tempfile::tempdir().unwrap();
    let mut job = Job::create(&place.paths(2), &options(seed));
    job.flush(Course::default());
    place.settle();
    let readers = Readers::start(place.reader(), notes.path(), "rows", 2);
    readers.wait_for(1);
    for step in 1..flushes {
        job.flush(course(seed + step));
        let acknowledged = (1..=job.flushes).map(|flush| format!("{flush}\n"));
        fs::write(
            notes.path().join("acknowledged"),
            acknowledged.collect::<String>(),
        )
        .unwrap();
        readers.wait_for(1);
        // Files that readers have open are reopened.
        place.lose();
        readers.wait_for(1);
    }
    place.settle();
    check_late(mode, &readers.end(job.flushes));
}

#[test]
fn programs_see_whole_flushes_where_an_open_shows_what_was_closed() {
    rounds(1)
        .take(10)
        .for_each(|seed| threads_write(Mode::CloseToOpen, seed, 12));
}

#[test]
fn programs_see_whole_flushes_where_anything_may_be_late() {
    rounds(1)
        .take(10)
        .for_each(|seed| threads_write(Mode::AnyTime, seed, 12));
}

/// Two nodes with their own mounts of the file system at `dir`. The third node is this machine. `None`, after
/// printing the reason, where nodes are impossible.
pub fn two_nodes(place: &Place, dir: &Path) -> Option<nodes::Place> {
    let mounts: Vec<&Path> = place.nodes.iter().map(Node::path).collect();
    let nodes = Nodes::with_mounts(2, &mounts)?;
    for (node, own) in mounts.iter().enumerate().take(2) {
        let mut bind = nodes.on(node, "mount");
        bind.arg("--bind").args([own, dir]);
        assert!(bind.status().unwrap().success());
    }
    Some(nodes::Place::Nodes(nodes))
}

/// Two ranks on each of two nodes, with readers on this machine. The job closes the log, or is killed.
fn mpirun_writes(mode: Mode, seed: u64, subfiles: u32, looks: usize, closes: bool) {
    const FLUSHES: u64 = 1_000_000;
    if !can_mount(User::Caller) {
        return;
    }
    let place = Place::new(3, mode, seed);
    let places = Places::new(&nodes::Place::Here);
    let Some(nodes) = two_nodes(&place, places.logs.path()) else {
        return;
    };
    let options = ["pause=100", "checksums"];
    let mut pattern = Pattern::start_in(places, &nodes, FLUSHES, subfiles, &options);
    let began = pattern.victim.wait_for("1");
    assert!(began, "{}", pattern.victim.job.said());
    place.settle();
    let notes = pattern.places().notes.path().to_owned();
    let readers = Readers::start(place.reader(), &notes, "pattern", RANKS);
    readers.wait_for(looks / 2);
    place.lose();
    readers.wait_for(looks - looks / 2);
    if closes {
        fs::write(notes.join("end"), "").unwrap();
        let closed = pattern.victim.wait_for("closed");
        assert!(closed, "{}", pattern.victim.job.said());
    }
    pattern.victim.job.kill();
    place.settle();
    let acknowledged = pattern.acknowledged();
    let mut last = acknowledged;
    if !closes {
        last = open(&place.path()).unwrap().snapshot().flushes;
        // The job may have been about to return from one more flush.
        let is_right = last == acknowledged || last == acknowledged + 1;
        assert!(is_right, "{last} after {acknowledged}");
    }
    check_late(mode, &readers.end(last));
}

#[test]
fn a_job_on_two_nodes() {
    mpirun_writes(Mode::CloseToOpen, 1, PER_NODE, 12, true);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn jobs_on_two_nodes() {
    for seed in rounds(4).take(12) {
        let subfiles = [0, 2, PER_NODE][seed as usize % 3];
        mpirun_writes(
            Mode::CloseToOpen,
            seed,
            subfiles,
            30,
            seed.is_multiple_of(2),
        );
        mpirun_writes(Mode::AnyTime, seed, subfiles, 30, false);
    }
}
