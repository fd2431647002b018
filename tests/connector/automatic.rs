//! Programs that never flush, and are killed: the connector has flushed for them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use h5logfs_log::front::FRONT;
use h5logfs_log::journal::path_of;
use serde_json::Value;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::killed::{Places, RANKS, Shown, Victim};
use crate::common::mpirun::{Job, Mpi};
use crate::common::nodes::Place;
use crate::common::readers::{Python, project, said};
use crate::common::{PROGRAM, wait_until};

/// Flushes soon, for programs with this connector.
fn options(connector: &Connector) -> Vec<(&'static str, OsString)> {
    connector.used_as("h5logfs flush_every=0.1s")
}

/// How many steps the file shows, each of them whole.
fn steps(python: &Python, places: &Places) -> u64 {
    let mut tool = python.tool("unasked.py");
    match Shown::by(&tool.arg(places.log()).output().unwrap()) {
        Shown::Flush(steps) => steps,
        Shown::Nothing => 0,
    }
}

/// What a running program has written comes into its file, again and again. Returns how much that is.
fn wait_for_flushes(python: &Python, places: &Places) -> u64 {
    let mut shown = 0;
    for _ in 0..3 {
        wait_until("more steps are written", || places.acknowledged() > shown);
        let written = places.acknowledged();
        wait_until("they are in the file", || {
            shown = steps(python, places);
            shown > written
        });
    }
    shown
}

fn inspected(log: &Path) -> Value {
    let mut inspect = Command::new(PROGRAM);
    let output = inspect.args(["inspect", "--json"]).arg(log);
    serde_json::from_slice(&output.output().unwrap().stdout).unwrap()
}

/// The program was killed when its file had shown so many steps.
fn check_what_is_left(python: &Python, places: &Places, before: u64) {
    let found = inspected(&places.log());
    let unclosed = &found["unclosed"];
    assert!(unclosed["flush"].as_u64() >= Some(3), "{found}");
    assert_eq!(unclosed["asked"], 0, "{found}");
    let notes = found["warnings"].to_string();
    let words = "an automatic one: its program has asked for none";
    assert!(notes.contains(words), "{notes}");
    let left = steps(python, places);
    assert!(left >= before, "{left} of {before} steps");
    for command in ["check", "recover"] {
        let (good, said) = places.h5logfs(command);
        assert!(good, "{command}: {said}");
    }
    assert_eq!(steps(python, places), left);
}

/// The Python that reads logs by the file driver.
fn reader() -> Option<(Driver, Python)> {
    let driver = Driver::new();
    let python = Python::new()?.with_variables(driver.used());
    Some((driver, python))
}

#[test]
fn ranks_that_never_flush_lose_little() {
    let (Some(hdf5), Some((_driver, python))) = (Hdf5::find(), reader()) else {
        return;
    };
    let connector = Connector::new();
    let places = Places::new(&Place::Here);
    let program = hdf5.compiled("connector", "unasked");
    let mut mpirun = Mpi::of_build().run(RANKS, &program);
    mpirun.args([&places.log(), places.notes.path()]);
    mpirun.envs(options(&connector));
    let mut victim = Victim {
        job: Job::launch(mpirun),
        places,
    };
    let mut ranks = victim.ranks();
    let shown = wait_for_flushes(&python, &victim.places);
    victim.kill(&mut ranks, 0);
    check_what_is_left(&python, &victim.places, shown);
}

#[test]
fn a_process_that_never_flushes_loses_little() {
    let Some((_driver, python)) = reader() else {
        return;
    };
    let connector = Connector::new();
    let places = Places::new(&Place::Here);
    let writer = Python::new().unwrap().with_variables(options(&connector));
    let mut command = writer.tool("unasked.py");
    command
        .arg("write")
        .args([&places.log(), places.notes.path()]);
    let mut running = command.spawn().unwrap();
    let shown = wait_for_flushes(&python, &places);
    running.kill().unwrap();
    running.wait().unwrap();
    check_what_is_left(&python, &places, shown);
}

/// What the program means is told apart from what the clock has done, also where nothing is new.
#[test]
fn a_flush_that_is_asked_for_counts_as_such() {
    let Some(python) = Python::new() else {
        return;
    };
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
    // Each call flushes what was there before it.
    let python = python.with_variables(connector.used_as("h5logfs flush_every=0.000001"));
    let mut found = Vec::new();
    for when in ["never", "now", "before"] {
        let log = dir.path().join(format!("{when}.h5"));
        python.run(code, &[&log, when.as_ref()]);
        let unclosed = inspected(&log)["unclosed"].clone();
        let flush = unclosed["flush"].as_u64().unwrap();
        // It is told where it is another one.
        let asked = unclosed["asked"].as_u64().unwrap_or(flush);
        found.push((asked > 0, flush - asked));
        let recover = Command::new(PROGRAM).arg("recover").arg(&log).output();
        let told = said(&recover.unwrap());
        let words = match when {
            "never" => {
                "the newest is flush 3, an automatic one: its program has asked for none".into()
            }
            "now" => "recovered 4 flushes".into(),
            _ => format!(
                "the newest is flush {flush}, an automatic one; the last that its program asked for is {asked}"
            ),
        };
        assert!(told.contains(&words), "{words}: {told}");
        assert_eq!(told.contains("automatic"), flush > asked, "{told}");
    }
    assert_eq!(found, [(false, 3), (true, 0), (true, 1)]);
}

/// What a journal says, but for what tells one job from another: identifier, time and process, and the checksums, which are
/// about these, too.
fn said_by_journal(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path_of(log)).unwrap();
    let line = |line: &str| serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
    let mut lines: Vec<Value> = text.lines().map(line).collect();
    let header = lines[0].as_object_mut().unwrap();
    assert!(header.remove("file").is_some() && header.remove("job").is_some());
    lines
}

/// A clock that never strikes leaves no trace: what is on the disk is what it is without one.
#[test]
fn without_an_automatic_flush_the_log_is_what_it_was() {
    let Some(python) = Python::new() else {
        return;
    };
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
    // Earlier versions did not know this word.
    assert!(commits.iter().all(|commit| commit.get("asked").is_none()));
    let end = commits[1]["ends"][0].as_u64().unwrap();
    assert!(
        data.len() as u64 + FRONT > end,
        "nothing lies behind the flush"
    );
}

/// What goes to the disk before the first flush is not safe. A program that looks at the error stack finds that, once.
#[test]
fn a_program_that_has_never_flushed_is_warned_when_it_spills() {
    let Some(python) = Python::new() else {
        return;
    };
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
    assert lib.H5Dwrite(rows.id.id, h5py.h5t.NATIVE_DOUBLE.id, memory.id, selected.id, 0, row.ctypes.data) >= 0
    print(*libhdf5.errors())
";
    let python = python.with_variables(connector.used_as("h5logfs buffer_limit=64K;flush_every=0"));
    let told = |name: &str, flushes: &str| {
        let (tools, log) = (project().join("tests/tools"), dir.path().join(name));
        let told = python.run(code, &[&tools, &log, flushes.as_ref()]);
        told.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let warned = told("never.h5", "no");
    let warnings: Vec<&String> = warned.iter().filter(|line| !line.is_empty()).collect();
    let words = "never.h5: elements went to the disk before the first flush of this program";
    assert!(
        warnings.len() == 1 && warnings[0].contains(words),
        "{warned:?}"
    );
    assert_eq!(told("flushed.h5", "yes"), [""; 4]);
}

/// The program has not asked for it, so nothing of the program fails. What could not be flushed is flushed later.
#[test]
fn a_flush_that_fails_is_no_failure_of_the_call() {
    let Some(python) = Python::new() else {
        return;
    };
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
assert 'a.h5' in told and 'No flush was asked for' in told, told
os.rename(path + '.away', path)
assert make(b'third') == ''
os._exit(0)
";
    let python = python.with_variables(connector.used_as("h5logfs flush_every=0.000001"));
    python.run(code, &[&project().join("tests/tools"), &log]);
    let (_driver, reader) = reader().unwrap();
    let list = "import sys, h5py; print(*h5py.File(sys.argv[1], 'r'))";
    assert_eq!(reader.run(list, &[&log]).trim(), "first second");
}
