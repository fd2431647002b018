//! C++ programs whose callbacks throw. An exception passes through the plug-ins to the program, and these continue as
//! before.

use std::ffi::OsString;
use std::process::Command;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::make::built_vol_api;

#[test]
fn exceptions_of_the_program_come_back_to_it() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.cxx("exceptions", &["-ldl"]);
    // The outcome of each call.
    let run = |variables: Vec<(&'static str, OsString)>| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&program);
        command.envs(variables).current_dir(dir.path());
        command.args(["log.h5", "other.h5"]).arg(built_vol_api());
        succeed(&mut command)
    };
    let natively = run(vec![]);
    assert!(
        natively.contains("written: H5Literate: link a\n"),
        "{natively}"
    );
    let connector = Connector::new();
    for (way, variables) in [
        ("the file driver", Driver::new().used()),
        ("the connector", connector.used()),
        ("the connector, and no log", connector.passing()),
    ] {
        assert_eq!(run(variables), natively, "{way}");
    }
}
