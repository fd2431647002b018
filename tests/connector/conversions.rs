//! Programs whose own functions run within a call, and use the log that the call reads or writes.

use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};

/// Longer than the program takes on a busy machine. The time only passes if the program hangs.
const HANGS: Duration = Duration::from_secs(120);

/// The results equal those without the connector, and no call waits for something that its own conversion holds.
#[test]
fn conversions_of_the_program_use_the_log() {
    let Some(hdf5) = Hdf5::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    let connector = Connector::new();
    let mut program = Command::new(hdf5.compiled("connector", "conversions"));
    let mut running = program.envs(connector.used()).arg(&log).spawn().unwrap();
    let id = running.id();
    let (done, wait) = mpsc::channel();
    let waiting = thread::spawn(move || done.send(running.wait().unwrap()));
    let ended = wait.recv_timeout(HANGS);
    if ended.is_err() {
        succeed(Command::new("kill").args(["-KILL", &id.to_string()]));
    }
    waiting.join().unwrap().ok();
    assert!(ended.is_ok_and(|status| status.success()), "{ended:?}");
    let Some(python) = connector.python() else {
        return;
    };
    let read = "
import sys, h5py
with h5py.File(sys.argv[1]) as f:
    assert f['values'][:].tolist() == [3, 1, -4, 1, 5, -9], f['values'][:]
    assert f['joined'][:].tolist() == [3, 1, -4, 1, 5, -9], f['joined'][:]
    assert f['calls'][:].tolist() == [1, 2, 3], f['calls'][:]
";
    python.run(read, &[&log]);
}
