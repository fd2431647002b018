//! Random HDF5 programs (`tests/c/random`): what they leave with the connector equals what they leave without it, and what
//! they read in between is what HDF5 promises.
//!
//! `H5LOGFS_TEST_CASES` sets the number of programs of each test, `H5LOGFS_TEST_SEED` the first of them.

use crate::common::hosts::Hdf5;
use crate::common::mpirun::{cases, first_seed};
use crate::twice::{Twice, by_ranks};

/// Programs of several sessions that write the same files, each by so many ranks; 0 is a program without MPI.
#[track_caller]
fn programs(sessions: &[u32], usual: usize) {
    let twice = Twice::new();
    if run(&twice, sessions, usual) {
        twice.compare();
    }
}

/// `false` where they cannot be run here.
#[track_caller]
fn run(twice: &Twice, sessions: &[u32], usual: usize) -> bool {
    let Some(hdf5) = Hdf5::find() else {
        return false;
    };
    let program = hdf5.compiled_from("random", &["-lhdf5", "-lz"]);
    let ranks: Vec<String> = sessions.iter().map(u32::to_string).collect();
    let seeds = [first_seed() as usize, cases(usual)].map(|number| number.to_string());
    twice.run(|dir, variables| {
        // The one after the last reads everything.
        let last = sessions.last().unwrap();
        for (number, ranks_of) in sessions.iter().chain([last]).enumerate() {
            let mut arguments = vec![dir.to_str().unwrap().to_owned()];
            arguments.extend(seeds.clone());
            arguments.push(number.to_string());
            arguments.extend(ranks.clone());
            by_ranks(*ranks_of, &program, &arguments, variables);
        }
    });
    true
}

#[test]
fn programs_without_mpi() {
    programs(&[0], 40);
}

#[test]
fn programs_without_mpi_that_append() {
    programs(&[0, 0, 0], 10);
}

#[test]
fn programs_on_one_rank() {
    programs(&[1], 10);
}

#[test]
fn programs_on_two_ranks() {
    programs(&[2], 15);
}

#[test]
fn programs_on_four_ranks() {
    programs(&[4], 8);
}

#[test]
fn programs_on_more_and_fewer_ranks() {
    programs(&[1, 4, 2, 0], 5);
}

#[test]
fn programs_without_mpi_that_go_on_with_it() {
    programs(&[0, 3], 8);
}

/// Each close settles the files. A session that goes on with one has an ordinary file, so these are programs without MPI:
/// parallel HDF5 writes only to datasets that have all of their chunks.
#[test]
fn programs_whose_files_are_settled() {
    let twice = Twice::with(vec![("H5LOGFS_SETTLE", "yes".into())]);
    if run(&twice, &[0, 0], 10) {
        twice.compare_settled();
    }
}
