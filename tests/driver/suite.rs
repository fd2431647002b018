//! The test suite of h5py: outcomes with the driver equal those without it.

use crate::common::driver::Driver;
use crate::common::readers::Python;
use crate::common::suite::{count, differing, outcomes};

/// A minute and a half: run by `make test-h5py`.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_come_out_as_without_the_driver() {
    let driver = Driver::new();
    let (Some(with), Some(without)) = (driver.python(), Python::new()) else {
        return;
    };
    let (with, without) = (outcomes(&with), outcomes(&without));
    let differing = differing(&with, &without);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    eprintln!("{}", count(&with));
}
