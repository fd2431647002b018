//! Programs that fork while they write a log. The log belongs to the process that opened it. All calls of a child are
//! refused, and the child's end changes no byte. The program is `tests/c/connector/forks.c`.

use std::path::Path;
use std::process::Command;

use crate::common::PROGRAM;
use crate::common::amount::part;
use crate::common::connector::Connector;
use crate::common::hosts::{Hdf5, succeed};
use crate::common::nodes::Place;
use crate::common::twice::by_ranks;

/// Options of the connector.
const OPTIONS: [&str; 4] = ["", "settle=yes", "subfiles=2", "fsync=flush"];
/// Ways in which the program opens the file.
const HOW: [&str; 3] = ["new", "append", "idle"];
/// Times at which the child continues.
const WHEN: [&str; 3] = ["first", "after", "later"];
/// Actions of the child.
pub const WHAT: [&str; 11] = [
    "exit",
    "exec",
    "close",
    "library",
    "flush",
    "write",
    "objects",
    "read",
    "own",
    "grandchild",
    "clone",
];

/// All possible combinations. A settled file cannot be reopened, because it is no log.
fn cases() -> Vec<[&'static str; 4]> {
    let mut cases = Vec::new();
    for options in OPTIONS {
        for how in HOW {
            for when in WHEN {
                if options != "settle=yes" || (how == "new" && when != "later") {
                    cases.extend(WHAT.map(|what| [options, how, when, what]));
                }
            }
        }
    }
    cases
}

#[test]
fn a_child_changes_nothing() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "forks");
    let connector = Connector::new();
    for [options, how, when, what] in part(cases(), 13) {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&program);
        command.envs(connector.used_as(&format!("h5logfs {options}")));
        let file = dir.path().join("file.h5");
        succeed(command.arg(&file).args([how, when, what]));
        if options != "settle=yes" {
            succeed(Command::new(PROGRAM).arg("check").arg(&file));
        }
    }
}

/// Children of a rank are no ranks.
#[test]
fn a_child_of_ranks_changes_nothing() {
    let Some(hdf5) = Hdf5::find() else { return };
    let program = hdf5.compiled("connector", "forks");
    let connector = Connector::new();
    let cases = cases().into_iter();
    let parallel = cases.filter(|[options, how, when, what]| {
        ["", "subfiles=2"].contains(options)
            && *how != "idle"
            && *when != "after"
            && ["exit", "close", "flush", "write", "read"].contains(what)
    });
    for [options, how, when, what] in part(parallel.collect(), 10) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file.h5").to_str().unwrap().to_owned();
        let arguments = [file.as_str(), how, when, what, "parallel"].map(str::to_owned);
        let variables = connector.used_as(&format!("h5logfs {options}"));
        by_ranks(&Place::Here, 2, &program, &arguments, &variables);
    }
}

/// The child ends normally, after its parent was killed.
#[test]
fn a_child_that_outlives_a_killed_program_leaves_what_was_flushed() {
    let Some(hdf5) = Hdf5::find() else { return };
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file.h5");
    for how in ["new", "append"] {
        for what in ["exit", "close", "write"] {
            let mut command = Command::new(hdf5.compiled("connector", "forks"));
            command.envs(connector.used());
            // The output ends when the last process does.
            let output = command.arg(&file).args([how, "killed", what]).output();
            assert_eq!(output.unwrap().status.code(), None);
            succeed(Command::new(PROGRAM).arg("recover").arg(&file));
            python.run(READ, &[&file]);
        }
    }
}

const READ: &str = "
import sys
import h5py, numpy as np
with h5py.File(sys.argv[1], 'r') as f:
    assert (f['x'][:] == ord('x') * np.arange(1000)).all()
";

/// Programs of h5py: a child of `os.fork` that ends by `sys.exit`, a child of `multiprocessing`, and a child that goes
/// on with the objects of its parent.
const PYTHON: &str = "
import multiprocessing, os, sys
import h5py, numpy as np
path, how = sys.argv[1:]
def child(f):
    if how == 'close':
        f.close()
    elif how == 'write':
        for write in (lambda: f['x'].__setitem__(0, 1), lambda: f.create_group('g'), f.flush):
            try:
                write()
            except Exception as e:
                assert f'process {os.getppid()} has opened the file' in str(e), e
            else:
                os._exit(3)
    elif how == 'read':
        assert f['x'][999] == 999 and (f['y'][:] == 7).all()
f = h5py.File(path, 'w')
f['x'] = np.arange(1000)
f.flush()
f['y'] = np.full(1000, 7)
if how == 'multiprocessing':
    process = multiprocessing.get_context('fork').Process(target=child, args=(f,))
    process.start()
    process.join()
    assert process.exitcode == 0
else:
    pid = os.fork()
    if pid == 0:
        child(f)
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
f['z'] = [1, 2, 3]
f.close()
with h5py.File(path, 'r') as f:
    assert (f['x'][:] == np.arange(1000)).all() and (f['y'][:] == 7).all() and f['z'][2] == 3
";

#[test]
fn a_child_of_h5py_changes_nothing() {
    let connector = Connector::new();
    let Some(python) = connector.python() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for how in ["exit", "close", "write", "read", "multiprocessing"] {
        let path = dir.path().join(how);
        python.run(PYTHON, &[&path, Path::new(how)]);
    }
}
