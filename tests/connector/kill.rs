//! HDF5 programs under the connector whose processes are all killed at once, at random instants: what was acknowledged as
//! flushed is there, and nothing else. They close their file now and then, and open it again to append; so the file has
//! been closed already, or is just being closed or opened.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use crate::common::jobs::hdf5::kill_at_random;
use crate::common::nodes::Place;

#[test]
fn killed_programs_leave_what_they_flushed() {
    kill_at_random(&Place::Here, 12);
}
