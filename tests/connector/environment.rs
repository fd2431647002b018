//! HDF5's environment variables, which users set for their programs. Commands ignore them, and so do the processes
//! that they start, except the user's programs.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::PROGRAM;
use crate::common::amount::is_whole;
use crate::common::connector::Connector;
use crate::common::once::{once, shared_dir};
use crate::common::readers::{project, said};

/// Variables that libhdf5 reads, from 1.10 to 2.2, with senseless values or values that would make a command call
/// itself.
const VARIABLES: [(&str, &str); 31] = [
    ("H5D_mpio_Debug", "nonsense"),
    ("H5FD_IOC_THREAD_POOL_SIZE", "nonsense"),
    ("H5FD_SUBFILING_CONFIG_FILE_PREFIX", "/nonsense"),
    ("H5FD_SUBFILING_IOC_PER_NODE", "nonsense"),
    ("H5FD_SUBFILING_IOC_SELECTION_CRITERIA", "nonsense"),
    ("H5FD_SUBFILING_STRIPE_SIZE", "nonsense"),
    ("H5FD_SUBFILING_SUBFILE_PREFIX", "/nonsense"),
    ("H5FD_mpio_Debug", "rw"),
    ("H5_COLL_API_SANITY_CHECK", "1"),
    ("H5_REQUIRE_IOC", "1"),
    ("HDF5_DEBUG", "+all trace"),
    ("HDF5_DISABLE_VERSION_CHECK", "nonsense"),
    ("HDF5_DO_MPI_FILE_SYNC", "nonsense"),
    ("HDF5_DRIVER", "nonsense"),
    ("HDF5_DRIVER_CONFIG", "nonsense"),
    ("HDF5_EXTFILE_PREFIX", "/nonsense"),
    ("HDF5_EXT_PREFIX", "/nonsense"),
    ("HDF5_MPI_OPT_TYPES", "nonsense"),
    ("HDF5_NOCLEANUP", "1"),
    ("HDF5_PLUGIN_KEYSTORE", "/nonsense"),
    ("HDF5_PLUGIN_PATH", "/nonsense"),
    ("HDF5_PLUGIN_PRELOAD", "::"),
    ("HDF5_PREFER_WINDOWS_CODE_PAGE", "1"),
    ("HDF5_ROS3_VFD_DEBUG", "1"),
    ("HDF5_ROS3_VFD_FORCE_PATH_STYLE", "nonsense"),
    ("HDF5_ROS3_VFD_LOG_FILE", "nonsense"),
    ("HDF5_ROS3_VFD_LOG_LEVEL", "nonsense"),
    ("HDF5_TEST_DRIVER", "nonsense"),
    ("HDF5_USE_FILE_LOCKING", "nonsense"),
    ("HDF5_VDS_PREFIX", "/nonsense"),
    ("HDF5_VOL_CONNECTOR", "h5logfs settle=nonsense"),
];

/// Variables by which commands find subfiles.
const KNOWN: [&str; 2] = [
    "H5FD_SUBFILING_CONFIG_FILE_PREFIX",
    "H5FD_SUBFILING_SUBFILE_PREFIX",
];

/// A closed log, and one that only libhdf5 can close.
const MAKE: &str = "
import os
import h5py, numpy
for name in 'closed.h5', 'left.h5':
    f = h5py.File(name, 'w')
    f['x'] = range(100)
    f['text'] = 'a text'
    f['type'] = numpy.dtype('i2')
    f.flush()
    if name == 'closed.h5':
        f.close()
os._exit(0)
";

/// The commands, run in a shell in a directory with the logs.
const COMMANDS: [&str; 16] = [
    "$h5logfs recover left.h5",
    "$h5logfs recover --dry-run left.h5",
    "$h5logfs recover closed.h5",
    "$h5logfs recover left.h5 && $h5logfs settle left.h5 && $h5logfs settle --undo left.h5",
    "$h5logfs inspect left.h5 closed.h5",
    "$h5logfs check left.h5 closed.h5",
    "$h5logfs ls .",
    "$h5logfs export closed.h5 out.h5 && cksum out.h5",
    "$h5logfs compact left.h5 out.h5 && cksum out.h5",
    "${h5logfs}-compact-mpi closed.h5 out.h5 && cksum out.h5",
    "$h5logfs report closed.h5 left.h5 -o out.html",
    "$h5logfs follow --until closed closed.h5",
    "mkdir view && $h5logfs config view",
    "mkdir view && $h5logfs run . view -- cksum view/left.h5",
    "mkdir view && $h5logfs mount . view && cksum view/closed.h5; $h5logfs umount view",
    // mount(8) calls it by this name.
    "ln -s $h5logfs mount.h5logfs && mkdir view && ./mount.h5logfs . view -o index_dir=none && cksum view/left.h5; $h5logfs umount view",
];

struct Place {
    connector: Connector,
    logs: TempDir,
    notes: PathBuf,
    shim: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        let connector = Connector::new();
        let logs = tempfile::tempdir().unwrap();
        let mut python = connector.python()?.command();
        let made = python.args(["-c", MAKE]).current_dir(&logs).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", said(&made));
        Some(Place {
            connector,
            notes: logs.path().join("notes"),
            logs,
            shim: shim(),
        })
    }

    /// The output of a command with these variables.
    fn run(&self, command: &str, variables: &[(&str, OsString)]) -> (Output, String) {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(&self.logs).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(dir.path());
        shell
            .env("h5logfs", PROGRAM)
            .env("XDG_CACHE_HOME", dir.path());
        // Only root starts a job.
        shell
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        for (name, _) in VARIABLES {
            shell.env_remove(name);
        }
        shell
            .env("LD_PRELOAD", &self.shim)
            .env("ASKED_NOTES", &self.notes);
        shell.envs(variables.iter().cloned());
        let output = shell.output().unwrap();
        let notes = fs::read_to_string(&self.notes).unwrap_or_default();
        let _ = fs::remove_file(&self.notes);
        (output, notes)
    }

    /// The value of a variable, or the plug-ins of this build.
    fn value(&self, name: &str, value: &str) -> OsString {
        match name {
            "HDF5_PLUGIN_PATH" => self.connector.plugins().into(),
            _ => value.into(),
        }
    }
}

/// A library that records which variables a program reads.
fn shim() -> PathBuf {
    let dir = shared_dir("asked");
    let source = project().join("tests/c/asked.c");
    let library = dir.join("asked.so");
    once(&dir, &[&source], || {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC"]).arg(&source);
        assert!(cc.arg("-o").arg(&library).status().unwrap().success());
    });
    library
}

/// The part that is equal each time: no times.
fn comparable(output: &Output) -> String {
    let said = said(output);
    let lines = said.lines().filter(|line| !line.contains("seconds"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn commands_take_no_notice_of_them() {
    let Some(place) = Place::new() else { return };
    let all = |name: &str, value: &str| (name.to_owned(), place.value(name, value));
    let all: Vec<(String, OsString)> = VARIABLES.map(|(name, value)| all(name, value)).into();
    let each = all.iter().map(|one| vec![one.clone()]);
    // Plug-ins can still be loaded.
    let loading = all.iter().filter(|(name, _)| name != "HDF5_PLUGIN_PRELOAD");
    let together = [all.clone(), loading.cloned().collect()];
    let together = || together.iter().cloned();
    for (number, command) in COMMANDS.into_iter().enumerate() {
        let (expected, _) = place.run(command, &[]);
        // The first one closes a log with libhdf5, in its own process.
        let tried: Vec<_> = if number == 0 || is_whole() {
            each.clone().chain(together()).collect()
        } else {
            together().collect()
        };
        for variables in tried {
            let variables: Vec<_> = variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.clone()))
                .collect();
            let (output, notes) = place.run(command, &variables);
            let about = format!("{command} with {variables:?}");
            assert_eq!(comparable(&output), comparable(&expected), "{about}");
            assert_eq!(output.status, expected.status, "{about}");
            let noticed: Vec<&str> = notes.lines().filter(|name| !KNOWN.contains(name)).collect();
            assert!(noticed.is_empty(), "{about}: noticed {noticed:?}");
        }
    }
    // A user's program has them.
    let program = "mkdir view && $h5logfs run . view -- printenv HDF5_VOL_CONNECTOR";
    let value = OsString::from("h5logfs");
    let (output, _) = place.run(program, &[("HDF5_VOL_CONNECTOR", value)]);
    if place
        .run("mkdir view && $h5logfs run . view -- true", &[])
        .0
        .status
        .success()
    {
        assert_eq!(said(&output), "h5logfs\n");
    }
}

/// A library that reads variables shows that the recording works.
#[test]
fn what_a_program_asks_for_is_noted() {
    let Some(place) = Place::new() else { return };
    let Some(python) = place.connector.python() else {
        return;
    };
    let mut python = python.command();
    python
        .env("LD_PRELOAD", &place.shim)
        .env("ASKED_NOTES", &place.notes);
    let read = "import h5py; h5py.File('closed.h5')";
    let read = python.args(["-c", read]).current_dir(&place.logs).output();
    assert!(read.unwrap().status.success());
    let notes = fs::read_to_string(&place.notes).unwrap();
    assert!(notes.contains("HDF5_VOL_CONNECTOR\n"), "{notes}");
}
