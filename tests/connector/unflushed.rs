//! Programs killed before they flush: their data is reported, shown, kept and included.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use h5logfs_log::logvol::names::spill_dir;
use h5logfs_output::Options;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::element::WIDTH;
use crate::common::hosts::Hdf5;
use crate::common::killed::{Places, RANKS, Victim};
use crate::common::mpirun::{Job, Mpi};
use crate::common::nodes::Place;
use crate::common::readers::{Python, project, said};
use crate::common::rows::{self, Course};
use crate::common::{Mounted, PROGRAM, User, can_mount, names_in};

/// Writes rows into a file that is never flushed, or only before them, and is killed. The file's superblock has a
/// checksum.
const WRITE: &str = "
import os, signal, sys
import h5py, numpy as np
f = h5py.File(sys.argv[1], 'w', libver=('v110', 'latest'))
rows = f.create_dataset('rows', (0, 10000), 'f8', maxshape=(None, 10000), chunks=(1, 10000))
if sys.argv[2] == 'flush':
    f.flush()
for row in range(100):
    rows.resize((row + 1, 10000))
    rows[row] = row * 1e6 + np.arange(10000)
os.kill(os.getpid(), signal.SIGKILL)
";

/// Prints the number of rows in a file, all of which must be right.
const READ: &str = "
import sys
import h5py, numpy as np
with h5py.File(sys.argv[1], 'r') as f:
    rows = f['rows'][:]
wanted = np.arange(len(rows))[:, None] * 1e6 + np.arange(10000)
assert (rows == wanted).all(), np.argwhere(rows != wanted)[:3]
print(len(rows))
";

fn run(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(dir).output().unwrap()
}

#[track_caller]
fn says(dir: &Path, arguments: &[&str], words: &[&str]) {
    let output = run(dir, arguments);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    for word in words {
        assert!(said.contains(word), "no \"{word}\" in: {said}");
    }
}

/// A program of one process leaves `log.h5`, without automatic flushes.
fn left(how: &str) -> Option<tempfile::TempDir> {
    left_with(how, "0")
}

/// A program of one process leaves `log.h5`, with this time between flushes.
fn left_with(how: &str, flush_every: &str) -> Option<tempfile::TempDir> {
    let python = Connector::new().python()?;
    let connector = Connector::new();
    let vol = format!("h5logfs buffer_limit=1M;flush_every={flush_every}");
    let python = python.with_variables(connector.used_as(&vol));
    let dir = tempfile::tempdir().unwrap();
    let mut command = python.command();
    command
        .args(["-c", WRITE])
        .arg(dir.path().join("log.h5"))
        .arg(how);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), None, "{}", self::said(&output));
    Some(dir)
}

#[test]
fn a_program_that_never_flushed_loses_nothing_without_a_word() {
    let Some(dir) = left("never") else { return };
    let dir = dir.path();
    let kept = "log.h5.h5logfs-unflushed";
    for command in ["inspect", "ls", "check"] {
        says(
            dir,
            &[command, "log.h5"],
            &["MB in 1 rank that no flush covers"],
        );
    }
    says(dir, &["check", "log.h5"], &["later data are not flushed"]);
    says(
        dir,
        &["recover", "--dry-run", "log.h5"],
        &["would be kept in", "would recover 0 flushes"],
    );
    assert_eq!(names_in(dir), ["log.h5", "log.h5.h5logfs-journal"]);
    let before = fs::metadata(dir.join("log.h5")).unwrap().len();
    says(
        dir,
        &["recover", "log.h5"],
        &["that no flush covers", kept, "recovered 0 flushes"],
    );
    assert_eq!(names_in(dir), ["log.h5", kept]);
    let after = fs::metadata(dir.join(kept)).unwrap().len();
    assert!(
        before - after < 64 << 10,
        "{before} bytes, {after} of them kept"
    );
    says(dir, &["recover", "log.h5"], &["already closed", kept]);
    says(
        dir,
        &["recover", "--discard-unflushed", "log.h5"],
        &["removed", kept],
    );
    assert_eq!(names_in(dir), ["log.h5"]);
}

/// Most programs never flush, and may be killed before the first automatic flush.
#[test]
fn what_is_spilled_before_the_first_flush_can_be_taken_in() {
    let driver = Driver::new();
    let (Some(dir), Some(python)) = (left_with("never", "1h"), driver.python()) else {
        return;
    };
    says(
        dir.path(),
        &["recover", "--unflushed", "log.h5"],
        &["merged", "/rows grows from", "recovered 2 flushes"],
    );
    assert_eq!(names_in(dir.path()), ["log.h5"]);
    let rows: usize = python
        .run(READ, &[&dir.path().join("log.h5")])
        .trim()
        .parse()
        .unwrap();
    // A buffer has up to 12 rows, and the last one dies with the program.
    assert!((86..=100).contains(&rows), "{rows} rows");
}

#[test]
fn what_a_program_wrote_after_its_flush_is_shown_and_taken_in() {
    let Some(dir) = left("flush") else { return };
    let Some(python) = Python::new() else {
        return;
    };
    let rows = |path: &Path| python.run(READ, &[path]).trim().parse::<usize>().unwrap();
    let log = dir.path().join("log.h5");
    if can_mount(User::Caller) {
        let usual = Mounted::new(dir.path(), "");
        assert_eq!(rows(&usual.join("log.h5")), 0);
        let mounted = Mounted::new(dir.path(), "show_unflushed=on");
        // A buffer has up to 12 rows, and the last one dies with the program.
        assert!((86..=100).contains(&rows(&mounted.join("log.h5"))));
    }
    says(
        dir.path(),
        &["recover", "--unflushed", "log.h5"],
        &[
            "merged",
            "/rows grows from [0, 10000]",
            "recovered 2 flushes",
        ],
    );
    assert_eq!(names_in(dir.path()), ["log.h5"]);
    let reader = Driver::new();
    let Some(python) = reader.python() else {
        return;
    };
    let read: usize = python.run(READ, &[&log]).trim().parse().unwrap();
    assert!((86..=100).contains(&read), "{read} rows");
}

/// Reopens a file, adds a row, and closes it. Prints the number of rows before, all of which must be right.
const GO_ON: &str = "
import sys
import h5py, numpy as np
with h5py.File(sys.argv[1], 'r+') as f:
    rows = f['rows']
    before = len(rows)
    for row in range(before):
        assert (rows[row] == row * 1e6 + np.arange(10000)).all(), row
    rows.resize((before + 1, 10000))
    rows[before] = before * 1e6 + np.arange(10000)
print(before)
";

/// Opens a file, and prints the error stack.
const TOLD: &str = "
import sys
sys.path.insert(0, sys.argv[1])
import libhdf5
assert libhdf5.lib.H5Fopen(sys.argv[2].encode(), 1, 0) > 0
print(*libhdf5.errors())
";

/// The successor of a killed program decides from where it continues.
#[test]
fn a_program_goes_on_from_what_no_flush_covers_where_it_wants_that() {
    let Some(dir) = left("flush") else { return };
    let (connector, driver) = (Connector::new(), Driver::new());
    let (Some(plain), Some(reader)) = (Python::new(), driver.python()) else {
        return;
    };
    let by_variable = [connector.used(), vec![("H5LOGFS_UNFLUSHED", "yes".into())]].concat();
    let by_string = connector.used_as("h5logfs unflushed=yes");
    let goes_on = |dir: &Path, variables| {
        let log = dir.join("log.h5");
        let python = plain.with_variables(variables);
        let before: usize = python.run(GO_ON, &[&log]).trim().parse().unwrap();
        let after: usize = reader.run(READ, &[&log]).trim().parse().unwrap();
        assert_eq!(after, before + 1);
        before
    };
    let copy = || {
        let copy = tempfile::tempdir().unwrap();
        for name in names_in(dir.path()) {
            fs::copy(dir.path().join(&name), copy.path().join(&name)).unwrap();
        }
        copy
    };
    // A buffer has up to 12 rows, and the last one dies with the program.
    let all = 86..=100;
    for variables in [by_variable, by_string.clone()] {
        let killed = copy();
        let before = goes_on(killed.path(), variables);
        assert!(all.contains(&before), "{before} rows");
        assert_eq!(names_in(killed.path()), ["log.h5"]);
    }
    // Data kept when the log was closed.
    let closed = copy();
    says(closed.path(), &["recover", "log.h5"], &["kept in"]);
    let before = goes_on(closed.path(), by_string.clone());
    assert!(all.contains(&before), "{before} rows");
    assert_eq!(names_in(closed.path()), ["log.h5"]);
    // Without the option it is kept, and useless for a log that has continued.
    let without = copy();
    assert_eq!(goes_on(without.path(), connector.used()), 0);
    assert_eq!(goes_on(without.path(), by_string.clone()), 1);
    let (tools, log) = (project().join("tests/tools"), without.path().join("log.h5"));
    let told = plain.with_variables(by_string).run(TOLD, &[&tools, &log]);
    assert!(told.contains("the log has gone on since"), "{told}");
    let kept = "log.h5.h5logfs-unflushed";
    assert_eq!(names_in(without.path()), ["log.h5", kept]);
}

/// A resubmitted job truncates the log of ranks on two nodes. Their spilled data is in separate files until a flush,
/// and stays with its log.
#[test]
fn files_of_spilled_data_go_along_with_a_log_that_is_kept() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let (Some(python), Some(reader)) = (connector.python(), driver.python()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    let mut job = rows::Job::create(&[log.clone(), log.clone()], &Options::default());
    (0..2).for_each(|_| job.flush(Course::default()));
    job.write(Course::default());
    job.spill();
    job.leave();
    let spilled = names_in(&spill_dir(&log));
    assert_eq!(spilled, ["0.0", "0.1"]);
    let truncate = "import sys, h5py; h5py.File(sys.argv[1], 'w')['new'] = 1";
    python.run(truncate, &[&log]);
    let kept = "log.h5.killed-1";
    let parts = ["", ".h5logfs-journal", ".h5logfs-spill"].map(|part| format!("{kept}{part}"));
    assert_eq!(
        names_in(dir.path()),
        [&["log.h5".to_owned()], &parts[..]].concat()
    );
    assert_eq!(names_in(&spill_dir(&dir.path().join(kept))), spilled);
    let taken = ["merged", "recovered 3 flushes"];
    says(dir.path(), &["recover", "--unflushed", kept], &taken);
    assert_eq!(names_in(dir.path()), ["log.h5", kept]);
    let code = "
import sys, h5py, numpy as np
rows = h5py.File(sys.argv[1], 'r')['rows'][:]
wanted = np.arange(1, 4)[:, None] * 1000000 + np.arange(rows.shape[1])
assert (rows == wanted).all(), rows
print(*rows.shape, *h5py.File(sys.argv[2], 'r'))
";
    let shown = reader.run(code, &[&dir.path().join(kept), &log]);
    assert_eq!(shown.trim(), format!("3 {} new", 2 * WIDTH));
}

/// Element by element: where a rank has lost its part of a row, the fill value reads.
const READ_PARTS: &str = "
import sys
import h5py, numpy as np
width = 10000
with h5py.File(sys.argv[1], 'r') as f:
    rows = f['rows'][:]
wanted = np.arange(len(rows))[:, None] * 1000000 + np.arange(rows.shape[1])
for rank in range(rows.shape[1] // width):
    own = np.s_[:, rank * width:(rank + 1) * width]
    good = (rows[own] == wanted[own]).all(axis=1)
    count = len(good) if good.all() else int(np.argmin(good))
    assert (rows[own][count:] == 0).all(), (rank, count)
    print(count)
";

/// Ranks leave a log with 40 rows after the flush.
fn left_by_ranks(hdf5: &Hdf5, connector: &Connector) -> Victim {
    let places = Places::new(&Place::Here);
    let program = hdf5.compiled("connector", "unflushed");
    let mut mpirun = Mpi::of_build().run_at(&Place::Here, RANKS, &program);
    mpirun.args([&places.log(), places.notes.path()]).arg("40");
    mpirun.envs(connector.used());
    mpirun.env("H5LOGFS_BUFFER_LIMIT", "128K");
    let job = Job::launch(mpirun);
    let mut victim = Victim { job, places };
    let mut ranks = victim.ranks();
    assert!(victim.wait_for("written"), "{}", victim.job.said());
    victim.kill(&mut ranks, 0);
    victim
}

/// Number of rows of each rank in the log.
fn rows_of_ranks(python: &Python, log: &Path) -> Vec<usize> {
    let counts = python.run(READ_PARTS, &[log]);
    counts.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn ranks_that_were_killed_have_each_what_it_had() {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let victim = left_by_ranks(hdf5, &Connector::new());
    let dir = victim.places.logs.path();
    for command in ["inspect", "ls", "check"] {
        says(
            dir,
            &[command, "log.h5"],
            &["in 4 ranks that no flush covers"],
        );
    }
    says(
        dir,
        &["recover", "log.h5"],
        &["that no flush covers: kept in"],
    );
    says(
        dir,
        &["recover", "--unflushed", "log.h5"],
        &["merged", "recovered 2 flushes"],
    );
    assert_eq!(names_in(dir), ["log.h5"]);
    let counts = rows_of_ranks(&python, &victim.places.log());
    assert_eq!(counts.len(), RANKS as usize);
    // A buffer has up to three rows.
    assert!(counts.iter().all(|count| *count >= 36), "{counts:?}");
}

/// The first rank includes it for all, or the open fails on all of them for one reason.
#[test]
fn ranks_go_on_from_what_no_flush_covers() {
    let driver = Driver::new();
    let (Some(hdf5), Some(python)) = (Hdf5::find(), driver.python()) else {
        return;
    };
    let connector = Connector::new();
    let victim = left_by_ranks(hdf5, &connector);
    let log = victim.places.log();
    let program = hdf5.compiled("connector", "goes_on");
    let goes_on = |variables: &[(&str, &str)]| {
        let mut mpirun = Mpi::of_build().run(RANKS, &program);
        mpirun.arg(&log);
        mpirun.envs(connector.used_as("h5logfs unflushed=yes"));
        mpirun.envs(variables.iter().copied());
        let output = mpirun.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let told = String::from_utf8(output.stdout).unwrap();
        let mut told: Vec<String> = told.lines().map(str::to_owned).collect();
        told.sort();
        told
    };
    let before = names_in(victim.places.logs.path());
    let refused = goes_on(&[("H5LOGFS_PROGRAM", "/nowhere/h5logfs")]);
    let reason =
        "unflushed data are merged by the program h5logfs, and /nowhere/h5logfs cannot be started";
    assert!(refused[0].contains(reason), "{refused:?}");
    assert_eq!(refused, vec![refused[0].clone(); RANKS as usize]);
    assert_eq!(names_in(victim.places.logs.path()), before);
    let told = goes_on(&[]);
    assert_eq!(told, vec![told[0].clone(); RANKS as usize]);
    let rows = told[0].strip_suffix(" rows").unwrap();
    assert_eq!(names_in(victim.places.logs.path()), ["log.h5"]);
    let counts = rows_of_ranks(&python, &log);
    // A buffer has up to three rows.
    assert!(counts.iter().all(|count| *count >= 36), "{counts:?}");
    let more = "import sys, h5py; print(*h5py.File(sys.argv[1], 'r')['more'][:])";
    assert_eq!(
        python.run(more, &[&log]).trim(),
        [rows; RANKS as usize].join(" ")
    );
}
