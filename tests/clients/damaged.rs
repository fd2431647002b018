//! The damaged corpus: mounted, and in the reader's process, which survives.

use crate::common::amount::each_variant;
use crate::common::damaged::{self, Way};
use crate::common::driver::Driver;
use crate::common::readers::Python;
use crate::common::{User, can_mount};

#[test]
fn damage_is_an_error_or_not_seen() {
    let (Some(old), Some(new)) = (Python::old(), Python::new()) else {
        return;
    };
    each_variant(&["mount", "driver"], |way| match *way {
        "mount" if can_mount(User::Caller) => {
            damaged::damage_is_an_error_or_not_seen(&Way::Mount, &old, &old);
        }
        "mount" => {}
        _ => {
            let way = Way::Driver(Driver::new());
            damaged::damage_is_an_error_or_not_seen(&way, &new, &old);
        }
    });
}
