//! The option `settle` of the connector: the close leaves an ordinary HDF5 file, or fails, leaves the log, and says why.
//! `random.rs` compares files of random programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::amount::each_variant;
use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::Hdf5;
use crate::common::mpirun::{Job, Mpi};
use crate::common::readers::{Python, said};
use crate::common::settled::{is_silent, settle_by_command};
use crate::common::{PROGRAM, is_root};

/// Makes a file with some datasets whose chunks stay in place, and others.
const MAKE: &str = "
import fcntl, os, resource, sys
import h5py, numpy as np
path, hindrance, objects = sys.argv[1:]
try:
    with h5py.File(path, 'w') as f:
        whole = f.create_dataset('whole', (100, 50), 'f8', chunks=(10, 50))
        for row in range(0, 100, 10):
            whole[row:row + 10] = row
        packed = f.create_dataset('group/packed', (100, 50), 'f8', chunks=(10, 50), compression='gzip')
        packed[5:95] = np.arange(50)
        f.create_dataset('rows', (0,), 'i4', maxshape=(None,), chunks=(8,)).resize((20,))
        f['rows'][:] = range(20)
        f.attrs['x'] = 1
        if objects == 'all':
            f['text'] = 'text'
        f.flush()
        if hindrance == 'lock':
            lock = open(path)
            fcntl.flock(lock, fcntl.LOCK_SH)
        if hindrance.isdigit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(hindrance), resource.RLIM_INFINITY))
        if hindrance == 'descriptors':
            # All numbers below that of the next descriptor are taken.
            next_one = fcntl.fcntl(0, fcntl.F_DUPFD, 3)
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_one + 1, most))
        if hindrance == 'user':
            os.setuid(65534)
except Exception:
    # The log is closed; the file is, too, at the next call.
    f.close()
    assert not f
    raise
";

/// Runs the program with these options of the connector.
fn make(connector: &Connector, options: &str, path: &Path, hindrance: &str) -> Option<Output> {
    made_by(PROGRAM, connector, options, path, [hindrance, "all"])
}

/// Runs the program with `program` in place of h5logfs. `objects`: `all`, or only objects of logs that a program closes
/// by itself.
fn made_by(
    program: &str,
    connector: &Connector,
    options: &str,
    path: &Path,
    [hindrance, objects]: [&str; 2],
) -> Option<Output> {
    let python = Python::new()?.with_variables(connector.used_as(options));
    let mut command = python.command();
    command.env("H5LOGFS_PROGRAM", program).args(["-c", MAKE]);
    command.arg(path).args([hindrance, objects]);
    Some(command.output().unwrap())
}

#[test]
fn a_close_settles_the_file() {
    let (connector, driver) = (Connector::new(), Driver::new());
    let dir = tempfile::tempdir().unwrap();
    let (log, file) = (dir.path().join("log.h5"), dir.path().join("file.h5"));
    for (path, options) in [(&log, "h5logfs"), (&file, "h5logfs settle=yes")] {
        let Some(made) = make(&connector, options, path, "none") else {
            return;
        };
        assert!(
            made.status.success() && made.stderr.is_empty(),
            "{}",
            said(&made)
        );
    }
    assert!(settle_by_command(&file).contains("settled already"));
    is_silent(&file).unwrap();
    let view = dir.path().join("view.h5");
    let mut export = Command::new(PROGRAM);
    let exported = export.arg("export").args([&log, &view]).output().unwrap();
    assert!(exported.status.success(), "{}", said(&exported));
    for python in Python::all() {
        python.same(&file, &view).unwrap();
    }
    // Programs with the connector or the driver treat it like any other file.
    let change = "
import sys, h5py
path = sys.argv[1]
with h5py.File(path) as f:
    assert f['rows'][19] == 19
if len(sys.argv) > 2:
    with h5py.File(path, 'r+') as f:
        f['rows'].resize((40,))
        f['rows'][20:] = 7
        f['new'] = [1, 2]
    with h5py.File(path) as f:
        assert f['rows'][19:21].tolist() == [19, 7] and f['whole'][99, 0] == 90
";
    let Some(python) = Python::new() else { return };
    let by_driver = python.with_variables(driver.used());
    by_driver.run(change, &[&file]);
    let by_connector = python.with_variables(connector.used());
    by_connector.run(change, &[&file, Path::new("write")]);
    let read = "import sys, h5py; print(h5py.File(sys.argv[1])['rows'][:].sum())";
    assert_eq!(python.run(read, &[&file]).trim(), "330");
}

#[test]
fn a_log_that_cannot_be_settled_stays_a_log() {
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.h5");
    if make(&connector, "h5logfs", &log, "none").is_none() {
        return;
    }
    // No file grows beyond the log.
    let most = (log.metadata().unwrap().len() + 64).to_string();
    let locked = "another program has it open, as its lock shows";
    let killed = "the program that closes it was killed by signal 25";
    for (hindrance, words) in [("lock", locked), (&most, killed)] {
        let path = dir.path().join(hindrance);
        let Some(made) = make(&connector, "h5logfs settle=yes", &path, hindrance) else {
            return;
        };
        let said = said(&made);
        let name = path.display();
        let first = format!("{name}: closed, but not settled: {words}");
        let last = format!("The log is whole, and `h5logfs settle {name}` can be run later");
        // The close fails with an error of libhdf5, but the log is closed.
        assert!(!made.status.success(), "{said}");
        assert!(said.contains(&first) && said.contains(&last), "{said}");
        assert!(settle_by_command(&path).contains(": settled: "));
        let read = "import sys, h5py; print(h5py.File(sys.argv[1])['rows'][:].sum())";
        for python in Python::all() {
            assert_eq!(python.run(read, &[&path]).trim(), "190");
        }
    }
    let path = dir.path().join("parts.h5");
    let options = "h5logfs settle=yes;subfiles=2";
    let Some(made) = make(&connector, options, &path, "none") else {
        return;
    };
    assert!(!made.status.success(), "made");
    let words = "the option `settle` is for a log in one file";
    assert!(said(&made).contains(words), "{}", said(&made));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
}

/// Texts about a closed log, and about an unclosed one, that cannot be settled.
const NOT_SETTLED: [&str; 2] = [
    "closed, but not settled: ",
    "The log stays unclosed, with all that was written",
];

/// Closes the log at `path` if necessary, and reads it, settled.
fn is_whole(path: &Path, dataset: &str, sum: u32) {
    let mut recover = Command::new(PROGRAM);
    let recovered = recover.arg("recover").arg(path).output().unwrap();
    assert!(recovered.status.success(), "{}", said(&recovered));
    assert!(settle_by_command(path).contains(": settled: "));
    let read = "import sys, h5py; print(h5py.File(sys.argv[1])[sys.argv[2]][:].sum())";
    for python in Python::all() {
        let read = python.run(read, &[path, dataset.as_ref()]);
        assert_eq!(read.trim(), sum.to_string(), "{}", path.display());
    }
}

#[test]
fn whatever_keeps_a_close_from_settling_the_program_is_told() {
    let connector = Connector::new();
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let cases = [
        ("missing", "/nonexistent/h5logfs", "none"),
        ("fails", "/bin/false", "none"),
        ("descriptors", PROGRAM, "descriptors"),
        ("user", PROGRAM, "user"),
    ];
    for (name, program, hindrance) in cases {
        if hindrance == "user" && !is_root() {
            continue;
        }
        each_variant(&["all", "own"], |objects| {
            let path = dir.path().join(format!("{name}-{objects}.h5"));
            let options = "h5logfs settle=yes";
            let made = made_by(program, &connector, options, &path, [hindrance, objects]);
            let Some(made) = made else { return };
            let said = said(&made);
            assert!(!made.status.success(), "{name}: {said}");
            assert!(
                NOT_SETTLED.iter().any(|words| said.contains(words)),
                "{name}: {said}"
            );
            assert!(said.contains(&path.display().to_string()), "{name}: {said}");
            // The repeated close has succeeded.
            assert!(!said.contains("the file is closed"), "{name}: {said}");
            is_whole(&path, "rows", 190);
        });
    }
}

#[test]
fn all_ranks_are_told_that_their_file_is_not_settled() {
    let (connector, Some(hdf5)) = (Connector::new(), Hdf5::find()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    each_variant(&["/nonexistent/h5logfs", "/bin/false"], |program| {
        for (objects, words) in ["none", "type"].into_iter().zip(NOT_SETTLED) {
            let path = dir.path().join("log.h5");
            let mut mpirun = Mpi::of_build().run(2, &hdf5.compiled("connector", "settles"));
            mpirun.arg(&path).arg(objects);
            mpirun.envs(connector.used_as("h5logfs settle=yes"));
            mpirun.env("H5LOGFS_PROGRAM", program);
            let said = Job::launch(mpirun).succeed();
            for rank in 0..2 {
                let line = format!("rank {rank}: ");
                let line = said.lines().find_map(|l| l.strip_prefix(&line));
                assert!(
                    line.is_some_and(|line| line.contains(words)),
                    "{program}: {said}"
                );
            }
            is_whole(&path, "ranks", 1);
            fs::remove_file(path).unwrap();
        }
    });
}

/// The first rank settles the shared file.
#[test]
fn the_file_of_several_ranks_is_settled() {
    let (connector, Some(hdf5)) = (Connector::new(), Hdf5::find()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.h5");
    for ranks in [2, 4] {
        let mut mpirun = Mpi::of_build().run(ranks, &hdf5.compiled("connector", "flushes"));
        mpirun
            .args([path.as_path(), dir.path()])
            // The programs close the file once.
            .args(["7", "7"])
            .envs(connector.used_as("h5logfs settle=yes"));
        Job::launch(mpirun).succeed();
        assert!(settle_by_command(&path).contains("settled already"));
        is_silent(&path).unwrap();
        for python in Python::all() {
            let shown = python.tool("flushes.py").arg(&path).output().unwrap();
            assert_eq!(said(&shown), "7\n");
        }
    }
}
