//! A log whose lock is invisible to another process because of its file system: `h5logfs recover` closes it, or a job
//! reopens it, while the first program still runs. The first program is then refused, and changes nothing of the
//! others' work.

use std::fs;
use std::path::Path;
use std::process::Command;

use h5logfs_log::journal::path_of;

use crate::common::PROGRAM;
use crate::common::amount::each_variant;
use crate::common::connector::Connector;
use crate::common::hosts::succeed;
use crate::common::readers::Python;
use crate::common::unseen::without_locks;

/// Writes and flushes, lets another process at the log, and continues: by a flush, by a write that goes to the file
/// at once, or by a close. Each is refused.
const PROGRAM_OF_PYTHON: &str = "
import os, subprocess, sys
import h5py, numpy as np
path, go_on = sys.argv[1:3]
f = h5py.File(path, 'w')
f.create_dataset('x', data=np.arange(100000), chunks=(1000,))
f['pending'] = np.arange(3)
f.flush()
if go_on == 'spilled':
    f['x'][:] = -1
subprocess.run(sys.argv[3:], check=True)
def content():
    base = os.path.basename(path)
    names = [n for n in os.listdir(os.path.dirname(path)) if n.startswith(base)]
    return {n: open(os.path.join(os.path.dirname(path), n), 'rb').read() for n in sorted(names)}
before = content()
def refused(call):
    try:
        call()
    except Exception as e:
        assert 'Nothing was written' in str(e) or 'close' in str(e).lower(), e
    else:
        raise AssertionError('not refused')
def write(f):
    f['x'][0:10] = 7
    f.flush()
if go_on in ('write', 'spilled'):
    refused(lambda: write(f))
elif go_on == 'large':
    refused(lambda: f['x'].__setitem__(slice(None), np.full(100000, 7)))
else:
    f['x'][0:10] = 7
refused(f.close)
assert content() == before, [n for n in before if content().get(n) != before[n]]
os._exit(0)
";

/// The other process's changes of the log.
const APPEND: &str = "
import os, sys
import h5py
f = h5py.File(sys.argv[1], 'r+')
f['other'] = [1, 2, 3]
f.flush()
if sys.argv[2] == 'close':
    f.close()
os._exit(0)
";

const READ: &str = "
import sys
import h5py, numpy as np
with h5py.File(sys.argv[1], 'r') as f:
    assert (f['x'][:] == np.arange(100000)).all(), f['x'][:]
    assert ('other' in f) == (sys.argv[2] != 'recover')
";

fn check(connector: &Connector, python: &Python, go_on: &str, other: &str) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    let mut command = python.command();
    command.args(["-c", PROGRAM_OF_PYTHON]).arg(&log).arg(go_on);
    if other == "recover" {
        command.args([PROGRAM, "recover"]).arg(&log);
    } else {
        let interpreter = python.command();
        command.arg(interpreter.get_program());
        command.args(["-c", APPEND]).arg(&log).arg(other);
    }
    succeed(without_locks(&mut command));
    if path_of(&log).exists() {
        succeed(Command::new(PROGRAM).arg("recover").arg(&log));
    }
    let reader = python.with_variables(connector.used());
    reader.run(READ, &[&log, Path::new(other)]);
    assert!(fs::read_dir(dir.path()).unwrap().count() <= 2);
}

#[test]
fn a_program_that_goes_on_changes_nothing_of_what_others_have_made() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let python = python.with_variables(connector.used_as("h5logfs buffer_limit=1M"));
    for go_on in ["write", "large", "spilled", "close"] {
        each_variant(&["recover", "close", "leave"], |other| {
            check(&connector, &python, go_on, other);
        });
    }
}
