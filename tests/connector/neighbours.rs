//! Ranks that read unflushed data of other ranks (`tests/c/connector/neighbours.c`).

use crate::common::hosts::Hdf5;
use crate::common::nodes::Place;
use crate::common::twice::{Twice, Variable, by_ranks};

/// Runs the program on one node, with and without the connector.
#[track_caller]
fn read(ranks: u32, options: Vec<Variable>) {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "neighbours");
    let twice = Twice::with(options);
    twice.run(|dir, variables| {
        let file = dir.join("file.h5").to_str().unwrap().to_owned();
        let arguments = [file, "independent".to_owned()];
        by_ranks(&Place::Here, ranks, &program, &arguments, variables);
    });
    twice.compare();
}

#[test]
fn two_ranks_read_what_the_other_has_written() {
    read(2, Vec::new());
}

/// Buffers repeatedly fill up.
#[test]
fn four_ranks_read_what_others_have_spilled() {
    read(4, vec![("H5LOGFS_BUFFER_LIMIT", "64K".into())]);
}
