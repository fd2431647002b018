//! The damaged corpus in the reader's process, which survives.

use crate::common::damaged::{self, Way};
use crate::common::driver::Driver;
use crate::common::readers::Python;

#[test]
fn damage_is_an_error_or_not_seen() {
    let (Some(python), Some(native)) = (Python::new(), Python::old()) else {
        return;
    };
    let way = Way::Driver(Driver::new());
    damaged::damage_is_an_error_or_not_seen(&way, &python, &native);
}
