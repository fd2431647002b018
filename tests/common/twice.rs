//! HDF5 programs that know nothing of logs, run twice: natively, and with the connector. Their files must be equal,
//! however they are read.

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

/// The runs of a program, and the directories of its files.
pub struct Twice {
    dir: TempDir,
    connector: Connector,
    /// Options of the run with the connector.
    options: Vec<Variable>,
}

impl Twice {
    pub fn new() -> Self {
        Twice::with(Vec::new())
    }

    /// Runs with these options of the connector.
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

    /// Files written without the connector.
    pub fn native(&self) -> PathBuf {
        self.dir.path().join("native")
    }

    /// Files written with the connector.
    pub fn logged(&self) -> PathBuf {
        self.dir.path().join("logged")
    }

    /// Runs the program, given the directory for its files and its environment.
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

    /// Checks that all files are logs, and read as the program meant them.
    #[track_caller]
    pub fn compare(&self) {
        let Some(python) = Python::new() else { return };
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

    /// Checks that all files are ordinary ones, which libhdf5 alone reads as the program meant them.
    #[track_caller]
    pub fn compare_settled(&self) {
        for name in names_in(&self.native()) {
            let mut inspect = Command::new(PROGRAM);
            let output = inspect
                .arg("inspect")
                .arg(self.logged().join(&name))
                .output();
            let said = said(&output.unwrap());
            // The machine's libhdf5 may be older than the program's and unable to read all attributes.
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

/// Runs a program with `ranks` ranks in some place. 0 stands for no mpirun, on this machine.
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

/// The command for that.
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
    // Open MPI 4.1's own I/O module reads and writes wrong elements for irregular selections.
    command.env("OMPI_MCA_io", "romio321");
    command.envs(variables.iter().cloned());
    command
}
