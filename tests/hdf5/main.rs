//! Runs the tests that come with HDF5 through our plug-ins. `expected.txt` holds the expected results, natively and for
//! each way of using a plug-in. A worse result fails the test. A better result is reported, so that the table can be
//! updated.
//!
//! | module | contents |
//! |---|---|
//! | `table` | the table of expected results |
//! | `report` | the output and the end of a program |
//! | `judge` | a table of our own, for all types and properties |
//!
//! `make test-hdf5` builds the programs and sets `H5LOGFS_TEST_HDF5` to their directory, and `H5LOGFS_TEST_HDF5_2` to
//! the directory of the programs with HDF5 2.2. Without these variables nothing runs.

#[path = "../common/mod.rs"]
mod common;

mod judge;
mod report;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::connector::Connector;
use common::driver::Driver;
use common::mpirun::{Job, Mpi};
use common::once::shared_dir;
use report::{End, Report};
use table::Table;

/// Limit of the processor time of all processes of a program. No program that ends comes near it.
const MOST_CPU: Duration = Duration::from_secs(600);

/// Prefix of a program with HDF5 2.2.
const LATER: &str = "2.2";

/// Limit of the elapsed time of a program. Other programs may keep the machine busy.
const LONGEST: Duration = Duration::from_secs(2400);

/// A way of running programs: its name in the table, and its environment.
struct Way {
    name: &'static str,
    variables: Vec<(&'static str, OsString)>,
}

/// Programs of one process, under `mpirun`, or of one process with HDF5 2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Programs {
    Serial,
    Parallel,
    Later,
}

fn native() -> Way {
    Way {
        name: "native",
        variables: Vec::new(),
    }
}

/// HDF5's own pass-through connector.
fn pass_through() -> Way {
    let connector = "pass_through under_vol=0;under_info={}";
    Way {
        name: "pass_through",
        variables: vec![("HDF5_VOL_CONNECTOR", connector.into())],
    }
}

#[test]
fn natively() {
    check(&native(), Programs::Serial);
}

#[test]
fn through_the_connector_that_passes_all_on() {
    check(&pass_through(), Programs::Serial);
}

#[test]
fn through_the_driver() {
    check_driver(Programs::Serial);
}

#[test]
fn through_the_connector() {
    check_connector("connector", "h5logfs", Programs::Serial);
}

#[test]
fn through_the_connector_with_subfiles() {
    check_connector("subfiles", "h5logfs subfiles=2", Programs::Serial);
}

#[test]
fn through_the_connector_that_settles() {
    check_connector("settle", "h5logfs settle=yes", Programs::Serial);
}

#[test]
fn through_the_connector_without_logs() {
    check_connector("passing", "h5logfs match=none", Programs::Serial);
}

#[test]
fn parallel_natively() {
    check(&native(), Programs::Parallel);
}

#[test]
fn parallel_through_the_connector_that_passes_all_on() {
    check(&pass_through(), Programs::Parallel);
}

#[test]
fn parallel_through_the_connector() {
    check_connector("connector", "h5logfs", Programs::Parallel);
}

#[test]
fn parallel_through_the_connector_with_subfiles() {
    check_connector("subfiles", "h5logfs subfiles=2", Programs::Parallel);
}

#[test]
fn parallel_through_the_connector_that_settles() {
    check_connector("settle", "h5logfs settle=yes", Programs::Parallel);
}

#[test]
fn parallel_through_the_connector_without_logs() {
    check_connector("passing", "h5logfs match=none", Programs::Parallel);
}

#[test]
fn later_natively() {
    check(&native(), Programs::Later);
}

#[test]
fn later_through_the_driver() {
    check_driver(Programs::Later);
}

#[test]
fn later_through_the_connector() {
    check_connector("connector", "h5logfs", Programs::Later);
}

#[test]
fn later_through_the_connector_that_settles() {
    check_connector("settle", "h5logfs settle=yes", Programs::Later);
}

#[test]
fn later_through_the_connector_without_logs() {
    check_connector("passing", "h5logfs match=none", Programs::Later);
}

fn check_driver(programs: Programs) {
    let driver = Driver::new();
    let way = Way {
        name: "driver",
        variables: driver.used(),
    };
    check(&way, programs);
}

fn check_connector(name: &'static str, connector: &str, programs: Programs) {
    let plugins = Connector::new();
    let way = Way {
        name,
        variables: plugins.used_as(connector),
    };
    check(&way, programs);
}

/// Runs the table's commands in one way, and compares the results.
fn check(way: &Way, programs: Programs) {
    let Some(built) = std::env::var_os(programs.variable()) else {
        eprintln!("skipped: make test-hdf5 builds and runs the tests of HDF5");
        return;
    };
    let built = PathBuf::from(built);
    let only = std::env::var("H5LOGFS_TEST_ONLY").unwrap_or_default();
    let outputs = shared_dir(&format!("hdf5/{}", way.name));
    let is_written = std::env::var_os("H5LOGFS_TEST_WRITE_HDF5").is_some();
    let mut worse = Vec::new();
    for (command, expected) in Table::read().of(way.name) {
        if !command.contains(&only) || Programs::of(&command) != programs {
            continue;
        }
        let start = Instant::now();
        let (report, said) = run(&built, &command, way);
        let seconds = start.elapsed().as_secs();
        let output = outputs.join(command.replace(' ', "_"));
        fs::write(&output, said).unwrap();
        eprintln!("{}: {command}: {} ({seconds} s)", way.name, report.row());
        if is_written {
            Table::replace(&command, way.name, report);
            continue;
        }
        for what in report.worse_than(&expected) {
            worse.push(format!("{command}: {what}: see {}", output.display()));
        }
        for what in report.better_than(&expected) {
            eprintln!("{}: {command}: better than in the table: {what}", way.name);
        }
    }
    assert!(worse.is_empty(), "{}:\n{}", way.name, worse.join("\n"));
}

impl Programs {
    fn of(command: &str) -> Self {
        match command.split_once(' ') {
            Some(("mpirun", _)) => Programs::Parallel,
            Some((LATER, _)) => Programs::Later,
            _ => Programs::Serial,
        }
    }

    /// The variable with the directory of the programs.
    fn variable(self) -> &'static str {
        match self {
            Programs::Serial | Programs::Parallel => "H5LOGFS_TEST_HDF5",
            Programs::Later => "H5LOGFS_TEST_HDF5_2",
        }
    }
}

/// Runs a command of the table in its own directory. In `first && second` the second program uses the files of the
/// first. `*` stands for each test that the program lists, each in its own process.
fn run(built: &Path, command: &str, way: &Way) -> (Report, String) {
    let dir = tempfile::tempdir().unwrap();
    // Some tests change the files that come with them.
    let sources = built.join("source/test/testfiles");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(&sources).arg(dir.path());
    assert!(copy.status().unwrap().success(), "{}", sources.display());
    let mut report = Report::default();
    let mut all = String::new();
    let mut ended = |program: &str| {
        let (end, said) = wait(start(built, program, way, dir.path()));
        all.push_str(&said);
        (end, said)
    };
    for program in command.split(" && ") {
        let Some(program) = program.strip_suffix(" *") else {
            let (end, said) = ended(program);
            report.add(end, &said);
            continue;
        };
        let (_, help) = ended(&format!("{program} -help"));
        let tests = report::listed(&help);
        assert!(!tests.is_empty(), "{help}");
        for test in &tests {
            let (end, said) = ended(&format!("{program}{}", alone(test, &tests)));
            report.add_whole(test, end, &said);
        }
    }
    (report, all)
}

/// The arguments that run a single test. A reading test follows the one that writes, because programs delete their
/// files.
fn alone(test: &str, tests: &[String]) -> String {
    let writing = test.strip_suffix('r').map(|begin| format!("{begin}w"));
    let before = writing.filter(|writing| tests.contains(writing));
    let before = before.map(|writing| format!(" -only {writing}"));
    format!("{} -only {test}", before.unwrap_or_default())
}

/// Starts a program of the table; with `mpirun -n N` before it, a parallel one.
fn start(built: &Path, command: &str, way: &Way, dir: &Path) -> Job {
    let words: Vec<&str> = command.split(' ').collect();
    let path = |build: &str, name: &str| {
        // Programs with HDF5 2.2 are from one build.
        let path = built.join(build).join("bin").join(name);
        assert!(path.is_file(), "{} is not there", path.display());
        path
    };
    let mut started = match words[..] {
        ["mpirun", "-n", ranks, name, ..] => {
            let mut mpirun = Mpi::of_build().run(ranks.parse().unwrap(), &path("parallel", name));
            mpirun.args(&words[4..]);
            mpirun
        }
        [LATER, name, ..] => {
            let mut program = Command::new(path("", name));
            program.args(&words[2..]);
            program
        }
        _ => {
            let mut program = Command::new(path("serial", words[0]));
            program.args(&words[1..]);
            program
        }
    };
    started.envs(way.variables.iter().map(|(name, value)| (name, value)));
    started.env("srcdir", dir).current_dir(dir);
    Job::launch(started)
}

/// Waits for the end, with a limit. Returns how it ended, and its output.
fn wait(mut job: Job) -> (End, String) {
    let start = Instant::now();
    let mut next_look = Duration::from_secs(60);
    while !job.has_ended() {
        let elapsed = start.elapsed();
        if elapsed > LONGEST || (elapsed > next_look && job.cpu() > MOST_CPU) {
            job.kill();
            return (End::Late, job.said());
        }
        if elapsed > next_look {
            next_look += Duration::from_secs(5);
        }
        thread::sleep(Duration::from_millis(5));
    }
    (End::of(job.wait()), job.said())
}
