//! Programs that know HDF5 and nothing of logs, run twice: as they are, and with the connector. What they leave must be
//! the same, however it is read.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::common::connector::Connector;
use crate::common::driver::Driver;
use crate::common::hosts::succeed;
use crate::common::mpirun::{Job, Mpi};
use crate::common::nodes::Place;
use crate::common::readers::{Python, said};
use crate::common::{Mounted, PROGRAM, User, can_mount, names_in};

/// A variable of the environment.
pub type Variable = (&'static str, OsString);

/// How often a program runs, and where it leaves its files.
pub struct Twice {
    dir: TempDir,
    connector: Connector,
    /// Of the run with the connector.
    options: Vec<Variable>,
}

impl Twice {
    pub fn new() -> Self {
        Twice::with(Vec::new())
    }

    /// With these options of the connector.
    pub fn with(options: Vec<Variable>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["native", "logged", "exported"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Twice {
            dir,
            connector: Connector::new(),
            options,
        }
    }

    /// What the program leaves without the connector.
    pub fn native(&self) -> PathBuf {
        self.dir.path().join("native")
    }

    /// What it leaves with it.
    pub fn logged(&self) -> PathBuf {
        self.dir.path().join("logged")
    }

    /// Lets it run: with the directory for its files, and its environment.
    pub fn run(&self, mut program: impl FnMut(&Path, &[Variable])) {
        program(&self.native(), &[]);
        program(&self.logged(), &self.variables());
    }

    /// The environment with the connector.
    pub fn variables(&self) -> Vec<Variable> {
        let mut variables = self.connector.used();
        variables.extend(self.options.iter().cloned());
        variables
    }

    /// All files are logs, and read as the program meant them.
    #[track_caller]
    pub fn compare(&self) {
        let Some(python) = Python::new() else {
            return;
        };
        let logs = names_in(&self.native());
        for name in &logs {
            self.export(name);
        }
        let exported = self.dir.path().join("exported");
        let mut failures = Vec::new();
        let mut check = |how: &str, python: &Python, got: &Path| {
            let mut tool = python.tool("samefiles.py");
            let output = tool.arg(got).arg(self.native()).output().unwrap();
            if !output.status.success() {
                failures.push(format!("{how}: {}", said(&output)));
            }
        };
        check("exported", &python, &exported);
        let driver = Driver::new();
        let by_driver = python.with_variables(driver.used());
        check("by the driver", &by_driver, &self.logged());
        let connector = python.with_variables(self.connector.used());
        check("by the connector", &connector, &self.logged());
        if can_mount(User::Caller) {
            let mounted = Mounted::new(&self.logged(), "");
            check("mounted", &python, mounted.path());
        }
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }

    /// All files are ordinary ones, and read as the program meant them, by libhdf5 alone.
    #[track_caller]
    pub fn compare_settled(&self) {
        for name in names_in(&self.native()) {
            let mut inspect = Command::new(PROGRAM);
            let output = inspect
                .arg("inspect")
                .arg(self.logged().join(&name))
                .output();
            let said = said(&output.unwrap());
            // The libhdf5 of the machine may be older than that of the program, and then cannot read all attributes.
            let is_too_new = said.contains("bad version number for datatype message");
            let is_plain = said.contains("not a log file: plain HDF5");
            assert!(is_plain || is_too_new, "{said}");
        }
        if let Some(python) = Python::new() {
            let mut tool = python.tool("samefiles.py");
            succeed(tool.arg(self.logged()).arg(self.native()));
        }
    }

    #[track_caller]
    fn export(&self, name: &str) {
        let log = self.logged().join(name);
        let inspected = succeed(Command::new(PROGRAM).arg("inspect").arg(&log));
        assert!(
            inspected.contains("Log VOL"),
            "{name} is no log: {inspected}"
        );
        let mut export = Command::new(PROGRAM);
        export
            .arg("export")
            .arg(log)
            .arg(self.dir.path().join("exported").join(name));
        succeed(&mut export);
    }
}

/// Runs a program in some place by so many ranks, or without mpirun by none, which is on this machine.
#[track_caller]
pub fn by_ranks(
    place: &Place,
    ranks: u32,
    program: &Path,
    arguments: &[String],
    variables: &[Variable],
) {
    let mut command = command_by_ranks(place, ranks, program, variables);
    command.args(arguments);
    Job::launch(command).succeed();
}

/// What runs a program that way.
pub fn command_by_ranks(
    place: &Place,
    ranks: u32,
    program: &Path,
    variables: &[Variable],
) -> Command {
    let mut command = if ranks == 0 {
        Command::new(program)
    } else {
        Mpi::of_build().run_at(place, ranks, program)
    };
    // That of Open MPI 4.1 itself writes and reads wrong elements where selections are irregular.
    command.env("OMPI_MCA_io", "romio321");
    command.envs(variables.iter().cloned());
    command
}
