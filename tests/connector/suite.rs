//! The tests of h5py itself, which come with it: they pass and fail with the connector as they do without.

use crate::common::connector::Connector;
use crate::common::readers::Python;
use crate::common::suite::{count, differing, outcomes};

/// A minute: run by `make test-h5py`.
#[test]
#[ignore = "takes long"]
fn the_tests_of_h5py_come_out_as_without_the_connector() {
    let connector = Connector::new();
    let (Some(with), Some(without)) = (connector.passing_python(), Python::new()) else {
        return;
    };
    let (with, without) = (outcomes(&with), outcomes(&without));
    let differing = differing(&with, &without);
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    eprintln!("{}", count(&with));
}
