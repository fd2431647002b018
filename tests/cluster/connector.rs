//! Programs of parallel HDF5 with the VOL connector, on several nodes.

use crate::common::clock::settle;
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::{Hdf5, Stage, succeed};
use crate::common::jobs::hdf5::{flushing, kill_at_random, programs, reading, recover, shown};
use crate::common::killed::Shown;
use crate::common::mpirun::{Job, Mpi};
use crate::common::names_in;
use crate::common::nodes::{Nodes, Place};

/// Nodes write a file together, close and reopen it, and then each reads all of it.
fn write_and_read(nodes: u32, options: &str, subfiles: &[&str]) {
    let connector = Connector::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), connector.python()) else {
        return;
    };
    let Some(place) = Place::of(nodes) else {
        return;
    };
    let job = flushing(&place, hdf5, 7, 7, connector.used_as(options));
    job.job.succeed();
    let log = job.places.log();
    let dir = log.with_extension("h5.subfiles");
    let found = if dir.exists() {
        names_in(&dir)
    } else {
        Vec::new()
    };
    assert_eq!(found, subfiles);
    let nodes = place.nodes();
    for node in 0..nodes.number() {
        let printed = succeed(&mut nodes.moved(node, &reading(&python, &log)));
        assert_eq!(printed, "7\n", "node {}", node + 1);
    }
}

#[test]
fn two_nodes_write_together_and_each_reads_all() {
    write_and_read(2, "h5logfs subfiles=node", &["log.h5.0", "log.h5.1"]);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn four_nodes_write_one_file() {
    write_and_read(4, "h5logfs", &[]);
}

/// Ranks on two nodes that read together see unflushed writes of the others.
#[test]
fn nodes_that_read_together_see_what_others_have_written() {
    let (Some(hdf5), Some(place)) = (Hdf5::find(), Place::of(2)) else {
        return;
    };
    let (connector, dir) = (Connector::new(), place.dir());
    let program = hdf5.compiled("connector", "neighbours");
    let mut mpirun = Mpi::of_build().run_at(&place, 3, &program);
    mpirun.arg(dir.path().join("file.h5")).arg("collective");
    mpirun.envs(connector.used());
    Job::launch(mpirun).succeed();
}

/// Ranks of two nodes read a log together.
fn ranks_read(directory: &str, program: &str) {
    let (Some(hdf5), Some(place)) = (Hdf5::find(), Place::of(2)) else {
        return;
    };
    let stage = Stage::of_connector();
    let logs = stage.logs(2);
    settle(stage.path());
    let mut mpirun = Mpi::of_build().run_at(&place, 3, &hdf5.compiled(directory, program));
    mpirun.arg(&stage.expected).args(logs);
    mpirun.envs(stage.environment());
    assert_eq!(Job::launch(mpirun).succeed(), "");
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn ranks_of_two_nodes_read_their_shares() {
    ranks_read("hosts", "share");
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn ranks_of_two_nodes_read_collectively() {
    ranks_read("connector", "collective");
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn random_programs_on_two_nodes() {
    if let Some(place) = Place::of(2) {
        programs(&place, &[4], 8);
    }
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_programs_on_two_nodes_leave_what_they_flushed() {
    if let Some(place) = Place::of(2) {
        kill_at_random(&place, 6);
    }
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn power_of_a_node_fails() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let Some(nodes) = Nodes::new(2) else {
        return;
    };
    let mut place = Place::Nodes(nodes);
    let options = connector.used_as("h5logfs subfiles=node");
    let mut victim = flushing(&place, hdf5, 1_000_000, 1_000_000, options);
    assert!(victim.wait_for("20"), "{}", victim.job.said());
    place.nodes_mut().kill(1);
    victim.job.end_without_node();
    assert!(!victim.job.wait().success(), "{}", victim.job.said());
    let acknowledged = victim.places.acknowledged();
    let shown = shown(&python, &victim.places.log());
    let about = format!("{acknowledged} flushes were acknowledged, and it shows {shown:?}");
    let is_it = |flush| shown == Shown::Flush(flush);
    assert!(is_it(acknowledged) || is_it(acknowledged + 1), "{about}");
    eprintln!("{about}");
    recover(&victim.places, shown, &python, &about);
}
