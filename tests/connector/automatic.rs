//! Programs that never flush, and are killed. The connector has flushed for them.

use std::path::Path;
use std::process::Command;
use std::thread;

use h5logfs_log::front::FRONT;
use h5logfs_log::journal::path_of;
use serde_json::Value;

use crate::common::PROGRAM;
use crate::common::amount::part;
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::jobs::steps::{Library, Stage, Way, kill_at_random};
use crate::common::readers::{Python, project, said};

/// Kills each of these programs at random times, several programs at the same time.
fn kill_all(ways: &[Way], at_once: bool) {
    let dir = tempfile::tempdir().unwrap();
    let Some(stage) = Stage::at(dir.path()) else {
        return;
    };
    if !at_once {
        return ways.iter().for_each(|way| kill_at_random(&stage, *way));
    }
    thread::scope(|scope| {
        for way in ways {
            scope.spawn(|| kill_at_random(&stage, *way));
        }
    });
}

#[test]
fn ranks_that_never_flush_lose_seconds() {
    let libraries = [
        Library::Hdf5,
        Library::Apart,
        Library::NetCdf,
        Library::Fortran,
    ];
    kill_all(&part(libraries.map(Way::parallel).into(), 2), false);
}

#[test]
fn processes_that_never_flush_lose_seconds() {
    let libraries = [
        Library::Hdf5,
        Library::NetCdf,
        Library::Fortran,
        Library::H5py,
    ];
    kill_all(&libraries.map(Way::alone), true);
}

fn inspected(log: &Path) -> Value {
    let mut inspect = Command::new(PROGRAM);
    let output = inspect.args(["inspect", "--json"]).arg(log);
    serde_json::from_slice(&output.output().unwrap().stdout).unwrap()
}

/// Requested flushes are distinguished from automatic ones, even without new data.
#[test]
fn a_flush_that_is_asked_for_counts_as_such() {
    let Some(python) = Python::new() else { return };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let code = "
import os, sys, h5py
import numpy as np
file = h5py.File(sys.argv[1], 'w')
dataset = file.create_dataset('dataset', 10, 'u1')
file.create_group('group')
# Nothing is written, but what was there is flushed.
nothing = dataset.id.get_space()
nothing.select_none()
dataset.id.write(nothing, nothing, np.zeros(10, 'u1'))
if sys.argv[2] != 'never':
    file.flush()
if sys.argv[2] == 'before':
    file.create_group('last')
    file.create_group('later')
os._exit(0)
";
    // Each call flushes the data written before it.
    let python = python.with_variables(connector.used_as("h5logfs flush_every=0.000001"));
    let mut found = Vec::new();
    for when in ["never", "now", "before"] {
        let log = dir.path().join(format!("{when}.h5"));
        python.run(code, &[&log, when.as_ref()]);
        let unclosed = inspected(&log)["unclosed"].clone();
        let flush = unclosed["flush"].as_u64().unwrap();
        // The field is there if the numbers differ.
        let asked = unclosed["asked"].as_u64().unwrap_or(flush);
        found.push((asked > 0, flush - asked));
        let recover = Command::new(PROGRAM).arg("recover").arg(&log).output();
        let told = said(&recover.unwrap());
        let words = match when {
            "never" => {
                "the newest is flush 3, an automatic one: its program has requested none".into()
            }
            "now" => "recovered 4 flushes".into(),
            _ => format!(
                "the newest is flush {flush}, an automatic one; the last one that its program requested is {asked}"
            ),
        };
        assert!(told.contains(&words), "{words}: {told}");
        assert_eq!(told.contains("automatic"), flush > asked, "{told}");
    }
    assert_eq!(found, [(false, 3), (true, 0), (true, 1)]);
}

/// The content of a journal without what distinguishes jobs: identifier, times, process, and checksums, which cover
/// these.
fn said_by_journal(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path_of(log)).unwrap();
    let line = |line: &str| serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
    let mut lines: Vec<Value> = text.lines().map(line).collect();
    let header = lines[0].as_object_mut().unwrap();
    assert!(header.remove("file").is_some() && header.remove("job").is_some());
    let commits = lines.iter_mut().filter_map(|line| line.get_mut("commit"));
    for commit in commits {
        assert!(commit.as_object_mut().unwrap().remove("time").is_some());
    }
    lines
}

/// A log is the same with an interval that never passes as without one.
#[test]
fn without_an_automatic_flush_the_log_is_what_it_was() {
    let Some(python) = Python::new() else { return };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let code = "
import os, sys, h5py, numpy as np
file = h5py.File(sys.argv[1], 'w')
file.attrs['title'] = 'steps'
rows = file.create_dataset('group/rows', (0, 5000), 'f8', maxshape=(None, 5000), chunks=(1, 5000))
for step in range(7):
    rows.resize((step + 1, 5000))
    rows[step] = step * 10000 + np.arange(5000)
    if step % 3 == 1:
        file.flush()
os._exit(0)
";
    let written = |how: &str| {
        let log = dir.path().join(format!("{how}.h5"));
        // Some rows go to the file before the flush, some after the last one.
        let vol = format!("h5logfs buffer_limit=64K;flush_every={how}");
        let python = python.with_variables(connector.used_as(&vol));
        python.run(code, &[&log]);
        let data = std::fs::read(&log).unwrap().split_off(FRONT as usize);
        (said_by_journal(&log), data)
    };
    let (without, with) = (written("0"), written("1h"));
    assert!(without == with, "{:?} and {:?}", without.0, with.0);
    let (journal, data) = without;
    let commits: Vec<&Value> = journal
        .iter()
        .filter_map(|line| line.get("commit"))
        .collect();
    assert_eq!(commits.len(), 2);
    // Earlier versions do not know the field `asked`.
    assert!(commits.iter().all(|commit| commit.get("asked").is_none()));
    let end = commits[1]["ends"][0].as_u64().unwrap();
    assert!(
        data.len() as u64 + FRONT > end,
        "nothing lies behind the flush"
    );
}

/// Data on disk are not safe before the first flush. A program that looks at the error stack finds this out once.
#[test]
fn a_program_that_has_never_flushed_is_warned_when_it_spills() {
    let Some(python) = Python::new() else { return };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let code = "
import ctypes, sys
import h5py, numpy as np
sys.path.insert(0, sys.argv[1])
import libhdf5
from libhdf5 import lib
path, flushes = sys.argv[2:4]
lib.H5Dwrite.argtypes = 5 * [ctypes.c_int64] + [ctypes.c_void_p]
ids = ctypes.c_int64 * 3
lib.H5Dwrite_multi.argtypes = [ctypes.c_size_t] + 4 * [ids] + [ctypes.c_int64, ctypes.c_void_p * 3]
file = h5py.File(path, 'w')
rows = file.create_dataset('rows', (4, 1 << 14), 'f8')
if flushes == 'yes':
    file.flush()
row = np.ones(1 << 14)
memory = h5py.h5s.create_simple(row.shape)
selected = rows.id.get_space()
for number in range(4):
    selected.select_hyperslab((number, 0), (1, 1 << 14))
    # Each row is more than the buffer takes.
    kind, place = h5py.h5t.NATIVE_DOUBLE.id, row.ctypes.data
    if flushes == 'multi':
        places = (ctypes.c_void_p * 3)(place, place, place)
        all = [ids(number, number, number) for number in (rows.id.id, kind, memory.id, selected.id)]
        assert lib.H5Dwrite_multi(3, *all, 0, places) >= 0
    else:
        assert lib.H5Dwrite(rows.id.id, kind, memory.id, selected.id, 0, place) >= 0
    print(*libhdf5.errors())
";
    let python = python.with_variables(connector.used_as("h5logfs buffer_limit=64K;flush_every=0"));
    let told = |name: &str, flushes: &str| {
        let (tools, log) = (project().join("tests/tools"), dir.path().join(name));
        let told = python.run(code, &[&tools, &log, flushes.as_ref()]);
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for how in ["no", "multi"] {
        let warned = told("never.h5", how);
        let warnings: Vec<&String> = warned.iter().filter(|line| !line.is_empty()).collect();
        let words = "never.h5: elements went to the disk before the first flush of this program";
        assert!(
            warnings.len() == 1 && warnings[0].contains(words),
            "{how}: {warned:?}"
        );
    }
    assert_eq!(told("flushed.h5", "yes"), [""; 4]);
}

/// The program has not requested the flush, so none of its calls fails. The data are flushed later.
#[test]
fn a_flush_that_fails_is_no_failure_of_the_call() {
    let Some(python) = Python::new() else { return };
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("a.h5");
    let code = "
import ctypes, os, sys
sys.path.insert(0, sys.argv[1])
import libhdf5
from libhdf5 import lib
path = sys.argv[2]
lib.H5Gcreate2.restype = ctypes.c_int64
lib.H5Gcreate2.argtypes = [ctypes.c_int64, ctypes.c_char_p] + 3 * [ctypes.c_int64]
file = lib.H5Fcreate(path.encode(), 2, 0, 0)
def make(name):
    assert lib.H5Gcreate2(file, name, 0, 0, 0) > 0, libhdf5.errors()
    return ' '.join(libhdf5.errors())
assert make(b'first') == ''
os.rename(path, path + '.away')
told = make(b'second')
assert 'a.h5' in told and 'This automatic flush failed' in told, told
os.rename(path + '.away', path)
assert make(b'third') == ''
os._exit(0)
";
    let python = python.with_variables(connector.used_as("h5logfs flush_every=0.000001"));
    python.run(code, &[&project().join("tests/tools"), &log]);
    let driver = Driver::new();
    let reader = driver.python().unwrap();
    let list = "import sys, h5py; print(*h5py.File(sys.argv[1], 'r'))";
    assert_eq!(reader.run(list, &[&log]).trim(), "first second");
}
