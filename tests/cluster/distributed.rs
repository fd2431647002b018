//! Jobs and readers on a distributed file system: GlusterFS (`tests/common/gluster.rs`). `make test-distributed` runs them.

use std::fs;

use rustix::process::{Signal, pidfd_send_signal};

use super::deaths::{Death, die_in};
use crate::common::amount::cases;
use crate::common::following::{Readers, Seen};
use crate::common::gluster::Gluster;
use crate::common::jobs::kill::{PER_NODE, Pattern, kill_at_random};
use crate::common::jobs::random::{Mode, programs_on};
use crate::common::killed::{Places, RANKS, Shown};
use crate::common::mpirun::{Job, program};
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, wait_until};

#[test]
#[ignore = "takes long: make test-distributed"]
fn random_programs() {
    if let Some(gluster) = Gluster::new(&[2, 2], "") {
        programs_on(gluster.place(), RANKS, cases(12), Mode::Usual);
        programs_on(gluster.place(), RANKS, 10, Mode::Abort);
    }
}

fn killed(subfiles: u32, sessions: bool, offset: u64) {
    if let Some(gluster) = Gluster::new(&[2, 2], "") {
        kill_at_random(gluster.place(), subfiles, sessions, offset);
    }
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn killed_ranks_leave_what_they_flushed() {
    killed(0, false, 110_000);
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn killed_ranks_leave_what_they_appended_to() {
    killed(2, true, 120_000);
}

/// Programs on this machine read the log of a job on two nodes until it is closed.
fn read(gluster: &Gluster, subfiles: u32, options: &[&str]) -> Seen {
    const FLUSHES: u64 = 1_000_000;
    const LOOKS: usize = 20;
    let place = gluster.place();
    let options = [&["pause=50"], options].concat();
    let places = Places::new(place);
    let mut pattern = Pattern::start_in(places, place, FLUSHES, subfiles, &options);
    let said = |pattern: &Pattern| pattern.victim.job.said();
    assert!(pattern.victim.wait_for("1"), "{}", said(&pattern));
    let notes = pattern.places().notes.path().to_owned();
    let readers = Readers::start(pattern.places().logs.path(), &notes, "pattern", RANKS);
    readers.wait_for(LOOKS);
    fs::write(notes.join("end"), "").unwrap();
    assert!(pattern.victim.wait_for("closed"), "{}", said(&pattern));
    pattern.victim.job.kill();
    let seen = readers.end(pattern.acknowledged());
    eprintln!("{subfiles} subfiles, {options:?}: {seen:?}");
    seen
}

/// Without checksums a reader may be refused, or see something that is in no flush.
#[test]
#[ignore = "takes long: make test-distributed"]
fn readers_see_whole_flushes() {
    let Some(gluster) = Gluster::new(&[2, 2], "") else {
        return;
    };
    for subfiles in [0, PER_NODE] {
        read(&gluster, subfiles, &[]);
        let seen = read(&gluster, subfiles, &["checksums"]);
        assert_eq!(seen.mixed, 0);
        assert!(seen.behind > 0, "the file system shows everything at once");
    }
}

/// Ways in which another node takes over a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Recover,
    Append,
}

/// A node that takes over a log just after the job's death gets all flushes, although it has polled the log all the
/// time and caches it.
fn taken_up(next: Next) {
    let Some(mut gluster) = Gluster::new(&[2, 2], "") else {
        return;
    };
    for (subfiles, options) in [
        (0, &[][..]),
        (0, &["checksums"]),
        (PER_NODE, &["checksums"]),
    ] {
        gluster.set_shares(&[2, 2]);
        let place = gluster.place();
        let options = [&["pause=20"], options].concat();
        let places = Places::new(place);
        let mut pattern = Pattern::start_in(places, place, 1_000_000, subfiles, &options);
        let mut ranks = pattern.victim.ranks();
        while pattern.acknowledged() < 30 {
            // The command runs on the next job's node, and here.
            let mut inspect = gluster.nodes().on(1, PROGRAM);
            let _ = inspect.arg("inspect").arg(pattern.places().log()).output();
            let _ = pattern.places().h5logfs("inspect");
            assert!(
                !pattern.victim.job.has_ended(),
                "{}",
                pattern.victim.job.said()
            );
        }
        let (good, said) = pattern.places().h5logfs("recover");
        assert!(!good && said.contains("still running"), "{said}");
        for rank in &ranks {
            let _ = pidfd_send_signal(&rank.handle, Signal::KILL);
        }
        let acknowledged = pattern.acknowledged();
        let taken = match next {
            Next::Recover => recovered(&pattern),
            Next::Append => {
                gluster.set_shares(&[0, RANKS]);
                appended(&gluster, &pattern)
            }
        };
        pattern.victim.kill(&mut ranks, 0);
        eprintln!(
            "{next:?}, {subfiles} subfiles, {options:?}: {acknowledged} acknowledged, {taken} taken up"
        );
        assert!(taken >= acknowledged);
    }
}

/// Recovers a log just after its job has died. Returns the number of its flushes.
fn recovered(pattern: &Pattern) -> u64 {
    let (mut good, mut said) = (false, String::new());
    wait_until("the job is dead", || {
        (good, said) = pattern.places().h5logfs("recover");
        good || !said.contains("still running")
    });
    assert!(good, "{said}");
    let flushes = said
        .split_once("recovered ")
        .and_then(|(_, rest)| rest.split(' ').next());
    flushes.unwrap().parse().unwrap()
}

/// Appends some flushes. Returns the number of flushes at the start.
fn appended(gluster: &Gluster, pattern: &Pattern) -> u64 {
    let notes = tempfile::tempdir().unwrap();
    let log = pattern.places().log();
    let dir = notes.path().to_str().unwrap();
    let words = [
        log.to_str().unwrap(),
        dir,
        "60",
        "0",
        "1",
        "append",
        "checksums",
    ];
    let start = || Job::start_at(gluster.place(), RANKS, &program("writer-pattern"), &words);
    let mut job = start();
    while !job.wait().success() {
        let said = job.said();
        assert!(said.contains("another job writes it"), "{said}");
        job = start();
    }
    let said = fs::read_to_string(notes.path().join("acknowledged")).unwrap();
    let first = said
        .lines()
        .find_map(|line| line.parse::<u64>().ok())
        .unwrap();
    assert!(said.ends_with("closed\n"), "{said}");
    wait_until("all of the log is shown", || {
        let python = Python::new().or_else(Python::old).unwrap();
        pattern.shown(&python, false) == Shown::Flush(61)
    });
    first - 1
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn another_node_recovers_all_that_was_flushed() {
    taken_up(Next::Recover);
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn another_node_appends_to_all_that_was_flushed() {
    taken_up(Next::Append);
}

/// The job's own nodes see all flushes after its death, although their kernels cache pages that others have written
/// since.
#[test]
#[ignore = "takes long: make test-distributed"]
fn nodes_of_the_job_see_all_flushes() {
    let Some(gluster) = Gluster::new(&[2, 2], "") else {
        return;
    };
    for _ in 0..4 {
        let place = gluster.place();
        let options = ["pause=20", "checksums"];
        let places = Places::new(place);
        let mut pattern = Pattern::start_in(places, place, 1_000_000, 0, &options);
        let mut ranks = pattern.victim.ranks();
        let log = pattern.places().log();
        let shown = |node| -> u64 {
            let mut check = gluster.nodes().on(node, PROGRAM);
            let said = said(&check.arg("check").arg(&log).output().unwrap());
            let flush = said.split_once("shown as flush ");
            let flush = flush.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
            flush.unwrap_or(0)
        };
        while pattern.acknowledged() < 30 {
            let _ = [0, 1].map(shown);
        }
        pattern.victim.kill(&mut ranks, 0);
        let acknowledged = pattern.acknowledged();
        wait_until("both nodes show all flushes", || {
            [0, 1].map(shown).iter().all(|flush| *flush >= acknowledged)
        });
    }
}

/// A client caches writes for a while, so only data on the servers survive its death.
const KEPT: &[&str] = &["checksums", "fsync"];

#[test]
#[ignore = "takes long: make test-distributed"]
fn power_of_a_node_fails() {
    for victim in [0, 1] {
        if let Some(mut gluster) = Gluster::new(&[2, 2], "") {
            die_in(gluster.place_mut(), victim, Death::Power, PER_NODE, KEPT);
        }
    }
}

/// A failure under a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The client of a node.
    Client,
    /// A brick, which comes back.
    Brick,
}

/// A part of the file system fails under a flushing job and a mount of its log. The job ends with an error or
/// continues, and its flushes are there. Meanwhile the mount shows one flush, or an error.
fn fails(failure: Failure, number: usize) {
    let (Some(python), Some(gluster)) = (
        Python::new().or_else(Python::old),
        Gluster::new(&[2, 2], ""),
    ) else {
        return;
    };
    let options = [&["pause=20"], KEPT].concat();
    let places = Places::new(gluster.place());
    let mut pattern = Pattern::start_in(places, gluster.place(), 1_000_000, 2, &options);
    let mut ranks = pattern.victim.ranks();
    let mounted = Mounted::new(pattern.places().logs.path(), "");
    let look = || {
        let mut command = python.tool("pattern.py");
        command.arg(mounted.join("log.h5")).arg(RANKS.to_string());
        command.output().unwrap()
    };
    assert!(
        pattern.victim.wait_for("20"),
        "{}",
        pattern.victim.job.said()
    );
    wait_until("the mount shows the log", || look().status.success());
    match failure {
        Failure::Client => gluster.end_client(number),
        Failure::Brick => gluster.end_brick(number),
    }
    let looks = [(); 6].map(|()| {
        let output = look();
        let said = said(&output);
        assert!(!said.contains("AssertionError"), "{said}");
        output.status.success()
    });
    if failure == Failure::Brick {
        gluster.start_brick(number);
    }
    // If the job continues, its next flushes are good.
    let before = pattern.acknowledged();
    wait_until("the job goes on, or ends", || {
        pattern.victim.job.has_ended() || pattern.acknowledged() > before + 3
    });
    let goes_on = !pattern.victim.job.has_ended();
    let job = pattern.victim.job.said();
    let why = job.lines().find(|line| line.contains("reason"));
    pattern.victim.kill(&mut ranks, 0);
    let acknowledged = pattern.acknowledged();
    let mut last = look();
    wait_until("the mount shows all flushes", || {
        last = look();
        last.status.success() && {
            let Shown::Flush(flush) = Shown::by(&last) else {
                return false;
            };
            flush >= acknowledged
        }
    });
    let taken = recovered(&pattern);
    eprintln!(
        "{failure:?} {number} fails: job goes on: {goes_on} ({why:?}), mount: {looks:?}, {acknowledged} acknowledged, {taken} \
         recovered"
    );
    assert!(taken >= acknowledged);
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn a_client_dies() {
    fails(Failure::Client, 0);
    fails(Failure::Client, 1);
}

#[test]
#[ignore = "takes long: make test-distributed"]
fn a_brick_dies_and_comes_back() {
    fails(Failure::Brick, 0);
    fails(Failure::Brick, 1);
}
