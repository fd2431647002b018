//! Random HDF5 programs (`tests/c/random`): their files with the connector equal those without it, and intermediate
//! reads return what HDF5 promises.
//!
//! `H5LOGFS_TEST_CASES` sets the number of programs of each test, `H5LOGFS_TEST_SEED` the first seed.

use crate::common::amount::each_variant;
use crate::common::jobs::hdf5;
use crate::common::nodes::Place;
use crate::common::twice::Twice;

#[track_caller]
fn programs(sessions: &[u32], usual: usize) {
    hdf5::programs(&Place::Here, sessions, usual);
}

#[test]
fn programs_without_mpi() {
    programs(&[0], 40);
}

/// Also those that append, on the same or on other numbers of ranks.
#[test]
fn programs_on_some_ranks() {
    let variants: &[(&[u32], usize)] = &[
        (&[1], 10),
        (&[2], 15),
        (&[4], 8),
        (&[1, 4, 2, 0], 5),
        (&[0, 0, 0], 10),
        (&[0, 3], 8),
    ];
    each_variant(variants, |(sessions, usual)| programs(sessions, *usual));
}

/// Automatic flushes in every call, or with several ranks in every second collective one.
#[test]
fn programs_that_are_flushed_all_the_time() {
    let variants: &[&[u32]] = &[&[0], &[3]];
    each_variant(variants, |sessions| {
        let twice = Twice::with(vec![("H5LOGFS_FLUSH_EVERY", "0.000001".into())]);
        if hdf5::run(&Place::Here, &twice, sessions, hdf5::seeds(8)) {
            twice.compare();
        }
    });
}

/// A dataset is created at a point where the metadata blocks of ranks would differ if only the first rank flushed its
/// objects.
#[test]
fn a_program_whose_objects_need_another_block() {
    hdf5::programs_of(&Place::Here, &[4], 30..31);
}

/// Each close settles the files. A session that continues one has an ordinary file, so these are programs without
/// MPI: parallel HDF5 writes only to datasets with all chunks allocated.
#[test]
fn programs_whose_files_are_settled() {
    let twice = Twice::with(vec![("H5LOGFS_SETTLE", "yes".into())]);
    if hdf5::run(&Place::Here, &twice, &[0, 0], hdf5::seeds(10)) {
        twice.compare_settled();
    }
}
