//! The damaged corpus, mounted.

use crate::common::damaged::{self, Way};
use crate::common::readers::Python;
use crate::common::{User, can_mount};

#[test]
fn damage_is_an_error_or_not_seen() {
    let Some(python) = Python::old() else {
        return;
    };
    if can_mount(User::Caller) {
        damaged::damage_is_an_error_or_not_seen(&Way::Mount, &python, &python);
    }
}
