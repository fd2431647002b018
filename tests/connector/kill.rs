//! HDF5 programs under the connector whose processes are all killed at once, at random times: exactly the
//! acknowledged flushes must be there. They close their file now and then, and reopen it to append; so the file may
//! be closed, or be just closing or opening.
//!
//! `H5LOGFS_TEST_CASES` sets the number of kills, `H5LOGFS_TEST_SEED` the first seed.

use crate::common::jobs::hdf5::kill_at_random;
use crate::common::nodes::Place;

#[test]
fn killed_programs_leave_what_they_flushed() {
    kill_at_random(&Place::Here, 12);
}
