//! `h5logfs-compact-mpi` on several nodes.

use std::path::Path;
use std::process::Command;

use crate::common::amount::{cases, first_seed};
use crate::common::jobs::compact::{Killed, ended, makes_the_same, others_than, start};
use crate::common::nodes::{Nodes, Place};
use crate::common::readers::corpus;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_h5logfs-compact-mpi"))
}

#[track_caller]
fn mount(mut command: Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// The second node sees the log on a file system with another device number, as with NFS.
#[test]
fn nodes_make_the_same_file_as_threads() {
    let Some(nodes) = Nodes::new(2) else { return };
    let (dir, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let logs = corpus();
    let layers = format!("lowerdir={}:{}", logs.display(), empty.path().display());
    let mut overlay = nodes.on(1, "mount");
    overlay
        .args(["-t", "overlay", "overlay", "-o", &layers])
        .arg(&logs);
    mount(overlay);
    let log = logs.join("subfile.log.h5");
    let options = ["--deflate", "1", "--verify"];
    makes_the_same(
        program(),
        &Place::Nodes(nodes),
        3,
        &log,
        dir.path(),
        &options,
    )
    .unwrap();
}

#[test]
fn a_directory_that_nodes_do_not_share_is_told() {
    let Some(nodes) = Nodes::new(2) else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut own = nodes.on(1, "mount");
    own.args(["-t", "tmpfs", "own"]).arg(dir.path());
    mount(own);
    let log = corpus().join("subfile.log.h5");
    let out = dir.path().join("out.h5");
    let (status, said) = ended(start(program(), &Place::Nodes(nodes), 2, &log, &out, &[]));
    assert_eq!(status, Some(1), "{said}");
    assert_eq!(
        said.matches("must share its directory").count(),
        1,
        "{said}"
    );
    assert!(said.contains("rank 1: "), "{said}");
    assert_eq!(others_than("", dir.path()), [""; 0]);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn killed_ranks_leave_the_old_file_or_the_new_one() {
    let Some(nodes) = Nodes::new(2) else { return };
    let killed = Killed::new(program(), Place::Nodes(nodes));
    for seed in (first_seed()..).take(cases(6)) {
        killed.kill(seed);
    }
}

fn a_node_dies(victim: usize) {
    if let Some(nodes) = Nodes::new(2) {
        Killed::new(program(), Place::Nodes(nodes)).kill_node(victim);
    }
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn power_of_the_first_node_fails() {
    a_node_dies(0);
}

#[test]
#[ignore = "takes long: make test-cluster"]
fn power_of_the_second_node_fails() {
    a_node_dies(1);
}
